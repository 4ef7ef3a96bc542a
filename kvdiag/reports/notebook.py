"""How results show in a notebook: the offline page in a frame of its own, and a table of what was sized."""

from __future__ import annotations

import html
from typing import Any

from kvdiag.postmortem import Postmortem
from kvdiag.reports.safe import safe

_HEIGHT = "36rem"


def framed(postmortem: Postmortem) -> str:
    """The page of ``--format html`` in a frame: its style and script stay apart from the notebook's, and it may not reach out."""
    from kvdiag.reports.html_report import render

    page = html.escape(render(postmortem), quote=True)
    return (
        f'<iframe title="kvdiag" sandbox="allow-scripts" srcdoc="{page}" '
        f'style="width: 100%; height: {_HEIGHT}; resize: vertical; border: 1px solid"></iframe>'
    )


def table(values: dict[str, Any]) -> str:
    """A row a value; what is None is left out."""
    left = 'style="text-align: left"'
    rows = [
        f"<tr><th {left}>{html.escape(name)}</th><td {left}>{html.escape(_told(value))}</td></tr>"
        for name, value in values.items()
        if value not in (None, (), {}, "")
    ]
    return f"<table>{''.join(rows)}</table>"


def _told(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return safe(str(value))
    return f"{value:,.12g}" if isinstance(value, float) else f"{value:,}"
