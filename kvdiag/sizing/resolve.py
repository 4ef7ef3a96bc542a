"""From geometry, arguments and release to the numbers a formula takes: what SGLang's own defaults and overrides make of them."""

from __future__ import annotations

from kvdiag.errors import CannotSizeError
from kvdiag.frozen import frozen, replace
from kvdiag.models import Geometry, StateShape, Windows
from kvdiag.models.catalogue import CONTEXT, ENCODER
from kvdiag.releases import Release
from kvdiag.sizing.arguments import ServerArguments
from kvdiag.sizing.device import Device, placed
from kvdiag.sizing.dsa import stores_raw_rows
from kvdiag.sizing.dtypes import KvDtype, draft_element_bytes, kv_dtype, packs_sparse
from kvdiag.sizing.fraction import aiter_share, default_fraction, depends_on_encoder
from kvdiag.sizing.graphs import Resolution, chunked_prefill, profiled_hopper
from kvdiag.sizing.history import (
    DSA,
    MINIMAX_SPARSE,
    MLA,
    MULTIMODAL,
    listed,
    since,
)
from kvdiag.sizing.pages import page_size
from kvdiag.sizing.radix import radix_cache
from kvdiag.sizing.speculative import Speculation, speculation
from kvdiag.sizing.stages import stages
from kvdiag.sizing.unruled import refuse_unruled
from kvdiag.sizing.windows import shares_llama4, window_ratio, windows_kept

_TEXT_ONLY_BY_DEFAULT = {
    "Gemma3ForConditionalGeneration": "0.4.4.post2", "Llama4ForConditionalGeneration": "0.4.5.post1",
    "Step3VLForConditionalGeneration": "0.4.10", "InklingForConditionalGeneration": "0.5.16",
}  # fmt: skip
MM_CACHE_MIB, MM_TRANSPORT_MIB = 100, 1024
MANY_REQUESTS = 400
LONG_CONTEXT = 10**9


@frozen
class Settings:
    """A server's resolved settings, as far as sizes depend on them.

    `pools` names the sizing path: ``plain``, ``llama4``, ``windows``, ``minimax`` or ``dsv4``. `radix`, `extra_buffer`, `lazy`
    and `overlap` decide the state slots. `requests` is the server's max_running_requests after its own defaults. `raw_rows`
    and `packed_sparse` tell how sparse attention lays its rows out, `encoder_untold` that the default of the fraction follows
    an image encoder which the catalogue does not hold.
    """

    geometry: Geometry
    arguments: ServerArguments
    release: Release
    dtype: KvDtype
    page: int
    attention_tp: int
    attention_dp: int
    is_mla: bool
    has_index: bool
    pools: str
    windows: Windows | None
    window_ratio: float
    state: StateShape | None
    radix: bool
    extra_buffer: bool
    lazy: bool
    overlap: bool
    spec: Speculation | None
    requests: int | None
    context: int
    chunked_prefill: int
    fraction: float | None
    reserved_gib: float
    device: Device
    raw_rows: bool
    packed_sparse: bool
    encoder_untold: bool

    @property
    def stages(self) -> tuple[range, ...]:
        """The layers of each pipeline stage."""
        partition = self.arguments.environment.pp_layer_partition
        return stages(self.geometry.num_hidden_layers, self.arguments.pp_size, self.release, partition)

    @property
    def resized_later(self) -> bool:
        """Whether the pool is sized anew once graphs are captured (``post_capture_kv_sizing_planned``, 0.5.16 and newer).

        By SGLANG_ENABLE_POST_CAPTURE_KV_SIZING, which Muse Spark sets itself; not for latents, compressed or sparse pools.
        """
        arguments, switch = self.arguments, self.arguments.environment.post_capture_kv_sizing
        if switch is None:
            switch = self.geometry.architecture == "MuseSparkForConditionalGeneration" and since(self.release, "0.5.23")
        plain = not (self.is_mla or self.geometry.compressed or self.geometry.sparse)
        return switch and since(self.release, "0.5.16") and plain and arguments.dcp_size == 1 and arguments.device == "cuda"


