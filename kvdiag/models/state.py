"""The state that Mamba, linear-attention and short-convolution layers keep per request, read from a config."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kvdiag.errors import CannotSizeError, ConfigError
from kvdiag.frozen import frozen

Values = Mapping[str, Any]


@frozen
class StateShape:
    """One layer's state before any split, and which layers keep one.

    `family` names the layout: ``mamba2`` (also gated delta net and lightning attention: one convolution over
    ``intermediate_size + 2 x n_groups x state_size`` channels and one matrix a head), ``mamba1``, ``kda``, ``conv``, ``cca``
    (ZAYA: a convolution over queries and keys, split over all ranks) or ``sconv`` (Inkling: one before each projection, of
    `kv_widths`, heads and their width, twice each). `replicated` counts inputs of a layer that every rank keeps whole.
    `attention_layers` are those with a KV cache; a layer may have both. `ssm_dtype` is the config's, None for the default.
    `since` is the first release with a pool for it.
    """

    family: str
    layers: tuple[int, ...]
    attention_layers: tuple[int, ...]
    intermediate_size: int
    n_groups: int
    num_heads: int
    head_dim: int
    state_size: int
    conv_kernel: int
    ssm_dtype: str | None
    since: str
    replicated: int = 0
    kv_widths: tuple[tuple[int, int], ...] = ()


_MARKS = (
    "linear_attn_config", "linear_num_value_heads", "mamba_d_state", "ssm_state_size", "mamba_d_conv", "conv_L_cache",
    "hybrid_override_pattern", "attn_type_list", "efficient_attention_config", "state_size", "mixer_types", "lru_width",
    "rwkv_version", "attention_hidden_size", "mamba_num_heads", "zaya_layers", "mamba_config", "ssm_cfg", "ssm_config",
)  # fmt: skip
_STATEFUL_KINDS = ("linear_attention", "mamba", "mamba2", "conv", "short_conv", "recurrent", "hybrid", "jet", "lightning-attn")


def state_of(text: Values, architecture: str, layers: int, place: str) -> StateShape | None:
    """The state of a model, None where no layer keeps any.

    Raises CannotSizeError where the config has marks of state but no reader here knows its layout: SGLang would set memory
    aside for it, so a size without it would be wrong.
    """
    kind = str(text.get("model_type") or "")
    for types, read in _READERS:
        if kind in types:
            return read(_Keys(text, place), layers)
    marks = [mark for mark in _MARKS if _marks_state(mark, text.get(mark))]
    listed = text.get("layer_types") or text.get("layers_block_type")
    if isinstance(listed, list):
        marks += [found for found in _STATEFUL_KINDS if found in listed]
    if marks or kind.startswith(("rwkv", "xlstm", "recurrent_gemma")):
        name = architecture or kind or "the model"
        raise CannotSizeError(
            f"cannot size this architecture: {name} keeps state in some layers ({', '.join(marks) or kind}) and no rule "
            "knows its layout"
        )
    return None


def _marks_state(mark: str, value: Any) -> bool:
    """MiniMax lists a kind for every layer, and 1 is full attention."""
    if mark == "attn_type_list" and isinstance(value, list):
        return any(kind != 1 for kind in value)
    return bool(value)


@frozen
class _Keys:
    """A config's values, with errors that name the key."""

    values: Values
    place: str

    def number(self, key: str, default: int | None = None) -> int:
        value = self.values.get(key)
        if value is None:
            value = default
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 10**9 or value != int(value):
            raise ConfigError(f"{self.place}: {key} is {value!r}, not a whole number a model could have")
        return int(value)

    def words(self, key: str) -> list[Any]:
        value = self.values.get(key)
        if not isinstance(value, list):
            raise ConfigError(f"{self.place}: {key} is {type(value).__name__}, not a list of layer kinds")
        return value

    def inner(self, key: str) -> _Keys:
        value = self.values.get(key)
        if not isinstance(value, Mapping):
            raise ConfigError(f"{self.place}: {key} is {type(value).__name__}, not an object")
        return _Keys(value, f"{self.place}: {key}")

    @property
    def ssm_dtype(self) -> str | None:
        value = self.values.get("mamba_ssm_dtype")
        return value if isinstance(value, str) else None


def _where(kinds: Sequence[Any], *wanted: str) -> tuple[int, ...]:
    return tuple(i for i, kind in enumerate(kinds) if kind in wanted)


