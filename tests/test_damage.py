"""Of a damaged line only what is certain is read, and never a cut number as a whole one."""

from __future__ import annotations

import random
import re

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import kvdiag
from kvdiag.lines import read_records
from kvdiag.reading import Input, Line, read_lines
from tests.test_unwrapping import ALL, REAL, diagnosis, each, lines_of, written

LINES = sorted(
    {
        line[:400]
        for case in REAL
        for line in (case / "server.log").read_text(encoding="utf-8").splitlines()
        if line.startswith("[2") and "server_args=" not in line
    }
)


def records_of(*texts: str, **more: bool):
    return list(read_records(Line(number, text, **more) for number, text in enumerate(texts, 1)))


def texts(record):
    return {name: value.text for name, value in record.values.items()}


KNOWN = [line for line in LINES if records_of(line)[0].family and not records_of(line)[0].damaged]


@given(st.sampled_from(KNOWN), st.integers(1, 400))
def test_a_record_cut_anywhere_gives_only_values_of_the_whole_one(line, at):
    whole = texts(records_of(line)[-1])
    for record in records_of(line[:at], cut=True):
        for name, text in texts(record).items():
            if name in whole:
                assert text == whole[name]
            else:  # a word that another release's wording of the same line has a name for
                assert text in line
                assert not any(mark.isdigit() for mark in text)


BATCHES = [line for line in KNOWN if " batch" in line]


@given(st.sampled_from(BATCHES), st.data())
def test_a_hole_across_fields_gives_only_values_of_the_whole_line(line, data):
    whole = texts(records_of(line)[-1])
    commas = [place for place, mark in enumerate(line) if mark == ","]
    comma = data.draw(st.sampled_from(commas))
    begin = data.draw(st.integers(comma - 12, comma))
    end = data.draw(st.integers(comma + 2, comma + 30))
    # Digits of the last number put behind another's look like that number at the end of a line torn there.
    assume(not (line[end:].isdigit() and line[begin - 1] in "0123456789."))
    for record in records_of(line[:begin] + line[end:]):
        if record.damaged:
            assert texts(record).items() <= whole.items()


@pytest.mark.parametrize("column", [61, 79, 97, 120, 143])
@pytest.mark.parametrize("case", REAL[::2], ids=[case.name for case in REAL[::2]])
def test_no_number_of_a_log_cut_at_a_column_differs_from_the_whole_log(case, column, tmp_path):
    lines = (case / "server.log").read_text(encoding="utf-8").splitlines()
    path = written(tmp_path / "server.log", [line[:column] for line in lines])
    told = {(n.name, n.rank, n.value) for item in kvdiag.explain(str(case / "server.log")).starts for n in item.start.numbers}
    try:
        cut = kvdiag.explain(str(path)).starts
    except kvdiag.KvdiagError:
        return
    stated = {(n.name, n.rank, n.value) for item in cut for n in item.start.numbers}
    assert {number for number in stated if number[0] != "max_total_num_tokens"} <= told


@pytest.mark.parametrize("width", [80, 100, 132, 200])
@pytest.mark.parametrize("case", REAL[::3], ids=[case.name for case in REAL[::3]])
def test_a_log_wrapped_by_a_terminal_gives_the_result_of_the_whole_one(case, width, tmp_path):
    lines = (case / "server.log").read_text(encoding="utf-8").splitlines()
    rows = [line[at : at + width] for line in lines for at in range(0, len(line) or 1, width)]
    assert diagnosis(written(tmp_path / "server.log", rows), case) == diagnosis(case / "server.log", case)


POOL = "KV Cache is allocated. #tokens: {}, K size: 5.57 GB, V size: 5.57 GB"


def test_a_record_broken_at_a_blank_is_joined():
    (record,) = records_of(
        "KV Cache is allocated. dtype: torch.bfloat16, #tokens: 5548188,", "K size: 37.04 GB, V size: 20.83 GB"
    )
    assert not record.damaged
    assert record.number("#tokens") == 5548188
    assert record.number("V size") == 20.83


def test_a_record_torn_by_another_rank_is_joined_with_its_end():
    first, second = f"[2026-01-01 10:00:00 TP0] {POOL.format(104273)}", f"[2026-01-01 10:00:00 TP1] {POOL.format(104999)}"
    records = records_of(first[:45] + second, first[45:])
    assert sorted((str(r.rank), r.number("#tokens"), r.damaged) for r in records) == [
        ("TP0", 104273, False),
        ("TP1", 104999, False),
    ]


