"""``--mask``: nothing personal is left in a report, a baseline or a table, and nothing that a diagnosis needs is taken."""

from __future__ import annotations

import json
import string
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from kvdiag.cli.main import main
from kvdiag.fleet.sources import find_sources
from kvdiag.fleet.summary import summarise
from kvdiag.lines.personal import impersonal
from tests.conftest import FIXTURES

LOG = FIXTURES / "real" / "0.5.9-qwen3-memfrac005-nocap" / "server.log"
FORMATS = ("text", "json", "md", "html")

SECRETS = {
    "openai": ("sk-proj-{}", "with key {}"),
    "github": ("ghp_{}", "cloned by {}"),
    "huggingface": ("hf_{}", "login as {}"),
    "aws": ("AKIA{upper}", "credentials of {}"),
    "aws-secret": ("{0}/{0}", "AWS_SECRET_ACCESS_KEY={}"),
    "slack": ("xoxb-17-{}", "webhook {}"),
    "bearer": ("{}", "Authorization: Bearer {}"),
    "jwt": ("eyJhbGciOi{0}.eyJ{0}.{0}-x_{0}", "session {}"),
    "password": ("{}", "password: {}"),
    "pw": ("{}", "pw={}"),
    "token": ("q{}", "token={} given"),
    "secret": ("{}", "client_secret='{}'"),
    "words": ("{}", "the token {} is old"),
    "signed": ("{}", "see https://127.0.0.1/x?a=1&X-Amz-Signature={}"),
    "hook": ("{0}/{0}", "see https://hooks.slack.com/services/{}"),
    "flag": ("{}", "started with --api-key {}"),
    "url": ("u{}:p{}", "see https://{}@127.0.0.1/x"),
    "mail": ("{}@{}.com", "written by {}"),
    "node": ("gpu-{}-17.{}.internal", "on node {} now"),
    "host": ("gpu-{}-17", "host={}"),
    "ipv4": ("10.213.117.114", "from {} port 5"),
    "ipv6": ("fe80::1ff:fe23:4567:890a", "from {}"),
    "ipv6-port": ("2001:db8::7fa1:77", "peer [{}]:30000"),
    "mac": ("02:42:ac:11:9f:e2", "mac {}"),
    "file": ("{}", "see file:///home/{}"),
    "drive": ("{}", "see C:\\Users\\{}\\x"),
    "path": ("/home/{}/models9/x.bin", "file {}"),
}
"""Each kind: how its secret looks, and what stands around it."""

STAMP = "[2025-01-15 10:22:41 TP0] "
SENTENCES = {
    "unknown": STAMP + "Nobody knows this line: {}",
    "reworded": STAMP + "Load weight end anew: {}",
    "known": STAMP + "Load weight begin. avail mem=23.10 GB {}",
    "exception": STAMP + "Scheduler hit an exception: Traceback (most recent call last):\nRuntimeError: {}",
    "loose": "ValueError: {}",
    "long": STAMP + "x " * 236 + "{} and more",
    "wrapped": "\x00{}",
}
KEYS = st.randoms(use_true_random=True).map(
    lambda source: "q7" + "".join(source.sample(string.ascii_letters + string.digits, 20))
)


def ran(arguments):
    """The exit code of a command."""
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    return ended.value.code


def planted(kind, key):
    form = SECRETS[kind][0]
    return form.format(key, key, upper=key.upper()) if "{" in form else form


def parts(secret):
    """All of six characters in a row that are the secret's own, not of its kind."""
    own = secret.removesuffix(".internal").removesuffix(".com").removesuffix("/models9/x.bin").removeprefix("/home/")
    own = own.removeprefix("eyJhbGciOi").removeprefix("sk-proj-")
    return {own[at : at + 6] for at in range(len(own) - 5)}


def line_of(sentence, text):
    shown = SENTENCES[sentence].format(text)
    if sentence == "wrapped":
        return json.dumps(
            {"log": STAMP + "\tNobody knows this: " + text + "\n", "stream": "stderr", "time": "2025-01-15T10:22:41Z"}
        )
    return shown


def written(folder, sentence, key):
    lines = [line_of(sentence, SECRETS[kind][1].format(planted(kind, key))) for kind in SECRETS]
    base = LOG.read_text().splitlines()
    if sentence == "wrapped":
        base = [json.dumps({"log": line + "\n", "stream": "stderr", "time": "2025-01-15T10:22:41Z"}) for line in base]
    path = Path(folder) / "server.log"
    path.write_text("\n".join([*base, *lines]) + "\n")
    return path


def leaks(shown, key):
    return {kind: part for kind in SECRETS for part in parts(planted(kind, key)) if part in shown}


