"""A sizing asked from outside, by names and paths: checked, and each part read once however often it is asked for."""

from __future__ import annotations

import marshal
import os
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from kvdiag.errors import CannotSizeError
from kvdiag.frozen import replace
from kvdiag.models import Geometry, geometry_of, read_config
from kvdiag.models.catalogue import KV_DTYPE
from kvdiag.models.config import ModelConfig, config_from
from kvdiag.models.gpus import gpu as gpu_named
from kvdiag.releases import Release, parse_release, published_release
from kvdiag.sizing import mlx
from kvdiag.sizing.arguments import ALIASES, ArgumentError, ServerArguments, strict_arguments
from kvdiag.sizing.device import Device
from kvdiag.sizing.dtypes import model_dtype, plain_element_bytes
from kvdiag.sizing.environment import Environment, environment_of
from kvdiag.sizing.fraction import loading_share
from kvdiag.sizing.history import listed, registered, since
from kvdiag.sizing.resolve import forced_fraction, given_share, is_multimodal
from kvdiag.sizing.size import Memory, Sizing, size
from kvdiag.sizing.speculative import needs_draft_config
from kvdiag.sizing.startable import serves_none, would_not_start
from kvdiag.sizing.untold import draft_notes, open_kv_dtype, untold_notes

Config = str | os.PathLike[str] | Mapping[str, Any] | ModelConfig
KEPT = 512
LARGEST_GIB = 1 << 20
OLDEST_READ = "0.3.0"
NO_DRAFT = "cannot size the draft model of {}, whose cache shares the budget: give its config with --draft-config"
MLX_BUDGET = (
    "the MLX pool follows what the system has free, the device's limit and what MLX holds: give --avail GIB, --total GIB and "
    "--mlx-used GIB, in this order"
)


def requested_size(
    config: Config,
    release: str,
    args: Mapping[str, Any],
    memory: tuple[float | None, float | None] = (None, None),
    device: Device | None = None,
    draft_config: Config | None = None,
    environment: Mapping[str, str] | None = None,
) -> Sizing:
    """The sizing of a config (path, parsed JSON, or one found by its name) with server arguments as SGLang spells them.

    `memory` is GiB free after and before loading, `environment` the switches of SGLang's environment.
    Raises ReleaseError for a release that is not known, ArgumentError for names and values the release does not take,
    InputError for such switches, ConfigError, and CannotSizeError.
    """
    given = args.get("mem_fraction_static")
    number, arguments, backend = _arguments(release, {name: args[name] for name in args if name != "mem_fraction_static"})
    if given is not None and not (isinstance(given, float) and 0 < given < 1):
        strict_arguments({"mem_fraction_static": given}, number)
    geometry = _geometry(config)
    if arguments.model_path is None and isinstance(config, (str, os.PathLike)):
        arguments = _of_path(arguments, os.fspath(config))
    if environment:
        arguments = _under(arguments, environment_of(environment, number))
    if backend == "mlx":
        return _mlx(geometry, arguments, number, _memory(*memory, mlx=True), given, args.get("mlx_used_gib"))
    draft = None if draft_config is None else _geometry(draft_config)
    if draft is None and needs_draft_config(arguments, number):
        raise CannotSizeError(NO_DRAFT.format(arguments.speculative_algorithm))
    device = device or _device(None, None, None)
    asked, share = given, 1.0
    decided = given is not None or device.memory_mib is not None
    if decided and (device.is_amd or arguments.attention_backend == "aiter"):
        share = given_share(geometry, arguments, number, device)
    if given is not None:
        forced = forced_fraction(geometry, arguments, number, device)
        given, share = (given * share, share) if forced is None else (forced, 0.0)
    sizing = size(geometry, arguments, number, _memory(*memory), device, draft, given, share=share)
    names = tuple(ALIASES.get(name, name) for name in args)
    notes = (
        *_unloadable(geometry.architecture, number), *would_not_start(geometry, arguments, names),
        *serves_none(sizing.max_running_requests), *_lowered(geometry, arguments, number, sizing.mem_fraction_static),
        *_in_force(number, asked, given), *_pages_of_amd(geometry, number, device), *untold_notes(geometry, arguments),
        *draft_notes(geometry, arguments, number, draft),
    )  # fmt: skip
    if KV_DTYPE in geometry.untold and isinstance(config, ModelConfig):
        asking = replace(geometry, kv_cache_quant_algo="FP8")
        notes += open_kv_dtype(config.note, sizing, size(asking, arguments, number, _memory(*memory), device, draft, given))
    return replace(sizing, notes=(*sizing.notes, *notes)) if notes else sizing


def _in_force(release: Release, asked: float | None, given: float | None) -> tuple[str, ...]:
    """A note where SGLang does not run with the fraction that was given."""
    if asked is None or given is None or asked == given:
        return ()
    return (f"SGLang {release} makes {given:.4g} of the --mem-fraction-static {asked:g} that is given",)


def _pages_of_amd(geometry: Geometry, release: Release, device: Device) -> tuple[str, ...]:
    """A note where the page of a sparse index depends on what is installed (``aiter_can_use_preshuffle_paged_mqa``)."""
    if not device.is_amd or geometry.index is None or not since(release, "0.5.12"):
        return ()
    return ("on AMD this model's page is 64 with aiter's own kernels for its index (SGLANG_USE_AITER, Triton 3.5): 1 is assumed",)


@lru_cache(maxsize=KEPT)
def _of_path(arguments: ServerArguments, path: str) -> ServerArguments:
    return replace(arguments, model_path=path)


@lru_cache(maxsize=KEPT)
def _under(arguments: ServerArguments, environment: Environment) -> ServerArguments:
    return replace(arguments, environment=environment)


