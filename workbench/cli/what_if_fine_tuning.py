"""`what-if fine-tuning` and `what-if adapter`: what a fine-tuning needs, and where to begin."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from workbench.cli.declarations import takes
from workbench.cli.options import example
from workbench.cli.output import make_console, print_json, print_note
from workbench.cli.parameters import (
    ALPHA,
    FOLDER,
    GPU_MEMORY,
    JSON,
    MEASURED,
    METHOD,
    MICRO_BATCH,
    NUM_PARAMETERS,
    NUM_TOKENS,
    POINTS,
    RANK,
    RECOMPUTE,
    RUNS,
    SEQUENCE,
    STORED,
    TARGETS,
)
from workbench.foundation.formatting import compact_count, format_duration, format_number
from workbench.foundation.model_config import max_positions, read_model_config

if TYPE_CHECKING:
    from workbench.advisor.fine_tuning_costs import FineTuningPlan, FineTuningPrediction


_METHODS = ("full", "lora", "qlora")
_RANK, _TARGETS, _SEQUENCE = 16, "all-linear", 2048
_RANKS = (4, 8, 16, 32, 64, 128)


@click.command("fine-tuning")
@takes(
    FOLDER(is_required=False),
    METHOD,
    RANK,
    TARGETS,
    SEQUENCE,
    MICRO_BATCH,
    RECOMPUTE,
    GPU_MEMORY,
    POINTS,
    MEASURED,
    JSON,
)
@example(
    "workbench what-if fine-tuning ./Llama-3.2-1B --sequence 2048 --gpu-memory 24GB",
    "workbench what-if fine-tuning --points plans.csv --measured measured.csv --json",
)
def what_if_fine_tuning(
    folder: Path | None, points: Path | None, measured: Path | None, as_json: bool, **given: Any
) -> None:
    """Predict the memory and the time of fine-tuning a language model.

    FOLDER is a model of transformers. Only its config.json is read. You see full training, LoRA and
    QLoRA, by default one sequence at a time, of 2,048 tokens or as many as the model reads. If a
    plan does not fit --gpu-memory, you also see the nearest plan that does.

    Instead of FOLDER, --points has one plan per row. Its column method is full, lora, qlora or
    another method of PEFT. Without it, the other columns tell which one is likely. All columns are
    optional, and a missing one means that you do not know it: parameters_b, active_b, hidden,
    layers, heads, kv_heads, feed_forward, vocabulary, tied, rank, adapted, dora, autocast_adapter,
    weights, optimizer, recompute, sequence, micro_batch, gpus, gpu_memory_gb, trainable_parameters
    and total_parameters. adapted names the layers with an adapter, such as q_proj+v_proj. targets
    and batch are other names of adapted and micro_batch.

    The measured file also has memory_gb or memory_max_gb, and for times train_s and steps. It may
    have out_of_memory, for plans that did not fit gpu_memory_gb. Answers are in its unit, such as
    GiB or MiB. gpu_memory_gb may have the same unit, or be in GB. Without a measured file, the law
    that is included answers, in GB of 1e9 bytes and without times.

    90 % of the peaks should be between low and high. A plan fits if its memory is at most 94 % of
    the memory of the GPU.
    """
    if (folder is None) == (points is None):
        raise click.UsageError("give either the folder of a model, or --points")
    options = [f"--{name.replace('_', '-')}" for name, value in given.items() if value]
    if points is not None and options:
        raise click.UsageError(f"{options[0]} is for a folder: a table has a column for it")
    from workbench.advisor.fine_tuning_costs import law_of, nearest_that_fits, read_fine_tunings

    law = law_of(measured)
    plans = (
        read_fine_tunings(points) if points is not None else _plans_of(folder or Path(), **given)
    )
    predictions = law.predict(plans)
    nearest = [
        nearest_that_fits(plan, law) if points is None and prediction.fits is False else None
        for plan, prediction in zip(plans, predictions, strict=True)
    ]
    if as_json:
        answers = [prediction._asdict() for prediction in predictions]
        if points is None:
            for answer, plan, near in zip(answers, plans, nearest, strict=True):
                answer["method"] = plan.method
                answer["nearest"] = None if near is None else _describe_plan(near)
        print_json({"points": answers})
        return
    _show(plans, predictions)
    for plan, near in zip(plans, nearest, strict=True):
        if near is not None:
            (prediction,) = law.predict([near])
            changes = _changes_between(plan, near)
            click.echo(f"{plan.method} fits with {changes}: {prediction.memory_gb:.1f} GB")
    if folder is not None:
        _note_long_sequences(folder, given["sequence"])


def _note_long_sequences(folder: Path, sequence: int | None) -> None:
    positions = max_positions(read_model_config(folder))
    if sequence is not None and positions is not None and sequence > positions:
        print_note(
            f"the model reads at most {positions:,} tokens at once, so it was not made"
            f" for sequences of {sequence:,}"
        )


def _plans_of(
    folder: Path,
    *,
    method: str | None,
    rank: int | None,
    targets: str | None,
    sequence: int | None,
    micro_batch: int | None,
    recompute: bool | None,
    gpu_memory: int | None,
) -> list[FineTuningPlan]:
    from workbench.advisor.language_models import read_language_model

    model = read_language_model(folder)
    longest = max_positions(read_model_config(folder)) or _SEQUENCE
    strange = dataclasses.replace(model, adapted=targets).unknown_targets
    if strange:
        raise click.UsageError(
            f"--targets: {strange[0]} is not the name of a linear layer, such as q_proj, or"
            " all-linear"
        )
    return [
        dataclasses.replace(
            model,
            method=name,
            rank=rank or _RANK,
            adapted=targets or _TARGETS,  # of the nearest plan, if this one is full training
            sequence=sequence or min(_SEQUENCE, longest),
            micro_batch=micro_batch or 1,
            recompute=bool(recompute),
            gpu_memory_gb=None if gpu_memory is None else gpu_memory / 1e9,
        )
        for name in ([method] if method else _METHODS)
    ]


def _describe_plan(plan: FineTuningPlan) -> dict[str, Any]:
    """Return what `nearest_that_fits` may change."""
    return {
        "method": plan.method,
        "sequence": int(plan.sequence or 0),
        "micro_batch": int(plan.micro_batch or 0),
        "recompute": bool(plan.recompute),
    }


def _changes_between(plan: FineTuningPlan, near: FineTuningPlan) -> str:
    """Return the options that change a plan to another one."""
    before, after = _describe_plan(plan), _describe_plan(near)
    return " ".join(
        f"--{name.replace('_', '-')}" + ("" if value is True else f" {value}")
        for name, value in after.items()
        if value != before[name]
    )


def _show(plans: Sequence[FineTuningPlan], predictions: Sequence[FineTuningPrediction]) -> None:
    from workbench.cli.output import make_table

    # Times are only known from a measured file.
    has_times = any(prediction.seconds_per_step is not None for prediction in predictions)
    step = ["step"] if has_times else []
    table = make_table("method", "adapted", "micro batch", "memory", "low", "high", *step, "")
    for plan, prediction in zip(plans, predictions, strict=True):
        seconds = prediction.seconds_per_step
        written = "" if seconds is None else format_duration(seconds)
        table.add_row(
            plan.method,
            "" if plan.kind == "full" else plan.adapted or "",
            "" if plan.micro_batch is None else format_number(plan.micro_batch),
            *(f"{value:.1f} GB" for value in prediction[:3]),
            *([written] if has_times else []),
            {True: "fits", False: "does not fit", None: ""}[prediction.fits],
        )
    make_console().print(table)


@click.command("adapter")
@takes(FOLDER(is_required=False), RANK, ALPHA, POINTS, MEASURED, JSON)
@example(
    "workbench what-if adapter ./Llama-3.2-1B --rank 64 --alpha 32",
    "workbench what-if adapter --points adapters.csv --json",
    "workbench what-if adapter --points adapters.csv --measured trained.csv",
)
def what_if_adapter(
    *,
    folder: Path | None,
    rank: int | None,
    alpha: float | None,
    points: Path | None,
    measured: Path | None,
    as_json: bool,
) -> None:
    """Predict which learning rate and rank suit a low-rank adapter of a language model.

    FOLDER is a model of transformers. Only its config.json is read. You see where to start at ranks
    from 4 to 128, or at --rank. In half of all cases, the best rate is between low and high. An
    experiment does the same with prior: auto.

    Instead of FOLDER, --points has one training per row. Its columns are parameters_b,
    learning_rate and rank, and optionally active_b, base, alpha and model. The measured file also
    has test_nll, the test loss in nats per token. nan or a loss above 2 means that the training
    diverged. Without a measured file, a built-in law is used. It was fitted to 18 models.

    parameters_b is the number of parameters in billions. active_b is how many of them one token
    uses, by default all. base is true if the model was only pretrained, and without it either is
    possible. alpha is 32 unless you give it. If model is a name such as
    Qwen/Qwen3.5-9B-Base, trained models of the same family also count. Without model, rows with the
    same parameters_b, active_b and base are one model.

    excess_nll is the test loss minus the lowest loss that the model reaches at any learning rate,
    with ranks up to the highest in its rows. Choose the row with the lowest value. 90 % of the
    trainings that do not diverge should be between low and high. diverges is a probability.
    """
    if (folder is None) == (points is None):
        raise click.UsageError("give either the folder of a model, or --points")
    if folder is not None:
        if measured is not None:
            raise click.UsageError("--measured is for --points")
        _show_beginnings(folder, [rank] if rank else _RANKS, alpha, as_json=as_json)
        return
    if rank is not None or alpha is not None:
        raise click.UsageError("--rank and --alpha are for a folder: a table has columns for them")
    assert points is not None
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


@click.command("ladder")
@takes(
    RUNS(is_required=True, is_repeatable=True),
    NUM_PARAMETERS(is_required=True),
    NUM_TOKENS(is_required=True),
    STORED,
)
@example("workbench what-if ladder small-1 small-2 --parameters 1B --tokens 20B")
def what_if_ladder(runs: tuple[str, ...], parameters: float, tokens: float, as_json: bool) -> None:
    """Predict the loss of a large language model from trainings of small ones.

    The complete trials of the runs count: the best of each size and number of tokens. They need at
    least two sizes and two numbers of tokens, the same data, and a loss per token as objective.
    Train each of them to the end of its own schedule, because a loss in the middle of a schedule is
    too high.

    You also see where to start the large training: batch, learning rate, weight decay and warm-up
    for AdamW. 90 % of the trainings should end between low and high.
    """
    from workbench.advisor.ladder import FAR, fit_ladder, where_to_begin
    from workbench.cli.options import attach
    from workbench.runs.what_if import rungs_of

    metric, rungs = rungs_of([attach(run_id) for run_id in runs])
    law = fit_ladder(rungs)
    prediction, begins = law.predict(parameters, tokens), where_to_begin(parameters, tokens)
    reach = law.reach(parameters, tokens)
    if as_json:
        print_json(
            {
                "metric": metric,
                "trainings": [dataclasses.asdict(rung) for rung in rungs],
                **prediction._asdict(),
                "reach": reach,
                "begins": begins._asdict(),
            }
        )
        return
    from workbench.cli.output import make_table

    table = make_table("parameters", "tokens", metric, "law", "")
    for rung in rungs:
        fitted = law.predict(rung.parameters, rung.tokens).loss
        sizes = (compact_count(rung.parameters), compact_count(rung.tokens))
        table.add_row(*sizes, f"{rung.loss:.3f}", f"{fitted:.3f}", rung.name)
    make_console().print(table)
    click.echo(
        f"\n{compact_count(parameters)} parameters on {compact_count(tokens)} tokens: {metric}"
        f" {prediction.loss:.3f}  ({prediction.low:.3f} to {prediction.high:.3f})\n"
        f"start with AdamW at a batch of {compact_count(begins.batch_tokens)} tokens, lr"
        f" {begins.learning_rate:.2g}, weight decay {begins.weight_decay:.2g} and"
        f" {format_number(begins.warmup_steps)} of {format_number(begins.num_steps)} steps of"
        " warm-up"
    )
    if reach > FAR:
        print_note(
            f"that is {compact_count(reach)} times the operations of your largest training. Train a"
            " larger one to rely on this"
        )


def _show_beginnings(
    folder: Path, ranks: Sequence[int], alpha: float | None, *, as_json: bool
) -> None:
    """Show the learning rate at which an adapter of each rank begins."""
    from workbench.advisor.adapter_rates import note_on_size
    from workbench.advisor.auto_priors import rate_at, read_known_model
    from workbench.cli.output import make_table

    model = read_known_model(folder)
    if (note := note_on_size(model.parameters_b)) is not None:
        print_note(note)
    begins = []
    for rank in ranks:
        own_alpha = 2.0 * rank if alpha is None else alpha
        rate, within = rate_at(model.best([rank]), own_alpha)
        begins.append((rank, own_alpha, rate, rate / within, rate * within))
    if as_json:
        names = ("rank", "alpha", "learning_rate", "low", "high")
        print_json(
            {
                "model": dataclasses.asdict(model),
                "begins": [dict(zip(names, row, strict=True)) for row in begins],
            }
        )
        return
    table = make_table("rank", "alpha", "learning rate", "low", "high")
    for rank, *numbers in begins:
        table.add_row(str(rank), *(format_number(float(f"{number:.3g}")) for number in numbers))
    make_console().print(table)
    print_note(
        f"this is {model.describe()}. Higher ranks reach a lower loss, and need more memory."
    )
