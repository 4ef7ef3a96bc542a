"""From the message of a line to its family, the variants that fit it, and its values."""

from __future__ import annotations

import re

from kvdiag.frozen import frozen
from kvdiag.lines.formats import Variant, formats
from kvdiag.lines.template import TEXTS
from kvdiag.lines.walk import Found, match_template

FOREWORD = re.compile(
    r"(?:[A-Za-z_][\w.]{0,200}\.)?(?:[A-Z]\w{0,80}?)?(?:Error|Exception|Warning|Interrupt): "
    r"|(?:DEBUG|INFO|WARNING|ERROR|CRITICAL) [\w.-]{1,80}\.py:\d{1,6}: "
)
"""The name of an exception, or the level and place that a library's own logger puts in front."""
_DIGITS = str.maketrans("123456789", "000000000")
_WHOLE = re.compile(r"(?<![.0])0+")
_MOST_SHAPES = 4096
_LONGEST_SHAPE = 2000
_shapes: dict[str, tuple[Variant, ...]] = {}
"""The variants of each message shape (see `_shape`), so that siblings are matched once."""


@frozen
class Match:
    """A matched message: the variants that fit, and `values` as (name, kind, printed text) from the last of them.

    The last is the one whose own words cover most of the message, the newest of several.
    """

    family: str
    variants: tuple[Variant, ...]
    values: Found


def match_message(message: str, *, whole: bool = False) -> Match | None:
    """The family of a message and its values; None where no rule knows it.

    The variants that fit whole with the least free text are kept (their releases are evidence): a variant that swallows
    ``dtype=torch.bfloat16`` as free text did not print the line that another variant names field by field. The text of
    an exception (``RuntimeError: ...``) is matched without the exception's name, as the rules hold what the source
    raises, and a message without the level and source line that some start-up messages put before it. A record of
    several lines of which only the first is known is matched by that one, unless `whole` is set.
    """
    message = message.lstrip("\n")
    match = _match(message)
    if match is None:
        before = FOREWORD.match(message)
        if before:
            match = _match(message[before.end() :])
    if match is None and not whole and "\n" in message:
        return match_message(message[: message.index("\n")])
    return match


def _match(message: str) -> Match | None:
    """Siblings of a known shape are read by the closest variant of that shape; anything else goes the whole way."""
    shape = _shape(message) if len(message) <= _LONGEST_SHAPE else None
    variants = _shapes.get(shape) if shape else None
    if variants is not None:
        if not variants:
            return None
        values = match_template(variants[-1].sequence, message)
        if values is not None:
            return Match(variants[-1].family, variants, values)
    match, digits_matter = _match_whole(message)
    if shape and not digits_matter:
        if len(_shapes) >= _MOST_SHAPES:
            _shapes.clear()
        _shapes[shape] = match.variants if match else ()
    return match


def _shape(message: str) -> str:
    """The message with every number reduced to its form: one digit before the point, as many as printed after it."""
    return _WHOLE.sub("0", message.translate(_DIGITS))


def _match_whole(message: str) -> tuple[Match | None, bool]:
    """The match, and whether a template looked at has digits of its own (then siblings of the shape may differ)."""
    text = message.rstrip()
    fitting: list[tuple[int, Variant, Found]] = []
    loosest = len(text) + 1
    digits_matter = False
    for variant in formats().candidates(text):
        digits_matter |= variant.digits
        read = match_template(variant.sequence, text)
        if read is None:
            continue
        free = sum(len(printed) for _, kind, printed in read if kind in TEXTS)
        if free < loosest:
            fitting, loosest = [], free
        if free == loosest and (not fitting or fitting[0][1].family == variant.family):
            fitting.append((sum(len(printed) for _, _, printed in read), variant, read))
    if not fitting:
        return None, digits_matter
    fitting.sort(key=lambda fit: -fit[0])
    _, closest, values = fitting[-1]
    return Match(closest.family, tuple(variant for _, variant, _ in fitting), values), digits_matter
