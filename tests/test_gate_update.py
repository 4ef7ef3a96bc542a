"""What the gate must not pass over in silence, and what it must not blame: updates, failed starts, slips, harmless lines."""

from __future__ import annotations

import json
import random
import re
from fractions import Fraction

import pytest

from kvdiag.cli.main import main
from kvdiag.errors import BaselineError, PolicyError
from kvdiag.gate import check, observe, write_baseline
from kvdiag.gate.baseline import parse_baseline
from kvdiag.gate.decompose import _whole
from kvdiag.gate.difference import difference
from kvdiag.gate.policy import parse_policy
from tests.conftest import FIXTURES
from tests.gate_logs import LOGS, baseline

KIMI = LOGS["kimi"]
LESS = FIXTURES / "scenarios" / "kimi-k2.5-f0.85" / "server.log"
FAILED = FIXTURES / "real" / "0.5.9-fail-memfrac-tiny" / "server.log"


@pytest.fixture
def kept(tmp_path):
    path = tmp_path / "baseline.json"
    path.write_text(write_baseline(baseline("kimi")), encoding="utf-8")
    return path


@pytest.fixture
def cli(capfd):
    def run(*arguments):
        with pytest.raises(SystemExit) as end:
            main([str(argument) for argument in arguments])
        captured = capfd.readouterr()
        return int(end.value.code or 0), captured.out, captured.err

    return run


def changed(tmp_path, *edits):
    text = KIMI.read_text(encoding="utf-8")
    for find, put in edits:
        text, count = re.subn(find, put, text, count=1)
        assert count, find
    path = tmp_path / "server.log"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("option", ["--select", "--ignore"])
def test_an_update_cannot_take_in_what_it_was_told_not_to_look_at(cli, kept, option):
    before = kept.read_bytes()
    code, _, error = cli("check", LESS, "--baseline", kept, "--update", option, "KD121")
    assert code == 2
    assert option in error
    assert kept.read_bytes() == before


def test_an_update_prints_what_a_policy_suppresses_or_allows_too(cli, kept, tmp_path):
    policy = tmp_path / "policy.toml"
    policy.write_text(
        '[numbers]\nmax_total_num_tokens = "any"\n[levels]\nKD103 = "off"\n'
        '[[suppress]]\ncode = "KD107"\nreason = "r"\nuntil = 2999-01-31\n'
    )
    code, _, error = cli("check", LESS, "--baseline", kept, "--policy", policy, "--update")
    assert code == 0
    assert {"KD101", "KD103", "KD107", "KD121"} <= set(re.findall("accepted (KD...)", error))
    assert f"{len(re.findall('^accepted', error, re.M))} changes accepted" in error
    assert cli("check", LESS, "--baseline", kept)[0] == 0


def test_a_start_that_failed_is_never_taken_for_a_good_one(cli, kept, tmp_path):
    before = kept.read_bytes()
    log = changed(tmp_path, ("(?s)\\[[^\\]]*TP0\\] max_total_num_tokens=.*", "torch.OutOfMemoryError: CUDA out of memory.\n"))
    code, _, error = cli("check", log, "--baseline", kept, "--update")
    assert code == 2
    assert "did not come up" in error
    assert kept.read_bytes() == before


def test_the_baseline_of_a_failed_start_is_written_with_a_word_and_compared_with_one(cli, tmp_path):
    code, _, error = cli("baseline", FAILED, "-o", tmp_path / "b.json")
    assert code == 0
    assert "this start failed" in error
    code, told, _ = cli("check", FAILED, "--baseline", tmp_path / "b.json")
    assert code == 0
    assert "start failed in both logs" in " ".join(told.split())


def test_the_reverse_comparison_is_the_negative_to_the_token():
    draw = random.Random(4)
    for _ in range(200):
        shares = {name: Fraction(draw.randrange(-(10**6), 10**6), draw.choice([1, 2, 3, 6])) for name in "abc"}
        total = round(sum(shares.values()))
        there = _whole(shares, total)
        back = _whole({name: -share for name, share in shares.items()}, -total)
        assert there == {name: -count for name, count in back.items()}
        assert sum(there.values()) == total


def test_what_free_memory_does_not_explain_between_releases_is_the_releases():
    a, b = (observe(str(LOGS[name])) for name in ("nocap9", "nocap"))
    found = difference(a, b)
    terms = {term.cause: term.tokens for term in found.terms}
    assert sum(terms.values()) == found.total
    assert "release" in terms
    assert abs(terms["total_memory"]) < 0.6 * abs(found.total)


