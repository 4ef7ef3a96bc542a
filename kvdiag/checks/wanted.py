"""Whether more tokens would be of use, and what any sentence about them must agree with."""

from __future__ import annotations

from typing import Any

from kvdiag.checks.binding import bindings, nothing_waited
from kvdiag.checks.facts import Facts

LEAST_SHARE = 0.1
"""Share of the lines from which waiting for the reserve counts: a line or two may be a batch on its way."""
FEWEST_LINES = 10
"""Decode lines from which the absence of a queue says something."""


def are_tokens_wanted(facts: Facts) -> bool | None:
    """Whether the load of this log would have used more tokens; None where the log shows too little load to tell."""
    if facts.activity.retractions or facts.events("input_too_long"):
        return True
    lines, shares = facts.activity.decode, bindings(facts.activity, facts.bounds)
    if shares.get("kv_pool") or shares.get("admission_reserve", 0.0) >= LEAST_SHARE:
        return True
    return False if len(lines) >= FEWEST_LINES and all(batch.queued is not None for batch in lines) else None


def words(facts: Facts) -> dict[str, Any]:
    """What any sentence about more tokens must agree with.

    ``capped`` is the --max-total-tokens that decides the capacity, ``uncapped`` stands where none does; ``enough``
    where the log shows load and nothing waited, ``wanted`` elsewhere.
    """
    is_capped = facts.limits.binding == "max_total_tokens"
    enough = len(facts.activity.decode) >= FEWEST_LINES and nothing_waited(facts.activity, facts.cap)
    return {
        "capped": (facts.arg("max_total_tokens") or facts.tokens) if is_capped else None,
        "uncapped": None if is_capped else "",
        "enough": "" if enough else None,
        "wanted": None if enough else "",
    }
