"""Big logs are explained as small ones are: the same diagnosis by the fast path, and a bounded one where lines are sampled."""

from __future__ import annotations

import io
import json
from collections import Counter

import pytest

from kvdiag.cli import patience
from kvdiag.lines import sample
from kvdiag.pipeline import explain
from kvdiag.reports.json_report import to_dict
from kvdiag.rows import progress
from kvdiag.starts import batches
from tests.conftest import FIXTURES
from tests.test_fast_path import make_log
from tests.wrappers import PASTED, WRAPPERS

LOGS = sorted(FIXTURES.rglob("*.log"))


def told(path):
    return json.dumps(to_dict(explain([str(path)])), indent=1)


@pytest.mark.parametrize("path", LOGS, ids=[path.parent.name for path in LOGS])
def test_the_fast_path_gives_the_same_diagnosis(path, monkeypatch):
    slow = told(path)
    monkeypatch.setattr(sample, "BIG", 0)
    assert told(path) == slow


def test_restarts_and_rare_lines_give_the_same_diagnosis(tmp_path, monkeypatch):
    path = tmp_path / "log"
    make_log.write_log(path, size=100_000, seed=3, rare=0.05)
    text = path.read_text(encoding="utf-8")
    path.write_text(text + "Traceback (most recent call last):\n  File x\nRuntimeError: no\n" + text + "something else\n" * 50)
    slow = told(path)
    monkeypatch.setattr(sample, "BIG", 0)
    assert told(path) == slow


def test_of_a_big_log_a_sample_is_looked_at(tmp_path, monkeypatch):
    path = tmp_path / "log"
    make_log.write_log(path, size=1_500_000, seed=3)
    monkeypatch.setattr(sample, "WANTED", 256)
    diagnosis = explain([str(path)])
    kept = list(diagnosis.starts[0].start.batches)
    assert 256 <= len(kept) <= 600
    assert diagnosis.inputs[0].lines == path.read_bytes().count(b"\n")
    assert (
        diagnosis.inputs[0].matched
        == sum(b" batch, " in line or b"Retract" in line for line in path.read_bytes().splitlines()) + 19
    )
    assert "scheduler lines of this log" in diagnosis.starts[0].start.notes[-1]
    assert [record.line.number for record in kept] == sorted(record.line.number for record in kept)


def test_a_start_keeps_a_bounded_even_sample(monkeypatch):
    monkeypatch.setattr(batches, "MOST", 100)
    kept = batches.Batches()
    for number in range(1000):
        kept.append(number)
    assert list(kept) == list(range(0, 1000, kept.every))
    assert (kept.seen, kept.every) == (1000, 16)


class Terminal(io.StringIO):
    """A stream that says it is one."""

    def isatty(self):
        return True


def test_on_a_terminal_a_big_log_tells_its_start_up_first_and_then_how_far_it_is(tmp_path, monkeypatch):
    path = tmp_path / "log"
    make_log.write_log(path, size=3_000_000, seed=3)
    monkeypatch.setattr(patience, "LARGE", 1 << 20)
    monkeypatch.setattr(progress, "PATIENCE", 0.0)
    terminal, pipe = Terminal(), io.StringIO()
    with patience.patience([str(path)], terminal) as told:
        early = terminal.getvalue()
        explain([str(path)], progress=told)
    assert "438,681" in early
    assert early.count("\n") < 10
    assert "3.0" in terminal.getvalue()[len(early) :]
    with patience.patience([str(path)], pipe) as told:
        assert told is None
    assert pipe.getvalue() == ""


def test_a_big_file_that_is_no_log_of_sglang_is_said_so_once(tmp_path, monkeypatch):
    path = tmp_path / "log"
    path.write_text("hello\n" * 400_000)
    monkeypatch.setattr(patience, "LARGE", 1 << 20)
    terminal = Terminal()
    with patience.patience([str(path)], terminal):
        pass
    assert terminal.getvalue() == ""


