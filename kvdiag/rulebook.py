"""Where the rules are, and how they are loaded: TOML for people, one compiled copy in the user's cache for speed."""

from __future__ import annotations

import marshal
import os
import re
import sys
import zlib
from collections.abc import Callable, Iterator
from typing import Any

from kvdiag.errors import RuleError

Document = dict[str, Any]


def rules_dir() -> str:
    """The folder of shipped rules: inside the package when installed, beside it in a checkout."""
    package = os.path.dirname(os.path.abspath(__file__))
    inside = os.path.join(package, "rules")
    return inside if os.path.isdir(inside) else os.path.join(os.path.dirname(package), "rules")


def cache_dir() -> str:
    """The folder of kvdiag in the user's cache (``XDG_CACHE_HOME`` or ``~/.cache``); it need not exist."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(base, "kvdiag")


USER_ROOMS = ("lines",)
"""Kinds of rules a user's own folder may add to: those whose files are checked key by key."""

LARGEST_FILE = 4 << 20
"""Bytes of one rule file; the largest shipped one has a fiftieth of it."""

_user_folders: list[str] = []


def add_folder(path: str) -> None:
    """Adds a user's folder of rules (``DIR/lines/*.toml``) to the shipped ones; call it before any rule is loaded.

    Its files are data: they are checked when they are loaded, and nothing in them runs. Raises RuleError where there is
    no such folder or nothing in it that can be added.
    """
    if not os.path.isdir(path):
        raise RuleError(f"{path}: no such folder; give one that holds {' or '.join(f'{room}/*.toml' for room in USER_ROOMS)}")
    if not any(_files(os.path.join(path, room), ".toml") for room in USER_ROOMS):
        raise RuleError(f"{path}: no rule files here; rules go into {' or '.join(f'{room}/NAME.toml' for room in USER_ROOMS)}")
    _user_folders.append(path)


def is_shipped(document: Document) -> bool:
    """Whether a document is of the shipped rules, and not of a folder of the user's."""
    return str(document["_path"]).startswith(os.path.join(rules_dir(), ""))


def read_toml(path: str) -> Document:
    """One rule file. Raises RuleError with path, line and column where it is not TOML."""
    import stat
    import tomllib

    try:
        status = os.stat(path)
        if not stat.S_ISREG(status.st_mode) or status.st_size > LARGEST_FILE:
            raise RuleError(f"{path}:1:1: no plain file of at most {LARGEST_FILE:,} bytes, so no rule file")
        with open(path, encoding="utf-8") as file:
            return tomllib.loads(file.read())
    except tomllib.TOMLDecodeError as error:
        told = re.fullmatch(r"(.*) \(at line (\d+), column (\d+)\)", str(error))
        raise RuleError(f"{path}:{told[2]}:{told[3]}: {told[1]}" if told else f"{path}: {error}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise RuleError(f"{path}: {error}") from None
    except RecursionError:
        raise RuleError(f"{path}:1:1: nested too deeply for a rule file") from None


def load(room: str, build: Callable[[list[Document]], Any] | None = None) -> Any:
    """The documents of ``rules/<room>/*.toml`` in order of name, then those of users' folders, or what `build` makes of them.

    The result must be plain data (dicts, lists, texts, numbers): it is kept in the user's cache, in the form Python keeps its
    own compiled modules in, under a key of the files' names, sizes and times and of the source files beside `build`. A cache
    that cannot be read or written is passed over in silence: it only costs time.
    """
    base = os.path.join(rules_dir(), room)
    bases = [base, *(os.path.join(folder, room) for folder in _user_folders if room in USER_ROOMS)]
    files = [file for each in bases for file in _files(each, ".toml")]
    if not files:
        raise RuleError(f"{base}: no rule files (*.toml) here; the installation is incomplete")
    made_by = build.__name__ if build else "documents"
    place = zlib.crc32(repr((bases, sys.hexversion)).encode())
    cached = os.path.join(cache_dir(), f"rules-{room}-{made_by}-{place:08x}.bin")
    key = _key(files, build)
    kept = _kept(cached)
    if kept is not None and kept[0] == key:
        return kept[1]
    documents = [{**read_toml(path), "_path": path} for path, *_ in files]
    result = build(documents) if build else documents
    _keep(cached, [key, result])
    return result


_File = list[Any]
"""Path, time of change in nanoseconds, size."""


def _files(folder: str, ending: str) -> list[_File]:
    """The files of a folder and of those in it that end so, in order of their paths."""
    return sorted(_walk(folder, ending))


def _walk(folder: str, ending: str) -> Iterator[_File]:
    try:
        entries = os.scandir(folder)
    except OSError:
        return
    with entries:
        for entry in entries:
            if entry.name.endswith(ending):
                yield _file(entry)
            elif os.path.isdir(entry.path) and not _leads_back(entry, folder):
                yield from _walk(entry.path, ending)


def _file(entry: os.DirEntry[str]) -> _File:
    """The entry, with a time and a size of nothing where its link leads nowhere: reading it says so."""
    try:
        status = entry.stat()
    except OSError:
        return [entry.path, 0, 0]
    return [entry.path, status.st_mtime_ns, status.st_size]


def _leads_back(entry: os.DirEntry[str], folder: str) -> bool:
    """Whether a link leads to a folder that it is in, so that following it has no end."""
    if not entry.is_symlink():
        return False
    target, inside = os.path.realpath(entry.path), os.path.realpath(folder)
    return os.path.commonpath([target, inside]) == target


def _key(files: list[_File], build: Callable[..., Any] | None) -> list[_File]:
    """What the result depends on: the rule files, and the source files beside this one's rules and beside `build`."""
    here = os.stat(__file__)
    sources = [[__file__, here.st_mtime_ns, here.st_size]]
    if build is not None:
        beside = os.path.dirname(build.__code__.co_filename)
        sources += [file for file in _files(beside, ".py") if os.path.dirname(file[0]) == beside]
    return files + sources


def _kept(path: str) -> list[Any] | None:
    """What `_keep` wrote, None where there is nothing or it is not whole."""
    try:
        with open(path, "rb") as file:
            data = memoryview(file.read())
        found: list[Any] | None = marshal.loads(data[4:]) if zlib.crc32(data[4:]).to_bytes(4, "big") == data[:4] else None
    except (OSError, ValueError, EOFError, TypeError):
        return None
    return found


def _keep(path: str, result: Any) -> None:
    data = marshal.dumps(result)
    temporary = f"{path}.{os.getpid()}.tmp"
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(temporary, "wb") as file:
            file.write(zlib.crc32(data).to_bytes(4, "big") + data)
        os.replace(temporary, path)
    except OSError:
        return
