"""What no rule knows is counted and shown by its wording: a newer SGLang shows itself, and the rest is still read."""

from __future__ import annotations

import json

import pytest

from kvdiag.lines import read_records
from kvdiag.lines.unknown import MOST, UnknownLines, nearest
from kvdiag.reading import Line
from tests.conftest import FIXTURES

LOG = FIXTURES / "real" / "0.5.22-qwen3-tp2-bind" / "server.log"
EDITS = {
    "Memory pool end. avail mem=": ("Memory pools are complete. avail mem=", "memory-pool-end"),
    "Decode batch, #running-req: ": ("Decode batch, #flux-req: 3, #running-req: ", "decode-batch"),
    "Load weight begin. avail mem=": ("Load weight begin: avail mem=", "weight-load-begin"),
}


def result(kvdiag, path) -> dict:
    done = kvdiag("explain", str(path), "--format", "json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture
def newer(tmp_path):
    text = LOG.read_text()
    for old, (new, _) in EDITS.items():
        assert old in text
        text = text.replace(old, new)
    path = tmp_path / "newer.log"
    path.write_text(text)
    return path


def test_a_newer_release_is_read_as_far_as_it_can_be_and_its_new_wordings_come_first(kvdiag, newer):
    before, after = result(kvdiag, LOG), result(kvdiag, newer)
    samples = after["unmatched"]["samples"]
    first = samples[: len(EDITS)]
    assert {sample["like"] for sample in first} == {family for _, family in EDITS.values()}
    for new, family in EDITS.values():
        (sample,) = [each for each in first if each["like"] == family]
        assert new in sample["text"]
        assert sample["count"] == newer.read_text().count(new)
        assert sample["line"] == next(n for n, text in enumerate(newer.read_text().splitlines(), 1) if new in text)
    assert after["unmatched"]["count"] == before["unmatched"]["count"] + sum(sample["count"] for sample in first)
    kept = [number for number in after["starts"][0]["numbers"] if number["name"] == "max_total_num_tokens"]
    assert kept
    assert kept == [number for number in before["starts"][0]["numbers"] if number["name"] == "max_total_num_tokens"]


def test_the_text_report_names_new_wordings(kvdiag, newer):
    assert "like decode-batch" in " ".join(kvdiag("explain", str(newer)).stdout.split())
    assert "Begun like" not in kvdiag("explain", str(FIXTURES / "scenarios" / "kimi-k2.5-f0.88" / "server.log")).stdout


def test_lines_of_one_wording_are_one_template_with_a_count():
    unknown = UnknownLines()
    for number in range(1, 31):
        text = f"[2025-01-15 10:22:41] Expert {number} moved from /data/a{number}/b to 10.0.0.{number}:80, id 7f3c{number:08x}"
        for record in read_records([Line(number, text)]):
            unknown.add(record)
    (only,) = unknown.listed()
    assert (only.count, only.line, only.like) == (30, 1, "")


def test_the_wordings_kept_are_bounded_and_the_rest_is_counted():
    unknown = UnknownLines()
    words = [f"{a}{b}{c}" for a in "abcdefghijkl" for b in "abcdefghijkl" for c in "abcdefghijkl"]
    for number, word in enumerate(words, 1):
        for record in read_records([Line(number, f"[2025-01-15 10:22:41] {word} happened")]):
            unknown.add(record)
    assert unknown.count == len(words)
    assert len(unknown.listed()) == MOST


def test_a_line_without_a_number_is_no_reworded_line():
    assert nearest("Attention backend not set. Use flashinfer backend by default.") == ""
    assert nearest("Decode batch, #running-req: 6, #token now: 1920") == "decode-batch"


def test_what_verbose_does_not_list_is_counted(kvdiag, tmp_path):
    log = (FIXTURES / "scenarios" / "h100-llama-3-8b" / "server.log").read_text()
    words = [f"{a}{b} settled\n" for a in "abcdefgh" for b in "pqrs"]
    path = tmp_path / "server.log"
    path.write_text(log + "".join(f"[2025-11-05 09:00:59] {word}" for word in words))
    told = kvdiag("explain", "-v", str(path)).stdout
    assert f"{len(words)} of SGLang's that no rule reads" in " ".join(told.split())
    assert "(-v lists them)" not in told
    assert "and 12 lines more, of wordings beyond the 20 listed here" in told
    path.write_text(log + f"[2025-11-05 09:00:59] {words[0]}")
    assert "listed here" not in kvdiag("explain", "-v", str(path)).stdout
