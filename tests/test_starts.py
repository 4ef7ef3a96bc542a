"""Records are grouped by the server they are of: restarts, ranks, roles, sub-pools, several inputs."""

from __future__ import annotations

import pytest

from kvdiag.lines import read_records
from kvdiag.reading import Line
from kvdiag.starts import Assembly, assemble


def starts_of(text: str, stream: str = ""):
    return assemble(read_records(Line(number, line, stream) for number, line in enumerate(text.splitlines(), 1)))


def assembled(*inputs: str | tuple[str, str]):
    assembly = Assembly()
    for index, given in enumerate(inputs):
        stream, text = given if isinstance(given, tuple) else ("", given)
        for record in read_records(Line(number, line, stream) for number, line in enumerate(text.splitlines(), 1)):
            assembly.add(record, index)
    return assembly.starts()


def rank_lines(rank: str, minute: str = "01", tokens: int = 1000) -> str:
    tag = f" {rank}" if rank else ""
    at = f"[2026-01-01 10:{minute}"
    return (
        f"{at}:00{tag}] Init torch distributed begin.\n"
        f"{at}:01{tag}] Load weight begin. avail mem=90.00 GB\n"
        f"{at}:09{tag}] Load weight end. type=Qwen3ForCausalLM, dtype=torch.bfloat16, avail mem=50.00 GB, mem usage=40.00 GB.\n"
        f"{at}:10{tag}] KV Cache is allocated. #tokens: {tokens}, K size: 5.00 GB, V size: 5.00 GB\n"
        f"{at}:11{tag}] Memory pool end. avail mem=39.00 GB\n"
    )


def capacity(rank: str, minute: str = "01", tokens: int = 1000) -> str:
    tag = f" {rank}" if rank else ""
    return (
        f"[2026-01-01 10:{minute}:20{tag}] max_total_num_tokens={tokens}, chunked_prefill_size=8192, "
        "max_prefill_tokens=16384, max_running_requests=32, context_len=4096, available_gpu_mem=30.00 GB\n"
    )


def dump(**arguments: object) -> str:
    told = {"model_path": "/models/x", "tp_size": 1, "speculative_algorithm": None, **arguments}
    inside = ", ".join(f"{name}={value!r}" for name, value in told.items())
    return f"[2026-01-01 10:00:00] server_args=ServerArgs({inside})\n"


@pytest.mark.parametrize("head", [dump(), ""], ids=["with-arguments", "without"])
def test_each_start_of_a_restarted_server_keeps_its_own_numbers(head):
    starts = starts_of(
        head + rank_lines("", "01", 1000) + capacity("", "01") + head + rank_lines("", "31", 2000) + capacity("", "31", 2000)
    )
    assert [start.first("max_total_num_tokens").value for start in starts] == [1000, 2000]


def test_weights_loaded_again_into_free_memory_are_another_start():
    first = rank_lines("TP0").splitlines(keepends=True)[1:3]
    starts = starts_of("".join(first) + "".join(first).replace("10:01", "10:20"))
    assert len(starts) == 2


def test_a_start_that_was_killed_and_its_successor_with_other_tags_are_two():
    text = (
        rank_lines("TP0") + rank_lines("TP1") + "[2026-01-01 10:02:00] Received sigquit from a child process. It usually means\n"
    )
    starts = starts_of(text + rank_lines("DP0 TP0", "09"))
    assert [set(start.ranks) for start in starts] == [{"TP0", "TP1"}, {"DP0 TP0"}]


def draft_lines(rank: str = "") -> str:
    tag = f" {rank}" if rank else ""
    at = "[2026-01-01 10:01"
    return (
        f"{at}:12{tag}] Init torch distributed begin.\n"
        f"{at}:12{tag}] Init torch distributed ends. mem usage=0.00 GB\n"
        f"{at}:12{tag}] Load weight begin. avail mem=39.00 GB\n"
        f"{at}:13{tag}] Load weight end. type=Eagle, dtype=torch.bfloat16, avail mem=37.00 GB, mem usage=2.00 GB.\n"
        f"{at}:13{tag}] KV Cache is allocated. #tokens: 1000, K size: 0.50 GB, V size: 0.50 GB\n"
        f"{at}:14{tag}] Memory pool end. avail mem=36.00 GB\n"
    )


