"""The right window pools on either side of each change of SGLang's sizing: neighbouring releases."""

import pytest

import kvdiag
from kvdiag.errors import CannotSizeError
from tests.boundaries import AVAIL, B200, GPT_OSS, LLAMA, TREE, Change, F, Refused, check, label, neighbours, sized, tokens

MIMO = {
    "architectures": ["MiMoV2FlashForCausalLM"], "model_type": "mimo_v2_flash", "num_hidden_layers": 12, "hidden_size": 4096,
    "num_attention_heads": 64, "num_key_value_heads": 4, "head_dim": 192, "v_head_dim": 128, "swa_num_key_value_heads": 8,
    "swa_head_dim": 192, "swa_v_head_dim": 128, "sliding_window_size": 128, "hybrid_layer_pattern": [0, 1, 1, 1] * 3,
    "max_position_embeddings": 262144, "torch_dtype": "bfloat16",
}  # fmt: skip
GEMMA_4_TEXT = {
    "architectures": ["Gemma4ForCausalLM"], "model_type": "gemma4_text", "num_hidden_layers": 12, "hidden_size": 2816,
    "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 256, "global_head_dim": 512,
    "num_global_key_value_heads": 2, "sliding_window": 1024, "max_position_embeddings": 262144, "torch_dtype": "bfloat16",
    "layer_types": (["sliding_attention"] * 5 + ["full_attention"]) * 2,
}  # fmt: skip
GEMMA_4 = {"architectures": ["Gemma4ForConditionalGeneration"], "model_type": "gemma4", "text_config": GEMMA_4_TEXT}
GEMMA_3 = {
    "architectures": ["Gemma3ForCausalLM"], "model_type": "gemma3_text", "num_hidden_layers": 12, "hidden_size": 2560,
    "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256, "sliding_window": 1024,
    "max_position_embeddings": 131072, "torch_dtype": "bfloat16",
    "layer_types": (["sliding_attention"] * 5 + ["full_attention"]) * 2,
}  # fmt: skip
GEMMA_2 = GEMMA_3 | {"architectures": ["Gemma2ForCausalLM"], "model_type": "gemma2"}
GEMMA_3N = GEMMA_3 | {"architectures": ["Gemma3nForCausalLM"], "model_type": "gemma3n_text"}
GEMMA_3N_MM = GEMMA_3 | {"architectures": ["Gemma3nForConditionalGeneration"], "model_type": "gemma3n"}
LLAMA_4 = {
    "architectures": ["Llama4ForConditionalGeneration"], "model_type": "llama4", "num_hidden_layers": 48, "hidden_size": 5120,
    "num_attention_heads": 40, "num_key_value_heads": 8, "head_dim": 128, "attention_chunk_size": 8192,
    "max_position_embeddings": 10485760, "torch_dtype": "bfloat16",
}  # fmt: skip
STEP = MIMO | {"architectures": ["Step3p5ForCausalLM"], "model_type": "step3p5",
               "layer_types": ["full_attention", "sliding_attention", "sliding_attention", "sliding_attention"] * 3}  # fmt: skip
ALL_WINDOWS = LLAMA | {"architectures": ["UnlimitedOCRForCausalLM"], "sliding_window": 4096}
OPTED_IN = MIMO | {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "is_hybrid_swa": True}
FULL, SWA = 8 * 128 * 2, 8 * 128 * 2
MIMO_FULL, MIMO_SWA = 4 * 320 * 2, 8 * 320 * 2
GEMMA_CELL = 4 * 512 * 2 * 12
LLAMA_4_LAYER = 8 * 256 * 2


def by_layers(found, layers, full, window, page=1):
    """Full tokens of 0.4.9.post3 to 0.5.8: those of every layer shared out, window tokens 0.8 of them."""
    return int(found * layers / (0.8 * window + full)) // page * page


def by_bytes(found, full, window):
    """Full tokens of 0.5.9 and 0.5.10: the bytes of the profile shared out."""
    return int(found * (full + window) / (full + 0.8 * window))


