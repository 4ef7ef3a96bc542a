"""Line formats as data: every template gives back what was put into it, and no family takes another's lines."""

from __future__ import annotations

import json
import random
from collections import Counter
from itertools import product

import pytest

import kvdiag
from kvdiag.lines import match_message
from kvdiag.lines.families import families
from kvdiag.lines.formats import formats
from kvdiag.lines.template import TEXTS, field_names, parse_template
from kvdiag.lines.walk import match_template
from tests.conftest import SHARED

FAMILIES = pytest.mark.parametrize("family", families().values(), ids=lambda family: family.name)
WORDS = ("7f3c", "LlamaForCausalLM", "torch.bfloat16", "layer_first", "full", "c4_kv", "a-b_c.d")
SOME_TEXTS = (
    "CUDA out of memory",
    "7",
    "[1, 2, 4, 8, 16]",
    "Traceback (most recent call last): ...",
    "fp8, fmt=e4m3",
    "rank 3 left",
)


def printed_value(kind: str, draw: random.Random) -> str:
    """Some value of that kind as Python would print it."""
    if "|" in kind:
        return draw.choice(kind.split("|"))
    if kind.startswith("."):
        return f"{draw.choice([0.0, draw.random(), draw.uniform(0, 10**6)]):{kind}}"
    return {
        "d": str(draw.choice([0, 1, -9, draw.randrange(10**12)])),
        "f": repr(draw.choice([0.874, 300, draw.random(), draw.uniform(0, 10**6), 1e-07])),
        "b": draw.choice(["True", "False"]),
        "w": draw.choice(WORDS),
        "v": draw.choice([*WORDS, "True", "7", "-9", "0.25", "None"]),
        "t": draw.choice(SOME_TEXTS),
        "m": draw.choice([*SOME_TEXTS, "one line\nand another"]),
    }[kind]


def filled(sequence: list, draw: random.Random) -> tuple[str, dict[str, str]]:
    """A line of that template, with choices taken and values made at random, and the values."""
    text, values = "", {}
    for item in sequence:
        if isinstance(item, str):
            text += item
        elif item[0] == "a":
            more, found = filled(draw.choice(item[1:]), draw)
            text, values = text + more, values | found
        else:
            value = printed_value(item[3] if item[0] == "t" else item[2], draw)
            text, values = text + value, values | {item[1]: value}
    return text, values


@FAMILIES
def test_values_put_into_a_template_come_back_from_its_own_family(family):
    for variant, seed in product(family.variants, range(12)):
        sequence = parse_template(variant.template)
        text, values = filled(sequence, random.Random(f"{family.name} {variant.number} {seed}"))
        match = match_message(text)
        assert match is not None, text
        assert match.family == family.name, text
        assert variant.number in [fitting.number for fitting in match.variants], text
        assert {name: printed for name, _, printed in match_template(sequence, text)} == values, text
        assert not _contradicting(match.values, values, sequence), text


def _contradicting(found, values, sequence):
    """What was read otherwise than it was put in; a word may be one of the closest variant's own."""
    read = {name: printed for name, _, printed in found}
    words = {name for name, kind in field_names(sequence) if kind in "wv" or "|" in kind}
    return {
        name for name in read.keys() | values.keys() if read.get(name) != values.get(name) and name not in words - read.keys()
    }


@FAMILIES
def test_a_sample_is_read_by_its_own_variant_and_best_by_its_own_family(family):
    assert all(variant.samples for variant in family.variants)
    for variant, sample in ((each, sample) for each in family.variants for sample in each.samples):
        match = match_message(sample.text)
        assert match is not None
        assert match.family == family.name
        assert variant.number in [fitting.number for fitting in match.variants]
        assert not _contradicting(match.values, sample.fields, parse_template(variant.template))
        assert {name for name, free in _fits(sample.text) if free == min(free for _, free in _fits(sample.text))} == {family.name}


def _fits(text: str) -> list[tuple[str, int]]:
    found = ((variant.family, match_template(variant.sequence, text)) for variant in formats().candidates(text))
    return [
        (name, sum(len(printed) for _, kind, printed in values if kind in TEXTS)) for name, values in found if values is not None
    ]


def test_every_family_and_field_says_what_it_is():
    for family in families().values():
        assert family.title
        assert family.meaning.endswith(".")
        for name, entries in family.fields.items():
            assert all(entry.unit and entry.meaning for entry in entries), (family.name, name)
            assert len(entries) == 1 or all(entry.releases for entry in entries), (family.name, name)


def test_a_field_whose_meaning_changed_is_told_by_the_release_that_prints_it():
    line = (
        "Decode batch, #running-req: 1, #token: 9, token usage: 0.04, accept len: 2.71, accept rate: 0.57, "
        "cuda graph: True, gen throughput (token/s): 148.37, #queue-req: 5"
    )
    before = kvdiag.parse_line(line, release="0.5.9")["meanings"]["accept rate"]
    after = kvdiag.parse_line(line, release="0.5.14")["meanings"]["accept rate"]
    both = kvdiag.parse_line(line)["meanings"]["accept rate"]
    assert "bonus" in before
    assert "bonus" not in after
    assert before in both
    assert after in both


def test_shapes_that_differ_in_decimals_or_in_a_template_s_own_digits_do_not_mask_one_another():
    assert match_message("Memory pool end. avail mem=5.5 GB") is None
    assert match_message("Memory pool end. avail mem=5.50 GB") is not None
    assert match_message("FlashMLA only supports a page_size of 32, change page_size to 32.") is None
    assert match_message("FlashMLA only supports a page_size of 64, change page_size to 64.") is not None


OOM = (
    "[2025-01-15 10:22:41 TP0] Prefill out of memory. Try to lower your batch size.\nTry to allocate 4096 tokens.\n"
    "Available tokens: 1024 (available_size=1000 + evictable_size=24)"
)


def test_the_lines_behind_a_record_belong_to_it():
    parsed = kvdiag.parse_line(OOM)
    assert parsed["family"] == "oom-tokens"
    assert parsed["fields"]["Try to allocate"] == 4096
    assert parsed["fields"]["evictable_size"] == 24
    assert kvdiag.parse_line(OOM.split("\n")[0])["family"] == "oom-tokens"


@pytest.mark.shared
def test_every_example_of_the_facts_is_read_by_its_own_family(capsys):
    rows = [json.loads(line) for line in (SHARED / "facts" / "log-lines.jsonl").read_text().splitlines()]
    counts: Counter[str] = Counter()
    for row in rows:
        if row["family"] == "log-prefix":
            continue
        first = row["example"].strip("\n").split("\n")[0]
        for text in (row["example"], f"[2025-01-15 10:22:41 TP0] {row['example']}", first):
            parsed = kvdiag.parse_line(text, release=row["first_release"])
            assert parsed is not None, text
            assert row["family"] in parsed["families"], text
            assert all(parsed["units"].values()), text
            counts["own family first" if parsed["family"] == row["family"] else "shared text"] += 1
    templates = sum(len(family.variants) for family in families().values())
    with capsys.disabled():
        print(f"\n{len(rows)} rows, {len(families())} families, {templates} templates: {dict(counts)}")


@pytest.mark.parametrize(
    "name", ["", "Exception: ", "RuntimeError: ", "torch.OutOfMemoryError: ", "WARNING server_args.py:2385: "]
)
def test_what_stands_before_a_message_is_no_part_of_it(name):
    match = match_message(f"{name}Capture cuda graph failed: CUDA out of memory")
    assert match is not None
    assert match.family == "graph-failed"