def test_a_number_lost_by_one_rank_is_said_of_that_rank(tmp_path):
    log = changed(tmp_path, (r"\n\[[^\]]* TP3\] KV Cache is allocated[^\n]*", ""))
    lost = [drift for drift in check(observe(str(log)), baseline("kimi")).drifts if drift.code == "KD110"]
    assert lost
    assert {drift.ranks for drift in lost} == {("TP3",)}
    assert all("[TP3]" in drift.message for drift in lost)


READY = r"([^\n]*The server is fired up[^\n]*\n)"
AFTER = ["Request abc aborted by client", "Error in request: prompt too long"]
START = [
    "WARNING: Failed to get device capability: SM 12.x requires CUDA >= 12.9.",
    "NCCL INFO error count 0",
    "0 errors in the probe",
]


@pytest.mark.parametrize("line", AFTER)
def test_a_line_that_comes_with_requests_does_not_fail_the_check(tmp_path, line):
    log = changed(tmp_path, (READY, rf"\1[2026-03-02 10:06:40] {line}\n"))
    outcome = check(observe(str(log)), baseline("kimi"))
    assert not outcome.failed
    assert [drift.code for drift in outcome.drifts] == ["KD144"]


@pytest.mark.parametrize("line", START)
def test_a_line_that_counts_no_error_or_is_a_warning_does_not_fail_the_check(tmp_path, line):
    log = changed(tmp_path, (r"(\n\[[^\]]* TP0\] Load weight begin)", rf"\n[2026-03-02 10:00:10 TP0] {line}\1"))
    assert not check(observe(str(log)), baseline("kimi")).failed


def test_an_accident_fails_the_check_wherever_it_stands(tmp_path):
    log = changed(tmp_path, (READY, r"\1[2026-03-02 10:06:40] Scheduler hit an exception: Traceback (most recent call last):\n"))
    assert check(observe(str(log)), baseline("kimi")).failed


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ('[numbers]\nmax_totl_num_tokens = "exact"\n', "max_total_num_tokens"),
        ('[checks]\nrequired = ["bytes_per_tokn"]\n', "bytes_per_token"),
        ('[arguments]\nignore = ["mem_fraction_statik"]\n', "mem_fraction_static"),
        ("[arguments]\nrequired = { kv_cache_dtyp = 1 }\n", "kv_cache_dtype"),
        ('[findings]\nforbidden = ["KX"]\n', "kvdiag rules list"),
        ('[findings]\nallowed = ["KV999"]\n', "kvdiag rules list"),
    ],
)
def test_a_slip_in_a_name_of_a_policy_is_refused_and_not_obeyed_in_silence(text, meant):
    with pytest.raises(PolicyError, match=rf"policy:2:\d+: .*{meant}"):
        parse_policy(text)


def test_names_only_a_fork_has_are_taken():
    parse_policy('[arguments]\nignore = ["my_fork_toggle"]\n[numbers]\nour_own_pool = "any"\n[findings]\nallowed = ["KV1"]\n')


def test_a_name_that_neither_a_release_nor_the_log_has_is_noted():
    policy = parse_policy('[arguments]\nignore = ["my_fork_toggle", "tp_size"]\n[numbers]\nour_own_pool = "any"\n')
    outcome = check(observe(str(KIMI)), baseline("kimi"), policy)
    noted = {(d.subject, d.level) for d in outcome.drifts if d.code == "KD192"}
    assert noted == {("our_own_pool", "note"), ("my_fork_toggle", "note")}
    assert not outcome.failed


def test_a_name_of_a_fork_that_the_log_has_is_not_noted(tmp_path):
    log = changed(tmp_path, (r"server_args=ServerArgs\(", "server_args=ServerArgs(my_fork_toggle=3, "))
    policy = parse_policy('[arguments]\nignore = ["my_fork_toggle"]\n')
    assert "KD192" not in {drift.code for drift in check(observe(str(log)), None, policy).drifts}


def test_two_logs_from_one_standard_input_are_refused(kvdiag):
    done = kvdiag("diff", "-", "-", stdin=KIMI.read_bytes())
    assert done.returncode == 2
    assert "only one" in done.stderr


