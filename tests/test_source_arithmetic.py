"""The source's own sums with the log's values, what changed between two trees, and trees under git."""

from __future__ import annotations

import ast
import json
import operator
import os
import shutil
import subprocess
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import kvdiag
from kvdiag.errors import InputError
from kvdiag.quantity import Interval
from kvdiag.source import code_path, open_against, open_tree, path_changes
from kvdiag.source.evaluate import Evaluator, Unknown, exactly
from kvdiag.source.parsed import Parsed
from kvdiag.source.running import follow
from kvdiag.source.syntax import condition, find, of_types, parse
from tests.conftest import FIXTURES

TREE = Path(__file__).parent / "data" / "tree"
LOG = FIXTURES / "scenarios" / "kimi-k2.5-f0.88" / "server.log"
SIZING = "python/sglang/srt/model_executor/model_runner_kv_cache_mixin.py"


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def tree(tmp_path):
    return Path(shutil.copytree(TREE, tmp_path / "tree"))


def edit(tree: Path, before: str, after: str, file: str = SIZING) -> None:
    place = tree / file
    assert before in place.read_text()
    place.write_text(place.read_text().replace(before, after))


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


def test_a_function_under_another_name_is_said_not_to_be_followed(tree):
    edit(tree, "profile_max_num_token", "profile_max_tok")
    changes = path_changes(open_tree(str(TREE)), open_tree(str(tree)), "rest_memory")
    assert {change.kind for change in changes} == {"not followed"}
    assert all("cannot be followed" in change.sentence for change in changes)


def test_a_condition_is_all_that_must_hold():
    source = (
        b"def f(self):\n    if self.a:\n        x = 1\n    elif b or c:\n        x = 2\n"
        b"    else:\n        if d:\n            x = 3\n"
        b"    try:\n        x = 4\n    except ValueError:\n        x = 5\n    for y in z:\n        while e:\n            x = 6\n"
    )
    function = find(parse(source), "f")
    found = [condition(node, function) for node in of_types(function, ("assignment",))]
    assert found == ["self.a", "not (self.a) and (b or c)", "not (self.a) and not (b or c) and d", "", "except ValueError", "e"]


GIT = {
    "GIT_AUTHOR_NAME": "t",
    "GIT_AUTHOR_EMAIL": "t@example.org",
    "GIT_COMMITTER_NAME": "t",
    "GIT_COMMITTER_EMAIL": "t@example.org",
}


def git(repo: Path, *arguments: str) -> str:
    environment = {**os.environ, **GIT, "GIT_CONFIG_GLOBAL": f"{repo}.none", "GIT_CONFIG_NOSYSTEM": "1"}
    return subprocess.run(
        ["git", "-C", str(repo), *arguments], check=True, capture_output=True, text=True, env=environment
    ).stdout


@pytest.fixture
def repo(tree):
    if shutil.which("git") is None:
        pytest.skip("git is not installed: it makes the repository, the product does without")
    git(tree, "init", "-q", "-b", "main")
    git(tree, "add", "-A")
    git(tree, "commit", "-q", "-m", "one")
    git(tree, "tag", "v0.5.9")
    git(tree, "remote", "add", "origin", "git@github.com:some/where.git")
    edit(tree, "(1 - self.mem", "(0.9 - self.mem")
    git(tree, "commit", "-q", "-a", "-m", "two")
    return tree


def test_a_revision_is_read_without_touching_the_working_tree(repo):
    edit(repo, "(0.9 - self.mem", "(0.8 - self.mem")
    budgets = {}
    for spec in (f"{repo}@v0.5.9", f"{repo}@HEAD", f"{repo}@HEAD~1", str(repo)):
        path = code_path(open_tree(spec), "rest_memory")
        budgets[spec.removeprefix(str(repo))] = next(s.expression for s in path.steps if s.step == "reduced")[-40:]
    assert budgets["@v0.5.9"] == budgets["@HEAD~1"]
    assert [text.split("(")[1][:3] for text in budgets.values()] == ["1 -", "0.9", "1 -", "0.8"]


def test_a_known_remote_gives_a_permalink_at_the_revision(repo):
    step = code_path(open_tree(f"{repo}@v0.5.9"), "rest_memory").steps[0]
    revision = git(repo, "rev-parse", "v0.5.9").strip()
    assert step.permalink == f"https://github.com/some/where/blob/{revision}/{step.file}#L{step.line}"


