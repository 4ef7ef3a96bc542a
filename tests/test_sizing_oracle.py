"""Sizes equal to those of SGLang's own functions, run per release: a sample shipped here, and all of the shared rows."""

import json
from collections import Counter
from pathlib import Path

import pytest

import kvdiag
from kvdiag.errors import KvdiagError
from kvdiag.models import geometry_of
from kvdiag.models.config import config_from
from kvdiag.releases import parse_release
from kvdiag.sizing import mlx

SAMPLE = Path(__file__).parent / "data" / "oracle"
SHARED = Path(__file__).parents[2] / "shared" / "oracle"
NUMBERS = (
    "full_max_total_num_tokens",
    "swa_max_total_num_tokens",
    "c4_max_total_num_tokens",
    "c128_max_total_num_tokens",
    "max_mamba_cache_size",
    "max_running_requests",
    "page_size",
    "context_len",
)


def rows_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def asked(row, configs):
    config = configs[row["model"]]
    algo = row.get("faked", {}).get("kv_cache_quant_algo")
    if algo:
        config = config | {"quantization_config": {"quant_method": "modelopt", "kv_cache_quant_algo": algo}}
    args = {name: value for name, value in row["args"].items() if name != "speculative_draft_model_path"}
    draft = row["args"].get("speculative_draft_model_path")
    return kvdiag.size(
        config=config,
        release=row["version"],
        args=args,
        available_gpu_memory=row["available_gpu_mem_gib"],
        pre_model_load_memory=row["pre_model_load_gib"],
        gpu=row["gpu"],
        gpu_mem_mib=row["gpu_mem_mib"],
        draft_config=configs[draft] if draft else None,
    )


def mlx_differences(row, configs):
    faked, fraction = row["faked"], row.get("mem_fraction_static")
    geometry = geometry_of(config_from(configs[row["model"]], "config", row["model"]))
    slot = mlx.bytes_per_slot(geometry, 2, parse_release(row["version"]))
    tokens = mlx.pool_slots(
        faked["mlx_limit_gib"], faked["mlx_used_gib"], faked["sys_available_gib"], 0.8 if fraction is None else fraction, slot
    )
    found = {"cell_size": slot, "max_total_num_tokens": tokens}
    return [f"{name} {value} != {row[name]}" for name, value in found.items() if value != row[name]]


def differences(row, configs):
    if row["args"].get("backend") == "mlx":
        return mlx_differences(row, configs)
    try:
        sized = asked(row, configs)
    except KvdiagError as error:
        return [f"refused: {error}"]
    wanted = {name: row[name] for name in ("kv_heads_per_rank", "max_total_num_tokens", "mem_fraction_static")}
    wanted["bytes_per_token"] = row["cell_size"]
    wanted |= {name: row["extra"][name] for name in NUMBERS if row["extra"].get(name) is not None}
    return [f"{name} {getattr(sized, name)} != {value}" for name, value in wanted.items() if getattr(sized, name) != value]


def told(row, found):
    return f"{row['version']} {row['model']} {row['args']} on {row['gpu']}: {'; '.join(found)}"


def test_a_sample_over_models_and_releases_is_sized_to_the_token():
    configs = json.loads((SAMPLE / "configs.json").read_text())
    wrong = [told(row, found) for row in rows_of(SAMPLE / "rows.jsonl") if (found := differences(row, configs))]
    assert not wrong, "\n".join(wrong)


def test_rows_remade_with_other_models_and_arguments_are_sized_to_the_token():
    """Made by bench/remake_oracle.py: models and argument sets that no published row has."""
    configs = json.loads((SAMPLE / "remade_configs.json").read_text())
    wrong = []
    for row in rows_of(SAMPLE / "remade.jsonl"):
        sized = kvdiag.size(
            config=configs[row["model"]],
            release=row["version"],
            args=row["args"],
            available_gpu_memory=row["available_gpu_mem_gib"],
            pre_model_load_memory=row["pre_model_load_gib"],
            gpu_mem_mib=row["gpu_mem_mib"],
            compute_capability=tuple(row["capability"]),
        )
        wanted = row["extra"] | {name: row[name] for name in ("max_total_num_tokens", "mem_fraction_static")}
        wanted["bytes_per_token"] = row["cell_size"]
        if row["kv_heads_per_rank"] is not None:
            wanted["kv_heads_per_rank"] = row["kv_heads_per_rank"]
        found = [f"{name} {getattr(sized, name)} != {value}" for name, value in wanted.items() if getattr(sized, name) != value]
        if found:
            wrong.append(f"{row['version']} {row['model']} {row['args']}: {'; '.join(found)}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.shared
def test_every_row_of_the_shared_oracle_is_sized_to_the_token(capsys):
    rows = [row for row in rows_of(SHARED / "expected.jsonl") if "error" not in row]
    configs = {path.parent.name: json.loads(path.read_text()) for path in (SHARED / "configs").glob("*/config.json")}
    wrong = {index: found for index, row in enumerate(rows) if (found := differences(row, configs))}
    good = [row for index, row in enumerate(rows) if index not in wrong]
    with capsys.disabled():
        for of in ("version", "model"):
            every, equal = Counter(row[of] for row in rows), Counter(row[of] for row in good)
            print("\n" + ", ".join(f"{name} {equal[name]}/{every[name]}" for name in sorted(every)))
        print(f"{len(good)} of {len(rows)} rows equal")
    assert not wrong, "\n".join(told(rows[index], found) for index, found in wrong.items())
