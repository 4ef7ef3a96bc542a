"""How long 100,000 sizings through the Python interface take in one process: a sweep over models, fractions and caches.

Usage: python bench/size_calls.py [CALLS]
"""

from __future__ import annotations

import itertools
import sys
import time
from typing import Any

import kvdiag
from kvdiag.models.catalogue import catalogue_match

MODELS = ("Qwen3-32B", "DeepSeek-V3", "gpt-oss-120b", "Qwen3-Next-80B-A3B-Instruct", "Llama-3.1-70B")
RELEASES = ("0.5.6", "0.5.9", "0.5.16", "0.5.22")


def jobs() -> itertools.cycle[tuple[dict[str, Any], str, dict[str, Any]]]:
    """Configs, releases and arguments of a capacity sweep, over and over; the fraction is stepped by the caller."""
    found = [catalogue_match(name) for name in MODELS]
    configs = [match.config for match in found if match is not None]
    args = [{"tp_size": tp, "kv_cache_dtype": dtype, "page_size": 64} for tp in (4, 8) for dtype in ("auto", "fp8_e4m3")]
    return itertools.cycle(list(itertools.product(configs, RELEASES, args)))


def run(calls: int) -> float:
    """Seconds for so many sizings, each under a fraction and a reading of its own."""
    work = jobs()
    begin = time.perf_counter()
    for index in range(calls):
        config, release, args = next(work)
        kvdiag.size(
            config=config,
            release=release,
            args={**args, "mem_fraction_static": 0.8 + index % 150 / 1000},
            available_gpu_memory=60 + index % 977 / 100,
            pre_model_load_memory=78.5,
            gpu="H100",
        )
    return time.perf_counter() - begin


def main() -> None:
    """Prints the time and the rate."""
    calls = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    took = run(calls)
    sys.stdout.write(f"{calls:,} sizings in {took:.1f} s: {calls / took:,.0f} a second\n")


if __name__ == "__main__":
    main()
