"""Where a tree may lie: archives, environments, bare repositories; whole, cut short, or with members no module has."""

from __future__ import annotations

import io
import os
import random
import shutil
import tarfile
import zipfile
from pathlib import Path

import pytest

from kvdiag.errors import InputError
from kvdiag.source import code_path, open_against, open_tree
from kvdiag.source.find_line import find_line
from kvdiag.source.nearest import release_of
from kvdiag.source.parsed import Parsed
from kvdiag.source.tree import LARGEST_FILE
from tests.source_trees import SIZING, TREE, copied, edit, git

pytestmark = pytest.mark.usefixtures("own_cache")
PACKAGE = TREE / "python" / "sglang"
LINE = "plain words only here"
needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="git makes the repositories; the product does without")


def files_of_package():
    return [(f"sglang/{path.relative_to(PACKAGE).as_posix()}", path.read_bytes()) for path in sorted(PACKAGE.rglob("*.py"))]


def wheel(folder: Path, name: str = "sglang-0.5.9-py3-none-any.whl", members=None) -> str:
    path = folder / name
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for member, data in files_of_package() if members is None else members:
            archive.writestr(member, data)
    return str(path)


def sdist(folder: Path, members, name: str = "sglang-0.5.9.tar.gz") -> str:
    path = folder / name
    with tarfile.open(path, "w:gz") as archive:
        for member, data in members:
            entry = tarfile.TarInfo(f"sglang-0.5.9/{member}")
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return str(path)


ODD = [("sglang/srt/large.py", b"#" * (LARGEST_FILE + 1)), ("sglang/srt/a\nb.py", b"x = 1\n"), ("sglang/srt/notes.txt", b"none")]


@pytest.mark.parametrize("pack", [wheel, sdist], ids=["wheel", "sdist"])
def test_an_archive_is_searched_for_a_line_and_what_no_module_is_passed_over(tmp_path, pack):
    tree = open_tree(pack(tmp_path, members=[*files_of_package(), *ODD]))
    (found,) = find_line(Parsed(tree), LINE)
    assert found.message.symbol == "Forms.plain"
    skipped = {os.path.basename(path) for path, _ in tree.store.skipped}
    assert skipped == {"large.py", "a\nb.py"}
    assert all("too large, or a name no module has" in reason for _, reason in tree.store.skipped)
    assert not any(path.endswith(("large.py", ".txt")) for path in tree.listing)


def test_the_same_content_has_the_same_mark_and_other_content_another(tmp_path):
    files = files_of_package()
    marks = [open_tree(sdist(tmp_path, members)).fingerprint for members in (files, files, [*files, ("sglang/srt/x.py", b"")])]
    assert marks[0] == marks[1] != marks[2]


def test_a_damaged_member_of_a_wheel_is_a_file_that_is_not_there(tmp_path):
    path = wheel(tmp_path)
    with zipfile.ZipFile(path) as archive:
        info = archive.getinfo(f"sglang/{SIZING.partition('sglang/')[2]}")
        at = info.header_offset + 30 + len(info.filename) + info.compress_size // 2
    data = bytearray(Path(path).read_bytes())
    data[at : at + 40] = bytes(40)
    Path(path).write_bytes(data)
    tree = open_tree(path)
    assert tree.read(SIZING.partition("sglang/")[2]) is None
    assert tree.read("srt/managers/forms.py") is not None
    assert code_path(tree, "rest_memory").missing


def test_a_member_larger_than_its_archive_says_is_not_read_whole(tmp_path):
    tree = open_tree(wheel(tmp_path, members=[*files_of_package(), *ODD]))
    assert tree.read("srt/large.py") is None


@pytest.mark.parametrize("pack", [wheel, sdist], ids=["wheel", "sdist"])
def test_an_archive_of_something_else_is_refused(tmp_path, pack):
    with pytest.raises(InputError, match="holds no sglang package"):
        open_tree(pack(tmp_path, members=[("other/srt.py", b"x = 1\n"), ("other/sglang.py", b"")]))


def test_an_archive_cut_short_is_refused(tmp_path):
    path = Path(sdist(tmp_path, [*files_of_package(), ("sglang/srt/noise.py", random.Random(1).randbytes(200_000))]))
    path.write_bytes(path.read_bytes()[:-100_000])
    with pytest.raises(InputError, match="the archive cannot be read"):
        open_tree(str(path))


