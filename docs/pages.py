"""The reference pages: Markdown made from the rules and the command line, so that they cannot differ from them."""

from __future__ import annotations

from collections.abc import Iterator

from kvdiag import rulebook
from kvdiag.cli.main import COMMANDS, command_parser
from kvdiag.lines.families import Family, families


def reference_pages() -> dict[str, str]:
    """Path within the site to Markdown text, for every generated page."""
    pages = {
        "reference/commands.md": _commands(),
        "reference/lines.md": _line_index(),
        "reference/models.md": _models(),
        "reference/gpus.md": _gpus(),
    }
    for family in families().values():
        pages[f"reference/lines/{family.name}.md"] = "\n".join(_line_family(family)) + "\n"
    return pages


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _commands() -> str:
    parts = ["# Commands", "", "Exit codes: 0 done; 1 a check failed; 2 unusable command or input; 3 no SGLang line; 70 a bug."]
    for name in COMMANDS:
        parts += ["", f"## kvdiag {name}", "", "```text", command_parser(name).format_help().rstrip(), "```"]
    return "\n".join(parts) + "\n"


def _line_index() -> str:
    rows = [f"| [{f.name}](lines/{f.name}.md) | {_cell(f.title)} | {len(f.variants)} |" for f in families().values()]
    head = ["# Line families", "", "What SGLang prints, by family.", "", "| family | what | variants |", "|---|---|---|"]
    return "\n".join([*head, *rows]) + "\n"


def _line_family(family: Family) -> Iterator[str]:
    yield from (f"# {family.title}", "", f"Family `{family.name}`. {family.meaning}", "")
    if family.notes:
        yield from (family.notes, "")
    if family.fields:
        yield from ("| field | unit | meaning |", "|---|---|---|")
        for name, meanings in family.fields.items():
            for meaning in meanings:
                releases = f" ({meaning.releases})" if meaning.releases else ""
                yield f"| `{_cell(name)}` | {_cell(meaning.unit)} | {_cell(meaning.meaning)}{releases} |"
        yield ""
    yield from ("## Variants", "")
    for variant in family.variants:
        yield from (f"{variant.releases}", "", "```text", variant.template, "```", "")


def _models() -> str:
    rows = []
    for document in rulebook.load("models"):
        for entry in document.get("model", ()):
            kind = ", ".join(entry["config"].get("architectures", ()))
            rows.append(f"| {_cell(', '.join(entry['names']))} | {_cell(kind)} | {_cell(entry['source'])} | {entry['date']} |")
    head = ["# Models in the catalogue", "", f"{len(rows)} models.", "", "| names | class | source | date |", "|---|---|---|---|"]
    return "\n".join([*head, *rows]) + "\n"


def _gpus() -> str:
    rows = []
    for document in rulebook.load("gpus"):
        for entry in document.get("gpu", ()):
            names = entry.get("names") or [entry.get("name", "")]
            memory, capability = entry.get("memory_mib", ""), entry.get("compute_capability", "")
            rows.append(f"| {_cell(', '.join(names))} | {memory} | {capability} | {_cell(entry.get('vendor', ''))} |")
    head = ["# GPUs by name", "", "| names | memory in MiB | compute capability | vendor |", "|---|---|---|---|"]
    return "\n".join([*head, *rows]) + "\n"
