"""Trees under git: revisions read without touching anything, and nothing a repository names is run."""

from __future__ import annotations

import json
import os
import shutil

import pytest

from kvdiag.errors import InputError
from kvdiag.source import code_path, open_against, open_tree, path_changes
from tests.conftest import FIXTURES
from tests.source_trees import SIZING, edit, git

pytestmark = pytest.mark.usefixtures("own_cache")


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
