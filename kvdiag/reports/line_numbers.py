"""Lines of a log, told shortly."""

from __future__ import annotations

from collections.abc import Iterable


def line_numbers(lines: Iterable[int], most: int | None = None) -> str:
    """The numbers in their order, three and more that follow each other as ``18 to 33``; `...` where more than `most` are cut."""
    runs: list[list[int]] = []
    for line in lines:
        if runs and line == runs[-1][1] + 1:
            runs[-1][1] = line
        else:
            runs.append([line, line])
    told = [text for first, last in runs for text in _run(first, last)]
    cut = most is not None and len(told) > most
    return ", ".join([*told[:most], "..."] if cut else told)


def _run(first: int, last: int) -> list[str]:
    return [f"{first} to {last}"] if last - first >= 2 else [str(line) for line in range(first, last + 1)]
