"""Job launchers: ``srun --label``, ray and SkyPilot actors, MPI and torchrun, grep over several files."""

from __future__ import annotations

from kvdiag.reading.layers.layer import DIGITS, LETTERS, Layer, Peeled, lazy, pattern_layer

_RAY = lazy(r"\((?P<stream>[^()]{0,200}(?:\([^()]{0,200}\)[^()]{0,100})?\bpid=\d+[^()]{0,100})\)(?: |$)")
_REPEATED = lazy(r" \[repeated \d+x across (?:all nodes in the )?cluster\](?: \(Ray deduplicates logs.*)?$")

_GREP = r"(?:(?P<stream>[\w./-]{1,200}\.\w{2,4}[\w.-]{0,20})[:-])?(?: *\d+[:\t-])?"


def _ray(text: str) -> list[Peeled] | None:
    found = _RAY().match(text)
    if not found:
        return None
    return [Peeled(_REPEATED().sub("", text[found.end() :]), found["stream"])]


LAYERS: tuple[Layer, ...] = (
    Layer("ray", frozenset("("), "pid=", _ray),
    pattern_layer("srun", DIGITS | {" "}, ":", r" {0,6}(?P<stream>\d{1,6}):(?: |$)"),
    pattern_layer("mpi", frozenset("["), "]<std", r"\[\d+,(?P<stream>\d+)\]<std(?:out|err)>: ?"),
    pattern_layer("torchrun", frozenset("["), "[default", r"\[(?P<stream>default\d+)\]: ?"),
    pattern_layer("grep", LETTERS | DIGITS | frozenset("./ "), "[", _GREP, ahead=r"\[\d"),
)
