"""The documentation builds with every link and reference page in place."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from kvdiag.cli.main import COMMANDS
from tests.conftest import CHECKOUT, ROOT

of_checkout = pytest.mark.skipif(not CHECKOUT, reason="tests the checkout itself")


@of_checkout
def test_the_site_builds_strictly(tmp_path):
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=environment,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    reference = tmp_path / "site" / "reference"
    for page in ("lines/kv-alloc", "findings/KV305", "numbers/cell_size", "schemas/explain", "drift", "commands"):
        assert (reference / f"{page}.html").exists(), page


def test_the_picture_of_the_readme_is_what_its_script_makes(tmp_path):
    script = "import sys; sys.path.insert(0, 'docs'); import picture; sys.stdout.write(picture.picture())"
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "utf-8", "XDG_CACHE_HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, encoding="utf-8", cwd=ROOT, env=environment, timeout=60
    )
    assert done.returncode == 0, done.stderr
    committed = (ROOT / "docs" / "explain.svg").read_text(encoding="utf-8")
    assert done.stdout == committed, "run python docs/picture.py"


@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="every Python words argparse's help a little otherwise")
def test_the_manual_page_is_what_its_script_makes(tmp_path):
    pytest.importorskip("argparse_manpage")
    script = "import sys; sys.path.insert(0, 'docs'); import manual; sys.stdout.write(manual.manual())"
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "XDG_CACHE_HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, encoding="utf-8", cwd=ROOT, env=environment, timeout=60
    )
    assert done.returncode == 0, done.stderr
    committed = (ROOT / "docs" / "kvdiag.1").read_text(encoding="utf-8")
    assert done.stdout == committed, "run python docs/manual.py"
    assert all(f"kvdiag {name}" in committed for name in COMMANDS)


@of_checkout
def test_the_files_the_recipes_name_exist():
    """A recipe that names a file or test that moved sends people astray."""
    for page in ("CONTRIBUTING.md", "ARCHITECTURE.md", "README.md"):
        text = (ROOT / page).read_text(encoding="utf-8")
        named = set(re.findall(r"(?<![\w/.<>-])(?:rules|kvdiag|tests|bench|docs|fixtures)/[\w./-]*\w", text))
        missing = sorted(path for path in named if not (ROOT / path).exists())
        assert not missing, f"{page}: {missing}"
