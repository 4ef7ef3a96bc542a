"""What was given beside the log and is not of the run that it tells of: another model's config, another release."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kvdiag.checks.facts import Facts
from kvdiag.checks.findings import Hit
from kvdiag.models import Geometry
from kvdiag.releases import only

At = Mapping[str, float]

_SHAPE = ("attention", "num_hidden_layers", "num_key_value_heads", "head_dim", "v_head_dim", "kv_lora_rank")
"""What of a geometry decides the bytes of a token, whatever the copy or tuning of a model."""


def other_model(facts: Facts, at: At) -> Iterator[Hit]:
    """A config was given, the model that the log names has another shape, and the log's numbers are not the given one's."""
    inputs = facts.inputs
    own, given = inputs.named, inputs.geometry
    if own is None or given is None or inputs.config is None or _shape(own) == _shape(given):
        return
    cell = [check for check in facts.checks if check.name == "bytes_per_token"]
    wrong = sorted({check.name for check in facts.checks if check.verdict == "disagree"})
    if any(check.verdict == "agree" for check in cell) or not (wrong or cell):
        return
    open_ = sorted({check.name for check in facts.checks if check.verdict == "unknown"} - set(wrong))
    values = {
        "log": facts.arg("model_path"),
        "own": _told(own),
        "given": inputs.config.place,
        "shape": _told(given),
        "wrong": ", ".join(wrong) or None,
        "unknown": ", ".join(open_) or None,
    }
    yield Hit((), values)


def other_release(facts: Facts, at: At) -> Iterator[Hit]:
    """A release was given that could not have printed the log's lines."""
    release, stated = facts.start.release, facts.inputs.stated
    if release is None or stated is None or release.contradiction or not release.evidence or release.possible & only(stated):
        return
    yield Hit((), {"log": str(release.possible), "evidence": release.evidence[0], "given": str(stated)})


def _shape(geometry: Geometry) -> tuple[object, ...]:
    return tuple(getattr(geometry, name) for name in _SHAPE)


def _told(geometry: Geometry) -> str:
    """A geometry in the words of a report's line on the model."""
    if geometry.kv_lora_rank:
        cell = f"a latent of {geometry.kv_lora_rank} + {geometry.qk_rope_head_dim}"
    else:
        cell = f"{geometry.num_key_value_heads} KV heads of {geometry.head_dim}"
    return f"{geometry.architecture}, {geometry.num_hidden_layers} layers, {cell}"
