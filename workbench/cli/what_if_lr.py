"""`what-if lr`: scales a learning rate to another batch."""

from __future__ import annotations

import dataclasses
from typing import Any, cast

import click

from workbench.advisor.rate import OPTIMIZERS, RULES, RateRequest, advise_rate
from workbench.cli.options import Count, FiniteRange, example, json_option
from workbench.cli.output import make_console, print_json
from workbench.foundation.formatting import format_number, format_percent

_positive = FiniteRange(min=0, min_open=True)
_decay = FiniteRange(min=0, max=1, max_open=True)


@click.command("lr")
@click.option("--optimizer", type=click.Choice(OPTIMIZERS, case_sensitive=False), required=True)
@click.option(
    "--lr",
    type=_positive,
    required=True,
    help="Scale this learning rate, which is right at --from-batch.",
)
@click.option(
    "--from-batch",
    type=Count(min=1),
    required=True,
    help="Scale from this global batch, in samples per step.",
)
@click.option(
    "--to-batch",
    type=Count(min=1),
    required=True,
    help="Scale to this global batch, in samples per step.",
)
@click.option(
    "--rule",
    type=click.Choice(RULES),
    default="auto",
    show_default=True,
    help="Use this scaling rule; auto chooses by optimizer and direction.",
)
@click.option(
    "--noise-scale",
    type=_positive,
    metavar="SAMPLES",
    help="Set the measured gradient noise scale: adascale needs it, other rules are checked.",
)
@click.option(
    "--warmup",
    type=FiniteRange(0, 1),
    metavar="FRACTION",
    help="Set the fraction of the training that is warm-up at --from-batch.",
)
@click.option(
    "--beta1",
    type=_decay,
    default=0.9,
    show_default=True,
    help="Set beta1 of Adam-type optimizers.",
)
@click.option(
    "--beta2",
    type=_decay,
    default=0.999,
    show_default=True,
    help="Set beta2 of Adam-type optimizers.",
)
@json_option
@example(
    "workbench what-if lr --optimizer sgd --lr 0.1 --from-batch 256 --to-batch 8192",
    "workbench what-if lr --optimizer adamw --lr 3e-4 --from-batch 128 --to-batch 1024 --rule sqrt"
    " --json",
)
def what_if_lr(as_json: bool, **arguments: Any) -> None:
    """Scale a learning rate from one global batch to another.

    The warm-up is a fraction of the training: 0.05 is the first 5 %. The rate is extrapolated at
    more than 32 times the batch, for lamb 64 times, less than the same part of it, or far above the
    noise scale: there no rule was tried.
    """
    advice = advise_rate(
        RateRequest(**{**arguments, "optimizer": cast(str, arguments["optimizer"]).lower()})
    )
    if as_json:
        print_json(dataclasses.asdict(advice))
        return
    from workbench.cli.output import make_table

    facts = make_table(show_header=False)
    beyond = ", extrapolated" * advice.extrapolated
    facts.add_row("learning rate", format_number(advice.lr) + beyond)
    facts.add_row("rule", advice.rule)
    facts.add_row("warm-up", f"{format_percent(advice.warmup)} of the training")
    make_console().print(facts)
    click.echo(f"\n{advice.reason}")
