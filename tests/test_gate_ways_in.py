"""The ways into pipelines, run as the services run them: action, GitLab job, pre-commit hook, pytest fixture."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from kvdiag.gate import write_baseline
from tests.conftest import ROOT
from tests.gate_logs import LOGS, baseline

LOWER = LOGS["kimi"].parent.parent / "kimi-k2.5-f0.85" / "server.log"


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A repository with a baseline, the log it is of, a log that drifted, and kvdiag on the path."""
    (tmp_path / "bin").mkdir()
    shim = tmp_path / "bin" / "kvdiag"
    shim.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m kvdiag "$@"\n', encoding="utf-8")
    shim.chmod(0o755)
    (tmp_path / "baseline.json").write_text(write_baseline(baseline("kimi")), encoding="utf-8")
    (tmp_path / "same.log").write_bytes(LOGS["kimi"].read_bytes())
    (tmp_path / "drifted server.log").write_bytes(LOWER.read_bytes())
    return tmp_path


def bash(script: str, workspace: Path, variables: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Runs a step's script as runners do: the whole text, stopping at the first command that fails."""
    environment = {
        **os.environ, "PATH": f"{workspace / 'bin'}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": str(ROOT),
        "XDG_CACHE_HOME": str(workspace / "cache"), **variables,
    }  # fmt: skip
    command = ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", "-c", script]
    return subprocess.run(command, cwd=workspace, env=environment, capture_output=True, text=True, timeout=60)


def action(inputs: dict[str, str], workspace: Path) -> list[subprocess.CompletedProcess[str]]:
    """Runs the steps of action.yml with these inputs, the defaults for the rest; a failed step ends the job."""
    document = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
    given = {name: inputs.get(name, str(entry.get("default", ""))) for name, entry in document["inputs"].items()}
    assert set(inputs) <= set(document["inputs"])
    done = []
    for step in document["runs"]["steps"]:
        condition = re.fullmatch(r"inputs\.([\w-]+) == '(\w+)'", step.get("if", ""))
        if condition and given[condition[1]] != condition[2]:
            continue
        variables = {
            name: re.sub(r"\$\{\{ inputs\.([\w-]+) \}\}", lambda found: given[found[1]], value)
            for name, value in step.get("env", {}).items()
        }
        assert step["shell"] == "bash"
        assert "${{" not in step["run"], "an input put into a script's text could run as a command"
        done.append(bash(step["run"], workspace, variables))
        if done[-1].returncode:
            break
    return done


def test_the_action_fails_the_job_on_drift_and_annotates_file_and_line(workspace: Path):
    inputs = {"log": "drifted server.log", "baseline": "baseline.json", "install": "false", "sarif": "out.sarif"}
    done = action(inputs, workspace)[-1]
    assert done.returncode == 1
    assert re.search(r"^::error file=drifted server\.log,line=51,title=KD101 capacity changed::", done.stdout, re.MULTILINE)
    assert (workspace / "out.sarif").exists()


def test_the_action_passes_where_nothing_drifted(workspace: Path):
    done = action({"log": "same.log", "baseline": "baseline.json", "install": "false"}, workspace)[-1]
    assert (done.returncode, done.stdout) == (0, "kvdiag check passed\n")


def test_an_input_of_the_action_is_never_run_as_a_command(workspace: Path):
    action({"log": "$(touch pwned)`touch pwned`;touch pwned", "install": "false"}, workspace)
    assert not (workspace / "pwned").exists()


def gitlab(variables: dict[str, str], workspace: Path) -> subprocess.CompletedProcess[str]:
    job: dict[str, Any] = yaml.safe_load((ROOT / "ci" / "gitlab-kvdiag.yml").read_text(encoding="utf-8"))[".kvdiag-check"]
    return bash("\n".join(job["script"]), workspace, {**job["variables"], **variables})


def test_the_gitlab_job_fails_on_drift_and_leaves_its_junit_report(workspace: Path):
    done = gitlab({"KVDIAG_LOG": "drifted server.log", "KVDIAG_BASELINE": "baseline.json"}, workspace)
    assert done.returncode == 1
    assert "116,171" in done.stdout
    assert "<failure" in (workspace / "kvdiag-junit.xml").read_text(encoding="utf-8")
    assert gitlab({"KVDIAG_LOG": "same.log", "KVDIAG_BASELINE": "baseline.json"}, workspace).returncode == 0


LOCAL = ROOT / "fixtures" / "real" / "0.5.9-qwen3-memfrac005-nocap"


@pytest.fixture
def local(workspace: Path) -> Path:
    """A log whose model is known by a path only, and its baseline made with the config."""
    (workspace / "local.log").write_bytes((LOCAL / "server.log").read_bytes())
    done = bash(f'kvdiag baseline local.log --config "{LOCAL}" -o local.json', workspace, {})
    assert (done.returncode, done.stderr) == (0, "")
    return workspace


def test_the_config_of_a_local_model_reaches_the_check_by_the_action(local: Path):
    inputs = {"log": "local.log", "baseline": "local.json", "install": "false", "fail-on": "warning"}
    assert action({**inputs, "config": str(LOCAL)}, local)[-1].returncode == 0
    without = action(inputs, local)[-1]
    assert without.returncode == 1
    assert "give --config PATH or --model NAME here too" in without.stdout
    assert "KD131" in action({**inputs, "model": "Qwen/Qwen3-32B"}, local)[-1].stdout, "a name is another model's here"


def test_the_config_of_a_local_model_reaches_the_check_by_the_gitlab_job(local: Path):
    variables = {"KVDIAG_LOG": "local.log", "KVDIAG_BASELINE": "local.json", "KVDIAG_FAIL_ON": "warning"}
    assert gitlab({**variables, "KVDIAG_CONFIG": str(LOCAL)}, local).returncode == 0
    assert gitlab(variables, local).returncode == 1
    assert "KD131" in gitlab({**variables, "KVDIAG_MODEL": "Qwen/Qwen3-32B"}, local).stdout


def test_a_baseline_without_the_models_config_says_what_it_does_not_guard(local: Path):
    done = bash("kvdiag baseline local.log -o other.json", local, {})
    assert done.returncode == 0
    assert "bytes_per_token, kv_pool_bytes" in done.stderr
    assert "give --config PATH or --model NAME here and to each check" in done.stderr


def test_the_workflows_of_the_docs_use_inputs_that_there_are():
    text = (ROOT / "docs" / "howto" / "gate-a-pipeline.md").read_text(encoding="utf-8")
    github, gitlab_job = (yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", text, re.DOTALL))
    assert github[True] == ["push"], "YAML reads the key on as true"
    given = github["jobs"]["gate"]["steps"][-1]["with"]
    action_inputs = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))["inputs"]
    assert set(given) <= set(action_inputs)
    assert {name for name, entry in action_inputs.items() if entry.get("required")} <= set(given)
    job = yaml.safe_load((ROOT / "ci" / "gitlab-kvdiag.yml").read_text(encoding="utf-8"))[".kvdiag-check"]
    assert set(gitlab_job["check the server"]["variables"]) <= {*job["variables"], "GIT_SUBMODULE_STRATEGY"}
    assert gitlab_job["include"] == [{"local": "ci/gitlab-kvdiag.yml"}]


