"""The example notebook runs from top to bottom, and results show themselves in it; the Python interface is all documented."""

from __future__ import annotations

import html
import inspect
import os
import re
import shutil
import subprocess
import sys

import pytest

import kvdiag
from tests.conftest import FIXTURES, ROOT

NOTEBOOK = "from-a-log-to-a-capacity.ipynb"
LOG = str(FIXTURES / "scenarios" / "kimi-k2.5-f0.88" / "server.log")
_EXECUTE = """
import nbclient, nbformat, sys
notebook = nbformat.read(sys.argv[1], as_version=4)
nbclient.NotebookClient(notebook, timeout=120, kernel_name="python3").execute()
nbformat.write(notebook, sys.argv[2])
"""


@pytest.fixture(scope="module")
def executed(tmp_path_factory):
    nbformat = pytest.importorskip("nbformat")
    pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    folder = tmp_path_factory.mktemp("notebook")
    shutil.copytree(FIXTURES, folder / "fixtures")
    opened_in = folder / "docs" / "examples"
    opened_in.mkdir(parents=True)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "XDG_CACHE_HOME": str(folder / "cache"), "HOME": str(folder)}
    environment["IPYTHONDIR"] = environment["JUPYTER_RUNTIME_DIR"] = str(folder / "jupyter")
    command = [
        sys.executable,
        "-W",
        "ignore",
        "-c",
        _EXECUTE,
        str(ROOT / "docs" / "examples" / NOTEBOOK),
        str(folder / "done.ipynb"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, cwd=opened_in, env=environment, timeout=280)
    assert done.returncode == 0, done.stderr
    notebook = nbformat.read(folder / "done.ipynb", as_version=4)
    return {cell.id: cell.get("outputs", []) for cell in notebook.cells}


def _shown(executed, cell, kind):
    return next(output["data"][kind] for output in executed[cell] if kind in output.get("data", {}))


def test_the_example_notebook_shows_the_page_of_the_report(executed):
    page = html.unescape(re.search(r'srcdoc="([^"]*)"', _shown(executed, "explain", "text/html"))[1])
    assert "How the numbers follow from each other" in page
    assert "Findings" in page
    assert _shown(executed, "explain", "text/markdown").startswith("### SGLang")


def test_the_example_notebook_shows_charts_and_tables(executed):
    page = html.unescape(_shown(executed, "review", "text/html"))
    assert "Usage of the pools" in page
    described = _shown(executed, "timeline", "text/plain")
    assert re.search(r"^count( +143\.0){4}$", described, re.MULTILINE), described
    assert "max_total_num_tokens" not in _shown(executed, "line", "text/plain")
    assert "kv-alloc" in _shown(executed, "line", "text/plain")
    assert re.search(r">[\d,]{7,}<", _shown(executed, "sweep", "text/html"))


def test_a_frame_lets_nothing_out_of_a_hostile_log(tmp_path):
    """A model name from the log may hold markup; it stays text inside the frame and cannot end the attribute."""
    hostile = tmp_path / "server.log"
    text = (FIXTURES / "scenarios" / "kimi-k2.5-f0.88" / "server.log").read_text(encoding="utf-8")
    hostile.write_text(text.replace("moonshotai/Kimi-K2.5", 'x"></iframe><script>alert(1)</script>'), encoding="utf-8")
    shown = kvdiag.explain(str(hostile))._repr_html_()
    assert shown.count('"') == 8, "title, sandbox, srcdoc and style: nothing else is quoted"
    assert "<script" not in shown
    assert "<script>alert" not in html.unescape(re.search(r'srcdoc="([^"]*)"', shown)[1])


def test_a_sizing_shows_as_a_table():
    config = FIXTURES / "real" / "0.5.9-qwen3-memfrac005-nocap" / "config.json"
    sized = kvdiag.size(config=str(config), release="0.5.9", args={"mem_fraction_static": 0.8})
    shown = sized._repr_html_()
    assert f">{sized.bytes_per_token:,}<" in shown
    assert "max_total_num_tokens" not in shown, "unknown without memory, so not shown"


def test_review_is_what_postmortem_prints(kvdiag_json):
    assert kvdiag.review(LOG).to_dict()["starts"][0]["phases"] == kvdiag_json("postmortem", LOG)["starts"][0]["phases"]


@pytest.fixture
def kvdiag_json(kvdiag):
    import json

    return lambda *arguments: json.loads(kvdiag(*arguments, "--format", "json").stdout)


def test_all_that_is_public_is_documented_and_typed():
    page = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
    for name in kvdiag.__all__:
        item = getattr(kvdiag, name)
        assert item.__doc__, name
        assert f"`kvdiag.{name}" in page, name
        if inspect.isfunction(item):
            hints = inspect.signature(item)
            assert hints.return_annotation is not inspect.Signature.empty, name
            assert all(each.annotation is not inspect.Signature.empty for each in hints.parameters.values()), name
    with pytest.raises(AttributeError, match="no attribute 'api_of_tomorrow'"):
        kvdiag.api_of_tomorrow  # noqa: B018
