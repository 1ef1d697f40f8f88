"""Commands about an experiment file: `check` tests one, and `init` writes one for a script."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from workbench.cli.declarations import takes
from workbench.cli.options import command_line, example
from workbench.cli.output import print_json, without_backticks
from workbench.cli.parameters import (
    ESTIMATE_MEMORY,
    EXPERIMENT,
    JSON,
    NO_STEP,
    SCHEMA,
    SCRIPT,
    TO,
    experiment_options,
)
from workbench.experiment.actions import ACTIONS, experiment_settings
from workbench.experiment.code_versions import CODE
from workbench.foundation.errors import WorkbenchError
from workbench.foundation.formatting import (
    format_bytes,
    format_count,
    format_duration,
    format_params,
)
from workbench.runs.descriptions import describe_search

if TYPE_CHECKING:
    from workbench.advisor.memory import MemoryForecast
    from workbench.data.table_summary import TableSummary
    from workbench.experiment import Experiment
    from workbench.sweeps.forecast import Forecast
    from workbench.training.probes.first_step import FirstStep


@click.command()
@takes(EXPERIMENT(is_required=False), *experiment_options(), SCHEMA, ESTIMATE_MEMORY, NO_STEP, JSON)
@example(
    "workbench check search_spaces/digits.yaml",
    "workbench check search_spaces/digits.yaml --estimate-memory",
    "workbench check search_spaces/digits.yaml --no-step",
    "workbench check --schema > experiment.schema.json",
)
def check(
    file: str | None,
    schema: bool,
    estimate_memory: bool,
    no_step: bool,
    as_json: bool,
    **given: Any,
) -> int:
    """Check an experiment file, with the first step of some trials.

    Your code runs in a child process for at most 30 s: one optimizer step of a model, or a train
    function until its first report. First a sample of the search space is tried, then the largest
    and the smallest values.
    """
    if schema:
        from workbench.experiment import Experiment

        print_json(Experiment.model_json_schema())
        return 0
    if file is None:
        raise click.UsageError("give an experiment file, or --schema")
    from workbench.runs import read_experiment

    experiment = read_experiment(file, experiment_settings(ACTIONS["sweep"].arguments, given))
    from workbench.advisor.auto_priors import describe_priors, with_auto_priors
    from workbench.search import check as check_sampler
    from workbench.sweeps.preflight import check as check_before_start

    experiment = with_auto_priors(experiment)
    check_before_start(experiment)
    check_sampler(experiment)
    table, forecast = _summarise_table(experiment), None
    steps: list[FirstStep] = []
    if not no_step:
        steps = _try_first_steps(experiment)
    if estimate_memory:
        forecast = _forecast_memory(experiment)
    run_forecast = _forecast_run(experiment)
    notes = [*describe_priors(experiment), *_notes_of(experiment)]
    if as_json:
        document: dict[str, Any] = {
            "ok": True,
            "name": experiment.name,
            "experiment_hash": experiment.hash(),
            "messages": notes,
            "first_steps": [asdict(step) for step in steps],
        }
        documents = {"table": table, "memory": forecast, "run": run_forecast}
        print_json(document | {name: part.to_json() for name, part in documents.items() if part})
        return 0
    click.echo(
        f"{file} is valid: {describe_search(experiment)}.\nStart it with:"
        f" {command_line('sweep', file)}"
    )
    for line in [*_lines_of(table), *notes]:
        click.echo(without_backticks(line))
    for line in describe_first_steps(steps):
        click.echo(line)
    if forecast is not None:
        click.echo(describe_memory(forecast))
    if run_forecast is not None:
        click.echo(f"As measured here, {run_forecast}.")
    return 0


def _summarise_table(experiment: Experiment) -> TableSummary | None:
    from workbench.data import summary_of

    if experiment.data is None:
        return None
    return summary_of(experiment.data)


def _lines_of(table: TableSummary | None) -> Sequence[str]:
    if table is None:
        return ()
    return table.lines()


def _notes_of(experiment: Experiment) -> list[str]:
    from workbench.data import notes_of, samples_of
    from workbench.hardware.resources import inventory
    from workbench.sweeps.run_notes import notes_of_run

    notes = list(notes_of_run(experiment, len(inventory().gpus)))
    if experiment.data is not None:
        notes += [*notes_of(experiment.data), *samples_of(experiment.data)]
    return notes


def _try_first_steps(experiment: Experiment) -> list[FirstStep]:
    if experiment.trains_model and importlib.util.find_spec("torch") is None:
        click.echo("torch is not installed here, so no first step was tried", err=True)
        return []
    from workbench.training.probes.first_step import try_first_steps

    try:
        if experiment.search.code_versions:
            return _try_versions(experiment)
        if experiment.links is not None:
            from workbench.cluster.remote.kept_code import unpack_here
            from workbench.training.programs.kept_imports import VARIABLE

            os.environ[VARIABLE] = str(unpack_here(experiment) or "")
        return try_first_steps(experiment)
    except WorkbenchError:
        if experiment.links is not None and not experiment.search.code_versions:
            from workbench.cluster.remote.kept_code import describe_workdir

            # What is not in the working folder is the most likely reason.
            for note in describe_workdir(experiment):
                click.echo(without_backticks(note), err=True)
        raise


def _try_versions(experiment: Experiment) -> list[FirstStep]:
    """Try the first steps with each version of the code, and name the version in an error."""
    from workbench.cluster.remote.code_archive import unpacked
    from workbench.cluster.remote.code_origin import Origin
    from workbench.cluster.remote.version_trees import keep_versions
    from workbench.training.probes.first_step import try_first_steps
    from workbench.training.programs.kept_imports import VARIABLE

    steps: list[FirstStep] = []
    code = experiment.model_dump(mode="json")["search"][CODE]
    for index, version in enumerate(keep_versions(experiment, Origin.here())):
        content = version.code.content
        os.environ[VARIABLE] = str(unpacked(version.code.sha256, lambda content=content: content))
        only = {**code, "versions": [code["versions"][index]]}
        narrowed = experiment.replace(search={CODE: only})
        try:
            steps += try_first_steps(narrowed)
        except WorkbenchError as error:
            raise error.about(f"search.{CODE}.versions.{index}") from error
    return steps


def _forecast_memory(experiment: Experiment) -> MemoryForecast:
    from workbench.advisor.memory import forecast_memory

    return forecast_memory(experiment)


def _forecast_run(experiment: Experiment) -> Forecast | None:
    """Return what a run should take and cost, or None if nothing like it was measured here."""
    from workbench.hardware.resources import likely_cluster
    from workbench.store.database import Store
    from workbench.store.database.urls import resolve_url

    # A check neither creates a store nor fails because there is none. Where only the core is
    # installed, nothing can be forecast.
    with contextlib.suppress(WorkbenchError, ModuleNotFoundError):
        from workbench.sweeps.forecast import expected

        url = resolve_url(None)
        if url.get_backend_name() == "sqlite" and not Path(str(url.database)).is_file():
            return None
        with Store.open() as store:
            return expected(store, experiment, likely_cluster())
    return None


_NOT_MADE = {
    "out of memory": "it needs more memory than is available here",
    "several workers": "it needs several workers",
}


def _why_not_made(step: FirstStep) -> str:
    if step.outcome == "out of time":
        elapsed = format_duration(step.elapsed_s)
        return f"it had not ended after {elapsed} (trials may take longer; --no-step skips this)"
    return _NOT_MADE[step.outcome]


def describe_first_steps(steps: Sequence[FirstStep]) -> Iterator[str]:
    """Yield which first steps succeeded, what is wrong with them, and which were not tried."""
    fine_steps = [step for step in steps if step.outcome == "fine"]
    if fine_steps:
        elapsed = format_duration(sum(step.elapsed_s for step in fine_steps))
        yield f"The first step of a trial succeeded{_configurations_of(fine_steps)}, in {elapsed}."
    if incomplete := next((step for step in fine_steps if step.unreported), None):
        yield (
            f"Its first report has {', '.join(incomplete.reported)} but not"
            f" {', '.join(incomplete.unreported)}. Report each objective later or return it, or the"
            " trial fails. To improve another metric: --set objectives.0.metric=NAME"
        )
    if num_empty := max((step.num_empty_clients for step in fine_steps), default=0):
        yield (
            f"{num_empty:,} of the clients have no training samples and train nothing. Lower "
            "federated.clients, or give more data."
        )
    for note in dict.fromkeys(note for step in fine_steps for note in step.notes):
        yield f"Note: {note}."
    for step in fine_steps:
        if step.not_finite:
            yield (
                f"Warning: with {step.which}, {', '.join(step.not_finite)} is not finite in the"
                " first report. A trial like this fails as diverged:"
                f" {format_params(step.params)}"
            )
    for step in steps:
        if step.outcome != "fine":
            untried = f"Not tried with {step.which}: {_why_not_made(step)}"
            if step.params:
                untried += f": {format_params(step.params)}"
            yield untried


def _configurations_of(steps: Sequence[FirstStep]) -> str:
    """Return which configurations were tried, or nothing if all are the same."""
    if not any(step.params for step in steps):
        return ""
    *others, last = (step.which for step in steps)
    if not others:
        return f" with {last}"
    return f" with {', '.join(others)} and {last}"


def describe_memory(forecast: MemoryForecast) -> str:
    """Say how much memory a worker needs, for what, and what would fit."""
    step, law = forecast.step, forecast.law
    parts = {"parameters": step.parameters_bytes, "gradients": step.gradients_bytes}
    parts["optimizer"] = step.optimizer_bytes
    sizes = ", ".join(f"{name} {format_bytes(size)}" for name, size in parts.items())
    fits = "it fits"
    if not forecast.fits:
        fits = "it does not fit"
    largest = format_count(forecast.largest_micro_batch)
    if forecast.largest_micro_batch == forecast.num_train_samples:
        largest = f"all {largest} samples"
    lines = [
        "Memory of a worker, estimated from shapes alone, without Python and torch themselves:",
        f"  {format_bytes(forecast.peak_bytes)} with {forecast.plan.describe()}",
        f"  {sizes}, and the rest for activations",
        f"  each sample adds {format_bytes(law.per_sample_bytes)}",
        (
            f"  {fits} the {format_bytes(forecast.limit_bytes)} that a {forecast.device} worker has"
            " here"
        ),
        f"  the largest micro batch that fits: {largest}",
    ]
    if forecast.params:
        lines.append(f"  estimated for {format_params(forecast.params)}")
    return "\n".join(lines)


@click.command("init")
@takes(SCRIPT, TO, JSON)
@example("workbench init train.py --to experiment.yaml")
def init(script: Path, to: Path | None, as_json: bool) -> None:
    """Write a first experiment file for a script, from its options.

    SCRIPT is a file, or a command with what all trials have: 'python train.py config.yaml'.
    """
    from workbench.foundation.errors import ArgumentError
    from workbench.foundation.formatting import counted_noun
    from workbench.runs.scripts.first_experiment import experiment_for

    first_experiment = experiment_for(script)
    path = to or first_experiment.script.with_suffix(".yaml")
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(first_experiment.text)
    except FileExistsError as error:
        raise ArgumentError(
            f"{path} already exists",
            field="--to",
            next_step="Give another file with --to, or remove this one.",
        ) from error
    except OSError as error:
        raise ArgumentError(f"cannot write {path}: {error.strerror}", field="--to") from error
    needed = first_experiment.values_to_write
    if as_json:
        notes = list(first_experiment.notes)
        print_json({"path": str(path), "values_to_write": list(needed), "notes": notes})
        return
    click.echo(f"wrote {path}")
    for note in first_experiment.notes:
        click.echo(note)
    if needed:
        values = counted_noun(len(needed), "value")
        click.echo(f"Write the {values} of {', '.join(needed)} into it.")
    click.echo(f"Edit it, then check it with: {shlex.join(['workbench', 'check', str(path)])}")
