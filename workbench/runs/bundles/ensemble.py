"""The trials of a sweep combined: which answer better together, and whether that is shown.

An ensemble is written as a bundle with one common ONNX graph. Predicting, selecting and judging are
left to `training.ensembles`, the graph to `deploy`.
"""

from __future__ import annotations

import functools
import json
import math
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.cluster.remote.code_dependencies import with_paths_in
from workbench.experiment import Experiment, Objective
from workbench.experiment.actions import suggest
from workbench.experiment.automl import is_automl
from workbench.experiment.goals import sign_of
from workbench.experiment.searched_fields import data_params
from workbench.foundation.errors import ArgumentError, ArtifactsError, RunError, Suggestion
from workbench.foundation.formatting import format_count, format_number
from workbench.runs.bundles.bundle import fetched_checkpoint, narrow
from workbench.runs.bundles.bundle_files import new_bundle
from workbench.runs.descriptions import format_numbers
from workbench.runs.notebook_output import linked
from workbench.runs.run_figures import write_report
from workbench.runs.stored_run import StoredRun
from workbench.store.history import History, Trial
from workbench.store.history.history import no_such_trial

if TYPE_CHECKING:
    import numpy as np
    from torch import nn

    from workbench.data import Datasets
    from workbench.training.ensembles import Judgement

MAX_TRIALS = 20


class _CheckpointError(RunError):
    """The checkpoint of a trial is missing or damaged."""


class _Models:
    """Loads the models of trials, and the data that they share."""

    def __init__(self, run: StoredRun) -> None:
        from workbench.sweeps.code_versions import read_origin

        self._run = run
        self._origin = read_origin(run.store.artifacts_of(run.run_id)).on_this_machine()
        self._experiment = run.experiment

    def experiment_of(self, trial: Trial) -> Experiment:
        """Return the experiment narrowed to a trial, its data where it is on this machine."""
        return with_paths_in(narrow(self._experiment, trial), Path(self._origin.directory))

    @functools.cached_property
    def data(self) -> Datasets:
        """The data of the run."""
        from workbench.training.loading import load_trial_data

        if read_with := data_params(dict.fromkeys(self._experiment.search.root)):
            raise RunError(
                f"trials differ in {' and '.join(read_with)}, so they read different samples",
                next_step="Use the best trial alone.",
            )
        self._find_code()
        return load_trial_data(
            self._run.run_id, with_paths_in(self._experiment, Path(self._origin.directory))
        )

    def load(self, trial: Trial) -> nn.Module:
        """Return the model of a trial with the weights of its checkpoint.

        Raises:
            _CheckpointError: If the checkpoint cannot be read.
        """
        from workbench.training.trained_model import read_model, write_weights

        assert trial.best_checkpoint is not None
        data = self.data
        with tempfile.TemporaryDirectory() as folder:
            weights = Path(folder, "weights.safetensors")
            try:
                with fetched_checkpoint(self._run, trial.best_checkpoint) as checkpoint:
                    write_weights(checkpoint, weights)
            except (ArtifactsError, RunError) as error:
                raise _CheckpointError(error.problem) from error
            return read_model(self.experiment_of(trial), trial.params, weights, data)[0]

    def _find_code(self) -> None:
        """Let the modules be found that the run was started with.

        Its models may import some when called.
        """
        sys.path += [entry for entry in self._origin.search_path if entry not in sys.path]


