"""Capacity in users: how many conversations of one kind a pool holds and the scheduler admits."""

from __future__ import annotations

import math
from collections.abc import Iterable
from fractions import Fraction
from typing import Any

from kvdiag.checks.activity import Activity
from kvdiag.checks.binding import FULL
from kvdiag.errors import InputError
from kvdiag.frozen import frozen, names_of, replace
from kvdiag.releases import Release, parse_release

CLIP_MAX_NEW_TOKENS = 4096
"""Most tokens of an answer that admission reserves for (``SGLANG_CLIP_MAX_NEW_TOKENS_ESTIMATION``)."""

MARGIN = 6
"""What a request must leave of context and pool from 0.3.6 on (``TpModelWorker.max_req_input_len``)."""

_MORE = MARGIN - 2
"""Prompt and answer together may have this much more than the longest prompt."""

_MOST_WHOLE = 0.9
"""Share of the prefill lines that must be below a full chunk for the lengths of prompts to be told by them."""

_TURNS = 3
"""How often the running requests must have been replaced before a retraction for a mean to be one of whole answers."""

_FEW = 10
"""Decode lines beside which requests waited, from which they tell how many are let run at most."""

_UNDER_DP_ATTENTION = 0.3

_KEYS = ("prompt", "output", "concurrency", "shared_prefix")
_MOST = 1 << 40


@frozen
class Workload:
    """Conversations that are all alike: tokens of prompt and answer, how many at once, tokens of prompt all share.

    `estimated` says what it was estimated from, empty where it was given; `shared_prefix` is then the mean of what was
    cached. `replicas` counts the data-parallel replicas
    that `concurrency` is a share of; `unshared` are tokens of a common prefix that the server cannot share.
    """

    prompt: int
    output: int
    concurrency: int | None = None
    shared_prefix: int = 0
    estimated: str = ""
    replicas: int = 1
    unshared: int = 0

    def to_dict(self) -> dict[str, Any]:
        """JSON form; the concurrency is of one replica."""
        names = (*_KEYS, "replicas", "unshared")
        return {name: getattr(self, name) for name in names} | {"estimated": self.estimated or None}


@frozen
class Plan:
    """What a pool of `tokens` does with a workload, on one data-parallel replica.

    `seen` is the most that ran in the log while others waited, where the log disproves the rule of admission; what follows
    from that rule is then None.

    `holds` conversations fit at full length; `admitted_at_opening` and `admitted_at_lowest` are what the scheduler lets
    run at the largest and at the smallest reserve, None for releases whose rule is not known. `running` is what then
    runs at once at most, `waits` what of the concurrency waits beside it. `retracts_after` is the answer length, in
    tokens, at which that many conversations fill the pool, None where they never do. `answer` is what is left of the
    answer beside the prompt in the longest request the server takes, 0 where it refuses the prompt itself.
    """

    tokens: int
    answer: int
    holds: int
    admitted_at_opening: int | None
    admitted_at_lowest: int | None
    running: int
    waits: int | None
    retracts_after: int | None
    capped_by: int | None
    formula: str
    seen: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """JSON form."""
        return {name: getattr(self, name) for name in names_of(self)}


def parse_workload(text: str) -> Workload:
    """``prompt=2000,output=500,concurrency=64,shared_prefix=800`` as a workload; raises InputError where it is not one."""
    given: dict[str, int] = {}
    for part in text.split(","):
        key, _, value = part.strip().partition("=")
        if key not in _KEYS:
            raise InputError(f"--workload: there is no {key!r}; give {'=N,'.join(_KEYS)}=N, the last two where known")
        if not value.isascii() or not value.isdigit() or len(value) > 13 or int(value) > _MOST:
            raise InputError(
                f"--workload: {part.strip()!r} has no whole number from 0 on; give one, as in prompt=2000,output=500"
            )
        given[key] = int(value)
    if not given.get("prompt") or not given.get("output"):
        raise InputError("--workload: needs prompt=N and output=N, both above zero")
    if given.get("shared_prefix", 0) >= given["prompt"]:
        raise InputError("--workload: shared_prefix must be smaller than prompt")
    return Workload(given["prompt"], given["output"], given.get("concurrency"), given.get("shared_prefix", 0))


