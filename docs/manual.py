"""Writes docs/kvdiag.1, the manual page, from the parsers of the command line: ``python docs/manual.py``.

It needs argparse-manpage (of the dev extra) and Python 3.11: other versions word argparse's help otherwise.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

EXIT_STATUS = "0 done; 1 a check failed; 2 unusable command or input; 3 no SGLang line in the input; 70 a fault of kvdiag."
PAGE = Path(__file__).with_name("kvdiag.1")


def manual() -> str:
    """The page in roff."""
    from argparse_manpage.manpage import Manpage

    from kvdiag import __version__
    from kvdiag.cli.main import build_parser

    os.environ["COLUMNS"] = "100"
    parser = build_parser()
    for name, command in commands(parser).items():
        words = [str(action.metavar) for action in command._actions if not action.option_strings and action.metavar]
        command.usage = " ".join([f"kvdiag {name} [OPTION ...]", *words])
    page = Manpage(parser, format="single-commands-section")
    page.source, page.manual, page.date = f"kvdiag {__version__}", "User commands", ""
    page.description = "what the numbers of an SGLang server's log mean, and what limits the server"
    page.add_section("exit status", "=", EXIT_STATUS)
    return str(page)


def commands(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """The parser of each command."""
    (found,) = [action.choices for action in parser._actions if isinstance(action.choices, dict)]
    return dict(found)


if __name__ == "__main__":
    PAGE.write_text(manual(), encoding="utf-8")
