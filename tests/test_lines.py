"""Every shipped line format reads its own samples, and damage is never read as a whole number."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kvdiag
from kvdiag.lines import match_message, read_records
from kvdiag.lines.literal import parse_arguments
from kvdiag.reading import Line


@pytest.mark.parametrize(
    ("tags", "rank"),
    [("", None), (" TP0", "TP0"), (" DP1 PP0 TP3 EP3", "DP1 PP0 TP3 EP3"), (" DP1 ATTN_CP0 TP4 EP4", "DP1 ATTN_CP0 TP4 EP4")],
)
def test_rank_tags_are_read_in_any_order(tags, rank):
    parsed = kvdiag.parse_line(f"[2025-01-15 10:22:41{tags}] Memory pool end. avail mem=9.86 GB")
    assert (parsed["family"], parsed["fields"], parsed["units"]) == ("memory-pool-end", {"avail mem": 9.86}, {"avail mem": "GiB"})
    assert parsed["rank"] == rank


def test_a_record_behind_a_progress_bar_is_read():
    text = "Capturing batches: 100%|####| 4/4 [00:18<00:00][2025-07-28 03:34:38 TP1] Memory pool end. avail mem=2.43 GB"
    assert [record.family for record in read_records([Line(1, text)])][-1] == "memory-pool-end"


def test_siblings_of_a_known_shape_keep_their_own_values():
    first = match_message("KV Cache is allocated. #tokens: 10, K size: 1.00 GB, V size: 2.00 GB")
    second = match_message("KV Cache is allocated. #tokens: 99, K size: 3.00 GB, V size: 4.00 GB")
    assert first is not None
    assert second is not None
    assert [text for _, _, text in second.values] == ["99", "3.00", "4.00"]


def test_a_line_cut_within_a_number_is_not_matched():
    assert match_message("KV Cache is allocated. #tokens: 104273, K size: 5.57 GB, V size: 5.5") is None


@given(st.integers(0, 10**12), st.decimals(0, 10**4, places=2), st.decimals(0, 10**4, places=2))
def test_any_value_put_into_a_template_comes_back(tokens, keys, values):
    parsed = kvdiag.parse_line(f"KV Cache is allocated. #tokens: {tokens}, K size: {keys} GB, V size: {values} GB")
    assert parsed is not None
    assert parsed["fields"] == {"#tokens": tokens, "K size": float(keys), "V size": float(values)}


ARGUMENTS = st.dictionaries(
    st.from_regex(r"[a-z][a-z_0-9]{0,12}", fullmatch=True),
    st.recursive(
        st.none() | st.booleans() | st.integers(-(10**9), 10**9) | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
        max_leaves=8,
    ),
    min_size=1,
    max_size=8,
)


@given(ARGUMENTS)
def test_both_spellings_of_a_server_args_dump_come_back_whole(arguments):
    dataclass = "ServerArgs(" + ", ".join(f"{name}={value!r}" for name, value in arguments.items()) + ")"
    assert parse_arguments(dataclass) == (arguments, True)
    assert parse_arguments(repr(arguments)) == (arguments, True)


@given(ARGUMENTS, st.data())
def test_a_cut_dump_gives_only_whole_arguments(arguments, data):
    text = repr(arguments)
    cut = data.draw(st.integers(0, len(text) - 1))
    read, whole = parse_arguments(text[:cut])
    assert not whole
    assert all(arguments[name] == value for name, value in read.items())
