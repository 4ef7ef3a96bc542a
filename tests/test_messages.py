"""Messages tell somebody who does not know the code what to do next."""

from __future__ import annotations

import os
import random
import re
import tomllib

import pytest

import kvdiag as package
from kvdiag.checks.findings import condition
from kvdiag.cli.main import _missing, main
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
    assert re.search(r"^rest_memory_bytes +[\d,]+ bytes \([\d.]+ GiB\)$", kvdiag("size", *args).stdout, re.MULTILINE)


def test_an_option_with_two_values_is_refused(kvdiag):
    args = ("--model", "Qwen/Qwen3-8B", "--release", "0.5.9", "--total", "78.7", "--avail", "60")
    assert kvdiag("size", *args, "--avail", "60").returncode == 0
    twice = kvdiag("size", *args, "--avail", "70")
    assert twice.returncode == 2
    assert "--avail is given twice: 60.0 and 70.0" in twice.stderr


def test_a_cap_that_sglang_sets_itself_is_told_with_its_reason(kvdiag):
    args = ("size", "--model", "Qwen/Qwen3-8B", "--release", "0.5.9", "--avail", "60", "--total", "78.7", "--gpu", "H100")
    told = " ".join(kvdiag(*args, "--speculative-algorithm", "NGRAM").stdout.split())
    assert "cap of 48, which SGLang sets with speculative decoding" in told
    asked = kvdiag(*args, "--speculative-algorithm", "NGRAM", "--max-running-requests", "48").stdout
    assert "which SGLang sets" not in asked


def test_stages_that_differ_are_told_by_kind(kvdiag):
    args = ("size", "--model", "Qwen/Qwen3-8B", "--release", "0.5.9", "--pp-size", "5")
    assert "4 of 7 layers with 28,672 bytes, 1 of 8 layers with 32,768 bytes" in " ".join(kvdiag(*args).stdout.split())


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


def said(capsys, *arguments):
    """Exit code and standard error of a command, run in this process."""
    with pytest.raises(SystemExit) as ended:
        main([str(each) for each in arguments])
    return ended.value.code, capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["expalin", LOG], "there is no expalin; did you mean explain?"),
        (["explain", LOG, "--fromat", "json"], "there is no option --fromat; did you mean --format?"),
        (["whatif", LOG, "--mem-fraction-statik=0.9"], "no option --mem-fraction-statik; did you mean --mem-fraction-static?"),
        (
            ["postmortem", LOG, "--format", "htm"],
            "--format: there is no htm; did you mean html? (choose from text, json, md, html)",
        ),
        (["rules", "lst"], "there is no lst; did you mean list?"),
        (["--frmat", "explain", LOG], "no option --frmat before the command; options of a command stand behind it"),
        (["whatif", LOG, "--schedule-policy", "fcfs"], "--schedule-policy is SGLang's, but nothing that is computed here"),
        (["postmortem", LOG, "--zzz"], "there is no option --zzz\n"),
        (["what", "--option"], "there is no option --option (to give it as text: kvdiag what -- --option)"),
        (["what"], "TEXT is missing (a field such as"),
        (["size", "--model", "Qwen/Qwen3-8B"], "--release is missing (SGLang release, as 0.5.9)"),
        (["timeline", LOG], "-o/--output is missing (a .parquet, .csv"),
        (["baseline", LOG, "second.log"], "there is no place for second.log"),
        (["whatif", LOG, "--tp-size", "3.5"], "--tp-size: '3.5' is no whole number"),
        (["whatif", LOG, "--mem-fraction-static", "x"], "--mem-fraction-static: 'x' is no number"),
        (["size", "--release", "0.5.9", "--avail", "x"], "--avail: 'x' is no number"),
        (["fleet", LOG, "-o", "out", "--processes", "0"], "give 1 or more"),
    ],
)
def test_a_usage_error_says_in_two_lines_what_would_be_right(arguments, says, capsys):
    code, told = said(capsys, *arguments)
    assert code == 2
    assert says in told
    lines = told.splitlines()
    assert len(lines) == 2
    assert lines[1].startswith("usage: kvdiag")
    assert lines[1].endswith("--help has every option")
    assert not re.search(r"_number|_float|unrecognized|invalid", told)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["whatif", LOG, "--dp-size", "0"], "--dp-size 0: a size of parallelism is at least 1"),
        (["explain", LOG, "--workload", "promt=3"], "there is no 'promt'; give prompt=N,output=N,"),
        (["explain", LOG, "--workload", "prompt=-1,output=2"], "'prompt=-1' has no whole number from 0 on"),
        (["explain", LOG, "-o", "no/such/folder/a.txt"], "there is no folder"),
        (["timeline", LOG, "-o", "no/such/folder/a.csv"], "there is no folder"),
        (["check", LOG, "--select", "KVnope"], "no diagnostic or finding begins with 'KVNOPE'"),
        (["rules", "show", "KV3"], "did you mean KV301, KV302, KV303?"),
        (["explain", LOG, "--server", "http://127.0.0.1:9"], "Connection refused; is the server up, and is this its port?"),
        (["explain", LOG, "--model", "Qwen3-8C"], "did you mean Qwen/Qwen3-8B?"),
        (["watch", "--once", "no.log", "--state", "s"], "no such file to follow"),
    ],
)
def test_a_wrong_value_is_answered_with_what_to_give(arguments, says, capsys):
    code, told = said(capsys, *arguments)
    assert code == 2
    assert says in told
    assert "[Errno" not in told


