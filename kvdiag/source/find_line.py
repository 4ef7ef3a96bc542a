"""From the text of a log line to the statements that could have printed it."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from kvdiag.frozen import frozen
from kvdiag.lines.prefix import PREFIX
from kvdiag.source.match import Fit, fit
from kvdiag.source.messages import Message, messages_at
from kvdiag.source.parsed import Parsed
from kvdiag.source.search import core_files, other_files

if TYPE_CHECKING:
    from tree_sitter import Node

_EXCEPTION = re.compile(r"(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Warning|Interrupt): ")
_WORD = re.compile(r"[A-Za-z_]{3,}")
_PAIR = re.compile(r"(?=(?<![A-Za-z_])([#A-Za-z_-]{1,40}[ :=(,.]{1,2}[A-Za-z_]{1,40}|[#A-Za-z_-]{1,40}(?:: |=)))")
_HEAD = re.compile(r"[^\w\s\"'\\]{0,3}[A-Za-z_]+[^\w\"'\\{%]?")
_NAMED = re.compile(r"(?:^|(?<=\s))(?:[A-Za-z_]\w*\.[\w.]+|^[A-Za-z_]\w*)=")
"""``name=`` may be printed by ``{name=}``."""
_MOST_WORDS = 6
_MOST_SEEDS = 5
_MOST_PAIRS = 8
_LONGEST_NEEDLE = 32
_MOST_FILES = 14
_MOST_PLACES = 400
_LEAST_LITERAL = 6
_TELLING_LITERAL = 12
_LONGEST_VALUE = 80
_NEAR = 0.75
_MOST_CANDIDATES = 12
LONGEST_LINE = 20_000


@frozen
class Candidate:
    """A statement that could have printed a line.

    `confidence`: ``certain`` no other place fits as well and little of the line is left to its values; ``likely`` the
    best one; ``possible`` one of several that fit alike.
    """

    message: Message
    fit: Fit
    confidence: str


def find_line(parsed: Parsed, line: str) -> list[Candidate]:
    """The statements that could have printed `line`, best first; empty where none could."""
    for files in (core_files(parsed.tree), other_files(parsed.tree)):
        for text in _readings(line[:LONGEST_LINE]):
            found = _ranked(_fitting(parsed, files, text))
            if found:
                return found
    return []


def _readings(line: str) -> Iterator[str]:
    """The message of a line: without SGLang's prefix, and without an exception's name in front."""
    text = line.strip("\r\n")
    prefix = PREFIX.search(text)
    if prefix and prefix.start() < 200:
        text = text[prefix.end() :]
    exception = _EXCEPTION.match(text)
    if exception:
        yield text[exception.end() :]
    yield text
    if text != text.strip():
        yield text.strip()


def _fitting(parsed: Parsed, files: list[str], text: str) -> list[tuple[Message, Fit]]:
    """The messages that fit, looked for where the most telling pieces of the line stand, then where any of them does."""
    needles = _needles(text)
    seeds = needles[:_MOST_SEEDS]
    seeded = _holding(parsed, files, seeds)
    held = {file: inside + _inside(parsed, file, needles[_MOST_SEEDS:]) for file, inside in seeded.items()}
    found = list(_fits(parsed, held, needles, text))
    if not found and len(needles) > _MOST_SEEDS:
        for file, inside in _holding(parsed, files, needles[_MOST_SEEDS:]).items():
            held.setdefault(file, inside)
        found = list(_fits(parsed, held, needles, text))
    return found


def _fits(parsed: Parsed, held: dict[str, list[bytes]], needles: list[bytes], text: str) -> Iterator[tuple[Message, Fit]]:
    rarity = _rarity(held, needles)
    scores = {file: sum(rarity[word] for word in inside) for file, inside in held.items()}
    scored = sorted(((score, file) for file, score in scores.items()), key=lambda item: (-item[0], item[1]))
    enough = 0.0
    for score, file in scored[:_MOST_FILES]:
        if score < enough:
            break
        for message in _messages_with(parsed, file, sorted(held[file], key=lambda word: -rarity[word])):
            found = fit(message.template, text)
            if found is not None and found.literal >= _LEAST_LITERAL:
                enough = max(enough, score * _NEAR)
                yield message, found


def _needles(text: str) -> list[bytes]:
    """Pieces of the line that stand in the source if they are the template's own: how it begins, what joins its words."""
    head = _HEAD.match(text)
    begins = [f'"{head.group()}'] if head else []
    begins += ["{" + name for name in _NAMED.findall(text)[:2]]
    words = sorted(set(_WORD.findall(text)), key=lambda word: (-len(word), word))[:_MOST_WORDS]
    pairs = sorted({pair for pair in _PAIR.findall(text) if len(pair) > 4}, key=lambda pair: (-len(pair), pair))[:_MOST_PAIRS]
    return [needle.encode() for needle in dict.fromkeys([*begins, *pairs, *words]) if len(needle) <= _LONGEST_NEEDLE]


