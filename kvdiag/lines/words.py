"""The words of kvdiag's own reports (``rules/words``): what they mean, for who reads them in a report and not in a log."""

from __future__ import annotations

from functools import lru_cache

from kvdiag import rulebook
from kvdiag.frozen import frozen


@frozen
class Word:
    """A word with its other names, and a paragraph that says what it means."""

    names: tuple[str, ...]
    meaning: str


@lru_cache(maxsize=1)
def words() -> tuple[Word, ...]:
    """All words, in the order of their files."""
    found = (entry for document in rulebook.load("words") for entry in document["word"])
    return tuple(Word(tuple(entry["names"]), " ".join(entry["meaning"].split())) for entry in found)


def find_word(name: str) -> Word | None:
    """The word of that name; case, hyphens, underscores and the article do not matter."""
    wanted = _plain(name)
    return next((word for word in words() if any(_plain(each) == wanted for each in word.names)), None)


_NO_GAPS = str.maketrans("", "", " _-")


def _plain(name: str) -> str:
    return name.lower().strip(" .:").removeprefix("the ").translate(_NO_GAPS)
