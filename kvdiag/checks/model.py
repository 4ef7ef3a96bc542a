"""The parts of a diagnosis: checks, limits, findings."""

from __future__ import annotations

from typing import Any

from kvdiag.frozen import frozen
from kvdiag.quantity import Interval


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
    `missing` names what is lacking. `terms` are the values put into `formula`. `implied` says that no line prints what was
    observed: other figures of the log imply it. The first of `lines` is the one in which
    the number stands, the others are those of the inputs.
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
    implied: bool = False


Bound = int | float | dict[str, Any] | None
"""A limit: one number, or an interval in its JSON form where the log leaves a choice."""


@frozen
class Limits:
    """What bounds the work the server can hold; `binding` is one of the words of the contract.

    `over_time` is what bound by the scheduler lines: their kind and count and the share of each limit; None without such lines.
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
