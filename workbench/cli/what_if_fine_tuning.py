"""`what-if fine-tuning` and `what-if adapter`: what a fine-tuning needs, and where to begin."""

from __future__ import annotations

from pathlib import Path

import click

from workbench.cli.declarations import takes
from workbench.cli.options import example
from workbench.cli.output import make_console, print_json, print_note
from workbench.cli.parameters import JSON, MEASURED, POINTS
from workbench.foundation.formatting import format_duration, format_number


@click.command("fine-tuning")
@takes(POINTS(is_required=True), MEASURED, JSON)
@example(
    "workbench what-if fine-tuning --points plans.csv --json",
    "workbench what-if fine-tuning --points plans.csv --measured measured.csv",
)
def what_if_fine_tuning(points: Path, measured: Path | None, as_json: bool) -> None:
    """Predict the memory and the time of fine-tuning a language model.

    The file of points has the column method: full, lora, qlora or another method of PEFT. All other
    columns are optional, and a missing one means that you do not know it: parameters_b, hidden,
    layers, heads, kv_heads, feed_forward, vocabulary, tied, rank, adapted, dora, autocast_adapter,
    weights, optimizer, recompute, sequence, micro_batch, gpus, gpu_memory_gb, trainable_parameters
    and total_parameters. adapted names the layers with an adapter, such as q_proj+v_proj. targets
    and batch are other names of adapted and micro_batch.

    The measured file also has memory_gb or memory_max_gb, and for times train_s and steps. It may
    have out_of_memory, for plans that did not fit gpu_memory_gb. Answers are in its unit. Without a
    measured file, the law that is included answers, in GB of 1e9 bytes and without times.

    90 % of the peaks should be between low and high. A plan fits if its memory is at most 94 % of
    gpu_memory_gb.
    """
    from workbench.advisor.fine_tuning_costs import predict_fine_tunings

    plans, predictions = predict_fine_tunings(points, measured)
    if as_json:
        print_json({"points": [prediction._asdict() for prediction in predictions]})
        return
    from workbench.cli.output import make_table

    table = make_table("method", "adapted", "micro batch", "memory", "low", "high", "step", "")
    for plan, prediction in zip(plans, predictions, strict=True):
        seconds = prediction.seconds_per_step
        table.add_row(
            plan.method,
            plan.adapted or "",
            "" if plan.micro_batch is None else format_number(plan.micro_batch),
            *(f"{value:.1f} GB" for value in prediction[:3]),
            "" if seconds is None else format_duration(seconds),
            {True: "fits", False: "does not fit", None: ""}[prediction.fits],
        )
    make_console().print(table)


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
