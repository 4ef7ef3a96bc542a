"""Models and arguments that a release cannot size are refused with the reason and the releases that can."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import kvdiag
from kvdiag.errors import CannotSizeError, KvdiagError
from tests.test_size import DENSE, LATENT

CONFIGS = json.loads((Path(__file__).parent / "data" / "oracle" / "configs.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("config", "release", "said"),
    [
        (CONFIGS["Qwen3-Next-80B-A3B"], "0.5.1", "keeps state, and SGLang 0.5.1 has no pool for it .from 0.5.2."),
        (CONFIGS["DeepSeek-V4-Flash"], "0.5.11", "SGLang 0.5.11 does not know DeepseekV4ForCausalLM .from 0.5.12."),
        (CONFIGS["MiniMax-M3"], "0.5.13", "SGLang 0.5.13 does not know .* .from 0.5.14."),
    ],
    ids=["state", "compressed", "sparse layers"],
)
def test_a_model_the_release_cannot_size_is_refused_with_its_reason(config, release, said):
    with pytest.raises(CannotSizeError, match=said):
        kvdiag.size(config=config, release=release, gpu="H200")


@pytest.mark.parametrize(
    ("of", "said"),
    [
        ({"available_gpu_memory": 50.0, "pre_model_load_memory": 40.0}, "loading does not free memory; swap them"),
        ({"available_gpu_memory": 0.0, "pre_model_load_memory": 40.0}, "nothing is left for a KV cache"),
        ({"available_gpu_memory": "50", "pre_model_load_memory": 60.0}, "not a number of GiB a GPU could have"),
        ({"args": {"tp_size": [1]}}, "tp_size: a server argument is one number, word or truth value"),
        ({"gpu_mem_mib": -1}, "a GPU memory of -1 MiB"),
    ],
    ids=["swapped", "nothing left", "text", "a list", "negative"],
)
def test_what_cannot_be_is_said(of, said):
    with pytest.raises(KvdiagError, match=said):
        kvdiag.size(config=LATENT, release="0.5.9", **of)


def test_a_config_of_the_hugging_face_cache_is_found_by_its_name(tmp_path, monkeypatch):
    snapshot = tmp_path / "hub" / "models--example--Cached-1B" / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text(json.dumps(DENSE), encoding="utf-8")
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    monkeypatch.delenv("HF_HUB_CACHE", raising=False)
    from kvdiag.models import find_config

    found = find_config(name="example/Cached-1B")
    assert (found.found_in, found.place.endswith("config.json")) == ("cache", True)
    (snapshot / "config.json").write_text("{", encoding="utf-8")
    with pytest.raises(KvdiagError, match="not in the catalogue and not in the Hugging Face cache"):
        find_config(name="example/Cached-1B")
    assert find_config(model_path="../escape") is None