def test_an_environment_s_root_is_the_package_installed_in_it(tmp_path):
    installed = tmp_path / "lib" / "python3.11" / "site-packages"
    shutil.copytree(PACKAGE, installed / "sglang")
    (tmp_path / "lib" / "other").mkdir()
    tree = open_tree(str(tmp_path))
    assert tree.package == "lib/python3.11/site-packages/sglang"
    assert code_path(tree, "rest_memory").steps


def test_folders_are_followed_only_so_deep_and_none_by_a_link(tmp_path):
    tree = copied(tmp_path)
    deep = tree / "python/sglang/srt" / "/".join(["d"] * 30)
    deep.mkdir(parents=True)
    (deep / "far.py").write_text("x = 1\n")
    (tree / "python/sglang/srt/.hidden").mkdir()
    (tree / "python/sglang/srt/__pycache__").mkdir()
    opened = open_tree(str(tree))
    assert not any(path.endswith("far.py") for path in opened.listing)
    assert [reason for path, reason in opened.store.skipped if path.endswith("/d")] == ["too deep, or a name no package has"]
    outside = tmp_path / "linked"
    (outside / "sglang").mkdir(parents=True)
    (outside / "sglang" / "srt").symlink_to(tree / "python/sglang/srt")
    with pytest.raises(InputError, match="no sglang package here"):
        open_tree(str(outside))


def test_a_pipe_is_no_tree(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match="neither a folder nor an archive"):
        open_tree(str(tmp_path / "pipe"))


def test_an_at_sign_in_a_name_that_exists_is_no_revision(tmp_path):
    tree = Path(shutil.copytree(TREE, tmp_path / "tree@home"))
    assert open_tree(str(tree)).kind == "folder"
    with pytest.raises(InputError, match="no such folder or archive"):
        open_tree(f"{tmp_path}/none@1")


@pytest.mark.parametrize(
    ("version", "beside", "release", "source"),
    [
        ("__version__ = version = '0.5.8'\n", {}, "0.5.8", "version.py"),
        ("__version__ = '0.0.0.dev1'\n", {"sglang-0.5.7.dist-info": None}, "0.5.7", "sglang-0.5.7.dist-info"),
        ("__version__ = '0.0.0.dev1'\n", {"pyproject.toml": 'name = "sglang"\nversion = "0.5.6"\n'}, "0.5.6", "pyproject.toml"),
        ("", {"pyproject.toml": 'name = "sglang"\ndynamic = ["version"]\n'}, None, "its symbols"),
        ("__version__ = 'odd'\n", {"sglang-odd.dist-info": None}, None, "its symbols"),
    ],
    ids=["version", "dist-info", "project", "dynamic", "odd"],
)
def test_a_folder_s_release_is_what_it_states_else_the_nearest(tmp_path, version, beside, release, source):
    tree = copied(tmp_path)
    (tree / "python/sglang/version.py").write_text(version)
    for name, text in beside.items():
        place = tree / "python" / name
        place.mkdir() if text is None else place.write_text(text)
    found = release_of(open_tree(str(tree)))
    assert found.source.endswith(source) or found.source.startswith(source)
    assert found.confidence == ("stated" if release else "nearest")
    assert release is None or str(found.release) == release


@pytest.mark.parametrize("pack", [wheel, sdist], ids=["wheel", "sdist"])
def test_an_archive_s_release_is_in_its_name_where_no_file_states_it(tmp_path, pack):
    members = [(name, data) for name, data in files_of_package() if not name.endswith("version.py")]
    suffix = "-py3-none-any.whl" if pack is wheel else ".tar.gz"
    found = release_of(open_tree(pack(tmp_path, members=members, name=f"sglang-0.5.7{suffix}")))
    assert (str(found.release), found.source) == ("0.5.7", "the archive's name")
    found = release_of(open_tree(pack(tmp_path, members=members, name=f"mine{suffix}")))
    assert found.confidence == "nearest"


@pytest.fixture
def repo(tree):
    (tree / "python/sglang/version.py").unlink()
    (tree / "python/sglang/srt/linked.py").symlink_to("server_args.py")
    (tree / "python/sglang/srt/a\tb.py").write_text("x = 1\n")
    git(tree, "init", "-q", "-b", "main")
    git(tree, "add", "-A")
    git(tree, "commit", "-q", "-m", "one")
    return tree


