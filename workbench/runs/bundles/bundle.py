"""A trial exported as a self-contained folder: configuration, weights, script and report.

experiment.yaml       the experiment with the search space narrowed to this one configuration
objects/              Python objects from a notebook, named by their SHA-256, if there are any
code/                 the user's code and data that it needs: the modules that the experiment uses
                      and their imports, and the files that the code of a train function opens, or
                      else everything that was submitted with the run
configuration.json    the parameters, the plan, the seed, the results, the SHA-256 of every file
weights.safetensors   the model at the checkpoint that its value belongs to, if the workbench
                      trained it
model/                a language model in the format of transformers, with its adapter merged
adapter/              its adapter alone, in the format of PEFT
files/                what a train function left in the folder of its trial
environment.txt       the versions of Python and of every installed package
retrain.sh            trains it again
report.html           the report of its run
model.onnx            with --format: the model, from rows as users have them to answers
card.json             with it: its inputs, where it comes from, and what was measured
predict.py            with it: predicts with numpy and onnxruntime only
flower/               with --format flower: the federation as an application for Flower
README.md             what the folder contains, for readers
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.metadata
import json
import math
import platform
import re
import shlex
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import JsonValue

from workbench.cluster.remote.code_dependencies import named_paths
from workbench.cluster.remote.job_package import MODULES_FOLDER
from workbench.cluster.remote.kept_code import package_requirements
from workbench.experiment import Experiment, PlanSettings
from workbench.experiment.actions import suggest
from workbench.experiment.command import arguments_of
from workbench.experiment.searched_fields import data_params
from workbench.experiment.train_function import refuse_imported
from workbench.experiment.trainings import uses_adapter
from workbench.experiment.trial_value import TrialValue, describe_value
from workbench.foundation.artifacts import is_url, open_artifacts
from workbench.foundation.bundle_manifest import add_manifest
from workbench.foundation.errors import RunError
from workbench.foundation.formatting import format_number
from workbench.runs.bundles.bundle_files import (
    CODE_FOLDER,
    FILES_FOLDER,
    Contents,
    KeptFilesOfTrial,
    copy_code,
    copy_files,
    describe_data,
    new_bundle,
)
from workbench.runs.bundles.bundle_formats import add_format, add_language_model, check_format
from workbench.runs.descriptions import format_numbers
from workbench.runs.experiment_file import write_experiment
from workbench.runs.run_figures import write_report
from workbench.store.database.run_files import find_moved
from workbench.store.history import History, Trial
from workbench.store.history.compression import (
    BASE_RUN,
    BASE_TRIAL,
    base_of,
    compressed,
    is_compression,
)
from workbench.store.history.history import chosen_or_best, no_such_trial
from workbench.store.history.lineage import describe_segment, parts_of
from workbench.store.history.programs import code_of, describe_program

if TYPE_CHECKING:
    from workbench.runs.stored_run import StoredRun

_RETRAIN = "workbench sweep {path}experiment.yaml --trials {num_trials}"
_FIND_PYTHON = """\
# The Python that trained it, or another one of yours: PYTHON=/path/to/python sh retrain.sh
python=${{PYTHON:-{python}}}
[ -x "$(command -v "$python")" ] || python=python3
PATH="$(dirname "$(command -v "$python")"){folders}:$PATH"
export PATH
if ! "$python" -c 'import workbench' 2>/dev/null; then
  echo "$python has no workbench. Install it there, or set PYTHON to a Python that has it." >&2
  exit 1
