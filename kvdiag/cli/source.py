"""``kvdiag source``: the code path behind a number or a log line, and what changed between two revisions."""

from __future__ import annotations

import argparse
import os

from kvdiag.cli.arguments import add_output
from kvdiag.cli.output import deliver, terminal
from kvdiag.errors import ExitCode, InputError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``kvdiag source``."""
    parser.add_argument("tree", metavar="TREE[@REV]", help="checkout, revision of it, installed package, wheel or sdist")
    asked = parser.add_mutually_exclusive_group()
    asked.add_argument("number", nargs="?", metavar="NUMBER", help="a number, for example max_total_num_tokens")
    asked.add_argument("--line", metavar="TEXT", help="the text of a log line")
    parser.add_argument("--against", metavar="REV", help="the older revision of the same repository, or another tree")
    parser.add_argument("--format", choices=("text", "json"), default="text", help="default: %(default)s")
    add_output(parser)


def run(arguments: argparse.Namespace) -> int:
    """Answers from the tree; nothing in it is run."""
    from kvdiag.source import open_against, open_tree
    from kvdiag.source.anchors import is_number
    from kvdiag.source.answer import changes_answer, number_answer, numbers_answer
    from kvdiag.source.opening import WHAT_A_TREE_IS

    if arguments.number is None and arguments.line is None and not os.path.exists(arguments.tree) and is_number(arguments.tree):
        raise InputError(f"{arguments.tree} is a number; which tree is it to be found in? {WHAT_A_TREE_IS}")
    tree = open_tree(arguments.tree)
    if arguments.against is not None and not arguments.number:
        raise InputError("--against compares the path of a number; give one, for example max_total_num_tokens")
    if arguments.against is not None:
        answer = changes_answer(tree, open_against(arguments.tree, arguments.against), arguments.number)
    elif arguments.line is not None:
        from kvdiag.source.line_answer import line_answer

        answer = line_answer(tree, arguments.line)
    elif arguments.number:
        answer = number_answer(tree, arguments.number)
    else:
        answer = numbers_answer(tree)
    if arguments.format == "json":
        from kvdiag.reports.source_report import render_json

        deliver(render_json(answer), arguments.output)
    else:
        from kvdiag.reports.source_report import render

        deliver(render(answer, **terminal(arguments.output)), arguments.output)
    return ExitCode.DONE
