"""What the gate prints is what services read: JSON by schema, SARIF and JUnit by theirs, workflow commands escaped."""

from __future__ import annotations

import json
import re
from pathlib import Path

import jsonschema
import pytest
import xmlschema

from kvdiag.cli.schema import FOLDER
from kvdiag.gate import check, observe
from kvdiag.gate.baseline import to_dict
from kvdiag.gate.difference import difference
from kvdiag.gate.model import Drift, Outcome
from kvdiag.gate.policy import parse_policy
from kvdiag.reports import diff_report, gate_json, gate_text, github, json_report, junit, sarif
from tests.conftest import ROOT
from tests.gate_logs import LOGS, baseline

DATA = ROOT / "tests" / "data"
OTHER = LOGS["kimi"].parent.parent / "kimi-k2.5-f0.85" / "server.log"
PAIRS = [
    ("kimi", OTHER),
    ("kimi", LOGS["l4"]),
    ("l4", LOGS["kimi"]),
    ("tp2", LOGS["swa"]),
    ("nocap9", LOGS["nocap"]),
    ("eagle", LOGS["flood"]),
]
HOSTILE = "100% bad,\r\n::error file=x::\x1b[31m]]><script>&\x00\u202e"


def schema(name: str) -> dict:
    return json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))


def valid(name: str, document: object) -> None:
    jsonschema.validate(document, schema(name), cls=jsonschema.Draft202012Validator)


@pytest.fixture(scope="module", params=PAIRS, ids=lambda pair: f"{pair[0]}-{pair[1].parent.name}")
def outcome(request: pytest.FixtureRequest) -> Outcome:
    log, other = request.param
    return check(observe(str(other)), baseline(log))


@pytest.fixture(scope="module")
def hostile() -> Outcome:
    drifts = [
        Drift("KD144", level, HOSTILE, HOSTILE, HOSTILE, None, HOSTILE, lines=(3, 5)) for level in ("error", "warning", "note")
    ]
    suppressed = [Drift("KD101", "error", HOSTILE, HOSTILE, suppressed=HOSTILE)]
    return Outcome(HOSTILE, drifts, [], suppressed, failed=True)


def test_json_of_check_follows_its_schema(outcome: Outcome):
    document = json.loads(gate_json.render(outcome, "baseline.json", None))
    valid("check", document)
    assert document["failed"] is True
    assert sum(document["counts"].values()) == len(document["drifts"])


@pytest.fixture(scope="module")
def official_sarif() -> jsonschema.Draft7Validator:
    return jsonschema.Draft7Validator(json.loads((DATA / "sarif-2.1.0-rtm.5.json").read_text(encoding="utf-8")))


@pytest.fixture(scope="module")
def junit_schema() -> xmlschema.XMLSchema:
    return xmlschema.XMLSchema(str(DATA / "junit.xsd"))


def test_sarif_is_valid_by_the_official_schema(outcome: Outcome, hostile: Outcome, official_sarif):
    official_sarif.validate(json.loads(sarif.render(hostile)))
    document = json.loads(sarif.render(outcome))
    official_sarif.validate(document)
    run = document["runs"][0]
    rules = [rule["id"] for rule in run["tool"]["driver"]["rules"]]
    assert all(rules[result["ruleIndex"]] == result["ruleId"] for result in run["results"])
    assert all(result["locations"][0]["physicalLocation"]["region"]["startLine"] >= 1 for result in run["results"])


def test_junit_is_valid_and_counts_its_failures(outcome: Outcome, hostile: Outcome, junit_schema):
    for each in (outcome, hostile):
        document = junit_schema.to_dict(junit.render(each))
        cases = document["testsuite"][0]["testcase"]
        assert int(document["@failures"]) == sum("failure" in entry for entry in cases) > 0


def test_workflow_commands_are_one_line_each_and_escaped(hostile: Outcome):
    lines = github.render(hostile).splitlines()
    assert [line.split(" ", 1)[0] for line in lines] == ["::error", "::warning", "::notice", "kvdiag"]
    place, message = lines[0].removeprefix("::error ").split("::", 1)
    assert place.count(",") == 2
    assert "%2C" in place
    assert "%25" in message
    assert "\x1b" not in lines[0]


def test_text_holds_no_control_characters(hostile: Outcome):
    text = gate_text.render(hostile, width=100, colour=False)
    assert all(character == "\n" or character >= " " for character in text)


@pytest.mark.parametrize("log", LOGS)
def test_baselines_follow_their_schema_and_hold_no_time_host_path_or_process(log: str):
    document = json.loads(json.dumps(to_dict(observe(str(LOGS[log])).snapshot)))
    valid("baseline", document)
    text = json.dumps(document)
    for absent in ("2026-", "127.0.0.1", "/models", "/site-packages", "31059", "22:4"):
        assert absent not in text


@pytest.mark.parametrize("log", LOGS)
def test_json_of_explain_follows_its_schema(log: str):
    valid("explain", json_report.to_dict(observe(str(LOGS[log])).diagnosis))


