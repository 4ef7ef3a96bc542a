"""The sentence that says how a cause moved the capacity: by what the two logs state, and what they do not."""

from __future__ import annotations

import re
from fractions import Fraction

import pytest

from kvdiag.frozen import replace
from kvdiag.gate import observe
from kvdiag.gate.budget import budget_of
from kvdiag.gate.decompose import decompose
from kvdiag.gate.model import Checked
from kvdiag.gate.verdict import compare
from kvdiag.quantity import GIB, Interval
from tests.gate_logs import LOGS, baseline

LOG = baseline("kimi")
WHOLE = budget_of(LOG)
assert WHOLE is not None
BUDGET = replace(WHOLE, pool_tokens=None)
OTHER_MODEL = {**LOG.model, "name": "another", "architecture": "LlamaForCausalLM"}


def plus(value: Interval, gib: float) -> Interval:
    return value + Interval.of(Fraction(str(gib)) * GIB, unit="bytes")


def terms(tokens=-1000, before=LOG, after=LOG, a=None, **changed) -> dict[str, str]:
    a = replace(BUDGET, **(a or {}))
    b = replace(BUDGET, **{"tokens": a.tokens + tokens, **changed})
    return {term.cause: term.why for term in decompose(a, b, before, after)}


def with_arguments(**arguments):
    return replace(LOG, arguments={**LOG.arguments, **arguments})


def test_less_free_memory_is_another_process_or_card_on_a_gpu_and_wobbles_on_shared_memory():
    less = plus(BUDGET.total, -3), plus(BUDGET.available, -3)
    more = plus(BUDGET.total, 3), plus(BUDGET.available, 3)
    assert "another process holds 3.0" in terms(total=less[0], available=less[1])["total_memory"]
    assert "that held 3.0" in terms(1000, total=more[0], available=more[1])["total_memory"]
    shared = with_arguments(device="cpu")
    said = terms(total=less[0], available=less[1], before=shared, after=shared)["total_memory"]
    assert "it is the machine's" in said


@pytest.mark.parametrize(
    ("gib", "after", "said"),
    [
        (-3, LOG, "grew"),
        (3, LOG, "shrank"),
        (-3, LOG, "the checkpoint, or what the loader left behind, is another"),
        (-3, with_arguments(quantization="fp8"), "quantization"),
        (-3, replace(LOG, model=OTHER_MODEL), "it is another model"),
    ],
)
def test_what_loading_took_is_told_with_the_arguments_that_move_it(gib, after, said):
    found = terms(1000 if gib > 0 else -1000, after=after, available=plus(BUDGET.available, gib))
    assert said in found["weights"]


def test_another_cost_of_a_token_is_of_the_argument_the_release_or_unsaid():
    cell = BUDGET.cell * 2
    assert "neither log says why" in terms(cell=cell)["bytes_per_token"]
    assert "tp_size" in terms(cell=cell, after=with_arguments(tp_size=16))["bytes_per_token"]
    assert "model" in terms(cell=cell, after=replace(LOG, model=OTHER_MODEL))["bytes_per_token"]
    later = replace(LOG, release=("0.5.20", "0.5.21"))
    assert "SGLang 0.5.9 -> 0.5.20..0.5.21 sizes otherwise" in terms(cell=cell, after=later)["release"]
    assert "kv_cache_dtype bfloat16 -> odd" in terms(cell=cell, dtype="odd")["kv_cache_dtype"]
    halved = terms(1000, cell=BUDGET.cell / 2, dtype="fp8_e4m3")
    assert "2 -> 1 bytes an element" in halved["kv_cache_dtype"]


def test_a_release_that_has_another_formula_is_told_with_both():
    told = [
        replace(LOG, release=(name, name), checks=(Checked("bytes_per_token", None, "agree", None, formula, 1),))
        for name, formula in (("0.5.8", "heads x 2"), ("0.5.9", "latent + rope"))
    ]
    said = terms(cell=BUDGET.cell * 2, before=told[0], after=told[1])["release"]
    assert said.endswith("bytes_per_token was heads x 2, is latent + rope")


