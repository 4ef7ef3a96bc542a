"""Kinds with rows of their own, made by SGLang's code: DeepSeek-V4.1, replayed states, drafts of blocks, switches."""

import json
from pathlib import Path

import pytest

import kvdiag
from kvdiag.errors import CannotSizeError

DATA = Path(__file__).parent / "data" / "oracle"
CONFIGS = json.loads((DATA / "remade_configs.json").read_text()) | json.loads((DATA / "kinds_configs.json").read_text())
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
        env=row.get("env"),
    )


def test_rows_made_by_sglang_are_sized_to_the_token():
    wrong = []
    for row in ROWS:
        found = sized(row)
        plain = ("max_total_num_tokens", "mem_fraction_static", "kv_heads_per_rank")
        wanted = row["extra"] | {name: row[name] for name in plain if name in row}
        if "cell_size" in row:
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


BLOCKS = {
    "architectures": ["DFlashDraftModel"], "model_type": "qwen3", "num_hidden_layers": 5, "hidden_size": 4096,
    "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128, "max_position_embeddings": 40960,
    "torch_dtype": "bfloat16",
}  # fmt: skip
DFLASH = {"speculative_algorithm": "DFLASH", "speculative_num_draft_tokens": 16}
TARGET, DRAFT = 4 * 256 * 36, 4 * 256 * 5
REPLICAS = {"tp_size": 4, "dp_size": 2, "enable_dp_attention": True}


@pytest.mark.parametrize(
    ("release", "args", "capability", "want"),
    [
        ("0.5.17", {"tp_size": 2}, (9, 0), TARGET * 2 * 41 // 36),
        ("0.5.18", {"tp_size": 2}, (9, 0), TARGET * 2 + DRAFT * 2),
        ("0.5.18", {"tp_size": 2, "kv_cache_dtype": "fp8_e4m3"}, (9, 0), TARGET + DRAFT),
        ("0.5.22", {"tp_size": 2, "kv_cache_dtype": "fp8_e4m3", "speculative_draft_kv_cache_dtype": "bfloat16"}, (9, 0),
         TARGET + DRAFT * 2),
        ("0.5.22", {"tp_size": 2, "kv_cache_dtype": "fp8_e4m3", "speculative_draft_attention_backend": "fa4"}, (9, 0),
         TARGET + DRAFT * 2),
        ("0.5.22", {"tp_size": 2, "kv_cache_dtype": "fp8_e4m3", "attention_backend": "flashinfer"}, (10, 0), TARGET + DRAFT),
        ("0.5.23", {"tp_size": 2, "kv_cache_dtype": "fp8_e4m3"}, (10, 0), TARGET + DRAFT * 2),
        ("0.5.21", REPLICAS, (9, 0), TARGET * 2 + DRAFT),
        ("0.5.22", REPLICAS, (9, 0), TARGET * 2 + DRAFT * 2),
    ],
)  # fmt: skip
def test_a_draft_of_blocks_costs_its_own_heads_in_its_own_dtype(release, args, capability, want):
    config = CONFIGS["Qwen3-8B"]
    found = kvdiag.size(config=config, release=release, args=DFLASH | args, draft_config=BLOCKS, compute_capability=capability)
    assert found.bytes_per_token == want


def test_a_ring_of_the_first_release_is_refused_by_name():
    with pytest.raises(CannotSizeError, match="enable-gdn-replayssm-spec"):
        kvdiag.size(config=CONFIGS["Qwen3-Next-80B-A3B"], release="0.5.16", args={"enable_gdn_replayssm_spec": True})
