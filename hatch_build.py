"""Builds kvdiag/lines/kernel.c where there is a C compiler; without one the package works as well, only slower.

`python hatch_build.py` builds it in a checkout that is not installed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sysconfig
import zlib
from pathlib import Path
from typing import Any

try:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface
except ImportError:
    BuildHookInterface = object

FOLDER = Path(__file__).resolve().parent / "kvdiag" / "lines"


def build() -> Path | None:
    """The library, built if it was not; None where there is no compiler or it fails (that is no error)."""
    source = FOLDER / "kernel.c"
    target = FOLDER / f"_kernel-{zlib.crc32(source.read_bytes()):08x}.so"
    compiler = next((found for name in ("cc", "gcc", "clang") if (found := shutil.which(name))), None)
    if target.exists() or compiler is None or os.name != "posix":
        return target if target.exists() else None
    temporary = target.with_suffix(f".{os.getpid()}.tmp")
    done = subprocess.run([compiler, "-O2", "-shared", "-fPIC", "-o", temporary, source], check=False, capture_output=True)
    if done.returncode:
        return None
    temporary.replace(target)
    return target


class KernelHook(BuildHookInterface):  # type: ignore[misc]
    """Puts the built library into the wheel, which then is for this platform."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called by hatchling before a wheel is made."""
        del version
        if build() is not None:
            build_data["pure_python"] = False
            build_data["tag"] = f"py3-none-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"


if __name__ == "__main__":
    print(build() or "no C compiler: kvdiag reads big logs without it, more slowly")
