"""Arguments that several commands take, each said once."""

from __future__ import annotations

import argparse

from kvdiag.cli.output import expand
from kvdiag.errors import InputError


def add_model_arguments(parser: argparse.ArgumentParser) -> None:
    """Where the model's config and the release come from, as for ``explain``."""
    parser.add_argument("--config", metavar="PATH", help="model folder or config.json; one beside the log is not taken unasked")
    parser.add_argument("--model", metavar="NAME", help="model name in the catalogue or the Hugging Face cache")
    parser.add_argument("--release", metavar="X", help="SGLang release, where the log does not tell it")


def add_output(parser: argparse.ArgumentParser) -> None:
    """Where the result goes."""
    parser.add_argument("-o", "--output", metavar="FILE", help="file to write instead of standard output")


def add_report_arguments(parser: argparse.ArgumentParser) -> None:
    """In which form a report for people or programs comes, and where it goes."""
    parser.add_argument("--format", choices=("text", "json", "md", "html"), default="text", help="default: %(default)s")
    parser.add_argument("--mask", action="store_true", help="replace paths, hosts, addresses and keys")
    add_output(parser)


def one_log(pattern: str) -> str:
    """The one log that `pattern` names. Raises InputError where a glob names several."""
    paths = expand([pattern])
    if len(paths) != 1:
        raise InputError(f"{pattern}: names {len(paths)} files; a baseline is of one log, give one (e.g. {paths[0]})")
    return paths[0]
