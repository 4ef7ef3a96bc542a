"""The commands of the gate as a pipeline uses them: files, exit codes, options, and messages that say what to do."""

from __future__ import annotations

import datetime
import json
import re
import subprocess
from pathlib import Path

import pytest

from kvdiag.cli.main import main
from kvdiag.errors import BaselineError, PolicyError
from kvdiag.gate import check, observe, write_baseline
from kvdiag.gate.baseline import parse_baseline
from kvdiag.gate.policy import parse_policy
from tests.gate_logs import LOGS, baseline, edited, edits

KIMI = LOGS["kimi"]
LOWER = KIMI.parent.parent / "kimi-k2.5-f0.85" / "server.log"


@pytest.fixture
def kimi_baseline(tmp_path: Path) -> str:
    path = tmp_path / "baseline.json"
    path.write_text(write_baseline(baseline("kimi")), encoding="utf-8")
    return str(path)


@pytest.fixture
def cli(capfd: pytest.CaptureFixture[str]):
    """Runs the command line in this process."""

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        with pytest.raises(SystemExit) as end:
            main(list(arguments))
        captured = capfd.readouterr()
        return subprocess.CompletedProcess(arguments, int(end.value.code or 0), captured.out, captured.err)

    return run


def test_the_same_log_gives_the_same_bytes(kvdiag, tmp_path):
    first = kvdiag("baseline", str(KIMI)).stdout
    assert kvdiag("baseline", str(KIMI), "-o", str(tmp_path / "b.json")).returncode == 0
    assert (tmp_path / "b.json").read_text(encoding="utf-8") == first
    assert write_baseline(parse_baseline(first, "b.json")) == first


def test_the_order_of_ranks_is_not_in_the_baseline(tmp_path):
    lines = KIMI.read_text(encoding="utf-8").splitlines(keepends=True)
    blocks = re.compile(r"TP\d\] (Load weight (?:begin|end)|KV Cache|Memory pool end|Init torch distributed (?:begin|ends))")
    kinds = {found[1] for line in lines if (found := blocks.search(line))}
    for kind in kinds:
        places = [n for n, line in enumerate(lines) if (found := blocks.search(line)) and found[1] == kind]
        for place, line in zip(places, [lines[n] for n in reversed(places)], strict=True):
            lines[place] = line
    path = tmp_path / "server.log"
    path.write_text("".join(lines), encoding="utf-8")
    assert write_baseline(observe(str(path)).snapshot) == write_baseline(baseline("kimi"))


def test_check_fails_on_drift_and_says_why(cli, kimi_baseline):
    done = cli("check", str(LOWER), "--baseline", kimi_baseline)
    assert done.returncode == 1
    assert "159,277 tokens -> 116,171 tokens" in done.stdout
    assert "-43,106 tokens by mem_fraction_static" in done.stdout
    assert cli("check", str(KIMI), "--baseline", kimi_baseline).returncode == 0
    assert cli("check", str(LOWER), "--baseline", kimi_baseline, "--exit-zero").returncode == 0


def test_check_without_a_baseline_holds_the_log_against_the_arithmetic(cli, tmp_path):
    assert cli("check", str(KIMI)).returncode == 0
    text = KIMI.read_text(encoding="utf-8").replace("mem_fraction_static=0.88", "mem_fraction_static=0.7")
    (tmp_path / "server.log").write_text(text, encoding="utf-8")
    done = cli("check", str(tmp_path / "server.log"), "--format", "json")
    assert done.returncode == 1
    assert {drift["code"] for drift in json.loads(done.stdout)["drifts"]} >= {"KD131"}


def test_levels_and_codes_choose_what_fails(cli, tmp_path, kimi_baseline):
    more = next(edit for edit in edits("planted.toml", "drift") if edit["code"] == "KD142" and edit["log"] == "kimi")
    log = tmp_path / "server.log"
    log.write_text(edited(more), encoding="utf-8")
    assert cli("check", str(log), "--baseline", kimi_baseline).returncode == 0
    assert cli("check", str(log), "--baseline", kimi_baseline, "--fail-on", "warning").returncode == 1
    assert cli("check", str(LOWER), "--baseline", kimi_baseline, "--ignore", "KD121,KD101").returncode == 0
    assert cli("check", str(LOWER), "--baseline", kimi_baseline, "--select", "kd12").returncode == 1
    wrong = cli("check", str(LOWER), "--baseline", kimi_baseline, "--select", "E501")
    assert wrong.returncode == 2
    assert "E501" in wrong.stderr


