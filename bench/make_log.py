"""Writes synthetic SGLang logs: seeded, every batch-line variant of the rules, several ranks, planted episodes.

    python bench/make_log.py OUT --mb 200 --ranks 4 --seed 7
    python bench/make_log.py OUT --episodes --truth OUT.json

The numbers hang together (usage is #token over the capacity that the start-up part states), so that the whole of kvdiag
can be run on them; the truth file names each planted episode with its times.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from kvdiag.lines.families import families
from kvdiag.lines.template import Sequence, parse_template
from kvdiag.releases import parse_ranges, parse_release

CAPACITY = 438681
MAX_RUNNING = 256
BEGIN = datetime(2025, 1, 15, 10, 0, 0)
WRAPPERS = ("none", "kubectl", "docker", "ray")


@dataclass(frozen=True)
class Episode:
    """A stretch of time in which one thing limits the server."""

    kind: str
    seconds: float
    usage: tuple[float, float]
    running: tuple[int, int]
    queue: tuple[int, int]
    retract: float = 0.0


DAY = (
    Episode("steady", 9 * 3600, (0.40, 0.55), (90, 130), (0, 0)),
    Episode("cap-bound", 3600, (0.45, 0.60), (MAX_RUNNING, MAX_RUNNING), (40, 400)),
    Episode("steady", 2 * 3600, (0.40, 0.55), (90, 130), (0, 0)),
    Episode("pool-bound", 2400, (0.97, 0.99), (120, 150), (30, 300)),
    Episode("steady", 2 * 3600, (0.40, 0.55), (90, 130), (0, 0)),
    Episode("storm", 900, (0.97, 1.00), (110, 150), (100, 500), 0.02),
    Episode("steady", 4 * 3600, (0.40, 0.55), (90, 130), (0, 0)),
    Episode("idle", 3600, (0.0, 0.0), (0, 0), (0, 0)),
    Episode("steady", 3 * 3600 + 1200 + 1500, (0.40, 0.55), (90, 130), (0, 0)),
)
"""A day with one episode of each kind."""

EPISODES = (
    Episode("steady", 120, (0.40, 0.55), (90, 130), (0, 0)),
    Episode("cap-bound", 120, (0.45, 0.60), (MAX_RUNNING, MAX_RUNNING), (40, 400)),
    Episode("steady", 60, (0.40, 0.55), (90, 130), (0, 0)),
    Episode("pool-bound", 120, (0.97, 0.99), (120, 150), (30, 300)),
    Episode("storm", 60, (0.97, 1.00), (110, 150), (100, 500), 0.03),
    Episode("steady", 60, (0.40, 0.55), (90, 130), (0, 0)),
    Episode("idle", 300, (0.0, 0.0), (0, 0), (0, 0)),
    Episode("steady", 120, (0.40, 0.55), (90, 130), (0, 0)),
)


def wrapped(wrapper: str, line: str, when: datetime, count: int) -> str:
    """The line as a container, a pod or Ray hands it on."""
    stamp = f"{when:%Y-%m-%dT%H:%M:%S}.{count % 10**9:09d}Z"
    if wrapper == "kubectl":
        return f"{stamp} {line}"
    if wrapper == "docker":
        return json.dumps({"log": line + "\n", "stream": "stderr", "time": stamp})
    if wrapper == "ray":
        return f"(SchedulerActor pid={4000 + count % 4}) {line}"
    return line


def startup(release: str, ranks: int) -> list[tuple[int | None, str]]:
    """(rank or None, message) of the start-up of one server with data-parallel attention; the numbers agree."""
    arguments = {
        "model_path": "meta-llama/Llama-3.1-8B-Instruct",
        "mem_fraction_static": 0.874,
        "tp_size": ranks,
        "dp_size": ranks,
        "enable_dp_attention": ranks > 1,
        "page_size": 1,
        "kv_cache_dtype": "auto",
        "chunked_prefill_size": 8192,
        "max_running_requests": MAX_RUNNING * ranks,
    }
    newer = parse_release(release) in parse_ranges("0.5.19..0.5.23")
    dump = repr(arguments) if newer else f"ServerArgs({', '.join(f'{k}={v!r}' for k, v in arguments.items())})"
    workers = [
        "Load weight begin. avail mem=78.60 GB",
        "Load weight end. elapsed=12.31 s, type=LlamaForCausalLM, avail mem=63.45 GB, mem usage=15.15 GB.",
        f"KV Cache is allocated. dtype: torch.bfloat16, #tokens: {CAPACITY}, K size: 26.78 GB, V size: 26.78 GB",
        "Memory pool end. avail mem=9.86 GB",
    ]
    capacity = (
        f"max_total_num_tokens={CAPACITY}, chunked_prefill_size={8192 // ranks}, max_prefill_tokens=16384, "
        f"max_running_requests={MAX_RUNNING}, context_len=131072, available_gpu_mem=9.50 GB"
    )
    told = [(rank, message) for message in workers for rank in range(ranks)]
    return [(None, f"server_args={dump}"), *told, (0, capacity), (None, "The server is fired up and ready to roll!")]


def variant_sequences(family: str, release: str | None = None) -> list[Sequence]:
    """The parsed templates of a batch family, of one release or of all."""
    wanted = parse_release(release) if release else None
    return [
        parse_template(variant.template)
        for variant in families()[family].variants
        if wanted is None or wanted in parse_ranges(variant.releases)
    ]


def shape_of(sequence: Sequence, rng: random.Random, rare: float) -> str:
    """One printed shape of a template as a %-format; choices fall on their last branch unless a rare draw picks another."""
    text = ""
    for item in sequence:
        if isinstance(item, str):
            text += item.replace("%", "%%")
        elif item[0] == "f":
            text += _placeholder(item[1], item[2], rng)
        elif item[0] == "t":
            text += rng.choice(["text", "text 7"])
        else:
            branches = item[1:]
            text += shape_of(rng.choice(branches) if rng.random() < rare else _usual(branches), rng, rare)
    return text


def _usual(branches: list[Sequence]) -> Sequence:
    named = [branch for branch in branches if branch == ["cuda graph: ", ["f", "cuda graph", "b"]]]
    return named[0] if named else branches[-1]


def _placeholder(name: str, kind: str, rng: random.Random) -> str:
    if kind == "d":
        return f"%({name.replace('(', '<').replace(')', '>')})d"
    if kind.startswith("."):
        return f"%({name.replace('(', '<').replace(')', '>')}){kind}"
    return {"b": rng.choice(["True", "True", "False"])}.get(kind, rng.choice(kind.split("|")) if "|" in kind else "7")


class _State(dict[str, Any]):
    """Values of the fields at one moment; fields the simulation does not know get a small number."""

    def __missing__(self, name: str) -> Any:
        return 3 if name.startswith("#") else 0.42


def _values(episode: Episode, rng: random.Random) -> _State:
    usage = rng.uniform(*episode.usage)
    running = rng.randint(*episode.running)
    tokens = int(usage * CAPACITY)
    return _State(
        {
            "#running-req": running,
            "#token": tokens,
            "token usage": tokens / CAPACITY,
            "#queue-req": rng.randint(*episode.queue),
            "gen throughput <token/s>": running * rng.uniform(18, 26),
            "input throughput <token/s>": rng.uniform(1000, 9000),
            "#new-seq": rng.randint(1, 8),
            "#new-token": rng.randint(1, 8192),
            "#cached-token": rng.choice([0, rng.randint(1, 20000)]),
            "#pending-token": rng.randint(0, 9000),
            "#full token": tokens,
            "full token usage": tokens / CAPACITY,
            "iteration": rng.randint(1, 10**6),
        }
    )


def lines(
    *,
    seed: int = 7,
    ranks: int = 4,
    release: str = "0.5.22",
    rare: float = 0.0,
    every_variant: bool = False,
    milliseconds: bool = False,
    episodes: tuple[Episode, ...] = EPISODES,
    steps: tuple[int, ...] = (250, 500, 750, 1000),
    once: bool = False,
) -> Iterator[tuple[str, datetime, str]]:
    """(line, its time, episode kind): the start-up part, then the episodes, over and over unless `once`.

    `steps` are the milliseconds between lines of a rank, drawn at random; see `main` for the rest.
    """
    rng = random.Random(seed)
    wanted = None if every_variant else release
    decodes = variant_sequences("decode-batch", wanted)
    prefills = variant_sequences("prefill-batch", wanted)
    usual = [shape_of(decodes[-1], random.Random(0), 0.0), shape_of(prefills[-1], random.Random(0), 0.0)]
    now = BEGIN
    pattern = "%Y-%m-%d %H:%M:%S"
    for worker, message in startup(release, ranks):
        tag = f" DP{worker} TP{worker}" if worker is not None and ranks > 1 else ""
        yield f"[{now:{pattern}}{tag}] {message}", now, "start"
    now += timedelta(seconds=40)
    count = 0
    while True:
        for episode in episodes:
            until = now + timedelta(seconds=episode.seconds)
            if episode.kind == "idle":
                now = until
                continue
            while now < until:
                stamp = f"{now:{pattern}}" + (f".{now.microsecond // 1000:03d}" if milliseconds else "")
                for rank in range(ranks):
                    count += 1
                    tag = f" DP{rank} TP{rank}" if ranks > 1 else ""
                    draw = rng.random()
                    decode = draw < 0.69
                    shape = usual[not decode]
                    if rare and rng.random() < rare:
                        shape = shape_of(rng.choice(decodes if decode else prefills), rng, 0.5)
                    if draw > 0.80:
                        port = rng.randint(30000, 60000)
                        yield (
                            f'[{now:{pattern}}] INFO:     10.0.0.{rank}:{port} - "POST /generate HTTP/1.1" 200 OK',
                            now,
                            episode.kind,
                        )
                        continue
                    yield f"[{stamp}{tag}] {shape % _values(episode, rng)}", now, episode.kind
                    if episode.retract and rng.random() < episode.retract:
                        gained = rng.randint(1000, 9000)
                        yield (
                            f"[{stamp}{tag}] KV cache pool is full. Retract requests. #retracted_reqs: {rng.randint(1, 9)}, "
                            f"#new_tokens_gained: {gained}, #new_token_ratio: 0.5512 -> 0.9200",
                            now,
                            episode.kind,
                        )
                now += timedelta(milliseconds=rng.choice(steps))
        if once:
            return


def write_log(path: str | Path, *, size: int, wrapper: str = "none", **options: Any) -> list[dict[str, str]]:
    """Writes about `size` bytes of `lines(**options)` to `path`; gives the episodes planted, with their times."""
    truth: list[dict[str, str]] = []
    written = 0
    with open(path, "w", encoding="utf-8", newline="\n") as file:
        for count, (line, when, kind) in enumerate(lines(**options)):
            text = wrapped(wrapper, line, when, count) + "\n"
            file.write(text)
            written += len(text)
            if not truth or truth[-1]["kind"] != kind:
                truth.append({"kind": kind, "from": when.isoformat(), "to": when.isoformat()})
            truth[-1]["to"] = when.isoformat()
            if written >= size:
                return truth
    return truth


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Writes a synthetic SGLang log.")
    parser.add_argument("out")
    parser.add_argument("--mb", type=float, default=200, help="size (default: %(default)s)")
    parser.add_argument("--ranks", type=int, default=4, help="data-parallel ranks (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--release", default="0.5.22")
    parser.add_argument("--rare", type=float, default=0.0, help="share of batch lines in a rare shape (default: %(default)s)")
    parser.add_argument("--every-variant", action="store_true", help="rare shapes of every release, not of the one")
    parser.add_argument("--milliseconds", action="store_true", help="time stamps with milliseconds")
    parser.add_argument("--wrapper", choices=WRAPPERS, default="none")
    parser.add_argument("--day", action="store_true", help="a whole day with one episode of each kind, whatever its size")
    parser.add_argument("--steps", default="250,500,750,1000", help="milliseconds between lines of a rank (default: %(default)s)")
    parser.add_argument("--truth", metavar="FILE", help="where the planted episodes are written as JSON")
    given = parser.parse_args()
    truth = write_log(
        given.out,
        size=10**12 if given.day else int(given.mb * 1e6),
        episodes=DAY if given.day else EPISODES,
        once=given.day,
        steps=tuple(int(step) for step in given.steps.split(",")),
        wrapper=given.wrapper,
        seed=given.seed,
        ranks=given.ranks,
        release=given.release,
        rare=given.rare,
        every_variant=given.every_variant,
        milliseconds=given.milliseconds,
    )
    if given.truth:
        Path(given.truth).write_text(json.dumps(truth, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
