"""The fast path: blocks of lines become columns where their shape is known, records where it is not.

Nothing is guessed: a line of a new shape is read by the strict rules, and only what they made of it teaches the shape.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

from kvdiag.frozen import field, mutable
from kvdiag.lines.chunk import Chunk, Texts, joined, merge, of_records
from kvdiag.lines.kernel import Table, library
from kvdiag.lines.packaging import Packaging
from kvdiag.lines.read import read_records
from kvdiag.lines.record import Record
from kvdiag.lines.shapes import Action, Run, Shape, learn
from kvdiag.lines.siblings import Siblings
from kvdiag.reading import Input, Line
from kvdiag.reading.blocks import Block, lines_of
from kvdiag.reading.unwrap import Unwrapper

LEARN_AFTER = 32
"""Lines of no known shape that are read strictly before the rest of the block is tried again."""
MOST_SHAPES = 160
PIECE = 1 << 16
"""Bytes within which all is read strictly where a wrapper cut a line into parts."""
_CUTTING = re.compile(rb'[ \t]*\{"(?:log|stream)":|\S{1,64} std(?:out|err) [FP] ')
"""Lines of container engines that cut long lines into parts."""
_MOST_SEEN_ONCE = 1 << 14


_Begun = tuple[Block, Future[tuple[int, int]]] | None
"""A block that a thread is walking, and where and at which line the walk ends."""


@mutable
class Scanned:
    """What a block held.

    Batch lines are `rows`; `records` are all that was read strictly, in order, batch lines of new shapes among them (they
    are rows too); `counted` tells how many lines were not kept as records, and a record they are siblings of.
    """

    rows: Chunk
    records: list[Record] = field(default_factory=list)
    counted: list[tuple[Record, int]] = field(default_factory=list)


class Scanner:
    """Reads the blocks of one input; what it learns holds for all blocks after."""

    def __init__(self, quiet: Callable[[Record], bool], seen: Input) -> None:
        self.texts = Texts()
        self._quiet = quiet
        self._seen = seen
        self._shapes: list[Shape] = []
        self._known: set[tuple[tuple[bytes, ...], tuple[Run, ...]]] = set()
        self._once: set[int] = set()
        self._siblings = Siblings(())
        self._table = self._new_table()
        self._number = 1
        self._unwrapper = Unwrapper()
        self._packaging = Packaging()
        self._cuts = False
        self._begun: _Begun = None

    def _new_table(self) -> Table:
        if library() is not None:
            return Table(self._shapes, self.texts)
        from kvdiag.lines.vector import VectorTable

        return VectorTable(self._shapes, self.texts)

    def scanned(self, blocks: Iterator[Block]) -> Iterator[tuple[Block, Scanned]]:
        """Each block with what it held; while the caller looks at it, a thread of its own walks the next."""
        with ThreadPoolExecutor(1) as pool:
            block = next(blocks, None)
            while block is not None:
                upcoming = next(blocks, None)
                found = self.scan(block)
                if upcoming is not None and library() is not None:
                    self._begun = upcoming, pool.submit(self._table.scan, upcoming.data, 0, 0, LEARN_AFTER)
                yield block, found
                block = upcoming

    def scan(self, block: Block) -> Scanned:
        """Reads one block; the line that a block is cut in is left to the strict rules, and so are lines cut into parts."""
        begun, self._begun = self._begun, None
        self._cuts = self._cuts or self._unwrapper.cuts or bool(_CUTTING.match(block.data))
        if not self._cuts or block.cut or not (self._unwrapper.holds or _has_parts(block.data)):
            return self._scan(block, begun)
        self._forget(begun)
        if len(block.data) <= PIECE:
            return self._strictly_all(block)
        found = [self.scan(piece) for piece in _pieces(block)]
        records = [record for each in found for record in each.records]
        return Scanned(joined([each.rows for each in found]), records, [pair for each in found for pair in each.counted])

    def finish(self) -> Scanned:
        """What is left when the input has ended: beginnings of lines whose end never came."""
        records = list(read_records(self._unwrapper.rest(self._number - 1), self._packaging))
        return Scanned(of_records(records, {}, self.texts), records)

    def _strictly_all(self, block: Block) -> Scanned:
        lines: list[Line] = []
        offsets: dict[int, int] = {}
        offset = block.offset
        for raw in block.data.split(b"\n")[:-1]:
            lines += lines_of(raw, self._number, self._seen, self._unwrapper)
            offsets[self._number] = offset
            offset += len(raw) + 1
            self._number += 1
        self._seen.lines += len(offsets)
        records = list(read_records(lines, self._packaging))
        return Scanned(of_records(records, offsets, self.texts), records)

    def _forget(self, begun: _Begun) -> None:
        """Takes back what was walked of a block that must be read otherwise."""
        if begun is not None:
            begun[1].result()
            self._table = self._new_table()

    def _scan(self, block: Block, begun: _Begun) -> Scanned:
        if block.cut:
            self._forget(begun)
            lines = lines_of(block.data, self._number, self._seen, self._unwrapper, cut=True)
            alone = list(read_records(lines, self._packaging))
            offset = {self._number: block.offset}
            self._number += 1
            self._seen.lines += 1
            return Scanned(of_records(alone, offset, self.texts), alone)
        records: list[Record] = []
        offsets: dict[int, int] = {}
        counted: list[tuple[Record, int]] = []
        rows: list[Chunk] = []
        position, line = 0, 0
        while position < len(block.data):
            table = self._table
            position, line = begun[1].result() if begun else table.scan(block.data, position, line, LEARN_AFTER)
            begun = None
            learnt = table.stricts and self._read(block, records, offsets)
            if learnt or table.full or position >= len(block.data):
                self._collect(table, block, rows, counted)
            if learnt:
                self._table = self._new_table()
        self._number += line
        self._seen.lines += line
        strict = of_records(records, offsets, self.texts)
        return Scanned(merge(joined(rows), strict) if rows else strict, records, counted)

    def strictly(self, block: Block, places: list[tuple[int, int]]) -> list[Record]:
        """The records of single lines of a block that was scanned, at (line number, place in the input)."""
        lines: list[Line | Record] = []
        for number, offset in places:
            begin = offset - block.offset
            raw = block.data[begin : block.data.index(b"\n", begin) + 1]
            record = None if block.cut else self._siblings.record(raw, number)
            lines += [record] if record else lines_of(raw, number, self._seen, self._unwrapper, cut=block.cut)
        return list(read_records(lines, self._packaging))

    def _collect(self, table: Table, block: Block, rows: list[Chunk], counted: list[tuple[Record, int]]) -> None:
        taken = table.take(self._number, block.offset)
        if taken is not None:
            rows.append(taken)
        for index in table.counts.nonzero()[0].tolist():
            shape = table.shapes[index]
            if shape.action is not Action.STRICT:
                counted.append((shape.record, int(table.counts[index])))
        table.counts[:] = 0

    def _read(self, block: Block, records: list[Record], offsets: dict[int, int]) -> bool:
        """The strict rules on the lines that were handed back; whether an unknown one taught a shape."""
        table, data = self._table, block.data
        unknown: dict[int, bytes] = {}
        lines: list[Line | Record] = []
        for index in range(table.stricts):
            begin = int(table.strict_begins[index])
            number = int(table.strict_lines[index]) + self._number
            raw = data[begin : data.index(b"\n", begin) + 1]
            offsets[number] = begin + block.offset
            record = self._siblings.record(raw, number) if table.strict_known[index] else None
            if not table.strict_known[index]:
                unknown[number] = raw
            lines += [record] if record else lines_of(raw, number, self._seen, self._unwrapper)
        by_line: dict[int, list[Record]] = {}
        for record in read_records(lines, self._packaging):
            records.append(record)
            by_line.setdefault(record.line.number, []).append(record)
        return self._learn((raw, by_line.get(number, [])) for number, raw in unknown.items())

    def _learn(self, lines: Iterable[tuple[bytes, list[Record]]]) -> bool:
        """Keeps the shapes of batch lines at once, those of other lines when they are seen again."""
        shapes = list(self._shapes)
        for raw, records in lines:
            shape = learn(raw, records[0], self._quiet) if len(records) == 1 else None
            if shape is None:
                continue
            key = (shape.literals, shape.runs)
            if key in self._known:
                continue
            if shape.action is not Action.COLUMNS and hash(key) not in self._once:
                if len(self._once) >= _MOST_SEEN_ONCE:
                    self._once.clear()
                self._once.add(hash(key))
                continue
            if len(shapes) >= MOST_SHAPES:
                shapes.clear()
                self._known.clear()
            shapes.append(shape)
            self._known.add(key)
        learnt = len(shapes) != len(self._shapes) or shapes != self._shapes
        if learnt:
            self._shapes = shapes
            self._siblings = Siblings(shapes)
        return learnt


def _has_parts(data: bytes) -> bool:
    """Whether some line of a container engine's log may be only a part of one: not every line says that it ends."""
    ends = sum(data.count(end) for end in (b'\\n","', b'\\n", "', b" stdout F ", b" stderr F "))
    return ends - data.count(b'\\\\n"') < data.count(b"\n")


def _pieces(block: Block) -> Iterator[Block]:
    begin = 0
    while begin < len(block.data):
        end = block.data.find(b"\n", begin + PIECE // 2) + 1 or len(block.data)
        yield Block(block.data[begin:end], block.offset + begin)
        begin = end
