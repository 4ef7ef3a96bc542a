"""``kvdiag watch``: follow growing logs."""

from __future__ import annotations

import argparse
import sys
from contextlib import nullcontext

from kvdiag.cli.output import deliver, expand, terminal
from kvdiag.errors import ExitCode


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``kvdiag watch``."""
    parser.add_argument("logs", nargs="+", metavar="LOG", help="log files, or - for standard input")
    parser.add_argument("--once", action="store_true", help="read what is there, tell it, and end")
    parser.add_argument("--no-live", action="store_true", help="a line for each thing that happens, also on a terminal")
    parser.add_argument("--state", metavar="FILE", help="where to keep how far was read; the next run goes on from there")


def run(arguments: argparse.Namespace) -> int:
    """Follows the logs until it is interrupted or standard input ends; then the postmortem."""
    from kvdiag.pipeline import postmortem
    from kvdiag.reports.postmortem_text import render
    from kvdiag.watch.loop import Watch, lines_to
    from kvdiag.watch.view import live

    shown = sys.stdout.isatty() and not arguments.no_live and not arguments.once
    with Watch(expand(arguments.logs), arguments.state) as watch:
        with live() if shown else nullcontext(lines_to(sys.stdout)) as tell:
            watch.run(tell, once=arguments.once)
        deliver(render(postmortem(watch.paths()), **terminal(None)), None)
    return ExitCode.DONE
