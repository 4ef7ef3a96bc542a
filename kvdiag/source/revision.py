"""A git revision read blob by blob, without running git: no checkout, no hook, no command the configuration names."""

from __future__ import annotations

import os
import re
import stat
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kvdiag.errors import InputError
from kvdiag.source.tree import LARGEST_FILE, PACKAGE_PLACES, Origin, SourceTree, readable_name

if TYPE_CHECKING:
    from git import Commit, GitConfigParser, Repo
    from git.objects import Tree

_LARGEST_CONFIG = 1 << 20
_NO_SUCH_COMMAND = "kvdiag-runs-no-git"
_NEAR_TAG = 200
_MOST_FILES = 100_000
_REMOTE = re.compile(r"(?:https?://(?:[^/@\s]+@)?|ssh://git@|git@)(github\.com|gitlab\.com)[:/]([\w.-]+(?:/[\w.-]+)+?)/?")


class GitStore:
    """The Python files of the package at one commit."""

    def __init__(self, package: Tree) -> None:
        self.package = package
        self.skipped: list[tuple[str, str]] = []
        self._known: dict[str, Any] = {}

    def listing(self) -> dict[str, tuple[int, str]]:
        """Path to (0, hash of the blob)."""
        self._known = dict(self._blobs(self.package, ""))
        return {path: (0, blob.hexsha) for path, blob in self._known.items()}

    def mark(self) -> str:
        """The hash of the package's tree."""
        return str(self.package.hexsha)

    def _blobs(self, folder: Tree, below: str) -> Iterator[tuple[str, Any]]:
        try:
            items = list(folder)
        except Exception:
            # As in `read`: what cannot be listed is passed over, and said so.
            self.skipped.append((below, "a folder whose object is missing or damaged"))
            return
        for item in items:
            path = f"{below}{item.name}"
            if item.type == "tree":
                yield from self._blobs(item, path + "/")
            elif item.type == "blob" and str(item.name).endswith(".py"):
                if stat.S_ISLNK(item.mode):
                    self.skipped.append((path, "a link"))
                elif not readable_name(path):
                    self.skipped.append((path, "a name no module has"))
                else:
                    yield path, item

    def read(self, path: str) -> bytes | None:
        """The content of a blob; None where there is none, it is a link, or it is too large."""
        try:
            item = self._known.get(path) or self.package / path
            if item.type != "blob" or stat.S_ISLNK(item.mode):
                return None
            stream = item.repo.odb.stream(item.binsha)
            if stream.size > LARGEST_FILE:
                self.skipped.append((path, f"{stream.size:,} bytes, more than {LARGEST_FILE:,}"))
                return None
            return bytes(stream.read())
        except Exception:
            # A damaged or missing object is told of in as many ways as there are layers below; to the reader it is no file.
            return None


def open_revision(name: str, revision: str) -> SourceTree:
    """The tree of the repository at `name` as of `revision` (a tag, branch or commit).

    Raises InputError where there is no repository, no such revision, or no sglang package in it.
    """
    try:
        return _opened(name, revision)
    except (InputError, ModuleNotFoundError):
        raise
    except Exception as error:
        # Damaged objects fail in as many ways as there are layers below that read them.
        raise InputError(f"{name}@{revision}: the repository is damaged ({type(error).__name__}: {error})") from None


def _opened(name: str, revision: str) -> SourceTree:
    repo = _repository(Path(os.path.realpath(name)), name)
    commit = _commit(repo, revision, name)
    for place in PACKAGE_PLACES:
        try:
            package: Any = commit.tree / place
            package / "srt"
        except KeyError:
            continue
        tree = SourceTree(name, "git", place, GitStore(package))
        tree.origin = Origin(commit.hexsha, _tag_of(repo, commit), _remote(repo))
        return tree
    raise InputError(f"{name}@{revision}: no sglang package at this revision (no python/sglang/srt in it)")


def origin_of_folder(root: Path) -> Origin:
    """Revision, tag and remote of a checkout, as far as they can be read; a damaged repository tells nothing."""
    try:
        repo = _repository(root, os.fspath(root))
        commit = repo.head.commit
        return Origin(commit.hexsha, _tag_of(repo, commit), _remote(repo))
    except Exception:
        # The folder itself is readable: whatever is wrong with its .git costs the revision's name, no more.
        return Origin()


