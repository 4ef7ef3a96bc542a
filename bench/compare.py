"""kvdiag beside the ways people read these logs now, in one run: interleaved rounds, medians, peak memory.

    python bench/compare.py --mb 200 --rounds 5 [--sglang FOLDER] [-o docs/performance.md]

A contender whose program or library is not installed is left out and named. ``FOLDER`` is an unpacked SGLang wheel, whose
own parser then takes part.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PATTERN = (
    r"#running-req: (\d+), #token: (\d+), token usage: ([0-9.]+), cuda graph: (\w+), "
    r"gen throughput \(token/s\): ([0-9.]+), #queue-req: (\d+)"
)
POLARS = """
import sys, polars as pl
lines = pl.DataFrame({"line": open(sys.argv[1]).read().splitlines()}).lazy()
decode = lines.filter(pl.col("line").str.contains("Decode batch", literal=True))
found = decode.select(pl.col("line").str.extract_groups(sys.argv[2])).unnest("line")
table = found.select(pl.col("1", "2", "6").cast(pl.Int64), pl.col("3", "5").cast(pl.Float64), pl.col("4")).collect()
print(table.height)
"""
DUCKDB = """
import sys, duckdb
groups = ", ".join(f"regexp_extract(line, $2, {n})::DOUBLE AS c{n}" for n in (1, 2, 3, 5, 6))
source = "read_csv($1, columns={'line': 'VARCHAR'}, delim='\\x01', quote='', escape='', header=false, max_line_size=1048576)"
inner = f"SELECT {groups} FROM {source} WHERE contains(line, 'Decode batch')"
query = f"SELECT count(*), sum(c1), sum(c2), sum(c3), sum(c5), sum(c6) FROM ({inner})"
print(duckdb.execute(query, [sys.argv[1], sys.argv[2]]).fetchall())
"""
OWN_PARSER = """
import sys
sys.path.insert(0, sys.argv[2])
import importlib.util
spec = importlib.util.spec_from_file_location("log_parser", sys.argv[2])
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
print(module.parse(open(sys.argv[1]).read()).height)
"""
LNAV_FORMAT = {
    "$schema": "https://lnav.org/schemas/format-v1.schema.json",
    "sglang_decode": {
        "title": "SGLang decode lines",
        "regex": {
            "decode": {
                "pattern": r"^\[(?<timestamp>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)(?: DP\d+)?(?: TP\d+)?\] (?<body>Decode batch, "
                r"#running-req: (?<running>\d+), #token: (?<token>\d+), token usage: (?<usage>[\d.]+), cuda graph: \w+, "
                r"gen throughput \(token/s\): (?<throughput>[\d.]+), #queue-req: (?<queue>\d+))$"
            },
            "other": {"pattern": r"^\[(?<timestamp>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)[^\]]*\] (?<body>.*)$"},
        },
        "value": {
            "running": {"kind": "integer"},
            "token": {"kind": "integer"},
            "usage": {"kind": "float"},
            "throughput": {"kind": "float"},
            "queue": {"kind": "integer"},
        },
        "sample": [
            {
                "line": "[2025-01-15 10:00:40 DP0 TP0] Decode batch, #running-req: 93, #token: 185398, token usage: 0.42, "
                "cuda graph: True, gen throughput (token/s): 2285.03, #queue-req: 0"
            }
        ],
    },
}
LNAV_SQL = ";SELECT count(running), sum(running), sum(token), sum(usage), sum(throughput), sum(queue) FROM sglang_decode"


@dataclass
class Way:
    """A command that reads the log, with what was measured of it."""

    name: str
    command: list[str]
    seconds: list[float] = field(default_factory=list)
    peak: int = 0
    failed: str = ""

    def run(self, environment: dict[str, str]) -> None:
        """One more time."""
        begin = time.perf_counter()
        with tempfile.TemporaryFile() as out:
            process = subprocess.Popen(self.command, stdout=out, stderr=out, stdin=subprocess.DEVNULL, env=environment)
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            self.seconds.append(time.perf_counter() - begin)
            self.peak = max(self.peak, usage.ru_maxrss)
            if process.returncode:
                out.seek(0)
                self.failed = out.read()[-300:].decode("utf-8", "replace")


def ways(log: Path, folder: Path, sglang: str | None) -> list[Way]:
    """The contenders that can be run here."""
    python, kvdiag = sys.executable, [sys.executable, "-m", "kvdiag"]
    text = str(log)
    (folder / "formats" / "sglang").mkdir(parents=True)
    (folder / "formats" / "sglang" / "sglang.json").write_text(json.dumps(LNAV_FORMAT))
    found = [
        Way("rg -c 'Decode batch'", ["rg", "-c", "Decode batch", text]),
        Way("kvdiag timeline (all fields, parquet)", [*kvdiag, "timeline", text, "-o", str(folder / "t.parquet")]),
        Way("kvdiag timeline of .gz", [*kvdiag, "timeline", text + ".gz", "-o", str(folder / "g.parquet")]),
        Way("kvdiag timeline of .zst", [*kvdiag, "timeline", text + ".zst", "-o", str(folder / "z.parquet")]),
        Way("kvdiag explain", [*kvdiag, "explain", text]),
        Way("kvdiag postmortem (with explain)", [*kvdiag, "postmortem", text]),
        Way("polars extract_groups (6 fields)", [python, "-c", POLARS, text, PATTERN]),
        Way("duckdb regexp_extract (5 fields)", [python, "-c", DUCKDB, text, PATTERN]),
        Way("lnav SQL (5 fields)", ["lnav", "-n", "-I", str(folder), "-c", LNAV_SQL, text]),
    ]
    if sglang is not None:
        parser = next(Path(sglang).rglob("debug_utils/log_parser.py"))
        found.append(Way("SGLang's log_parser (9 fields)", [python, "-c", OWN_PARSER, text, str(parser)]))
    return [way for way in found if shutil.which(way.command[0])]


PACK = """
import gzip, shutil, sys, zstandard
with open(sys.argv[1], "rb") as log, gzip.open(sys.argv[1] + ".gz", "wb", 6) as packed:
    shutil.copyfileobj(log, packed, 1 << 20)
