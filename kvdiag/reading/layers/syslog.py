"""journald's text outputs and syslog: a time, a host, a unit with its process."""

from __future__ import annotations

from kvdiag.reading.layers.layer import DAYS, DIGITS, MONTHS, Layer, pattern_layer

_HOST = r"(?=\w)[\w.-]{1,255}"
_UNIT = rf"(?P<stream>{_HOST} [^\s\[\]:]{{1,128}})(?:\[\d+\])?:(?: |$)"
_PROCESS = rf"(?P<stream>{_HOST} [^\s\[\]:]{{1,128}})\[\d+\]:(?: |$)"
"""Behind a time that container engines print too, only a unit with its process is one: ``RuntimeError in x:`` is none."""
_BSD = r"[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d(?:\.\d{1,9})?"
_ZONED = r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?[+-]\d\d:?\d\d"
_ISO = r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?"
_FULL = r"[A-Z][a-z]{2} \d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d{1,9})? [A-Z+\d:-]{1,6}"
_STRUCTURED = r"(?:-|(?:\[(?:[^\]\\]|\\.)*+\])+)(?: \ufeff?|$)"
_5424 = rf"(?P<time>{_ISO}|-) (?P<stream>\S{{1,255}} \S{{1,48}}) \S{{1,128}} \S{{1,32}} {_STRUCTURED}"

LAYERS: tuple[Layer, ...] = (
    pattern_layer("journald-short", MONTHS, ":", rf"(?P<time>{_BSD}) {_UNIT}"),
    pattern_layer("journald-full", DAYS, ":", rf"(?P<time>{_FULL}) {_UNIT}"),
    pattern_layer("journald-iso", DIGITS, ":", rf"(?P<time>{_ZONED}) {_UNIT}"),
    pattern_layer("syslog-iso", DIGITS, "]:", rf"(?P<time>{_ISO}) {_PROCESS}"),
    pattern_layer("journald-monotonic", frozenset("["), "] ", rf"\[ *(?P<time>\d+\.\d{{6}})\] {_UNIT}"),
    pattern_layer("syslog-bsd", frozenset("<"), ">", rf"<\d{{1,3}}>(?P<time>{_BSD}) (?:{_UNIT})?"),
    pattern_layer("syslog", frozenset("<"), ">", rf"<\d{{1,3}}>\d{{1,2}} {_5424}"),
)
