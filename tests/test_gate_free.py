"""Free memory that moved: what follows in full from something else is a note, and only what is left over is judged."""

from __future__ import annotations

import re

import pytest

from kvdiag.frozen import replace
from kvdiag.gate import check, observe
from kvdiag.gate.model import Drift, Snapshot, Stated
from kvdiag.gate.numbers import compare_numbers
from kvdiag.gate.verdict import compare
from kvdiag.quantity import GIB, Interval, printed_interval
from tests.conftest import FIXTURES
from tests.gate_logs import LOGS, baseline

LOWER = FIXTURES / "scenarios" / "kimi-k2.5-f0.85" / "server.log"


def readings(drifts: list[Drift]) -> dict[str, Drift]:
    return {d.subject: d for d in drifts if d.code in ("KD105", "KD106", "KD107")}


def drifted(tmp_path, *edits: tuple[str, str]) -> dict[str, Drift]:
    """The drifts of readings in the kimi log with these edits."""
    text = LOGS["kimi"].read_text(encoding="utf-8")
    for find, put in edits:
        text, count = re.subn(find, put, text)
        assert count, find
    (tmp_path / "server.log").write_text(text, encoding="utf-8")
    return readings(check(observe(str(tmp_path / "server.log")), baseline("kimi")).drifts)


_GRAPHS = "\n[2026-03-02 10:05:40 TP0] Capture cuda graph end. Time elapsed: 9.0 s. mem usage={0} GB. avail mem={1} GB."


def _with_graphs(log: str, used: str, left: str) -> str:
    ready = re.search(r"\n.*max_total_num_tokens=", log).start()
    return log[:ready] + _GRAPHS.format(used, left) + log[ready:].replace("gpu_mem=7.43", f"gpu_mem={left}")


@pytest.mark.parametrize("other_way", [False, True])
def test_memory_that_the_pools_took_or_left_is_a_note_that_says_so(other_way):
    both = [baseline("kimi"), observe(str(LOWER)).snapshot]
    before, after = both[::-1] if other_way else both
    found = readings(compare(before, after))
    assert set(found) == {"memory_after_pool", "memory_after_start"}
    assert {drift.level for drift in found.values()} == {"note"}
    assert found["memory_after_pool"].follows == "kv_pool_bytes"
    word = "more" if other_way else "less"
    assert found["memory_after_pool"].reason == f"it follows from the pools, which took 2.82 GiB {word}"


@pytest.mark.parametrize(("printed", "level", "word"), [("13.66", "error", "less"), ("14.26", "warning", "more")])
def test_only_what_the_pools_leave_over_is_judged(printed, level, word):
    """In the log of 0.85 the pools took 2.82 GiB less, so that 13.96 follows: 0.3 are left over, to one side or the other."""
    after = observe(str(LOWER)).snapshot
    value = printed_interval(printed, "GiB")
    after = replace(after, numbers=tuple(replace(n, value=value) if n.name == "memory_after_pool" else n for n in after.numbers))
    drift = readings(compare(baseline("kimi"), after))["memory_after_pool"]
    assert (drift.level, drift.follows) == (level, "")
    assert re.search(rf"which took 2\.82 GiB less, 13\.96 GiB would follow; at least 0\.2\d GiB {word} is free", drift.reason)