def llama_4_full(found, ratio, context):
    share = (1 - ratio) + ratio * 8192 / context
    return int(4 * found - 12 * found * share // (3 * share + 1))


GEMMA_TOKENS = tokens(GEMMA_CELL)
GEMMA_POOL = by_layers(GEMMA_TOKENS, 12, 2, 10)
OSS_TOKENS = tokens(FULL * 32)
OSS_EARLY = by_layers(OSS_TOKENS, 32, 16, 16)
OSS_LATE = tokens(FULL * 16 + 0.8 * SWA * 16)
SCOUT = tokens(LLAMA_4_LAYER * 48)
CAP = {"max_running_requests": 10, "disable_radix_cache": True}
SHARED_OUT = {"hybrid_kvcache_ratio": 0.5, "context_length": 65536}
TIERS = {"enable_hierarchical_cache": True}

CHANGES = [
    Change("Gemma-3 gets a window pool", "0.4.9.post2", "0.4.9.post3", GEMMA_3, "max_total_num_tokens", GEMMA_TOKENS, GEMMA_POOL),
    Change("and its windows' tokens", "0.4.9.post2", "0.4.9.post3", GEMMA_3, "swa_max_total_num_tokens", None,
           int(GEMMA_POOL * 0.8)),
    Change("and gives it up", "0.4.10.post2", "0.5.0rc0", GEMMA_3, "max_total_num_tokens", GEMMA_POOL, GEMMA_TOKENS),
    Change("Gemma-2 gets a window pool", "0.4.9.post2", "0.4.9.post3", GEMMA_2, "max_total_num_tokens", GEMMA_TOKENS, GEMMA_POOL),
    Change("and gives it up earlier", "0.4.10.post1", "0.4.10.post2", GEMMA_2, "max_total_num_tokens", GEMMA_POOL, GEMMA_TOKENS),
    Change("Gemma-3n's text class too", "0.4.9.post2", "0.4.9.post3", GEMMA_3N, "max_total_num_tokens", GEMMA_TOKENS, GEMMA_POOL),
    Change("Gemma-3n's text class no more", "0.4.10.post2", "0.5.0rc0", GEMMA_3N, "max_total_num_tokens", GEMMA_POOL,
           GEMMA_TOKENS),
    Change("Gemma-3n's layers are found later", "0.4.9.post3", "0.4.9.post4", GEMMA_3N_MM, "swa_max_total_num_tokens", None,
           int(GEMMA_POOL * 0.8)),
    Change("Gemma-3n no more", "0.4.10.post2", "0.5.0rc0", GEMMA_3N_MM, "swa_max_total_num_tokens", int(GEMMA_POOL * 0.8), None),
    Change("a switch for window pools", "0.4.9.post2", "0.4.9.post3", GEMMA_3, "max_total_num_tokens",
           Refused("no such argument"), GEMMA_TOKENS, {"disable_hybrid_swa_memory": True}),
    Change("Llama-4 by ratio", "0.4.8.post1", "0.4.9", LLAMA_4, "max_total_num_tokens", Refused("no such argument"),
           llama_4_full(SCOUT, 0.5, 65536), SHARED_OUT),
    Change("Llama-4's ratio compares the context it is served with", "0.5.6.post2", "0.5.7", LLAMA_4, "bytes_per_token",
           Refused("needs --context-length"), LLAMA_4_LAYER * 12, {"hybrid_kvcache_ratio": 0.5}),
    Change("Llama-4's ratio counts twelve layers", "0.5.6.post2", "0.5.7", LLAMA_4, "max_total_num_tokens",
           llama_4_full(SCOUT, 0.5, 65536), llama_4_full(tokens(LLAMA_4_LAYER * 12), 0.5, 65536), SHARED_OUT),
    Change("Llama-4's ratio ends", "0.5.7", "0.5.8", LLAMA_4, "bytes_per_token", LLAMA_4_LAYER * 12,
           Refused("no such argument"), SHARED_OUT),
    Change("Llama-4 without a ratio", "0.5.7", "0.5.8", LLAMA_4, "max_total_num_tokens", SCOUT, by_layers(SCOUT, 48, 12, 36)),
    Change("a chunk as long as the context", "0.4.8.post1", "0.4.9", LLAMA_4, "max_total_num_tokens",
           Refused("no such argument"), SCOUT, {"hybrid_kvcache_ratio": 0.5, "context_length": 8192}),
    Change("MiMo-V2 counts its kinds of layer", "0.5.6.post2", "0.5.7", MIMO, "bytes_per_token", 4 * 192 * 2 * 2 * 12,
           MIMO_FULL * 3 + MIMO_SWA * 9),
    Change("MiMo-V2's window layers count twice", "0.5.7", "0.5.8", MIMO, "bytes_per_token", MIMO_FULL * 3 + MIMO_SWA * 9,
           MIMO_FULL * 12 + MIMO_SWA * 9),
    Change("window pools shared out by bytes", "0.5.8.post1", "0.5.9", MIMO, "bytes_per_token",
           MIMO_FULL * 12 + MIMO_SWA * 9, MIMO_FULL * 3 + MIMO_SWA * 9),
    Change("and their tokens", "0.5.8.post1", "0.5.9", MIMO, "max_total_num_tokens",
           by_layers(tokens(MIMO_FULL * 12 + MIMO_SWA * 9), 12, 3, 9),
           by_bytes(tokens(MIMO_FULL * 3 + MIMO_SWA * 9), MIMO_FULL * 3, MIMO_SWA * 9)),
    Change("pages of both pools", "0.5.7", "0.5.8", GPT_OSS, "max_total_num_tokens",
           OSS_TOKENS // 64 * 64, by_layers(OSS_TOKENS // 64 * 64, 32, 16, 16, 64), {"page_size": 64}),
    Change("the switch is heeded again", "0.5.7", "0.5.8", MIMO, "swa_max_total_num_tokens",
           int(by_layers(tokens(MIMO_FULL * 3 + MIMO_SWA * 9), 12, 3, 9) * 0.8), None, {"disable_hybrid_swa_memory": True}),
    Change("gpt-oss gets a window pool", "0.5.7", "0.5.8", GPT_OSS, "swa_max_total_num_tokens", None, int(OSS_EARLY * 0.8)),
    Change("gpt-oss with drafts", "0.5.8.post1", "0.5.9", GPT_OSS, "max_total_num_tokens", OSS_TOKENS,
           by_bytes(OSS_TOKENS, FULL * 16, SWA * 16), TREE),
    Change("gpt-oss by trtllm_mha", "0.5.9", "0.5.10rc0", GPT_OSS, "swa_max_total_num_tokens", None,
           int(by_bytes(OSS_TOKENS // 64 * 64, FULL * 16, SWA * 16) // 64 * 64 * 0.8) // 64 * 64,
           {"decode_attention_backend": "trtllm_mha", "prefill_attention_backend": "trtllm_mha", "page_size": 64}, B200),
    Change("the windows' share of whole pages", "0.5.9", "0.5.10rc0", GPT_OSS, "swa_max_total_num_tokens",
           int(55537 * 0.8) // 64 * 64, int(55537 // 64 * 64 * 0.8) // 64 * 64, {"page_size": 64, "max_total_tokens": 49984}),
    Change("the cap holds for the full pool", "0.5.10.post1", "0.5.11", GPT_OSS, "max_total_num_tokens", 111_112, 100_001,
           {"max_total_tokens": 100_001}),
    Change("the ratio enters the cell", "0.5.10.post1", "0.5.11", GPT_OSS, "bytes_per_token", FULL * 16 + SWA * 16,
           FULL * 16 + 0.8 * SWA * 16),
    Change("and the tokens", "0.5.10.post1", "0.5.11", GPT_OSS, "max_total_num_tokens",
           by_bytes(OSS_TOKENS, FULL * 16, SWA * 16), OSS_LATE),
    Change("Gemma-4 gets a window pool", "0.5.10.post1", "0.5.11", GEMMA_4, "bytes_per_token", 2 * 1024 * 12 * 2,
           2 * 1024 * 2 * 2 + 0.8 * (8 * 512 * 2) * 10),
    Change("its text model alone has one set of dimensions", "0.5.10.post1", "0.5.11", GEMMA_4_TEXT, "bytes_per_token",
           8 * 512 * 2 * 12, 8 * 512 * 2 * 2 + 0.8 * (8 * 512 * 2) * 10),
    Change("configs that ask for a window pool", "0.5.12.post1", "0.5.13", OPTED_IN, "bytes_per_token", MIMO_FULL * 12,
           MIMO_FULL * 3 + 0.8 * MIMO_SWA * 9),
    Change("a model of windows alone", "0.5.14", "0.5.15", ALL_WINDOWS, "full_max_total_num_tokens", None, 0),
    Change("and its tokens", "0.5.14", "0.5.15", ALL_WINDOWS, "swa_max_total_num_tokens", None, tokens(FULL * 2 * 32)),
    Change("the window pool by the requests that may run", "0.5.13.post1", "0.5.14", GPT_OSS, "swa_max_total_num_tokens",
           int(OSS_LATE * 0.8), 10 * (127 + 128 + 1 + 1) + 2 * 8192 + 1, CAP),
    Change("only where they are stated", "0.5.13.post1", "0.5.14", GPT_OSS, "swa_max_total_num_tokens",
           int(OSS_LATE * 0.8), int(OSS_LATE * 0.8), {"disable_radix_cache": True}),
    Change("only without a radix cache", "0.5.13.post1", "0.5.14", GPT_OSS, "swa_max_total_num_tokens",
           int(OSS_LATE * 0.8), int(OSS_LATE * 0.8), {"max_running_requests": 10}),
    Change("one request at least for each replica", "0.5.22", "0.5.23", GPT_OSS, "swa_max_total_num_tokens",
           2 * 8192 // 4 + 1, 127 + 128 + 1 + 1 + 2 * 8192 // 4 + 1,
           CAP | {"max_running_requests": 2, "tp_size": 8, "dp_size": 4, "enable_dp_attention": True}),
    Change("stages no longer count the next one's first layer", "0.5.20", "0.5.21", GPT_OSS, "bytes_per_token",
           FULL * 8 + 0.8 * SWA * 9, FULL * 8 + 0.8 * SWA * 8, {"pp_size": 2}),
    Change("stages count it from 0.5.7", "0.5.6.post2", "0.5.7", MIMO, "bytes_per_token", 4 * 192 * 2 * 2 * 6,
           MIMO_FULL * 2 + MIMO_SWA * 5, {"pp_size": 2}),
    Change("MiMo-V2 keeps its windows beside a hierarchical cache", "0.5.13.post1", "0.5.14", MIMO, "bytes_per_token",
           MIMO_FULL * 12, MIMO_FULL * 3 + 0.8 * MIMO_SWA * 9, TIERS),
    Change("and gave them up from 0.5.8", "0.5.7", "0.5.8", MIMO, "bytes_per_token", MIMO_FULL * 3 + MIMO_SWA * 9,
           MIMO_FULL * 12, TIERS),
]  # fmt: skip


@pytest.mark.parametrize("change", CHANGES, ids=label)
def test_window_pools_change_where_sglang_changed_them(change):
    check(change)


WINDOWED_SINCE = {
    "0.5.7": ("MiMoV2FlashForCausalLM", "MiMoV2MTP"),
    "0.5.8": ("GptOssForCausalLM", "Llama4ForConditionalGeneration"),
    "0.5.9": ("Step3p5ForCausalLM", "Step3p5MTP"),
    "0.5.11": ("Gemma4ForCausalLM", "Gemma4ForConditionalGeneration", "MiMoV2ForCausalLM"),
    "0.5.12": ("LagunaForCausalLM",),
    "0.5.13": ("Gemma4UnifiedForConditionalGeneration", "Step3p7ForConditionalGeneration"),
    "0.5.15": ("UnlimitedOCRForCausalLM",),
    "0.5.16": ("InklingForConditionalGeneration", "InklingForConditionalGenerationMTP", "MellumForCausalLM"),
    "0.5.18": ("MuseGlimmerForCausalLM", "MuseGlimmerForConditionalGeneration"),
    "0.5.19": ("GraniteSWAForCausalLM", "GraniteMoeSWAForCausalLM"),
    "0.5.21": ("DiffusionGemmaForBlockDiffusion", "IQuestQ1MTP"),
    "0.5.22": ("EmbeddingGemma2Model",),
    "0.5.23": ("BeamForCausalLM",),
}
"""As ``is_hybrid_swa_model`` (first ``is_hybrid_model``) and its tuples of names have them, release by release."""


@pytest.mark.parametrize(("before", "first", "name"), neighbours(WINDOWED_SINCE))
def test_each_class_gets_its_window_pool_with_its_release(before, first, name):
    config = GPT_OSS | {"architectures": [name], "model_type": "a class of its own"}
    change = Change("", before, first, config, "", None, None)
    assert sized(change, before).swa_max_total_num_tokens is None
    assert sized(change, first).swa_max_total_num_tokens


@pytest.mark.parametrize("config", [GEMMA_2, GEMMA_3, GEMMA_3N, GEMMA_3N_MM], ids=lambda config: config["architectures"][0])
@pytest.mark.parametrize("release", ["0.5.0rc0", "0.5.6.post2", "0.5.7", "0.5.8", "0.5.11", "0.5.23"])
def test_gemma_before_4_has_one_pool_from_0_5_0(config, release):
    assert sized(Change("", "", "", config, "", None, None), release).swa_max_total_num_tokens is None


@pytest.mark.parametrize("release", ["0.4.9.post3", "0.4.10.post1"])
def test_the_first_window_pools_do_not_go_by_pages(release):
    found = sized(Change("", "", "", GEMMA_3, "", None, None, {"page_size": 64}), release)
    full = by_layers(GEMMA_TOKENS // 64 * 64, 12, 2, 10)
    assert full % 64
    assert (found.max_total_num_tokens, found.swa_max_total_num_tokens) == (full, int(full * 0.8))


@pytest.mark.parametrize(("config", "window"), [(GPT_OSS, 127), (GEMMA_4, 1023), (MIMO, 128), (STEP, 128)])
def test_the_window_is_the_one_the_model_class_states(config, window):
    found = sized(Change("", "", "", config, "", None, None, CAP), "0.5.14")
    assert found.swa_max_total_num_tokens == 10 * (window + 128 + 1 + 1) + 2 * 8192 + 1


def test_a_capped_window_pool_leaves_the_rest_to_the_full_layers():
    found = sized(Change("", "", "", GPT_OSS, "", None, None, CAP), "0.5.14")
    rest = int((AVAIL - 78.0 * (1 - F)) * 2**30) - (10 * 257 + 2 * 8192 + 1) * SWA * 16
    assert found.max_total_num_tokens == rest // (FULL * 16)


def test_a_window_pool_too_small_for_one_request_stops_the_server_from_0_5_16():
    change = Change(
        "", "0.5.15.post1", "0.5.16", GPT_OSS, "", None, None, {"swa_full_tokens_ratio": 0.5, "max_total_tokens": 200}
    )
    assert sized(change, change.before).swa_max_total_num_tokens == 100
    with pytest.raises(CannotSizeError, match="cannot hold the window"):
        sized(change, change.after)


@pytest.mark.parametrize(
    ("release", "tokens"),
    [("0.5.6.post2", 10_000), ("0.5.7", 8_000), ("0.5.10.post1", 8_000), ("0.5.11", 10_000), ("0.5.23", 10_000)],
)
def test_one_request_is_held_to_the_smaller_pool_from_0_5_7_to_0_5_10(release, tokens, tmp_path):
    log = tmp_path / "server.log"
    word = "Sliding" if release == "0.5.6.post2" else "sliding"
    log.write_text(
        f"[2026-01-01 10:00:00] Use {word} window memory pool. full_layer_tokens=10000, swa_layer_tokens=8000\n"
        "[2026-01-01 10:00:01] max_total_num_tokens=10000, chunked_prefill_size=8192, max_prefill_tokens=16384, "
        "max_running_requests=2048, context_len=131072, available_gpu_mem=8.42 GB\n"
    )
    (start,) = kvdiag.explain(str(log), release=release).starts
    assert start.limits.largest_request_tokens == tokens - 6
