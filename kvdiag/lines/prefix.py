"""SGLang's own line prefix: ``[date time.ms TAGS]``, its variants since 0.2.14, and the tags as a rank."""

from __future__ import annotations

import re
from functools import lru_cache

from kvdiag.frozen import frozen

PREFIX = re.compile(
    r"\[(?:(\d{4}-\d\d-\d\d) )?(\d\d:\d\d:\d\d)(?:[.,](\d{3}))?((?: [A-Za-z_][\w.]{0,60}+(?:\[\d+\])?){0,9}+)\] ?"
)
"""Date, time, milliseconds, tags; among the tags can stand the name of a process or of an enum member."""
BARE_TAGS = re.compile(r"\[((?:DP|TP|PP|EP|ATTN_CP|MOE_DP|CP|DCP)\d{1,5}(?: [A-Z_]{2,8}\d{1,5})*+)\] ?")
"""The tags alone, where somebody took out the time."""
CUT_PREFIX = re.compile(r"(?:[\d-]{0,10}+ )?([\d:]{0,8}+)(?:[.,]\d{3})?((?: ?[A-Z_]{2,8}\d{1,5})*+)\] (?=\S)")
"""What is left of a prefix whose beginning was cut off."""
_TAG = re.compile(r"(?<!\S)(DP|TP|PP|EP|ATTN_CP|MOE_DP|CP|DCP)(\d{1,5})(?!\S)")


@frozen
class Rank:
    """The tags of a worker as they stand in its lines, for example ``DP0 TP3 EP3``; empty for an untagged line."""

    text: str = ""

    @property
    def tags(self) -> dict[str, int]:
        """Tag name to number."""
        return {name: int(number) for name, number in _TAG.findall(self.text)}

    def get(self, name: str) -> int | None:
        """The number of one tag, None where it is not printed."""
        return self.tags.get(name)

    def __bool__(self) -> bool:
        return bool(self.text)

    def __str__(self) -> str:
        return self.text


UNTAGGED = Rank()


@lru_cache(maxsize=4096)
def rank_of(tags: str) -> Rank:
    """The rank named by the tag part of a prefix."""
    text = " ".join(found.group() for found in _TAG.finditer(tags))
    return Rank(text) if text else UNTAGGED
