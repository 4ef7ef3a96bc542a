"""Every command block of the README and the documentation runs as it stands and prints what the page shows.

A ```bash block whose first line starts with ``kvdiag `` is run line by line in a copy of the fixtures; ``<!-- exit N -->``
before it tells the exit code it ends with. A ```text block behind it is its output: every line of it but ``...`` must be
printed, in this order. A ```python block is run likewise.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass

import pytest

from tests.conftest import FIXTURES, ROOT
from tests.source_trees import TREE, edit

_BLOCK = re.compile(r"(?:<!-- exit (\d+) -->\n)?```(bash|python)\n(.*?)```\n(?:\n```text\n(.*?)```\n)?", re.DOTALL)
_SCENARIOS = FIXTURES / "scenarios"
_STAND_INS = {"server.log": "kimi-k2.5-f0.88", "good.log": "kimi-k2.5-f0.88", "new.log": "kimi-k2.5-f0.88"}
"""Logs the pages name that the reader has and we do not."""


@dataclass(frozen=True)
class Block:
    language: str
    text: str
    exit_code: int
    shown: str


def _pages():
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [page for page in pages if page.exists() and _blocks(page)]


def _blocks(page):
    found = [Block(m[2], m[3], int(m[1] or 0), m[4] or "") for m in _BLOCK.finditer(page.read_text(encoding="utf-8"))]
    return [block for block in found if block.language == "python" or block.text.startswith("kvdiag ")]


_INSTALLS = {
    "README.md": 2,  # the first command: tests/test_package.py runs it; the tests' own: .ci/run runs it
    "CONTRIBUTING.md": 1,  # the same environment as for the tests
}


def test_every_command_block_is_run_but_those_that_install():
    block = re.compile(r"```(?:bash|sh|console|shell|python)\n(.*?)```", re.DOTALL)
    pages = [
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        ROOT / "SECURITY.md",
        ROOT / "ARCHITECTURE.md",
        *(ROOT / "docs").rglob("*.md"),
    ]
    for page in pages:
        text = page.read_text(encoding="utf-8")
        run = {found.text for found in _blocks(page)}
        left = [found for found in block.findall(text) if found not in run]
        assert len(left) == _INSTALLS.get(page.name, 0), f"{page.name}: {left}"
        assert all(found.startswith("python3 -m venv .venv && ") for found in left), left


@pytest.fixture
def folder(tmp_path):
    """A working directory as after cloning the repository, with a log of one's own."""
    shutil.copytree(FIXTURES, tmp_path / "fixtures")
    for name, scenario in _STAND_INS.items():
        shutil.copy(_SCENARIOS / scenario / "server.log", tmp_path / name)
    shutil.copytree(TREE, tmp_path / "tests" / "data" / "tree")
    shutil.copytree(TREE, tmp_path / "patched")
    edit(tmp_path / "patched", "rest_memory = available_gpu_memory - ", "rest_memory = available_gpu_memory - 2 - ")
    return tmp_path


@pytest.mark.parametrize("page", _pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_says_what_its_commands_print(page, folder):
    for block in _blocks(page):
        printed, code = _run(block, folder)
        assert code == block.exit_code, f"{block.text}\n{printed}"
        _assert_shown(block, printed)


def _run(block, folder):
    if block.language == "python":
        return _process(["-c", block.text], folder)
    printed, code = "", 0
    for line in block.text.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        if words:
            assert words[0] == "kvdiag", f"{line!r} would not be run"
            assert code == 0, f"a command before {line!r} ended with {code}\n{printed}"
            more, code = _process(["-m", "kvdiag", *words[1:]], folder)
            printed += more
    return printed, code


def _process(arguments, folder):
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "XDG_CACHE_HOME": str(folder / "cache"), "COLUMNS": "100"}
    done = subprocess.run(
        [sys.executable, *arguments], capture_output=True, encoding="utf-8", cwd=folder, env=environment, timeout=120
    )
    return done.stdout + done.stderr, done.returncode


def _assert_shown(block, printed):
    lines = iter([line.rstrip() for line in printed.splitlines()])
    for shown in block.shown.splitlines():
        if shown.strip() not in {"", "..."}:
            assert any(line == shown.rstrip() for line in lines), f"not printed (or not here): {shown!r}\n{block.text}\n{printed}"
