"""The code path of a number and the statement behind a line, in a small tree that has SGLang's names."""

from __future__ import annotations

import ast
import io
import json
import os
import tarfile
import zipfile
from pathlib import Path

import pytest

from kvdiag.errors import InputError
from kvdiag.releases import known_releases, parse_release
from kvdiag.source import code_path, open_tree
from kvdiag.source.anchors import number_rules
from kvdiag.source.find_line import find_line
from kvdiag.source.parsed import Parsed
from tests.conftest import SHARED

pytestmark = pytest.mark.usefixtures("own_cache")

TREE = Path(__file__).parent / "data" / "tree"


def steps(path, name):
    return [step for step in path.steps if step.step == name]


def test_every_rule_of_a_number_can_be_read():
    rules = number_rules()
    assert len(rules) >= 18
    assert all(step.anchors for rule in rules.values() for step in rule.steps)


def test_every_range_of_every_anchor_is_of_releases():
    newest = known_releases()[-1]
    for rule in number_rules().values():
        for step in rule.steps:
            for anchor in step.anchors:
                assert any(anchor.covers(release) for release in known_releases()), anchor
                first = anchor.releases.split(",")[0].split("..")[0]
                assert anchor.covers(parse_release(first)), anchor
    assert any(anchor.covers(parse_release("0.9.0")) for step in number_rules()["rest_memory"].steps for anchor in step.anchors)
    assert newest < parse_release("0.9.0")


@pytest.mark.shared
def test_every_symbol_of_the_facts_is_in_the_path_of_its_number_in_all_its_releases():
    for line in (SHARED / "facts" / "symbols.jsonl").read_text().splitlines():
        row = json.loads(line)
        place = (row["file"], row["symbol"].replace("(module)", "<module>"))
        anchors = [anchor for step in number_rules()[row["number"]].steps for anchor in step.anchors]
        for release in (row["first_release"], row["last_release"]):
            assert any((a.file, a.symbol) == place and a.covers(parse_release(release)) for a in anchors), row


def test_the_path_of_capacity_is_ordered_and_holds_the_statements():
    path = code_path(open_tree(str(TREE)), "max_total_num_tokens")
    assert str(path.release.release) == "0.5.9"
    order = list(dict.fromkeys(step.step for step in path.steps))
    wanted = ["measured", "reduced", "cost of a token", "divided", "clamped", "rounded", "allocated", "printed"]
    assert [step for step in order if step in wanted] == wanted
    (budget, *_) = steps(path, "reduced")
    assert budget.expression == "rest_memory = available_gpu_memory - total_gpu_memory * (1 - self.mem_fraction_static)"
    assert budget.symbol == "ModelRunnerKVCacheMixin.profile_max_num_token"
    assert [step.condition for step in steps(path, "reduced")][1] == "self.mambaish_config is not None"


def test_a_comment_inside_an_expression_is_left_out():
    path = code_path(open_tree(str(TREE)), "cell_size")
    cost = next(step for step in path.steps if "v_head_dim" in step.expression)
    assert "#" not in cost.expression
    assert "head_dim + self.model_config.v_head_dim) * num_layers" in cost.expression


@pytest.mark.parametrize("name", sorted(number_rules()))
def test_every_step_stands_in_its_symbol_by_python_s_own_parser(name):
    for step in code_path(open_tree(str(TREE)), name).steps:
        module = ast.parse((TREE / step.file).read_text())
        if step.symbol == "<module>":
            continue
        scope: ast.AST = module
        for part in step.symbol.split("."):
            scope = next(node for node in ast.iter_child_nodes(scope) if getattr(node, "name", None) == part)
        assert scope.lineno <= step.line <= step.end_line <= scope.end_lineno


def test_a_symbol_that_moved_is_found_with_less_confidence(tmp_path):
    root = copied(tmp_path)
    old = root / "python/sglang/srt/model_executor/model_runner_kv_cache_mixin.py"
    old.rename(root / "python/sglang/srt/mem_cache/sizing.py")
    path = code_path(open_tree(str(root)), "rest_memory")
    (budget, *_) = steps(path, "reduced")
    assert budget.file.endswith("srt/mem_cache/sizing.py")
    assert budget.confidence == "likely"


def test_a_tree_without_any_known_symbol_is_searched_by_name(tmp_path):
    package = tmp_path / "sglang" / "srt"
    package.mkdir(parents=True)
    (package / "other.py").write_text("def budget(a, b):\n    rest_memory = a - b\n    return rest_memory\n")
    path = code_path(open_tree(str(tmp_path)), "rest_memory")
    assert [(step.symbol, step.line, step.confidence) for step in path.steps] == [("budget", 2, "possible")]
    assert path.release.release is None


def test_a_tree_that_states_no_release_is_given_the_nearest_by_its_symbols(tmp_path):
    root = copied(tmp_path)
    (root / "python/sglang/version.py").unlink()
    told = code_path(open_tree(str(root)), "rest_memory").release
    assert told.confidence == "nearest"
    assert "0.5.7" <= str(told.release) <= "0.5.9"


