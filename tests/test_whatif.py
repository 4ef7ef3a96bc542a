"""The log's own server with other arguments: scenario 3 from both ends, and honesty about what a log does not tell."""

from __future__ import annotations

import json

import pytest

import kvdiag
from kvdiag.checks.inputs import gather
from kvdiag.checks.whatif import predict
from kvdiag.lines import read_records
from kvdiag.pipeline import explain, what_if
from kvdiag.reading import Input, read_lines
from kvdiag.reports.whatif_report import render_text
from kvdiag.starts import assemble
from tests.boundaries import LLAMA, PLAIN_CELL
from tests.conftest import FIXTURES

KIMI = {fraction: FIXTURES / "scenarios" / f"kimi-k2.5-f{fraction}" / "server.log" for fraction in ("0.88", "0.85")}
TOKENS = {"0.88": 159_277, "0.85": 116_171}


def tokens(log, **changes):
    (prediction,) = what_if(str(log), [changes])
    assert prediction.max_total_num_tokens is not None, prediction.missing
    return prediction.max_total_num_tokens


@pytest.mark.parametrize(("of", "to"), [("0.88", "0.85"), ("0.85", "0.88")])
def test_scenario_3_each_log_predicts_the_others_capacity_within_a_few_tokens(of, to):
    predicted = tokens(KIMI[of], mem_fraction_static=float(to))
    assert TOKENS[to] in predicted
    assert predicted.high - predicted.low < 10


@pytest.mark.parametrize("fraction", ["0.88", "0.85"])
def test_a_change_to_what_is_already_so_predicts_the_logs_own_figure(fraction):
    predicted = tokens(KIMI[fraction], mem_fraction_static=float(fraction))
    assert TOKENS[fraction] in predicted


def test_scenario_3_a_fraction_of_0_95_gives_2_2_times_the_tokens_and_not_11_8_percent_more():
    predicted = tokens(KIMI["0.85"], mem_fraction_static=0.95)
    assert 2.2 < predicted.low / 116_171 < predicted.high / 116_171 < 2.3
    assert 129_838 not in predicted


def test_scenario_6_an_fp8_cache_holds_twice_the_tokens():
    predicted = tokens(KIMI["0.88"], kv_cache_dtype="fp8_e4m3")
    assert 2 * 159_277 in predicted
    assert predicted.high - predicted.low <= 2


def test_a_cap_caps_and_a_page_floors():
    assert tokens(KIMI["0.88"], max_total_tokens=100_001, page_size=64).high == 100_001 // 64 * 64


def test_another_tp_is_an_interval_from_no_weight_split_to_all_and_says_so():
    log = FIXTURES / "scenarios" / "l4-bf16" / "server.log"
    (prediction,) = what_if(str(log), [{"tp_size": 2}])
    assert prediction.numbers["bytes_per_token"].low == 65_536
    found = prediction.max_total_num_tokens
    assert found is not None
    assert found.low >= 2 * 24_000
    assert found.high > 3 * found.low
    assert any("weights" in note for note in prediction.notes)


def test_what_remains_after_the_start_is_told_against_what_the_log_has():
    (prediction,) = what_if(str(KIMI["0.88"]), [{"mem_fraction_static": 0.98}])
    assert any("run out of memory" in note for note in prediction.notes)


def test_a_log_without_the_readings_says_what_is_missing_and_does_not_guess(tmp_path):
    text = KIMI["0.88"].read_text()
    log = tmp_path / "cut.log"
    log.write_text("".join(line for line in text.splitlines(True) if "Load weight" not in line))
    (fraction, dtype) = what_if(str(log), [{"mem_fraction_static": 0.85}, {"kv_cache_dtype": "fp8_e4m3"}])
    assert fraction.max_total_num_tokens is None
    assert any("Load weight" in text for text in fraction.missing)
    assert 2 * 159_277 in dtype.max_total_num_tokens


def test_the_prediction_is_a_pure_function_of_the_inputs_of_the_checks():
    (start,) = assemble(read_records(read_lines(str(KIMI["0.88"]), Input(""))))
    inputs = gather(start, None, None, None)
    assert predict(inputs, {"mem_fraction_static": 0.85}) == predict(inputs, {"mem_fraction_static": 0.85})


