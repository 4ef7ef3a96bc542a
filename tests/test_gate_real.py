"""Every real log: no drift from itself, drift from every other, and a start too fast to notice in a pipeline."""

from __future__ import annotations

import random
import re
import subprocess
import sys
from pathlib import Path

import pytest

from kvdiag.errors import NotSglangError
from kvdiag.gate import Observation, check, observe, write_baseline
from kvdiag.gate.baseline import parse_baseline
from kvdiag.gate.difference import difference
from tests.conftest import FIXTURES, ROOT, SHARED
from tests.gate_logs import LOGS, baseline

CASES = SHARED / "cases"


@pytest.fixture(scope="module")
def logs() -> dict[str, Observation]:
    found = {}
    for path in sorted((SHARED / "real-logs").glob("*/*/server.log")):
        try:
            found[f"{path.parent.parent.name}/{path.parent.name}"] = observe(str(path))
        except NotSglangError:
            continue
    assert len(found) > 20
    return found


@pytest.mark.shared
def test_every_real_log_drifts_from_every_other_and_not_from_itself(logs: dict[str, Observation]):
    silent, noisy = [], []
    for place, (name, log) in enumerate(logs.items()):
        kept = parse_baseline(write_baseline(log.snapshot), name)
        for other, observed in list(logs.items())[place % 2 :: 2]:
            outcome = check(observed, kept)
            if other != name and not outcome.failed:
                silent.append((name, other))
        noisy += [(name, drift.message) for drift in check(log, kept).drifts]
    assert not noisy
    assert not silent


@pytest.mark.shared
def test_a_reason_given_for_a_drift_between_real_logs_is_true(logs: dict[str, Observation]):
    for place, (name, log) in enumerate(logs.items()):
        for other, observed in list(logs.items())[(place + 1) % 2 :: 2]:
            before, after = log.snapshot, observed.snapshot
            for drift in check(observed, before).drifts:
                case = (name, other, drift.message)
                if drift.code == "KD121":
                    assert before.arguments.get(drift.name) != after.arguments.get(drift.name), case
                if drift.code in ("KD122", "KD123"):
                    assert name.partition("/")[0] != other.partition("/")[0], case
                if drift.code == "KD124":
                    assert before.model != after.model, case
                if "release changed" in drift.reason:
                    assert name.partition("/")[0] != other.partition("/")[0], case


RERUN = FIXTURES / "gate"


@pytest.mark.parametrize(("first", "second"), [("rerun-a", "rerun-b"), ("rerun-b", "rerun-a")])
def test_a_server_started_again_under_another_load_has_not_drifted(first: str, second: str):
    before, after = (observe(str(RERUN / name / "server.log")) for name in (first, second))
    assert before.snapshot.arguments != after.snapshot.arguments, "SGLang derived another fraction from free memory"
    outcome = check(after, parse_baseline(write_baseline(before.snapshot), first))
    assert not [drift.message for drift in outcome.drifts]
    assert "mem_fraction_static" in {drift.name for drift in outcome.noise}


def rerun(text: str, noise: random.Random) -> str:
    """The log of the same server on another day: other times, processes, load, and readings of the machine's memory."""
    lines = []
    for line in text.split("\n"):
        line = re.sub(r"\b20\d\d-\d\d-\d\d (\d\d)", lambda found: f"2027-03-04 {found[1]}", line)
        line = re.sub(r"(\[)(\d{3,6})(\])|(pid[=: ]+)(\d+)", lambda found: f"{found[1] or found[4]}77{found[3] or ''}", line)
        line = re.sub(r"(avail mem=)(\d+\.\d\d)", lambda found: f"{found[1]}{float(found[2]) + 0.01:.2f}", line)
        if re.search(r" batch[.,]? ", line):
            line = re.sub(r"(#(?:running-req|queue-req): )\d+", lambda found: f"{found[1]}{noise.randrange(1, 9)}", line)
            line = re.sub(r"(throughput \(token/s\): )\d+", lambda found: f"{found[1]}{noise.randrange(1, 900)}", line)
            lines += [line] * noise.randrange(1, 4)
        else:
            lines.append(line)
    return "\n".join(lines)


