"""The answers of ``kvdiag source`` for a terminal and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Any

from kvdiag.reports.paint import Paint
from kvdiag.reports.safe import inert_json, safe

Answer = dict[str, Any]
_MOST_NAMED = 8


def render_json(answer: Answer) -> str:
    """The JSON text of an answer."""
    return inert_json(answer) + "\n"


def render(answer: Answer, *, width: int = 100, colour: bool = False) -> str:
    """An answer as text of at most `width` columns, code lines aside."""
    paint = Paint(colour, width)
    return (
        "\n".join([_tree_line(answer, paint), *_damaged(answer, paint), *_body(answer, paint), *_skipped(answer, paint)]) + "\n"
    )


def _damaged(answer: Answer, paint: Paint) -> Iterator[str]:
    for told in answer.get("damaged", ()):
        yield from paint.wrap(safe(told) + ".")


def _body(answer: Answer, paint: Paint) -> Iterator[str]:
    if "changes" in answer:
        return _changes(answer, paint)
    if "path" in answer:
        return _path(answer, paint)
    if "bindings" in answer:
        return _line(answer, paint)
    return _numbers(answer, paint)


def _tree_line(answer: Answer, paint: Paint) -> str:
    release = answer.get("release")
    doubt = "" if answer.get("release_confidence") == "stated" else f", {answer.get('release_confidence')}"
    told = (
        f"SGLang {release} (by {answer.get('release_by')}{doubt})" if release else f"release unknown: {answer.get('release_by')}"
    )
    revision = f" at {answer['revision'][:12]}" if answer.get("revision") else ""
    return paint.bold(safe(f"{answer['tree']}: {answer['kind']}{revision}, {told}"))


def _numbers(answer: Answer, paint: Paint) -> Iterator[str]:
    yield ""
    for item in answer["numbers"]:
        others = f" (also {', '.join(item['aliases'])})" if item["aliases"] else ""
        yield paint.bold(item["number"]) + safe(f": {item['title']}{others}")


def _path(answer: Answer, paint: Paint) -> Iterator[str]:
    yield ""
    unit = f", in {answer['unit']}" if answer["unit"] else ""
    yield paint.bold(safe(f"{answer['number']}: {answer['title']}{unit}"))
    yield from paint.wrap(safe(answer["meaning"]))
    for (step, explains, when), places in groupby(answer["path"], lambda item: (item["step"], item["explains"], item["when"])):
        yield ""
        yield paint.bold(safe(step + (f" [{when}]" if when else "")))
        yield from paint.wrap(safe(explains), "  ")
        for _, statements in groupby(places, lambda item: (item["file"], item["symbol"])):
            yield from _place(list(statements), paint)
    if not answer["path"]:
        yield "No step of this number's path is in this tree."
    for missing in answer["missing"]:
        yield from paint.wrap("not found: " + safe(missing))


def _place(statements: list[Answer], paint: Paint) -> Iterator[str]:
    first = statements[0]
    doubt = "" if first["confidence"] == "certain" else f"   ({first['confidence']})"
    yield "  " + paint.colour(safe(first["file"]), "cyan") + f"  {safe(first['symbol'])}{doubt}"
    for item in statements:
        under = f"   if {item['condition']}" if item["condition"] else ""
        yield f"  {item['line']:>6}  {safe(item['expression'])}{paint.dim(safe(under))}"
        if item.get("evaluated"):
            yield f"          = {safe(item['evaluated'])}"


def _changes(answer: Answer, paint: Paint) -> Iterator[str]:
    against = answer["against"]
    yield ""
    old = against["release"] or against["tag"] or against["revision"] or against["tree"]
    at = f" at {against['revision'][:12]}" if against["revision"] else ""
    yield paint.bold(safe(f"{answer['number']}: what is different from {against['tree']}{at} ({old})"))
    if not answer["changes"]:
        yield from paint.wrap(
            f"Nothing in the {len(answer['path'])} statements of the path, their conditions, the functions they stand in, "
            f"and the {answer['reached']} definitions that these need."
        )
        yield from paint.wrap(safe(_not_followed(answer["not_followed"])))
    for change in answer["changes"]:
        yield ""
        yield from paint.wrap(safe(change["sentence"]))
        for mark, texts, other in (("-", change["before"], "after"), ("+", change["after"], "before")):
            for text in texts:
                if text not in change[other]:
                    yield paint.colour(safe(f"  {mark} {text}"), "red" if mark == "-" else "green")


def _not_followed(names: list[str]) -> str:
    if not names:
        return ""
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return f"Not compared, as they belong to other objects: {', '.join(names[:_MOST_NAMED])}{more}."


def _line(answer: Answer, paint: Paint) -> Iterator[str]:
    yield ""
    if not answer["statement"]:
        yield from paint.wrap("No statement of this tree prints this line; is the tree the release that wrote it?")
        return
    candidates = answer["candidates"]
    tied = [item for item in candidates if item["confidence"] == candidates[0]["confidence"]]
    if candidates[0]["confidence"] == "possible":
        yield f"{len(tied)} statements print such a line alike; the log does not tell which:"
    for item in tied:
        place = paint.colour(safe(f"{item['file']}:{item['line']}"), "cyan")
        yield f"{place}  {safe(item['symbol'])}   ({item['kind']}, {item['confidence']})"
    yield from paint.wrap(safe(tied[0]["template"]), "  ")
    if len(tied) > 1:
        yield from paint.wrap(f"The values as the first of them has them, {tied[0]['file']}:{tied[0]['line']}:")
    for bound in answer["bindings"]:
        yield ""
        yield paint.bold(safe(f"{bound['value'] or '(nothing)'}")) + safe(f"  is {bound['name']}")
        for origin in bound["defined_at"]:
            doubt = "" if origin["confidence"] == "certain" else f"   ({origin['confidence']})"
            yield "  " * origin["depth"] + safe(f"{origin['file']}:{origin['line']}  {origin['expression']}{doubt}")


def _skipped(answer: Answer, paint: Paint) -> Iterator[str]:
    passed = answer.get("skipped") or {"count": 0}
    if passed["count"]:
        samples = ", ".join(f"{item['file']} ({item['reason']})" for item in passed["samples"])
        yield ""
        yield from paint.wrap(safe(f"{passed['count']} files were not read: {samples}"))
