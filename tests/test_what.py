"""`kvdiag what` answers for every field, and for any line a rule knows."""

from __future__ import annotations

import pytest

from kvdiag.cli.main import main
from kvdiag.lines.families import families
from kvdiag.lines.glossary import every_field, find_field, read_line
from kvdiag.lines.words import find_word, words
from kvdiag.reports.bound import WORDS
from kvdiag.reports.glossary_report import render_field, render_line


def test_every_field_of_every_family_has_an_answer():
    for field in {entry.field for entry in every_field()}:
        entries = find_field(field)
        assert field in render_field(entries)
        assert all(meaning.unit and meaning.meaning for entry in entries for meaning in entry.meanings), field


def test_a_sample_of_every_variant_is_explained_with_each_of_its_values():
    for family in families().values():
        for variant in family.variants:
            for sample in variant.samples:
                records = read_line(f"[2026-01-05 10:00:09 TP0] {sample.text}") or read_line(sample.text)
                assert any(family.name in (record.family, *record.families) for record in records), sample.text
                told = render_line(records)
                assert all(name in told for record in records for name in record.values), sample.text


def test_a_pasted_line_is_explained_word_by_word():
    line = "[2025-01-15 10:22:41 TP0] KV Cache is allocated. #tokens: 438681, K size: 26.78 GB, V size: 26.78 GB"
    text = render_line(read_line(line))
    for said in ("kv-alloc", "TP0", "#tokens", "438681", "26.78", "GiB"):
        assert said in text


def test_a_meaning_that_changed_is_told_with_its_releases():
    assert "comparable only within one" in render_field(find_field("accept rate"))


@pytest.mark.parametrize("asked", ["token usage", "Token_Usage", "TOKEN USAGE:"])
def test_case_and_marks_do_not_matter(asked, kvdiag):
    assert "token usage" in kvdiag("what", asked).stdout


def test_an_unknown_word_gets_near_ones(kvdiag):
    done = kvdiag("what", "tokn usage")
    assert done.returncode == 2
    assert "token usage" in done.stderr


def test_the_meaning_in_a_given_release_is_told_alone(kvdiag):
    before, after = (kvdiag("what", "accept rate", "--release", release).stdout for release in ("0.5.9", "0.5.14"))
    assert "bonus" in before
    assert "bonus" not in after
    assert "changed between releases" not in before + after


def test_a_line_that_the_release_does_not_print_is_said_to_be_none_of_its(kvdiag):
    line = "KV Cache is allocated. dtype: torch.bfloat16, #tokens: 438681, K size: 26.78 GB, V size: 26.78 GB"
    assert "prints no such line" in kvdiag("what", line, "--release", "0.4.6").stdout
    assert "prints no such line" not in kvdiag("what", line, "--release", "0.5.14").stdout


def test_an_unknown_release_is_refused(kvdiag):
    assert kvdiag("what", "token usage", "--release", "newest").returncode == 2


@pytest.mark.parametrize("name", ["max_total_num_tokens", "max_running_requests"])
def test_the_name_of_a_field_is_not_taken_for_a_torn_line(kvdiag, name):
    assert f"{name} in " in kvdiag("what", name).stdout


def test_a_pasted_line_may_be_wrapped():
    (record,) = read_line('{"ts": "2025-01-15T10:22:41", "level": "INFO", "msg": "Memory pool end. avail mem=9.86 GB"}')
    assert record.number("avail mem") == 9.86


def test_a_torn_line_is_of_the_releases_that_print_what_is_left_of_it(kvdiag):
    line = "Capture cuda graph end. Time elapsed: 12.3 s. mem usage=2.10 GB. avail mem=5.33 GB."
    assert "printed by SGLang 0.4.6.post1..0.5.23" in kvdiag("what", line).stdout


def test_an_abbreviated_count_is_told_as_what_it_may_have_been(kvdiag):
    told = kvdiag("what", "KV Cache is allocated. #tokens: 825k, K size: 1.00 GB, V size: 1.00 GB").stdout
    assert "abbreviated: 824,500 to 845,824 may be written so" in told


def test_of_several_pasted_lines_each_is_read_whole(capsys):
    decode = (
        "[2025-01-15 10:22:41 DP0 TP0] Decode batch, #running-req: 1, #token: 47, token usage: 0.01, "
        "cuda graph: False, gen throughput (token/s): 3.54, #queue-req: 0"
    )
    pool = "[2025-01-15 10:22:41 TP0] KV Cache is allocated. #tokens: 438681, K size: 26.78 GB, V size: 26.78 GB"
    for pasted in ([f"{decode}\n{pool}"], [decode, pool], [f"{decode}\r\n{pool}\r\n"]):
        with pytest.raises(SystemExit) as ended:
            main(["what", *pasted])
        told = capsys.readouterr().out
        assert ended.value.code == 0
        assert "damaged" not in told
        assert "#queue-req" in told
        assert "438681" in told


def told(capsys, *arguments):
    with pytest.raises(SystemExit) as ended:
        main(["what", *arguments])
    assert ended.value.code == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("name", [name for word in words() for name in word.names])
def test_every_word_of_the_reports_is_told(capsys, name):
    assert len(told(capsys, name)) > 100


@pytest.mark.parametrize("said", ["The admission reserve", "head room", "KV-budget", "full_length requests"])
def test_a_word_is_found_as_a_report_has_it(capsys, said):
    assert find_word(said).names[0] in told(capsys, said)


def test_every_limit_that_reports_name_is_told():
    plain = {"nothing waited", "not told by the lines", "the request cap", "the KV pool", "prefill"}
    assert all(find_word(name) for name in set(WORDS.values()) - plain - {"transfer between prefill and decode"})
