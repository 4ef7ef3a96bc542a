"""Geometry, arguments and release to bytes per token, budget, pools and request slots; knows nothing of logs."""

from kvdiag.sizing.arguments import ArgumentError, ServerArguments, strict_arguments
from kvdiag.sizing.device import UNKNOWN_DEVICE, Device
from kvdiag.sizing.size import Memory, Sizing, size

__all__ = ["UNKNOWN_DEVICE", "ArgumentError", "Device", "Memory", "ServerArguments", "Sizing", "size", "strict_arguments"]
