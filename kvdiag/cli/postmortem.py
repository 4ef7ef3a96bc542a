"""``kvdiag postmortem``: what happened over time and which limit bound when."""

from __future__ import annotations

import argparse

from kvdiag.cli.output import deliver, expand, terminal
from kvdiag.errors import ExitCode


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``kvdiag postmortem``."""
    parser.add_argument("logs", nargs="+", metavar="LOG", help="log files or globs")
    parser.add_argument("--config", metavar="PATH", help="model folder or config.json")
    parser.add_argument("--model", metavar="NAME", help="model name in the catalogue or the Hugging Face cache")
    parser.add_argument("--release", metavar="X", help="SGLang release, where the log does not tell it")
    parser.add_argument("--format", choices=("text", "json", "html"), default="text", help="default: %(default)s")
    parser.add_argument("-o", "--output", metavar="FILE", help="file to write instead of standard output")


def run(arguments: argparse.Namespace) -> int:
    """Reviews each server start in the logs over time."""
    from kvdiag.pipeline import postmortem

    result = postmortem(expand(arguments.logs), config=arguments.config, model=arguments.model, release=arguments.release)
    if arguments.format == "json":
        from kvdiag.reports.postmortem_json import render as render_json

        deliver(render_json(result) + "\n", arguments.output)
    elif arguments.format == "html":
        from kvdiag.reports.html_report import render as render_html

        deliver(render_html(result), arguments.output)
    else:
        from kvdiag.reports.postmortem_text import render

        deliver(render(result, **terminal(arguments.output)), arguments.output)
    return ExitCode.DONE
