"""The right default of mem_fraction_static on either side of each change of SGLang: neighbouring releases, cards of every size.

What needs no pair of releases: the shares by ranks that never changed (`test_sizing_arithmetic.py`), STANDALONE's own reserve
(the release that brings it brings the algorithm), and post-capture sizing (a switch of the environment, off by default).
"""

import pytest

import kvdiag
from tests.boundaries import B200, H100, LATENT, LLAMA, TREE, Change, check, label
from tests.test_boundaries_budget import SPARSE, VISION

T4, RTX_4090, L40S, H20, H200, MI325 = 16384 - 1000, 24564, 46068, 97871, 143771, 288 * 1024 - 1000
LLAVA = LLAMA | {"architectures": ["LlavaLlamaForCausalLM"], "model_type": "llava"}
CARDS = (T4, RTX_4090, L40S, H100, H20, H200, B200)
TREE_OF_2 = {**TREE, "tp_size": 2}
ATTENTION_DP = {"tp_size": 8, "dp_size": 4, "enable_dp_attention": True}
DEEPEP = {"tp_size": 8, "moe_a2a_backend": "deepep"}
IMAGES = 0.95 * (1 - 0.1 * (32 * 1280**2 / (24 * 1024**2) - 1))
"""What an encoder of 32 layers of 1280 leaves: 5 %, and a tenth of what it exceeds 24 layers of 1024 by."""


def left(memory, reserve):
    """The fraction where so many MiB are kept back."""
    return round((memory - reserve) / memory, 3)


def by_card(memory, ranks=1, more=0):
    """0.4.7.post1 to 0.5.3rc0: MiB kept back by the card's size and the ranks."""
    if memory < 35 * 1024:
        reserve = 2.8 + ranks / 10
    elif memory < 90 * 1024:
        reserve = 9.5 + ranks / 2
    else:
        reserve = 12 + ranks / 2 if memory < 160 * 1024 else 32
    return left(memory, reserve * 1024 + more)


def by_chunk(chunk, graphs, ranks=1, more=0.0, memory=H100, after=0):
    """From 0.5.3rc2: MiB for activations, graphs and ranks, at least 10 GiB on large cards; `after` comes on top of that."""
    least = 10 * 1024 if memory > 60 * 1024 else 0
    return left(memory, max(512 + chunk * 1.5 + graphs * 2 + ranks / 8 * 1024 + more, least) + after)


CHUNKS = {T4: (2048, 8), RTX_4090: (2048, 16), L40S: (4096, 32), H100: (8192, 256), H20: (8192, 256), H200: (8192, 256),
          B200: (16384, 512)}  # fmt: skip
"""Prefill chunk and largest decode graph by card, for fewer than 4 ranks, when they first counted."""
BY_RANKS = {T4: 0.88, RTX_4090: 0.88, L40S: 0.88, H100: 0.88, H20: 0.88, H200: (H200 - 18 * 1024) / H200, B200: 0.79}


def change(name, before, after, old, new, args=None, gpu=H100, config=LLAMA):
    return Change(name, before, after, config, "mem_fraction_static", old, new, args or {}, gpu)


