"""From the message of a line to its family, the variants that fit it, and its values."""

from __future__ import annotations

import re
from dataclasses import dataclass

from kvdiag.lines.formats import Variant, formats
from kvdiag.lines.template import Found, match_template

_EXCEPTION = re.compile(r"(?:[A-Za-z_][\w.]*\.)?[A-Z]\w*(?:Error|Exception|Warning|Interrupt): ")
_DIGITS = re.compile(r"[0-9]+")
_MOST_SHAPES = 4096
_shapes: dict[str, tuple[Variant, ...]] = {}
"""The variants of each message shape (the message with its digits collapsed), so that siblings are matched once."""


@dataclass(frozen=True, slots=True)
class Match:
    """A matched message: `values` as (name, kind, printed text) from the newest variant that fits."""

    family: str
    variants: tuple[Variant, ...]
    values: Found


def match_message(message: str) -> Match | None:
    """The family of a message and its values; None where no rule knows it.

    The variants that fit whole with the least free text are kept (their releases are evidence): a variant that swallows
    ``dtype=torch.bfloat16`` as free text did not print the line that another variant names field by field. The text of
    an exception (``RuntimeError: ...``) is matched without the exception's name, as the rules hold what the source
    raises.
    """
    match = _match(message)
    if match is None:
        exception = _EXCEPTION.match(message)
        if exception:
            match = _match(message[exception.end() :])
    return match


def _match(message: str) -> Match | None:
    """Siblings of a known shape are read by the newest variant of that shape; anything else goes the whole way."""
    shape = _DIGITS.sub("0", message)
    variants = _shapes.get(shape)
    if variants is not None:
        if not variants:
            return None
        values = _values(variants[-1], message)
        if values is not None:
            return Match(variants[-1].family, variants, values)
    match = _match_whole(message)
    if len(_shapes) >= _MOST_SHAPES:
        _shapes.clear()
    _shapes[shape] = match.variants if match else ()
    return match


def _values(variant: Variant, message: str) -> Found | None:
    """The values of `message` where it is wholly of that variant (blanks at the end aside)."""
    for text in (message, message.rstrip()):
        result = match_template(variant.sequence, text)
        if result is not None and not message[result[1] :].strip():
            return result[0]
    return None


def _match_whole(message: str) -> Match | None:
    text = message.rstrip()
    fitting: list[Variant] = []
    values: Found = []
    loosest = len(text) + 1
    for variant in formats().candidates(text):
        read = _values(variant, message)
        if read is None:
            continue
        free = sum(len(printed) for _, kind, printed in read if kind == "t")
        if free < loosest:
            fitting, loosest = [], free
        if free == loosest and (not fitting or fitting[0].family == variant.family):
            fitting.append(variant)
            values = read
    return Match(fitting[0].family, tuple(fitting), values) if fitting else None
