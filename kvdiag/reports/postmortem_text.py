"""What a server did over time, for the terminal."""

from __future__ import annotations

from collections.abc import Iterator

from kvdiag.postmortem import Phase, Postmortem, Spread
from kvdiag.postmortem.model import Review
from kvdiag.reports import text_report
from kvdiag.reports.bound import WORDS
from kvdiag.reports.limits_text import limits
from kvdiag.reports.paint import Paint
from kvdiag.reports.text_report import Detail

_WHOLE = 94
"""Columns from which the table of phases has room for days and whole words."""
MEDIANS = (
    "usage, running and queued are medians over the lines of the phase; where work waited, over those that were bound by what is "
    "named."
)
"""What the figures of a row are."""
_COLOURS = {"saturated": "yellow", "storm": "red"}


def render(postmortem: Postmortem, *, width: int = 100, colour: bool = False, detail: Detail = Detail.USUAL) -> str:
    """For each start what happened over time, then its findings.

    How the numbers of the start-up follow from each other is left to ``explain``, unless the report is verbose.
    """
    paint = Paint(colour, width)
    lines: list[str] = []
    starts = postmortem.diagnosis.starts
    for index, (item, review) in enumerate(zip(starts, postmortem.reviews, strict=True)):
        lines += ["", "-" * min(width, 60), ""] if index else []
        lines += text_report.heading(item, paint, index, len(starts))
        lines += paint.wrap(text_report.drafts(item))
        lines += paint.wrap(limits(item), "  ")
        lines += ["", paint.bold("What happened over time")]
        lines += _review(review, paint) if review else ["  no scheduler line"]
        if detail is not Detail.VERBOSE:
            lines += text_report.findings(item, paint)
    if detail is Detail.VERBOSE:
        whole = text_report.render(postmortem.diagnosis, width=width, colour=colour, detail=detail)
        return "\n".join([*lines, "", paint.bold("The start-up, number by number"), "", whole])
    if detail is Detail.USUAL:
        lines += ["", *text_report.footer(postmortem.diagnosis, paint)]
        lines += paint.wrap("kvdiag explain has the memory and how the numbers of the start-up follow from each other.", dim=True)
    return "\n".join(lines) + "\n"


def _review(review: Review, paint: Paint) -> Iterator[str]:
    when = f", {moment(review.begin)} to {moment(review.end)}" if review.begin else ", without times"
    yield f"  {review.rows:,} scheduler {'line' if review.rows == 1 else 'lines'}{when}"
    date = 11 if paint.width >= _WHOLE else 0
    words = 22 if paint.width >= _WHOLE else max(8, paint.width - 72)
    yield paint.dim(f"  {'from':<{date + 8}}  lasted      phase      {'bound by':<{words}}  usage  running  queued  retracted")
    for phase in review.phases:
        yield paint.colour(_phase(phase, date, words), _COLOURS.get(phase.kind, ""))
    if review.phases:
        yield from paint.wrap(MEDIANS, "  ", dim=True)
    yield from paint.wrap(" ".join(totals(review)), "  ")


def _phase(phase: Phase, date: int, words: int) -> str:
    """A row of the table; `date` and `words` are columns for the day and for what bound."""
    begin = moment(phase.begin)[:19].replace("T", " ") if date else (phase.begin or "-")[11:19]
    bound = "" if phase.kind == "idle" else WORDS.get(phase.binding, phase.binding)
    figures = f"{_number(phase.token_usage, 2):>5}  {_number(phase.running):>7}  {_number(phase.queued):>6}"
    when = f"{begin:<{date + 8}}  {duration(phase.seconds):<10}"
    return f"  {when}  {kind(phase):<9}  {bound[:words]:<{words}}  {figures}  {phase.retracted:>9,}"


def kind(phase: Phase) -> str:
    """The phase in a word; where the lines do not tell what bound, none that says so."""
    if phase.binding != "unknown":
        return phase.kind
    return "no lines" if phase.running.p50 is phase.queued.p50 is None else {"saturated": "waiting"}.get(phase.kind, phase.kind)


def moment(text: str | None) -> str:
    """A time as the log has it: where lines have no date, days are counted from 1970 on."""
    day, _, clock = (text or "-").partition("T")
    if not day.startswith("1970-01-"):
        return text or "-"
    return clock if day == "1970-01-01" else f"day {int(day[8:])} {clock}"


def _number(spread: Spread, decimals: int = 0) -> str:
    return "-" if spread.p50 is None else f"{spread.p50:,.{decimals}f}"


def duration(seconds: float) -> str:
    """Seconds as a person says them."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def totals(review: Review) -> Iterator[str]:
    """What the whole review comes to, a sentence each."""
    if review.note:
        yield review.note
    if review.retractions:
        yield f"{review.retracted:,} requests were retracted in {review.retractions:,} events."
    if review.tokens_per_request.p50 is not None:
        spread = review.tokens_per_request
        yield f"Tokens in use per running request: {spread.p50:,.0f} at the median, {spread.p95:,.0f} at the 95th percentile."
    if review.hit_rate is not None:
        yield f"{review.hit_rate * 100:.1f} % of prompt tokens came from the prefix cache."
    if review.could_hold_more:
        share = f"{review.could_hold_more * 100:.0f} %"
        yield f"In time, not in lines, work waited for {share} of this period though the pool was not full."
    if review.pays_up_to:
        yield f"More than about {review.pays_up_to:,} running requests brought no more throughput."
