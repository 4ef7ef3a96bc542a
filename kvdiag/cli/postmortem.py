"""``kvdiag postmortem``: what happened over time and which limit bound when."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from kvdiag.cli.arguments import add_model_arguments, add_report_arguments
from kvdiag.cli.output import deliver, expand, masked, terminal
from kvdiag.cli.patience import patience
from kvdiag.errors import ExitCode

if TYPE_CHECKING:
    from kvdiag.postmortem import Postmortem


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``kvdiag postmortem``."""
    parser.add_argument("logs", nargs="+", metavar="LOG", help="log files or globs")
    add_model_arguments(parser)
    add_report_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Reviews each server start in the logs over time."""
    from kvdiag.pipeline import postmortem

    paths = expand(arguments.logs)
    with patience(paths) as progress:
        result = postmortem(paths, config=arguments.config, model=arguments.model, release=arguments.release, progress=progress)
    deliver(_rendered(masked(result, arguments.mask), arguments), arguments.output)
    return ExitCode.DONE


def _rendered(result: Postmortem, arguments: argparse.Namespace) -> str:
    if arguments.format == "json":
        from kvdiag.reports.postmortem_json import render as render_json

        return render_json(result) + "\n"
    if arguments.format == "md":
        from kvdiag.reports.postmortem_markdown import render as render_markdown

        return render_markdown(result)
    if arguments.format == "html":
        from kvdiag.reports.html_report import render as render_html

        return render_html(result)
    from kvdiag.reports.postmortem_text import render
    from kvdiag.reports.text_report import Detail

    return render(result, **terminal(arguments.output), detail=Detail[arguments.detail])
