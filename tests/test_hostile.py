"""Nothing a user hands in hurts: a result or a clear error, in bounded memory and time, and nothing active in a report."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import zstandard

from kvdiag import pipeline
from kvdiag.errors import ConfigError, InputError, NotSglangError
from kvdiag.lines import read_records
from kvdiag.models.config import read_config
from kvdiag.models.geometry import geometry_of
from kvdiag.reading import Input, Line, read_lines
from kvdiag.reading.limits import Bounded
from kvdiag.starts import assemble
from tests.conftest import FIXTURES, ROOT
from tests.fuzz import targets

LOG = FIXTURES / "scenarios" / "kimi-k2.5-f0.88" / "server.log"
CONFIG = next(FIXTURES.glob("real/*/config.json"))
PACK = {"gz": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress, "zst": zstandard.ZstdCompressor().compress}
SERVER_START = (
    b"[2025-01-15 10:22:41] server_args=ServerArgs(model_path='m', tp_size=1, mem_fraction_static=0.8)\n"
    b"[2025-01-15 10:22:41] Load weight begin. avail mem=79.86 GB\n"
    b"[2025-01-15 10:22:49] The server is fired up and ready to roll!\n"
)
MIB_AT_MOST = 400
SECONDS_AT_MOST = 20
ACTIVE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\u200e\u200f\ud800-\udfff]")
EVIL = "\x1b]0;owned\x07\x1b]8;;http://x\x1b\\\x9b31m\u202e<script>alert(1)</script>|`[a](javascript:x)\x00\ud800"


def run(*arguments, stdin=None):
    """(exit code, output, error, seconds, MiB) of kvdiag in a process of its own that may take 3 GiB of addresses.

    The peak is the process's own: what getrusage says after exec holds the parent's, which is pytest's.
    """
    code = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30))\n"
        "from kvdiag.cli.main import main\n"
        "try: sys.exit(main())\n"
        "finally:\n"
        "    held = next(line for line in open('/proc/self/status') if line.startswith('VmHWM'))\n"
        "    print('PEAK', int(held.split()[1]) >> 10, file=sys.stderr)"
    )
    begun = time.monotonic()
    command = [sys.executable, "-c", code, *map(str, arguments)]
    done = subprocess.run(command, stdin=stdin, capture_output=True, timeout=SECONDS_AT_MOST, cwd=ROOT)
    error, _, peak = done.stderr.decode("utf-8", "replace").rpartition("PEAK")
    assert "Traceback" not in error
    assert "internal fault" not in error, error
    return done.returncode, done.stdout.decode("utf-8"), error, time.monotonic() - begun, int(peak)


def repeated(path, piece, times):
    with open(path, "wb") as file:
        for _ in range(times):
            file.write(piece)
    return path


def hostile_files(folder):
    log = LOG.read_bytes()
    yield "one line of 200 MB", repeated(folder / "long", b"[2025-01-15 10:22:41] x" + b"a" * (1 << 20), 200)
    bad = {
        "NUL bytes": log[:4000] + b"\0" * 1_000_000 + log,
        "invalid and overlong UTF-8": log.replace(b"memory", b"\xc0\xaf\xff\xed\xa0\x80"),
        "UTF-16": log.decode().encode("utf-16"),
        "escapes and scripts": log.replace(b"avail", EVIL.encode("utf-8", "surrogatepass") + b" avail"),
        "numbers beyond 64 bits": re.sub(rb"\d+", b"9" * 400, log),
        "numbers beyond what int reads": re.sub(rb"=\d+", b"=" + b"9" * 5000, log),
        "NaN and infinity": re.sub(rb"=\d+\.\d+", b"=nan", re.sub(rb": \d+\.\d+", b": inf", log)),
        "negative memory": re.sub(rb"=(\d+\.\d+)", rb"=-\1", log),
        "1,000 starts": SERVER_START * 1000,
        "100,000 starts": SERVER_START * 100_000,
        "20,000 readings of one start": b"[2025-01-15 10:22:41] Load weight begin. avail mem=9.86 GB\n" * 20_000,
    }
    for name, data in bad.items():
        file = folder / re.sub(r"\W", "-", name)
        file.write_bytes(data)
        yield name, file


def test_hostile_logs_give_a_result_or_a_sentence_in_bounded_memory_and_time(tmp_path):
    told = []
    for name, path in hostile_files(tmp_path):
        code, output, error, seconds, mib = run("explain", path)
        told.append(f"{name}: exit {code}, {seconds:.1f} s, {mib} MiB")
        assert code in (0, 2, 3), (name, error)
        assert mib < MIB_AT_MOST, (name, mib)
        assert not ACTIVE.search(output + error), name
    print("\n".join(told))


@pytest.mark.parametrize("format_", ["text", "md", "json", "html"])
def test_nothing_in_a_log_is_active_in_a_report(tmp_path, format_):
    path = tmp_path / "log"
    text = LOG.read_bytes()
    evil = EVIL.encode("utf-8", "surrogatepass")
    path.write_bytes(text.replace(b"model_path='", b"model_path='" + evil).replace(b"avail", evil + b" avail") + b"\n" + evil)
    code, output, _, _, _ = run("postmortem" if format_ == "html" else "explain", path, "--format", format_)
    assert code == 0
    assert not ACTIVE.search(output)
    if format_ in ("md", "html"):
        assert "<script>alert" not in output
    if format_ == "md":
        assert "](javascript:" not in output.replace("\\]", "")


@pytest.mark.parametrize("kind", PACK)
def test_a_compressed_log_cut_anywhere_gives_the_lines_before_the_cut(tmp_path, kind):
    noise = random.Random(1)
    lines = [b"[2025-01-15 10:22:41] %d" % noise.getrandbits(200) for _ in range(4000)]
    whole = PACK[kind](b"\n".join(lines))
    path = tmp_path / "log"
    for step in range(1, 20):
        path.write_bytes(whole[: len(whole) * step // 20])
        seen = Input(str(path))
        read = [line.text.encode() for line in read_lines(str(path), seen)]
        assert read[:-1] == lines[: max(0, len(read) - 1)]
        if kind == "gz":
            assert seen.truncated
            assert len(read) > 4000 * step // 20 - 600
        flipped = bytearray(whole)
        flipped[len(whole) * step // 20] ^= 0x55
        path.write_bytes(flipped)
        for _ in read_lines(str(path), Input(str(path))):
            pass


def test_a_decompression_bomb_is_refused_with_the_way_to_raise_the_limit(tmp_path, monkeypatch):
    bomb = tmp_path / "bomb.gz"
    bomb.write_bytes(gzip.compress(bytes(32 << 20)) * 12)
    code, _, error, _, mib = run("explain", bomb)
    assert (code, mib < MIB_AT_MOST) == (2, True)
    assert "200 times its size" in error
    assert "KVDIAG_MAX_INPUT_GIB" in error
    monkeypatch.setenv("KVDIAG_MAX_INPUT_GIB", "many")
    with pytest.raises(InputError, match="whole number of GiB"):
        list(read_lines(str(bomb), Input("bomb")))


def test_an_asked_for_limit_holds(monkeypatch):
    monkeypatch.setenv("KVDIAG_MAX_INPUT_GIB", "1")
    with open("/dev/zero", "rb") as zeros:
        stream = Bounded(zeros, "zeros")
        buffer = bytearray(1 << 24)
        while stream.readinto(buffer):
            pass
    assert "more than 1 GiB" in str(stream.error)


def test_dev_zero_and_a_pipe_without_line_ends_are_refused():
    code, _, error, _, mib = run("explain", "/dev/zero")
    assert (code, mib < MIB_AT_MOST) == (2, True)
    assert "no line ends in 1 GiB" in error
    with open("/dev/zero", "rb") as zeros:
        assert run("explain", "-", stdin=zeros)[0] == 2


def test_a_pipe_without_end_is_given_up_where_none_of_its_lines_are_sglang_s(tmp_path, monkeypatch):
    monkeypatch.setattr(pipeline, "HOPELESS", 2000)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with subprocess.Popen(["sh", "-c", f"exec yes 'no line of it' > '{pipe}'"], stderr=subprocess.DEVNULL) as writer:
        with pytest.raises(NotSglangError, match="no SGLang start-up or scheduler line"):
            pipeline.explain([str(pipe)])
        assert writer.wait(20)


def test_more_starts_than_anybody_reads_are_refused_with_what_to_do(tmp_path):
    path = tmp_path / "log"
    path.write_bytes(SERVER_START * 5000)
    with pytest.raises(InputError, match=r"more than 4,000 server starts; cut the log .* server_args="):
        pipeline.explain([str(path)])


def children(marker):
    """Processes whose environment holds the marker."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if marker.encode() in (folder / "environ").read_bytes():
                found.append(int(folder.name))
        except OSError:
            continue
    return found


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs /proc")
@pytest.mark.parametrize(("number_sent", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_end_from_outside_leaves_no_process_of_a_fleet_and_no_half_written_report(tmp_path, number_sent, code):
    logs = tmp_path / "logs"
    logs.mkdir()
    for number in range(200):
        (logs / f"{number}.log").write_bytes(LOG.read_bytes())
    marker = f"KVDIAG_TEST={tmp_path}"
    command = [sys.executable, "-m", "kvdiag", "fleet", str(logs), "-o", str(tmp_path / "out"), "--processes", "2"]
    environment = {**os.environ, "KVDIAG_TEST": str(tmp_path)}
    process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    until = time.monotonic() + 30
    while len(children(marker)) < 3 and time.monotonic() < until:
        time.sleep(0.05)
    process.send_signal(number_sent)
    _, error = process.communicate(timeout=60)
    assert (process.returncode in (0, code), error) == (True, "")
    until = time.monotonic() + 20
    while children(marker) and time.monotonic() < until:
        time.sleep(0.1)
    assert children(marker) == []
    assert not list((tmp_path / "out").glob("*.tmp"))


def test_a_file_that_shrinks_while_read_gives_what_was_there(tmp_path):
    path = tmp_path / "log"
    path.write_bytes(b"[2025-01-15 10:22:41] x\n" * 200_000)
    lines = read_lines(str(path), Input(str(path)))
    next(lines)
    os.truncate(path, 0)
    assert sum(1 for _ in lines) < 200_000


def _edited(**fields):
    return json.dumps({**json.loads(CONFIG.read_text()), **fields})


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        '{"a":' * 100_000,
        '{"num_hidden_layers": ' + "9" * 5000 + "}",
        " " * (5 << 20),
        '{"num_hidden_layers": 1, "num_hidden_layers": 2}',
        "[]",
        "\ud800".encode("utf-8", "surrogatepass"),
        _edited(num_hidden_layers=10**9),
        _edited(num_hidden_layers=0),
        _edited(num_hidden_layers=-1),
        _edited(num_attention_heads=0),
        _edited(num_attention_heads=-8),
        _edited(num_attention_heads="8"),
        _edited(max_position_embeddings=float("nan")),
        _edited(max_position_embeddings=float("inf")),
    ],
    ids=range(15),
)
def test_a_hostile_config_is_refused_in_a_sentence(tmp_path, text):
    path = tmp_path / "config.json"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ConfigError) as told:
        geometry_of(read_config(str(path)))
    assert len(str(told.value)) < 1000


