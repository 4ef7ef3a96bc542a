"""What speculation adds to tokens and cells, on either side of each change of SGLang: neighbouring releases."""

import pytest

import kvdiag
from kvdiag.errors import KvdiagError
from kvdiag.releases import known_releases
from tests.boundaries import GPT_OSS, LATENT, LLAMA, NEXT, PLAIN_CELL, TREE, Change, check, label, sized, tokens

PLAIN = tokens(PLAIN_CELL)
WIDE = {"speculative_algorithm": "EAGLE", "speculative_num_steps": 5, "speculative_eagle_topk": 4,
        "speculative_num_draft_tokens": 8, "max_running_requests": 10}  # fmt: skip
CHAIN = {"speculative_algorithm": "EAGLE", "speculative_num_steps": 3, "speculative_eagle_topk": 1,
         "speculative_num_draft_tokens": 8, "max_running_requests": 10}  # fmt: skip
ONE_LAYER = LLAMA | {"num_hidden_layers": 1}
SPARSE = LATENT | {"architectures": ["GlmMoeDsaForCausalLM"], "model_type": "glm_moe_dsa", "index_head_dim": 128,
                   "index_topk": 2048, "indexer_types": ["full", "shared"] * 30 + ["full"]}  # fmt: skip
STATED = LLAMA | {"architectures": ["MiMoForCausalLM"], "model_type": "mimo", "num_nextn_predict_layers": 1}
QWEN3_32B = LLAMA | {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "num_hidden_layers": 64, "head_dim": 128,
                     "hidden_size": 5120, "num_attention_heads": 64}  # fmt: skip
QWEN3_SMALL = QWEN3_32B | {"num_hidden_layers": 28, "hidden_size": 1024, "num_attention_heads": 16}
MIMO = {
    "architectures": ["MiMoV2FlashForCausalLM"], "model_type": "mimo_v2_flash", "num_hidden_layers": 12, "hidden_size": 4096,
    "num_attention_heads": 64, "num_key_value_heads": 4, "head_dim": 192, "v_head_dim": 128, "swa_num_key_value_heads": 8,
    "swa_head_dim": 192, "swa_v_head_dim": 128, "sliding_window_size": 128, "hybrid_layer_pattern": [0, 1, 1, 1] * 3,
    "max_position_embeddings": 262144, "torch_dtype": "bfloat16",
}  # fmt: skip
BLOCKS = LLAMA | {"architectures": ["DFlashDraftModel"], "model_type": "qwen3", "num_hidden_layers": 5, "head_dim": 128,
                  "num_key_value_heads": 4}  # fmt: skip
NEXT_CELL = 2 * 256 * 2 * 2 * 12
FULL = WINDOW = 8 * 64 * 2 * 2
MIMO_FULL, MIMO_WINDOW = 4 * 320 * 2, 8 * 320 * 2
STANDALONE = {**TREE, "speculative_algorithm": "STANDALONE"}


def dflash(**args):
    return {"speculative_algorithm": "DFLASH", "speculative_num_draft_tokens": 16, **args}


