"""From what the user wrote, ``TREE[@REV]``, to an opened tree."""

from __future__ import annotations

import os
import stat

from kvdiag.errors import InputError
from kvdiag.source.archive import open_archive
from kvdiag.source.folder import open_folder
from kvdiag.source.tree import SourceTree

WHAT_A_TREE_IS = (
    "TREE is SGLang's own source: a git checkout (TREE@v0.5.9 for its tag), the installed package's folder "
    "(python -c 'import sglang; print(sglang.__path__[0])' prints it), or a wheel (pip download --no-deps sglang==0.5.9)"
)
"""For whoever gave something else, or nothing."""


def open_tree(spec: str) -> SourceTree:
    """Opens ``TREE`` or ``TREE@REV``: a folder, checkout, installed package, wheel or sdist; or a git revision.

    Raises InputError with what to give instead where there is nothing to open.
    """
    path, revision = split_revision(spec)
    if revision:
        from kvdiag.source.revision import open_revision

        return open_revision(path, revision)
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError):
        raise InputError(f"{spec}: no such folder or archive. {WHAT_A_TREE_IS}") from None
    if stat.S_ISDIR(mode):
        return _folder(path)
    if stat.S_ISREG(mode):
        return open_archive(path)
    raise InputError(f"{spec}: neither a folder nor an archive; give a checkout, an installed package, a wheel or an sdist")


def open_against(spec: str, other: str) -> SourceTree:
    """The tree to compare with: `other` is a revision of the repository of `spec`, or another tree."""
    path, _ = split_revision(spec)
    if os.path.isdir(path) and not os.path.exists(other):
        from kvdiag.source.revision import open_revision

        return open_revision(path, other)
    return open_tree(other)


def split_revision(spec: str) -> tuple[str, str]:
    """Path and revision; an ``@`` in a name that exists is part of the name."""
    if os.path.exists(spec) or "@" not in spec:
        return spec, ""
    at = len(spec)
    while (at := spec.rfind("@", 0, at)) > 0:
        if os.path.exists(spec[:at]):
            return spec[:at], spec[at + 1 :]
    return spec, ""


def _folder(path: str) -> SourceTree:
    try:
        return open_folder(path)
    except InputError:
        bare = os.path.exists(os.path.join(path, "HEAD")) and os.path.isdir(os.path.join(path, "objects"))
        if not bare:
            raise
    from kvdiag.source.revision import open_revision

    return open_revision(path, "HEAD")
