"""Findings together: causes before what they explain, no advice against the limit that binds, figures of one moment."""

from __future__ import annotations

import re
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvdiag.checks.binding import FULL
from kvdiag.checks.findings import documents, rules
from kvdiag.checks.samples import findings_in
from kvdiag.quantity import GIB

CAPACITY = (
    "[2026-01-05 10:00:20 TP0] max_total_num_tokens={tokens}, chunked_prefill_size=8192, max_prefill_tokens=16384, "
    "max_running_requests={cap}, context_len={context}, available_gpu_mem=40.81 GB"
)
ARGUMENTS = (
    "[2026-01-05 10:00:00] server_args=ServerArgs(model_path='/models/x', tp_size=1, mem_fraction_static=0.5, "
    "max_total_tokens={tokens}, page_size=1, device='cuda')"
)
MEMORY = """\
[2026-01-05 10:00:09 TP0] Load weight begin. avail mem=78.00 GB
[2026-01-05 10:00:19 TP0] Load weight end. elapsed=9.00 s, type=LlamaForCausalLM, avail mem=62.00 GB, mem usage=16.00 GB."""
DECODE = (
    "[2026-01-05 10:10:{second:02d} TP0] Decode batch, #running-req: {running}, #token: {held}, token usage: {usage:.2f}, "
    "cuda graph: True, gen throughput (token/s): 100.00, #queue-req: {queued}"
)
RETRACT = (
    "[2026-01-05 10:10:{second:02d} TP0] KV cache pool is full. Retract requests. #retracted_reqs: 1, "
    "#new_tokens_gained: 40, #new_token_ratio: 0.0980 -> 0.3487"
)
MORE_MEMORY = re.compile(
    r"(larger|raise|a bigger) --mem-fraction-static|--mem-fraction-static 0|FP8 KV cache|more GPUs|fp8_e4m3", re.I
)

MOMENTS = st.lists(st.tuples(st.integers(1, 16), st.floats(0.02, 1), st.integers(0, 30), st.booleans()), min_size=1, max_size=14)


def log(tokens, cap, context, moments, capped):
    lines = [ARGUMENTS.format(tokens=tokens)] if capped else []
    lines += [*MEMORY.splitlines(), CAPACITY.format(tokens=tokens, cap=cap, context=context)]
    for second, (running, usage, queued, retracts) in enumerate(moments):
        held = max(running, int(tokens * usage))
        lines.append(DECODE.format(second=second, running=running, held=held, usage=held / tokens, queued=queued))
        if retracts:
            lines.append(RETRACT.format(second=second))
    return "\n".join(lines)


@settings(max_examples=60, deadline=None)
@given(st.integers(500, 20000), st.integers(1, 64), st.sampled_from([1024, 4096, 32768]), MOMENTS)
def test_where_a_cap_decides_the_pool_it_is_said_first_and_nothing_advises_more_memory(tokens, cap, context, moments):
    found = findings_in(log(tokens, cap, context, moments, capped=True))
    codes = [finding.code for finding in found]
    explained = next(rule.explains for rule in rules() if rule.code == "KV310")
    assert "KV310" in codes
    assert not set(codes[: codes.index("KV310")]) & set(explained)
    for finding in found:
        assert finding.gain is None, finding.code
        assert not MORE_MEMORY.search(finding.advice), finding


@settings(max_examples=60, deadline=None)
@given(st.integers(500, 20000), st.integers(1, 64), MOMENTS)
def test_the_figures_of_a_retraction_are_of_one_line(tokens, cap, moments):
    text = log(tokens, cap, 1024, moments, capped=False)
    for finding in findings_in(text):
        if finding.code != "KV501":
            continue
        line, running, held, each = (
            int(figure.replace(",", ""))
            for figure in re.search(
                r"\(line (\d+)\) ([\d,]+) requests ran and held ([\d,]+) tokens, ([\d,]+) each", finding.message
            ).groups()
        )
        printed = text.splitlines()[line - 1]
        assert f"#running-req: {running}, #token: {held}," in printed
        assert each == round(held / running)


@settings(max_examples=60, deadline=None)
@given(st.integers(500, 20000), st.integers(1, 64), MOMENTS)
def test_a_full_pool_and_a_reserve_too_large_are_never_said_of_the_same_lines(tokens, cap, moments):
    by_code = {finding.code: finding for finding in findings_in(log(tokens, cap, 1024, moments, capped=False))}
    assert not {"KV504", "KV523"} <= set(by_code)
    if "KV203" in by_code:
        usages = [held for _, held, queued, _ in moments if queued]
        assert max(usages) >= FULL - 0.01


