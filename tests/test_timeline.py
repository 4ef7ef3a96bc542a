"""The table of scheduler lines: its time stamps, its starts, and the files it is written to."""

from __future__ import annotations

import csv
import json

import pyarrow.parquet as pq
import pytest

import kvdiag as package
from kvdiag.errors import NotSglangError
from kvdiag.rows import parquet as writing
from kvdiag.rows.export import export
from kvdiag.rows.frame import frame
from tests.conftest import FIXTURES

LOG = FIXTURES / "real" / "0.4.6-llama-gqa-flood-retract" / "server.log"
TEXT = "Decode batch. #running-req: 2, #token: 20, token usage: 0.02, gen throughput (token/s): 5.00, #queue-req: 0"


def table_of(tmp_path, *lines):
    path = tmp_path / "made.log"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return package.timeline(str(path))


def test_a_real_log_has_every_batch_line_with_its_fields():
    table = package.timeline(str(LOG))
    text = LOG.read_text(encoding="utf-8")
    assert len(table) == text.count("Decode batch.") + text.count("Prefill batch.")
    decode = table[table["family"] == "decode-batch"]
    assert decode["#running-req"].notna().all()
    assert decode["token usage"].between(0, 1).all()
    assert (table["rank"] == "TP0").all()
    assert (table["TP"] == 0).all()
    assert str(table["time"].iloc[0]).startswith("2026-11-29 22:")


def test_a_log_without_dates_counts_the_midnights(tmp_path):
    clocks = ["23:59:58", "23:59:59", "00:00:00", "23:59:59", "00:00:01", "12:00:00", "23:00:00", "01:00:00"]
    table = table_of(tmp_path, *(f"[{clock} TP0] {TEXT}" for clock in clocks))
    days = [str(time)[8:10] for time in table["time"]]
    assert days == ["01", "01", "02", "01", "02", "02", "02", "03"]


def test_a_date_that_does_not_exist_is_no_time(tmp_path):
    table = table_of(tmp_path, f"[2025-02-30 10:00:00 TP0] {TEXT}", f"[2024-02-29 10:00:00 TP0] {TEXT}")
    assert table["time"].isna().tolist() == [True, False]


def test_rows_know_their_server_start(tmp_path):
    start = LOG.read_text(encoding="utf-8").splitlines()
    table = table_of(tmp_path, *start, *start)
    counts = table["start"].value_counts()
    assert sorted(counts.index) == [0, 1]
    assert counts[0] == counts[1]


def test_every_format_holds_the_same_rows(tmp_path, kvdiag):
    rows = len(package.timeline(str(LOG)))
    for name in ("t.parquet", "t.csv", "t.json"):
        done = kvdiag("timeline", str(LOG), str(LOG), "-o", str(tmp_path / name))
        assert (done.returncode, done.stderr) == (0, "")
    parquet = pq.read_table(tmp_path / "t.parquet")
    with open(tmp_path / "t.csv", newline="", encoding="utf-8") as file:
        sheet = list(csv.DictReader(file))
    lines = [json.loads(line) for line in (tmp_path / "t.json").read_text(encoding="utf-8").splitlines()]
    assert parquet.num_rows == len(sheet) == len(lines) == 2 * rows
    usage = [row["token usage"] for row in lines]
    assert parquet.column("token usage").to_pylist() == usage
    assert [float(row["token usage"]) for row in sheet] == usage


def test_parquet_is_plain_for_other_readers(tmp_path, kvdiag):
    kvdiag("timeline", str(LOG), "-o", str(tmp_path / "t.parquet"))
    duckdb = pytest.importorskip("duckdb")
    query = f"select max(\"#running-req\"), min(time), any_value(rank) from '{tmp_path / 't.parquet'}'"
    most, first, rank = duckdb.sql(query).fetchall()[0]
    assert most > 1
    assert first.year == 2026
    assert rank == "TP0"


def test_polars_reads_it(tmp_path, kvdiag):
    kvdiag("timeline", str(LOG), "-o", str(tmp_path / "t.parquet"))
    polars = pytest.importorskip("polars")
    assert polars.read_parquet(tmp_path / "t.parquet")["rank"].dtype == polars.String


def test_text_that_a_spreadsheet_would_run_is_guarded(tmp_path, monkeypatch):
    (tmp_path / "=cmd()+1.log").write_bytes(LOG.read_bytes())
    monkeypatch.chdir(tmp_path)
    export(["=cmd()+1.log"], "t.csv")
    with open("t.csv", newline="", encoding="utf-8") as file:
        assert {row["log"] for row in csv.DictReader(file)} == {"'=cmd()+1.log"}


