"""DeepSeek-V4: full, window and compressed pools priced together (``DSV4PoolConfigurator``, 0.5.12 and newer)."""

from __future__ import annotations

from kvdiag.errors import CannotSizeError
from kvdiag.frozen import frozen
from kvdiag.models.sparse import Compressed
from kvdiag.releases import Release
from kvdiag.sizing.history import since
from kvdiag.sizing.swa import too_wide, validate_window_pool

DEFAULT_RATIO = 0.1
LATENT_SCALES = 8
STATE_BYTES = 4
INDEX_PAGE = 64
LOW_RATIOS = (1, 2)
_RINGS = {4: (8, 16), 128: (128, 256)}


@frozen
class Layout:
    """Rows of a paged pool (``KVLayout``): bytes of a token, and what a page is padded to (None: not at all)."""

    row: int
    stride: int | None

    def per_token(self, page: int) -> float:
        """Bytes of a token with its share of the page's padding."""
        if self.stride is None:
            return self.row
        return (-(-page * self.row // self.stride) * self.stride) / page


FLASH = Layout(584, 576)
MEGA = Layout(528, 512)
MEGA_FP4 = Layout(288, 256)


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
    """The shape on one pipeline stage, and what of the arguments it depends on; `requests` is per attention replica.

    `window_tokens` is the window pool where requests decide it (cap mode), None where the ratio does. `layout` is that of
    the window pool, `low_layout` that of ratios 1 and 2. `request_windows` is the bytes of the requests' own windows where
    these are replayed. `draft_tokens` is zero without speculation.
    """

    shape: Compressed
    layers: range
    ratio: float
    page: int
    draft_tokens: int
    requests: int | None
    context: int
    extra_slots: int
    window_tokens: int | None = None
    layout: Layout = FLASH
    low_layout: Layout = FLASH
    request_windows: int = 0
    state_size: int = STATE_BYTES
    online: bool = False

    @property
    def speculative(self) -> bool:
        """Whether drafts are verified."""
        return self.draft_tokens > 0

    def ratios(self, release: Release) -> tuple[int, ...]:
        """Compression ratios of the stage's layers; 0.5.12 took the whole list, with the predict layer's entry."""
        given = self.shape.ratios
        chosen = given[self.layers.start : self.layers.stop] if since(release, "0.5.13") else given
        known = (0, 4, 128, *LOW_RATIOS) if since(release, "0.5.21") else (0, 4, 128)
        if any(ratio not in known for ratio in chosen):
            words = ", ".join(str(ratio) for ratio in known[1:])
            raise CannotSizeError(f"cannot size this architecture: SGLang {release} has no compression ratios but {words}")
        return chosen

    def owners(self, ratio: int, release: Release) -> int:
        """Layers of the stage that own compressed storage of that ratio (``collect_sources_by_ratio``)."""
        if ratio not in LOW_RATIOS:
            return self.ratios(release).count(ratio)
        given = self.shape.ratios
        return sum(layer in self.layers and given[layer] == ratio for layer in self.shape.sources if layer < len(given))

    def ring(self, ratio: int) -> int:
        """``get_compress_state_ring_size``: rows of state a request keeps."""
        if ratio == 2:
            return 1 << (self.draft_tokens + 1).bit_length() if self.speculative else 2
        if ratio == 128 and self.online:
            return 1
        return _RINGS[ratio][1 if self.speculative else 0]

    @property
    def head(self) -> int:
        """Width of the whole latent."""
        return self.shape.nope_dim + self.shape.rope_dim


def bytes_per_full_token(demand: Dsv4Demand, release: Release) -> float:
    """``bytes_per_full_token``: what one token of the full pool costs in all pools, a float; drafts scale it by (L + 1) / L.

    0.5.12 to 0.5.20 price a window page by the model's window and unpadded rows, 0.5.21 and newer by the page and its
    padded stride. From 0.5.15 the ratio-128 state is a fixed amount instead; in cap mode the window pool is, too.
    """
    if not since(release, "0.5.21"):
        price = _unpadded(demand, release)
    else:
        share = demand.ratio if demand.window_tokens is None else 0
        price = share * _window_token(demand, release) + _compressed_token(demand, release)
    return price * _inflation(demand, release)


def _inflation(demand: Dsv4Demand, release: Release) -> float:
    layers = len(demand.ratios(release))
    return (layers + 1) / layers if demand.speculative else 1.0


def _unpadded(demand: Dsv4Demand, release: Release) -> float:
    shape, ratio, ratios = demand.shape, demand.ratio, demand.ratios(release)
    every, fours, many = len(ratios), ratios.count(4), ratios.count(128)
    latent = shape.nope_dim + shape.rope_dim * 2 + LATENT_SCALES
    index = _index(shape)
    window = shape.window or 1
    c4_state = demand.ring(4) / window
    c128_state = 0 if since(release, "0.5.15") else ratio * (demand.ring(128) / window)
    return (
        ratio * latent * every
        + 1 / 4 * latent * fours
        + 1 / 128 * latent * many
        + 1 / 4 * index * fours
        + ratio * c4_state * (2 * 2 * demand.head * demand.state_size) * fours
        + c128_state * ((3 if demand.online else 2) * demand.head * demand.state_size) * many
        + ratio * c4_state * (2 * 2 * shape.index_dim * demand.state_size) * fours
    )


def _index(shape: Compressed) -> int:
    return shape.index_dim + shape.index_dim // 128 * 4


def _low_index(shape: Compressed) -> int:
    """Index bytes of ratios 1 and 2, which are FP4 whatever that of ratio 4 is."""
    return shape.index_dim // 2 + shape.index_dim // 32


def _window_token(demand: Dsv4Demand, release: Release) -> float:
    """``bytes_per_swa_token`` (0.5.21 and newer): a window slot on all layers, with the ratio-4 state that follows it."""
    fours = demand.owners(4, release)
    states = 2 * 2 * demand.head * demand.state_size + 2 * 2 * demand.shape.index_dim * demand.state_size
    ring = demand.ring(4) / demand.page if fours else 0.0
    return demand.layout.per_token(demand.page) * len(demand.ratios(release)) + ring * states * fours


def _compressed_token(demand: Dsv4Demand, release: Release) -> float:
    total = 0.0
    for ratio in (4, 128, *LOW_RATIOS):
        layers = demand.owners(ratio, release)
        if layers:
            total += _compressed_layer(demand, ratio, release) * layers
    return total


def _compressed_layer(demand: Dsv4Demand, ratio: int, release: Release) -> float:
    if ratio in LOW_RATIOS:
        padded = since(release, "0.5.23")
        row = demand.low_layout.per_token(demand.page // ratio) if padded else demand.layout.row
        return (row + _low_index(demand.shape)) / ratio
    row = demand.layout.per_token(demand.page // ratio)
    return 1 / 4 * row + 1 / 4 * _index(demand.shape) if ratio == 4 else 1 / 128 * row


def fixed_bytes(demand: Dsv4Demand, requests: int, release: Release) -> float:
    """Bytes that do not grow with tokens: states by request (0.5.15 and newer), and the window pool in cap mode."""
    states = _many_state(demand, requests, release) + _pair_state(demand, requests, release)
    if demand.window_tokens is None:
        return states
    windows = demand.window_tokens * (_window_token(demand, release) * _inflation(demand, release))
    return states + (demand.request_windows + windows)


def _slots(demand: Dsv4Demand, requests: int) -> int:
    return requests + 1 + demand.extra_slots


def _many_state(demand: Dsv4Demand, requests: int, release: Release) -> int:
    """``_get_c128_state_fixed_bytes``; online compression keeps three values an index, and a bank for every draft."""
    layers, slots = demand.owners(128, release), _slots(demand, requests)
    if not layers or not since(release, "0.5.15"):
        return 0
    ring = demand.ring(128)
    if demand.online:
        rows, width = (slots + ring + 1) * (1 + demand.draft_tokens), 3
    else:
        rows, width = -(-(slots * ring + ring + 1) // 128) * 128, 2
    return rows * width * demand.head * demand.state_size * layers


def _pair_state(demand: Dsv4Demand, requests: int, release: Release) -> int:
    """``_get_c2_state_fixed_bytes``: pairs not yet complete, in float32."""
    layers = demand.owners(2, release)
    if not layers:
        return 0
    ring = demand.ring(2)
    rows = -(-(_slots(demand, requests) * ring + ring + 1) // 2) * 2
    return rows * 2 * demand.head * 4 * layers


def _reserved_pages(demand: Dsv4Demand, tokens: int, release: Release) -> float:
    """``_get_low_ratio_kv_padding_bytes`` (0.5.23 and newer): the page each low-ratio pool and its index keep in reserve."""
    if demand.layout.stride is None:
        return 0.0
    total = 0.0
    for ratio in LOW_RATIOS:
        layers = demand.owners(ratio, release)
        size = (tokens + demand.page) // ratio
        slots = -(-(size + INDEX_PAGE) // INDEX_PAGE) * INDEX_PAGE
        main = demand.page * demand.low_layout.per_token(demand.page // ratio)
        total += (main + (slots - tokens // ratio) * _low_index(demand.shape)) * layers
    return total


def profiled_tokens(budget: int, price: float, demand: Dsv4Demand, release: Release) -> int:
    """Full tokens that `budget` bytes hold, before caps; from 0.5.23 whole pages, with those kept in reserve."""
    requests = demand.requests
    if requests is None:
        tokens = int(budget / price)
        requests = min(max(min(int(tokens / demand.context * 512), 4096), 2048), tokens // 2)
    rest = max(budget - fixed_bytes(demand, requests, release), 0)
    tokens = int(rest / price)
    if since(release, "0.5.23"):
        tokens = tokens // demand.page * demand.page
        while tokens > 0 and tokens * price + _reserved_pages(demand, tokens, release) > rest:
            tokens -= demand.page
    if tokens <= 0 and demand.window_tokens is not None:
        raise CannotSizeError(too_wide(demand.window_tokens))
    return tokens


def pools(tokens: int, requests: int | None, demand: Dsv4Demand, release: Release) -> Dsv4Pools:
    """``_compute_dsv4_sizes`` and, from 0.5.15, ``finalize_with_max_running_requests`` with the final `requests`."""
    page = demand.page
    full = tokens // page * page
    window = demand.window_tokens
    if window is None:
        window = int(full * demand.ratio) // page * page
        if since(release, "0.5.20"):
            validate_window_pool(window, demand.shape.window, page)
    unit = page if since(release, "0.5.21") else demand.shape.window or 1
    many = 0
    if not since(release, "0.5.15"):
        many = window // unit * demand.ring(128)
    elif demand.owners(128, release) or not since(release, "0.5.21"):
        many = _slots(demand, requests or 0) * demand.ring(128)
    fours = window // unit * demand.ring(4) if demand.owners(4, release) or not since(release, "0.5.21") else 0
    return Dsv4Pools(full, window, full // 4, full // 128, fours, many)
