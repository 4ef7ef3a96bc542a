"""What a person sees first: one screen of terminal text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import Enum
from typing import Any

from kvdiag.checks import Check, Diagnosis, StartDiagnosis
from kvdiag.checks.inputs import NO_CONFIG
from kvdiag.quantity import Interval
from kvdiag.quantity.ends import ends
from kvdiag.quantity.figures import figure
from kvdiag.reports.because import because
from kvdiag.reports.limits_text import limits
from kvdiag.reports.line_numbers import line_numbers
from kvdiag.reports.memory_text import memory_of, waterfall
from kvdiag.reports.paint import Paint
from kvdiag.reports.safe import safe
from kvdiag.reports.sides import sides
from kvdiag.reports.workload_text import users
from kvdiag.starts import Start

MARKS = {"agree": "ok", "disagree": "NO", "unknown": "?"}
_FOUND = {
    "config": "config given",
    "log": "config at the log's path",
    "cache": "config in the Hugging Face cache",
    "catalogue": "config from the catalogue",
}
MOST_STEPS = 4
"""Statements of the source shown at a check; the JSON has them all."""
_COLOURS = {"agree": "green", "disagree": "red", "unknown": "yellow", "error": "red", "warning": "yellow", "note": "cyan"}


class Detail(Enum):
    """How much the report tells: findings and limits; each number once; or every number of every rank with all its lines."""

    QUIET = 0
    USUAL = 1
    VERBOSE = 2


def render(diagnosis: Diagnosis, *, width: int = 100, colour: bool = False, detail: Detail = Detail.USUAL) -> str:
    """The report as text of at most `width` columns, but for the heads of numbers and findings, which stay whole to be searched.

    Colour only repeats what the words say.
    """
    paint = Paint(colour, width)
    lines: list[str] = []
    for index, item in enumerate(diagnosis.starts):
        if index:
            lines += ["", "-" * min(width, 60), ""]
        lines += heading(item, paint, index, len(diagnosis.starts))
        lines += _start(item, paint, detail)
    if detail is not Detail.QUIET:
        lines += ["", *footer(diagnosis, paint, detail)]
    return "\n".join(lines) + "\n"


def at_a_glance(diagnosis: Diagnosis, *, width: int = 100) -> str:
    """A few lines on the last start whose beginning has been read, for somebody who waits for the rest."""
    item, paint = diagnosis.starts[-1], Paint(False, width)
    wrong = [check.name for check in item.checks if check.verdict == "disagree"]
    verdict = f"The log's {', '.join(wrong)} cannot be right." if wrong else ""
    told = [_headline(item.start), *paint.wrap(" ".join(filter(None, (limits(item), verdict))), "  ")]
    return "\n".join(["From the start-up part, while the rest is read:", *told, "", ""])


def heading(item: StartDiagnosis, paint: Paint, index: int, count: int) -> Iterator[str]:
    """What server this is, in a line."""
    which = f" ({index + 1} of {count} starts)" if count > 1 else ""
    yield paint.bold(_headline(item.start) + which)


def _start(item: StartDiagnosis, paint: Paint, detail: Detail) -> Iterator[str]:
    yield from paint.wrap(_model_line(item))
    yield from paint.wrap(drafts(item))
    if item.start.release and item.start.release.contradiction:
        yield from paint.wrap(safe(f"Release: {item.start.release.contradiction}"))
    if detail is Detail.VERBOSE:
        yield from _evidence(item, paint)
        for ledger in item.memory:
            yield from waterfall([ledger], paint)
        if not item.memory:
            yield from memory_of(item, paint)
        yield from _numbers(item, paint)
        yield from _chain(item.checks, paint, whole=True)
    elif detail is Detail.USUAL:
        yield from memory_of(item, paint)
        yield from _chain(item.checks, paint, whole=False)
    yield from findings(item, paint)
    told = users(item.workload, item.unplanned)
    if told:
        yield ""
        yield paint.bold("In users")
        for sentence in told:
            yield from paint.wrap(sentence, "  ")
    yield ""
    yield paint.bold("What limits")
    yield from paint.wrap(limits(item), "  ")


def _chain(checks: list[Check], paint: Paint, *, whole: bool) -> Iterator[str]:
    """Every check with its formula; unless `whole`, ranks that say the same are shown once and long lists of lines cut."""
    if checks:
        yield ""
        yield paint.bold("How the numbers follow from each other")
    for check in checks if whole else _shown_once(checks):
        yield from _check(check, paint, whole=whole)


def drafts(item: StartDiagnosis) -> str:
    """What the log tells of speculative decoding, empty where nothing."""
    arguments, seen = item.start.server_args, item.activity.accept_lengths if item.activity else []
    algorithm, tokens = arguments.get("speculative_algorithm"), arguments.get("speculative_num_draft_tokens")
    if not algorithm and not seen:
        return ""
    parts = [safe(str(algorithm)) if algorithm else "on, by the decode lines; the arguments are not in the log"]
    parts += [f"{tokens} draft tokens a step"] if tokens else []
    if seen:
        middle = sorted(seen)[len(seen) // 2]
        parts.append(f"accept len {figure(middle, 2)} at the median of {len(seen):,} decode lines")
    return f"Speculative decoding: {', '.join(parts)}"


def _evidence(item: StartDiagnosis, paint: Paint) -> Iterator[str]:
    """Why the release is thought to be what the headline says, and what was noted about the start."""
    for text in (*(item.start.release.evidence if item.start.release else ()), *item.start.notes):
        yield from paint.wrap(safe(f"- {text}"), dim=True)


def _numbers(item: StartDiagnosis, paint: Paint) -> Iterator[str]:
    """Every number of the log with the interval that its digits stand for, its rank and its line."""
    yield ""
    yield paint.bold("Every number of the log")
    for number in item.start.numbers:
        told = ends(number.interval) if number.interval else safe(str(number.value))
        who = " ".join(part for part in (number.rank, number.role or "") if part)
        where = f"line {number.line}" + (f" of input {number.path + 1}" if number.path else "")
        yield safe(f"  {number.name:<28} {told:>28}  {who:<12} {where}{', superseded' if number.superseded else ''}")


def findings(item: StartDiagnosis, paint: Paint) -> Iterator[str]:
    """Each finding with its lines, what it means, what to do and what that risks."""
    if item.findings:
        yield ""
        yield paint.bold("Findings")
    for finding in item.findings:
        where = f" (line {', '.join(map(str, sorted(finding.lines[:5])))})" if finding.lines else ""
        head = paint.head(safe(f"{finding.code} {finding.level}: {finding.title}{where}"), " " * len(finding.code + " "))
        yield from (paint.colour(line, _COLOURS.get(finding.level, "")) for line in head)
        yield from paint.wrap(safe(finding.message), "  ")
        if finding.advice:
            yield from paint.wrap("-> " + safe(finding.advice), "  ")
        if finding.risk:
            yield from paint.wrap("Risk: " + safe(finding.risk), "  ", dim=True)


def _headline(start: Start) -> str:
    args = start.server_args
    release = start.release.possible if start.release else None
    told = f"SGLang {release}" if release and len(release) < 100 else "SGLang, release unknown"
    sizes = [f"{short} {args[name]}" for short, name in (("TP", "tp_size"), ("DP", "dp_size"), ("PP", "pp_size")) if name in args]
    device = args.get("device")
    parts = [told, safe(str(args.get("model_path", "model not named"))), ", ".join(sizes), f"on {device}" if device else ""]
    return "  ".join(part for part in parts if part)


def _model_line(item: StartDiagnosis) -> str:
    geometry = item.geometry
    if geometry is None:
        return f"Model: {item.unsized}"
    found = f"{_FOUND[item.config.found_in]}: {safe(item.config.place)}" if item.config else ""
    if geometry.attention == "mla":
        shape = f"latent {geometry.kv_lora_rank} + rope {geometry.qk_rope_head_dim}"
    else:
        shape = f"{geometry.num_key_value_heads} KV heads of {geometry.head_dim}"
    return f"Model: {safe(geometry.architecture)}, {geometry.attention}, {geometry.num_hidden_layers} layers, {shape} ({found})"


def _shown_once(checks: list[Check]) -> Iterator[Check]:
    """Ranks that say the same are shown once."""
    seen = set()
    for check in checks:
        key = (check.name, check.verdict, check.role, check.observed, check.recomputed)
        if key not in seen:
            seen.add(key)
            yield check


def _check(check: Check, paint: Paint, *, whole: bool) -> Iterator[str]:
    mark = f"{MARKS[check.verdict]:>4}"
    who = (f" [{check.rank}]" if check.rank else "") + (" of the draft" if check.role == "draft" else "")
    seen, result = sides(check.verdict, check.observed, check.recomputed)
    said = f"log {'implies ' if check.implied else ''}{seen}" if seen else "not in the log"
    computed = f", recomputed {result}" if result else ""
    where = f" (line {line_numbers(check.lines, None if whole else 4)})" if check.lines else ""
    first, *more = paint.head(f"{check.name}{who}: {said}{computed}{where}", " " * 8, taken=6)
    yield from (f"{paint.colour(mark, _COLOURS[check.verdict])}  {first}", *more)
    yield from paint.wrap(f"= {_filled(check)}" if check.terms else f"= {check.formula}", "        ", dim=True)
    for missing in check.missing:
        told = "the model's config is not known (see above)" if missing == NO_CONFIG else safe(missing)
        yield from paint.wrap(because(told), "        ")
    if whole:
        yield from _terms(check, paint)
    for step in check.code if whole else [step for step in check.code if step.value][-MOST_STEPS:] or check.code[:1]:
        value = f"  = {step.value}" if step.value else ""
        yield paint.dim(safe(f"        {step.file}:{step.line}  {step.expression[:200]}{value}"))


def _terms(check: Check, paint: Paint) -> Iterator[str]:
    """Each value put into the formula on a line of its own, and SGLang's function."""
    for name, value in check.terms.items():
        told = "not given" if value is None else _value(value)
        yield paint.dim(safe(f"          {name} = {told}"))
    if check.symbol:
        yield paint.dim(safe(f"          by {check.symbol}"))


