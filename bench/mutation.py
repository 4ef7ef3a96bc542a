"""The mutation score of the arithmetic: which share of small changes to it the tests notice.

    pip install mutmut
    python bench/mutation.py [NUMBERS]

Runs mutmut (its settings are in pyproject.toml) on the mutants of ``kvdiag/quantity`` and ``kvdiag/sizing`` whose number within
their function matches NUMBERS (``*7``: every tenth; default: all), and prints a table of modules and the names of those
that no test noticed. ``mutmut show NAME`` shows one.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

SURVIVED, UNTESTED = 0, 33
"""mutmut's codes: all tests passed; no test reaches the function."""


def codes() -> dict[str, int]:
    """What became of each mutant that was tried, by its name."""
    found: dict[str, int | None] = {}
    for path in sorted(Path("mutants/kvdiag").rglob("*.meta")):
        found |= json.loads(path.read_text(encoding="utf-8"))["exit_code_by_key"]
    return {name: code for name, code in found.items() if code is not None}


def table(tried: Mapping[str, int]) -> str:
    """A row a module: mutants, killed, share; the last row is the whole."""
    every: Counter[str] = Counter()
    killed: Counter[str] = Counter()
    for name, code in tried.items():
        for row in (name.split(".x", 1)[0], "all"):
            every[row] += 1
            killed[row] += code not in (SURVIVED, UNTESTED)
    modules = [*sorted(set(every) - {"all"}), "all"]
    rows = [f"| {row} | {every[row]} | {killed[row]} | {killed[row] / every[row]:.0%} |" for row in modules]
    return "\n".join(["| module | mutants | killed | share |", "|---|---|---|---|", *rows])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("numbers", nargs="?", default="*", help="a pattern of mutants' numbers, such as *7")
    pattern = f"*__mutmut_{parser.parse_args().numbers}"
    command = [sys.executable, "-m", "mutmut", "run", "--max-children", "1", pattern]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    tried = codes()
    if not tried:
        sys.exit(f"mutmut tried nothing: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    print(table(tried))
    print(*(name for name, code in tried.items() if code in (SURVIVED, UNTESTED)), sep="\n")


if __name__ == "__main__":
    main()
