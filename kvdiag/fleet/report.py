"""The fleet as one table and one report; the same summaries give the same bytes."""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from statistics import median, quantiles
from typing import Any

from kvdiag.fleet.activity import Activity
from kvdiag.gate.arguments import last_part
from kvdiag.reports.markdown_report import cell
from kvdiag.whole import whole

RANKED = 25
_LONGEST = 300
"""Characters of a text that a cell has room for."""
FEWEST_PEERS = 5
"""Servers of one kind from which one of them can be called unusual."""
_COMPARED = {"max_total_num_tokens": "capacity (tokens)", "wasted_tokens": "wasted tokens", "usage_p50": "median usage"}

Row = dict[str, Any]


def rows_of(summaries: Iterable[Row]) -> list[Row]:
    """A flat row a log, with what its scheduler lines add up to."""
    rows = []
    for summary in summaries:
        activity = Activity()
        if summary["error"] is None:
            activity.merge(summary["activity"])
        prompts = activity.new_tokens + activity.cached_tokens
        plain = {name: summary.get(name) for name in _PLAIN}
        rows.append(
            plain
            | {
                "prefill_lines": activity.prefill_lines,
                "decode_lines": activity.decode_lines,
                "waiting_share": _ratio(activity.waiting_lines, activity.decode_lines),
                "usage_p50": activity.percentile(0.50),
                "usage_p95": activity.percentile(0.95),
                "running_mean": _ratio(activity.running, activity.decode_lines),
                "throughput_mean": _ratio(activity.throughput, activity.decode_lines),
                "hit_rate": _ratio(activity.cached_tokens, prompts),
                "findings": " ".join(summary.get("findings", {})),
            }
        )
    return rows


_PLAIN = {
    "url": "string",
    "error": "string",
    "model": "string",
    "architecture": "string",
    "release_first": "string",
    "release_last": "string",
    "card_gib": "int64",
    "tp_size": "int64",
    "dp_size": "int64",
    "mem_fraction_static": "double",
    "max_total_tokens": "int64",
    "kv_cache_dtype": "string",
    "starts": "int64",
    "lines": "int64",
    "bytes": "int64",
    "max_total_num_tokens": "int64",
    "max_running_requests": "int64",
    "context_len": "int64",
    "disagreements": "int64",
    "retractions": "int64",
    "wasted_tokens": "int64",
}
_DERIVED = {
    "prefill_lines": "int64",
    "decode_lines": "int64",
    "waiting_share": "double",
    "usage_p50": "double",
    "usage_p95": "double",
    "running_mean": "double",
    "throughput_mean": "double",
    "hit_rate": "double",
    "findings": "string",
}


def _ratio(part: float, whole: float) -> float | None:
    return round(part / whole, 6) if whole else None


