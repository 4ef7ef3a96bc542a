"""The size of the pools the log prints: bytes of a token, and bytes of a whole pool."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kvdiag.checks.arithmetic import Arithmetic
from kvdiag.checks.excuses import cell_excuses
from kvdiag.checks.inputs import CheckInputs, draft_path, fits, no_draft_config
from kvdiag.checks.model import Check
from kvdiag.checks.readings import own_first
from kvdiag.checks.verdict import Candidate, Excuse, candidates, hull, judge
from kvdiag.errors import CannotSizeError
from kvdiag.frozen import frozen, replace
from kvdiag.quantity import Interval
from kvdiag.releases import Release
from kvdiag.sizing.resolve import Settings
from kvdiag.sizing.rows import PoolRow, Row, draft_row, pool_row
from kvdiag.starts import Number

LARGEST_PAGE = 256
_TP_SIZES = (2, 4, 8, 16, 32)
_POOL = "(tokens + page_size) x bytes_per_token"
_POOLS = "(full tokens + page_size) x full bytes + (window tokens + page_size) x window bytes"


@frozen
class _Pool:
    """The pool lines of one model on one rank: their bytes, their tokens (full ones), and window tokens where there are two."""

    size: Number
    tokens: Number
    window: Number | None

    @property
    def lines(self) -> tuple[int, ...]:
        """The lines these numbers stand in, that of the bytes first."""
        window = (self.window.line,) if self.window else ()
        return own_first(self.size.line, (self.tokens.line, *window))


def pool_checks(inputs: CheckInputs, arithmetic: Arithmetic) -> Iterator[Check]:
    """``bytes_per_token`` and ``kv_pool_bytes`` of every pool line, target's and draft's."""
    if not inputs.start.address_space:
        for size in inputs.start.find("kv_pool_bytes"):
            pool = _pool(inputs, size)
            if pool is not None and size.interval is not None and fits(pool.tokens).low > 0:
                yield from _checks(inputs, arithmetic, pool)
    for number in inputs.start.find("bytes_per_token", role="target"):
        if number.interval is not None:
            yield _printed_cell(inputs, arithmetic, number)


def _pool(inputs: CheckInputs, size: Number) -> _Pool | None:
    start, role = inputs.start, size.role or "target"
    window = start.first("swa_max_total_num_tokens", rank=size.rank, role=role)
    full = start.first("full_max_total_num_tokens", rank=size.rank, role=role)
    if window is not None and full is not None:
        return _Pool(size, full, window)
    tokens = start.find("pool_tokens", rank=size.rank, role=role) or start.find("max_total_num_tokens", rank=size.rank)
    return _Pool(size, tokens[0], None) if len(tokens) == 1 else None


def _checks(inputs: CheckInputs, arithmetic: Arithmetic, pool: _Pool) -> Iterator[Check]:
    rows = _Rows(inputs, arithmetic, pool)
    found = candidates(arithmetic.cells(), rows.size)
    excuses = cell_excuses(inputs) + [Excuse(why) for why in rows.open] + _other_sizes(inputs, pool, found)
    terms: dict[str, Any] = {"tokens": pool.tokens.value, "page_size": rows.page.to_dict()}
    if pool.window is not None:
        terms["window_tokens"] = pool.window.value
    rank, role, lines = pool.size.rank, pool.size.role, pool.lines
    whole = fits(pool.tokens) + rows.page
    observed = (fits(pool.size) / whole).with_unit("bytes")
    formula = _POOL if pool.window is None else _POOLS
    if not found:
        why = (rows.refused or arithmetic.refused,)
        yield Check(
            "bytes_per_token", "unknown", rank, role, observed, None, "kv_pool_bytes / tokens", {}, why, lines, implied=True
        )
        yield Check("kv_pool_bytes", "unknown", rank, role, fits(pool.size), None, formula, terms, why, lines)
        return
    cells = rows.cells(found)
    verdict, missing = judge(observed, cells, excuses)
    how, of = _explained(arithmetic, pool, found[-1].releases[-1])
    yield Check("bytes_per_token", verdict, rank, role, observed, hull(cells), how, of, missing, lines, implied=True)
    verdict, missing = judge(fits(pool.size), found, excuses)
    terms["bytes_per_token"] = hull(cells).to_dict()
    layout = rows.layout(found[-1].releases[-1])
    if layout:
        terms["layout"] = layout
    yield Check("kv_pool_bytes", verdict, rank, role, fits(pool.size), hull(found), formula, terms, missing, lines)


def _explained(arithmetic: Arithmetic, pool: _Pool, release: Release) -> tuple[str, dict[str, Any]]:
    """The formula of sizing; where that prices both kinds of layers at a token each, what the pools then take."""
    sized = arithmetic.sized(release) if pool.size.role != "draft" else None
    if sized is None:
        return "kv_pool_bytes / tokens", {}
    if pool.window is not None and "swa_full_tokens_ratio" not in sized.formula:
        return "full bytes + window bytes x window tokens / full tokens", {}
    stage = _stage(pool.size.rank)
    return sized.formula, sized.stages[stage] if stage < len(sized.stages) else sized.terms


def _stage(rank: str) -> int:
    """The pipeline stage a rank's name tells, the first where it tells none."""
    return next((int(word[2:]) for word in rank.split() if word.startswith("PP") and word[2:].isdecimal()), 0)