@needs_git
def test_a_commit_is_of_the_tag_it_lies_on_or_near_the_last_one_before_it(repo):
    git(repo, "tag", "v0.5.7")
    git(repo, "tag", "a-blob", git(repo, "rev-parse", f"HEAD:{SIZING}").strip())
    edit(repo, "(1 - self.mem", "(0.9 - self.mem")
    git(repo, "commit", "-q", "-a", "-m", "two")
    at, after = (release_of(open_tree(f"{repo}@{revision}")) for revision in ("v0.5.7", "HEAD"))
    assert (str(at.release), at.source, at.confidence) == ("0.5.7", "tag v0.5.7", "stated")
    assert (str(after.release), after.source, after.confidence) == ("0.5.7", "tag v0.5.7, 1 commits before", "nearest")
    assert open_tree(f"{repo}@0.5.7").origin.tag == "v0.5.7"


@needs_git
def test_without_a_tag_or_version_the_release_is_the_nearest_by_symbols(repo):
    assert release_of(open_tree(f"{repo}@HEAD")).confidence == "nearest"
    with pytest.raises(InputError, match="it has no tags"):
        open_tree(f"{repo}@v0.5.7")


@needs_git
def test_links_and_names_no_module_has_are_passed_over_in_a_commit(repo):
    tree = open_tree(f"{repo}@HEAD")
    assert find_line(Parsed(tree), LINE)
    assert dict(tree.store.skipped) == {"srt/linked.py": "a link", "srt/a\tb.py": "a name no module has"}
    assert tree.read("srt/linked.py") is None
    assert tree.read("srt") is None


@needs_git
def test_a_folder_of_a_commit_that_is_gone_is_passed_over_and_said_so(repo):
    folder = git(repo, "rev-parse", "HEAD:python/sglang/srt/managers").strip()
    (repo / ".git/objects" / folder[:2] / folder[2:]).unlink()
    tree = open_tree(f"{repo}@HEAD")
    assert find_line(Parsed(tree), LINE) == []
    assert ("srt/managers/", "a folder whose object is missing or damaged") in tree.store.skipped


@needs_git
def test_a_bare_repository_and_a_second_working_tree_are_opened_at_their_commit(repo, tmp_path):
    git(repo, "tag", "v0.5.7")
    git(repo, "clone", "-q", "--bare", str(repo), str(tmp_path / "bare.git"))
    bare = open_tree(str(tmp_path / "bare.git"))
    assert (bare.kind, bare.origin.tag) == ("git", "v0.5.7")
    git(repo, "worktree", "add", "-q", str(tmp_path / "second"), "-b", "second")
    second = open_tree(str(tmp_path / "second"))
    assert (second.kind, second.origin.tag) == ("working tree", "v0.5.7")
    assert open_tree(f"{tmp_path / 'second'}@v0.5.7").origin.revision == second.origin.revision


@needs_git
def test_a_commit_without_the_package_is_refused(repo):
    git(repo, "rm", "-q", "-r", "python")
    (repo / "README").write_text("moved away\n")
    git(repo, "add", "-A")
    git(repo, "commit", "-q", "-m", "gone")
    with pytest.raises(InputError, match="no sglang package at this revision"):
        open_tree(f"{repo}@HEAD")


@needs_git
def test_what_to_compare_with_may_be_another_tree_or_a_revision(repo, tmp_path):
    git(repo, "tag", "v0.5.7")
    assert open_against(str(repo), "v0.5.7").kind == "git"
    assert open_against(str(repo), str(TREE)).kind == "folder"
    assert open_against(wheel(tmp_path), f"{repo}@v0.5.7").kind == "git"


@needs_git
@pytest.mark.parametrize("config", ["no section\n", "#" * (1 << 20) + "\n", None], ids=["damaged", "huge", "absent"])
def test_a_configuration_that_cannot_be_read_costs_the_permalink_only(repo, config):
    git(repo, "remote", "add", "origin", "https://github.com/some/where")
    assert code_path(open_tree(f"{repo}@HEAD"), "rest_memory").steps[0].permalink
    place = repo / ".git" / "config"
    place.unlink()
    if config is not None:
        place.write_text(f'{config}[remote "origin"]\n\turl = https://github.com/some/where\n')
    step = code_path(open_tree(f"{repo}@HEAD"), "rest_memory").steps[0]
    assert step.permalink is None
    assert step.expression
