"""Text from a log made harmless for the place it is shown in."""

from __future__ import annotations

import re
from typing import Any

_UNSAFE = "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff\ufff9-\ufffb]"


def safe(text: str, longest: int = 2000) -> str:
    r"""`text` with control, escape, bidirectional and zero-width characters shown as ``\x1b``-style escapes.

    Tabs and line ends stay; text beyond `longest` characters is cut with an ellipsis.
    """
    if len(text) > longest:
        text = text[:longest] + "…"
    return text if text.isascii() and text.isprintable() else re.sub(_UNSAFE, lambda found: _shown(ord(found.group())), text)


def _shown(code: int) -> str:
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def inert_json(value: Any) -> str:
    """`value` as JSON that a terminal can show: what `safe` replaces stands in it as JSON's own escapes, so nothing is lost."""
    import json

    return re.sub(_UNSAFE, lambda found: f"\\u{ord(found.group()):04x}", json.dumps(value, ensure_ascii=False, indent=1))
