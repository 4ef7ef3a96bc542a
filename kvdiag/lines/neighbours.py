"""Other engines and parts of a deployment, by the words only their logs hold (``rules/neighbours``)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from kvdiag import rulebook
from kvdiag.errors import RuleError
from kvdiag.rulerooms import Entry, Tested

_LONGEST = 2000
"""Characters of a line that are looked at."""


def neighbour_of(text: str) -> str:
    """The engine that printed a line, empty where none of the known ones is told by it."""
    head = text[:_LONGEST]
    found = [(head.index(mark), -len(mark), engine) for mark, engine in _marks().items() if mark in head]
    return min(found)[2] if found else ""


@lru_cache(maxsize=1)
def forks() -> frozenset[str]:
    """Engines that grew out of SGLang and print lines of its shape, whose numbers mean other things."""
    return frozenset(document["engine"] for document in _documents() if document.get("same_lines"))


def _documents() -> list[dict[str, Any]]:
    documents: list[dict[str, Any]] = rulebook.load("neighbours")
    for document in documents:
        for key in ("engine", "title", "marks", "samples"):
            if key not in document:
                raise RuleError(f"{document.get('_file', 'rule')}: the key {key!r} is missing")
    return documents


@lru_cache(maxsize=1)
def _marks() -> dict[str, str]:
    """What only an engine's log holds, and the engine."""
    return {mark: document["engine"] for document in _documents() for mark in document["marks"]}


def entries() -> list[Entry]:
    """The engines, for the list of rules."""
    return [Entry(document["engine"], document["title"], "Neighbours") for document in _documents()]


def show(code: str) -> str:
    """What tells an engine's log, as Markdown."""
    document = next(document for document in _documents() if document["engine"] == code)
    marks = "\n".join(f"- `{mark}`" for mark in document["marks"])
    fork = "\n\nIt prints lines of SGLang's shape; where one of its words is found, none of the input is read as SGLang's."
    return (
        f"# {document['engine']}: {document['title']}\n\nTold by any of\n\n{marks}{fork if document.get('same_lines') else ''}\n"
    )


def test() -> Iterator[Tested]:
    """Each sample is told to be of its engine."""
    for document in _documents():
        for number, sample in enumerate(document["samples"], 1):
            engine = neighbour_of(sample)
            wrong = "" if engine == document["engine"] else f"taken for {engine or 'none'}: {sample[:120]}"
            yield Tested(f"{document.get('_file', 'rule')}: sample {number}", wrong)
