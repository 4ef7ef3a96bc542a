"""Markdown to paste into an issue: findings first, then memory and the chain of numbers in foldable parts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from kvdiag.checks import Check, Diagnosis, StartDiagnosis
from kvdiag.checks.inputs import NO_CONFIG
from kvdiag.reports.because import because
from kvdiag.reports.bound import bound, over_time
from kvdiag.reports.line_numbers import line_numbers
from kvdiag.reports.memory_text import memory_of
from kvdiag.reports.paint import Paint
from kvdiag.reports.safe import safe
from kvdiag.reports.sides import sides
from kvdiag.reports.workload_text import users

_LINES = 8
"""Line numbers that a row of the table has at most."""
_RANKS = 4
"""Ranks that a row names one by one."""
_NO_CONFIG = "the model's config is not known (--config PATH)"
_ACTIVE = re.compile(
    r"[\\`*\[\]<>|~@]|(?<!\w)_|_(?!\w)|#(?![^\W\d])|!(?=\[)|^[+-](?=\s|$)|^[=-](?=[=\s-]*$)|(?:(?<=^\d)|(?<=^\d\d))[.)](?=\s|$)"
)
"""What Markdown reads as more than text: emphasis, code, links, tags, tables, mentions, issues, and marks that begin a block."""


def escaped(text: str) -> str:
    """`text` without meaning in Markdown or HTML, on one line; an entity-proof ampersand and no mention of anybody."""
    line = " ".join(safe(text).split()).replace("&", "&amp;")
    return _ACTIVE.sub(lambda found: f"&#{ord(found.group())};" if found.group() in "<>@" else "\\" + found.group(), line)


def cell(text: str) -> str:
    """`text` for a cell of a table, where no mark begins a block."""
    return re.sub(r"^\\([+=-])", r"\1", escaped(text))


def render(diagnosis: Diagnosis, before_findings: Sequence[Iterable[str]] = ()) -> str:
    """The whole diagnosis as Markdown; `before_findings` has lines to put there, for each start."""
    lines: list[str] = []
    for index, item in enumerate(diagnosis.starts):
        lines += ["---", ""] if index else []
        lines += _start(item, before_findings[index] if before_findings else ())
    return "\n".join(lines).rstrip() + "\n"


def _start(item: StartDiagnosis, before_findings: Iterable[str]) -> Iterator[str]:
    arguments = item.start.server_args
    release = item.start.release.possible if item.start.release else None
    told = f"SGLang {release}" if release and len(release) < 100 else "SGLang, release unknown"
    yield f"### {escaped(told)}, {escaped(str(arguments.get('model_path', 'model not named')))}"
    yield ""
    if item.limits is not None and item.limits.max_total_num_tokens is not None:
        limits = item.limits
        told = f"{limits.binding}: {limits.why}. Pool {bound(limits.max_total_num_tokens)} tokens. {over_time(limits.over_time)}"
        yield f"**Limit:** {escaped(told)}"
        yield ""
    yield from before_findings
    for finding in item.findings:
        where = f" (line {', '.join(map(str, finding.lines[:5]))})" if finding.lines else ""
        yield f"- **{finding.code} {finding.level}: {escaped(finding.title)}**{where}  "
        yield f"  {escaped(finding.message)}" + ("  " if finding.advice else "")
        if finding.advice:
            yield f"  *{escaped(finding.advice)}*" + ("  " if finding.risk else "")
        if finding.risk:
            yield f"  Risk: {escaped(finding.risk)}"
    yield ""
    for sentence in users(item.workload, item.unplanned):
        yield from (escaped(sentence), "")
    yield from _folded("Memory", list(memory_of(item, Paint(False, 90))))
    yield from _chain(item.checks)


def _folded(title: str, lines: list[str]) -> Iterator[str]:
    if any(line.strip() for line in lines):
        yield from ("<details><summary>", title, "</summary>", "", "```text")
        yield from (safe(line).replace("```", "'''") for line in lines if line.strip())
        yield from ("```", "", "</details>", "")


def _chain(checks: list[Check]) -> Iterator[str]:
    """The checks as a table; ranks that say the same stand in one row."""
    if not checks:
        return
    head = ("| number | rank | log | recomputed | verdict | lines |", "|---|---|---|---|---|---|")
    yield from ("<details><summary>", "Numbers", "</summary>", "", *head)
    alike: dict[tuple[str, ...], list[Check]] = {}
    for check in checks:
        observed, recomputed = sides(check.verdict, check.observed, check.recomputed)
        name = check.name + (" of the draft" if check.role == "draft" else "")
        seen = f"implied: {observed}" if observed and check.implied else observed
        why = "; ".join(because(_NO_CONFIG if reason == NO_CONFIG else reason) for reason in check.missing)
        alike.setdefault((name, seen, recomputed, why or check.verdict), []).append(check)
    for (name, seen, recomputed, verdict), found in alike.items():
        cells = (name, _ranks(found), seen, recomputed, verdict, line_numbers(found[0].lines, _LINES))
        yield f"| {' | '.join(cell(each) for each in cells)} |"
    yield from ("", "</details>", "")


def _ranks(found: list[Check]) -> str:
    """The ranks of checks that say the same; of many the first and how many more."""
    ranks = list(dict.fromkeys(check.rank for check in found if check.rank))
    return ", ".join(ranks) if len(ranks) <= _RANKS else f"{ranks[0]} and {len(ranks) - 1} more"
