"""Times put in front (``docker logs -t``, ``kubectl logs --timestamps``, ``ts``) and the prefixes of Python's logging."""

from __future__ import annotations

from kvdiag.reading.layers.layer import DIGITS, LETTERS, MONTHS, Layer, Peeled, lazy, pattern_layer

_TIME = r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?"
_NOT_A_RECORD = r"(?!(?: [A-Z_]+\d+)*\])"
_LEVEL = r"\[?(?:DEBUG|INFO|WARN(?:ING)?|ERROR|CRITICAL)\]?"
_LOGGER = r"(?:sglang(?:\.\w+)*|root)(?::\w+)?(?::\d+)?"
_BETWEEN = r"(?: ?[-|:] ?| )"

_SOURCE = r"((?:[A-Z_]{2,8}\d{1,5} )*)[\w./-]{1,200}\.py:\d{1,6}"
_CONFIGURED = lazy(rf"(\d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d(?:[.,]\d{{3}})?) {_LEVEL} \d{{1,9}} \[{_SOURCE}\] ")
"""A format of ``SGLANG_LOGGING_CONFIG_PATH``: level and process in front, the tags beside the place in the source."""


def _configured(text: str) -> list[Peeled] | None:
    """The record with time and tags where SGLang's own format has them."""
    found = _CONFIGURED().match(text)
    if not found:
        return None
    return [Peeled(f"[{' '.join([found[1], *found[2].split()])}] {text[found.end() :]}")]


LAYERS: tuple[Layer, ...] = (
    pattern_layer("logging", LETTERS, ":", rf"{_LEVEL}:{_LOGGER}:"),
    pattern_layer(
        "logging-format",
        DIGITS | LETTERS | {"["},
        "sglang",
        rf"(?:\[?(?P<time>{_TIME})\]?{_BETWEEN})?(?:{_LEVEL}{_BETWEEN}\[?{_LOGGER}\]?|\[?{_LOGGER}\]?{_BETWEEN}{_LEVEL}){_BETWEEN}",
    ),
    Layer("logging-config", DIGITS, ".py:", _configured),
    pattern_layer("time", DIGITS, ":", rf"(?P<time>{_TIME}){_NOT_A_RECORD}(?:[ \t]|$)"),
    pattern_layer("time-in-brackets", frozenset("["), "T", r"\[(?P<time>\d{4}-\d\d-\d\dT[\d:.,]+(?:Z|[+-]\d\d:?\d\d)?)\](?: |$)"),
    pattern_layer("ts", MONTHS, "[", r"(?P<time>[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d(?:\.\d{1,9})?) ", ahead=r"\["),
    pattern_layer("clock", DIGITS, "[", r"(?P<time>\d\d:\d\d:\d\d(?:[.,]\d{1,9})?|\d{10}\.\d{1,9}) ", ahead=r"\[\d"),
)
