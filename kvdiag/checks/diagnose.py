"""From starts to a diagnosis."""

from __future__ import annotations

from kvdiag.checks.failure import failure_of
from kvdiag.checks.inputs import gather
from kvdiag.checks.limits import limits_of
from kvdiag.checks.model import Check, Finding, StartDiagnosis
from kvdiag.checks.recompute import recompute
from kvdiag.releases import Release
from kvdiag.starts import Start


def diagnose(
    start: Start, *, config: str | None = None, model: str | None = None, release: Release | None = None, last_exception: str = ""
) -> StartDiagnosis:
    """All that can be concluded about one start.

    `config` is a path, `model` a catalogue name, `release` the stated release; `last_exception` the last line of the
    last traceback. Raises ConfigError where `config` or `model` cannot be used.
    """
    inputs = gather(start, config, model, release)
    checks = recompute(inputs)
    findings = [_disagreement(check) for check in _roots(checks)]
    failed = failure_of(start, last_exception)
    if failed:
        findings.insert(0, failed)
    return StartDiagnosis(start, inputs.config, inputs.geometry, inputs.unsized, checks, limits_of(inputs), findings)


def _roots(checks: list[Check]) -> list[Check]:
    """The disagreements, less those that only repeat another: the budget and the fraction are implied by the capacity."""
    found = [check for check in checks if check.verdict == "disagree"]
    if any(check.name == "max_total_num_tokens" for check in found):
        found = [check for check in found if check.name not in ("rest_memory", "mem_fraction_static")]
    return found


def _disagreement(check: Check) -> Finding:
    assert check.observed is not None
    assert check.recomputed is not None
    unit = check.observed.unit
    message = (
        f"The log has {check.name} between {float(check.observed.low):,.10g} and {float(check.observed.high):,.10g} {unit}; "
        f"recomputed it lies between {float(check.recomputed.low):,.10g} and {float(check.recomputed.high):,.10g} {unit} "
        f"by {check.formula}."
    )
    advice = "Check that the config, the release and the arguments are those of this run; a patched tree computes otherwise."
    return Finding("KV101", "error", f"{check.name} disagrees with the arithmetic", message, advice, check.lines)
