"""A log says the same whatever it was wrapped in."""

from __future__ import annotations

import re

import pytest

import kvdiag
from kvdiag.reports.json_report import to_dict
from tests.conftest import FIXTURES
from tests.wrappers import WRAPPERS

REAL = sorted((FIXTURES / "real").iterdir())
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


def written(path, lines, end="\n"):
    path.write_text("".join(line + end for line in lines), encoding="utf-8", newline="")
    return path


@pytest.mark.parametrize("name", WRAPPERS)
@pytest.mark.parametrize("case", REAL[::3], ids=[case.name for case in REAL[::3]])
def test_a_wrapped_log_gives_the_result_of_the_bare_one(case, name, bare, tmp_path):
    lines = (case / "server.log").read_text(encoding="utf-8").split("\n")[:-1]
    assert diagnosis(written(tmp_path / "server.log", WRAPPERS[name](lines)), case) == bare[case.name]


@pytest.mark.parametrize("outer", WRAPPERS)
def test_wrappers_nest_in_any_order(outer, bare, tmp_path):
    case = REAL[-1]
    lines = (case / "server.log").read_text(encoding="utf-8").split("\n")[:-1]
    for inner in WRAPPERS:
        if inner == "joined" and outer != "joined":
            continue
        path = written(tmp_path / "server.log", WRAPPERS[outer](WRAPPERS[inner](lines)))
        assert diagnosis(path, case) == bare[case.name], (outer, inner)
