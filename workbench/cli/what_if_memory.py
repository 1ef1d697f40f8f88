"""`what-if memory`: predicts the peak memory of a device by plan."""

from __future__ import annotations

from pathlib import Path

import click

from workbench.cli.options import example, json_option
from workbench.cli.output import make_console, print_json
from workbench.foundation.formatting import format_number

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_COLUMNS = (
    "layers, hidden, feed_forward, vocabulary, sequence, nodes, replicas, stages, tensor, zero, "
    "micro_batch, accumulation"
)
_SHOWN = (
    ("layers", "hidden"),
    ("replicas", "stages", "tensor", "zero", "micro_batch", "accumulation"),
)


@click.command("memory")
@click.option(
    "--measured",
    type=_FILE,
    required=True,
    help=f"Read measured peaks from this CSV file: {_COLUMNS}, memory_gb.",
)
@click.option(
    "--points",
    type=_FILE,
    required=True,
    help="Predict the plans of this CSV file: the same columns without memory_gb.",
)
@json_option
@example("workbench what-if memory --measured measured.csv --points plans.csv --json")
def memory(measured: Path, points: Path, as_json: bool) -> None:
    """Predict the peak memory of a device from measured peaks, also of models that were never run.

    Only memory_gb is required; a column that lacks is 1, 0 for zero, or unknown for the model. zero
    is what replicas share: 1 the optimizer's state, 2 gradients too, 3 parameters too. feed_forward
    is the width of the feed-forward part. 90 % of the peaks should be between low and high. A point
    is extrapolated if a number is more than twice as far as any that was measured, or if no
    measured plan divides what it divides.
    """
    from workbench.advisor.plan_tables import predict_peaks

    plans, predictions = predict_peaks(measured, points)
    if as_json:
        print_json({"points": [prediction._asdict() for prediction in predictions]})
        return
    from workbench.cli.output import make_table

    of_model, of_plan = _SHOWN
    table = make_table(
        *(name.replace("_", " ") for name in (*of_model, *of_plan)), "memory", "low", "high", ""
    )
    for plan, prediction in zip(plans, predictions, strict=True):
        sizes = [getattr(plan.shape, name) for name in of_model]
        table.add_row(
            *("?" if size is None else str(size) for size in sizes),
            *(format_number(getattr(plan, name)) for name in of_plan),
            *(f"{format_number(round(gb, 2))} GB" for gb in prediction[:3]),
            "extrapolated" if prediction.extrapolated else "",
        )
    make_console().print(table)
