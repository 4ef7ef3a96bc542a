"""A wheel or a source distribution, read where it lies: nothing is unpacked to disk."""

from __future__ import annotations

import os
import tarfile
import zipfile

from kvdiag.errors import InputError
from kvdiag.source.tree import LARGEST_FILE, LARGEST_TOTAL, PACKAGE_PLACES, SourceTree, readable_name


class ZipStore:
    """The Python files of the package in a wheel."""

    def __init__(self, archive: zipfile.ZipFile, package: str) -> None:
        self.archive = archive
        self.package = package
        self.skipped: list[tuple[str, str]] = []

    def listing(self) -> dict[str, tuple[int, str]]:
        """Path to (size, checksum)."""
        found: dict[str, tuple[int, str]] = {}
        for member in self.archive.infolist():
            path = member.filename.removeprefix(self.package + "/")
            if path == member.filename or not path.endswith(".py"):
                continue
            if member.file_size > LARGEST_FILE or not readable_name(path):
                self.skipped.append((path, "too large, or a name no module has"))
            else:
                found[path] = (member.file_size, f"{member.CRC:08x}")
        return found

    def mark(self) -> str:
        """None at hand: made from the listing."""
        return ""

    def read(self, path: str) -> bytes | None:
        """The content, at most `LARGEST_FILE` bytes whatever the archive says of its size."""
        try:
            with self.archive.open(f"{self.package}/{path}") as member:
                data = member.read(LARGEST_FILE + 1)
        except Exception:
            # A damaged member fails in as many ways as there are decompressors; to the reader it is a file that is not there.
            return None
        return data if len(data) <= LARGEST_FILE else None


class MemoryStore:
    """Files that had to be read through once, as a compressed tar has no index."""

    def __init__(self, files: dict[str, bytes], skipped: list[tuple[str, str]]) -> None:
        self.files = files
        self.skipped = skipped

    def listing(self) -> dict[str, tuple[int, str]]:
        """Path to (size, checksum)."""
        import zlib

        return {path: (len(data), f"{zlib.crc32(data):08x}") for path, data in self.files.items()}

    def mark(self) -> str:
        """None at hand: made from the listing."""
        return ""

    def read(self, path: str) -> bytes | None:
        """The content."""
        return self.files.get(path)


def open_archive(name: str) -> SourceTree:
    """The tree in the wheel, zip or tar file `name`. Raises InputError where it holds no sglang package."""
    try:
        if zipfile.is_zipfile(name):
            return _open_zip(name)
        if tarfile.is_tarfile(name):
            return _open_tar(name)
    except (OSError, zipfile.BadZipFile, tarfile.TarError, EOFError, ValueError) as error:
        raise InputError(f"{name}: the archive cannot be read: {error}") from None
    raise InputError(f"{name}: neither a folder nor a wheel (.whl, .zip) nor an sdist (.tar.gz)")


def _open_zip(name: str) -> SourceTree:
    archive = zipfile.ZipFile(name)
    package = _package_of(archive.namelist())
    if package is None:
        raise InputError(f"{name}: this archive holds no sglang package (no .../sglang/srt/ in it); give sglang's own")
    return SourceTree(name, "wheel", package, ZipStore(archive, package))


def _package_of(names: list[str]) -> str | None:
    """The shortest folder ``sglang`` with a folder ``srt``, in one of the usual places or below one folder."""
    found = set()
    for path in names:
        head, mark, _ = path.partition("/sglang/srt/")
        if mark:
            found.add(f"{head}/sglang")
        elif path.startswith("sglang/srt/"):
            found.add("sglang")
    usual = [place for place in found if any(place == usual or place.endswith("/" + usual) for usual in PACKAGE_PLACES)]
    return min(usual, key=lambda place: (place.count("/"), place), default=None)


def _open_tar(name: str) -> SourceTree:
    files: dict[str, bytes] = {}
    others: dict[str, bytes] = {}
    skipped: list[tuple[str, str]] = []
    total = 0
    with tarfile.open(name, "r:*") as archive:
        for member in archive:
            if not member.isreg() or not member.name.endswith((".py", "/PKG-INFO", "/pyproject.toml")):
                continue
            total += min(member.size, LARGEST_FILE)
            if member.size > LARGEST_FILE or total > LARGEST_TOTAL or not readable_name(member.name):
                skipped.append((member.name, "too large, or a name no module has"))
                continue
            content = archive.extractfile(member)
            if content is not None:
                (files if member.name.endswith(".py") else others)[os.path.normpath(member.name)] = content.read(LARGEST_FILE)
    package = _package_of(list(files))
    if package is None:
        raise InputError(f"{name}: this archive holds no sglang package (no .../sglang/srt/ in it); give sglang's own")
    inside = {path.removeprefix(package + "/"): data for path, data in files.items() if path.startswith(package + "/")}
    return SourceTree(name, "sdist", package, MemoryStore(inside, skipped))