@dataclass(frozen=True)
class Ensemble:
    """The weighted mean of the answers of trials, and how it compares with the best of them.

    Attributes:
        metric: The objective by which it was selected.
        goal: minimize or maximize.
        weights: The weight of each trial that is used, by its number, the largest first. They sum
            to 1.
        single: The number of the best trial among the candidates.
        candidates: The numbers of the trials that it was selected from, the best first.
        left_out: Why the checkpoint of a trial could not be read, by the number of the trial, which
            is then no candidate.
        validation: The result on the half of the validation samples by which the weights were not
            chosen.
        test: The result on the test samples, or None if the data has none.
    """

    metric: str
    goal: str
    weights: dict[int, float]
    single: int
    candidates: tuple[int, ...]
    left_out: dict[int, str]
    validation: Judgement
    test: Judgement | None
    _run: StoredRun = field(repr=False)
    _models: _Models = field(repr=False)

    @property
    def is_better(self) -> bool:
        """Whether it is recommended.

        All of the interval is above 0, and the test samples do not object.
        """
        is_worse_on_test = self.test is not None and self.test.high < 0
        return len(self.weights) > 1 and self.validation.low > 0 and not is_worse_on_test

    @property
    def verdict(self) -> str:
        """What is recommended and why, in one sentence without its full stop."""
        single = f"trial {self.single}"
        if len(self.weights) == 1:
            return f"no mean of trials is better than one of them: use {single} alone"
        if self.is_better:
            times = f"takes the time of {len(self.weights)} models"
            return (
                f"the ensemble is better than {single}: use it where an answer that {times} is"
                " acceptable"
            )
        if self.validation.high < 0:
            return f"the ensemble is worse than {single}: use {single} alone"
        return f"the ensemble is not shown to be better than {single}: use {single} alone"

    def describe(self) -> list[str]:
        """Return the result in a few lines."""
        used = ", ".join(f"trial {number}: {weight:.2f}" for number, weight in self.weights.items())
        lines = [f"{len(self.weights)} of {format_count(len(self.candidates), 'trial')} ({used})"]
        if self.left_out:
            lines.append(f"without {_describe_unreadable(self.left_out)}")
        results = [("validation samples that did not choose the weights", self.validation)]
        if self.test is not None:
            results.append(("test samples", self.test))
        for words, judged in results:
            interval = f"{format_number(judged.low)} to {format_number(judged.high)}"
            lines.append(
                f"{self.metric.removeprefix('val_')} on {judged.num_samples} {words}:"
                f" {format_number(judged.ensemble)}, and {format_number(judged.single)} of trial"
                f" {self.single}; improvement {interval} (95 % interval)"
            )
        return [*lines, _sentence(self.verdict)]

    def __str__(self) -> str:
        return "\n".join(self.describe())

    def predict(self, inputs: Any) -> np.ndarray:
        """Return the mean answers of the trials.

        Probabilities of classes, or numbers in the target's unit.

        Args:
            inputs: Inputs as the models were trained with, such as those that
                `bundle.data.validation.batch(range(8))` returns. An exported bundle takes rows as
                users have them.

        Example:
            >>> ensemble = run.ensemble()
            >>> inputs, _ = wb.load_bundle(run.export("single")).data.validation.batch(range(3))
            >>> len(ensemble.predict(inputs))
            3
        """
        from workbench.models.ensemble_selection import weighted_mean
        from workbench.training.ensembles import in_unit_of_target, predict
        from workbench.training.loss_and_metrics import learned_pairing

        is_classes = self._models.data.task == "classification"
        data = self._models.data
        experiment = self._experiment
        answers = [
            predict(
                model,
                inputs,
                is_classes=is_classes,
                pairing=learned_pairing(experiment, data, model),
            )
            for model in self._members
        ]
        mean = weighted_mean(answers, list(self.weights.values()))
        if is_classes:
            return mean
        return in_unit_of_target(mean, self._experiment)

    def export(self, folder: str | Path, *, force: bool = False) -> Path:
        """Write the ensemble as a bundle with one ONNX graph.

        Args:
            folder: A folder that is empty or does not exist.
            force: Write into a folder that is not empty. Files of the same names are replaced.

        Returns:
            The folder. `wb.load_bundle(folder).predict(rows)` answers, as does `predict.py` in it.

        Raises:
            RunError: If one trial has all the weight, a model cannot be exported, or the folder is
                not empty.
            MissingDependencyError: If a package is not installed.

        Example:
            >>> ensemble = run.ensemble()
            >>> if len(ensemble.weights) > 1:
            ...     folder = ensemble.export("ensemble")
        """
        from workbench.deploy.distributions import needs

        target = Path(folder)
        if len(self.weights) == 1:
            raise RunError(
                "one trial has all the weight, so there is no ensemble to export",
                next_step=self.how_to_export_the_single(str(folder)),
            )
        with needs("onnx"):
            from workbench.deploy.card import Exported
            from workbench.deploy.exported_bundle import add_mean
        data = self._models.data
        values = {self.metric: self.validation.ensemble}
        if self.test is not None:
            values[self.metric.replace("val_", "test_", 1)] = self.test.ensemble
        numbers = format_numbers(list(self.weights))
        origin = Exported(
            name=self._run.name,
            run_id=self._run.run_id,
            trial=None,
            model=f"the mean of {len(self.weights)} trials",
            trained_on=f"{data.name}, {len(data.train)} samples",
            task=data.task,
            values=values,
            num_train_samples=len(data.train),
        )
        models = list(zip(self._members, self.weights.values(), strict=True))
        trials = self._run.history.trials
        write_ensemble_bundle(
            self._run,
            target,
            values=values,
            force=force,
            used=[
                {"trial": number, "weight": weight, "params": trials[number].params}
                for number, weight in self.weights.items()
            ],
            title=f"{self._run.name}: ensemble of {numbers}",
            of=f"The mean of trials of run `{self._run.run_id}`. {_sentence(self.verdict)}",
            holds="all models",
            write_model=lambda beside: add_mean(beside, models, data, self._experiment, origin),
        )
        return linked(target)

    def how_to_export_the_single(self, folder: str) -> Suggestion:
        """Return the command that exports the best single trial."""
        return suggest(
            "export",
            self._run.run_id,
            trial=self.single,
            to=folder,
            lead="To export the best trial alone",
        )

    def to_json(self) -> dict[str, Any]:
        """Return everything as plain values for programs to read."""
        judged = {
            name: judgement and vars(judgement)
            for name, judgement in (("validation", self.validation), ("test", self.test))
        }
        return {
            "run_id": self._run.run_id,
            "metric": self.metric,
            "goal": self.goal,
            "weights": {str(number): weight for number, weight in self.weights.items()},
            "single": self.single,
            "candidates": list(self.candidates),
            "left_out": {str(number): why for number, why in self.left_out.items()},
            **judged,
            "is_better": self.is_better,
            "message": self.verdict,
        }

    @functools.cached_property
    def _members(self) -> list[nn.Module]:
        trials = self._run.history.trials
        return [self._models.load(trials[number]) for number in self.weights]

    @property
    def _experiment(self) -> Experiment:
        return self._models.experiment_of(self._run.history.trials[self.single])


