"""What reports and chats put around a line: quotes, bullets, code fences, table cells, patches, quotation marks."""

from __future__ import annotations

from kvdiag.reading.layers.layer import DIGITS, Layer, Peeled, lazy, pattern_layer

_TICKS = lazy(r"\s*(`{1,3}|~{3})")
_FENCE = lazy(r"\s*(?:`{3,}|~{3,})[\w+.-]*\s*$")
_INDENTED = (
    r"\[(?:\d{4}-\d\d-\d\d )?\d\d:\d\d:\d\d|\[pod/|\[default\d|\[\d+,\d+\]<std|\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d"
    r"|[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d|<\d{1,3}>"
    r"|\([^()]{0,200}\bpid=\d+[^()]{0,100}\) |[A-Za-z][\w.-]{0,127}[-_]\d+ +\|(?: |$)"
    r"|(?:time|ts|level)=|> "
)
"""What begins a record or another wrapper's line, and no line of a traceback: a block of code is indented as a whole."""
_CELL = lazy(r"\|\s+(?=\[\d)(.*?)\s*\|?\s*$")


def _code(text: str) -> list[Peeled] | None:
    """A fence is no line of the log; single back-ticks stand around one."""
    if _FENCE().match(text):
        return []
    found = _TICKS().match(text)
    return [Peeled(text[found.end() :].rstrip().removesuffix(found[1]))] if found else None


def _cell(text: str) -> list[Peeled] | None:
    found = _CELL().match(text)
    return [Peeled(found[1])] if found else None


def _quoted(text: str) -> list[Peeled] | None:
    """A line between quotation marks; those within it are doubled or escaped."""
    mark = text[0]
    inner = text[1:].rstrip().removesuffix(",")
    if inner[:1] not in ("[", "{") or not inner.endswith(mark):
        return None
    inner = inner.removesuffix(mark)
    return [Peeled(inner.replace("\\" + mark, mark).replace(mark * 2, mark))]


LAYERS: tuple[Layer, ...] = (
    pattern_layer("quote", frozenset("> "), ">", r" {0,3}> ?"),
    Layer("code", frozenset("`~ "), "", _code),
    pattern_layer("bullet", frozenset("-*+• \t"), " ", r"\s*[-*+•](?:\s|$)"),
    pattern_layer("numbered", DIGITS | {" "}, "[", r" {0,3}\d{1,4}[.)]\s+", ahead=r"[\[`]"),
    pattern_layer("patch", frozenset("+-"), "[", r"[+-]", ahead=r"\[\d"),
    pattern_layer("indented", frozenset(" \t"), "", r"\s+", ahead=_INDENTED),
    Layer("cell", frozenset("|"), "[", _cell),
    Layer("quoted", frozenset("\"'"), "", _quoted),
)
