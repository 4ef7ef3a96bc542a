"""Which limit bound while work waited, by the scheduler lines."""

from __future__ import annotations

from collections import Counter

from kvdiag.checks.activity import Batch
from kvdiag.checks.facts import Facts

FULL = 0.90
"""Usage from which the pool counts as binding: SGLang's tuning guide calls more than this good use."""


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


def bindings(facts: Facts) -> dict[str, float]:
    """Shares of the decode lines by what bound, largest first; prefill lines where there are no decode lines."""
    lines = facts.activity.decode or facts.activity.prefill
    counts = Counter(bound_by(batch, facts.cap) for batch in lines)
    return {name: count / len(lines) for name, count in counts.most_common()} if lines else {}
