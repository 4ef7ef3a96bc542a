"""Public problem reports of start-up sizing and of releases that differ: what each argues for must come out."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import SHARED

ROOT = Path(__file__).parents[1]
CASES = SHARED / "cases"
KINDS = ("1", "4", "5")


def cases():
    if not CASES.is_dir():
        return []
    found = []
    for folder in sorted(CASES.iterdir()):
        text = (folder / "case.md").read_text() if folder.is_dir() else ""
        kind = next((line for line in text.splitlines() if line.startswith("- kind:")), "")
        if any(f" {number} " in kind or f" {number}(" in kind or kind.endswith(f" {number}") for number in KINDS):
            found.append(folder)
    return found


@pytest.mark.shared
@pytest.mark.parametrize("folder", cases(), ids=lambda folder: folder.name)
def test_the_verdicts_and_numbers_of_a_report(folder):
    command = [sys.executable, str(CASES / "check_case.py"), str(folder), sys.executable, "-m", "kvdiag"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, encoding="utf-8", cwd=ROOT, env=environment, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