def find_ensemble(
    run: StoredRun,
    *,
    size: int | None = None,
    trials: Iterable[int] | None = None,
    metric: str | None = None,
) -> Ensemble:
    """Select an ensemble among trials of a run. Arguments and errors as in `Run.ensemble`."""
    history = run.history
    _check_run(run)
    if size is not None and (isinstance(size, bool) or size < 1):
        raise ArgumentError(f"{size!r} is not valid", field="size", allowed="a whole number from 1")
    objective = _objective_of(history, metric)
    candidates = _candidates(run, history, objective, trials)
    from workbench.training.ensembles import select_models

    models = _Models(run)
    readable: list[int] = []
    left_out: dict[int, str] = {}

    def loaded() -> Iterator[nn.Module]:
        for trial in candidates:
            try:
                model = models.load(trial)
            except _CheckpointError as error:
                left_out[trial.number] = error.problem
                continue
            readable.append(trial.number)
            yield model
        if len(readable) < 2:
            raise RunError(
                f"an ensemble needs at least two trials, but only {len(readable)} of"
                f" {len(candidates)} can be used (not {_describe_unreadable(left_out)})",
                next_step="Restore the files, or start a new run.",
            )

    selection = select_models(
        models.experiment_of(candidates[0]),
        models.data,
        loaded(),
        objective,
        num_models=len(candidates),
        size=size,
    )
    used = sorted(zip(readable, selection.weights, strict=True), key=lambda pair: -pair[1])
    return Ensemble(
        metric=objective.metric,
        goal=objective.goal,
        weights={number: weight for number, weight in used if weight > 0},
        single=readable[0],
        candidates=tuple(readable),
        left_out=left_out,
        validation=selection.validation,
        test=selection.test,
        _run=run,
        _models=models,
    )


def _describe_unreadable(left_out: Mapping[int, str]) -> str:
    """Return the trials whose checkpoints cannot be read, and why the first cannot."""
    whose = "whose checkpoint"
    if len(left_out) > 1:
        whose += "s"
    return (
        f"{format_numbers(list(left_out))}, {whose} cannot be read: {next(iter(left_out.values()))}"
    )


def _sentence(words: str) -> str:
    return f"{words[0].upper()}{words[1:]}."


def _check_run(run: StoredRun) -> None:
    """Raise an error if the trials of a run have no models that could be combined."""
    if not run.experiment.trains_model:
        raise RunError(
            f"run {run.run_id} calls a train function or a program, so only your code can load its"
            " models",
            next_step="Combine the trials of a model that the workbench trained.",
        )
    if is_automl(run.experiment):
        raise RunError(
            "the result of an AutoML run is an ensemble already",
            next_step=suggest("export", run.run_id, lead="To export it", to="best"),
        )


