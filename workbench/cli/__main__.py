"""`python -m workbench.cli`: the command line without the installed script."""

from __future__ import annotations

from workbench.cli.entry import main

main()
