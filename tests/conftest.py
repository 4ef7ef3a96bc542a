"""Paths and helpers the tests share."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("kvdiag", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("kvdiag")
"""A busy machine is no fault of the code: bars of time are kept by the tests that measure processor time."""

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell starts what runs in the background so, and the processes that tests interrupt would inherit it.
    signal.signal(signal.SIGINT, signal.default_int_handler)

ROOT = Path(__file__).resolve().parent.parent
FIXTURES = ROOT / "fixtures"
SHARED = ROOT.parent / "shared"
CHECKOUT = (ROOT / "kvdiag").is_dir()
"""Whether the package is tested where it stands, and not as installed from a wheel (bench/wheel.py)."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    absent = pytest.mark.skip(reason="the shared facts are not beside this checkout")
    for item in items:
        if "shared" in item.keywords and not SHARED.is_dir():
            item.add_marker(absent)


@pytest.fixture
def kvdiag(tmp_path: Path):
    """Runs the command line as a user does: a process of its own, with a cache of its own."""

    def run(*arguments: str, stdin: bytes | None = None, timeout: float = 60) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")}
        done = subprocess.run(
            [sys.executable, "-m", "kvdiag", *arguments], input=stdin, capture_output=True, timeout=timeout, env=environment
        )
        return subprocess.CompletedProcess(
            done.args, done.returncode, done.stdout.decode("utf-8", "replace"), done.stderr.decode("utf-8", "replace")
        )

    return run


@pytest.fixture
def own_cache(tmp_path, monkeypatch):
    """An index of source trees of the test's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def tree(tmp_path):
    """A copy of the small source tree, to be edited."""
    from tests.source_trees import copied

    return copied(tmp_path)


@pytest.fixture
def parsed():
    """The small source tree, parsed."""
    from kvdiag.source import open_tree
    from kvdiag.source.parsed import Parsed
    from tests.source_trees import TREE

    return Parsed(open_tree(str(TREE)))
