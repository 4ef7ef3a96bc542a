"""``kvdiag explain``: what every number of the start-up means and whether it is right."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from kvdiag.cli.arguments import (
    add_draft,
    add_environment,
    add_model_arguments,
    add_report_arguments,
    add_workload,
    asked_workload,
)
from kvdiag.cli.output import deliver, expand, masked, terminal
from kvdiag.cli.patience import patience
from kvdiag.errors import ExitCode

if TYPE_CHECKING:
    from kvdiag.checks import Diagnosis
    from kvdiag.outside import Outside


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``kvdiag explain``."""
    parser.add_argument("logs", nargs="+", metavar="LOG", help="log files, globs, or - for standard input")
    add_model_arguments(parser)
    add_draft(parser)
    add_environment(parser)
    parser.add_argument("--source", metavar="TREE[@REV]", help="the SGLang tree that ran: file and line at every step")
    add_workload(parser)
    parser.add_argument("--server-info", metavar="FILE", help="the server's /get_server_info as JSON")
    parser.add_argument("--server", metavar="URL", help="ask a running server, http://host:port, for that JSON")
    parser.add_argument("--metrics", metavar="FILE", help="the server's /metrics as Prometheus text")
    parser.add_argument("--gpu", metavar="FILE", help="output of nvidia-smi or rocm-smi")
    add_report_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Explains the numbers of each server start in the logs."""
    from kvdiag.pipeline import explain
    from kvdiag.sizing.environment import switches_of

    paths = expand(arguments.logs)
    with patience(paths) as progress:
        diagnosis = explain(
            paths,
            config=arguments.config,
            model=arguments.model,
            release=arguments.release,
            draft_config=arguments.draft_config,
            source=arguments.source,
            progress=progress,
            outside=_outside(arguments),
            workload=asked_workload(arguments),
            environment=switches_of(arguments.env),
        )
    deliver(_rendered(masked(diagnosis, arguments.mask), arguments), arguments.output)
    return ExitCode.DONE


def _outside(arguments: argparse.Namespace) -> list[Outside]:
    found: list[Outside] = []
    if arguments.server_info:
        from kvdiag.outside.server_info import read_server_info

        found += read_server_info(arguments.server_info)
    if arguments.server:
        from kvdiag.outside.fetch import fetch_server_info

        found += fetch_server_info(arguments.server)
    if arguments.metrics:
        from kvdiag.outside.metrics import read_metrics

        found += read_metrics(arguments.metrics)
    if arguments.gpu:
        from kvdiag.outside.gpu import read_gpu

        found += read_gpu(arguments.gpu)
    return found


def _rendered(diagnosis: Diagnosis, arguments: argparse.Namespace) -> str:
    if arguments.format == "json":
        from kvdiag.reports.json_report import render as render_json

        return render_json(diagnosis) + "\n"
    if arguments.format == "md":
        from kvdiag.reports.markdown_report import render as render_markdown

        return render_markdown(diagnosis)
    if arguments.format == "html":
        from kvdiag.postmortem.model import Postmortem
        from kvdiag.reports.html_report import render as render_html

        return render_html(Postmortem(diagnosis, [None] * len(diagnosis.starts)))
    from kvdiag.reports.text_report import Detail, render

    return render(diagnosis, **terminal(arguments.output), detail=Detail[arguments.detail])
