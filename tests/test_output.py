"""Results are written whole or not at all, and an interrupted or unread kvdiag leaves nothing behind."""

from __future__ import annotations

import os
import resource
import signal
import stat
import subprocess
import sys
import time

import pytest

from tests.conftest import FIXTURES, ROOT

LOG = str(FIXTURES / "scenarios" / "kimi-k2.5-f0.88" / "server.log")
EXPLAIN = [sys.executable, "-m", "kvdiag", "explain"]


def test_a_closed_reader_is_no_error():
    pipeline = f"'{sys.executable}' -m kvdiag explain {LOG} --format json | head -c 1; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", pipeline], capture_output=True, text=True, cwd=ROOT, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "{", "")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="the system has no /dev/full")
def test_a_full_disk_behind_standard_output_is_said_in_a_sentence():
    with open("/dev/full", "wb") as full:
        done = subprocess.run([*EXPLAIN, LOG], stdout=full, stderr=subprocess.PIPE, text=True, cwd=ROOT, timeout=60)
    assert done.returncode == 2
    assert done.stderr.splitlines() == ["kvdiag: standard output: cannot be written: No space left on device"]


def test_a_file_that_cannot_be_written_whole_keeps_its_old_content(tmp_path):
    target = tmp_path / "report.json"
    target.write_text("old")

    def small_files_only():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))

    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache"), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [*EXPLAIN, LOG, "--format", "json", "-o", str(target)]
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=ROOT, timeout=60, preexec_fn=small_files_only, env=environment
    )
    assert done.returncode == 2
    assert "cannot be written" in done.stderr
    assert target.read_text() == "old"
    assert list(tmp_path.glob("report.json.*")) == []


@pytest.mark.parametrize("ending", ["csv", "json", "parquet"])
def test_a_timeline_that_cannot_be_written_whole_keeps_its_old_content(tmp_path, ending):
    target = tmp_path / f"rows.{ending}"
    target.write_text("old")
    log = str(FIXTURES / "real" / "0.4.6-llama-gqa-flood-retract" / "server.log")

    def small_files_only():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))

    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache"), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "kvdiag", "timeline", log, "-o", str(target)]
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=ROOT, timeout=60, preexec_fn=small_files_only, env=environment
    )
    assert done.returncode == 2
    assert "cannot be written" in done.stderr
    assert target.read_text() == "old"
    assert [path.name for path in tmp_path.glob("rows*")] == [target.name]


def test_an_output_that_is_no_file_is_written_to_and_stays_what_it_was(tmp_path):
    """A temporary file renamed over a device would take its place: /dev/null would be gone for the whole machine."""
    pipe, link, real = tmp_path / "pipe", tmp_path / "link", tmp_path / "real"
    os.mkfifo(pipe)
    link.symlink_to(real)
    real.write_text("old")
    with subprocess.Popen(["cat", str(pipe)], stdout=subprocess.PIPE, text=True) as reader:
        subprocess.run([*EXPLAIN, LOG, "-o", str(pipe)], check=True, cwd=ROOT, timeout=60)
        assert "SGLang" in reader.stdout.read()
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    subprocess.run([*EXPLAIN, LOG, "-o", str(link)], check=True, cwd=ROOT, timeout=60)
    assert link.is_symlink()
    assert "SGLang" in real.read_text()


def test_control_c_while_reading_leaves_no_file_and_no_traceback(tmp_path):
    pipe = tmp_path / "never-ends"
    os.mkfifo(pipe)
    target = tmp_path / "report.txt"
    process = subprocess.Popen([*EXPLAIN, str(pipe), "-o", str(target)], stderr=subprocess.PIPE, text=True, cwd=ROOT)
    with open(pipe, "wb") as writer:
        writer.write(b"[2025-01-15 10:22:41] Memory pool end. avail mem=9.86 GB\n")
        writer.flush()
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=20)
    assert process.returncode == 130
    assert "Traceback" not in error
    assert sorted(path.name for path in tmp_path.iterdir()) == ["never-ends"]


def test_sigterm_while_reading_leaves_no_file_and_no_traceback(tmp_path):
    target = tmp_path / "rows.csv"
    command = [sys.executable, "-m", "kvdiag", "timeline", "-", "-o", str(target)]
    line = b"[2025-01-15 10:00:01 TP0] Decode batch. #running-req: 3, #token: 20, token usage: 0.10, "
    line += b"gen throughput (token/s): 5.00, #queue-req: 0\n"
    with subprocess.Popen(command, bufsize=0, stdin=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT) as process:
        until = time.monotonic() + 30
        while not list(tmp_path.iterdir()) and time.monotonic() < until:
            process.stdin.write(line * 20_000)
        assert list(tmp_path.iterdir())
        process.send_signal(signal.SIGTERM)
        error = process.stderr.read()
        assert process.wait(20) == 143
    assert b"Traceback" not in error
    assert list(tmp_path.iterdir()) == []


def test_a_formula_gets_each_value_behind_its_whole_name():
    """The term "gpu" is no part of "available_gpu_memory", nor "layers" of "full_layers"."""
    plain = _explained("fixtures/scenarios/kimi-k2.5-f0.88/server.log")
    assert "(available_gpu_memory 21.705..21.715 GiB - rest_memory" in plain
    folder = "fixtures/real/0.5.22-gpt-oss-swa-triton"
    hybrid = _explained(f"{folder}/server.log", "--config", f"{folder}/config.json")
    assert "full_bytes x full_layers 2 + swa_full_tokens_ratio 0.8" in hybrid


def _explained(*arguments):
    done = subprocess.run([sys.executable, "-m", "kvdiag", "explain", *arguments], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return " ".join(done.stdout.split())