def _delta_net(keys: _Keys, full: tuple[int, ...], linear: tuple[int, ...], since: str) -> StateShape:
    value_heads, value_dim = keys.number("linear_num_value_heads"), keys.number("linear_value_head_dim")
    key_heads, key_dim = keys.number("linear_num_key_heads"), keys.number("linear_key_head_dim")
    kernel = keys.number("linear_conv_kernel_dim")
    return StateShape(
        "mamba2", linear, full, value_dim * value_heads, key_heads, value_heads, value_dim, key_dim, kernel, keys.ssm_dtype, since
    )


_SINCE = {"qwen3_next": "0.5.2", "intern_s2_preview": "0.5.12", "interns2_mobius_text": "0.5.18", "qwen4_exp_text": "0.5.20"}


def _qwen3_next(keys: _Keys, layers: int) -> StateShape:
    """Gated delta net; every ``full_attention_interval``-th layer attends (``Qwen3NextConfig.layers_block_type``)."""
    interval = max(1, keys.number("full_attention_interval", 4))
    full = tuple(i for i in range(layers) if (i + 1) % interval == 0)
    since = _SINCE.get(str(keys.values.get("model_type")), "0.5.9")
    return _delta_net(keys, full, tuple(i for i in range(layers) if (i + 1) % interval), since)


def _gigachat(keys: _Keys, layers: int) -> StateShape:
    kinds = keys.values.get("layer_types")
    if not isinstance(kinds, list):
        attending = set(keys.values.get("full_attention_layers") or ())
        kinds = ["attention" if i in attending else "linear_attention" for i in range(layers)]
    return _delta_net(keys, _where(kinds, "attention", "full_attention"), _where(kinds, "linear_attention"), "0.5.21")


def _kimi_linear(keys: _Keys, layers: int) -> StateShape | None:
    """Kimi delta attention; ``kda_layers`` counts from one (``KimiLinearConfig.is_kda_layer``)."""
    return _kda(keys, layers, 1, "0.5.4.post2")


def _glm5_next(keys: _Keys, layers: int) -> StateShape | None:
    return _kda(keys, layers, 0, "0.5.20")


def _kda(keys: _Keys, layers: int, first: int, since: str) -> StateShape | None:
    if not isinstance(keys.values.get("linear_attn_config"), Mapping):
        return None
    inner = keys.inner("linear_attn_config")
    marked = set(inner.words("kda_layers"))
    linear = tuple(i for i in range(layers) if i + first in marked)
    full = tuple(i for i in range(layers) if i + first not in marked)
    heads, dim = inner.number("num_heads"), inner.number("head_dim")
    kernel = inner.number("short_conv_kernel_size", 4)
    return StateShape("kda", linear, full, heads * dim, heads, heads, dim, dim, kernel, None, since)


def _falcon_h1(keys: _Keys, layers: int) -> StateShape:
    """Every layer has both an attention and a Mamba2 part (``FalconH1Config``)."""
    heads = keys.number("mamba_n_heads")
    given = keys.values.get("mamba_d_ssm")
    inner = keys.number("mamba_d_ssm") if given is not None else keys.number("mamba_expand", 2) * keys.number("hidden_size")
    dim = inner // heads if keys.values.get("mamba_d_head") in (None, "auto") else keys.number("mamba_d_head")
    every = tuple(range(layers))
    groups, state, kernel = keys.number("mamba_n_groups"), keys.number("mamba_d_state"), keys.number("mamba_d_conv")
    return StateShape("mamba2", every, every, inner, groups, heads, dim, state, kernel, keys.ssm_dtype, "0.5.3rc2")


def _nemotron_h(keys: _Keys, layers: int) -> StateShape:
    """Mamba2 where the pattern says M, attention where it says * (``NemotronHConfig``)."""
    letters = {"mamba": "M", "attention": "*", "full_attention": "*"}
    kinds = keys.values.get("layers_block_type") or keys.values.get("hybrid_override_pattern")
    if not isinstance(kinds, (list, str)):
        raise ConfigError(f"{keys.place}: layers_block_type or hybrid_override_pattern must name every layer's kind")
    pattern = [letters.get(str(kind), str(kind)) for kind in kinds]
    heads = keys.number("mamba_num_heads")
    dim = keys.number("mamba_head_dim")
    groups = keys.number("n_groups" if "n_groups" in keys.values else "mamba_n_groups")
    kernel = keys.number("conv_kernel" if "conv_kernel" in keys.values else "mamba_d_conv")
    state = keys.number("ssm_state_size")
    return StateShape(
        "mamba2", _where(pattern[:layers], "M"), _where(pattern[:layers], "*"), heads * dim, groups, heads, dim, state, kernel,
        keys.ssm_dtype, "0.5.3.post1",
    )  # fmt: skip


