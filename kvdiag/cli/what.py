"""``kvdiag what``: the meaning of a field, or of a pasted line word by word."""

from __future__ import annotations

import argparse
import sys

from kvdiag.cli.output import deliver, terminal
from kvdiag.errors import ExitCode, UnknownWordError

LONGEST = 200
"""Characters of a text that is not known, as far as they are told again."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``kvdiag what``."""
    parser.add_argument(
        "words",
        nargs="+",
        metavar="TEXT",
        help='a field such as "token usage", a word of a report, or a whole line of a log; - reads it from standard input',
    )
    parser.add_argument("--release", metavar="X", help="tell the meaning in that SGLang release, where it changed")


def run(arguments: argparse.Namespace) -> int:
    """Prints what the field or the line means."""
    from kvdiag.lines.glossary import find_field, near_fields, read_line
    from kvdiag.lines.words import find_word
    from kvdiag.releases import only, published_release
    from kvdiag.reports.glossary_report import render_field, render_line, render_word

    text = sys.stdin.read().rstrip("\n") if arguments.words == ["-"] else _pasted(arguments.words)
    stated = only(published_release(arguments.release)) if arguments.release else None
    entries, word = find_field(text, stated), find_word(text)
    records = [] if entries or word else read_line(text)
    if records:
        deliver(render_line(records, stated=stated, **terminal(None)), None)
        return ExitCode.DONE
    told = render_word(word, **terminal(None)) if word else ""
    if not entries and not told:
        near = near_fields(text)
        hint = (
            f"did you mean {', '.join(repr(name) for name in near)}?" if near else "kvdiag rules list has the families of lines"
        )
        log = f"the log of SGLang {stated}" if stated else "SGLang's log"
        asked = text if len(text) <= LONGEST else f"{text[:LONGEST]}..."
        raise UnknownWordError(f"{asked!r} is no field of {log} and no known line (give a line whole, in quotes); {hint}")
    deliver("\n".join(filter(None, (told, render_field(entries, **terminal(None)) if entries else ""))), None)
    return ExitCode.DONE


def _pasted(words: list[str]) -> str:
    """What was pasted: a line without quotes comes as its words, quoted lines come whole."""
    return ("\n" if all(" " in word.strip() for word in words) else " ").join(words)
