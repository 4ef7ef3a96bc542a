"""Writes docs/architectures.md: which model classes are sized how, from the code and the rules themselves."""

from __future__ import annotations

import sys
from pathlib import Path

from kvdiag import rulebook
from kvdiag.errors import KvdiagError
from kvdiag.models import geometry_of
from kvdiag.models.catalogue import catalogue_match, catalogue_names
from kvdiag.models.config import config_from
from kvdiag.releases import known_releases
from kvdiag.sizing import ServerArguments, size

PAGE = Path(__file__).resolve().parent.parent / "docs" / "architectures.md"
WAYS = {
    "hybrid_swa": ("two pools, one for full attention and one for sliding windows", "exact"),
    "minimax_sparse": ("MiniMax sparse attention: keys, values and an index", "exact; its several pool lines are not recomputed"),
    "dsa": ("latent attention with a sparse index", "exact; whether fp8 rows are packed depends on the backend"),
    "mla": ("latent attention", "exact"),
}
HEAD = """# Which models are sized, and how

This page is written by `bench/architectures.py` from the rules and the code; a test fails where it is out of date.

Covered means: bytes per token, budget, pools and request slots come out as SGLang's own code computes them. Approximated
means: the figure is an interval or a check stays unknown, and says why. Refused means: "cannot size this architecture",
and every check that needs no size is still made. A class that the release does not register is sized by the release's
arithmetic all the same, with a note that no server would load it.

| what is refused | why |
|---|---|
| a model that keeps state in some layers and whose layout no reader knows | SGLang would set memory aside for it |
| state, compressed or sparse pools in a release that has none | the release would need them for the model |
| an NVFP4 cache of 0.5.21 and newer on a GPU that is not known | the layout of its scales depends on the GPU |
| `--enable-hisparse`, `--enable-unified-memory`, `--enable-kv-cache-sharding` | no rule follows what they do to the pools |
| `--enable-gdn-replayssm-spec` of 0.5.16 | no rule follows its ring of records |
| `--enable-dsa-cache-layer-split` with a sparse index | no rule |
| MiniMax-M3 with NVFP4 experts in 0.5.23 on a GPU that is not known | its cache is packed on Blackwell only |
| DeepSeek-V4.1 before 0.5.21, or with `--enable-encoder-swa-bounded-replay` and drafts | that release has no pools for it; the \
draft's stages are not in its arguments |
"""


def page() -> str:
    """The text of the page."""
    return "\n".join([HEAD, *_classes(), *_models(), ""])


def _classes() -> list[str]:
    tables = {Path(str(doc["_path"])).stem: doc for doc in rulebook.load("architectures")}
    registry = {
        name: ranges for name, ranges in tables["registry"].items() if isinstance(ranges, str) and not name.startswith("_")
    }
    lines = [
        "## Classes of SGLang's registry",
        "",
        f"SGLang 0.3.0 to {known_releases()[-1]} register {len(registry)} classes.",
        "",
    ]
    named: set[str] = set()
    for table, (way, exact) in WAYS.items():
        names = sorted(name for name in tables[table] if name in registry and name not in named)
        named |= set(names)
        lines += [f"### {way[0].upper()}{way[1:]}", "", f"{exact[0].upper()}{exact[1:]}.", ""]
        lines += ["| class | sized so by |", "|---|---|", *(f"| `{name}` | {tables[table][name]} |" for name in names), ""]
    rest = sorted(set(registry) - named)
    lines += ["### Plain attention, and state by the config", ""]
    lines.append(
        "Heads, dimensions and layers of the config, exact. Where the config has state-space, linear-attention or "
        "convolution layers, they get a pool of their own if their layout is known, else the model is refused."
    )
    lines += ["", ", ".join(f"`{name}`" for name in rest) + ".", ""]
    return lines


def _models() -> list[str]:
    release = known_releases()[-1]
    lines = [
        "## Models of the catalogue",
        "",
        f"Bytes per token of one GPU without parallelism, bfloat16 cache, SGLang {release}.",
        "",
        "| model | class | attention | bytes per token |",
        "|---|---|---|---|",
    ]
    for name in sorted(catalogue_names(), key=lambda name: name.split("/")[-1].lower()):
        found = catalogue_match(name)
        assert found is not None
        config = config_from(found.config, "catalogue", name)
        word, figure = "", ""
        try:
            geometry = geometry_of(config)
            word = geometry.attention
            sized = size(geometry, ServerArguments(kv_cache_dtype="bfloat16"), release)
            figure = f"{sized.bytes_per_token:,.10g}"
        except KvdiagError as error:
            figure = "refused: " + str(error).partition(": ")[2].partition(";")[0]
        lines.append(f"| {name} | `{(config.architectures or ('?',))[0]}` | {word} | {figure} |")
    return lines


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    sys.stdout.write(f"{PAGE}\n")
