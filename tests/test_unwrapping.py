"""A log says the same whatever it was wrapped in."""

from __future__ import annotations

import json
import os
import random
import re

import pytest

import kvdiag
from kvdiag.pipeline import explain
from kvdiag.reading import Input, read_lines
from kvdiag.reading.unwrap import Unwrapper
from kvdiag.reports.json_report import to_dict
from tests.conftest import FIXTURES, SHARED
from tests.wrappers import PASTED, WRAPPERS

REAL = sorted((FIXTURES / "real").iterdir())
ALL = [*REAL, *sorted(log.parent for log in (SHARED / "real-logs").glob("*/*/server.log"))]
FULL = "KVDIAG_ALL_PAIRS" in os.environ
"""Whether every pair of wrappers is put around every log: some minutes."""
POSITIONS = {
    "line",
    "lines",
    "path",
    "bytes",
    "matched",
    "number",
    "inputs",
    "unmatched",
    "evidence",
    "place",
    "server_args_line",
}


def without_positions(value):
    """A diagnosis without what a wrapper changes: numbers of lines, and texts that name them."""
    if isinstance(value, dict):
        return {key: without_positions(inner) for key, inner in value.items() if key not in POSITIONS}
    if isinstance(value, list):
        return [without_positions(inner) for inner in value]
    return re.sub(r"\bline \d+", "line #", value) if isinstance(value, str) else value


def diagnosis(path, config):
    return without_positions(to_dict(kvdiag.explain(str(path), config=str(config))))


@pytest.fixture(scope="module")
def bare():
    return {case.name: diagnosis(case / "server.log", case) for case in REAL}


def outcome(path, config):
    """The diagnosis, or what is said instead of one."""
    try:
        return diagnosis(path, config)
    except kvdiag.KvdiagError as error:
        return {"refused": str(error).removeprefix(str(path))}


def written(path, lines, end="\n"):
    path.write_text("".join(line + end for line in lines), encoding="utf-8", newline="")
    return path


@pytest.mark.parametrize("name", WRAPPERS)
@pytest.mark.parametrize("case", REAL[::3], ids=[case.name for case in REAL[::3]])
def test_a_wrapped_log_gives_the_result_of_the_bare_one(case, name, bare, tmp_path):
    lines = lines_of(case)
    assert diagnosis(written(tmp_path / "server.log", WRAPPERS[name](lines)), case) == bare[case.name]


@pytest.mark.parametrize("name", PASTED)
@pytest.mark.parametrize("case", REAL[1::5], ids=[case.name for case in REAL[1::5]])
def test_a_pasted_log_gives_the_result_of_the_bare_one_with_the_last_line_of_its_traceback(case, name, bare, tmp_path):
    lines = PASTED[name](lines_of(case))
    assert diagnosis(written(tmp_path / "server.log", lines), case) == bare[case.name]
    if "rows" not in name:
        assert diagnosis(written(tmp_path / "server.log", WRAPPERS["compose"](lines)), case) == bare[case.name]


@pytest.mark.parametrize("text", ["2 < 3 && x; 'it’s'", 'name="a “b” c"', "a&b;c", "Loading 12: done"])
def test_text_that_is_no_entity_and_no_quotation_stays(text):
    assert [line.text for line in Unwrapper().lines(1, f"[2026-01-01 10:00:00] {text}")] == [f"[2026-01-01 10:00:00] {text}"]


def test_an_indentation_is_only_taken_off_where_every_record_has_it():
    unwrapper = Unwrapper()
    texts = ["  [2026-01-01 10:00:00] a", '    File "x"', "[2026-01-01 10:00:00] b", '    File "x"']
    read = [line.text for number, text in enumerate(texts, 1) for line in unwrapper.lines(number, text)]
    assert read == ["[2026-01-01 10:00:00] a", '  File "x"', "[2026-01-01 10:00:00] b", '    File "x"']


def each(cases):
    """The cases as parameters; those that are not in the repository are marked."""
    marks = {True: (), False: (pytest.mark.shared,)}
    return pytest.mark.parametrize(
        "case", [pytest.param(case, marks=marks[case in REAL], id=f"{case.parent.name}/{case.name}") for case in cases]
    )


def lines_of(case):
    return (case / "server.log").read_text(encoding="utf-8").removesuffix("\n").split("\n")


def inside(path):
    """What the reading room gives of a log, without where it stood; and whether it is all of one stream."""
    lines = [line for line in read_lines(str(path), Input(str(path))) if line.text]
    return [(line.text, line.cut, line.full) for line in lines], len({line.stream for line in lines}) == 1


