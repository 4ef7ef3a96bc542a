"""The main job, from paths to a Diagnosis."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from kvdiag.checks import Diagnosis, StartDiagnosis, diagnose
from kvdiag.errors import InputError, NotSglangError
from kvdiag.lines import Record, read_records
from kvdiag.lines.neighbours import forks
from kvdiag.lines.passing import Passing
from kvdiag.lines.sample import is_big, sampled_records, strict_records
from kvdiag.reading import Input, read_lines
from kvdiag.releases import published_release
from kvdiag.sizing.environment import environment_of
from kvdiag.starts import Assembly, Start

if TYPE_CHECKING:
    from kvdiag.checks.whatif import Prediction
    from kvdiag.checks.workload import Workload
    from kvdiag.lines.chunk import Chunk, Texts
    from kvdiag.lines.sample import TakesRows
    from kvdiag.outside import Outside
    from kvdiag.postmortem import Gatherer, Postmortem
    from kvdiag.starts import Event

SAMPLES = 20
MOST_STARTS = 4_000
"""Server starts of all logs together that are diagnosed: each takes memory, and no reader looks through so many."""
HOPELESS = 2_000_000
"""Lines of a pipe or a device, none of them SGLang's, after which no more is read: its end may never come."""


def _records(path: str, watch: Passing, rows: TakesRows | None, *, thin: bool) -> Iterator[Record]:
    """The records of one input; of a big log's scheduler lines a sample, unless somebody looks at each record."""
    if watch.tap is None and (thin or is_big(path)):
        return sampled_records(path, watch.seen, watch.sample, watch.count, rows, thin=thin)
    if rows is not None:
        return strict_records(path, watch.seen, rows)
    return read_records(read_lines(path, watch.seen))


def explain(
    paths: list[str],
    *,
    config: str | None = None,
    model: str | None = None,
    release: str | None = None,
    source: str | None = None,
    tap: Callable[[Record], None] | None = None,
    rows: Callable[[int, Chunk, Texts], None] | None = None,
    thin: bool = False,
    progress: Callable[[str, int], None] | None = None,
    outside: Sequence[Outside] = (),
    workload: Workload | None = None,
    environment: Mapping[str, str] | None = None,
    draft_config: str | None = None,
) -> Diagnosis:
    """Reads the logs at `paths` and diagnoses every server start in them.

    `tap` sees each record as it passes, `rows` all scheduler lines as columns, with the index of their input; `thin` looks
    at few of them one by one. `progress` is told the bytes read of each path.
    `config` is the model's, `draft_config` that of the model that drafts for it.
    `outside` is what other sources state, `workload` what the pools are planned for, `environment` the switches that the
    server's environment had.

    `source` is the SGLang tree that ran (``TREE`` or ``TREE@REV``): it gives file and line at every check.

    Raises InputError for an input that cannot be read, NotSglangError where no line is SGLang's, ConfigError and
    ReleaseError for arguments that cannot be used.
    """
    stated = published_release(release) if release else None
    switches = environment_of(environment or {}, stated)
    inputs: list[Input] = []
    watches: list[Passing] = []
    assembly = Assembly()
    for index, path in enumerate(paths):
        watch = Passing(Input(path), tap)
        take = None if rows is None else partial(rows, index)
        _take(watch, _records(path, watch, take, thin=thin), assembly, index, progress)
        inputs.append(watch.seen)
        watches.append(watch)
    assembled = [_noted(start, watches) for start in assembly.starts() if not forks() & watches[_path_of(start)].neighbours]
    starts = [
        diagnose(
            start,
            config=config,
            model=model,
            release=stated,
            last_exception=_last_exception(start, watches),
            siblings=assembled,
            outside=outside,
            workload=workload,
            environment=switches,
            draft_config=draft_config,
        )
        for start in assembled
    ]
    if not starts:
        raise NotSglangError(_looks_like(inputs, watches))
    if source is not None:
        _hold_against(starts, source)
    unknown = [watch.unknown for watch in watches if watch.unknown]
    samples = sorted((each for some in unknown for each in some.listed()), key=lambda each: not each.like)[:SAMPLES]
    return Diagnosis(inputs, starts, sum(some.count for some in unknown), samples)