def test_against_compares_with_a_revision_of_the_same_repository(repo, kvdiag):
    done = kvdiag("source", f"{repo}@HEAD", "rest_memory", "--against", "v0.5.9", "--format", "json")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    (change,) = answer["changes"]
    assert "0.9 - self.mem_fraction_static" in change["after"][0]
    assert len(path_changes(open_against(str(repo), "v0.5.9"), open_tree(f"{repo}@HEAD"), "rest_memory")) == 1


def test_a_difference_of_two_releases_tells_what_their_code_has_different(repo, kvdiag):
    """The earlier log is of a release up to 0.5.8.post1, the later one of 0.5.9; only the edit of the repository is told."""
    earlier, later = (str(FIXTURES / "scenarios" / name / "server.log") for name in ("l4-bf16", "h100-llama-3-8b"))
    missing = json.loads(kvdiag("diff", earlier, later, "--source", str(repo), "--format", "json").stdout)["code_changes"]
    assert missing["changes"] == []
    assert "0.5.8.post1" in missing["missing"]
    git(repo, "tag", "v0.5.8.post1", "HEAD")
    git(repo, "checkout", "-q", "v0.5.9")
    found = json.loads(kvdiag("diff", earlier, later, "--source", str(repo), "--format", "json").stdout)["code_changes"]
    assert (found["older"], found["newer"], found["missing"]) == ("0.5.8.post1", "0.5.9", "")
    (change,) = found["changes"]
    assert "0.9" in change["before"][0]
    assert "0.5.8.post1 -> 0.5.9" in kvdiag("diff", earlier, later, "--source", str(repo)).stdout
    same = json.loads(kvdiag("diff", later, later, "--source", str(repo), "--format", "json").stdout)
    assert same["code_changes"] is None


@pytest.mark.parametrize("revision", ["nothing", "--upload-pack=x", "v0.5.9\nHEAD", "a" * 500, "HEAD~99", ":/"])
def test_an_unusable_revision_is_refused(repo, revision):
    with pytest.raises(InputError):
        open_tree(f"{repo}@{revision}")


def test_nothing_a_repository_names_is_run_or_read(repo, tmp_path, kvdiag):
    canary = tmp_path / "canary"
    command = tmp_path / "command.sh"
    command.write_text(f"#!/bin/sh\ntouch {canary}\n")
    command.chmod(0o755)
    included = tmp_path / "included"
    os.mkfifo(included)
    hook = repo / ".git/hooks"
    hook.mkdir(exist_ok=True)
    for name in ("post-checkout", "post-index-change", "reference-transaction", "pre-auto-gc"):
        (hook / name).write_text(f"#!/bin/sh\ntouch {canary}\n")
        (hook / name).chmod(0o755)
    (repo / ".gitattributes").write_text("*.py diff=evil filter=evil\n")
    lines = [
        f"[core]\n\tfsmonitor = {command}\n\tsshCommand = {command}\n\tpager = {command}\n\thooksPath = {hook}",
        f'[diff]\n\texternal = {command}\n[diff "evil"]\n\ttextconv = {command}',
        f'[filter "evil"]\n\tsmudge = {command}\n\tclean = {command}\n\tprocess = {command}',
        f"[alias]\n\tcat-file = !{command}\n[include]\n\tpath = {included}",
        '[extensions]\n\tpartialClone = origin\n[remote "origin"]\n\tpromisor = true\n\tpartialclonefilter = blob:none',
    ]
    with open(repo / ".git/config", "a") as config:
        config.write("\n".join(lines) + "\n")
    for arguments in (
        [f"{repo}@v0.5.9", "rest_memory"],
        [str(repo), "rest_memory"],
        [f"{repo}@HEAD", "--line", "plain words only here"],
        [f"{repo}@HEAD", "rest_memory", "--against", "v0.5.9"],
    ):
        done = kvdiag("source", *arguments)
        assert done.returncode == 0, done.stderr
        assert not canary.exists()


def test_a_missing_object_of_a_partial_clone_is_not_fetched(repo, tmp_path, kvdiag):
    canary = tmp_path / "canary"
    command = tmp_path / "command.sh"
    command.write_text(f"#!/bin/sh\ntouch {canary}\n")
    command.chmod(0o755)
    blob = git(repo, "rev-parse", f"v0.5.9:{SIZING}").strip()
    (repo / ".git/objects" / blob[:2] / blob[2:]).unlink()
    with open(repo / ".git/config", "a") as config:
        config.write(
            f'[core]\n\tsshCommand = {command}\n[extensions]\n\tpartialClone = origin\n[remote "origin"]\n\tpromisor = true\n'
        )
    done = kvdiag("source", f"{repo}@v0.5.9", "rest_memory")
    assert done.returncode in (0, 2), done.stderr
    assert not canary.exists()
