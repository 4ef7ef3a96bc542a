"""The fixture logs of the gate's tests, and checks of an edited log against the baseline of the original."""

from __future__ import annotations

import re
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

from kvdiag.gate import Outcome, Snapshot, check, observe, write_baseline
from kvdiag.gate.baseline import parse_baseline
from tests.conftest import FIXTURES, ROOT

LOGS = {
    "kimi": FIXTURES / "scenarios" / "kimi-k2.5-f0.88" / "server.log",
    "l4": FIXTURES / "scenarios" / "l4-bf16" / "server.log",
    "tp2": FIXTURES / "real" / "0.5.22-qwen3-tp2-bind" / "server.log",
    "swa": FIXTURES / "real" / "0.5.22-gpt-oss-swa-triton" / "server.log",
    "eagle": FIXTURES / "real" / "0.5.9-llama-gqa-eagle-start" / "server.log",
    "nocap": FIXTURES / "real" / "0.5.23-qwen3-memfrac005-nocap" / "server.log",
    "nocap9": FIXTURES / "real" / "0.5.9-qwen3-memfrac005-nocap" / "server.log",
    "flood": FIXTURES / "real" / "0.4.6-llama-gqa-flood-retract" / "server.log",
}


@cache
def baseline(log: str) -> Snapshot:
    """The baseline of a fixture, through its file form."""
    return parse_baseline(write_baseline(observe(str(LOGS[log])).snapshot), log)


def edited(edit: dict[str, Any]) -> str:
    """The text of the edit's log with the edit applied; the pattern must occur."""
    text = LOGS[edit["log"]].read_text(encoding="utf-8")
    new, count = re.subn(edit["find"], edit["put"], text, count=0 if edit.get("all") else 1)
    assert count, f"{edit['find']!r} does not occur in {edit['log']}"
    assert new != text
    for find, put in edit.get("also", ()):
        new = re.sub(find, put, new)
    return new


def outcome_of(edit: dict[str, Any], folder: Path) -> Outcome:
    """The check of the edited log against the baseline of the original."""
    path = folder / "server.log"
    path.write_text(edited(edit), encoding="utf-8")
    return check(observe(str(path)), baseline(edit["log"]))


def edits(name: str, table: str) -> list[dict[str, Any]]:
    """The edits listed in a file of tests/data."""
    return tomllib.loads((ROOT / "tests" / "data" / name).read_text(encoding="utf-8"))[table]
