"""Markdown to paste into an issue: findings first, then memory and the chain of numbers in foldable parts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from kvdiag.checks import Check, Diagnosis, StartDiagnosis
from kvdiag.quantity.ends import ends
from kvdiag.reports.bound import bound, over_time
from kvdiag.reports.memory_text import memory_of
from kvdiag.reports.paint import Paint
from kvdiag.reports.safe import safe
from kvdiag.reports.workload_text import users

_ACTIVE = re.compile(r"([\\`*_{}\[\]<>()#!|~@])")


def escaped(text: str) -> str:
    """`text` without meaning in Markdown or HTML, on one line; an entity-proof ampersand and no mention of anybody."""
    line = " ".join(safe(text).split()).replace("&", "&amp;")
    return _ACTIVE.sub(lambda found: f"&#{ord(found.group())};" if found.group() in "<>@" else "\\" + found.group(), line)


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
    for sentence in users(item.workload) if item.workload else ():
        yield from (escaped(sentence), "")
    yield from _folded("Memory", list(memory_of(item, Paint(False, 90))))
    yield from _chain(item.checks)


def _folded(title: str, lines: list[str]) -> Iterator[str]:
    if any(line.strip() for line in lines):
        yield from ("<details><summary>", title, "</summary>", "", "```text")
        yield from (safe(line).replace("```", "'''") for line in lines if line.strip())
        yield from ("```", "", "</details>", "")


def _chain(checks: list[Check]) -> Iterator[str]:
    if not checks:
        return
    yield from ("<details><summary>", "Numbers", "</summary>", "", "| number | log | recomputed | verdict |", "|---|---|---|---|")
    seen = set()
    for check in checks:
        row = (check.name, check.observed, check.recomputed, check.verdict)
        if row not in seen:
            seen.add(row)
            values = [ends(value) if value else "" for value in (check.observed, check.recomputed)]
            yield f"| {escaped(check.name)} | {escaped(values[0])} | {escaped(values[1])} | {check.verdict} |"
    yield from ("", "</details>", "")
