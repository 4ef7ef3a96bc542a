"""Repositories and folders made to do harm: nothing in them runs, nothing is fetched, memory stays bounded."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kvdiag.errors import InputError
from kvdiag.source import code_path, open_tree
from kvdiag.source.find_line import find_line
from kvdiag.source.parsed import Parsed
from tests.conftest import ROOT
from tests.source_trees import SIZING, TREE, git

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git makes the repositories; the product does without")
MEGABYTE = 1 << 20


@pytest.fixture
def repo(tmp_path):
    root = Path(shutil.copytree(TREE, tmp_path / "tree"))
    git(root, "init", "-q", "-b", "main")
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "one")
    git(root, "tag", "v0.5.9")
    return root


@pytest.fixture
def watched(tmp_path):
    """A search path on which git, ssh and every usual helper leave a mark when they are run."""
    folder, mark = tmp_path / "bin", tmp_path / "ran"
    folder.mkdir()
    for name in ("git", "ssh", "sh", "less", "gpg", "curl", "git-remote-https", "git-upload-pack", "git-lfs"):
        (folder / name).write_text(f"#!/bin/bash\necho {name} >> {mark}\n")
        (folder / name).chmod(0o755)

    def run(*arguments: str, megabytes: int = 0) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "PATH": str(folder), "XDG_CACHE_HOME": str(tmp_path / "cache"), "PYTHONPATH": str(ROOT)}
        code = "import resource, sys\nfrom kvdiag.cli.main import main\n"
        if megabytes:
            code += f"resource.setrlimit(resource.RLIMIT_AS, ({megabytes * MEGABYTE},) * 2)\n"
        code += "sys.exit(main(sys.argv[1:]))"
        done = subprocess.run(
            [sys.executable, "-c", code, "source", *arguments], capture_output=True, text=True, env=environment, timeout=60
        )
        assert not mark.exists(), mark.read_text()
        assert done.returncode in (0, 2), done.stderr
        assert "Traceback" not in done.stderr
        return done

    return run


def configured(repo: Path, text: str) -> None:
    with open(repo / ".git" / "config", "a") as file:
        file.write(text + "\n")


@pytest.mark.parametrize(
    "text",
    [
        "[core]\n\tfsmonitor = git\n\tsshCommand = ssh\n\tgitProxy = curl\n\taskPass = sh\n\teditor = sh",
        "[core]\n\tworktree = /\n\tbare = false\n\tattributesFile = /etc/passwd",
        '[remote "origin"]\n\turl = ext::sh -c touch% ran\n\tpromisor = true\n\tvcs = sh\n[extensions]\n\tpartialClone = origin',
        '[url "ext::sh"]\n\tinsteadOf = https://\n[credential]\n\thelper = !sh\n[gpg]\n\tprogram = gpg',
        '[include]\n\tpath = /dev/zero\n[includeIf "gitdir:/"]\n\tpath = /dev/zero',
        "[extensions]\n\tobjectFormat = sha256\n\trefStorage = reftable\n[core]\n\trepositoryFormatVersion = 99",
        "[[[\n\x00 = \n\tx",
    ],
)
def test_no_setting_of_a_repository_runs_or_is_followed(repo, watched, text):
    configured(repo, text)
    for arguments in ([f"{repo}@v0.5.9", "rest_memory"], [str(repo), "rest_memory"]):
        watched(*arguments)


@pytest.mark.parametrize("place", ["/proc/self/fd", "../../outside", "/dev", "relative\nlines\n" * 1000])
def test_objects_lent_by_another_place_do_not_hang_or_fail_with_a_trace(repo, watched, place):
    (repo / ".git" / "objects" / "info").mkdir(exist_ok=True)
    (repo / ".git" / "objects" / "info" / "alternates").write_text(place + "\n")
    watched(f"{repo}@v0.5.9", "rest_memory")


def test_missing_objects_of_a_partial_clone_are_told_and_not_fetched(repo, watched):
    configured(repo, '[remote "origin"]\n\turl = ext::sh\n\tpromisor = true\n[extensions]\n\tpartialClone = origin')
    for name in (SIZING, "python/sglang/version.py"):
        blob = git(repo, "rev-parse", f"v0.5.9:{name}").strip()
        (repo / ".git" / "objects" / blob[:2] / blob[2:]).unlink()
    watched(f"{repo}@v0.5.9", "max_total_num_tokens")


def test_a_submodule_and_refs_named_like_options_are_names_only(repo, watched):
    commit = git(repo, "rev-parse", "HEAD").strip()
    git(repo, "update-index", "--add", "--cacheinfo", f"160000,{commit},python/sglang/srt/sub")
    (repo / ".gitmodules").write_text('[submodule "sub"]\n\tpath = python/sglang/srt/sub\n\turl = ext::sh\n\tupdate = !sh\n')
    git(repo, "add", ".gitmodules")
    git(repo, "commit", "-q", "-m", "sub")
    for name in ("--upload-pack=sh", "-x"):
        (repo / ".git" / "refs" / "tags" / name).write_text(commit + "\n")
    assert watched(f"{repo}@HEAD", "rest_memory").returncode == 0
    for revision in ("--upload-pack=sh", "-x", "--exec=sh"):
        assert "is not a revision" in watched(f"{repo}@{revision}", "rest_memory").stderr
        assert watched(str(repo), "rest_memory", f"--against={revision}").returncode == 2


@pytest.mark.parametrize("packed", [False, True])
def test_a_huge_blob_of_a_revision_is_passed_over_within_bounded_memory(repo, watched, packed):
    blob = subprocess.run(
        ["git", "-C", str(repo), "hash-object", "-w", "--stdin"], input=b"#" * (150 * MEGABYTE), capture_output=True, check=True
    )
    name = blob.stdout.decode().strip()
    git(repo, "update-index", "--add", "--cacheinfo", f"100644,{name},python/sglang/srt/huge.py")
    git(repo, "update-index", "--add", "--cacheinfo", f"100644,{name},python/sglang/srt/server_args.py")
    git(repo, "commit", "-q", "-m", "huge")
    if packed:
        git(repo, "gc", "-q")
    assert watched(f"{repo}@HEAD", "max_total_num_tokens", megabytes=600).returncode == 0
    assert watched(f"{repo}@HEAD", "--line", "no such line is printed anywhere", megabytes=600).returncode == 0


@pytest.mark.parametrize("seed", range(12))
def test_a_damaged_repository_gives_a_result_or_a_clear_message(repo, watched, seed):
    draw = random.Random(seed)
    files = sorted(path for path in (repo / ".git").rglob("*") if path.is_file() and "hooks" not in path.parts)
    for path in draw.sample(files, 6):
        data = bytearray(path.read_bytes())
        path.chmod(0o644)
        if draw.random() < 0.3:
            path.unlink()
        elif data:
            data[draw.randrange(len(data))] ^= draw.randrange(1, 256)
            path.write_bytes(data[: draw.randrange(len(data)) + 1] if draw.random() < 0.5 else data)
    watched(f"{repo}@v0.5.9", "rest_memory")
    watched(str(repo), "rest_memory")


@pytest.mark.parametrize("seed", range(12))
def test_a_random_folder_gives_a_result_or_a_clear_message(tmp_path, seed):
    draw = random.Random(seed)
    package = tmp_path / "sglang" / "srt"
    package.mkdir(parents=True)
    source = (TREE / SIZING).read_bytes()
    folders = [package]
    for index in range(60):
        place = draw.choice(folders) / (draw.choice(["a", "b\n", "é", ".hid", "-rf", "\udcff", "$(x)"]) + str(index))
        kind = draw.randrange(6)
        if kind == 0:
            place.mkdir()
            folders.append(place)
        elif kind == 1:
            place.with_name(place.name + ".py").symlink_to(draw.choice([tmp_path, "/etc/passwd", place, "/dev/zero"]))
        elif kind == 2:
            os.mkfifo(place.with_name(place.name + ".py"))
        else:
            start = draw.randrange(len(source))
            data = bytearray(source[start : start + draw.randrange(4000)])
            for _ in range(draw.randrange(20)):
                data.insert(draw.randrange(len(data) + 1), draw.randrange(256))
            place.with_name(place.name + ".py").write_bytes(data)
    tree = open_tree(str(tmp_path))
    for number in ("rest_memory", "max_total_num_tokens", "token_usage"):
        code_path(tree, number)
    for line in ("max_total_num_tokens=159277", "KV Cache is allocated. #tokens: 9, KV size: 0.01 GB", "\ud800 rest_memory"):
        find_line(Parsed(tree), line)


def test_a_git_folder_that_is_a_pipe_or_a_link_out_is_refused_or_passed_over(repo, watched):
    shutil.rmtree(repo / ".git")
    os.mkfifo(repo / ".git")
    assert watched(str(repo), "rest_memory").returncode == 0
    with pytest.raises(InputError):
        open_tree(f"{repo}@HEAD")
