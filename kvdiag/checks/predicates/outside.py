"""What other sources say about the same server: server_info, metrics, the GPU's tool."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kvdiag.checks.facts import Facts
from kvdiag.checks.findings import Hit
from kvdiag.quantity import GIB, Interval

At = Mapping[str, float]


def disagrees(facts: Facts, at: At) -> Iterator[Hit]:
    """Another source states another value for a number or an argument of the log."""
    for stated in facts.outside:
        if stated.name.startswith("gpu_"):
            continue
        number = facts.start.first(stated.name)
        if isinstance(stated.value, Interval) and number is not None and number.interval is not None:
            if number.interval.unit == stated.value.unit and not number.interval.meets(stated.value):
                yield Hit((number.line,), _values(stated.source, stated.name, number.interval, stated.value))
        elif isinstance(stated.value, str) and stated.name.startswith("argument "):
            name = stated.name.removeprefix("argument ")
            told = facts.start.server_args.get(name)
            if name in facts.start.server_args and str(told) != stated.value:
                yield Hit(
                    (facts.start.server_args_line,),
                    {"source": stated.source, "name": name, "log": str(told), "there": stated.value},
                )


def _values(source: str, name: str, log: Interval, there: Interval) -> dict[str, str]:
    return {"source": source, "name": name, "log": _text(log), "there": _text(there)}


def _text(value: Interval) -> str:
    return f"{float(value.low):,.10g}" if value.is_exact else f"{float(value.low):,.10g} to {float(value.high):,.10g}"


def other_process(facts: Facts, at: At) -> Iterator[Hit]:
    """A card has more memory in use than the server took of it."""
    used = next((o.value for o in facts.outside if o.name == "gpu_others" and isinstance(o.value, Interval)), None)
    source = next((o.source for o in facts.outside if o.name == "gpu_others"), "")
    if used is not None and used.low > at["others_gib"] * GIB:
        yield Hit(facts.lines(facts.number("pre_model_load_memory")), {"source": source, "others": used})


def card_is_larger(facts: Facts, at: At) -> Iterator[Hit]:
    """Far less than the card's memory was free before loading: something else holds the rest."""
    card = next((o for o in facts.outside if o.name == "gpu_total" and isinstance(o.value, Interval)), None)
    total = facts.total
    if card is None or total is None or not isinstance(card.value, Interval):
        return
    missing = card.value - total
    if missing.low > at["missing_gib"] * GIB:
        values = {"source": card.source, "card": card.value, "total": total, "missing": missing}
        yield Hit(facts.lines(facts.number("pre_model_load_memory")), values, stake=missing.low)
