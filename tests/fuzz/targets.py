"""What is fuzzed: each target takes bytes and may raise nothing but kvdiag's own errors."""

from __future__ import annotations

import io
import json
import re
import tempfile
from collections.abc import Callable, Iterator
from functools import lru_cache

from kvdiag import rulebook
from kvdiag.errors import KvdiagError
from kvdiag.gate.baseline import parse_baseline, write_baseline
from kvdiag.gate.policy import parse_policy
from kvdiag.lines import read_records
from kvdiag.lines.literal import parse_arguments
from kvdiag.models.config import config_from
from kvdiag.models.geometry import geometry_of
from kvdiag.outside.gpu import read_gpu
from kvdiag.outside.metrics import read_metrics
from kvdiag.outside.server_info import read_server_info
from kvdiag.reading import Input, Line
from kvdiag.releases import parse_release
from kvdiag.sizing import Memory, ServerArguments, size
from kvdiag.source import code_path
from kvdiag.source.archive import MemoryStore
from kvdiag.source.evaluate import Evaluator, exactly
from kvdiag.source.find_line import find_line
from kvdiag.source.origins import Walker
from kvdiag.source.parsed import Parsed
from kvdiag.source.syntax import parse
from kvdiag.source.tree import SourceTree
from kvdiag.starts import assemble
from tests.conftest import FIXTURES, ROOT

Target = Callable[[bytes], None]


def lines(data: bytes) -> None:
    """Records, starts and numbers of arbitrary lines."""
    texts = data.decode("utf-8", "replace").split("\n")
    starts = assemble(read_records(Line(number, text) for number, text in enumerate(texts, 1)))
    for start in starts:
        for number in start.numbers:
            assert number.interval is None or number.interval.low <= number.interval.high


def arguments(data: bytes) -> None:
    """A server_args dump."""
    read, _ = parse_arguments(data.decode("utf-8", "replace"))
    json.dumps(read, allow_nan=False)
    ServerArguments.of(read)


ODD_VALUES: tuple[object, ...] = (
    0, -1, 1, 3, 10**9, 10**9 + 1, 10**30, 1.5, -0.0, float("nan"), float("inf"), True, None, "", "8", "auto", [], [1], {},
    {"text_config": {}}, [{}], ["sliding_attention", "full_attention"], "linear_attention",
)  # fmt: skip


@lru_cache(maxsize=1)
def _known_configs() -> tuple[dict[str, object], ...]:
    documents = rulebook.load("models")
    return tuple(entry["config"] for document in documents for entry in document.get("model", ()))


def config(data: bytes) -> None:
    """A config.json with any fields set to odd values (or arbitrary JSON), read and sized."""
    try:
        parsed = json.loads(data)
    except (ValueError, RecursionError):
        parsed = _edited(data)
    try:
        geometry = geometry_of(config_from(parsed, "config", "fuzz"))
        told = ServerArguments.of({"mem_fraction_static": 0.88, "tp_size": 2})
        size(geometry, told, parse_release("0.5.9"), Memory(21.71, 94.04))
    except KvdiagError:
        return


def _edited(data: bytes) -> dict[str, object]:
    """A published config with some keys changed, as the bytes say: config, then pairs of key and value."""
    known = _known_configs()
    chosen = dict(known[data[0] % len(known)]) if data else {}
    keys = sorted({key for entry in known for key in entry})
    for at in range(1, min(len(data) - 2, 24), 3):
        key = keys[(data[at] * 256 + data[at + 1]) % len(keys)]
        chosen[key] = ODD_VALUES[data[at + 2] % len(ODD_VALUES)]
    return chosen


def blocks(data: bytes) -> None:
    """Splitting bytes into lines."""
    from kvdiag.reading.source import _split

    seen = Input("fuzz")
    joined = b"".join(piece for _, piece, *_ in _split(io.BytesIO(data), seen))
    assert len(joined) <= 2 * len(data) + 3, "more bytes than UTF-16 can have as UTF-8"


def policy(data: bytes) -> None:
    """A policy file."""
    try:
        parse_policy(data.decode("utf-8", "replace"))
    except KvdiagError:
        return


