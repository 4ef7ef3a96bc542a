"""The outcome of a check as JUnit XML, for services that show tests."""

from __future__ import annotations

import re
from xml.sax.saxutils import escape, quoteattr

from kvdiag.gate import Drift, Outcome
from kvdiag.gate.codes import LEVELS, codes
from kvdiag.reports.gate_text import places
from kvdiag.reports.safe import safe

_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def render(outcome: Outcome) -> str:
    """A suite of one test for each diagnostic there is: it fails with its drifts at or above the failing level."""
    cases = [_case(code, outcome) for code in codes()]
    failures = sum("<failure" in case for case in cases)
    skipped = sum("<skipped" in case for case in cases)
    counts = f'tests="{len(cases)}" failures="{failures}" errors="0" time="0"'
    inner = "\n".join(cases)
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        f'<testsuites name="kvdiag check" {counts}>\n'
        f' <testsuite name={_attribute(outcome.log)} {counts} skipped="{skipped}">\n{inner}\n </testsuite>\n</testsuites>\n'
    )


def _case(code: str, outcome: Outcome) -> str:
    name = f"{code} {codes()[code].title}"
    head = f'  <testcase classname="kvdiag.check" name={_attribute(name)} time="0"'
    drifts = [drift for drift in outcome.drifts if drift.code == code]
    failing = [d for d in drifts if LEVELS.index(d.level) >= LEVELS.index(outcome.fail_on) and not outcome.accepted]
    suppressed = [drift for drift in outcome.suppressed if drift.code == code]
    if failing:
        said = "\n".join(_text(drift) for drift in failing)
        message = failing[0].message if len(failing) == 1 else f"{failing[0].message} (and {len(failing) - 1} more)"
        return f"{head}><failure message={_attribute(message)} type={_attribute(code)}>{_body(said)}</failure></testcase>"
    if suppressed and not drifts:
        return f"{head}><skipped message={_attribute(suppressed[0].suppressed)}/></testcase>"
    if drifts:
        said = "\n".join(_text(drift) for drift in drifts)
        return f"{head}><system-out>{_body(said)}</system-out></testcase>"
    return f"{head}/>"


def _text(drift: Drift) -> str:
    return "\n  ".join(part for part in (f"{drift.level}: {drift.message}", drift.reason, places(drift)) if part)


def _attribute(text: str) -> str:
    return quoteattr(_NOT_XML.sub("\ufffd", safe(text)))


def _body(text: str) -> str:
    return escape(_NOT_XML.sub("\ufffd", safe(text, 20_000)))
