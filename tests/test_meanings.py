"""A sentence of the report uses a field as the releases of the log mean it."""

from __future__ import annotations

import pytest

import kvdiag

PAGED = "tokens to compute, each request rounded up to whole pages"
ARGS = "[2026-01-05 10:00:00] server_args=ServerArgs(model_path='/models/x', tp_size=1, page_size={}, disable_radix_cache=True)\n"
PREFILL = (
    "[2026-05-17 02:59:0{} TP0] Prefill batch, #new-seq: 2, #new-token: 4000, #cached-token: 0, token usage: 0.40, "
    "#running-req: 5, #queue-req: 0, cuda graph: False, input throughput (token/s): 8120.00\n"
)


@pytest.mark.parametrize(
    ("release", "page", "said"),
    [
        ("0.5.15", 64, f"Here #new-token counts {PAGED}."),
        ("0.5.15", 1, ""),
        ("0.5.22", 64, ""),
        (None, 64, f"Here #new-token counts tokens to compute (0.1.17..0.4.7.post1) or {PAGED} (0.4.8..0.5.19)."),
    ],
)
def test_what_new_token_counts_is_said_where_it_is_not_the_tokens(release, page, said, tmp_path):
    path = tmp_path / "server.log"
    path.write_text(ARGS.format(page) + "".join(PREFILL.format(second) for second in range(6)), encoding="utf-8")
    (start,) = kvdiag.explain(str(path), release=release).starts
    (finding,) = (each for each in start.findings if each.code == "KV514")
    assert ("#new-token" in finding.message) == bool(said)
    assert said in finding.message