def baseline(data: bytes) -> None:
    """A baseline file; what is read can be written."""
    try:
        snapshot = parse_baseline(data.decode("utf-8", "replace"), "fuzz")
    except KvdiagError:
        return
    write_baseline(snapshot)


def evaluator(data: bytes) -> None:
    """An expression or statement of a source tree."""
    known = {"x": exactly(7), "self.page_size": exactly(64)}
    for node in parse(data).children:
        Evaluator(known).value(node.children[0] if node.children else node)


ODD_LITERALS = (
    "[]", "{}", "'x'", "-5", "1e-300", "1e999", "0", "9" * 23, "True", "[[1]]", "<a>", "None", "{'a': [1]}", "nan", "",
)  # fmt: skip
_VALUE = re.compile(rb"(?<=[=:] )-?\d+(?:\.\d+)?|(?<==)(?:-?\d[\d.]*|'[^']*'|\w+)")


def report(data: bytes) -> None:
    """A whole log with some of its values replaced by odd ones, through every report and the gate.

    The first byte chooses the log; then three bytes each choose a value and what stands in its place.
    """
    logs = _small_logs()
    text = bytearray(logs[data[0] % len(logs)] if data else logs[0])
    places = [found.span() for found in _VALUE.finditer(bytes(text))]
    edits = {(data[at] * 256 + data[at + 1]) % len(places): data[at + 2] for at in range(1, min(len(data) - 2, 24), 3)}
    for place in sorted(edits, reverse=True):
        begin, end = places[place]
        text[begin:end] = ODD_LITERALS[edits[place] % len(ODD_LITERALS)].encode()
    reported(bytes(text))


@lru_cache(maxsize=1)
def _small_logs() -> list[bytes]:
    logs = [*FIXTURES.glob("scenarios/*/server.log"), *FIXTURES.glob("real/*/server.log")]
    return [text for path in sorted(logs) if len(text := path.read_bytes()) < 40_000]


def reported(text: bytes) -> None:
    """The log through every report, the JSON of which is valid, and through the gate."""
    from kvdiag.gate import check, observe, write_baseline
    from kvdiag.gate.difference import difference
    from kvdiag.reports import diff_report, json_report, markdown_report, text_report

    with tempfile.NamedTemporaryFile(prefix="kvdiag-fuzz-") as file:
        file.write(text)
        file.flush()
        try:
            observed = observe(file.name)
            for render in (json_report.render, markdown_report.render):
                render(observed.diagnosis)
            text_report.render(observed.diagnosis, width=100, colour=False)
            json.dumps(json_report.to_dict(observed.diagnosis), allow_nan=False)
            check(observed, parse_baseline(write_baseline(observed.snapshot), "fuzz"))
            diff_report.render(difference(observed, observed))
        except KvdiagError:
            return


TREE = ROOT / "tests" / "data" / "tree" / "python" / "sglang"


@lru_cache(maxsize=1)
def _small_tree() -> dict[str, bytes]:
    return {str(path.relative_to(TREE)): path.read_bytes() for path in sorted(TREE.rglob("*.py"))}


def tree(data: bytes) -> None:
    """A source tree, one file of which is arbitrary: the first byte chooses it, the first line is a log line to look for."""
    first, _, content = data[1:].partition(b"\n")
    files = dict(_small_tree())
    files[sorted(files)[(data[0] if data else 0) % len(files)]] = content
    opened = SourceTree("fuzz", "sdist", "sglang", MemoryStore(files, []))
    parsed = Parsed(opened)
    for number in ("max_total_num_tokens", "bytes_per_token"):
        code_path(opened, number)
    for candidate in find_line(parsed, first.decode("utf-8", "replace")):
        for hole, _ in candidate.fit.values:
            if hole.node is not None:
                Walker(parsed).origins(candidate.message.file, hole.node)


def outside(data: bytes) -> None:
    """The answer of a server, its metrics, and what the GPU's tools print."""
    with tempfile.NamedTemporaryFile(prefix="kvdiag-fuzz-") as file:
        file.write(data)
        file.flush()
        for read in (read_server_info, read_metrics, read_gpu):
            try:
                read(file.name)
            except KvdiagError:
                continue


