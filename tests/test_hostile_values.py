"""Odd values, secrets, slow servers and damaged rule files: what is found in one place is refused or shown inert in all."""

from __future__ import annotations

import json
import os
import random
import re
import socket
import time
from contextlib import contextmanager
from threading import Thread

import pytest

from kvdiag import rulebook
from kvdiag.errors import InputError, PolicyError, RuleError
from kvdiag.fleet import report
from kvdiag.fleet.sources import shown_url
from kvdiag.gate.policy import parse_policy
from kvdiag.lines.literal import parse_arguments
from kvdiag.outside import fetch
from kvdiag.pipeline import explain
from kvdiag.reports import json_report
from kvdiag.reports.mask import Mask
from kvdiag.rows.export import export
from kvdiag.rows.plain import inert_cell
from tests.conftest import FIXTURES
from tests.fuzz import targets

LOG = FIXTURES / "real" / "0.5.9-qwen3-memfrac005-nocap" / "server.log"
DECODE = (
    "[2025-01-15 10:22:41] Decode batch. #running-req: 12, #token: 18240, token usage: 0.04, cuda graph: True, "
    "gen throughput (token/s): 1482.37, #queue-req: 5, timestamp: {}\n"
)


@pytest.mark.parametrize("name", targets.TARGETS)
def test_every_fuzz_target_takes_its_seeds(name):
    targets.TARGETS[name](b"")
    for seed in list(targets.seeds(name))[:12]:
        targets.TARGETS[name](seed)


def test_odd_values_anywhere_in_a_log_are_no_fault():
    source = random.Random(7)
    for _ in range(60):
        targets.report(source.randbytes(source.randrange(4, 22)))


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("mem_fraction_static", "True"),
        ("mem_fraction_static", "1e999"),
        ("max_running_requests", "-5"),
        ("max_running_requests", "9" * 23),
        ("schedule_conservativeness", "True"),
        ("speculative_num_draft_tokens", "-5"),
        ("context_length", "0"),
    ],
)
def test_an_argument_no_server_could_run_with_is_no_fault(argument, value):
    text = re.sub(rf"\b{argument}=[^,)]*", f"{argument}={value}", LOG.read_text())
    targets.reported(text.encode())


def test_a_token_that_takes_no_bytes_is_no_fault():
    targets.report(bytes.fromhex("1da06d15369aa7"))


@pytest.mark.parametrize("log", range(0, len(targets._small_logs()), 2))
def test_memory_of_nothing_is_no_fault(log):
    text = targets._small_logs()[log]
    for put in (b"0.00", b"-0.01"):
        targets.reported(re.sub(rb"(avail mem=|avail_mem=|available_[cg]pu_mem=)[\d.]+", rb"\g<1>" + put, text))


def test_a_context_of_no_tokens_is_no_fault():
    targets.report(bytes.fromhex("acaf1aa4065d1814a522ebda4bc5a3126a7e51cb"))
    targets.reported(re.sub(r"context_len=\d+", "context_len=0", LOG.read_text()).encode())


def test_a_number_that_overflows_stays_text_so_that_json_stays_json():
    assert parse_arguments("ServerArgs(a=1e999, b=-1e999, c=1.5)") == ({"a": "1e999", "b": "-1e999", "c": 1.5}, True)


ODD = ["1", "-1", "1.5", "nan", "inf", "true", '""', '"x"', "[]", "[1]", "{}", "{a = 1}", "2027-01-31", "12:00:00", "[{a=[1]}]"]
KEYS = {
    "checks": ["required"], "findings": ["allowed", "forbidden"], "lines": ["unknown_budget", "accept"],
    "arguments": ["required", "ignore"], "release": ["allowed"], "numbers": ["n", "n.absolute", "n.relative", "n.direction"],
    "levels": ["KD101"],
}  # fmt: skip


def read_or_refused_with_its_place(text):
    try:
        parse_policy(text)
    except PolicyError as error:
        return re.match(r"policy:\d+:\d+: ", str(error))
    return True


@pytest.mark.parametrize(("section", "key"), [(section, key) for section, keys in KEYS.items() for key in keys])
def test_a_policy_with_odd_values_is_read_or_refused_with_its_place(section, key):
    for value in ODD:
        assert read_or_refused_with_its_place(f"[{section}]\n{key} = {value}\n"), value


@pytest.mark.parametrize("key", ["code", "subject", "reason", "until"])
def test_a_suppression_with_odd_values_is_read_or_refused_with_its_place(key):
    for value in ODD:
        entry = {"code": '"KD101"', "subject": '"*"', "reason": '"r"', "until": "2027-01-31", key: value}
        lines = "".join(f"{name} = {text}\n" for name, text in entry.items())
        assert read_or_refused_with_its_place("[[suppress]]\n" + lines), value


def test_a_rule_file_that_is_nested_too_deeply_huge_or_no_file_is_refused(tmp_path):
    deep = tmp_path / "deep.toml"
    deep.write_text("a = " + "[" * 5000)
    huge = tmp_path / "huge.toml"
    with open(huge, "wb") as file:
        file.truncate(1 << 30)
    os.mkfifo(tmp_path / "pipe.toml")
    (tmp_path / "zero.toml").symlink_to("/dev/zero")
    for path, why in (("deep", "nested"), ("huge", "plain file"), ("pipe", "plain file"), ("zero", "plain file")):
        with pytest.raises(RuleError, match=f"{path}.toml:1:1: .*{why}"):
            rulebook.read_toml(str(tmp_path / f"{path}.toml"))