def copied(folder: Path) -> Path:
    import shutil

    return Path(shutil.copytree(TREE, folder / "copy"))


def test_wheel_sdist_and_package_folder_give_the_same_path(tmp_path):
    wheel, sdist = tmp_path / "sglang-0.5.9-py3-none-any.whl", tmp_path / "sglang-0.5.9.tar.gz"
    files = {path.relative_to(TREE / "python").as_posix(): path.read_bytes() for path in TREE.rglob("*.py")}
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    with tarfile.open(sdist, "w:gz") as tar:
        for name, data in files.items():
            member = tarfile.TarInfo(f"sglang-0.5.9/{name}")
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    paths = [code_path(open_tree(str(where)), "rest_memory") for where in (wheel, sdist, TREE / "python" / "sglang", TREE)]
    assert len({tuple((step.symbol, step.line, step.expression) for step in path.steps) for path in paths}) == 1
    assert {str(path.release.release) for path in paths} == {"0.5.9"}


def test_the_second_answer_comes_from_the_cache_and_an_edit_is_seen(kvdiag, tmp_path):
    root = copied(tmp_path)
    first = kvdiag("source", str(root), "rest_memory", "--format", "json")
    again = kvdiag("source", str(root), "rest_memory", "--format", "json")
    assert first.returncode == 0, first.stderr
    assert first.stdout == again.stdout
    place = root / "python/sglang/srt/model_executor/model_runner_kv_cache_mixin.py"
    place.write_text(place.read_text().replace("(1 - self.mem", "(0.9 - self.mem"))
    edited = json.loads(kvdiag("source", str(root), "rest_memory", "--format", "json").stdout)
    assert any("(0.9 - self.mem_fraction_static)" in step["expression"] for step in edited["path"])


def test_an_unknown_number_is_refused_with_the_known_ones(kvdiag):
    done = kvdiag("source", str(TREE), "max_total_num_tokns")
    assert done.returncode == 2
    assert "Did you mean max_total_num_tokens" in done.stderr


def test_a_number_without_a_tree_is_told_what_a_tree_is_and_where_to_get_one(kvdiag):
    done = kvdiag("source", "max_total_num_tokens")
    assert done.returncode == 2
    for told in ("max_total_num_tokens is a number", "TREE is SGLang's own source", "sglang.__path__", "pip download"):
        assert told in done.stderr


def test_a_file_that_is_no_whole_python_is_named_and_nothing_of_it_is_certain(tmp_path, kvdiag):
    root = copied(tmp_path)
    place = root / "python/sglang/srt/model_executor/model_runner_kv_cache_mixin.py"
    place.write_text(place.read_text().replace("class ModelRunnerKVCacheMixin:", "class ModelRunnerKVCacheMixin(:"))
    path = code_path(open_tree(str(root)), "rest_memory")
    assert all("model_runner_kv_cache_mixin.py has a syntax error at line" in told for told in path.damaged)
    assert len(path.damaged) == 1
    assert all(step.confidence != "certain" for step in path.steps if step.file.endswith("mixin.py"))
    assert "has a syntax error" in " ".join(kvdiag("source", str(root), "rest_memory").stdout.split())


@pytest.mark.parametrize("spec", ["/no/such/tree", "tests/data", "README.md"])
def test_what_is_no_tree_is_refused_with_what_to_give(spec):
    with pytest.raises(InputError):
        open_tree(spec)


def test_a_hostile_folder_is_read_without_leaving_it(tmp_path):
    root = copied(tmp_path)
    package = root / "python/sglang/srt"
    outside = tmp_path / "outside.py"
    outside.write_text("rest_memory = 'secret'\n")
    (package / "linked.py").symlink_to(outside)
    (package / "loop").symlink_to(package)
    (package / "line\nbreak.py").write_text("rest_memory = 1\n")
    (package / "nul.py").write_bytes(b"rest_memory = 1\x00\xff\n" * 5)
    (package / "broken.py").write_text("def rest_memory(:\n  ((((\n" * 50)
    (package / "nested.py").write_text("rest_memory = " + "(" * 20_000 + ")" * 20_000)
    with open(package / "large.py", "wb") as file:
        file.truncate(100_000_000)
    os.mkfifo(package / "pipe.py")
    tree = open_tree(str(root))
    path = code_path(tree, "rest_memory")
    assert not any("secret" in step.expression for step in path.steps)
    assert find_line(Parsed(tree), "rest_memory=12 printed nowhere at all") == []
    reasons = dict(tree.store.skipped)
    assert reasons["srt/linked.py"] == "a link"
    assert reasons["srt/loop"] == "a link"
    assert "100,000,000" in reasons["srt/large.py"]
    assert reasons["srt/pipe.py"] == "no regular file"
    assert tree.read("srt/linked.py") is None
    assert tree.read("srt/loop/server_args.py") is None
    assert tree.read("../../../outside.py") is None
