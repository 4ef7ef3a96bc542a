"""The loop of ``kvdiag watch``: reads what has come, tells what happened, and ends with the postmortem."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import IO, Any

from kvdiag.errors import InputError
from kvdiag.small import small_file
from kvdiag.watch.follow import Follower, Piped, Place
from kvdiag.watch.live import Happening, Server
from kvdiag.whole import whole

INTERVAL = 0.25
"""Seconds between two looks at the files."""
LARGEST_STATE = 16 << 20
"""Bytes of the file of places: some hundred for each log."""

Tell = Callable[[list[Server], list[Happening]], None]


class Watch:
    """Follows logs; `state` names a file in which places are kept, so that another run goes on from there."""

    def __init__(self, paths: list[str], state: str | None = None) -> None:
        self._stack = ExitStack()
        self._state = state
        saved = _saved(state)
        self.followers: list[Follower | Piped] = []
        self.servers: list[Server] = []
        for path in paths:
            follower = self._piped() if path == "-" else Follower(path, _place(saved.get(path)))
            self._stack.callback(follower.close)
            self.followers.append(follower)
            self.servers.append(_server(path, saved.get(path) if path != "-" else None))

    def _piped(self) -> Piped:
        copy = tempfile.NamedTemporaryFile(prefix="kvdiag-", suffix=".log")  # noqa: SIM115 - the stack closes it
        self._copy = self._stack.enter_context(copy)
        return Piped(sys.stdin.buffer, self._copy)

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def look(self, *, now: bool = False) -> list[Happening]:
        """Reads all that has come; gives what happened in it, and what findings have arisen (`now`: even if just looked at)."""
        told: list[Happening] = []
        for follower, server in zip(self.followers, self.servers, strict=True):
            for block in follower.blocks():
                told.extend(server.take(block))
            told.extend(server.arisen(now=now))
        return told

    def run(self, tell: Tell, *, once: bool = False) -> None:
        """Looks until it is interrupted, or all input has ended; with `once`, one time."""
        try:
            while True:
                tell(self.servers, self.look(now=once))
                if once or all(isinstance(follower, Piped) and follower.ended for follower in self.followers):
                    return
                time.sleep(INTERVAL)
        except KeyboardInterrupt:
            return
        finally:
            self._save()

    def paths(self) -> list[str]:
        """Where what was read can be read again, for the postmortem."""
        paths = []
        for follower in self.followers:
            if isinstance(follower, Piped):
                self._copy.flush()
            paths.append(self._copy.name if isinstance(follower, Piped) else follower.path)
        return [path for path in paths if os.path.exists(path)]

    def _save(self) -> None:
        if self._state is None:
            return
        kept: dict[str, Any] = {}
        for follower, server in zip(self.followers, self.servers, strict=True):
            place = follower.place
            if place is not None:
                numbers = {"numbers": server.numbers, "retractions": server.retractions}
                kept[follower.path] = {"inode": place.inode, "offset": place.offset, "before": place.before, **numbers}
        with whole(self._state) as path, open(path, "w", encoding="utf-8") as file:
            json.dump(kept, file)


def _saved(state: str | None) -> dict[str, Any]:
    """The places another run kept, none where there is no such file yet or it is empty.

    Raises InputError for a file that is none of ours: it would be overwritten at the end, and may be the log itself.
    """
    if state is None or not os.path.exists(state):
        return {}
    advice = "name the file that an earlier --state wrote, or one that is not there yet"
    data = small_file(state, LARGEST_STATE, InputError, advice)
    try:
        saved = json.loads(data or "{}")
    except (ValueError, RecursionError):
        saved = None
    if not isinstance(saved, dict) or not all(isinstance(kept, dict) and "offset" in kept for kept in saved.values()):
        raise InputError(f"{state}: not a state that kvdiag watch wrote; {advice}")
    return saved


def _place(saved: Any) -> Place | None:
    try:
        place = Place(int(saved["inode"]), int(saved["offset"]), str(saved["before"]))
        bytes.fromhex(place.before)
    except (KeyError, TypeError, ValueError):
        return None
    return place if place.offset >= len(place.before) // 2 else None


def _server(path: str, saved: Any) -> Server:
    server = Server(path)
    if _place(saved) is not None:
        numbers = saved.get("numbers")
        server.numbers = {k: v for k, v in numbers.items() if isinstance(v, int)} if isinstance(numbers, dict) else {}
        server.retractions = saved["retractions"] if isinstance(saved.get("retractions"), int) else 0
    return server


def lines_to(stream: IO[str]) -> Tell:
    """Tells happenings as lines: for pipes and files."""
    from kvdiag.reports.safe import safe

    def tell(servers: list[Server], told: list[Happening]) -> None:
        for each in told:
            where = f"{safe(each.path)}:{each.line}" if len(servers) > 1 else f"line {each.line}"
            stream.write(" ".join(part for part in (each.time, each.rank, safe(each.what), f"({where})") if part) + "\n")
        stream.flush()

    return tell
