"""The lock file fits the ranges of pyproject.toml, and the audit fails on what it finds and on nothing else."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from tests.conftest import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]
NEEDS = [Requirement(text) for text in PROJECT["dependencies"] + EXTRAS["table"] + EXTRAS["fleet"] if "kvdiag" not in text]
LOCK = (ROOT / "requirements.lock").read_text(encoding="utf-8")


@pytest.mark.parametrize("need", NEEDS, ids=lambda need: need.name)
def test_every_dependency_is_locked_within_a_range_with_both_ends(need):
    locked = dict(line.split("==") for line in LOCK.splitlines())
    assert Version(locked[canonicalize_name(need.name)]) in need.specifier
    assert {spec.operator for spec in need.specifier} == {">=", "<"}


def test_the_lock_names_no_index_and_no_machine():
    assert all(re.fullmatch(r"[a-z0-9.-]+==[0-9][A-Za-z0-9.]*", line) for line in LOCK.splitlines())


def audit(folder, printed):
    """The audit with a pip-audit that prints this."""
    tool = folder / "pip-audit"
    tool.write_text(f"#!/bin/sh\ncat <<'EOF'\n{printed}\nEOF\nexit 1\n")
    tool.chmod(0o755)
    python = folder / "python"
    python.symlink_to(sys.executable)
    environment = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}
    return subprocess.run([python, str(ROOT / ".ci" / "audit")], capture_output=True, text=True, env=environment, timeout=60)


FLAW = {"name": "a", "version": "1", "vulns": [{"id": "CVE-1", "fix_versions": ["2"]}]}


@pytest.mark.parametrize(
    ("printed", "code", "said"),
    [
        (json.dumps({"dependencies": [FLAW]}), 1, "a 1: CVE-1, fixed in 2"),
        (json.dumps({"dependencies": [FLAW | {"vulns": []}]}), 0, "1 of 1 packages looked up, 0 vulnerabilities"),
        (json.dumps({"dependencies": [{"name": "a", "skip_reason": "not found"}]}), 0, "audit skipped"),
        ("no network", 0, "audit skipped"),
    ],
    ids=["a flaw", "none", "unknown packages", "no network"],
)
def test_the_audit_fails_on_a_flaw_and_is_skipped_where_it_cannot_look(tmp_path, printed, code, said):
    done = audit(tmp_path, printed)
    assert (done.returncode, said in done.stdout) == (code, True), done
