"""What a person sees first: one screen of terminal text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import Enum
from typing import SupportsFloat

from kvdiag.checks import Check, Diagnosis, StartDiagnosis
from kvdiag.quantity import GIB, Interval
from kvdiag.quantity.figures import figure
from kvdiag.reports.bound import bound, over_time
from kvdiag.reports.memory_text import waterfall
from kvdiag.reports.paint import Paint
from kvdiag.reports.safe import safe
from kvdiag.reports.workload_text import sentences
from kvdiag.starts import Start

MARKS = {"agree": "ok", "disagree": "NO", "unknown": "?"}
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
        lines += _start(item, paint, index, len(diagnosis.starts), detail)
    if detail is not Detail.QUIET:
        lines += ["", *paint.wrap(_footer(diagnosis), dim=True)]
    return "\n".join(lines) + "\n"


def at_a_glance(diagnosis: Diagnosis, *, width: int = 100) -> str:
    """A few lines on the last start whose beginning has been read, for somebody who waits for the rest."""
    item, paint = diagnosis.starts[-1], Paint(False, width)
    wrong = [check.name for check in item.checks if check.verdict == "disagree"]
    verdict = f"The log's {', '.join(wrong)} cannot be right." if wrong else ""
    told = [_headline(item.start), *paint.wrap(" ".join(filter(None, (_limits(item), verdict))), "  ")]
    return "\n".join(["From the start-up part, while the rest is read:", *told, "", ""])


def _start(item: StartDiagnosis, paint: Paint, index: int, count: int, detail: Detail) -> Iterator[str]:
    which = f" ({index + 1} of {count} starts)" if count > 1 else ""
    yield paint.bold(_headline(item.start) + which)
    yield from paint.wrap(_model_line(item))
    if item.start.release and item.start.release.contradiction:
        yield from paint.wrap(safe(f"Release: {item.start.release.contradiction}"))
    if detail is not Detail.QUIET:
        yield from waterfall(item.memory, paint)
        yield from _chain(item.checks, paint, whole=detail is Detail.VERBOSE)
    yield from _findings(item, paint)
    if item.workload is not None:
        yield ""
        yield paint.bold("In users")
        yield from paint.wrap(sentences(*item.workload), "  ")
    yield ""
    yield paint.bold("What limits")
    yield from paint.wrap(_limits(item), "  ")


def _chain(checks: list[Check], paint: Paint, *, whole: bool) -> Iterator[str]:
    """Every check with its formula; unless `whole`, ranks that say the same are shown once and long lists of lines cut."""
    if checks:
        yield ""
        yield paint.bold("How the numbers follow from each other")
    for check in checks if whole else _shown_once(checks):
        yield from _check(check, paint, whole=whole)


def _findings(item: StartDiagnosis, paint: Paint) -> Iterator[str]:
    """Each finding with its lines, what it means, what to do and what that risks."""
    if item.findings:
        yield ""
        yield paint.bold("Findings")
    for finding in item.findings:
        where = f" (line {', '.join(map(str, finding.lines[:5]))})" if finding.lines else ""
        yield paint.colour(safe(f"{finding.code} {finding.level}: {finding.title}{where}"), _COLOURS.get(finding.level, ""))
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
    found = f"config from {item.config.found_in}: {safe(item.config.place)}" if item.config else ""
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
    who = f" [{check.rank}]" if check.rank else ""
    said = f"log {show(check.observed)}" if check.observed else "not in the log"
    computed = f", recomputed {show(check.recomputed)}" if check.recomputed else ""
    where = f" (line {', '.join(map(str, check.lines if whole else check.lines[:4]))})" if check.lines else ""
    yield paint.colour(mark, _COLOURS[check.verdict]) + f"  {check.name}{who}: {said}{computed}{where}"
    yield from paint.wrap(f"= {_filled(check)}" if check.terms else f"= {check.formula}", "        ", dim=True)
    for missing in check.missing:
        yield from paint.wrap(f"unknown, because {safe(missing)}", "        ")
    steps = check.code if whole else [step for step in check.code if step.value][-MOST_STEPS:] or check.code[:1]
    for step in steps:
        value = f"  = {step.value}" if step.value else ""
        yield paint.dim(safe(f"        {step.file}:{step.line}  {step.expression[:200]}{value}"))


def _filled(check: Check) -> str:
    """The formula with each term's value behind the first place where its whole name stands."""
    left = {name: value for name, value in check.terms.items() if value is not None}
    if not left:
        return check.formula
    names = "|".join(re.escape(name) for name in sorted(left, key=len, reverse=True))

    def with_value(found: re.Match[str]) -> str:
        value = left.pop(found[0], None)
        if isinstance(value, dict):
            value = show(Interval.of(value["low"], value["high"], value["unit"]))
        return found[0] if value is None else f"{found[0]} {value}"

    return re.sub(rf"(?<!\w)(?:{names})(?!\w)", with_value, check.formula)


def show(interval: Interval) -> str:
    """An interval for people: one figure where its ends print alike, else both."""
    low, high = _figure(interval.low, interval.unit), _figure(interval.high, interval.unit)
    unit = "GiB" if interval.unit == "bytes" and abs(interval.high) >= GIB // 100 else interval.unit
    return f"{low} {unit}" if low == high else f"{low}..{high} {unit}"


def _figure(value: SupportsFloat, unit: str) -> str:
    number = float(value)
    if unit == "bytes" and abs(number) >= GIB / 100:
        return figure(number / GIB, 3)
    if unit == "fraction":
        return figure(number, 4)
    return figure(number, 0 if abs(number) >= 100 or number == int(number) else 2)


def _limits(item: StartDiagnosis) -> str:
    limits = item.limits
    if limits is None:
        return "unknown"
    told = over_time(limits.over_time)
    if limits.max_total_num_tokens is None:
        return f"unknown, because {limits.why}. {told}".rstrip(". ") + ("." if told else "")
    when = "At start-up " if item.start.first("max_total_num_tokens") else ""
    parts = [f"{when}{limits.binding}: {limits.why}." if limits.why else f"{limits.binding}."]
    parts += [told] if told else []
    parts.append(f"Pool: {bound(limits.max_total_num_tokens)} tokens.")
    if limits.largest_request_tokens is not None:
        parts.append(f"Longest request: {bound(limits.largest_request_tokens)} tokens.")
    if limits.full_length_requests is not None:
        parts.append(f"Full-length requests at once: {bound(limits.full_length_requests)}.")
    return " ".join(parts)


def _footer(diagnosis: Diagnosis) -> str:
    read = sum(item.lines for item in diagnosis.inputs)
    known = sum(item.matched for item in diagnosis.inputs)
    counts = f"{read:,} lines read, {known:,} known, {diagnosis.unmatched:,} with SGLang's prefix but no rule"
    reworded = [each for each in diagnosis.unmatched_samples if each.like]
    if reworded:
        told = "; ".join(f"line {each.line} like {each.like}: {safe(each.template, 100)}" for each in reworded[:5])
        counts += f". Worded otherwise than any known release does (a newer SGLang, or a fork): {told}"
    return f"{counts}. --format json has every number."
