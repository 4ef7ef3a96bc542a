"""Records inside JSON (docker's json-file, journald, fluentd, vector, cloud exports, a JSON logging config) and logfmt."""

from __future__ import annotations

from typing import Any

from kvdiag.reading.layers.layer import LETTERS, Layer, Peeled, lazy

_MESSAGE = (
    *("message", "log", "msg", "MESSAGE", "textPayload", "jsonPayload", "@message", "body", "stringValue", "line", "text"),
    *("event", "record", "fields", "_source", "attributes", "result"),
)
"""Keys of the record's text, or of what holds it, the usual ones first."""
_STREAM = (
    *("pod_name", "pod", "container_name", "container", "CONTAINER_NAME", "_SYSTEMD_UNIT", "unit", "service", "app", "task"),
    "SYSLOG_IDENTIFIER",
)
_WITHIN = ("kubernetes", "docker", "resource", "labels", "k8s", "tags", "stream")
_TIME = ("time", "@timestamp", "timestamp", "ts", "asctime", "__REALTIME_TIMESTAMP")
_PAIR = lazy(r'\s+"(?:message|log|msg|MESSAGE|textPayload|text|line)"\s*:\s*("(?:[^"\\]|\\.)*+")\s*,?\s*$')
_VALUE = r'[\w.@-]+=(?:"(?:[^"\\]|\\.)*+"|[^\s"]*+)'
_LOGFMT = lazy(rf'(?:{_VALUE}\s+)*?(?:msg|message|log)=("(?:[^"\\]|\\.)*+")(?:\s+{_VALUE})*+\s*$')
_HEAD = lazy(r' *\[?\s*\{\s*"')
_DEEPEST = 5
_DOCKER = frozenset({"log", "stream", "time", "attrs"})
"""Keys of docker's own file, which ends every line but a cut one with a line end."""


def _json(text: str) -> list[Peeled] | None:
    """One object a line, an array of them, or an array spread over lines (then with a comma behind)."""
    if not _HEAD().match(text):
        return None
    import json

    try:
        read = json.loads(text.strip().rstrip(","))
    except (ValueError, RecursionError):
        return None
    found: list[Peeled] = []
    for entry in read if isinstance(read, list) else [read]:
        if isinstance(entry, dict):
            found += _entry(entry) or []
    return found or None


def _entry(entry: dict[str, Any]) -> list[Peeled] | None:
    message = _message(entry, 0)
    if message is None:
        return None
    stream, time = _stream(entry), _first(entry, _TIME)
    lines = message.removesuffix("\n").split("\n")
    if _DOCKER.issuperset(entry) and len(lines) == 1:
        return [Peeled(lines[0], stream, time, not message.endswith("\n"))]
    return [Peeled(line, stream, time) for line in lines]


def _message(value: Any, depth: int) -> str | None:
    """The record's text: under one of the usual keys, maybe some levels down; journald gives bytes as numbers.

    An ``event`` of one word is the name of what happened, not a text.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, list) and value and all(isinstance(byte, int) and 0 <= byte < 256 for byte in value):
        return bytes(value).decode("utf-8", "replace")
    if not isinstance(value, dict) or depth > _DEEPEST:
        return None
    for key in _MESSAGE:
        if key in value:
            found = _message(value[key], depth + 1)
            if found is not None and (key != "event" or " " in found):
                return found
    return None


def _stream(entry: dict[str, Any]) -> str:
    """The server's name: its pod and container, or its unit."""
    names = [_first(entry, _STREAM)]
    for key in _WITHIN:
        inner = entry.get(key)
        if isinstance(inner, dict):
            names.append("/".join(str(inner[name]) for name in _STREAM if isinstance(inner.get(name), str)))
    return "/".join(dict.fromkeys(name for name in names if name))


def _first(entry: dict[str, Any], keys: tuple[str, ...]) -> str:
    return next((str(entry[key]) for key in keys if isinstance(entry.get(key), (str, int, float))), "")


def _pair(text: str) -> list[Peeled] | None:
    """The message line of an object that is printed over several lines."""
    found = _PAIR().match(text)
    return _string(found[1]) if found else None


def _logfmt(text: str) -> list[Peeled] | None:
    if not any(mark in text for mark in ('msg="', 'message="', 'log="')):
        return None
    found = _LOGFMT().match(text)
    return _string(found[1]) if found else None


def _string(literal: str) -> list[Peeled] | None:
    import json

    try:
        return [Peeled(line) for line in str(json.loads(literal)).removesuffix("\n").split("\n")]
    except ValueError:
        return None


LAYERS: tuple[Layer, ...] = (
    Layer("json", frozenset("{[ "), "{", _json),
    Layer("json-pair", frozenset(" \t"), '":', _pair),
    Layer("logfmt", LETTERS, '="', _logfmt),
)
