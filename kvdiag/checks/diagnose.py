"""From starts to a diagnosis."""

from __future__ import annotations

from collections.abc import Sequence

from kvdiag.checks.activity import activity_of
from kvdiag.checks.diagnosis import StartDiagnosis
from kvdiag.checks.facts import Facts
from kvdiag.checks.findings import judge
from kvdiag.checks.inputs import gather
from kvdiag.checks.limits import limits_of
from kvdiag.checks.memory import ledgers_of
from kvdiag.checks.planning import plan_for, unplanned
from kvdiag.checks.recompute import recompute
from kvdiag.checks.switches import with_switches
from kvdiag.checks.workload import Workload
from kvdiag.outside import Outside
from kvdiag.releases import Release
from kvdiag.sizing.environment import UNSET, Environment
from kvdiag.starts import Start


def diagnose(
    start: Start,
    *,
    config: str | None = None,
    model: str | None = None,
    release: Release | None = None,
    last_exception: str = "",
    siblings: Sequence[Start] = (),
    outside: Sequence[Outside] = (),
    workload: Workload | None = None,
    environment: Environment = UNSET,
    draft_config: str | None = None,
) -> StartDiagnosis:
    """All that can be concluded about one start.

    `config` and `draft_config` are paths, `model` a catalogue name, `release` the stated release; `last_exception` the last
    line of the last traceback, `siblings` all starts of the same inputs, `outside` what further sources say, `workload` what
    the pool is planned for, `environment` the switches of the server's environment. Raises ConfigError where `config` or
    `model` cannot be used.
    """
    inputs = with_switches(gather(start, config, model, release, environment, draft_config))
    checks = recompute(inputs)
    activity = activity_of(start)
    limits = limits_of(inputs, activity)
    ledgers = ledgers_of(inputs)
    facts = Facts(inputs, tuple(checks), limits, ledgers, activity, last_exception, tuple(siblings), tuple(outside))
    planned = plan_for(facts, workload)
    return StartDiagnosis(
        start,
        inputs.config,
        inputs.geometry,
        inputs.unsized,
        checks,
        limits,
        judge(facts),
        ledgers,
        activity,
        facts,
        planned,
        "" if planned else unplanned(facts),
    )
