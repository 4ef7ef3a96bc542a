"""One start being put together from its records, line by line."""

from __future__ import annotations

from math import isfinite

from kvdiag.lines import Record
from kvdiag.lines.literal import parse_arguments
from kvdiag.quantity import Interval, figure_of, printed_interval
from kvdiag.quantity.dtype import spelled_dtype
from kvdiag.quantity.interval import plain
from kvdiag.starts.ends import OpenEnds
from kvdiag.starts.evidence import Evidence
from kvdiag.starts.frames import ran_out_in_a_traceback
from kvdiag.starts.loose import SGLANG_KINDS, loose_fraction, loose_releases
from kvdiag.starts.model import Event, Number, Start
from kvdiag.starts.pools import ModelPools, group_pools
from kvdiag.starts.progress import Progress, available
from kvdiag.starts.repeats import Repeats
from kvdiag.starts.tables import (
    ARGUMENT_NUMBERS,
    BEFORE_THE_DUMP,
    EVENTS,
    NUMBERS,
    ONCE_A_RANK,
    ONCE_A_REPLICA,
    RESTATED,
    STATE_PARTS,
    UNITS,
)

BATCHES = ("prefill-batch", "decode-batch")
_WITH_ROLE = {"weight-load-begin", "weight-load-end", "memory-pool-end", *RESTATED}
_GRAPHS = {"graph-begin", "graph-end", "graph-failed", "graph-bs"}


