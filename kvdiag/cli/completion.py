"""``kvdiag completion``: the completion script of a shell."""

from __future__ import annotations

import argparse
from typing import Any

from kvdiag.cli.arguments import add_output
from kvdiag.cli.output import deliver
from kvdiag.errors import ExitCode

_PATHS = ("LOG", "FILE", "PATH", "TREE", "DIR")
SHELLS = ("bash", "zsh", "fish")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``kvdiag completion``."""
    parser.add_argument("shell", metavar="SHELL", choices=SHELLS, help=f"one of {', '.join(SHELLS)}")
    add_output(parser)


def run(arguments: argparse.Namespace) -> int:
    """Prints the script; ``source <(kvdiag completion bash)`` turns it on."""
    import shtab

    from kvdiag.cli.main import build_parser

    parser = build_parser()
    _complete_files(parser, shtab.FILE)
    deliver(shtab.complete(parser, shell=arguments.shell) + "\n", arguments.output)
    return ExitCode.DONE


def _complete_files(parser: argparse.ArgumentParser, mark: Any) -> None:
    """Marks the arguments that take a path, so that the shell offers files."""
    action: Any
    for action in parser._actions:
        if isinstance(action.choices, dict):
            for command in action.choices.values():
                _complete_files(command, mark)
        elif isinstance(action.metavar, str) and action.metavar.startswith(_PATHS):
            action.complete = mark
