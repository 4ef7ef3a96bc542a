"""Speculative decoding: the arguments it fills in, and what its draft adds to the cell or to the tokens."""

from __future__ import annotations

from kvdiag.frozen import frozen
from kvdiag.models import Geometry
from kvdiag.releases import Release
from kvdiag.sizing.arguments import ServerArguments
from kvdiag.sizing.history import HYBRID_SWA, listed, since

_THREE_STEPS: tuple[tuple[str, str], ...] = (
    ("DeepseekV2ForCausalLM", "0.4.7"), ("DeepseekV3ForCausalLM", "0.4.7"), ("GptOssForCausalLM", "0.5.1"),
    ("DeepseekV32ForCausalLM", "0.5.3rc2"), ("Glm4MoeForCausalLM", "0.5.3rc2"), ("BailingMoeForCausalLM", "0.5.3rc2"),
    ("BailingMoeV2ForCausalLM", "0.5.3rc2"), ("MistralLarge3ForCausalLM", "0.5.6.post1"),
    ("PixtralForConditionalGeneration", "0.5.6.post1"), ("Glm4MoeLiteForCausalLM", "0.5.8"),
)  # fmt: skip
_FIVE_STEPS = ("LlamaForCausalLM", "Grok1ForCausalLM", "Grok1VForCausalLM")
_TREE = ("EAGLE", "EAGLE3", "STANDALONE")
_BLOCKS = ("DFLASH", "DSPARK")
_BUNDLED = (
    "DeepseekV32ForCausalLM", "DeepseekV3ForCausalLM", "DeepseekV4ForCausalLM", "Glm4MoeForCausalLM", "Glm4MoeLiteForCausalLM",
    "GlmMoeDsaForCausalLM", "BailingMoeForCausalLM", "BailingMoeV2ForCausalLM", "BailingMoeV2_5ForCausalLM",
    "MistralLarge3ForCausalLM", "PixtralForConditionalGeneration", "HYV3ForCausalLM",
)  # fmt: skip
"""Classes whose draft is read from the target's own checkpoint where no other is named (``handle_speculative_decoding``)."""
_ONE_LAYER = dict.fromkeys(
    ("DeepseekV4ForCausalLM", "Qwen3NextForCausalLM", "Qwen3MoeForCausalLM", "ExaoneMoEForCausalLM", "NemotronHForCausalLM",
     "NemotronHPuzzleForCausalLM", "HYV3ForCausalLM"), "0.5.14",
) | dict.fromkeys(
    ("MiMoV2ForCausalLM", "MiMoV2FlashForCausalLM", "Qwen3_5ForConditionalGeneration", "Qwen3_5MoeForConditionalGeneration",
     "Qwen3_5ForCausalLM", "Qwen3_5MoeForCausalLM", "InternS2PreviewForConditionalGeneration",
     "InternS2MobiusForConditionalGeneration"), "0.5.18",
) | dict.fromkeys(
    ("Glm5NextForConditionalGeneration", "Qwen4ExpForConditionalGeneration", "NemotronH_Omni_Reasoning_V3", "HYV4ForCausalLM"),
    "0.5.20",
) | {"ExaoneMoeForCausalLM": "0.5.22"}  # fmt: skip
"""Classes that, read as a draft, have one layer whatever their config says, and since when (``_config_draft_model``)."""
_ONE_WINDOW = ("MiMoV2ForCausalLM", "MiMoV2FlashForCausalLM", "Step3p5ForCausalLM", "Step3p7ForConditionalGeneration")


@frozen
class Draft:
    """The draft's layers with a KV cache, how many of them are sliding-window ones, and (DFLASH) their own bytes a token."""

    layers: int
    window_layers: int = 0
    cell_size: int | None = None


