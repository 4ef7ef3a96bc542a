"""Prometheus text of ``/metrics``: the gauges that repeat numbers of the log."""

from __future__ import annotations

import re

from kvdiag.errors import InputError
from kvdiag.outside.model import Outside, read_text
from kvdiag.quantity import Interval

_ADVICE = "save the answer of /metrics (the server needs --enable-metrics)"
_SAMPLE = re.compile(r"sglang[:_]([a-z_]{1,80})(?:\{[^}]{0,2000}\})? ([0-9.eE+-]{1,32})")
_NUMBERS = {"max_total_num_tokens": "tokens", "page_size": "tokens", "context_len": "tokens", "max_running_requests": "requests"}


def read_metrics(path: str) -> tuple[Outside, ...]:
    """What the file at `path` states; raises InputError where it holds no metric of SGLang."""
    found: dict[str, set[int]] = {}
    seen = False
    for line in read_text(path, _ADVICE).splitlines():
        sample = _SAMPLE.match(line)
        if not sample:
            continue
        seen = True
        number = _count(sample.group(2)) if sample.group(1) in _NUMBERS else None
        if number is not None:
            found.setdefault(sample.group(1), set()).add(number)
    if not seen:
        raise InputError(f"{path}: no metric of SGLang in it; {_ADVICE}")
    return tuple(
        Outside("metrics", name, Interval.of(min(values), max(values), _NUMBERS[name])) for name, values in found.items()
    )


def _count(text: str) -> int | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return int(value) if 0 <= value < 1 << 53 and value == int(value) else None
