"""Plans in users agree with what the server takes, shares and splits; waiting is laid on a limit only where it can bind."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvdiag.checks.activity import activity_of
from kvdiag.checks.binding import MOST_RESERVED, Bounds
from kvdiag.checks.diagnose import diagnose
from kvdiag.checks.memory import why_no_ledger
from kvdiag.checks.planning import LeverPlan
from kvdiag.checks.samples import findings_in
from kvdiag.checks.workload import (
    Workload,
    estimate,
    in_force,
    longest_request,
    per_replica,
    plan,
    reserve_ratios,
    without_sharing,
)
from kvdiag.cli.main import main
from kvdiag.lines import read_records
from kvdiag.outside.gpu import read_gpu
from kvdiag.pipeline import explain, what_if
from kvdiag.reading import Line
from kvdiag.releases import parse_release
from kvdiag.reports.text_report import render
from kvdiag.reports.workload_text import lever_sentence, sentences, users
from kvdiag.starts import assemble
from tests.conftest import FIXTURES
from tests.test_advice import ARGUMENTS, CAPACITY, DECODE, MEMORY

SIZES = st.integers(1, 20000)


@given(SIZES, SIZES, st.integers(100, 500_000), st.sampled_from([2048, 8192, 131_072]))
def test_what_the_server_refuses_is_not_planned_and_longer_answers_are_cut(prompt, output, tokens, context):
    longest = longest_request(tokens, context)
    found = plan(Workload(prompt, output, 64), tokens, longest=longest)
    if prompt > longest:
        assert (found.holds, found.running, found.waits, found.answer) == (0, 0, None, 0)
        assert "refuses" in sentences(Workload(prompt, output, 64), found)
    else:
        assert 0 < found.answer <= output
        assert prompt + found.answer <= min(tokens, context) - 2
        assert found.holds == tokens // (prompt + found.answer)


def test_a_prefix_is_shared_only_where_the_prefix_cache_is_on():
    shared = Workload(2000, 500, 64, 1800)
    alone = without_sharing(shared, is_off=True)
    assert plan(alone, 411_994) == plan(Workload(2000, 500, 64), 411_994)
    assert "1,800 common tokens" in sentences(alone, plan(alone, 411_994))
    assert without_sharing(shared, is_off=False) == shared


def test_a_share_of_a_replica_is_said_to_be_one():
    share = per_replica(Workload(2000, 500, 5001), 2)
    assert share.concurrency == 2501
    assert "one of 2 data-parallel replicas" in sentences(share, plan(share, 411_994))


def waiting(running, held, queued, *, tokens=400_000, cap=4096, context=8192):
    head = [ARGUMENTS.format(tokens=tokens).replace(f"max_total_tokens={tokens}, ", ""), MEMORY]
    line = DECODE.format(second=1, running=running, held=held, usage=held / tokens, queued=queued)
    return "\n".join([*head, CAPACITY.format(tokens=tokens, cap=cap, context=context), *[line] * 20])


@given(st.integers(1, 200), st.integers(1, 300_000))
def test_the_reserve_is_named_only_where_it_may_be_what_lacks(running, held):
    bounds = Bounds(None, 400_000, 8192)
    assert bounds.reserve_can_bind(held, running) == (held + running * MOST_RESERVED + 8192 >= 400_000)
    assert bounds.reserve_can_bind(None, running)
    assert Bounds().reserve_can_bind(held, running)


def test_an_empty_pool_is_no_conservative_admission():
    codes = {finding.code for finding in findings_in(waiting(30, 60_000, 50))}
    assert "KV504" not in codes
    assert "KV504" in {finding.code for finding in findings_in(waiting(70, 200_000, 50))}


def test_as_many_as_the_cap_allows_is_no_lack_of_requests():
    assert "KV517" not in {finding.code for finding in findings_in(waiting(64, 60_000, 0, cap=64))}
    assert "KV517" in {finding.code for finding in findings_in(waiting(63, 60_000, 0, cap=64))}


@pytest.mark.parametrize(
    ("running", "held", "queued", "cap"), [(64, 60_000, 50, 64), (30, 60_000, 0, 4096), (30, 60_000, 50, 4096)]
)
def test_more_tokens_are_not_advised_where_the_load_did_not_want_them(running, held, queued, cap):
    (headroom,) = [finding for finding in findings_in(waiting(running, held, queued, cap=cap)) if finding.code == "KV306"]
    assert headroom.gain is None
    assert "--mem-fraction-static" not in headroom.advice


@pytest.mark.parametrize(
    ("processes", "others"),
    [
        ([(0, "sglang::scheduler", 60_000), (3, "VLLM::EngineCore", 70_000)], None),
        ([(0, "sglang::scheduler", 10_000), (0, "python3 train.py", 70_000)], 70_000),
        ([(0, "python3", 60_000), (0, "Xorg", 2_000)], 2_000),
        ([(0, "VLLM::EngineCore", 70_000)], 70_000),
    ],
)
def test_other_processes_count_on_the_cards_the_server_uses(processes, others, tmp_path):
    file = tmp_path / "smi.txt"
    rows = [f"|  {card}   N/A  N/A   12345      C   {name}    {size}MiB |" for card, name, size in processes]
    file.write_text(
        "\n".join(["| N/A   35C    P0   115W /  700W |   68421MiB /  81559MiB |     80%      Default |", *rows]) + "\n"
    )
    found = {stated.name: stated.value for stated in read_gpu(str(file))}
    assert (found["gpu_others"].low // 2**20 if "gpu_others" in found else None) == others


def prefill(new, queued, *, running=40):
    fields = f"#new-seq: 1, #new-token: {new}, #cached-token: 0, token usage: 0.40, #running-req: {running}, #queue-req: {queued}"
    return f"[2026-01-05 10:10:01 TP0] Prefill batch, {fields}, cuda graph: False, input throughput (token/s): 812.00"


def test_prefill_is_what_work_waits_for_where_its_batches_are_full():
    busy = waiting(70, 200_000, 50) + "\n" + "\n".join([prefill(8192, 30)] * 20)
    codes = {finding.code for finding in findings_in(busy)}
    assert "KV511" in codes
    assert not codes & {"KV504", "KV523"}
    assert all(finding.gain is None for finding in findings_in(busy))


def test_chunks_of_many_prompts_are_not_called_one_and_tell_no_length():
    activity = activity_of(assemble_text(waiting(10, 100_000, 0) + "\n" + "\n".join([prefill(8192, 30)] * 40)))
    assert estimate(activity, 8192) is None
    assert estimate(activity, 16384) is not None
    text = waiting(40, 60_000, 3) + "\n" + "\n".join([prefill(8192, 30)] * 40)
    assert "KV512" not in {finding.code for finding in findings_in(text)}


def assemble_text(text):
    (start,) = assemble(read_records([Line(number, line) for number, line in enumerate(text.split("\n"), 1)]))
    return start


def stages(free_of_each):
    arguments = "model_path='/models/x', tp_size=1, pp_size=3, mem_fraction_static=0.8, device='cuda'"
    lines = [f"[2026-01-05 10:00:00] server_args=ServerArgs({arguments})"]
    for stage, free in enumerate(free_of_each):
        lines += [
            f"[2026-01-05 10:00:09 PP{stage}] Load weight begin. avail mem=78.00 GB",
            f"[2026-01-05 10:00:19 PP{stage}] Load weight end. type=LlamaForCausalLM, avail mem=73.00 GB, mem usage=5.00 GB.",
            f"[2026-01-05 10:00:19 PP{stage}] KV Cache is allocated. #tokens: 1420925, K size: 28.00 GB, V size: 28.00 GB",
            f"[2026-01-05 10:00:19 PP{stage}] Memory pool end. avail mem={free:.2f} GB",
        ]
    capacity = CAPACITY.format(tokens=1420925, cap=4096, context=8192).replace(" TP0]", " PP0]")
    return "\n".join([*lines, capacity.replace("40.81", f"{free_of_each[0]:.2f}")])


def test_stages_of_a_pipeline_hold_other_layers_and_are_not_compared():
    found = {finding.code: finding for finding in findings_in(stages([17.07, 11.65, 11.65]))}
    assert not set(found) & {"KV601", "KV304", "KV204"}
    assert all(finding.gain is None for finding in found.values())


REAL = FIXTURES / "real" / "0.4.6-llama-gqa-flood-retract" / "server.log"
H100 = FIXTURES / "scenarios" / "h100-llama-3-8b" / "server.log"


def without_retractions(text):
    return "\n".join(line for line in text.split("\n") if "#retracted_reqs" not in line)


def planned_by_whatif(log, workload, **change):
    (prediction,) = what_if(str(log), [change], workload=workload)
    assert prediction.workload is not None, prediction.missing
    return prediction


@pytest.mark.parametrize("value", [0.7, 1.3])
def test_whatif_plans_the_conservativeness_that_explain_compares(value):
    """Whoever is advised to raise it can ask what that brings, and gets the figures of the advice."""
    workload = Workload(2000, 500, 300)
    (start,) = explain([str(H100)], workload=workload).starts
    (lever,) = (lever for lever in start.workload.levers if lever.change == {"schedule_conservativeness": value})
    prediction = planned_by_whatif(H100, workload, schedule_conservativeness=value)
    assert prediction.workload[1:] == (lever.least, lever.most)


def test_admission_moves_no_memory_so_that_a_log_without_a_config_tells_it():
    prediction = planned_by_whatif(REAL, Workload(200, 500, 200), schedule_conservativeness=0.5)
    assert prediction.max_total_num_tokens.low == prediction.max_total_num_tokens.high == 1024
    assert prediction.workload[1].admitted_at_opening == 1
    (alone,) = what_if(str(REAL), [{"schedule_conservativeness": 0.5}])
    assert "--workload" in alone.notes[0]


def test_dp_attention_takes_a_part_of_the_conservativeness_given(tmp_path):
    """A dump has 0.3 of what was asked for; another value asked for is cut alike."""
    assert in_force(1.0, dp_attention=True) == 0.3
    log = tmp_path / "server.log"
    text = H100.read_text()
    log.write_text(
        text.replace("tp_size=1,", "tp_size=2,")
        .replace(" dp_size=1,", " dp_size=2,")
        .replace("attention=False", "attention=True")
    )
    workload = Workload(2000, 500, 600)
    assert (
        planned_by_whatif(log, workload, schedule_conservativeness=1.0).workload[1].admitted_at_opening
        == planned_by_whatif(H100, Workload(2000, 500, 300), schedule_conservativeness=0.3).workload[1].admitted_at_opening
    )


def test_a_replica_s_plan_is_said_to_be_one_whether_or_not_it_was_asked_for(tmp_path):
    log = tmp_path / "server.log"
    log.write_text(without_retractions(REAL.read_text()).replace("dp_size=1", "dp_size=2"))
    told = " ".join(render(explain([str(log)])).split())
    assert "not given; for one of 2 data-parallel replicas)" in told
    assert "Pool: 1,024 tokens on each of 2 data-parallel replicas." in told
    assert "Full-length requests at once on each: none, the pool holds 25 % of one." in told
    asked = " ".join(render(explain([str(log)], workload=Workload(100, 50, 200))).split())
    assert "Of the 100 that come to this replica at once" in asked


def test_no_more_full_length_requests_than_the_cap_lets_run():
    told = " ".join(render(explain([str(FIXTURES / "real" / "0.5.9-llama-gqa-eagle-start" / "server.log")])).split())
    assert "Full-length requests at once: 8, by max_running_requests (the pool holds 420)." in told


def test_a_lever_is_told_by_what_it_changes_only():
    now = plan(Workload(2000, 500, 300), 411_994, ratios=reserve_ratios([parse_release("0.5.9")], 1.0))
    other = plan(Workload(2000, 500, 300), 411_994, ratios=reserve_ratios([parse_release("0.5.9")], 0.7))
    said = lever_sentence(LeverPlan({"schedule_conservativeness": 0.7}, other, other), now)
    assert "run at the opening reserve instead of" in said
    assert "held at full length" not in said
    assert lever_sentence(LeverPlan({"page_size": 2}, now, now), now) == "--page-size 2: nothing changes."


def test_retracted_requests_that_come_back_as_prompts_are_no_conversations():
    (start,) = explain([str(REAL)]).starts
    assert start.workload is None
    assert "retracted requests come back as prompts" in " ".join(render(explain([str(REAL)])).split())
    (asked,) = explain([str(REAL)], workload=Workload(64, 160, 24)).starts
    assert asked.workload is not None
    assert not asked.unplanned


RETRACTED = (
    "[2026-01-05 10:20:01 TP0] KV cache pool is full. Retract requests. #retracted_reqs: 1, #new_token_ratio: 0.0280 -> 1.0000"
)


def test_a_log_with_many_requests_before_its_first_retraction_is_estimated_from_those():
    head = waiting(4, 2_000, 0) + "\n" + "\n".join([prefill(400, 0, running=3)] * 40)
    tail = "\n".join([RETRACTED, *[prefill(4_000, 9, running=3).replace("10:10", "10:30")] * 40])
    before, both = (estimate(activity_of(assemble_text(text)), 8192) for text in (head, f"{head}\n{tail}"))
    assert before is not None
    assert both == before


def test_an_estimated_mean_of_cached_tokens_is_not_called_shared_by_all():
    told = sentences(Workload(80, 47, None, 51, "12 sequences"), plan(Workload(80, 47, None, 51), 361_059))
    assert "51 of them cached on average" in told
    assert "51 of them shared by all" in sentences(Workload(80, 47, None, 51), plan(Workload(80, 47, None, 51), 361_059))


@pytest.mark.parametrize("workload", [None, Workload(400, 600, 300)])
def test_admission_that_the_log_disproves_is_not_stated(workload):
    """Conversations of 400 and 600 tokens: the rule lets many more than 40 run in 100,000 tokens, the log never does."""
    text = waiting(40, 28_000, 20, tokens=100_000) + "\n" + "\n".join([prefill(400, 0, running=3)] * 40)
    now = diagnosed(text, workload)
    assert now.plan.seen == 40
    assert now.plan.admitted_at_opening is None
    assert now.plan.retracts_after is None
    assert now.plan.waits is None
    told = users(now)
    assert "at most 40 ran while others waited" in told[0]
    assert not any("scheduler lets" in sentence or "etraction" in sentence or "reserve" in sentence for sentence in told)


def test_admission_that_the_log_bears_out_is_stated():
    text = waiting(40, 28_000, 0, tokens=100_000) + "\n" + "\n".join([prefill(400, 0, running=3)] * 40)
    assert diagnosed(text, None).plan.admitted_at_opening > 40


def diagnosed(text, workload):
    found = diagnose(assemble_text(text), workload=workload).workload
    assert found is not None
    return found


def test_what_loading_gave_back_is_told_with_readings_that_do_not_agree():
    text = "\n".join(
        [
            ARGUMENTS.format(tokens=1000).replace("{", "{{").replace("}", "}}"),
            "[2026-01-05 10:00:09 TP0] Load weight begin. avail mem=16.93 GB",
            "[2026-01-05 10:00:19 TP0] Load weight end. type=X, avail mem={after} GB, mem usage=-0.16 GB.",
        ]
    )
    apart, alike = (why_no_ledger(diagnose(assemble_text(text.format(after=a))).facts.inputs) for a in ("17.04", "17.09"))
    assert "grew by 0.16 GiB" in apart
    assert "grew by 0.11 GiB, which does not agree" in apart
    assert "does not agree" not in alike


def test_size_says_that_the_conservativeness_shows_only_with_a_workload(capfd):
    given = ["size", "--model", "meta-llama/Llama-3.1-70B-Instruct", "--gpu", "H100", "--tp", "4", "--total", "78.5"]
    given += ["--avail", "45.6", "--release", "0.5.22"]
    for more, said in (([], False), (["--schedule-conservativeness", "0.3"], True)):
        with pytest.raises(SystemExit):
            main([*given, *more])
        assert ("--schedule-conservativeness moves no memory" in capfd.readouterr().out) == said