def test_the_command_gives_a_list_with_an_interval_for_every_combination(kvdiag):
    done = kvdiag(
        "whatif", str(KIMI["0.88"]), "--mem-fraction-static", "0.85", "--mem-fraction-static", "0.9", "--kv-cache-dtype", "auto",
        "--format", "json",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    first, second = json.loads(done.stdout)
    assert first["changes"] == {"mem_fraction_static": 0.85, "kv_cache_dtype": "auto"}
    assert first["max_total_num_tokens"]["low"] <= 116_171 <= first["max_total_num_tokens"]["high"]
    assert second["bytes_per_token"]["low"] == 70_272
    assert first["schema"] == "kvdiag.size/1"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "nothing to change"),
        (["--mem-fraction-static", "1.5"], "between 0 and 1"),
        (["--tp", "0"], "at least 1"),
        (["--page-size", "x"], "page-size"),
        ([part for _ in range(40) for part in ("--tp", "2", "--pp", "2")], "combinations"),
    ],
)
def test_changes_that_make_no_sense_get_a_message_and_exit_code_2(arguments, says, kvdiag):
    done = kvdiag("whatif", str(KIMI["0.88"]), *arguments)
    assert done.returncode == 2
    assert says in done.stderr
    assert "Traceback" not in done.stderr


H100 = FIXTURES / "scenarios" / "h100-llama-3-8b" / "server.log"


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"quantization": "fp8"}, "--quantization"),
        ({"dtype": "float32"}, "--dtype"),
        ({"device": "cpu"}, "--device"),
        ({"speculative_algorithm": "EAGLE"}, "draft"),
    ],
)
def test_what_the_log_cannot_tell_gives_no_capacity_and_says_what_is_missing(change, told):
    (prediction,) = what_if(str(H100), [change])
    assert prediction.max_total_num_tokens is None
    assert told in prediction.missing[0]


def test_another_dtype_of_the_model_is_the_cache_s_too():
    (prediction,) = what_if(str(H100), [{"dtype": "float32"}])
    assert prediction.numbers["bytes_per_token"].low == 262_144


def test_more_requests_take_a_longer_request_table_from_what_is_left():
    (prediction,) = what_if(str(H100), [{"max_running_requests": 100_000}])
    assert "8.72 GiB" in prediction.notes[-1]
    assert "request table" in prediction.notes[-1]


def test_without_graphs_no_figure_is_given_for_what_is_left():
    (prediction,) = what_if(str(H100), [{"disable_cuda_graph": True}])
    assert "--disable-cuda-graph" in prediction.notes[-1]
    assert "GiB" not in prediction.notes[-1]


TWO_RANKS = """\
[2025-11-05 09:00:00] server_args=ServerArgs(model_path='meta-llama/Meta-Llama-3-8B', dtype='auto', kv_cache_dtype='auto', \
mem_fraction_static=0.83, max_running_requests=None, max_total_tokens=None, page_size=1, tp_size=2, dp_size=1, pp_size=1)
[2025-11-05 09:00:20 TP0] Load weight begin. avail mem=78.68 GB
[2025-11-05 09:00:20 TP1] Load weight begin. avail mem=78.68 GB
[2025-11-05 09:00:40 TP0] Load weight end. type=LlamaForCausalLM, dtype=torch.bfloat16, avail mem=63.67 GB, mem usage=15.01 GB.
[2025-11-05 09:00:40 TP1] Load weight end. type=LlamaForCausalLM, dtype=torch.bfloat16, avail mem=63.67 GB, mem usage=15.01 GB.
[2025-11-05 09:00:41 TP0] KV Cache is allocated. #tokens: 823988, K size: 25.15 GB, V size: 25.15 GB
[2025-11-05 09:00:41 TP1] KV Cache is allocated. #tokens: 823988, K size: 25.15 GB, V size: 25.15 GB
[2025-11-05 09:00:53 TP0] Capture cuda graph end. Time elapsed: 10.00 s. mem usage=1.50 GB. avail mem=11.65 GB.
[2025-11-05 09:00:53 TP1] Capture cuda graph end. Time elapsed: 10.00 s. mem usage=9.50 GB. avail mem=3.65 GB.
[2025-11-05 09:00:55 TP0] max_total_num_tokens=823988, chunked_prefill_size=8192, max_prefill_tokens=16384, \
max_running_requests=4096, context_len=8192, available_gpu_mem=11.65 GB
"""


