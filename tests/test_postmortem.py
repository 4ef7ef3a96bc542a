"""A postmortem finds the episodes that were planted, with their times, and nothing else."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from bench.make_log import DAY, write_log
from kvdiag.pipeline import postmortem
from kvdiag.reports import postmortem_markdown, postmortem_text
from tests.conftest import FIXTURES, SHARED

CONDITION = {
    "cap-bound": ("saturated", "max_running_requests"),
    "pool-bound": ("saturated", "kv_pool"),
    "storm": ("storm", "kv_pool"),
    "idle": ("idle", "arrivals"),
}
MINUTE = timedelta(minutes=1)


EPISODES = tuple(replace(episode, retract=episode.retract * 20) for episode in DAY)
"""The same day with fewer lines, and so with more retractions a line."""


@pytest.fixture(scope="module")
def day(tmp_path_factory):
    path = tmp_path_factory.mktemp("day") / "server.log"
    planted = write_log(path, size=10**12, ranks=8, episodes=EPISODES, once=True, steps=(20_000, 25_000, 30_000), seed=3)
    (review,) = postmortem([str(path)]).reviews
    return planted, review


def test_each_planted_episode_is_found_within_a_minute_and_nothing_else_is(day):
    planted, review = day
    found = [phase for phase in review.phases if phase.kind != "steady"]
    assert [(phase.kind, phase.binding) for phase in found] == [CONDITION[e.kind] for e in EPISODES if e.kind in CONDITION]
    times = {episode["kind"]: (episode["from"], episode["to"]) for episode in planted}
    for phase in found:
        kind = next(kind for kind, condition in CONDITION.items() if condition == (phase.kind, phase.binding))
        if kind == "idle":
            assert abs(phase.seconds - 3600) <= 60
            continue
        begin, end = (datetime.fromisoformat(text) for text in times[kind])
        assert abs(datetime.fromisoformat(phase.begin) - begin) <= MINUTE
        assert abs(datetime.fromisoformat(phase.end) - end) <= MINUTE


def test_phases_follow_one_another_and_cover_the_log(day):
    _, review = day
    assert review.phases[0].begin == review.begin
    assert review.phases[-1].end == review.end
    for first, second in zip(review.phases, review.phases[1:], strict=False):
        assert first.end == second.begin


@pytest.mark.parametrize(("case", "events"), [("0.4.6-llama-gqa-flood-retract", 10), ("0.5.22-gpt-oss-swa-triton", 0)])
def test_a_real_log_has_its_retractions_counted_once(case, events):
    (review,) = postmortem([str(FIXTURES / "real" / case / "server.log")]).reviews
    assert review.retractions == events
    assert ("storm" in {phase.kind for phase in review.phases}) == bool(events)


def test_the_json_is_that_of_explain_with_timeline_and_phases(kvdiag):
    log = str(FIXTURES / "real" / "0.4.6-llama-gqa-flood-retract" / "server.log")
    explained = json.loads(kvdiag("explain", log, "--format", "json").stdout)
    reviewed = json.loads(kvdiag("postmortem", log, "--format", "json").stdout)
    assert reviewed["schema"] == "kvdiag.postmortem/1"
    (start,) = reviewed["starts"]
    assert start["timeline"]["rows"] == 160
    assert {"from", "to", "kind", "binding", "token_usage", "running", "queued", "retracted"} <= start["phases"][0].keys()
    assert {key: start[key] for key in explained["starts"][0]} == explained["starts"][0]


def test_sparse_lines_are_no_silence():
    (review,) = postmortem([str(FIXTURES / "scenarios" / "kimi-k2.5-f0.88" / "server.log")]).reviews
    assert {phase.kind for phase in review.phases} == {"saturated"}
    assert review.phases[-1].binding == "kv_pool"


def test_lines_without_times_are_one_phase(tmp_path):
    log = tmp_path / "bare.log"
    log.write_text(
        "Decode batch. #running-req: 3, #token: 90, token usage: 0.95, gen throughput (token/s): 9.10, #queue-req: 4\n" * 3
    )
    (review,) = postmortem([str(log)]).reviews
    assert [(phase.kind, phase.binding, phase.begin) for phase in review.phases] == [("saturated", "kv_pool", None)]


def batch(second, rank, running):
    line = f"Decode batch, #running-req: {running}, #token: 90, token usage: 0.40, gen throughput (token/s): 9.10, #queue-req: 0"
    return f"[2025-01-15 10:{second // 60:02}:{second % 60:02} TP{rank}] {line}\n"


def start_up(second, rank):
    stamp = f"[2025-01-15 10:{second // 60:02}:{second % 60:02} TP{rank}]"
    return (
        f"{stamp} Load weight begin. avail mem=78.60 GB\n"
        f"{stamp} Load weight end. elapsed=12.31 s, type=LlamaForCausalLM, avail mem=63.45 GB, mem usage=15.15 GB.\n"
        f"{stamp} Memory pool end. avail mem=9.86 GB\n"
        f"{stamp} max_total_num_tokens=438681, chunked_prefill_size=8192, max_prefill_tokens=16384, "
        "max_running_requests=256, context_len=131072, available_gpu_mem=9.50 GB\n"
    )


def three_starts(rank, empty=()):
    return [
        start_up(300 * n, rank) + "".join(batch(300 * n + 10 + s, rank, n + 1) for s in range(5) if n not in empty)
        for n in range(3)
    ]


def medians(*paths):
    result = postmortem([str(path) for path in paths])
    return [review and (review.rows, review.phases[0].running.p50) for review in result.reviews]


def test_a_start_without_scheduler_lines_takes_none_of_its_neighbours(tmp_path):
    log = tmp_path / "server.log"
    log.write_text("".join(three_starts(0, empty=(1,))))
    assert medians(log) == [(5, 1), None, (5, 3)]


def test_the_lines_of_all_ranks_of_a_start_are_its_own_whatever_file_they_are_in(tmp_path):
    logs = [tmp_path / f"rank{rank}.log" for rank in (0, 1)]
    for rank, log in enumerate(logs):
        log.write_text("".join(three_starts(rank, empty=(1,))))
    assert medians(*logs) == [(10, 1), None, (10, 3)]


def test_servers_whose_lines_alternate_keep_their_own(tmp_path):
    log = tmp_path / "both.log"
    one, other = ("".join(three_starts(0, empty)).splitlines() for empty in ((), (0, 1)))
    other += ["[2025-01-15 10:20:00 TP0] The server is fired up and ready to roll!"] * (len(one) - len(other))
    pairs = zip(one, other, strict=True)
    log.write_text("".join(f"a-1  | {first}\na-2  | {second}\n" for first, second in pairs))
    found = medians(log)
    assert sorted(found, key=str) == sorted([(5, 1), (5, 2), (5, 3), None, None, (5, 3)], key=str)


def test_a_damaged_date_does_not_make_the_log_last_for_ages(tmp_path):
    log = tmp_path / "server.log"
    log.write_text(batch(0, 0, 5) * 3 + batch(9, 0, 5).replace("2025", "9999"))
    (review,) = postmortem([str(log)]).reviews
    assert review.rows == 4


def test_big_and_small_logs_are_reviewed_alike(tmp_path, monkeypatch):
    from kvdiag.lines import sample

    log = tmp_path / "server.log"
    write_log(log, size=400_000, rare=0.02, every_variant=True, seed=4)
    (small,) = postmortem([str(log)]).reviews
    monkeypatch.setattr(sample, "BIG", 0)
    (big,) = postmortem([str(log)]).reviews
    assert small == big


def test_work_just_before_a_storm_is_not_called_idle(tmp_path):
    log = tmp_path / "server.log"
    event = (
        "KV cache pool is full. Retract requests. #retracted_reqs: 1, #new_tokens_gained: 77, #new_token_ratio: 0.5512 -> 0.9200"
    )
    storm = [f"[2025-01-15 10:{5 + n // 6:02}:{n % 6 * 10:02} TP0] {event}\n" + batch(300 + n * 10, 0, 5) for n in range(12)]
    log.write_text(batch(0, 0, 1) + "".join(batch(290 + n, 0, 5) for n in range(10)) + "".join(storm))
    (review,) = postmortem([str(log)]).reviews
    assert [phase.kind for phase in review.phases] == ["idle", "storm"]
    assert review.phases[0].end == "2025-01-15T10:04:50"


@pytest.mark.shared
def test_a_log_of_seconds_is_cut_as_finely_as_it_allows():
    """A storm of twelve seconds is not told to have lasted as long as the log."""
    found = postmortem([str(SHARED / "real-logs" / "0.4.6" / "llama-gqa-flood-retract" / "server.log")]).reviews[0]
    (storm,) = [phase for phase in found.phases if phase.kind == "storm"]
    assert storm.retractions == found.retractions == 10
    assert 12 <= storm.seconds < 20
    assert all(phase.seconds >= 1 for phase in found.phases)


def test_each_line_and_each_retraction_is_of_one_phase(day):
    _, review = day
    assert sum(phase.retractions for phase in review.phases) == review.retractions
    assert sum(phase.retracted for phase in review.phases) == review.retracted
    (idle,) = [phase for phase in review.phases if phase.kind == "idle"]
    assert idle.running.max in (None, 0)


def decode(clock, running, queued, usage, rank=""):
    held = f"#token: {usage * 400_000:.0f}, token usage: {usage:.2f}, cuda graph: True"
    flow = f"gen throughput (token/s): {running * 20}.00, #queue-req: {queued}"
    return f"[2025-11-05 {clock}{rank}] Decode batch, #running-req: {running}, {held}, {flow}\n"


def reviewed(tmp_path, text):
    log = tmp_path / "server.log"
    log.write_text(text)
    (review,) = postmortem([str(log)]).reviews
    return review


def minutes(hour, first, last):
    return [f"{hour:02}:{minute:02}:{second:02}" for minute in range(first, last) for second in range(0, 60, 5)]


def test_a_silence_that_begins_with_a_queue_is_not_idle(tmp_path):
    text = "".join(decode(clock, 120, 50, 0.98) for hour in (9, 11) for clock in minutes(hour, 1, 5))
    phases = reviewed(tmp_path, text).phases
    assert [(phase.kind, phase.binding) for phase in phases] == [
        ("saturated", "kv_pool"),
        ("steady", "unknown"),
        ("saturated", "kv_pool"),
    ]
    assert phases[1].running.max is None


def test_a_full_replica_is_not_averaged_with_an_empty_one(tmp_path):
    def both(clock, busy):
        return "".join(
            decode(clock, *((120, 50, 0.98) if rank == busy else (3, 0, 0.01)), rank=f" DP{rank} TP{rank}") for rank in (0, 1)
        )

    review = reviewed(
        tmp_path, "".join(both(clock, 0) for clock in minutes(9, 1, 9)) + "".join(both(clock, 1) for clock in minutes(9, 9, 17))
    )
    (phase,) = review.phases
    assert (phase.kind, phase.binding) == ("saturated", "kv_pool")
    assert (phase.token_usage.p50, phase.running.p50, phase.queued.p50) == (0.98, 120, 50)
    assert not review.could_hold_more


def test_a_clock_set_back_keeps_the_order_of_the_log_and_is_said(tmp_path):
    text = "".join(decode(clock, 120, 50, 0.98) for clock in minutes(9, 1, 9)) + "".join(
        decode(clock, 10, 0, 0.01) for clock in minutes(8, 9, 17)
    )
    review = reviewed(tmp_path, text)
    assert [phase.kind for phase in review.phases] == ["saturated", "steady"]
    assert review.begin == "2025-11-05T09:01:00"
    assert "set back" in review.note
    assert reviewed(tmp_path, text.replace("08:", "09:")).note == ""


@pytest.mark.parametrize(
    "batch", ["#running-req: 20, #token: 430000, token usage: 1.04", "#running-req: 70, #token: 60000, token usage: 0.15"]
)
def test_lines_that_this_server_cannot_have_printed_count_for_no_limit(tmp_path, batch):
    log = tmp_path / "server.log"
    log.write_text(
        "[2026-01-05 10:00:20 TP0] max_total_num_tokens=411994, chunked_prefill_size=8192, max_prefill_tokens=16384, "
        "max_running_requests=64, context_len=8192, available_gpu_mem=11.65 GB\n"
        + "".join(
            f"[2026-01-05 10:10:{second:02} TP0] Decode batch, {batch}, cuda graph: True, "
            "gen throughput (token/s): 900.00, #queue-req: 9\n"
            for second in range(20)
        )
    )
    result = postmortem([str(log)])
    (start,) = result.diagnosis.starts
    assert start.limits.over_time["shares"] == {"unknown": 1.0}
    assert {phase.binding for phase in result.reviews[0].phases} == {"unknown"}
    assert "KV524" in [finding.code for finding in start.findings]


def test_retractions_before_the_first_batch_line_are_a_storm_at_its_beginning(tmp_path):
    """An excerpt can begin with them: they are neither an internal fault nor a storm at the end of ten quiet minutes."""
    retract = (
        "KV cache pool is full. Retract requests. #retracted_reqs: 1, #new_tokens_gained: 1000, #new_token_ratio: 0.5 -> 0.8"
    )
    decode = "Decode batch, #running-req: 5, #token: 1000, token usage: 0.10, cuda graph: True, gen throughput (token/s): 400.00, #queue-req: 0"  # noqa: E501
    lines = [f"[2026-01-05 10:00:0{second} TP0] {retract}\n" for second in range(4)]
    lines += [f"[2026-01-05 10:{minute:02}:30 TP0] {decode}\n" for minute in range(1, 11)]
    log = tmp_path / "server.log"
    log.write_text("".join(lines), encoding="utf-8")
    (review,) = postmortem([str(log)]).reviews
    assert review.phases[0].kind == "storm"
    assert review.phases[0].retracted == 4
    assert all(phase.kind == "steady" and not phase.retracted for phase in review.phases[1:])


def test_waiting_for_what_the_lines_do_not_tell_is_not_called_saturated(tmp_path):
    lines = [
        f"[2026-01-05 10:{minute:02}:00 TP0] Decode batch, #running-req: 1, #token: 3000, token usage: 0.01, cuda graph: True, "
        "gen throughput (token/s): 50.00, #queue-req: 5"
        for minute in range(20)
    ]
    start = (
        "[2026-01-05 09:59:00 TP0] max_total_num_tokens=400000, chunked_prefill_size=8192, max_prefill_tokens=16384, "
        "max_running_requests=150, context_len=4096, available_gpu_mem=7.43 GB"
    )
    (tmp_path / "log").write_text("\n".join([start, *lines]) + "\n", encoding="utf-8")
    result = postmortem([str(tmp_path / "log")])
    assert {(phase.kind, phase.binding) for phase in result.reviews[0].phases} == {("saturated", "unknown")}
    for text in (postmortem_text.render(result), postmortem_markdown.render(result)):
        assert "waiting" in text
        assert "saturated" not in text


LEFT_OUT = (
    "[2026-02-03 04:05:{second:02d}] Decode batch, #running-req: {running}, #token: 9200, token usage: {usage}, "
    "gen throughput (token/s): 20.00"
)
PREFILL_SERVER = (
    "[2026-02-03 04:05:{second:02d}] Prefill batch, #new-seq: 1, #new-token: 8192, #cached-token: 0, token usage: 0.30, "
    "#running-req: 0, #queue-req: 0, #prealloc-req: 0, #inflight-req: {moving}, input throughput (token/s): 8000.00, "
)


def bound_of(tmp_path, lines):
    """What ``explain`` and the review each say bound, and the review's kind of phase, as the text has it."""
    log = tmp_path / "server.log"
    log.write_text("\n".join(lines) + "\n", encoding="utf-8")
    found = postmortem([str(log)])
    ((bound, _),) = found.diagnosis.starts[0].limits.over_time["shares"].items()
    (phase,) = found.reviews[0].phases
    return bound, phase.binding, postmortem_text.kind(phase)


