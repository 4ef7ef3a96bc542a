"""How the statements of a path are found: by the rule's selectors, through every form of an assignment and of an import."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kvdiag.errors import RuleError
from kvdiag.source import open_tree, path_changes
from kvdiag.source.anchors import _number
from kvdiag.source.answer import MOST_KEPT, number_answer
from kvdiag.source.evaluate import Unknown, exactly
from kvdiag.source.modules import imports
from kvdiag.source.parsed import Parsed
from kvdiag.source.running import follow
from kvdiag.source.statements import assignments, element_of, parse_selector
from kvdiag.source.syntax import find, line, parse, text
from tests.source_trees import SIZING, TREE, edit

pytestmark = pytest.mark.usefixtures("own_cache")
UNITS, VERSION = "python/sglang/srt/units.py", "python/sglang/version.py"

SOURCE = b"""
def sized(self, args):
    self.tokens: int = count(self.free)
    first, (tokens, rest) = pair(args)
    if (tokens := other(args)):
        tokens += 2
    declare_resolution(args, "sized", tokens=7)
    logger.info("made %d tokens", tokens)
    print(kept(tokens=9))
    if not tokens:
        raise ValueError("no tokens")
    return None
    return max(tokens, 1)
"""


@pytest.mark.parametrize(
    ("written", "lines"),
    [
        ("assign tokens", [3, 4, 5, 6, 7]), ("assign self.tokens", [3]), ("assign tokens has other", [5]), ("assign nothing", []),
        ("call declare_resolution", [7]), ("call count has free", [3]), ("call count has args", []), ("log made", [8]),
        ("log sized", [7]), ("raise", [11]), ("raise has no tokens", [11]), ("raise has other", []), ("return", [13]),
        ("return has max", [13]), ("return has min", []),
    ],
)  # fmt: skip
def test_a_selector_finds_its_statements(written, lines):
    assert sorted(line(node) for node in parse_selector(written).matches(find(parse(SOURCE), "sized"))) == lines


def test_an_unknown_selector_is_refused_with_the_known_ones():
    with pytest.raises(RuleError, match="statements begin with one of assign, return"):
        parse_selector("give tokens")


def test_which_element_of_a_value_a_name_is_given():
    given = {
        text(statement).split(" = ")[0]: statement for statement, _ in assignments(parse(b"a, b = pair()\nc = one()\n"), "b")
    }
    assert element_of(given["a, b"], "b") == 1
    ((statement, _),) = assignments(parse(b"c = one()\n"), "c")
    assert element_of(statement, "c") is None


@pytest.mark.parametrize(
    ("statement", "module"),
    [
        ("from sglang.srt.utils import tokens", "srt/utils"), ("from .near import tokens", "srt/managers/near"),
        ("from ..utils.far import tokens", "srt/utils/far"), ("from . import tokens", "srt/managers"),
        ("from torch import tokens", None),
        ("import tokens", None), ("from sglang.srt.utils import other as tokens", "srt/utils"),
        ("from sglang.srt.utils import tokens as other", None),
    ],
)  # fmt: skip
def test_an_import_is_led_to_the_module_it_means(statement, module):
    found = list(imports(parse(statement.encode() + b"\nprint(tokens)\n"), "srt/managers/here.py", "tokens"))
    assert [place for place, _ in found] == ([module] if module else [])
    assert all(name == ("other" if "other as" in statement else "tokens") for _, name in found)


def chain(folder, length):
    package = folder / "sglang" / "srt"
    package.mkdir(parents=True)
    for index in range(length):
        (package / f"m{index}.py").write_text(f"from .m{index + 1} import far\n")
    (package / f"m{length}.py").write_text("def far(a):\n    return a * 2\n")
    (package / "user.py").write_text("from .m0 import far\n\ndef use(a):\n    return far(a)\n")
    return Parsed(open_tree(str(folder)))


@pytest.mark.parametrize(("length", "followed"), [(2, True), (6, False)])
def test_an_import_is_followed_through_files_only_so_far(tmp_path, length, followed):
    parsed = chain(tmp_path, length)
    returned = follow(parsed.symbol("srt/user.py", "use"), {"a": exactly(3)}, parsed=parsed).returned
    assert returned == exactly(6) if followed else isinstance(returned, Unknown)


BASES = """
class Root:
    def size(self, a):
        return a + 1


class Left(Root):
    pass


class Right(Left, Root):
    def total(self, a):
        return self.size(a)


class Loop(Loop):
    def total(self, a):
        return self.size(a)


class Foreign(other.Base):
    def total(self, a):
        return self.size(a)


class Twice:
    def size(self, a):
        return 1

    def size(self, a):
        return 2

    def total(self, a):
        return self.size(a)
