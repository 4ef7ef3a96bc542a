"""What the terminal can show is respected: its width, whether it takes colour, and how much one wants to read."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys

import pytest

from tests.conftest import FIXTURES, ROOT

LOG = str(FIXTURES / "scenarios" / "kimi-k2.5-f0.88" / "server.log")
_ESCAPE = re.compile(r"\x1b\[[0-9;]*m")


def environment(tmp_path, **more):
    kept = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLUMNS", "TERM")}
    return kept | {"XDG_CACHE_HOME": str(tmp_path), "PYTHONPATH": str(ROOT), "TERM": "xterm"} | more


def on_a_terminal(tmp_path, *arguments, **more):
    """What the command prints where standard output is a terminal."""
    leader, follower = pty.openpty()
    command = [sys.executable, "-m", "kvdiag", *arguments]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=follower, env=environment(tmp_path, **more)) as process:
        os.close(follower)
        printed = b""
        while True:
            try:
                more_text = os.read(leader, 65536)
            except OSError:
                break
            if not more_text:
                break
            printed += more_text
        os.close(leader)
    assert process.returncode == 0
    return printed.decode().replace("\r\n", "\n")


def test_colour_only_repeats_the_words_and_can_be_turned_off(tmp_path):
    coloured = on_a_terminal(tmp_path, "explain", LOG, COLUMNS="100")
    assert _ESCAPE.search(coloured)
    for off in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
        plain = on_a_terminal(tmp_path, "explain", LOG, COLUMNS="100", **off)
        assert "\x1b" not in plain
        assert plain == _ESCAPE.sub("", coloured)


def test_a_pipe_gets_no_colour(tmp_path):
    command = [sys.executable, "-m", "kvdiag", "explain", LOG]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(tmp_path, CI="true"), timeout=60)
    assert "\x1b" not in done.stdout + done.stderr


@pytest.mark.parametrize(("command", "columns"), [("explain", 80), ("explain", 110), ("postmortem", 80), ("postmortem", 110)])
def test_all_but_the_searchable_heads_end_at_the_terminals_width(command, columns, tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "kvdiag", command, LOG],
        capture_output=True, text=True, env=environment(tmp_path, COLUMNS=str(columns)), timeout=60,
    )  # fmt: skip
    heads = re.compile(r"KV\d{3} | +(?:ok|NO|\?)  \w+" if columns >= 100 else "nothing is left whole")
    assert [line for line in done.stdout.splitlines() if len(line) > columns and not heads.match(line)] == []


def test_quiet_tells_findings_and_limits_and_verbose_every_rank(kvdiag):
    quiet, usual, verbose = (kvdiag("explain", LOG, *flag).stdout for flag in (["-q"], [], ["--verbose"]))
    assert "KV301" in quiet
    assert "What limits" in quiet
    assert "recomputed" not in quiet
    assert "bytes_per_token [TP0]" in usual
    assert "memory_after_pool [TP7]" not in usual
    numbers = [set(re.findall(r"^ +(?:ok|NO|\?)  (\w+)", text, re.MULTILINE)) for text in (usual, verbose)]
    assert numbers[0] == numbers[1] != set()
    assert all(f"bytes_per_token [TP{rank}]" in verbose for rank in range(8))
    assert kvdiag("explain", LOG, "-q", "-v").returncode == 2
