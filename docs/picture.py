"""Makes docs/explain.svg, the screen in the README: ``python docs/picture.py`` from the repository's root."""

from __future__ import annotations

import io
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOG = "fixtures/scenarios/kimi-k2.5-f0.88/server.log"
WIDTH = 100
LINES = 40
_FONTS = re.compile(r"\s*@font-face \{.*?\}", re.DOTALL)
"""Fonts rich would have the reader's browser fetch from elsewhere; the browser's own will do."""


def picture() -> str:
    """The SVG of the first lines of ``kvdiag explain`` on the fixture; the same bytes for the same output."""
    from rich.console import Console
    from rich.text import Text

    from kvdiag.pipeline import explain
    from kvdiag.reports.text_report import render

    shown = render(explain([str(ROOT / LOG)]), width=WIDTH, colour=True).splitlines()[:LINES]
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True, color_system="standard")
    console.print(Text.from_ansi("\n".join(shown)), soft_wrap=False)
    svg = console.export_svg(title="kvdiag explain server.log", unique_id="kvdiag")
    return _FONTS.sub("", svg) + "\n"


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    (ROOT / "docs" / "explain.svg").write_text(picture(), encoding="utf-8")