@pytest.mark.parametrize("at", range(50, 56))
def test_a_number_torn_in_two_is_not_put_together(at):
    first, second = f"[2026-01-01 10:00:00 TP0] {POOL.format(104273)}", f"[2026-01-01 10:00:00 TP1] {POOL.format(104999)}"
    records = records_of(first[:at] + second, first[at:])
    assert [record.number("#tokens") for record in records if str(record.rank) == "TP0"] in ([None], [104273])


def test_two_records_on_one_line_are_two():
    line = f"[2026-01-01 10:00:00 TP0] {POOL.format(10)}[2026-01-01 10:00:01 TP0] Memory pool end. avail mem=9.86 GB"
    assert [(record.family, record.number("#tokens")) for record in records_of(line)] == [
        ("kv-alloc", 10),
        ("memory-pool-end", None),
    ]


def test_a_number_that_another_record_cuts_off_is_not_read():
    capacity = (
        "max_total_num_tokens=159277, chunked_prefill_size=8192, max_prefill_tokens=16384, max_running_requests=32, context_len=4"
    )
    first, _ = records_of(f"[2026-01-01 10:00:00 TP0] {capacity}[2026-01-01 10:00:01 TP1] Memory pool end. avail mem=9.86 GB")
    assert first.number("max_total_num_tokens") == 159277
    assert first.number("context_len") is None
    assert first.damaged


@pytest.mark.parametrize(
    ("text", "rank"),
    [
        ("2026-01-01 10:00:00 TP0] Memory pool end. avail mem=9.86 GB", "TP0"),
        ("-01 10:00:00 DP1 TP3] Memory pool end. avail mem=9.86 GB", "DP1 TP3"),
        ("TP0] Memory pool end. avail mem=9.86 GB", ""),
        ("[TP0] Memory pool end. avail mem=9.86 GB", "TP0"),
        ("[2026-01-01 10:00:00 DisaggregationMode.IGPUDECODE TP1] Memory pool end. avail mem=9.86 GB", "TP1"),
        ("[2026-01-01 10:00:00 encode_dp_worker[3]] Memory pool end. avail mem=9.86 GB", ""),
    ],
)
def test_a_prefix_that_is_cut_or_holds_other_words_names_the_rank_where_it_is_certain(text, rank):
    (record,) = records_of(text)
    assert (record.family, str(record.rank)) == ("memory-pool-end", rank)


@pytest.mark.parametrize(
    ("number", "read"),
    [("104,273", 104273), ("1_104_273", 1104273), ("104k", None), ("1.04M", None), ("104...", None), ("10 4273", None)],
)
def test_grouped_digits_are_a_number_and_abbreviations_are_none(number, read):
    (record,) = records_of(POOL.format(number))
    assert record.number("#tokens") == read


def shortened(count):
    """The ways in which people write a count of tokens short."""
    for scale, mark in ((1000, "k"), (1024, "K"), (10**6, "M"), (2**20, " M")):
        for decimals in (0, 1, 2):
            step = scale / 10**decimals
            for steps in (count / step, int(count / step)):
                yield f"{steps / 10**decimals:.{decimals}f}{mark}"
    yield f"~{round(count, -3)}"
    yield f"~{round(count, -4) // 1000}k"
    yield f"~ {round(count, -4) // 1000} k"


@given(st.integers(10_000, 50_000_000))
def test_an_abbreviation_is_read_as_all_counts_that_are_written_so(count):
    for text in shortened(count):
        (record,) = records_of(POOL.format(text))
        interval = record.interval("#tokens")
        assert record.number("#tokens") is None
        assert interval.low <= count <= interval.high, text


@pytest.mark.parametrize("case", REAL, ids=[case.name for case in REAL])
def test_an_abbreviated_capacity_is_never_used_as_an_exact_one(case, tmp_path):
    """What is told of the shortened log holds for the whole one: no check fails, and every number has the true one within."""
    text = (case / "server.log").read_text(encoding="utf-8")
    short = re.sub(r"(max_total_num_tokens=|#tokens: )(\d+)(?=, )", lambda found: f"{found[1]}{int(found[2]) / 1000:.1f}k", text)
    path = tmp_path / "server.log"
    path.write_text(short, encoding="utf-8")
    whole, told = (kvdiag.explain(str(each), config=str(case)) for each in (case / "server.log", path))
    for first, second in zip(whole.starts, told.starts, strict=True):
        true = {(n.name, n.rank, n.role, n.line): n for n in first.start.numbers}
        for number in second.start.numbers:
            exact = true[number.name, number.rank, number.role, number.line]
            assert number.value == exact.value or number.interval.low <= exact.interval.low <= number.interval.high
            assert number.value == exact.value or isinstance(number.value, str)
        assert {c.name for c in second.checks if c.verdict == "no"} <= {c.name for c in first.checks if c.verdict == "no"}
        assert {f.code for f in second.findings if f.level == "error"} <= {f.code for f in first.findings if f.level == "error"}


