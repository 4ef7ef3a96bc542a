"""Fuzzes one target: ``python -m tests.fuzz.run TARGET [--runs N] [--seconds S]``; needs the atheris package.

Stops at a crash, at one input that takes over a second of processor time, or at more than 500 MB; the input at fault is
kept in the working folder as libFuzzer names it (crash-..., timeout-..., oom-...).
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

SECONDS_AT_MOST = 1.0
"""Of the processor for one input: those of the clock depend on what else the machine does, hence only a far limit on them."""


def main() -> None:
    import atheris

    with atheris.instrument_imports(include=["kvdiag"]):
        from tests.fuzz.targets import TARGETS, seeds

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target", choices=sorted(TARGETS))
    parser.add_argument("--runs", type=int, default=5_000_000)
    parser.add_argument("--seconds", type=int, default=1200)
    given = parser.parse_args()
    corpus = Path(tempfile.mkdtemp(prefix="kvdiag-fuzz-"))
    for index, seed in enumerate(seeds(given.target)):
        (corpus / f"seed{index}").write_bytes(seed)
    limits = [f"-runs={given.runs}", f"-max_total_time={given.seconds}", "-timeout=60", "-rss_limit_mb=500", "-max_len=8192"]
    target = TARGETS[given.target]

    def timed(data: bytes) -> None:
        begin = time.process_time()
        try:
            target(data)
        except Exception:
            Path(f"crash-{given.target}").write_bytes(data)
            raise
        assert time.process_time() - begin < SECONDS_AT_MOST, "a hang"

    target(b"")  # what is loaded once, rules and libraries, is no input's time
    atheris.Setup([sys.argv[0], str(corpus), *limits, "-print_final_stats=1"], timed)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
