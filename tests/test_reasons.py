"""Why something is unknown is said in whole sentences: each reason is a clause behind "unknown, because"."""

from __future__ import annotations

import re

import pytest

from kvdiag import rulebook
from kvdiag.checks.diagnose import diagnose
from kvdiag.lines import read_records
from kvdiag.pipeline import what_if
from kvdiag.reading import Line
from kvdiag.releases import parse_release
from kvdiag.reports.because import because
from kvdiag.starts import assemble
from tests.conftest import FIXTURES

LOGS = sorted(FIXTURES.glob("*/*/server.log"))
VERB = re.compile(
    r"\b(is|are|was|may|has|have|cannot|states?|names?|does|do|gives?|takes?|holds?|lowered|sized|decide|differ|grew|came|went"
    r"|would|packs|stays?|disagree|knows?|follows|needs|fits)\b"
)
"""The verbs that a reason may have before its colon or bracket."""


def reasons(text, **known):
    starts = assemble(read_records([Line(number, line) for number, line in enumerate(text.strip("\n").split("\n"), 1)]))
    return {reason for start in starts for check in diagnose(start, siblings=starts, **known).checks for reason in check.missing}


def is_clause(reason):
    return VERB.search(re.split(r"[:(]", because(reason).removeprefix("unknown, because "))[0])


def cuts(text):
    """A log without its arguments, without its readings, from its middle on."""
    lines = text.split("\n")
    yield text
    for mark in ("server_args", "Load weight end", "Load weight begin", "KV Cache is allocated", "max_total_num_tokens="):
        yield "\n".join(line for line in lines if mark not in line)


@pytest.mark.parametrize("log", LOGS, ids=lambda log: log.parent.name)
def test_every_reason_in_a_log_whole_or_cut_is_a_clause(log):
    config = log.parent / "config.json"
    for text in cuts(log.read_text(errors="replace")):
        for given in ({}, {"config": str(config)} if config.is_file() else {"release": parse_release("0.5.20")}):
            for reason in reasons(text, **given):
                assert is_clause(reason), reason


def test_every_reason_in_the_samples_of_the_findings_is_a_clause():
    for rule in rulebook.load("findings"):
        for sample in (*rule["raises"], *rule["silent"]):
            release = parse_release(sample["release"]) if "release" in sample else None
            for reason in reasons(sample["log"], model=sample.get("model"), release=release):
                assert is_clause(reason), reason


def test_what_whatif_cannot_predict_is_told_in_a_clause():
    changes = [
        {"quantization": "fp8"},
        {"dtype": "float32"},
        {"device": "cpu"},
        {"speculative_algorithm": "EAGLE"},
        {"dcp_size": 2},
    ]
    for log in LOGS:
        if "mem usage" not in log.read_text(errors="replace"):
            continue
        for prediction in what_if(str(log), changes, release="0.5.9"):
            for reason in prediction.missing:
                assert reason.startswith("the server") or is_clause(reason), reason
