"""Messages tell somebody who does not know the code what to do next."""

from __future__ import annotations

import re
import tomllib

import pytest

import kvdiag as package
from kvdiag.checks.findings import condition
from kvdiag.errors import KvdiagError, RuleError
from tests.conftest import FIXTURES, ROOT

LOG = str(FIXTURES / "scenarios" / "kimi-k2.5-f0.88" / "server.log")


def test_an_unknown_word_says_where_the_known_ones_are(kvdiag):
    said = kvdiag("what", "xyzzy").stderr
    assert "kvdiag rules list has the families" in said
    assert "whole, in quotes" in said


def test_a_line_is_read_from_standard_input(kvdiag):
    line = b"[2025-01-15 10:22:41 TP0] KV Cache is allocated. #tokens: 438681, K size: 26.78 GB, V size: 26.78 GB\n"
    assert "kv-alloc" in kvdiag("what", "-", stdin=line).stdout


def test_rules_of_ones_own_may_stand_behind_the_command(kvdiag, tmp_path):
    lines = tmp_path / "lines"
    lines.mkdir()
    page = (ROOT / "docs" / "templates.md").read_text(encoding="utf-8")
    example = re.search(r"```toml\n(.*?)```", page, re.DOTALL)[1]
    tomllib.loads(example)
    (lines / "mine.toml").write_text(example, encoding="utf-8")
    done = kvdiag("what", "--rules", str(tmp_path), "My pool is made on cuda:0. #tokens: 4096")
    assert "my-pool" in done.stdout, done.stderr
    assert kvdiag("--rules", str(tmp_path), "rules", "test").returncode == 0
    broken = example.replace("{device:t}", "{device:w}")
    (lines / "mine.toml").write_text(broken, encoding="utf-8")
    assert (
        "from column 24 on: ':0. #tokens: 4096'"
        in (done := kvdiag("--rules", str(tmp_path), "rules", "test")).stdout + done.stderr
    )


def test_a_finding_without_its_condition_names_its_file():
    with pytest.raises(RuleError, match=r"rules/findings/KV399-\*.toml: no condition 'scheduler.nothing'"):
        condition("scheduler.nothing", "KV399")


@pytest.mark.parametrize("arguments", [["size", "--model", "Qwen/Qwen3-8B"], ["whatif"]])
def test_a_usage_error_is_short(arguments, kvdiag):
    assert len(kvdiag(*arguments).stderr.splitlines()) <= 4


@pytest.mark.parametrize(
    "arguments", [["explain", LOG, "--x\x1b[31m"], ["--x\x9b31m"], ["no\x1b[31m"], ["whatif", LOG, "--y\u202e"]]
)
def test_a_usage_error_shows_control_characters_as_escapes(arguments, kvdiag):
    said = kvdiag(*arguments)
    assert said.returncode == 2
    assert not re.search("[\x1b\x9b\u202e]", said.stderr)
    assert re.search(r"\\x1b|\\x9b|\\u202e", said.stderr)


def test_sizes_have_no_fractions_of_a_byte(kvdiag):
    args = ("--model", "Qwen/Qwen3-8B", "--release", "0.5.9", "--avail", "60.1", "--total", "78.7", "--gpu", "H100")
    assert re.search(r"^rest_memory_bytes +[\d,]+$", kvdiag("size", *args).stdout, re.MULTILINE)


def test_a_model_of_the_catalogue_is_sized_from_python():
    assert package.size(model="Qwen/Qwen3-8B", release="0.5.9").bytes_per_token == 2 * 8 * 128 * 36 * 2
    with pytest.raises(KvdiagError, match="not in the catalogue"):
        package.size(model="nobody/nothing", release="0.5.9")
    with pytest.raises(KvdiagError, match=r"needs a config .* or a model"):
        package.size(release="0.5.9")


def test_diff_and_its_table_fit_a_narrow_terminal(kvdiag, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    other = str(FIXTURES / "scenarios" / "h100-llama-3-8b" / "server.log")
    head = next(line for line in kvdiag("diff", LOG, other).stdout.splitlines() if line.startswith("number"))
    assert len(head) <= 80
