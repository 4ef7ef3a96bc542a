"""The source's own sums with the log's values."""

from __future__ import annotations

import ast
import json
import operator
from fractions import Fraction

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import kvdiag
from kvdiag.quantity import Interval
from kvdiag.source import open_tree
from kvdiag.source.evaluate import Evaluator, Unknown, exactly
from kvdiag.source.parsed import Parsed
from kvdiag.source.running import follow
from kvdiag.source.syntax import find, parse
from tests.source_trees import LOG, SIZING, TREE, copied, edit


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def tree(tmp_path):
    return copied(tmp_path)


def check(diagnosis, name):
    return next(found for found in diagnosis.starts[0].checks if found.name == name)


def codes(diagnosis):
    return {finding.code for item in diagnosis.starts for finding in item.findings}


def test_scenario_3_the_tree_s_own_budget_with_the_log_s_values_holds_the_printed_pool():
    diagnosis = kvdiag.explain(str(LOG), source=str(TREE))
    steps = [step for step in check(diagnosis, "rest_memory").code if step.step == "reduced" and step.value]
    (budget,) = steps
    low, high = (float(bound) for bound in budget.value.split(".."))
    assert low <= 10.424 <= high
    assert budget.file == SIZING
    assert "rest_memory =" in (TREE / budget.file).read_text().splitlines()[budget.line - 1]
    (division,) = [step for step in check(diagnosis, "max_total_num_tokens").code if step.step == "divided"]
    low, high = (int(bound.replace(",", "")) for bound in division.value.split(".."))
    assert low <= 159_277 <= high
    assert not codes(diagnosis) & {"KV150", "KV151"}


def test_every_check_has_file_and_line_in_the_json(kvdiag):
    done = kvdiag("explain", str(LOG), "--source", str(TREE), "--format", "json")
    assert done.returncode == 0, done.stderr
    checks = json.loads(done.stdout)["starts"][0]["checks"]
    placed = [found for found in checks if found["name"] in ("bytes_per_token", "rest_memory", "max_total_num_tokens")]
    assert placed
    for found in placed:
        assert all(step["file"] and step["symbol"] and step["line"] for step in found["code"])


@pytest.mark.parametrize(
    ("before", "after", "name"),
    [
        ("(1 - self.mem", "(0.9 - self.mem", "rest_memory"),
        ("* kv_size\n        else", "* kv_size * 2\n        else", "bytes_per_token"),
        ("(1 << 30)", "10**9", "max_total_num_tokens"),
        ("return int(rest_memory", "return 0.9 * int(rest_memory", "max_total_num_tokens"),
    ],
)
def test_a_patched_formula_is_a_finding_with_its_place(tree, before, after, name):
    edit(tree, before, after)
    findings = [found for found in kvdiag.explain(str(LOG), source=str(tree)).starts[0].findings if found.code == "KV150"]
    assert [name in found.title for found in findings] == [True]
    assert SIZING in findings[0].message


def test_an_edit_that_changes_no_result_is_no_finding(tree):
    edit(tree, "total_gpu_memory * (1 - self.mem_fraction_static)", "(1 - self.mem_fraction_static) * total_gpu_memory")
    assert "KV150" not in codes(kvdiag.explain(str(LOG), source=str(tree)))


def test_a_tree_of_another_release_is_told(tree):
    (tree / "python/sglang/version.py").write_text('__version__ = "0.5.8"\n')
    finding = next(f for f in kvdiag.explain(str(LOG), source=str(tree)).starts[0].findings if f.code == "KV151")
    assert "0.5.8" in finding.message
    assert "0.5.9" in finding.message


def test_what_depends_on_an_unknown_condition_is_unknown_not_guessed():
    root = parse(b"def f(a):\n    b = a * 2\n    if mystery(a):\n        b = b + 1\n    c = b + 1\n    return c\n")
    function = find(root, "f")
    followed = follow(function, {"a": exactly(3)})
    assert isinstance(followed.returned, Unknown)
    assert "mystery" in followed.returned.why
    assert followed.at[2] == exactly(6)
    decided = follow(function, {"a": exactly(3), "mystery()": False})
    assert decided.returned == exactly(7)


