"""What the catalogue does not hold of a model, said beside the figures of a sizing."""

from __future__ import annotations

from kvdiag.models import Geometry
from kvdiag.models.catalogue import DTYPE
from kvdiag.releases import Release
from kvdiag.sizing.arguments import ServerArguments
from kvdiag.sizing.resolve import context_untold
from kvdiag.sizing.size import Sizing
from kvdiag.sizing.speculative import charges_drafts, keeps_drafts

NO_DTYPE = "the catalogue does not hold this model's dtype: bfloat16 is taken, and float16 has as many bytes"
NO_CONTEXT = (
    "the catalogue does not hold this model's context length, which max_running_requests may follow: give --context-length or "
    "--config"
)
NO_DRAFT = (
    "no draft model is given (--draft-config), and this class holds none in its own checkpoint: what the draft's layers take of "
    "each token is not in these figures"
)
DRAFT_BESIDE = (
    "SGLang {} makes the draft's pool beside this one, as many tokens at the draft's own bytes: it comes out of what "
    "mem_fraction_static leaves free, and is not in these figures"
)


def untold_notes(geometry: Geometry, arguments: ServerArguments) -> tuple[str, ...]:
    """Notes where a figure stands on a dtype or context length that the catalogue's entry lacks."""
    dtype = DTYPE in geometry.untold and arguments.kv_cache_dtype == "auto" and arguments.dtype == "auto"
    return (NO_DTYPE,) * dtype + (NO_CONTEXT,) * context_untold(geometry, arguments)


def draft_notes(geometry: Geometry, arguments: ServerArguments, release: Release, draft: Geometry | None) -> tuple[str, ...]:
    """What the figures leave out of a draft model: all of its cache, or that it comes on top in releases before 0.5.14."""
    if arguments.speculative_algorithm in (None, "NGRAM"):
        return ()
    if not charges_drafts(arguments, release):
        return (DRAFT_BESIDE.format(release),)
    return () if draft is not None or keeps_drafts(geometry, arguments, release) else (NO_DRAFT,)


def open_kv_dtype(match: str, found: Sizing, declared: Sizing) -> tuple[str, ...]:
    """The note where a quantised checkpoint is known by its name only: `declared` is the sizing if its files ask for FP8."""
    if declared.kv_cache_dtype == found.kv_cache_dtype:
        return ()
    tokens = declared.max_total_num_tokens
    capacity = "" if tokens is None else f" and max_total_num_tokens {tokens:,}"
    return (
        f"{match}: if the checkpoint declares an FP8 cache (ModelOpt's kv_cache_quant_algo), kv_cache_dtype is "
        f"{declared.kv_cache_dtype}, bytes_per_token {declared.bytes_per_token:,}{capacity}; give --config or --kv-cache-dtype",
    )
