"""The bytes of pool lines, held against the lines that SGLang's own pool classes printed for the oracle."""

from __future__ import annotations

import json
from collections import Counter
from fractions import Fraction
from functools import cache

import pytest

from kvdiag.lines import read_records
from kvdiag.models import geometry_of, read_config
from kvdiag.models.gpus import find_gpu
from kvdiag.quantity import Interval
from kvdiag.reading import Line
from kvdiag.releases import parse_release
from kvdiag.sizing import UNKNOWN_DEVICE, Device, ServerArguments
from kvdiag.sizing.resolve import resolve
from kvdiag.sizing.rows import pool_row
from kvdiag.sizing.stages import stages
from tests.conftest import SHARED

ORACLE = SHARED / "oracle"


def printed(lines):
    """Tokens and bytes of the pool lines, in order."""
    found = []
    for record in read_records([Line(1, text) for text in lines]):
        if record.family == "kv-alloc" and record.number("#tokens") is not None:
            whole = record.interval("KV size")
            parts = [record.interval(name) for name in ("K size", "V size")]
            size = whole if whole is not None else parts[0] + parts[1]
            found.append((record.number("#tokens"), size))
    return found


@cache
def geometry(model):
    return geometry_of(read_config(str(ORACLE / "configs" / model)))


def settings_of(row):
    card = find_gpu(row["gpu"])
    device = Device(row["gpu_mem_mib"], card.compute_capability, card.vendor) if card else UNKNOWN_DEVICE
    return resolve(geometry(row["model"]), ServerArguments.of(row["args"]), parse_release(row["version"]), device)


@pytest.mark.shared
def test_every_pool_line_of_the_oracle_is_recomputed_to_its_printed_digits():
    compared, wrong = Counter(), []
    for text in (ORACLE / "expected.jsonl").read_text().splitlines():
        row = json.loads(text)
        lines = printed((row.get("extra") or {}).get("log_lines") or [])
        if "error" in row or not 1 <= len(lines) <= 2 or "draft_config" in row["args"]:
            continue
        settings = settings_of(row)
        stage = stages(settings.geometry.num_hidden_layers, settings.arguments.pp_size, settings.release)[0]
        page = row["extra"].get("page_size") or 1
        options = pool_row(settings, stage).options
        if not any(agrees(option, lines, page) for option in options):
            wrong.append((row["version"], row["model"], row["args"], [(n, float(s.low)) for n, s in lines], options))
        compared[settings.pools if settings.windows is None else "windows"] += 1
    assert wrong == [], dict(compared)
    assert sum(compared.values()) > 200


def agrees(option, lines, page):
    if option.window is None:
        return len(lines) == 1 and meets(lines[0], option.full, page)
    if len(lines) == 1:
        return option.window == option.full and meets(lines[0], option.full, page)
    return any(meets(a, option.full, page) and meets(b, option.window, page) for a, b in (lines, lines[::-1]))


def meets(line, row, page):
    tokens, size = line
    return size.meets(Interval.of(Fraction(tokens + page) * row, unit="bytes"))
