"""The samples of a finding's rule, run: logs that must raise it and near misses that must not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kvdiag.checks.diagnose import diagnose
from kvdiag.checks.model import Finding
from kvdiag.lines import read_records
from kvdiag.outside import Outside
from kvdiag.quantity import Interval
from kvdiag.reading import Line
from kvdiag.releases import parse_release
from kvdiag.starts import assemble


def findings_in(
    text: str, model: str | None = None, release: str | None = None, outside: Sequence[Sequence[Any]] = ()
) -> list[Finding]:
    """The findings of every start in a snippet of log text; `outside` rows are source, name, value and unit."""
    lines = [Line(number, line) for number, line in enumerate(text.strip("\n").split("\n"), 1)]
    stated = parse_release(release) if release else None
    told = [Outside(source, name, Interval.of(value, unit=unit)) for source, name, value, unit in outside]
    starts = assemble(read_records(lines))
    return [
        finding
        for start in starts
        for finding in diagnose(start, model=model, release=stated, siblings=starts, outside=told).findings
    ]


def _raised(sample: dict[str, Any]) -> list[Finding]:
    return findings_in(sample["log"], sample.get("model"), sample.get("release"), sample.get("outside", ()))


def failures(document: dict[str, Any]) -> list[str]:
    """What the samples of one rule file show to be wrong, a sentence each; empty when all hold."""
    code = document["code"]
    wrong: list[str] = []
    if not document["raises"] or not document["silent"]:
        wrong.append(f"{code}: needs a sample that raises it and a near miss")
    for number, sample in enumerate(document["raises"], 1):
        raised = [f for f in _raised(sample) if f.code == code]
        if not raised:
            wrong.append(f"{code}: sample {number} does not raise it")
            continue
        text = " ".join(part for finding in raised for part in (finding.title, finding.message, finding.advice, finding.risk))
        wrong += [f"{code}: sample {number} does not say {said!r}: {text}" for said in sample.get("says", ()) if said not in text]
    for number, sample in enumerate(document["silent"], 1):
        if any(f.code == code for f in _raised(sample)):
            wrong.append(f"{code}: near miss {number} raises it ({sample.get('why', '')})")
    return wrong
