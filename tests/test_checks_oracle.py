"""A log with the oracle's figures has no disagreement, and one altered by a thousandth has: no false alarm, no blind eye."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import kvdiag
from kvdiag.quantity.dtype import canonical_dtype
from kvdiag.releases import parse_release
from tests.conftest import SHARED

ORACLE = SHARED / "oracle"
REMADE = Path(__file__).parent / "data" / "oracle"
EVERY = 9


def rows():
    if not ORACLE.is_dir():
        return []
    found = [json.loads(text) for text in (ORACLE / "expected.jsonl").read_text().splitlines()]
    usable = [row for row in found if "error" not in row and row.get("available_gpu_mem_gib") and row.get("pre_model_load_gib")]
    return [
        row
        for row in usable
        if row["max_total_num_tokens"] and row["args"].get("pp_size", 1) == 1 and row["args"].get("backend") != "mlx"
    ][::EVERY]


def log_of(row, tokens):
    extra = row["extra"]
    arguments = {
        "dtype": "auto",
        "device": "cuda",
        "speculative_algorithm": None,
        **row["args"],
        "mem_fraction_static": row["mem_fraction_static"],
    }
    arguments["page_size"] = extra.get("page_size") or row["args"].get("page_size", 1)
    arguments.setdefault("chunked_prefill_size", extra.get("chunked_prefill_size"))
    release = parse_release(row["version"])
    elapsed = "" if release < parse_release("0.5.9") else "elapsed=1.00 s, "
    dtype = "dtype=torch.bfloat16, " if release < parse_release("0.5.10rc0") else ""
    if arguments.get("kv_cache_dtype", "auto") == "auto":
        arguments["kv_cache_dtype"] = canonical_dtype(extra["kv_cache_dtype"])
    listed = ", ".join(f"{name}={value!r}" for name, value in arguments.items())
    free, total = row["available_gpu_mem_gib"], row["pre_model_load_gib"]
    reserved = free - total * (1 - row["mem_fraction_static"]) - extra.get("kv_budget_bytes", float("inf")) / 2**30
    kept = f"Reserving {reserved:.2f} GB of the KV budget for post-sizing multimodal allocations (embedding cache)."
    lines = [
        f"server_args=ServerArgs(model_path='/m/{row['model']}', {listed})",
        f"Load weight begin. avail mem={total:.2f} GB",
        f"Load weight end. {elapsed}type=X, {dtype}avail mem={free:.2f} GB, mem usage={total - free:.2f} GB.",
        *([kept] if reserved > 0.01 and not extra.get("max_mamba_cache_size") else []),
        *(text for text in extra.get("log_lines", ()) if "KV Cache is allocated" in text or "Mamba Cache" in text),
        f"max_total_num_tokens={tokens}, chunked_prefill_size=8192, max_prefill_tokens=16384, "
        f"max_running_requests={extra['max_running_requests']}, context_len={extra['context_len']}, available_gpu_mem=5.00 GB",
    ]
    tag = " TP0" if row["args"].get("tp_size", 1) > 1 else ""
    head, *rest = lines
    ranks = range(row["args"].get("tp_size", 1))
    out = [f"[2026-01-01 10:00:00] {head}"]
    for text in rest:
        here = ranks if text.startswith("Load weight") and tag else (0,)
        out += [f"[2026-01-01 10:00:00{f' TP{rank}' if tag else ''}] {text}" for rank in here]
    return "\n".join(out) + "\n"


def explained(row, tokens, tmp_path, config=None):
    log = tmp_path / "server.log"
    log.write_text(log_of(row, tokens))
    config = config or str(Path(ORACLE / "configs" / row["model"]))
    (start,) = kvdiag.explain(str(log), config=config, release=row["version"]).starts
    return start


@pytest.mark.shared
@pytest.mark.parametrize("row", rows(), ids=lambda row: f"{row['version']}-{row['model']}")
def test_the_oracles_figures_agree_and_a_thousandth_more_does_not(row, tmp_path):
    tokens = row["max_total_num_tokens"]
    start = explained(row, tokens, tmp_path)
    wrong = [(c.name, c.role, c.observed, c.recomputed) for c in start.checks if c.verdict == "disagree"]
    assert wrong == []
    check = next(c for c in start.checks if c.name == "max_total_num_tokens")
    if (
        check.verdict != "agree"
        or row["args"].get("max_total_tokens")
        or check.recomputed.high - check.recomputed.low > tokens / 1000
    ):
        return
    altered = explained(row, tokens + tokens // 500 + 300, tmp_path)
    found = next(c for c in altered.checks if c.name == "max_total_num_tokens")
    assert found.verdict == "disagree" or "reserved for images" in found.missing[0], found.missing


def remade_rows():
    """Every twentieth answer that SGLang's own code gave for this project, and those with a window pool for bounded requests."""
    found = [json.loads(text) for text in (REMADE / "remade.jsonl").read_text().splitlines()]
    usable = [row for row in found if "error" not in row and row["max_total_num_tokens"] and row["args"].get("pp_size", 1) == 1]
    bounded = [row for row in usable if row["model"] == "inkling" and row["args"].get("disable_radix_cache")]
    return [*usable[::20], *bounded]


@pytest.mark.parametrize("row", remade_rows(), ids=lambda row: f"{row['version']}-{row['model']}")
def test_a_log_of_what_sglang_computed_raises_no_alarm(row, tmp_path):
    config = tmp_path / "config.json"
    config.write_text(json.dumps(json.loads((REMADE / "remade_configs.json").read_text())[row["model"]]))
    told = {"kv_cache_dtype": "auto", "max_running_requests": 2048, "context_len": 8192} | row["extra"]
    start = explained({**row, "extra": told}, row["max_total_num_tokens"], tmp_path, str(config))
    names = {"max_total_num_tokens", "rest_memory", "mem_fraction_static", "bytes_per_token"}
    assert [check.name for check in start.checks if check.verdict == "disagree" and check.name in names] == []
    assert any(check.verdict == "agree" for check in start.checks if check.name in names) or start.checks[0].missing
