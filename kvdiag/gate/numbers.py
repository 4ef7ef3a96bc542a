"""The numbers of two starts held against each other: what changed, what only follows from it, what is noise."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fractions import Fraction

from kvdiag.frozen import replace
from kvdiag.gate.budget import Budget, budget_of
from kvdiag.gate.causes import cell_reason
from kvdiag.gate.codes import meaning_of
from kvdiag.gate.consequences import Root, follows, told_by_argument
from kvdiag.gate.decompose import decompose
from kvdiag.gate.model import Drift, Snapshot, Stated
from kvdiag.gate.noise import SHARED, noise_of
from kvdiag.gate.pair import Change, Pair
from kvdiag.gate.ranks import match_ranks
from kvdiag.gate.words import SPECULATION, amount, changed_arguments, known_differences, places, releases_differ
from kvdiag.quantity import Interval


def compare_numbers(before: Snapshot, after: Snapshot) -> list[Drift]:
    """A drift for each number that differs: its direction gives the level, the other numbers its reason."""
    ranks = match_ranks(before.ranks, after.ranks)
    pair = Pair(before, after, budget_of(before), budget_of(after), tuple(_changes(before, after, ranks)), ranks)
    drifts = list(_cell(pair))
    cell = drifts[0] if drifts else None
    drifts += [_judge(change, pair, cell) for change in pair.changes]
    drifts += _missing(before, after, ranks)
    drifts += _ranks(before, after, ranks)
    return drifts


def _changes(before: Snapshot, after: Snapshot, ranks: dict[str, str]) -> Iterator[Change]:
    """Numbers whose values cannot be the same, the ranks that changed alike together."""
    second = {(n.name, n.role, rank): n for n in after.numbers for rank in n.ranks}
    groups: dict[tuple[Stated, Stated], list[str]] = {}
    for number in before.numbers:
        if number.name == "bytes_per_token":
            continue
        for rank in number.ranks:
            other = second.get((number.name, number.role, ranks.get(rank, "\0")))
            if other is not None and not _same(number.value, other.value):
                groups.setdefault((number, other), []).append(rank)
    for (a, b), members in groups.items():
        yield Change(a.name, a.role, tuple(members), a, b)


def _same(a: Interval | str, b: Interval | str) -> bool:
    if isinstance(a, Interval) and isinstance(b, Interval) and a.unit == b.unit:
        return a.meets(b)
    return a == b


def _judge(change: Change, pair: Pair, cell: Drift | None) -> Drift:
    """The drift of one change, or the note that it follows from another, or that it is noise."""
    values = change.intervals
    meaning = meaning_of(change.name.partition("[")[0], values[0].unit if values else "text")
    drift = _drift(change, meaning.code, _level(change, meaning.better))
    told = told_by_argument(change.name, pair.before, pair.after)
    if told:
        return replace(drift, level="note", reason="it repeats the argument", follows="KD121")
    shared = pair.before.on_shared_memory and pair.after.on_shared_memory
    if meaning.kind == "reading":
        if shared:
            return replace(drift, level="note", noise=True, reason=SHARED)
        return _reading(drift, change, follows(change, pair, cell))
    if meaning.kind == "capacity" and pair.a is not None and pair.b is not None:
        return _capacity(drift, change, pair, cell)
    return replace(drift, reason=known_differences(pair.before, pair.after))


def _reading(drift: Drift, change: Change, root: Root | None) -> Drift:
    """A reading that follows in full is a note; one that follows in part is judged by what is left over.

    What follows from a number that one log alone states stands for that number, which was compared with nothing.
    """
    if root is None:
        return replace(drift, reason=_moved(change))
    if root.judged:
        return replace(drift, reason=root.reason)
    if root.left is None:
        return replace(drift, level="note", reason=root.reason, follows=root.of)
    return replace(drift, level="warning" if root.left.low > 0 else "error", reason=root.reason)


def _capacity(drift: Drift, change: Change, pair: Pair, cell: Drift | None) -> Drift:
    assert pair.a is not None
    assert pair.b is not None
    values = change.intervals
    if change.name == "max_total_num_tokens" and values is not None:
        tokens = int(values[1].low - values[0].low)
        noise = noise_of(tokens, pair.a, pair.b, pair.before, pair.after)
        if noise:
            return replace(drift, level="note", noise=True, reason=noise)
        return replace(drift, reason=_terms(pair.a, pair.b, pair))
    root = follows(change, pair, cell)
    if root is not None:
        noise = noise_of(pair.b.tokens - pair.a.tokens, pair.a, pair.b, pair.before, pair.after) if root.of == "capacity" else ""
        if noise:
            return replace(drift, level="note", noise=True, reason=f"{root.reason}, and that is noise: {noise}")
        return replace(drift, level="note", reason=root.reason, follows=root.of)
    if change.name == "pool_tokens" and not pair.before.find("max_total_num_tokens"):
        noise = noise_of(pair.b.tokens - pair.a.tokens, pair.a, pair.b, pair.before, pair.after)
        if noise:
            return replace(drift, level="note", noise=True, reason=noise)
        return replace(drift, reason=_terms(pair.a, pair.b, pair))
    return replace(drift, reason=known_differences(pair.before, pair.after))


def _terms(a: Budget, b: Budget, pair: Pair) -> str:
    terms = decompose(a, b, pair.before, pair.after)
    causes = [t.why if t.why.startswith(t.cause) else f"{t.cause}: {t.why}" for t in terms]
    return "; ".join(f"{t.tokens:+,} tokens by {cause}" for t, cause in zip(terms, causes, strict=True))


def _moved(change: Change) -> str:
    values = change.intervals
    if values is None:
        return ""
    least = values[1].low - values[0].high if values[1].low > values[0].high else values[0].low - values[1].high
    return f"by the printed digits the two are at least {float(least / 2**20):,.0f} MiB apart"


def _level(change: Change, better: str) -> str:
    values = change.intervals
    if better == "neither" or values is None:
        return "error"
    went_up = values[1].low + values[1].high > values[0].low + values[0].high
    return "warning" if went_up == (better == "more") else "error"


def _drift(change: Change, code: str, level: str) -> Drift:
    at = places(change.ranks)
    role = f" of the {change.role}" if change.role == "draft" else ""
    message = f"{change.name}{role}{at}: {amount(change.before.value)} -> {amount(change.after.value)}{_share(change)}"
    return Drift(
        code, level, change.name, message, "", change.before.value, change.after.value, change.ranks, change.role,
        (change.before.line,), (change.after.line,),
    )  # fmt: skip


def _share(change: Change) -> str:
    """The change as a share of what was, where the digits tell it to the percent."""
    values = change.intervals
    if values is None or values[0].low <= 0:
        return ""
    (low, high), (least, most) = ((value.low, value.high) for value in values)
    middle, other = low + high, least + most
    share = f"{float((other - middle) / middle):+.1%}"
    told = most / low - least / high <= Fraction(1, 100)
    return f" ({share})" if told and share not in ("+0.0%", "-0.0%") else ""


def _cell(pair: Pair) -> Iterator[Drift]:
    """Bytes per token, exact where sizing agrees with the log, else as the pool's bytes imply."""
    a, b = pair.a, pair.b
    if a is None or b is None or a.cell is None or b.cell is None or a.cell.meets(b.cell):
        return
    lines = [next((n.line for n in s.find("kv_pool_bytes", "target")), x.line) for s, x in ((pair.before, a), (pair.after, b))]
    reason = cell_reason(a, b, pair.before, pair.after)
    message = f"bytes_per_token: {amount(a.cell)} -> {amount(b.cell)}"
    yield Drift("KD102", "error", "bytes_per_token", message, reason, a.cell, b.cell, (), None, (lines[0],), (lines[1],))


