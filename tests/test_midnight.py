"""Logs whose times have no date: midnights are counted, everywhere by the same rule."""

from __future__ import annotations

from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kvdiag
from kvdiag.checks.activity import activity_of
from kvdiag.lines import read_records
from kvdiag.lines.calendar import Midnights
from kvdiag.pipeline import postmortem
from kvdiag.reading import Line
from kvdiag.starts import assemble

DAY = 86400
DECODE = "Decode batch. #running-req: 20, #token: 9500, token usage: 0.95, gen throughput (token/s): 500.00, #queue-req: 30"
RETRACT = "Decode out of memory happened. #retracted_reqs: 1, #new_token_ratio: 0.5000 -> 0.6000"
START = "max_total_num_tokens=10000, max_prefill_tokens=16384, max_running_requests=2048, context_len=4096"


def line(second: float, message: str, rank: int = 0) -> str:
    hours, minutes, seconds = int(second) % DAY // 3600, int(second) // 60 % 60, int(second) % 60
    return f"[{hours:02}:{minutes:02}:{seconds:02} TP{rank}] {message}"


def log(days: int = 4, step: int = 600) -> tuple[list[str], list[int]]:
    """A server that prints every ten minutes, a retraction a day at 10 o'clock, and two ranks out of order at midnight."""
    lines, retractions = [line(20 * 3600, START)], []
    for second in range(20 * 3600 + 60, days * DAY, step):
        lines.append(line(second, DECODE))
        if second % DAY // step == 10 * 3600 // step:
            retractions.append(second + 5)
            lines.append(line(second + 5, RETRACT))
        if second % DAY >= DAY - step:
            lines += [line((second // DAY + 1) * DAY + 1, DECODE), line((second // DAY + 1) * DAY - 1, DECODE, 1)]
    return lines, retractions


def start_of(lines: list[str]):
    (start,) = assemble(read_records(Line(number, text) for number, text in enumerate(lines, 1)))
    return start


def test_findings_see_retractions_on_the_day_they_happened():
    lines, retractions = log()
    activity = activity_of(start_of(lines))
    assert [int(each.second) for each in activity.retractions] == retractions
    ends = [batch.second for batch in activity.batches]
    assert (min(ends), max(ends)) == (20 * 3600 + 60, 4 * DAY + 1)


def test_a_postmortem_has_each_retraction_in_the_phase_of_its_day(tmp_path):
    lines, retractions = log()
    path = tmp_path / "server.log"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    (review,) = postmortem([str(path)]).reviews
    assert review.retractions == len(retractions) == sum(phase.retractions for phase in review.phases)
    assert review.end.startswith("1970-01-05T00:00:01")
    for phase in review.phases:
        begin, end = ((datetime.fromisoformat(each) - datetime(1970, 1, 1)).total_seconds() for each in (phase.begin, phase.end))
        assert phase.retractions == sum(begin <= second <= end for second in retractions)


def test_a_server_that_was_idle_over_midnight_has_not_run_backwards(tmp_path):
    lines = [line(0, START), *(line(second, DECODE) for second in (20 * 3600, 34 * 3600, 44 * 3600, 58 * 3600))]
    assert [batch.second for batch in activity_of(start_of(lines)).batches] == [20 * 3600, 34 * 3600, 44 * 3600, 58 * 3600]
    path = tmp_path / "server.log"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    assert [str(time)[8:13] for time in kvdiag.timeline(str(path))["time"]] == ["01 20", "02 10", "02 20", "03 10"]


@given(st.lists(st.integers(0, 22 * 3600 * 1000), min_size=1, max_size=60))
def test_days_are_counted_right_where_no_pause_is_longer_than_a_day_less_the_hour_of_summer_time(steps):
    now, midnights = 0, Midnights()
    for step in steps:
        now += step
        assert midnights.day(now % (DAY * 1000)) == now // (DAY * 1000)


@pytest.mark.parametrize("behind", [1, 30, 59])
def test_lines_of_two_ranks_out_of_order_at_midnight_add_no_day(behind):
    midnights = Midnights()
    order = [DAY - 60, DAY + 0, DAY - behind, DAY + 1, DAY - 1, DAY + 2]
    assert [midnights.day(second % DAY * 1000) for second in order] == [0, 1, 0, 1, 0, 1]