@frozen
class Speculation:
    """Resolved speculation; `algorithm` is ``EAGLE``, ``EAGLE3``, ``STANDALONE``, ``NGRAM``, ``DFLASH`` or ``DSPARK``."""

    algorithm: str
    num_steps: int
    eagle_topk: int
    num_draft_tokens: int
    draft: Draft | None

    @property
    def has_tree(self) -> bool:
        """``is_eagle() or is_standalone()``: a draft model that proposes trees."""
        return self.algorithm in _TREE

    @property
    def is_dflash(self) -> bool:
        """``is_dflash_family()``."""
        return self.algorithm in _BLOCKS


def speculation(
    geometry: Geometry, arguments: ServerArguments, release: Release, draft: Geometry | None, draft_element: int = 2
) -> Speculation | None:
    """The arguments after ``_handle_speculative_decoding``; `draft` is the draft checkpoint's geometry where one is given.

    NEXTN is EAGLE with the checkpoint's own head; with topk 1 the draft tokens are the steps and one (0.4.5.post3 and newer),
    and pages of several tokens mean topk 1 (0.4.4.post4 to 0.4.8.post1). `draft_element` is bytes of a DFLASH draft's element.
    """
    name = arguments.speculative_algorithm
    if name is None:
        return None
    name = {"NEXTN": "EAGLE", "FROZEN_KV_MTP": "EAGLE"}.get(name, name)
    steps, topk, tokens = (
        arguments.speculative_num_steps,
        arguments.speculative_eagle_topk,
        arguments.speculative_num_draft_tokens,
    )
    if name in _TREE and steps is None:
        steps, topk, tokens = _automatic(name, geometry, release)
    steps, topk = steps or 0, topk if topk is not None else 1
    if _paged_to_a_chain(arguments, release):
        topk = 1
    if name in _TREE and topk == 1 and since(release, "0.4.5.post3"):
        tokens = steps + 1
    if name == "NGRAM" and tokens is None:
        tokens = 12
    return Speculation(name, steps, topk, tokens or 0, _draft(name, geometry, arguments, release, draft, draft_element))


def _paged_to_a_chain(arguments: ServerArguments, release: Release) -> bool:
    """0.4.4.post4 to 0.4.8.post1: with pages, given or a backend's own, drafts are a chain whatever was asked."""
    pages = (arguments.page_size or 1) > 1 or arguments.attention_backend in ("flashmla", "cutlass_mla")
    return pages and since(release, "0.4.4.post4") and not since(release, "0.4.9")


def _automatic(name: str, geometry: Geometry, release: Release) -> tuple[int, int, int]:
    """``auto_choose_speculative_params``: 5, 4, 8, or 3, 1, 4 for a growing list of classes (from 0.5.9 by default)."""
    if name == "STANDALONE" and since(release, "0.5.6.post1"):
        return 3, 1, 4
    known = dict(_THREE_STEPS).get(geometry.architecture)
    if known is not None and since(release, known):
        return 3, 1, 4
    if since(release, "0.5.9") and geometry.architecture not in _FIVE_STEPS:
        return 3, 1, 4
    return 5, 4, 8


def needs_draft_config(arguments: ServerArguments, release: Release) -> bool:
    """Whether a token's bytes depend on a draft model other than the target's own layers."""
    path, name = arguments.speculative_draft_model_path, arguments.speculative_algorithm
    if name in (None, "NGRAM") or (path is None and name != "DFLASH") or (path is not None and path == arguments.model_path):
        return False
    return charges_drafts(arguments, release)


def charges_drafts(arguments: ServerArguments, release: Release) -> bool:
    """Whether the draft's cache is part of a token's price (``DefaultPoolConfigurator.__init__``)."""
    return since(release, "0.5.11" if arguments.speculative_algorithm in _BLOCKS else "0.5.14")


def keeps_drafts(geometry: Geometry, arguments: ServerArguments, release: Release) -> bool:
    """Whether the target's own config says what its drafts take."""
    return _tree_draft(geometry, arguments, release, None) is not None