def resolve(
    geometry: Geometry, arguments: ServerArguments, release: Release, device: Device, draft: Geometry | None = None
) -> Settings:
    """The settings in force. Raises CannotSizeError where the release has no rule for the model or dtype.

    DP attention means a replica a rank up to 0.4.4, whatever dp_size is given.
    """
    arguments, device = placed(arguments, device)
    if arguments.enable_dp_attention and not since(release, "0.4.4.post1"):
        arguments = replace(arguments, dp_size=arguments.tp_size)
    is_mla = uses_latent(geometry, arguments, release)
    geometry = _unfolded(geometry, release, is_mla)
    _refuse(geometry, release, is_mla)
    refuse_unruled(geometry, arguments, release)
    if is_mla and arguments.pp_size > 1 and not since(release, "0.5.1"):
        raise CannotSizeError(f"the server would not start: SGLang {release} has no pipeline stages for latent attention")
    asked, arguments = arguments, _forced(geometry, arguments, device, release)
    element = 2 if draft is None else draft_element_bytes(geometry, arguments, release, device, draft)
    spec = speculation(geometry, arguments, release, draft, element)
    requests = _requests(geometry, arguments, release, spec)
    multimodal = is_multimodal(geometry, arguments, release)
    case = Resolution(geometry, asked, release, device, is_mla, multimodal)
    fraction, encoder_untold = arguments.mem_fraction_static, ENCODER in geometry.untold and depends_on_encoder(case)
    if fraction is None and (device.memory_mib is not None or not since(release, "0.4.5.post3")) and not encoder_untold:
        fraction = default_fraction(case) * _share(case)
    windows = windows_kept(geometry, arguments, release, device)
    state = geometry.state if geometry.state is not None and since(release, geometry.state.since) else None
    radix, extra, overlap = radix_cache(geometry, arguments, release, spec, device)
    asks_extra = arguments.mamba_scheduler_strategy.startswith("extra_buffer")
    leaf_states = radix and not asks_extra and spec is None
    page = page_size(geometry, arguments, release, device, is_mla=is_mla, leaf_states=leaf_states)
    if state is not None and radix and not extra and since(release, "0.5.11") and not since(release, "0.5.14"):
        page = 1
    return Settings(
        geometry,
        arguments,
        release,
        kv_dtype(geometry, arguments, release, device),
        page,
        attention_tp(arguments, release),
        arguments.attention_dp_size,
        is_mla,
        geometry.index is not None and is_mla and listed(DSA, geometry.architecture, release),
        _pools(geometry, arguments, release, windows),
        windows,
        window_ratio(geometry, arguments, release),
        state,
        radix,
        extra,
        arguments.mamba_scheduler_strategy == "extra_buffer_lazy",
        overlap,
        spec,
        requests,
        context_of(geometry, arguments, release),
        chunked_prefill(arguments, release, device),
        fraction,
        _multimodal_reserve(case),
        device,
        stores_raw_rows(geometry, arguments, release, device),
        packs_sparse(geometry, arguments, release, device),
        encoder_untold,
    )


def _forced(geometry: Geometry, arguments: ServerArguments, device: Device, release: Release) -> ServerArguments:
    """What 0.5.3rc2 to 0.5.7 make of the arguments of a model with a sparse index, after its default fraction is found.

    DP attention is on, to 0.5.5 on every rank; Blackwell's cache is fp8 to 0.5.4.post1, and the fraction 0.8 in the first two.
    Ascend's cards are left as they are.
    """
    sparse = geometry.index is not None and listed(DSA, geometry.architecture, release)
    if not sparse or since(release, "0.5.8") or device.is_npu:
        return arguments
    if since(release, "0.5.6"):
        return replace(arguments, enable_dp_attention=True)
    forced = replace(arguments, enable_dp_attention=True, dp_size=arguments.tp_size)
    if device.is_blackwell and not since(release, "0.5.4.post2"):
        forced = replace(forced, kv_cache_dtype="fp8_e4m3")
    return forced if since(release, "0.5.3.post1") else replace(forced, mem_fraction_static=0.8)


