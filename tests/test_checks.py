"""When a check agrees, disagrees, or does not know: what a log leaves open is never held against it."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest

import kvdiag
from kvdiag.checks.verdict import Candidate, Excuse, judge
from kvdiag.quantity import Interval
from kvdiag.releases import known_releases, parse_release
from tests.conftest import FIXTURES

KIMI = (FIXTURES / "scenarios" / "kimi-k2.6-bf16" / "server.log").read_text()


def tokens_of(text: str) -> int:
    return int(re.search(r"max_total_num_tokens=(\d+)", text).group(1))


def explained(tmp_path, text, **arguments):
    log = tmp_path / "server.log"
    log.write_text(text)
    (start,) = kvdiag.explain(str(log), **arguments).starts
    return start


def check(start, name):
    return next(found for found in start.checks if found.name == name)


def with_capacity(text: str, tokens: int) -> str:
    return text.replace(f"max_total_num_tokens={tokens_of(text)}", f"max_total_num_tokens={tokens}")


def tokens(low, high=None):
    return Interval.of(low, high, "tokens")


OLD, NEW = (parse_release(text) for text in ("0.5.6", "0.5.7"))


def test_all_formulas_meeting_agree_none_disagree_and_some_leave_the_release_open():
    both = [Candidate(tokens(10, 20), (OLD,)), Candidate(tokens(15, 30), (NEW,))]
    assert judge(tokens(16), both) == ("agree", ())
    assert judge(tokens(40), both)[0] == "disagree"
    verdict, missing = judge(tokens(25), both)
    assert verdict == "unknown"
    assert "0.5.7" in missing[0]
    assert "not 0.5.6" in missing[0]


def test_what_could_only_lower_a_figure_does_not_excuse_a_higher_one():
    unseen = Excuse("ranks", raises=False)
    assert judge(tokens(5), [Candidate(tokens(10), ())], [unseen]) == ("unknown", ("ranks",))
    assert judge(tokens(15), [Candidate(tokens(10), ())], [unseen])[0] == "disagree"


def test_a_rank_not_in_the_log_may_hold_less_but_cannot_give_more(tmp_path):
    one_rank_less = "".join(line for line in KIMI.splitlines(True) if "TP7]" not in line)
    lower, higher = (with_capacity(one_rank_less, tokens_of(KIMI) + delta) for delta in (-2000, 2000))
    found = check(explained(tmp_path, lower), "max_total_num_tokens")
    assert found.verdict == "unknown"
    assert "1 ranks are not in the log" in found.missing[0]
    assert check(explained(tmp_path, higher), "max_total_num_tokens").verdict == "disagree"


def test_the_rank_with_the_least_memory_decides(tmp_path):
    poorer = KIMI.replace(
        "TP3] Load weight end. elapsed=20.11 s, type=KimiK25ForConditionalGeneration, dtype=torch.bfloat16, avail mem=67.09",
        "TP3] Load weight end. elapsed=20.11 s, type=KimiK25ForConditionalGeneration, dtype=torch.bfloat16, avail mem=66.09",
    )
    assert poorer != KIMI
    found = check(explained(tmp_path, poorer), "max_total_num_tokens")
    assert found.verdict == "disagree"
    fewer = int(2**30 / 70_272)
    assert check(explained(tmp_path, with_capacity(poorer, tokens_of(KIMI) - fewer)), "max_total_num_tokens").verdict == "agree"


@pytest.mark.parametrize("argument", ["enable_lora=True", "lora_paths=['a']"])
def test_adapters_loaded_after_the_reading_may_have_lowered_the_capacity(argument, tmp_path):
    text = with_capacity(KIMI, tokens_of(KIMI) - 5000).replace(
        "disable_radix_cache=False", f"disable_radix_cache=False, {argument}"
    )
    found = check(explained(tmp_path, text), "max_total_num_tokens")
    assert found.verdict == "unknown"
    assert "LoRA" in found.missing[0]


def test_a_cap_hides_the_budget_but_is_itself_exact(tmp_path):
    text = with_capacity(KIMI, 100_000).replace("max_total_tokens=None", "max_total_tokens=100000")
    start = explained(tmp_path, re.sub(r"#tokens: \d+, KV size: [\d.]+", "#tokens: 100000, KV size: 6.54", text))
    assert check(start, "max_total_num_tokens").verdict == "agree"
    assert check(start, "rest_memory").verdict == "unknown"
    assert "100000" in check(start, "rest_memory").missing[0]
    assert not [found for found in start.checks if found.verdict == "disagree"]


def test_replicas_of_plain_data_parallelism_size_each_for_itself(tmp_path):
    lines = [
        "[2026-03-20 12:00:00] "
        + KIMI.splitlines()[0].split("] ", 1)[1].replace("dp_size=1", "dp_size=2").replace("tp_size=8", "tp_size=1")
    ]
    for rank, line in ((rank, line) for rank in (0, 1) for line in KIMI.splitlines()[1:] if "TP0]" in line):
        changed = line.replace("TP0]", f"DP{rank} TP0]")
        if rank == 1:
            changed = changed.replace("avail mem=67.09", "avail mem=66.09")
        lines.append(changed)
    start = explained(tmp_path, "\n".join(lines) + "\n")
    verdicts = {found.rank: found.verdict for found in start.checks if found.name == "max_total_num_tokens"}
    assert verdicts == {"DP0 TP0": "agree", "DP1 TP0": "disagree"}


def test_a_fraction_that_is_not_the_one_in_force_disagrees_only_through_the_capacity(tmp_path):
    start = explained(tmp_path, KIMI.replace("mem_fraction_static=0.841", "mem_fraction_static=0.85"))
    found = check(start, "mem_fraction_static")
    assert found.verdict == "disagree"
    assert found.recomputed.low < 0.841 < found.recomputed.high


def test_an_unpublished_release_is_taken_as_stated(tmp_path):
    start = explained(tmp_path, KIMI, release="0.5.9.dev3")
    assert check(start, "bytes_per_token").verdict == "agree"


def test_a_log_of_any_release_is_checked_within_a_second(tmp_path):
    import time

    kept = "".join(line for line in KIMI.splitlines(True) if "server_args" not in line).replace("elapsed=20.11 s, ", "")
    before = time.process_time()
    start = explained(tmp_path, kept)
    assert len(start.start.release.possible) > 1
    assert start.checks
    assert time.process_time() - before < 1


def test_every_check_names_the_symbol_of_its_release(tmp_path):
    for found in explained(tmp_path, KIMI).checks:
        file, _, symbol = found.symbol.partition(" ")
        assert file.endswith(".py")
        assert symbol


def test_the_symbols_cover_every_release_without_a_gap():
    from kvdiag import rulebook

    (document,) = rulebook.load("checks")
    for name, entries in document.items():
        if name.startswith("_"):
            continue
        ends = [entry.split(" ")[0].partition("..")[::2] for entry in entries]
        assert ends[-1][1] == "", name
        order = [str(release) for release in known_releases()]
        for (_, last), (first, _) in pairwise(ends):
            assert order.index(first) == order.index(last) + 1, (name, last, first)


VISION = """\
[2026-09-01 10:00:00] server_args=ServerArgs(model_path='Qwen/Qwen2.5-VL-7B-Instruct', dtype='auto', kv_cache_dtype='auto', \
mem_fraction_static=0.8, max_running_requests=None, max_total_tokens=None, chunked_prefill_size=8192, page_size=1, tp_size=1, \
pp_size=1, dp_size=1, device='cuda', attention_backend='fa3', enable_dp_attention=False)
[2026-09-01 10:00:20] Load weight begin. avail mem=78.68 GB
[2026-09-01 10:00:40] Load weight end. elapsed=20.11 s, type=Qwen2_5_VLForConditionalGeneration, avail mem=62.68 GB, \
mem usage=16.00 GB.
[2026-09-01 10:00:41] Reserving {reserved:.2f} GB of the KV budget for post-sizing multimodal allocations \
(feature-transport pools + embedding cache).
[2026-09-01 10:00:41] KV Cache is allocated. dtype: torch.bfloat16, #tokens: {tokens}, K size: {half:.2f} GB, \
V size: {half:.2f} GB
[2026-09-01 10:00:55] max_total_num_tokens={tokens}, chunked_prefill_size=8192, max_prefill_tokens=16384, \
max_running_requests={slots}, context_len=128000, available_gpu_mem=12.00 GB
"""


@pytest.mark.parametrize("reserved", [0.10, 1.00])
def test_what_is_reserved_for_images_is_read_not_guessed(reserved, tmp_path):
    rest = (62.68 - 78.68 * 0.2 - (100 / 1024 if reserved == 0.10 else reserved)) * 2**30
    count = int(rest) // 57_344
    text = VISION.format(
        reserved=reserved, tokens=count, half=count * 57_344 / 2 / 2**30, slots=max(2048, int(count / 128_000 * 512))
    )
    start = explained(tmp_path, text, release="0.5.20")
    assert check(start, "bytes_per_token").recomputed.low == 57_344
    assert check(start, "max_total_num_tokens").verdict == "agree"
    assert check(start, "mem_fraction_static").verdict == "agree"
    assert rest in check(start, "rest_memory").recomputed
    assert (
        check(explained(tmp_path, with_capacity(text, count + 6000), release="0.5.20"), "max_total_num_tokens").verdict
        == "disagree"
    )


def test_a_model_taken_by_the_name_of_a_folder_raises_no_alarm(tmp_path):
    """The folder may hold another model than the published one of its name: only a config that is given can disagree."""
    text = """\
