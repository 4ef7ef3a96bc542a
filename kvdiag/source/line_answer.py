"""The answer to ``kvdiag source TREE --line TEXT``: statement, bound values, and where each value is born."""

from __future__ import annotations

from typing import Any

from kvdiag.errors import InputError
from kvdiag.source.answer import head, kept, release_data, skipped
from kvdiag.source.find_line import Candidate, find_line
from kvdiag.source.nearest import release_of
from kvdiag.source.origins import Walker
from kvdiag.source.parsed import Parsed
from kvdiag.source.template import shown
from kvdiag.source.tree import SourceTree

MOST_BOUND = 16
LONGEST_VALUE = 400


def line_answer(tree: SourceTree, line: str) -> dict[str, Any]:
    """The statements that could have printed `line`; ``statement`` is None where none could. Raises InputError for no text."""
    if not line.strip():
        raise InputError("--line: the text is empty; give the line as the log has it, in quotes")
    return kept(tree, f"line {line}", lambda: _answer(tree, line))


def _answer(tree: SourceTree, line: str) -> dict[str, Any]:
    parsed = Parsed(tree)
    found = find_line(parsed, line)
    answer = head(tree) | release_data(release_of(tree)) | {"line": line}
    answer["statement"] = _statement(tree, found[0]) if found else None
    answer["bindings"] = _bindings(parsed, found[0]) if found else []
    answer["candidates"] = [_statement(tree, candidate) for candidate in found]
    answer["skipped"] = skipped(tree)
    return answer


def _statement(tree: SourceTree, candidate: Candidate) -> dict[str, Any]:
    message = candidate.message
    return {
        "file": tree.place(message.file),
        "symbol": message.symbol,
        "line": message.line,
        "end_line": message.end_line,
        "kind": message.kind,
        "template": shown(message.template, iter(candidate.fit.taken)),
        "confidence": candidate.confidence,
        "permalink": tree.permalink(message.file, message.line),
    }


def _bindings(parsed: Parsed, candidate: Candidate) -> list[dict[str, Any]]:
    walker = Walker(parsed)
    bound = []
    for hole, value in candidate.fit.values[:MOST_BOUND]:
        origins = walker.origins(candidate.message.file, hole.node) if hole.node is not None else []
        bound.append(
            {
                "name": hole.expression,
                "value": value[:LONGEST_VALUE],
                "format": hole.format,
                "defined_at": [
                    {
                        "file": parsed.tree.place(origin.file),
                        "symbol": origin.symbol,
                        "line": origin.line,
                        "expression": origin.expression,
                        "depth": origin.depth,
                        "confidence": origin.confidence,
                    }
                    for origin in origins
                ],
            }
        )
    return bound
