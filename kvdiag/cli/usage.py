"""The parsers of the command line: what was typed wrongly is said in two lines, with the nearest thing that would be right."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

from kvdiag.cli.output import terminal


class Help(argparse.HelpFormatter):
    """Help as wide as the terminal, without the import of shutil that argparse makes for its own reading of the width."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=terminal(None)["width"] - 2)


class _Once(argparse.Action):
    """Stores one value; another value for the same option is an error, because nobody sees which of the two counted."""

    def __call__(self, parser: Any, namespace: argparse.Namespace, values: Any, option_string: str | None = None) -> None:
        kept: dict[str, Any] = parser.stored
        before = kept.setdefault(self.dest, values)
        if option_string is not None and before is not values and before != values:
            parser.error(f"{option_string} is given twice: {before} and {values}")
        setattr(namespace, self.dest, values)


class Parser(argparse.ArgumentParser):
    """A parser that answers itself for what it cannot take; parsers of commands are of its kind too."""

    def __init__(self, **options: Any) -> None:
        super().__init__(formatter_class=Help, **options)
        self._given: list[str] = []
        self.stored: dict[str, Any] = {}
        for action in (None, "store"):
            self.register("action", action, _Once)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        """As argparse's, but nothing is left over: words that nobody takes are an error of this parser, not of its parent."""
        self._given = list(args or ())
        self.stored = {}
        found, left = super().parse_known_args(args, namespace)
        if left:
            self.error(f"there is no place for {' '.join(left)}")
        return found, left

    def error(self, message: str) -> NoReturn:
        """Ends the process with the message, what to type instead, and exit code 2."""
        from kvdiag.reports.safe import safe

        unknown = self._unknown_option()
        told = self._about(unknown) if unknown else self._choice(message) or self._missing(message) or _value(message)
        self.exit(2, f"{self.prog}: {safe(told)}\nusage: {self._short()}; {self.prog} --help has every option\n")

    def _unknown_option(self) -> str | None:
        """The first word that looks like an option and is none, before a ``--``."""
        words = self._given[: self._given.index("--")] if "--" in self._given else self._given
        names = [word.partition("=")[0] for word in words if re.match(r"--?[A-Za-z]", word)]
        known = self._option_string_actions
        return next((name for name in names if name not in known and not self._shortened(name)), None)

    def _shortened(self, name: str) -> bool:
        """Whether it begins an option's name, or is a one-letter option with more behind it (``-ofile``, ``-qv``)."""
        if name.startswith("--"):
            return any(option.startswith(name) for option in self._option_string_actions)
        return name[:2] in self._option_string_actions

    def _about(self, option: str) -> str:
        if self._commands():
            return f"there is no option {option} before the command; options of a command stand behind it"
        if "--mem-fraction-static" in self._option_string_actions:
            from kvdiag.cli.server_arguments import unsized

            if told := unsized(option):
                return told
        near = nearest(option, [name for name in self._option_string_actions if name.startswith("--")])
        takes_text = any(action.metavar == "TEXT" and not action.option_strings for action in self._actions)
        as_text = f" (to give it as text: {self.prog} -- {option})" if takes_text else ""
        return f"there is no option {option}" + (near or as_text)

    def _choice(self, message: str) -> str | None:
        """What to choose from, told alike by every Python."""
        wrong = re.match(r"argument (.*?): invalid choice: (.*?) \(", message)
        action = next((one for one in self._actions if wrong and wrong[1] in (_name(one), one.metavar)), None)
        if wrong is None or action is None:
            return None
        choices = [str(choice) for choice in action.choices or ()]
        typed = wrong[2].strip("'\"")
        return f"{_name(action)}: there is no {typed}{nearest(typed, choices)} (choose from {', '.join(choices)})"

    def _missing(self, message: str) -> str | None:
        wrong = re.match(r"the following arguments are required: (.*)", message)
        if wrong is None:
            return None
        helps = {_name(action): action.help for action in self._actions}
        return "; ".join(f"{name} is missing" + (f" ({helps[name]})" if helps.get(name) else "") for name in wrong[1].split(", "))

    def _commands(self) -> bool:
        return any(isinstance(action, argparse._SubParsersAction) for action in self._actions)

    def _short(self) -> str:
        """The usage without what may be left out."""
        if self.usage:
            return self.usage
        words = [self.prog]
        optional = False
        for action in self._actions:
            if action.option_strings and not action.required:
                optional |= not isinstance(action, argparse._HelpAction)
            else:
                words += [*action.option_strings[:1], *_values(action)]
        return " ".join([*words, "[OPTION ...]"] if optional and not self._commands() else words)


def nearest(typed: str, known: Iterable[str]) -> str:
    """``; did you mean X?`` for the known word that is most like what was typed, empty where none is."""
    from difflib import get_close_matches

    found = get_close_matches(typed, list(known), 1)
    return f"; did you mean {found[0]}?" if found else ""


def _value(message: str) -> str:
    """A value of the wrong kind, without argparse's word for it."""
    wrong = re.match(r"argument (.*?): (?:invalid (int|float) value: )?(.*)", message)
    if wrong is None:
        return message
    kind = {"int": " is no whole number", "float": " is no number", None: ""}[wrong[2]]
    return f"{wrong[1]}: {wrong[3]}{kind}"


def _name(action: argparse.Action) -> str:
    return "/".join(action.option_strings) or str(action.metavar or action.dest)


def _values(action: argparse.Action) -> Sequence[str]:
    name = str(action.metavar or action.dest.upper())
    return {"+": [name, f"[{name} ...]"], "?": [f"[{name}]"], argparse.PARSER: [name, "..."]}.get(str(action.nargs), [name])
