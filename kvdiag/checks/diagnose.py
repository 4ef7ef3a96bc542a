"""From starts to a diagnosis."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kvdiag.checks.activity import activity_of
from kvdiag.checks.facts import Facts
from kvdiag.checks.findings import judge
from kvdiag.checks.inputs import gather
from kvdiag.checks.limits import limits_of
from kvdiag.checks.memory import ledgers_of
from kvdiag.checks.model import StartDiagnosis
from kvdiag.checks.recompute import recompute
from kvdiag.releases import Release
from kvdiag.starts import Start


def diagnose(
    start: Start,
    *,
    config: str | None = None,
    model: str | None = None,
    release: Release | None = None,
    last_exception: str = "",
    other: Iterable[tuple[str, str, Any]] = (),
) -> StartDiagnosis:
    """All that can be concluded about one start.

    `config` is a path, `model` a catalogue name, `release` the stated release; `last_exception` the last line of the
    last traceback; `other` what further sources say, as (source, name, value). Raises ConfigError where `config` or
    `model` cannot be used.
    """
    inputs = gather(start, config, model, release)
    checks = recompute(inputs)
    activity = activity_of(start)
    limits = limits_of(inputs, activity)
    ledgers = ledgers_of(inputs)
    facts = Facts(inputs, tuple(checks), limits, ledgers, activity, last_exception, tuple(other))
    return StartDiagnosis(
        start, inputs.config, inputs.geometry, inputs.unsized, checks, limits, judge(facts), ledgers, activity, facts
    )