def test_update_rewrites_the_baseline_and_prints_what_it_accepted(cli, kimi_baseline):
    done = cli("check", str(LOWER), "--baseline", kimi_baseline, "--update")
    assert done.returncode == 0
    assert "accepted KD121 mem_fraction_static 0.88 -> 0.85" in done.stderr
    again = cli("check", str(LOWER), "--baseline", kimi_baseline)
    assert (again.returncode, again.stdout) == (0, "passed: no drift\n")


def test_unusable_inputs_are_named(cli, tmp_path, kimi_baseline):
    absent = cli("check", str(KIMI), "--baseline", str(tmp_path / "none.json"))
    assert absent.returncode == 2
    assert "kvdiag baseline LOG" in absent.stderr
    (tmp_path / "other.log").write_text("hello\n", encoding="utf-8")
    assert cli("check", str(tmp_path / "other.log"), "--baseline", kimi_baseline).returncode == 3
    assert cli("check", str(KIMI), "--update").returncode == 2


def test_a_log_can_come_from_standard_input(kvdiag, kimi_baseline):
    assert kvdiag("check", "-", "--baseline", kimi_baseline, stdin=KIMI.read_bytes()).returncode == 0


@pytest.mark.parametrize(
    "text",
    [
        "", "{", "[]", "null", "{}", '{"schema": "kvdiag.explain/1"}', '{"schema": "kvdiag.baseline/1"}', "[" * 100_000,
        '{"schema": "kvdiag.baseline/1", "x": 1e999999999}', '{"schema": "kvdiag.baseline/1", "x": NaN}', "\ud800",
        '{"schema": "kvdiag.baseline/1", "release": 3, "model": {}, "arguments": [], "numbers": 7}',
        '{"schema": 1' + "0" * 5000 + "}",
    ],
    ids=range(13),
)  # fmt: skip
def test_a_broken_baseline_is_refused_with_its_place(text: str):
    with pytest.raises(BaselineError, match=r"base\.json"):
        parse_baseline(text, "base.json")


def test_numbers_of_a_baseline_are_read_back_exactly():
    for log, path in LOGS.items():
        kept = {(n.name, n.role, n.ranks): n.value for n in baseline(log).numbers}
        assert kept == {(n.name, n.role, n.ranks): n.value for n in observe(str(path)).snapshot.numbers}


def outcome(policy: str, today: str = "2026-12-01", log: Path = LOWER):
    day = datetime.date.fromisoformat(today)
    return check(observe(str(log)), baseline("kimi"), parse_policy(policy, "policy.toml"), today=day)


def subjects(result) -> set[tuple[str, str, str]]:
    return {(d.code, d.subject, d.level) for d in result.drifts}


def test_a_policy_allows_changes_by_size_and_direction():
    drift = ("KD101", "max_total_num_tokens", "error")
    for allowed in ("{ relative = 0.271 }", "{ absolute = 43106 }", '{ direction = "up" }', '"any"'):
        assert drift not in subjects(outcome(f"[numbers]\nmax_total_num_tokens = {allowed}\n"))
    for forbidden in ("{ relative = 0.27 }", "{ absolute = 43105 }", '{ direction = "down" }', '"exact"', '"default"'):
        assert drift in subjects(outcome(f"[numbers]\nmax_total_num_tokens = {forbidden}\n"))


def test_exact_fails_even_on_noise(tmp_path):
    path = tmp_path / "server.log"
    path.write_text(KIMI.read_text(encoding="utf-8").replace("159277", "159260"), encoding="utf-8")
    assert not outcome("", log=path).failed
    assert ("KD101", "max_total_num_tokens", "error") in subjects(
        outcome('[numbers]\nmax_total_num_tokens = "exact"\n', log=path)
    )