@pytest.mark.shared
@pytest.mark.parametrize("seed", range(2))
def test_every_real_log_made_anew_at_another_load_has_not_drifted(seed: int, logs: dict[str, Observation], tmp_path: Path):
    noise = random.Random(seed)
    noisy = []
    for name, log in logs.items():
        text = (SHARED / "real-logs" / name / "server.log").read_text(encoding="utf-8")
        (tmp_path / "server.log").write_text(rerun(text, noise), encoding="utf-8")
        outcome = check(observe(str(tmp_path / "server.log")), log.snapshot)
        noisy += [(name, drift.code, drift.message) for drift in outcome.drifts]
    assert not noisy


@pytest.mark.shared
def test_differences_of_real_logs_add_up_and_never_blame_a_release_that_is_the_same(logs: dict[str, Observation]):
    names = list(logs)
    for place, name in enumerate(names):
        for other in names[place + 1 : place + 8]:
            found = difference(logs[name], logs[other])
            if found.total is None:
                continue
            assert sum(term.tokens for term in found.terms) == found.total, (name, other)
            if name.partition("/")[0] == other.partition("/")[0]:
                assert "release" not in {term.cause for term in found.terms}, (name, other)


@pytest.mark.shared
@pytest.mark.parametrize("case", [path.parent.name for path in sorted(CASES.glob("*/after.log"))] if CASES.is_dir() else [])
def test_a_case_that_drifted_says_what_it_cannot_know(case: str):
    found = difference(*(observe(str(CASES / case / name)) for name in ("input.log", "after.log")))
    assert found.total
    assert sum(term.tokens for term in found.terms) == found.total
    for term in found.terms:
        assert term.cause == "unexplained"
        assert "Load weight begin" in term.why


def test_the_gate_on_2000_lines_takes_less_than_half_a_second_beyond_its_imports(tmp_path: Path):
    text = LOGS["tp2"].read_text(encoding="utf-8").splitlines(keepends=True)
    load = [line for line in text if "Decode batch" in line or "Prefill batch" in line]
    (tmp_path / "server.log").write_text(
        "".join([*text, *(load[n % len(load)] for n in range(2000 - len(text)))]), encoding="utf-8"
    )
    (tmp_path / "baseline.json").write_text(write_baseline(baseline("tp2")), encoding="utf-8")
    run = "from kvdiag.cli.main import main\ntry: main()\nexcept SystemExit as end: assert not end.code, end.code\n"
    whole = f"import sys; sys.argv = ['kvdiag', 'check', 'server.log', '--baseline', 'baseline.json']\n{run}"
    listed = _run(f"{whole}print('MODULES', *sys.modules)", tmp_path)[1].rsplit("MODULES", 1)[1].split()
    imports = "import importlib\n" + "".join(f"importlib.import_module({m!r})\n" for m in listed if m.startswith("kvdiag."))
    beyond = min(_run(whole, tmp_path)[0] for _ in range(5)) - min(_run(imports, tmp_path)[0] for _ in range(5))
    assert beyond < 0.5


def _run(code: str, folder: Path) -> tuple[float, str]:
    """Processor seconds (those of the clock depend on what else the machine does) and what was printed."""
    environment = {"PYTHONPATH": str(ROOT), "XDG_CACHE_HOME": str(folder / "cache"), "PATH": ""}
    timed = f"import time\n{code}\nprint('SECONDS', time.process_time())"
    done = subprocess.run([sys.executable, "-c", timed], cwd=folder, env=environment, capture_output=True, text=True, check=True)
    printed, seconds = done.stdout.rsplit("SECONDS", 1)
    return float(seconds), printed


def test_check_loads_no_heavy_library():
    code = (
        f"import sys; sys.argv = ['kvdiag', 'check', {str(LOGS['kimi'])!r}]\n"
        "from kvdiag.cli.main import main\ntry: main()\nexcept SystemExit: pass\nprint('LOADED', *sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    loaded = {name.partition(".")[0] for name in done.stdout.rsplit("LOADED", 1)[1].split()}
    assert not loaded & {"pandas", "numpy", "pyarrow", "tree_sitter", "git", "rich", "zstandard", "shtab", "pytest"}
