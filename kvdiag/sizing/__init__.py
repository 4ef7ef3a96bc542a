"""Geometry, arguments and release to bytes per token, budget, pools and request slots; knows nothing of logs."""

from kvdiag.sizing.arguments import ServerArguments
from kvdiag.sizing.size import Memory, Sizing, size

__all__ = ["Memory", "ServerArguments", "Sizing", "size"]
