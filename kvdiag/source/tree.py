"""An SGLang tree as this room sees it: the Python files of one package, wherever their bytes lie."""

from __future__ import annotations

from functools import cached_property
from typing import Protocol

from kvdiag.frozen import field, frozen, mutable
from kvdiag.releases import Release

LARGEST_FILE = 4 << 20
"""Bytes of one source file; a larger one is skipped and counted."""
LARGEST_TOTAL = 256 << 20
"""Bytes of all files of an archive that has no index and must be read through."""


class Store(Protocol):
    """Where the bytes lie: a folder, a git revision or an archive."""

    skipped: list[tuple[str, str]]

    def listing(self) -> dict[str, tuple[int, str]]:
        """Path of each Python file to its size and a mark that changes when its content does."""

    def read(self, path: str) -> bytes | None:
        """The content of a file, None where there is no such file or it must not be read."""

    def mark(self) -> str:
        """A hash of the whole content where one is at hand, empty where it must be made from the listing."""


@frozen
class TreeRelease:
    """The release a tree is of, how that is known, and whether it is certain (``stated``) or the ``nearest``."""

    release: Release | None
    source: str
    confidence: str


@mutable
class Origin:
    """What a revision control system tells of a tree."""

    revision: str | None = None
    tag: str | None = None
    remote: str | None = None


@mutable
class SourceTree:
    """One opened tree. `package` is the folder of the ``sglang`` package in it; paths are relative to that package."""

    name: str
    kind: str
    package: str
    store: Store
    origin: Origin = field(default_factory=Origin)
    _kept: dict[str, bytes | None] = field(default_factory=dict)

    @cached_property
    def listing(self) -> dict[str, tuple[int, str]]:
        """Path of each Python file to (size, mark of its content)."""
        return self.store.listing()

    @cached_property
    def fingerprint(self) -> str:
        """A hash that changes when any file does."""
        mark = self.store.mark()
        if mark:
            return mark
        from hashlib import blake2b

        digest = blake2b(digest_size=16)
        for path, (size, mark) in sorted(self.listing.items()):
            digest.update(f"{path}\0{size}\0{mark}\n".encode("utf-8", "surrogatepass"))
        return digest.hexdigest()

    def read(self, path: str) -> bytes | None:
        """The content of a file of the package, None where there is none or it must not be read."""
        if path not in self._kept:
            self._kept[path] = self.store.read(path)
        return self._kept[path]

    def scan(self, path: str) -> bytes:
        """The content of a file for one look; it is not kept."""
        kept = self._kept.get(path)
        return kept if kept is not None else self.store.read(path) or b""

    def place(self, path: str) -> str:
        """The path of a file of the package as seen from the tree's root."""
        return f"{self.package}/{path}" if self.package else path

    def inside(self, place: str) -> str:
        """The path within the package of a file as seen from the tree's root: what `place` gives, back."""
        return place.removeprefix(self.package + "/") if self.package else place

    def permalink(self, path: str, line: int) -> str | None:
        """The address of a line at the tree's revision, where a remote on a known host tells it."""
        if not self.origin.remote or not self.origin.revision:
            return None
        return f"{self.origin.remote}/blob/{self.origin.revision}/{self.place(path)}#L{line}"


PACKAGE_PLACES = ("python/sglang", "sglang", "src/sglang")
"""Where the package lies in a checkout, in site-packages, in a source distribution."""


def readable_name(path: str) -> bool:
    """Whether a name can be a module's: no control characters, nothing undecodable."""
    return path.isprintable()
