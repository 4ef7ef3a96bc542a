"""Sizes of files, functions and rules against the bars the project set itself: ``python bench/sizes.py`` prints the page.

A function's lines are those of its statement without its docstring; a rule's file counts whole.
"""

from __future__ import annotations

import ast
import io
import statistics
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
_Function = ast.FunctionDef | ast.AsyncFunctionDef

FILE_BARS = (120, 300, 500)
FUNCTION_BARS = (8, 30, 60)
RULE_BAR = 80


def functions(tree: ast.AST) -> Iterator[_Function]:
    """All functions in a module, nested ones too."""
    return (node for node in ast.walk(tree) if isinstance(node, _Function))


def public_functions(tree: ast.AST) -> Iterator[_Function]:
    """Functions of a module and methods of its classes whose names, and classes' names, are public."""
    for node in ast.iter_child_nodes(tree):
        if not isinstance(node, (_Function, ast.ClassDef)) or node.name.startswith("_"):
            continue
        if isinstance(node, ast.ClassDef):
            yield from public_functions(node)
        else:
            yield node


def length(function: _Function) -> int:
    """Lines from ``def`` to the end, less the docstring's."""
    first = function.body[0]
    lines = (function.end_lineno or function.lineno) - function.lineno + 1
    if ast.get_docstring(function, clean=False) is not None:
        lines -= (first.end_lineno or first.lineno) - first.lineno + 1
    return lines


def comments(text: str) -> int:
    """Lines that a comment stands on."""
    kinds = tokenize.generate_tokens(io.StringIO(text).readline)
    return len({token.start[0] for token in kinds if token.type == tokenize.COMMENT})


def spread(values: list[int]) -> tuple[int, int, int]:
    """Median, ninth decile and largest."""
    return round(statistics.median(values)), round(statistics.quantiles(values, n=10)[8]), max(values)


def measured() -> dict[str, tuple[int, int, int]]:
    """Median, ninth decile and maximum of the lines of files and of functions."""
    texts = _texts()
    files = [text.count("\n") for path, text in texts.items() if not path.endswith("__init__.py")]
    lines = [length(function) for text in texts.values() for function in functions(ast.parse(text))]
    return {"files": spread(files), "functions": spread(lines)}


def page() -> str:
    """The page of the documentation."""
    texts = _texts()
    trees = {path: ast.parse(text) for path, text in texts.items()}
    files = {path: text.count("\n") for path, text in texts.items() if not path.endswith("__init__.py")}
    found = [(length(function), path, function) for path, tree in trees.items() for function in functions(tree)]
    rules = {
        path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8").count("\n")
        for folder in ("findings", "numbers")
        for path in sorted((ROOT / "rules" / folder).glob("*.toml"))
    }
    annotated = sum(function.returns is not None for _, _, function in found) / len(found)
    public = [function for tree in trees.values() for function in public_functions(tree)]
    documented = sum(ast.get_docstring(function) is not None for function in public) / len(public)
    commented = sum(map(comments, texts.values())) / sum(text.count("\n") for text in texts.values())
    rows = [
        _row(f"lines of a file ({len(files)})", spread(list(files.values())), FILE_BARS),
        _row(f"lines of a function ({len(found)})", spread([lines for lines, _, _ in found]), FUNCTION_BARS),
        _row(f"lines of a finding's or number's rule ({len(rules)})", spread(list(rules.values())), (None, None, RULE_BAR)),
    ]
    long_files = [f"| `{path}` | {lines} |" for path, lines in files.items() if lines > FILE_BARS[1]]
    long_functions = [
        f"| `{path}` | `{function.name}` | {lines} |" for lines, path, function in found if lines > FUNCTION_BARS[1] + 10
    ]
    long_rules = [f"| `{path}` | {lines} |" for path, lines in rules.items() if lines > RULE_BAR]
    return "\n".join(
        [
            "# Sizes",
            "",
            "`python bench/sizes.py` prints this page, made anew with the site; tests/test_sizes.py holds the bars.",
            "",
            "| what | median | bar | ninth decile | bar | largest | bar |",
            "|---|---|---|---|---|---|---|",
            *rows,
            "",
            f"Functions with an annotated result: {annotated:.0%} (bar 100%). "
            f"Public functions with a docstring: {documented:.0%}. "
            f"Lines with a comment: {commented:.1%} (bar 1% to 4%; docstrings carry most of the words here).",
            *_outliers(f"Files over {FILE_BARS[1]} lines", "| file | lines |", long_files),
            *_outliers(f"Functions over {FUNCTION_BARS[1] + 10} lines", "| file | function | lines |", long_functions),
            *_outliers(f"Rules over {RULE_BAR} lines", "| file | lines |", long_rules),
            "",
            "The long rules are numbers: one entry for each step and each release that moved it. To cut such a file by release "
            "would spread one number over several places, so they stay whole; findings keep the bar.",
            "",
        ]
    )


def _texts() -> dict[str, str]:
    return {
        path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in sorted((ROOT / "kvdiag").rglob("*.py"))
    }


def _row(what: str, measured: tuple[int, int, int], bars: tuple[int | None, int | None, int | None]) -> str:
    cells = " | ".join(f"{value} | {'-' if bar is None else bar}" for value, bar in zip(measured, bars, strict=True))
    return f"| {what} | {cells} |"


def _outliers(title: str, head: str, rows: list[str]) -> list[str]:
    return ["", f"## {title}", "", head, "|" + "---|" * (head.count("|") - 1), *rows] if rows else []


if __name__ == "__main__":
    print(page(), end="")
