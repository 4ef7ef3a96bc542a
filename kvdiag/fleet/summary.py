"""One log as a summary: plain data, small, the same whoever made it."""

from __future__ import annotations

from collections import Counter
from typing import Any

from kvdiag.checks import StartDiagnosis
from kvdiag.checks.findings import rules
from kvdiag.errors import KvdiagError
from kvdiag.fleet.activity import Activity
from kvdiag.fleet.sources import Source, local_copy, shown_url
from kvdiag.frozen import plain_of
from kvdiag.starts import Start


def summarise(source: Source) -> dict[str, Any]:
    """The summary of one log; where it cannot be read or diagnosed, `error` says why and the rest is empty."""
    shown = shown_url(source.url)
    row: dict[str, Any] = {"url": shown, "key": source.key, "error": None}
    path = source.url
    if source.fault is not None:
        return row | {"error": source.fault}
    try:
        with local_copy(source.url) as path:
            return row | _read(path)
    except KvdiagError as error:
        return row | {"error": str(error).replace(path, shown)}
    except Exception as error:
        return row | {"error": f"{type(error).__name__}: {error}".replace(source.url, shown)}


def _read(path: str) -> dict[str, Any]:
    from kvdiag.pipeline import explain

    activity = Activity()
    diagnosis = explain([path], rows=lambda _, chunk, __: activity.add(chunk), thin=True)
    item = diagnosis.starts[-1]
    start = item.start
    capacity = _whole(start, "max_total_num_tokens")
    findings = Counter(finding.code for each in diagnosis.starts for finding in each.findings)
    names = {rule.code: rule.name.replace("-", " ") if "{" in rule.title else rule.title for rule in rules()}
    titles = {finding.code: names.get(finding.code, finding.title) for each in diagnosis.starts for finding in each.findings}
    return {
        "lines": diagnosis.inputs[0].lines,
        "bytes": diagnosis.inputs[0].bytes,
        "starts": len(diagnosis.starts),
        **_identity(item),
        "max_total_num_tokens": capacity,
        "max_running_requests": _whole(start, "max_running_requests"),
        "context_len": _whole(start, "context_len"),
        "disagreements": sum(check.verdict == "disagree" for each in diagnosis.starts for check in each.checks),
        "retractions": sum(len(each.start.events_of("retraction")) for each in diagnosis.starts),
        "wasted_tokens": wasted_tokens(capacity, activity),
        "findings": dict(sorted(findings.items())),
        "titles": dict(sorted(titles.items())),
        "activity": plain_of(activity),
    }


def wasted_tokens(capacity: int | None, activity: Activity) -> int | None:
    """Tokens of the pool that were free while requests waited, on average over all decode lines; None for no capacity."""
    if capacity is None or not activity.decode_lines:
        return None
    return round(capacity * activity.free_while_waiting / (100 * activity.decode_lines))


def _identity(item: StartDiagnosis) -> dict[str, Any]:
    """Model, card (by the memory free before loading, in whole GiB) and parallel sizes, which make servers peers; and what sizes.

    Without a GPU free memory is the machine's, which tells nothing of a card.
    """
    start = item.start
    release = start.release
    arguments = start.server_args
    free, loaded = start.first("pre_model_load_memory"), start.first("architecture", role="target")
    has_card = free is not None and arguments.get("device") not in ("cpu", "mps", "mlx")
    return {
        "model": arguments.get("served_model_name") or arguments.get("model_path"),
        "release_first": str(release.possible.first) if release and release.possible.first else None,
        "release_last": str(release.possible.last) if release and release.possible.last else None,
        "architecture": loaded.value if loaded is not None else None,
        "card_gib": round(float(free.interval.low) / 2**30) if has_card and free is not None and free.interval else None,
        "tp_size": arguments.get("tp_size"),
        "dp_size": arguments.get("dp_size"),
        "mem_fraction_static": arguments.get("mem_fraction_static"),
        "max_total_tokens": arguments.get("max_total_tokens"),
        "kv_cache_dtype": arguments.get("kv_cache_dtype"),
    }


def _whole(start: Start, name: str) -> int | None:
    """The smallest whole number of that name over the ranks."""
    return min((number.value for number in start.find(name) if isinstance(number.value, int)), default=None)