def test_fields_left_out_by_hand_leave_the_others():
    (record,) = records_of("max_total_num_tokens=171008, ..., context_len=169000, available_gpu_mem=8.27 GB   <- here")
    assert texts(record) == {"max_total_num_tokens": "171008", "context_len": "169000", "available_gpu_mem": "8.27"}
    assert record.damaged


def test_a_line_whose_middle_is_lost_keeps_what_stands_whole_on_both_sides():
    (record,) = records_of(
        "[2026-05-17 02:59:59 TP0] Decode batch, #running-req: 45, #token: 44672, token usaccept rate: 0.32, "
        "npu graph: False, gen throughput (token/s): 863.65, #queue-req"
    )
    assert texts(record) == {
        "#running-req": "45",
        "#token": "44672",
        "npu graph": "False",
        "gen throughput (token/s)": "863.65",
    }


@pytest.mark.parametrize("behind", ['"', "\\n", "',", "<br>", "|", "   # the target"])
def test_what_an_export_puts_behind_a_record_does_not_hide_it(behind):
    (record,) = records_of(f"[2026-01-01 10:00:00] {POOL.format(10)}{behind}")
    assert (record.family, record.damaged) == ("kv-alloc", False)


def test_the_last_line_of_a_file_without_a_line_end_may_be_cut(tmp_path):
    path = tmp_path / "server.log"
    path.write_text(
        "[2026-01-01 10:00:00 TP0] max_total_num_tokens=159277, max_prefill_tokens=16384, max_running_requests=2049, "
        "context_len=32"
    )
    (record,) = read_records(read_lines(str(path), Input("server.log")))
    assert "context_len" not in record.values
    assert record.number("max_running_requests") == 2049


def test_a_damaged_line_is_listed_with_what_no_rule_knows(tmp_path):
    path = tmp_path / "server.log"
    path.write_text(f"[2026-01-01 10:00:00] {POOL.format(10)}, bits: 7\n[2026-01-01 10:00:00] {POOL.format(10)}\n")
    diagnosis = kvdiag.explain(str(path))
    assert diagnosis.unmatched == 1
    assert diagnosis.inputs[0].matched == 1


def test_a_fraction_in_a_reworded_failure_is_read_whole_or_not_at_all(tmp_path):
    """``1e-06`` is not 1."""
    text = "Loaded weights leave no GPU memory under --mem-fraction-static={} Raise it."
    for printed, read in (("1e-06.", [1e-06]), ("0.85.", [0.85]), ("0.8", [0.8]), ("0.8x", [])):
        path = written(tmp_path / "server.log", [text.format(printed)])
        (start,) = kvdiag.explain(str(path)).starts
        assert [number.value for number in start.start.find("mem_fraction_static")] == read


def damaged(draw, lines):
    """(lines, cut) of a line that was cut, shortened, torn or broken, with another by chance.

    A hole within one number, or one up to the end, leaves a line that looks whole: no reader can tell.
    """
    line, other = draw.choice(lines), draw.choice(lines)
    at = draw.randrange(len(line) + 1)
    end = min(len(line), at + draw.randrange(1, 60))
    width = draw.randrange(40, 200)
    plain = at == end or end >= len(line) - 1 or all(mark.isdigit() or mark in ".-" for mark in line[at:end])
    return draw.choice(
        [
            ([line[:at]], True),
            ([line[at:]], False),
            ([line[:at] + "..." + line[end:]], False),
            ([line[:at] + "\u2026" + line[end:]], False),
            ([line[:at] + "...", "..." + line[end:]], False),
            ([line if plain else line[:at] + line[end:]], False),
            ([line + other], False),
            ([line[:at] + other, line[at:]], False),
            ([line[place : place + width] for place in range(0, len(line), width)], False),
            ([line.replace("[", "", 1)], False),
        ]
    )


@each(ALL)
def test_no_number_of_a_damaged_line_is_one_that_the_log_does_not_tell(case):
    lines = [line for line in lines_of(case) if line.startswith("[2") and "server_args=" not in line]
    told = {
        (record.family, name, value.text)
        for line in lines
        for record in records_of(line)
        for name, value in record.values.items()
        if record.family
    }
    draw = random.Random(case.name)
    for _ in range(100 if lines else 0):
        pieces, cut = damaged(draw, lines)
        for record in records_of(*pieces, cut=cut):
            read = {(record.family, name, value.text) for name, value in record.values.items() if value.number is not None}
            assert read <= told, pieces


