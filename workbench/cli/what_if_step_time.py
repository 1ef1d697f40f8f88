"""`what-if step-time`: predicts the step times of plans."""

from __future__ import annotations

from pathlib import Path

import click

from workbench.cli.options import example, json_option
from workbench.cli.output import make_console, print_json
from workbench.formatting import format_duration, format_number

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command("step-time")
@click.option("--measured", type=_FILE, required=True,
              help="Read measured steps from this CSV file: nodes, gpus, micro_batch, step_time_s "
              "[, gpus_per_node, sync_time_s].")  # fmt: skip
@click.option("--points", type=_FILE, required=True,
              help="Predict the plans of this CSV file: nodes, gpus, micro_batch "
              "[, gpus_per_node, accumulation].")  # fmt: skip
@json_option
@example("workbench what-if step-time --measured measured.csv --points plans.csv --json")
def step_time(measured: Path, points: Path, as_json: bool) -> None:
    """Predict seconds per training step of data-parallel plans from measured ones.

    micro_batch is samples per GPU; gpus_per_node is written 4+4; sync_time_s is the rest of a step after
    the last gradient was computed. 90 % of the steps should be between low and high. A point is extrapolated
    if no topology of its kind (one GPU, one node, two nodes, more) or no similar batch was measured.
    """
    from workbench.advisor.step_time_tables import predict_step_times, read_measured, read_points

    requested = read_points(points)
    predictions = predict_step_times(read_measured(measured), requested)
    if as_json:
        print_json({"points": [prediction._asdict() for prediction in predictions]})
        return
    from workbench.cli.output import make_table

    table = make_table("nodes", "gpus", "micro batch", "step", "low", "high", "")
    for point, prediction in zip(requested, predictions, strict=True):
        table.add_row(
            str(point.topology.num_nodes),
            str(point.topology.num_gpus),
            format_number(point.micro_batch),
            *(format_duration(seconds) for seconds in prediction[:3]),
            "extrapolated" if prediction.extrapolated else "",
        )
    make_console().print(table)
