"""The reference pages: Markdown made from the rules and the command line, so that they cannot differ from them."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from kvdiag import rulebook
from kvdiag.checks import documentation as findings
from kvdiag.cli import schema
from kvdiag.cli.main import COMMANDS, command_parser
from kvdiag.gate import documentation as drift
from kvdiag.lines.families import Family, families
from kvdiag.lines.words import words
from kvdiag.sizing.environment import SWITCHES
from kvdiag.source.anchors import NumberRule, number_rules


def reference_pages() -> dict[str, str]:
    """Path within the site to Markdown text, for every generated page."""
    pages = {
        "reference/commands.md": _commands(),
        "reference/lines.md": _line_index(),
        "reference/models.md": _models(),
        "reference/gpus.md": _gpus(),
        "reference/findings.md": _finding_index(),
        "reference/numbers.md": _number_index(),
        "reference/drift.md": _drift(),
        "reference/schemas.md": _schema_index(),
        "reference/environment.md": _environment(),
        "reference/words.md": _words(),
        "reference/sizes.md": _bench("sizes").page(),
    }
    for family in families().values():
        pages[f"reference/lines/{family.name}.md"] = "\n".join(_line_family(family)) + "\n"
    for entry in findings.entries():
        pages[f"reference/findings/{entry.code}.md"] = findings.show(entry.code) + "\n"
    for rule in number_rules().values():
        pages[f"reference/numbers/{rule.number}.md"] = "\n".join(_number(rule)) + "\n"
    for name in schema.names():
        pages[f"reference/schemas/{name}.md"] = _schema(name)
    return pages


def _bench(name: str) -> ModuleType:
    """A script of bench/, which is not part of the package."""
    spec = importlib.util.spec_from_file_location(f"kvdiag_bench_{name}", Path(__file__).parent.parent / "bench" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _commands() -> str:
    parts = ["# Commands", "", "Exit codes: 0 done; 1 a check failed; 2 unusable command or input; 3 no SGLang line; 70 a bug."]
    for name in COMMANDS:
        parts += ["", f"## kvdiag {name}", "", "```text", command_parser(name).format_help().rstrip(), "```"]
    return "\n".join(parts) + "\n"


def _environment() -> str:
    rows = [f"| `{name}` | {switch.releases} | {_cell(switch.words)} |" for name, switch in SWITCHES.items()]
    head = [
        "# Switches of SGLang's environment",
        "",
        "Server arguments are in the log; these switches change sizes and are not. `size`, `whatif` and `explain` take them as",
        "`--env NAME=VALUE`, `kvdiag.size` and `kvdiag.explain` as `env`; other names are refused. Where a log's figures fit",
        "only with one of them, a check says so and stays unknown.",
        "",
        "| switch | releases | what it changes |",
        "|---|---|---|",
    ]
    return "\n".join([*head, *rows]) + "\n"


def _words() -> str:
    head = ["# Words of the reports", "", "`kvdiag what WORD` tells them in the terminal."]
    parts = [["", f"## {word.names[0]}", "", *_also(word.names[1:]), word.meaning] for word in words()]
    return "\n".join([*head, *(line for part in parts for line in part)]) + "\n"


def _also(names: tuple[str, ...]) -> list[str]:
    return [f"Also: {', '.join(names)}.", ""] if names else []


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


def _finding_index() -> str:
    head = ["# Findings", "", "What `kvdiag explain` and `kvdiag postmortem` can say of a server.", ""]
    rows = [f"| [{e.code}](findings/{e.code}.md) | {e.group} | {_cell(e.title)} |" for e in findings.entries()]
    return "\n".join([*head, "| code | level | name |", "|---|---|---|", *rows]) + "\n"


def _number_index() -> str:
    head = [
        "# Numbers",
        "",
        "Where SGLang computes each number, by symbol and release.",
        "",
        "| number | unit | what |",
        "|---|---|---|",
    ]
    rows = [f"| [{r.number}](numbers/{r.number}.md) | {_cell(r.unit)} | {_cell(r.title)} |" for r in number_rules().values()]
    return "\n".join([*head, *rows]) + "\n"


def _number(rule: NumberRule) -> Iterator[str]:
    yield from (f"# {rule.title}", "", f"`{rule.number}`, in {rule.unit}. {rule.meaning}", "")
    if rule.aliases:
        yield from ("Also asked for as " + ", ".join(f"`{alias}`" for alias in rule.aliases) + ".", "")
    yield from (f"`kvdiag source TREE {rule.number}` shows the statements in the tree at hand.", "")
    for step in rule.steps:
        when = f" ({step.when})" if step.when else ""
        yield from (f"## {step.step}{when}", "", step.explains, "", "| releases | file | symbol |", "|---|---|---|")
        places = dict.fromkeys((anchor.releases, anchor.file, anchor.symbol) for anchor in step.anchors)
        for releases, file, symbol in places:
            yield f"| {_cell(releases)} | `{file}` | `{symbol}` |"
        yield ""


def _drift() -> str:
    head = ["# Drift", "", "What `kvdiag check` and `kvdiag diff` can report. A code, once given, keeps its meaning."]
    shown = ["#" + drift.show(entry.code) for entry in drift.entries()]
    return "\n\n".join(["\n".join(head), *shown]) + "\n"


def _schema_index() -> str:
    head = ["# JSON Schemas", "", "`kvdiag schema NAME` prints them.", "", "| schema | of |", "|---|---|"]
    rows = [f"| [{name}](schemas/{name}.md) | {_cell(_schema_document(name)['title'])} |" for name in schema.names()]
    return "\n".join([*head, *rows]) + "\n"


def _schema_document(name: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((Path(schema.FOLDER) / f"{name}.json").read_text(encoding="utf-8"))
    return document


def _schema(name: str) -> str:
    document = _schema_document(name)
    required = set(document.get("required", ()))
    parts = [f"# {document['title']}", "", "| key | always there |", "|---|---|"]
    parts += [f"| `{key}` | {'yes' if key in required else 'no'} |" for key in document.get("properties", {})]
    parts += ["", "```json", json.dumps(document, indent=2, ensure_ascii=False), "```"]
    return "\n".join(parts) + "\n"
