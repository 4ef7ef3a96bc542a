"""Logs of other engines are named, and none of their numbers is taken for SGLang's."""

from __future__ import annotations

import pytest

import kvdiag
from kvdiag import rulebook
from kvdiag.lines.neighbours import forks, neighbour_of
from tests.conftest import FIXTURES

DOCUMENTS = rulebook.load("neighbours")
POOL = "[2025-09-09 15:10:37] KV Cache is allocated. #tokens: 315424, K size: 16.84 GB, V size: 16.84 GB\n"


@pytest.mark.parametrize("document", DOCUMENTS, ids=[document["engine"] for document in DOCUMENTS])
def test_a_log_of_a_neighbour_is_refused_by_name(document, tmp_path):
    path = tmp_path / "server.log"
    path.write_text("".join(sample + "\n" for sample in document["samples"]))
    with pytest.raises(kvdiag.KvdiagError, match=document["engine"].split()[0]):
        kvdiag.explain(str(path))


@pytest.mark.parametrize("engine", sorted(forks()))
def test_a_forks_lines_of_sglangs_shape_are_not_read(engine, tmp_path):
    document = next(document for document in DOCUMENTS if document["engine"] == engine)
    path = tmp_path / "server.log"
    path.write_text(f"[2025-09-09 15:10:37] {document['samples'][0]}\n{POOL}")
    with pytest.raises(kvdiag.KvdiagError, match=engine):
        kvdiag.explain(str(path))


def test_no_line_of_a_real_log_is_a_forks():
    for log in FIXTURES.glob("*/*/server.log"):
        for line in log.read_text(encoding="utf-8").splitlines():
            assert neighbour_of(line) not in forks(), line[:200]
