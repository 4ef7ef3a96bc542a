"""The gate finds what changed, names it, and is silent on what changes from run to run."""

from __future__ import annotations

import random
import re
from typing import Any

import pytest

from kvdiag.gate import check, observe
from kvdiag.gate.baseline import parse_baseline, write_baseline
from tests.gate_logs import LOGS, baseline, edits, outcome_of

PLANTED = edits("planted.toml", "drift")
HARMLESS = edits("harmless.toml", "change")


def _name(edit: dict[str, Any]) -> str:
    return f"{edit['log']}-{edit['find'][:40]}"


def test_there_are_enough_of_both():
    assert len(PLANTED) >= 50
    assert len(HARMLESS) >= 50


@pytest.mark.parametrize("edit", PLANTED, ids=_name)
def test_a_planted_drift_is_found_and_named(edit: dict[str, Any], tmp_path):
    outcome = outcome_of(edit, tmp_path)
    named = [(d.code, d.subject) for d in outcome.drifts if not d.follows or d.code == "KD110"]
    assert (edit["code"], edit["subject"]) in named


@pytest.mark.parametrize("edit", HARMLESS, ids=_name)
def test_a_harmless_change_raises_nothing(edit: dict[str, Any], tmp_path):
    outcome = outcome_of(edit, tmp_path)
    assert [(d.code, d.message) for d in outcome.drifts] == []


@pytest.mark.parametrize("log", LOGS)
def test_a_log_does_not_drift_from_itself(log: str):
    outcome = check(observe(str(LOGS[log])), baseline(log))
    assert not outcome.drifts
    assert not outcome.noise


def _rerun(log: str, total: float, free: float, seen: tuple[float, float], folder) -> str:
    """The log as another run would print it: sizing saw `total` and `free` GiB, the lines before it print `seen`."""
    text = LOGS[log].read_text(encoding="utf-8")
    fraction, cell = (0.88, 70_272) if log == "kimi" else (0.05, 3_072)
    old = re.search(r"max_total_num_tokens=(\d+)", text)[1]
    tokens = int((free - total * (1 - fraction)) * 2**30 // cell)
    pool, before = (tokens + 1) * cell / 2**30, (int(old) + 1) * cell / 2**30
    left = float(re.search(r"pool end\. avail mem=([\d.]+)", text)[1]) + before - 21.7085 + free if log == "kimi" else free
    end = float(re.search(r"available_[cg]pu_mem=([\d.]+)", text)[1]) + before - 21.7085 + free if log == "kimi" else free
    for pattern, value in (
        (r"(begin\. avail mem=)[\d.]+", seen[0]),
        (r"(Load weight end.*avail mem=)[\d.]+", seen[1]),
        (r"(Load weight end.*mem usage=)-?[\d.]+", seen[0] - seen[1]),
        (r"(pool end\. avail mem=)[\d.]+", left - pool),
        (r"(available_[cg]pu_mem=)[\d.]+", end - pool),
        (r"( KV size: )[\d.]+", pool),
        (r"( K size: )[\d.]+", pool / 2),
        (r"( V size: )[\d.]+", pool / 2),
    ):
        text = re.sub(pattern, lambda found, value=value: f"{found[1]}{value:.2f}", text)
    path = folder / "server.log"
    path.write_text(text.replace(old, str(tokens)), encoding="utf-8")
    return str(path)


@pytest.mark.parametrize("log", ["nocap", "nocap9"])
def test_another_run_on_the_machines_own_memory_raises_nothing(log: str, tmp_path):
    """What sizing read and what was printed are readings a tenth of a GB apart, and hours lie between the runs."""
    draw = random.Random(3)
    for _ in range(12):
        total = draw.uniform(14, 23)
        free = total - draw.uniform(0, 0.1)
        seen = (total + draw.uniform(-0.1, 0.1), free + draw.uniform(0, 0.03))
        outcome = check(observe(_rerun(log, total, free, seen, tmp_path)), baseline(log))
        assert [drift.message for drift in outcome.drifts] == []


def test_another_run_on_the_same_gpus_raises_nothing_within_the_printed_digits(tmp_path):
    draw = random.Random(5)
    for _ in range(12):
        total, free = 94.0372 + draw.uniform(-0.005, 0.005), 21.7085 + draw.uniform(-0.005, 0.005)
        outcome = check(observe(_rerun("kimi", total, free, (total, free), tmp_path)), baseline("kimi"))
        assert [drift.message for drift in outcome.drifts] == []


def test_a_tenth_of_a_gib_less_on_the_gpus_is_a_drift_with_its_reason(tmp_path):
    outcome = check(observe(_rerun("kimi", 94.0372, 21.6085, (94.0372, 21.6085), tmp_path)), baseline("kimi"))
    assert outcome.failed
    capacity = next(drift for drift in outcome.drifts if drift.subject == "max_total_num_tokens")
    assert "tokens by weights: the weights (all that loading took) grew" in capacity.reason


def test_a_token_that_takes_no_whole_number_of_bytes_is_the_same_in_the_baseline_made_of_its_log(tmp_path):
    """A window pool's share of a token is a fraction that no decimal number holds; a file has the nearest."""
    log = tmp_path / "server.log"
    log.write_text("""\
[2026-01-05 10:00:00] server_args=ServerArgs(model_path='openai/gpt-oss-20b', tp_size=1, pp_size=1, dp_size=1, \
enable_dp_attention=False, kv_cache_dtype='auto', page_size=1, swa_full_tokens_ratio=0.7, device='cuda')
[2026-01-05 10:00:18] Use sliding window memory pool. full_layer_tokens=1000000, swa_layer_tokens=700000
[2026-01-05 10:00:19] KV Cache is allocated. #tokens: 700000, K size: 8.01 GB, V size: 8.01 GB
[2026-01-05 10:00:19] KV Cache is allocated. #tokens: 1000000, K size: 11.44 GB, V size: 11.44 GB
[2026-01-05 10:00:20] max_total_num_tokens=1000000, chunked_prefill_size=8192, max_prefill_tokens=16384, \
max_running_requests=4096, context_len=131072, available_gpu_mem=15.81 GB
""")
    seen = observe(str(log), release="0.5.15").snapshot
    cell = seen.check("bytes_per_token").recomputed
    assert cell.low.denominator > 1, "a share of bytes"
    kept = parse_baseline(write_baseline(seen), "baseline.json")
    assert kept.check("bytes_per_token").recomputed == cell
    assert not check(observe(str(log), release="0.5.15"), kept).drifts