class _Rows:
    """The recomputed size of one pool; `open` and `refused` say what was left open or why there is none."""

    def __init__(self, inputs: CheckInputs, arithmetic: Arithmetic, pool: _Pool) -> None:
        self.inputs, self.arithmetic, self.pool = inputs, arithmetic, pool
        self.open: list[str] = []
        self.refused = ""
        self.page = padding(inputs, arithmetic)

    def size(self, release: Release) -> Interval | None:
        """The bytes of the pool by `release`; None where it has none like it."""
        found = self._fitting(release)
        return None if found is None else self._total(found)

    def cells(self, found: list[Candidate]) -> list[Candidate]:
        """Bytes per token: the row itself, or the pools' bytes shared among the full tokens."""
        result = []
        for candidate in found:
            row = self._fitting(candidate.releases[-1])
            value = candidate.value / (fits(self.pool.tokens) + self.page)
            if row is not None and row.window is None:
                value = Interval.of(row.full)
            result.append(Candidate(value.with_unit("bytes"), candidate.releases))
        return result

    def layout(self, release: Release) -> str:
        """The layout of the rows where `release` has several."""
        row = self._fitting(release)
        return row.layout if row is not None else ""

    def _fitting(self, release: Release) -> Row | None:
        """Of the rows `release` may print, the one that fits the log, else the first."""
        settings = self.arithmetic.settings(release)
        if settings is None:
            return None
        try:
            row = self._row(settings)
        except CannotSizeError as error:
            self.refused = str(error)
            return None
        options = [option for option in row.options if (option.window is None) == (self.pool.window is None)]
        if not options:
            other = "a window" if self.pool.window is None else "no window"
            self.refused = f"the log has no such pool line: SGLang {release} has {other} pool"
            return None
        if row.open:
            self.open.append(row.open)
        observed = fits(self.pool.size)
        return next((option for option in options if self._total(option).meets(observed)), options[0])

    def _total(self, row: Row) -> Interval:
        total = ((fits(self.pool.tokens) + self.page) * row.full).with_unit("bytes")
        if self.pool.window is not None and row.window is not None:
            total = total + ((fits(self.pool.window) + self.page) * row.window).with_unit("bytes")
        return total

    def _row(self, settings: Settings) -> PoolRow:
        if self.pool.size.role == "draft":
            return self._draft(settings)
        split = settings.stages
        return pool_row(settings, split[min(_stage(self.pool.size.rank), len(split) - 1)])

    def _draft(self, settings: Settings) -> PoolRow:
        path = draft_path(self.inputs.start)
        if path is not None and self.inputs.draft is None:
            raise CannotSizeError(no_draft_config(path))
        own = self.inputs.draft or settings.geometry
        layers = own.num_nextn_predict_layers
        if layers is None and self.inputs.draft is not None:
            layers = own.num_attention_layers
        if not self.inputs.start.server_args or layers is None:
            raise CannotSizeError(no_draft_config(None))
        return draft_row(settings, own, layers)


def padding(inputs: CheckInputs, arithmetic: Arithmetic) -> Interval:
    """The rows a pool has beyond its tokens: one page; a page that no line states is 1 to 256 tokens."""
    if inputs.unseen("page_size") and inputs.arguments.page_size is None:
        return Interval.of(1, LARGEST_PAGE, "tokens")
    pages = {settings.page for release in inputs.candidates() if (settings := arithmetic.settings(release)) is not None}
    pages |= {inputs.arguments.page_size or 1}
    return Interval.of(min(pages), max(pages), "tokens")


def _other_sizes(inputs: CheckInputs, pool: _Pool, found: list[Candidate]) -> list[Excuse]:
    """Where no line states tp_size and the ranks in the log do not fit: the sizes that would give the figure."""
    fitted = any(candidate.value.meets(fits(pool.size)) for candidate in found)
    if not found or fitted or not inputs.unseen("tp_size"):
        return []
    fitting = []
    for size in _TP_SIZES:
        if size > inputs.arguments.tp_size:
            other = Arithmetic(inputs, replace(inputs.arguments, tp_size=size))
            value = _Rows(inputs, other, pool).size(inputs.candidates()[-1])
            if value is not None and value.meets(fits(pool.size)):
                fitting.append(str(size))
    return [Excuse(f"tp_size is not known (the figure fits tp_size {' or '.join(fitting)})")] if fitting else []


def _printed_cell(inputs: CheckInputs, arithmetic: Arithmetic, number: Number) -> Check:
    """A cell that a line prints."""
    found = candidates(arithmetic.cells(), arithmetic.cell)
    name, lines = "bytes_per_token", (number.line,)
    if not found:
        return Check(name, "unknown", number.rank, number.role, fits(number), None, "", {}, (arithmetic.refused,), lines)
    sized = arithmetic.sized(found[-1].releases[-1])
    verdict, missing = judge(fits(number), found, cell_excuses(inputs))
    formula, terms = (sized.formula, sized.terms) if sized else ("", {})
    return Check(name, verdict, number.rank, number.role, fits(number), hull(found), formula, terms, missing, lines)
