"""The release of a tree that states none: the one whose symbols it has."""

from __future__ import annotations

from kvdiag.releases import Release, known_releases
from kvdiag.source.anchors import Anchor, number_rules
from kvdiag.source.parsed import Parsed
from kvdiag.source.release import stated_release
from kvdiag.source.tree import SourceTree, TreeRelease

_TELLING = ("max_total_num_tokens", "rest_memory", "cell_size", "max_running_requests", "token_usage")


def release_of(tree: SourceTree) -> TreeRelease:
    """The release a tree states, else the nearest by its symbols, with how many of them agree."""
    return stated_release(tree) or _nearest(tree)


def _nearest(tree: SourceTree) -> TreeRelease:
    parsed = Parsed(tree)
    anchors = {anchor for name in _TELLING for step in number_rules()[name].steps for anchor in step.anchors}
    present = {anchor for anchor in anchors if parsed.symbol(anchor.file, anchor.symbol) is not None}
    if not present:
        return TreeRelease(None, "no symbol that a release is known by is in this tree", "unknown")
    scores = {release: _score(anchors, present, release) for release in known_releases()}
    best = max(scores.values())
    fitting = [release for release, score in scores.items() if score == best]
    agree = sum(1 for anchor in anchors if anchor.covers(fitting[-1]) == (anchor in present))
    span = f"{fitting[0]}..{fitting[-1]}" if len(fitting) > 1 else str(fitting[0])
    return TreeRelease(fitting[-1], f"its symbols: {agree} of {len(anchors)} are as in {span}", "nearest")


def _score(anchors: set[Anchor], present: set[Anchor], release: Release) -> int:
    return sum(1 if anchor.covers(release) == (anchor in present) else -1 for anchor in anchors)