@pytest.mark.parametrize("outer", WRAPPERS)
@each(ALL)
def test_wrappers_nest_in_any_order(case, outer, tmp_path):
    """The same lines of one stream give the same result; only where the lines differ is the whole log explained."""
    bare = written(tmp_path / "bare.log", lines_of(case))
    base, expected = inside(bare)[0], None
    for inner in WRAPPERS if case in REAL[-1:] or FULL else spread(case, outer):
        if inner == "joined" and outer != "joined":
            continue
        path = written(tmp_path / "server.log", WRAPPERS[outer](WRAPPERS[inner](lines_of(case))))
        if inside(path) != (base, True):
            expected = expected or outcome(bare, case)
            assert outcome(path, case) == expected, (outer, inner)


def spread(case, outer):
    """Two wrappers for this case and outer wrapper, others for others: over all cases every pair comes."""
    names = list(WRAPPERS)
    first = ALL.index(case) + names.index(outer)
    return [names[(first + step) % len(names)] for step in (0, len(names) // 2)]


@pytest.mark.parametrize("case", REAL[1::3], ids=[case.name for case in REAL[1::3]])
def test_line_ends_of_windows_change_nothing(case, bare, tmp_path):
    for name in ("compose", "docker-json", "shipper", "colour", "progress", "code-block"):
        assert diagnosis(written(tmp_path / "server.log", WRAPPERS[name](lines_of(case)), "\r\n"), case) == bare[case.name]


TAGGED = re.compile(r"\[\d{4}-\d\d-\d\d [\d:]+((?: [A-Z]+\d+)*)\]")


def by_rank(lines):
    """(rank, lines) of each record with the lines behind it."""
    records = []
    for line in lines:
        found = TAGGED.match(line)
        if found or not records:
            records.append((found[1].strip() if found else "", [line]))
        else:
            records[-1][1].append(line)
    return records


def unordered(diagnosis):
    """The parts of a diagnosis that come in the order of the log are of no order here."""
    for start in diagnosis.get("starts", ()):
        for part in ("numbers", "checks", "memory"):
            start[part] = sorted(start[part], key=lambda each: json.dumps(each, sort_keys=True, default=str))
    return diagnosis


RANKS = [case for case in ALL if len({rank for rank, _ in by_rank(lines_of(case))} - {""}) > 1]


@each(RANKS)
def test_the_order_in_which_ranks_print_changes_nothing(case, tmp_path):
    expected = unordered(outcome(written(tmp_path / "bare.log", lines_of(case)), case))
    for seed in range(4):
        draw, records = random.Random(seed), by_rank(lines_of(case))
        for _ in range(len(records) * (seed + 1)):
            at = draw.randrange(len(records) - 1)
            (first, _), (second, _) = records[at : at + 2]
            if first and second and first != second:
                records[at], records[at + 1] = records[at + 1], records[at]
        mixed = [line for _, lines in records for line in lines]
        assert unordered(outcome(written(tmp_path / "server.log", mixed), case)) == expected, seed


@each(RANKS)
def test_a_file_for_each_rank_is_one_start(case, tmp_path):
    expected = unordered(outcome(written(tmp_path / "bare.log", lines_of(case)), case))
    records = by_rank(lines_of(case))
    ranks = sorted({rank for rank, _ in records} - {""})
    files = [
        written(tmp_path / f"{rank}.log", [line for of, lines in records if of in own for line in lines])
        for rank, own in zip(ranks, [("", ranks[0]), *((rank,) for rank in ranks[1:])], strict=True)
    ]
    found = explain([str(file) for file in files], config=str(case))
    assert unordered(without_positions(to_dict(found))) == expected


@pytest.mark.parametrize("case", REAL[::2], ids=[case.name for case in REAL[::2]])
def test_a_log_in_which_each_line_stands_twice_is_read_as_one(case, bare, tmp_path):
    twice = written(tmp_path / "server.log", [line for line in lines_of(case) for _ in range(2)])
    assert diagnosis(twice, case) == bare[case.name]


def test_a_log_with_its_newest_line_first_is_refused_with_what_to_do(tmp_path):
    with pytest.raises(kvdiag.KvdiagError, match=r"newest line comes first.*tac "):
        kvdiag.explain(str(written(tmp_path / "server.log", lines_of(REAL[0])[::-1])))


@pytest.mark.parametrize(
    "before",
    [
        "2026-03-02T10:00:22.123456789Z\tINFO\t",
        "2026-03-02 10:00:00.123 | INFO     | sglang:main:1 - ",
        "0|sglang   | ",
        "[rank0]:",
        "node7 (unit 3) => ",
    ],
)
@pytest.mark.parametrize("case", [case for case in REAL if "fail" in case.name], ids=lambda case: case.name)
def test_what_stands_before_records_is_learnt_and_taken_off_the_traceback_too(case, before, bare, tmp_path):
    lines = [before + line for line in lines_of(case)]
    assert (
        diagnosis(written(tmp_path / "server.log", lines), case)["starts"][0]["findings"]
        == bare[case.name]["starts"][0]["findings"]
    )
