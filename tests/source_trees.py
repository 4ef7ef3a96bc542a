"""The small tree that stands in for a release, and a repository made from it."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from tests.conftest import FIXTURES

TREE = Path(__file__).parent / "data" / "tree"
LOG = FIXTURES / "scenarios" / "kimi-k2.5-f0.88" / "server.log"
SIZING = "python/sglang/srt/model_executor/model_runner_kv_cache_mixin.py"
_IDENTITY = {
    "GIT_AUTHOR_NAME": "t",
    "GIT_AUTHOR_EMAIL": "t@example.org",
    "GIT_COMMITTER_NAME": "t",
    "GIT_COMMITTER_EMAIL": "t@example.org",
}


def copied(folder: Path) -> Path:
    """A copy of the tree, to be edited."""
    return Path(shutil.copytree(TREE, folder / "tree"))


def edit(tree: Path, before: str, after: str, file: str = SIZING) -> None:
    """Puts `after` in the place of `before`, which must be there."""
    place = tree / file
    assert before in place.read_text()
    place.write_text(place.read_text().replace(before, after))


def git(repo: Path, *arguments: str) -> str:
    """What git prints, of no configuration but the repository's."""
    environment = {**os.environ, **_IDENTITY, "GIT_CONFIG_GLOBAL": f"{repo}.none", "GIT_CONFIG_NOSYSTEM": "1"}
    return subprocess.run(
        ["git", "-C", str(repo), *arguments], check=True, capture_output=True, text=True, env=environment
    ).stdout
