"""``kvdiag rules``: every embedded sample is run, a user's own rules are checked to the column, and nothing in them runs."""

from __future__ import annotations

import pytest

from kvdiag import rulebook
from kvdiag.rulerooms import rooms

GOOD = """\
family = "memory-pool-end"
title = "Pools: end"
meaning = "Every pool exists."

[fields]
"avail mem" = { unit = "GiB", meaning = "free memory" }

[[variant]]
releases = "0.5.23"
template = "All pools are complete. avail mem={avail mem:.2f} GB"
samples = [{ text = "All pools are complete. avail mem=9.86 GB", fields = { "avail mem" = "9.86" } }]
"""


@pytest.fixture
def folder(tmp_path):
    """Writes a user's rule file and gives its folder."""

    def write(text: str, name: str = "mine.toml"):
        (tmp_path / "own" / "lines").mkdir(parents=True, exist_ok=True)
        (tmp_path / "own" / "lines" / name).write_text(text)
        return tmp_path / "own"

    return write


def test_every_shipped_sample_passes(kvdiag):
    done = kvdiag("rules", "test")
    assert done.returncode == 0, done.stdout
    assert "lines: " in done.stdout
    assert "0 failed" in done.stdout


def test_every_rule_is_listed_and_shown(kvdiag):
    listed = kvdiag("rules").stdout
    assert listed == kvdiag("rules", "list").stdout
    for room in rooms().values():
        for entry in room.entries():
            assert f"  {entry.code} " in listed
            assert entry.title in room.show(entry.code)
    shown = kvdiag("rules", "show", "decode-batch")
    assert shown.returncode == 0
    assert "accept rate" in shown.stdout
    assert "0.5.3.post2..0.5.12.post1" in shown.stdout


def test_an_unknown_code_is_refused_with_the_nearest_one(kvdiag):
    done = kvdiag("rules", "show", "kv-aloc")
    assert done.returncode == 2
    assert "kv-alloc" in done.stderr


def test_a_user_s_rules_are_tested_with_the_shipped_ones(kvdiag, folder):
    done = kvdiag("rules", "test", str(folder(GOOD)))
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_user_s_line_format_is_read(kvdiag, folder, tmp_path):
    log = tmp_path / "server.log"
    log.write_text("[2025-01-15 10:22:41 TP0] All pools are complete. avail mem=9.86 GB\n")
    assert kvdiag("explain", str(log)).returncode == 3
    done = kvdiag("--rules", str(folder(GOOD)), "explain", str(log), "--format", "json")
    assert done.returncode == 0, done.stderr
    assert '"memory_after_pool"' in done.stdout


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('title = "Pools', 'titel = "Pools', "mine.toml:2:1: unknown key 'titel'; did you mean 'title'?"),
        ('title = "Pools: end"\n', "", "mine.toml:1:1: the key 'title' is missing"),
        ('meaning = "Every pool exists."', "meaning = 3", "mine.toml:3:1: 'meaning' must be a text"),
        ('unit = "GiB", ', "", "mine.toml:6:1: the key 'unit' is missing"),
        ('releases = "0.5.23"', 'releases = "newest"', "mine.toml:9:1: 'newest' names no releases"),
        (
            'releases = "0.5.23"',
            'releases = "0.5.23-"',
            "mine.toml:9:1: '0.5.23-' names no releases; a range is written first..last",
        ),
        ('releases = "0.5.23"', 'releases = ""', "mine.toml:9:1: '' names no releases"),
        ('unit = "GiB"', 'unit = "gigs"', "mine.toml:6:1: 'gigs' is no unit; the units are GiB,"),
        ('releases = "0.5.23"', 'releases = "9.9.9"', "mine.toml:9:1: no published release"),
        ("mem:.2f}", "mem:q}", "mine.toml:10:47: no kind 'q'"),
        ("{avail mem:.2f} GB", "⟦{avail mem:.2f} GB", "mine.toml:10:"),
        ("{avail mem:.2f} GB", "{other:.2f} GB", "the value 'other' has no entry in [fields]"),
        ("{avail mem:.2f} GB", "{avail mem:.2f}{avail mem:d}", "nothing between them"),
        ("All pools are complete. avail mem=", "", "needs 6 characters of its own"),
        ('"avail mem" = "9.86"', '"avail mem" = 9.86', "needs a text in quotes, not 9.86"),
        ("[[variant]]", "[[variant", "mine.toml:8:"),
        ("[[variant]]", "[variant]", "'variant' must be a list of tables"),
    ],
)
def test_what_is_wrong_in_a_rule_file_is_told_with_file_line_and_column(kvdiag, folder, old, new, said):
    assert old in GOOD
    done = kvdiag("rules", "test", str(folder(GOOD.replace(old, new, 1))))
    assert done.returncode == 2
    assert said in done.stderr


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('"avail mem" = "9.86"', '"avail mem" = "9.87"', "the values are"),
        ('text = "All pools are', 'text = "Some pools are', "its own template does not fit"),
        ('text = "All pools are complete. avail mem=9.86 GB"', 'text = "server_args=ServerArgs(tp_size=1)"', "does not fit"),
    ],
)
def test_a_sample_that_fails_is_named_and_is_exit_code_1(kvdiag, folder, old, new, said):
    done = kvdiag("rules", "test", str(folder(GOOD.replace(old, new, 1))))
    assert done.returncode == 1
    assert "mine.toml:11: " in done.stdout
    assert said in done.stdout


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            'family = "memory-pool-end"',
            'family = "memory-pol-end"',
            "mine.toml:1: there is no family 'memory-pol-end'; did you mean",
        ),
        ("avail mem", "avail-mem", "mine.toml:6: memory-pool-end has no field 'avail-mem'; did you mean 'avail mem'?"),
    ],
)
def test_names_that_are_nearly_those_of_a_shipped_family_are_told(kvdiag, folder, old, new, said):
    done = kvdiag("rules", "test", str(folder(GOOD.replace(old, new))))
    assert done.returncode == 1
    assert said in done.stdout