def test_graphs_that_took_more_explain_what_is_left_after_the_start(tmp_path):
    log = LOGS["kimi"].read_text(encoding="utf-8")
    texts = {
        name: _with_graphs(log, used, left)
        for name, used, left in (("a", "3.71", "7.43"), ("b", "4.21", "6.93"), ("c", "3.71", "6.93"))
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    first, second, third = (observe(str(tmp_path / name)).snapshot for name in texts)
    found = readings(compare(first, second))
    assert {name: drift.level for name, drift in found.items()} == {
        "graph_memory": "error",
        "memory_after_graphs": "note",
        "memory_after_start": "note",
    }
    assert found["memory_after_graphs"].reason == "it follows from the graphs, which took 0.50 GiB more"
    unexplained = readings(compare(first, third))
    assert unexplained["memory_after_graphs"].level == "error", "the graphs say they took the same"


def test_weights_that_grew_explain_the_readings_after_them(tmp_path):
    moved = drifted(
        tmp_path,
        (r"avail mem=21\.71 GB, mem usage=72\.33", "avail mem=19.71 GB, mem usage=74.33"),
        (r"pool end\. avail mem=11\.14", "pool end. avail mem=9.14"),
        (r"gpu_mem=7\.43", "gpu_mem=5.43"),
    )
    assert {name: drift.level for name, drift in moved.items()} == {
        "available_gpu_memory": "note",
        "memory_after_pool": "note",
        "memory_after_start": "note",
        "weight_memory": "error",
    }
    assert moved["available_gpu_memory"].reason == "it follows from the weights, which took 2.00 GiB more"


def test_what_a_missing_line_hides_is_not_told_as_left_over():
    """Without the lines of the pools in one log their whole size would seem to be the change."""
    before, after = baseline("kimi"), observe(str(LOWER)).snapshot
    silent = replace(after, numbers=tuple(n for n in after.numbers if n.name != "kv_pool_bytes"))
    drift = readings(compare_numbers(before, silent))["memory_after_pool"]
    assert "would follow" not in drift.reason
    assert not drift.follows


def test_the_draft_loaded_after_the_pool_explains_what_is_left_after_the_start():
    def start(draft_weights: int, left: int) -> Snapshot:
        def stated(name: str, role: str | None, gib: float, line: int) -> Stated:
            return Stated(name, role, ("TP0",), Interval.of(int(gib * GIB), unit="bytes"), line)

        numbers = (
            stated("available_gpu_memory", "target", 40, 3),
            stated("kv_pool_bytes", "target", 10, 4),
            stated("memory_after_pool", "target", 30, 5),
            stated("weight_memory", "draft", draft_weights, 6),
            stated("available_gpu_memory", "draft", 30 - draft_weights, 6),
            stated("memory_after_start", None, left, 9),
        )
        return replace(baseline("kimi"), numbers=numbers)

    found = {(d.subject, d.role): d for d in compare_numbers(start(1, 27), start(3, 25))}
    assert found["weight_memory", "draft"].level == "error"
    assert found["available_gpu_memory", "draft"].level == "note"
    assert found["memory_after_start", None].level == "note"
    assert found["memory_after_start", None].reason == "it follows from the draft's weights, which took 2.00 GiB more"


@pytest.mark.parametrize("told", [False, True])
def test_memory_lost_to_what_one_log_alone_states_is_judged_unless_an_argument_tells_of_it(tmp_path, told):
    log = LOGS["kimi"].read_text(encoding="utf-8").replace("gpu_mem=7.43", "gpu_mem=11.14")
    later = _with_graphs(log.replace("gpu_mem=11.14", "gpu_mem=7.43"), "3.71", "7.43")
    if told:
        log = log.replace("mem_fraction_static=0.88", "mem_fraction_static=0.88, disable_cuda_graph=True")
    for name, text in (("a", log), ("b", later)):
        (tmp_path / name).write_text(text, encoding="utf-8")
    drifts = compare(observe(str(tmp_path / "a")).snapshot, observe(str(tmp_path / "b")).snapshot)
    drift = readings(drifts)["memory_after_start"]
    assert drift.level == ("note" if told else "error")
    assert "the graphs, which took 3.71 GiB more" in drift.reason
    assert ("one of the two logs" in drift.reason) is not told
    assert [d.subject for d in drifts if d.level == "error"] == (["disable_cuda_graph"] if told else ["memory_after_start"])


def test_a_rank_that_lost_memory_is_not_excused_by_what_another_rank_took():
    def start(first: str, second: str, left: str) -> Snapshot:
        numbers = tuple(
            Stated(name, role, ranks, printed_interval(value, "GiB"), line)
            for name, role, ranks, value, line in (
                ("memory_before_graphs", "target", ("TP0", "TP1"), "11.14", 5),
                ("graph_memory", "target", ("TP0",), first, 6),
                ("graph_memory", "target", ("TP1",), second, 7),
                ("memory_after_graphs", "target", ("TP0", "TP1"), left, 8),
            )
        )
        return replace(baseline("kimi"), numbers=numbers)

    before = start("1.60", "1.60", "9.54")
    both = readings(compare_numbers(before, start("3.60", "3.60", "7.54")))
    assert both["memory_after_graphs"].level == "note"
    one = readings(compare_numbers(before, start("3.60", "1.60", "7.54")))
    assert one["memory_after_graphs"].level == "error"


@pytest.mark.parametrize(
    ("requests", "subject"), [("4095", ""), ("2048", "max_running_requests"), ("48", "max_running_requests")]
)
def test_request_slots_that_fell_by_more_than_the_capacity_are_no_noise_of_it(tmp_path, requests, subject):
    """The model is not known, so that no check tells of the slots."""
    log = (FIXTURES / "scenarios" / "h100-llama-3-8b" / "server.log").read_text(encoding="utf-8")
    log = log.replace("meta-llama/Meta-Llama-3-8B-Instruct", "/models/x")
    later = log.replace("411994", "411990").replace("max_running_requests=4096", f"max_running_requests={requests}")
    for name, text in (("a", log), ("b", later)):
        (tmp_path / name).write_text(text, encoding="utf-8")
    outcome = check(observe(str(tmp_path / "b")), observe(str(tmp_path / "a")).snapshot)
    assert {d.subject for d in outcome.drifts if d.level == "error"} == ({subject} if subject else set())
    assert outcome.failed is bool(subject)
