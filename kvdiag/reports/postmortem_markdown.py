"""A postmortem as Markdown: for each start a table of phases, then its explanation."""

from __future__ import annotations

from collections.abc import Iterator

from kvdiag.postmortem import Postmortem, Spread
from kvdiag.postmortem.model import Review
from kvdiag.reports import markdown_report
from kvdiag.reports.bound import WORDS
from kvdiag.reports.postmortem_text import MEDIANS, duration, kind, moment, totals


def render(postmortem: Postmortem) -> str:
    """The whole postmortem as Markdown: for each start its phases, then what explain has."""
    return markdown_report.render(postmortem.diagnosis, [list(_over_time(review)) for review in postmortem.reviews])


def _over_time(review: Review | None) -> Iterator[str]:
    yield from ("#### What happened over time", "")
    yield from _review(review) if review else ["No scheduler line.", ""]


def _review(review: Review) -> Iterator[str]:
    yield (
        f"{review.rows:,} scheduler {'line' if review.rows == 1 else 'lines'}, {moment(review.begin)} to {moment(review.end)}. "
        + " ".join(totals(review))
    )
    yield ""
    yield "| from | lasted | phase | bound by | usage p50 | running p50 | queued p50 | retracted |"
    yield "|---|---|---|---|---:|---:|---:|---:|"
    for phase in review.phases:
        figures = [_middle(phase.token_usage, 2), _middle(phase.running, 0), _middle(phase.queued, 0), f"{phase.retracted:,}"]
        cells = [moment(phase.begin), duration(phase.seconds), kind(phase), WORDS.get(phase.binding, phase.binding), *figures]
        yield "| " + " | ".join(cells) + " |"
    yield ""
    if review.phases:
        yield from (MEDIANS, "")


def _middle(spread: Spread, decimals: int) -> str:
    return "-" if spread.p50 is None else f"{spread.p50:,.{decimals}f}"
