"""Commands that answer from files what a run would find: nothing is run, torch and Ray are not loaded."""

from __future__ import annotations

import click

from workbench.cli.options import example


@click.group("what-if", context_settings={"help_option_names": ["-h", "--help"]})
@example("workbench what-if lr --optimizer adamw --lr 3e-4 --from-batch 128 --to-batch 1024")
def what_if() -> None:
    """Answer from measurements in files: step times, the best batch, a learning rate, the next run."""
