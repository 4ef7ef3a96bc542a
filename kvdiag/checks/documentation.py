"""Findings as ``kvdiag rules`` lists, shows and tests them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kvdiag.checks.findings import documents
from kvdiag.checks.phrase import Sentence
from kvdiag.checks.samples import failures
from kvdiag.rulerooms import Entry, Tested


def entries() -> list[Entry]:
    """Every finding, by code."""
    return [Entry(code, document["name"], document["level"]) for code, document in sorted(documents().items())]


def show(code: str) -> str:
    """The documentation of one finding, as Markdown."""
    document = documents()[code]
    parts = [f"# {code} {document['name']} ({document['level']})", document["title"], document["explanation"].strip()]
    parts += ["## What it says", _joined(document["message"])]
    if document.get("advice"):
        parts += ["## What to do", _joined(document["advice"])]
    if document.get("risk"):
        parts += ["## Risk", document["risk"]]
    parts += ["## A log that raises it", *_sample(document["raises"][0])]
    near = document["silent"][0]
    parts += [f"## A log that does not: {near.get('why', '')}", *_sample(near)]
    return "\n\n".join(parts)


def _sample(sample: Mapping[str, Any]) -> Iterator[str]:
    """A sample's log, and the files of the tree it is held against."""
    yield f"```text\n{sample['log'].strip()}\n```"
    for name, text in sample.get("tree", {}).items():
        yield f"`--source` with `{name}`:"
        yield f"```text\n{text.strip()}\n```"


def _joined(sentences: list[Sentence]) -> str:
    """The templates as one text; of alternatives all, because any may be said."""
    return " ".join(each if isinstance(each, str) else " / ".join(each) for each in sentences)


def test() -> Iterator[Tested]:
    """Runs the samples of every rule, a result for each file."""
    for document in documents().values():
        wrong = failures(document)
        yield Tested(document["_path"], "; ".join(wrong))