def in_force(conservativeness: float, dp_attention: bool) -> float:
    """What admission goes by of a given --schedule-conservativeness: under DP attention 0.3 of it.

    ``ServerArgs._handle_data_parallelism``; a dump of the arguments has the product already.
    """
    return conservativeness * _UNDER_DP_ATTENTION if dp_attention else conservativeness


def reserve_ratios(releases: Iterable[Release], conservativeness: float) -> tuple[Fraction, Fraction] | None:
    """The share of an answer that admission keeps back, at the opening and at the least (``NewTokenRatioTracker``).

    None where the releases do not share one rule: 0.3.5 and later take 0.7 x conservativeness, falling to 0.14 of it.
    """
    known = list(releases)
    if not known or min(known) < parse_release("0.3.5"):
        return None
    first = min(Fraction(7, 10) * Fraction(str(conservativeness)), Fraction(1))
    return first, min(first * Fraction(14, 100), Fraction(1))


def plan(
    workload: Workload,
    tokens: int,
    *,
    page: int = 1,
    cap: int | None = None,
    ratios: tuple[Fraction, Fraction] | None = None,
    longest: int | None = None,
) -> Plan:
    """What a pool of `tokens` does with the workload (``PrefillAdder.add_one_req``, ``ScheduleBatch.check_decode_mem``).

    `longest` is the longest prompt that the server takes: longer ones are refused, answers cut at what is left beside it.
    """
    answer = workload.output if longest is None else min(workload.output, longest + _MORE - workload.prompt)
    if longest is not None and (workload.prompt > longest or answer < 1):
        return Plan(tokens, 0, 0, 0, 0, 0, None, None, None, "a prompt must be shorter than context and pool")
    workload = replace(workload, output=answer)
    shared = workload.shared_prefix // page * page
    room = tokens - shared
    own_prompt = _pages(workload.prompt - shared, page)
    whole = _pages(workload.prompt - shared + workload.output, page)
    holds = max(0, room // whole)
    opening = lowest = None
    if ratios is not None:
        opening, lowest = (_admitted(workload, room, own_prompt, shared, ratio) for ratio in ratios)
        if cap is not None:
            opening, lowest = min(opening, cap), min(lowest, cap)
    running = min(n for n in (lowest, cap, workload.concurrency, room // max(1, own_prompt)) if n is not None)
    retracts = room // running - own_prompt if running > holds and running > 0 else None
    waits = max(0, workload.concurrency - running) if workload.concurrency is not None else None
    capped = cap if cap is not None and running == cap else None
    formula = "admit while prompt + min(max_new_tokens, 4096) < free - sum(min(max_new_tokens - written, 4096) x new_token_ratio)"
    return Plan(tokens, answer, holds, opening, lowest, running, waits, retracts, capped, formula)


def _admitted(workload: Workload, room: int, own_prompt: int, shared: int, ratio: Fraction) -> int:
    """How many run when the next is refused: it is charged its prompt and answer whole, each running one its reserve."""
    answer = min(workload.output, CLIP_MAX_NEW_TOKENS)
    needed = workload.prompt - shared + answer
    if needed >= room:
        return 0
    each = own_prompt + answer * ratio
    return math.ceil((room - needed) / each)


def disproved(plan: Plan, activity: Activity) -> int | None:
    """The most that ran while others waited, where the plan of the log's own load lets more run; None where it agrees.

    Where the pool was as good as full in half of those lines, longer conversations than the mean may have filled it.
    """
    least = min((n for n in (plan.admitted_at_opening, plan.admitted_at_lowest) if n is not None), default=None)
    waiting = [batch for batch in activity.decode if batch.queued and batch.running is not None and batch.usage is not None]
    full = sum(batch.usage is not None and batch.usage.high >= FULL for batch in waiting)
    if least is None or len(waiting) < _FEW or full * 2 >= len(waiting):
        return None
    most = max(batch.running or 0 for batch in waiting)
    return most if most < least else None


def as_seen(plan: Plan, seen: int | None) -> Plan:
    """The plan without what follows from the rule of admission, where the log disproves that."""
    if seen is None or not plan.answer:
        return plan
    return replace(
        plan,
        admitted_at_opening=None,
        admitted_at_lowest=None,
        running=min(plan.running, seen),
        waits=None,
        retracts_after=None,
        capped_by=None,
        seen=seen,
    )


def _pages(tokens: int, page: int) -> int:
    return -(-tokens // page) * page


def per_replica(workload: Workload, replicas: int) -> Workload:
    """The share of one of `replicas` data-parallel replicas: the fullest has its share rounded up."""
    if replicas <= 1:
        return workload
    share = None if workload.concurrency is None else -(-workload.concurrency // replicas)
    return replace(workload, concurrency=share, replicas=replicas)


def without_sharing(workload: Workload, is_off: bool) -> Workload:
    """The workload of a server whose prefix cache may be off: every conversation then holds its prompt whole."""
    return replace(workload, shared_prefix=0, unshared=workload.shared_prefix) if is_off else workload


def longest_request(tokens: int, context: int | None) -> int:
    """Tokens of the longest prompt that a server with this pool takes: six less than the smaller of pool and context."""
    return min(tokens, context or tokens) - MARGIN


def _before_retractions(activity: Activity) -> Activity:
    """The scheduler lines before the first retraction by line and, as several files may be mixed, by time."""
    if not activity.retractions:
        return activity
    line = min(event.line for event in activity.retractions)
    second = min((event.second for event in activity.retractions if event.second is not None), default=math.inf)
    before = [batch for batch in activity.batches if batch.line < line and (batch.second is None or batch.second <= second)]
    return Activity(before, [], activity.every)


def mixed_by_retractions(activity: Activity) -> bool:
    """Whether retractions began before enough requests had ended for the lines ahead of them to tell a workload."""
    if not activity.retractions:
        return False
    before = _before_retractions(activity)
    most = max((batch.running or 0 for batch in before.batches), default=0)
    return sum(batch.new_seq or 0 for batch in before.prefill) < _TURNS * max(1, most) * len(before.ranks or ("",))


def estimate(activity: Activity, chunk: int | None = None) -> Workload | None:
    """The workload that the scheduler lines suggest: prompts by sequence, answers by what running requests hold.

    None where too few lines tell, or where prompts are longer than a chunk of prefill, so that no line tells their length.
    A request in the middle of its answer holds the prompt and half of it, on average. Only lines before the first retraction
    count: a retracted request comes back as a prompt that has its answer so far.
    """
    if mixed_by_retractions(activity):
        return None
    activity = _before_retractions(activity)
    prompts = [batch for batch in activity.prefill if batch.new_seq and (batch.new_tokens or 0) + (batch.cached or 0) > 8]
    whole = [batch for batch in prompts if not chunk or (batch.new_tokens or 0) < chunk]
    if len(whole) < len(prompts) * _MOST_WHOLE:
        return None
    prompts = whole
    held = activity.tokens_per_request
    sequences = sum(batch.new_seq or 0 for batch in prompts)
    if not sequences or len(held) < 10:
        return None
    cached = sum(batch.cached or 0 for batch in prompts)
    prompt = (sum(batch.new_tokens or 0 for batch in prompts) + cached) // sequences
    mean = sum(held) / len(held)
    shared = min(cached // sequences, max(0, prompt - 1))
    output = round(2 * max(0.0, mean - (prompt - shared)))
    if prompt < 1 or output < 1:
        return None
    return Workload(prompt, output, None, shared, f"{sequences:,} sequences in prefill lines and {len(held):,} decode lines")
