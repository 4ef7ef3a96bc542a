"""The tests against the wheel as built, on every Python named: ``python bench/wheel.py python3.11 python3.12 python3.13``.

Builds the sdist, and from it the wheel, once; for each interpreter makes a clean environment, installs the wheel with the extra
`dev`, and runs the tests in a folder that holds everything of the checkout but the package. `--tests` names test files (default:
all).
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
_NOT_COPIED = {"kvdiag", ".git", ".venv"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pythons", nargs="+", metavar="PYTHON")
    parser.add_argument("--tests", nargs="*", default=["tests"], metavar="FILE")
    parser.add_argument("--with", dest="extra", default="dev", metavar="EXTRA[,PACKAGE...]", help="default: dev")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        wheel = build(Path(folder) / "dist")
        copy = Path(folder) / "checkout"
        shutil.copytree(ROOT, copy, ignore=lambda at, names: _NOT_COPIED & set(names) if Path(at) == ROOT else set())
        failed = [python for python in given.pythons if not passes(python, wheel, copy, Path(folder), given)]
    sys.exit(f"failed: {', '.join(failed)}" if failed else 0)


def build(target: Path) -> Path:
    """The wheel, built from the sdist that the checkout gives."""
    subprocess.run([sys.executable, "-m", "build", "--outdir", target, ROOT], check=True, stdout=subprocess.DEVNULL)
    (wheel,) = target.glob("*.whl")
    return wheel


def passes(python: str, wheel: Path, copy: Path, folder: Path, given: argparse.Namespace) -> bool:
    """Whether the tests pass with `wheel` installed for `python`."""
    venv = folder / Path(python).name / "venv"
    subprocess.run([python, "-m", "venv", venv], check=True)
    extra, *packages = given.extra.split(",")
    pip = [venv / "bin" / "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, f"{wheel}[{extra}]" if extra else wheel, *packages], check=True)
    environment = {**os.environ, "PYTHONSAFEPATH": "", "XDG_CACHE_HOME": str(folder / "cache")}
    command = [venv / "bin" / "python", "-m", "pytest", "-q", "-p", "no:cacheprovider", *given.tests]
    where = subprocess.run(
        [venv / "bin" / "python", "-c", "import kvdiag; print(kvdiag.__file__)"], cwd=copy, capture_output=True, text=True
    )
    assert str(venv) in where.stdout, f"not the wheel: {where.stdout}"
    print(f"{python}: {subprocess.run([python, '--version'], capture_output=True, text=True).stdout.strip()}", flush=True)
    return subprocess.run(command, cwd=copy, env=environment).returncode == 0


if __name__ == "__main__":
    main()