def _granite_hybrid(keys: _Keys, layers: int) -> StateShape | None:
    """Mamba2 in the layers so named; a GraniteMoeHybrid without any is a plain model (``mamba2_config``).

    Where nothing names them, every sixth attends (``GraniteMoeHybridConfig`` of SGLang).
    """
    spread = ["mamba" if (i + 1) % 6 else "attention" for i in range(layers)]
    kinds = keys.values.get("layer_types") or keys.values.get("layers_block_type") or spread
    mamba = _where(kinds[:layers], "mamba", "linear_attention")
    if not mamba:
        return None
    inner = keys.number("mamba_expand", 2) * keys.number("hidden_size")
    heads = keys.number("mamba_n_heads")
    dim = inner // heads if keys.values.get("mamba_d_head") in (None, "auto") else keys.number("mamba_d_head")
    groups, state, kernel = keys.number("mamba_n_groups", 1), keys.number("mamba_d_state"), keys.number("mamba_d_conv", 4)
    attending = _where(kinds[:layers], "attention", "full_attention")
    return StateShape("mamba2", mamba, attending, inner, groups, heads, dim, state, kernel, None, "0.5.9")


def _lfm2(keys: _Keys, layers: int) -> StateShape | None:
    """Short convolutions keep their last inputs and nothing else (``Lfm2Config``)."""
    kinds = keys.words("layer_types")[:layers]
    conv = _where(kinds, "conv", "short_conv")
    if not conv:
        return None
    size, kernel = keys.number("hidden_size"), keys.number("conv_L_cache")
    return StateShape("conv", conv, _where(kinds, "full_attention"), size, 1, 1, size, 0, kernel, keys.ssm_dtype, "0.5.9")


def _jet_nemotron(keys: _Keys, layers: int) -> StateShape:
    jet = keys.inner("efficient_attention_config").inner("jet")
    kinds = keys.words("layer_types")[:layers]
    heads, key_dim = jet.number("num_heads"), jet.number("head_dim")
    expand = jet.values.get("expand_v", 1)
    if not isinstance(expand, (int, float)) or not 0 <= expand <= 1000:
        raise ConfigError(f"{keys.place}: expand_v is {expand!r}, not a factor a model could have")
    value_dim = int(key_dim * expand)
    kernel = jet.number("conv_size")
    return StateShape(
        "mamba2", _where(kinds, "jet"), _where(kinds, "attn", "swa"), heads * value_dim, heads, heads, value_dim, key_dim, kernel,
        keys.ssm_dtype, "0.5.5.post1",
    )  # fmt: skip


