"""The form in which a diagnosis leaves this room: everything a report may print."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kvdiag.frozen import field, frozen, mutable
from kvdiag.models import Geometry, ModelConfig
from kvdiag.quantity import Interval
from kvdiag.reading import Input
from kvdiag.starts import Start

if TYPE_CHECKING:
    from kvdiag.checks.activity import Activity
    from kvdiag.checks.facts import Facts
    from kvdiag.checks.memory import Ledger
    from kvdiag.checks.planning import Planned
    from kvdiag.lines.unknown import Unknown


@frozen
class CodeStep:
    """A statement of the tree at hand that a check's number comes from; `value` is what it gives with the log's values."""

    file: str
    symbol: str
    line: int
    step: str
    expression: str
    value: str | None = None
    confidence: str = "certain"


@frozen
class Check:
    """One number of the log held against the same number recomputed.

    `verdict` is ``agree`` (the intervals meet), ``disagree`` (they cannot both be true) or ``unknown``, and then
    `missing` names what is lacking. `terms` are the values put into `formula`.
    """

    name: str
    verdict: str
    rank: str
    role: str | None
    observed: Interval | None
    recomputed: Interval | None
    formula: str
    terms: dict[str, Any]
    missing: tuple[str, ...] = ()
    lines: tuple[int, ...] = ()
    symbol: str = ""
    code: tuple[CodeStep, ...] = ()


Bound = int | float | dict[str, Any] | None
"""A limit: one number, or an interval in its JSON form where the log leaves a choice."""


@frozen
class Limits:
    """What bounds the work the server can hold; `binding` is one of the words of the contract.

    `over_time` is what bound by the scheduler lines: their count and the share of each limit; None without such lines.
    """

    binding: str
    why: str = ""
    max_total_num_tokens: Bound = None
    max_running_requests: int | None = None
    largest_request_tokens: Bound = None
    full_length_requests: Bound = None
    over_time: dict[str, Any] | None = None


@frozen
class Finding:
    """Something the operator should know; `gain` is what following the advice is predicted to bring."""

    code: str
    level: str
    title: str
    message: str
    advice: str
    lines: tuple[int, ...] = ()
    gain: dict[str, Any] | None = None
    risk: str = ""


@mutable
class StartDiagnosis:
    """One start with all that was concluded about it; `unsized` says why the model could not be sized, if so."""

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


@mutable
class Diagnosis:
    """The content of ``kvdiag explain``: all inputs and all starts in them."""

    inputs: list[Input]
    starts: list[StartDiagnosis]
    unmatched: int = 0
    unmatched_samples: list[Unknown] = field(default_factory=list)
