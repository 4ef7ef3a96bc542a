"""What people paste of a log: one rank's lines, a beginning or an end cut off, times without a date, lines wrapped by hand."""

from __future__ import annotations

import re

import pytest

import kvdiag
from kvdiag.reports.text_report import render

ARGUMENTS = (
    "[2026-06-01 10:00:00] server_args=ServerArgs(model_path='{model}', context_length={context}, kv_cache_dtype='auto', "
    "mem_fraction_static=0.8, max_running_requests=1, max_total_tokens=None, page_size=1, swa_full_tokens_ratio=0.1, "
    "tp_size={tp}, pp_size=1, dp_size=1, enable_dp_attention=False, speculative_algorithm=None)\n"
)


def explained(tmp_path, text, release=None):
    log = tmp_path / "server.log"
    log.write_text(text, encoding="utf-8")
    return kvdiag.explain(str(log), release=release)


def start_of(tmp_path, text, release=None):
    return explained(tmp_path, text, release).starts[0]


def verdicts(start):
    return {check.name: check.verdict for check in start.checks}


def gemma(tokens, context=262144):
    """A start of Gemma-4 31B whose printed readings leave a budget of 7.0 GiB, which is 91,750 tokens of 81,920 bytes."""
    text = ARGUMENTS.format(model="google/gemma-4-31B-it", context=context, tp=1)
    return text.replace("tp_size=1", "tp_size=2") + "".join(
        f"[2026-06-01 10:00:09 TP{rank}] Load weight begin. avail mem=22.50 GB\n"
        f"[2026-06-01 10:00:19 TP{rank}] Load weight end. elapsed=9.00 s, type=Gemma4ForConditionalGeneration, quant=awq, "
        "bits=4, avail mem=11.50 GB, mem usage=11.00 GB.\n"
        f"[2026-06-01 10:00:20 TP{rank}] Use sliding window memory pool. full_layer_tokens={tokens}, "
        f"swa_layer_tokens={tokens // 10}\n"
        for rank in (0, 1)
    )


@pytest.mark.parametrize(
    ("tokens", "context", "verdict"),
    [(91_750, 262_144, "agree"), (90_980, 262_144, "unknown"), (89_000, 262_144, "disagree"), (90_980, 131_072, "disagree")],
    ids=["as printed", "60 MiB less", "215 MiB less", "60 MiB less and caches that are long enough"],
)
def test_what_lengthened_rope_caches_keep_is_not_known(tmp_path, tokens, context, verdict):
    start = start_of(tmp_path, gemma(tokens, context), "0.5.12")
    assert verdicts(start)["max_total_num_tokens"] == verdict
    assert verdicts(start)["rest_memory"] == verdict
    assert verdicts(start)["mem_fraction_static"] == verdict
    assert ("KV101" in {finding.code for finding in start.findings}) == (verdict == "disagree")


def test_the_lines_of_one_rank_refute_no_budget(tmp_path):
    """The rank with the least memory decides, and it may be one that is not in the excerpt."""
    alone = [line for line in gemma(80_000).splitlines(keepends=True) if " TP1]" not in line]
    start = start_of(tmp_path, "".join(alone), "0.5.12")
    assert {verdicts(start)[name] for name in ("max_total_num_tokens", "rest_memory", "mem_fraction_static")} == {"unknown"}
    assert "KV101" not in {finding.code for finding in start.findings}


def test_more_tokens_than_one_rank_allows_are_refuted_whoever_is_missing(tmp_path):
    alone = [line for line in gemma(99_000).splitlines(keepends=True) if " TP1]" not in line]
    start = start_of(tmp_path, "".join(alone), "0.5.12")
    assert {verdicts(start)[name] for name in ("max_total_num_tokens", "rest_memory", "mem_fraction_static")} == {"disagree"}


