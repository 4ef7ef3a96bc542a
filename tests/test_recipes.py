"""The recipes of CONTRIBUTING.md, each carried out in a copy of the checkout and tested by the command it names."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys

import pytest

from tests.conftest import CHECKOUT, FIXTURES, ROOT

pytestmark = pytest.mark.skipif(not CHECKOUT, reason="tests the checkout itself")

LOG = "fixtures/scenarios/kimi-k2.5-f0.88/server.log"
_LEFT_OUT = {".git", ".venv", "site", "mutants", "__pycache__", ".hypothesis", ".pytest_cache", ".mypy_cache", ".ruff_cache"}


def commands(title):
    """The words of each command that the recipe's test line names."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    section = re.search(rf"^## {title}\n(.*?)(?=^## )", text, re.MULTILINE | re.DOTALL)[1]
    test = re.search(r"Test: `(.*?)`", section)[1]
    return [shlex.split(part.replace(".venv/bin/", "")) for part in test.split("&&")]


@pytest.fixture
def checkout(tmp_path):
    """A copy of the checkout to carry a recipe out in."""
    shutil.copytree(ROOT, tmp_path / "copy", ignore=lambda _, names: _LEFT_OUT & set(names))
    return tmp_path / "copy"


def run(checkout, *words):
    environment = {**os.environ, "PYTHONPATH": str(checkout), "XDG_CACHE_HOME": str(checkout.parent / "cache")}
    module = list(words[1:]) if words[0] == "python" else ["-m", *words]
    command = [sys.executable, *module, *(["-p", "no:cacheprovider", "-x"] if words[0] == "pytest" else [])]
    return subprocess.run(command, cwd=checkout, capture_output=True, encoding="utf-8", env=environment, timeout=600)


def passes(checkout, title):
    for words in commands(title):
        done = run(checkout, *words)
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:]


def append(path, text):
    path.write_text(path.read_text(encoding="utf-8") + text, encoding="utf-8")


VARIANT = """
[[variant]]
releases = "0.5.23"
template = "Cells laid out for attention. #tokens: {#tokens:d}, K size: {K size:.2f} GB, V size: {V size:.2f} GB"
samples = [
    { text = "Cells laid out for attention. #tokens: 4096, K size: 1.50 GB, V size: 1.50 GB", fields = { "#tokens" = "4096", "K size" = "1.50", "V size" = "1.50" } },
]
"""  # noqa: E501


def test_a_line_variant(checkout):
    line = "[2026-01-05 10:00:09] Cells laid out for attention. #tokens: 4096, K size: 1.50 GB, V size: 1.50 GB"
    assert "kv-alloc" not in run(checkout, "kvdiag", "what", line).stdout
    append(checkout / "rules" / "lines" / "kv-alloc.toml", VARIANT)
    passes(checkout, "A line variant")
    assert "kv-alloc" in run(checkout, "kvdiag", "what", line).stdout


def test_a_line_variant_whose_sample_does_not_fit_is_caught(checkout):
    append(checkout / "rules" / "lines" / "kv-alloc.toml", VARIANT.replace("#tokens: 4096", "#tokens: many", 1))
    assert run(checkout, *commands("A line variant")[0]).returncode == 1


def test_a_model(checkout):
    asked = ("kvdiag", "size", "--model", "example/Small-1B", "--release", "0.5.9", "--format", "json")
    assert run(checkout, *asked).returncode == 2
    append(
        checkout / "rules" / "models" / "qwen.toml",
        '\n[[model]]\nnames = ["example/Small-1B"]\nsource = "published config.json"\ndate = "2026-01-05"\n\n[model.config]\n'
        'architectures = ["Qwen3ForCausalLM"]\nhead_dim = 128\nhidden_size = 1024\nmodel_type = "qwen3"\n'
        "num_attention_heads = 16\n"
        'num_hidden_layers = 10\nnum_key_value_heads = 4\nmax_position_embeddings = 40960\ntorch_dtype = "bfloat16"\n',
    )
    passes(checkout, "A model")
    assert json.loads(run(checkout, *asked).stdout)["bytes_per_token"] == 2 * 4 * 128 * 10 * 2


def test_an_architecture(checkout):
    config = checkout / "config.json"
    latent = {"architectures": ["ExampleLatentForCausalLM"], "model_type": "deepseek_v3", "num_hidden_layers": 4,
              "hidden_size": 1024, "num_attention_heads": 8, "num_key_value_heads": 8,
              "kv_lora_rank": 256, "qk_rope_head_dim": 64, "v_head_dim": 64,
              "qk_nope_head_dim": 64, "max_position_embeddings": 8192, "torch_dtype": "bfloat16"}  # fmt: skip
    config.write_text(json.dumps(latent))
    asked = ("kvdiag", "size", "--config", str(config), "--release", "0.5.23", "--format", "json")
    before = json.loads(run(checkout, *asked).stdout)["bytes_per_token"]
    append(checkout / "rules" / "architectures" / "mla.toml", 'ExampleLatentForCausalLM = "0.5.23.."\n')
    passes(checkout, "An architecture")
    after = json.loads(run(checkout, *asked).stdout)["bytes_per_token"]
    assert after == (256 + 64) * 4 * 2 != before


