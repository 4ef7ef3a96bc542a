"""Parts of one start that came in several files (rotation, a file per rank or node) or streams are put together."""

from __future__ import annotations

from typing import Any

from kvdiag.frozen import frozen
from kvdiag.lines import Record
from kvdiag.lines.prefix import Rank
from kvdiag.starts.build import StartBuilder

_PER_NODE = {
    "node_rank",
    "host",
    "port",
    "grpc_port",
    "nccl_port",
    "random_seed",
    "base_gpu_id",
    "gpu_id_step",
    "dist_init_addr",
    "disaggregation_ib_device",
    "mm_process_config",
}
"""Fields of server_args that may differ between the nodes of one server."""


@frozen
class Part:
    """What one stream of one input holds of a start."""

    builder: StartBuilder
    path: int
    stream: str

    @property
    def ranks(self) -> set[str]:
        """The ranks that print here; a launcher's untagged lines do not count where workers are tagged."""
        ranks = {rank for rank, progress in self.builder.ranks.items() if rank or progress.loaded or progress.capacity_seen}
        ranks |= {str(record.rank) for record in self.builder.start.batches}
        return ranks - {""} or ranks

    @property
    def begun(self) -> bool:
        """Whether the beginning of a start-up is here."""
        return bool(self.builder.start.server_args) or any(p.weights_begun for p in self.builder.ranks.values())

    @property
    def line(self) -> int:
        """The number of its first line."""
        return self.builder.first.line.number if self.builder.first else 0


def merge(parts: list[Part]) -> list[Part]:
    """The starts: nodes and ranks of one server joined, and what a later file continues joined to what it continues."""
    ordered = sorted(parts, key=lambda part: (_moment(part.builder.first), part.path, part.line))
    kept: list[Part] = []
    for part in ordered:
        home = _home(part, kept)
        if home is None:
            kept.append(part)
        else:
            home.builder.absorb(part.builder)
    return sorted(kept, key=lambda part: (part.path, part.line))


def _home(part: Part, kept: list[Part]) -> Part | None:
    """The start that `part` is of; None where it is one of its own or where more than one could be meant."""
    for test in (_same_server, _other_rank, _continued):
        homes = [home for home in kept if (home.path, home.stream) != (part.path, part.stream) and test(home, part)]
        if test is _continued and homes:
            latest = max(_moment(home.builder.last) for home in homes)
            homes = [home for home in homes if _moment(home.builder.last) == latest]
        if len(homes) == 1:
            return homes[0]
        if homes:
            return None
    return None


def _same_server(home: Part, part: Part) -> bool:
    """Nodes of one server: each prints its own server_args, alike but for its place."""
    first, second = home.builder.start.server_args, part.builder.start.server_args
    if not first or not second or first.get("node_rank") == second.get("node_rank"):
        return False
    return _shared(first) == _shared(second) and not (home.ranks & part.ranks)


def _shared(arguments: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in arguments.items() if name not in _PER_NODE}


def _other_rank(home: Part, part: Part) -> bool:
    """A rank's own lines: tagged, without server_args, at a time when the other ranks of the server print."""
    if part.builder.start.server_args or not _tagged(home) or not _tagged(part) or home.ranks & part.ranks:
        return False
    return _kinds(home) == _kinds(part) and _overlap(home.builder, part.builder)


def _tagged(part: Part) -> bool:
    return bool(part.ranks) and all(part.ranks)


def _kinds(part: Part) -> set[frozenset[str]]:
    return {frozenset(Rank(rank).tags) for rank in part.ranks}


def _continued(home: Part, part: Part) -> bool:
    """A later file of the same stream that does not begin a start-up: a rotated log."""
    if home.path == part.path or home.stream != part.stream or part.begun or not part.ranks <= home.ranks | {""}:
        return False
    last, first = home.builder.last, part.builder.first
    return last is not None and first is not None and bool(last.date) and _moment(last) <= _moment(first)


def _overlap(home: StartBuilder, part: StartBuilder) -> bool:
    ends = (home.first, home.last, part.first, part.last)
    if any(record is None or not record.date for record in ends):
        return False
    return _moment(home.first) <= _moment(part.last) and _moment(part.first) <= _moment(home.last)


def _moment(record: Record | None) -> tuple[str, str]:
    return (record.date, record.time) if record else ("", "")
