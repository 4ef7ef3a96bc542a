"""Asking a running server, only when told to: bounded in time and size, never elsewhere than at the host that was named."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from kvdiag.errors import InputError
from kvdiag.outside.model import LARGEST, Outside
from kvdiag.outside.server_info import server_info

if TYPE_CHECKING:
    from http.client import HTTPConnection

SECONDS = 10.0
"""For one answer, from the name's look-up to its last byte."""
_PATHS = ("/get_server_info", "/server_info")


def fetch_server_info(url: str) -> tuple[Outside, ...]:
    """The info of the server at `url` (``http://host:port``); raises InputError where there is none to be had.

    Redirects are not followed, and user names, passwords and queries in the URL are neither sent on nor shown.
    """
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise InputError("--server: not a URL; give http://host:port") from None
    if parts.scheme not in ("http", "https") or not host:
        raise InputError("--server: only http://host:port and https://host:port can be asked")
    place = f"{parts.scheme}://{host}" + (f":{port}" if port else "")
    for path in _PATHS:
        text = _in_time(partial(_get, parts.scheme, host, port, parts.path.rstrip("/") + path, place), place)
        if text is not None:
            return server_info(text, place)
    raise InputError(f"{place}: has neither {' nor '.join(_PATHS)}; is it an SGLang server?")


def _in_time(ask: Callable[[], str | None], place: str) -> str | None:
    """What `ask` gives, or InputError when it takes too long: a byte now and then keeps any time limit of a socket at bay."""
    from threading import Thread

    found: list[str | None] = []
    failed: list[Exception] = []

    def run() -> None:
        try:
            found.append(ask())
        except Exception as error:
            failed.append(error)

    thread = Thread(target=run, daemon=True)
    thread.start()
    thread.join(SECONDS)
    if failed:
        raise failed[0]
    if not found:
        raise InputError(f"{place}: no whole answer in {SECONDS:.0f} seconds; save it to a file and give --server-info FILE")
    return found[0]


def _get(scheme: str, host: str, port: int | None, path: str, place: str) -> str | None:
    """The body of an answer 200, None for an answer 404."""
    from http.client import HTTPConnection, HTTPException, HTTPSConnection

    make = HTTPSConnection if scheme == "https" else HTTPConnection
    connection: HTTPConnection = make(host, port, timeout=SECONDS)
    try:
        connection.request("GET", path, headers={"Accept": "application/json"})
        with connection.getresponse() as answer:
            if answer.status == 404:
                return None
            if answer.status != 200:
                raise InputError(f"{place}: answers {answer.status}; redirects are not followed")
            body = answer.read(LARGEST + 1)
    except (OSError, HTTPException) as error:
        told = getattr(error, "strerror", None) or error
        raise InputError(f"{place}: cannot be asked: {told}; is the server up, and is this its port?") from None
    finally:
        connection.close()
    if len(body) > LARGEST:
        raise InputError(f"{place}: the answer is longer than {LARGEST:,} bytes")
    return body.decode("utf-8", "replace")
