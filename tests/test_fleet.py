"""Many logs: the same bytes however they are run, nothing lost and nothing read twice."""

from __future__ import annotations

import multiprocessing
import os
import re
import signal
import warnings
from contextlib import nullcontext
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from kvdiag.errors import InputError
from kvdiag.fleet import report, run, summary
from kvdiag.fleet.run import summarise
from kvdiag.fleet.sources import Source, find_sources, named_like_a_log
from tests.conftest import FIXTURES
from tests.test_fast_path import make_log

REAL = FIXTURES / "real" / "0.4.6-llama-gqa-flood-retract" / "server.log"


@pytest.fixture
def logs(tmp_path):
    folder = tmp_path / "logs"
    folder.mkdir()
    for seed in range(10):
        release = "0.5.22" if seed % 2 else "0.5.9"
        make_log.write_log(folder / f"server-{seed:02d}.log", size=20_000, seed=seed, release=release)
    (folder / "other.log").write_text("hello\n")
    (folder / "server-real.log").write_bytes(REAL.read_bytes())
    return folder


def written(logs, folder, **options):
    summaries = run.run(find_sources([str(logs)]), str(folder), **options)
    return [Path(path).read_bytes() for path in report.write(summaries, str(folder))]


def test_processes_give_the_bytes_of_one(logs, tmp_path):
    assert written(logs, tmp_path / "one") == written(logs, tmp_path / "two", processes=2)


def test_a_cluster_gives_the_bytes_of_one(logs, tmp_path):
    distributed = pytest.importorskip("distributed")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with distributed.LocalCluster(
            n_workers=1, threads_per_worker=1, processes=False, protocol="tcp", dashboard_address=None
        ) as cluster:
            there = written(logs, tmp_path / "cluster", scheduler=cluster.scheduler_address)
    assert there == written(logs, tmp_path / "one")


def test_the_table_has_a_row_a_log_and_errors_are_rows(logs, tmp_path):
    written(logs, tmp_path / "out")
    table = pq.read_table(tmp_path / "out" / "servers.parquet").to_pylist()
    assert len(table) == 12
    failed = [row for row in table if row["error"]]
    assert [os.path.basename(row["url"]) for row in failed] == ["other.log"]
    text = (tmp_path / "out" / "report.md").read_text(encoding="utf-8")
    assert "Servers by wasted tokens" in text
    assert "no SGLang start-up or scheduler line" in text
    assert len({row["release_last"] for row in table}) > 2


def test_wasted_tokens_are_the_free_part_of_the_pool_while_requests_wait(tmp_path):
    log = tmp_path / "server.log"
    head = (
        "[2025-01-15 10:00:00] max_total_num_tokens=1000, chunked_prefill_size=2048, max_prefill_tokens=16384, "
        "max_running_requests=4, context_len=100\n"
    )
    line = (
        "[2025-01-15 10:00:{:02d}] Decode batch. #running-req: 4, #token: {}, token usage: {:.2f}, "
        "gen throughput (token/s): 5.00, #queue-req: {}\n"
    )
    seen = [(1, 500, 0.5, 3), (2, 500, 0.5, 0), (3, 800, 0.8, 1), (4, 0, 0, 0)]
    log.write_text(head + "".join(line.format(*values) for values in seen))
    found = summarise(find_sources([str(log)])[0])
    assert found["error"] is None
    assert found["wasted_tokens"] == round(1000 * (0.5 + 0.2) / 4)
    assert found["activity"]["waiting_lines"] == 2


def forking(monkeypatch):
    """Forks workers, which then know functions of a test, but also how the parent takes SIGTERM while it makes its pool."""
    monkeypatch.setattr(run, "CONTEXT", multiprocessing.get_context("fork"))
    monkeypatch.setattr(run, "_no_interrupt", nullcontext)


def _killed(source, flag, real):
    if "server-07" in source.url and not os.path.exists(flag):
        Path(flag).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return real(source)


def test_a_killed_worker_changes_nothing(logs, tmp_path, monkeypatch):
    calm = written(logs, tmp_path / "calm")
    forking(monkeypatch)
    flag, real = tmp_path / "killed", summary.summarise
    monkeypatch.setattr(run, "summarise", lambda source: _killed(source, flag, real))
    assert written(logs, tmp_path / "killed-once", processes=2) == calm
    assert flag.exists()


def test_a_log_that_kills_its_reader_is_a_row_with_an_error(logs, tmp_path, monkeypatch):
    forking(monkeypatch)
    real = summary.summarise

    def deadly(source: Source) -> dict:
        if "server-07" in source.url:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(source)

    monkeypatch.setattr(run, "summarise", deadly)
    found = run.run(find_sources([str(logs)]), str(tmp_path / "out"), processes=2)
    assert [row["url"] for row in found if row["error"] and "killed" in row["error"]] == [str(logs / "server-07.log")]
    assert len(found) == 12


