"""``kvdiag fleet``: many logs, local or on object storage, on one machine or on a cluster."""

from __future__ import annotations

import argparse
import os
import sys
from importlib import import_module

from kvdiag.errors import ExitCode


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``kvdiag fleet``."""
    parser.add_argument(
        "urls",
        nargs="+",
        metavar="URL",
        help="files, globs, folders (*.log, *.out, ...); s3://, gs://, hf://, http(s):// with fsspec",
    )
    parser.add_argument("-o", "--output", metavar="DIR", required=True, help="folder for servers.parquet and report.md")
    parser.add_argument("--processes", type=_processes, default=os.cpu_count() or 1, metavar="N", help="default: one a processor")
    parser.add_argument("--scheduler", metavar="tcp://HOST:PORT", help="a Dask scheduler to run on instead")


def _processes(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of processes; give 1 or more")
    return int(text)


def run(arguments: argparse.Namespace) -> int:
    """Summarises every log, and writes the table and the report; logs that have not changed are not read again."""
    from kvdiag.cli.output import deliver
    from kvdiag.fleet import report
    from kvdiag.fleet.run import run as run_all
    from kvdiag.fleet.sources import find_sources
    from kvdiag.reports.safe import safe
    from kvdiag.rows.progress import Count

    import_module("pyarrow")  # what the table is written with is of an extra: said before the logs are read
    passed: list[str] = []
    sources = find_sources(arguments.urls, passed)
    if passed:
        files = f"{len(passed):,} files" if len(passed) > 1 else "one file"
        print(
            f"kvdiag: passed over {files} in folders, whose names are not those of logs, such as {safe(passed[0])}; "
            "what is given by its name or by a glob is read whatever its name",
            file=sys.stderr,
        )
    with Count("logs", len(sources), sys.stderr) as count:
        summaries = run_all(
            sources, arguments.output, processes=arguments.processes, scheduler=arguments.scheduler, done=count.reached
        )
    paths = report.write(summaries, arguments.output)
    failed = sum(summary["error"] is not None for summary in summaries)
    unread = f", {failed:,} of them without a server to tell of (the report says why)" if failed else ""
    deliver(f"{len(summaries):,} {'log' if len(summaries) == 1 else 'logs'}{unread}: {paths[0]} {paths[1]}\n", None)
    return ExitCode.DONE
