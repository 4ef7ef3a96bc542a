"""The size of the pools the log prints: bytes of a token, and bytes of a whole pool."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from kvdiag.checks.arithmetic import Arithmetic
from kvdiag.checks.inputs import CheckInputs, cell_excuses, fits
from kvdiag.checks.model import Check
from kvdiag.checks.readings import once
from kvdiag.checks.verdict import Candidate, Excuse, candidates, hull, judge
from kvdiag.quantity import Interval
from kvdiag.starts import Number

LARGEST_PAGE = 256
_TP_SIZES = (2, 4, 8, 16, 32)
_POOL = "(max_total_num_tokens + page_size) x bytes_per_token"


def pool_checks(inputs: CheckInputs, arithmetic: Arithmetic) -> Iterator[Check]:
    """``bytes_per_token`` and ``kv_pool_bytes`` of every pool line, target's and draft's."""
    for role in ("target", "draft"):
        side = _side(inputs, arithmetic, role)
        for pool in inputs.start.find("kv_pool_bytes"):
            if (pool.role or "target") != role or pool.interval is None:
                continue
            rows = _rows(inputs, pool)
            if rows is not None and rows[0].low > 0:
                yield _bytes_per_token(side, pool, *rows)
                yield _kv_pool_bytes(side, pool, *rows)
    for number in inputs.start.find("bytes_per_token", role="target"):
        if number.interval is not None:
            found = candidates(arithmetic.cells(), arithmetic.cell)
            yield _check("bytes_per_token", number, fits(number), found, arithmetic, cell_excuses(inputs), "", {}, (number.line,))


def _side(inputs: CheckInputs, arithmetic: Arithmetic, role: str) -> Arithmetic:
    """The arithmetic of one model alone: a target's pool holds none of what the budget reserves for its draft."""
    if role == "target" and inputs.arguments.speculative_algorithm is None:
        return arithmetic
    alone = replace(inputs.arguments, speculative_algorithm=None)
    if role == "target":
        return Arithmetic(inputs, alone)
    return Arithmetic(_of_draft(inputs), alone)


def _of_draft(inputs: CheckInputs) -> CheckInputs:
    path = inputs.start.server_args.get("speculative_draft_model_path")
    named = f" (speculative_draft_model_path={path!r})" if isinstance(path, str) else ""
    why = f"the draft model's config{named}"
    return replace(inputs, config=None, geometry=None, unsized=why)


def _rows(inputs: CheckInputs, pool: Number) -> tuple[Interval, Number] | None:
    """Rows of the pool line of that rank: its tokens and one padding page; a page not known is 1 to 256 tokens."""
    tokens = inputs.start.find("pool_tokens", rank=pool.rank, role=pool.role or "target")
    if not tokens:
        tokens = inputs.start.find("max_total_num_tokens", rank=pool.rank)
    if len(tokens) != 1 or tokens[0].interval is None:
        return None
    return tokens[0].interval + padding(inputs), tokens[0]


def padding(inputs: CheckInputs) -> Interval:
    """The rows a pool has beyond its tokens: one page."""
    page = inputs.arguments.page_size
    return Interval.of(page or 1, page or LARGEST_PAGE, "tokens")


def _bytes_per_token(side: Arithmetic, pool: Number, rows: Interval, tokens: Number) -> Check:
    observed = (fits(pool) / rows).with_unit("bytes")
    found = candidates(side.cells(), side.cell)
    lines = (pool.line, tokens.line)
    excuses = cell_excuses(side.inputs) + _other_sizes(side, observed)
    return _check("bytes_per_token", pool, observed, found, side, excuses, "kv_pool_bytes / tokens", {}, lines)


def _other_sizes(side: Arithmetic, observed: Interval) -> list[Excuse]:
    """Where no line states tp_size: the sizes that would give the figure."""
    inputs = side.inputs
    if not inputs.unseen("tp_size") or inputs.geometry is None:
        return []
    fitting = []
    for size in _TP_SIZES:
        if size > inputs.arguments.tp_size:
            other = Arithmetic(inputs, replace(side.arguments, tp_size=size))
            if any(candidate.value.meets(observed) for candidate in candidates([(inputs.candidates()[-1],)], other.cell)):
                fitting.append(str(size))
    return [Excuse(f"tp_size (the figure fits tp_size {' or '.join(fitting)})")] if fitting else []


def _kv_pool_bytes(side: Arithmetic, pool: Number, rows: Interval, tokens: Number) -> Check:
    cells = candidates(side.cells(), side.cell)
    found = [Candidate((rows * cell.value).with_unit("bytes"), cell.releases) for cell in cells]
    terms: dict[str, Any] = {"rows": rows.to_dict()}
    if cells:
        terms["bytes_per_token"] = hull(cells).to_dict()
    lines = (pool.line, tokens.line)
    return _check("kv_pool_bytes", pool, fits(pool), found, side, cell_excuses(side.inputs), _POOL, terms, lines)


def _check(
    name: str,
    at: Number,
    observed: Interval,
    found: list[Candidate],
    side: Arithmetic,
    excuses: list[Excuse],
    formula: str,
    terms: dict[str, Any],
    lines: tuple[int, ...],
) -> Check:
    if not found:
        return Check(name, "unknown", at.rank, at.role, observed, None, formula, terms, (side.refused,), once(lines))
    sized = side.sized(found[-1].releases[-1])
    if sized is not None and name == "bytes_per_token":
        formula, terms = sized.formula, sized.terms
    verdict, missing = judge(observed, found, excuses)
    return Check(name, verdict, at.rank, at.role, observed, hull(found), formula, terms, missing, once(lines))