def test_memory_before_loading_is_not_read_off_the_drafts_line(tmp_path):
    """An excerpt that begins at the end of the target's weights still has the line with which the draft's begin."""
    start = start_of(
        tmp_path,
        "[2026-09-11 23:44:38 TP0] Load weight end. elapsed=90.11 s, type=DeepseekV3ForCausalLM, quant=fp8, "
        "avail mem=27.40 GB, mem usage=84.00 GB.\n"
        "[2026-09-11 23:44:38 TP0] Load weight begin. avail mem=27.50 GB\n"
        "[2026-09-11 23:45:53 TP0] Load weight end. elapsed=14.58 s, type=DeepseekV3ForCausalLMNextN, quant=fp8, "
        "avail mem=24.70 GB, mem usage=2.80 GB.\n"
        "[2026-09-11 23:46:13 TP0] Memory pool end. avail mem=9.90 GB\n",
    )
    (ledger,) = start.memory
    assert float(ledger.total.low / 2**30) == pytest.approx(111.4, abs=0.02)
    assert ledger.get("unexplained").high > 0


def test_pools_below_the_last_reading_are_not_taken_from_it(tmp_path):
    start = start_of(
        tmp_path,
        "[2025-12-29 18:33:03 TP0] Load weight begin. avail mem=15.30 GB\n"
        "[2025-12-29 18:33:13 TP0] Load weight end. type=Lfm2ForCausalLM, dtype=torch.bfloat16, avail mem=13.80 GB, "
        "mem usage=1.50 GB.\n"
        "[2025-12-29 18:33:13 TP0] KV Cache is allocated. #tokens: 464096, K size: 2.66 GB, V size: 2.66 GB\n",
    )
    (ledger,) = start.memory
    assert ledger.get("headroom").low > 13 * 2**30
    assert ledger.get("kv_pool") is None
    assert abs(ledger.get("unexplained").low) < 2**25


def test_two_pools_too_small_to_print_have_no_shares(tmp_path):
    line = "[2025-09-28 17:07:10 TP0] KV Cache is allocated. #tokens: 512, K size: 0.00 GB, V size: 0.00 GB\n"
    end = "[2025-09-28 17:07:10 TP0] Memory pool end. avail mem=9.00 GB\n"
    start = start_of(tmp_path, line + end + line + end)
    assert "KV702" not in {finding.code for finding in start.findings}


def test_a_date_cut_off_contradicts_no_words(tmp_path):
    diagnosis = explained(
        tmp_path,
        "[20:52:05] Load weight end. elapsed=2.57 s, type=Qwen3ForCausalLM, avail mem=14.40 GB, mem usage=8.60 GB.\n"
        "[20:52:05] Memory pool end. avail mem=3.40 GB\n",
    )
    start = diagnosis.starts[0]
    assert not start.start.release.contradiction
    assert str(start.start.release.possible.ordered()[0]) == "0.5.10rc0"
    assert "KV102" not in {finding.code for finding in start.findings}


def test_an_exception_is_named_though_its_class_is_not_called_an_error(tmp_path):
    diagnosis = explained(
        tmp_path,
        "[2026-05-04 01:05:33 TP0] Load weight end. type=DeepseekV3ForCausalLM, dtype=torch.bfloat16, avail mem=103.70 GB, "
        "mem usage=81.60 GB.\n"
        "[2026-05-04 01:06:12 TP0] Scheduler hit an exception: Traceback (most recent call last):\n"
        '  File "/srt/model_executor/model_runner.py", line 210, in __init__\n'
        "    self.capture()\n"
        "triton.runtime.errors.OutOfResources: out of resource: shared memory, Required: 196608, Hardware limit: 65536.\n",
    )
    text = render(diagnosis)
    assert "KV001" in text
    assert "OutOfResources: out of resource: shared memory" in text
    assert "KV010" not in text


def test_lines_wrapped_at_commas_are_read_one_behind_the_other(tmp_path):
    start = start_of(
        tmp_path,
        "Load weight end. elapsed=215.46 s, type=Gemma4ForConditionalGeneration,\n"
        "avail mem=97.30 GB, mem usage=15.60 GB.\n"
        "Capture target decode CUDA graph end. elapsed=22.18 s, mem usage=1.90 GB,\n"
        "avail mem=14.20 GB.\n"
        "Engine startup timings (s): load_weight=215.46, scheduler_e2e=256.47,\n"
        "tokenizer_e2e=261.44\n",
    )
    numbers = {number.name: number.value for number in start.start.numbers}
    assert numbers["graph_memory"] == pytest.approx(1.9 * 2**30, rel=0.01)
    assert numbers["memory_after_graphs"] == pytest.approx(14.2 * 2**30, rel=0.01)