def test_the_second_model_of_a_rank_is_the_draft():
    (start,) = starts_of(rank_lines("") + draft_lines() + capacity(""))
    assert [(n.role, n.value // 2**30) for n in start.find("weight_memory")] == [("target", 40), ("draft", 2)]
    assert [(n.role, n.value // 2**30) for n in start.find("kv_pool_bytes")] == [("target", 10), ("draft", 1)]
    assert len(start.find("pool_tokens", role="target")) == 1


def test_two_pools_of_one_size_without_a_line_between_are_a_target_and_a_draft():
    (start,) = starts_of(
        "KV Cache is allocated. #tokens: 500, K size: 5.22 GB, V size: 5.22 GB\n"
        "KV Cache is allocated. #tokens: 500, K size: 0.33 GB, V size: 0.33 GB\n"
    )
    assert [number.role for number in start.find("kv_pool_bytes")] == ["target", "draft"]


def test_a_full_and_a_window_pool_are_one_model():
    (start,) = starts_of(
        "[2026-01-01 10:00:00] Use sliding window memory pool. full_layer_tokens=90000, swa_layer_tokens=72000\n"
        "[2026-01-01 10:00:00] Use sliding window memory pool. full_layer_tokens=1000, swa_layer_tokens=800\n"
        "[2026-01-01 10:00:00] KV Cache is allocated. #tokens: 800, K size: 7.03 GB, V size: 7.03 GB\n"
        "[2026-01-01 10:00:00] KV Cache is allocated. #tokens: 1000, K size: 0.88 GB, V size: 0.88 GB\n"
        "[2026-01-01 10:00:00] SWAKVPool mem usage: 15.82 GB, swa size: 800, full size: 1000\n"
        "[2026-01-01 10:00:00] Memory pool end. avail mem=4.62 GB\n"
    )
    (pool,) = start.find("kv_pool_bytes")
    assert pool.role == "target"
    assert 15.82 * 2**30 in pool.interval
    assert [n.value for n in start.find("full_max_total_num_tokens")] == [1000]
    assert [n.value for n in start.find("swa_max_total_num_tokens")] == [800]
    assert [n.value for n in start.find("max_total_num_tokens")] == [1000]


def test_one_of_two_pools_is_not_taken_for_the_whole():
    (start,) = starts_of(
        "[2026-01-01 10:00:00 TP0] Use sliding window memory pool. full_layer_tokens=1000, swa_layer_tokens=800\n"
        "[2026-01-01 10:00:00 TP1] KV Cache is allocated. #tokens: 800, K size: 7.03 GB, V size: 7.03 GB\n"
    )
    assert start.find("kv_pool_bytes") == []


def test_without_a_scheduler_line_each_rank_states_its_own_capacity():
    (start,) = starts_of(rank_lines("TP0", tokens=1000) + rank_lines("TP1", tokens=1001))
    assert [(n.rank, n.value) for n in start.find("max_total_num_tokens")] == [("TP0", 1000), ("TP1", 1001)]


def test_servers_whose_pools_lie_a_minute_apart_are_not_one():
    text = "".join(
        f"[2026-01-01 10:0{minute}:00] KV Cache is allocated. #tokens: {tokens}, K size: {size} GB, V size: {size} GB\n"
        for minute, tokens, size in ((0, 97503, "6.70"), (1, 53149, "3.65"), (2, 20961, "1.44"))
    )
    assert [start.first("max_total_num_tokens").value for start in starts_of(text)] == [97503, 53149, 20961]


def test_what_all_ranks_print_of_one_event_is_counted_once():
    line = "KV cache pool is full. Retract requests. #retracted_reqs: 1, #new_token_ratio: 0.7000 -> 0.8000\n"
    text = "".join(f"[2026-01-01 10:00:0{second} TP{rank}] {line}" for second in (1, 2) for rank in (2, 0, 1, 3))
    (start,) = starts_of(text)
    assert [str(event.record.rank) for event in start.events_of("retraction")] == ["TP2", "TP2"]
    replicas = "".join(f"[2026-01-01 10:00:01 DP{rank // 2} TP{rank}] {line}" for rank in range(4))
    (start,) = starts_of(replicas)
    assert len(start.events_of("retraction")) == 2


def test_a_file_for_each_rank_is_one_start():
    starts = assembled(dump(tp_size=2) + rank_lines("TP0") + capacity("TP0"), rank_lines("TP1"))
    assert [start.ranks for start in starts] == [["TP0", "TP1"]]


def test_nodes_of_one_server_are_one_start_and_replicas_are_not():
    node = [dump(tp_size=4, nnodes=2, node_rank=rank) for rank in (0, 1)]
    starts = assembled(
        node[0] + rank_lines("TP0") + rank_lines("TP1") + capacity("TP0"), node[1] + rank_lines("TP2") + rank_lines("TP3")
    )
    assert [len(start.find("weight_memory")) for start in starts] == [4]
    replicas = [dump() + rank_lines("") + capacity(""), dump() + rank_lines("", tokens=900) + capacity("", tokens=900)]
    assert [start.first("max_total_num_tokens").value for start in assembled(*replicas)] == [1000, 900]


def test_a_rotated_log_goes_on_with_the_start_of_the_file_before_it():
    batch = (
        "[2026-01-01 11:{:02}:00 TP0] Decode batch, #running-req: 1, #token: 95, token usage: 0.10, cuda graph: True, "
        "gen throughput (token/s): 0.81, #queue-req: 0\n"
    )
    older = dump() + rank_lines("TP0") + capacity("TP0") + batch.format(1)
    (start,) = assembled(batch.format(9), older)
    assert len(start.batches) == 2
    assert start.server_args["tp_size"] == 1


def test_streams_of_one_input_are_servers_of_their_own():
    assembly = Assembly()
    text = rank_lines("") + capacity("")
    for number, line in enumerate(text.splitlines(), 1):
        for stream, tokens in (("prefill-0", 1000), ("decode-0", 777)):
            for record in read_records([Line(number, line.replace("1000", str(tokens)), stream)]):
                assembly.add(record)
    starts = assembly.starts()
    assert [(start.stream, start.first("max_total_num_tokens").value) for start in starts] == [
        ("prefill-0", 1000),
        ("decode-0", 777),
    ]


def test_two_servers_under_the_same_tags_are_told_to_be_uncertain():
    first, second = dump(port=30000, disaggregation_mode="prefill"), dump(port=30001, disaggregation_mode="decode")
    batch = (
        "Decode batch, #running-req: 1, #token: 95, token usage: 0.10, cuda graph: True, "
        "gen throughput (token/s): 0.81, #queue-req: 0"
    )
    starts = starts_of(first + second + rank_lines("") + rank_lines("", "02") + f"[2026-01-01 10:05:00] {batch}\n")
    assert [bool(start.notes) for start in starts] == [True, True]
    assert [len(start.batches) for start in starts] == [0, 1]
    assert [start.find("weight_memory") for start in starts] == [[], []]


@pytest.mark.parametrize("port", [30000, 30001])
def test_a_server_started_after_another_was_up_has_all_lines_that_follow(port):
    text = dump(port=30000) + rank_lines("TP0", "01", 1000) + capacity("TP0", "01")
    starts = starts_of(text + dump(port=port, tp_size=2) + rank_lines("TP0", "31", 2000) + capacity("TP0", "31", 2000))
    assert [[number.value for number in start.find("max_total_num_tokens")] for start in starts] == [[1000], [2000]]
    assert [[number.role for number in start.find("kv_pool_bytes")] for start in starts] == [["target"], ["target"]]
    assert [start.notes for start in starts] == [[], []]


@pytest.mark.parametrize("port", [30000, 30001])
def test_of_two_servers_that_load_at_the_same_time_no_number_is_guessed(port):
    first = (rank_lines("TP0", "01", 1000) + capacity("TP0", "01")).splitlines(keepends=True)
    second = (rank_lines("TP0", "01", 2000) + capacity("TP0", "01", 2000)).splitlines(keepends=True)
    mixed = "".join(line for pair in zip(first, second, strict=True) for line in pair)
    starts = starts_of(dump(port=30000) + dump(port=port, tp_size=2) + mixed)
    assert len(starts) == 2
    assert all(start.notes for start in starts)
    assert not any(start.find(name) for start in starts for name in ("max_total_num_tokens", "kv_pool_bytes", "weight_memory"))


def test_scheduler_lines_that_either_of_two_servers_can_print_are_nobody_s():
    batch = (
        "Decode batch, #running-req: 1, #token: 500, token usage: 0.50, cuda graph: True, "
        "gen throughput (token/s): 0.81, #queue-req: 0"
    )
    first, second = dump(port=30000) + rank_lines("", "01") + capacity("", "01"), rank_lines("", "05") + capacity("", "05")
    early, late = f"[2026-01-01 10:04:00] {batch}\n", f"[2026-01-01 10:08:00] {batch}\n"
    restarted = starts_of(first + dump(port=30001) + second + late)
    assert [(len(start.batches), bool(start.notes)) for start in restarted] == [(0, False), (1, False)]
    beside = starts_of(first + dump(port=30001) + early + second + late)
    assert [(len(start.batches), bool(start.notes)) for start in beside] == [(1, True), (0, True)]


def test_the_arguments_in_force_are_numbers_of_the_start():
    (start,) = starts_of(dump(mem_fraction_static=0.85, page_size=64) + rank_lines(""))
    assert (start.first("mem_fraction_static").value, start.first("page_size").value) == (0.85, 64)


def test_a_variant_of_an_element_type_keeps_its_name():
    (start,) = starts_of("[2026-01-01 10:00:00] Using KV cache dtype: torch.float8_e4m3fnuz\n" + rank_lines(""))
    assert start.find("kv_cache_dtype")[0].value == "fp8_e4m3fnuz"
