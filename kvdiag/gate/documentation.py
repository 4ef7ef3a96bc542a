"""The gate's diagnostics as ``kvdiag rules`` lists and shows them."""

from __future__ import annotations

from collections.abc import Iterator

from kvdiag.gate.codes import codes
from kvdiag.rulerooms import Entry, Tested


def entries() -> list[Entry]:
    """The diagnostics in the order of their codes."""
    return [Entry(code.code, code.title, "Drift between two starts") for code in codes().values()]


def show(code: str) -> str:
    """What a diagnostic means and what to do about it."""
    entry = codes()[code]
    return f"# {entry.code}: {entry.title}\n\n{entry.meaning}\n\n{entry.advice}"


def test() -> Iterator[Tested]:
    """Diagnostics have no samples in their file: what they fire on are pairs of logs."""
    yield from ()
