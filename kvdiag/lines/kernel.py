"""The compiled walk over known shapes (kernel.c), where the installation has it; vector.py does the same without."""

from __future__ import annotations

import ctypes
import zlib
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from kvdiag.lines.chunk import Array, Chunk, Column, Texts, constant
from kvdiag.lines.columns import BATCH_FAMILIES, STREAM, TAG_ORDER, cells, column_of
from kvdiag.lines.shapes import Action, Shape

ROWS = 1 << 15
"""Rows and strict lines that one table has room for."""
CONSTANT, WHOLE, REAL = 0, 1, 2
_POINTER = ctypes.c_void_p
_NO_DATE = -1


class _Shapes(ctypes.Structure):
    _fields_ = [
        *[
            (name, _POINTER)
            for name in ("literals", "literal_begin", "literal_length", "shortest", "longest", "canonical", "exact")
        ],
        *[(name, _POINTER) for name in ("first_piece", "runs", "action", "clock", "first_value", "values")],
        *[(name, _POINTER) for name in ("kind", "column", "run", "constant", "order")],
        ("shapes", ctypes.c_int32),
    ]


class _State(ctypes.Structure):
    _fields_ = [
        *[(name, _POINTER) for name in ("cells", "there", "lines", "begins", "stamps", "timed", "family")],
        *[(name, ctypes.c_int64) for name in ("rows", "capacity")],
        *[(name, _POINTER) for name in ("counts", "strict_lines", "strict_begins", "strict_known")],
        *[(name, ctypes.c_int64) for name in ("stricts", "strict_capacity", "date", "days", "position")],
        ("line", ctypes.c_int32),
    ]


@lru_cache(maxsize=1)
def library() -> Any:
    """The compiled function, None where this installation has none (of this very source: the file's name tells)."""
    folder = Path(__file__).parent
    try:
        source = (folder / "kernel.c").read_bytes()
        function = ctypes.CDLL(str(folder / f"_kernel-{zlib.crc32(source):08x}.so")).kvdiag_scan
    except (OSError, AttributeError):
        return None
    function.restype = ctypes.c_int32
    function.argtypes = [_POINTER, ctypes.c_int64, _POINTER, _POINTER, ctypes.c_int32]
    return function


def values_of(shape: Shape, texts: Texts) -> list[tuple[int, str, int, Any]]:
    """What is read from a line of the shape: (kind, column, run, constant, or sign, or scale with its sign)."""
    prefix, kinds = shape.prefix, cells()
    found: list[tuple[int, str, int, Any]] = [(CONSTANT, TAG_ORDER, -1, texts.place(" ".join(tag for tag, _ in prefix.tags)))]
    if shape.record.line.stream:
        found.append((CONSTANT, STREAM, -1, texts.place(shape.record.line.stream)))
    found += [(WHOLE, tag, run, 1) for tag, run in prefix.tags if tag in kinds]
    for field in shape.fields:
        name = column_of(field.name)
        if field.run < 0:
            value = constant(field.text, kinds[name], texts)
            if value is not None:
                found.append((CONSTANT, name, -1, value))
        else:
            sign = -1 if field.negative else 1
            real = kinds[name] == "real"
            found.append((REAL if real else WHOLE, name, field.run, sign * 10**field.decimals if real else sign))
    return found