def test_a_policy_requires_arguments_and_checks():
    arguments = "[arguments]\nrequired = { mem_fraction_static = 0.88, disable_radix_cache = false }\n"
    found = subjects(outcome(f'{arguments}[checks]\nrequired = ["swa_max_total_num_tokens"]\n'))
    assert ("KD125", "mem_fraction_static", "error") in found
    assert ("KD132", "swa_max_total_num_tokens", "error") in found
    assert not any(subject == "disable_radix_cache" for _, subject, _ in found)


def test_a_policy_ignores_arguments_and_sets_levels():
    found = subjects(outcome('[arguments]\nignore = ["mem_fraction_static"]\n[levels]\nKD101 = "warning"\nKD107 = "off"\n'))
    assert ("KD101", "max_total_num_tokens", "warning") in found
    assert not any(code in ("KD121", "KD107") for code, _, _ in found)


def test_lines_of_a_fork_can_be_accepted(tmp_path):
    path = tmp_path / "server.log"
    fork = next(edit for edit in edits("planted.toml", "drift") if "Our fork" in edit["put"])
    path.write_text(edited(fork), encoding="utf-8")
    assert outcome("", log=path).drifts
    assert not outcome('[lines]\naccept = ["Our fork *"]\n', log=path).drifts
    assert outcome("[lines]\nunknown_budget = 0\n", log=path).failed
    assert not outcome('[lines]\naccept = ["Our fork *"]\nunknown_budget = 0\n', log=path).failed


SUPPRESSED = """
[[suppress]]
code = "KD121"
reason = "trying 0.85"
until = 2026-12-31

[[suppress]]
code = "KD101"
reason = "same"
until = 2026-12-31
"""


def test_a_suppression_holds_until_its_last_day_and_is_an_error_after_it():
    during = outcome(SUPPRESSED, "2026-12-31")
    assert not during.failed
    assert {d.suppressed for d in during.suppressed} == {"trying 0.85 (until 2026-12-31)", "same (until 2026-12-31)"}
    after = outcome(SUPPRESSED, "2027-01-01")
    assert {("KD191", "KD121", "error"), ("KD121", "mem_fraction_static", "error")} <= subjects(after)


@pytest.mark.parametrize(
    ("text", "place", "word"),
    [
        ("[numbers\n", "1:9", "TOML"),
        ('[numbers]\nbytes_per_token = "exactly"\n', "2:1", "exact"),
        ("[numbers]\nx = { relativ = 1 }\n", "2:7", "relative"),
        ("[numbers]\nx = { relative = -1 }\n", "2:7", "negative"),
        ('[numbers]\nx = { direction = "left" }\n', "2:7", "up or down"),
        ("[lines]\nunknown_budget = true\n", "2:1", "whole number"),
        ("\n[line]\naccept = []\n", "2:1", "there are checks"),
        ('[findings]\n  allow = ["KV1"]\n', "2:3", "allowed"),
        ('[levels]\nKD999 = "error"\n', "2:1", "KD999"),
        ('[levels]\nKD101 = "fatal"\n', "2:1", "note, warning"),
        ('[release]\nallowed = "newest"\n', "2:1", "release"),
        ('[[suppress]]\ncode = "KD101"\nuntil = 2027-01-01\n', "2:9", "reason"),
        ('[[suppress]]\ncode = "KD101"\nreason = "x"\nuntil = "soon"\n', "4:1", "end date"),
        ('[[suppress]]\ncode = "KD1"\nreason = "x"\nuntil = 2027-01-01\n', "2:1", "diagnostic"),
        ("suppress = 3\n", "1:1", "tables"),
    ],
)  # fmt: skip
def test_a_mistake_in_a_policy_is_told_with_line_and_column(text: str, place: str, word: str):
    with pytest.raises(PolicyError) as told:
        parse_policy(text, "policy.toml")
    assert f"policy.toml:{place}: " in str(told.value)
    assert word in str(told.value)


def test_several_starts_in_one_log_give_the_baseline_of_the_last(cli, tmp_path):
    both = tmp_path / "both.log"
    both.write_text(
        KIMI.read_text(encoding="utf-8") + LOWER.read_text(encoding="utf-8").replace("2026-03-02", "2026-03-03"), encoding="utf-8"
    )
    done = cli("baseline", str(both))
    assert "2 starts" in done.stderr
    assert '"low": 116171' in done.stdout
    assert '"low": 159277' not in done.stdout
