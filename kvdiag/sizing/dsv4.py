"""DeepSeek-V4: full, window and compressed pools priced together (``DSV4PoolConfigurator``, 0.5.12 and newer)."""

from __future__ import annotations

from kvdiag.errors import CannotSizeError
from kvdiag.frozen import frozen
from kvdiag.models.sparse import Compressed
from kvdiag.releases import Release
from kvdiag.sizing.history import since
from kvdiag.sizing.swa import validate_window_pool

DEFAULT_RATIO = 0.1
LATENT_SCALES = 8
PAGE_STRIDE = 576
STATE_BYTES = 4
_RINGS = {4: (8, 16), 128: (128, 256)}


@frozen
class Dsv4Pools:
    """Tokens of the four pools and rows of the two state pools."""

    full: int
    window: int
    c4: int
    c128: int
    c4_state: int
    c128_state: int


@frozen
class Dsv4Demand:
    """The shape on one pipeline stage, and what of the arguments it depends on; `requests` is per attention replica."""

    shape: Compressed
    layers: range
    ratio: float
    page: int
    speculative: bool
    requests: int | None
    context: int
    extra_slots: int

    def ratios(self, release: Release) -> tuple[int, ...]:
        """Compression ratios of the stage's layers; 0.5.12 took the whole list, with the predict layer's entry."""
        given = self.shape.ratios
        chosen = given[self.layers.start : self.layers.stop] if since(release, "0.5.13") else given
        if any(ratio not in (0, 4, 128) for ratio in chosen):
            raise CannotSizeError("cannot size this architecture: compression ratios other than 4 and 128 have no rule")
        return chosen

    def ring(self, ratio: int) -> int:
        """``get_compress_state_ring_size``: rows of state a request keeps."""
        return _RINGS[ratio][1 if self.speculative else 0]


def bytes_per_full_token(demand: Dsv4Demand, release: Release) -> float:
    """``bytes_per_full_token``: what one token of the full pool costs in all pools, a float; drafts scale it by (L + 1) / L.

    0.5.12 to 0.5.20 price a window page by the model's window and unpadded rows, 0.5.21 and newer by the page and its
    padded stride. From 0.5.15 the ratio-128 state is a fixed amount instead.
    """
    ratios = demand.ratios(release)
    every, fours, many = len(ratios), ratios.count(4), ratios.count(128)
    padded = since(release, "0.5.21")
    price = _padded(demand, every, fours, many) if padded else _unpadded(demand, every, fours, many, release)
    return price * ((len(ratios) + 1) / len(ratios)) if demand.speculative else price


def _unpadded(demand: Dsv4Demand, every: int, fours: int, many: int, release: Release) -> float:
    shape, ratio = demand.shape, demand.ratio
    latent = shape.nope_dim + shape.rope_dim * 2 + LATENT_SCALES
    index = shape.index_dim + shape.index_dim // 128 * 4
    head = shape.nope_dim + shape.rope_dim
    window = shape.window or 1
    c4_state = demand.ring(4) / window
    c128_state = 0 if since(release, "0.5.15") else ratio * (demand.ring(128) / window)
    return (
        ratio * latent * every
        + 1 / 4 * latent * fours
        + 1 / 128 * latent * many
        + 1 / 4 * index * fours
        + ratio * c4_state * (2 * 2 * head * STATE_BYTES) * fours
        + c128_state * (2 * head * STATE_BYTES) * many
        + ratio * c4_state * (2 * 2 * shape.index_dim * STATE_BYTES) * fours
    )


def _padded(demand: Dsv4Demand, every: int, fours: int, many: int) -> float:
    shape, page = demand.shape, demand.page
    index = shape.index_dim + shape.index_dim // 128 * 4
    head = shape.nope_dim + shape.rope_dim
    states = 2 * 2 * head * STATE_BYTES + 2 * 2 * shape.index_dim * STATE_BYTES
    window = _row(page) * every + demand.ring(4) / page * states * fours
    compressed = 0.0
    if fours:
        compressed += (1 / 4 * _row(page // 4) + 1 / 4 * index) * fours
    if many:
        compressed += 1 / 128 * _row(page // 128) * many
    return demand.ratio * window + compressed


def _row(page: int) -> float:
    """``KVLayout.V4.page_bytes(page) / page``: 584 bytes a token, pages padded to a stride of 576."""
    raw = page * (PAGE_STRIDE + LATENT_SCALES)
    return (-(-raw // PAGE_STRIDE) * PAGE_STRIDE) / page


def fixed_state_bytes(demand: Dsv4Demand, requests: int, release: Release) -> int:
    """Bytes of the ratio-128 state of `requests` (``_get_c128_state_fixed_bytes``, 0.5.15 and newer)."""
    many = demand.ratios(release).count(128)
    if not many or not since(release, "0.5.15"):
        return 0
    ring = demand.ring(128)
    rows = (requests + 1 + demand.extra_slots) * ring + ring + 1
    rows = -(-rows // 128) * 128
    return rows * 2 * (demand.shape.nope_dim + demand.shape.rope_dim) * STATE_BYTES * many


def profiled_tokens(budget: int, price: float, demand: Dsv4Demand, release: Release) -> int:
    """Full tokens that `budget` bytes hold, before pages and caps."""
    requests = demand.requests
    if requests is None:
        tokens = int(budget / price)
        requests = min(max(min(int(tokens / demand.context * 512), 4096), 2048), tokens // 2)
    return int(max(budget - fixed_state_bytes(demand, requests, release), 0) / price)


def pools(tokens: int, requests: int | None, demand: Dsv4Demand, release: Release) -> Dsv4Pools:
    """``_compute_dsv4_sizes`` and, from 0.5.15, ``finalize_with_max_running_requests`` with the final `requests`."""
    page = demand.page
    full = tokens // page * page
    window = int(full * demand.ratio) // page * page
    if since(release, "0.5.20"):
        validate_window_pool(window, demand.shape.window, page)
    unit = page if since(release, "0.5.21") else demand.shape.window or 1
    if since(release, "0.5.15"):
        many = ((requests or 0) + 1 + demand.extra_slots) * demand.ring(128)
    else:
        many = window // unit * demand.ring(128)
    return Dsv4Pools(full, window, full // 4, full // 128, window // unit * demand.ring(4), many)