@pytest.mark.parametrize(("log", "other"), PAIRS, ids=lambda value: value if isinstance(value, str) else value.parent.name)
def test_json_of_diff_follows_its_schema_and_its_terms_add_up(log: str, other: Path):
    found = difference(observe(str(LOGS[log])), observe(str(other)))
    document = json.loads(diff_report.render(found))
    valid("diff", document)
    assert sum(term["tokens"] for term in document["terms"]) == document["total_tokens"]
    assert document["total_tokens"] == document["b"]["max_total_num_tokens"] - document["a"]["max_total_num_tokens"]
    assert diff_report.render_text(found, width=100, colour=False)


def test_the_code_of_a_cause_is_shown_where_a_tree_is_given(kvdiag):
    tree = ROOT / "tests" / "data" / "tree"
    done = kvdiag("diff", str(LOGS["kimi"]), str(OTHER), "--source", str(tree), "--format", "json")
    document = json.loads(done.stdout)
    valid("diff", document)
    (place, *_) = document["terms"][0]["code"]
    assert "mem_fraction_static" in place["expression"]
    assert (tree / place["file"]).read_text(encoding="utf-8").splitlines()[place["line"] - 1]
    assert place["file"] in kvdiag("diff", str(LOGS["kimi"]), str(OTHER), "--source", str(tree)).stdout


@pytest.mark.parametrize(
    "asked", [(), ("max_total_num_tokens",), ("--line", "KV Cache is allocated. #tokens: 9, KV size: 0.01 GB")]
)
def test_json_of_source_follows_its_schema(asked: tuple[str, ...], kvdiag):
    done = kvdiag("source", str(ROOT / "tests" / "data" / "tree"), *asked, "--format", "json")
    valid("source", json.loads(done.stdout))


@pytest.mark.parametrize("log", ["kimi", "tp2", "flood"])
def test_json_of_postmortem_follows_its_schema(log: str, kvdiag):
    valid("postmortem", json.loads(kvdiag("postmortem", str(LOGS[log]), "--format", "json").stdout))


def test_the_policy_of_the_documentation_follows_its_schema():
    import tomllib

    text = (ROOT / "fixtures" / "gate" / "policy.toml").read_text(encoding="utf-8")
    valid("policy", tomllib.loads(text))
    parse_policy(text)


def test_every_schema_is_one_and_is_printed(kvdiag):
    listed = kvdiag("schema").stdout.split()
    outputs = {"check", "diff", "explain", "postmortem", "size", "source", "whatif", "timeline", "fleet"}
    assert outputs | {"baseline", "policy"} == set(listed)
    for name in listed:
        jsonschema.Draft202012Validator.check_schema(schema(name))
    assert json.loads(kvdiag("schema", "check").stdout) == schema("check")


def test_json_of_whatif_follows_its_schema(kvdiag):
    done = kvdiag("whatif", str(LOGS["kimi"]), "--mem-fraction-static", "0.85", "--format", "json")
    valid("whatif", json.loads(done.stdout))


def test_lines_of_a_timeline_and_rows_of_a_fleet_follow_their_schemas(kvdiag, tmp_path: Path):
    import pyarrow.parquet as pq

    for log in ("flood", "swa"):
        assert kvdiag("timeline", str(LOGS[log]), "-o", str(tmp_path / "rows.json")).returncode == 0
        for line in (tmp_path / "rows.json").read_text(encoding="ascii").splitlines():
            valid("timeline", json.loads(line))
    (tmp_path / "empty.log").write_text("")
    done = kvdiag("fleet", str(LOGS["flood"]), str(tmp_path / "empty.log"), "-o", str(tmp_path / "out"))
    assert done.returncode == 0
    for row in pq.read_table(tmp_path / "out" / "servers.parquet").to_pylist():
        valid("fleet", row)


def test_the_schema_of_a_timeline_has_every_column_there_can_be():
    from kvdiag.rows.piece import kinds

    assert set(schema("timeline")["properties"]) == set(kinds())


def test_json_of_size_follows_its_schema(kvdiag):
    asked = ("--model", "Qwen/Qwen3-8B", "--release", "0.5.9", "--avail", "60", "--total", "78")
    valid("size", json.loads(kvdiag("size", *asked, "--format", "json").stdout))


def test_a_difference_names_its_logs_and_says_where_codes_are_explained(kvdiag):
    told = kvdiag("diff", str(LOGS["kimi"]), str(LOGS["l4"])).stdout
    assert "A line " in told
    assert "B line " in told
    assert "baseline" not in told
    code = re.search(r"what a code means: kvdiag rules show (KD\d+)", told).group(1)
    assert kvdiag("rules", "show", code).stdout.startswith(f"# {code}")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_names_every_command(shell: str, kvdiag):
    from kvdiag.cli.main import COMMANDS

    script = kvdiag("completion", shell).stdout
    assert all(command in script for command in COMMANDS)
