"""What a log prints on either side of each change: the wording of the pool lines, and what the checks make of short logs.

What needs no pair of releases: rows beside the tokens (one before 0.4.4, a page later: there is no page before 0.4.4), and the
index pages of sparse attention (whole pages of 64, which its tokens are too).
"""

import json

import pytest

import kvdiag
from kvdiag.releases import known_releases
from tests.boundaries import LATENT, LLAMA, PLAIN_CELL, TREE, G

K_AND_V = "K size: 1.00 GB, V size: 1.00 GB"
WORDINGS = [
    ("0.4.1.post5", "0.4.1.post6", None, f"KV Cache is allocated. {K_AND_V}."),
    ("0.4.3.post2", "0.4.3.post3", f"KV Cache is allocated. {K_AND_V}.", f"KV Cache is allocated. #tokens: 9, {K_AND_V}"),
    ("0.4.5.post2", "0.4.5.post3", None, "KV Cache is allocated. #tokens: 9, KV size: 1.00 GB"),
    ("0.5.12.post1", "0.5.13", f"KV Cache is allocated. #tokens: 9, {K_AND_V}",
     f"KV Cache is allocated. dtype: torch.bfloat16, #tokens: 9, {K_AND_V}"),
    ("0.5.17", "0.5.18", None, f"KV Cache VA upper bound. dtype: torch.bfloat16, #tokens: 9, {K_AND_V}"),
    ("0.4.9.post2", "0.4.9.post3", None, "Use Sliding window memory pool. full_layer_tokens=9, swa_layer_tokens=7"),
    ("0.5.6.post2", "0.5.7", "Use Sliding window memory pool. full_layer_tokens=9, swa_layer_tokens=7",
     "Use sliding window memory pool. full_layer_tokens=9, swa_layer_tokens=7"),
    ("0.5.3.post2", "0.5.3.post3", None, "SWAKVPool mem usage: 1.5 GB, swa size: 7, full size: 9"),
    ("0.5.6.post2", "0.5.7", "SWAKVPool mem usage: 1.503 GB, swa size: 7, full size: 9", None),
    ("0.5.3.post1", "0.5.3.post2", "Mamba Cache is allocated. conv_state size: 0.10GB, ssm_state size: 1.00GB ",
     "Mamba Cache is allocated. max_mamba_cache_size: 9, conv_state size: 0.10GB, ssm_state size: 1.00GB "),
    ("0.5.13.post1", "0.5.14", None, "Loaded weights leave no GPU memory for the KV cache under --mem-fraction-static=0.5. Raise "
     "--mem-fraction-static above 0.600 (minimum viable = 1 - available/pre"),
    ("0.5.17", "0.5.18", None, "Reserving 0.10 GB of the KV budget for post-sizing multimodal allocations "
     "(feature-transport pools + embedding cache)."),
    ("0.5.15.post1", "0.5.16", None, "Post-capture KV sizing: max_running_requests 2048 -> 1536"),
    ("0.5.16", "0.5.17", "Post-capture KV sizing: max_total_num_tokens=9, free memory=1.52 GB",
     "Post-capture KV sizing: KV cache allocated. dtype: torch.bfloat16, #tokens: 9, KV size: 1.00 GB, avail mem=1.52 GB"),
]  # fmt: skip


@pytest.mark.parametrize(("before", "after", "old", "new"), WORDINGS, ids=lambda value: (value or "none")[:40])
def test_a_line_is_worded_by_its_release(before, after, old, new):
    names = [str(release) for release in known_releases()]
    assert names.index(before) + 1 == names.index(after), "neighbouring releases"
    for line, printed, not_printed in ((new, after, before), (old, before, after)):
        if line is not None:
            assert kvdiag.parse_line(line, release=printed) is not None
            assert kvdiag.parse_line(line, release=not_printed) is None


