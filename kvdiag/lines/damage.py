"""Lines of which a part is lost: what is certain of them, and nothing else."""

from __future__ import annotations

import re

from kvdiag.lines.formats import Variant, formats
from kvdiag.lines.labels import FAMILIES, family_of_head, read_labels
from kvdiag.lines.matcher import FOREWORD, Match, match_message
from kvdiag.lines.template import DECIMALS
from kvdiag.lines.walk import Found, match_beginning

_LEAST = 20
"""Characters that a beginning must have in common with a template to be taken for one of its lines."""
_DEBRIS = re.compile(r"(?:[\"'`,|\\]|\\n|\\r|<br ?/?>|</\w+>|\*\*)+\s*$")
_TAIL = re.compile(r" *(?:<-+|←|#|//) .*$")
_SEVERAL = 64
_ARGUMENTS = "server_args"
"""The one text whose reader knows by itself how far it is whole."""
_Beginning = tuple[list[Variant], Found, bool]


def recover(message: str, *, cut: bool) -> Match | None:
    """What is certain of a message that no rule knows whole; None where it is like none.

    The match has the variants whose beginning it is, none where the damage is of another kind. With `cut` the end of the
    message is no end of a value.
    """
    exception = FOREWORD.match(message)
    text = message[exception.end() :] if exception else message
    beginning = _beginning(text.rstrip())
    if beginning is not None:
        variants, values, reaches = beginning
        if reaches and not _complete(values[-1], cut=cut):
            values = values[:-1]
        return Match(variants[-1].family, tuple(variants), values)
    family = family_of_head(text)
    if family not in FAMILIES:
        return None
    labels = read_labels(family, text, cut=cut)
    return Match(family, (), labels) if labels else None


def tidied(message: str) -> Match | None:
    """The whole match of a message behind which something foreign stands: a quotation mark, an escaped line end, a remark."""
    for pattern in (_DEBRIS, _TAIL):
        bare = pattern.sub("", message)
        if bare and bare != message:
            match = match_message(bare)
            if match is not None:
                return match
    return None


def open_end(match: Match, message: str) -> bool:
    """Whether the last value is a number that reaches to the end of the message, and could go on behind it."""
    if not match.values:
        return False
    name, kind, text = match.values[-1]
    return name != _ARGUMENTS and message.rstrip().endswith(text) and not DECIMALS.fullmatch(kind)


def without_open_end(match: Match, message: str) -> Match:
    """A whole match of a text whose end may be lost, without the value that reaches to that end.

    The releases it fits are those of every variant that begins so.
    """
    values = match.values[:-1] if open_end(match, message) else match.values
    beginning = _beginning(message.rstrip())
    variants = tuple(variant for variant in beginning[0] if not variant.excerpt) if beginning else match.variants
    return Match(match.family, variants, values)


def _complete(value: tuple[str, str, str], *, cut: bool) -> bool:
    """Whether a value at the end of a message shows that nothing of it is missing."""
    name, kind, text = value
    if name == _ARGUMENTS:
        return True
    if kind in ("t", "m"):
        return not cut
    return DECIMALS.fullmatch(kind) is not None or (not cut and bool(text))


def _beginning(text: str) -> _Beginning | None:
    """The variants that the text is the beginning of, of the family of the first; the values of the closest."""
    if len(text) < _LEAST:
        return None
    fitting: list[Variant] = []
    values: Found = []
    reaches = False
    for variant in formats().starting(text):
        if len(fitting) == _SEVERAL:
            break
        found = match_beginning(variant.sequence, text)
        if found is None or (fitting and fitting[0].family != variant.family):
            continue
        fitting.append(variant)
        values, reaches = found
    return (fitting, values, reaches) if fitting else None
