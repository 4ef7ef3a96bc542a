"""Every regular expression of the product takes linear time: 20,000 characters built from itself are read at once.

A pattern that looks at each character once needs a few milliseconds for them, one that starts anew at each needs seconds.
The templates of rules/ have an engine of their own, see tests/test_line_speed.py.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path
from time import process_time

import pytest

import kvdiag

LENGTH = 20_000
SECONDS = 0.3
NO_ROOM = ("kvdiag.cli", "kvdiag.__main__", "kvdiag.pytest_plugin", "kvdiag.precommit")
UNITS = [
    "a",
    "A",
    "1",
    "1.5",
    " ",
    "a ",
    "1,",
    "/",
    "a/",
    "@a",
    ".",
    "[",
    "'",
    '"',
    "\\",
    "a=1,",
    "-1-",
    ":",
    "://a",
    "_a",
    "0x",
    "=",
]


def patterns_in(value: object) -> Iterator[re.Pattern]:
    if isinstance(value, re.Pattern):
        yield value
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from patterns_in(item)
    elif isinstance(value, dict):
        yield from patterns_in(list(value.values()))


def patterns() -> dict[str, tuple[re.Pattern, bool]]:
    """Module and name to each compiled pattern the product holds, and whether its module looks for it within texts."""
    found = {}
    modules = (module.name for module in pkgutil.walk_packages(kvdiag.__path__, "kvdiag."))
    for module in (name for name in modules if not name.startswith(NO_ROOM) and "._kernel" not in name):
        held = importlib.import_module(module)
        source = Path(held.__file__).read_text(encoding="utf-8")
        for name, value in vars(held).items():
            owner = rf"\b{name}" if isinstance(value, re.Pattern) else ""
            within = bool(re.search(rf"{owner}\.(?:search|finditer|findall|sub|subn)\(", source))
            for number, pattern in enumerate(patterns_in(value)):
                found[f"{module}.{name}.{number}"] = (pattern, within)
    return found


PATTERNS = patterns()


def own_words(pattern: re.Pattern) -> list[str]:
    text = pattern.pattern if isinstance(pattern.pattern, str) else pattern.pattern.decode("latin-1")
    return list(dict.fromkeys(re.findall(r"[A-Za-z]{2,}|[^\w\s\\()\[\]{}?*+|^$.]", text)))[:10]


def test_there_are_patterns_to_try():
    assert len(PATTERNS) > 60


@pytest.mark.parametrize(("pattern", "within"), PATTERNS.values(), ids=list(PATTERNS))
def test_twenty_thousand_hostile_characters_are_read_at_once(pattern, within):
    words = own_words(pattern)
    for unit in dict.fromkeys([*UNITS, *words, "".join(words), " ".join(words)]):
        for head in dict.fromkeys(["", "".join(words[:1]), "".join(words)]):
            if not unit:
                continue
            text = head + unit * (LENGTH // len(unit))
            given = text if isinstance(pattern.pattern, str) else text.encode("latin-1", "replace")
            begin = process_time()
            pattern.match(given)
            pattern.fullmatch(given)
            for _ in pattern.finditer(given) if within else ():
                pass
            assert process_time() - begin < SECONDS, (head, unit)
