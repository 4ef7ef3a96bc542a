"""What logs get wrapped in on their way, a file per kind of wrapper.

A layer takes a line that begins with one of its characters and gives what was inside, or None where the line is not
wrapped so. Layers come in any order and nesting: `peel` takes off whatever it finds until nothing is left to take off.
"""

from __future__ import annotations

import re

from kvdiag.reading.layers import containers, jobs, markdown, shippers, stamps, syslog
from kvdiag.reading.layers.layer import Layer, Peeled

Held = dict[tuple[int, str], Peeled]
Learnt = set[tuple[int, str, str]]
"""What stood before records: how deep, in which layer, and what but for its digits."""
_ALL: tuple[Layer, ...] = (*shippers.LAYERS, *containers.LAYERS, *jobs.LAYERS, *syslog.LAYERS, *stamps.LAYERS, *markdown.LAYERS)
_MOST = 16
_LONGEST = 1 << 20
_MOST_LEARNT = 64
_RECORD = re.compile(r"\[(?:\d{4}-\d\d-\d\d )?\d\d:\d\d:\d\d")


def _by_first() -> dict[str, tuple[Layer, ...]]:
    firsts = {first for layer in _ALL for first in layer.firsts}
    return {first: tuple(layer for layer in _ALL if first in layer.firsts) for first in firsts}


_BY_FIRST = _by_first()
_LOOSE = {layer.name: layer for layer in _ALL if layer.loose is not None}
_BARE = "bare"
_INDENTED = "indented"


def peel(text: str, held: Held, learnt: Learnt) -> list[Peeled]:
    """What is inside all wrappers of a line, with the streams they name joined and the outermost time.

    One line of a shipper can hold several lines, and several lines of a container engine can be one: `held` keeps the
    parts whose end has not come, by depth and stream, `learnt` what else is a wrapper because it stood before records. A
    line that is not wrapped comes back as it is.
    """
    done: list[Peeled] = []
    todo = [(Peeled(text), 0)]
    while todo:
        outer, depth = todo.pop()
        inner = _once(outer.text, depth, learnt) if depth < _MOST else None
        if inner is None:
            done.append(outer)
            continue
        whole = [one for part in inner if (one := _joined(within(outer, part), depth, held)) is not None]
        todo += [(one, depth + 1) for one in reversed(whole)]
    return done


def seen_bare(learnt: Learnt) -> None:
    """Tells that a record stood in the log with nothing before it."""
    learnt.add((0, _BARE, ""))


def _once(text: str, depth: int, learnt: Learnt) -> list[Peeled] | None:
    if not text:
        return None
    if _RECORD.match(text):
        learnt.add((depth, _BARE, ""))
        return None
    known = _known(text, depth, learnt) if learnt else None
    if known is not None:
        return [known]
    for layer in _BY_FIRST.get(text[0], ()):
        inner = layer.peel(text) if layer.needs in text else None
        if inner is not None:
            if layer.loose is not None and len(learnt) < _MOST_LEARNT:
                learnt.add((depth, layer.name, _before(layer.name, text, inner[0].text)))
            return inner
    return None


def _known(text: str, depth: int, learnt: Learnt) -> Peeled | None:
    """The line without what stood before records too; of an indentation exactly what all records have."""
    for at, name, before in learnt:
        layer = _LOOSE.get(name)
        if at != depth or layer is None or layer.loose is None or text[0] not in layer.firsts:
            continue
        if name == _INDENTED:
            if text.startswith(before) and (depth, _BARE, "") not in learnt:
                return Peeled(text[len(before) :])
            continue
        inner = layer.loose(text)
        if inner is not None and _before(name, text, inner.text) == before:
            return inner
    return None


def _before(name: str, text: str, inner: str) -> str:
    before = text[: len(text) - len(inner)]
    if name == _INDENTED:
        return before
    if before[-1:] == "-" and len(before) > 1:
        before = before[:-1] + ":"
    return re.sub(r"\d+", "0", before).lstrip()


def within(outer: Peeled, inner: Peeled) -> Peeled:
    """What was inside, with what the outer wrapper tells of it."""
    stream = "/".join(name for name in (outer.stream, inner.stream) if name)
    return Peeled(inner.text, stream, outer.time or inner.time, inner.partial)


def _joined(part: Peeled, depth: int, held: Held) -> Peeled | None:
    """A line with the parts before it; None while its end has not come."""
    if part.partial is None:
        return part
    before = held.pop((depth, part.stream), None)
    if before is not None:
        part = Peeled(before.text + part.text, part.stream, before.time, part.partial)
    if part.partial and len(part.text) < _LONGEST:
        held[depth, part.stream] = part
        return None
    return part
