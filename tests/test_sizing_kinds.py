"""Kinds of arithmetic with rows of their own, made by SGLang's code (bench/remake_oracle.py): DeepSeek-V4.1 and switches."""

import json
from pathlib import Path

import pytest

import kvdiag
from kvdiag.errors import CannotSizeError

DATA = Path(__file__).parent / "data" / "oracle"
CONFIGS = json.loads((DATA / "kinds_configs.json").read_text())
ROWS = [json.loads(line) for line in (DATA / "kinds.jsonl").read_text().splitlines()]


def sized(row):
    return kvdiag.size(
        config=CONFIGS[row["model"]],
        release=row["version"],
        args=row["args"],
        available_gpu_memory=row["available_gpu_mem_gib"],
        pre_model_load_memory=row["pre_model_load_gib"],
        gpu_mem_mib=row["gpu_mem_mib"],
        compute_capability=tuple(row["capability"]),
        draft_config=CONFIGS[row["draft"]] if "draft" in row else None,
    )


def test_rows_made_by_sglang_are_sized_to_the_token():
    wrong = []
    for row in ROWS:
        found = sized(row)
        wanted = row["extra"] | {name: row[name] for name in ("max_total_num_tokens", "mem_fraction_static", "kv_heads_per_rank")}
        wanted["bytes_per_token"] = row["cell_size"]
        differ = [f"{name} {getattr(found, name)} != {value}" for name, value in wanted.items() if getattr(found, name) != value]
        if differ:
            wrong.append(f"{row['version']} {row['model']} {row['args']}: {'; '.join(differ)}")
    assert not wrong, "\n".join(wrong)


def test_deepseek_v41_is_refused_before_the_release_that_knows_it():
    with pytest.raises(CannotSizeError, match=r"0\.5\.20 does not know DeepSeek-V4\.1 \(from 0\.5\.21\)"):
        kvdiag.size(config=CONFIGS["DeepSeek-V4.1, every ratio"], release="0.5.20", args={"tp_size": 4})


def test_drafts_of_unknown_number_are_refused_by_name():
    with pytest.raises(CannotSizeError, match="speculative-num-draft-tokens"):
        kvdiag.size(
            config=CONFIGS["DeepSeek-V4.1, every ratio"], release="0.5.23", args={"tp_size": 4, "speculative_algorithm": "DSPARK"}
        )