def _draft(
    name: str, geometry: Geometry, arguments: ServerArguments, release: Release, draft: Geometry | None, element: int
) -> Draft | None:
    if name in _TREE:
        return _tree_draft(geometry, arguments, release, draft)
    if name in _BLOCKS and draft is not None:
        ranks = arguments.attention_tp_size if since(release, "0.5.22") else arguments.tp_size
        width = max(1, draft.num_key_value_heads // ranks) * (draft.head_dim + draft.v_head_dim)
        return Draft(draft.num_hidden_layers, 0, width * draft.num_hidden_layers * element)
    return None


def _tree_draft(geometry: Geometry, arguments: ServerArguments, release: Release, draft: Geometry | None) -> Draft | None:
    """``_resolve_eagle_aux_hidden_state``: the predict layers of the draft's config, else all its layers.

    Without a draft path, classes that keep their drafts in their own checkpoint are read as one; of others nothing is charged
    up to 0.5.19, later the predict layers that the target's config states.
    """
    path, own = arguments.speculative_draft_model_path, draft or geometry
    itself = path == arguments.model_path if path is not None else geometry.architecture in _BUNDLED
    if draft is not None or itself:
        first = _ONE_LAYER.get(own.architecture)
        layers = 1 if first is not None and since(release, first) else own.num_nextn_predict_layers
        if layers is None:
            layers = max(own.num_hidden_layers, own.num_attention_layers)
        return Draft(layers, 1 if own.architecture in _ONE_WINDOW else _window_layers(own, release))
    if path is not None or not since(release, "0.5.20") or geometry.num_nextn_predict_layers is None:
        return None
    return Draft(geometry.num_nextn_predict_layers, _window_layers(geometry, release))


def _window_layers(own: Geometry, release: Release) -> int:
    hybrid = own.windows is not None and (own.windows.opted_in or listed(HYBRID_SWA, own.architecture, release))
    return len(own.windows.window_layers) if own.windows is not None and hybrid else 0


def charged_dsa_cell(cell: int, index: int, layers: int, draft_index: int, drafts: int, dcp_size: int) -> int:
    """A sparse-index target's cell with its draft (0.5.18 and newer): the latent by layers, and the draft's own full index."""
    return cell + int((cell - index) * drafts / layers) * dcp_size + draft_index


def charged_cell(cell: int, layers: int, spec: Speculation | None, release: Release, dcp_size: int = 1) -> int:
    """The target's cell with the draft's share (``DefaultPoolConfigurator.__init__``).

    Before 0.5.14 (DFLASH: 0.5.11) the draft is not in the cell. 0.5.14 to 0.5.21: ``int(cell x (1 + draft / layers))``;
    from 0.5.22 ``cell + int(cell x draft / layers)``. DFLASH scales by layers, rounded up, and from 0.5.18 adds its own bytes.
    """
    if spec is None or spec.draft is None or spec.draft.layers <= 0 or layers <= 0:
        return cell
    drafts = spec.draft.layers
    if spec.has_tree and since(release, "0.5.22"):
        return cell + int(cell * drafts / layers)
    if spec.has_tree and since(release, "0.5.14"):
        return int(cell * (1 + drafts / layers))
    if spec.is_dflash and since(release, "0.5.11"):
        if spec.draft.cell_size is not None and since(release, "0.5.18"):
            return cell + spec.draft.cell_size * dcp_size
        total = layers + drafts * (dcp_size if since(release, "0.5.17") else 1)
        return (cell * total + layers - 1) // layers
    return cell


def grown_tokens(tokens: int, requests: int, spec: Speculation | None, release: Release) -> int:
    """The target's tokens with head-room for drafts (0.4.4 to 0.5.6: ``draft_runner_cache_size`` in ``init_memory_pool``).

    `requests` is the size of the request pool before any minimum with other limits.
    """
    if spec is None or not spec.has_tree or not since(release, "0.4.4") or since(release, "0.5.7"):
        return tokens
    return tokens + requests * spec.num_steps * spec.eagle_topk + requests * spec.num_draft_tokens + 100