def test_the_fullest_rank_decides_what_is_left(tmp_path):
    log = tmp_path / "server.log"
    log.write_text(TWO_RANKS)
    (prediction,) = what_if(str(log), [{"mem_fraction_static": 0.9}])
    assert "on TP1" in prediction.notes[-1]
    assert "run out of memory" in prediction.notes[-1]


def test_a_log_that_contradicts_the_arithmetic_predicts_nothing(tmp_path):
    text = H100.read_text()
    log = tmp_path / "server.log"
    log.write_text(text.replace("max_total_num_tokens=411994", "max_total_num_tokens=511994"))
    (prediction,) = what_if(str(log), [{"mem_fraction_static": 0.9}])
    assert prediction.max_total_num_tokens is None
    assert "disagree" in prediction.missing[0]


@pytest.mark.parametrize("name", ["kimi-k2.5-f0.85", "h100-llama-3-8b"])
def test_a_finding_s_gain_is_what_whatif_predicts(name):
    log = FIXTURES / "scenarios" / name / "server.log"
    (start,) = kvdiag.explain(str(log)).starts
    gains = [finding.gain for finding in start.findings if finding.gain and "change" in finding.gain]
    assert gains
    for gain in gains:
        assert gain["max_total_num_tokens"] == tokens(log, **gain["change"]).to_dict()


PIPELINE = (
    TWO_RANKS.replace("TP0", "PP0").replace("TP1", "PP1").replace("tp_size=2", "tp_size=1").replace("pp_size=1", "pp_size=3")
)


def test_pipeline_stages_of_other_sizes_are_told_apart(tmp_path):
    log = tmp_path / "server.log"
    log.write_text(PIPELINE)
    (prediction,) = what_if(str(log), [{"page_size": 16}], release="0.5.9")
    assert prediction.numbers["bytes_per_token"].to_dict() == {"low": 40_960, "high": 45_056, "unit": "bytes"}


def test_an_argument_the_log_s_release_does_not_have_predicts_nothing():
    (prediction,) = what_if(str(H100), [{"dcp_size": 2}], release="0.5.9")
    assert prediction.max_total_num_tokens is None
    assert "no such argument" in prediction.missing[0]


def test_a_cap_gives_back_what_the_pool_does_not_take():
    (prediction,) = what_if(str(H100), [{"max_total_tokens": 100_000}])
    assert "49.7" in prediction.notes[-1]


def test_attention_of_one_replica_is_said_to_need_more_of_them():
    """``ServerArgs._handle_data_parallelism`` takes the flag back where dp_size is 1."""
    (prediction,) = what_if(str(KIMI["0.88"]), [{"enable_dp_attention": True}])
    assert "does nothing while --dp-size is 1" in prediction.missing[0]


def test_what_dp_attention_copies_is_not_in_the_log():
    (prediction,) = what_if(str(KIMI["0.88"]), [{"enable_dp_attention": True, "dp_size": 8}])
    assert "DP attention" in prediction.missing[0]


def test_a_draft_s_pool_outside_the_budget_makes_the_rest_a_bound():
    (prediction,) = what_if(str(KIMI["0.85"]), [{"mem_fraction_static": 0.88}], release="0.5.9")
    assert prediction.notes[-1].startswith("at most")
    assert "draft" in prediction.notes[-1]


@pytest.mark.parametrize(("change", "bound"), [({"kv_cache_dtype": "fp8_e4m3"}, "at most"), ({"page_size": 64}, "at least")])
def test_the_bound_of_the_rest_follows_the_tokens_a_draft_s_pool_would_hold(change, bound):
    (prediction,) = what_if(str(KIMI["0.88"]), [change], release="0.5.9")
    assert prediction.notes[-1].startswith(bound)