def _value(term: Any) -> str:
    """The value of a term, which is an interval in its JSON form, a number or a word."""
    if isinstance(term, dict):
        return ends(Interval.of(term["low"], term["high"], term["unit"]))
    return f"{term:,}" if isinstance(term, int) and not isinstance(term, bool) else str(term)


def _filled(check: Check) -> str:
    """The formula with each term's value behind the first place where its whole name stands."""
    left = {name: value for name, value in check.terms.items() if value is not None}
    if not left:
        return check.formula
    names = "|".join(re.escape(name) for name in sorted(left, key=len, reverse=True))

    def with_value(found: re.Match[str]) -> str:
        value = left.pop(found[0], None)
        return found[0] if value is None else f"{found[0]} {_value(value)}"

    return re.sub(rf"(?<!\w)(?:{names})(?!\w)", with_value, check.formula)


def footer(diagnosis: Diagnosis, paint: Paint, detail: Detail = Detail.USUAL) -> Iterator[str]:
    """What was read, and where to go on; with VERBOSE also the first lines of each wording that no rule knows."""
    for item in diagnosis.inputs:
        if item.unread:
            yield from paint.wrap(f"Not all of {safe(item.path)} was read: {safe(item.unread)}.")
    verbose = detail is Detail.VERBOSE
    yield from paint.wrap(_counts(diagnosis, verbose=verbose), dim=True)
    if verbose:
        for each in diagnosis.unmatched_samples:
            times = f" ({each.count:,} times)" if each.count > 1 else ""
            yield paint.dim(f"  line {each.line}{times}: {safe(each.text, 200)}")
        left = diagnosis.unmatched - sum(each.count for each in diagnosis.unmatched_samples)
        if left > 0:
            most = len(diagnosis.unmatched_samples)
            yield paint.dim(f"  and {left:,} {'lines' if left > 1 else 'line'} more, of wordings beyond the {most} listed here")
    codes = [finding.code for item in diagnosis.starts for finding in item.findings]
    if codes:
        yield from paint.wrap(f"kvdiag rules show {' '.join(dict.fromkeys(codes))} tells more of them.", dim=True)


def _counts(diagnosis: Diagnosis, *, verbose: bool) -> str:
    read = sum(item.lines for item in diagnosis.inputs)
    known = sum(item.matched for item in diagnosis.inputs)
    counts = f"{read:,} lines read: {known:,} known, {diagnosis.unmatched:,} of SGLang's that no rule reads"
    counts += "" if verbose else " (-v lists them)"
    counts += ", the rest of others (requests, libraries, tracebacks)" if read > known + diagnosis.unmatched else ""
    reworded = [each for each in diagnosis.unmatched_samples if each.like]
    if reworded:
        told = "; ".join(f"line {each.line}, like {each.like}: {safe(each.template, 100)}" for each in reworded[:5])
        counts += f". Begun like a known line, but not in the rules (a newer SGLang, a fork, or a gap in them): {told}"
        counts += "; a rule of your own reads such lines (docs/templates.md)"
    return f"{counts}. --format json has every number."
