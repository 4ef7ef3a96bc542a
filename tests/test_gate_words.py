"""How the gate tells values: what the digits say and no more, with the line a number stands in."""

from __future__ import annotations

import json
import re

import pytest

from kvdiag.cli.main import main
from kvdiag.gate import check, observe
from kvdiag.gate.facts import compare_facts
from kvdiag.gate.numbers import compare_numbers
from kvdiag.gate.words import amount, change_of
from kvdiag.pipeline import explain
from kvdiag.quantity import GIB, Interval, figure_of, printed_interval
from kvdiag.quantity.ends import apart
from kvdiag.reports.line_numbers import line_numbers
from tests.conftest import FIXTURES
from tests.gate_logs import LOGS, baseline


@pytest.mark.parametrize(
    ("printed", "told"),
    [("0.00", "under 5.2 MiB"), ("-0.00", "0.00 GiB"), ("0.01", "0.01 GiB"), ("10.42", "10.42 GiB"), ("0.34", "0.34 GiB")],
)
def test_a_printed_figure_is_told_as_it_was_printed_and_never_as_the_middle_of_what_it_may_be(printed, told):
    assert amount(printed_interval(printed, "GiB")) == told


def test_pools_of_two_figures_that_print_as_nothing_are_under_their_sum():
    nothing = printed_interval("0.00", "GiB")
    assert amount(nothing + nothing) == "under 0.01 GiB"


@pytest.mark.parametrize(("printed", "figure"), [("0.00", 0), ("-0.00", 0), ("0.50", GIB / 2), ("-0.50", -GIB / 2)])
def test_the_figure_of_a_printed_number_is_what_was_printed(printed, figure):
    assert figure_of(printed_interval(printed, "GiB")) == figure


def test_the_json_of_a_printed_nothing_is_nothing_with_its_interval(capfd):
    with pytest.raises(SystemExit):
        main(["explain", str(LOGS["flood"]), "--format", "json"])
    numbers = json.loads(capfd.readouterr().out)["starts"][0]["numbers"]
    pool = next(number for number in numbers if number["name"] == "kv_pool_bytes")
    assert (pool["value"], pool["low"]) == (0, 0)
    assert pool["high"] > 0


def test_values_that_cannot_both_be_true_are_told_so_that_they_differ():
    a, b = (Interval.of(int(value * GIB), unit="bytes") for value in (10.4241, 10.4238))
    assert apart(a, b) == ("10.4241 GiB", "10.4238 GiB")
    assert apart(printed_interval("10.42", "GiB"), Interval.of(11_103_046_272, unit="bytes")) == (
        "10.415..10.425 GiB",
        "10.341 GiB",
    )
    assert apart(Interval.of(5, unit="tokens"), Interval.of(6, 9, "tokens")) == ("5 tokens", "6..9 tokens")


@pytest.fixture
def contradicted(tmp_path):
    path = tmp_path / "server.log"
    path.write_text(
        LOGS["kimi"].read_text(encoding="utf-8").replace("max_total_num_tokens=159277", "max_total_num_tokens=158000"),
        encoding="utf-8",
    )
    return observe(str(path))


@pytest.mark.parametrize("with_baseline", [True, False])
def test_a_contradiction_has_both_values_and_the_line_of_the_number(contradicted, with_baseline):
    drifts = check(contradicted, baseline("kimi") if with_baseline else None).drifts
    found = {drift.subject: drift for drift in drifts if drift.code == "KD131"}
    capacity = found["max_total_num_tokens"]
    assert "the log has 158,000 tokens, recomputed 159,209..159,380 tokens (" in capacity.message
    assert (capacity.level, capacity.lines) == ("error", (51,))
    assert {name: (drift.level, drift.follows, drift.lines) for name, drift in found.items() if drift is not capacity} == {
        "rest_memory": ("note", "max_total_num_tokens", (51,)),
        "mem_fraction_static": ("note", "max_total_num_tokens", (1,)),
    }, "what is computed from the capacity repeats its contradiction"


def test_a_contradiction_that_repeats_no_other_is_an_error():
    from kvdiag.frozen import replace
    from kvdiag.gate.facts import disagreement

    kept = baseline("kimi")
    alone = [replace(c, verdict="disagree") if c.name == "rest_memory" else c for c in kept.checks]
    drift = disagreement(next(c for c in alone if c.name == "rest_memory"), replace(kept, checks=tuple(alone)))
    assert (drift.level, drift.follows) == ("error", "")
    assert "the log has" not in drift.message, "a verdict that comes without its values is told without"


@pytest.mark.parametrize("log", LOGS)
def test_the_first_line_of_a_check_is_the_one_its_number_stands_in(log):
    (item,) = explain([str(LOGS[log])], config=str(LOGS[log].parent) if log not in ("kimi", "l4") else None).starts
    lines = {}
    for number in item.start.numbers:
        lines.setdefault((number.name, number.rank), set()).add(number.line)
    own = {"bytes_per_token": "kv_pool_bytes", "rest_memory": "max_total_num_tokens"}
    assert item.checks
    for found in item.checks:
        if found.name == "mem_fraction_static":
            assert found.lines[0] == item.start.server_args_line
        else:
            name = found.name if (found.name, found.rank) in lines else own[found.name]
            assert found.lines[0] in lines[name, found.rank], found
        assert len(set(found.lines)) == len(found.lines)