@pytest.mark.parametrize("sentence", SENTENCES)
@settings(max_examples=2, phases=[Phase.generate], deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(key=KEYS)
def test_no_part_of_a_secret_is_in_a_masked_report_or_a_baseline(tmp_path, sentence, key):
    log, out = str(written(tmp_path, sentence, key)), str(tmp_path / "out")
    assert leaks(Path(log).read_text(), key).keys() == SECRETS.keys(), "each is planted"
    for command in ("explain", "postmortem"):
        for form in FORMATS:
            assert ran([command, log, "--mask", "--format", form, "-o", out]) == 0
            assert not leaks(Path(out).read_text(), key), (command, form)
    assert ran(["explain", log, "--mask", "--verbose", "-o", out]) == 0
    assert not leaks(Path(out).read_text(), key)
    assert ran(["baseline", log, "-o", out]) == 0
    assert not leaks(Path(out).read_text(), key)


@pytest.mark.parametrize("sentence", SENTENCES)
def test_a_timeline_and_the_summary_of_a_fleet_hold_no_text_of_the_log(tmp_path, sentence):
    key = "Zq7Xv3Wk9Jp4Lm8Tn2"
    log = written(tmp_path, sentence, key)
    out = tmp_path / "rows.jsonl"
    assert ran(["timeline", str(log), "-o", str(out)]) == 0
    assert not leaks(out.read_text(), key)
    (source,) = find_sources([str(log)])
    assert not leaks(json.dumps(summarise(source)), key)


def test_secrets_among_the_arguments_are_masked_in_every_format(tmp_path):
    secrets = {"api_key": "Zq7Xv3Wk9", "dist_init_addr": "gpu-node-17.zqxv.internal:5000"}
    text = LOG.read_text()
    for name, value in secrets.items():
        assert f"{name}=None" in text
        text = text.replace(f"{name}=None", f"{name}='{value}'")
    log, out = tmp_path / "server.log", tmp_path / "out"
    log.write_text(text)
    for form in FORMATS:
        assert ran(["explain", str(log), "--mask", "--format", form, "--verbose", "-o", str(out)]) == 0
        assert not any(value in out.read_text() for value in secrets.values()), form
    assert ran(["baseline", str(log), "-o", str(out)]) == 0
    assert not any(value in out.read_text() for value in secrets.values())


@pytest.mark.parametrize(
    "line",
    [
        "max_total_num_tokens=80000, chunked_prefill_size=8192, max_running_requests=480, context_len=65536",
        "Decode batch, #running-req: 46, #token: 135385, token usage: 0.85, accept len: 2.71, #queue-req: 94",
        "Load weight end. type=KimiK25ForConditionalGeneration, dtype=torch.bfloat16, avail mem=21.71 GB",
        "model_path='Qwen/Qwen3-30B-A3B-Instruct-2507', served_model_name='meta-llama/Llama-3.1-8B', api_key=None, port=30000",
        "raise --mem-fraction-static to 0.91; --max-total-tokens 1000; hf_quant_config.json; pad_token: <pad>, eos_token='</s>'",
        "torch.cuda.memory.local, sglang.srt.models.io, c10::cuda::CUDAException, std::vector<int>, 2025-01-15T10:22:41",
        "CUDA_VISIBLE_DEVICES=0,1 node_rank=1 nnodes=2 host='0.0.0.0' SGLang 0.5.9, 1,234.5 tokens, 22:04:11.250",
        "raise the size of /dev/shm; POST /v1/chat/completions; a token: tens of thousands of bytes",
        "commit 5c0d7dbd1c4c9ed14b8ea6aa0b3bd1b1c8e5d6f7 by TP0, sparse_token: 5, GPU 0 has 23.57 GiB, disk-based",
    ],
)
def test_what_a_diagnosis_needs_is_not_masked(line):
    assert impersonal(line) == line


def test_masked_reports_keep_every_number_of_the_unmasked(tmp_path):
    out = tmp_path / "out"
    for log in sorted(FIXTURES.glob("scenarios/*/server.log")):
        told = []
        for mask in ([], ["--mask"]):
            assert ran(["explain", str(log), "--format", "json", *mask, "-o", str(out)]) == 0
            starts = json.loads(out.read_text())["starts"]
            told.append([[start[part] for part in ("numbers", "checks", "limits", "findings", "memory")] for start in starts])
        assert told[0] == told[1], log


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize(
    ("place", "told"),
    [
        ("/home/zqxv/models/tiny-qwen3", "tiny-qwen3"),
        ("/home/zqxv/models/tiny-qwen3/", "tiny-qwen3"),
        ("/home/zqxv/hub/models--Qwen--Qwen3-32B/snapshots/9216db5781bf21249d130ec9da846c4624c16137", "Qwen3-32B"),
    ],
)
def test_a_masked_report_still_says_which_model_it_is_of(tmp_path, form, place, told):
    log, out = tmp_path / "server.log", tmp_path / "out"
    log.write_text(LOG.read_text().replace("model_path='models/tiny-qwen3'", f"model_path='{place}'"))
    assert place in log.read_text()
    assert ran(["explain", str(log), "--mask", "--format", form, "-o", str(out)]) == 0
    text = out.read_text()
    assert told in text
    assert "zqxv" not in text


def test_a_secret_at_the_end_of_a_models_path_is_masked_all_the_same(tmp_path):
    log, out = tmp_path / "server.log", tmp_path / "out"
    log.write_text(LOG.read_text().replace("model_path='models/tiny-qwen3'", "model_path='/models/hf_AbCdEfGh12345678'"))
    assert ran(["explain", str(log), "--mask", "-o", str(out)]) == 0
    assert "AbCdEfGh" not in out.read_text()


@pytest.mark.parametrize(
    ("place", "hidden"),
    [
        ("/home/alice", "alice"),
        ("/Users/alice/", "alice"),
        ("/mnt/10.1.2.3", "10.1.2.3"),
        ("/models/node7.prod.internal", "prod.internal"),
        ("/models/hf_abcdefghijklmnopqrstuvwxyzABCDEFGH", "abcdefgh"),
        ("/data/alice@example.com", "alice"),
        ("C:\\\\Users\\\\alice\\\\Qwen3-8B", "alice"),
    ],
)
def test_no_baseline_or_masked_report_has_what_is_personal_of_a_models_path(capfdbinary, tmp_path, place, hidden):
    text = (FIXTURES / "scenarios" / "h100-llama-3-8b" / "server.log").read_text()
    path = tmp_path / "server.log"
    path.write_text(text.replace("meta-llama/Meta-Llama-3-8B-Instruct", place))
    for command in (["baseline", str(path)], ["explain", "--mask", "-v", str(path)]):
        with pytest.raises(SystemExit):
            main(command)
        assert hidden not in capfdbinary.readouterr().out.decode().replace(str(tmp_path), "")
