"""`what-if adapter`: which learning rate and rank suit a low-rank adapter."""

from __future__ import annotations

from pathlib import Path

import click

from workbench.cli.declarations import takes
from workbench.cli.options import example
from workbench.cli.output import make_console, print_json, print_note
from workbench.cli.parameters import JSON, MEASURED, POINTS
from workbench.foundation.formatting import format_number


@click.command("adapter")
@takes(POINTS(is_required=True), MEASURED, JSON)
@example(
    "workbench what-if adapter --points adapters.csv --json",
    "workbench what-if adapter --points adapters.csv --measured trained.csv",
)
def what_if_adapter(points: Path, measured: Path | None, as_json: bool) -> None:
    """Predict which learning rate and rank suit a low-rank adapter of a language model.

    The file of points has the columns parameters_b, active_b, base, learning_rate and rank, and
    optionally model. The measured file also has test_nll, the test loss in nats per token. nan or a
    loss above 2 means that the training diverged. Without a measured file, the law that is included
    answers. It was fitted to 18 models that were trained with alpha 32.

    parameters_b and active_b are billions of parameters: all, and those that one token uses. base
    is true if the model was only pretrained. Without model, rows with the same parameters_b,
    active_b and base are one model.

    excess_nll is the test loss minus the lowest that the model reaches at any learning rate, at
    ranks up to the highest of its rows. The row with the lowest value is the one to choose. 90 % of
    the trainings that do not diverge should be between low and high. diverges is a probability.
    """
    from workbench.advisor.adapter_rates import predict_adapters

    requested, predictions = predict_adapters(points, measured)
    if as_json:
        print_json({"points": [prediction._asdict() for prediction in predictions]})
        return
    from workbench.cli.output import make_table

    table = make_table(
        "model", "learning rate", "rank", "excess loss", "low", "high", "diverges", ""
    )
    best: dict[object, float] = {}
    for point, prediction in zip(requested, predictions, strict=True):
        lowest = best.get(point.model_key, prediction.excess_nll)
        best[point.model_key] = min(lowest, prediction.excess_nll)
    for point, prediction in zip(requested, predictions, strict=True):
        is_best = prediction.excess_nll == best[point.model_key]
        table.add_row(
            point.model or f"{format_number(point.parameters_b)}B",
            format_number(point.learning_rate),
            str(point.rank),
            *(f"{value:.4f}" for value in prediction[:3]),
            f"{prediction.diverges:.0%}",
            "best" if is_best else "",
        )
    make_console().print(table)
    print_note("excess loss is in nats per token, above the lowest that the model reaches.")
