"""The Python interface: what ``import kvdiag`` offers."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kvdiag.checks import Diagnosis as _Diagnosis
from kvdiag.errors import ConfigError
from kvdiag.frozen import values_of
from kvdiag.sizing import Sizing as _Sizing

if TYPE_CHECKING:
    import pandas

    from kvdiag.postmortem import Postmortem as _Postmortem
    from kvdiag.postmortem.model import Review
    from kvdiag.sizing.request import Config


class Diagnosis(_Diagnosis):
    """The content of ``kvdiag explain`` as objects; notebooks show its page, or Markdown where they show no HTML."""

    def to_dict(self) -> dict[str, Any]:
        """The JSON of ``kvdiag explain``."""
        from kvdiag.reports.json_report import to_dict

        return to_dict(self)

    def _repr_html_(self) -> str:
        from kvdiag.postmortem import Postmortem
        from kvdiag.reports.notebook import framed

        return framed(Postmortem(self, [None] * len(self.starts)))

    def _repr_markdown_(self) -> str:
        from kvdiag.reports.markdown_report import render

        return render(self)


class Postmortem:
    """The content of ``kvdiag postmortem``: `diagnosis`, and for each of its starts a review (None without scheduler lines).

    Notebooks show its page, with charts over time that zoom.
    """

    def __init__(self, found: _Postmortem) -> None:
        self._found = found

    @property
    def diagnosis(self) -> _Diagnosis:
        """What ``kvdiag explain`` says of the same logs."""
        return self._found.diagnosis

    @property
    def reviews(self) -> list[Review | None]:
        """What each start did over time: its phases and totals."""
        return self._found.reviews

    def to_dict(self) -> dict[str, Any]:
        """The JSON of ``kvdiag postmortem``."""
        from kvdiag.reports.postmortem_json import to_dict

        return to_dict(self._found)

    def _repr_html_(self) -> str:
        from kvdiag.reports.notebook import framed

        return framed(self._found)

    def _repr_markdown_(self) -> str:
        from kvdiag.reports.postmortem_markdown import render

        return render(self._found)


class Sizing(_Sizing):
    """What ``kvdiag size`` computes; notebooks show it as a table."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        from kvdiag.reports.notebook import table

        return table({name: value for name, value in self.to_dict().items() if name not in ("schema", "terms")})


def explain(
    log: str,
    *,
    config: str | None = None,
    model: str | None = None,
    release: str | None = None,
    source: str | None = None,
    env: Mapping[str, str] | None = None,
    draft_config: str | None = None,
) -> Diagnosis:
    """The diagnosis of the log at path `log`, held against the SGLang tree `source` where given; see ``kvdiag explain``.

    `env` is what of the server's environment changes sizes, `draft_config` the path of the draft model's config.
    """
    from kvdiag.pipeline import explain as run

    found = run(
        [str(log)], config=config, model=model, release=release, source=source, environment=env, draft_config=draft_config
    )
    return Diagnosis(**values_of(found))


def review(
    log: str | Sequence[str], *, config: str | None = None, model: str | None = None, release: str | None = None
) -> Postmortem:
    """What each server start in a log (or in several) did over time, and which limit bound when; see ``kvdiag postmortem``."""
    from kvdiag.pipeline import postmortem

    return Postmortem(postmortem(_paths(log), config=config, model=model, release=release))


def parse_line(text: str, release: str | None = None) -> dict[str, Any] | None:
    """The family, fields and rank of one record of a log (it may hold several lines), None where no rule knows it.

    What a log is wrapped in (a container's or shipper's prefix, colours, JSON) is taken off first.

    Fields are the printed values, ``units`` names their units, ``meanings`` says what each tells in the releases that
    print the line; ``families`` has the other families whose subject the line is too. With `release`, only lines that
    release prints count.
    """
    from kvdiag.lines import read_records
    from kvdiag.lines.families import families
    from kvdiag.reading.unwrap import Unwrapper
    from kvdiag.releases import only, parse_ranges, published_release

    stated = only(published_release(release)) if release is not None else None
    unwrapper = Unwrapper()
    lines = (line for number, raw in enumerate(text.split("\n"), 1) for line in unwrapper.lines(number, raw, cut=False))
    for record in read_records(lines):
        printed = parse_ranges(", ".join(variant.releases for variant in record.variants)) if record.variants else None
        if record.family is None or printed is None or (stated is not None and not printed & stated):
            continue
        meaning = families()[record.family].meanings
        return {
            "family": record.family,
            "families": list(record.families),
            "fields": {name: value.plain for name, value in record.values.items()},
            "units": {name: value.unit for name, value in record.values.items()},
            "meanings": {
                name: "; or: ".join(entry.meaning for entry in meaning(name, stated or printed)) for name in record.values
            },
            "rank": str(record.rank) or None,
        }
    return None


def size(
    *,
    config: str | Mapping[str, Any] | None = None,
    model: str | None = None,
    release: str,
    args: Mapping[str, Any] | None = None,
    available_gpu_memory: float | None = None,
    pre_model_load_memory: float | None = None,
    gpu: str | None = None,
    gpu_mem_mib: int | None = None,
    compute_capability: tuple[int, int] | None = None,
    draft_config: str | Mapping[str, Any] | None = None,
    env: Mapping[str, str] | None = None,
) -> Sizing:
    """The sizing of a config (path or dict), or of a `model` of the catalogue or the Hugging Face cache, by `release`.

    Memories are GiB, taken as exact; `env` is what of the server's environment changes sizes.

    The GPU (a name of the catalogue, or MiB and compute capability) decides defaults that `args` leave open. An argument name
    or value that the release does not take is an error that says which.
    """
    from kvdiag.sizing.request import requested_device, requested_size

    device = requested_device(gpu, gpu_mem_mib, compute_capability)
    memory = (available_gpu_memory, pre_model_load_memory)
    given = dict(args or {})
    model_config: Config | None = config
    if config is None:
        from kvdiag.models.find import find_config

        model_config = find_config(name=model)
        given.setdefault("model_path", model)
    if model_config is None:
        raise ConfigError("kvdiag.size needs a config (path or dict) or a model (a name of the catalogue)")
    sized = requested_size(model_config, release, given, memory, device, draft_config, env)
    return Sizing(**values_of(sized))


def timeline(log: str | Sequence[str]) -> pandas.DataFrame:
    """The scheduler lines of a log (or of several) as a table: a row a batch line, columns named as the log names its fields.

    Besides the fields that some line has: ``log``, ``start`` (0 for the first server start), ``family``, ``time`` (naive, as
    SGLang prints no zone; a log without dates counts from 1970-01-01), ``rank`` and its tags, ``line``, and ``offset`` (the
    byte the line begins at); where known, ``role`` (``prefill`` or ``decode``, of a disaggregated pair) and ``stream`` (the
    wrapper's name for the server). The types are Arrow's.
    """
    from kvdiag.rows.frame import frame

    return frame(_paths(log))


def _paths(log: str | Sequence[str]) -> list[str]:
    return [str(log)] if isinstance(log, (str, os.PathLike)) else [str(path) for path in log]