@pytest.mark.parametrize("usage", ["0.92", "0.40"])
def test_lines_whose_queue_was_left_out_do_not_say_that_nothing_waited(tmp_path, usage):
    lines = [LEFT_OUT.format(second=second, running=6, usage=usage) for second in (1, 9, 17)]
    assert bound_of(tmp_path, lines) == ("unknown", "unknown", "steady")
    untimed = [line.partition("] ")[2] for line in lines]
    assert bound_of(tmp_path, untimed) == ("unknown", "unknown", "steady")


@pytest.mark.parametrize(("moving", "bound"), [(1, "arrivals"), (5, "transfer")])
def test_one_request_on_its_way_beside_the_one_in_work_is_no_shortage_of_transfer(tmp_path, moving, bound):
    lines = [PREFILL_SERVER.format(second=second, moving=moving) for second in (1, 9, 17)]
    assert bound_of(tmp_path, lines)[:2] == (bound, bound)


def test_a_phase_with_a_queue_has_lines_though_the_running_requests_are_overwritten(tmp_path):
    line = (
        "[2026-02-03 04:05:{:02d}] Prefill batch, #new-seq: 1, #new-token: 896, #cached-tounning-req: 47, #queue-req: 71, "
        "#pending-token: 60816, npu graph: False, "
    )
    assert bound_of(tmp_path, [line.format(second) for second in (1, 9, 17)])[2] == "waiting"


def test_the_table_says_what_its_figures_are_medians_of():
    log = str(FIXTURES / "real" / "0.4.6-llama-gqa-flood-retract" / "server.log")
    for report in (postmortem_text, postmortem_markdown):
        told = " ".join(report.render(postmortem([log])).split())
        assert "medians over the lines of the phase; where work waited, over those that were bound by what is named." in told
        assert not re.search(r"work waited for \d+%", told)
