"""How long `kvdiag explain` of a small log takes, as a ratio to ``python -c "import typer, rich"`` in the same run.

Usage: python bench/startup.py [LOG] [ROUNDS]; needs kvdiag, typer and rich in the running interpreter's environment.
Rounds are interleaved; the medians are compared. The first round warms the rule cache and the compiled modules.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time

DEFAULT_LOG = os.path.join(os.path.dirname(__file__), "..", "fixtures", "real", "0.5.22-qwen3-tp2-bind", "server.log")


def seconds(command: list[str]) -> float:
    """Wall time of one run of `command` in seconds."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    begin = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment)
    return time.perf_counter() - begin


def main() -> None:
    """Prints both medians and their ratio."""
    log = sys.argv[1] if len(sys.argv) > 1 else DEFAULT_LOG
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 15
    yardstick = [sys.executable, "-c", "import typer, rich"]
    explain = [sys.executable, "-m", "kvdiag", "explain", log]
    times: dict[str, list[float]] = {"yardstick": [], "explain": []}
    for command in (yardstick, explain):
        seconds(command)
    for _ in range(rounds):
        times["yardstick"].append(seconds(yardstick))
        times["explain"].append(seconds(explain))
    first, second = (statistics.median(times[name]) for name in ("yardstick", "explain"))
    print(f"import typer, rich: {first * 1000:.0f} ms; explain: {second * 1000:.0f} ms; ratio {second / first:.2f}")


if __name__ == "__main__":
    main()