def _bailing_hybrid(keys: _Keys, layers: int) -> StateShape:
    """Lightning attention, or KDA where the config says so (``BailingHybridConfig``)."""
    group = keys.values.get("layer_group_size", 1)
    if isinstance(group, list):
        linear = tuple(i for i, mark in enumerate(group[:layers]) if mark == 1)
    else:
        each = max(1, keys.number("layer_group_size", 1))
        linear = tuple(i for i in range(layers) if (i + 1) % each)
    full = tuple(i for i in range(layers) if i not in set(linear))
    heads = keys.number("num_attention_heads")
    dim = keys.number("head_dim", keys.number("hidden_size") // max(1, heads))
    if keys.values.get("short_conv_kernel_size") is not None:
        kernel = keys.number("short_conv_kernel_size")
        return StateShape("kda", linear, full, heads * dim, heads, heads, dim, dim, kernel, None, "0.5.19")
    return StateShape("mamba2", linear, full, 0, 0, heads, dim, dim, 1, None, "0.5.9")


def _minicpm_hybrid(keys: _Keys, layers: int) -> StateShape | None:
    kinds = [str(kind).replace("_", "-") for kind in keys.values.get("mixer_types") or ()][:layers]
    lightning = _where(kinds, "lightning", "lightning-attn")
    if not lightning:
        return None
    heads, dim = keys.number("lightning_nkv"), keys.number("lightning_head_dim")
    full = _where(kinds, "minicpm4", "minicpm", "standard", "attention", "attn")
    return StateShape("mamba2", lightning, full, 0, 0, heads, dim, dim, 1, None, "0.5.19")


def _mamba2(keys: _Keys, layers: int) -> StateShape:
    inner = keys.number("expand", 2) * keys.number("hidden_size")
    heads, dim = keys.number("num_heads"), keys.number("head_dim")
    groups, state, kernel = keys.number("n_groups", 1), keys.number("state_size"), keys.number("conv_kernel", 4)
    return StateShape("mamba2", tuple(range(layers)), (), inner, groups, heads, dim, state, kernel, None, "0.5.20")


def _mamba1(keys: _Keys, layers: int) -> StateShape:
    inner = keys.number("intermediate_size", keys.number("expand", 2) * keys.number("hidden_size"))
    state, kernel = keys.number("state_size", 16), keys.number("conv_kernel", 4)
    return StateShape("mamba1", tuple(range(layers)), (), inner, 1, inner, 1, state, kernel, None, "0.5.20")


def _zaya(keys: _Keys, layers: int) -> StateShape:
    """CCA attention keeps convolution inputs and the previous hidden state in each attention layer (``ZayaConfig``)."""
    kinds = keys.values.get("zaya_layers")
    full = _where(kinds, "a") if isinstance(kinds, list) and kinds else tuple(range(0, layers, 2))
    listed = keys.values.get("cca_num_q_heads")
    first = next((heads for heads in listed if heads), None) if isinstance(listed, list) else None
    queries = first if isinstance(first, int) else keys.number("num_attention_heads", 8)
    width = (queries + keys.number("num_key_value_heads", 2)) * keys.number("head_dim", keys.number("kv_channels", 128))
    taps = keys.number("cca_time0", 2) + keys.number("cca_time1", 2) - 2
    hidden = keys.number("hidden_size", 2048)
    return StateShape("cca", full, full, width, 1, 1, 1, 0, taps + 1, None, "0.5.14", hidden)


def _inkling(keys: _Keys, layers: int) -> StateShape:
    """Short convolutions before K, V and both outputs of every layer, beside a KV cache in all (``InklingModelConfig``)."""
    hidden, heads = keys.number("hidden_size"), keys.number("num_attention_heads")
    kv_heads, dim = keys.number("num_key_value_heads", heads), keys.number("head_dim", hidden // max(1, heads))
    local = (keys.number("swa_num_key_value_heads", kv_heads), keys.number("swa_head_dim", dim))
    every, kernel = tuple(range(layers)), keys.number("sconv_kernel_size", 4)
    return StateShape(
        "sconv", every, every, 0, 1, 1, 1, 0, kernel, None, "0.5.16", 2 * max(0, kernel - 1) * hidden, ((kv_heads, dim), local)
    )


_GATED_DELTA = (
    "qwen3_next", "qwen3_5", "qwen3_5_text", "qwen3_5_moe", "qwen3_5_moe_text", "intern_s2_preview", "interns2_mobius",
    "interns2_mobius_text", "qwen4_exp", "qwen4_exp_text",
)  # fmt: skip
_Reader = Callable[["_Keys", int], StateShape | None]
_READERS: tuple[tuple[tuple[str, ...], _Reader], ...] = (
    (_GATED_DELTA, _qwen3_next),
    (("gigachat3_5",), _gigachat),
    (("kimi_linear",), _kimi_linear),
    (("glm5_next", "glm5_next_text"), _glm5_next),
    (("falcon_h1",), _falcon_h1),
    (("nemotron_h", "nemotron_h_puzzle"), _nemotron_h),
    (("granitemoehybrid",), _granite_hybrid),
    (("lfm2", "lfm2_moe"), _lfm2),
    (("jet_nemotron",), _jet_nemotron),
    (("bailing_hybrid",), _bailing_hybrid),
    (("minicpm_sala",), _minicpm_hybrid),
    (("zaya",), _zaya),
    (("inkling_model", "inkling_mm_model"), _inkling),
    (("mamba2",), _mamba2),
    (("mamba", "falcon_mamba"), _mamba1),
)