def test_the_hook_checks_each_committed_log_against_the_baseline_beside_it(workspace: Path):
    hook = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))[0]
    entry = hook["entry"].replace("python", f'"{sys.executable}"', 1)
    (workspace / "notes.log").write_text("not of a server\n", encoding="utf-8")
    assert all(re.search(hook["files"], name) for name in ("same.log", "drifted server.log", "a/b.log.zst"))
    assert bash(f'{entry} same.log notes.log "drifted server.log"', workspace, {}).returncode == 0
    (workspace / "drifted server.log.baseline.json").write_bytes((workspace / "baseline.json").read_bytes())
    done = bash(f'{entry} same.log "drifted server.log"', workspace, {})
    assert done.returncode == 1
    assert "KD101" in done.stdout


ALONE = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
"""The plugin is named on the command line: where kvdiag is installed, its entry point would load it a second time."""


def test_the_pytest_fixture_fails_a_test_with_the_report(workspace: Path):
    (workspace / "test_server.py").write_text(
        "def test_same(kvdiag_check):\n    assert not kvdiag_check('same.log', 'baseline.json').drifts\n"
        "def test_drifted(kvdiag_check):\n    kvdiag_check('drifted server.log', 'baseline.json')\n",
        encoding="utf-8",
    )
    done = bash(f'"{sys.executable}" -m pytest -q -p kvdiag.pytest_plugin -p no:cacheprovider test_server.py', workspace, ALONE)
    assert "1 failed, 1 passed" in done.stdout
    assert "max_total_num_tokens [TP0]: 159,277 tokens -> 116,171 tokens" in done.stdout


def test_the_entry_point_of_the_fixture_is_the_module_that_has_it():
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["entry-points"]["pytest11"] == {"kvdiag": "kvdiag.pytest_plugin"}