CHANGES = [
    change("8 ranks: 0.82", "0.3.5.post2", "0.3.6", 0.83, 0.82, {"tp_size": 8}),
    change("8 ranks: 0.81", "0.3.6.post3", "0.4.0", 0.82, 0.81, {"tp_size": 8}),
    change("large cards keep 13 GiB", "0.4.5.post2", "0.4.5.post3", 0.81, (H200 - 13 * 1024) / H200, {"tp_size": 8}, H200),
    change("80 GiB are not large", "0.4.5.post2", "0.4.5.post3", 0.81, 0.81, {"tp_size": 8}),
    change("large cards keep 18 GiB", "0.4.6.post1", "0.4.6.post2", (H200 - 13 * 1024) / H200, (H200 - 18 * 1024) / H200,
           {"tp_size": 8}, H200),
    change("96 GiB have a constant", "0.4.6.post1", "0.4.6.post2", (H20 - 13 * 1024) / H20, 0.88, {"tp_size": 8}, H20),
    change("the largest card has 48 GiB of the rest more", "0.4.6.post1", "0.4.6.post2", (MI325 - 13 * 1024) / MI325,
           0.88 + 48 * 1024 * 0.12 / MI325, {}, MI325),
    change("192 GB have a constant", "0.4.6.post5", "0.4.7", (B200 - 18 * 1024) / B200, 0.79, {}, B200),
    change("a twentieth for speculation", "0.4.6.post5", "0.4.7", 0.87, 0.87 * 0.95, TREE_OF_2),
    change("large cards keep 2 GiB for speculation", "0.4.6.post5", "0.4.7", (H200 - 18 * 1024) / H200,
           (H200 - 20 * 1024) / H200, TREE_OF_2, H200),
    *(change(f"by the card of {card} MiB", "0.4.7", "0.4.7.post1", BY_RANKS[card], by_card(card), {}, card) for card in CARDS),
    change("by ranks in stages too", "0.4.7", "0.4.7.post1", 0.81, by_card(H100, 8), {"tp_size": 4, "pp_size": 2}),
    change("by the card, 2 GiB for speculation", "0.4.7", "0.4.7.post1", 0.87 * 0.95, by_card(H100, 2, 2048), TREE_OF_2),
    change("by the card, 4 GiB for DP attention", "0.4.7", "0.4.7.post1", 0.81, by_card(H100, 8, 4096), ATTENTION_DP),
    change("image models", "0.4.8.post1", "0.4.9", by_card(H100), by_card(H100) * 0.90, {}, H100, VISION),
    change("image models by their encoder", "0.4.9.post2", "0.4.9.post3", by_card(H100) * 0.90, by_card(H100) * IMAGES, {}, H100,
           VISION),
    *(change(f"by the chunk on {card} MiB", "0.5.3rc0", "0.5.3rc2", by_card(card), by_chunk(*CHUNKS[card], memory=card), {}, card)
      for card in CARDS),
    change("by the chunk, 8 ranks", "0.5.3rc0", "0.5.3rc2", by_card(H100, 8), by_chunk(8192, 512, 8), {"tp_size": 8}),
    change("by the chunk, 4 ranks of a small card", "0.5.3rc0", "0.5.3rc2", by_card(RTX_4090, 4),
           by_chunk(2048, 80, 4, memory=RTX_4090), {"tp_size": 4}, RTX_4090),
    change("by the chunk, 4 ranks of a middle card", "0.5.3rc0", "0.5.3rc2", by_card(L40S, 4),
           by_chunk(4096, 160, 4, memory=L40S), {"tp_size": 4}, L40S),
    change("by the chunk, speculation", "0.5.3rc0", "0.5.3rc2", by_card(H100, 2, 2048), by_chunk(8192, 256, 2, after=2048),
           TREE_OF_2),
    change("by the chunk, DP attention", "0.5.3rc0", "0.5.3rc2", by_card(H100, 8, 4096),
           by_chunk(8192, 512, 8, 512 * 4 * 3 + 512 * 4 * 1.5), ATTENTION_DP),
    change("by the chunk, image models", "0.5.3rc0", "0.5.3rc2", by_card(H100) * IMAGES, by_chunk(8192, 256) * IMAGES, {}, H100,
           VISION),
    change("larger graphs on small cards", "0.5.4", "0.5.4.post1", by_chunk(2048, 16, memory=RTX_4090),
           by_chunk(2048, 24, memory=RTX_4090), {}, RTX_4090),
    change("prefill graphs, a quarter of a MiB a token", "0.5.5", "0.5.5.post1", by_chunk(4096, 32, memory=L40S),
           by_chunk(4096, 32, more=4096 // 4, memory=L40S), {"enable_piecewise_cuda_graph": True}, L40S),
    change("prefill graphs, an eighth of a MiB a token", "0.5.6.post2", "0.5.7", by_chunk(4096, 32, more=4096 // 4, memory=L40S),
           by_chunk(4096, 32, more=4096 // 8, memory=L40S), {"enable_piecewise_cuda_graph": True}, L40S),
    # up to a chunk of 4096: sizes of 4 to 32, 48 to 256, 288 to 512, 640 to 1024 and 1280 to 4096
    change("prefill graphs, 8 MiB a size", "0.5.7", "0.5.8", by_chunk(4096, 32, more=4096 // 8, memory=L40S),
           by_chunk(4096, 32, more=8 * (8 + 14 + 8 + 7 + 12), memory=L40S), {"enable_piecewise_cuda_graph": True}, L40S),
    change("one size of prefill graphs more", "0.5.8.post1", "0.5.9", by_chunk(4096, 32, more=8 * 49, memory=L40S),
           by_chunk(4096, 32, more=8 * 50, memory=L40S), {"enable_piecewise_cuda_graph": True}, L40S),
    change("prefill graphs by default", "0.5.9", "0.5.10rc0", by_chunk(4096, 32, memory=L40S),
           by_chunk(4096, 32, more=8 * 50, memory=L40S), {}, L40S),
    change("prefill graphs of latent models", "0.5.9", "0.5.10rc0", by_chunk(8192, 512, 8), by_chunk(8192, 512, 8, 1536),
           {"tp_size": 8}, H100, LATENT),
    change("drafts take 4 GiB", "0.5.9", "0.5.10rc0", by_chunk(8192, 256, 2, after=2048), by_chunk(8192, 256, 2, after=4096),
           TREE_OF_2),
    change("prefill graphs under speculation", "0.5.11", "0.5.12", by_chunk(4096, 32, after=4096, memory=L40S),
           by_chunk(4096, 32, more=8 * 50, after=4096, memory=L40S), TREE, L40S),
    change("no reserve for drafts", "0.5.13.post1", "0.5.14", by_chunk(8192, 512, 8, 1536, after=4096),
           by_chunk(8192, 512, 8, 1536), {"tp_size": 8, **TREE}, H100, LATENT),
    change("no prefill graphs without any", "0.5.13.post1", "0.5.14", by_chunk(4096, 32, more=8 * 50, memory=L40S),
           by_chunk(4096, 32, memory=L40S), {"disable_cuda_graph": True}, L40S),
    change("no decode graphs either", "0.5.14", "0.5.15", by_chunk(4096, 32, memory=L40S), by_chunk(4096, 0, memory=L40S),
           {"disable_cuda_graph": True}, L40S),
    change("DeepEP's buffers", "0.5.14", "0.5.15", by_chunk(8192, 512, 8), by_chunk(8192, 512, 8, after=2048), DEEPEP, H100,
           LATENT),
    change("a prefill server captures no decoding", "0.5.14", "0.5.15", by_chunk(8192, 512, 8, 512 * 4 * 4.5),
           by_chunk(8192, 0, 8), {**ATTENTION_DP, "disaggregation_mode": "prefill"}, H100, LATENT),
    change("a decode server's activations are its requests", "0.5.14", "0.5.15", by_chunk(8192, 512, 8),
           by_chunk(5000, 512, 8), {"tp_size": 8, "disaggregation_mode": "decode", "max_running_requests": 5000}),
    # no requests asked for: the decode graphs' 512, times draft tokens; speculation's own default of 48 comes later
    change("or its graphs, times draft tokens", "0.5.14", "0.5.15", by_chunk(8192, 512, 8),
           by_chunk(512 * 24, 512, 8),
           {**TREE, "tp_size": 8, "disaggregation_mode": "decode", "speculative_num_draft_tokens": 24}),
    change("DeepEP's bridge in prefill graphs", "0.5.16", "0.5.17", by_chunk(8192, 256, 2, after=2048),
           by_chunk(8192, 256, 2, 8 * 58 + 1024, after=2048), {"tp_size": 2, "moe_a2a_backend": "deepep"}),
    change("a decode server sees no images", "0.5.16", "0.5.17", by_chunk(2048, 256) * IMAGES, by_chunk(2048, 256),
           {"disaggregation_mode": "decode"}, H100, VISION),
    change("small cards' chunk and graphs", "0.5.19", "0.5.20", by_chunk(2048, 24, more=8 * 42, memory=RTX_4090),
           by_chunk(4096, 48, more=8 * 50, memory=RTX_4090), {}, RTX_4090),
    change("small cards' graphs, 4 ranks", "0.5.19", "0.5.20", by_chunk(2048, 80, 4, more=8 * 42, memory=RTX_4090),
           by_chunk(4096, 160, 4, more=8 * 50, memory=RTX_4090), {"tp_size": 4}, RTX_4090),
    change("an Intel card's scratch", "0.5.19", "0.5.20", by_chunk(4096, 0, memory=L40S),
           by_chunk(4096, 0, after=2048, memory=L40S), {"device": "xpu"}, L40S),
    change("graphs of no more than the requests", "0.5.21", "0.5.22", by_chunk(8192, 256, more=8 * 58),
           by_chunk(8192, 16, more=8 * 58), {"max_running_requests": 16}),
]  # fmt: skip


@pytest.mark.parametrize("changed", CHANGES, ids=label)
def test_the_default_fraction_changes_where_sglang_changed_it(changed):
    check(changed)


def size_of(config, release, **args):
    return kvdiag.size(config=config, release=release, args=args, gpu_mem_mib=H100, compute_capability=(9, 0))


LOWERED = [("0.3.0", 0.95), ("0.4.4.post3", 0.95), ("0.4.4.post4", 0.90), ("0.4.8.post1", 0.90), ("0.4.9", None)]


@pytest.mark.parametrize(("release", "share"), LOWERED)
def test_an_image_model_s_fraction_is_lowered_as_it_loads(release, share):
    notes = size_of(LLAVA, release, mem_fraction_static=0.88).notes
    lowered = [note for note in notes if "lowers the fraction" in note]
    assert len(lowered) == (share is not None)
    assert all(f"size with {0.88 * share:.3f}" in note for note in lowered)
    assert not any("lowers the fraction" in note for note in size_of(LLAMA, release, mem_fraction_static=0.88).notes)


@pytest.mark.parametrize(("release", "fraction"), [("0.5.3rc2", 0.8), ("0.5.3", 0.8), ("0.5.3.post1", 0.88)])
def test_sparse_attention_first_had_a_fraction_of_its_own_whatever_was_given(release, fraction):
    assert size_of(SPARSE, release, mem_fraction_static=0.88, tp_size=8).mem_fraction_static == fraction
