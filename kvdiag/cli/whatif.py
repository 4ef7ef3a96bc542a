"""``kvdiag whatif``: the log's own server with other arguments."""

from __future__ import annotations

import argparse
import itertools
from typing import Any

from kvdiag.cli.arguments import add_draft, add_environment, add_workload, asked_workload
from kvdiag.cli.output import deliver, terminal
from kvdiag.errors import ExitCode, InputError

LARGEST_TABLE = 1000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``kvdiag whatif``: the log, and every server argument that sizing knows, as often as wanted."""
    from kvdiag.cli.server_arguments import add_server_arguments

    parser.usage = "kvdiag whatif LOG [OPTION ...]"
    parser.add_argument("log", metavar="LOG", help="log file or - for standard input")
    parser.add_argument("--config", metavar="PATH", help="model folder or config.json")
    parser.add_argument("--model", metavar="NAME", help="model name in the catalogue or the Hugging Face cache")
    parser.add_argument("--release", metavar="X", help="SGLang release, where the log does not tell it")
    add_draft(parser)
    add_environment(parser)
    add_workload(parser)
    parser.add_argument("--format", choices=("text", "json"), default="text", help="default: %(default)s")
    parser.add_argument("-o", "--output", metavar="FILE", help="file to write instead of standard output")
    changes = parser.add_argument_group("changes", "server arguments as SGLang spells them; repeat one to compare its values")
    add_server_arguments(changes, repeat=True)


def run(arguments: argparse.Namespace) -> int:
    """Predicts the capacity of the log's server for every combination of the changes."""
    from kvdiag.pipeline import what_if
    from kvdiag.sizing.environment import switches_of

    tables = _changes(arguments)
    predictions = what_if(
        arguments.log,
        tables,
        config=arguments.config,
        model=arguments.model,
        release=arguments.release,
        draft_config=arguments.draft_config,
        workload=asked_workload(arguments),
        environment=switches_of(arguments.env),
    )
    if arguments.format == "json":
        from kvdiag.reports.whatif_report import render_json

        deliver(render_json(predictions) + "\n", arguments.output)
    else:
        from kvdiag.reports.whatif_report import render_text

        deliver(render_text(predictions, terminal(arguments.output)["width"]), arguments.output)
    return ExitCode.DONE


def _changes(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    from kvdiag.cli.server_arguments import check_ranges, given_arguments

    given = {name: value if isinstance(value, list) else [value] for name, value in given_arguments(arguments).items()}
    if not given:
        also = " beside what you gave" if arguments.env or arguments.workload else ""
        raise InputError(
            f"nothing to change: give a server argument{also}, for example --mem-fraction-static 0.9 or --kv-cache-dtype "
            "fp8_e4m3; the server as it is: kvdiag explain"
        )
    check_ranges(given)
    combinations = [dict(zip(given, values, strict=True)) for values in itertools.product(*given.values())]
    if len(combinations) > LARGEST_TABLE:
        raise InputError(f"{len(combinations):,} combinations of changes; ask for at most {LARGEST_TABLE:,} at once")
    return combinations
