"""What the checks of one start are computed from, and what of it is missing."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from kvdiag.errors import CannotSizeError, ConfigError
from kvdiag.models import Geometry, ModelConfig, find_config, geometry_of
from kvdiag.quantity import Interval
from kvdiag.releases import Release, ReleaseSet, every_release, only
from kvdiag.sizing import ServerArguments
from kvdiag.starts import Number, Start


@dataclass(frozen=True, slots=True)
class Reading:
    """A rank's memory as sizing saw it: free after the last weights before the pool, and free before the first."""

    rank: str
    available: Interval
    total: Interval | None
    lines: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class CheckInputs:
    """Everything a check may use; `unsized` is empty when `geometry` is known."""

    start: Start
    config: ModelConfig | None
    geometry: Geometry | None
    unsized: str
    arguments: ServerArguments
    releases: ReleaseSet
    readings: tuple[Reading, ...]
    ranks_missing: int

    @property
    def on_shared_memory(self) -> bool:
        """Whether free memory is the machine's, so that two readings of it differ by what others do."""
        return self.arguments.device in ("cpu", "mps", "mlx")

    def candidates(self) -> list[Release]:
        """The releases the log may be of, oldest first."""
        return self.releases.ordered()


def gather(start: Start, config_path: str | None, model: str | None, stated: Release | None) -> CheckInputs:
    """Collects the inputs of one start. Raises ConfigError where a config was given and cannot be used."""
    arguments = ServerArguments.of(start.server_args)
    arguments = replace(arguments, **_resolved(start))
    config = find_config(config_path, model, _text(start.server_args.get("model_path")))
    geometry, unsized = _geometry(config)
    possible = start.release.possible if start.release else every_release()
    if stated is not None:
        possible = only(stated)
    readings = tuple(reading for rank in start.ranks if (reading := _reading(start, rank)))
    world = arguments.tp_size * arguments.pp_size
    missing = max(0, world - len(readings)) if start.server_args and readings else 0
    return CheckInputs(start, config, geometry, unsized, arguments, possible, readings, missing)


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _resolved(start: Start) -> dict[str, Any]:
    """Arguments that later lines state: the dtype line names what ``auto`` became."""
    found: dict[str, Any] = {}
    dtype = start.first("kv_cache_dtype", role="target")
    if dtype and isinstance(dtype.value, str):
        found["kv_cache_dtype"] = dtype.value
    model_dtype = start.first("dtype")
    if model_dtype and isinstance(model_dtype.value, str):
        found["dtype"] = model_dtype.value
    return found


def _geometry(config: ModelConfig | None) -> tuple[Geometry | None, str]:
    if config is None:
        return None, "the model's config is not known; give --config PATH or --model NAME"
    try:
        return geometry_of(config), ""
    except (CannotSizeError, ConfigError) as error:
        return None, str(error)


def _reading(start: Start, rank: str) -> Reading | None:
    pool = start.first("kv_pool_bytes", rank=rank, role="target") or start.first("memory_after_pool", rank=rank, role="target")
    after: list[Number] = start.find("available_gpu_memory", rank=rank)
    if pool is not None:
        after = [number for number in after if number.line < pool.line] or after[:1]
    if not after or after[-1].interval is None:
        return None
    available = after[-1].interval
    lines = [after[-1].line]
    total: Interval | None = None
    before = start.first("pre_model_load_memory", rank=rank)
    used = start.first("weight_memory", rank=rank)
    if before is not None and before.interval is not None:
        total = before.interval
        lines.insert(0, before.line)
    elif used is not None and used.interval is not None and after[0].interval is not None:
        total = after[0].interval + used.interval
    return Reading(rank, available, total, tuple(lines))