fi"""


def write_bundle(
    run: StoredRun,
    folder: Path,
    *,
    trial: int | None = None,
    format: str | None = None,
    force: bool = False,
    weights: bool = True,
) -> Path:
    """Write a complete trial as a bundle.

    Args:
        run: The run.
        folder: A folder that is empty or does not exist.
        trial: The number of the trial, or None for the best.
        format: A format that `check_format` knows. None adds no format.
        force: Write into a folder that is not empty. Files of the same names are replaced, and
            files of an earlier bundle are removed. Other files stay.
        weights: Write the weights, if the workbench trained the model.

    Returns:
        The folder.

    Raises:
        ArgumentError: If the format is unknown.
        RunError: If the trial is not complete, its weights were deleted, its model cannot be
            written in the format, or the folder is not empty or cannot be written.
        ArtifactsError: If its checkpoint cannot be read.
    """
    refuse_imported(run.experiment, "exported")
    if format is None and weights and is_compression(run.experiment):
        format = "onnx"  # its models have no other format
    check_format(format, has_weights=weights)
    data = run.experiment.data
    if format == "onnx" and _is_of_folder(run.experiment) and data and data.name != "labelled_text":
        raise RunError(
            "a language model is exported for transformers, not to ONNX",
            next_step="Export it without --format onnx. The folder model/ loads in transformers.",
        )
    history = run.history
    chosen = choose_trial(run, history, trial)
    if not weights:
        chosen = dataclasses.replace(chosen, best_checkpoint=None)
    elif chosen.checkpoints_deleted:
        raise RunError(
            f"the checkpoints of trial {chosen.number} were deleted in favour of better ones, as "
            f"resources.{chosen.checkpoints_deleted} requires",
            next_step=suggest(
                "export",
                run.run_id,
                to=str(folder),
                trial=chosen.number,
                weights=False,
                lead="To export it without weights, and train it again with its retrain.sh",
            ),
        )
    with new_bundle(folder, force=force) as beside:
        _write_all(run, chosen, beside, weights=weights)
        if format is not None:
            add_manifest(beside)  # the weights are loaded from there
            add_format(run, chosen, beside, format)
    return folder


def _write_all(run: StoredRun, trial: Trial, folder: Path, *, weights: bool) -> None:
    _write_files(run, trial, folder, weights=weights)
    if trial.best_checkpoint is not None:
        from workbench.training.trained_model import write_weights

        with fetched_checkpoint(run, trial.best_checkpoint) as checkpoint:
            write_weights(checkpoint, folder / "weights.safetensors")
        if _is_of_folder(run.experiment):
            from workbench.training.trained_model import write_language_model

            written = write_language_model(
                run.experiment, trial.params, folder / "weights.safetensors", folder
            )
            about = add_language_model(run, trial, folder, written)
            with (folder / "README.md").open("a", encoding="utf-8") as readme:
                readme.write(f"\n{about}\n")
    write_report(run, folder / "report.html")


def _is_of_folder(experiment: Experiment) -> bool:
    """Return whether the trained model is a language model in a folder."""
    return experiment.model is not None and experiment.model.name == "hf"


@contextlib.contextmanager
def fetched_checkpoint(run: StoredRun, shown: str) -> Iterator[Path]:
    """Make a checkpoint available as a local path, wherever it is stored."""
    artifacts, name = find_moved(run.store.artifacts_of(run.run_id), run.run_id, shown)
    from workbench.training.checkpoint import fetched

    with fetched(artifacts, name) as path:
        yield path


def narrow(
    experiment: Experiment, trial: Trial, parts: Sequence[tuple[int, Trial]] = ()
) -> Experiment:
    """Narrow an experiment to one trial: training it once reproduces the trial.

    Args:
        experiment: The experiment of the trial.
        trial: The trial.
        parts: The trials that lead to it, as `parts_of` returns them.

    Returns:
        The experiment with every parameter fixed, the plan written out, and without early stopping
        and alerts. Its seed is kept. If the trial was a later repeat, the repeats before it are
        trained too, because the seed of a training is derived from that seed and the number of the
        repeat.
    """
    document = experiment.model_dump(mode="json")
    # Alerts are for those who watched the run, and go to sinks of that machine.
    for key in ("early_stop", "confirm", "sampler", "fidelity", "constraints", "repeats", "alerts"):
        document.pop(key, None)
    document["objectives"] = [
        {key: value for key, value in objective.items() if key != "target"}
        for objective in document["objectives"]
    ]
    params = experiment.search.without_version(trial.params)
    if experiment.data is not None and (read_with := data_params(params)):
        from workbench.data import with_searched_options

        document["data"] = with_searched_options(experiment.data, read_with).model_dump(mode="json")
        params = {name: value for name, value in params.items() if name not in read_with}
    document["search"] = {name: _as_fixed(value) for name, value in params.items()}
    if experiment.search.code_versions and experiment.command is not None:
        document.setdefault("workdir", "fresh")  # the bundle has the code of one version
    document["budget"] = {"trials": max(1, len(parts))}
    if parts:
        document["search"] = _with_values_of(document["search"], [part for _, part in parts])
        document["sampler"] = {
            "name": "schedule",
            "options": {
                "parts": [{"until": until, "params": part.params} for until, part in parts]
            },
        }
    if trial.repeat:
        document["repeats"] = trial.repeat + 1
    trains_model = experiment.trains_model
    fixed = set(PlanSettings.model_fields if trains_model else ["workers"]) - trial.params.keys()
    plan = dict(trial.plan.only(fixed).values)
    document["plan"] = {**document.get("plan", {}), **plan}
    if trains_model and trial.plan.global_batch is not None and "global_batch" not in trial.params:
        training = document.get("training", {})
        batch = trial.plan.global_batch
        if experiment.federated is not None:  # each worker takes the batch of one client
            batch //= trial.plan.workers or 1
        document["training"] = {**training, "global_batch": batch}
    return Experiment(**document).with_payloads(experiment.payloads())


def _with_values_of(search: dict[str, JsonValue], parts: Sequence[Trial]) -> dict[str, JsonValue]:
    """Return a space in which each parameter has the values of all parts of a training."""
    space = dict(search)
    for name in dict.fromkeys(name for part in parts for name in part.params):
        values = [part.params.get(name) for part in parts]
        if any(value != values[0] for value in values):
            space[name] = {"choices": _distinct(value for value in values if value is not None)}
    return space


def _distinct(values: Iterable[JsonValue]) -> list[JsonValue]:
    distinct: list[JsonValue] = []
    for value in values:
        if value not in distinct:
            distinct.append(value)
    return distinct


def _as_fixed(value: JsonValue) -> JsonValue:
    # A bare list or mapping in a search space is not a fixed value but a domain.
    if isinstance(value, list | dict):
        return {"value": value}
    return value


def choose_trial(run: StoredRun, history: History, number: int | None) -> Trial:
    """Return the complete trial of a number, else the one that was chosen by hand, or the best.

    Raises:
        ArgumentError: If the run has no trial of this number.
        RunError: If no trial is complete.
    """
    if number is None:
        chosen = chosen_or_best(history)
    else:
        chosen = history.trials.get(number)
    if chosen is None and number is None and is_compression(run.experiment):
        base = base_of(run.experiment)
        raise RunError(
            f"nothing is recommended: {compressed(history).words}",
            next_step=suggest(
                "export",
                str(base[BASE_RUN]),
                to="best",
                trial=base[BASE_TRIAL],
                format="onnx",
                lead="To export the model as it is",
            ),
        )
    if chosen is None and number is not None:
        raise no_such_trial(history, number)
    if chosen is None:
        raise RunError(
            f"run {run.run_id} has no best trial: {history.why_no_best()}".removesuffix("."),
            next_step=suggest("show", run.run_id, lead="To see its trials"),
        )
    if chosen.state != "complete":
        best = [trial.number for trial in history.ranked()]
        allowed = f"best, or {format_numbers(best)}" if best else "none: no trial is complete"
        raise RunError(
            f"trial {chosen.number} is {chosen.state}, not complete", field="trial", allowed=allowed
        )
    return chosen


def _write_files(run: StoredRun, trial: Trial, folder: Path, *, weights: bool) -> None:
    from workbench.sweeps.code_versions import read_origin

    artifacts = run.store.artifacts_of(run.run_id)
    origin = read_origin(artifacts)
    code_sha256 = code_of(run.history, trial)
    if code_sha256 is not None:
        origin = dataclasses.replace(origin, kept_sha256=code_sha256)
    parts = parts_of(run.history, trial)
    experiment = narrow(run.experiment, trial, parts)
    contents = Contents()
    kept = KeptFilesOfTrial(origin, artifacts, trial.program)
    if origin.archived is None:
        experiment = copy_code(experiment, origin, folder / CODE_FOLDER, contents, kept)
    else:  # it was submitted: its original folder is on another machine
        shutil.copytree(
            origin.on_this_machine().directory, folder / CODE_FOLDER, dirs_exist_ok=True
        )
    if not experiment.trains_model and weights:
        copy_files(run, trial, folder / FILES_FOLDER, contents)
    has_code = (folder / CODE_FOLDER).is_dir()
    contents.data = describe_data(experiment, folder / CODE_FOLDER)
    write_experiment(experiment, folder / "experiment.yaml")
    configuration = {
        "run_id": run.run_id,
        "trial": trial.number,
        "params": trial.params,
        "plan": trial.plan.to_json(),
        "seed": trial.seed,
        "repeat": trial.repeat,
        "values": {name: _finite(value) for name, value in trial.values.items()},
        "step": trial.last_step,
        "experiment_hash": run.row.experiment_hash,
        "program": trial.program,
        "code_sha256": code_sha256,
        "changed_since": contents.changed,
        "data": contents.data,
    }
    text = json.dumps(configuration, indent=2, allow_nan=False)
    (folder / "configuration.json").write_text(text + "\n", encoding="utf-8")
    (folder / "environment.txt").write_text(_environment(kept.packages), encoding="utf-8")
    script = folder / "retrain.sh"
    retrain = _RETRAIN.format(path="../" if has_code else "", num_trials=max(1, len(parts)))
    script.write_text(
        _script(has_code, contents, f'"$python" -m {retrain}', _folders_of_programs(experiment)),
        encoding="utf-8",
    )
    script.chmod(0o755)
    (folder / "README.md").write_text(
        _readme(
            run,
            trial,
            experiment,
            contents,
            "sh retrain.sh" if has_code else retrain,
            has_code=has_code,
        ),
        encoding="utf-8",
    )


def _folders_of_programs(experiment: Experiment) -> list[str]:
    """Return where the program of the trial was found, such as an environment of R."""
    if experiment.command is None:
        return []
    program = shutil.which(arguments_of(experiment.command)[0])
    if program is None or not Path(program).is_absolute():
        return []
    return [str(Path(program).parent)]


def _script(has_code: bool, contents: Contents, retrain: str, folders: Iterable[str]) -> str:
    """Return a script that trains again wherever the folder is, and prints what is missing."""
    notes = [f"not in this folder: {name}" for name in contents.lacks]
    notes += [f"not as the trial read it: {name} has changed since" for name in contents.changed]
    path = f'export PYTHONPATH="$PWD/{MODULES_FOLDER}${{PYTHONPATH:+:$PYTHONPATH}}"'
    return "\n".join(
        [
            "#!/bin/sh",
            "set -eu",
            *(f"echo {shlex.quote(f'note: {note}')} >&2" for note in notes),
            _FIND_PYTHON.format(
                python=shlex.quote(sys.executable),
                folders="".join(f":{_in_double_quotes(folder)}" for folder in folders),
            ),
            f'cd "$(dirname "$0")/{CODE_FOLDER if has_code else "."}"',
            *([path] if has_code else []),
            f'exec {retrain} "$@"',
            "",
        ]
    )


def _in_double_quotes(text: str) -> str:
    return re.sub(r'(["$`\\\\])', r"\\\1", text)


def _finite(value: float) -> float | str:
    if math.isfinite(value):
        return value
    return str(value)


def _environment(packages: bytes | None) -> str:
    """Return the versions of all installed packages, in the format that pip reads.

    Args:
        packages: The packages that the trial had, if others are installed now.
    """
    if packages is None:
        installed: Mapping[str, str] = {
            distribution.metadata["Name"]: distribution.version
            for distribution in importlib.metadata.distributions()
        }
        requirements = [f"{name}=={version}" for name, version in installed.items()]
    else:
        requirements = package_requirements(packages)
    lines = sorted(requirements, key=str.lower)
    return "\n".join([f"# Python {platform.python_version()} on {platform.platform()}", *lines, ""])


def _readme(
    run: StoredRun,
    trial: Trial,
    experiment: Experiment,
    contents: Contents,
    retrain: str,
    *,
    has_code: bool,
) -> str:
    values = "\n".join(f"- {name}: {format_number(value)}" for name, value in trial.values.items())
    parameters = "\n".join(f"- {name}: {json.dumps(value)}" for name, value in trial.params.items())
    parts = [
        f"# {run.name}: trial {trial.number}",
        f"From run `{run.run_id}`. Its result ({describe_value(run.experiment)}):\n\n{values}",
        f"Its parameters:\n\n{parameters or '- none were searched'}",
        *filter(None, [describe_program(run.history, trial)]),
        *_describe_training(run.history, trial, retrain),
        *_warnings(trial, experiment, contents, has_code=has_code),
    ]
    if trial.best_checkpoint is not None:
        epoch = "last"
        if TrialValue(run.experiment).follows_best:
            epoch = "best"
        parts.append(
            f"`weights.safetensors` holds the weights of the {epoch} epoch:\n\n    from"
            ' safetensors.torch import load_file\n    weights = load_file("weights.safetensors")'
        )
    parts.append(
        "`configuration.json` is for programs, `environment.txt` lists the versions that were"
        " installed, `report.html` is the report of the whole run."
    )
    return "\n\n".join(parts) + "\n"


def _describe_training(history: History, trial: Trial, retrain: str) -> Iterator[str]:
    """Yield how to train a trial again, and whether the result will be the same."""
    is_whole = not trial.inherits or bool(parts_of(history, trial))
    if trial.inherits:
        yield f"It is a {describe_segment(history, trial)}."
    if is_whole:
        yield (
            "Train it again, with the same seed and, on the same machine, the same result:\n\n   "
            f" {retrain}"
        )
        return
    yield (
        "This trains its parameters from the start, without the weights of the other trial, so the"
        f" result will differ:\n\n    {retrain}"
    )


def _warnings(
    trial: Trial, experiment: Experiment, contents: Contents, *, has_code: bool
) -> list[str]:
    """Return what the user must provide or know before training again."""
    parts = _about_code(experiment, contents, has_code=has_code)
    if contents.data:
        parts.append(
            f"`{CODE_FOLDER}/` contains data: {', '.join(contents.data)}. Whoever gets this folder"
            " gets that data."
        )
    if contents.too_large:
        parts.append(
            f"It reads data that is too large for this folder: {', '.join(contents.too_large)}."
        )
    if contents.changed:
        parts.append(
            "These files have changed since the trial read them, and they were too large to be"
            f" stored: {', '.join(contents.changed)}. Training again reads the new files, so its"
            " result may differ."
        )
    if contents.missing_weights:
        parts.append(
            "Training again starts with weights that are not in this folder: "
            f"{', '.join(contents.missing_weights)}. `weights.safetensors` does not need them."
        )
    if uses_adapter(experiment):
        parts.append("The model has low-rank adapters (LoRA), which need peft: pip install peft.")
    for named in named_paths(experiment):
        if named.is_relative or named.field == "training.weights":
            continue  # the former is in this folder, the latter was named above
        # A URL may contain keys, which this hides.
        shown = open_artifacts(named.path) if is_url(named.path) else named.path
        resource = "a model" if named.field == "model.path" else "data"
        parts.append(f"It reads {resource} that is not in this folder: {shown}.")
    if experiment.payloads():
        parts.append(
            "`objects/` contains pickled Python code from a notebook, with the values that it uses,"
            " such as a data frame. Training again runs it, so only do so if you trust the source"
            " of this folder."
        )
    if trial.repeat:
        parts.append(
            f"It was repeat {trial.repeat} of its configuration. Training again also runs the"
            f" earlier repeats. Compare with trial {trial.repeat}."
        )
    return parts


def _about_code(experiment: Experiment, contents: Contents, *, has_code: bool) -> list[str]:
    """Return which code the folder contains, and which is missing."""
    parts: list[str] = []
    if has_code and experiment.trains_model:
        parts.append(f"`{CODE_FOLDER}/` holds the code, and the data that was in the same folder.")
    elif has_code:
        parts.append(
            f"`{CODE_FOLDER}/` holds the code of the training, and the scripts and data of the"
            " run's folder that the code or its options name as text."
        )
    if not experiment.trains_model:
        parts += contents.describe_function(
            f"{FILES_FOLDER}/", is_program=experiment.command is not None
        )
    if contents.missing_modules:
        parts.append(
            f"It imports code that is not in this folder: {', '.join(contents.missing_modules)}."
        )
    return parts
