"""``kvdiag fleet``: many logs, local or on object storage, on one machine or on a cluster."""

from __future__ import annotations

import argparse
import os
import sys

from kvdiag.errors import ExitCode


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``kvdiag fleet``."""
    parser.add_argument(
        "urls", nargs="+", metavar="URL", help="files, globs, folders; s3://, gs://, hf://, http(s):// with fsspec"
    )
    parser.add_argument("-o", "--output", metavar="DIR", required=True, help="folder for servers.parquet and report.md")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, metavar="N", help="default: one a processor")
    parser.add_argument("--scheduler", metavar="tcp://HOST:PORT", help="a Dask scheduler to run on instead")


def run(arguments: argparse.Namespace) -> int:
    """Summarises every log, and writes the table and the report; logs that have not changed are not read again."""
    from kvdiag.cli.output import deliver
    from kvdiag.fleet import report
    from kvdiag.fleet.run import run as run_all
    from kvdiag.fleet.sources import find_sources
    from kvdiag.rows.progress import Count

    sources = find_sources(arguments.urls)
    with Count("logs", len(sources), sys.stderr) as count:
        summaries = run_all(
            sources, arguments.output, processes=arguments.processes, scheduler=arguments.scheduler, done=count.reached
        )
    paths = report.write(summaries, arguments.output)
    failed = sum(summary["error"] is not None for summary in summaries)
    deliver(f"{len(summaries):,} logs, {failed:,} could not be read: {paths[0]} {paths[1]}\n", None)
    return ExitCode.DONE
