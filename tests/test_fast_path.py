"""The fast path gives the table that the strict rules give, on every fixture and on generated logs with rare shapes."""

from __future__ import annotations

import importlib.util
import json
import random
import sys

import pytest

from kvdiag.lines import kernel, read_records
from kvdiag.lines.shapes import learn
from kvdiag.lines.siblings import Siblings
from kvdiag.reading import Input
from kvdiag.reading.blocks import lines_of
from kvdiag.reading.unwrap import Unwrapper
from kvdiag.rows.frame import frame
from tests.conftest import CHECKOUT, FIXTURES, ROOT
from tests.wrappers import PASTED, WRAPPERS

LOGS = sorted(FIXTURES.rglob("*.log"))


def load(path):
    """A module that is no part of the package."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


make_log = load(ROOT / "bench" / "make_log.py")
if CHECKOUT:  # a wheel brings its own
    load(ROOT / "hatch_build.py").build()
WALKS = [pytest.param(True, id="kernel"), pytest.param(False, id="numpy")]


@pytest.fixture(autouse=True)
def walk(request, monkeypatch):
    """The compiled walk where it was built, or numpy's."""
    compiled = getattr(request, "param", True)
    if compiled and kernel.library() is None:
        pytest.skip("there is no C compiler here")
    if not compiled:
        monkeypatch.setattr("kvdiag.lines.scan.library", lambda: None)


def assert_same(path):
    import pyarrow as pa

    fast, strict = (frame([str(path)], strict=strict).drop(columns="offset") for strict in (False, True))
    assert list(fast.columns) == list(strict.columns)
    assert pa.Table.from_pandas(fast).equals(pa.Table.from_pandas(strict))
    return fast


@pytest.mark.parametrize("walk", WALKS, indirect=True)
@pytest.mark.parametrize("path", LOGS, ids=[path.parent.name for path in LOGS])
def test_fixtures_give_the_same_table(path):
    assert_same(path)


@pytest.mark.parametrize("walk", WALKS, indirect=True)
@pytest.mark.parametrize("seed", range(10))
def test_generated_logs_with_rare_shapes_give_the_same_table(seed, tmp_path):
    path = tmp_path / "generated.log"
    wrapper = ["none", "none", "kubectl", "ray"][seed % 4]
    options = {"every_variant": True, "rare": 0.05, "milliseconds": seed % 2 == 1, "ranks": 1 + seed % 4}
    make_log.write_log(path, size=150_000, seed=seed, wrapper=wrapper, **options)
    assert len(assert_same(path)) > 500


DAMAGE = [
    lambda line, n: line[: n % (len(line) + 1)],
    lambda line, n: line.replace(b": ", b": -", 1 + n % 4),
    lambda line, n: line.replace(b"1", b"1" * (n % 30)),
    lambda line, n: line.replace(b".", b"", 1 + n % 2),
    lambda line, n: line.replace(b".", b".0", 1 + n % 2),
    lambda line, n: line.replace(b"0", b"", n % 9),
    lambda line, n: line.replace(b"2025-01-15", b"2025-%02d-30" % (n % 15)),
    lambda line, n: line.replace(b" 1", b" 7", 1 + n % 2),
    lambda line, n: line + line[: n % 3 * 100],
    lambda line, n: line.replace(b"#", b"\xff", 1 + n % 5),
    lambda line, n: line.replace(b"TP", b"TP0", 1 + n % 2),
    lambda line, n: b"#" * (n % 300) + line,
    lambda line, n: line.replace(b"True", b"None").replace(b"0.", b"nan", n % 3),
    lambda line, n: line.replace(b", ", b"\r", n % 3),
    lambda line, n: b" " * (n % 9) + line[:0],
]


@pytest.mark.parametrize("walk", WALKS, indirect=True)
def test_damaged_lines_are_read_as_the_strict_rules_read_them(tmp_path):
    rng = random.Random(11)
    path = tmp_path / "damaged.log"
    make_log.write_log(path, size=200_000, seed=3, every_variant=True, rare=0.02)
    lines = path.read_bytes().split(b"\n")
    damaged = [rng.choice(DAMAGE)(line, rng.randrange(1000)) if rng.random() < 0.1 else line for line in lines]
    path.write_bytes(b"\n".join(damaged))
    assert len(assert_same(path)) > 700


def test_a_new_shape_in_the_middle_is_not_lost(tmp_path):
    path = tmp_path / "log"
    old = (
        b"[2025-01-15 10:00:40] Decode batch, #running-req: 93, #token: 185398, token usage: 0.42, cuda graph: True, "
        b"gen throughput (token/s): 2285.03, #queue-req: 0\n"
    )
    new = old.replace(b"cuda graph: True", b"accept len: 2.71, accept rate: 0.55, cuda graph: True")
    path.write_bytes(old * 5000 + new + old * 5000)
    table = assert_same(path)
    assert len(table) == 10001
    assert table["accept len"].count() == 1
    assert table["line"].iloc[5000] == 5001


def test_offsets_lead_to_the_lines(tmp_path):
    path = tmp_path / "log"
    make_log.write_log(path, size=300_000, seed=5)
    table = frame([str(path)])
    data = path.read_bytes()
    for row in table.sample(50, random_state=1).itertuples():
        assert b" batch" in data[row.offset : data.index(b"\n", row.offset)]
        assert data.count(b"\n", 0, row.offset) == row.line - 1