def _take(
    watch: Passing, records: Iterator[Record], assembly: Assembly, index: int, progress: Callable[[str, int], None] | None
) -> None:
    """Takes the records of one input into `assembly`."""
    path, told, every = watch.seen.path, 0, 0
    endless = path == "-" or not os.path.isfile(path)
    for record in watch.through(records):
        if not record.line.number % 64 and assembly.begun() > MOST_STARTS:
            what = f"{path}: more than {MOST_STARTS:,} server starts"
            raise InputError(f"{what}; cut the log into parts, each beginning at a line with server_args=, and give one")
        if endless and not watch.seen.matched and record.line.number > HOPELESS:
            break
        assembly.add(record, index)
        if watch.sample.every != every:
            if every:
                assembly.thin(watch.sample.every, index)
            every = watch.sample.every
        if progress is not None and watch.seen.bytes != told:
            told = watch.seen.bytes
            progress(path, told)


def explain_beginning(path: str) -> Diagnosis:
    """What the first part of a big log tells of the server start in it, before the rest is read. Raises as `explain`."""
    from kvdiag.reading.blocks import lines_of, read_blocks
    from kvdiag.reading.unwrap import Unwrapper
    from kvdiag.starts.assemble import assemble

    seen = Input(path)
    block = next(read_blocks(path, seen), None)
    raw = block.data.split(b"\n")[:-1] if block else []
    unwrapper = Unwrapper()
    starts = assemble(read_records(line for number, one in enumerate(raw, 1) for line in lines_of(one, number, seen, unwrapper)))
    if not starts:
        raise NotSglangError(f"{path}: no SGLang start-up or scheduler line in the first {len(raw):,} lines")
    return Diagnosis([seen], [diagnose(start, siblings=starts) for start in starts], 0, [])


def _hold_against(starts: list[StartDiagnosis], source: str) -> None:
    from kvdiag.checks.in_source import InSource
    from kvdiag.source import open_tree

    in_source = InSource(open_tree(source))
    for item in starts:
        if item.facts is not None:
            in_source.add(item, item.facts.inputs)


def what_if(
    path: str,
    changes: list[dict[str, Any]],
    *,
    config: str | None = None,
    model: str | None = None,
    release: str | None = None,
    workload: Workload | None = None,
    environment: Mapping[str, str] | None = None,
    draft_config: str | None = None,
) -> list[Prediction]:
    """The log's own server (the last start that states a capacity) with each of `changes` to its arguments.

    With a `workload` each prediction also has what the pool would do with it; `environment` is that of the server,
    `draft_config` the path of its draft model's config.

    Raises as `explain`, and InputError where no start states what a prediction could begin with.
    """
    from kvdiag.checks.leftover import contradictions
    from kvdiag.checks.whatif import predict

    diagnosis = explain([path], config=config, model=model, release=release, environment=environment, draft_config=draft_config)
    starts = [
        (item, item.facts)
        for item in diagnosis.starts
        if item.facts and (item.start.first("max_total_num_tokens") or item.start.first("weight_memory"))
    ]
    if not starts:
        raise InputError(
            f"{path}: no start in this log states a capacity or what is free after loading; give the start-up's lines"
        )
    item, facts = starts[-1]
    contradicted = contradictions(item.checks)
    predictions = [predict(facts.inputs, change, workload, contradicted) for change in changes]
    if len(starts) == 1:
        return predictions
    from kvdiag.frozen import replace

    which = f"the log has {len(starts)} starts: this is about the last"
    return [replace(prediction, notes=(which, *prediction.notes)) for prediction in predictions]


