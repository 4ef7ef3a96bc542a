"""A folder, a working tree or an installed package: read by lstat only, no link followed, nothing but regular files opened."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from kvdiag.errors import InputError
from kvdiag.source.tree import LARGEST_FILE, PACKAGE_PLACES, SourceTree, readable_name

_DEEPEST = 24
_MOST_FILES = 200_000
_FLAGS = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)


class FolderStore:
    """The Python files below `root`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.skipped: list[tuple[str, str]] = []
        self._folders: dict[str, str | None] = {}

    def listing(self) -> dict[str, tuple[int, str]]:
        """Path to (size, time of change); what is skipped is noted with its reason."""
        found: dict[str, tuple[int, str]] = {}
        todo = [("", 0)]
        while todo:
            below, depth = todo.pop()
            try:
                with os.scandir(self.root / below) as entries:
                    for entry in entries:
                        self._entry(entry, f"{below}/{entry.name}" if below else entry.name, depth, found, todo)
            except OSError as error:
                self.skipped.append((below, f"cannot be listed: {error.strerror}"))
            if len(found) > _MOST_FILES:
                raise InputError(f"{self.root}: more than {_MOST_FILES:,} Python files; this is not an SGLang tree")
        return found

    def _entry(
        self, entry: os.DirEntry[str], path: str, depth: int, found: dict[str, tuple[int, str]], todo: list[tuple[str, int]]
    ) -> None:
        if entry.is_symlink():
            self.skipped.append((path, "a link"))
        elif entry.is_dir(follow_symlinks=False):
            if entry.name.startswith((".", "__pycache__")):
                return
            if depth >= _DEEPEST or not readable_name(path):
                self.skipped.append((path, "too deep, or a name no package has"))
            else:
                todo.append((path, depth + 1))
        elif entry.name.endswith(".py"):
            status = entry.stat(follow_symlinks=False)
            if not stat.S_ISREG(status.st_mode):
                self.skipped.append((path, "no regular file"))
            elif status.st_size > LARGEST_FILE:
                self.skipped.append((path, f"{status.st_size:,} bytes, more than {LARGEST_FILE:,}"))
            elif not readable_name(path):
                self.skipped.append((path, "a name no module has"))
            else:
                found[path] = (status.st_size, str(status.st_mtime_ns))

    def mark(self) -> str:
        """None at hand: made from the listing."""
        return ""

    def read(self, path: str) -> bytes | None:
        """The content; no part of the path below the root may be a link."""
        folder, _, name = path.rpartition("/")
        place = self._folder(folder)
        if place is None or name in ("", ".", ".."):
            return None
        try:
            if not stat.S_ISREG(os.lstat(f"{place}/{name}").st_mode):
                return None
            file = os.open(f"{place}/{name}", _FLAGS)
        except (OSError, ValueError):
            return None
        try:
            status = os.fstat(file)
            if not stat.S_ISREG(status.st_mode) or status.st_size > LARGEST_FILE:
                return None
            return os.read(file, LARGEST_FILE)
        except OSError:
            return None
        finally:
            os.close(file)

    def _folder(self, below: str) -> str | None:
        """The place of a folder below the root; None where it, or one above it, is a link or no folder."""
        if below not in self._folders:
            above, _, name = below.rpartition("/")
            place = self._folder(above) if below else os.fspath(self.root)
            if below and place is not None:
                place = f"{place}/{name}" if name not in ("", ".", "..") else None
            try:
                is_folder = place is not None and stat.S_ISDIR(os.lstat(place).st_mode)
            except (OSError, ValueError):
                is_folder = False
            self._folders[below] = place if is_folder else None
        return self._folders[below]


def open_folder(name: str) -> SourceTree:
    """The tree in the folder `name`: a checkout, a site-packages folder, the package itself or an environment."""
    root = Path(os.path.realpath(name))
    package = _package_in(root)
    if package is None:
        raise InputError(
            f"{name}: no sglang package here; give the checkout (it holds python/sglang), the installed package's folder "
            "(site-packages/sglang), a wheel or an sdist"
        )
    tree = SourceTree(name, "folder", package, FolderStore(root / package if package else root))
    if (root / ".git").exists():
        from kvdiag.source.revision import origin_of_folder

        tree.origin = origin_of_folder(root)
        tree.kind = "working tree"
    return tree


def _package_in(root: Path) -> str | None:
    for place in (*PACKAGE_PLACES, "", *_environments(root)):
        if _is_package(root / place if place else root):
            return place
    return None


def _environments(root: Path) -> list[str]:
    lib = root / "lib"
    if not lib.is_dir() or lib.is_symlink():
        return []
    return [f"lib/{entry.name}/site-packages/sglang" for entry in sorted(lib.iterdir()) if entry.name.startswith("python3")]


def _is_package(folder: Path) -> bool:
    try:
        return not folder.is_symlink() and stat.S_ISDIR(os.lstat(folder / "srt").st_mode)
    except (OSError, ValueError):
        return False
