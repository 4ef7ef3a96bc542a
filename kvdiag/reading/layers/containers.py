"""Container engines: ``docker compose logs``, ``kubectl logs --prefix``, the CRI log file, stern."""

from __future__ import annotations

from kvdiag.reading.layers.layer import DIGITS, LETTERS, Layer, Peeled, lazy, pattern_layer

_CRI = lazy(r"(?P<time>\d{4}-\d\d-\d\dT[\d:.]+(?:Z|[+-]\d\d:\d\d)) std(?:out|err) (?P<more>[FP])(?:[ \t]|$)")


def _cri(text: str) -> list[Peeled] | None:
    """The kubelet's own file cuts long lines and marks every part but the last with a P."""
    found = _CRI().match(text)
    return [Peeled(text[found.end() :], "", found["time"], found["more"] == "P")] if found else None


LAYERS: tuple[Layer, ...] = (
    Layer("cri", DIGITS, " std", _cri),
    pattern_layer("compose", LETTERS | DIGITS, " |", r"(?P<stream>(?=[\d._-]*[A-Za-z])[A-Za-z0-9][\w.-]{0,127}) +\|(?: |$)"),
    pattern_layer("kubectl", frozenset("["), "[pod/", r"\[(?:pod/)(?P<stream>[^\]\s]+)\](?: |$)"),
    pattern_layer("stern", LETTERS, " [", r"(?P<stream>[a-z0-9][\w.-]{0,127} [a-z0-9][\w.-]{0,127}) (?:› )?", ahead=r"\[\d"),
)