SERVING = (
    "[2026-07-01 10:00:00 TP0] max_total_num_tokens=181120, chunked_prefill_size=2048, max_prefill_tokens=20000, "
    "max_running_requests=48, context_len=202752, available_gpu_mem=3.80 GB\n"
    "[2026-07-01 10:20:11 TP0] Prefill batch, #new-seq: 1, #new-token: 2048, #cached-token: 0, token usage: 0.02, "
    "#running-req: 0, #queue-req: 0, #pending-token: 8192, cuda graph: False, input throughput (token/s): 201.00\n"
)


@pytest.mark.parametrize(
    "text",
    [
        "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 72.00 MiB (GPU 3; 61.27 GiB total capacity; 56.05 "
        "GiB already allocated; 5.00 MiB free; 58.39 GiB reserved in total by PyTorch)",
        "torch.OutOfMemoryError: NPU out of memory. Tried to allocate 72.00 MiB (NPU 3; 61.27 GiB total capacity; 56.05 GiB "
        "already allocated; 56.05 GiB current active; 5.00 MiB free; 58.39 GiB reserved in total by PyTorch)",
        "[rank0]:[E522 11:31:08.878836785 OpParamMaker.cpp:454] NPU out of memory. NPUWorkspaceAllocator tried to allocate "
        "72.00 MiB(NPU 3; 61.27 GiB total capacity; 5.00 MiB free).",
        "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 72.00 MiB. GPU 3 has a total capacity of 61.27 GiB of "
        "which 5.00 MiB is free.",
    ],
    ids=["torch 2.0", "npu", "npu workspace", "hip"],
)
def test_an_allocator_is_read_in_every_wording(tmp_path, text):
    capture = "[2026-07-01 10:00:00 TP3] Capture cuda graph begin. This can take up to several minutes. avail mem=0.60 GB\n"
    (finding,) = [f for f in start_of(tmp_path, capture + text + "\n").findings if f.code == "KV010"]
    assert "asked for 72 MiB. 5 MiB were free on GPU 3, a card of 61.27 GiB" in finding.message


def test_metal_out_of_memory_is_a_batch_that_did_not_fit(tmp_path):
    text = (
        "libc++abi: terminating due to uncaught exception of type std::runtime_error: [METAL] Command buffer execution failed: "
        "Insufficient Memory (00000008:kIOGPUCommandBufferCallbackErrorOutOfMemory)\n"
        "[2026-07-01 10:20:20] Subprocess scheduler_0 (pid=812) crashed with exit code -6. Triggering SIGQUIT for cleanup...\n"
    )
    codes = {finding.code for finding in start_of(tmp_path, SERVING + text).findings}
    assert "KV012" in codes
    assert "KV021" not in codes


def test_a_review_of_lines_without_dates_invents_none(tmp_path):
    from kvdiag.pipeline import postmortem
    from kvdiag.reports import postmortem_markdown, postmortem_text

    log = tmp_path / "server.log"
    log.write_text(
        "".join(
            f"[{clock}] Decode batch, #running-req: 6, #token: 2435072, token usage: 0.52, cuda graph: True, "
            "gen throughput (token/s): 24.33, #queue-req: 0\n"
            for clock in ("23:51:54", "23:52:41", "00:00:05")
        )
    )
    found = postmortem([str(log)])
    for text in (postmortem_text.render(found, width=120), postmortem_markdown.render(found)):
        assert "1970" not in text
        assert "23:51:54 to day 2 00:00:05" in text


@pytest.mark.parametrize("more", ["", ", #transferring-req: 1"], ids=["chunk not told", "prefill server"])
def test_prefill_lines_alone_show_no_reserve(tmp_path, more):
    line = (
        "[2026-03-01 10:00:00 TP0] Prefill batch, #new-seq: 1, #new-token: 2048, #cached-token: 0, token usage: 0.11, "
        f"#running-req: 7, #queue-req: 2{more}, cuda graph: False, input throughput (token/s): 8645.90\n"
    )
    diagnosis = explained(tmp_path, line * 3)
    assert "admission reserve" not in render(diagnosis)


