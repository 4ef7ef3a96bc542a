"""What two trees have different in the path of a number: nothing is left out, and what is only named otherwise is said so."""

from __future__ import annotations

import pytest

from kvdiag.source import code_path, open_tree, path_changes
from kvdiag.source.answer import changes_answer
from kvdiag.source.syntax import condition, find, of_types, parse
from tests.source_trees import SIZING, TREE, copied, edit

pytestmark = pytest.mark.usefixtures("own_cache")


def test_changes_name_what_came_into_an_expression_and_what_moved(tree):
    edit(
        tree,
        "- total_gpu_memory * (1 - self.mem_fraction_static)",
        "- total_gpu_memory * (1 - self.mem_fraction_static) - self.draft_bytes",
    )
    changes = path_changes(open_tree(str(TREE)), open_tree(str(tree)), "rest_memory")
    (change,) = changes
    assert (change.kind, change.step, change.added, change.dropped) == ("expression", "reduced", ("draft_bytes",), ())
    assert "draft_bytes came in" in change.sentence
    assert path_changes(open_tree(str(TREE)), open_tree(str(TREE)), "rest_memory") == []


BUDGET = "available_gpu_memory - total_gpu_memory * (1 - self.mem_fraction_static)"


@pytest.mark.parametrize(
    ("before", "after", "kinds", "told"),
    [
        (BUDGET, BUDGET.replace(" - ", "  -  "), [], ""),
        ("* (1 - self.mem_fraction_static)", "* (1 - self.mem_fraction_static) * 0.98", ["expression"], "0.98 came in"),
        ("(1 - self.mem_fraction_static)", "(self.mem_fraction_static - 1)", ["expression"], "put together in another way"),
        ("rest_memory = available", "budget = available", ["expression", "function"], "budget = available"),
        (
            "rest_memory = available",
            "if odd():\n            return 12345\n        rest_memory = available",
            ["expression"],
            "return 12345",
        ),
        ("if self.mambaish_config is not None:\n            rest", "if odd():\n            rest", ["expression"], "odd"),
    ],
)
def test_a_change_that_may_give_another_number_is_told_and_layout_is_not(tree, before, after, kinds, told):
    edit(tree, before, after)
    changes = path_changes(open_tree(str(TREE)), open_tree(str(tree)), "rest_memory")
    assert [change.kind for change in changes] == kinds
    assert told in " ".join(f"{change.sentence} {change.after}" for change in changes)


COMMON = "python/sglang/srt/utils/common.py"
RUNNER = "python/sglang/srt/model_executor/model_runner.py"
RETURNED = "return int(rest_memory * (1 << 30)) // cell_size"


def between(tree, number="max_total_num_tokens"):
    return path_changes(open_tree(str(TREE)), open_tree(str(tree)), number)


@pytest.mark.parametrize(
    ("before", "after", "file", "name"),
    [
        ("/ (1 << 30)", "/ (1 << 30) - 1", COMMON, "get_available_gpu_memory"),
        ("def get_available_gpu_memory(device, gpu_id)", "def get_available_gpu_memory(device, gpu_id=1)", COMMON, "get_avail"),
        (
            "    def load_model",
            "    def f(self):\n        self.mem_fraction_static = 1\n\n    def load_model",
            RUNNER,
            "mem_fraction",
        ),
        ("dtype=dtype).element_size()", "dtype=dtype).element_size() * 2", COMMON, "element_size"),
        ("self.rows = size", "self.rows = 2 * size", "python/sglang/srt/mem_cache/pools.py", "TokenPool.__init__"),
    ],
)
def test_what_the_path_s_statements_need_and_do_not_list_is_compared(tree, before, after, file, name):
    edit(tree, before, after, file)
    (change,) = between(tree)
    assert change.kind == "reached"
    assert name in change.sentence
    assert set(change.before) != set(change.after)


def test_a_constant_of_another_file_is_compared_through_star_imports_and_other_names(tree, tmp_path):
    edit(tree, "(1 << 30)", "GIB")
    edit(tree, "import logging\n", "import logging\nfrom sglang.srt.units import GIGA as GIB\n")
    (tree / "python/sglang/srt/units").mkdir()
    (tree / "python/sglang/srt/units/__init__.py").write_text("from sglang.srt.units.binary import *\n")
    (tree / "python/sglang/srt/units/binary.py").write_text("GIGA = 1 << 30\n")
    (tmp_path / "other").mkdir()
    other = copied(tmp_path / "other")
    for file in ("units/__init__.py", "units/binary.py", "model_executor/model_runner_kv_cache_mixin.py"):
        place = other / "python/sglang/srt" / file
        place.parent.mkdir(exist_ok=True)
        place.write_text((tree / "python/sglang/srt" / file).read_text().replace("1 << 30", "10**9"))
    (change,) = path_changes(open_tree(str(tree)), open_tree(str(other)), "max_total_num_tokens")
    assert (change.before, change.after) == (("GIGA = 1 << 30",), ("GIGA = 10**9",))


