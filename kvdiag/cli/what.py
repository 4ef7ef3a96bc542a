"""``kvdiag what``: the meaning of a field, or of a pasted line word by word."""

from __future__ import annotations

import argparse

from kvdiag.cli.output import deliver, terminal
from kvdiag.errors import ExitCode, UnknownWordError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``kvdiag what``."""
    parser.add_argument("words", nargs="+", metavar="TEXT", help='a field such as "token usage", or a whole line of a log')


def run(arguments: argparse.Namespace) -> int:
    """Prints what the field or the line means."""
    from kvdiag.lines.glossary import find_field, near_fields, read_line
    from kvdiag.reports.glossary_report import render_field, render_line

    text = " ".join(arguments.words)
    records = read_line(text)
    if records:
        deliver(render_line(records, **terminal(None)), None)
        return ExitCode.DONE
    entries = find_field(text)
    if not entries:
        near = near_fields(text)
        hint = f"; did you mean {', '.join(repr(name) for name in near)}?" if near else ""
        raise UnknownWordError(f"{text!r} is no field of SGLang's log and no line that a rule knows{hint}")
    deliver(render_field(entries, **terminal(None)), None)
    return ExitCode.DONE