@pytest.mark.parametrize(
    "edit",
    [
        lambda text: text.replace('"numbers": [', '"numbers": [], "numbers": ['),
        lambda text: re.sub(r'"low": \d+', '"low": 1e999', text, count=1),
        lambda text: re.sub(r'"first": "[^"]*", "last": "[^"]*"', '"first": "0.5.23", "last": "0.5.3"', text),
        lambda text: re.sub(r'"first": "[^"]*"', '"first": "x"', text),
    ],
    ids=["a key twice", "a huge number", "releases the wrong way", "no release"],
)
def test_a_damaged_baseline_is_refused(kept, edit):
    text = kept.read_text(encoding="utf-8")
    assert edit(text) != text
    with pytest.raises(BaselineError, match="not a"):
        parse_baseline(edit(text), "b.json")


def test_a_baseline_without_numbers_compares_none_and_says_so(kept):
    data = json.loads(kept.read_text(encoding="utf-8")) | {"numbers": []}
    outcome = check(observe(str(KIMI)), parse_baseline(json.dumps(data), "b.json"))
    assert ("KD112", "warning") in {(drift.code, drift.level) for drift in outcome.drifts}


def test_an_update_ends_with_accepted_and_never_with_failed(cli, kept):
    code, told, _ = cli("check", LESS, "--baseline", kept, "--update")
    assert (code, told.splitlines()[-1]) == (0, "accepted into the baseline: 2 errors, 4 notes")
    assert "failed" not in told
    assert cli("check", LESS, "--baseline", kept, "--update")[1] == "passed: no drift\n"


@pytest.mark.parametrize(
    ("form", "word"), [("github", "kvdiag check accepted"), ("junit", 'failures="0"'), ("json", '"failed": false')]
)
def test_an_update_fails_in_no_format(cli, kept, form, word):
    code, told, _ = cli("check", LESS, "--baseline", kept, "--update", "--format", form)
    assert code == 0
    assert word in told
    assert "::error" not in told


def test_an_update_that_is_refused_still_says_that_the_check_failed(cli, kept, tmp_path):
    log = changed(tmp_path, ("(?s)\\[[^\\]]*TP0\\] max_total_num_tokens=.*", "torch.OutOfMemoryError: CUDA out of memory.\n"))
    code, told, _ = cli("check", log, "--baseline", kept, "--update")
    assert code == 2
    assert told.splitlines()[-1].startswith("failed: ")


@pytest.mark.parametrize("text", ["{}", '{"model_type": "x"}', "[]", "3", '{"schema": "kvdiag.explain/1"}', "", "{", "x"])
def test_what_is_no_baseline_is_never_proposed_to_be_overwritten(cli, tmp_path, text):
    """The model's config.json given in the place of the baseline must not be lost by doing as told."""
    config = tmp_path / "config.json"
    config.write_text(text, encoding="utf-8")
    code, _, error = cli("check", KIMI, "--baseline", config)
    assert code == 2
    assert "kvdiag baseline LOG -o FILE" in error
    assert f"-o {config}" not in error
    assert "None" not in error
    code, _, error = cli("check", KIMI, "--baseline", tmp_path / "new.json")
    assert f"kvdiag baseline LOG -o {tmp_path / 'new.json'}" in error


def test_a_check_without_the_config_that_the_baseline_had_says_to_give_it(cli, tmp_path):
    folder = FIXTURES / "real" / "0.5.9-qwen3-memfrac005-nocap"
    log, kept = folder / "server.log", tmp_path / "baseline.json"
    assert cli("baseline", log, "--config", folder, "-o", kept)[0] == 0
    _, told, _ = cli("check", log, "--baseline", kept)
    assert "KD132 bytes_per_token" in told
    assert "give --config PATH or --model NAME here too" in " ".join(told.split())
    assert cli("check", log, "--baseline", kept, "--config", folder)[1] == "passed: no drift\n"


def test_a_check_that_lost_another_input_says_which(tmp_path):
    log = changed(tmp_path, (r"server_args=ServerArgs\([^\n]*", "no arguments"))
    found = [drift for drift in check(observe(str(log)), baseline("kimi")).drifts if drift.code == "KD132"]
    assert found
    assert all(drift.reason for drift in found)


@pytest.mark.parametrize(
    "command", [("explain",), ("check",), ("baseline",), ("postmortem",), ("whatif", "--tp-size", "4"), ("diff", KIMI)]
)
def test_a_release_that_is_none_is_refused_with_the_nearest(cli, command):
    code, _, error = cli(command[0], KIMI, *command[1:], "--release", "9.9.9")
    assert code == 2
    assert re.search(r"SGLang 9\.9\.9 is not among the releases known here \(0\.1\.3 to .*; the nearest older one is", error)


def test_what_refuses_a_release_that_is_none(cli):
    assert cli("what", "token usage", "--release", "9.9.9")[0] == 2
