"""`what-if lr`: the learning rate at another batch."""

from __future__ import annotations

from typing import Any, cast

import click

from workbench.advisor.rate import OPTIMIZERS, RULES, RateRequest, advise_rate
from workbench.cli.options import example, json_option
from workbench.cli.printing import make_console, print_json
from workbench.run.words import format_number

_positive = click.FloatRange(min=0, min_open=True)
_decay = click.FloatRange(min=0, max=1, max_open=True)


@click.command("lr")
@click.option("--optimizer", type=click.Choice(OPTIMIZERS, case_sensitive=False), required=True)
@click.option("--lr", type=_positive, required=True, help="The learning rate that is right at --from-batch.")
@click.option("--from-batch", type=click.IntRange(min=1), required=True, help="Samples per step so far.")
@click.option("--to-batch", type=click.IntRange(min=1), required=True, help="Samples per step from now on.")
@click.option("--rule", type=click.Choice(RULES), default="auto", show_default=True,
              help="auto: by optimizer and direction.")  # fmt: skip
@click.option("--noise-scale", type=_positive, metavar="SAMPLES",
              help="The measured gradient noise scale; adascale needs it, others are checked.")  # fmt: skip
@click.option("--warmup", type=click.FloatRange(0, 1), metavar="PART",
              help="The part of the training that is warm-up at --from-batch.")  # fmt: skip
@click.option("--beta1", type=_decay, default=0.9, show_default=True, help="Of optimizers of the Adam type.")
@click.option(
    "--beta2", type=_decay, default=0.999, show_default=True, help="Of optimizers of the Adam type."
)
@json_option
@example(
    "workbench what-if lr --optimizer sgd --lr 0.1 --from-batch 256 --to-batch 8192",
    "workbench what-if lr --optimizer adamw --lr 3e-4 --from-batch 128 --to-batch 1024 --rule sqrt --json",
)
def what_if_lr(as_json: bool, **asked: Any) -> None:
    """Carry a learning rate from one global batch to another.

    The warm-up is a part of the training: 0.05 is its first twentieth.
    """
    advice = advise_rate(RateRequest(**{**asked, "optimizer": cast(str, asked["optimizer"]).lower()}))
    if as_json:
        print_json({"lr": advice.lr, "rule": advice.rule, "warmup": advice.warmup, "reason": advice.reason})
        return
    from workbench.cli.reading import make_table

    facts = make_table(show_header=False)
    facts.add_row("learning rate", format_number(advice.lr))
    facts.add_row("rule", advice.rule)
    facts.add_row("warm-up", f"{advice.warmup:.3g} of the training")
    make_console().print(facts)
    click.echo(f"\n{advice.reason}")
