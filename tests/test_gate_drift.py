"""The gate finds what changed, names it, and is silent on what changes from run to run."""

from __future__ import annotations

from typing import Any

import pytest

from tests.gate_logs import LOGS, baseline, edits, outcome_of

PLANTED = edits("planted.toml", "drift")
HARMLESS = edits("harmless.toml", "change")


def _name(edit: dict[str, Any]) -> str:
    return f"{edit['log']}-{edit['find'][:40]}"


def test_there_are_enough_of_both():
    assert len(PLANTED) >= 50
    assert len(HARMLESS) >= 50


@pytest.mark.parametrize("edit", PLANTED, ids=_name)
def test_a_planted_drift_is_found_and_named(edit: dict[str, Any], tmp_path):
    outcome = outcome_of(edit, tmp_path)
    named = [(d.code, d.subject) for d in outcome.drifts if not d.follows or d.code == "KD110"]
    assert (edit["code"], edit["subject"]) in named


@pytest.mark.parametrize("edit", HARMLESS, ids=_name)
def test_a_harmless_change_raises_nothing(edit: dict[str, Any], tmp_path):
    outcome = outcome_of(edit, tmp_path)
    assert [(d.code, d.message) for d in outcome.drifts] == []


@pytest.mark.parametrize("log", LOGS)
def test_a_log_does_not_drift_from_itself(log: str):
    from kvdiag.gate import check, observe

    outcome = check(observe(str(LOGS[log])), baseline(log))
    assert not outcome.drifts
    assert not outcome.noise