with open(sys.argv[1], "rb") as log, open(sys.argv[1] + ".zst", "wb") as packed:
    zstandard.ZstdCompressor().copy_stream(log, packed)
"""


def made(given: argparse.Namespace, folder: Path) -> Path:
    """The log, with its .gz and .zst beside it; made by other processes, as a child begins with its parent's peak memory."""
    log = folder / "server.log"
    if given.keep:
        log.symlink_to(Path(given.keep).resolve())
    else:
        maker = Path(__file__).with_name("make_log.py")
        subprocess.run([sys.executable, maker, log, "--mb", str(given.mb), "--seed", "7", "--ranks", "4"], check=True)
    subprocess.run([sys.executable, "-c", PACK, log], check=True)
    return log


def table(found: list[Way]) -> list[str]:
    """Markdown: median seconds, the ratio to the first, peak memory."""
    base = statistics.median(found[0].seconds)
    lines = ["| way | median s | times `rg` | peak MB | |", "| --- | --- | --- | --- | --- |"]
    for way in found:
        middle = statistics.median(way.seconds)
        note = "failed: " + way.failed.strip().splitlines()[-1][:80] if way.failed else ""
        lines.append(f"| {way.name} | {middle:.2f} | {middle / base:.1f} | {way.peak / 1024:.0f} | {note} |")
    return lines


def machine() -> str:
    """What was measured on, and with what."""
    cards = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    model = next((line.split(":", 1)[1].strip() for line in cards if "model name" in line), "?")
    versions = []
    for name in ("pyarrow", "numpy", "pandas", "polars", "duckdb"):
        try:
            versions.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            versions.append(f"{name} not installed")
    here = [tool for tool in ("rg", "lnav") if shutil.which(tool)]
    told = [subprocess.run([tool, "--version"], capture_output=True, text=True, check=False).stdout for tool in here]
    tools = [text.splitlines()[0] for text in told]
    return (
        f"{datetime.date.today()}, {os.cpu_count()} processors ({model}), Python {platform.python_version()}, "
        + ", ".join(versions + tools)
        + f"; load before {os.getloadavg()[0]:.1f}"
    )


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mb", type=float, default=200)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--sglang", metavar="FOLDER")
    parser.add_argument("--keep", metavar="LOG", help="a log made before, instead of a new one")
    parser.add_argument("-o", "--output", metavar="FILE", help="where the table is appended; default: standard output")
    given = parser.parse_args()
    subprocess.run([sys.executable, str(ROOT / "hatch_build.py")], check=True)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        log = made(given, folder)
        where = machine()
        found = ways(log, folder, given.sglang)
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        for _ in range(given.rounds + 1):
            for way in found:
                way.run(environment)
        for way in found:
            del way.seconds[0]
        lines = [f"### {log.stat().st_size / 1e6:,.0f} MB, {given.rounds} rounds", "", where, "", *table(found), ""]
    if given.output:
        with open(given.output, "a", encoding="utf-8") as file:
            file.write("\n".join(["", *lines]))
    print("\n".join(lines))


if __name__ == "__main__":
    main()