FORMULAS = ["=1+1", "+1", "-1+cmd|' /C calc'!A0", "@SUM(A1)", " =1", "\uff1d1", "\t=1", "\r=1", "\n=1"]


@pytest.mark.parametrize("text", FORMULAS)
def test_a_cell_of_csv_is_never_a_formula(tmp_path, text):
    assert inert_cell(text).lstrip()[0] in "'\\"
    log = tmp_path / "log"
    log.write_text(DECODE.format(text))
    export([str(log)], str(tmp_path / "rows.csv"))
    held = (tmp_path / "rows.csv").read_text(encoding="utf-8")
    head, row = held.rstrip("\n").split("\n")
    cells = dict(zip(head.replace('"', "").split(","), row.split(","), strict=True))
    assert not re.match(r'"?\s*[=+\-@\uff1d]', cells.get("timestamp", "")), row


@pytest.mark.parametrize("ending", ["csv", "json"])
def test_no_terminal_obeys_a_timeline(tmp_path, ending):
    log = tmp_path / "a\x1b]0;owned\x07\u202e\x7f.log"
    log.write_text(DECODE.format("\x1b[31mx"))
    target = tmp_path / f"rows.{ending}"
    export([str(log)], str(target))
    text = target.read_text(encoding="utf-8")
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e]", text)
    if ending == "json":
        assert json.loads(text)["log"] == str(log)


EVIL = [
    "a|b\n# x",
    "<script>\x1b]0;t\x07",
    "[l](http://e)",
    "![i](http://e)",
    "@everyone",
    "~~x~~",
    "```\nx",
    "&lt;b>",
    "\u202etxt",
]


@pytest.mark.parametrize("text", EVIL)
def test_nothing_in_the_report_of_a_fleet_is_markdown_of_a_log(text):
    rows = [dict.fromkeys([*report._PLAIN, *report._DERIVED]) | {"url": text, "error": text}]
    told = report.render([{"findings": {}}], rows)
    line = told.rstrip("\n").split("\n")[-1]
    bare = re.sub(r"\\.", "", line)
    assert bare.count("|") == 3
    assert not re.search("[\x00-\x1f\x7f-\x9f\u202a-\u202e]", line)
    assert not re.search(r"[<>@\[\]`~#!]", re.sub("&#\\d+;", "", bare)), line


def test_a_secret_of_the_server_is_in_no_report_and_one_of_an_address_neither(tmp_path):
    path = tmp_path / "log"
    path.write_text(LOG.read_text().replace("api_key=None", "api_key='SECRET123'"))
    assert "SECRET123" in path.read_text()
    assert "SECRET123" not in json_report.render(explain([str(path)]))
    assert "hunter2" not in Mask()("https://me:hunter2@host.example/v1 and http://me:hunter2@10.0.0.1:80")
    shown = shown_url("https://me:hunter2@host.example/a.log?X-Amz-Signature=SECRET123")
    assert shown.startswith("https://host.example/a.log?")
    assert "SECRET123" not in shown
    assert shown_url("s3://bucket/a@b.log") == "s3://bucket/a@b.log"


@contextmanager
def server(answer):
    """A server that gives each caller what `answer` sends."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            try:
                while True:
                    caller, _ = listening.accept()
                    with caller:
                        caller.recv(65536)
                        answer(caller)
            except OSError:
                return

        Thread(target=serve, daemon=True).start()
        yield f"http://me:hunter2@127.0.0.1:{listening.getsockname()[1]}/?token=SECRET123"
        listening.close()


def drip(caller):
    caller.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
    for _ in range(100):
        caller.sendall(b"[")
        time.sleep(0.05)


ANSWERS = {
    "slow": (drip, "no whole answer in"),
    "huge": (lambda caller: caller.sendall(b"HTTP/1.1 200 OK\r\n\r\n" + b"[" * (17 << 20)), "longer than"),
    "redirect": (lambda caller: caller.sendall(b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:9/\r\n\r\n"), "not followed"),
    "garbage": (lambda caller: caller.sendall(b"\x1b]0;owned\x07\r\n\r\n"), "cannot be asked"),
    "nested": (lambda caller: caller.sendall(b"HTTP/1.1 200 OK\r\n\r\n" + b"[" * 100_000), "not JSON"),
}


@pytest.mark.parametrize("kind", ANSWERS)
def test_a_hostile_server_is_refused_in_time_and_its_credentials_are_not_told(kind, monkeypatch):
    monkeypatch.setattr(fetch, "SECONDS", 1.0)
    answer, why = ANSWERS[kind]
    begin = time.monotonic()
    with server(answer) as url, pytest.raises(InputError, match=why) as told:
        fetch.fetch_server_info(url)
    assert time.monotonic() - begin < 10
    assert not re.search("hunter2|SECRET123", str(told.value))


def test_a_fleet_names_a_log_whose_name_is_no_text(tmp_path, kvdiag):
    folder = os.fsencode(tmp_path / "logs")
    os.mkdir(folder)
    with open(folder + b"/\xff.log", "wb") as file:
        file.write(LOG.read_bytes())
    done = kvdiag("fleet", os.fsdecode(folder), "-o", str(tmp_path / "out"))
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out" / "report.md").read_text(encoding="utf-8")
