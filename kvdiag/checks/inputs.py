"""What the checks of one start are computed from, and what of it is missing."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from kvdiag.checks.cards import likely_gpus
from kvdiag.checks.readings import Reading, group_of, readings_of, worst_of
from kvdiag.checks.verdict import Excuse
from kvdiag.errors import CannotSizeError, ConfigError
from kvdiag.frozen import frozen, replace
from kvdiag.models import Geometry, ModelConfig, find_config, geometry_of
from kvdiag.quantity import Interval
from kvdiag.releases import Release, ReleaseSet, every_release, only
from kvdiag.sizing import UNKNOWN_DEVICE, Device, ServerArguments
from kvdiag.sizing.environment import UNSET, Environment
from kvdiag.sizing.fraction import loading_share
from kvdiag.sizing.resolve import is_multimodal, resolve
from kvdiag.sizing.speculative import needs_draft_config
from kvdiag.starts import Number, Start

SHARED_MEMORY = (
    "the printed avail mem and the one sizing used are two readings of memory that other processes share; "
    "they differ by more than the printed digits"
)
NO_CONFIG = (
    "the model's config is not known (a config.json beside the log is not taken unasked: it may be another model's); "
    "give --config PATH or --model NAME"
)


@frozen
class CheckInputs:
    """Everything a check may use; `unsized` is empty when `geometry` is known.

    `mem_fraction_static` is the fraction in force at sizing: the argument, or what a later line says it was changed to.
    `draft` is the geometry of the draft model where it has a path of its own and its config is known, `named` that of the
    model that the log names, where another config was given. `switches` are those of the environment that would explain
    figures which fit no formula without.
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
    start: Start, config_path: str | None, model: str | None, stated: Release | None, environment: Environment = UNSET
) -> CheckInputs:
    """Collects the inputs of one start. Raises ConfigError where a config was given and cannot be used."""
    arguments = replace(_arguments(start), environment=environment)
    path = _text(start.server_args.get("model_path"))
    config = find_config(config_path, model, path)
    named = _geometry(find_config(None, None, path))[0] if (config_path or model) and path else None
    geometry, unsized = _geometry(config)
    loaded = start.first("architecture", role="target")
    if config is not None and not (config_path or model) and loaded is not None and _is_another(config, loaded.value):
        config, geometry = None, None
        unsized = f"the model's config: the log loads a {loaded.value}, which the catalogue's {path} is not; give --config PATH"
    possible = start.release.possible if start.release else every_release()
    if stated is not None:
        possible = only(stated)
    draft = _draft(start)
    fraction = _fraction(start, arguments)
    readings = readings_of(start)
    device = _device(geometry, arguments, readings)
    return CheckInputs(
        start, config, geometry, unsized, arguments, fraction, possible, stated, readings, draft, device, named=named
    )


def _is_another(config: ModelConfig, loaded: Any) -> bool:
    """Whether a config that was taken by its name alone is of another class than the one the log loads."""
    return config.found_in == "catalogue" and bool(config.architectures) and loaded != config.architectures[0]


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


def _fraction(start: Start, arguments: ServerArguments) -> Fraction | None:
    """The fraction in force: the dump's, or what a later line says it was changed to, exactly where the change is known."""
    stated = None if arguments.mem_fraction_static is None else Fraction(str(arguments.mem_fraction_static))
    for event in reversed(start.events_of("fraction_changed")):
        for name in ("mem_fraction_static after", "mem_fraction_static"):
            value = event.record.values.get(name)
            if value is not None and value.number is not None:
                return _unrounded(stated, value.text)
        if stated is not None and "adjust --mem-fraction-static for multimodal models" in event.record.message:
            return stated * Fraction("0.95")
    return stated


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


def _draft(start: Start) -> Geometry | None:
    path = draft_path(start)
    return _geometry(find_config(None, None, path))[0] if path else None


def fits(number: Number) -> Interval:
    """The interval of a number that has one."""
    assert number.interval is not None
    return number.interval


