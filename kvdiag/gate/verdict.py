"""The check: a log against a baseline under a policy, and whether it failed."""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from fractions import Fraction

from kvdiag.frozen import frozen, replace
from kvdiag.gate.codes import LEVELS, argument_names, number_names
from kvdiag.gate.facts import compare_facts, disagreement, finding_drifts
from kvdiag.gate.linedrift import compare_lines
from kvdiag.gate.model import Drift, Outcome, Snapshot
from kvdiag.gate.numbers import compare_numbers
from kvdiag.gate.observe import Observation
from kvdiag.gate.policy import Allowance, Policy
from kvdiag.gate.words import shown
from kvdiag.quantity import Interval
from kvdiag.releases import parse_ranges

_NUMBER_CODES = frozenset({"KD101", "KD102", "KD103", "KD104", "KD105", "KD106", "KD107", "KD108"})


@frozen
class Options:
    """What the command line asks for: the failing level, and the codes to keep or to drop (by prefix)."""

    fail_on: str = "error"
    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()


def compare(before: Snapshot, after: Snapshot, policy: Policy | None = None) -> list[Drift]:
    """Every difference between two snapshots, noise among them; only the policy's accepted lines are applied."""
    accepts = (policy or Policy()).accepts_line
    return [*compare_facts(before, after), *compare_numbers(before, after), *compare_lines(before, after, accepts)]


def check(
    observed: Observation,
    baseline: Snapshot | None,
    policy: Policy | None = None,
    options: Options | None = None,
    today: datetime.date | None = None,
) -> Outcome:
    """The outcome for one log. Without a baseline the log is held against the arithmetic and the policy alone."""
    policy, options = policy or Policy(), options or Options()
    drifts = finding_drifts(observed.start.findings, baseline)
    if baseline is not None:
        drifts += compare(baseline, observed.snapshot, policy)
    else:
        drifts += _disagreements(observed.snapshot)
    drifts = [drift for drift in (_allowed(drift, policy) for drift in drifts) if drift is not None]
    drifts += [*_demands(observed, policy), *_unheard_of(observed, policy)]
    return _outcome(observed.path, drifts, policy, options, today or datetime.date.today())


def _outcome(log: str, drifts: list[Drift], policy: Policy, options: Options, today: datetime.date) -> Outcome:
    outcome = Outcome(log, fail_on=options.fail_on)
    for drift in drifts:
        if not _selected(drift, options):
            continue
        reason = _suppressed(drift, policy, today)
        if drift.noise:
            outcome.noise.append(drift)
        elif reason:
            outcome.suppressed.append(replace(drift, suppressed=reason))
        else:
            outcome.drifts.append(drift)
    outcome.drifts += [d for d in _expired(policy, today) if _selected(d, options)]
    outcome.drifts.sort(key=weight)
    outcome.failed = any(LEVELS.index(d.level) >= LEVELS.index(options.fail_on) for d in outcome.drifts)
    return outcome


_ORDER = ("KD133", "KD124", "KD123", "KD121", "KD125", "KD101", "KD102", "KD103", "KD104")


def weight(drift: Drift) -> tuple[int, int, str, str, tuple[int, ...]]:
    """Errors first; of one level what explains the others first, then by code."""
    place = _ORDER.index(drift.code) if drift.code in _ORDER else len(_ORDER)
    return (-LEVELS.index(drift.level), place, drift.code, drift.subject, drift.lines)


def _selected(drift: Drift, options: Options) -> bool:
    """Whether a drift is asked for, by its own code or by that of the finding it reports."""
    names = (drift.code, drift.subject) if drift.code == "KD134" else (drift.code,)
    if options.select and not any(name.startswith(options.select) for name in names):
        return False
    return not (options.ignore and any(name.startswith(options.ignore) for name in names))


def _suppressed(drift: Drift, policy: Policy, today: datetime.date) -> str:
    for entry in policy.suppressions:
        if entry.covers(drift.code, drift.subject) and today <= entry.until:
            return f"{entry.reason} (until {entry.until})"
    return ""


def _expired(policy: Policy, today: datetime.date) -> Iterable[Drift]:
    for entry in policy.suppressions:
        if today > entry.until:
            said = f"the suppression of {entry.code} ({entry.subject}) ended on {entry.until}"
            yield Drift("KD191", "error", entry.code, said, f"it was for: {entry.reason}")


