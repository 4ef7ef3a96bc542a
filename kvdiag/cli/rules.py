"""``kvdiag rules``: the rules, their documentation, and their embedded samples run as tests."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from kvdiag.cli.output import deliver
from kvdiag.errors import ExitCode, UnknownWordError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``kvdiag rules``."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION")
    actions.add_parser("list", help="every rule with its title (what happens without an action)")
    show = actions.add_parser("show", help="the documentation of one rule or several")
    show.add_argument("codes", nargs="+", metavar="CODE", help="a code, or the name of a family of lines such as kv-alloc")
    test = actions.add_parser("test", help="run the samples embedded in the rules")
    test.add_argument(
        "folder", nargs="?", metavar="DIR", help="a folder of your own rules, tested together with the shipped ones"
    )


def run(arguments: argparse.Namespace) -> int:
    """Lists, shows or tests rules; a sample that fails is exit code 1."""
    if arguments.action == "show":
        deliver("\n\n".join(_show(code).rstrip("\n") for code in arguments.codes) + "\n", None)
        return ExitCode.DONE
    if arguments.action == "test":
        return _test(arguments.folder)
    deliver("\n".join(_list()) + "\n", None)
    return ExitCode.DONE


def _list() -> Iterator[str]:
    from kvdiag.rulerooms import rooms

    for name, room in rooms().items():
        entries = room.entries()
        width = max((len(entry.code) for entry in entries), default=0)
        yield f"{name} ({len(entries)})"
        for entry in entries:
            yield f"  {entry.code:{width}}  {entry.title}"


def _show(code: str) -> str:
    from difflib import get_close_matches

    from kvdiag.rulerooms import rooms

    known: list[str] = []
    for room in rooms().values():
        codes = [entry.code for entry in room.entries()]
        found = next((each for each in codes if each.casefold() == code.casefold()), None)
        if found is not None:
            return room.show(found)
        known += codes
    begun = [each for each in known if code and each.casefold().startswith(code.casefold())]
    near = begun[:3] or get_close_matches(code, known, 3)
    hint = f"did you mean {', '.join(near)}?" if near else "kvdiag rules list names them all"
    raise UnknownWordError(f"{code!r} is no rule; {hint}")


def _test(folder: str | None) -> int:
    from kvdiag import rulebook
    from kvdiag.rulerooms import rooms

    if folder is not None:
        rulebook.add_folder(folder)
    tested = failed = 0
    lines: list[str] = []
    for name, room in rooms().items():
        results = list(room.test())
        wrong = [result for result in results if result.wrong]
        lines += [f"{result.where}: {result.wrong}" for result in wrong]
        lines.append(f"{name}: {len(results)} samples, {len(wrong)} failed")
        tested, failed = tested + len(results), failed + len(wrong)
    deliver("\n".join(lines) + "\n", None)
    return ExitCode.CHECK_FAILED if failed or not tested else ExitCode.DONE
