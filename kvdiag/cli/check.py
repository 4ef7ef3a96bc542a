"""``kvdiag check``: the gate for pipelines, a log against a baseline and a policy."""

from __future__ import annotations

import argparse
import sys
from importlib import import_module
from typing import TYPE_CHECKING

from kvdiag.cli.arguments import add_model_arguments, add_output, one_log
from kvdiag.cli.output import deliver, terminal
from kvdiag.errors import ExitCode, InputError

if TYPE_CHECKING:
    from kvdiag.gate import Observation, Outcome

FORMATS = ("text", "json", "sarif", "junit", "github")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``kvdiag check``."""
    parser.add_argument("log", metavar="LOG", help="log file, or - for standard input")
    parser.add_argument("--baseline", metavar="FILE", help="baseline that `kvdiag baseline` wrote")
    parser.add_argument("--policy", metavar="FILE", help="policy (TOML): what may change and what must hold")
    parser.add_argument("--format", choices=FORMATS, default="text", help="default: %(default)s")
    add_output(parser)
    parser.add_argument("--fail-on", choices=("note", "warning", "error"), default="error", help="default: %(default)s")
    parser.add_argument("--select", metavar="CODES", default="", help="only these diagnostics (prefixes, comma between)")
    parser.add_argument("--ignore", metavar="CODES", default="", help="not these diagnostics (prefixes, comma between)")
    parser.add_argument("--update", action="store_true", help="rewrite the baseline from the log; prints what it accepted")
    parser.add_argument("--exit-zero", action="store_true", help="exit 0 even where the check failed")
    add_model_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Compares the last start of the log, and says whether it failed."""
    from kvdiag.gate import check, observe, read_baseline
    from kvdiag.gate.policy import read_policy
    from kvdiag.gate.verdict import Options

    if arguments.update and not arguments.baseline:
        raise InputError("--update needs --baseline FILE: the file to rewrite")
    if arguments.update and (arguments.select or arguments.ignore):
        raise InputError("--update takes the whole start into the baseline: leave out --select and --ignore")
    options = Options(arguments.fail_on, _codes(arguments.select), _codes(arguments.ignore))
    policy = read_policy(arguments.policy) if arguments.policy else None
    baseline = read_baseline(arguments.baseline) if arguments.baseline else None
    if baseline is None:
        sys.stderr.write("kvdiag: no --baseline: nothing is compared, the start is judged by its own findings\n")
    log = one_log(arguments.log)
    observed = observe(log, config=arguments.config, model=arguments.model, release=arguments.release)
    outcome = check(observed, baseline, policy, options)
    if not arguments.update:
        deliver(_render(outcome, arguments), arguments.output)
        return ExitCode.CHECK_FAILED if outcome.failed and not arguments.exit_zero else ExitCode.DONE
    changes = check(observed, baseline)
    came_up = not any(drift.code == "KD133" and drift.level == "error" for drift in changes.drifts)
    outcome.accepted, outcome.failed = came_up, outcome.failed and not came_up
    deliver(_render(outcome, arguments), arguments.output)
    if not came_up:
        raise InputError(
            f"{arguments.baseline}: left as it was: the server of the log did not come up, so its start is none to compare with"
        )
    _update(observed, changes, arguments.baseline)
    return ExitCode.DONE


def _codes(text: str) -> tuple[str, ...]:
    """Code prefixes of a comma-separated list. Raises InputError for one that no diagnostic begins with."""
    found = tuple(part.strip().upper() for part in text.split(",") if part.strip())
    if found:
        from kvdiag.checks.findings import rules
        from kvdiag.gate.codes import codes

        known = (*codes(), *(rule.code for rule in rules()))
        for prefix in found:
            if not any(code.startswith(prefix) for code in known):
                raise InputError(
                    f"no diagnostic or finding begins with {prefix!r}; there are {', '.join(codes())}, "
                    "and the findings that kvdiag rules list has"
                )
    return found


def _render(outcome: Outcome, arguments: argparse.Namespace) -> str:
    if arguments.format == "json":
        from kvdiag.reports.gate_json import render as render_json

        return render_json(outcome, arguments.baseline, arguments.policy) + "\n"
    if arguments.format == "text":
        from kvdiag.reports.gate_text import render as render_text

        return render_text(outcome, **terminal(arguments.output))
    return str(import_module(f"kvdiag.reports.{arguments.format}").render(outcome))


def _update(observed: Observation, outcome: Outcome, baseline: str) -> None:
    """Rewrites the baseline; `outcome` is of no policy, as the file takes in all that changed, allowed or suppressed or not."""
    from kvdiag.gate import write_baseline
    from kvdiag.reports.safe import safe

    deliver(write_baseline(observed.snapshot), baseline)
    for drift in outcome.drifts:
        print(f"accepted {drift.code} {safe(drift.message)}", file=sys.stderr)
    noise = f", and {len(outcome.noise)} that are noise" if outcome.noise else ""
    print(f"kvdiag: {baseline} rewritten, {len(outcome.drifts)} changes accepted{noise}", file=sys.stderr)
