"""Public models by name: the sizing keys of their published config.json (``rules/models``)."""

from __future__ import annotations

import re
from typing import Any

from kvdiag import rulebook

_PATH_PART = re.compile(r"models--([^/]+?)--([^/]+)")


def catalogue_entry(name: str) -> dict[str, Any] | None:
    """The entry whose names include `name` (an id, a path that ends in one, or a hub cache path); None if there is none.

    A name matches whole only: a fork or a quantised copy of another name may have other shapes.
    """
    wanted = _normal(name)
    documents: list[dict[str, Any]] = rulebook.load("models")
    for document in documents:
        for entry in document.get("model", ()):
            if any(_normal(known) == wanted for known in entry["names"]):
                return dict(entry)
    return None


def _normal(name: str) -> str:
    cached = _PATH_PART.search(name)
    last = cached.group(2) if cached else name.rstrip("/").rsplit("/", 1)[-1]
    return last.lower().replace("_", "-")
