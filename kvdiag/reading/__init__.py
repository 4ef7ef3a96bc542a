"""From bytes to lines of text, whatever they were wrapped in; knows nothing of SGLang."""

from kvdiag.reading.line import Input, Line
from kvdiag.reading.source import open_log, read_lines

__all__ = ["Input", "Line", "open_log", "read_lines"]
