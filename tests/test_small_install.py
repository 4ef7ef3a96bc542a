"""kvdiag installed without its dependencies: most commands need none of them, the others name what to install."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib

import pytest

import kvdiag as package
from kvdiag.errors import MissingError
from tests.conftest import FIXTURES, ROOT

LOG = str(FIXTURES / "scenarios" / "kimi-k2.5-f0.88" / "server.log")
_WITHOUT = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in sys.argv[1].split(","):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
from kvdiag.cli.main import main
main(sys.argv[2:])
"""
MODULES = "numpy,pandas,pyarrow,zstandard,rich,tree_sitter,tree_sitter_python,git,gitdb,jinja2,shtab,pygments,markupsafe"


def without(tmp_path, *arguments, modules=MODULES):
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    command = [sys.executable, "-c", _WITHOUT, modules, *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment, timeout=120)


def test_every_dependency_is_among_the_absent():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    named = project["dependencies"] + project["optional-dependencies"]["table"]
    modules = {text.split(">")[0].replace("-", "_").replace("gitpython", "git") for text in named}
    assert modules <= set(MODULES.split(","))


BASE = "pandas,pyarrow"
"""What only the extra ``table`` brings."""


@pytest.mark.parametrize(
    "arguments",
    [
        ["timeline", LOG, "-o", "rows.csv"], ["timeline", LOG, "-o", "rows.jsonl"], ["postmortem", LOG], ["watch", "--once", LOG],
        ["explain", LOG, "--format", "html"], ["postmortem", LOG, "--format", "html"],
    ],
    ids=lambda arguments: " ".join(word for word in arguments if "/" not in word),
)  # fmt: skip
def test_the_base_install_needs_neither_arrow_nor_pandas(arguments, tmp_path):
    done = without(tmp_path, *arguments, modules=BASE)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("arguments", [["timeline", LOG, "-o", "rows.parquet"], ["fleet", LOG, "-o", "table"]])
def test_what_needs_the_extra_names_it_before_it_reads(arguments, tmp_path):
    done = without(tmp_path, *arguments, modules=BASE)
    assert done.returncode == 2
    assert "this needs pyarrow, which is not installed; pip install 'kvdiag[table]'" in done.stderr
    assert not os.listdir(tmp_path)


def test_a_frame_without_pandas_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingError, match=r"needs pandas, .* pip install 'kvdiag\[table\]'"):
        package.timeline(LOG)


@pytest.mark.parametrize(
    "arguments",
    [
        ["explain", LOG], ["explain", LOG, "--format", "json"], ["explain", LOG, "--format", "md"], ["what", "token usage"],
        ["whatif", LOG, "--mem-fraction-static", "0.9"], ["size", "--model", "Qwen/Qwen3-8B", "--release", "0.5.9"],
        ["diff", LOG, LOG],         ["rules", "list"], ["schema", "explain"], ["baseline", LOG, "-o", "baseline.json"],
    ],
    ids=lambda arguments: " ".join(word for word in arguments if "/" not in word),
)  # fmt: skip
def test_what_needs_no_dependency_runs_without_them(arguments, tmp_path):
    done = without(tmp_path, *arguments)
    assert done.returncode == 0, done.stderr
    if arguments[0] == "baseline":
        assert without(tmp_path, "check", LOG, "--baseline", "baseline.json").returncode == 0


@pytest.mark.parametrize(
    ("arguments", "package"),
    [
        (["timeline", LOG, "-o", "rows.csv"], "numpy"), (["explain", LOG, "--format", "html"], "jinja2"),
        (["completion", "bash"], "shtab"),        (["watch", "--once", LOG], "numpy"),
    ],
    ids=lambda value: value if isinstance(value, str) else value[0],
)  # fmt: skip
def test_what_needs_one_names_it(arguments, package, tmp_path):
    done = without(tmp_path, *arguments)
    assert done.returncode == 2
    assert f"this needs {package}, which is not installed; pip install {package}" in done.stderr
    assert "bug" not in done.stderr


def test_a_package_is_named_as_it_is_installed(tmp_path):
    tree = tmp_path / "tree"
    (tree / "python" / "sglang" / "srt").mkdir(parents=True)
    (tree / "python" / "sglang" / "srt" / "server_args.py").write_text("x = 1\n")
    (tree / ".git").mkdir()
    done = without(tmp_path, "source", f"{tree}@v1", "max_total_num_tokens", modules="git,gitdb")
    assert done.returncode == 2
    assert "pip install gitpython" in done.stderr


def test_a_missing_part_of_kvdiag_itself_is_a_fault(tmp_path):
    done = without(tmp_path, "explain", LOG, modules="none")
    assert done.returncode == 0
    broken = _WITHOUT.replace('in sys.argv[1].split(",")', '== "kvdiag" and name.endswith("text_report")')
    done = subprocess.run(
        [sys.executable, "-c", broken, "", "explain", LOG],
        capture_output=True, text=True, cwd=tmp_path, timeout=60,
        env={**os.environ, "PYTHONPATH": str(ROOT), "XDG_CACHE_HOME": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 70
    assert "a bug in kvdiag" in done.stderr