CHANGES = [
    Change("head-room for drafts begins", "0.4.3.post4", "0.4.4", LLAMA, "max_total_num_tokens",
           PLAIN, PLAIN + 32 * 3 * 1 + 32 * 4 + 100, TREE),
    Change("head-room for drafts ends", "0.5.6.post2", "0.5.7", LLAMA, "max_total_num_tokens",
           PLAIN + 48 * 3 * 1 + 48 * 4 + 100, PLAIN, TREE),
    Change("a stand-alone draft's head-room ends", "0.5.6.post2", "0.5.7", LLAMA, "max_total_num_tokens",
           PLAIN + 48 * 3 * 1 + 48 * 4 + 100, PLAIN, STANDALONE),
    Change("pages rule out trees of drafts", "0.4.4.post3", "0.4.4.post4", LLAMA, "max_total_num_tokens",
           (PLAIN + 10 * 5 * 4 + 10 * 8 + 100) // 16 * 16, (PLAIN + 10 * 5 * 1 + 10 * 8 + 100) // 16 * 16,
           {**WIDE, "page_size": 16}),
    Change("a chain has a token more than steps", "0.4.5.post2", "0.4.5.post3", LLAMA, "max_total_num_tokens",
           PLAIN + 10 * 3 + 10 * 8 + 100, PLAIN + 10 * 3 + 10 * 4 + 100, CHAIN),
    Change("pages allow trees of drafts again", "0.4.8.post1", "0.4.9", LLAMA, "max_total_num_tokens",
           (PLAIN + 10 * 5 * 1 + 10 * 6 + 100) // 16 * 16, (PLAIN + 10 * 5 * 4 + 10 * 8 + 100) // 16 * 16,
           {**WIDE, "page_size": 16}),
    Change("speculation limits the requests", "0.4.3.post2", "0.4.3.post3", LLAMA, "max_running_requests", 4097, 32, TREE),
    Change("and limits them less", "0.4.4.post3", "0.4.4.post4", LLAMA, "max_running_requests", 32, 48, TREE),
    Change("drafts are charged", "0.5.13.post1", "0.5.14", LATENT, "bytes_per_token", 576 * 61 * 2, 576 * 62 * 2, TREE),
    Change("a draft of its own is charged by its layers", "0.5.13.post1", "0.5.14", LLAMA, "bytes_per_token",
           PLAIN_CELL, PLAIN_CELL + 4096, {**TREE, "speculative_algorithm": "EAGLE3"}, draft=ONE_LAYER),
    Change("at the target's bytes a layer", "0.5.13.post1", "0.5.14", QWEN3_32B, "bytes_per_token", 131_072, 188_416,
           {**STANDALONE, "tp_size": 2}, draft=QWEN3_SMALL),
    Change("one layer of a state model's checkpoint read as a draft", "0.5.13.post1", "0.5.14", NEXT, "bytes_per_token",
           NEXT_CELL, NEXT_CELL + NEXT_CELL // 12, TREE, draft=NEXT),
    Change("a sparse draft has its own whole index", "0.5.17", "0.5.18", SPARSE, "bytes_per_token",
           (1152 + 132) * 62, 1152 * 61 + 132 * 31 + 1152 + 132, TREE),
    Change("layers that the target states, without a path", "0.5.19", "0.5.20", STATED, "bytes_per_token",
           PLAIN_CELL, PLAIN_CELL + 4096, TREE),
    # 47 layers and one: 1 + 1 / 47 as a float is a little less, and the product one byte short
    Change("the draft's bytes are added, not multiplied in", "0.5.21", "0.5.22", LLAMA | {"num_hidden_layers": 47},
           "bytes_per_token", 4096 * 48 - 1, 4096 * 48, TREE, draft=ONE_LAYER),
    Change("drafts of window models are charged", "0.5.14", "0.5.15", GPT_OSS, "bytes_per_token",
           FULL * 16 + 0.8 * WINDOW * 16, FULL * 17 + 0.8 * WINDOW * 16, TREE, draft=ONE_LAYER),
    Change("MiMo-V2 read as a draft has one layer", "0.5.17", "0.5.18", MIMO, "bytes_per_token",
           MIMO_FULL * (3 + 12) + 0.8 * MIMO_WINDOW * 9, MIMO_FULL * (3 + 1) + 0.8 * MIMO_WINDOW * 9, TREE, draft=MIMO),
    Change("which is a window layer", "0.5.18", "0.5.19", MIMO, "bytes_per_token",
           MIMO_FULL * (3 + 1) + 0.8 * MIMO_WINDOW * 9, MIMO_FULL * 3 + 0.8 * MIMO_WINDOW * 10, TREE, draft=MIMO),
    Change("context ranks copy a DFLASH draft", "0.5.16", "0.5.17", LLAMA, "bytes_per_token",
           -(-32_768 * (32 + 5) // 32), -(-32_768 * (32 + 5 * 2) // 32), dflash(tp_size=4, dcp_size=2), draft=BLOCKS),
    Change("a DFLASH draft's own bytes", "0.5.17", "0.5.18", LLAMA, "bytes_per_token",
           -(-65_536 * (32 + 5) // 32), 65_536 + 2 * 256 * 5 * 2, dflash(tp_size=2), draft=BLOCKS),
    Change("a DFLASH draft's own bytes in fp8", "0.5.17", "0.5.18", LLAMA, "bytes_per_token",
           -(-32_768 * (32 + 5) // 32), 32_768 + 2 * 256 * 5, dflash(tp_size=2, kv_cache_dtype="fp8_e4m3"), draft=BLOCKS),
    Change("a window model's DFLASH draft", "0.5.17", "0.5.18", GPT_OSS, "bytes_per_token",
           FULL * 16 + 0.8 * WINDOW * 16, FULL * 16 + 0.8 * WINDOW * 16 + 4 * 256 * 5 * 2, dflash(), draft=BLOCKS),
]  # fmt: skip


@pytest.mark.parametrize("change", CHANGES, ids=label)
def test_drafts_change_where_sglang_changed_them(change):
    check(change)


ALGORITHMS = [
    ("EAGLE", "0.4.1.post4"), ("NEXTN", "0.4.3.post1"), ("EAGLE3", "0.4.4.post2"), ("STANDALONE", "0.5.2"), ("NGRAM", "0.5.3rc2"),
    ("DFLASH", "0.5.11"), ("FROZEN_KV_MTP", "0.5.12"), ("DSPARK", "0.5.16"),
]  # fmt: skip


@pytest.mark.parametrize(("algorithm", "first"), ALGORITHMS)
def test_an_algorithm_is_refused_by_releases_that_do_not_have_it(algorithm, first):
    names = [str(release) for release in known_releases()]
    before = names[names.index(first) - 1]
    args = {**TREE, "speculative_algorithm": algorithm, "mem_fraction_static": 0.88}
    draft = BLOCKS if algorithm in ("DFLASH", "DSPARK") else None
    assert kvdiag.size(config=LLAMA, release=first, args=args, draft_config=draft).bytes_per_token >= PLAIN_CELL
    with pytest.raises(KvdiagError, match="speculative"):
        kvdiag.size(config=LLAMA, release=before, args=args, draft_config=draft)


def test_ngram_has_no_draft_model_and_no_head_room():
    ngram = Change("", "", "", LLAMA, "", None, None, {"speculative_algorithm": "NGRAM"})
    assert sized(ngram, "0.5.3rc2").max_total_num_tokens == PLAIN
    assert sized(ngram, "0.5.22").bytes_per_token == PLAIN_CELL


def test_head_room_for_drafts_comes_before_the_cap_and_the_page():
    def grown(**more):
        return sized(Change("", "", "", LLAMA, "", None, None, {**TREE, **more}), "0.5.6").max_total_num_tokens

    assert grown(max_total_tokens=PLAIN + 50) == PLAIN + 50
    assert grown(page_size=16) == (PLAIN + 48 * 3 + 48 * 4 + 100) // 16 * 16
    assert grown(max_running_requests=5000) == PLAIN + 5000 * 3 + 5000 * 4 + 100


@pytest.mark.parametrize("release", ["0.5.14", "0.5.22"])
def test_a_state_model_s_own_head_is_not_charged_without_a_path(release):
    assert sized(Change("", "", "", NEXT, "", None, None, TREE), release).bytes_per_token == NEXT_CELL


def test_the_target_s_own_path_reads_it_as_a_draft():
    args = {**TREE, "model_path": "a", "speculative_draft_model_path": "a"}
    change = Change("", "", "", NEXT, "", None, None, args)
    assert sized(change, "0.5.14").bytes_per_token == NEXT_CELL + NEXT_CELL // 12


def test_a_draft_of_another_path_is_refused_until_its_config_is_given():
    args = {**TREE, "speculative_algorithm": "EAGLE3", "speculative_draft_model_path": "draft"}
    change = Change("", "", "", LLAMA, "", None, None, args)
    assert sized(change, "0.5.13.post1").bytes_per_token == PLAIN_CELL
    with pytest.raises(KvdiagError, match="give its config with --draft-config"):
        sized(change, "0.5.14")
    with pytest.raises(KvdiagError, match="the draft model of DFLASH"):
        sized(Change("", "", "", LLAMA, "", None, None, dflash()), "0.5.11")