def write(summaries: list[Row], folder: str) -> tuple[str, str]:
    """Writes ``servers.parquet`` and ``report.md`` into `folder`; gives their paths. Raises InputError where it cannot."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = rows_of(summaries)
    kinds = {**_PLAIN, **_DERIVED}
    schema = pa.schema([(name, pa.type_for_alias(kind)) for name, kind in kinds.items()])
    arrays = [pa.array([_typed(row[name], kind) for row in rows], pa.type_for_alias(kind)) for name, kind in kinds.items()]
    paths = os.path.join(folder, "servers.parquet"), os.path.join(folder, "report.md")
    with whole(paths[0]) as table, whole(paths[1]) as text:
        pq.write_table(pa.Table.from_arrays(arrays, schema=schema), table, store_schema=False)
        with open(text, "w", encoding="utf-8", newline="\n") as file:
            file.write(render(summaries, rows))
    return paths


def _typed(value: Any, kind: str) -> Any:
    """A server argument may be of any type in a damaged log; what is not of the column's type is none.

    The bytes of a file name that are no text are shown as escapes.
    """
    if kind == "string" and isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode("utf-8")
    wanted: Any = {"int64": int, "double": (int, float), "string": str}[kind]
    fits = isinstance(value, wanted) and not isinstance(value, bool)
    return value if fits and (kind != "int64" or -(2**63) <= value < 2**63) else None


def render(summaries: list[Row], rows: list[Row]) -> str:
    """The report in Markdown."""
    read = [row for row in rows if row["error"] is None]
    parts = [
        "# Fleet\n",
        f"{len(rows):,} logs, {len(read):,} read, {sum(row['lines'] or 0 for row in read):,} lines.\n",
        *_section("Servers by wasted tokens", _WASTED, _ranking(read)),
        *_section("Unlike their peers", _UNLIKE, _outliers(read)),
        *_section("Capacity over releases", _DRIFT, _drift(read)),
        *_section("Findings", "", _findings(summaries)),
        *_section("Logs without a server to tell of", "", _errors(rows)),
    ]
    return "\n".join(parts) + "\n"


_WASTED = (
    "Wasted: pool tokens that were free while requests waited, on average over the decode lines: "
    "max_total_num_tokens x sum of (1 - token usage) over decode lines with #queue-req > 0, divided by all decode lines.\n"
)
_UNLIKE = (
    f"Of at least {FEWEST_PEERS} servers with the same model, card and tp_size, those beyond the quartiles by more than one and "
    "a half times the distance between them (Tukey's fences).\n"
)
_DRIFT = (
    "Median max_total_num_tokens of servers with the same model, card and tp_size, started with the same --mem-fraction-static, "
    "--max-total-tokens and --kv-cache-dtype: only what these leave is the release's. Models are told apart by the last part of "
    "their name or path, cards by the memory free before loading (the machine's is none); - is what a log does not state.\n"
)


def _section(title: str, words: str, table: Iterator[list[Any]]) -> list[str]:
    lines = list(table)
    if len(lines) < 2:
        return [f"## {title}\n", "None.\n"]
    head = [str(name) for name in lines[0]]
    body = [[_cell(value) for value in line] for line in lines[1:]]
    ruled = [head, ["---"] * len(head), *body]
    return [f"## {title}\n", *([words] if words else []), *("| " + " | ".join(line) + " |" for line in ruled), ""]


def _cell(value: Any) -> str:
    """Text of a log may hold anything: controls are shown, and what Markdown or HTML would take for its own is escaped."""
    if value is None:
        return "?"
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        text = str(value)
        return cell(text if len(text) <= _LONGEST else f"{text[:_LONGEST].rpartition(' ')[0] or text[:_LONGEST]} ...")
    return f"{value:,.10g}" if isinstance(value, float) else f"{value:,}"


def _ranking(rows: list[Row]) -> Iterator[list[Any]]:
    yield [
        *("server", "wasted (tokens)", "capacity (tokens)", "lines with waiting"),
        *("usage p50", "usage p95", "retractions", "findings"),
    ]
    known = [row for row in rows if row["wasted_tokens"]]
    for row in sorted(known, key=lambda row: (-row["wasted_tokens"], row["url"]))[:RANKED]:
        names = (
            "url",
            "wasted_tokens",
            "max_total_num_tokens",
            "waiting_share",
            "usage_p50",
            "usage_p95",
            "retractions",
            "findings",
        )
        yield [_percent(row[name]) if name == "waiting_share" else row[name] for name in names]


def _percent(share: float | None) -> str | None:
    return None if share is None else f"{share:.0%}"


def _kind(row: Row, names: tuple[str, ...]) -> tuple[str, ...]:
    model = "-" if row["model"] is None else last_part(str(row["model"]))
    return (model, *("-" if row.get(name) is None else str(row.get(name)) for name in names))


def _peers(rows: list[Row], *more: str) -> dict[tuple[str, ...], list[Row]]:
    """Servers of the same model (also by its class, where the log tells it), card and tp_size, and of the same `more`."""
    groups: dict[tuple[str, ...], list[Row]] = defaultdict(list)
    for row in rows:
        groups[_kind(row, ("architecture", "card_gib", "tp_size", *more))].append(row)
    return dict(sorted(groups.items()))


def _outliers(rows: list[Row]) -> Iterator[list[Any]]:
    yield ["server", "what", "here", "peers from", "to", "peers"]
    for peers in _peers(rows).values():
        for name, words in _COMPARED.items():
            known = [row for row in peers if row[name] is not None]
            if len(known) < FEWEST_PEERS:
                continue
            low, _, high = quantiles([row[name] for row in known], n=4, method="inclusive")
            fence = 1.5 * (high - low)
            for row in known:
                if not low - fence <= row[name] <= high + fence:
                    yield [row["url"], words, row[name], low, high, len(known)]


def _drift(rows: list[Row]) -> Iterator[list[Any]]:
    head = ["model", "free before loading (GiB)", "tp", "fraction", "cap", "KV dtype"]
    yield [*head, "releases", "servers", "median capacity (tokens)", "against the one before"]
    for (model, _, *kind), peers in _peers(rows, "mem_fraction_static", "max_total_tokens", "kv_cache_dtype").items():
        by_release: dict[tuple[str, str], list[int]] = defaultdict(list)
        for row in peers:
            if row["max_total_num_tokens"] is not None and row["release_first"]:
                by_release[(row["release_first"], row["release_last"])].append(row["max_total_num_tokens"])
        before: int | None = None
        for release in sorted(by_release, key=_release_order):
            middle = round(median(by_release[release]))
            change = "-" if before is None else f"{middle - before:+,}"
            span = release[0] if release[0] == release[1] else f"{release[0]}..{release[1]}"
            yield [model, *kind, span, len(by_release[release]), middle, change]
            before = middle


def _release_order(span: tuple[str, str]) -> Any:
    from kvdiag.releases import parse_release

    return tuple(parse_release(release) for release in span)


def _findings(summaries: list[Row]) -> Iterator[list[Any]]:
    servers: Counter[str] = Counter()
    titles: dict[str, str] = {}
    for summary in summaries:
        servers.update(summary.get("findings", {}).keys())
        titles |= summary.get("titles", {})
    yield ["code", "finding", "servers"]
    for code, count in sorted(servers.items(), key=lambda item: (-item[1], item[0])):
        yield [code, titles.get(code, ""), count]


def _errors(rows: list[Row]) -> Iterator[list[Any]]:
    yield ["log", "why"]
    yield from ([row["url"], row["error"]] for row in rows if row["error"] is not None)
