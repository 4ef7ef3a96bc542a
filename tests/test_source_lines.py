"""From a line of a log to the statement that printed it, in a file of every way in which code puts a line together."""

from __future__ import annotations

import re
import time

import pytest

from kvdiag.source import open_tree
from kvdiag.source.find_line import find_line
from kvdiag.source.line_answer import line_answer
from kvdiag.source.parsed import Parsed
from kvdiag.source.template import shown
from tests.source_trees import TREE

pytestmark = pytest.mark.usefixtures("own_cache")


LINES = [
    ("plain words only here", "plain", []),
    ("f-string with 3 items and 0.250 of it", "f_string", ["3", "0.250"]),
    ("debug form count=3 then self.ratio=0.25", "debug_form", ["3", "0.25"]),
    ("braces {kept} around 'x'", "braces", ["'x'"]),
    ("percent with 3 of cards at 12.5%", "percent", ["3", "cards", "12.5"]),
    ("operator form cards and 00007", "percent_operator", ["cards", "00007"]),
    ("format method 3 and cards at 0.25", "format_method", ["3", "cards", "0.25"]),
    ("joined by plus 3 then cards the end", "concatenation", ["3", "cards"]),
    ("neighbouring literals with cards of both quotes", "neighbours", ["cards"]),
    ("conditional second branch of cards", "conditional", ["cards"]),
    ("built before cards", "variable", ["cards"]),
    ("grown in steps: [a] named cards", "grown", ["a", "cards"]),
    ("grown in steps: flag set", "grown", []),
    ("ValueError: replaced text two", "replaced", []),
    ("replaced text one cards", "replaced", ["cards"]),
    ("listed first=1; listed second=2", "listed", ["1", "2"]),
    ("RuntimeError: several lines begin with cards", "several_lines", ["cards"]),
    ("second physical line stands alone", "several_lines", []),
    ("third holds 3 values", "several_lines", ["3"]),
    ("AssertionError: asserted that self.count=0 is positive", "asserted", ["0"]),
    ("printed with 3 parts", "printed", ["3"]),
    ("warned about cards once", "warned", ["cards"]),
    ("helper prints cards on one rank", "helper", ["cards"]),
    ("constant format with 3 slots", "module_constant", ["3"]),
    ('escapes "quoted" and tab\there for cards', "escapes", ["cards"]),
    ("============================== ruled cards", "rule", ["cards"]),
    ("returned text of cards for others", "returned", ["cards"]),
]


@pytest.mark.parametrize(("line", "function", "values"), LINES, ids=[line[:30] for line, _, _ in LINES])
@pytest.mark.parametrize("prefix", ["", "[2025-01-15 10:22:41 TP0] "])
def test_a_line_is_led_back_to_its_statement_and_values(parsed, line, function, values, prefix):
    found = find_line(parsed, prefix + line)
    assert found, line
    assert found[0].message.symbol == f"Forms.{function}"
    assert [value for _, value in found[0].fit.values] == values
    assert found[0].confidence != "possible"


def test_a_line_put_together_over_statements_is_bound_whole(parsed):
    (found, *_) = find_line(parsed, "Decode step, #running: 12, #token: 18240, state usage: 0.21, accept len: 2.50, #queue: 5")
    assert found.message.symbol == "Scheduler.report_decode"
    assert [value for _, value in found.fit.values] == ["12", "18240", "0.21", "2.50", "5"]
    assert found.confidence == "certain"


def test_two_places_that_print_alike_are_both_shown_and_none_as_certain(parsed):
    found = find_line(parsed, "twin message printed from two places")
    assert [candidate.message.symbol for candidate in found] == ["Forms.twin_one", "Forms.twin_two"]
    assert {candidate.confidence for candidate in found} == {"possible"}


def test_a_line_the_tree_does_not_print_has_no_statement():
    answer = line_answer(open_tree(str(TREE)), "INFO 01-15 worker.py:12] Memory profiling takes 3.21 seconds")
    assert answer["statement"] is None
    assert answer["bindings"] == []


def test_a_value_is_walked_back_through_tuple_call_and_attribute():
    line = "max_total_num_tokens=159277, max_running_requests=48, context_len=262144"
    answer = line_answer(open_tree(str(TREE)), line)
    bound = {item["name"]: item for item in answer["bindings"]}
    capacity = bound["self.max_total_num_tokens"]
    assert capacity["value"] == "159277"
    expressions = [origin["expression"] for origin in capacity["defined_at"]]
    assert "get_worker_info()" in expressions[0]
    assert any(expression.startswith("self.max_total_num_tokens = min(") for expression in expressions)
    assert any("// self.page_size" in expression for expression in expressions)
    assert not any("max_running_requests =" in expression for expression in expressions[2:])


@pytest.mark.parametrize("line", ["x" * 20_000, "a: " * 5_000, "#token: " * 2_000 + "end", "\x00\x1b[31m", "{{}}%d%s"])
def test_a_hostile_line_gets_an_answer_in_bounded_time(parsed, line):

    begun = time.perf_counter()
    find_line(parsed, line)
    assert time.perf_counter() - begun < 2


def test_a_file_of_thousands_of_texts_given_to_names_is_read_in_bounded_time(tmp_path):

    package = tmp_path / "sglang" / "srt"
    package.mkdir(parents=True)
    texts = (f'text_{index} = "Setting the number of things"\nprint(text_{index}, {index})\n' for index in range(3000))
    (package / "many.py").write_text("".join(texts))
    begun = time.process_time()
    assert find_line(Parsed(open_tree(str(tmp_path))), "Setting the number of things")
    assert time.process_time() - begun < 3


@pytest.mark.parametrize("line", [line for line, _, _ in LINES], ids=[line[:30] for line, _, _ in LINES])
def test_the_template_shown_is_the_line_once_its_values_are_put_in(parsed, line):
    (found, *_) = find_line(parsed, line)
    template = shown(found.message.template, iter(found.fit.taken))
    for hole, value in found.fit.values:
        written = "{" + hole.expression + (f":{hole.format}" if hole.format else "") + "}"
        assert written in template
        template = template.replace(written, value, 1)
    without_exception = re.sub(r"^\w+Error: ", "", line)
    assert template.strip() in (line, without_exception)