DRAFTED = """\
[2026-01-01 10:00:00] server_args=ServerArgs(model_path='m', dtype='auto', kv_cache_dtype='auto', mem_fraction_static=0.8, \
max_running_requests=48, max_total_tokens=None, chunked_prefill_size=8192, page_size=1, tp_size=1, pp_size=1, dp_size=1, \
device='cuda', attention_backend='fa3', enable_dp_attention=False, speculative_algorithm='EAGLE3', \
speculative_draft_model_path='d', speculative_num_steps=3, speculative_eagle_topk=1, speculative_num_draft_tokens=4)
[2026-01-01 10:00:20] Load weight begin. avail mem=78.68 GB
[2026-01-01 10:00:40] Load weight end. type=LlamaForCausalLM, dtype=torch.bfloat16, avail mem=62.68 GB, mem usage=16.00 GB.
[2026-01-01 10:00:41] KV Cache is allocated. #tokens: {tokens}, K size: {half:.2f} GB, V size: {half:.2f} GB
[2026-01-01 10:00:41] Memory pool end. avail mem=15.60 GB
[2026-01-01 10:00:42] Capture cuda graph begin. This can take up to several minutes. avail mem=15.50 GB
[2026-01-01 10:00:50] Capture cuda graph end. Time elapsed: 8.00 s. mem usage=1.00 GB. avail mem=14.50 GB.
[2026-01-01 10:00:51] Load weight begin. avail mem=14.50 GB
[2026-01-01 10:00:52] Load weight end. type=LlamaForCausalLMEagle3, dtype=torch.bfloat16, avail mem=13.50 GB, mem usage=1.00 GB.
[2026-01-01 10:00:53] KV Cache is allocated. #tokens: {tokens}, K size: {draft:.2f} GB, V size: {draft:.2f} GB
[2026-01-01 10:00:53] Memory pool end. avail mem=12.00 GB
[2026-01-01 10:00:55] max_total_num_tokens={tokens}, chunked_prefill_size=8192, max_prefill_tokens=16384, \
max_running_requests=48, context_len=8192, available_gpu_mem=11.50 GB
"""