numbers = st.integers(-50, 50).map(str)
expressions = st.recursive(
    numbers.map(lambda number: f"({number})") | st.sampled_from(["x", "self.y"]),
    lambda inner: (
        st.tuples(inner, st.sampled_from(["+", "-", "*", "//", "/"]), inner).map(lambda parts: "({} {} {})".format(*parts))
        | st.tuples(st.sampled_from(["min", "max"]), inner, inner).map(lambda parts: "{}({}, {})".format(*parts))
        | inner.map(lambda one: f"int({one})")
    ),
    max_leaves=8,
)


@settings(suppress_health_check=[HealthCheck.too_slow])  # a loaded machine draws slowly
@given(expressions, st.integers(-20, 20), st.integers(0, 9), st.integers(-20, 20), st.integers(0, 9), st.data())
def test_the_evaluator_s_interval_holds_every_result(expression, x, x_width, y, y_width, data):
    root = parse(expression.encode()).children[0].children[0]
    known = {"x": Interval(Fraction(x), Fraction(x + x_width), ""), "self.y": Interval(Fraction(y), Fraction(y + y_width), "")}
    value = Evaluator(known).value(root)
    if isinstance(value, Unknown):
        return
    picked_x, picked_y = data.draw(st.integers(x, x + x_width)), data.draw(st.integers(y, y + y_width))
    exact = _exact(ast.parse(expression, mode="eval").body, {"x": Fraction(picked_x), "y": Fraction(picked_y)})
    assert value.low <= exact <= value.high


def _exact(node, names):
    """The value by Python's own parser, in fractions throughout as floats would round."""
    if isinstance(node, ast.Call):
        values = [_exact(argument, names) for argument in node.args]
        return {"min": min, "max": max, "int": lambda only: Fraction(int(only))}[node.func.id](*values)
    if isinstance(node, ast.BinOp):
        left, right = _exact(node.left, names), _exact(node.right, names)
        operators = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv}
        return operators[type(node.op)](left, right) if type(node.op) in operators else Fraction(left // right)
    if isinstance(node, ast.UnaryOp):
        return -_exact(node.operand, names)
    if isinstance(node, ast.Constant):
        return Fraction(node.value)
    return names[node.id if isinstance(node, ast.Name) else node.attr]


@pytest.mark.parametrize(
    "text", ["9" * 5000, "1 << 10**9", "2 ** 10**9", "(" * 3000 + "1" + ")" * 3000, "-" * 5000 + "1", "1 / 0", "x.y.z()"]
)
def test_hostile_arithmetic_gives_unknown_or_a_number_at_once(text):
    root = parse(text.encode())
    for node in root.children[:1]:
        Evaluator({}).value(node.children[0] if node.children else node)


def test_a_call_within_the_file_is_followed_and_an_unknown_argument_stays_unknown():
    source = (
        b"def g(n, k):\n    return n * k\n\ndef f(a):\n    return g(a, 2) + g(n=a, k=3)\n\ndef h(a):\n    return g(a, odd(a))\n"
    )
    root = parse(source)
    assert follow(find(root, "f"), {"a": exactly(4)}).returned == exactly(20)
    assert isinstance(follow(find(root, "h"), {"a": exactly(4), "k": exactly(1)}).returned, Unknown)
    looped = parse(b"def f(a):\n    return f(a) + 1\n")
    assert isinstance(follow(find(looped, "f"), {"a": exactly(4)}).returned, Unknown)


def test_a_call_into_another_file_or_a_base_class_is_followed_where_only_one_function_is_meant(tmp_path):
    package = tmp_path / "sglang" / "srt"
    package.mkdir(parents=True)
    (package / "far.py").write_text(
        "class Base:\n    def twice(self, n=1):\n        return n * 2\n\ndef add(a, k=5):\n    return a + k\n"
    )
    (package / "near.py").write_text(
        "from sglang.srt.far import Base\n\nclass Own(Base):\n    def total(self, a):\n"
        "        from sglang.srt.far import add as plus\n        return plus(a) + self.twice(a)\n\n"
        "def odd(a):\n    if x:\n        from sglang.srt.far import add\n    else:\n        from sglang.srt.other import add\n"
        "    return add(a)\n\ndef gone(a):\n    from sglang.srt.far import missing\n    return missing(a)\n"
    )
    parsed = Parsed(open_tree(str(tmp_path)))
    known = {"a": exactly(3), "k": exactly(100), "n": exactly(100)}
    assert follow(parsed.symbol("srt/near.py", "Own.total"), known, parsed=parsed).returned == exactly(14)
    for name in ("odd", "gone"):
        assert isinstance(follow(parsed.symbol("srt/near.py", name), known, parsed=parsed).returned, Unknown)
