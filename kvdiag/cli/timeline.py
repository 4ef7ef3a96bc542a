"""``kvdiag timeline``: the scheduler lines as a table."""

from __future__ import annotations

import argparse
import sys

from kvdiag.cli.output import expand
from kvdiag.errors import ExitCode


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``kvdiag timeline``."""
    parser.usage = "kvdiag timeline LOG [LOG ...] -o FILE.csv [OPTION ...]"
    parser.add_argument("logs", nargs="+", metavar="LOG", help="log files, globs, or - for standard input")
    parser.add_argument(
        "-o", "--output", metavar="FILE", required=True, help="a .parquet, .csv, .json or .jsonl file: its name says the format"
    )
    strict = "match every line with the rules one by one: slow, to check the usual way, which gives the same table"
    parser.add_argument("--strict", action="store_true", help=strict)


def run(arguments: argparse.Namespace) -> int:
    """Writes the timeline of the logs to one file."""
    from kvdiag.reports.safe import safe
    from kvdiag.rows.export import export

    for seen in export(expand(arguments.logs), arguments.output, strict=arguments.strict):
        if seen.unread:
            print(f"kvdiag: not all of {safe(seen.path)} was read: {safe(seen.unread)}", file=sys.stderr)
    return ExitCode.DONE