class Table:
    """Shapes laid out as the kernel wants them, and the rows it finds."""

    def __init__(self, shapes: Sequence[Shape], texts: Texts) -> None:
        self.shapes = shapes
        self.read = [values_of(shape, texts) if shape.action is Action.COLUMNS else [] for shape in shapes]
        self.names = list(cells())
        self._kept = self._laid_out()
        self._struct = _Shapes(*[array.ctypes.data for array in self._kept], len(shapes))
        self.counts = np.zeros(len(shapes), np.int64)
        self.strict_lines = np.empty(ROWS, np.int32)
        self.strict_begins = np.empty(ROWS, np.int64)
        self.strict_known = np.empty(ROWS, np.int32)
        self.state = _State(capacity=ROWS, strict_capacity=ROWS, date=_NO_DATE)
        self.state.counts = self.counts.ctypes.data
        for name in ("strict_lines", "strict_begins", "strict_known"):
            setattr(self.state, name, getattr(self, name).ctypes.data)
        self._make_room()

    def _laid_out(self) -> list[Array]:
        shapes = self.shapes
        pieces = [(literal, run) for shape in shapes for literal, run in zip(shape.literals, [*shape.runs, None], strict=True)]
        lengths = np.array([len(literal) for literal, _ in pieces], np.int32)
        values = [value for read in self.read for value in read]
        place = {name: index for index, name in enumerate(self.names)}
        return [
            np.frombuffer(b"".join(literal for literal, _ in pieces) + b"\0", np.uint8),
            np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32),
            lengths,
            *(np.array([getattr(run, limit, 0) for _, run in pieces], np.int8) for limit in ("shortest", "longest", "canonical")),
            np.array([getattr(run, "exact", -1) for _, run in pieces], np.int64),
            np.concatenate([[0], np.cumsum([len(shape.literals) for shape in shapes])]).astype(np.int32),
            np.array([len(shape.runs) for shape in shapes], np.int32),
            np.array([shape.action for shape in shapes], np.int32),
            np.array([clock_of(shape) for shape in shapes], np.int32),
            np.concatenate([[0], np.cumsum([len(read) for read in self.read])]).astype(np.int32),
            np.array([len(read) for read in self.read], np.int32),
            np.array([kind for kind, *_ in values], np.int32),
            np.array([place[name] for _, name, *_ in values], np.int32),
            np.array([run for *_, run, _ in values], np.int32),
            np.array([_bits(value) for value in values], np.int64),
            np.arange(len(shapes), dtype=np.int32),
        ]

    def _make_room(self) -> None:
        used = {name for read in self.read for _, name, *_ in read}
        kinds = cells()

        def room(kind: str) -> Array:
            return np.empty(ROWS, np.float64 if kind == "real" else np.int64)

        self.columns = {name: Column(room(kinds[name]), np.zeros(ROWS, np.bool_)) for name in self.names if name in used}
        self.fixed = [np.empty(ROWS, kind) for kind in (np.int32, np.int64, np.int64, np.uint8, np.int8)]
        self._pointers = [
            np.array([getattr(self.columns[n], part).ctypes.data if n in used else 0 for n in self.names], np.uint64)
            for part in ("values", "there")
        ]
        state = self.state
        state.cells, state.there = (array.ctypes.data for array in self._pointers)
        state.lines, state.begins, state.stamps, state.timed, state.family = (array.ctypes.data for array in self.fixed)
        state.rows = 0

    def scan(self, block: bytes, position: int, line: int, unknown: int) -> tuple[int, int]:
        """Reads `block` from `position` (its line `line`) on; where, and at which line, it ended.

        It ends before the block does after `unknown` lines of no known shape, or where room is full.
        """
        state = self.state
        state.position, state.line, state.stricts = position, line, 0
        library()(block, len(block), ctypes.addressof(self._struct), ctypes.addressof(state), unknown)
        return int(state.position), int(state.line)

    @property
    def stricts(self) -> int:
        """Lines handed back by the last scan."""
        return int(self.state.stricts)

    @property
    def full(self) -> bool:
        """Whether rows must be taken before the next scan."""
        return bool(self.state.rows >= ROWS)

    def take(self, number: int, offset: int) -> Chunk | None:
        """The rows found since they were last taken; `number` and `offset` are those of the block. None for no rows."""
        count = int(self.state.rows)
        if not count:
            return None
        lines, begins, stamps, timed, family = (array[:count] for array in self.fixed)
        columns = {
            name: Column(column.values[:count], column.there[:count])
            for name, column in self.columns.items()
            if column.there[:count].any()
        }
        chunk = Chunk(lines.astype(np.int64) + number, begins + offset, family, stamps, timed, columns)
        self._make_room()
        return chunk


def _bits(value: tuple[int, str, int, Any]) -> int:
    """A constant as the kernel keeps it: of a double its bits."""
    kind, name, _, constant = value
    return int(np.float64(constant).view(np.int64)) if kind == CONSTANT and cells()[name] == "real" else constant


def clock_of(shape: Shape) -> list[int]:
    """Of a shape: first run of the date and of the time (-1 for none), milliseconds or not, the family's place."""
    family = BATCH_FAMILIES.index(shape.record.family) if shape.record.family in BATCH_FAMILIES else 0
    return [shape.prefix.date, shape.prefix.time, shape.prefix.milliseconds, family]