def test_columns_that_turn_up_late_are_whole_columns(tmp_path, monkeypatch):
    monkeypatch.setattr(writing, "ROW_GROUP", 100)
    late = TEXT.replace("gen through", "accept len: 2.50, gen through")
    log = tmp_path / "late.log"
    log.write_text("".join(f"[2025-01-15 10:00:{n % 60:02d} TP0] {TEXT if n < 5000 else late}\n" for n in range(6000)))
    for name in ("t.parquet", "t.csv"):
        export([str(log)], str(tmp_path / name))
    table = pq.read_table(tmp_path / "t.parquet")
    assert table.column("accept len").null_count == 5000
    assert table.column("line").to_pylist() == list(range(1, 6001))
    with open(tmp_path / "t.csv", newline="", encoding="utf-8") as file:
        assert sum(row["accept len"] == "2.5" for row in csv.DictReader(file)) == 1000


def test_a_log_without_scheduler_lines_writes_nothing(tmp_path, kvdiag):
    (tmp_path / "other.log").write_text("hello\nworld\n")
    done = kvdiag("timeline", str(tmp_path / "other.log"), "-o", str(tmp_path / "t.parquet"))
    assert done.returncode == 3
    assert "no scheduler line in 2 lines" in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir() if path.name != "cache") == ["other.log"]


@pytest.mark.parametrize("name", ["t.xlsx", "t", "missing/t.parquet"])
def test_a_file_that_cannot_be_written_is_named(tmp_path, kvdiag, name):
    done = kvdiag("timeline", str(LOG), "-o", str(tmp_path / name))
    assert done.returncode == 2
    assert name in done.stderr


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("kind", ["gz", "bz2", "xz", "zst"])
def test_packed_logs_are_read_to_their_end(tmp_path, kind):
    import bz2
    import gzip
    import lzma

    import zstandard

    plain = "".join(f"[2025-01-15 10:00:{n % 60:02d} TP0] {TEXT}\n" for n in range(8000)).encode()
    pack = {"gz": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress, "zst": zstandard.ZstdCompressor().compress}[kind]
    (tmp_path / f"log.{kind}").write_bytes(pack(plain))
    table = package.timeline(str(tmp_path / f"log.{kind}"))
    assert table["line"].tolist() == list(range(1, 8001))


@pytest.mark.parametrize("mode", ["prefill", "decode", "null"])
def test_the_role_of_a_disaggregated_server_is_a_column(tmp_path, mode):
    log = tmp_path / "server.log"
    lines = [
        f"[2025-01-15 10:00:00] server_args={{'disaggregation_mode': '{mode}', 'tp_size': 1}}",
        f"[2025-01-15 10:00:09] {TEXT}",
    ]
    log.write_text("\n".join([*lines, *lines[1:]]) + "\n")
    table = frame([str(log)])
    assert (list(table["role"]) == [mode, mode]) if mode != "null" else ("role" not in table)


def test_fields_that_one_role_prints_tell_it(tmp_path):
    log = tmp_path / "server.log"
    text = TEXT.replace(
        "gen through", "pre-allocated usage: 0.01, #prealloc-req: 1, #transfer-req: 2, #retracted-req: 0, gen through"
    )
    log.write_text(f"[2025-01-15 10:00:09] {text}\n[2025-01-15 10:00:09] {TEXT}\n")
    assert frame([str(log)])["role"].fillna("").to_list() == ["decode", ""]


@pytest.mark.parametrize("log", sorted(FIXTURES.rglob("*.log"))[::12], ids=lambda path: path.parent.name)
def test_text_formats_hold_what_parquet_holds(tmp_path, log):
    try:
        for name in ("t.parquet", "t.csv", "t.jsonl"):
            export([str(log)], str(tmp_path / name))
    except NotSglangError:
        pytest.skip("no scheduler line")
    rows = pq.read_table(tmp_path / "t.parquet").to_pylist()
    for row in rows:
        row["time"] = row["time"] and row["time"].isoformat(timespec="milliseconds")
    lines = [json.loads(line) for line in (tmp_path / "t.jsonl").read_text(encoding="utf-8").splitlines()]
    assert lines == [{name: value for name, value in row.items() if value is not None} for row in rows]
    with open(tmp_path / "t.csv", newline="", encoding="utf-8") as file:
        sheet = list(csv.reader(file))
    assert sheet[0] == list(rows[0])
    assert sheet[1:] == [[_cell(name, value) for name, value in row.items()] for row in rows]


def _cell(name, value):
    if value is None:
        return ""
    return str(value).replace("T", " ") if name == "time" else str(value).lower() if isinstance(value, bool) else str(value)
