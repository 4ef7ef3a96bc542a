"""What is known of a running server: its limits, the last state of each replica, and what happened."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from kvdiag.frozen import frozen, mutable
from kvdiag.lines import Record
from kvdiag.lines.chunk import Chunk, ranks
from kvdiag.lines.columns import BATCH_FAMILIES
from kvdiag.lines.sample import chosen
from kvdiag.lines.scan import Scanned, Scanner
from kvdiag.reading import Input
from kvdiag.reading.blocks import Block
from kvdiag.starts.repeats import Repeats
from kvdiag.starts.tables import EVENTS
from kvdiag.watch.arising import Arising

FULL = 0.90
"""Usage from which a pool counts as full, as in the postmortem."""
SHOWN = 12
_LOOKED_AT = 64
"""Scheduler lines of a block that findings look at, about."""
_NUMBERS = ("max_total_num_tokens", "max_running_requests", "context_len")
_READ = {
    "running": ("#running-req",),
    "queued": ("#queue-req",),
    "usage": ("token usage", "full token usage", "gpu token usage"),
    "tokens": ("#token", "#full token", "#gpu token"),
    "throughput": ("gen throughput (token/s)",),
}


@frozen
class Happening:
    """Something to tell at once: where, when (as the log has it), what."""

    path: str
    line: int
    time: str
    rank: str
    what: str


@mutable
class Replica:
    """The last decode line of a replica."""

    running: int | None = None
    queued: int | None = None
    usage: float | None = None
    tokens: int | None = None
    throughput: float | None = None
    limit: str = "unknown"


@dataclass
class Server:
    """One log: numbers of the start-up, replicas by rank, counts, and the latest happenings."""

    path: str
    numbers: dict[str, int] = field(default_factory=dict)
    replicas: dict[str, Replica] = field(default_factory=dict)
    happenings: deque[Happening] = field(default_factory=lambda: deque(maxlen=SHOWN))
    retractions: int = 0
    rows: int = 0

    def __post_init__(self) -> None:
        self.seen = Input(self.path)
        self._scanner = Scanner(lambda record: record.family is None, self.seen)
        self._arising = Arising()
        self._repeats = Repeats()

    def take(self, block: Block) -> Iterator[Happening]:
        """Reads a block; gives what is to be told."""
        found = self._scanner.scan(block)
        for record in found.records:
            happening = self._record(record)
            if happening is not None:
                self.happenings.append(happening)
                yield happening
        self._arising.add(sorted([*found.records, *self._some_rows(found, block)], key=lambda record: record.line.number))
        self.rows += len(found.rows)
        for happening in self._rows(found.rows):
            self.happenings.append(happening)
            yield happening

    def arisen(self, *, now: bool = False) -> Iterator[Happening]:
        """Warnings and errors of the running server that were not there before; `now` looks even if it just has."""
        for finding in self._arising.found(now=now):
            if finding.level != "note":
                line = max(finding.lines, default=self.seen.lines)
                happening = Happening(self.path, line, "", "", f"{finding.code} {finding.level}: {finding.title}")
                self.happenings.append(happening)
                yield happening

    def _some_rows(self, found: Scanned, block: Block) -> list[Record]:
        """Scheduler lines that were read as columns as records: of a long block an even choice, and its last."""
        rows = found.rows
        if not len(rows) or block.cut:
            return []
        strict = {record.line.number for record in found.records}
        wanted = {*chosen(rows.lines, 1 << max(0, (len(rows) // _LOOKED_AT).bit_length())).nonzero()[0].tolist(), len(rows) - 1}
        places = [(int(rows.lines[row]), int(rows.offsets[row])) for row in sorted(wanted)]
        return self._scanner.strictly(block, [place for place in places if place[0] not in strict])

    def _record(self, record: Record) -> Happening | None:
        if record.family == "capacity":
            for name in _NUMBERS:
                value = record.number(name)
                if isinstance(value, int):
                    self.numbers[name] = min(value, self.numbers.get(name, value))
            return self._told(record, f"capacity: {self.numbers.get('max_total_num_tokens', 0):,} tokens")
        if record.family == "server-args-dump":
            self.numbers.clear()
            self.replicas.clear()
            return self._told(record, "a server starts")
        kind = EVENTS.get(record.family or "")
        if kind == "retraction":
            self.retractions += self._repeats.first(record)
        return self._told(record, f"{kind.replace('_', ' ')}: {record.message.strip()[:160]}") if kind else None

    def _told(self, record: Record, what: str) -> Happening:
        return Happening(self.path, record.line.number, record.time, str(record.rank), what)

    def _rows(self, chunk: Chunk) -> Iterator[Happening]:
        """The last decode line of each rank; a change of its limit is told."""
        import numpy as np

        rows = np.flatnonzero(chunk.family == BATCH_FAMILIES.index("decode-batch"))
        if not len(rows):
            return
        texts = self._scanner.texts
        codes = ranks(chunk, texts)[rows]
        for code in np.unique(codes):
            row = int(rows[np.flatnonzero(codes == code)[-1]])
            rank = texts.list[int(code)]
            before = self.replicas.get(rank)
            now = Replica(**{name: _value(chunk, columns, row) for name, columns in _READ.items()})
            now.limit = self._limit(now)
            self.replicas[rank] = now
            if before is not None and before.limit != now.limit:
                what = "requests no longer wait" if now.limit == "arrivals" else f"{now.queued} requests wait for {now.limit}"
                yield Happening(self.path, int(chunk.lines[row]), _clock(int(chunk.stamps[row])), rank, what)

    def _limit(self, replica: Replica) -> str:
        """What keeps requests waiting, as the postmortem names it; ``arrivals`` where none wait."""
        if replica.queued is None:
            return "unknown"
        if not replica.queued:
            return "arrivals"
        cap = self.numbers.get("max_running_requests")
        if cap is not None and replica.running is not None and replica.running >= cap:
            return "max_running_requests"
        if replica.usage is None:
            return "unknown"
        return "kv_pool" if replica.usage >= FULL else "admission_reserve"


def _value(chunk: Chunk, columns: tuple[str, ...], row: int) -> Any:
    for name in columns:
        column = chunk.columns.get(name)
        if column is not None and column.there[row]:
            return column.values[row].item()
    return None


def _clock(milliseconds: int) -> str:
    seconds = milliseconds // 1000 % 86400
    return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
