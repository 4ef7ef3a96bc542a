"""What logs get wrapped in, as functions from the lines of a log to the lines of the wrapped one."""

from __future__ import annotations

import html
import json
import re


def _each(make):
    return lambda lines: [make(number, line) for number, line in enumerate(lines)]


def _docker_json(lines):
    """The json-file driver cuts a line of more than 16 KiB into several entries."""
    out = []
    for line in lines:
        text = line + "\n"
        parts = [text[at : at + 16384] for at in range(0, len(text), 16384)]
        out += [json.dumps({"log": part, "stream": "stderr", "time": "2026-05-14T17:27:30.1Z"}) for part in parts]
    return out


def _cri(lines):
    out = []
    for line in lines:
        parts = [line[at : at + 1000] for at in range(0, len(line), 1000)] or [""]
        for index, part in enumerate(parts):
            out.append(f"2026-05-14T17:27:30.123456789Z stderr {'F' if index == len(parts) - 1 else 'P'} {part}")
    return out


def _with(bar):
    """A progress bar that ends without a line end, before every third record."""
    return lambda lines: [bar + line if line.startswith("[2") and number % 3 == 0 else line for number, line in enumerate(lines)]


WRAPPERS = {
    "compose": _each(lambda _, line: f"sglang-1  | {line}"),
    "docker-t": _each(lambda number, line: f"2026-05-14T17:27:{number % 60:02}.123456789Z {line}"),
    "docker-json": _docker_json,
    "cri": _cri,
    "kubectl-prefix": _each(lambda _, line: f"[pod/sglang-0/server] {line}"),
    "kubectl-timestamps": _each(lambda number, line: f"[pod/sglang-0/server] 2026-05-14T17:27:{number % 60:02}.1Z {line}"),
    "journald-short": _each(lambda number, line: f"May 03 09:29:{number % 60:02} gpu-host sglang.sh[4242]: {line}"),
    "journald-iso": _each(lambda number, line: f"2025-05-03T09:29:{number % 60:02}+0200 gpu-host sglang[42]: {line}"),
    "journald-json": _each(lambda _, line: json.dumps({"_SYSTEMD_UNIT": "sglang.service", "MESSAGE": line, "PRIORITY": "6"})),
    "journald-bytes": _each(lambda _, line: json.dumps({"_SYSTEMD_UNIT": "sglang.service", "MESSAGE": list(line.encode())})),
    "srun": _each(lambda _, line: f" 3: {line}"),
    "ray": _each(lambda _, line: f"(SGLangEngine pid=31337, ip=10.0.0.7) {line}"),
    "ray-colour": _each(lambda _, line: f"\x1b[36m(SGLangEngine pid=31337)\x1b[0m {line}"),
    "skypilot": _each(lambda _, line: f"(worker1, rank=1, pid=3133, ip=10.0.0.7) {line}"),
    "syslog": _each(lambda number, line: f"<13>1 2025-05-03T09:29:{number % 60:02}.5Z host sglang 42 - - {line}"),
    "syslog-bsd": _each(lambda _, line: f"<13>May  3 09:29:03 host sglang[42]: {line}"),
    "shipper": _each(lambda _, line: json.dumps({"ts": "x", "kubernetes": {"pod": "sglang-0"}, "message": line})),
    "shipper-nested": _each(lambda _, line: json.dumps({"jsonPayload": {"message": line}, "severity": "INFO"})),
    "logfmt": _each(lambda _, line: f"time=2026-05-14T17:27:30Z level=info msg={json.dumps(line)}"),
    "colour": _each(lambda _, line: f"\x1b[1;32m{line[:10]}\x1b[0m{line[10:]}\x1b[K"),
    "progress": _with("Capturing batches (bs=1 avail_mem=1.72 GB): 100%|████| 4/4 [00:18<00:00,  4.57s/it]"),
    "progress-weights": _with("Loading safetensors checkpoint shards:  50% Completed | 2/4 [00:01<00:01,  1.90it/s]"),
    "redrawn": _each(lambda _, line: f"  0%|   | 0/4\r 50%|██ | 2/4\r{line}"),
    "time-in-front": _each(lambda _, line: f"2026-01-01 10:00:00,123 {line}"),
    "bullets": _each(lambda _, line: f"- {line}"),
    "quoted": _each(lambda _, line: f"> {line}"),
    "fenced": lambda lines: ["```text", *lines, "```"],
    "code": _each(lambda _, line: f"    {line}" if line.startswith("[") else line),
    "code-block": _each(lambda _, line: f"    {line}"),
    "grep": _each(lambda number, line: f"{number + 1}:{line}" if line.startswith("[2") else line),
    "joined": lambda lines: [" ⏎ ".join(lines)],
}
"""Wrapper name to function; each gives back lines without line ends."""


def _rows(width, before=""):
    """A terminal's rows, with what stands before each in the paste."""
    return lambda lines: [before + line[at : at + width] for line in lines for at in range(0, len(line) or 1, width)]


def _typographic(line):
    for mark, opening, closing in (("'", "\u2018", "\u2019"), ('"', "\u201c", "\u201d")):
        parts = line.split(mark)
        line = "".join(part + (opening, closing)[number % 2] for number, part in enumerate(parts[:-1])) + parts[-1]
    return line


_OWN_PREFIX = re.compile(r"\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:[.,]\d{3})?)((?: [A-Z_]+\d+)*)\] ")


def _configured(line):
    """As an operator's own logging configuration prints it."""
    return _OWN_PREFIX.sub(lambda own: f"{own[1]} INFO 31223 [{own[2].strip()}{' ' if own[2] else ''}scheduler.py:222] ", line, 1)


PASTED = {
    "logging-config": _each(lambda _, line: _configured(line)),
    "cat-n": _each(lambda number, line: f"{number + 1:6}\t{line}"),
    "grep-n": _each(lambda number, line: f"{number + 1}:{line}"),
    "grep-context": _each(lambda number, line: f"{number + 1}{':' if '[2' in line else '-'}{line}"),
    "grep-file": _each(lambda number, line: f"server.log:{number + 1}:{line}"),
    "stern": _each(lambda _, line: f"sglang-7d9f8b-x2k4p sglang {line}"),
    "ts": _each(lambda number, line: f"May 03 09:29:{number % 60:02} {line}"),
    "web-page": _each(lambda _, line: line.replace(" ", "\u00a0")),
    "web-page-indented": _each(lambda _, line: "\u00a0" * 4 + line),
    "html": _each(lambda _, line: html.escape(line)),
    "html-twice": _each(lambda _, line: html.escape(html.escape(line)).replace("  ", "&nbsp;&nbsp;")),
    "markdown-escaped": _each(lambda _, line: re.sub(r"([\\\\`*_\[\]#])", r"\\\1", line)),
    "typographic": _each(lambda _, line: _typographic(line)),
    "rows-of-80": _rows(80),
    "indented-rows-of-80": _rows(76, "    "),
}
"""What people do to a whole log before they paste it, its tracebacks included."""
