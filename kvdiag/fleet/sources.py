"""Where the logs of a fleet are: local files and whatever fsspec opens (s3://, gs://, hf://, http(s)://)."""

from __future__ import annotations

import os
import re
import shutil
import stat
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from kvdiag.errors import InputError, install_extra
from kvdiag.frozen import frozen

_COPY = 1 << 20
_MARKS = ("ETag", "etag", "checksum", "md5Hash", "sha256", "LastModified", "last_modified", "mtime", "updated")
"""What file systems say of an object that changes with its content, the surest first."""

_PACKED = re.compile(r"\.(?:gz|bz2|xz|zst)$", re.IGNORECASE)
_ROTATED = re.compile(r"(?:[.-]\d[\dT:._-]*|\.(?:old|bak|prev))$", re.IGNORECASE)
_LOG = re.compile(r".*\.(?:logs?|out|err|stdout|stderr)|(?:.*[._-])?(?:logs?|stdout|stderr|nohup|console|syslog)", re.IGNORECASE)
"""Names that logs have, once what packing and rotation append is taken off: ``server.log.2.gz``, ``slurm-7.out``, ``stderr``."""

_EXTRAS = {"s3": "fleet", "s3a": "fleet", "gs": "gs", "gcs": "gs", "hf": "hf", "http": "fleet", "https": "fleet"}
"""The extra of kvdiag that brings what opens addresses of a scheme."""


@frozen
class Source:
    """A log and what tells whether it has changed: its size and its etag, checksum or time; `fault` is why it is not read."""

    url: str
    key: str
    fault: str | None = None


def shown_url(url: str) -> str:
    """An address without what may be a secret: no user name or password, of a query or fragment only a checksum."""
    if "://" not in url:
        return url
    scheme, _, rest = url.partition("://")
    place, mark, query = re.sub(r"^[^/?#]*@", "", rest).partition("?")
    return f"{scheme}://{place}" + (f"?{zlib.crc32(query.encode('utf-8', 'surrogatepass')):08x}" if mark else "")


def named_like_a_log(name: str) -> bool:
    """Whether a file's name is one that logs have: beside logs lie configs, notes that quote them, and reports of them."""
    name = _ROTATED.sub("", _PACKED.sub("", name.replace("\\", "/").rpartition("/")[2]))
    return _LOG.fullmatch(name) is not None


def find_sources(urls: list[str], passed: list[str] | None = None) -> list[Source]:
    """The logs that `urls` name, each once, in order of name: files, what globs match, and the logs under folders and prefixes.

    Under a folder or prefix only files with the name of a log are taken; the others are added to `passed`. What lies in a
    folder and is no regular file, a link that leads nowhere, and a folder that may not be looked into, is a source with a
    fault: one such entry must not keep the others from being read. Raises InputError where an address cannot be opened, names
    no log, or needs a library that is not installed.
    """
    found: dict[str, Source] = {}
    for url in urls:
        before, others = len(found), list[str]()
        for source in _remote(url, others) if "://" in url else _local(url, others):
            found.setdefault(source.url, source)
        if len(found) == before and not any(source.url.startswith(url) for source in found.values()):
            raise InputError(f"{shown_url(url)}: no log here{_only(others)}; give a file, a glob or a folder that holds logs")
        if passed is not None:
            passed += others
    return [found[url] for url in sorted(found)]


def _only(others: list[str]) -> str:
    count = f"the {len(others)} files in it have" if len(others) > 1 else "the one file in it has"
    return f" ({count} no log's name, such as server.log or stderr.1.gz)" if others else ""


def _local(path: str, others: list[str]) -> Iterator[Source]:
    import glob

    paths = (
        sorted(glob.glob(path, recursive=True)) if any(mark in path for mark in "*?[") and not os.path.exists(path) else [path]
    )
    for name in paths:
        if os.path.isdir(name):
            unread: list[OSError] = []
            for folder, _, files in os.walk(name, onerror=unread.append):
                paths_here = [os.path.join(folder, file) for file in sorted(files) if not file.startswith(".")]
                others += (path for path in paths_here if not named_like_a_log(path))
                yield from (_local_source(path, listed=True) for path in paths_here if named_like_a_log(path))
            for error in unread:
                yield Source(str(error.filename), "", f"{error.filename}: this folder cannot be read: {error.strerror}")
        else:
            yield _local_source(name, listed=name != path)


def _local_source(path: str, *, listed: bool) -> Source:
    """A file; `listed`: found in a folder or by a glob, where opening a pipe that nobody asked for would wait for ever."""
    try:
        status = os.stat(path)
    except OSError as error:
        reason = f"{path}: cannot be read: {error.strerror or error}"
        if listed or os.path.islink(path):
            return Source(path, "", reason)
        raise InputError(f"{reason}; give a log, a glob, or a folder that holds logs") from None
    if listed and not stat.S_ISREG(status.st_mode):
        return Source(path, "", f"{path}: no regular file (a pipe, socket or device); name it itself to have it read")
    return Source(path, f"{status.st_size}:{status.st_mtime_ns}")


def _remote(url: str, others: list[str]) -> Iterator[Source]:
    system, path = _opened(url)
    try:
        by_pattern = any(mark in path for mark in "*?[")
        below = not by_pattern and system.isdir(path)
        names = sorted((system.glob if by_pattern else system.find if below else _itself)(path))
        others += (name for name in names if below and not named_like_a_log(name))
        for name in (name for name in names if not below or named_like_a_log(name)):
            yield Source(url if name == path else system.unstrip_protocol(name), _key(system.info(name)))
    except Exception as error:
        told = str(error).replace(url, shown_url(url))
        raise InputError(f"{shown_url(url)}: cannot be listed: {type(error).__name__}: {told}") from None


def _itself(path: str) -> list[str]:
    return [path]


def _opened(url: str) -> tuple[Any, str]:
    try:
        import fsspec
    except ImportError:
        raise InputError(f"{shown_url(url)}: addresses need fsspec; {install_extra('fleet')}") from None
    try:
        opened: tuple[Any, str] = fsspec.core.url_to_fs(url)
    except ImportError as error:
        scheme = url.partition("://")[0]
        extra = _EXTRAS.get(scheme)
        what = install_extra(extra) if extra else f"fsspec says: {error}"
        raise InputError(f"{shown_url(url)}: nothing here opens {scheme}:// addresses; {what}") from None
    except ValueError as error:
        raise InputError(f"{shown_url(url)}: cannot be opened: {error}") from None
    return opened


def _key(info: dict[str, Any]) -> str:
    mark = next((str(info[name]) for name in _MARKS if info.get(name)), "")
    return f"{info.get('size')}:{mark}"


@contextmanager
def local_copy(url: str) -> Iterator[str]:
    """A path at which the log can be read; what is not local is copied, and the copy removed afterwards."""
    if "://" not in url:
        yield url
        return
    system, path = _opened(url)
    with tempfile.NamedTemporaryFile(prefix="kvdiag-", suffix=os.path.splitext(path)[1]) as copy:
        with system.open(path, "rb") as stream:
            shutil.copyfileobj(stream, copy, _COPY)
        copy.flush()
        yield copy.name
