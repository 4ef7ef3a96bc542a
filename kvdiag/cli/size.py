"""``kvdiag size``: the arithmetic alone, without a log."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any

from kvdiag.cli.arguments import add_draft, add_environment, add_workload, asked_workload
from kvdiag.cli.output import deliver, terminal
from kvdiag.errors import ExitCode, InputError

if TYPE_CHECKING:
    from kvdiag.checks.workload import Workload
    from kvdiag.sizing import Sizing


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``kvdiag size``: the model, the release, the memory, the GPU, and SGLang's server arguments."""
    from kvdiag.cli.server_arguments import add_server_arguments

    parser.usage = "kvdiag size --release X (--config PATH | --model NAME) [OPTION ...]"
    parser.add_argument("--config", metavar="PATH", help="model folder or config.json")
    parser.add_argument("--model", metavar="NAME", help="model name in the catalogue or the Hugging Face cache")
    parser.add_argument("--release", metavar="X", required=True, help="SGLang release, as 0.5.9")
    parser.add_argument("--avail", metavar="GIB", type=float, help="free memory after loading ('avail mem')")
    parser.add_argument("--total", metavar="GIB", type=float, help="free memory before loading")
    parser.add_argument("--gpu", metavar="NAME", help="a GPU of the catalogue, as H100: decides defaults")
    parser.add_argument("--gpu-mem", metavar="MIB", type=int, help="the GPU's memory as its tool prints it")
    parser.add_argument("--compute-capability", metavar="X.Y", help="the GPU's compute capability, as 9.0")
    add_draft(parser)
    add_environment(parser)
    add_workload(parser)
    parser.add_argument("--backend", choices=("mlx",), help="Apple's back end: its pool follows other readings")
    parser.add_argument("--mlx-used", metavar="GIB", type=float, help="memory MLX holds before its pool")
    parser.add_argument("--format", choices=("text", "json"), default="text", help="default: %(default)s")
    parser.add_argument("-o", "--output", metavar="FILE", help="file to write instead of standard output")
    add_server_arguments(parser.add_argument_group("server arguments", "spelled as SGLang spells them"), repeat=False)


def run(arguments: argparse.Namespace) -> int:
    """Prints the sizing as text or JSON."""
    from kvdiag.cli.server_arguments import given_arguments
    from kvdiag.models.find import find_config
    from kvdiag.reports.size_report import render_text
    from kvdiag.sizing.environment import switches_of
    from kvdiag.sizing.request import requested_device, requested_size

    config = find_config(arguments.config, arguments.model)
    if config is None:
        raise InputError("no model: give --config PATH or --model NAME")
    if (arguments.avail is None) != (arguments.total is None):
        raise InputError("--avail and --total belong together: free memory after and before loading, in GiB")
    given = given_arguments(arguments)
    extra = {"backend": arguments.backend, "mlx_used_gib": arguments.mlx_used}
    given |= {name: value for name, value in extra.items() if value is not None}
    given.setdefault("model_path", arguments.config or arguments.model)
    device = requested_device(arguments.gpu, arguments.gpu_mem, _capability(arguments.compute_capability))
    memory = (arguments.avail, arguments.total)
    sizing = requested_size(config, arguments.release, given, memory, device, arguments.draft_config, switches_of(arguments.env))
    found = sizing.to_dict()
    told, sentence = _planned(sizing, asked_workload(arguments), given)
    if arguments.format == "json":
        deliver(json.dumps(found | told, indent=1) + "\n", arguments.output)
    else:
        deliver(render_text(found, sentence, terminal(arguments.output)["width"]), arguments.output)
    return ExitCode.DONE


def _planned(sizing: Sizing, workload: Workload | None, given: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """What the pool does with the workload, for JSON and as text; nothing where none was given."""
    from kvdiag.checks.workload import in_force, longest_request, per_replica, plan, reserve_ratios, without_sharing
    from kvdiag.releases import parse_release
    from kvdiag.reports.workload_text import sentences

    if workload is None:
        return {}, _unplanned(given)
    if sizing.max_total_num_tokens is None:
        return {"workload": None}, "workload: unknown, because the capacity is"
    replicas = int(given.get("dp_size") or given.get("dp") or 1)
    told = without_sharing(per_replica(workload, replicas), bool(given.get("disable_radix_cache")))
    conservativeness = in_force(given.get("schedule_conservativeness", 1.0), replicas > 1 and "enable_dp_attention" in given)
    ratios = reserve_ratios([parse_release(sizing.release)], conservativeness)
    tokens, cap = sizing.max_total_num_tokens, sizing.max_running_requests
    longest = longest_request(tokens, sizing.context_len)
    found = plan(told, tokens, page=sizing.page_size, cap=cap, ratios=ratios, longest=longest)
    return {"workload": told.to_dict() | {"plan": found.to_dict()}}, sentences(told, found)


def _unplanned(given: dict[str, Any]) -> str:
    """What was given that no number of a sizing without a workload shows."""
    from kvdiag.checks.admission import admission_notes

    return "".join(f"note: {note}" for note in admission_notes(given, None))


def _capability(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    major, dot, minor = text.partition(".")
    if not (dot and major.isdecimal() and minor.isdecimal()):
        raise InputError(f"--compute-capability {text}: two numbers with a dot, as 9.0")
    return int(major), int(minor)
