"""What the checks of one start are computed from, and what of it is missing."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from kvdiag.checks.cards import likely_gpus
from kvdiag.checks.readings import Reading, group_of, readings_of, worst_of
from kvdiag.errors import CannotSizeError, ConfigError
from kvdiag.frozen import frozen, replace
from kvdiag.models import Geometry, ModelConfig, find_config, geometry_of, read_config
from kvdiag.quantity import Interval
from kvdiag.releases import Release, ReleaseSet, every_release, only
from kvdiag.sizing import UNKNOWN_DEVICE, Device, ServerArguments
from kvdiag.sizing.environment import UNSET, Environment
from kvdiag.starts import Number, Start

NO_CONFIG = (
    "the model's config is not known (a config.json beside the log is not taken unasked: it may be another model's); "
    "give --config PATH or --model NAME"
)


@frozen
class CheckInputs:
    """Everything a check may use; `unsized` is empty when `geometry` is known.

    `mem_fraction_static` is the fraction in force at sizing: the argument, or what a later line says it was changed to.
    `fraction_line` is the line that states it (0: none).
    `draft` is the geometry of the draft model where its config is given or found by a path of its own, `named` that of the
    model that the log names, where another config was given. `switches` are those of the environment that would explain
    figures which fit no formula without. `by_name` says that the config is the catalogue's, taken by the log's path alone.
    """

    start: Start
    config: ModelConfig | None
    geometry: Geometry | None
    unsized: str
    arguments: ServerArguments
    mem_fraction_static: Fraction | None
    releases: ReleaseSet
    stated: Release | None
    readings: tuple[Reading, ...]
    draft: Geometry | None
    device: Device = UNKNOWN_DEVICE
    switches: tuple[str, ...] = ()
    named: Geometry | None = None
    by_name: bool = False
    fraction_line: int = 0

    @property
    def on_shared_memory(self) -> bool:
        """Whether free memory is the machine's, so that two readings of it differ by what others do."""
        return self.arguments.device in ("cpu", "mps", "mlx")

    def candidates(self) -> list[Release]:
        """The releases the log may be of, oldest first; a stated one that was never published stands for itself."""
        return self.releases.ordered() or ([self.stated] if self.stated else every_release().ordered())

    def unseen(self, *names: str) -> tuple[str, ...]:
        """Those of these server arguments that the log does not state, though the server had them."""
        if self.start.server_args and self.start.server_args_whole:
            return ()
        return tuple(name for name in names if name not in self.start.server_args)

    @property
    def ranks_missing(self) -> int:
        """How many ranks of the worst-covered group are not in the log."""
        world = self.arguments.tp_size * self.arguments.pp_size
        groups: dict[str, int] = {}
        for reading in self.readings:
            group = group_of(reading.rank, self.arguments)
            groups[group] = groups.get(group, 0) + 1
        return max(0, world - min(groups.values())) if groups else 0

    def worst(self, rank: str) -> Reading | None:
        """The readings that decide for `rank`: the minimum over the ranks that size together with it."""
        group = group_of(rank, self.arguments)
        return worst_of(reading for reading in self.readings if group_of(reading.rank, self.arguments) == group)


def gather(
    start: Start,
    config_path: str | None,
    model: str | None,
    stated: Release | None,
    environment: Environment = UNSET,
    draft_config: str | None = None,
) -> CheckInputs:
    """Collects the inputs of one start; a draft's config counts where the start drafts.

    Raises ConfigError where a config was given and cannot be used, CannotSizeError where the draft's is of no known shape.
    """
    arguments = replace(_arguments(start), environment=environment)
    path = _text(start.server_args.get("model_path"))
    config = find_config(config_path, model, path)
    named = _geometry(find_config(None, None, path))[0] if (config_path or model) and path else None
    geometry, unsized = _geometry(config)
    by_name = config is not None and config.found_in == "catalogue" and not (config_path or model)
    loaded = start.first("architecture", role="target")
    if config is not None and by_name and loaded is not None and _is_another(config, loaded.value):
        config, geometry = None, None
        unsized = f"the model's config: the log loads a {loaded.value}, which the catalogue's {path} is not; give --config PATH"
    possible = start.release.possible if start.release else every_release()
    if stated is not None:
        possible = only(stated)
    draft = _draft(start, draft_config)
    fraction, fraction_line = _fraction(start, arguments)
    readings = readings_of(start)
    device = _device(geometry, arguments, readings)
    return CheckInputs(
        start,
        config,
        geometry,
        unsized,
        arguments,
        fraction,
        possible,
        stated,
        readings,
        draft,
        device,
        named=named,
        by_name=by_name,
        fraction_line=fraction_line,
    )


def _is_another(config: ModelConfig, loaded: Any) -> bool:
    """Whether a config is of another class than the one the log loads."""
    return bool(config.architectures) and loaded != config.architectures[0]


