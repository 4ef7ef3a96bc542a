"""Which limit bound while work waited, by the scheduler lines, and whether more tokens would be of use."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from kvdiag.checks.activity import Activity, Batch

if TYPE_CHECKING:
    from kvdiag.checks.facts import Facts

FULL = 0.90
"""Usage from which the pool counts as binding: SGLang's tuning guide calls more than this good use."""


FEWEST_LINES = 10
"""Decode lines from which the absence of a queue says something."""


def bound_by(batch: Batch, cap: int | None) -> str:
    """The limit that kept work waiting when this line was printed; ``arrivals`` where none waited.

    ``admission_reserve`` means that the scheduler kept tokens back for what running requests may still write.
    """
    if not batch.queued:
        if batch.queued is None and not _is_full(batch):
            return "unknown"
        return "transfer" if batch.transferring and not batch.running else "arrivals"
    if cap and batch.running is not None and batch.running >= cap:
        return "max_running_requests"
    if batch.state_usage is not None and batch.state_usage.high >= FULL:
        return "state_slots"
    if batch.swa_usage is not None and batch.swa_usage.high >= FULL:
        return "swa_pool"
    if batch.usage is None:
        return "unknown"
    return "kv_pool" if batch.usage.high >= FULL else "admission_reserve"


def _is_full(batch: Batch) -> bool:
    return batch.usage is not None and batch.usage.high >= FULL


def bindings(activity: Activity, cap: int | None) -> dict[str, float]:
    """Shares of the decode lines by what bound, largest first; prefill lines where there are no decode lines."""
    lines = activity.decode or activity.prefill
    counts = Counter(bound_by(batch, cap) for batch in lines)
    return {name: count / len(lines) for name, count in counts.most_common()} if lines else {}


def nothing_waited(activity: Activity) -> bool:
    """Whether the decode lines tell that no request ever waited or went back to the queue."""
    decode = activity.decode
    return bool(decode) and not activity.retractions and all(batch.queued == 0 for batch in decode)


def words(facts: Facts) -> dict[str, Any]:
    """What any sentence about more tokens must agree with.

    ``capped`` is the --max-total-tokens that decides the capacity, ``uncapped`` stands where none does; ``enough``
    where the log shows load and nothing waited, ``wanted`` elsewhere.
    """
    is_capped = facts.limits.binding == "max_total_tokens"
    enough = len(facts.activity.decode) >= FEWEST_LINES and nothing_waited(facts.activity)
    return {
        "capped": (facts.arg("max_total_tokens") or facts.tokens) if is_capped else None,
        "uncapped": None if is_capped else "",
        "enough": "" if enough else None,
        "wanted": None if enough else "",
    }