AVAILABLE, TOTAL = 62.68, 78.68
BUDGET = (AVAILABLE - TOTAL * 0.2) * G
LOG = """\
[2026-09-01 10:00:00] server_args=ServerArgs(model_path='m', dtype='auto', kv_cache_dtype='auto', mem_fraction_static=0.8, \
max_running_requests=None, max_total_tokens=None, chunked_prefill_size=8192, page_size={page}, tp_size=1, pp_size=1, dp_size=1, \
device='cuda', attention_backend='fa3', enable_dp_attention=False, {more})
[2026-09-01 10:00:20] Load weight begin. avail mem=78.68 GB
[2026-09-01 10:00:40] Load weight end. elapsed=20.11 s, type=LlamaForCausalLM, avail mem=62.68 GB, mem usage=16.00 GB.
{pools}
[2026-09-01 10:00:55] max_total_num_tokens={tokens}, chunked_prefill_size=8192, max_prefill_tokens=16384, \
max_running_requests={slots}, context_len={context}, available_gpu_mem=9.50 GB
"""


def checks_of(tmp_path, release, tokens, pools="", config=LLAMA, page=1, slots=4096, **arguments):
    """The verdicts of a short log by check; the pool lines are `pools`."""
    (tmp_path / "config.json").write_text(json.dumps(config))
    log, more = tmp_path / "server.log", ", ".join(f"{name}={value!r}" for name, value in arguments.items())
    context = config["max_position_embeddings"]
    pools = "\n".join(f"[2026-09-01 10:00:41] {line}" for line in pools.splitlines())
    log.write_text(LOG.format(page=page, more=more, pools=pools, tokens=tokens, slots=slots, context=context))
    (start,) = kvdiag.explain(str(log), config=str(tmp_path / "config.json"), release=release).starts
    return {check.name: check for check in start.checks}