def test_what_has_not_changed_is_not_read_again(logs, tmp_path, monkeypatch):
    before = written(logs, tmp_path / "out")
    asked = []
    real = summary.summarise
    monkeypatch.setattr(run, "summarise", lambda source: asked.append(os.path.basename(source.url)) or real(source))
    assert written(logs, tmp_path / "out") == before
    assert asked == ["other.log"]
    asked.clear()
    with open(logs / "server-03.log", "a") as log:
        log.write("[2025-01-15 10:00:00] more\n")
    written(logs, tmp_path / "out")
    assert asked == ["other.log", "server-03.log"]


def test_a_journal_that_was_broken_off_is_used_as_far_as_it_goes(logs, tmp_path):
    before = written(logs, tmp_path / "out")
    journal = tmp_path / "out" / run.JOURNAL
    data = journal.read_bytes()
    journal.write_bytes(data[: len(data) // 2] + b"\n[]\n{}\n\xff\n")
    assert written(logs, tmp_path / "out") == before


def test_hostile_text_is_shown_not_run():
    rows = [{"url": "a|b\n# x", "error": "<script>\x1b]0;t\x07 [l](http://e)"}]
    text = report.render([{"findings": {}}], [dict.fromkeys([*report._PLAIN, *report._DERIVED]) | rows[0]])
    line = next(line for line in text.splitlines() if "script" in line)
    assert "<script" not in line
    assert "\x1b" not in text
    assert "\\|" in line
    assert "\\[l\\]" in line


def test_addresses_that_hold_nothing_are_named(tmp_path):
    for url in (str(tmp_path / "none.log"), str(tmp_path / "*.log"), "nosuch://x/y"):
        with pytest.raises(InputError, match=r"none|\*|nosuch"):
            find_sources([url])


def test_object_storage_for_real(logs, tmp_path, monkeypatch):
    moto = pytest.importorskip("moto.server")
    s3fs = pytest.importorskip("s3fs")
    for name, value in {"AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s", "AWS_DEFAULT_REGION": "us-east-1"}.items():
        monkeypatch.setenv(name, value)
    server = moto.ThreadedMotoServer(port=0, verbose=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        server.start()
        host, port = server.get_host_and_port()
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
        try:
            s3fs.S3FileSystem.clear_instance_cache()
            bucket = s3fs.S3FileSystem()
            bucket.mkdir("fleet")
            bucket.put(str(logs), "fleet/logs", recursive=True)
            sources = find_sources(["s3://fleet/logs"])
            assert [source.url for source in sources] == [f"s3://fleet/logs/{path.name}" for path in sorted(logs.iterdir())]
            found = run.run(sources, str(tmp_path / "out"))
            bucket.pipe("fleet/logs/server-00.log", REAL.read_bytes())
            bucket.invalidate_cache()
            changed = [new.url for old, new in zip(sources, find_sources(["s3://fleet/logs/*"]), strict=True) if old != new]
        finally:
            server.stop()
    here = run.run(find_sources([str(logs)]), str(tmp_path / "here"))
    keep = ("max_total_num_tokens", "wasted_tokens", "activity", "lines", "findings")
    assert [[row.get(name) for name in keep] for row in found] == [[row.get(name) for name in keep] for row in here]
    assert found[0]["error"].startswith("s3://fleet/logs/other.log: no SGLang start-up or scheduler line in 1 lines")
    assert changed == ["s3://fleet/logs/server-00.log"]


@pytest.mark.parametrize(
    ("url", "extra"),
    [
        ("s3://logs/a", r"kvdiag\[fleet\]"),
        ("gs://logs/a", r"kvdiag\[gs\]"),
        ("hf://datasets/a/b/c.log", r"kvdiag\[hf\]"),
        ("abfs://a/b", "Install something"),
    ],
)
def test_the_extra_that_an_address_needs_is_named(url, extra, monkeypatch):
    import fsspec

    def missing(*_):
        raise ImportError("Install something")

    monkeypatch.setattr(fsspec.core, "url_to_fs", missing)
    with pytest.raises(InputError, match=rf"{re.escape(url)}: .*{extra}"):
        find_sources([url])


def test_any_file_system_of_fsspec_is_read(logs, tmp_path):
    import fsspec

    system = fsspec.filesystem("memory")
    for path in sorted(logs.iterdir())[:3]:
        system.pipe(f"/fleet-test/{path.name}", path.read_bytes())
    try:
        sources = find_sources(["memory://fleet-test"])
        assert len(sources) == 3
        found = run.run(sources, str(tmp_path / "out"))
        local = run.run(find_sources([str(path) for path in sorted(logs.iterdir())[:3]]), str(tmp_path / "local"))
        for one, other in zip(found, local, strict=True):
            assert {**one, "url": "", "key": ""} == {**other, "url": "", "key": ""} or one["error"]
        assert any(one["error"] is None for one in found)
    finally:
        system.rm("/fleet-test", recursive=True)


@pytest.mark.parametrize("address", ["", "*.log"])
def test_an_entry_that_is_no_readable_file_is_a_row_and_the_others_are_read(tmp_path, address):
    folder = tmp_path / "logs"
    folder.mkdir()
    (folder / "real.log").write_bytes(REAL.read_bytes())
    os.mkfifo(folder / "pipe.log")
    (folder / "nowhere.log").symlink_to(tmp_path / "gone")
    rows = {Path(row["url"]).name: row for row in run.run(find_sources([str(folder / address)]), str(tmp_path / "out"))}
    assert rows["real.log"]["error"] is None
    assert "no regular file" in rows["pipe.log"]["error"]
    assert "No such file" in rows["nowhere.log"]["error"]
    text = Path(report.write(list(rows.values()), str(tmp_path / "out"))[1]).read_text()
    assert all(name in text.partition("Logs without a server")[2] for name in ("pipe.log", "nowhere.log"))


def test_a_folder_that_may_not_be_looked_into_is_a_row(tmp_path, monkeypatch):
    (tmp_path / "locked").mkdir()
    (tmp_path / "real.log").write_bytes(REAL.read_bytes())
    scan = os.scandir

    def guarded(path):
        if str(path).endswith("locked"):
            raise PermissionError(13, "Permission denied", str(path))
        return scan(path)

    monkeypatch.setattr(os, "scandir", guarded)
    faults = {Path(source.url).name: source.fault for source in find_sources([str(tmp_path)])}
    assert faults["real.log"] is None
    assert "this folder cannot be read: Permission denied" in faults["locked"]


def test_a_link_that_leads_nowhere_among_named_logs_is_a_row(tmp_path):
    (tmp_path / "nowhere.log").symlink_to(tmp_path / "gone")
    assert [source.fault is None for source in find_sources([str(REAL), str(tmp_path / "nowhere.log")])].count(False) == 1
    with pytest.raises(InputError, match=r"cannot be read: No such file or directory; give a log, a glob"):
        find_sources([str(tmp_path / "gone")])


def test_a_finding_of_many_servers_is_named_without_the_numbers_of_one():
    log = FIXTURES / "scenarios" / "kimi-k2.5-f0.88" / "server.log"
    titles = summarise(Source(str(log), "k")).get("titles")
    assert titles
    assert not [title for title in titles.values() if re.search(r"\d[\d,.]*\d", title)]


@pytest.mark.parametrize(
    ("name", "is_one"),
    [
        ("server.log", True), ("server.log.1", True), ("server.log.2.gz", True), ("SERVER.LOG", True),
        ("0.log.20260101-120000.gz", True),
        ("a1b2-json.log", True), ("server.log-20260101", True), ("server.log.2026-01-01.zst", True), ("slurm-77.out", True),
        ("rank0.err", True), ("stderr", True), ("pod_stdout.3", True), ("nohup.out", True), ("server.log.old", True),
        ("notes.md", False), ("config.json", False), ("changelog", False), ("catalog.json", False), ("requirements.txt", False),
        ("test_log.py", False), ("servers.parquet", False), ("summaries.jsonl", False), ("LICENSE", False), ("log.html", False),
    ],
)  # fmt: skip
def test_the_names_that_logs_have(name, is_one):
    assert named_like_a_log(f"some/folder.log/{name}") is is_one


def test_in_a_folder_notes_that_quote_a_log_are_no_server_and_what_is_passed_over_is_told(tmp_path, kvdiag):
    folder = tmp_path / "a" / "b"
    folder.mkdir(parents=True)
    (folder / "server.log").write_bytes(REAL.read_bytes())
    (folder / "notes.md").write_bytes(REAL.read_bytes())
    (folder / "config.json").write_text("{}")
    done = kvdiag("fleet", str(tmp_path / "a"), "-o", str(tmp_path / "out"), "--processes", "1")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("1 log: ")
    assert "passed over 2 files in folders" in done.stderr
    assert "config.json" in done.stderr
    again = kvdiag("fleet", str(folder / "*.md"), str(folder), "-o", str(tmp_path / "two"), "--processes", "1")
    assert again.stdout.startswith("2 logs: "), "what a glob names is read whatever its name"


def test_a_folder_without_a_logs_name_says_so(tmp_path):
    (tmp_path / "notes.md").write_bytes(REAL.read_bytes())
    with pytest.raises(InputError, match=r"the one file in it has no log's name"):
        find_sources([str(tmp_path)])
    assert [source.url for source in find_sources([str(tmp_path / "notes.md")])] == [str(tmp_path / "notes.md")]


def server(folder, name, *, release="0.5.9", capacity=100_000, free="94.04", cls="LlamaForCausalLM", **arguments):
    """A log of a few lines of a server with these arguments."""
    given = {"model_path": "models/x", "device": "cuda", "tp_size": 1, "mem_fraction_static": 0.88, **arguments}
    (folder / name).mkdir()
    (folder / name / "server.log").write_text(
        f"[2026-01-01 10:00:00] server_args=ServerArgs({', '.join(f'{key}={value!r}' for key, value in given.items())})\n"
        f"[2026-01-01 10:00:01] Load weight begin. avail mem={free} GB\n"
        f"[2026-01-01 10:00:02] Load weight end. type={cls}, dtype=torch.bfloat16, avail mem=40.00 GB, mem usage=54.04 GB.\n"
        f"[2026-01-01 10:00:03] max_total_num_tokens={capacity}, chunked_prefill_size=2048, max_prefill_tokens=16384, "
        "max_running_requests=4, context_len=100\n"
    )
    found = summarise(find_sources([str(folder / name / "server.log")])[0])
    return found | {"release_first": release, "release_last": release}


def drift_table(summaries):
    text = (
        report.render(summaries, report.rows_of(summaries)).partition("## Capacity over releases")[2].partition("## Findings")[0]
    )
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("| ")][2:]


def test_capacity_over_releases_compares_only_what_was_started_alike(tmp_path):
    """Another fraction, cap or dtype moves the capacity: that is not the release's doing."""
    summaries = [
        server(tmp_path, "a"),
        server(tmp_path, "b", release="0.5.22", capacity=90_000),
        server(tmp_path, "c", release="0.5.22", capacity=70_000, mem_fraction_static=0.8),
        server(tmp_path, "d", release="0.5.22", capacity=1_000, max_total_tokens=1_000),
        server(tmp_path, "e", release="0.5.22", capacity=180_000, kv_cache_dtype="fp8_e4m3"),
    ]
    changes = {(row[3], row[4], row[5], row[6]): row[-1] for row in drift_table(summaries)}
    assert changes == {
        ("0.88", "-", "-", "0.5.9"): "-",
        ("0.88", "-", "-", "0.5.22"): "-10,000",
        ("0.8", "-", "-", "0.5.22"): "-",
        ("0.88", "1000", "-", "0.5.22"): "-",
        ("0.88", "-", "fp8_e4m3", "0.5.22"): "-",
    }


def test_a_model_is_the_same_by_whatever_path_and_another_of_another_class(tmp_path):
    summaries = [
        server(tmp_path, "a", model_path="/data/models/x"),
        server(tmp_path, "b", model_path="models/x", release="0.5.22"),
        server(tmp_path, "c", cls="Qwen3ForCausalLM", release="0.5.22"),
    ]
    assert [(row[0], row[-1]) for row in drift_table(summaries)] == [("x", "-"), ("x", "+0"), ("x", "-")]


def test_memory_of_a_machine_is_no_card(tmp_path):
    both = [
        server(tmp_path, "a", device="cpu", free="16.11"),
        server(tmp_path, "b", device="cpu", free="21.30", release="0.5.22"),
    ]
    assert {summary["card_gib"] for summary in both} == {None}
    assert [row[-1] for row in drift_table(both)] == ["-", "+0"], "one machine read twice is one kind"
    assert server(tmp_path, "c")["card_gib"] == 94


def test_findings_are_named_by_their_titles(logs, tmp_path):
    written(logs, tmp_path / "out")
    table = (tmp_path / "out" / "report.md").read_text(encoding="utf-8").partition("## Findings")[2]
    assert "The KV pool binds: requests wait while it is nearly full" in table


def test_a_long_text_of_the_report_is_cut_between_words_and_headings_are_not_escaped(logs, tmp_path):
    from kvdiag.fleet.report import _cell

    long = "word " * 100
    assert _cell(long).endswith("word ...")
    assert _cell("short reason") == "short reason"
    written(logs, tmp_path / "out")
    assert "\\(tokens\\)" not in (tmp_path / "out" / "report.md").read_text(encoding="utf-8")
