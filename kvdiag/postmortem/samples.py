"""Scheduler lines as samples: the columns a review needs, whatever the release called them, and what bound at each line."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas

FULL = 0.90
"""Usage from which a pool counts as full: SGLang's tuning guide calls more than this good use."""

_SOURCES = {
    "running": ("#running-req", "#running_req"),
    "queued": ("#queue-req", "#remaining_req"),
    "tokens": ("#token", "#full token", "#gpu token"),
    "usage": ("token usage", "full token usage", "gpu token usage"),
    "swa_usage": ("swa token usage",),
    "state_usage": ("mamba usage",),
    "throughput": ("gen throughput (token/s)",),
    "new_seq": ("#new-seq", "#seq"),
    "new_tokens": ("#new-token", "#new_token"),
    "cached": ("#cached-token", "#cached_token"),
    "transferring": ("#transfer-req", "#transferring-req", "#inflight-req"),
}
_REPLICA_TAGS = ("DP",)


def samples_of(frame: pandas.DataFrame, cap: int | None) -> pandas.DataFrame:
    """One row a scheduler line, with plain float columns (NaN where the line has no such field).

    `second` counts from the first line and never runs backwards by more than the log does; `cap` is max_running_requests
    of one replica. Health probes (prefill of a single token) are marked in ``probe``.
    """
    import numpy as np
    import pandas as pd

    rows = pd.DataFrame({name: _first_of(frame, columns) for name, columns in _SOURCES.items()}, index=frame.index)
    rows["decode"] = (frame["family"] == "decode-batch").to_numpy(dtype=bool)
    rows["time"] = frame["time"].astype("datetime64[ms]")
    rows["second"] = (rows["time"] - rows["time"].min()).dt.total_seconds()
    rows["replica"] = _replica(frame)
    admitted = rows["new_seq"].where(~rows["decode"], 0.0).fillna(0.0)
    rows["busy"] = rows["running"].fillna(0.0) + admitted
    rows["probe"] = ~rows["decode"] & (rows["new_tokens"] <= 1) & (rows["running"].fillna(0.0) == 0)
    waits = rows["queued"].fillna(0.0) > 0
    capped = pd.Series(False, index=rows.index) if cap is None else rows["busy"] >= cap
    rows["bound"] = np.select(
        [
            ~waits & (rows["transferring"].fillna(0.0) > 0) & (rows["busy"] == 0),
            ~waits,
            capped,
            rows["state_usage"] >= FULL,
            rows["swa_usage"] >= FULL,
            rows["usage"] >= FULL,
            rows["usage"].isna(),
        ],
        ["transfer", "arrivals", "max_running_requests", "state_slots", "swa_pool", "kv_pool", "unknown"],
        "admission_reserve",
    )
    return rows


def _first_of(frame: pandas.DataFrame, columns: tuple[str, ...]) -> pandas.Series[float]:
    import pandas as pd

    found = pd.Series(float("nan"), index=frame.index, dtype="float64")
    for column in columns:
        if column in frame.columns:
            found = found.fillna(pd.to_numeric(frame[column], errors="coerce").astype("float64"))
    return found


def _replica(frame: pandas.DataFrame) -> pandas.Series[int]:
    """The data-parallel rank of a line; every rank of a tensor-parallel group prints for the same replica."""
    import pandas as pd

    for tag in _REPLICA_TAGS:
        if tag in frame.columns:
            return frame[tag].fillna(0).astype("int64")
    return pd.Series(0, index=frame.index)