def context_of(geometry: Geometry, arguments: ServerArguments, release: Release) -> int:
    """The server's context length: the user's, else the model's with the transformers the release pins."""
    return arguments.context_length or (geometry.context_len_5 if since(release, "0.5.10rc0") else geometry.context_len)


def forced_fraction(geometry: Geometry, arguments: ServerArguments, release: Release, device: Device) -> float | None:
    """The ``mem_fraction_static`` that a model gets even where another is given; None where the given one stays."""
    forced = _forced(geometry, *placed(arguments, device), release).mem_fraction_static
    return None if forced == arguments.mem_fraction_static else forced


def given_share(geometry: Geometry, arguments: ServerArguments, release: Release, device: Device) -> float:
    """The share that SGLang leaves of a ``mem_fraction_static`` the user gives (``aiter_share``)."""
    if arguments.environment.honor_explicit_mem_fraction and since(release, "0.5.19"):
        return 1.0
    arguments, device = placed(arguments, device)
    is_mla = uses_latent(geometry, arguments, release)
    case = Resolution(geometry, arguments, release, device, is_mla, False)
    return _share(case)


def _share(case: Resolution) -> float:
    """``aiter_share`` of the server's context length. Raises CannotSizeError where it is not known and decides."""
    if context_untold(case.geometry, case.arguments) and aiter_share(case, 0) != aiter_share(case, LONG_CONTEXT):
        raise CannotSizeError(
            "cannot size on AMD: its attention lowers the fraction by the context length, which the catalogue does not hold for "
            "this model; give --context-length or --config"
        )
    return aiter_share(case, context_of(case.geometry, case.arguments, case.release))


def context_untold(geometry: Geometry, arguments: ServerArguments) -> bool:
    """Whether the context length is neither given nor in the catalogue's entry: `context_of` is its class's default then."""
    return CONTEXT in geometry.untold and arguments.context_length is None


def uses_latent(geometry: Geometry, arguments: ServerArguments, release: Release) -> bool:
    """Whether `release` sizes the model as MLA: its list of classes, --enable-mla up to 0.3.1.post1, --disable-mla to 0.4.x."""
    if not geometry.kv_lora_rank or not listed(MLA, geometry.architecture, release):
        return False
    return not arguments.disable_mla if since(release, "0.3.1.post2") else arguments.enable_mla


def _unfolded(geometry: Geometry, release: Release, is_mla: bool) -> Geometry:
    """A class known as latent but not sized so has the width of head that its own kernels use; a V of no width stays so."""
    if geometry.zero_v and since(release, "0.5.7") and not since(release, "0.5.19"):
        geometry = replace(geometry, v_head_dim=0)
    if is_mla or not geometry.kv_lora_rank or not listed(MLA, geometry.architecture, release):
        return geometry
    width = 128 if geometry.architecture == "MiniCPM3ForCausalLM" else 256
    return replace(geometry, head_dim=width, v_head_dim=width)


def attention_tp(arguments: ServerArguments, release: Release) -> int:
    """Ranks that share KV heads; before 0.4.1.post7 all of them, even under DP attention."""
    return arguments.attention_tp_size if since(release, "0.4.1.post7") else arguments.tp_size


def is_multimodal(geometry: Geometry, arguments: ServerArguments, release: Release) -> bool:
    """``ModelConfig.is_multimodal``: in the list or, from 0.5.10, with a text config of its own.

    Some are served as text unless --enable-multimodal; from 0.5.18 also what the checkpoint or the user declares as text.
    """
    name = geometry.architecture
    sees = geometry.compressed is not None and geometry.compressed.sees_images
    if not listed(MULTIMODAL, name, release) and not (geometry.nested and since(release, "0.5.10")) and not sees:
        return False
    if (geometry.language_only or arguments.language_model_only) and since(release, "0.5.18"):
        return False
    if arguments.enable_multimodal is not None:
        return arguments.enable_multimodal
    if name == "MiMoV2ForCausalLM" and len(geometry.towers) < 2:
        return False
    first = _TEXT_ONLY_BY_DEFAULT.get(name)
    return first is None or not since(release, first)


