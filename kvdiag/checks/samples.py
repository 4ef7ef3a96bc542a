"""The samples of a finding's rule, run: logs that must raise it and near misses that must not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kvdiag.checks.diagnose import diagnose
from kvdiag.checks.diagnosis import StartDiagnosis
from kvdiag.checks.inputs import gather
from kvdiag.checks.model import Finding
from kvdiag.lines import read_records
from kvdiag.outside import Outside
from kvdiag.quantity import Interval
from kvdiag.reading import Line
from kvdiag.releases import Release, parse_release
from kvdiag.starts import assemble


def findings_in(
    text: str,
    model: str | None = None,
    release: str | None = None,
    outside: Sequence[Sequence[Any]] = (),
    tree: Mapping[str, str] | None = None,
) -> list[Finding]:
    """The findings of every start in a snippet of log text.

    `outside` rows are source, name, value and unit; `tree` the files of the SGLang that is given with ``--source``.
    """
    lines = [Line(number, line) for number, line in enumerate(text.strip("\n").split("\n"), 1)]
    stated = parse_release(release) if release else None
    told = [Outside(source, name, Interval.of(value, unit=unit)) for source, name, value, unit in outside]
    starts = assemble(read_records(lines))
    found = [diagnose(start, model=model, release=stated, siblings=starts, outside=told) for start in starts]
    if tree:
        _hold_against(found, tree, model, stated)
    return [finding for item in found for finding in item.findings]


def _hold_against(found: list[StartDiagnosis], tree: Mapping[str, str], model: str | None, stated: Release | None) -> None:
    import tempfile
    from pathlib import Path

    from kvdiag.checks.in_source import InSource
    from kvdiag.source import open_tree

    with tempfile.TemporaryDirectory() as folder:
        for name, text in tree.items():
            file = Path(folder, name)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        in_source = InSource(open_tree(folder))
        for item in found:
            in_source.add(item, gather(item.start, None, model, stated))


def _raised(sample: dict[str, Any]) -> list[Finding]:
    return findings_in(sample["log"], sample.get("model"), sample.get("release"), sample.get("outside", ()), sample.get("tree"))


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
