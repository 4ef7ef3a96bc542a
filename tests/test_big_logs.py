"""Big logs are explained as small ones are: the same diagnosis by the fast path, and a bounded one where lines are sampled."""

from __future__ import annotations

import json

import pytest

from kvdiag.lines import sample
from kvdiag.pipeline import explain
from kvdiag.reports.json_report import to_dict
from kvdiag.starts import batches
from tests.conftest import FIXTURES
from tests.test_fast_path import make_log

LOGS = sorted(FIXTURES.rglob("*.log"))


def told(path):
    return json.dumps(to_dict(explain([str(path)])), indent=1)


@pytest.mark.parametrize("path", LOGS, ids=[path.parent.name for path in LOGS])
def test_the_fast_path_gives_the_same_diagnosis(path, monkeypatch):
    slow = told(path)
    monkeypatch.setattr(sample, "BIG", 0)
    assert told(path) == slow


def test_restarts_and_rare_lines_give_the_same_diagnosis(tmp_path, monkeypatch):
    path = tmp_path / "log"
    make_log.write_log(path, size=100_000, seed=3, rare=0.05)
    text = path.read_text(encoding="utf-8")
    path.write_text(text + "Traceback (most recent call last):\n  File x\nRuntimeError: no\n" + text + "something else\n" * 50)
    slow = told(path)
    monkeypatch.setattr(sample, "BIG", 0)
    assert told(path) == slow


def test_of_a_big_log_a_sample_is_looked_at(tmp_path, monkeypatch):
    path = tmp_path / "log"
    make_log.write_log(path, size=1_500_000, seed=3)
    monkeypatch.setattr(sample, "WANTED", 256)
    diagnosis = explain([str(path)])
    kept = list(diagnosis.starts[0].start.batches)
    assert 256 <= len(kept) <= 600
    assert diagnosis.inputs[0].lines == path.read_bytes().count(b"\n")
    assert (
        diagnosis.inputs[0].matched
        == sum(b" batch, " in line or b"Retract" in line for line in path.read_bytes().splitlines()) + 19
    )
    assert "scheduler lines of this log" in diagnosis.starts[0].start.notes[-1]
    assert [record.line.number for record in kept] == sorted(record.line.number for record in kept)


def test_a_start_keeps_a_bounded_even_sample(monkeypatch):
    monkeypatch.setattr(batches, "MOST", 100)
    kept = batches.Batches()
    for number in range(1000):
        kept.append(number)
    assert list(kept) == list(range(0, 1000, kept.every))
    assert (kept.seen, kept.every) == (1000, 16)
