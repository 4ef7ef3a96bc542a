"""Line formats as data, and matching text against them; what a number means is decided further on."""

from kvdiag.lines.matcher import match_message
from kvdiag.lines.read import read_records
from kvdiag.lines.record import Record, Value

__all__ = ["Record", "Value", "match_message", "read_records"]