def test_weights_of_a_release_that_prints_no_usage_are_what_went_between_the_readings(tmp_path):
    start = start_of(
        tmp_path,
        "[2025-01-04 05:06:07 TP0] Load weight begin. avail mem=22.50 GB\n"
        "[2025-01-04 05:09:07 TP0] Load weight end. type=Qwen2ForCausalLM, dtype=torch.bfloat16, avail mem=8.00 GB\n"
        "[2025-01-04 05:09:07 TP0] KV Cache is allocated. K size: 2.50 GB, V size: 2.50 GB.\n"
        "[2025-01-04 05:09:07 TP0] Memory pool end. avail mem=3.00 GB\n",
    )
    (ledger,) = start.memory
    assert float(ledger.get("weights").low / 2**30) == pytest.approx(14.5, abs=0.02)
    assert abs(ledger.get("unexplained").low) < 2**26


@pytest.mark.parametrize(
    ("lines", "called"),
    [
        ([], "unexplained"),
        (["Memory pool end. avail mem=3.00 GB"], "pools and other use"),
        (["KV Cache is allocated. K size: 2.00 GB, V size: 2.00 GB.", "Memory pool end. avail mem=3.00 GB"], "unexplained"),
    ],
    ids=["before the pools", "no line of the pools", "their line is there"],
)
def test_pools_without_a_line_of_theirs_are_not_called_unexplained(tmp_path, lines, called):
    load = [
        "Load weight begin. avail mem=22.50 GB",
        "Load weight end. type=X, dtype=auto, avail mem=8.00 GB, mem usage=14.00 GB.",
    ]
    text = render(explained(tmp_path, "".join(f"[2026-01-04 05:06:07 TP0] {line}\n" for line in [*load, *lines])))
    assert re.search(r"\? (\w[\w ]*\w)  ", text)[1] == called


def test_a_queue_beside_overwritten_numbers_is_not_told_to_stand_before_an_idle_server(tmp_path):
    line = (
        "[2026-02-03 04:05:{:02d} TP0] Prefill batch, #new-seq: 1, #new-token: 896, #cached-tounning-req: 47, #queue-req: 71, "
        "#pending-token: 60816, npu graph: False, input th\n"
    )
    start = start_of(tmp_path, "".join(line.format(second) for second in range(4)))
    (found,) = [finding for finding in start.findings if finding.code == "KV511"]
    assert "Up to 71 requests wait in the queue, and" in found.message
    assert " 0 run" not in found.message


def test_a_finding_names_each_line_once_and_a_size_of_one_figure_as_one(tmp_path):
    start = start_of(
        tmp_path,
        "[2026-04-07 13:03:53] Load weight end. type=LlamaForCausalLM, dtype=torch.bfloat16, avail mem=64.60 GB, "
        "mem usage=17.99 GB.\n"
        "[2026-04-07 13:03:53] Mamba Cache is allocated. max_mamba_cache_size: 20, conv_state size: 0.00GB, "
        "ssm_state size: 0.98GB \n"
        "[2026-04-07 13:03:53] KV Cache is allocated. #tokens: 661276, K size: 2.52 GB, V size: 2.52 GB\n"
        "[2026-04-07 13:03:53] Capture cuda graph begin. This can take up to several minutes. avail mem=12.24 GB\n"
        "[2026-04-07 13:03:55] Scheduler hit an exception: Traceback (most recent call last):\n"
        "triton.compiler.errors.CompilationError: at 174:24:\n",
    )
    for finding in start.findings:
        assert len(set(finding.lines)) == len(finding.lines), finding.code
    (slots,) = [finding for finding in start.findings if finding.code == "KV411"]
    assert " 48 MiB, all of them" in slots.message


def test_retractions_are_told_once_though_each_is_quoted_from_other_ranks(tmp_path):
    line = "[2025-03-07 21:49:{:02d} TP{}] Decode out of memory happened. #retracted_reqs: 1, #new_token_ratio: {} -> {}\n"
    quoted = [
        (33, 13, "0.1474", "0.1845"),
        (33, 12, "0.1474", "0.1845"),
        (45, 9, "0.0980", "0.1919"),
        (45, 13, "0.0980", "0.1919"),
    ]
    quoted += [(51, 9, "0.1207", "0.1500"), (58, 9, "0.1207", "0.1500"), (58, 13, "0.1207", "0.1500")]
    start = start_of(tmp_path, "".join(line.format(*each) for each in quoted))
    (found,) = [finding for finding in start.findings if finding.code == "KV501"]
    assert found.title.startswith("4 retractions")


