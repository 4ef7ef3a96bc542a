"""The releases a log is said to come from: never without the true one, narrow where the log allows it, open about forks."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvdiag.lines import read_records
from kvdiag.reading import Input, Line, read_lines
from kvdiag.releases import known_releases, parse_ranges, parse_release
from kvdiag.starts import assemble
from kvdiag.starts.evidence import _argument_fields
from tests.conftest import FIXTURES, SHARED


def starts_of(text: str):
    return assemble(read_records(Line(number, line) for number, line in enumerate(text.split("\n"), 1)))


def release_of(text: str):
    (start,) = starts_of(text)
    return start.release


def in_file(path: Path):
    return assemble(read_records(read_lines(str(path), Input(str(path)))))


@pytest.mark.parametrize("log", sorted((FIXTURES / "real").glob("*/server.log")), ids=lambda path: path.parent.name)
def test_a_real_log_keeps_its_release_and_a_dump_makes_it_narrow(log):
    true = parse_release(log.parent.name.split("-")[0])
    for start in in_file(log):
        assert true in start.release.possible
        assert not start.release.contradiction
        assert len(start.release.possible) <= 3 or not start.server_args


@pytest.mark.shared
def test_every_shared_log_keeps_its_release_and_a_dump_makes_it_narrow(capsys):
    widths = []
    for log in sorted((SHARED / "real-logs").glob("*/*/server.log")):
        for start in in_file(log):
            assert parse_release(log.parts[-3]) in start.release.possible, log
            assert not start.release.contradiction, log
            if start.server_args:
                widths.append(len(start.release.possible))
    assert max(widths) <= 3
    with capsys.disabled():
        print(f"\n{len(widths)} starts with a dump, widths {sorted(widths)}")


def dump(release) -> str:
    fields = [name for name, ranges in _argument_fields().items() if release in parse_ranges(ranges)]
    if release < parse_release("0.5.19"):
        return "server_args=ServerArgs(" + ", ".join(f"{name}=None" for name in fields) + ")"
    return f"server_args={dict.fromkeys(fields)!r}"


def test_the_fields_of_every_release_name_it_or_its_neighbours():
    releases = [release for release in known_releases() if release >= parse_release("0.1.24")]
    widths = []
    for release in releases:
        found = release_of(f"[2025-01-15 10:22:41] {dump(release)}" if release >= parse_release("0.3.4") else dump(release))
        assert release in found.possible
        assert not found.contradiction
        widths.append(len(found.possible))
    assert sum(width <= 3 for width in widths) >= 0.9 * len(widths)
    assert sum(width == 1 for width in widths) >= 0.4 * len(widths)


POOL_END = "Memory pool end. avail mem=9.86 GB"


@pytest.mark.parametrize(
    ("prefix", "first", "last"),
    [
        ("[10:22:41 TP0] ", "0.2.14", "0.3.3.post1"),
        ("[2025-01-15 10:22:41 TP0] ", "0.3.4", "0.5.23"),
        ("[2025-01-15 10:22:41 DP0 TP0] ", "0.4.3.post3", "0.5.23"),
        ("[2025-01-15 10:22:41] ", "0.4.6.post2", "0.5.23"),
        ("[2025-01-15 10:22:41 TP0 PP1] ", "0.4.6.post2", "0.5.5"),
        ("[2025-01-15 10:22:41 PP1 TP0] ", "0.5.5.post1", "0.5.23"),
        ("[2025-01-15 10:22:41 DP0 TP3 EP3] ", "0.4.10", "0.5.23"),
        ("[2025-01-15 10:22:41.318 TP0] ", "0.5.6", "0.5.23"),
        ("[2025-01-15 10:22:41 DP1 ATTN_CP0 TP4 EP4] ", "0.5.9", "0.5.23"),
    ],
)
def test_the_prefix_narrows_the_release(prefix, first, last):
    found = release_of(prefix + POOL_END).possible
    assert (str(found.first), str(found.last)) == (first, last)


def test_a_tag_on_a_worker_that_is_alone_is_an_old_release():
    arguments = "[2025-01-15 10:22:40] server_args=ServerArgs(tp_size=1, dp_size=1)\n"
    assert str(release_of(arguments + "[2025-01-15 10:22:41 TP0] " + POOL_END).possible.last) == "0.4.6.post1"


def test_a_fork_s_own_word_among_the_tags_hides_neither_line_nor_rank():
    (record,) = read_records([Line(1, f"[2025-11-21 07:04:51 DisaggregationMode.IGPUDECODE TP1] {POOL_END}")])
    assert (record.family, str(record.rank)) == ("memory-pool-end", "TP1")


def test_lines_that_no_release_prints_together_are_named_and_the_range_is_not_emptied():
    found = release_of(
        "[2025-01-15 10:22:41 TP0] KV Cache is allocated. K size: 26.78 GB, V size: 26.78 GB.\n"
        "[2025-01-15 10:22:42 TP0] KV Cache is allocated. #tokens: 438681, K size: 26.78 GB, V size: 26.78 GB"
    )
    assert found.possible
    assert "contradict" in found.contradiction
    assert "line 1" in found.contradiction
    assert "line 2" in found.contradiction


def test_an_argument_no_release_has_is_named():
    found = release_of(dump(parse_release("0.5.9")).replace("ServerArgs(", "ServerArgs(brand_new_knob=1, "))
    assert parse_release("0.5.9") in found.possible
    assert "brand_new_knob" in found.contradiction


def test_an_error_quoted_without_its_end_contradicts_nothing():
    found = release_of(
        "[2026-08-15 10:11:02 TP0] max_total_num_tokens=1741, chunked_prefill_size=8192, max_prefill_tokens=16384, "
        "max_running_requests=48, context_len=65536, available_gpu_mem=46.90 GB\n"
        "[2026-08-15 10:12:40 TP0] Input length (3034 tokens) exceeds the maximum allowed length (1735 tokens). "
        "Use a shorter input or enable --allow-auto-truncate."
    )
    assert not found.contradiction
    assert str(found.possible.first) == "0.4.7"


def test_evidence_says_which_line_took_which_releases_away():
    (text,) = release_of(f"[2025-01-15 10:22:41 PP1 TP0] {POOL_END}").evidence[:1]
    assert text == "line 1: PP tag before TP tag (0.5.5.post1..0.5.23)"


def test_the_text_report_says_that_lines_contradict_each_other(kvdiag, tmp_path):
    log = tmp_path / "fork.log"
    log.write_text(
        "[2025-01-15 10:22:41 TP0] KV Cache is allocated. K size: 26.78 GB, V size: 26.78 GB.\n"
        "[2025-01-15 10:22:42 TP0] KV Cache is allocated. #tokens: 438681, K size: 26.78 GB, V size: 26.78 GB\n"
    )
    assert "contradict each other" in " ".join(kvdiag("explain", str(log)).stdout.split())
