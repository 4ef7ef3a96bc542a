"""A pytest fixture for repositories that test how their servers start: ``kvdiag_check(log, baseline)``."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from kvdiag.gate import Outcome

Checker = Callable[..., "Outcome"]


@pytest.fixture
def kvdiag_check() -> Checker:
    """Checks a log as ``kvdiag check`` does and fails the test, with the report, where the check fails.

    ``kvdiag_check(log, baseline=None, policy=None, *, fail_on="error", config=None, model=None, release=None)`` takes paths
    and gives the outcome: its drifts, what was noise, what the policy suppressed.
    """
    return run_check


def run_check(
    log: str | os.PathLike[str],
    baseline: str | os.PathLike[str] | None = None,
    policy: str | os.PathLike[str] | None = None,
    *,
    fail_on: str = "error",
    config: str | os.PathLike[str] | None = None,
    model: str | None = None,
    release: str | None = None,
) -> Outcome:
    """What the fixture ``kvdiag_check`` calls."""
    __tracebackhide__ = True
    from kvdiag.gate import check, observe, read_baseline
    from kvdiag.gate.policy import read_policy
    from kvdiag.gate.verdict import Options
    from kvdiag.reports.gate_text import render

    observed = observe(os.fspath(log), config=os.fspath(config) if config else None, model=model, release=release)
    outcome = check(
        observed,
        read_baseline(os.fspath(baseline)) if baseline else None,
        read_policy(os.fspath(policy)) if policy else None,
        Options(fail_on),
    )
    if outcome.failed:
        pytest.fail(f"kvdiag check {os.fspath(log)}\n{render(outcome, width=100, colour=False)}", pytrace=False)
    return outcome