[2026-01-05 10:00:00] server_args=ServerArgs(model_path='{path}', tp_size=1, pp_size=1, dp_size=1, enable_dp_attention=False, \
kv_cache_dtype='auto', device='cuda', page_size=1)
[2026-01-05 10:00:19] Load weight end. elapsed=1.00 s, type={type}, dtype=torch.bfloat16, avail mem=63.91 GB, mem usage=15.25 GB.
[2026-01-05 10:00:19] KV Cache is allocated. #tokens: 104273, K size: 6.16 GB, V size: 6.16 GB
"""
    of_another_class = explained(tmp_path, text.format(path="/models/Qwen3-8B", type="LlamaForCausalLM"), release="0.5.9")
    for path in (
        "/models/Qwen3-8B",
        "./Qwen3-8B",
        "~/Qwen3-8B",
        "Qwen3-8B",
        "s3://bucket/Qwen3-8B",
        "C:/models/Qwen3-8B",
        "a/b/Qwen3-8B",
    ):
        pruned = explained(tmp_path, text.format(path=path, type="Qwen3ForCausalLM"), release="0.5.9")
        assert check(pruned, "bytes_per_token").verdict == "unknown", path
    published = explained(tmp_path, text.format(path="Qwen/Qwen3-8B", type="Qwen3ForCausalLM"), release="0.5.9")
    assert check(of_another_class, "bytes_per_token").verdict == "unknown"
    assert "loads a LlamaForCausalLM" in check(of_another_class, "bytes_per_token").missing[0]
    assert check(published, "bytes_per_token").verdict == "disagree"
