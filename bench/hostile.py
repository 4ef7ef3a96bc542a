"""Times and peak memory of kvdiag on the largest hostile inputs: ``python bench/hostile.py [NAME...]``.

Each runs in a process of its own that may take at most 3 GiB of addresses; the inputs (up to 1 GB) lie in the folder for
temporary files while they are used. What is smaller is tried, and its limits asserted, by tests/test_hostile.py.
"""

from __future__ import annotations

import argparse
import bz2
import gzip
import lzma
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import zstandard

ROOT = Path(__file__).resolve().parent.parent
START = (
    b"[2025-01-15 10:22:41] server_args=ServerArgs(model_path='m', tp_size=1, mem_fraction_static=0.8)\n"
    b"[2025-01-15 10:22:41] Load weight begin. avail mem=79.86 GB\n"
    b"[2025-01-15 10:22:49] The server is fired up and ready to roll!\n"
)
ZEROS = bytes(1 << 24)
RUN = """
import resource, sys, time
resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30))
from kvdiag.cli.main import main
try:
    main()
finally:
    held = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
    print("\\nPEAK", int(held.split()[1]) >> 10, round(time.process_time(), 1), file=sys.stderr)
"""


def repeated(piece: bytes, times: int) -> Iterator[bytes]:
    return (piece for _ in range(times))


def zeros() -> Iterator[bytes]:
    return repeated(ZEROS, 40)


Inputs = dict[str, tuple[Callable[[], Iterator[bytes]], Callable[[str], object]]]


def inputs() -> Inputs:
    """Name to the pieces of the input and what opens the file for them."""

    def plain(path: str) -> object:
        return open(path, "wb")

    return {
        "one line of 1 GiB": (lambda: repeated(b"[2025-01-15 10:22:41] x" + b"a" * (1 << 20), 1 << 10), plain),
        "100,000 starts": (lambda: repeated(START * 1000, 100), plain),
        "1,000,000 starts": (lambda: repeated(START * 1000, 1000), plain),
        "640 MiB of zeros as .gz": (zeros, lambda path: gzip.open(path, "wb", compresslevel=1)),
        "640 MiB of zeros as .bz2": (zeros, lambda path: bz2.open(path, "wb", compresslevel=1)),
        "640 MiB of zeros as .xz": (zeros, lambda path: lzma.open(path, "wb", preset=0)),
        "640 MiB of zeros as .zst": (zeros, lambda path: zstandard.open(path, "wb")),
    }


def measured(path: str, command: str) -> str:
    """A row of the table: what came of it, seconds of the clock and of the processor, MiB at the peak."""
    begin = time.monotonic()
    done = subprocess.run([sys.executable, "-c", RUN, command, path], capture_output=True, cwd=ROOT, check=False)
    seconds = time.monotonic() - begin
    error, _, peak = done.stderr.decode("utf-8", "replace").rpartition("PEAK")
    mib, processor = peak.split()
    told = error.strip().replace(path, "FILE").removeprefix("kvdiag: ")[:60]
    return f"exit {done.returncode}{': ' + told if told else ''} | {seconds:.1f} | {processor} | {mib}"


def main() -> None:
    known = inputs()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(known)}; all by default")
    wanted = parser.parse_args().names or list(known)
    print("| input | what comes of it | seconds | of the processor | peak MiB |\n|---|---|---|---|---|")
    for name in wanted:
        pieces, opened = known[name]
        with tempfile.TemporaryDirectory(prefix="kvdiag-hostile-") as folder:
            path = f"{folder}/log"
            with opened(path) as file:  # type: ignore[attr-defined]
                for piece in pieces():
                    file.write(piece)
            print(f"| {name} | {measured(path, 'explain')} |", flush=True)


if __name__ == "__main__":
    main()