FINDING = """
code = "KV399"
name = "round-capacity"
level = "note"
order = 999
predicate = "round_capacity.round_capacity"
title = "The capacity is a round number"
message = ["The pool holds {tokens:n} tokens exactly."]
advice = ["Nothing needs to be done."]
explanation = \"\"\"
An example.
\"\"\"

[[raises]]
log = '''
[2026-01-05 10:00:20 TP0] max_total_num_tokens=1000000, chunked_prefill_size=8192, max_prefill_tokens=16384, max_running_requests=48, context_len=65536, available_gpu_mem=45.81 GB
'''
says = ["1,000,000"]

[[silent]]
why = "one token more"
log = '''
[2026-01-05 10:00:20 TP0] max_total_num_tokens=1000001, chunked_prefill_size=8192, max_prefill_tokens=16384, max_running_requests=48, context_len=65536, available_gpu_mem=45.81 GB
'''
"""  # noqa: E501
CONDITION = '''"""An example of a condition."""

from __future__ import annotations

from collections.abc import Iterator

from kvdiag.checks.facts import Facts
from kvdiag.checks.findings import Hit


def round_capacity(facts: Facts, at: object) -> Iterator[Hit]:
    """The capacity is a million tokens."""
    if facts.tokens == 1_000_000:
        yield Hit((1,), {"tokens": facts.tokens})
'''


def test_a_finding(checkout):
    (checkout / "rules" / "findings" / "KV399-round-capacity.toml").write_text(FINDING)
    (checkout / "kvdiag" / "checks" / "predicates" / "round_capacity.py").write_text(CONDITION)
    passes(checkout, "A finding")
    assert "The capacity is a round number" in run(checkout, "kvdiag", "rules", "show", "KV399").stdout


def test_a_report(checkout):
    (checkout / "kvdiag" / "reports" / "one_line.py").write_text(
        '"""One line a start."""\n\nfrom __future__ import annotations\n\nfrom kvdiag.checks import Diagnosis\n\n\n'
        'def render(diagnosis: Diagnosis) -> str:\n    """The codes of each start\'s findings."""\n'
        '    return "".join(" ".join(finding.code for finding in item.findings) + "\\n" for item in diagnosis.starts)\n'
    )
    command = checkout / "kvdiag" / "cli" / "explain.py"
    text = command.read_text(encoding="utf-8")
    mark = '    if arguments.format == "json":\n'
    assert text.count(mark) == 1
    added = '    if arguments.format == "line":\n        from kvdiag.reports.one_line import render as line\n\n'
    added += "        return line(diagnosis)\n"
    command.write_text(text.replace(mark, added + mark), encoding="utf-8")
    shared = checkout / "kvdiag" / "cli" / "arguments.py"
    choices = 'choices=("text", "json", "md", "html")'
    assert shared.read_text(encoding="utf-8").count(choices) == 1
    shared.write_text(
        shared.read_text(encoding="utf-8").replace(choices, choices.replace('"md"', '"line", "md"')), encoding="utf-8"
    )
    passes(checkout, "A report")
    assert "KV301" in run(checkout, "kvdiag", "explain", LOG, "--format", "line").stdout


def test_a_range_that_still_holds_has_no_end():
    """A range that ended at the newest release would close by itself as soon as the next one is added."""
    newest = re.findall(r'"(\d[\w.]*)"', (ROOT / "rules" / "releases" / "order.toml").read_text(encoding="utf-8"))[-1]
    ended = re.compile(rf"\.\.{re.escape(newest)}(?![\w.])")
    rooms = ("arguments", "architectures", "lines", "numbers", "transformers")
    files = [path for room in rooms for path in (ROOT / "rules" / room).glob("*.toml")]
    assert [path.name for path in files if ended.search(path.read_text(encoding="utf-8"))] == []


def test_a_release(checkout):
    order = checkout / "rules" / "releases" / "order.toml"
    newest = re.findall(r'"(\d[\w.]*)"', order.read_text(encoding="utf-8"))[-1]
    part, _, number = newest.rpartition(".")
    coming = f"{part}.{int(number) + 1}"
    config = str(FIXTURES / "real" / "0.5.9-qwen3-memfrac005-nocap" / "config.json")
    asked = ("kvdiag", "size", "--config", config, "--format", "json", "--release", coming)
    order.write_text(order.read_text(encoding="utf-8").replace(f'"{newest}",', f'"{newest}", "{coming}",'), encoding="utf-8")
    passes(checkout, "A release of SGLang")
    assert json.loads(run(checkout, *asked).stdout)["release"] == coming
    log = checkout / "new.log"
    real = (FIXTURES / "real" / "0.5.23-qwen3-memfrac005-nocap" / "server.log").read_text(encoding="utf-8")
    log.write_text(real, encoding="utf-8")
    told = json.loads(run(checkout, "kvdiag", "explain", str(log), "--format", "json").stdout)["starts"][0]["release"]
    assert told["last"] == coming, "a log of the newest release may be of the one that came, where nothing of it changed"
