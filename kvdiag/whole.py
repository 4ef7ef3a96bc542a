"""Files that are written whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from kvdiag.errors import InputError


@contextmanager
def whole(path: str) -> Iterator[str]:
    """The path to write to, so that the file `path` is replaced when all is written and stays as it was when anything fails.

    A link is followed and its file replaced; what is no regular file (a device, a pipe) is written straight to. Raises
    InputError where the file cannot be written (no such folder, no permission, disk full).
    """
    target = os.path.realpath(path)
    straight = os.path.exists(target) and not os.path.isfile(target)
    folder = os.path.dirname(target)
    if not os.path.isdir(folder):
        raise InputError(f"{path}: cannot be written: there is no folder {folder}; make it first, or name another")
    temporary = target if straight else f"{target}.{os.getpid()}.tmp"
    try:
        yield temporary
        if not straight:
            os.replace(temporary, target)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror or error}") from None
    finally:
        if not straight and os.path.exists(temporary):
            os.unlink(temporary)
