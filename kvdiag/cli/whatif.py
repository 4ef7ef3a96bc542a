"""``kvdiag whatif``: the log's own server with other arguments."""

from __future__ import annotations

import argparse
import itertools
from typing import Any

from kvdiag.cli.output import deliver
from kvdiag.errors import ExitCode, InputError

LARGEST_TABLE = 1000
_SHORT = {"tp_size": "--tp", "dp_size": "--dp", "pp_size": "--pp", "ep_size": "--ep"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``kvdiag whatif``: the log, and every server argument that sizing knows, as often as wanted."""
    from kvdiag.frozen import types_of
    from kvdiag.sizing import ServerArguments

    parser.add_argument("log", metavar="LOG", help="log file or - for standard input")
    parser.add_argument("--config", metavar="PATH", help="model folder or config.json")
    parser.add_argument("--model", metavar="NAME", help="model name in the catalogue or the Hugging Face cache")
    parser.add_argument("--release", metavar="X", help="SGLang release, where the log does not tell it")
    parser.add_argument("--format", choices=("text", "json"), default="text", help="default: %(default)s")
    parser.add_argument("-o", "--output", metavar="FILE", help="file to write instead of standard output")
    changes = parser.add_argument_group("changes", "server arguments as SGLang spells them; repeat one to compare its values")
    for field, written in types_of(ServerArguments).items():
        kind = written.partition(" ")[0]
        flags = ["--" + field.replace("_", "-"), *([_SHORT[field]] if field in _SHORT else [])]
        if kind == "bool":
            changes.add_argument(*flags, dest=f"change_{field}", action=argparse.BooleanOptionalAction, default=None)
        elif kind in _READERS:
            changes.add_argument(
                *flags, dest=f"change_{field}", action="append", type=_READERS[kind], metavar=kind.upper(), default=None
            )


def _number(text: str) -> int:
    value = int(text)
    if not 0 <= value <= 10**12:
        raise ValueError(text)
    return value


def _float(text: str) -> float:
    value = float(text)
    if not 0 <= value <= 10**6:
        raise ValueError(text)
    return value


def _text(text: str) -> str | None:
    return None if text.lower() == "none" else text


_READERS: dict[str, Any] = {"int": _number, "float": _float, "str": _text}


def run(arguments: argparse.Namespace) -> int:
    """Predicts the capacity of the log's server for every combination of the changes."""
    from kvdiag.pipeline import what_if

    tables = _changes(arguments)
    predictions = what_if(arguments.log, tables, config=arguments.config, model=arguments.model, release=arguments.release)
    if arguments.format == "json":
        from kvdiag.reports.whatif_report import render_json

        deliver(render_json(predictions) + "\n", arguments.output)
    else:
        from kvdiag.reports.whatif_report import render_text

        deliver(render_text(predictions), arguments.output)
    return ExitCode.DONE


def _changes(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    given: dict[str, list[Any]] = {}
    for name, value in vars(arguments).items():
        if name.startswith("change_") and value is not None:
            given[name.removeprefix("change_")] = value if isinstance(value, list) else [value]
    if not given:
        raise InputError(
            "nothing to change: give a server argument, for example --mem-fraction-static 0.9 or --kv-cache-dtype fp8_e4m3"
        )
    fractions = given.get("mem_fraction_static", [])
    if any(not 0 < fraction < 1 for fraction in fractions):
        raise InputError(f"--mem-fraction-static {fractions[0]}: a fraction lies between 0 and 1")
    if any(size < 1 for name, values in given.items() if name.endswith("_size") for size in values):
        raise InputError("a size of parallelism is at least 1")
    combinations = [dict(zip(given, values, strict=True)) for values in itertools.product(*given.values())]
    if len(combinations) > LARGEST_TABLE:
        raise InputError(f"{len(combinations):,} combinations of changes; ask for at most {LARGEST_TABLE:,} at once")
    return combinations
