"""`what-if exchange`: predicts the seconds per step of every way in which replicas can agree."""

from __future__ import annotations

from functools import partial

import click

from workbench.cli.options import (
    attach_newest,
    example,
    json_option,
    run_argument,
    store_option,
)
from workbench.cli.output import make_console, print_json, print_note
from workbench.foundation.formatting import format_bytes, format_duration


@click.command("exchange")
@run_argument
@store_option
@json_option
@example("workbench what-if exchange last")
def what_if_exchange(run_id: str, as_json: bool) -> None:
    """Predict the seconds per step of every exchange, from the links that `workbench advise`
    measured.

    All-reduces of a few sizes show what the links between the workers carry; what each exchange
    sends and computes is known for the model. 90 % of the steps should lie between low and high. A
    faster step is not a faster training: with an approximate exchange more steps are needed, so
    race it before you use it. RUN is as in other commands, but "last" is the newest run that
    measured links.
    """
    from workbench.advisor.exchange_forecast import forecast_exchanges, has_swept_links
    from workbench.runs.what_if import measurements_of, newest_measured

    run = attach_newest(run_id, partial(newest_measured, is_usable=has_swept_links))
    found = forecast_exchanges(measurements_of(run))
    if as_json:
        print_json(
            {
                "exchanges": [
                    {
                        "exchange": each.exchange,
                        "plan": each.plan.describe(),
                        "sent_bytes": each.sent_bytes,
                        "step_time_s": each.step_time_s.value,
                        "low_s": each.step_time_s.low,
                        "high_s": each.step_time_s.high,
                        "is_exact": each.is_exact,
                        "is_measured": each.is_measured,
                    }
                    for each in found
                ]
            }
        )
        return
    from workbench.cli.output import make_table

    table = make_table("exchange", "step", "low", "high", "sent per step", "result", "")
    for each in found:
        step = each.step_time_s
        table.add_row(
            each.exchange,
            *(format_duration(value) for value in (step.value, step.low, step.high)),
            format_bytes(each.sent_bytes),
            "exact" if each.is_exact else "approximate",
            "measured" if each.is_measured else "predicted",
        )
    make_console().print(table)
    click.echo(f"\nIn a step of {found[0].plan.batch_text} samples.")
    print_note(
        "an approximate exchange needs more steps to the same loss: search it to have it raced"
    )