def _device(geometry: Geometry | None, arguments: ServerArguments, readings: tuple[Reading, ...]) -> Device:
    """The card that free memory points to, where sizes depend on it (sparse attention, NVFP4) and only one kind has so much."""
    worst = worst_of(readings)
    depends = geometry is not None and (geometry.index is not None or arguments.kv_cache_dtype == "nvfp4")
    if not depends or worst is None or worst.total is None:
        return UNKNOWN_DEVICE
    devices = {Device(gpu.memory_mib, gpu.compute_capability, gpu.vendor) for gpu in likely_gpus(worst.total)}
    return devices.pop() if len(devices) == 1 else UNKNOWN_DEVICE


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _arguments(start: Start) -> ServerArguments:
    """The arguments, with what later lines state in place of what was asked for, and ranks counted where no line tells."""
    arguments = ServerArguments.of({name: value for name, value in start.server_args.items() if possible(name, value)})
    found: dict[str, Any] = {}
    for name in ("kv_cache_dtype", "dtype"):
        number = start.first(name, role="target")
        if number is not None and isinstance(number.value, str) and not _same_family(getattr(arguments, name), number.value):
            found[name] = number.value
    device = start.first("device")
    if device is not None and "device" not in start.server_args:
        found["device"] = device.value
    context = start.first("context_len")
    if context is not None and isinstance(context.value, int) and possible("context_length", context.value):
        found["context_length"] = context.value
    chunk = start.first("chunked_prefill_size", role="target")
    if chunk is not None and isinstance(chunk.value, int) and arguments.chunked_prefill_size is None:
        found["chunked_prefill_size"] = chunk.value
    for name, tag in (("tp_size", "TP"), ("pp_size", "PP"), ("dp_size", "DP")):
        if name not in start.server_args:
            found[name] = 1 + max((_tag(rank, tag) for rank in start.ranks), default=0)
    return replace(arguments, **found)


_FAMILIES = {"nvfp4": "fp4", "fp4_mx_block16": "fp4", "fp4_e2m1": "fp4", "mxfp8": "fp8_e4m3"}


def _same_family(asked: str, printed: str) -> bool:
    """Whether the argument says more than the torch dtype a line prints for it: FP4 recipes share one dtype."""
    return asked in _FAMILIES and printed.startswith(_FAMILIES[asked])


_NUMBERS = ("mem_fraction_static", "context_length", "schedule_conservativeness")
_COUNTS = ("max_", "speculative_num_")


def possible(name: str, value: Any) -> bool:
    """Whether a server could run with this value: a damaged log states others."""
    if isinstance(value, bool):
        return name not in _NUMBERS and not name.endswith("_size") and not name.startswith(_COUNTS)
    if name.endswith("_size") or name == "context_length":
        return not isinstance(value, (int, float)) or 1 <= value <= 10**9
    if name == "mem_fraction_static":
        return not isinstance(value, (int, float)) or 0 < value <= 1
    least = 0 if name.startswith(_COUNTS) or name in _NUMBERS else -(10**12)
    return not isinstance(value, (int, float)) or least <= value <= 10**12


def _tag(rank: str, tag: str) -> int:
    return next((int(word[len(tag) :]) for word in rank.split() if word.startswith(tag) and word[len(tag) :].isdigit()), 0)


def _fraction(start: Start, arguments: ServerArguments) -> tuple[Fraction | None, int]:
    """The fraction in force and its line: the dump's, or what a later line changed it to, exactly where the change is known."""
    stated = None if arguments.mem_fraction_static is None else Fraction(str(arguments.mem_fraction_static))
    for event in reversed(start.events_of("fraction_changed")):
        for name in ("mem_fraction_static after", "mem_fraction_static"):
            value = event.record.values.get(name)
            if value is not None and value.number is not None:
                return _unrounded(stated, value.text), event.record.line.number
        if stated is not None and "adjust --mem-fraction-static for multimodal models" in event.record.message:
            return stated * Fraction("0.95"), event.record.line.number
    return stated, start.server_args_line if stated is not None else 0


def _unrounded(stated: Fraction | None, printed: str) -> Fraction:
    """A fraction printed with three digits that is the dump's, less what image models give up (``loading_share``)."""
    for share in (Fraction("0.90"), Fraction("0.95")):
        if stated is not None and f"{float(stated * share):.3f}" == printed:
            return stated * share
    return Fraction(printed)


def _geometry(config: ModelConfig | None) -> tuple[Geometry | None, str]:
    if config is None:
        return None, NO_CONFIG
    try:
        return geometry_of(config), ""
    except (CannotSizeError, ConfigError) as error:
        return None, str(error)


def draft_path(start: Start) -> str | None:
    """The path of a draft model other than the target itself; None where there is none."""
    path = start.server_args.get("speculative_draft_model_path")
    return path if isinstance(path, str) and path != start.server_args.get("model_path") else None


def no_draft_config(path: str | None) -> str:
    """Why a draft's shape is not known, in a clause."""
    named = f"speculative_draft_model_path={path!r}" if path else "no line names it"
    return f"the draft model's config is not known ({named}; give --draft-config PATH)"


def _draft(start: Start, given: str | None) -> Geometry | None:
    if given is not None:
        drafts = start.server_args.get("speculative_algorithm") or any(number.role == "draft" for number in start.numbers)
        return geometry_of(read_config(given)) if drafts else None
    path = draft_path(start)
    return _geometry(find_config(None, None, path))[0] if path else None


def fits(number: Number) -> Interval:
    """The interval of a number that has one."""
    assert number.interval is not None
    return number.interval
