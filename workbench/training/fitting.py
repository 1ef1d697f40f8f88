"""Trains models without optimizer steps. They are fitted to all samples at once, round by round.

A round counts as a few epochs. It ends with the same evaluation, report and checkpoint as an epoch
of the loop. So trees and networks are compared, stopped early, stored and loaded in the same way.
An attempt that was killed continues after the last round that it stored.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np
import torch
from threadpoolctl import threadpool_limits
from torch import Tensor, nn

from workbench.data import Datasets, Split
from workbench.data.targets import are_shares, class_of_each
from workbench.experiment.trial_value import TrialValue, find_divergence
from workbench.foundation.errors import ExperimentError
from workbench.models.configurations import FittedConfiguration
from workbench.models.exits import check_task
from workbench.models.fitted_estimator import FittedEstimator
from workbench.models.staged_fitting import Growth
from workbench.training import checkpoint
from workbench.training.assembly import trial_settings
from workbench.training.attempt_events import AttemptEvents, Report
from workbench.training.evaluation import Predictor, evaluate, failed_test, tested
from workbench.training.loading import load_trial_data
from workbench.training.loss_and_metrics import metrics_of, pairing_of
from workbench.training.optimizers import defer_compiler
from workbench.training.outcome import Outcome, diverged
from workbench.training.planning.settings import TrialSettings, fitted_of
from workbench.training.strategies.strategy import Worker
from workbench.training.strategies.worker_group import Group
from workbench.training.tensor_source import Source
from workbench.training.worker_task import LAST, TrialTask

_EVALUATED_AT_ONCE = 4096
# A fit that is shorter than this starts again. Longer ones are stored so often, unless that takes
# more than a part of the time.
_STORED_EVERY_S = 10.0
_PART_FOR_STORING = 0.05


def fit(task: TrialTask, report: Report) -> Outcome:
    """Fit the model of one trial.

    Args:
        task: The order, with a fitted model.
        report: Receives events, and returns whether the trial should stop.

    Returns:
        How the training ended.

    Raises:
        WorkbenchError: If the experiment cannot be carried out with this configuration.
    """
    if task.num_workers > 1:
        raise ExperimentError(
            "a model that is fitted to all samples at once can only have one worker",
            field="plan.workers",
            allowed="1",
        )
    if task.experiment.federated is not None:
        raise ExperimentError(
            "a model that is fitted to all samples at once cannot make steps on clients",
            field="federated",
            next_step="Remove it, or choose a model that is trained by steps.",
        )
    configuration = fitted_of(task.experiment, task.params, loads_code=True)
    assert configuration is not None
    datasets = load_trial_data(task.run_id, task.experiment, task.seed, task.params)
    # Raises an error if it cannot take the data.
    check_task(_built(configuration, datasets), datasets.task, datasets.target_shape)
    settings = trial_settings(task, torch.device("cpu"), datasets)
    _check_start(settings)
    with threadpool_limits(limits=task.experiment.resources.cpus_per_worker):
        return _Fitting(task, configuration, datasets, settings, report).run()


def _built(configuration: FittedConfiguration, datasets: Datasets) -> nn.Module:
    """Return the model as it is before it is fitted."""
    return configuration.build(
        input_shape=datasets.input_shape,
        num_outputs=datasets.num_outputs,
        vocabulary_size=datasets.vocabulary_size,
    )


def _check_start(settings: TrialSettings) -> None:
    reasons = {
        "weights": "has no initial weights",
        "adapter": "has no layers to adapt",
        "initialisation": "has no initial weights",
        "augment": "sees each sample only once",
    }
    for name, reason in reasons.items():
        if getattr(settings.training, name) not in (None, "default"):
            raise ExperimentError(
                f"a model that is fitted to all samples at once {reason}",
                field=f"training.{name}",
                next_step="Remove it.",
            )


class _Fitting:
    """One attempt: rounds, with a report after each of them."""

    def __init__(
        self,
        task: TrialTask,
        configuration: FittedConfiguration,
        datasets: Datasets,
        settings: TrialSettings,
        report: Report,
    ) -> None:
        self._task, self._configuration, self._datasets = task, configuration, datasets
        self._report, self._settings = report, settings
        self._epochs = settings.training.epochs
        self._pairing = pairing_of(task.experiment, datasets)
        self._metrics = metrics_of(task.experiment, datasets, pairing=self._pairing)
        self._worker = Worker(0, 1, torch.device("cpu"), Group(0, 1, torch.device("cpu"), None))
        self._validation = Source(datasets.validation, torch.device("cpu"))
        self._began_s = perf_counter()
        self._events = AttemptEvents(task, report, self._worker, started_s=self._began_s)
        self._value = TrialValue(task.experiment)
        self._kept: _Kept | None = None
        self._step, self._without_gain = 0, 0
        self._stored_s, self._storing_s = 0.0, 0.0

    def run(self) -> Outcome:
        num_train = len(self._datasets.train)
        rounds = min(self._epochs, self._configuration.max_rounds)
        stops = self._events.send(
            self._events.planned(self._settings.plan, self._datasets, self._metrics)
        )
        growth = self._resume()
        self._stored_s = perf_counter()
        is_grown = self._configuration.is_instant or not stops
        patience = self._configuration.patience
        for number, model in enumerate(
            self._grown(rounds, growth) if is_grown else (), start=growth.num_done + 1
        ):
            self._step = self._epochs * number // rounds
            values, outputs = self._evaluate(model)
            stops = self._report_round(self._step, values, num_train)
            name = find_divergence(self._task.experiment, values)
            if name is not None:
                if self._kept is not None:
                    self._save(self._kept)
                return diverged(name, values[name], self._step, values)
            self._check_measured(values)
            is_best = self._value.report(values, step=self._step)
            if is_best or not self._value.follows_best:
                self._kept = _Kept(self._as_fitted_now(model), self._step, values, outputs)
            self._without_gain = 0 if is_best else self._without_gain + 1
            if stops or (self._value.follows_best and self._without_gain == patience):
                break
            if number < rounds:
                self._store(growth, number)
        # Written once: to convert and write thousands of trees takes longer than to grow them.
        if self._kept is not None:
            stops = self._save(self._kept) or stops
            self._task.checkpoints.delete(LAST)
        if self._kept is not None and not stops:
            self._test(self._kept.model)
        return Outcome("stopped" if stops else "complete", self._step, self._value.result())

    def _grown(self, rounds: int, growth: Growth) -> Iterator[nn.Module]:
        """Return the models after each of the remaining rounds."""
        inputs, targets = _all_of(self._datasets.train)
        is_classes = self._datasets.task == "classification"
        options: dict[str, Any] = {"growth": growth} if self._configuration.can_continue else {}
        if self._configuration.has_small_steps:
            defer_compiler()
        return self._configuration.grow(
            inputs,
            self._fitted_to(targets),
            num_classes=self._datasets.num_outputs if is_classes else None,
            num_rounds=rounds,
            seed=self._task.seed,
            num_threads=self._task.experiment.resources.cpus_per_worker,
            **options,
        )

    def _resume(self) -> Growth:
        """Return where an earlier attempt was, and take over its best model."""
        content = None
        if self._task.resume and self._configuration.can_continue:
            content = checkpoint.read_latest(self._task.checkpoints)
        if content is None or "growth" not in content:
            return Growth()
        self._value.load(content["value"])
        self._without_gain = content["without_gain"]
        self._step = content["step"]
        best = content["kept"]
        if best is not None:
            model = _built(self._configuration, self._datasets)
            model.load_state_dict(content["strategy"]["model"])
            self._kept = _Kept(model.eval(), best["step"], best["values"], best["outputs"])
        return Growth(content["num_rounds"], content["growth"])

    def _store(self, growth: Growth, number: int) -> None:
        """Write where the fit is, if that is worth the time."""
        now_s = perf_counter()
        if now_s - self._stored_s < max(_STORED_EVERY_S, self._storing_s / _PART_FOR_STORING):
            return
        state = growth.taken()
        if state is None:
            return
        kept = self._kept
        content = {
            "strategy": {"model": {} if kept is None else kept.model.state_dict()},
            "step": self._step,
            "num_rounds": number,
            "growth": state,
            "value": self._value.state(),
            "without_gain": self._without_gain,
            "kept": None
            if kept is None
            else {"step": kept.step, "values": kept.values, "outputs": kept.outputs},
        }
        checkpoint.save(self._task.checkpoints, content, last=True, best=False)
        self._stored_s = perf_counter()
        self._storing_s = self._stored_s - now_s

    def _as_fitted_now(self, model: nn.Module) -> nn.Module:
        """Return a model that later rounds do not change."""
        # Rounds fit an estimator further in place, so the best one must be copied. Trees only grow,
        # and a model knows how many of them are its own. The last model of all needs no copy.
        if not isinstance(model, FittedEstimator) or not self._value.follows_best:
            return model
        copied = FittedEstimator()
        copied.load_state_dict(model.state_dict())
        return copied

    def _fitted_to(self, targets: np.ndarray) -> np.ndarray:
        """Check targets, and return them in the form that models are fitted to."""
        if self._datasets.task != "classification":
            self._pairing.check_fitted(targets)
            if targets.shape[1:] == (1,):
                return targets[:, 0]
            return targets
        num_classes = self._datasets.num_outputs
        numbers = class_of_each(targets, num_classes)
        self._pairing.check_fitted(targets, are_shares=are_shares(targets, num_classes))
        return numbers

    def _evaluate(self, model: nn.Module) -> tuple[dict[str, float], Tensor]:
        """Return metrics and outputs on the validation samples."""
        fitted = _Fitted(model)
        measured = evaluate(
            fitted,
            self._validation,
            self._metrics,
            batch=_EVALUATED_AT_ONCE,
            worker=self._worker,
        )
        values = {f"val_{name}": value for name, value in measured.items()}
        return values, torch.cat(fitted.outputs)

    def _test(self, model: nn.Module) -> None:
        """Measure the model that is kept on the test samples. See `evaluation.measure_kept`."""
        split = self._datasets.test
        if split is None or not len(split):
            return
        source = Source(split, torch.device("cpu"), part="test")
        try:
            measured = evaluate(
                _Fitted(model), source, self._metrics, batch=_EVALUATED_AT_ONCE, worker=self._worker
            )
        except Exception as error:  # the fitted model must not be lost
            self._report(failed_test(self._task, error))
            return
        self._report(tested(self._task, measured))

    def _check_measured(self, values: dict[str, float]) -> None:
        metric = self._task.experiment.objectives[0].metric
        if metric not in values:
            raise ExperimentError(
                f"{metric!r} is not measured for a model that is fitted to all samples at once",
                field="objectives.0.metric",
                allowed=values,
            )

    def _report_round(self, step: int, values: dict[str, float], num_train: int) -> bool:
        samples_per_s = num_train * step / max(perf_counter() - self._began_s, 1e-9)
        return self._events.send(
            self._events.reported(step, values, epoch=float(step), samples_per_s=samples_per_s)
        )

    def _save(self, kept: _Kept) -> bool:
        content = {
            "strategy": {"model": kept.model.state_dict()},
            "step": kept.step,
            "values": kept.values,
            # Ensembles need these outputs, and computing them again takes long.
            checkpoint.VALIDATION_OUTPUTS: kept.outputs,
        }
        path = checkpoint.save(self._task.checkpoints, content, last=False, best=True)
        return self._events.send(self._events.saved(kept.step, path, best=True))


@dataclass(frozen=True)
class _Kept:
    """The model of the best round, with its measurements."""

    model: nn.Module
    step: int
    values: dict[str, float]
    outputs: Tensor


class _Fitted(Predictor):
    """A fitted model, which is only evaluated."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self.outputs: list[Tensor] = []

    def predict(self, inputs: Tensor) -> Tensor:
        with torch.inference_mode():
            outputs = self._model(inputs)
        self.outputs.append(outputs)
        return outputs

    def train(self, mode: bool) -> None:
        self._model.train(mode)


def _all_of(split: Split) -> tuple[np.ndarray, np.ndarray]:
    inputs, targets = (np.asarray(part) for part in split.batch(np.arange(len(split))))
    return inputs.reshape(len(inputs), math.prod(inputs.shape[1:])), targets
