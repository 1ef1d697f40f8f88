"""`python -m workbench`: the command line without the installed script."""

from __future__ import annotations

from workbench.cli import main

main()
