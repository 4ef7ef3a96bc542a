"""``kvdiag diff``: what differs between two starts, and why."""

from __future__ import annotations

import argparse

from kvdiag.cli.arguments import add_model_arguments, add_output, one_log
from kvdiag.cli.output import deliver, terminal
from kvdiag.errors import ExitCode, InputError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``kvdiag diff``."""
    parser.add_argument("log_a", metavar="LOG_A", help="the earlier log, or - for standard input")
    parser.add_argument("log_b", metavar="LOG_B", help="the later log")
    parser.add_argument("--source", metavar="TREE[@REV]", help="an SGLang tree: shows where in it each cause acts")
    parser.add_argument("--format", choices=("text", "json"), default="text", help="default: %(default)s")
    add_output(parser)
    add_model_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Compares the last starts of two logs."""
    from kvdiag.gate import observe
    from kvdiag.gate.difference import difference
    from kvdiag.reports.diff_report import render, render_text

    if arguments.log_a == arguments.log_b == "-":
        raise InputError("only one of the two logs can be standard input")
    known = {"config": arguments.config, "model": arguments.model, "release": arguments.release}
    tree = None
    if arguments.source:
        from kvdiag.source import open_tree

        tree = open_tree(arguments.source)
    found = difference(observe(one_log(arguments.log_a), **known), observe(one_log(arguments.log_b), **known), tree)
    if arguments.format == "json":
        deliver(render(found) + "\n", arguments.output)
    else:
        deliver(render_text(found, **terminal(arguments.output)), arguments.output)
    return ExitCode.DONE