def test_a_whole_log_of_eight_ranks_has_each_retraction_once(tmp_path):
    line = (
        "[2025-03-07 21:49:{:02d} TP{}] Decode out of memory happened. #retracted_reqs: 1, #new_token_ratio: 0.1474 -> 0.1845\n"
    )
    start = start_of(tmp_path, "".join(line.format(second, rank) for second in (33, 45) for rank in range(8)))
    (found,) = [finding for finding in start.findings if finding.code == "KV501"]
    assert found.title.startswith("2 retractions")


STATES = (
    "[2026-09-29 11:59:39] Mamba Cache is allocated. max_mamba_cache_size: 40, conv_state size: 0.28GB, ssm_state size: 2.75GB \n"
    "[2026-09-29 11:59:41] KV Cache is allocated. dtype: torch.bfloat16, #tokens: {tokens}, KV size: 9.21 GB\n"
    "[2026-09-29 11:59:51] max_total_num_tokens={tokens}, chunked_prefill_size=8192, context_len={context}, "
    "available_gpu_mem=10.39 GB\n"
)
DUMP = "[2026-09-29 11:59:00] server_args=ServerArgs(model_path='/models/x', tp_size=1, disable_radix_cache={off})\n"


@pytest.mark.parametrize(
    ("head", "allowed", "each"),
    [
        ("", "8 to 40 requests", "20,000 to 100,000"),
        (DUMP.format(off=False), "8 to 13 requests", "61,538 to 100,000"),
        (DUMP.format(off=True), "40 requests", "20,000 tokens each"),
    ],
    ids=["the prefix cache may be off", "prefix cache", "no prefix cache"],
)
def test_slots_of_states_and_pool_are_weighed_where_no_line_has_a_cap(tmp_path, head, allowed, each):
    start = start_of(tmp_path, head + STATES.format(tokens=800_000, context=262_144))
    assert start.limits.binding == "kv_pool"
    assert "before the 40 state slots" in start.limits.why
    assert allowed in start.limits.why
    assert each in start.limits.why
    (found,) = [finding for finding in start.findings if finding.code == "KV411"]
    assert allowed in found.title


def test_a_pool_that_holds_all_that_the_state_slots_allow_is_not_what_binds(tmp_path):
    start = start_of(tmp_path, STATES.format(tokens=800_000, context=16_384))
    assert start.limits.binding == "state_slots"
    assert "at full length 16,384" in start.limits.why


def test_fewer_slots_than_a_request_may_need_still_run_one(tmp_path):
    text = STATES.replace("size: 40,", "size: 3,").format(tokens=800_000, context=262_144)
    assert "3 state slots allow 1 to 3 requests" in start_of(tmp_path, text).limits.why


@pytest.mark.parametrize(
    ("batches", "bound"),
    [
        ([(9, 8192), (9, 8192), (6, 8192), (7, 8192)], "prefill"),
        ([(1, 8192), (1, 8192), (1, 8192), (1, 8192)], "unknown"),
        ([(9, 8192), (6, 8192), (9, 7800), (5, 4100)], "unknown"),
    ],
    ids=["cut at one size", "prompts of one length", "twice the same"],
)
def test_prefill_batches_show_their_most_where_no_argument_does(tmp_path, batches, bound):
    """The finding on prompts that wait for prefill and the limit over time must not speak of one log in two ways."""
    lines = [
        f"[2025-10-22 20:23:0{second}] Prefill batch. #new-seq: {new}, #new-token: {tokens}, #cached-token: 24, "
        f"token usage: 0.1{second}, #running-req: {8 * second}, #queue-req: {90 - second}, \n"
        for second, (new, tokens) in enumerate(batches)
    ]
    assert list(start_of(tmp_path, "".join(lines)).limits.over_time["shares"]) == [bound]
