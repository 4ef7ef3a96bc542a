"""The form in which a server start leaves this room."""

from __future__ import annotations

from typing import Any

from kvdiag.frozen import field, frozen, mutable, replace
from kvdiag.lines import Record
from kvdiag.quantity import Interval
from kvdiag.releases import Release, ReleaseSet
from kvdiag.starts.batches import Batches


@frozen
class Number:
    """A number the log states: SGLang's name for it, its interval (or text), and the line it stands in.

    `role` is ``target`` or ``draft`` where the number belongs to one model of a speculative pair, else None.
    `superseded` is set where a later line of the same rank states the number anew (a cap, or sizing after capture).
    """

    name: str
    value: int | float | str
    interval: Interval | None
    unit: str
    rank: str
    role: str | None
    line: int
    path: int = 0
    superseded: bool = False

    def outdated(self) -> Number:
        """The same number, replaced by a later one."""
        return replace(self, superseded=True)

    def renamed(self, name: str) -> Number:
        """The same figure under another name: what it implies."""
        return replace(self, name=name)


@frozen
class Event:
    """Something that happened once, though every rank may have printed it: a failure, a retraction, readiness."""

    kind: str
    record: Record
    path: int = 0


@frozen
class ReleaseEvidence:
    """Which releases could have written a log, and why."""

    possible: ReleaseSet
    stated: Release | None
    evidence: tuple[str, ...]
    contradiction: str = ""


@frozen
class Span:
    """Where batch lines of `family` are a start's: lines of one input and stream from `begin` up to but not `end` (None: all)."""

    path: int
    stream: str
    family: str
    begin: int
    end: int | None


@mutable
class Start:
    """One start of one server (all its ranks): what it was told, what it measured, what it then did.

    `stream` is the wrapper's name for the server (container, pod, unit) where an input holds several. `notes` say what
    about the grouping is not certain; `address_space` is set where pool lines state reserved address space, not memory.
    `spans` are where its batch lines stand: `batches` may be a sample of them.
    """

    engine: str = "sglang"
    stream: str = ""
    notes: list[str] = field(default_factory=list)
    address_space: bool = False
    server_args: dict[str, Any] = field(default_factory=dict)
    server_args_whole: bool = False
    server_args_line: int = 0
    server_args_path: int = 0
    numbers: list[Number] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    batches: Batches = field(default_factory=Batches)
    pools: list[Record] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    release: ReleaseEvidence | None = None

    def find(self, name: str, *, rank: str | None = None, role: str | None = None) -> list[Number]:
        """The numbers of that name that hold to the end, of one rank and role where given, in the order of their lines."""
        return [
            number
            for number in self.numbers
            if number.name == name
            and not number.superseded
            and (rank is None or number.rank == rank)
            and (role is None or number.role in (role, None))
        ]

    def first(self, name: str, *, rank: str | None = None, role: str | None = None) -> Number | None:
        """The first of `find`, None where there is none."""
        found = self.find(name, rank=rank, role=role)
        return found[0] if found else None

    @property
    def ranks(self) -> list[str]:
        """The ranks that stated a number, in order of appearance."""
        return list(dict.fromkeys(number.rank for number in self.numbers))

    def events_of(self, kind: str) -> list[Event]:
        """The events of one kind in order."""
        return [event for event in self.events if event.kind == kind]