def test_short_lines_without_digits_are_read_by_both_walks(tmp_path, monkeypatch):
    import kvdiag
    from kvdiag.lines import scan

    log = tmp_path / "short.log"
    log.write_text("aaaa\n" * 60_000 + "b" * 1_000_000 + "\n", encoding="utf-8")
    for walk in (scan.library, lambda: None):
        monkeypatch.setattr(scan, "library", walk)
        with pytest.raises(kvdiag.KvdiagError, match="no SGLang"):
            kvdiag.explain(str(log))


def wrapped_lines(seed=5, size=60_000):
    """Lines of a generated log with rare shapes, a line cut to several parts by container engines, and noise."""
    lines = [line for line, _ in zip(stripped(seed), range(size // 150), strict=False)]
    long = f"[2025-01-15 10:00:41] server_args={{'model_path': '/m', 'note': '{'x' * 40_000}'}}"
    return [*lines[:60], long, *lines[60:200], "Traceback (most recent call last):", "  File x", "ValueError: 1", *lines[200:]]


def stripped(seed):
    return (line for line, _, _ in make_log.lines(seed=seed, ranks=2, rare=0.03, every_variant=True))


@pytest.mark.parametrize("walk", WALKS, indirect=True)
@pytest.mark.parametrize("name", [*WRAPPERS, *PASTED])
def test_wrapped_logs_give_the_same_table(name, tmp_path):
    path = tmp_path / "wrapped.log"
    path.write_text("\n".join({**WRAPPERS, **PASTED}[name](wrapped_lines())) + "\n", encoding="utf-8", newline="")
    assert len(assert_same(path)) > 200


@pytest.mark.parametrize("walk", WALKS, indirect=True)
@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be", "utf-8-sig"])
def test_other_encodings_give_the_same_table(encoding, tmp_path):
    path = tmp_path / "log"
    path.write_bytes("\r\n".join([*wrapped_lines(), ""]).encode(encoding))
    assert len(assert_same(path)) > 200


def test_nuls_of_a_truncated_log_are_passed_over(tmp_path):
    path = tmp_path / "log"
    text = "\n".join(wrapped_lines()).encode()
    path.write_bytes(b"\0" * 100_000 + text + b"\n\0\0\0" + text)
    assert len(assert_same(path)) > 400


OFTEN = "[2025-01-15 10:00:40] Decode batch, #running-req: 9, #token: 90, token usage: 0.42, gen throughput (token/s): 2.0"
NAMED = {
    "compose": lambda n, line: f"sglang-{n % 2}  | {line}",
    "srun": lambda n, line: f"{n % 2 + 40}: {line}",
    "pods": lambda n, line: f"[pod/sglang-{n % 2}/server] 2025-01-15T10:00:{n % 60:02}.{n:09}Z {line}",
    "shipper": lambda n, line: json.dumps({"line": n, "kubernetes": {"pod_name": f"sglang-{n % 2}"}, "message": line}),
    "key": lambda n, line: json.dumps({"a": n, ("log" if n % 2 else f"k{n % 8}s"): line, "pod": "a"}),
    "number": lambda n, line: f'{{"level":{n % 3}0,"message":"{line}","pod":"p"}}',
}


@pytest.mark.parametrize("walk", WALKS, indirect=True)
@pytest.mark.parametrize("name", NAMED)
def test_servers_of_one_log_are_told_apart_by_the_digits_of_their_names(name, tmp_path):
    path = tmp_path / "log"
    path.write_text("".join(NAMED[name](n, f"{OFTEN}{n}") + "\n" for n in range(3000)), encoding="utf-8")
    table = assert_same(path)
    if name not in ("key", "number"):
        assert sorted(table["stream"].value_counts()) == [1500, 1500]


@pytest.mark.parametrize("walk", WALKS, indirect=True)
@pytest.mark.parametrize("name", ["docker-json", "cri"])
@pytest.mark.parametrize("text", ["y" * 40_000, "y" * 16_382 + "\\n" + "y" * 90], ids=["letters", "ends like a line end"])
def test_a_part_whose_end_comes_after_other_lines_is_read_as_the_strict_rules_read_it(name, text, tmp_path):
    path = tmp_path / "log"
    lines = WRAPPERS[name]([f"{OFTEN}{n}" for n in range(4000)])
    part = WRAPPERS[name]([text])[0]
    path.write_text("\n".join([*lines[:1000], part, *lines[1000:3000], part, *lines[3000:], part]) + "\n", encoding="utf-8")
    assert_same(path)


@pytest.mark.parametrize("path", [*LOGS, None], ids=[*(path.parent.name for path in LOGS), "generated"])
def test_a_record_put_together_from_a_known_shape_is_that_of_the_strict_rules(path, tmp_path):
    if path is None:
        path = tmp_path / "log"
        make_log.write_log(path, size=300_000, seed=8, rare=0.1, every_variant=True, milliseconds=True)
    raws = [raw + b"\n" for raw in path.read_bytes().split(b"\n") if raw]
    strict = [list(read_records(lines_of(raw, number, Input(""), Unwrapper()))) for number, raw in enumerate(raws)]
    shapes = [learn(raw, records[0], lambda _: False) for raw, records in zip(raws, strict, strict=True) if len(records) == 1]
    siblings = Siblings(shape for shape in shapes if shape)
    made = [siblings.record(raw, number) for number, raw in enumerate(raws)]
    assert [[record] for record in made if record] == [records for record, records in zip(made, strict, strict=True) if record]
    if path.name == "log":
        assert sum(record is not None for record in made) > 0.7 * len(made)