def test_a_config_that_is_a_link_to_a_device_is_refused(tmp_path):
    (tmp_path / "config.json").symlink_to("/dev/zero")
    with pytest.raises(ConfigError, match="no regular file"):
        read_config(str(tmp_path))


def test_odd_values_in_any_field_of_a_published_config_raise_nothing_else():
    source = random.Random(20)
    for _ in range(1500):
        targets.config(source.randbytes(source.randrange(4, 16)))


def test_a_line_without_its_dtype_is_no_fault():
    text = "[2025-01-15 10:22:41] Using KV cache dtype: \n[2025-01-15 10:22:41] Memory pool end. avail mem=9.86 GB"
    assemble(read_records(Line(number, line) for number, line in enumerate(text.split("\n"), 1)))


def test_cells_of_a_csv_timeline_are_no_formulas(tmp_path):
    evil = b"=cmd|' /C calc'!A0"
    path = tmp_path / (evil.decode().replace("/", "-") + ".log")
    path.write_bytes(LOG.read_bytes().replace(b"[2", evil + b"\n[2", 3))
    target = tmp_path / "rows.csv"
    run("timeline", path, "-o", target)
    if target.exists():
        for row in target.read_text().splitlines():
            assert not re.search(r'(?:^|,)"?[=@]', row), row