def _refuse(geometry: Geometry, release: Release, is_mla: bool) -> None:
    state, name = geometry.state, geometry.architecture or geometry.model_type
    if not geometry.num_attention_heads and not is_mla and (state is None or state.attention_layers):
        raise CannotSizeError(f"cannot size this architecture: {name} has no num_attention_heads, which SGLang {release} needs")
    if state is not None and not since(release, state.since):
        raise CannotSizeError(
            f"cannot size this architecture: {name} keeps state, and SGLang {release} has no pool for it (from {state.since})"
        )
    if geometry.compressed and not since(release, "0.5.12"):
        raise CannotSizeError(f"cannot size this architecture: SGLang {release} does not know {name} (from 0.5.12)")
    if geometry.compressed and geometry.compressed.is_v41 and not since(release, "0.5.21"):
        raise CannotSizeError(f"cannot size this architecture: SGLang {release} does not know DeepSeek-V4.1 (from 0.5.21)")
    if geometry.sparse and not listed(MINIMAX_SPARSE, geometry.architecture, release):
        raise CannotSizeError(f"cannot size this architecture: SGLang {release} does not know {name} (from 0.5.14)")
    if geometry.index and not is_mla and listed(DSA, geometry.architecture, release):
        raise CannotSizeError(f"cannot size this architecture: {name} has a sparse index but no latent in SGLang {release}")


def _requests(geometry: Geometry, arguments: ServerArguments, release: Release, spec: Speculation | None) -> int | None:
    """``max_running_requests`` after ``__post_init__``: 48 under speculation (32 before 0.4.4.post4), 256 for DeepSeek-V4."""
    if arguments.max_running_requests is not None:
        return arguments.max_running_requests
    if geometry.compressed:
        return 256
    if spec is None or not since(release, "0.4.3.post3"):
        return None
    return 48 if since(release, "0.4.4.post4") else 32


def _pools(geometry: Geometry, arguments: ServerArguments, release: Release, windows: Windows | None) -> str:
    if geometry.compressed:
        return "dsv4"
    if geometry.sparse and since(release, "0.5.15"):
        return "minimax"
    if shares_llama4(geometry, arguments, release, context_of(geometry, arguments, release)):
        return "llama4"
    return "windows" if windows is not None else "plain"


def _multimodal_reserve(case: Resolution) -> float:
    """GiB kept back for caches made after the pool (``mm_runtime_reservation_gb``, 0.5.18 and newer).

    Qwen3-VL on large Hopper cards (0.5.20 and newer) keeps no embedding cache and, on one node, a CUDA transport instead,
    which is larger where 400 requests and more may run.
    """
    if not case.is_multimodal or not since(case.release, "0.5.18"):
        return 0.0
    arguments = case.arguments
    cache, given = arguments.environment.vlm_cache_size_mb, arguments.environment.mm_feature_cache_mb
    reserved, transport = MM_CACHE_MIB if cache is None else cache, arguments.mm_feature_transport
    pool = MM_TRANSPORT_MIB if given is None else given
    if profiled_hopper(case):
        reserved = cache or 0
        retains = (arguments.mm_preprocess_cache_size_mb or 0) > 0 or reserved > 0
        if transport is None and arguments.nnodes == 1 and not retains:
            transport = "cuda_ipc"
        if transport == "cuda_ipc" and (arguments.max_running_requests or 0) >= MANY_REQUESTS and not retains and given is None:
            pool = 3 * MM_TRANSPORT_MIB
    if transport in ("cuda_ipc", "cuda_vmm"):
        reserved += pool
    return reserved / 1024