@pytest.mark.parametrize("release", ["0.4.4", "0.5.9", "0.5.22"])
def test_a_pool_has_a_page_of_rows_beside_its_tokens(release, tmp_path):
    tokens = int(BUDGET // PLAIN_CELL) // 128 * 128
    for rows, verdict in ((tokens + 128, "agree"), (tokens + 1, "disagree")):
        half = rows * PLAIN_CELL / 2 / G
        dtype = "dtype: torch.bfloat16, " if release == "0.5.22" else ""
        line = f"KV Cache is allocated. {dtype}#tokens: {tokens}, K size: {half:.2f} GB, V size: {half:.2f} GB"
        slots = 4097 if release == "0.4.4" else 4096
        found = checks_of(tmp_path, release, tokens, line, page=128, slots=slots)
        assert found["kv_pool_bytes"].verdict == verdict
        assert {found[name].verdict for name in ("max_total_num_tokens", "max_running_requests")} == {"agree"}


@pytest.mark.parametrize("release", ["0.5.16", "0.5.17", "0.5.18", "0.5.23"])
def test_a_pool_sized_after_the_capture_of_graphs_is_not_held_to_the_budget(release, tmp_path):
    bound, real = int(BUDGET // PLAIN_CELL), 300_000
    state = "is allocated" if release in ("0.5.16", "0.5.17") else "VA upper bound"
    half = (bound + 1) * PLAIN_CELL / 2 / G
    first = f"KV Cache {state}. dtype: torch.bfloat16, #tokens: {bound}, K size: {half:.2f} GB, V size: {half:.2f} GB"
    after = f"Post-capture KV sizing: max_total_num_tokens={real}, free memory=1.52 GB"
    if release != "0.5.16":
        after = (
            f"Post-capture KV sizing: KV cache allocated. dtype: torch.bfloat16, #tokens: {real}, "
            f"KV size: {(real + 1) * PLAIN_CELL / G:.2f} GB, avail mem=9.52 GB"
        )
    found = checks_of(tmp_path, release, real, first + "\n" + after)
    assert found["max_total_num_tokens"].verdict == "unknown"
    assert "the capture of graphs left sized the pool anew" in found["max_total_num_tokens"].missing[0]
    assert "kv_pool_bytes" not in found
    assert "disagree" not in {check.verdict for check in found.values()}
    allocated = first.replace("VA upper bound", "is allocated")
    assert checks_of(tmp_path, release, real, allocated)["max_total_num_tokens"].verdict == "disagree"


def test_a_draft_of_its_own_takes_from_the_budget_from_0_5_14(tmp_path):
    (tmp_path / "draft").mkdir()
    (tmp_path / "draft" / "config.json").write_text(json.dumps(LLAMA | {"num_hidden_layers": 2}))
    args = {**TREE, "speculative_algorithm": "EAGLE3", "max_running_requests": 48}
    known, unknown = str(tmp_path / "draft"), str(tmp_path / "nowhere")
    alone, shared = int(BUDGET) // PLAIN_CELL, int(BUDGET) // (PLAIN_CELL + 2 * 4096)
    expected = [
        ("0.5.13.post1", alone, known, "agree"), ("0.5.13.post1", alone, unknown, "agree"),
        ("0.5.14", shared, known, "agree"), ("0.5.14", alone, known, "disagree"), ("0.5.14", shared, unknown, "unknown"),
    ]  # fmt: skip
    for release, tokens, path, verdict in expected:
        found = checks_of(tmp_path, release, tokens, slots=48, speculative_draft_model_path=path, **args)
        assert found["max_total_num_tokens"].verdict == verdict, (release, tokens, path)
    assert "the draft model's config" in found["max_total_num_tokens"].missing[0]


def test_a_latent_model_s_line_states_one_size(tmp_path):
    tokens = int(BUDGET) // (576 * 61 * 2)
    line = f"KV Cache is allocated. #tokens: {tokens}, KV size: {(tokens + 1) * 576 * 61 * 2 / G:.2f} GB"
    found = checks_of(tmp_path, "0.5.9", tokens, line, config=LATENT, slots=2048)
    assert found["kv_pool_bytes"].verdict == found["bytes_per_token"].verdict == "agree"
    assert found["max_total_num_tokens"].verdict == "agree"


QWEN2_VL = LLAMA | {"architectures": ["Qwen2VLForConditionalGeneration"], "model_type": "qwen2_vl",
                    "vision_config": {"hidden_size": 1280, "num_hidden_layers": 32}}  # fmt: skip
REDUCED = "Automatically reduce --mem-fraction-static to {:.3f} because this is a multimodal model."


@pytest.mark.parametrize(("release", "share"), [("0.4.4.post3", 0.95), ("0.4.4.post4", 0.90), ("0.4.8.post1", 0.90)])
def test_an_image_model_s_lowered_fraction_is_exact_though_the_line_rounds_it(release, share, tmp_path):
    fraction = 0.8 * share
    tokens = int((AVAILABLE - TOTAL * (1 - fraction)) * G) // PLAIN_CELL
    slots = 4097 if release < "0.4.7" else 4096
    found = checks_of(tmp_path, release, tokens, REDUCED.format(fraction), config=QWEN2_VL, slots=slots)
    assert found["max_total_num_tokens"].verdict == "agree"
    # without the line the capacity may be lower than the dump's fraction gives, but no higher
    assert checks_of(tmp_path, release, tokens, config=QWEN2_VL, slots=slots)["max_total_num_tokens"].verdict == "unknown"
    high = checks_of(tmp_path, release, 500_000, config=QWEN2_VL, slots=slots)
    assert high["max_total_num_tokens"].verdict == "disagree"


def test_the_first_releases_say_that_they_lower_it_but_not_to_what(tmp_path):
    line = "Automatically turn off --chunked-prefill-size and adjust --mem-fraction-static for multimodal models."
    tokens = int((AVAILABLE - TOTAL * (1 - 0.8 * 0.95)) * G) // PLAIN_CELL
    found = checks_of(tmp_path, "0.3.6", tokens, line, config=QWEN2_VL, slots=4097)
    assert found["max_total_num_tokens"].verdict == "agree"