@pytest.mark.parametrize(
    "statement",
    [
        "ModelRunnerKVCacheMixin.profile_max_num_token = other",
        "setattr(ModelRunnerKVCacheMixin, 'profile_max_num_token', other)",
        "del ModelRunnerKVCacheMixin.profile_max_num_token",
    ],
)
def test_a_method_that_its_file_replaces_is_not_shown_as_certain_and_is_a_change(tree, statement):
    place = tree / SIZING
    place.write_text(f"{place.read_text()}\n\ndef other(self, total):\n    return 4242\n\n\n{statement}\n")
    path = code_path(open_tree(str(tree)), "max_total_num_tokens")
    assert {step.confidence for step in path.steps if step.symbol.endswith("profile_max_num_token")} == {"possible"}
    assert any(statement in told for told in path.damaged)
    assert any(statement in change.after for change in between(tree))


def test_a_method_that_another_file_replaces_is_a_change(tree):
    patch = "def apply():\n    ModelRunnerKVCacheMixin.profile_max_num_token = other\n"
    origin = "from sglang.srt.model_executor.model_runner_kv_cache_mixin import ModelRunnerKVCacheMixin\n"
    (tree / "python/sglang/srt/plugin.py").write_text(f"{origin}\n\ndef other(self, total):\n    return 4242\n\n\n{patch}")
    assert any("ModelRunnerKVCacheMixin.profile_max_num_token = other" in change.after for change in between(tree))


def test_what_several_imports_may_mean_is_named_as_not_followed(tree):
    edit(
        tree,
        "from sglang.srt.utils.common import element",
        "from sglang.srt.utils.other import element_size\nfrom sglang.srt.utils.common import element",
    )
    answer = changes_answer(open_tree(str(tree)), open_tree(str(tree)), "max_total_num_tokens")
    assert "element_size" in answer["not_followed"]


def test_a_variable_or_function_under_another_name_is_followed_and_said_so(tree):
    edit(tree, "rest_memory", "budget")
    edit(tree, "profile_max_num_token", "profile_tokens")
    changes = between(tree)
    assert {change.kind for change in changes} == {"renamed"}
    assert all("is called" in change.sentence for change in changes)


def test_a_renamed_variable_is_no_term_of_another_change(tree):
    edit(tree, "rest_memory", "budget")
    edit(tree, "budget * (1 << 30)", "budget * 10**9")
    *renamed, change = between(tree)
    assert {item.kind for item in renamed} == {"renamed"}
    assert (change.added, change.dropped) == (("10", "9"), ("1", "30"))


def test_a_function_that_is_renamed_and_edited_is_said_not_to_be_followed(tree):
    edit(tree, "profile_max_num_token", "profile_tokens")
    edit(tree, "1 - self.mem_fraction_static", "2 - self.mem_fraction_static")
    changes = between(tree, "rest_memory")
    assert {change.kind for change in changes} == {"not followed"}
    assert all("cannot be followed" in change.sentence for change in changes)


@pytest.mark.parametrize(
    ("before", "after", "shown"),
    [
        ("= min(self.max_total_num_tokens,", "= max(self.max_total_num_tokens,", "= max(self.max_total_num_tokens,"),
        (RETURNED, f"result = {RETURNED[7:]}\n        return result - 1000", "return result - 1000"),
    ],
)
def test_what_stands_in_the_place_of_a_statement_is_shown(tree, before, after, shown):
    edit(tree, before, after)
    change = next(change for change in between(tree) if change.kind == "expression")
    assert any(shown in told for told in change.after)


def test_nothing_is_said_with_what_was_compared_and_what_was_not(tree):
    edit(tree, "available_gpu_memory = get", "available_gpu_memory   =   get")
    answer = changes_answer(open_tree(str(tree)), open_tree(str(TREE)), "max_total_num_tokens")
    assert answer["changes"] == []
    assert answer["reached"] >= 3
    assert "self.model_config.get_num_kv_heads" in answer["not_followed"]


def test_a_condition_is_all_that_must_hold():
    source = (
        b"def f(self):\n    if self.a:\n        x = 1\n    elif b or c:\n        x = 2\n"
        b"    else:\n        if d:\n            x = 3\n"
        b"    try:\n        x = 4\n    except ValueError:\n        x = 5\n    for y in z:\n        while e:\n            x = 6\n"
    )
    function = find(parse(source), "f")
    found = [condition(node, function) for node in of_types(function, ("assignment",))]
    assert found == ["self.a", "not (self.a) and (b or c)", "not (self.a) and not (b or c) and d", "", "except ValueError", "e"]