def rows(data: bytes) -> None:
    """The fast path, which learns the lines' shapes and then walks them in C: as many rows as the strict rules find."""
    from kvdiag.lines.chunk import Texts, of_records
    from kvdiag.lines.scan import Scanner
    from kvdiag.reading.blocks import Block, lines_of
    from kvdiag.reading.unwrap import Unwrapper

    text = data + b"\n"
    scanner = Scanner(lambda record: record.family is None, Input("fuzz"))
    scanner.scan(Block(text, 0))
    found = scanner.scan(Block(text, len(text))).rows
    seen, unwrapper = Input("fuzz"), Unwrapper()
    lines_of_text = (line for number, raw in enumerate(data.split(b"\n"), 1) for line in lines_of(raw, number, seen, unwrapper))
    assert len(found) == len(of_records(read_records(lines_of_text), {}, Texts()))


TARGETS: dict[str, Target] = {
    target.__name__: target
    for target in (lines, rows, report, arguments, config, blocks, policy, baseline, evaluator, tree, outside)
}


_SMALL = {
    "policy": (
        b'[numbers]\nmax_total_num_tokens = { relative = 0.02, direction = "down" }\nmem_usage = "exact"\n',
        b'[lines]\nunknown_budget = 3\naccept = ["a*"]\n[release]\nallowed = ">=0.5.0"\n[checks]\nrequired = ["x"]\n',
        b'[[suppress]]\ncode = "KV001"\nreason = "r"\nuntil = 2027-01-31\n',
    ),
    "evaluator": (b"min(x, 3) * self.page_size // 7", b"int(x / 2) if x > 1 else -x ** 2 << 3", b"max([x, 1][0], not x)"),
}
_BASELINE = (
    b'{"schema": "kvdiag.baseline/1", "release": {"first": "0.5.9", "last": "0.5.9"}, "model": {}, "ready": true,'
    b' "arguments_line": 1, "arguments": {"a": [1.5]},'
    b' "numbers": [{"name": "n", "low": 1, "high": 2.5, "unit": "GB", "line": 1}],'
    b' "checks": [], "findings": [], "shapes": [{"text": "t", "family": null, "stage": "s", "line": 2}]}'
)


def seeds(name: str) -> Iterator[bytes]:
    """Real inputs to start from."""
    if name == "config":
        for path in FIXTURES.glob("real/*/config.json"):
            yield path.read_bytes()
        yield from (bytes([index]) for index in range(len(_known_configs()) % 256))
        return
    if name == "report":
        yield from (bytes([index, 0, index, index, 1, index, 0]) for index in range(len(_small_logs())))
        return
    if name in _SMALL:
        yield from _SMALL[name]
        return
    if name == "baseline":
        for path in FIXTURES.glob("gate/**/*.json"):
            yield path.read_bytes()
        yield _BASELINE
        return
    if name == "tree":
        for index, content in enumerate(_small_tree().values()):
            yield bytes([index]) + b"KV Cache is allocated. #tokens: 8, K size: 1.00 GB, V size: 1.00 GB\n" + content[:8000]
        return
    if name == "outside":
        for pattern in ("*server_info*", "*metrics*", "*smi*"):
            for path in FIXTURES.rglob(pattern):
                if path.is_file():
                    yield path.read_bytes()[:8000]
        yield b'{"max_total_num_tokens": 7, "server_args": {"tp_size": 2}}'
        yield b'sglang:max_total_num_tokens{model_name="a"} 4096.0\n'
        yield b"|  40MiB / 81559MiB |\n|    0   N/A  N/A      1234      C   vllm                            70000MiB |\n"
        yield b"GPU[0]\t\t: VRAM Total Memory (B): 206141652992\n"
        return
    for path in [*FIXTURES.glob("scenarios/*/server.log"), *FIXTURES.glob("real/*/server.log")]:
        text = path.read_bytes()
        if name == "arguments":
            for line in text.split(b"\n"):
                if b"server_args=" in line:
                    yield line.split(b"server_args=", 1)[1]
        else:
            yield text[:4000]
