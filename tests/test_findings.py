"""Findings: every rule's samples, calm logs, the counts of real retractions, memory that adds up, scenario 3."""

from __future__ import annotations

import pytest

import kvdiag
from kvdiag.checks.findings import condition, documents, rules
from kvdiag.checks.phrase import fill, names
from kvdiag.checks.samples import failures
from kvdiag.quantity import Interval
from tests.conftest import FIXTURES, SHARED

SCENARIOS = FIXTURES / "scenarios"
REAL = FIXTURES / "real"


def codes(start, *levels):
    return [finding.code for finding in start.findings if not levels or finding.level in levels]


@pytest.mark.parametrize("code", sorted(documents()))
def test_the_samples_of_each_rule_raise_it_and_its_near_misses_do_not(code):
    assert failures(documents()[code]) == []


def test_each_rule_has_a_condition_and_replaces_only_rules_that_exist():
    known = {rule.code for rule in rules()}
    for rule in rules():
        assert condition(rule.predicate, rule.code)
        assert set(rule.replaces) <= known, rule.code
    assert len(known) >= 40


def test_a_sentence_that_asks_for_what_the_log_does_not_have_is_left_out():
    sentences = ["The pool has {tokens:n} tokens.", "That is {share:percent}."]
    assert fill(sentences, {"tokens": 1741, "share": None}) == "The pool has 1,741 tokens."
    assert names(sentences[0]) == ["tokens"]
    assert fill(["{free:GiB}"], {"free": Interval.of(46_895 * 2**30 // 1000, 46_905 * 2**30 // 1000, "bytes")}) == "46.90 GiB"


def test_every_real_log_that_is_calm_raises_no_warning_and_those_that_retract_say_how_often():
    expected = {"0.4.6-llama-gqa-flood-retract": 10}
    for case in sorted(REAL.iterdir()):
        if "fail" in case.name:
            continue
        for start in kvdiag.explain(str(case / "server.log"), config=str(case)).starts:
            raised = codes(start, "warning", "error")
            if case.name in expected:
                said = next(finding for finding in start.findings if finding.code == "KV501")
                assert f"{expected[case.name]} retractions" in said.title
            else:
                capped = start.limits.max_total_num_tokens < start.start.first("context_len").value
                assert set(raised) <= ({"KV301"} if capped else set()), (case.name, raised)


@pytest.mark.shared
def test_every_shared_real_log_is_calm_or_retracts_as_often_as_its_readme_counts():
    expected = {"0.4.6/llama-gqa-flood-retract": 10, "0.5.3/llama-gqa-flood-retract": 8}
    for log in sorted((SHARED / "real-logs").glob("*/*/server.log")):
        name = f"{log.parent.parent.name}/{log.parent.name}"
        if "fail" in name or name.endswith(("eagle-start", "mla-bigpool")):
            continue
        for start in kvdiag.explain(str(log), config=str(log.parent)).starts:
            said = [finding.title for finding in start.findings if finding.code == "KV501"]
            assert [title.split()[0] for title in said] == ([str(expected[name])] if name in expected else []), name
            allowed = {"KV301", "KV302", "KV501", "KV502", "KV503", "KV504", "KV510", "KV523", "KV021"}
            assert set(codes(start, "warning", "error")) <= allowed, (name, codes(start, "warning", "error"))


@pytest.mark.parametrize("case", sorted(REAL.iterdir()) + sorted(SCENARIOS.iterdir()), ids=lambda path: path.name)
def test_the_parts_of_a_rank_s_memory_add_up_to_what_was_free_before_loading(case):
    for start in kvdiag.explain(str(case / "server.log")).starts:
        for ledger in start.memory:
            total = Interval.of(0, unit="bytes")
            for part in ledger.parts:
                total = total + part.interval
            assert total.low <= ledger.total.low
            assert ledger.total.high <= total.high


@pytest.mark.parametrize(("log", "above", "tokens"), [("0.88", 0.85, 116_171), ("0.85", 0.88, 159_277)])
def test_scenario_3_each_log_explains_the_other_s_capacity_and_names_the_beliefs(log, above, tokens):
    from fractions import Fraction

    from kvdiag.checks.levers import with_fraction

    start = kvdiag.explain(str(SCENARIOS / f"kimi-k2.5-f{log}" / "server.log")).starts[0]
    lever = with_fraction(start.facts, Fraction(str(above)))
    assert lever is not None
    assert tokens in lever.tokens
    assert lever.tokens.high - lever.tokens.low <= 20
    assert {"KV201", "KV202", "KV203", "KV204"} <= set(codes(start))


def test_an_advice_with_a_gain_leaves_the_head_room_it_promises():
    start = kvdiag.explain(str(SCENARIOS / "kimi-k2.5-f0.85" / "server.log")).starts[0]
    gain = next(finding.gain for finding in start.findings if finding.code == "KV306")
    assert gain["headroom_left"]["low"] >= 5 * 2**30
    assert gain["max_total_num_tokens"]["low"] > gain["max_total_num_tokens_now"] == 116_171


def test_no_start_is_told_to_turn_the_fraction_both_ways():
    for document in documents().values():
        for sample in document["raises"]:
            from kvdiag.checks.samples import findings_in

            advice = [f.advice for f in findings_in(sample["log"], sample.get("model"), sample.get("release"))]
            ways = {way for text in advice for way in ("Raise --mem-fraction", "Lower --mem-fraction") if text.startswith(way)}
            assert len(ways) <= 1, (document["code"], advice)


def test_a_capacity_that_only_usage_tells_is_an_interval():
    from kvdiag.checks.samples import findings_in

    line = (
        "[2026-09-02 16:06:0{}] Decode batch, #running-req: 66, #token: {}, token usage: {}, cuda graph: False, "
        "gen throughput (token/s): 2622.21, #queue-req: 10"
    )
    text = "\n".join([line.format(5, 82002, "0.94"), line.format(7, 87282, "1.00"), line.format(8, 87001, "0.99")])
    found = next(finding for finding in findings_in(text) if finding.code == "KV510")
    assert "87,438 to 87,703" in found.message
