"""What limits a server, in a paragraph of text."""

from __future__ import annotations

from kvdiag.checks import StartDiagnosis
from kvdiag.checks.model import Limits
from kvdiag.quantity.figures import figure
from kvdiag.reports.bound import bound, over_time


def limits(item: StartDiagnosis) -> str:
    """What bounds the server, at start-up and by the scheduler lines."""
    found = item.limits
    if found is None:
        return "unknown"
    told = over_time(found.over_time)
    if found.max_total_num_tokens is None:
        return f"unknown, because {found.why}. {told}".rstrip(". ") + ("." if told else "")
    when = "At start-up " if item.start.first("max_total_num_tokens") else ""
    parts = [f"{when}{found.binding}: {found.why}." if found.why else f"{found.binding}."]
    parts += [told] if told else []
    replicas = item.facts.inputs.arguments.dp_size if item.facts is not None else 1
    each = f" on each of {replicas} data-parallel replicas" if replicas > 1 else ""
    parts.append(f"Pool: {bound(found.max_total_num_tokens)} tokens{each}.")
    if found.largest_request_tokens is not None:
        most = "" if item.facts and item.facts.context else "at most "
        parts.append(f"Longest request: {most}{bound(found.largest_request_tokens)} tokens.")
    if found.full_length_requests is not None:
        parts.append(f"Full-length requests at once{' on each' if each else ''}: {_full_length(found)}.")
    return " ".join(parts)


def _full_length(found: Limits) -> str:
    """How many requests of full length can run at once: whole ones, and not more than the cap lets run."""
    holds, cap = found.full_length_requests, found.max_running_requests
    assert holds is not None
    low, high = (holds["low"], holds["high"]) if isinstance(holds, dict) else (holds, holds)
    if high < 1:
        return f"none, the pool holds {figure(high * 100, 0)} % of one"
    whole = f"{int(low):,}" if int(low) == int(high) else f"{int(low):,} to {int(high):,}"
    if cap is not None and cap < int(low):
        return f"{cap:,}, by max_running_requests (the pool holds {whole})"
    return whole
