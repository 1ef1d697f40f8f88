"""Commands about machines to rent. They rent nothing, and load neither torch nor Ray."""

from __future__ import annotations

import click

from workbench.cli.lazy_groups import LazyGroup
from workbench.cli.options import example

COMMANDS = {
    "plan": "workbench.cli.cluster_plan:plan",
    "clouds": "workbench.cli.cluster_plan:clouds",
    "template": "workbench.cli.cluster_template:template",
    "simulate": "workbench.cli.cluster_simulate:simulate_cluster",
}


@click.group(
    "cluster",
    cls=LazyGroup,
    table=COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@example(
    "workbench cluster plan mine.yaml --time 6h --money 40USD",
    "workbench cluster template slurm mine.yaml --environment /shared/venv",
)
def cluster() -> None:
    """Compare machines to rent, and write files for their launchers.

    Also simulates a shared cluster.
    """