def test_lines_that_follow_each_other_are_told_as_a_range_and_what_is_cut_is_marked():
    assert line_numbers((51, *range(18, 34))) == "51, 18 to 33"
    assert line_numbers((3, 4, 9)) == "3, 4, 9"
    assert line_numbers((3, 1, 5, 7, 9), 4) == "3, 1, 5, 7, ..."
    assert line_numbers((3, 1, 5, 7), 4) == "3, 1, 5, 7"


def test_the_text_names_the_numbers_own_line_first(capfd):
    with pytest.raises(SystemExit):
        main(["explain", str(LOGS["kimi"])])
    assert re.search(r"max_total_num_tokens \[TP0\]: [^(]*\(line 51, 18 to 33\)", capfd.readouterr().out)


def test_a_share_is_told_only_where_the_digits_tell_it_to_the_percent(tmp_path):
    (tmp_path / "server.log").write_text(
        LOGS["kimi"].read_text(encoding="utf-8").replace("mem usage=1.55", "mem usage=0.03"), encoding="utf-8"
    )
    small = observe(str(tmp_path / "server.log")).snapshot
    messages = {d.subject: d.message for d in check(observe(str(LOGS["kimi"])), small).drifts}
    assert messages["distributed_init_memory"].endswith("0.03 GiB -> 1.55 GiB")


def test_a_rank_without_a_tag_is_named_as_one():
    from kvdiag.frozen import replace

    kept = baseline("nocap")
    before = replace(kept, numbers=tuple(replace(n, ranks=("DP0", "DP1")) for n in kept.numbers))
    message = next(drift.message for drift in compare_numbers(before, kept) if drift.code == "KD111")
    assert message.endswith("no longer there: DP0, DP1; new: one without a tag")


def test_the_shares_of_a_change_come_with_what_the_printed_digits_leave(capfd):
    with pytest.raises(SystemExit) as end:
        main(["diff", str(LOGS["nocap9"]), str(LOGS["nocap"])])
    told = " ".join(capfd.readouterr().out.split())
    assert re.search(r"printed digits alone leave -[\d,]+ to -[\d,]+ tokens of change; the rest needs another cause\.", told)
    assert "error KD" in told
    assert not end.value.code, "diff tells and fails nothing"


def test_memory_that_prints_alike_has_no_more_tokens_than_its_digits_leave(tmp_path, capfd):
    text = LOGS["nocap9"].read_text(encoding="utf-8")
    changed = tmp_path / "changed.log"
    changed.write_text(
        text.replace("361059", "351059").replace("mem_fraction_static=0.05", "mem_fraction_static=0.06"), encoding="utf-8"
    )
    assert text != changed.read_text(encoding="utf-8")
    with pytest.raises(SystemExit):
        main(["diff", str(LOGS["nocap9"]), str(changed), "--format", "json"])
    terms = {term["cause"]: term["tokens"] for term in json.loads(capfd.readouterr().out)["terms"]}
    assert sum(terms.values()) == -10_000
    assert abs(terms.get("total_memory", 0)) < 0.01 * 2**30 / 3_000
    assert terms["unexplained"] < -50_000


def test_two_long_values_that_begin_alike_are_shown_where_they_part():
    old, new = list(range(4, 400, 4)), [*range(4, 200, 4), 201, *range(204, 400, 4)]
    told = change_of("cuda_graph_bs", old, new)
    first, second = told.removeprefix("cuda_graph_bs ").split(" -> ")
    assert first != second
    assert "200" in first
    assert "201" in second
    assert change_of("cuda_graph_bs", [1, 2], [1, 3]) == "cuda_graph_bs [1, 2] -> [1, 3]"


def test_a_number_that_both_logs_have_as_an_argument_is_not_called_new():
    failed = observe(str(FIXTURES / "real" / "0.5.9-fail-memfrac-tiny" / "server.log")).snapshot
    good = observe(str(LOGS["nocap9"])).snapshot
    assert failed.find("mem_fraction_static")
    for before, after in ((good, failed), (failed, good)):
        assert "mem_fraction_static" not in {drift.subject for drift in compare_numbers(before, after)}


def test_arguments_of_one_release_are_told_by_side_and_few_of_many():
    before, after = (observe(str(LOGS[name])).snapshot for name in ("nocap9", "nocap"))
    (drift,) = (drift for drift in compare_facts(before, after) if drift.code == "KD122")
    assert "the earlier: " in drift.message
    assert "the later: " in drift.message
    assert re.search(r"and \d+ more", drift.message)
    assert len(drift.message) < 800
    names = [name for side in (drift.before, drift.after) for name in side.split(", ")]
    assert drift.message.startswith(f"{len(names)} arguments")
    assert all(name in before.arguments for name in drift.before.split(", "))


def test_a_number_that_follows_an_argument_does_not_give_itself_as_the_reason(tmp_path):
    text = LOGS["nocap9"].read_text(encoding="utf-8")
    changed = tmp_path / "changed.log"
    size = re.search(r"chunked_prefill_size=(\d+)", text).group(1)
    changed.write_text(text.replace(f"chunked_prefill_size={size}", f"chunked_prefill_size={int(size) * 2}"), encoding="utf-8")
    before, after = (observe(str(log)).snapshot for log in (LOGS["nocap9"], changed))
    (drift,) = (each for each in compare_numbers(before, after) if each.subject == "chunked_prefill_size")
    assert (drift.level, drift.reason, drift.follows) == ("note", "it repeats the argument", "KD121")
