"""The forms of this room: a start without what changes from run to run, and a difference between two of them."""

from __future__ import annotations

from typing import Any

from kvdiag.frozen import field, frozen, mutable
from kvdiag.quantity import Interval


@frozen
class Stated:
    """A number (or word) that the ranks named in `ranks` all state alike; `line` is the first line that does."""

    name: str
    role: str | None
    ranks: tuple[str, ...]
    value: Interval | str
    line: int


@frozen
class Checked:
    """The verdict on one number over all ranks (the worst one), with what it was recomputed to and by which formula.

    `line` is that of the number. `contradiction` is the log's value and the recomputed one of a rank where the two disagree;
    `missing` is what an unknown one lacks. A baseline file keeps neither.
    """

    name: str
    role: str | None
    verdict: str
    recomputed: Interval | None
    formula: str
    line: int
    contradiction: tuple[Interval, Interval] | None = None
    missing: tuple[str, ...] = ()


@frozen
class Shape:
    """A line with its values left out.

    `family` is None where no rule knows the line; `stage` is ``start`` for lines of the start-up, ``load`` for those
    that come with requests; `error` says that it reads like a failure.
    """

    text: str
    family: str | None
    stage: str
    error: bool
    line: int


@frozen
class Snapshot:
    """What a baseline keeps of a start: nothing in it depends on time, host, path, process, load or order of ranks."""

    release: tuple[str, str] | None
    model: dict[str, str]
    arguments: dict[str, Any]
    arguments_line: int
    ready: bool
    numbers: tuple[Stated, ...]
    checks: tuple[Checked, ...]
    findings: tuple[str, ...]
    """Codes of the findings that are errors."""
    shapes: tuple[Shape, ...]

    @property
    def ranks(self) -> list[str]:
        """Every rank that states a number."""
        return sorted({rank for number in self.numbers for rank in number.ranks})

    @property
    def on_shared_memory(self) -> bool:
        """Whether free memory is the machine's, which other programs change from one reading to the next."""
        return self.arguments.get("device") in ("cpu", "mps", "mlx")

    @property
    def failed(self) -> bool:
        """Whether the log tells that the server did not come up: it lacks the word of it, and has that of a failure."""
        return not self.ready and (bool(self.findings) or any(shape.error for shape in self.shapes))

    def find(self, name: str, role: str | None = None) -> list[Stated]:
        """The numbers of that name, and the further ones of it (``name[2]``); with `role` those of that model, or of none."""
        further = f"{name}["
        return [
            n for n in self.numbers if (n.name == name or n.name.startswith(further)) and (role is None or n.role in (role, None))
        ]

    def check(self, name: str) -> Checked | None:
        """The verdict on a number, None where it was not checked."""
        return next((check for check in self.checks if check.name == name and check.role in (None, "target")), None)


@frozen
class Drift:
    """One difference between baseline and log, or one thing the policy does not allow.

    `reason` says why as far as the two can tell; `lines` and `baseline_lines` are where the values stand. A drift that
    only `follows` from another is a note; one that is `noise` fails nothing and is reported apart, with its reason.
    """

    code: str
    level: str
    subject: str
    message: str
    reason: str = ""
    before: Interval | str | None = None
    after: Interval | str | None = None
    ranks: tuple[str, ...] = ()
    role: str | None = None
    baseline_lines: tuple[int, ...] = ()
    lines: tuple[int, ...] = ()
    follows: str = ""
    noise: bool = False
    suppressed: str = ""

    @property
    def name(self) -> str:
        """What the drift is about, with the role where there is one."""
        return f"{self.subject} ({self.role})" if self.role == "draft" else self.subject


@mutable
class Outcome:
    """The answer of a check: `drifts` in order of weight, `noise` and `suppressed` apart, and whether it failed.

    `accepted`: all of it went into the baseline, so that nothing fails.
    """

    log: str
    drifts: list[Drift] = field(default_factory=list)
    noise: list[Drift] = field(default_factory=list)
    suppressed: list[Drift] = field(default_factory=list)
    failed: bool = False
    accepted: bool = False
    fail_on: str = "error"
    passed: tuple[str, ...] = ()