def test_a_cap_a_page_and_a_pool_of_states_are_terms_of_their_own():
    tokens = BUDGET.tokens
    assert "max_total_tokens" in terms(50_000 - tokens, cap=50_000)["cap"]
    both = terms(-10_000, a={"tokens": 50_000, "cap": 50_000}, cap=40_000)
    assert set(both) == {"cap"}
    assert "the capacity is floored to a page" in terms(-(tokens % 4096), page=4096)["page"]
    state = Interval.of(2 * GIB, unit="bytes")
    found = terms(state=state, after=with_arguments(max_mamba_cache_size=64))["state"]
    assert "the pool of states" in found
    assert "max_mamba_cache_size" in found


def test_what_the_formula_does_not_give_is_said_with_what_may_have_moved_it():
    assert "free memory is printed to 0.01 GB" in terms(-50_000)["unexplained"]
    drafts = terms(-50_000, after=with_arguments(speculative_algorithm="EAGLE"))["unexplained"]
    assert "speculative_algorithm" in drafts
    assert "may change what is taken from it" in drafts
    assert "the model is another" in terms(-50_000, after=replace(LOG, model=OTHER_MODEL))["unexplained"]
    assert "sizes otherwise" in terms(-50_000, after=replace(LOG, release=("0.5.20", "0.5.20")))["release"]


@pytest.mark.parametrize(
    ("lacking", "word"),
    [
        ("total", "Load weight begin"),
        ("available", "Load weight end"),
        ("fraction", "server_args"),
        ("cell", "KV Cache is allocated"),
    ],
)
def test_a_term_no_log_states_is_named_where_the_change_cannot_be_explained(lacking, word):
    assert word in terms(-50_000, a={lacking: None}, **{lacking: None})["unexplained"]


def test_what_cannot_be_told_says_whether_the_arguments_are_the_same():
    lacking = {"total": None}
    bare = replace(LOG, arguments={})
    assert "with equal arguments" in terms(-50_000, a=lacking, **lacking)["unexplained"]
    assert "with no arguments" in terms(-50_000, a=lacking, before=bare, after=bare, **lacking)["unexplained"]
    assert "with other arguments" in terms(-50_000, a=lacking, after=with_arguments(tp_size=16), **lacking)["unexplained"]


@pytest.mark.parametrize("log", ["kimi", "nocap9"])
@pytest.mark.parametrize("other_way", [False, True])
def test_a_capacity_that_left_the_pools_own_tokens_is_told_with_both_lines_and_costs_no_token_more(log, other_way, tmp_path):
    """The pool's line is the same text in both logs: its bytes are not divided by the tokens of another line."""
    text = LOGS[log].read_text(encoding="utf-8")
    tokens = budget_of(baseline(log)).tokens
    (tmp_path / "server.log").write_text(
        text.replace(f"max_total_num_tokens={tokens}", f"max_total_num_tokens={tokens - 2000}"), encoding="utf-8"
    )
    both = [replace(s, checks=()) for s in (baseline(log), observe(str(tmp_path / "server.log")).snapshot)]
    before, after = both[::-1] if other_way else both
    drifts = compare(before, after)
    assert not [drift for drift in drifts if drift.code == "KD102" or (drift.noise and drift.code == "KD101")]
    reason = next(drift.reason for drift in drifts if drift.subject == "max_total_num_tokens")
    assert re.search(rf"pool_tokens \(line \d+\) is {tokens:,} and max_total_num_tokens \(line \d+\) {tokens - 2000:,}", reason)
    a, b = budget_of(before), budget_of(after)
    assert [term.cause for term in decompose(a, b, before, after)] == ["unexplained"]


def test_a_log_without_the_tokens_of_its_pool_has_no_bytes_of_a_token():
    bare = replace(LOG, checks=(), numbers=tuple(n for n in LOG.numbers if n.name != "pool_tokens"))
    assert budget_of(bare).cell is None
    assert budget_of(replace(LOG, checks=())).cell is not None
