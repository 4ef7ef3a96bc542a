"""The line families as ``kvdiag rules`` lists, shows and tests them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kvdiag import rulebook
from kvdiag.lines.families import Family, Sample, check, families
from kvdiag.lines.matcher import match_message
from kvdiag.lines.template import Sequence
from kvdiag.lines.walk import match_beginning, match_template
from kvdiag.rulecheck import Place
from kvdiag.rulerooms import Entry, Tested


def entries() -> list[Entry]:
    """The families in the order of their names."""
    return [Entry(family.name, family.title, family.group) for family in families().values()]


def show(code: str) -> str:
    """What a family tells, its fields, and each wording with its releases and a sample."""
    return "\n".join(_lines(families()[code]))


def _lines(family: Family) -> Iterator[str]:
    yield from (f"# {family.name}: {family.title}", "", family.meaning)
    if family.notes:
        yield from ("", family.notes)
    if family.fields:
        yield from ("", "## Fields", "")
        for name, meanings in family.fields.items():
            for entry in meanings:
                releases = f" [{entry.releases}]" if entry.releases else ""
                yield f"- `{name}` ({entry.unit}){releases}: {entry.meaning}"
    yield from ("", "## Wordings")
    for variant in family.variants:
        also = f" (also {', '.join(variant.also)})" if variant.also else ""
        yield from ("", f"{variant.number}. {variant.releases}{also}", "", f"    {_indented(variant.template)}")
        for sample in variant.samples[:1]:
            yield from ("", f"    for example: {_indented(sample.text)}")


def _indented(text: str) -> str:
    return text.replace("\n", "\n    ")


def test() -> Iterator[Tested]:
    """Reads each sample with its own template and against all others."""
    for document in rulebook.load("lines"):
        place = Place.of(document)
        for number, (variant, sequence) in enumerate(zip(document["variant"], check(document), strict=True)):
            here = place.section("variant", number)
            for sample in variant.get("samples", ()):
                told = _wrong(document["family"], sequence, Sample(sample["text"], sample.get("fields", {})))
                yield Tested(f"{here.path}:{here.at('samples').line}", told)
            if not variant.get("samples"):
                yield Tested(f"{here.path}:{here.line}", "the variant has no sample")
            for name in _strangers(variant):
                yield Tested(f"{here.path}:{here.at('also').line}", f"there is no family {name!r}")


def _strangers(variant: dict[str, Any]) -> list[str]:
    return [name for name in variant.get("also", ()) if name not in families()]


def _wrong(family: str, sequence: Sequence, sample: Sample) -> str:
    """What is wrong with a sample, empty where nothing is."""
    own = match_template(sequence, sample.text)
    if own is None:
        fits = next(n for n in range(len(sample.text), -1, -1) if not n or match_beginning(sequence, sample.text[:n]))
        return f"its own template does not fit {sample.text!r} from column {fits + 1} on: {sample.text[fits : fits + 30]!r}"
    values = {name: printed for name, _, printed in own}
    if values != sample.fields:
        return f"the values are {values!r}, not {sample.fields!r}"
    match = match_message(sample.text)
    if match is None or match.family != family:
        return f"{sample.text!r} is taken by {match.family if match else 'no family'}"
    return ""
