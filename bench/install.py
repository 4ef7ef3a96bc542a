"""What an install weighs and what each import costs: ``python bench/install.py`` (needs the package index).

Makes a clean environment of the running Python, installs the checkout, and prints for each package its size on disk and the
least processor time of five imports, each in a process of its own.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MODULES = {"gitpython": "git", "tree-sitter": "tree_sitter", "tree-sitter-python": "tree_sitter_python"}
PACKAGES = (
    "pyarrow", "pandas", "numpy", "zstandard", "rich", "tree-sitter", "tree-sitter-python", "gitpython",
    "jinja2", "shtab", "kvdiag",
)  # fmt: skip
_SIZES = """
import importlib.metadata, json, os, sys
def size(name):
    files = importlib.metadata.files(name) or []
    return sum(os.path.getsize(path) for path in {os.path.realpath(file.locate()) for file in files} if os.path.exists(path))
print(json.dumps({name: size(name) for name in sys.argv[1:]}))
"""
_IMPORT = "import time; a = time.process_time(); import {0}; print(time.process_time() - a)"


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        python = str(Path(folder) / "bin" / "python")
        print(f"environment alone: {weight(folder):.0f} MB")
        subprocess.run([python, "-m", "pip", "install", "-q", "--no-deps", str(ROOT)], check=True)
        print(f"with kvdiag, no dependencies: {weight(folder):.0f} MB")
        subprocess.run([python, "-m", "pip", "install", "-q", str(ROOT)], check=True)
        print(f"with its dependencies: {weight(folder):.0f} MB")
        subprocess.run([python, "-m", "pip", "install", "-q", f"{ROOT}[table]"], check=True)
        print(f"with the extra table: {weight(folder):.0f} MB")
        sizes = json.loads(subprocess.run([python, "-c", _SIZES, *PACKAGES], check=True, capture_output=True, text=True).stdout)
        for name in PACKAGES:
            print(f"{name:20} {sizes[name] / 1e6:6.1f} MB  {cost(python, MODULES.get(name, name)):5.0f} ms")


def weight(folder: str) -> float:
    """Megabytes on disk, as du counts them."""
    told = subprocess.run(["du", "-sk", folder], check=True, capture_output=True, text=True).stdout
    return int(told.split()[0]) * 1024 / 1e6


def cost(python: str, module: str) -> float:
    """Milliseconds of processor time."""
    command = [python, "-c", _IMPORT.format(module)]
    return 1000 * min(float(subprocess.run(command, check=True, capture_output=True, text=True).stdout) for _ in range(5))


if __name__ == "__main__":
    main()
