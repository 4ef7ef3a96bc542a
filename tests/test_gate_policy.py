"""What a policy may say of findings and releases, and files that are no policy or no baseline."""

from __future__ import annotations

import json

import pytest

from kvdiag.errors import BaselineError, PolicyError
from kvdiag.frozen import replace
from kvdiag.gate import check, observe, write_baseline
from kvdiag.gate.baseline import parse_baseline, read_baseline
from kvdiag.gate.policy import parse_policy, read_policy
from tests.gate_logs import LOGS, baseline

KIMI = observe(str(LOGS["kimi"]))
DEMANDED = [finding.code for finding in KIMI.start.findings]


def codes_of(policy: str, before=None) -> set[tuple[str, str, str]]:
    drifts = check(KIMI, before, parse_policy(policy, "policy.toml")).drifts
    return {(drift.code, drift.subject, drift.level) for drift in drifts}


def test_a_forbidden_finding_fails_whatever_the_baseline_says():
    assert codes_of("", baseline("kimi")) == set()
    found = codes_of('[findings]\nforbidden = ["KV30", "KV107"]\n', baseline("kimi"))
    assert found == {("KD134", code, "error") for code in DEMANDED if code.startswith(("KV30", "KV107"))}
    assert len(found) >= 2


def test_without_a_baseline_findings_are_told_and_an_allowed_one_is_not():
    told = {subject for code, subject, _ in codes_of("") if code == "KD134"}
    assert told == set(DEMANDED)
    allowed = {subject for code, subject, _ in codes_of('[findings]\nallowed = ["KV2"]\n') if code == "KD134"}
    assert allowed == {code for code in DEMANDED if not code.startswith("KV2")} != told


@pytest.mark.parametrize(
    ("allowed", "told"),
    [('"any"', False), ('"0.5.9"', False), ('"0.5.8..0.5.9"', False), ('"0.5.8"', True), ('"0.5.10.."', True)],
)
def test_a_change_of_release_within_what_is_allowed_is_no_drift(allowed, told):
    before = replace(baseline("kimi"), release=("0.5.8", "0.5.8"))
    assert any(code == "KD123" for code, *_ in codes_of("", before))
    assert any(code == "KD123" for code, *_ in codes_of(f"[release]\nallowed = {allowed}\n", before)) is told


def test_a_size_allows_no_change_of_a_number_that_became_text():
    numbers = tuple(
        replace(number, value="many") if number.name == "max_total_num_tokens" else number for number in baseline("kimi").numbers
    )
    before = replace(baseline("kimi"), numbers=numbers)
    drift = ("KD101", "max_total_num_tokens", "error")
    assert drift in codes_of("", before)
    assert drift in codes_of("[numbers]\nmax_total_num_tokens = { relative = 9 }\n", before)


@pytest.mark.parametrize(
    ("text", "place", "word"),
    [
        ('[release]\nallowed = "0.9.9.."\n', "2:1", "0.9.9.."),
        ("suppress = [3]\n", "1:1", "must be tables"),
        ('[[suppress]]\ncode = "KD101"\nwhy = "x"\n', "3:1", "there are code, subject, reason, until"),
        ("[numbers]\nbytes_per_token = 3\n", "2:1", "a word or a table"),
        ('["release"]\nallowed = "newest"\n', "1:1", "release"),
        ("[lines]\naccept = [1]\n", "2:1", "texts only"),
        ("[lines]\nunknown_budget = -1\n", "2:1", "negative"),
        ("[lines]\naccept = [", "1:8", "TOML"),
        ("x = " + "[" * 20_000 + "]" * 20_000, "1:1", "TOML"),
    ],
    ids=["release", "suppress", "key", "number", "quoted", "text", "budget", "end", "deep"],
)
def test_a_mistake_in_a_policy_is_told_with_its_place(text, place, word):
    with pytest.raises(PolicyError) as told:
        parse_policy(text, "policy.toml")
    assert word in str(told.value)
    assert str(told.value).startswith(f"policy.toml:{place}: ") or word == "TOML"


def test_a_file_that_is_no_policy_is_refused_by_its_path(tmp_path):
    (tmp_path / "latin.toml").write_bytes(b"[lines]\naccept = ['\xe9']\n")
    for path, word in (
        (tmp_path / "none.toml", "no such file"),
        (tmp_path, "this is a folder"),
        (tmp_path / "latin.toml", "not UTF-8 text"),
    ):
        with pytest.raises(PolicyError, match=word) as told:
            read_policy(str(path))
        assert str(path) in str(told.value)


def test_a_file_that_is_no_baseline_is_refused_by_its_path(tmp_path):
    (tmp_path / "latin.json").write_bytes(b'{"schema": "\xe9"}')
    with open(tmp_path / "large.json", "wb") as file:
        file.truncate(1 << 28)
    told = {"latin.json": "not UTF-8 text", "large.json": "larger than", "none.json": "no such file", "": "this is a folder"}
    for name, word in told.items():
        with pytest.raises(BaselineError, match=word):
            read_baseline(str(tmp_path / name))


@pytest.mark.parametrize(
    ("change", "word"),
    [
        (lambda data: data["checks"][0].update(verdict="fine"), "none of agree, disagree, unknown"),
        (lambda data: next(number for number in data["numbers"] if "low" in number).update(low=True), "True is no number"),
        (lambda data: next(number for number in data["numbers"] if "low" in number).update(low="1"), "'1' is no number"),
        (lambda data: data.pop("numbers"), "the key 'numbers' is missing"),
    ],
    ids=["verdict", "truth", "text", "key"],
)
def test_a_baseline_with_a_value_of_another_kind_is_refused(change, word):
    data = json.loads(write_baseline(baseline("kimi")))
    change(data)
    with pytest.raises(BaselineError, match=word):
        parse_baseline(json.dumps(data), "b.json")
