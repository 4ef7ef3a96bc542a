"""The policy file: what may change, what must hold, what is known; read from TOML with the place of every mistake."""

from __future__ import annotations

import datetime
import re
import tomllib
from collections.abc import Collection, Mapping
from difflib import get_close_matches
from fnmatch import fnmatchcase
from fractions import Fraction
from typing import Any

from kvdiag.checks.findings import rules as finding_rules
from kvdiag.errors import PolicyError, ReleaseError
from kvdiag.frozen import field, frozen
from kvdiag.gate.codes import LEVELS, argument_names, codes, number_names
from kvdiag.releases import parse_ranges
from kvdiag.small import small_text

_LARGEST = 1 << 20
_ADVICE = "a policy is a TOML file, see kvdiag schema policy"
_DIRECTIONS = ("any", "up", "down")
_SLIP = 0.8
"""How alike (difflib's ratio) an unknown name and a known one are where the known one was meant."""
_WORDS = ("exact", "any", "default")
_KEYS: dict[str, dict[str, type | tuple[type, ...]]] = {
    "checks": {"required": list},
    "findings": {"allowed": list, "forbidden": list},
    "lines": {"unknown_budget": int, "accept": list},
    "arguments": {"required": dict, "ignore": list},
    "release": {"allowed": str},
}
_SECTIONS = (*_KEYS, "numbers", "levels", "suppress")


@frozen
class Allowance:
    """The change of a number that is allowed: none at all (`exact`), any, or up to a size in one or either direction."""

    exact: bool = False
    anything: bool = False
    absolute: Fraction | None = None
    relative: Fraction | None = None
    direction: str = "any"


@frozen
class Suppression:
    """A diagnostic that is known: its code, whom it concerns, why, and until when."""

    code: str
    subject: str
    reason: str
    until: datetime.date

    def covers(self, code: str, subject: str) -> bool:
        """Whether it is for that code and subject."""
        return code == self.code and fnmatchcase(subject, self.subject)


@frozen
class Policy:
    """What a check asks for beyond the defaults; the empty policy is the defaults."""

    path: str = ""
    numbers: Mapping[str, Allowance] = field(default_factory=dict)
    required_checks: tuple[str, ...] = ()
    allowed_findings: tuple[str, ...] = ()
    forbidden_findings: tuple[str, ...] = ()
    unknown_budget: int | None = None
    accepted_lines: tuple[str, ...] = ()
    required_arguments: Mapping[str, Any] = field(default_factory=dict)
    ignored_arguments: tuple[str, ...] = ()
    allowed_releases: str | None = None
    levels: Mapping[str, str] = field(default_factory=dict)
    suppressions: tuple[Suppression, ...] = ()

    def accepts_line(self, text: str) -> bool:
        """Whether a shape is one of the accepted ones; patterns have ``*`` and ``?`` (brackets are literal)."""
        return any(fnmatchcase(text, pattern.replace("[", "[[]")) for pattern in self.accepted_lines)


def read_policy(path: str) -> Policy:
    """The policy in the file at `path`. Raises PolicyError with path, line and column."""
    return parse_policy(small_text(path, _LARGEST, PolicyError, _ADVICE), path)


def parse_policy(text: str, path: str = "policy") -> Policy:
    """As `read_policy`, from the file's text."""
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise PolicyError(f"{path}:{_toml_place(error, text)}: not TOML: {_toml_message(error)}; {_ADVICE}") from None
    except (RecursionError, ValueError) as error:
        raise PolicyError(f"{path}:1:1: not TOML: {error}") from None
    return _Reader(text, path).policy(data)


def _toml_message(error: tomllib.TOMLDecodeError) -> str:
    return re.sub(r" \(at .*\)$", "", str(error))


def _toml_place(error: tomllib.TOMLDecodeError, text: str) -> str:
    found = re.search(r"at line (\d+), column (\d+)", str(error))
    if found:
        return f"{found[1]}:{found[2]}"
    lines = text.split("\n")
    return f"{len(lines)}:{len(lines[-1]) + 1}"


