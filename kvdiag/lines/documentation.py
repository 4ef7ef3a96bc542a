"""The line families as ``kvdiag rules`` lists, shows and tests them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
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
    if family.group:
        yield from ("", f"Group: {family.group}")
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
    documents = rulebook.load("lines")
    shipped = {document["family"]: document for document in documents if rulebook.is_shipped(document)}
    for document in documents:
        place = Place.of(document)
        if not rulebook.is_shipped(document):
            yield from _slips(document, shipped)
        for number, (variant, sequence) in enumerate(zip(document["variant"], check(document), strict=True)):
            here = place.section("variant", number)
            for sample in variant.get("samples", ()):
                told = _wrong(document["family"], sequence, Sample(sample["text"], sample.get("fields", {})))
                yield Tested(f"{here.path}:{here.at('samples').line}", told)
            if not variant.get("samples"):
                yield Tested(f"{here.path}:{here.line}", "the variant has no sample")
            for name in _strangers(variant):
                yield Tested(f"{here.path}:{here.at('also').line}", f"there is no family {name!r}")


def _slips(document: dict[str, Any], shipped: Mapping[str, dict[str, Any]]) -> Iterator[Tested]:
    """Names of a user's file that are nearly those of a shipped family: nothing would be made of their values."""
    place, name = Place.of(document), document["family"]
    if name not in shipped:
        near = get_close_matches(name, shipped, 1, 0.85)
        if near:
            told = f"there is no family {name!r}; did you mean {near[0]!r}? A family of your own needs a name less like it"
            yield Tested(f"{place.path}:{place.at('family').line}", told)
        return
    known = shipped[name].get("fields", {})
    for field in document.get("fields", {}):
        near = [] if field in known else get_close_matches(field, known, 1, 0.75)
        if near:
            told = f"{name} has no field {field!r}; did you mean {near[0]!r}? Numbers are made of the family's own fields only"
            yield Tested(f"{place.path}:{place.at(field).line}", told)


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
