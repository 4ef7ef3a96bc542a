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
from tests.conftest import FIXTURES
from tests.source_trees import LOG, SIZING, TREE, edit

pytestmark = pytest.mark.usefixtures("own_cache")


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


LATER = "python/sglang/srt/model_executor/pool_configurator.py"
LATER_SIZING = "python/sglang/srt/mem_cache/kv_cache_configurator.py"


@pytest.fixture
def later(tmp_path):
    """The statements of a release in which budget and division are methods of two classes."""
    root = tmp_path / "later"
    files = {
        "python/sglang/version.py": '__version__ = "0.5.22"\n',
        LATER_SIZING: (
            "class KVCacheConfigurator:\n    def _profile_available_bytes(self, pre_model_load_memory):\n"
            "        available_gpu_memory = get_available_gpu_memory(self.device)\n"
            "        rest_memory = available_gpu_memory - pre_model_load_memory * (1 - self.mem_fraction_static)\n"
            "        if self.mambaish_config is not None:\n            rest_memory = self._handle_max_mamba_cache(rest_memory)\n"
            "        return int(rest_memory * (1 << 30))\n"
        ),
        LATER: (
            "class DefaultPoolConfigurator:\n    def __init__(self, kvc):\n"
            "        self._cell_size = self._compute_cell_size(kvc, kvc.num_effective_layers)\n"
            "        if kvc.spec_algorithm.is_eagle():\n            self._cell_size += kvc.draft_size\n\n"
            "    def _compute_cell_size(self, kvc, num_layers):\n"
            "        cell_size = kvc.get_num_kv_heads() * (kvc.head_dim + kvc.v_head_dim) * num_layers * kvc.element_size()\n"
            "        return cell_size\n\n"
            "    def calculate_pool_sizes(self, available_bytes, page_size):\n"
            "        max_total_num_tokens = available_bytes // self._cell_size\n"
            "        return max_total_num_tokens // page_size * page_size\n"
        ),
    }
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def held(name, tree):
    """A real log with its model's config, held against a tree."""
    case = FIXTURES / "real" / name
    return kvdiag.explain(str(case / "server.log"), config=str(case), source=str(tree))


def test_a_division_that_is_handed_its_budget_is_evaluated_and_held_against_ours(later):
    found = check(held("0.5.23-qwen3-memfrac005-nocap", later), "max_total_num_tokens")
    (value,) = [step.value for step in found.code if step.step == "divided" and step.value]
    low, high = (int(bound.replace(",", "")) for bound in value.split(".."))
    assert (low, high) == (found.recomputed.low, found.recomputed.high)
    edit(later, "available_bytes // self", "available_bytes // 2 // self", LATER)
    assert "KV150" in codes(held("0.5.23-qwen3-memfrac005-nocap", later))


def test_the_budget_of_a_model_with_windows_is_held_against_ours(later):
    assert "KV150" not in codes(held("0.5.22-gpt-oss-swa-triton", later))
    edit(later, "(1 - self.mem", "(0.9 - self.mem", LATER_SIZING)
    assert "KV150" in codes(held("0.5.22-gpt-oss-swa-triton", later))


def test_a_part_of_the_budget_is_not_taken_for_the_budget_where_that_is_not_known(later):
    edit(
        later,
        "        if self.mambaish",
        "        if odd():\n            rest_memory = odd()\n        if self.mambaish",
        LATER_SIZING,
    )
    edit(
        later,
        "rest_memory = available",
        "slack_gb = pre_model_load_memory * 0.1\n        rest_memory = odd() - available",
        LATER_SIZING,
    )
    assert "KV150" not in codes(held("0.5.22-gpt-oss-swa-triton", later))