class _Reader:
    """Turns the tables of a policy into a Policy; every mistake is raised with the place of its key."""

    def __init__(self, text: str, path: str) -> None:
        self.lines = text.split("\n")
        self.path = path

    def fail(self, message: str, section: str, key: str = "") -> PolicyError:
        line, column = self.place(section, key)
        return PolicyError(f"{self.path}:{line}:{column}: {message}")

    def place(self, section: str, key: str) -> tuple[int, int]:
        """Line and column of a key within its section, as far as the text shows it."""
        head = re.compile(r"\s*\[\[?\s*" + re.escape(section) + r"\s*(?:\.|\])|\s*(" + re.escape(section) + r")\s*[.=]")
        word = re.compile(r"(?:^|[\s{,.\[\"'])(" + re.escape(key) + r")(?=[\"'\s=.\],}]|$)")
        start = next((n for n, line in enumerate(self.lines) if head.match(line)), None)
        if start is None:
            return 1, 1
        for number in range(start, len(self.lines)):
            found = word.search(self.lines[number]) if key else None
            if found and not self.lines[number].lstrip().startswith("#"):
                return number + 1, found.start(1) + 1
        return start + 1, len(self.lines[start]) - len(self.lines[start].lstrip()) + 1

    def policy(self, data: dict[str, Any]) -> Policy:
        for name, value in data.items():
            if name not in _SECTIONS:
                raise self.fail(f"no section [{name}]; there are {', '.join(_SECTIONS)}", name)
            if not isinstance(value, list if name == "suppress" else dict):
                raise self.fail(f"[{name}] must be {'tables: [[suppress]]' if name == 'suppress' else 'a table'}", name)
        for section, keys in _KEYS.items():
            self.known(section, data.get(section, {}), keys)
        lines, arguments = data.get("lines", {}), data.get("arguments", {})
        findings, release = data.get("findings", {}), data.get("release", {})
        return Policy(
            path=self.path,
            numbers={self.number(name): self.allowance(name, value) for name, value in data.get("numbers", {}).items()},
            required_checks=self.named("checks", "required", data.get("checks", {}), number_names()),
            allowed_findings=self.findings("allowed", findings),
            forbidden_findings=self.findings("forbidden", findings),
            unknown_budget=self.budget(lines.get("unknown_budget")),
            accepted_lines=self.texts("lines", "accept", lines),
            required_arguments=self.required(arguments.get("required", {})),
            ignored_arguments=self.named("arguments", "ignore", arguments, argument_names() if arguments else ()),
            allowed_releases=self.ranges(release.get("allowed")),
            levels=self.levels(data.get("levels", {})),
            suppressions=tuple(self.suppression(entry) for entry in data.get("suppress", ())),
        )

    def known(self, section: str, table: dict[str, Any], keys: Mapping[str, type | tuple[type, ...]]) -> None:
        for key, value in table.items():
            if key not in keys:
                raise self.fail(f"[{section}] has no key {key!r}; there are {', '.join(keys)}", section, key)
            kind = keys[key]
            if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
                named = kind.__name__ if isinstance(kind, type) else str(kind)
                words = {"list": "a list", "dict": "a table", "int": "a whole number", "str": "a text"}
                raise self.fail(f"{section}.{key} must be {words.get(named, named)}", section, key)

    def texts(self, section: str, key: str, table: dict[str, Any]) -> tuple[str, ...]:
        values = table.get(key, [])
        if not all(isinstance(value, str) for value in values):
            raise self.fail(f"{section}.{key} must hold texts only", section, key)
        return tuple(values)

    def number(self, name: str) -> str:
        """A name of a number, or of a further one of its kind (``name[2]``)."""
        self.no_slip(name.partition("[")[0], number_names(), "numbers", name)
        return name

    def no_slip(self, name: str, known: Collection[str], section: str, key: str) -> None:
        """Raises PolicyError for a name that is almost a known one; a wholly unknown one may be a fork's."""
        if name in known:
            return
        meant = get_close_matches(name, known, n=1, cutoff=_SLIP)
        if meant:
            raise self.fail(f"nothing is named {name!r}; is {meant[0]!r} meant?", section, key)

    def findings(self, key: str, table: dict[str, Any]) -> tuple[str, ...]:
        """Codes of findings, or beginnings of such."""
        known = [rule.code for rule in finding_rules()] if table else []
        for prefix in self.texts("findings", key, table):
            if not prefix or not any(code.startswith(prefix) for code in known):
                raise self.fail(f"no finding begins with {prefix!r}; kvdiag rules list has them", "findings", key)
        return self.texts("findings", key, table)

    def named(self, section: str, key: str, table: dict[str, Any], known: Collection[str]) -> tuple[str, ...]:
        """A list of names."""
        for name in self.texts(section, key, table):
            self.no_slip(name, known, section, key)
        return self.texts(section, key, table)

    def required(self, table: dict[str, Any]) -> dict[str, Any]:
        """Arguments by name, with the values they must have."""
        for name in table:
            self.no_slip(name, argument_names(), "arguments", name)
        return table

    def budget(self, value: Any) -> int | None:
        if isinstance(value, int) and value < 0:
            raise self.fail("lines.unknown_budget cannot be negative", "lines", "unknown_budget")
        return value if isinstance(value, int) else None

    def ranges(self, value: Any) -> str | None:
        if value is None:
            return None
        if value == "any":
            return "any"
        try:
            if not parse_ranges(value):
                raise self.fail(f"no published release lies in {value!r}", "release", "allowed")
        except ReleaseError as error:
            raise self.fail(f"release.allowed: {error}", "release", "allowed") from None
        return str(value)

    def levels(self, table: dict[str, Any]) -> dict[str, str]:
        for code, level in table.items():
            if code not in codes():
                raise self.fail(f"no diagnostic {code!r}; kvdiag check has {', '.join(codes())}", "levels", code)
            if level not in (*LEVELS, "off"):
                raise self.fail(f"the level of {code} must be note, warning, error or off, not {level!r}", "levels", code)
        return dict(table)

    def allowance(self, name: str, value: Any) -> Allowance:
        if isinstance(value, str):
            if value not in _WORDS:
                raise self.fail(f"numbers.{name} must be one of {', '.join(_WORDS)}, or a table", "numbers", name)
            return Allowance(exact=value == "exact", anything=value == "any")
        if not isinstance(value, dict):
            raise self.fail(f"numbers.{name} must be a word or a table like {{ relative = 0.02 }}", "numbers", name)
        for key in value:
            if key not in ("absolute", "relative", "direction"):
                raise self.fail(f"numbers.{name} has no key {key!r}; there are absolute, relative, direction", "numbers", key)
        direction = value.get("direction", "any")
        if direction not in _DIRECTIONS:
            raise self.fail(f"numbers.{name}.direction must be any, up or down", "numbers", "direction")
        return Allowance(
            absolute=self.size(name, "absolute", value), relative=self.size(name, "relative", value), direction=direction
        )

    def size(self, name: str, key: str, table: dict[str, Any]) -> Fraction | None:
        value = table.get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < float("inf"):
            raise self.fail(f"numbers.{name}.{key} must be a number that is not negative", "numbers", key)
        return Fraction(str(value)) if isinstance(value, float) else Fraction(value)

    def suppression(self, entry: Any) -> Suppression:
        if not isinstance(entry, dict):
            raise self.fail("suppress must be tables: [[suppress]]", "suppress")
        for key in entry:
            if key not in ("code", "subject", "reason", "until"):
                raise self.fail(f"[[suppress]] has no key {key!r}; there are code, subject, reason, until", "suppress", key)
        code, reason, until = entry.get("code"), entry.get("reason"), entry.get("until")
        if not isinstance(code, str) or code not in codes():
            raise self.fail(f"[[suppress]] needs the code of a diagnostic, not {code!r}", "suppress", "code")
        if not isinstance(reason, str) or not reason.strip():
            raise self.fail(f"the suppression of {code} needs a reason", "suppress", "reason" if "reason" in entry else str(code))
        if isinstance(until, datetime.datetime) or not isinstance(until, datetime.date):
            where = "until" if "until" in entry else str(code)
            raise self.fail(f"the suppression of {code} needs an end date: until = 2027-01-31", "suppress", where)
        return Suppression(str(code), str(entry.get("subject", "*")), reason.strip(), until)
