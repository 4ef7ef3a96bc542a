"""Arguments that several commands take, each said once."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from kvdiag.cli.output import expand
from kvdiag.errors import InputError

if TYPE_CHECKING:
    from kvdiag.checks.workload import Workload


def add_model_arguments(parser: argparse.ArgumentParser) -> None:
    """Where the model's config and the release come from, as for ``explain``."""
    parser.add_argument("--config", metavar="PATH", help="model folder or config.json; one beside the log is not taken unasked")
    parser.add_argument("--model", metavar="NAME", help="model name in the catalogue or the Hugging Face cache")
    parser.add_argument("--release", metavar="X", help="SGLang release, where the log does not tell it")


def add_draft(parser: argparse.ArgumentParser) -> None:
    """Where the config of the draft model comes from, which a log names at most by a path."""
    parser.add_argument("--draft-config", metavar="PATH", help="the draft model's folder or config.json")


def add_environment(parser: argparse.ArgumentParser) -> None:
    """The switches that the server's environment had."""
    words = "a switch of the server's environment that changes sizes, as SGLANG_PP_LAYER_PARTITION=10,12; repeat it for more"
    parser.add_argument("--env", metavar="NAME=VALUE", action="append", default=[], help=words)


def add_output(parser: argparse.ArgumentParser) -> None:
    """Where the result goes."""
    parser.add_argument("-o", "--output", metavar="FILE", help="file to write instead of standard output")


def add_report_arguments(parser: argparse.ArgumentParser) -> None:
    """In which form a report for people or programs comes, and where it goes."""
    parser.add_argument("--format", choices=("text", "json", "md", "html"), default="text", help="default: %(default)s")
    parser.add_argument("--mask", action="store_true", help="replace paths, hosts, addresses and keys")
    detail = parser.add_mutually_exclusive_group()
    quiet, verbose = "text: only findings and what limits", "text: the chain of every number on every rank, all lines"
    detail.add_argument("-q", "--quiet", dest="detail", action="store_const", const="QUIET", default="USUAL", help=quiet)
    detail.add_argument("-v", "--verbose", dest="detail", action="store_const", const="VERBOSE", help=verbose)
    add_output(parser)


def add_workload(parser: argparse.ArgumentParser) -> None:
    """What the pool is planned for."""
    parser.add_argument("--workload", metavar="W", help="plan in users: prompt=2000,output=500,concurrency=64,shared_prefix=800")


def asked_workload(arguments: argparse.Namespace) -> Workload | None:
    """The workload given, None where none was. Raises InputError where it is not understood."""
    if arguments.workload is None:
        return None
    from kvdiag.checks.workload import parse_workload

    return parse_workload(arguments.workload)


def one_log(pattern: str) -> str:
    """The one log that `pattern` names. Raises InputError where a glob names several."""
    paths = expand([pattern])
    if len(paths) != 1:
        raise InputError(f"{pattern}: names {len(paths)} files; this command takes one log, for example {paths[0]}")
    return paths[0]
