"""Answers as plain data (the JSON of the contract), kept in the user's cache under the content of tree and rules."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

from kvdiag import rulebook
from kvdiag.frozen import names_of
from kvdiag.source.nearest import release_of
from kvdiag.source.path import CodePath, code_path
from kvdiag.source.tree import SourceTree, TreeRelease

SCHEMA = "kvdiag.source/1"
MOST_KEPT = 512
"""Answers kept in the cache; the oldest go first."""


def number_answer(tree: SourceTree, number: str) -> dict[str, Any]:
    """The answer to ``kvdiag source TREE NUMBER``. Raises InputError for an unknown number."""
    return kept(tree, f"number {number}", lambda: path_data(tree, code_path(tree, number)))


def changes_answer(newer: SourceTree, older: SourceTree, number: str) -> dict[str, Any]:
    """The answer to ``kvdiag source TREE NUMBER --against OLDER``. Raises InputError for an unknown number."""
    other = f"{older.name} {older.origin.revision} {older.fingerprint}"
    return kept(newer, f"changes {number} {other}", lambda: _changes(newer, older, number))


def _changes(newer: SourceTree, older: SourceTree, number: str) -> dict[str, Any]:
    from kvdiag.source.changes import compared

    found = compared(older, newer, number)
    changes = [{name: getattr(change, name) for name in names_of(change)} for change in found.changes]
    before = release_data(release_of(older))
    against = {"tree": older.name, "revision": older.origin.revision, "tag": older.origin.tag, **before}
    return path_data(newer, code_path(newer, number)) | {
        "against": against,
        "changes": changes,
        "reached": found.reached,
        "not_followed": list(found.unfollowed),
    }


def numbers_answer(tree: SourceTree) -> dict[str, Any]:
    """The numbers that can be asked for, and what the tree is."""
    from kvdiag.source.anchors import number_rules

    numbers = [{"number": r.number, "title": r.title, "aliases": list(r.aliases)} for r in number_rules().values()]
    return head(tree) | release_data(release_of(tree)) | {"numbers": numbers, "skipped": skipped(tree)}


def release_data(release: TreeRelease) -> dict[str, Any]:
    """The release of a tree, how it is known, and how surely."""
    told = str(release.release) if release.release else None
    return {"release": told, "release_by": release.source, "release_confidence": release.confidence}


def head(tree: SourceTree) -> dict[str, Any]:
    """What every answer begins with."""
    return {"schema": SCHEMA, "tree": tree.name, "kind": tree.kind, "revision": tree.origin.revision, "tag": tree.origin.tag}


def path_data(tree: SourceTree, path: CodePath) -> dict[str, Any]:
    """A code path as the JSON of the contract."""
    told = head(tree) | release_data(path.release)
    return told | {
        "number": path.number,
        "title": path.title,
        "unit": path.unit,
        "meaning": path.meaning,
        "path": [{name: getattr(step, name) for name in names_of(step)} for step in path.steps],
        "missing": list(path.missing),
        "damaged": list(path.damaged),
        "skipped": skipped(tree),
    }


def skipped(tree: SourceTree) -> dict[str, Any]:
    """How many files were passed over, and the first of them with the reason."""
    passed = tree.store.skipped
    return {"count": len(passed), "samples": [{"file": file, "reason": reason} for file, reason in passed[:5]]}


def kept(tree: SourceTree, question: str, answer: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """The answer from the cache where tree, rules, code and question are the same; else worked out and kept.

    A cache that cannot be read or written is passed over: it only costs time.
    """
    path = _folder() / f"{_digest(tree.fingerprint, repr(sorted(head(tree).items(), key=str)), question, _own_version())}.json"
    try:
        found = json.loads(path.read_bytes())
        if isinstance(found, dict) and found.get("schema") == SCHEMA:
            return found
    except (OSError, ValueError):
        pass
    made = answer()
    _keep(path, made)
    return made


def _folder() -> Path:
    return Path(rulebook.cache_dir()) / "source"


def _digest(*parts: str) -> str:
    from hashlib import blake2b

    return blake2b("\0".join(parts).encode("utf-8", "surrogatepass"), digest_size=20).hexdigest()


@lru_cache(maxsize=1)
def _own_version() -> str:
    """Changes with this room's code and with the rules: an answer of another kvdiag is not given."""
    here = Path(__file__).parent
    files = [*here.glob("*.py"), *(Path(rulebook.rules_dir()) / "numbers").glob("*.toml")]
    return ";".join(f"{file.name} {status.st_size} {status.st_mtime_ns}" for file in sorted(files) if (status := file.stat()))


def _keep(path: Path, made: dict[str, Any]) -> None:
    temporary = path.with_suffix(f".{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(json.dumps(made, ensure_ascii=True), encoding="ascii")
        temporary.replace(path)
        answers = sorted(path.parent.glob("*.json"), key=lambda file: file.stat().st_mtime)
        for old in answers[:-MOST_KEPT]:
            old.unlink(missing_ok=True)
    except OSError:
        return
