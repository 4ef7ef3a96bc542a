"""The mutation score of the arithmetic: which share of small changes to it the tests notice.

    pip install mutmut
    python bench/mutation.py [COUNT [SEED]]

Runs mutmut (its settings are in pyproject.toml) on COUNT mutants of ``kvdiag/quantity`` and ``kvdiag/sizing``, drawn at random
with SEED (default: all of them), and prints a table of modules and the names of those that no test noticed. ``mutmut show
NAME`` shows one.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

SURVIVED, UNTESTED = 0, 33
"""mutmut's codes: all tests passed; no test reaches the function."""
FIRST = "kvdiag.quantity.dtype.*"
"""What is tried first, so that all are made and can be drawn from."""


def codes() -> dict[str, int | None]:
    """What became of each mutant by its name; None for one that was not tried."""
    found: dict[str, int | None] = {}
    for path in sorted(Path("mutants/kvdiag").rglob("*.meta")):
        found |= json.loads(path.read_text(encoding="utf-8"))["exit_code_by_key"]
    return found


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


def run(*names: str) -> None:
    """Makes all mutants and tries those of these names."""
    command = [sys.executable, "-m", "mutmut", "run", "--max-children", "1", *names]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if not codes():
        sys.exit(f"mutmut made nothing: {done.stdout[-2000:]}{done.stderr[-2000:]}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("count", nargs="?", type=int, help="how many mutants to draw")
    parser.add_argument("seed", nargs="?", type=int, default=1, help="what they are drawn with")
    arguments = parser.parse_args()
    run(FIRST)
    names = sorted(codes())
    chosen = names if arguments.count is None else random.Random(arguments.seed).sample(names, arguments.count)
    run(*chosen)
    after = codes()
    tried = {name: code for name in chosen if (code := after.get(name)) is not None}
    print(f"{len(tried)} of {len(names)} mutants, seed {arguments.seed}", table(tried), sep="\n\n")
    print(*(name for name, code in tried.items() if code in (SURVIVED, UNTESTED)), sep="\n")


if __name__ == "__main__":
    main()
