"""The wheel and the sdist as built hold what the tool needs, and the wheel runs away from the checkout."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile

import pytest

from tests.conftest import CHECKOUT, FIXTURES, ROOT

pytestmark = pytest.mark.skipif(not CHECKOUT, reason="tests the checkout itself")

LOG = str(FIXTURES / "scenarios" / "kimi-k2.5-f0.88" / "server.log")


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    target = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--outdir", str(target), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return target


def test_the_wheel_holds_every_rule_and_no_test(built):
    (wheel,) = built.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    rules = {f"kvdiag/{path.relative_to(ROOT).as_posix()}" for path in (ROOT / "rules").rglob("*.toml")}
    assert rules <= names
    assert "kvdiag/py.typed" in names
    assert any(name.endswith(".data/data/share/man/man1/kvdiag.1") for name in names)
    assert not [name for name in names if name.startswith(("tests/", "fixtures/"))]


def test_the_sdist_can_build_the_wheel_again(built):
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.split("/", 1)[1] for name in archive.getnames() if "/" in name}
    assert {"pyproject.toml", "README.md", "LICENSE", "kvdiag/__init__.py", "rules/releases/order.toml"} <= names


def test_the_readmes_first_command_works_on_a_clean_machine(tmp_path):
    """As it stands, but without the dependencies, which this command does not need."""
    command = re.search(r"<!-- main -->\n```bash\n(.*?)\n```", (ROOT / "README.md").read_text(encoding="utf-8"))[1]
    assert " install -q . " in command
    left_out = shutil.ignore_patterns(".git", ".venv", "__pycache__", "site", "mutants", ".*_cache", ".hypothesis")
    shutil.copytree(ROOT, tmp_path / "checkout", ignore=left_out)
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache"), "PYTHONPATH": ""}
    words = command.replace("python3 -m venv", f"{sys.executable} -m venv").replace("install -q .", "install -q --no-deps .")
    done = subprocess.run(
        ["bash", "-c", words], capture_output=True, text=True, cwd=tmp_path / "checkout", env=environment, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert "159,277 tokens" in done.stdout


def test_the_installed_wheel_explains_a_log(built, tmp_path):
    (wheel,) = built.glob("*.whl")
    site = tmp_path / "site"
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", str(site), str(wheel)]
    subprocess.run(install, check=True, timeout=120, capture_output=True)
    environment = {**os.environ, "PYTHONPATH": str(site), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    code = "import kvdiag, sys; print(kvdiag.__file__); from kvdiag.cli.main import main; main(['explain', sys.argv[1]])"
    done = subprocess.run(
        [sys.executable, "-c", code, LOG], capture_output=True, text=True, cwd=tmp_path, env=environment, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert str(site) in done.stdout
    assert "159,277 tokens" in done.stdout
