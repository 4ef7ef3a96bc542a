"""``kvdiag baseline``: what a start is now, as a small file to compare later starts with."""

from __future__ import annotations

import argparse
import sys

from kvdiag.cli.arguments import add_model_arguments, add_output, one_log
from kvdiag.cli.output import deliver
from kvdiag.errors import ExitCode


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``kvdiag baseline``."""
    parser.add_argument("log", metavar="LOG", help="log file, or - for standard input")
    add_output(parser)
    add_model_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Writes the baseline of the last start in the log."""
    from kvdiag.checks.inputs import NO_CONFIG
    from kvdiag.gate import observe, write_baseline
    from kvdiag.reports.safe import safe

    log = one_log(arguments.log)
    observed = observe(log, config=arguments.config, model=arguments.model, release=arguments.release)
    if observed.others:
        print(f"kvdiag: {safe(log)}: {observed.others + 1} starts, the baseline is of the last", file=sys.stderr)
    if observed.snapshot.failed:
        print(
            f"kvdiag: {safe(log)}: this start failed; a later one that fails the same way has not drifted from it",
            file=sys.stderr,
        )
    unchecked = [check.name for check in observed.snapshot.checks if NO_CONFIG in check.missing]
    if unchecked:
        print(
            f"kvdiag: {safe(log)}: the model's config is not known, so {', '.join(unchecked)} are kept without the arithmetic, "
            "which no check will guard; give --config PATH or --model NAME here and to each check",
            file=sys.stderr,
        )
    deliver(write_baseline(observed.snapshot), arguments.output)
    return ExitCode.DONE