def budget_excuses(inputs: CheckInputs) -> list[Excuse]:
    """What may have moved free memory, or the capacity made of it, between the lines the log prints."""
    start, found = inputs.start, []
    evidence = start.release
    if inputs.on_shared_memory:
        found.append(Excuse(SHARED_MEMORY))
    if evidence is not None and evidence.contradiction:
        found.append(Excuse(f"which tree printed this: {evidence.contradiction}"))
    if inputs.ranks_missing:
        why = f"{inputs.ranks_missing} ranks are not in the log and the smallest free memory decides"
        found.append(Excuse(why, raises=False))
    if start.server_args.get("enable_lora") or start.server_args.get("lora_paths"):
        found.append(Excuse("the memory of the LoRA adapters, taken between loading and sizing", raises=False))
    if any("symmetric memory" in event.record.message for event in start.events_of("pool_budget")):
        found.append(Excuse("the memory of the symmetric memory pool, taken between loading and sizing", raises=False))
    if start.address_space:
        found.append(Excuse("the memory left after the capture of graphs, which sized the pool anew"))
    found += [
        Excuse(f"{switch}, which stands in no line: with it the figures fit (say so with --env)") for switch in inputs.switches
    ]
    if inputs.arguments.chunked_prefill_size is None and inputs.arguments.disable_radix_cache and _has_windows(inputs):
        found.append(Excuse("chunked_prefill_size, by which a window pool for bounded requests is sized (no line states it)"))
    if inputs.unseen("max_total_tokens"):
        found.append(Excuse("--max-total-tokens, which may cap the pool (the log has no whole server_args line)", raises=False))
    found += draft_excuses(inputs)
    if _lowers_fraction(inputs):
        found.append(Excuse("the fraction of an image model, lowered as it loads (no line says to what)", raises=False))
    if _reserves(inputs) and not any("Reserving" in event.record.message for event in start.events_of("pool_budget")):
        found.append(Excuse("what is reserved for images (no 'Reserving ... of the KV budget' line)"))
    return found + cell_excuses(inputs)


def _has_windows(inputs: CheckInputs) -> bool:
    return inputs.geometry is not None and inputs.geometry.windows is not None


def draft_excuses(inputs: CheckInputs) -> list[Excuse]:
    """What a draft model of unknown shape takes of a token's bytes."""
    if inputs.draft is not None or not any(needs_draft_config(inputs.arguments, release) for release in inputs.candidates()):
        return []
    path = draft_path(inputs.start)
    why = f"the draft model's config (speculative_draft_model_path={path!r}), whose cache shares the budget"
    return [Excuse(why, raises=False)]


def _lowers_fraction(inputs: CheckInputs) -> bool:
    """Whether a release the log may be of lowers an image model's fraction, and no line of the log says so."""
    if inputs.geometry is None or inputs.start.events_of("fraction_changed"):
        return False
    return any(
        loading_share(release) < 1 and is_multimodal(inputs.geometry, inputs.arguments, release)
        for release in inputs.candidates()
    )


def _reserves(inputs: CheckInputs) -> bool:
    """Whether the newest possible release keeps part of the budget back for a multimodal model (0.5.18 and newer)."""
    if inputs.geometry is None:
        return False
    try:
        settings = resolve(inputs.geometry, inputs.arguments, inputs.candidates()[-1], inputs.device, inputs.draft)
    except (CannotSizeError, ConfigError):
        return False
    return settings.reserved_gib > 0


_LOCAL = ("/", ".", "~")
"""How the path of a folder begins, which may hold another model than the published one of its name."""


def cell_excuses(inputs: CheckInputs) -> list[Excuse]:
    """What may have changed the bytes of a token."""
    found = []
    unseen = inputs.unseen("tp_size", "enable_dp_attention", "pp_size")
    if unseen:
        found.append(Excuse(f"{', '.join(unseen)} (the log has no whole server_args line; ranks counted: {_world(inputs)})"))
    if inputs.arguments.pp_size > 1 and inputs.arguments.environment.pp_layer_partition is None:
        found.append(
            Excuse("SGLANG_PP_LAYER_PARTITION, which may split the layers over the stages otherwise and stands in no line")
        )
    path = inputs.start.server_args.get("model_path")
    if inputs.config is not None and inputs.config.found_in == "catalogue" and isinstance(path, str) and path.startswith(_LOCAL):
        found.append(Excuse(f"what {path} holds: the catalogue's model of that name is taken; give --config PATH"))
    if inputs.config is not None and "KV dtype" in inputs.config.note and inputs.arguments.kv_cache_dtype == "auto":
        found.append(Excuse(f"the KV dtype: {inputs.config.note}"))
    elif inputs.arguments.kv_cache_dtype == "auto" and inputs.unseen("kv_cache_dtype"):
        found.append(Excuse("the KV dtype (no line states it)"))
    return found


def _world(inputs: CheckInputs) -> str:
    arguments = inputs.arguments
    return f"tp {arguments.tp_size}, pp {arguments.pp_size}, dp {arguments.dp_size}"
