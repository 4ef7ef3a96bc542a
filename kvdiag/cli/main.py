"""Entry point: loads only the command that was asked for, and turns errors into messages and exit codes."""

from __future__ import annotations

import argparse
import gc
import os
import sys
from importlib import import_module

from kvdiag.cli.usage import Parser
from kvdiag.errors import ExitCode, KvdiagError, install_extra

COMMANDS = {
    "explain": "what every number of the start-up means, whether it is right, and what limits the server",
    "postmortem": "what happened over time, and which limit bound when",
    "what": "what a field of a log means, or what a pasted line says word by word",
    "whatif": "the log's own server with other arguments: its predicted capacity",
    "size": "the arithmetic alone, without a log: bytes a token, pools and request slots of a config on a release",
    "timeline": "the scheduler lines as a table",
    "watch": "follow a growing log",
    "fleet": "many logs, here or on object storage: one table and one report",
    "baseline": "write what a start is now, as the file that check compares with",
    "diff": "what differs between two starts, side by side, and how the change of capacity splits into causes",
    "rules": "the rules, their documentation, and their embedded samples run as tests",
    "check": "compare a start with a baseline and a policy, and fail where it drifted: the gate for pipelines",
    "schema": "the JSON Schemas of what kvdiag writes and reads",
    "completion": "the completion script of a shell (bash, zsh, fish)",
    "source": "the code path behind a number or a log line, and what changed in it between two trees",
}
"""Command name to its line in the help; the module ``kvdiag.cli.<name>`` has ``add_arguments`` and ``run``."""


INTERRUPTED = 130
"""What shells report for a process ended by Ctrl-C."""
TERMINATED = 143
"""What shells report for a process ended by SIGTERM."""


class _Terminated(KeyboardInterrupt):
    """SIGTERM, by which service managers and pods end a process: what Ctrl-C keeps and clears away, it does too."""


def main(arguments: list[str] | None = None) -> None:
    """Runs kvdiag with `arguments` (the process's own by default) and ends the process with the contract's exit code."""
    gc.set_threshold(100_000, 50, 50)
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # no matrix is multiplied here, but its threads would wait for one
    given = sys.argv[1:] if arguments is None else arguments
    try:
        if arguments is None and given[:1] != ["explain"]:  # which keeps nothing, and whose start is not to wait for an import
            _heed_termination()
        sys.exit(_run(given))
    except KvdiagError as error:
        _say(str(error))
        sys.exit(error.exit_code)
    except ModuleNotFoundError as error:
        _say(_missing(error))
        sys.exit(ExitCode.INTERNAL if (error.name or "kvdiag").startswith("kvdiag") else ExitCode.UNUSABLE)
    except BrokenPipeError:
        from kvdiag.cli.output import discard_stdout

        discard_stdout()
        sys.exit(ExitCode.DONE)
    except KeyboardInterrupt as interrupt:
        sys.exit(TERMINATED if isinstance(interrupt, _Terminated) else INTERRUPTED)
    except Exception as error:
        _say(_fault(error))
        sys.exit(ExitCode.INTERNAL)
    finally:
        if arguments is None:
            _leave_all_to_the_system()


def _heed_termination() -> None:
    import signal

    def end(_number: int, _frame: object) -> None:
        raise _Terminated

    if signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
        signal.signal(signal.SIGTERM, end)


def _leave_all_to_the_system() -> None:
    """Keeps the interpreter from searching what is left for cycles when it ends: a tenth of explaining a small log."""
    gc.freeze()
    gc.disable()


def build_parser(only: str | None = None) -> argparse.ArgumentParser:
    """The parser of the whole command line; with `only`, of that one command, which is all that it can be given."""
    parser = Parser(
        prog="kvdiag",
        description="What every number of an SGLang server's log means, and whether it is right.",
    )
    parser.add_argument("--version", action="store_true", help="print the version")
    parser.add_argument("--rules", metavar="DIR", help="a folder of your own rules (DIR/lines/*.toml), beside the shipped ones")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    for name in COMMANDS if only is None else (only,):
        command = commands.add_parser(name, help=COMMANDS[name], description=_sentence(COMMANDS[name]))
        command.add_argument("--rules", metavar="DIR", default=argparse.SUPPRESS, help=argparse.SUPPRESS)
        import_module(f"kvdiag.cli.{name}").add_arguments(command)
    return parser


def command_parser(name: str) -> argparse.ArgumentParser:
    """The parser of one command, for its manual page."""
    parser = Parser(prog=f"kvdiag {name}", description=_sentence(COMMANDS[name]))
    import_module(f"kvdiag.cli.{name}").add_arguments(parser)
    return parser


def _sentence(line: str) -> str:
    return line[0].upper() + line[1:] + "."


def _command_in(given: list[str]) -> str | None:
    """The command that `given` names for certain: its first word, or the one after ``--rules DIR``."""
    first = given[2:3] if given[:1] == ["--rules"] else given[:1]
    return first[0] if first and first[0] in COMMANDS else None


def _run(given: list[str]) -> int:
    parser = build_parser(_command_in(given))
    parsed = parser.parse_args(given)
    if parsed.version:
        from kvdiag import __version__

        print(f"kvdiag {__version__}")
        return ExitCode.DONE
    if parsed.command is None:
        parser.print_help()
        return ExitCode.UNUSABLE
    if parsed.rules is not None:
        from kvdiag import rulebook

        rulebook.add_folder(parsed.rules)
    return int(import_module(f"kvdiag.cli.{parsed.command}").run(parsed))


def _say(message: str) -> None:
    from kvdiag.reports.safe import safe

    print(f"kvdiag: {safe(message)}", file=sys.stderr)


def _missing(error: ModuleNotFoundError) -> str:
    """What to install: kvdiag also runs without its dependencies, as far as a command needs none."""
    module = (error.name or "kvdiag").partition(".")[0]
    if module == "kvdiag":
        return _fault(error)
    if module.lstrip("_") in sys.stdlib_module_names:
        return f"this needs {module}, which this Python was built without; use a Python that has it ({sys.executable})"
    if module in ("pyarrow", "pandas"):
        return f"this needs {module}, which is not installed; {install_extra('table')}"
    package = {"git": "gitpython", "gitdb": "gitpython"}.get(module, module.replace("_", "-"))
    return f"this needs {package}, which is not installed; pip install {package} (or kvdiag with its dependencies)"


def _fault(error: Exception) -> str:
    frame = error.__traceback__
    while frame is not None and frame.tb_next is not None:
        frame = frame.tb_next
    place = f"{os.path.basename(frame.tb_frame.f_code.co_filename)}:{frame.tb_lineno}" if frame else "?"
    return (
        f"an internal fault ({type(error).__name__} at {place}: {str(error)[:200]}); this is a bug in kvdiag, please report it "
        "with this line and, if you can share it, the input"
    )
