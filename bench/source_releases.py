"""`kvdiag source` on real releases: downloads SGLang's wheels and prints what its answers are held against.

    python bench/source_releases.py FOLDER --facts FACTS

FOLDER receives the wheels, one unpacked tree a release and a git repository with a tag each; FACTS holds symbols.jsonl and
log-lines.jsonl. By hand: it needs the network once, git, and for the speeds ripgrep.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections import Counter
from functools import lru_cache
from pathlib import Path
from typing import Any

from kvdiag.releases import parse_release
from kvdiag.source import PathStep, code_path, open_tree, path_changes
from kvdiag.source.anchors import number_rules
from kvdiag.source.find_line import find_line
from kvdiag.source.parsed import Parsed

RELEASES = [
    *("0.2.0", "0.2.15", "0.3.6", "0.4.1.post7", "0.4.4", "0.4.6", "0.4.9", "0.5.3"),
    *("0.5.8", "0.5.9", "0.5.11", "0.5.14", "0.5.16", "0.5.19", "0.5.22", "0.5.23"),
]
NAMES = "max_total_num_tokens|rest_memory|cell_size|profile_max_num_token|_profile_available_bytes"
SPEED_RELEASE = "0.5.22"
LINE = "KV Cache is allocated. dtype: torch.bfloat16, #tokens: 438681, K size: 26.78 GB, V size: 26.78 GB"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--facts", type=Path, required=True)
    parser.add_argument("--only", choices=("paths", "lines", "changes", "speed"), help="one part instead of all")
    parser.add_argument("--releases", nargs="*", default=RELEASES)
    given = parser.parse_args()
    for release in given.releases:
        unpacked(given.folder, release)
    for part in (paths, lines, changes, speed):
        if given.only in (None, part.__name__):
            part(given.folder, given.facts, given.releases)


def unpacked(folder: Path, release: str) -> Path:
    """The tree of a release, downloaded and unpacked when it is not there yet."""
    place = folder / release
    if not place.is_dir():
        folder.mkdir(parents=True, exist_ok=True)
        pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", str(folder), f"sglang=={release}"]
        subprocess.run(pip, check=True)
        (wheel,) = folder.glob(f"sglang-{release}-*.whl")
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(place, [name for name in archive.namelist() if not name.endswith(".so")])
    return place


def repository(folder: Path, releases: list[str]) -> Path:
    """One repository with a commit and a tag for each release."""
    repo = folder / "repo"
    if repo.is_dir():
        return repo
    repo.mkdir()

    def git(*arguments: str) -> None:
        identity = ["-c", "user.name=bench", "-c", "user.email=bench@example.org"]
        subprocess.run(["git", "-C", str(repo), *identity, *arguments], check=True, capture_output=True)

    git("init", "-q")
    for release in releases:
        shutil.rmtree(repo / "python", ignore_errors=True)
        shutil.copytree(folder / release / "sglang", repo / "python" / "sglang", ignore=shutil.ignore_patterns("*.so"))
        git("add", "-A")
        git("commit", "-q", "-m", release)
        git("tag", f"v{release}")
    return repo


def facts(path: Path, release: str) -> list[dict[str, Any]]:
    """The rows of a facts file that hold for a release."""
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    key = parse_release(release).key
    return [row for row in rows if parse_release(row["first_release"]).key <= key <= parse_release(row["last_release"]).key]


def paths(folder: Path, facts_folder: Path, releases: list[str]) -> None:
    """Every number's path in folder and git tree, each step held against Python's own parser and against symbols.jsonl."""
    repo = repository(folder, releases)
    count: Counter[str] = Counter()
    for release in releases:
        expected = facts(facts_folder / "symbols.jsonl", release)
        trees = (open_tree(str(folder / release)), open_tree(f"{repo}@v{release}"))
        for number in number_rules():
            found, again = (code_path(tree, number) for tree in trees)
            shown = {(step.file.rpartition("sglang/")[2], step.symbol) for step in found.steps}
            rows = {(row["file"], row["symbol"].replace("(module)", "<module>")) for row in expected if row["number"] == number}
            count["expected symbols"] += len(rows)
            count["expected symbols shown"] += len(rows & shown)
            count["steps"] += len(found.steps)
            count["steps held by ast"] += sum(_held(folder / release, step) for step in found.steps)
            first, second = ([(s.symbol, s.line, s.expression) for s in path.steps] for path in (found, again))
            count["paths"] += 1
            count["paths the same in folder and git"] += first == second
            if rows - shown or found.missing:
                print(f"  {release} {number}: not shown {sorted(rows - shown)} missing {found.missing}")
    print("paths:", dict(count))


@lru_cache(maxsize=4096)
def _definitions(file: Path) -> dict[str, list[tuple[int, int]]]:
    """Qualified name to the lines of each definition of it, by Python's own parser."""
    found: dict[str, list[tuple[int, int]]] = {"<module>": [(1, 10**9)]}
    todo: list[tuple[str, ast.AST]] = [("", ast.parse(file.read_text(encoding="utf-8")))]
    while todo:
        prefix, node = todo.pop()
        for child in ast.iter_child_nodes(node):
            name = prefix
            if isinstance(child, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
                name = f"{prefix}.{child.name}".lstrip(".")
                found.setdefault(name, []).append((child.lineno, child.end_lineno or child.lineno))
            if not isinstance(child, ast.expr):
                todo.append((name, child))
    return found


def _held(folder: Path, step: PathStep) -> bool:
    """Whether Python's own parser has the symbol around the step's lines, and the statement begins there."""
    within = any(low <= step.line <= step.end_line <= high for low, high in _definitions(folder / step.file).get(step.symbol, ()))
    text = (folder / step.file).read_text(encoding="utf-8").splitlines()[step.line - 1 : step.end_line]
    return within and step.expression.split("(")[0].split(" ")[0] in " ".join(text)


def lines(folder: Path, facts_folder: Path, releases: list[str]) -> None:
    """From the example of every line family to its statement; texts that several functions print can have one first only."""
    count: Counter[str] = Counter()
    for release in releases:
        parsed = Parsed(open_tree(str(folder / release)))
        rows = [row for row in facts(facts_folder / "log-lines.jsonl", release) if row["kind"] != "format"]
        for example in {row["example"]: None for row in rows}:
            found = find_line(parsed, example)
            got = [(candidate.message.file, candidate.message.symbol) for candidate in found]
            wanted = {(row["file"], row["function"]): row for row in rows if row["example"] == example}
            certain = bool(found) and found[0].confidence == "certain"
            count["texts"] += 1
            count["texts led first to a statement that prints them"] += bool(got) and got[0] in wanted
            count["texts several functions print"] += len(wanted) > 1
            count["lines"] += len(wanted)
            count["first"] += sum(got[:1] == [want] for want in wanted)
            count["among those shown"] += sum(want in got for want in wanted)
            count["certain"] += certain
            count["wrong and certain"] += certain and got[0] not in wanted
            for want, row in wanted.items():
                if want not in got:
                    print(f"  missed {release} {row['family']} ({row['kind']}): {example[:100]!r} of {want}, got {got[:2]}")
            if got and got[0] not in wanted:
                print(f"  not first {release}: {example[:100]!r} of {[*wanted]}, got {got[:1]}")
    shown, first = (count[name] / max(1, count["lines"]) for name in ("among those shown", "first"))
    texts = count["texts led first to a statement that prints them"] / max(1, count["texts"])
    print("lines:", dict(count))
    print(f"  {shown:.2%} of lines led to their statement, {first:.2%} first; {texts:.2%} of texts first to one that prints them")


def changes(folder: Path, facts_folder: Path, releases: list[str]) -> None:
    """The two drifts people asked about."""
    del facts_folder
    repo = repository(folder, releases)
    for old, new, number in (("0.5.9", "0.5.14", "max_total_num_tokens"), ("0.5.8", "0.5.9", "swa_max_total_num_tokens")):
        if old in releases and new in releases:
            print(f"changes of {number} from {old} to {new}:")
            for change in path_changes(open_tree(f"{repo}@v{old}"), open_tree(f"{repo}@v{new}"), number):
                print("  -", change.sentence[:240])


def speed(folder: Path, facts_folder: Path, releases: list[str]) -> None:
    """First and second answers beside ripgrep over the same tree, interleaved; wall seconds and peak memory."""
    del facts_folder
    tree, repo = folder / SPEED_RELEASE, repository(folder, releases)
    asked = {
        "rg -n": ["rg", "-n", NAMES, str(tree)],
        "number, folder": [str(tree), "max_total_num_tokens"],
        "line, folder": [str(tree), "--line", LINE],
        "number, git": [f"{repo}@v{SPEED_RELEASE}", "max_total_num_tokens"],
        "line, git": [f"{repo}@v{SPEED_RELEASE}", "--line", LINE],
    }
    best: dict[str, float] = {}
    for _ in range(5):
        with tempfile.TemporaryDirectory() as cache:
            for name, arguments in asked.items():
                for which in ("first", "second") if name != "rg -n" else ("first",):
                    command = arguments if name == "rg -n" else [sys.executable, "-m", "kvdiag", "source", *arguments]
                    begun = time.perf_counter()
                    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, env={**os.environ, "XDG_CACHE_HOME": cache})
                    _, status, used = os.wait4(process.pid, 0)
                    key = f"{name} {which}"
                    best[key] = min(best.get(key, 1e9), time.perf_counter() - begun)
                    best[f"{key} MB"] = max(best.get(f"{key} MB", 0), used.ru_maxrss / 1024)
                    assert status == 0, name
    for name, value in best.items():
        print(f"  {name:28} {value:8.2f}" + ("" if name.endswith("MB") else f"   {value / best['rg -n first']:.1f} x rg"))


if __name__ == "__main__":
    main()