def _missing(before: Snapshot, after: Snapshot, ranks: dict[str, str]) -> Iterator[Drift]:
    """Numbers that one of the logs does not state, on ranks that both have."""
    first = {(n.name, n.role, ranks[rank]): n for n in before.numbers for rank in n.ranks if rank in ranks}
    second = {(n.name, n.role, rank): n for n in after.numbers for rank in n.ranks if rank in ranks.values()}
    own = {other: rank for rank, other in ranks.items()}
    gone = _stated_alone((n, own[rank]) for (*_, rank), n in first.items() if (n.name, n.role, rank) not in second)
    new = _stated_alone((n, rank) for (*_, rank), n in second.items() if (n.name, n.role, rank) not in first)
    if not before.numbers and after.numbers:
        said = f"the baseline states no number, and the log {len(after.numbers)}: none could be compared"
        yield Drift("KD112", "warning", "numbers", said, lines=(after.numbers[0].line,))
    gone = [number for number in gone if not _is_argument(number, before, after)]
    new = [number for number in new if not _is_argument(number, after, before)]
    for number in gone:
        level, reason, root = "error", "", ""
        if before.ready and not after.ready:
            level, reason, root = "note", "the start did not come as far", "KD133"
        elif number.role == "draft" and changed_arguments(before, after, SPECULATION):
            level, reason, root = "note", "speculation is set otherwise", "KD121"
        elif releases_differ(before, after):
            level, reason = "warning", "the release is another, and may print it otherwise or not at all"
        message = f"{number.name}{places(number.ranks)} was {amount(number.value)} and is no longer stated"
        yield Drift(
            "KD110", level, number.name, message, reason, number.value, None, number.ranks, number.role, (number.line,), (), root
        )
    for number in new:
        message = f"{number.name}{places(number.ranks)} is {amount(number.value)} and was not stated before"
        yield Drift("KD112", "note", number.name, message, "", None, number.value, number.ranks, number.role, (), (number.line,))


def _is_argument(number: Stated, own: Snapshot, other: Snapshot) -> bool:
    """Whether a number of one log only repeats its argument, which the other has as well: arguments are compared as such."""
    argument = own.arguments.get(number.name)
    if other.arguments.get(number.name) is None or argument is None or isinstance(argument, bool):
        return False
    if isinstance(number.value, Interval):
        return isinstance(argument, int | float) and Fraction(str(argument)) in number.value
    return bool(number.value == argument)


def _stated_alone(numbers: Iterable[tuple[Stated, str]]) -> list[Stated]:
    """Numbers with those of their ranks that were given with them, in place of all that state them alike."""
    groups: dict[Stated, list[str]] = {}
    for number, rank in numbers:
        groups.setdefault(number, []).append(rank)
    return [replace(number, ranks=tuple(ranks)) for number, ranks in groups.items()]


def _ranks(before: Snapshot, after: Snapshot, ranks: dict[str, str]) -> Iterator[Drift]:
    lost = [rank for rank in before.ranks if rank not in ranks]
    found = [rank for rank in after.ranks if rank not in ranks.values()]
    if not before.numbers or not after.numbers or not (lost or found):
        return
    said = [f"no longer there: {_named(lost)}"] if lost else []
    said += [f"new: {_named(found)}"] if found else []
    first, second = _named(before.ranks), _named(after.ranks)
    yield Drift("KD111", "error", "ranks", f"ranks that state numbers, {'; '.join(said)}", "", first, second)


def _named(ranks: list[str]) -> str:
    """Ranks by their tags; the lines of a lone rank have none."""
    return ", ".join(rank or "one without a tag" for rank in ranks)
