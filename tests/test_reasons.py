"""Why something is unknown is said in whole sentences: each reason is a clause behind "unknown, because"."""

from __future__ import annotations

import re

import pytest

from kvdiag import rulebook
from kvdiag.checks.diagnose import diagnose
from kvdiag.checks.samples import findings_in
from kvdiag.gate.linedrift import _quoted
from kvdiag.lines import read_records
from kvdiag.lines.wording import LONGEST
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


def exception_told(text):
    log = "\n".join(
        [
            "[2026-01-05 10:00:00] server_args=ServerArgs(model_path='/models/x', tp_size=1, pp_size=1, device='cuda')",
            "[2026-01-05 10:00:09] Scheduler hit an exception: Traceback (most recent call last):",
            '  File "/site-packages/sglang/srt/managers/scheduler.py", line 1, in run_scheduler_process',
            text,
            "",
            "[2026-01-05 10:00:09] Received sigquit from a child process. It usually means the child failed.",
        ]
    )
    (message,) = [finding.message for finding in findings_in(log) if finding.code == "KV001"]
    return message.partition("The exception is: ")[2]


def test_an_exception_is_quoted_to_its_end_with_one_full_stop():
    long = "AssertionError: it is not set. " + "If you need more of them than there are, please set " * 5 + "them for each rank."
    assert exception_told(long).startswith(long)
    assert ".." not in exception_told(long)
    assert exception_told("RuntimeError: 0 active drivers. There should only be one.").endswith("only be one.")


def test_a_wording_that_was_cut_shows_it_and_ends_between_words():
    assert _quoted("short") == "'short'"
    assert _quoted(("word " * 60)[: LONGEST - 2] + "xy").endswith(" ...'")