def test_a_family_and_fields_of_one_s_own_pass(kvdiag, folder):
    text = GOOD.replace("memory-pool-end", "arena").replace(
        "[fields]", '[fields]\n"arena cells" = { unit = "count", meaning = "cells" }'
    )
    assert kvdiag("rules", "test", str(folder(text))).returncode == 0


def test_a_user_s_format_that_takes_a_shipped_line_fails(kvdiag, folder):
    greedy = GOOD.replace("memory-pool-end", "mine").replace("All pools are complete.", "Memory pool end.")
    done = kvdiag("rules", "test", str(folder(greedy)))
    assert done.returncode == 1
    assert "is taken by memory-pool-end" in done.stdout


@pytest.mark.parametrize("path", ["nowhere", "."])
def test_a_folder_without_rules_is_refused_with_what_to_put_where(kvdiag, tmp_path, path):
    done = kvdiag("rules", "test", str(tmp_path / path))
    assert done.returncode == 2
    assert "lines/" in done.stderr


def test_rule_files_are_data_and_only_toml_is_read(kvdiag, folder, tmp_path):
    canary = tmp_path / "canary"
    code = f"import pathlib; pathlib.Path({str(canary)!r}).touch()"
    own = folder(GOOD)
    for name in ("conftest.py", "__init__.py", "lines/mine.py", "sitecustomize.py"):
        (own / name).write_text(code)
    folder(GOOD.replace("9.86", "{__import__}").replace('fields = { "avail mem" = "{__import__}" }', "fields = {}"), "evil.toml")
    kvdiag("rules", "test", str(own))
    assert not canary.exists()


def test_a_user_s_folder_is_refused_for_rooms_that_are_not_checked(tmp_path):
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "mine.toml").write_text("[[model]]\n")
    with pytest.raises(rulebook.RuleError, match="no rule files"):
        rulebook.add_folder(str(tmp_path))


def test_a_folder_of_rules_may_be_named_like_a_command(capsys, monkeypatch, tmp_path):
    from kvdiag.cli.main import main

    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        main(["--rules", "source", "explain", "x.log"])
    assert ended.value.code == 2
    assert "source: no such folder" in capsys.readouterr().err


def test_links_in_a_folder_of_rules_that_lead_nowhere_or_back_are_no_fault(kvdiag, folder):
    own = folder(GOOD)
    (own / "lines" / "back").symlink_to(".")
    (own / "lines" / "turn").symlink_to("turn")
    assert kvdiag("rules", "test", str(own)).returncode == 0
    (own / "lines" / "gone.toml").symlink_to("nowhere.toml")
    done = kvdiag("rules", "test", str(own))
    assert done.returncode == 2
    assert "gone.toml: " in done.stderr
    assert "No such file" in done.stderr
