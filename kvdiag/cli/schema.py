"""``kvdiag schema``: the JSON Schemas of what kvdiag writes and reads."""

from __future__ import annotations

import argparse
from pathlib import Path

from kvdiag.cli.arguments import add_output
from kvdiag.cli.output import deliver
from kvdiag.errors import ExitCode

FOLDER = Path(__file__).parent.parent / "schemas"


def names() -> list[str]:
    """The schemas there are."""
    return sorted(path.stem for path in FOLDER.glob("*.json"))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``kvdiag schema``."""
    parser.add_argument("name", metavar="NAME", nargs="?", choices=names(), help=f"one of {', '.join(names())}; none lists them")
    add_output(parser)


def run(arguments: argparse.Namespace) -> int:
    """Prints a schema, or the names of all."""
    if arguments.name is None:
        deliver("\n".join(names()) + "\n", arguments.output)
    else:
        deliver((FOLDER / f"{arguments.name}.json").read_text(encoding="utf-8"), arguments.output)
    return ExitCode.DONE
