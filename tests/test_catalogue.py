"""The catalogue of models: found by the names people give a model, never by a name that could mean other shapes."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvdiag import rulebook
from kvdiag.errors import KvdiagError
from kvdiag.models import find_config, geometry_of
from kvdiag.models.catalogue import catalogue_match, catalogue_names
from kvdiag.models.config import config_from
from tests.conftest import SHARED

NAMES = catalogue_names()


def test_the_catalogue_has_at_least_120_models_each_with_source_and_date():
    entries = [entry for document in rulebook.load("models") for entry in document.get("model", ())]
    assert len(entries) >= 120
    assert len({entry["names"][0] for entry in entries}) == len(entries)
    for entry in entries:
        assert entry["source"]
        assert entry["date"]


def test_no_name_belongs_to_two_models():
    owners: dict[str, set[str]] = {}
    for document in rulebook.load("models"):
        for entry in document.get("model", ()):
            for name in entry["names"]:
                owners.setdefault(name.split("/")[-1].lower(), set()).add(entry["names"][0])
    assert {name: who for name, who in owners.items() if len(who) > 1} == {}


@pytest.mark.parametrize("name", NAMES)
def test_every_model_has_a_geometry_or_is_refused_by_name(name):
    found = catalogue_match(name)
    assert found is not None
    assert (found.name, found.exact) == (name, True)
    said = ""
    try:
        assert geometry_of(config_from(found.config, "catalogue", name)).num_hidden_layers > 0
    except KvdiagError as error:
        said = str(error)
    assert not said or "cannot size" in said or name in said


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("Qwen/Qwen3-8B", "Qwen/Qwen3-8B"),
        ("/models/Qwen3-8B/", "Qwen/Qwen3-8B"),
        ("/c/hub/models--Qwen--Qwen3-8B/snapshots/b968826d9c46dd6066d109eabc6255188de91218", "Qwen/Qwen3-8B"),
        ("QWEN3-8B-AWQ", "Qwen/Qwen3-8B"),
        ("RedHatAI/Qwen3-8B-quantized.w4a16", "Qwen/Qwen3-8B"),
        ("unsloth/Qwen3-8B-unsloth-bnb-4bit", "Qwen/Qwen3-8B"),
        ("/m/qwen3-8b-q8_0.gguf", "Qwen/Qwen3-8B"),
        ("/m/Qwen3-8B-IQ4_XS.gguf", "Qwen/Qwen3-8B"),
        ("qwen2_5-7b-instruct", "Qwen/Qwen2.5-7B"),
        ("hugging-quants/Meta-Llama-3.1-70B-Instruct-AWQ-INT4", "meta-llama/Meta-Llama-3.1-70B"),
        ("neuralmagic/Meta-Llama-3.1-8B-Instruct-FP8-dynamic", "meta-llama/Meta-Llama-3.1-8B"),
        ("Qwen3-30B-A3B-Instruct-2507-FP8", "Qwen/Qwen3-30B-A3B-Instruct-2507"),
        ("TheBloke/Mistral-7B-Instruct-v0.2-AWQ", "mistralai/Mistral-7B-v0.2"),
        ("zai-org/GLM-4.5-Air-FP8", "zai-org/GLM-4.5-Air"),
        ("mlx-community/Qwen3-0.6B-4bit", "Qwen/Qwen3-0.6B"),
        ("DeepSeek-R1-0528", "deepseek-ai/DeepSeek-R1"),
        ("gpt-oss-120b-bf16", "openai/gpt-oss-120b"),
        ("Qwen3-VL-30B-A3B", "Qwen/Qwen3-VL-30B-A3B-Instruct"),
    ],
)
def test_a_loose_name_finds_its_model(name, model):
    found = catalogue_match(name)
    assert found is not None
    assert found.name == model


@pytest.mark.parametrize(
    "name",
    [
        *("Qwen3-8B-Pruned", "Qwen3-8B-draft", "Qwen3-8B-eagle3", "Qwen3-8B-AWQ-draft", "Qwen3-mini", "Qwen3-80B", "Qwen3-18B"),
        *("Qwen3", "Qwen", "Mistral-7B", "Llama-3-8B-Instruct-262k", "gpt-oss-120b-EAGLE3", "DeepSeek-V3-NextN", "my-Qwen3-8B"),
        *("DeepSeek-R1-Distill-Qwen-99B", "Qwen3-8B-Distill", "Llama-3.1-8B-v2", "Qwen3-8B-FP8-KV", "GLM-5-mini", "Kimi-K2.55"),
        *("model", "/", ".", "", "awq", "instruct", "models--"),
    ],
)
def test_a_near_miss_is_not_matched(name):
    assert catalogue_match(name) is None


WEIGHTS = ["AWQ", "GPTQ-Int4", "FP8", "NVFP4", "INT8", "bnb-4bit", "W8A8", "GGUF", "FP8-dynamic", "quantized.w4a16", "Q4_K_M"]


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from([name for name in NAMES if not name.endswith("FP8")]),
    st.sampled_from(WEIGHTS),
    st.sampled_from(["", "RedHatAI/", "/data/models/"]),
    st.booleans(),
)
def test_a_quantised_copy_is_its_model_and_says_that_the_kv_dtype_is_open(name, weights, place, lower):
    copy = f"{place}{name.split('/')[-1]}-{weights}"
    found = catalogue_match(copy.lower() if lower else copy)
    assert found is not None
    if not found.exact:
        assert found.name == name
        assert "KV dtype" in found.note
        assert "quantization_config" not in found.config


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from(NAMES),
    st.sampled_from(["draft", "pruned", "eagle", "mtp", "mini", "lora", "small", "2x", "32k", "moe", "KV"]),
)
def test_a_word_that_could_change_shapes_is_never_dropped(name, word):
    own = name.split("/")[-1]
    for longer in (f"{own}-{word}", f"{own}-AWQ-{word}", f"{word}-{own}"):
        found = catalogue_match(longer)
        assert found is None or found.name != name


@settings(max_examples=300, deadline=None)
@given(st.text(max_size=60))
def test_any_text_is_looked_up_without_fault(text):
    catalogue_match(text)


def test_a_copy_whose_own_files_name_an_fp8_cache_says_so_and_another_organisations_copy_does_not():
    own, other = (find_config(name=name) for name in ("nvidia/Llama-3.1-70B-Instruct-FP8", "RedHatAI/Llama-3.1-70B-Instruct-FP8"))
    assert own.whole["quantization_config"]["kv_cache_quant_algo"] == "FP8"
    assert not own.note
    assert "quantization_config" not in other.whole
    assert "KV dtype" in other.note


def test_every_fork_has_a_model_in_the_catalogue():
    for document in rulebook.load("models"):
        for fork in document.get("fork", ()):
            found = catalogue_match(fork["name"])
            assert found is not None
            assert found.config["quantization_config"]["kv_cache_quant_algo"] == fork["kv_cache_quant_algo"]


@pytest.mark.shared
@pytest.mark.parametrize(
    "folder", sorted((SHARED / "oracle" / "configs").glob("*/config.json")), ids=lambda path: path.parent.name
)
def test_the_catalogue_has_the_shapes_of_the_oracles_configs(folder):
    config = json.loads(folder.read_text())
    found = catalogue_match(folder.parent.name)
    assert found is not None
    kept = found.config
    for key in (
        "num_hidden_layers",
        "num_key_value_heads",
        "num_attention_heads",
        "head_dim",
        "kv_lora_rank",
        "max_position_embeddings",
    ):
        assert (kept.get("text_config") or kept).get(key) == (config.get("text_config") or config).get(key), key


def test_the_page_of_architectures_is_what_its_script_writes():
    from bench.architectures import PAGE, page

    assert PAGE.read_text(encoding="utf-8") == page(), "run python bench/architectures.py"