def _allowed(drift: Drift, policy: Policy) -> Drift | None:
    """The drift as the policy sees it: gone where it is allowed, an error where a number must be exact."""
    if drift.code in _NUMBER_CODES:
        allowance = policy.numbers.get(drift.subject)
        if allowance is not None and allowance != Allowance():
            if allowance.exact:
                return replace(drift, level="error", noise=False, follows="")
            if _within(drift, allowance):
                return None
            drift = replace(drift, level="error" if not drift.noise else drift.level)
    if drift.code in ("KD121", "KD122") and drift.subject in policy.ignored_arguments:
        return None
    if drift.code == "KD134" and drift.subject.startswith(policy.allowed_findings or ("\0",)):
        return None
    if drift.code == "KD123" and policy.allowed_releases is not None and isinstance(drift.after, str):
        possible = parse_ranges(drift.after)
        if policy.allowed_releases == "any" or not possible - parse_ranges(policy.allowed_releases):
            return None
    level = policy.levels.get(drift.code)
    if level == "off":
        return None
    return replace(drift, level=level) if level and not drift.noise else drift


def _within(drift: Drift, allowance: Allowance) -> bool:
    """Whether the change may be one that is allowed: the least the printed digits allow is compared."""
    if allowance.anything:
        return True
    a, b = drift.before, drift.after
    if not isinstance(a, Interval) or not isinstance(b, Interval):
        return False
    went_up = b.low + b.high > a.low + a.high
    if allowance.direction != "any" and went_up != (allowance.direction == "up"):
        return True
    least = max(Fraction(0), b.low - a.high if went_up else a.low - b.high)
    if allowance.absolute is not None and least <= allowance.absolute:
        return True
    base = max(abs(a.low), abs(a.high))
    return allowance.relative is not None and least <= allowance.relative * base


def _disagreements(snapshot: Snapshot) -> list[Drift]:
    return [disagreement(check, snapshot) for check in snapshot.checks if check.verdict == "disagree"]


def _demands(observed: Observation, policy: Policy) -> list[Drift]:
    """What the policy requires of the log whatever the baseline says."""
    snapshot, found = observed.snapshot, []
    for name in policy.required_checks:
        checked = snapshot.check(name)
        if checked is None or checked.verdict == "unknown":
            lacks = "; ".join(checked.missing if checked else ()) or "its inputs are not all there"
            why = f"it is unknown, because {lacks}" if checked else "the log lacks it"
            said = f"the policy requires {name} to be checked; {why}"
            found.append(Drift("KD132", "error", name, said, lines=(checked.line,) if checked else ()))
    for name, value in policy.required_arguments.items():
        there = snapshot.arguments.get(name)
        if there != value and not (value in (None, False) and there is None):
            said = f"the policy requires {name} = {shown(value)}, the log has {shown(there)}"
            line = (snapshot.arguments_line,) if snapshot.arguments_line else ()
            found.append(Drift("KD125", "error", name, said, before=shown(value), after=shown(there), lines=line))
    for finding in observed.start.findings:
        if finding.code.startswith(policy.forbidden_findings or ("\0",)):
            said = f"{finding.code}: {finding.title}; the policy forbids it. {finding.message}"
            found.append(Drift("KD134", "error", finding.code, said, finding.advice, lines=finding.lines))
    found += _unknown_lines(observed, policy)
    return found


def _unheard_of(observed: Observation, policy: Policy) -> Iterable[Drift]:
    """Names of the policy that neither SGLang's releases nor this log have: a fork's, or misspelt and then without effect."""
    stated = {number.name for number in observed.snapshot.numbers}
    numbers = {name.partition("[")[0] for name in policy.numbers} - number_names() - stated
    arguments = (
        {*policy.ignored_arguments, *policy.required_arguments} - argument_names() - observed.start.start.server_args.keys()
    )
    for kind, names in (("number", numbers), ("server argument", arguments)):
        for name in sorted(names):
            said = f"the policy names the {kind} {name}, which no release of SGLang and not this log has"
            yield Drift("KD192", "note", name, said)


def _unknown_lines(observed: Observation, policy: Policy) -> list[Drift]:
    """Different wordings without a rule, as their number does not depend on the load."""
    budget = policy.unknown_budget
    unknown = [s for s in observed.snapshot.shapes if s.family is None and not policy.accepts_line(s.text)]
    if budget is None or len(unknown) <= budget:
        return []
    said = f"{len(unknown):,} wordings of lines have no rule, the policy allows {budget:,}"
    lines = tuple(sorted(shape.line for shape in unknown)[:5])
    return [Drift("KD145", "error", "unknown lines", said, lines=lines)]
