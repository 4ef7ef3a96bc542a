"""The pre-commit hook: checks each log that is committed against the baseline beside it."""

from __future__ import annotations

import os
import sys

from kvdiag.cli.main import main
from kvdiag.errors import ExitCode

BESIDE = ".baseline.json"
"""What is added to a log's path to name its baseline."""


def check_all(paths: list[str]) -> int:
    """The exit code of ``kvdiag check`` over all `paths`: the worst one; a file that is no SGLang log is passed over."""
    worst = 0
    for path in paths:
        beside = path + BESIDE
        baseline = ["--baseline", beside] if os.path.exists(beside) else []
        try:
            main(["check", path, *baseline])
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else ExitCode.DONE
            worst = max(worst, 0 if code == ExitCode.NOT_SGLANG else code)
    return worst


if __name__ == "__main__":
    sys.exit(check_all(sys.argv[1:]))
