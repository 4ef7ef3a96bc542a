"""Answers of SGLang's own sizing code for given configs and arguments, in the form of the oracle's rows. Run by hand.

    PYTHON bench/remake_oracle.py --sglang TREE --jobs JOBS.jsonl -o ROWS.jsonl

PYTHON has CPU torch and a transformers near the one the release pins; TREE is the folder of an unpacked wheel that holds
``sglang``. A job is one JSON object a line: ``model``, ``config`` (the config.json as an object), ``args`` (server
arguments with underscores), ``gpu``, ``gpu_mem_mib``, ``capability`` ([9, 0]), ``available_gpu_mem_gib``,
``pre_model_load_gib``, where the card is not NVIDIA's its ``vendor`` (amd, ascend or intel), and where the checkpoint's
own quantisation names a cache dtype ``kv_cache_quant_algo``.

Releases 0.3.0 and newer, but for 0.5.3, which looks into its kernels as it is imported. Free memory, process groups and
weights are made up; argument resolution, model config and sizing are the release's own. The GPU of the first job is
everyone's: SGLang remembers what it asked of it at import.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import sys
import tempfile
import traceback
import types
from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from oracle_stand import stand_in


class Bare:
    """A model without weights: SGLang asks it for its stage's layers and its quantisation."""

    def __init__(self, stage: tuple[int, int] | None, algo: str | None) -> None:
        if stage is not None:
            self.start_layer, self.end_layer = stage
        self.quant_config = types.SimpleNamespace(kv_cache_quant_algo=algo) if algo else None


def flags_of(args: dict[str, Any]) -> list[str]:
    """The command line of `args`."""
    flags: list[str] = []
    for name, value in args.items():
        flag = "--" + name.replace("_", "-")
        flags += [flag] if value is True else [] if value is False or value is None else [flag, str(value)]
    return flags


def prepared(job: dict[str, Any], folder: Path) -> Any:
    """SGLang's resolved ServerArgs for a job, with configs written under `folder`."""
    args = dict(job["args"])
    for key, name in (("config", "target"), ("draft_config", "draft")):
        if job.get(key) is not None:
            (folder / name).mkdir()
            (folder / name / "config.json").write_text(json.dumps(job[key]))
    if job.get("draft_config") is not None:
        args["speculative_draft_model_path"] = str(folder / "draft")
    import sglang.srt.configs.model_config  # noqa: F401 - registers SGLang's own config classes
    from sglang.srt.server_args import prepare_server_args

    for config in (job["config"], job.get("draft_config") or {}):
        _know(config.get("model_type"))
    return prepare_server_args(["--model-path", str(folder / "target"), "--load-format", "dummy", *flags_of(args)])


def _know(kind: Any) -> None:
    """Reads configs of a class that comes as remote code, or is newer than this transformers, as plain attributes.

    Kinds that SGLang renames when transformers does not know them stay unknown.
    """
    from transformers import AutoConfig, PretrainedConfig
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    if isinstance(kind, str) and kind not in CONFIG_MAPPING and kind not in ("deepseek_v32", "deepseek_v4"):
        asked_early = {"model_type": kind, "rope_scaling": None, "max_position_embeddings": None}
        AutoConfig.register(kind, type("PlainConfig", (PretrainedConfig,), asked_early))


def stages_of(config: Any, pp: int) -> list[tuple[int, int] | None]:
    """Layers of each pipeline stage, one None without pipelines."""
    if pp == 1:
        return [None]
    from sglang.srt.distributed.utils import get_pp_indices

    return [get_pp_indices(config.num_hidden_layers, rank, pp) for rank in range(pp)]


def answer(job: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The row of one job: every stage's own result first, then each again under the least of them, as the ranks agree on."""
    from importlib.util import find_spec

    args = prepared(job, folder)
    if find_spec("sglang.srt.mem_cache.kv_cache_configurator") is not None:
        from remake_late import Server
    elif find_spec("sglang.srt.model_executor.model_runner_kv_cache_mixin") is not None:
        from remake_mixin import Server  # type: ignore[assignment]
    else:
        from remake_early import Server  # type: ignore[assignment]
    server = Server(args, job)
    stages = stages_of(server.config, getattr(args, "pp_size", 1))
    least = None
    for stage in stages if len(stages) > 1 else ():
        alone = server.size(Bare(stage, job.get("kv_cache_quant_algo")), None)
        least = alone["max_total_num_tokens"] if least is None else min(least, alone["max_total_num_tokens"])
    return server.size(Bare(stages[0], job.get("kv_cache_quant_algo")), least)


def row_of(job: dict[str, Any], version: str) -> dict[str, Any]:
    """`job` with its answer, or with the error SGLang raised."""
    row = {name: value for name, value in job.items() if name not in ("config", "draft_config")}
    row["version"] = version
    with tempfile.TemporaryDirectory() as folder:
        os.environ.update(job.get("env") or {})
        try:
            row |= answer(job, Path(folder))
        except BaseException as error:
            row["error"] = f"{type(error).__name__}: {error}"[:500]
            row["error_in"] = traceback.format_exc().splitlines()[-8:]
    return row


def child(job: dict[str, Any], version: str) -> tuple[dict[str, Any], list[str]]:
    """The row of one job from a process of its own (SGLang keeps its arguments in globals), and the modules it imported."""
    read, write = os.pipe()
    number = os.fork()
    if number == 0:
        os.close(read)
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, 1)
        os.dup2(quiet, 2)
        before = set(sys.modules)
        row = row_of(job, version)
        with os.fdopen(write, "w") as stream:
            json.dump([row, sorted(set(sys.modules) - before)], stream, default=str)
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as stream:
        text = stream.read()
    os.waitpid(number, 0)
    return tuple(json.loads(text)) if text else ({**job, "version": version, "error": "the process died"}, [])


def rows(jobs: list[dict[str, Any]], version: str) -> Iterator[dict[str, Any]]:
    """Rows in the order of `jobs`; what a child had to import is imported here for those to come."""
    for job in jobs:
        row, imported = child(job, version)
        for name in imported:
            with suppress(Exception):
                import_module(name)
        if imported:
            gc.freeze()
        yield row


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sglang", required=True, help="the folder that holds sglang/ of an unpacked wheel")
    parser.add_argument("--version", required=True, help="its release")
    parser.add_argument("--jobs", required=True, help="JSON lines: what to size")
    parser.add_argument("-o", "--output", required=True, help="JSON lines: the rows")
    options = parser.parse_args()
    jobs = [json.loads(line) for line in Path(options.jobs).read_text().splitlines()]
    first = jobs[0]
    sys.path.insert(0, options.sglang)
    stand_in(first["gpu_mem_mib"], tuple(first["capability"]), first["gpu"], first.get("vendor", "nvidia"))

    failed = 0
    with open(options.output, "w") as stream:
        for row in rows(jobs, options.version):
            failed += "error" in row
            stream.write(json.dumps(row) + "\n")
            stream.flush()
    print(f"{len(jobs)} jobs, {failed} with an error of SGLang's own or of this stand")
    return 0


if __name__ == "__main__":
    sys.exit(main())
