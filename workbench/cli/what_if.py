"""Commands that predict a run from measurements. They do not load torch or Ray."""

from __future__ import annotations

import warnings

import click

from workbench.cli.lazy_groups import LazyGroup
from workbench.cli.options import example
from workbench.cli.output import print_note

QUESTIONS = {
    "step-time": "workbench.cli.what_if_step_time:step_time",
    "memory": "workbench.cli.what_if_memory:memory",
    "capacity": "workbench.cli.what_if_memory:what_if_capacity",
    "plan": "workbench.cli.what_if_plan:what_if_plan",
    "exchange": "workbench.cli.what_if_step_time:what_if_exchange",
    "scale": "workbench.cli.what_if_plan:what_if_scale",
    "batch": "workbench.cli.what_if_batch:what_if_batch",
    "budget": "workbench.cli.what_if_batch:what_if_budget",
    "lr": "workbench.cli.what_if_batch:what_if_lr",
    "fine-tuning": "workbench.cli.what_if_fine_tuning:what_if_fine_tuning",
    "adapter": "workbench.cli.what_if_fine_tuning:what_if_adapter",
    "ladder": "workbench.cli.what_if_fine_tuning:what_if_ladder",
}


@click.group(
    "what-if",
    cls=LazyGroup,
    table=QUESTIONS,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@example("workbench what-if lr --optimizer adamw --lr 3e-4 --from-batch 128 --to-batch 1024")
@click.pass_context
def what_if(context: click.Context) -> None:
    """Predict from measurements, without training.

    You can ask about another plan, step times, memory, more workers, the best batch size, the
    learning rate, or the next run.
    """
    context.with_resource(warnings.catch_warnings())
    warnings.simplefilter("always", UserWarning)  # about columns of a table that are not read
    warnings.showwarning = lambda message, *_where: print_note(str(message))