BATCH = "Decode batch, #running-req: 1, #token: 9, token usage: 0.04, gen throughput (token/s): 1.10, #queue-req: 5"


@pytest.mark.parametrize("noise", ["7", "2026-05-14 10:00:00,123 - INFO - jit", "0it [00:00, ?it/s]", "127.0.0.1 - GET"])
def test_what_another_process_prints_behind_a_number_is_no_part_of_it(noise):
    line = f"[2026-01-01 10:00:00] {BATCH}"
    assert records_of(line, noise)[0].number("#queue-req") in (5, None)


def test_a_line_pasted_in_two_pieces_within_a_number_is_one():
    first = "max_total_num_tokens=159277, chunked_prefill_size=8192, max_prefill_tokens=163"
    records = records_of(first, "84, max_running_requests=32, context_len=4096")
    assert [record.number("max_prefill_tokens") for record in records] == [16384]


def test_a_line_without_its_prefix_may_be_shortened_without_a_mark():
    (record,) = records_of("max_total_num_tokens=171008, context_len=169000, available_gpu_mem=8.27 GB")
    assert texts(record) == {"max_total_num_tokens": "171008", "context_len": "169000", "available_gpu_mem": "8.27"}


def test_a_printed_line_whose_middle_is_lost_keeps_no_number_at_the_seam():
    (record,) = records_of("[2026-01-01 10:00:00] max_total_num_tokens=4096, chunked_prefill_size=48, context_len=4096")
    assert record.number("chunked_prefill_size") is None


def test_a_number_of_hundreds_of_digits_is_none(tmp_path):
    lines = [f"[2026-01-01 10:00:00] {POOL.format('9' * 310)}", "[2026-01-01 10:00:01] Memory pool end. avail mem=9.86 GB"]
    path = written(tmp_path / "server.log", lines)
    (start,) = kvdiag.explain(str(path)).starts
    assert not start.start.find("max_total_num_tokens")


CAPACITY = [case for case in REAL if "] max_total_num_tokens=" in (case / "server.log").read_text(encoding="utf-8")]


@pytest.mark.parametrize("case", CAPACITY, ids=[case.name for case in CAPACITY])
def test_a_line_cut_within_a_number_where_another_release_ends_it_does_not_give_that_number(case, tmp_path):
    lines = (case / "server.log").read_text(encoding="utf-8").splitlines()
    whole = {(n.name, n.rank, n.value) for item in kvdiag.explain(str(case / "server.log")).starts for n in item.start.numbers}
    for number, line in enumerate(lines):
        for label in ("chunked_prefill_size=", "max_running_requests=", "context_len="):
            place = line.find(label) + len(label) + 2 if "] max_total_num_tokens=" in line and label in line else 0
            if not place or not line[place].isdigit() or line[place:].isdigit():
                continue
            cut = [*lines[:number], line[:place], *lines[number + 1 :]]
            (told,) = (item.start for item in kvdiag.explain(str(written(tmp_path / "server.log", cut))).starts)
            assert {(n.name, n.rank, n.value) for n in told.numbers if n.line == number + 1} <= whole
            assert not told.release.contradiction


def test_a_number_at_the_end_of_a_line_is_whole_where_a_release_of_the_log_ends_it_there():
    case = next(case for case in CAPACITY if case.name.startswith("0.4.6"))
    (told,) = (item.start for item in kvdiag.explain(str(case / "server.log")).starts)
    assert told.first("context_len").line == told.first("max_total_num_tokens").line


def test_an_excerpt_ends_where_no_line_of_a_server_does():
    quoted, printed = "max_total_num_tokens=159277", "[2026-03-02 10:05:40 TP0] max_total_num_tokens=159277"
    assert texts(records_of(quoted)[0]) == {"max_total_num_tokens": "159277"}
    assert texts(records_of(printed)[0]) == {}
    assert texts(records_of(printed + ", chunked_prefill_size=81")[0]) == {"max_total_num_tokens": "159277"}


def test_a_field_behind_which_another_is_printed_in_no_spelling_of_its_label_is_not_read():
    """The hole takes ``412, full token usage: 0.`` and leaves the ends of two numbers behind one label."""
    line = "[2026-11-29 22:50:34] Decode batch, #running-req: 4, #full token: 20, #swa token: 412, swa token usage: 0.25"
    assert "#full token" not in texts(records_of(line)[0])
