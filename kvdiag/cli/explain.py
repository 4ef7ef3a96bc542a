"""``kvdiag explain``: what every number of the start-up means and whether it is right."""

from __future__ import annotations

import argparse

from kvdiag.cli.output import deliver, expand, terminal
from kvdiag.errors import ExitCode


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``kvdiag explain``."""
    parser.add_argument("logs", nargs="+", metavar="LOG", help="log files, globs, or - for standard input")
    parser.add_argument("--config", metavar="PATH", help="model folder or config.json")
    parser.add_argument("--model", metavar="NAME", help="model name in the catalogue or the Hugging Face cache")
    parser.add_argument("--release", metavar="X", help="SGLang release, where the log does not tell it")
    parser.add_argument("--source", metavar="TREE[@REV]", help="the SGLang tree that ran: file and line at every step")
    parser.add_argument("--format", choices=("text", "json"), default="text", help="default: %(default)s")
    parser.add_argument("-o", "--output", metavar="FILE", help="file to write instead of standard output")


def run(arguments: argparse.Namespace) -> int:
    """Explains the numbers of each server start in the logs."""
    from kvdiag.pipeline import explain

    known = {"config": arguments.config, "model": arguments.model, "release": arguments.release}
    diagnosis = explain(expand(arguments.logs), source=arguments.source, **known)
    if arguments.format == "json":
        from kvdiag.reports.json_report import render as render_json

        deliver(render_json(diagnosis) + "\n", arguments.output)
    else:
        from kvdiag.reports.text_report import render

        deliver(render(diagnosis, **terminal(arguments.output)), arguments.output)
    return ExitCode.DONE
