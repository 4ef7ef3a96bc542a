"""Running over many logs: in this process, in several, or on a Dask cluster; nothing done is lost or done twice."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import get_context
from threading import current_thread, main_thread
from typing import Any

from kvdiag import __version__
from kvdiag.errors import InputError, install_extra
from kvdiag.fleet.sources import Source, shown_url
from kvdiag.fleet.summary import summarise

JOURNAL = "summaries.jsonl"
CONTEXT = get_context("spawn")
"""How workers begin: Arrow's threads do not survive a fork."""
_TOGETHER = 8
"""Logs handed to a worker at a time."""

Summary = dict[str, Any]
Batches = list[list[Source]]


def run(
    sources: list[Source],
    folder: str,
    *,
    processes: int = 1,
    scheduler: str | None = None,
    done: Callable[[int], None] | None = None,
) -> list[Summary]:
    """The summaries of all `sources`, in order of their addresses.

    Each is written to a journal in `folder` as soon as it is there; what the journal has of an unchanged log is not read
    again. `done` is told how many logs are finished. Raises InputError where the folder or the cluster cannot be used.
    """
    path = os.path.join(folder, JOURNAL)
    kept = {shown_url(source.url): summary for source, summary in _journal(path, sources)}
    missing = [source for source in sources if shown_url(source.url) not in kept]
    batches = [missing[at : at + _TOGETHER] for at in range(0, len(missing), _TOGETHER)]
    try:
        os.makedirs(folder, exist_ok=True)
        with open(path, "a", encoding="utf-8") as journal:
            for summary in _each(batches, processes, scheduler):
                kept[summary["url"]] = summary
                journal.write(json.dumps({"kvdiag": __version__, **summary}) + "\n")
                journal.flush()
                if done is not None:
                    done(len(kept))
    except OSError as error:
        raise InputError(f"{folder}: cannot be written: {error.strerror or error}") from None
    return [kept[shown_url(source.url)] for source in sources]


def _journal(path: str, sources: list[Source]) -> Iterator[tuple[Source, Summary]]:
    """What an earlier run (or one that was broken off) found of logs that have not changed; errors are tried again."""
    wanted = {(shown_url(source.url), source.key): source for source in sources}
    if not os.path.exists(path):
        return
    with open(path, encoding="utf-8", errors="replace") as journal:
        for line in journal:
            try:
                summary = json.loads(line)
                made_by = summary.pop("kvdiag")
                source = wanted.get((summary["url"], summary["key"]))
            except (ValueError, KeyError, TypeError, AttributeError):
                continue
            if source is not None and made_by == __version__ and summary["error"] is None:
                yield source, summary


def _each(batches: Batches, processes: int, scheduler: str | None) -> Iterator[Summary]:
    if scheduler is not None:
        return _on_cluster(batches, scheduler)
    if processes > 1 and len(batches) > 1:
        return _in_processes(batches, processes)
    return (summary for batch in batches for summary in summarise_all(batch))


def summarise_all(batch: Iterable[Source]) -> list[Summary]:
    """The summaries of a few logs: what a worker does."""
    return [summarise(source) for source in batch]


def _in_processes(batches: Batches, processes: int) -> Iterator[Summary]:
    """A pool that breaks (a worker was killed) is made anew for what is left; what breaks it again is then done alone."""
    left = dict(enumerate(batches))
    for _ in range(2):
        try:
            with _pool(processes) as pool:
                with _no_interrupt():
                    running = {pool.submit(summarise_all, batch): index for index, batch in left.items()}
                for future in as_completed(running):
                    found = future.result()
                    del left[running[future]]
                    yield from found
            return
        except BrokenProcessPool:
            continue
    for source in [source for batch in left.values() for source in batch]:
        yield _alone(source)


@contextmanager
def _pool(processes: int) -> Iterator[ProcessPoolExecutor]:
    """Worker processes that are gone at the end; what they have not begun by then (at Ctrl-C) is not begun."""
    pool = ProcessPoolExecutor(processes, CONTEXT)
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)


@contextmanager
def _no_interrupt() -> Iterator[None]:
    """Ctrl-C and SIGTERM wait meanwhile: a pool that is half made cannot be closed.

    Workers begun in it never see Ctrl-C, which a terminal sends to all; they end with the pool, which ends them by SIGTERM
    where it breaks.
    """
    if current_thread() is not main_thread() or not hasattr(signal, "pthread_sigmask"):
        yield
        return
    came: list[int] = []
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(each, lambda number, _: came.append(number)) for each in numbers]  # any thread may get them
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        for each, handler in zip(numbers, before, strict=True):
            signal.signal(each, handler)
    for number in came[:1]:
        signal.raise_signal(number)


def _alone(source: Source) -> Summary:
    """The summary of a log that a worker may have died of, by a worker of its own."""
    try:
        with _pool(1) as pool:
            with _no_interrupt():
                future = pool.submit(summarise_all, [source])
            return future.result()[0]
    except BrokenProcessPool:
        return {
            "url": shown_url(source.url),
            "key": source.key,
            "error": "the process that read this log was killed (out of memory?)",
        }


def _on_cluster(batches: Batches, scheduler: str) -> Iterator[Summary]:
    """On a Dask cluster; its scheduler gives the work of a lost worker to another."""
    try:
        import distributed
    except ImportError:
        raise InputError(f"--scheduler needs Dask; {install_extra('fleet')}") from None
    try:
        client: Any = distributed.Client(scheduler, timeout=20)
    except (OSError, ValueError) as error:
        raise InputError(f"{scheduler}: no Dask scheduler answers here: {error}") from None
    with client:
        futures = {client.submit(summarise_all, batch, pure=False, retries=3): batch for batch in batches}
        for future in distributed.as_completed(list(futures)):
            if future.status == "finished":
                yield from future.result()
            else:
                reason = f"the cluster could not read this log: {future.exception()}"
                yield from ({"url": shown_url(source.url), "key": source.key, "error": reason} for source in futures[future])
            future.release()
