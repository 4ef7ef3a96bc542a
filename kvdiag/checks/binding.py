"""Which limit bound while work waited, by the scheduler lines, and whether more tokens would be of use."""

from __future__ import annotations

from collections import Counter

from kvdiag.checks.activity import Activity, Batch
from kvdiag.frozen import frozen

FULL = 0.90
"""Usage from which the pool counts as binding: SGLang's tuning guide calls more than this good use."""


MOST_RESERVED = 4096
"""Tokens that admission keeps back for one running request at most (``SGLANG_CLIP_MAX_NEW_TOKENS_ESTIMATION``)."""

FULL_BATCHES = 3
"""Prefill batches of the same size from which it is no chance."""


@frozen
class Bounds:
    """What can bind on one data-parallel replica; None where it is not known.

    `cap` is of requests, `pool` its tokens, `context` of one request, `chunk` the new tokens of one prefill batch. Where
    most prefill batches are full (`is_prefill_full`), it is prefill that work waits for between them as well.
    `most_tokens` and `most_running` are what no decode line of this server can exceed.
    """

    cap: int | None = None
    pool: int | None = None
    context: int | None = None
    chunk: int | None = None
    is_prefill_full: bool = False
    most_tokens: int | None = None
    most_running: int | None = None

    def holds_too_much(self, batch: Batch) -> bool:
        """Whether the line has more tokens in use than the pool has."""
        return batch.kind == "decode" and self.most_tokens is not None and (batch.tokens or 0) > self.most_tokens

    def runs_too_many(self, batch: Batch) -> bool:
        """Whether more requests run in the line than the cap allows."""
        return batch.kind == "decode" and self.most_running is not None and (batch.running or 0) > self.most_running

    def reserve_can_bind(self, used: int | None, running: int | None) -> bool:
        """Whether what is kept back for the running requests may be what a newcomer lacks; true where that is not known."""
        if self.pool is None or self.context is None or used is None or running is None:
            return True
        return used + running * MOST_RESERVED + self.context >= self.pool


def bound_by(batch: Batch, bounds: Bounds) -> str:
    """The limit that kept work waiting when this line was printed; ``arrivals`` where none waited.

    ``admission_reserve`` means that the scheduler kept tokens back for what running requests may still write,
    ``prefill`` that a batch took as many new tokens as one may;
    ``unknown`` that not even the largest reserve explains why work waited, that the line is of another server, one of which
    the queue was left out, or one of prefill in a log that does not tell how large a batch may be.
    """
    cap = bounds.cap
    if bounds.holds_too_much(batch) or bounds.runs_too_many(batch):
        return "unknown"
    if not batch.queued:
        if (batch.transferring or 0) > busy(batch):
            return "transfer"
        return "arrivals" if batch.queued == 0 else "unknown"
    if cap and batch.running is not None and batch.running >= cap:
        return "max_running_requests"
    if batch.state_usage is not None and batch.state_usage.high >= FULL:
        return "state_slots"
    if batch.swa_usage is not None and batch.swa_usage.high >= FULL:
        return "swa_pool"
    if batch.usage is None:
        return "unknown"
    if batch.usage.high >= FULL:
        return "kv_pool"
    if batch.kind == "prefill" and batch.transferring is not None:  # a prefill server: nothing decodes, so nothing is kept back
        return "prefill"
    if bounds.is_prefill_full or (bounds.chunk and (batch.new_tokens or 0) >= bounds.chunk):
        return "prefill"
    if batch.kind == "prefill" and bounds.chunk is None:
        return "unknown"
    return "admission_reserve" if bounds.reserve_can_bind(batch.tokens, batch.running) else "unknown"


def busy(batch: Batch) -> int:
    """Requests that the line's batch works on: what runs, and what a prefill batch admits."""
    return (batch.running or 0) + (0 if batch.kind == "decode" else batch.new_seq or 0)


def full_batch(activity: Activity) -> int | None:
    """The new tokens that one prefill batch may take, where no argument is in the log but its batches show it; else None.

    While requests wait, unlike numbers of requests that come to the very same most of new tokens were cut there.
    """
    waiting = [batch for batch in activity.prefill if batch.queued and batch.new_tokens]
    most = max((batch.new_tokens or 0 for batch in waiting), default=0)
    full = [batch for batch in waiting if batch.new_tokens == most]
    unlike = {batch.new_seq for batch in full if batch.new_seq is not None}
    return most if len(full) >= FULL_BATCHES and len(unlike) > 1 else None


def is_prefill_full(activity: Activity, chunk: int | None) -> bool:
    """Whether most prefill batches beside which work waited took as many new tokens as one may."""
    waiting = [batch for batch in activity.prefill if batch.queued]
    full = [batch for batch in waiting if chunk and (batch.new_tokens or 0) >= chunk]
    return bool(waiting) and len(full) * 2 > len(waiting)


def bindings(activity: Activity, bounds: Bounds) -> dict[str, float]:
    """Shares of the decode lines by what bound, largest first; prefill lines where there are no decode lines."""
    lines = activity.decode or activity.prefill
    counts = Counter(bound_by(batch, bounds) for batch in lines)
    return {name: count / len(lines) for name, count in counts.most_common()} if lines else {}


def nothing_waited(activity: Activity, cap: int | None) -> bool:
    """Whether the decode lines tell that no request ever waited, went back to the queue, or came up to the cap."""
    decode = activity.decode
    most = max((batch.running or 0 for batch in decode), default=0)
    moving = any((batch.transferring or 0) > busy(batch) for batch in decode)
    waited = moving or bool(activity.retractions) or any(batch.queued != 0 for batch in decode)
    return bool(decode) and not waited and (cap is None or most < cap)
