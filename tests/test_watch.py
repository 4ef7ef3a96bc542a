"""Following: no line is lost through rotation and truncation, and what happens is told at once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack, closing
from threading import Timer

import pytest

from kvdiag.errors import InputError
from kvdiag.reading.blocks import Block
from kvdiag.watch.follow import Follower
from kvdiag.watch.live import Server
from kvdiag.watch.loop import Watch
from kvdiag.watch.view import drawn
from tests.conftest import FIXTURES, ROOT
from tests.test_fast_path import make_log

REAL = FIXTURES / "real" / "0.4.6-llama-gqa-flood-retract" / "server.log"
DECODE = (
    "[2025-01-15 10:00:01 TP0] Decode batch. #running-req: {}, #token: 20, token usage: {:.2f}, "
    "gen throughput (token/s): 5.00, #queue-req: {}\n"
)


@pytest.fixture
def follow():
    """Followers that are closed in the end."""
    with ExitStack() as stack:
        yield lambda path: stack.enter_context(closing(Follower(str(path))))


def unheard(*_):
    """Tells nobody."""


def read(follower):
    return b"".join(block.data for block in follower.blocks()).decode().split()


def test_lines_come_whole_and_once(tmp_path, follow):
    path = tmp_path / "log"
    path.write_text("one\ntw")
    follower = follow(path)
    assert read(follower) == ["one"]
    with path.open("a") as file:
        file.write("o\nthree\n")
    assert read(follower) == ["two", "three"]
    assert read(follower) == []


def test_rotation_loses_no_line(tmp_path, follow):
    path = tmp_path / "log"
    follower = None
    written, seen = [], []
    for turn in range(30):
        with path.open("a") as file:
            for number in range(100):
                written.append(f"{turn}-{number}")
                file.write(written[-1] + "\n")
            if turn % 3 == 1:
                file.write(f"last-{turn}")
                written.append(f"last-{turn}")
        follower = follower or follow(path)
        if turn % 4:
            seen += read(follower)
        if turn % 3 == 1:
            path.rename(tmp_path / f"log.{turn}")
            path.write_text("")
            seen += read(follower)
    assert seen + read(follower) == written


@pytest.mark.parametrize("grown", [False, True])
def test_truncation_is_seen_even_if_the_file_has_grown_again(tmp_path, follow, grown):
    path = tmp_path / "log"
    path.write_text("".join(f"old-{n}\n" for n in range(50)))
    follower = follow(path)
    assert len(read(follower)) == 50
    again = [f"new-{n}" for n in range(200 if grown else 3)]
    path.write_text("".join(line + "\n" for line in again))
    assert read(follower) == again


def test_a_file_that_is_away_for_a_moment_is_waited_for(tmp_path, follow):
    path = tmp_path / "log"
    path.write_text("one\n")
    follower = follow(path)
    assert read(follower) == ["one"]
    path.unlink()
    assert read(follower) == []
    path.write_text("two\n")
    assert read(follower) == ["two"]
    with pytest.raises(InputError, match="no such file"):
        Follower(str(tmp_path / "none"))


def test_what_cannot_be_followed_is_refused_with_what_to_do(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match="this is a folder; name the log files"):
        Follower(str(tmp_path))
    with pytest.raises(InputError, match="kvdiag watch -"):
        Follower(str(tmp_path / "pipe"))


def test_another_run_goes_on_where_the_last_one_ended(tmp_path):
    log, state = tmp_path / "log", str(tmp_path / "state")
    log.write_bytes(REAL.read_bytes())
    with Watch([str(log)], state) as watch:
        watch.run(unheard, once=True)
        rows, numbers = watch.servers[0].rows, watch.servers[0].numbers
    assert rows > 10
    with log.open("a") as file:
        file.write(DECODE.format(1, 0.1, 0))
    with Watch([str(log)], state) as watch:
        watch.run(unheard, once=True)
        assert (watch.servers[0].rows, watch.servers[0].numbers) == (1, numbers)
    log.write_bytes(b"[2025-01-15 10:00:01 TP0] other\n" + REAL.read_bytes())
    for kept in ("", "{}", json.dumps({str(log): {"inode": 1, "offset": "x"}}), None):
        if kept is not None:
            (tmp_path / "state").write_text(kept)
        with Watch([str(log)], state) as watch:
            watch.run(unheard, once=True)
            assert watch.servers[0].rows == (rows if kept is not None else 0)


def test_a_log_without_a_line_of_sglang_is_exit_code_3(tmp_path, kvdiag):
    (tmp_path / "log").write_text("hello\n")
    done = kvdiag("watch", "--once", str(tmp_path / "log"))
    assert done.returncode == 3
    assert "no SGLang start-up or scheduler line" in done.stderr


@pytest.mark.parametrize("text", ["[]", "{", '{"a": 1}', '{"architectures": {}}', REAL.read_text(encoding="utf-8"), "\x89PNG"])
def test_a_file_that_watch_did_not_write_is_no_state_and_stays_as_it_is(tmp_path, text):
    log, state = tmp_path / "log", tmp_path / "state"
    log.write_bytes(REAL.read_bytes())
    state.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match="not a state that kvdiag watch wrote; name"):
        Watch([str(log)], str(state))
    assert state.read_text(encoding="utf-8") == text


def test_the_limit_that_binds_is_told_when_it_changes(tmp_path, follow):
    log = tmp_path / "log"
    log.write_text(REAL.read_text(encoding="utf-8"))
    server = Server(str(log))
    told = []
    for running, usage, queued in [(1, 0.2, 0), (3, 0.95, 4), (3, 0.95, 5), (2, 0.5, 6), (1, 0.1, 0)]:
        with log.open("w") as file:
            file.write(DECODE.format(running, usage, queued))
        told += [each.what for block in follow(log).blocks() for each in server.take(block)]
    assert told == ["4 requests wait for kv_pool", "6 requests wait for admission_reserve", "requests no longer wait"]


def test_a_retraction_that_every_rank_prints_is_counted_once(tmp_path, follow):
    log = tmp_path / "log"
    line = "[2025-06-07 10:00:00 TP{}] KV cache pool is full. Retract requests. #retracted_reqs: 1, #new_token_ratio: {} -> 0.9\n"
    log.write_text("")
    server, following = Server(str(log)), follow(log)
    with log.open("a") as file:
        file.write("".join(line.format(rank, ratio) for ratio in ("0.4", "0.5") for rank in range(4)))
    assert sum(1 for block in following.blocks() for _ in server.take(block)) == 8
    assert server.retractions == 2


def test_the_view_shows_text_of_the_log_as_text(tmp_path):
    from rich.console import Console

    log = tmp_path / "[red]x.log"
    log.write_text(REAL.read_text(encoding="utf-8"))
    with Watch([str(log)]) as watch:
        watch.look()
        console = Console(width=120, record=True, file=open(os.devnull, "w"))  # noqa: SIM115 - closed below
        console.print(drawn(watch.servers))
        console.file.close()
        text = console.export_text()
    assert "[red]x.log" in text
    assert "TP0" in text
    assert "retractions" in text


def test_standard_input_ends_with_the_postmortem(kvdiag):
    done = kvdiag("watch", "-", stdin=REAL.read_bytes())
    assert done.returncode == 0
    assert "retraction" in done.stdout
    assert "capacity" in done.stdout
    assert done.stderr == ""


def test_a_fast_log_is_kept_up_with_and_events_are_told(tmp_path):
    source = tmp_path / "source.log"
    make_log.write_log(source, size=1_500_000, seed=2)
    lines = [line for line in source.read_bytes().splitlines(keepends=True) if b"Retract" not in line]
    log = tmp_path / "log"
    log.write_bytes(b"")
    command = [sys.executable, "-m", "kvdiag", "watch", str(log), "--no-live"]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1", "XDG_CACHE_HOME": str(tmp_path / "cache")}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT, env=environment, text=True)
    guard = Timer(120, process.kill)
    guard.start()
    time.sleep(1.5)
    with log.open("ab", buffering=0) as file:
        for at in range(0, len(lines), 2500):
            file.write(b"".join(lines[at : at + 2500]))
            time.sleep(0.05)
        told = time.monotonic()
        file.write(b"[2025-01-15 10:07:41 DP3 TP3] KV cache pool is full. Retract requests. #retracted_reqs: 2, ")
        file.write(b"#new_tokens_gained: 3294, #new_token_ratio: 0.5512 -> 0.9200\n")
    for line in process.stdout:
        if "Retract" in line:
            break
    waited = time.monotonic() - told
    process.send_signal(signal.SIGINT)
    rest = process.stdout.read()
    process.stdout.close()
    assert process.wait(30) == 0
    guard.cancel()
    assert waited < 20.0
    assert f"({len(lines) + 1}" in line or f"line {len(lines) + 1}" in line
    assert rest


def test_sigterm_keeps_how_far_was_read_so_that_the_next_run_tells_nothing_twice(tmp_path):
    log, state = tmp_path / "log", tmp_path / "state"
    log.write_bytes(REAL.read_bytes())
    command = [sys.executable, "-m", "kvdiag", "watch", str(log), "--no-live", "--state", str(state)]
    first = []
    for _ in range(2):
        with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT, text=True) as process:
            first.append(process.stdout.readline())
            process.send_signal(signal.SIGTERM)
            assert "What happened over time" in process.stdout.read()
        assert process.returncode == 0
        with log.open("ab") as file:
            file.write(
                b"[2025-06-15 23:59:58 TP0] Decode out of memory happened. #retracted_reqs: 2, #new_token_ratio: 0.5 -> 0.9\n"
            )
    assert "23:59:58 TP0 retraction" not in first[0]
    assert "23:59:58 TP0 retraction" in first[1]


def test_findings_are_told_as_they_arise_and_once(tmp_path):
    log = tmp_path / "server.log"
    lines = REAL.read_text(encoding="utf-8").splitlines(keepends=True)
    first = next(number for number, line in enumerate(lines) if "Decode out of memory" in line)
    log.write_text("".join(lines[:first]), encoding="utf-8")
    with Watch([str(log)]) as watch:
        before = [happening.what for happening in watch.look(now=True)]
        with log.open("a", encoding="utf-8") as file:
            file.write("".join(lines[first:]))
        after = [happening.what for happening in watch.look(now=True)]
        assert not [what for what in before if what.startswith("KV501")]
        assert len([what for what in after if what.startswith("KV501 warning")]) == 1
        with log.open("a", encoding="utf-8") as file:
            file.write(DECODE.format(3, 0.5, 0))
        assert [happening.what for happening in watch.look(now=True) if happening.what.startswith("KV501")] == []


def test_a_server_that_starts_anew_is_judged_anew(tmp_path):
    log = tmp_path / "server.log"
    text = REAL.read_text(encoding="utf-8")
    log.write_text(text, encoding="utf-8")
    with Watch([str(log)]) as watch:
        assert [each for each in watch.look(now=True) if each.what.startswith("KV501")]
        with log.open("a", encoding="utf-8") as file:
            file.write(text)
        assert [each for each in watch.look(now=True) if each.what.startswith("KV501")]


def test_a_line_that_ends_in_digits_is_told_without_waiting_for_the_next():
    line = b"[2025-01-15 10:00:01 TP0] Decode out of memory happened. #retracted_reqs: 3, #new_token_ratio: 0.5000 -> 0.6000\n"
    capacity = (
        b"[2025-01-15 10:00:00 TP0] max_total_num_tokens=4096, max_prefill_tokens=9, max_running_requests=8, context_len=4096\n"
    )
    server = Server("log")
    assert [each.what for each in server.take(Block(capacity, 0))] == ["capacity: 4,096 tokens"]
    assert [each.line for each in server.take(Block(line, len(capacity)))] == [2]
