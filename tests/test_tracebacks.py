"""A traceback is all that many people quote: its own frames tell in which phase the device ran out of memory."""

from __future__ import annotations

import re

import pytest

import kvdiag

ROOT = "/opt/env/lib/python3.12/site-packages/sglang/srt"
OUT = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 96.00 MiB. GPU 0 has a total capacity of 23.50 GiB "
    "of which 40.00 MiB is free."
)
BEGINS = "Traceback (most recent call last):"
CRASH = f"[2026-03-04 05:06:07 TP0] Scheduler hit an exception: {BEGINS}"
LOADING = [
    ("managers/scheduler", "__init__"),
    ("model_executor/model_runner", "initialize"),
    ("model_executor/model_runner", "load_model"),
]
POOLS = [("model_executor/model_runner", "init_memory_pool"), ("mem_cache/memory_pool", "_create_buffers")]
CAPTURE = [
    ("model_executor/model_runner", "init_device_graphs"),
    ("model_executor/cuda_graph_runner", "capture"),
    ("models/llama", "forward"),
]
SERVING = [
    ("managers/scheduler", "event_loop_overlap"),
    ("managers/scheduler", "run_batch"),
    ("model_executor/cuda_graph_runner", "replay"),
]
DRAFT = [
    ("managers/scheduler", "__init__"),
    ("speculative/eagle_worker", "__init__"),
    ("model_executor/model_runner", "load_model"),
]
PHASES = {"KV010", "KV012", "KV013", "KV016", "KV022"}


def traceback(frames, *head):
    lines = list(head)
    for file, function in frames:
        lines += [f'  File "{ROOT}/{file}.py", line 12, in {function}', "    self.work(", "         ^^^^^^^^^^"]
    return "\n".join([*lines, OUT]) + "\n"


def start_of(tmp_path, text):
    log = tmp_path / "server.log"
    log.write_text(text, encoding="utf-8")
    return kvdiag.explain(str(log)).starts[0]


def phase(tmp_path, text):
    (code,) = {finding.code for finding in start_of(tmp_path, text).findings} & PHASES
    return code


@pytest.mark.parametrize(
    ("frames", "code"),
    [(LOADING, "KV013"), (POOLS, "KV022"), (CAPTURE, "KV010"), (SERVING, "KV012")],
    ids=["loading", "pools", "capture", "serving"],
)
@pytest.mark.parametrize("head", [CRASH, BEGINS], ids=["SGLang's line", "the bare traceback"])
def test_frames_tell_the_phase(tmp_path, frames, code, head):
    assert phase(tmp_path, traceback(frames, head)) == code


@pytest.mark.parametrize(("frames", "code"), [(POOLS, "KV022"), (CAPTURE, "KV010"), (SERVING, "KV012")])
def test_a_quote_that_begins_within_the_traceback_is_read(tmp_path, frames, code):
    wrapped = "".join(f"sglang-1  | {line}\n" for line in traceback(frames).splitlines())
    assert phase(tmp_path, wrapped) == code


def test_weights_of_a_draft_are_not_taken_for_the_targets(tmp_path):
    assert phase(tmp_path, traceback(DRAFT, CRASH)) == "KV016"


def test_a_traceback_of_another_failure_is_not_said_to_come_before_the_first_line(tmp_path):
    with pytest.raises(kvdiag.KvdiagError, match=r"a traceback of SGLang and no line of its log, .*no such model"):
        start_of(tmp_path, traceback(LOADING).replace(OUT, "ValueError: no such model"))


def test_frames_are_believed_before_the_place_among_lines_of_which_some_are_cut(tmp_path):
    pool = "[2026-03-04 05:00:00 TP0] Memory pool end. avail mem=2.10 GB\n"
    assert phase(tmp_path, pool + traceback(SERVING, CRASH)) == "KV012"
    assert phase(tmp_path, pool + traceback([], CRASH)) == "KV010"


def test_frames_of_another_program_tell_nothing(tmp_path):
    foreign = traceback(SERVING, CRASH).replace("/sglang/srt/", "/other/srt/")
    assert phase(tmp_path, foreign) == "KV016"


def test_a_server_that_ran_is_not_called_a_failed_start(tmp_path):
    leak = (
        "ValueError: pool memory leak detected! [full] total=9000, available=600, evictable=8399, protected=0, session_held=0, "
        "uncached=0\n"
    )
    for text in (traceback(SERVING, CRASH), f"{leak}{CRASH}\n", f"{CRASH}\n{OUT}\n"):
        assert "start failed" not in start_of(tmp_path, text).limits.why
    assert "start failed" in start_of(tmp_path, traceback(POOLS, CRASH)).limits.why


WORKSPACE = (
    "RuntimeError: Error in function 'aligned_alloc' at /opt/flashinfer/allocator.h:49: Buffer overflow when allocating memory "
    "for batch_prefill_tmp_v with size 461373440 and alignment 16, but only 402653184 bytes available in AlignedAllocator. "
    "Increase the workspace buffer size."
)
DUMP = (
    "[2026-03-04 05:06:00] server_args=ServerArgs(model_path='Qwen/Qwen3-8B', tp_size=1, mem_fraction_static=0.85{extra})\n"
    "[2026-03-04 05:06:01] The server is fired up and ready to roll!\n"
)


@pytest.mark.parametrize("frames", [SERVING, SERVING[:1], CAPTURE], ids=["a batch", "the loop alone", "capture"])
@pytest.mark.parametrize("head", [CRASH, BEGINS], ids=["SGLang's line", "the bare traceback"])
def test_a_workspace_that_is_too_small_is_no_full_device(tmp_path, frames, head):
    found = {f.code: f for f in start_of(tmp_path, traceback(frames, head).replace(OUT, WORKSPACE)).findings}
    assert set(found) == {"KV025"}
    assert "440 MiB" in found["KV025"].message
    assert "384 MiB were left" in found["KV025"].message


@pytest.mark.parametrize(
    ("extra", "told"),
    [("", "for Qwen3ForCausalLM"), (", enable_deterministic_inference=True", "with --enable-deterministic-inference")],
)
def test_where_sglang_sets_the_workspace_itself_the_environment_is_not_all_the_advice(tmp_path, extra, told):
    text = DUMP.format(extra=extra) + traceback(SERVING, CRASH).replace(OUT, WORKSPACE)
    (finding,) = [f for f in start_of(tmp_path, text).findings if f.code == "KV025"]
    assert told in finding.advice


def test_a_long_exception_is_cut_between_words_and_shows_it(tmp_path):
    text = DUMP.format(extra="") + traceback(SERVING, CRASH).replace(OUT, "ValueError: " + "no such request here, " * 40)
    (finding,) = [f for f in start_of(tmp_path, text).findings if f.code == "KV021"]
    assert re.search(r"\b(no|such|request|here,) \[\.\.\.\]\. No allocator", finding.message)