def test_the_case_of_a_rules_code_does_not_matter(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["rules", "show", "kv301"])
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith("# KV301 ")


SMALL = {
    "--baseline": ["check", LOG], "--policy": ["check", LOG], "--config": ["explain", LOG], "--server-info": ["explain", LOG],
    "--metrics": ["explain", LOG], "--gpu": ["explain", LOG], "--state": ["watch", "--once", LOG],
    "--draft-config": ["size", "--release", "0.5.9", "--model", "Qwen3-8B"],
}  # fmt: skip
"""Options that take a small file, with a command to give them to."""
ADVICE = r"; (write one with: kvdiag baseline|a policy is a TOML file|give a model folder|save |name the file)"


@pytest.mark.parametrize("option", SMALL)
def test_a_small_file_that_is_none_is_refused_with_what_to_give(option, tmp_path, capsys):
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "text").write_text("hello: world\nand more\n")
    (tmp_path / "binary").write_bytes(b"\x89PNG\r\n\x1a\n\xff\xfe")
    (tmp_path / "cut").write_text('{"a": 1')
    (tmp_path / "large").write_bytes(b" " * (17 << 20))
    names = {
        "folder": "folder|no such file",
        "pipe": "no regular file",
        "text": "",
        "binary": "",
        "cut": "",
        "large": "larger than",
    }
    for name, reason in names.items() if option == "--state" else {**names, "missing": "no such file"}.items():
        code, told = said(capsys, *SMALL[option], option, tmp_path / name)
        assert code == 2, name
        assert re.search(reason, told), told
        assert str(tmp_path / name) in told
        assert re.search(ADVICE, told), told
        assert not re.search(r"\[Errno|codec|Expecting value: line|char \d", told), told
        assert len(told.splitlines()) == 1


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every file")
def test_a_file_that_may_not_be_read_is_named(tmp_path, capsys):
    (tmp_path / "secret").write_text("{}")
    (tmp_path / "secret").chmod(0)
    for option, command in SMALL.items():
        assert "cannot be read: Permission denied; " in said(capsys, *command, option, tmp_path / "secret")[1]


def test_the_output_of_a_command_is_taken_for_a_small_file(capsys):
    read, write = os.pipe()
    os.write(write, b"[numbers]\nnope = 3\n")
    os.close(write)
    code, told = said(capsys, "check", LOG, "--policy", f"/dev/fd/{read}")
    os.close(read)
    assert code == 2
    assert f"/dev/fd/{read}:2:1: numbers.nope must be a word or a table" in told


def test_a_broken_json_is_told_with_line_and_column(tmp_path, capsys):
    for option, command in SMALL.items():
        if option in ("--baseline", "--config", "--draft-config"):
            (tmp_path / "broken").write_text('{\n "a": 1,\n "b": }')
            assert "broken:3:7: not JSON: " in said(capsys, *command, option, tmp_path / "broken")[1]
            (tmp_path / "broken").write_text("")
            assert "the file is empty; " in said(capsys, *command, option, tmp_path / "broken")[1]


def test_a_config_that_lacks_a_key_is_named_with_its_path(tmp_path, capsys):
    (tmp_path / "config.json").write_text('{"architectures": ["LlamaForCausalLM"]}')
    assert str(tmp_path / "config.json") in said(capsys, "size", "--release", "0.5.9", "--config", tmp_path)[1]


def test_a_module_that_python_was_built_without_is_no_package_to_install():
    told = _missing(ModuleNotFoundError("No module named '_lzma'", name="_lzma"))
    assert "this Python was built without" in told
    assert "pip install" not in told


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (PermissionError(13, "Permission denied"), "cannot be read: you lack the permission; ask its owner"),
        (OSError(40, "Too many levels of symbolic links"), "cannot be opened: Too many levels of symbolic links; give a file"),
    ],
)
def test_a_log_that_cannot_be_opened_is_named_once_with_what_to_do(monkeypatch, capfd, error, said):
    real = open

    def refusing(path, *rest, **more):
        if path == LOG:
            raise error
        return real(path, *rest, **more)

    monkeypatch.setattr("builtins.open", refusing)
    with pytest.raises(SystemExit) as end:
        main(["explain", LOG])
    assert end.value.code == 2
    told = capfd.readouterr().err
    assert said in told
    assert "Errno" not in told
    assert told.count(LOG) == 1


def test_a_binary_file_named_like_a_log_is_called_one(kvdiag, tmp_path):
    draw = random.Random(1)
    (tmp_path / "server.log").write_bytes(draw.randbytes(50_000))
    done = kvdiag("explain", str(tmp_path / "server.log"))
    assert done.returncode == 3
    assert "this is no text: " in done.stderr
    (tmp_path / "latin.log").write_bytes(b"a line\n" * 9 + b"stra\xdfe\n")
    assert "no SGLang start-up or scheduler line in 10 lines" in kvdiag("explain", str(tmp_path / "latin.log")).stderr


def test_a_sizing_s_sentences_keep_to_the_width_of_explain_s(kvdiag):
    asked = ["--model", "Qwen/Qwen3-32B", "--release", "0.5.22", "--gpu", "H100", "--tp", "2", "--total", "78.5", "--avail", "48"]
    told = kvdiag("size", *asked, "--max-total-tokens", "20000", "--workload", "prompt=2000,output=500,concurrency=200").stdout
    assert "note: " in told
    assert max(map(len, told.splitlines())) <= 100