def _repository(root: Path, name: str) -> Repo:
    """The repository at `root`, its objects read by gitdb: no git process, so nothing its configuration names can run."""
    _import_quietly()
    import gitdb
    from git import Git, GitConfigParser, Repo
    from git.exc import GitCommandNotFound, GitError

    class NoGit(Git):
        """Runs nothing, whatever of GitPython asks for it."""

        def execute(self, command: Any, *given: Any, **options: Any) -> Any:
            del given, options
            raise GitCommandNotFound(command, "kvdiag reads objects and runs no git")

    class QuietRepo(Repo):
        """Reads the repository's own configuration file and nothing that file includes."""

        GitCommandWrapperType = NoGit

        def config_reader(self, config_level: Any = None) -> GitConfigParser:
            del config_level
            return GitConfigParser([_config_file(Path(self.common_dir))], read_only=True, merge_includes=False)

    try:
        _refuse_devices(_git_folder(root))
        with warnings.catch_warnings():
            # GitPython would rather run `git cat-file`, which reads what the configuration includes and may fetch.
            warnings.simplefilter("ignore", DeprecationWarning)
            return QuietRepo(root, odbt=gitdb.GitDB)
    except (GitError, gitdb.exc.ODBError, OSError, ValueError, UnicodeError) as error:
        raise InputError(f"{name}: not a git repository that can be read ({type(error).__name__}: {error})") from None


def _import_quietly() -> None:
    """Imports GitPython without the ``git version`` it runs when it is imported; another user of it finds it as ever."""
    if "git" in sys.modules:
        return
    quiet = {"GIT_PYTHON_REFRESH": "quiet", "GIT_PYTHON_GIT_EXECUTABLE": _NO_SUCH_COMMAND}
    before = {name: os.environ.get(name) for name in quiet}
    os.environ.update(quiet)
    try:
        import git

        git.Git.GIT_PYTHON_GIT_EXECUTABLE = before["GIT_PYTHON_GIT_EXECUTABLE"] or git.Git.git_exec_name
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _git_folder(root: Path) -> Path:
    inside = root / ".git"
    if inside.is_dir():
        return inside
    if stat.S_ISREG(os.lstat(inside).st_mode) if os.path.lexists(inside) else False:
        told = inside.read_text(errors="surrogateescape")[:4096].strip()
        return root / told.removeprefix("gitdir:").strip()
    return root


def _refuse_devices(folder: Path) -> None:
    """Raises ValueError where a file git is read from is a pipe or a device, on which reading would hang."""
    common = folder / "commondir"
    todo = [folder / name for name in ("HEAD", "packed-refs", "commondir", "config", "shallow")]
    if os.path.lexists(common) and stat.S_ISREG(os.lstat(common).st_mode):
        folder = folder / common.read_text(errors="surrogateescape")[:4096].strip()
    todo += [folder / name for name in ("HEAD", "packed-refs", "config", "objects/info/alternates")]
    for below in ("refs", "objects/pack", "objects/info"):
        for place, _, names in os.walk(folder / below):
            todo += [Path(place, name) for name in names]
    for path in todo[:_MOST_FILES]:
        if os.path.lexists(path) and not stat.S_ISREG(os.stat(path).st_mode):
            raise ValueError(f"{path.name} is no regular file")


def _config_file(folder: Path) -> str:
    path = folder / "config"
    try:
        status = os.lstat(path)
    except OSError:
        return os.devnull
    regular = stat.S_ISREG(status.st_mode) and status.st_size <= _LARGEST_CONFIG
    return os.fspath(path) if regular else os.devnull


def _commit(repo: Repo, revision: str, name: str) -> Commit:
    from git.exc import GitError
    from gitdb.exc import ODBError

    if not revision.isprintable() or revision.startswith("-") or not revision:
        raise InputError(f"{name}: {revision!r} is not a revision; give a tag, branch or commit")
    for spelled in (revision, f"v{revision}"):
        try:
            return repo.commit(spelled)
        except (GitError, ODBError, ValueError, KeyError, IndexError, OSError, AttributeError, AssertionError, TypeError):
            continue
    tags = sorted((tag.name for tag in repo.tags), reverse=True)[:8]
    told = f"; tags here: {', '.join(tags)}" if tags else "; it has no tags: give a branch or commit, or fetch the tags"
    raise InputError(f"{name}: no revision {revision!r} in this repository{told}")


def _tag_of(repo: Repo, commit: Commit) -> str | None:
    """The tag on the commit or on the nearest of its first parents."""
    tags: dict[str, str] = {}
    for tag in repo.tags:
        try:
            tags.setdefault(tag.commit.hexsha, tag.name)
        except (ValueError, KeyError, OSError):
            continue
    step: Commit | None = commit
    for distance in range(_NEAR_TAG if tags else 0):
        if step is None:
            break
        if step.hexsha in tags:
            return tags[step.hexsha] + (f"+{distance}" if distance else "")
        step = step.parents[0] if step.parents else None
    return None


def _remote(repo: Repo) -> str | None:
    try:
        config = repo.config_reader()
        for section in config.sections():
            found = _REMOTE.fullmatch(str(config.get_value(section, "url", ""))) if section.startswith("remote ") else None
            if found:
                return f"https://{found.group(1)}/{found.group(2).removesuffix('.git')}"
    except Exception:
        # A configuration git would refuse costs the permalink, no more.
        return None
    return None