@pytest.mark.parametrize("rule", [rule for rule in rules() if rule.explains], ids=lambda rule: rule.code)
def test_a_cause_explains_findings_that_exist_and_none_that_explains_it(rule):
    for code in rule.explains:
        assert code in documents()
        assert rule.code not in next(other.explains for other in rules() if other.code == code)


def test_nothing_waited_and_a_cap_do_not_contradict_each_other():
    calm = [(3, 0.1, 0, False)] * 12
    said = {finding.code: finding.advice for finding in findings_in(log(9000, 64, 1024, calm, capped=True))}
    assert "No memory setting" in said["KV517"]
    assert "the cap costs nothing now" in said["KV310"]


CELL = 131_072
"""Bytes of a token of Llama-3.1-8B in bf16."""


def served(total, weights, fraction, graphs, cell=CELL):
    """(log, tokens, free memory at the end) of a server of Llama-3.1-8B that SGLang's own arithmetic gives; GiB."""
    tokens = int((total - weights - total * (1 - fraction)) * GIB // cell)
    pool = Fraction((tokens + 1) * cell, GIB)
    end = total - weights - pool - graphs
    arguments = f"model_path='/models/x', tp_size=1, mem_fraction_static={float(fraction)}, page_size=1, kv_cache_dtype='auto'"
    half, loaded = printed(pool / 2), printed(total - weights)
    told = [
        f"server_args=ServerArgs({arguments}, device='cuda')",
        f"Load weight begin. avail mem={printed(total)} GB",
        f"Load weight end. type=LlamaForCausalLM, dtype=torch.bfloat16, avail mem={loaded} GB, mem usage={printed(weights)} GB.",
        f"KV Cache is allocated. #tokens: {tokens}, K size: {half} GB, V size: {half} GB",
        f"Memory pool end. avail mem={printed(total - weights - pool)} GB",
        f"max_total_num_tokens={tokens}, chunked_prefill_size=8192, max_prefill_tokens=16384, "
        f"max_running_requests=480, context_len=131072, available_gpu_mem={printed(end)} GB",
    ]
    load = [DECODE.format(second=s, running=40, held=int(tokens * 0.97), usage=0.97, queued=12) for s in range(3)]
    return "\n".join([*(f"[2026-01-05 10:00:00 TP0] {line}" for line in told), *load]), tokens, end


def printed(gib):
    return f"{float(gib):.2f}"


@settings(max_examples=80, deadline=None)
@given(st.integers(2000, 14000), st.integers(1490, 1700), st.integers(60, 93), st.integers(0, 300))
def test_a_gain_holds_what_the_change_would_give_and_never_advises_what_would_not_fit(total, weights, fraction, graphs):
    total, weights, fraction, graphs = (Fraction(n, 100) for n in (total, weights, fraction, graphs))
    text, tokens, end = served(total, weights, fraction, graphs)
    if tokens < 1000 or end < 0:
        return
    gained = [finding.gain for finding in findings_in(text, "Llama-3.1-8B", "0.5.9") if finding.gain]
    for gain in gained:
        predicted, left = gain["max_total_num_tokens"], gain["headroom_left"]
        if "mem_fraction_static" in gain["change"]:
            then = Fraction(str(gain["change"]["mem_fraction_static"]))
            assert fraction < then < 1
            _, really, free = served(total, weights, then, graphs)
            assert free * GIB >= min(5 * GIB, total * GIB * Fraction(8, 100)) - Fraction(GIB, 100)
        else:
            _, really, free = served(total, weights, fraction, graphs, CELL // 2)
        assert predicted["low"] <= really <= predicted["high"]
        assert left["low"] - CELL <= free * GIB <= left["high"] + CELL
    assert any("kv_cache_dtype" in gain["change"] for gain in gained)


def test_more_tokens_are_advised_by_what_this_log_leaves_to_do():
    """No FP8 where the cache is FP8, no larger fraction where no head-room is left."""
    full = served(Fraction(80), Fraction(16), Fraction(80, 100), Fraction(1))[0]
    narrow = full.replace("kv_cache_dtype='auto'", "kv_cache_dtype='fp8_e4m3'")
    tight = served(Fraction(80), Fraction(16), Fraction(93, 100), Fraction(1))[0]
    said = [
        next(f.advice for f in findings_in(text, "Llama-3.1-8B", "0.5.9") if f.code == "KV510") for text in (full, narrow, tight)
    ]
    assert "--mem-fraction-static up to 0.92, an FP8 KV cache" in said[0]
    assert "FP8" not in said[1]
    assert "no head-room is left" in said[2]
    assert "up to" not in said[2]