def _noted(start: Start, watches: list[Passing]) -> Start:
    """The start, with a note where its scheduler lines were too many to look at each."""
    samples = [watch.sample for watch in watches if watch.sample.every > 1]
    if samples and start.batches:
        every = max(sample.every for sample in samples) * start.batches.every
        rows = sum(sample.rows for sample in samples)
        start.notes.append(
            f"of the {rows:,} scheduler lines of this log findings look at one in {every}: shares are of these, and so are counts"
        )
    return start


def _last_exception(start: Start, watches: list[Passing]) -> str:
    """The last line of the last traceback in the input that the start's numbers come from."""
    return watches[_path_of(start)].last_exception


def _path_of(start: Start) -> int:
    """The last of the inputs that the start's numbers and events come from."""
    return max([number.path for number in start.numbers] + [event.path for event in start.events], default=0)


def _looks_like(inputs: list[Input], watches: list[Passing]) -> str:
    path = inputs[0].path
    neighbours = sorted(set().union(*(watch.neighbours for watch in watches)))
    if neighbours:
        return f"{path}: this looks like a log of {', '.join(neighbours)}, not of SGLang; kvdiag uses none of its numbers"
    if not any(item.lines for item in inputs):
        return f"{path}: the file is empty; give the text that the server printed (standard output and standard error)"
    exceptions = [watch.last_exception for watch in watches if watch.last_exception]
    if exceptions and any(watch.in_worker for watch in watches):
        which = "give the log from the server_args line on"
        return f"{path}: a traceback of SGLang and no line of its log, {which}; it ends with {exceptions[-1][:300]}"
    if exceptions and any(watch.in_sglang for watch in watches):
        return f"{path}: SGLang failed before it printed a line of its own: {exceptions[-1][:300]}"
    if exceptions:
        return f"{path}: no SGLang start-up or scheduler line; the log ends with {exceptions[-1][:300]}"
    lines, broken = sum(item.lines for item in inputs), sum(item.undecodable for item in inputs)
    if 2 * broken > lines:
        return (
            f"{path}: this is no text: {broken:,} of {lines:,} lines are neither UTF-8 nor UTF-16; it is binary, or packed or "
            "encoded in a way that is not known here. Give the text that the server printed"
        )
    return f"{path}: no SGLang start-up or scheduler line in {lines:,} lines; is it the server's log?"


def postmortem(
    paths: list[str],
    *,
    config: str | None = None,
    model: str | None = None,
    release: str | None = None,
    progress: Callable[[str, int], None] | None = None,
) -> Postmortem:
    """The diagnosis of the logs at `paths` and what each start did over time. Raises as `explain`."""
    from kvdiag.postmortem import Gatherer, Postmortem
    from kvdiag.postmortem.review import review

    gatherer = Gatherer()
    diagnosis = explain(paths, config=config, model=model, release=release, rows=gatherer.add, progress=progress)
    reviews = [review(item, gatherer.of(item.start.spans), _retractions(item.start, gatherer)) for item in diagnosis.starts]
    return Postmortem(diagnosis, reviews)


def _undated(event: Event, gatherer: Gatherer) -> str:
    """The time of an event of a log without dates, as text, on the day that its scheduler lines have there; empty for none."""
    from datetime import datetime, timedelta

    from kvdiag.lines.chunk import stamp_of

    stamp, _ = stamp_of(event.record)
    moment = gatherer.moment(event.path, event.record.line.number, stamp) if event.record.time else None
    return "" if moment is None else (datetime(1970, 1, 1) + timedelta(milliseconds=moment)).isoformat()


def _retractions(start: Start, gatherer: Gatherer) -> list[tuple[str, int]]:
    """(time, requests) of each retraction event; every rank prints it, and each of several files may have it."""
    from kvdiag.starts.repeats import Repeats

    found: list[tuple[str, int]] = []
    repeats = Repeats()
    for event in start.events_of("retraction"):
        record = event.record
        if repeats.first(record):
            count = record.number("#retracted_reqs")
            when = f"{record.date}T{record.time}" if record.date and record.time else _undated(event, gatherer)
            found.append((when, count if isinstance(count, int) else 0))
    return sorted(found)