def _holding(parsed: Parsed, files: list[str], needles: list[bytes]) -> dict[str, list[bytes]]:
    held = ((file, _inside(parsed, file, needles)) for file in files)
    return {file: inside for file, inside in held if inside}


def _inside(parsed: Parsed, file: str, needles: list[bytes]) -> list[bytes]:
    data = parsed.tree.scan(file)
    return [needle for needle in needles if needle in data]


def _rarity(held: dict[str, list[bytes]], needles: list[bytes]) -> dict[bytes, float]:
    counts = dict.fromkeys(needles, 0)
    for inside in held.values():
        for needle in inside:
            counts[needle] += 1
    return {needle: math.log(1 + (1 + len(held)) / max(1, count)) for needle, count in counts.items()}


def _messages_with(parsed: Parsed, file: str, needles: list[bytes]) -> Iterator[Message]:
    root = parsed.root(file)
    data = parsed.tree.read(file)
    if root is None or data is None:
        return
    yield from messages_at(root, file, _strings_with(root, data, needles))


def _strings_with(root: Node, data: bytes, needles: list[bytes]) -> Iterator[Node]:
    """The string nodes that hold one of the words, the rarest word first."""
    count = 0
    for needle in needles:
        at = data.find(needle)
        while at >= 0 and count < _MOST_PLACES:
            node = root.descendant_for_byte_range(at, at + len(needle))
            if node is not None and (node.type in ("string_content", "string") or _in_named_value(node)):
                count += 1
                yield node
            at = data.find(needle, at + len(needle))


def _in_named_value(node: Node) -> bool:
    """Whether a name stands in an f-string as ``{name=}``, and so is printed itself."""
    current: Node | None = node
    while current is not None and current.type in ("identifier", "attribute"):
        current = current.parent
    return current is not None and current.type == "interpolation" and any(child.type == "=" for child in current.children)


def _ranked(found: list[tuple[Message, Fit]]) -> list[Candidate]:
    """Best first: most of the line literal, then statements that print before texts that others print."""
    best: dict[tuple[str, int], tuple[Message, Fit]] = {}
    for message, made in found:
        key = (message.file, message.node.start_byte)
        if key not in best or made.literal > best[key][1].literal:
            best[key] = (message, made)
    ordered = sorted(best.values(), key=_order)
    if not ordered:
        return []
    top_fit = ordered[0][1]
    alike = [item for item in ordered if _order(item)[:2] == _order(ordered[0])[:2]]
    places = {(message.file, message.symbol) for message, _ in alike}
    certain = len(places) == 1 and _tells(top_fit)
    confidence = "certain" if certain else "likely" if len(places) == 1 else "possible"
    others = [item for item in ordered[len(alike) :] if item[1].literal * 2 > top_fit.literal]
    kept = [Candidate(message, made, confidence) for message, made in alike]
    return (kept + [Candidate(message, made, "possible") for message, made in others])[:_MOST_CANDIDATES]


def _order(item: tuple[Message, Fit]) -> tuple[int, bool, bool, str, int]:
    message, made = item
    return (-made.literal, message.kind == "part", _unusual(message.file), message.file, message.line)


def _unusual(file: str) -> bool:
    """Files of other backends repeat what the common ones print."""
    return "hardware_backend" in file or "npu" in file or "xpu" in file


def _tells(made: Fit) -> bool:
    return made.literal >= _TELLING_LITERAL and all(len(text) <= _LONGEST_VALUE for _, text in made.values)
