"""A start-up log is explained without loading what only other commands need."""

from __future__ import annotations

import subprocess
import sys

from tests.conftest import FIXTURES, ROOT

HEAVY = {"pandas", "numpy", "pyarrow", "tree_sitter", "git", "rich", "zstandard", "fsspec", "jinja2"}


def test_explain_of_a_small_log_loads_no_heavy_library():
    log = FIXTURES / "real" / "0.5.22-qwen3-tp2-bind" / "server.log"
    code = (
        "import sys; sys.argv = ['kvdiag', 'explain', sys.argv[1]]\n"
        "from kvdiag.cli.main import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print('LOADED', *sorted({name.split('.')[0] for name in sys.modules}))"
    )
    done = subprocess.run([sys.executable, "-c", code, str(log)], capture_output=True, text=True, cwd=ROOT, timeout=60)
    loaded = done.stdout.rsplit("LOADED", 1)[1].split()
    assert "kvdiag" in loaded
    assert not HEAVY & set(loaded)
