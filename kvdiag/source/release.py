"""Which release a tree is of: what it states, the tag it lies on, or the release whose symbols it has."""

from __future__ import annotations

import os
import re
from pathlib import Path

from kvdiag.errors import ReleaseError
from kvdiag.releases import Release, parse_release
from kvdiag.source.tree import SourceTree, TreeRelease

_VERSION = re.compile(rb"^\s*(?:__version__|version)(?:\s*=\s*(?:__version__|version))?\s*=\s*['\"]([^'\"]{1,64})['\"]", re.M)
_PROJECT = re.compile(rb"^version\s*=\s*['\"]([^'\"]{1,64})['\"]", re.M)
_DIST_INFO = re.compile(r"sglang-([^-/]+)\.dist-info")
_PLACEHOLDER = "0.0.0"


def stated_release(tree: SourceTree) -> TreeRelease | None:
    """The release by version file, package metadata or tag; None where the tree states none."""
    for path in ("_version.py", "version.py"):
        found = _VERSION.search(tree.read(path) or b"")
        release = _release(found.group(1).decode("utf-8", "replace")) if found else None
        if release:
            return TreeRelease(release, f"{tree.place(path)}", "stated")
    for text, source in _metadata(tree):
        release = _release(text)
        if release:
            return TreeRelease(release, source, "stated")
    if tree.origin.tag:
        tag, _, distance = tree.origin.tag.partition("+")
        release = _release(tag)
        if release:
            told = f"tag {tag}" + (f", {distance} commits before" if distance else "")
            return TreeRelease(release, told, "nearest" if distance else "stated")
    return None


def _release(text: str) -> Release | None:
    if text.startswith(_PLACEHOLDER):
        return None
    try:
        return parse_release(text)
    except ReleaseError:
        return None


def _metadata(tree: SourceTree) -> list[tuple[str, str]]:
    """Release texts beside the package: the name of a dist-info folder or of the archive, the project file."""
    told: list[tuple[str, str]] = []
    if tree.kind in ("wheel", "sdist"):
        found = re.match(r"sglang-([^-]+?)(?:-|\.tar|\.zip|$)", os.path.basename(tree.name))
        if found:
            told.append((found.group(1), "the archive's name"))
        return told
    if tree.kind == "git":
        return told
    root = Path(os.path.realpath(tree.name))
    parent = (root / tree.package).parent if tree.package else root.parent
    try:
        told += [
            (match.group(1), entry.name) for entry in sorted(parent.iterdir()) if (match := _DIST_INFO.fullmatch(entry.name))
        ]
        project = parent / "pyproject.toml"
        if project.is_file() and not project.is_symlink() and project.stat().st_size < 1 << 20:
            found_version = _PROJECT.search(project.read_bytes())
            if found_version:
                told.append((found_version.group(1).decode("utf-8", "replace"), "pyproject.toml"))
    except OSError:
        pass
    return told