def test_a_draft_s_pool_in_the_log_grows_with_the_tokens_and_its_rows_may_shrink(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    tokens = int((62.68 - 78.68 * 0.2) * 2**30) // PLAIN_CELL
    log = tmp_path / "server.log"
    log.write_text(DRAFTED.format(tokens=tokens, half=tokens * PLAIN_CELL / 2**31, draft=tokens * 2048 / 2**30))
    changes = [{"mem_fraction_static": 0.85}, {"kv_cache_dtype": "fp8_e4m3"}]
    found = what_if(str(log), changes, config=str(tmp_path / "config.json"), release="0.5.9")
    # 5 % of 78.68 GiB to the target, and the draft's 1.47 GiB grow with its 8.4 % of tokens
    assert found[0].notes[-1].startswith("about 7.4")
    # the draft's rows halve as the target's do, or stay and take 1.47 GiB more
    assert "10.0" in found[1].notes[-1]
    assert "11.5" in found[1].notes[-1]


def test_a_log_of_several_starts_says_which_one_it_is_about(tmp_path):
    log = tmp_path / "server.log"
    log.write_text(H100.read_text() + H100.read_text().replace("2025-11-05 09", "2025-11-05 11"))
    (prediction,) = what_if(str(log), [{"mem_fraction_static": 0.9}])
    assert "2 starts" in prediction.notes[0]


def test_a_budget_that_may_be_enough_is_not_called_a_server_that_would_not_start():
    log = str(FIXTURES / "scenarios" / "kimi-k2.6-bf16" / "server.log")
    perhaps, not_at_all = what_if(log, [{"tp_size": 4}, {"mem_fraction_static": 0.1}])
    rest = perhaps.numbers["rest_memory_bytes"]
    assert rest.low < 0 < rest.high
    assert "may not start" in perhaps.missing[0]
    assert "would not start" in not_at_all.missing[0]
    assert not_at_all.numbers["rest_memory_bytes"].high < 0


CPU = FIXTURES / "real" / "0.5.23-qwen3-memfrac005-nocap"


def test_on_memory_that_others_share_the_prediction_starts_from_the_pool_that_was_made():
    """The printed reading and the one that sizing used differ there by more than their digits."""
    same, more = what_if(str(CPU / "server.log"), [{"mem_fraction_static": f} for f in (0.05, 0.06)], config=str(CPU))
    assert same.max_total_num_tokens is not None
    assert more.max_total_num_tokens is not None
    assert same.max_total_num_tokens.low == same.max_total_num_tokens.high == 236_914
    assert more.max_total_num_tokens.low > 236_914
    assert any("about 16.90 GiB would be left after the start, where the log has 16.90 GiB" in note for note in same.notes)


VISION = """\
[2026-09-01 10:00:00] server_args=ServerArgs(model_path='Qwen/Qwen2.5-VL-7B-Instruct', dtype='auto', kv_cache_dtype='auto', \
mem_fraction_static=0.8, max_running_requests=None, max_total_tokens=None, chunked_prefill_size=8192, page_size=1, tp_size=1, \
pp_size=1, dp_size=1, device='cuda', attention_backend='fa3', enable_dp_attention=False)
[2026-09-01 10:00:20] Load weight begin. avail mem=78.68 GB
[2026-09-01 10:00:40] Load weight end. elapsed=20.11 s, type=Qwen2_5_VLForConditionalGeneration, avail mem=62.68 GB, \
mem usage=16.00 GB.
[2026-09-01 10:00:41] Reserving 1.00 GB of the KV budget for post-sizing multimodal allocations \
(feature-transport pools + embedding cache).
[2026-09-01 10:00:55] max_total_num_tokens={tokens}, chunked_prefill_size=8192, max_prefill_tokens=16384, \
max_running_requests=3439, context_len=128000, available_gpu_mem=12.00 GB
"""


def test_what_the_log_keeps_back_for_images_is_kept_back_after_the_change_too(tmp_path):
    def capacity(fraction):
        return int((62.68 - 78.68 * (1 - fraction) - 1.0) * 2**30) // 57_344

    log = tmp_path / "vision.log"
    log.write_text(VISION.format(tokens=capacity(0.8)))
    less, more = what_if(str(log), [{"mem_fraction_static": f} for f in (0.7999, 0.9)], release="0.5.22")
    assert capacity(0.7999) in less.max_total_num_tokens
    assert less.max_total_num_tokens.high < capacity(0.8)
    assert capacity(0.9) in more.max_total_num_tokens
    assert more.max_total_num_tokens.high - more.max_total_num_tokens.low < 30


SHARED_WITH_A_DRAFT = """\
[2026-09-01 10:00:00] server_args=ServerArgs(model_path='meta-llama/Llama-3.1-8B-Instruct', dtype='auto', \
kv_cache_dtype='auto', mem_fraction_static=0.8, max_running_requests=48, max_total_tokens=None, chunked_prefill_size=8192, \
page_size=1, tp_size=1, pp_size=1, dp_size=1, device='cuda', attention_backend='fa3', enable_dp_attention=False, \
speculative_algorithm='EAGLE3', speculative_draft_model_path='some/draft', speculative_num_steps=3, \
speculative_eagle_topk=1, speculative_num_draft_tokens=4)
[2026-09-01 10:00:20] Load weight begin. avail mem=78.00 GB
[2026-09-01 10:00:40] Load weight end. elapsed=20.11 s, type=LlamaForCausalLM, avail mem=62.00 GB, mem usage=16.00 GB.
[2026-09-01 10:00:50] Load weight begin. avail mem=62.00 GB
[2026-09-01 10:00:51] Load weight end. elapsed=1.11 s, type=LlamaForCausalLMEagle3, avail mem=60.00 GB, mem usage=2.00 GB.
[2026-09-01 10:00:55] max_total_num_tokens=352702, chunked_prefill_size=8192, max_prefill_tokens=16384, \
max_running_requests=48, context_len=131072, available_gpu_mem=12.00 GB
"""


def test_a_draft_of_unknown_shape_gives_neither_a_false_alarm_nor_a_prediction(tmp_path):
    """Its layers share the budget from 0.5.14, so that nothing follows from the target's bytes a token alone."""
    log = tmp_path / "drafted.log"
    log.write_text(SHARED_WITH_A_DRAFT)
    (start,) = kvdiag.explain(str(log), release="0.5.20").starts
    (check,) = (check for check in start.checks if check.name == "max_total_num_tokens")
    assert check.verdict == "unknown"
    assert "draft" in check.missing[0]
    (predicted,) = what_if(str(log), [{"mem_fraction_static": 0.85}], release="0.5.20")
    assert predicted.max_total_num_tokens is None
    assert "draft" in predicted.missing[0]


def test_the_draft_s_config_given_closes_what_its_path_leaves_open(tmp_path):
    log, draft = tmp_path / "drafted.log", tmp_path / "config.json"
    log.write_text(SHARED_WITH_A_DRAFT)
    draft.write_text(json.dumps(LLAMA | {"architectures": ["LlamaForCausalLMEagle3"], "num_hidden_layers": 1}))
    (predicted,) = what_if(str(log), [{"mem_fraction_static": 0.85}], release="0.5.20", draft_config=str(draft))
    assert predicted.numbers["bytes_per_token"].low == 131_072 * 33 / 32
    assert predicted.max_total_num_tokens is not None


EAGLE = FIXTURES / "real" / "0.5.9-llama-gqa-eagle-start"


def test_explain_holds_the_draft_s_pool_against_the_config_given(tmp_path):
    draft = tmp_path / "config.json"
    draft.write_text(json.dumps(json.loads((EAGLE / "config.json").read_text()) | {"num_hidden_layers": 1}))
    for given, verdict in ((None, "unknown"), (str(draft), "agree")):
        (start,) = explain([str(EAGLE / "server.log")], config=str(EAGLE), draft_config=given).starts
        of_draft = [check.verdict for check in start.checks if check.role == "draft" and check.name == "kv_pool_bytes"]
        assert of_draft == [verdict]


def shown(log, **change):
    return render_text(what_if(str(log), [change]), width=1000)


def test_each_number_stands_beside_what_it_is_in_the_log():
    told = shown(KIMI["0.88"], mem_fraction_static=0.9)
    assert "188,013 to 188,017 tokens, now 159,277" in told
    assert "(12.30 GiB), now 10.42 GiB" in told
    assert "150 requests\n" in told  # what does not move is said once
    (prediction,) = what_if(str(KIMI["0.88"]), [{"mem_fraction_static": 0.9}])
    assert prediction.now["max_total_num_tokens"].low == prediction.now["max_total_num_tokens"].high == 159_277


def test_less_than_advice_keeps_is_warned_of_unless_the_log_has_no_more():
    assert "kvdiag's advice keeps" in shown(KIMI["0.88"], mem_fraction_static=0.95)
    assert "kvdiag's advice keeps" not in shown(KIMI["0.88"], mem_fraction_static=0.89)
    assert "kvdiag's advice keeps" not in shown(KIMI["0.88"], page_size=64)


def test_a_cap_that_decides_is_said_with_what_the_budget_would_hold(tmp_path):
    log = tmp_path / "server.log"
    text = H100.read_text().replace("max_total_tokens=None", "max_total_tokens=100000")
    log.write_text(text.replace("411994", "100000").replace("25.15 GB", "6.10 GB"))
    (capped,) = what_if(str(log), [{"mem_fraction_static": 0.9}])
    assert capped.max_total_num_tokens.high == 100_000
    (note,) = (note for note in capped.notes if "--max-total-tokens" in note)
    (free,) = what_if(str(log), [{"mem_fraction_static": 0.9, "max_total_tokens": 10**9}])
    assert f"{int(free.max_total_num_tokens.low):,} to {int(free.max_total_num_tokens.high):,} tokens" in note
    assert not any("--max-total-tokens" in note for note in free.notes)


def test_a_release_that_did_not_write_the_log_is_said_to_be_another():
    (asked,) = what_if(str(KIMI["0.88"]), [{"mem_fraction_static": 0.9}], release="0.5.22")
    assert "log is of SGLang 0.5.9" in asked.notes[0]
    (own,) = what_if(str(KIMI["0.88"]), [{"mem_fraction_static": 0.9}], release="0.5.9")
    assert not any("as asked" in note for note in own.notes)


def test_a_server_that_would_not_start_has_nothing_left_and_lacks_nothing():
    told = shown(KIMI["0.88"], mem_fraction_static=0.001)
    assert "  the server would not start: the weights leave no budget" in told
    assert "from --mem-fraction-static 0.770 on" in told
    assert "missing" not in told
    assert "would be left" not in told
    assert "max_total_num_tokens is unknown, because" in shown(H100, quantization="fp8")


CAPPED = FIXTURES / "real" / "0.5.22-gpt-oss-swa-triton"


def test_under_a_cap_nothing_is_said_of_the_rest_where_the_pool_is_unknown():
    (prediction,) = what_if(str(CAPPED / "server.log"), [{"mem_fraction_static": 0.5}])
    assert not any("would be left" in note for note in prediction.notes), prediction.notes


def test_the_text_keeps_to_the_width_that_is_asked_for():
    for width in (80, 100):
        told = render_text(what_if(str(KIMI["0.88"]), [{"mem_fraction_static": 0.95}, {"dtype": "float32"}]), width=width)
        assert max(len(line) for line in told.splitlines() if "_bytes" not in line) <= width
