"""Markdown to paste into an issue: findings first, then memory and the chain of numbers in foldable parts."""

from __future__ import annotations

import re
from collections.abc import Iterator

from kvdiag.checks import Check, Diagnosis, StartDiagnosis
from kvdiag.reports.bound import bound
from kvdiag.reports.memory_text import waterfall
from kvdiag.reports.paint import Paint
from kvdiag.reports.safe import safe
from kvdiag.reports.text_report import show

_ACTIVE = re.compile(r"([\\`*_{}\[\]<>()#!|~@])")


def escaped(text: str) -> str:
    """`text` without meaning in Markdown or HTML, on one line; an entity-proof ampersand and no mention of anybody."""
    line = " ".join(safe(text).split()).replace("&", "&amp;")
    return _ACTIVE.sub(lambda found: f"&#{ord(found.group())};" if found.group() in "<>@" else "\\" + found.group(), line)


def render(diagnosis: Diagnosis) -> str:
    """The whole diagnosis as Markdown."""
    lines: list[str] = []
    for index, item in enumerate(diagnosis.starts):
        lines += ["---", ""] if index else []
        lines += _start(item)
    return "\n".join(lines).rstrip() + "\n"


def _start(item: StartDiagnosis) -> Iterator[str]:
    arguments = item.start.server_args
    release = item.start.release.possible if item.start.release else None
    told = f"SGLang {release}" if release and len(release) < 100 else "SGLang, release unknown"
    yield f"### {escaped(told)}, {escaped(str(arguments.get('model_path', 'model not named')))}"
    yield ""
    if item.limits is not None and item.limits.max_total_num_tokens is not None:
        limits = item.limits
        yield f"**Limit:** {limits.binding}: {escaped(limits.why)}. Pool {bound(limits.max_total_num_tokens)} tokens."
        yield ""
    for finding in item.findings:
        where = f" (line {', '.join(map(str, finding.lines[:5]))})" if finding.lines else ""
        yield f"- **{finding.code} {finding.level}: {escaped(finding.title)}**{where}  "
        yield f"  {escaped(finding.message)}" + ("  " if finding.advice else "")
        if finding.advice:
            yield f"  *{escaped(finding.advice)}*"
    yield ""
    yield from _folded("Memory", list(waterfall(item.memory, Paint(False, 90))))
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
            values = [show(value) if value else "" for value in (check.observed, check.recomputed)]
            yield f"| {escaped(check.name)} | {escaped(values[0])} | {escaped(values[1])} | {check.verdict} |"
    yield from ("", "</details>", "")
