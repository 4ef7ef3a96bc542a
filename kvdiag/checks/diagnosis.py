"""The form in which a diagnosis leaves this room: everything a report may print."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvdiag.checks.activity import Activity
from kvdiag.checks.facts import Facts
from kvdiag.checks.memory import Ledger
from kvdiag.checks.model import Check, Finding, Limits
from kvdiag.checks.planning import Planned
from kvdiag.frozen import field, mutable
from kvdiag.models import Geometry, ModelConfig
from kvdiag.reading import Input
from kvdiag.starts import Start

if TYPE_CHECKING:
    from kvdiag.lines.unknown import Unknown


@mutable
class StartDiagnosis:
    """One start with all that was concluded about it.

    `unsized` says why the model could not be sized, `unplanned` why no workload could be estimated.
    """

    start: Start
    config: ModelConfig | None
    geometry: Geometry | None
    unsized: str
    checks: list[Check] = field(default_factory=list)
    limits: Limits | None = None
    findings: list[Finding] = field(default_factory=list)
    memory: tuple[Ledger, ...] = ()
    activity: Activity | None = None
    facts: Facts | None = None
    workload: Planned | None = None
    unplanned: str = ""


@mutable
class Diagnosis:
    """The content of ``kvdiag explain``: all inputs and all starts in them."""

    inputs: list[Input]
    starts: list[StartDiagnosis]
    unmatched: int = 0
    unmatched_samples: list[Unknown] = field(default_factory=list)
