"""kvdiag: what every number of an SGLang server's log means, and whether it is right."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__all__ = ["KvdiagError", "explain", "parse_line", "review", "size", "timeline"]
__version__ = "0.1.0"

from kvdiag.errors import KvdiagError

if TYPE_CHECKING:
    from kvdiag.api import explain, parse_line, review, size, timeline


def __getattr__(name: str) -> Any:
    if name in __all__:
        from kvdiag import api

        return getattr(api, name)
    raise AttributeError(f"module 'kvdiag' has no attribute {name!r}")
