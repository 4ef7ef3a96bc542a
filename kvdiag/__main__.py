"""``python -m kvdiag``."""

from kvdiag.cli.main import main

main()