"""


@pytest.mark.parametrize(("owner", "followed"), [("Right", True), ("Loop", False), ("Foreign", False), ("Twice", False)])
def test_a_method_is_looked_for_in_bases_that_are_certain(owner, followed):
    returned = follow(find(parse(BASES.encode()), f"{owner}.total"), {"a": exactly(3)}).returned
    assert returned == exactly(4) if followed else isinstance(returned, Unknown)


def test_a_measured_value_is_the_log_s_where_its_statement_cannot_be_worked_out():
    function = find(parse(b"def f(self):\n    rest = self.a @ self.b\n    return rest\n"), "f")
    assert isinstance(follow(function, {}).returned, Unknown)
    assert follow(function, {"rest": exactly(5)}).returned == exactly(5)


def test_a_call_with_more_arguments_than_parameters_takes_those_it_has():
    root = parse(b"def g(a):\n    return a * 2\n\ndef f(b):\n    return g(b, b, *b)\n\ndef h(b):\n    return\n")
    assert follow(find(root, "f"), {"b": exactly(3)}).returned == exactly(6)
    assert follow(find(root, "h"), {"b": exactly(3)}).returned is None


def test_a_step_that_only_one_tree_has_came_in_went_away_or_cannot_be_followed(tree):
    (tree / VERSION).write_text('__version__ = "0.5.23"\n')
    there, back = (
        {(change.kind, change.step): change.sentence for change in path_changes(older, newer, "max_total_num_tokens")}
        for older, newer in ((open_tree(str(TREE)), open_tree(str(tree))), (open_tree(str(tree)), open_tree(str(TREE))))
    )
    assert "came in between 0.5.9 and 0.5.23" in there["step added", "weights in the budget"]
    assert "went away between 0.5.23 and 0.5.9" in back["step dropped", "weights in the budget"]
    assert "went away between 0.5.9 and 0.5.23" in there["step dropped", "allocated"]
    assert "calculate_pool_sizes is not in" in there["not followed", "divided"]
    assert "came in between 0.5.23 and 0.5.9" in back["step added", "divided"]


def test_far_definitions_that_differ_too_are_named_without_their_statements(tree, tmp_path):
    names = [f"far_{index}" for index in range(24)]
    edit(tree, "(1 << 30)", f"({' + '.join(names)})")
    edit(tree, "import logging\n", f"import logging\nfrom sglang.srt.units import {', '.join(names)}\n")
    (tree / UNITS).write_text("".join(f"{name} = 1\n" for name in names))
    other = Path(shutil.copytree(tree, tmp_path / "other"))
    (other / UNITS).write_text("".join(f"{name} = 2\n" for name in names))
    changes = path_changes(open_tree(str(tree)), open_tree(str(other)), "max_total_num_tokens")
    assert [change.kind for change in changes] == ["reached"] * 7
    assert all(change.before for change in changes[:6])
    assert changes[-1].sentence.startswith("Further away and different too: ")
    assert changes[-1].sentence.endswith(" and 6 more.")


@pytest.mark.parametrize(
    ("document", "word"),
    [
        ({"number": "n"}, "the key 'step' is missing"),
        ({"number": "n", "step": [{"step": "s", "explains": "", "at": ["0.5.9.. file"]}]}, "is not RANGES FILE SYMBOL"),
        ({"number": "n", "step": [{"step": "s", "explains": "", "at": [], "statements": ["take x"]}]}, "statements begin"),
    ],
)
def test_a_rule_of_a_number_that_is_not_of_the_shape_is_refused(document, word):
    with pytest.raises(RuleError, match=word):
        _number({"_path": "numbers/n.toml", **document})


def test_only_so_many_answers_are_kept_and_a_damaged_one_is_made_anew(tmp_path, tree):
    first = number_answer(open_tree(str(tree)), "rest_memory")
    (kept,) = (tmp_path / "cache").rglob("source/*.json")
    for damaged in ("{", "[]", '{"schema": "other"}'):
        kept.write_text(damaged)
        assert number_answer(open_tree(str(tree)), "rest_memory") == first
    for index in range(MOST_KEPT + 5):
        (kept.parent / f"{index}.json").write_text("{}")
    edit(tree, "(1 - self.mem", "(2 - self.mem", SIZING)
    number_answer(open_tree(str(tree)), "rest_memory")
    assert len(list(kept.parent.glob("*.json"))) == MOST_KEPT


def test_without_a_place_to_keep_answers_they_are_still_given(tmp_path, tree):
    (tmp_path / "cache").write_text("a file where the folder would be")
    assert number_answer(open_tree(str(tree)), "rest_memory")["path"]