def _objective_of(history: History, metric: str | None) -> Objective:
    objectives = [item for item in history.objectives if metric in (None, item.metric)]
    if not objectives:
        raise ArgumentError(
            f"{metric!r} is not an objective of the run",
            field="metric",
            allowed=[item.metric for item in history.objectives],
        )
    return objectives[0]


def _candidates(
    run: StoredRun, history: History, objective: Objective, wanted: Iterable[int] | None
) -> list[Trial]:
    """Return the trials to select from, the best first."""
    sign = -sign_of(objective.goal)
    ranked = history.ranked()
    if objective != history.objectives[0]:
        ranked.sort(key=lambda trial: sign * trial.values.get(objective.metric, math.inf))
    kept = [trial for trial in ranked if trial.best_checkpoint is not None]
    if wanted is not None:
        numbers = list(dict.fromkeys(wanted))
        _check_wanted(history, numbers, ranked, kept)
        kept = [trial for trial in kept if trial.number in numbers]
        if len(kept) < 2:
            raise ArgumentError(
                "an ensemble needs several trials", field="trials", allowed="two or more"
            )
    if len(kept) < 2:
        raise _too_few(run, len(kept), num_lost=len(ranked) - len(kept))
    if wanted is None:
        return kept[:MAX_TRIALS]
    return kept


def _too_few(run: StoredRun, num_kept: int, *, num_lost: int) -> RunError:
    problem = f"an ensemble needs at least two trials with checkpoints, but the run has {num_kept}"
    if not num_lost:
        more = suggest("extend", run.run_id, trials=10, lead="To try more configurations")
        return RunError(problem, next_step=more)
    return RunError(
        f"{problem}: {format_count(num_lost, 'complete trial')} kept no checkpoint",
        next_step=(
            "Set resources.keep_best to the number of trials to combine, and start a new run."
        ),
    )


def _check_wanted(
    history: History, numbers: Sequence[int], ranked: Sequence[Trial], kept: Sequence[Trial]
) -> None:
    allowed = "none"
    if kept:
        allowed = format_numbers(sorted(trial.number for trial in kept))
    complete = {trial.number for trial in ranked}
    usable = {trial.number for trial in kept}
    for number in numbers:
        if number in usable:
            continue
        if number not in history.trials:
            raise no_such_trial(history, number, "trials")
        problem = f"the checkpoints of trial {number} are not kept"
        if number not in complete:
            state = history.trials[number].state
            problem = f"trial {number} is {state}" + (
                ", but breaks a constraint" * (state == "complete")
            )
        raise ArgumentError(problem, field="trials", allowed=allowed)


def write_ensemble_bundle(
    run: StoredRun,
    folder: Path,
    *,
    used: Sequence[Mapping[str, Any]],
    values: Mapping[str, float],
    force: bool,
    title: str,
    of: str,
    holds: str,
    write_model: Callable[[Path], object],
) -> None:
    """Write several models as one bundle, or nothing if they cannot be exported.

    Args:
        run: The run that trained them.
        folder: A folder that is empty or does not exist.
        used: The models with their weights, as they are listed for programs.
        values: Scores by name, such as test_accuracy.
        force: Write into a folder that is not empty.
        title: The title of its README.
        of: The origin of the bundle, as a sentence.
        holds: Other parts of the graph, next to the weights of the models.
        write_model: Writes the graph, its card and its script into a folder.

    Raises:
        RunError: If the folder is not empty or cannot be written, or the models cannot be exported.
    """
    configuration = {"run_id": run.run_id, "params": {}, "values": dict(values), "used": list(used)}
    with new_bundle(folder, force=force) as beside:
        write_model(beside)
        text = json.dumps(configuration, indent=2, allow_nan=False)
        (beside / "configuration.json").write_text(text + "\n", encoding="utf-8")
        write_report(run, beside / "report.html")
        (beside / "README.md").write_text(
            f"# {title}\n\n{of}\n\n`model.onnx` holds {holds} and their weights. Predict with numpy"
            " and onnxruntime only:\n\n    python predict.py rows.csv\n\n`card.json` describes its"
            " inputs and its scores, `configuration.json` lists the models, `report.html` is the"
            " report of the whole run.\n",
            encoding="utf-8",
        )