class StartBuilder:
    """Collects the records of one start; `finish` gives the start."""

    def __init__(self) -> None:
        self.start = Start()
        self.evidence = Evidence()
        self.ends = OpenEnds()
        self.ranks: dict[str, Progress] = {}
        self.first: Record | None = None
        self.last: Record | None = None
        self.dead = False
        self._counted: dict[tuple[str, int | None], str] = {}
        self._retractions = Repeats()

    @property
    def empty(self) -> bool:
        """Whether nothing has been seen that makes a start."""
        start = self.start
        told = any(event.record.family or event.kind in SGLANG_KINDS for event in start.events)
        told = told or ran_out_in_a_traceback(event.kind for event in start.events)
        pools = any(progress.pools or progress.held for progress in self.ranks.values())
        return not (start.server_args or start.numbers or told or start.batches or pools)

    @property
    def preparing(self) -> bool:
        """Whether all that was seen is the handling of arguments, so that a dump of arguments belongs to it."""
        start = self.start
        ranks = any(progress != Progress() for progress in self.ranks.values())
        begun = start.server_args or start.numbers or start.batches or ranks or self.dead
        return not begun and all(event.kind in BEFORE_THE_DUMP for event in start.events if event.record.family)

    @property
    def serving(self) -> bool:
        """Whether the start-up has come to its end, well or not."""
        return self.dead or bool(self.start.batches) or any(progress.capacity_seen for progress in self.ranks.values())

    def progress(self, record: Record) -> Progress:
        """The stages the record's rank has passed."""
        return self.ranks.setdefault(str(record.rank), Progress())

    @property
    def draft_possible(self) -> bool:
        """Whether a second model on a rank can be a draft: not where the arguments say there is no speculation."""
        arguments = self.start.server_args
        return "speculative_algorithm" not in arguments or arguments["speculative_algorithm"] is not None

    def add(self, record: Record, path: int) -> None:
        """Takes a record of a known family."""
        family = record.family or ""
        if record.time:
            self.first = self.first or record
            self.last = record
        self.evidence.line(record)
        self.ends.add(self.evidence.key(record), record, path, keep=family not in BATCHES)
        if family == "server-args-dump":
            self._arguments(record, path)
        elif family in BATCHES:
            self.start.batches.append(record)
        elif family == "kv-alloc":
            self._pool(record, path)
        else:
            self.start.address_space |= family == "kv-post-capture"
            self._stage(record, family, path)
        for name in record.families:
            if name in EVENTS:
                self.event(EVENTS[name], record, path)

    def event(self, kind: str, record: Record, path: int) -> None:
        """Every rank prints the same event: those of the rank that was first are counted, of each replica where it differs."""
        if kind == "retraction" and not self._retractions.first(record):
            return
        if kind in ONCE_A_RANK or kind == "retraction":
            self.start.events.append(Event(kind, record, path))
            return
        rank = str(record.rank)
        key = (kind, record.rank.get("DP") if kind in ONCE_A_REPLICA else None)
        if self._counted.setdefault(key, rank) == rank:
            self.start.events.append(Event(kind, record, path))

    def fragment(self, kind: str, record: Record, path: int) -> None:
        """Takes a record of no known family that still tells what happened, with what its words state for certain."""
        self.event(kind, record, path)
        ranges, fraction = loose_releases(record), loose_fraction(record)
        if ranges:
            self.evidence.words(f"the words of a {kind}", ranges, record.line.number)
        if fraction:
            interval = printed_interval(fraction, "fraction", rounded=False)
            self._state("mem_fraction_static", interval, None, record, path)

    def _arguments(self, record: Record, path: int) -> None:
        value = record.values.get("server_args")
        if value is None:
            return
        start = self.start
        start.server_args, start.server_args_whole = parse_arguments(value.text)
        start.server_args_line, start.server_args_path = record.line.number, path

    def _role(self, seen: int) -> str:
        return "draft" if seen and self.draft_possible else "target"

    def _pool(self, record: Record, path: int) -> None:
        progress = self.progress(record)
        progress.first_pool = progress.first_pool or record
        if "VA upper bound" in record.message:
            self.start.address_space = True
        progress.pools.append(record)
        self.start.pools.append(record)
        progress.path = path

    def _stage(self, record: Record, family: str, path: int) -> None:
        progress = self.progress(record)
        if family == "swa-pool-usage" and "swa size" in record.values:
            self._close_pools(record, progress, record, path)
        elif family == "memory-pool-end" or (family in _GRAPHS and progress.pools):
            self._close_pools(record, progress, None, path)
        role = None
        if family == "swa-pool-usage":
            role = self._role(progress.pools_ended + max(0, progress.models - 1))
        elif family in _WITH_ROLE:
            role = self._role(progress.weights_ended if family.startswith("weight") else progress.pools_ended)
        self._numbers(record, family, role, path)
        if family == "weight-load-begin":
            progress.weights_begun += 1
            progress.before = progress.before or available(record)
        elif family == "weight-load-end":
            self._loaded(record, progress, role, path)
        elif family == "memory-pool-end":
            progress.pools_ended += 1
        elif family in _GRAPHS:
            progress.graphs_seen = True
        elif family == "capacity":
            progress.capacity_seen = True
        elif family == "kv-dtype" and record.message.startswith("Using KV cache dtype"):
            self._dtype(record, "kv_cache_dtype", None, path)
        elif family == "mamba-pool":
            self._states(record, path)

    def _numbers(self, record: Record, family: str, role: str | None, path: int) -> None:
        for name, number in NUMBERS.get(family, {}).items():
            value = record.values.get(name)
            if value is not None and (value.abbreviated or value.number is not None) and value.interval is not None:
                self._state(number, value.interval, role, record, path, name, restated=family in RESTATED)
        if "available_cpu_mem" in record.values:
            self._text("device", "cpu", None, record, path)

    def _loaded(self, record: Record, progress: Progress, role: str | None, path: int) -> None:
        progress.weights_ended += 1
        progress.after = available(record) or progress.after
        for name, number in (("dtype", "dtype"), ("type", "architecture")):
            value = record.values.get(name)
            if value and (name == "type" or role == "target"):
                self._text(number, value.text, role, record, path)

    def _dtype(self, record: Record, name: str, role: str | None, path: int) -> None:
        if name in record.values:
            self._text("kv_cache_dtype", spelled_dtype(record.values[name].text), role, record, path)

    def _states(self, record: Record, path: int) -> None:
        """The state pool's bytes are the sum of its parts."""
        parts = [record.interval(name) for name, number in NUMBERS["mamba-pool"].items() if number in STATE_PARTS]
        known = [part for part in parts if part is not None]
        if len(known) >= 2 and not record.damaged:
            total = known[0]
            for part in known[1:]:
                total = total + part
            self._state("state_pool_bytes", total, None, record, path)

    def _close_pools(self, record: Record, progress: Progress, usage: Record | None, path: int) -> None:
        """The lines since the last model's pools were made are those of the next model, or of two where nothing lies between."""
        pools, progress.pools = progress.pools, []
        for model in group_pools(pools, usage, windowed=self._windowed()):
            role = self._role(progress.pools_ended + progress.models)
            progress.models += 1
            self._model_pools(model, role, path)
        if record.family == "memory-pool-end":
            progress.models = 0

    def _windowed(self) -> bool:
        return any(number.name == "swa_max_total_num_tokens" and number.role != "draft" for number in self.start.numbers)

    def _model_pools(self, model: ModelPools, role: str, path: int) -> None:
        for record in model.records:
            tokens = record.interval("#tokens")
            if tokens is not None and record.family == "kv-alloc":
                self._state("pool_tokens", tokens, role, record, path, "#tokens")
            if "dtype" in record.values:
                self._dtype(record, "dtype", role, path)
        for name, line in (("full_max_total_num_tokens", model.full), ("swa_max_total_num_tokens", model.swa)):
            tokens = line.interval("#tokens") if line and model.usage is None else None
            if line and tokens is not None:
                self._state(name, tokens, role, line, path, "#tokens", restated=True)
        if model.size is not None:
            self._state("kv_pool_bytes", model.size, role, model.last, path)

    def _state(
        self,
        name: str,
        interval: Interval,
        role: str | None,
        record: Record,
        path: int,
        field: str = "",
        *,
        restated: bool = False,
    ) -> None:
        """Notes a number; where the line has its `field` only abbreviated, the value is that text, and no number."""
        interval = interval.with_unit(UNITS.get(name, interval.unit))
        rank = str(record.rank)
        if restated:
            for index, number in enumerate(self.start.numbers):
                if (number.name, number.rank, number.role) == (name, rank, role):
                    self.start.numbers[index] = number.outdated()
        printed = record.values.get(field)
        value = printed.text if printed is not None and printed.abbreviated else plain(figure_of(interval))
        self.start.numbers.append(Number(name, value, interval, interval.unit, rank, role, record.line.number, path))

    def _text(self, name: str, text: str, role: str | None, record: Record, path: int) -> None:
        self.start.numbers.append(Number(name, text, None, "text", str(record.rank), role, record.line.number, path))

    def absorb(self, other: StartBuilder) -> None:
        """Takes over what another part of the same start has collected, a later file or another rank's."""
        start, more = self.start, other.start
        if not start.server_args:
            start.server_args, start.server_args_whole = more.server_args, more.server_args_whole
            start.server_args_line, start.server_args_path = more.server_args_line, more.server_args_path
        start.numbers += more.numbers
        for event in more.events:
            self.event(event.kind, event.record, event.path)
        start.batches += more.batches
        start.pools += more.pools
        start.spans += more.spans
        start.notes += more.notes
        start.address_space |= more.address_space
        self.evidence.absorb(other.evidence)
        self.ends.absorb(other.ends)
        for rank, progress in other.ranks.items():
            self.ranks.setdefault(rank, progress)
        self.dead |= other.dead
        self.last = other.last or self.last
        self.first = self.first or other.first

    def finish(self) -> Start:
        """The start, with what the lines imply where no line states it."""
        start = self.start
        self.evidence.arguments(start.server_args, start.server_args_whole, start.server_args_line)
        self.ends.settle(start, self.evidence)
        for progress in self.ranks.values():
            if progress.pools:
                self._close_pools(progress.pools[-1], progress, None, progress.path)
        self._from_arguments()
        self._capacity_from_pools()
        start.release = self.evidence.conclude()
        return start

    def _from_arguments(self) -> None:
        """server_args holds the values in force after SGLang resolved them."""
        start = self.start
        for name in ARGUMENT_NUMBERS:
            value = start.server_args.get(name)
            if isinstance(value, (int, float)) and not isinstance(value, bool) and isfinite(value) and not start.first(name):
                interval = printed_interval(repr(value), UNITS[name], rounded=False)
                start.numbers.append(
                    Number(name, value, interval, interval.unit, "", None, start.server_args_line, start.server_args_path)
                )

    def _capacity_from_pools(self) -> None:
        """Where no scheduler line of the start states a capacity, each rank's pool line does."""
        start = self.start
        if start.first("max_total_num_tokens"):
            return
        found: dict[str, Number] = {}
        for name in ("full_max_total_num_tokens", "pool_tokens"):
            for number in start.find(name, role="target"):
                if number.rank not in found:
                    found[number.rank] = number
        for number in found.values():
            start.numbers.append(number.renamed("max_total_num_tokens"))