def requested_device(name: str | None, memory_mib: int | None = None, capability: tuple[int, int] | None = None) -> Device:
    """The GPU of that name in the catalogue; memory and compute capability override it or stand alone."""
    return _device(name, memory_mib, capability)


@lru_cache(maxsize=KEPT)
def _device(name: str | None, memory_mib: int | None, capability: tuple[int, int] | None) -> Device:
    if memory_mib is not None and not 0 < memory_mib < 1 << 40:
        raise ArgumentError(f"a GPU memory of {memory_mib} MiB: not a GPU's; give it as nvidia-smi prints it")
    if name is None:
        return Device(memory_mib, capability)
    known = gpu_named(name)
    return Device(memory_mib or known.memory_mib, capability or known.compute_capability, known.vendor)


def _memory(available: float | None, total: float | None, *, mlx: bool = False) -> Memory | None:
    if available is None or total is None:
        return None
    for name, value in (("available_gpu_memory", available), ("pre_model_load_memory", total)):
        _check_gib(name, value)
    if available <= 0 or total <= 0:
        told = "free of the system, {} the device's limit" if mlx else "free after loading, {} before"
        raise ArgumentError(f"{available} GiB {told.format(total)}: nothing is left for a KV cache")
    if not mlx and available > total:
        raise ArgumentError(f"{available} GiB free after loading, {total} before it: loading does not free memory; swap them?")
    return Memory(available, total)


def _check_gib(name: str, value: float) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) < LARGEST_GIB:
        raise ArgumentError(f"{name} = {value!r}: not a number of GiB a GPU could have")


def _arguments(release: str, args: Mapping[str, Any]) -> tuple[Release, ServerArguments, str | None]:
    try:
        return _kept_arguments(release, tuple(args.items()))
    except TypeError:
        bad = next((name for name, value in args.items() if isinstance(value, (list, dict, set))), "args")
        raise ArgumentError(f"{bad}: a server argument is one number, word or truth value") from None


@lru_cache(maxsize=KEPT)
def _kept_arguments(release: str, args: tuple[tuple[str, Any], ...]) -> tuple[Release, ServerArguments, str | None]:
    number = published_release(release)
    return number, strict_arguments(dict(args), number), dict(args).get("backend")


_GEOMETRIES: dict[Any, Geometry] = {}


def _geometry(config: Config) -> Geometry:
    untold: tuple[str, ...] = ()
    place = "config"
    if isinstance(config, ModelConfig):
        untold, place, config = config.untold, config.place, config.whole
    if isinstance(config, Mapping):
        try:
            key: Any = (marshal.dumps(dict(config)), untold, place)
        except ValueError:
            return geometry_of(config_from(config, "config", place))
    else:
        status = os.stat(config) if os.path.exists(config) else None
        key = (os.fspath(config), status and (status.st_mtime_ns, status.st_size))
    kept = _GEOMETRIES.get(key)
    if kept is None:
        read = config_from(config, "config", place) if isinstance(config, Mapping) else read_config(os.fspath(config))
        if len(_GEOMETRIES) >= KEPT:
            _GEOMETRIES.clear()
        kept = _GEOMETRIES[key] = geometry_of(replace(read, untold=untold))
    return kept


def _mlx(
    geometry: Geometry,
    arguments: ServerArguments,
    release: Release,
    memory: Memory | None,
    given: float | None,
    used: float | None,
) -> Sizing:
    """The MLX pool: `memory` is what the system has free and the device's limit, `used` what MLX holds already, all GiB."""
    dtype = model_dtype(geometry, arguments)
    slot = mlx.bytes_per_slot(geometry, plain_element_bytes(dtype) or 2, release)
    fraction = given or mlx.DEFAULT_FRACTION
    tokens = None
    if used is not None:
        _check_gib("mlx_used_gib", used)
        if used < 0:
            raise ArgumentError(f"mlx_used_gib = {used!r}: MLX cannot hold less than nothing")
    if memory is not None and used is not None:
        tokens = mlx.pool_slots(memory.total, used, memory.available, fraction, slot)
    return Sizing(
        str(release),
        geometry.num_key_value_heads,
        dtype,
        slot,
        max_total_num_tokens=tokens,
        formula="num_key_value_heads x head_dim x 2 x layers x bytes",
        terms={"layers": geometry.num_hidden_layers, "head_dim": geometry.head_dim},
        mem_fraction_static=fraction,
        symbol="MlxModelRunner._compute_pool_size",
        missing=() if tokens is not None else (MLX_BUDGET,),
    )


def _lowered(geometry: Geometry, arguments: ServerArguments, release: Release, fraction: float | None) -> tuple[str, ...]:
    """A note where SGLang lowers the fraction of an image model as it loads: the one here is taken as that in force."""
    share = loading_share(release)
    if share == 1.0 or fraction is None or not is_multimodal(geometry, arguments, release):
        return ()
    return (
        f"SGLang {release} lowers the fraction of image models to {share:.2f} of it as it loads, and {fraction:.3f} is taken as "
        f"what is in force then: for a server that was given it, size with {fraction * share:.3f}",
    )


@lru_cache(maxsize=KEPT)
def _unloadable(architecture: str, release: Release) -> tuple[str, ...]:
    """A note where `release` registers no such class and others do: the arithmetic holds, but no server would run."""
    ranges = registered(architecture)
    if release < parse_release(OLDEST_READ):
        return (f"releases before {OLDEST_READ} were not read: this is the arithmetic of {OLDEST_READ}",)
    if not ranges or listed("registry", architecture, release):
        return ()
    return (f"SGLang {release} has no {architecture} (releases {ranges}): it could not load this model by its own class",)
