"""Where the rules are, and how they are loaded: TOML for people, one JSON copy in the user's cache for speed."""

from __future__ import annotations

import json
import os
import re
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kvdiag.errors import RuleError

Document = dict[str, Any]


def rules_dir() -> Path:
    """The folder of shipped rules: inside the package when installed, beside it in a checkout."""
    package = Path(__file__).parent
    inside = package / "rules"
    return inside if inside.is_dir() else package.parent / "rules"


def cache_dir() -> Path:
    """The folder of kvdiag in the user's cache (``XDG_CACHE_HOME`` or ``~/.cache``); it need not exist."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(base) / "kvdiag"


USER_ROOMS = ("lines",)
"""Kinds of rules a user's own folder may add to: those whose files are checked key by key."""

_user_folders: list[Path] = []


def add_folder(path: str) -> None:
    """Adds a user's folder of rules (``DIR/lines/*.toml``) to the shipped ones; call it before any rule is loaded.

    Its files are data: they are checked when they are loaded, and nothing in them runs. Raises RuleError where there is
    no such folder or nothing in it that can be added.
    """
    folder = Path(path)
    if not folder.is_dir():
        raise RuleError(f"{path}: no such folder; give one that holds {' or '.join(f'{room}/*.toml' for room in USER_ROOMS)}")
    if not any(sorted((folder / room).rglob("*.toml")) for room in USER_ROOMS):
        raise RuleError(f"{path}: no rule files here; rules go into {' or '.join(f'{room}/NAME.toml' for room in USER_ROOMS)}")
    _user_folders.append(folder)


def read_toml(path: Path) -> Document:
    """One rule file. Raises RuleError with path, line and column where it is not TOML."""
    import tomllib

    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        told = re.fullmatch(r"(.*) \(at line (\d+), column (\d+)\)", str(error))
        raise RuleError(f"{path}:{told[2]}:{told[3]}: {told[1]}" if told else f"{path}: {error}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise RuleError(f"{path}: {error}") from None


def load(room: str, build: Callable[[list[Document]], Any] | None = None) -> Any:
    """The documents of ``rules/<room>/*.toml`` in order of name, then those of users' folders, or what `build` makes of them.

    The result must be plain JSON data: it is kept in the user's cache under a key of the files' names, sizes and times
    and of the source files beside `build`, so that a second run reads one JSON file. A cache that cannot be read or written is
    passed over in silence: it only costs time.
    """
    base = rules_dir() / room
    bases = [base, *(folder / room for folder in _user_folders if room in USER_ROOMS)]
    files = [path for each in bases for path in sorted(each.rglob("*.toml"))]
    if not files:
        raise RuleError(f"{base}: no rule files (*.toml) here; the installation is incomplete")
    made_by = build.__name__ if build else "documents"
    cached = cache_dir() / f"rules-{room}-{made_by}-{zlib.crc32(repr(bases).encode()):08x}.json"
    key = _key(files, build)
    try:
        kept = json.loads(cached.read_bytes())
        if kept["key"] == key:
            return kept["result"]
    except (OSError, ValueError, KeyError, TypeError):
        pass
    documents = [{**read_toml(path), "_path": str(path)} for path in files]
    result = build(documents) if build else documents
    _keep(cached, {"key": key, "result": result})
    return result


def _key(files: list[Path], build: Callable[..., Any] | None) -> list[list[Any]]:
    sources = [Path(__file__)]
    if build is not None:
        sources += sorted(Path(build.__code__.co_filename).parent.glob("*.py"))
    key: list[list[Any]] = []
    for path in [*files, *sources]:
        status = path.stat()
        key.append([os.fspath(path), status.st_mtime_ns, status.st_size])
    return key


def _keep(path: Path, result: Any) -> None:
    temporary = path.with_suffix(f".{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(json.dumps(result, ensure_ascii=False), encoding="utf-8")
        temporary.replace(path)
    except OSError:
        return