@pytest.mark.parametrize("ranks", [2, 3, 4, 8])
@pytest.mark.parametrize("compiled", [True, False])
def test_the_sample_is_even_over_time_and_ranks(ranks, compiled, tmp_path, monkeypatch):
    from kvdiag.lines import scan

    path = tmp_path / "log"
    make_log.write_log(path, size=2_500_000, seed=3, ranks=ranks, rare=0.01)
    monkeypatch.setattr(sample, "WANTED", 500)
    if not compiled:
        monkeypatch.setattr(scan, "library", lambda: None)
    kept = list(explain([str(path)]).starts[0].start.batches)
    lines = path.read_bytes().count(b"\n")
    thirds = Counter(record.line.number * 3 // (lines + 1) for record in kept)
    tags = Counter(record.rank.text for record in kept)
    for counts, groups in ((thirds, 3), (tags, ranks)):
        assert len(counts) == groups
        assert all(abs(count - len(kept) / groups) < 0.25 * len(kept) / groups for count in counts.values()), counts


@pytest.mark.parametrize("case", ["0.4.6-llama-gqa-flood-retract", "0.5.9-fail-memfrac-tiny"])
@pytest.mark.parametrize("before", ["XYZ#{n}# ", "svc:{n}:INFO>> "])
def test_what_no_layer_knows_is_learnt_for_the_whole_of_a_big_log(case, before, tmp_path, monkeypatch):
    path = tmp_path / "server.log"
    lines = (FIXTURES / "real" / case / "server.log").read_text(encoding="utf-8").split("\n")[:-1]
    path.write_text("".join(f"{before.format(n=n)}{line}\n" for n, line in enumerate(lines)), encoding="utf-8")
    slow = told(path)
    monkeypatch.setattr(sample, "BIG", 0)
    assert told(path) == slow


@pytest.mark.parametrize("name", [*WRAPPERS, *PASTED, "utf-16"])
def test_big_wrapped_logs_give_the_diagnosis_of_small_ones(name, tmp_path, monkeypatch):
    path = tmp_path / "server.log"
    lines = (FIXTURES / "real" / "0.4.6-llama-gqa-flood-retract" / "server.log").read_text(encoding="utf-8").split("\n")[:-1]
    wrap = {**WRAPPERS, **PASTED}.get(name, list)
    path.write_bytes(("\n".join(wrap(lines)) + "\n").encode("utf-16" if name == "utf-16" else "utf-8"))
    slow = told(path)
    monkeypatch.setattr(sample, "BIG", 0)
    assert told(path) == slow


def test_places_in_a_recoded_log_are_not_told(tmp_path):
    from kvdiag.rows.frame import frame

    path = tmp_path / "server.log"
    make_log.write_log(path, size=20_000, seed=1)
    assert frame([str(path)])["offset"].notna().all()
    path.write_text(path.read_text(), encoding="utf-16")
    assert frame([str(path)])["offset"].isna().all()


def test_a_long_pipe_is_sampled_as_a_file_is_and_a_short_one_is_not(tmp_path, kvdiag):
    path = tmp_path / "server.log"
    make_log.write_log(path, size=12_000_000, seed=3)
    for name, told in (("big", "findings look at one in 16"), ("small", None)):
        text = path.read_text() if name == "big" else path.read_text()[:500_000].rpartition("\n")[0] + "\n"
        path.write_text(text)
        results = [json.loads(kvdiag("explain", log, "--format", "json", stdin=text.encode()).stdout) for log in ("-", str(path))]
        (piped,), (filed,) = (result["starts"] for result in results)
        assert bool(piped["notes"]) == bool(filed["notes"]) == (told is not None)
        assert [f["code"] for f in piped["findings"]] == [f["code"] for f in filed["findings"]]
        if told is None:
            assert piped == filed
        else:
            assert told in piped["notes"][0]


def test_an_input_longer_than_was_thought_is_sampled_evenly(tmp_path, monkeypatch):
    path = tmp_path / "server.log"
    make_log.write_log(path, size=3_000_000, seed=3)
    monkeypatch.setattr(sample, "WANTED", 100)
    monkeypatch.setattr(sample, "_ROW_BYTES", 20_000)
    kept = list(explain([str(path)]).starts[0].start.batches)
    thirds = Counter(record.line.number * 3 // (path.read_bytes().count(b"\n") + 1) for record in kept)
    assert 150 < len(kept) < 450
    assert max(thirds.values()) < 1.3 * min(thirds.values())


def test_what_is_beyond_a_mebibyte_of_one_line_is_not_read_and_that_is_said(tmp_path, capsys):
    """An export that holds a whole log in one line: its beginning is read, and nobody takes that for all of it."""
    from kvdiag.cli.main import main

    record = json.dumps({"message": "[2026-01-05 10:00:00 TP0] Decode batch, #running-req: 5, #token: 1000, token usage: 0.10, "
                         "cuda graph: True, gen throughput (token/s): 400.00, #queue-req: 0"})  # fmt: skip
    log = tmp_path / "export.log"
    log.write_text("[" + ", ".join([record] * 9000) + "]\n", encoding="utf-8")
    for command in (["explain", str(log)], ["timeline", str(log), "-o", str(tmp_path / "rows.csv")]):
        with pytest.raises(SystemExit) as ended:
            main(command)
        told = capsys.readouterr()
        assert ended.value.code in (0, 3)
        assert "only the first MiB of each was read" in " ".join((told.out + told.err).split())
