"""The catalogue of models: found by the names people give a model, never by a name that could mean other shapes."""

from __future__ import annotations

import json
from difflib import get_close_matches

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kvdiag
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


def keys_of(config):
    for key, value in config.items():
        yield key
        if isinstance(value, dict):
            yield from keys_of(value)


def test_no_key_of_one_model_alone_is_nearly_a_key_of_others():
    """A slip in a key is a key that no code reads: the model would be sized as if it had none."""
    entries = [entry for document in rulebook.load("models") for entry in document.get("model", ())]
    owners: dict[str, set[str]] = {}
    for entry in entries:
        for key in keys_of(entry["config"]):
            owners.setdefault(key, set()).add(entry["names"][0])
    shared = [key for key, names in owners.items() if len(names) >= 5]
    slips = {
        (*names, key, near[0])
        for key, names in owners.items()
        if len(names) == 1 and (near := get_close_matches(key, shared, 1, 0.93))
    }
    assert slips == set(), "(model, its key, the key it may mean)"


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
        ("/cache/modelscope/hub/models/Qwen/Qwen2___5-7B-Instruct", "Qwen/Qwen2.5-7B"),
        ("LLM-Research/Meta-Llama-3___1-8B-Instruct", "meta-llama/Meta-Llama-3.1-8B"),
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


def sized(name, release="0.5.23", **args):
    return kvdiag.size(model=name, release=release, args=args, available_gpu_memory=60.0, pre_model_load_memory=78.0, gpu="H100")


@pytest.mark.shared
@pytest.mark.parametrize("release", ["0.5.9", "0.5.23"])
@pytest.mark.parametrize(
    "folder",
    [path for path in sorted((SHARED / "oracle" / "configs").glob("*/config.json")) if path.parent.name != "MiniMax-M3"],
    ids=lambda path: path.parent.name,
)
def test_a_model_has_the_same_figures_by_its_name_as_by_its_config(folder, release):
    """Less MiniMax-M3, whose shared config was written before a published one was seen: it has no image encoder."""
    name = catalogue_match(folder.parent.name).name
    figures = []
    for model in ({"model": name}, {"config": str(folder)}):
        try:
            found = kvdiag.size(
                **model, release=release, available_gpu_memory=60.0, pre_model_load_memory=78.0, gpu="H100", args={"tp_size": 8}
            )
        except KvdiagError as error:
            figures.append(str(error).replace(str(folder), name))
            continue
        kept = found.to_dict()
        figures.append({key: kept[key] for key in kept if key not in ("missing", "notes")})
    assert figures[0] == figures[1]


@pytest.mark.parametrize(
    ("name", "fraction"),
    [
        ("Qwen/Qwen2.5-VL-7B-Instruct", 0.7486296875),
        ("google/gemma-4-26B-A4B", 0.75962983398),
        ("google/gemma-4-31B-it", 0.75962983398),
        ("Qwen/Qwen3-VL-4B-Instruct", 0.79325),
        ("Qwen/Qwen3-VL-30B-A3B-Instruct", 0.77217929688),
    ],
)
def test_an_image_models_default_fraction_follows_its_own_encoder(name, fraction):
    assert sized(name).mem_fraction_static == pytest.approx(fraction, abs=1e-9)


def test_a_model_whose_encoder_is_not_in_the_catalogue_has_no_default_fraction_but_its_bytes():
    name = "mistralai/Ministral-3-3B-Instruct-2512"
    found = sized(name)
    assert (found.mem_fraction_static, found.max_total_num_tokens, found.bytes_per_token) == (None, None, 106_496)
    assert "image encoder" in found.missing[0]
    assert sized(name, mem_fraction_static=0.8).max_total_num_tokens > 0
    assert sized(name, disaggregation_mode="decode").max_total_num_tokens > 0
    assert sized("Qwen/Qwen3-8B").missing == ()


def test_no_image_model_of_the_catalogue_takes_the_encoder_of_its_class_in_silence():
    for name in NAMES:
        config = find_config(name=name)
        if "text_config" in config.whole and "vision_config" not in config.whole:
            assert "vision_config" in config.untold


def test_a_model_whose_dtype_is_not_in_the_catalogue_says_so_and_one_whose_dtype_is_does_not():
    open_dtype, known, forced = (sized(name) for name in ("Qwen/Qwen3-4B-Thinking-2507", "Qwen/QwQ-32B", "openai/gpt-oss-20b"))
    assert open_dtype.kv_cache_dtype == known.kv_cache_dtype == forced.kv_cache_dtype == "bfloat16"
    assert any("dtype" in note for note in open_dtype.notes)
    assert not any("dtype" in note for note in (*known.notes, *forced.notes))
    assert sized("Qwen/Qwen3-4B-Thinking-2507", kv_cache_dtype="fp8_e5m2").notes == ()


def test_a_context_length_that_the_catalogue_lacks_is_unknown_until_it_is_given():
    name = "codellama/CodeLlama-70b-hf"
    found, given = sized(name), sized(name, context_length=16384)
    assert (found.context_len, found.max_running_requests) == (None, None)
    assert any("--context-length" in note for note in found.notes)
    assert (given.context_len, given.max_running_requests) == (16384, 4096)
    assert not any("context" in note for note in given.notes)
    assert sized(name, max_running_requests=64).max_running_requests == 64


@pytest.mark.parametrize("release", ["0.5.3", "0.5.9", "0.5.23"])
@pytest.mark.parametrize(
    "name",
    ["nvidia/Llama-3.1-8B-Instruct-FP8", "nvidia/DeepSeek-R1-FP4", "nvidia/Qwen3-8B-FP8", "nvidia/Qwen3-30B-A3B-NVFP4"],
)
def test_a_quantised_name_says_what_its_cache_is_if_the_checkpoint_asks_for_fp8(name, release):
    found = sized(name, release)
    half = sized(name, release, kv_cache_dtype="fp8_e4m3")
    [note] = [note for note in found.notes if "KV dtype" in note]
    assert f"bytes_per_token {half.bytes_per_token:,}" in note
    assert f"max_total_num_tokens {half.max_total_num_tokens:,}" in note
    assert not any("KV dtype" in said for said in half.notes)


@pytest.mark.parametrize(
    ("name", "release"),
    [
        ("nvidia/Llama-3.1-70B-Instruct-FP8", "0.5.23"),
        ("Qwen/Qwen3-30B-A3B-FP8", "0.5.23"),
        ("Qwen/Qwen3-235B-A22B-FP8", "0.5.23"),
        ("nvidia/DeepSeek-V4-Flash-NVFP4", "0.5.23"),
        ("nvidia/Qwen3-8B-FP8", "0.5.2"),
        ("Qwen/Qwen3-8B", "0.5.23"),
    ],
)
def test_a_name_that_leaves_no_kv_dtype_open_has_no_note_on_it(name, release):
    assert not any("KV dtype" in note for note in sized(name, release).notes)


def test_another_organisations_copy_of_a_quantised_models_name_leaves_the_kv_dtype_open():
    own, other = (find_config(name=f"{who}/Qwen3-235B-A22B-FP8") for who in ("Qwen", "nvidia"))
    assert (own.untold, other.untold) == ((), ("kv_cache_dtype",))


def test_the_page_of_architectures_is_what_its_script_writes():
    from bench.architectures import PAGE, page

    assert PAGE.read_text(encoding="utf-8") == page(), "run python bench/architectures.py"
