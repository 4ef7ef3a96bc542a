"""Speculative decoding: the arguments it fills in, and what its draft adds to the cell or to the tokens."""

from __future__ import annotations

from kvdiag.frozen import frozen
from kvdiag.models import Geometry
from kvdiag.releases import Release
from kvdiag.sizing.arguments import ServerArguments
from kvdiag.sizing.history import since

_THREE_STEPS: tuple[tuple[str, str], ...] = (
    ("DeepseekV2ForCausalLM", "0.4.7"), ("DeepseekV3ForCausalLM", "0.4.7"), ("GptOssForCausalLM", "0.5.1"),
    ("DeepseekV32ForCausalLM", "0.5.3rc2"), ("Glm4MoeForCausalLM", "0.5.3rc2"), ("BailingMoeForCausalLM", "0.5.3rc2"),
    ("BailingMoeV2ForCausalLM", "0.5.3rc2"), ("MistralLarge3ForCausalLM", "0.5.6.post1"),
    ("PixtralForConditionalGeneration", "0.5.6.post1"), ("Glm4MoeLiteForCausalLM", "0.5.8"),
)  # fmt: skip
_FIVE_STEPS = ("LlamaForCausalLM", "Grok1ForCausalLM", "Grok1VForCausalLM")
_TREE = ("EAGLE", "EAGLE3", "STANDALONE")


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
        return self.algorithm in ("DFLASH", "DSPARK")


def speculation(geometry: Geometry, arguments: ServerArguments, release: Release, draft: Geometry | None) -> Speculation | None:
    """The arguments after ``_handle_speculative_decoding``; `draft` is the draft checkpoint's geometry where one is given.

    NEXTN is EAGLE with the checkpoint's own head; with topk 1 the draft tokens are the steps and one.
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
    if name in _TREE and topk == 1 and since(release, "0.4.4.post4"):
        tokens = steps + 1
    if name == "NGRAM" and tokens is None:
        tokens = 12
    return Speculation(name, steps, topk, tokens or 0, _draft(name, geometry, arguments, draft))


def _paged_to_a_chain(arguments: ServerArguments, release: Release) -> bool:
    """0.4.5.post3 to 0.4.8.post1: with pages, given or a backend's own, drafts are a chain whatever was asked."""
    pages = (arguments.page_size or 1) > 1 or arguments.attention_backend in ("flashmla", "cutlass_mla")
    return pages and since(release, "0.4.5.post3") and not since(release, "0.4.9")


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


def _draft(name: str, geometry: Geometry, arguments: ServerArguments, draft: Geometry | None) -> Draft | None:
    """``_resolve_eagle_aux_hidden_state``: the predict layers of the draft's config, else all its layers.

    Without a draft path the target's own predict layers, which some configs do not state, and then nothing is charged.
    """
    if name in _TREE:
        own = draft if draft is not None else geometry
        layers = own.num_nextn_predict_layers
        if layers is None and draft is not None:
            layers = draft.num_attention_layers
        if layers is None:
            return None
        windows = own.windows
        return Draft(layers, len(windows.window_layers) if windows and draft is None else 0)
    if name in ("DFLASH", "DSPARK") and draft is not None:
        heads = max(1, draft.num_key_value_heads // arguments.attention_tp_size)
        return Draft(draft.num_hidden_layers, 0, heads * (draft.head_dim + draft.v_head_dim) * draft.num_hidden_layers)
    return None


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
    if spec is None or not since(release, "0.4.4") or since(release, "0.5.7"):
        return tokens
    if not spec.has_tree and since(release, "0.5.3rc2"):
        return tokens
    return tokens + requests * spec.num_steps * spec.eagle_topk + requests * spec.num_draft_tokens + 100
