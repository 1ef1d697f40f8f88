"""The handle of an AutoML run: its progress and, once it has ended, its result.

Everything is read from the store, so that a handle can be dropped and attached again. The test part
is opened only after the run has ended and the model has been chosen, and only to compute its
scores.
"""

from __future__ import annotations

import html
import math
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, overload

import numpy as np
from typing_extensions import Self

from workbench.data.unusual_rows import (
    PREDICTION,
    UnusualValue,
    as_learned,
    describe_unusual,
    numbers_in,
    unusual_values,
)
from workbench.experiment.automl import HELD_OUT, is_automl
from workbench.foundation.errors import ArgumentError, DataError, RunError, Suggestion
from workbench.foundation.events import FINISHED_RUN_STATES
from workbench.foundation.formatting import format_percent
from workbench.runs.automl.candidate_results import candidates_of, describe_best, describe_counts
from workbench.runs.automl.candidates import NUM_ENSEMBLED
from workbench.runs.automl.class_decisions import Decisions, learn_decisions
from workbench.runs.automl.error_bands import ErrorBands, copies_in, learn_bands, thinned
from workbench.runs.automl.held_out_analysis import AskedScore, TestAnalysis, analyse
from workbench.runs.automl.latency import limit_of, row_s
from workbench.runs.automl.model_selection import (
    Candidate,
    ChosenModel,
    can_choose,
    choose,
    describe,
    metric_of,
    predict_s,
)
from workbench.runs.automl.preparation import (
    HeldOut,
    Interpreter,
    LearningData,
    unpack,
)
from workbench.runs.automl.refitting import refit, with_all_rows
from workbench.runs.automl.result_summary import (
    SIMPLEST,
    columns_of,
    model_card,
    summary_lines,
    table_of,
)
from workbench.runs.automl.row_roles import blocks_in, weights_in
from workbench.runs.automl.score_intervals import LEVEL, Judged
from workbench.runs.automl.scores import (
    measure_of,
    score_intervals,
    scores_of,
    several_scores,
    weighted_median,
    weighted_quantiles,
)
from workbench.runs.automl.stored_model import (
    STORED_MODEL,
    StoredModel,
    read,
    without_unused,
    write,
)
from workbench.runs.automl.targets import Task
from workbench.runs.automl.task_detection import (
    as_samples,
    read_labelled,
    read_several_labelled,
)
from workbench.runs.cell_outputs import show_run
from workbench.runs.notebook_output import linked, output_forms, picture
from workbench.runs.progress import progress_of
from workbench.runs.run import Run, attach
from workbench.runs.stored_run import StoredRun
from workbench.runs.waiting import is_shown_in_this_cell, is_whole_in_this_cell, waiting_for
from workbench.store.database import Store
from workbench.store.database.run_files import read_objects

if TYPE_CHECKING:
    import pandas as pd

# Of the time to conclude: when candidates have been judged, and when models have been fitted again.
# The rest is left to shuffle columns.
_JUDGED, _REFITTED = 0.35, 0.8
_LABEL_FROM = 0.5
_LEAST_SHUFFLING_S = 1.0
_MEASURED_S = 1.0
"""For how long the time to predict is measured, all models together."""


class Continued(NamedTuple):
    """How a run of an earlier call goes on."""

    note: str
    """In words."""
    more_s: float
    """How much more time it gets, in seconds."""


class AutoML:
    """An AutoML run and its result.

    Example:
        >>> automl = wb.automl("breast_cancer", time="10s")
        >>> automl.wait().has_result
        True
    """

    continued: Continued | None = None
    """How the run goes on, if an earlier call has started it."""
    has_new_driver: bool = False
    """Whether such a run got a new driver."""

    def __init__(self, run: Run) -> None:
        """Attach to a run that `automl` started.

        Args:
            run: The run.

        Raises:
            RunError: If it is not an AutoML run.
        """
        if not is_automl(run.experiment):
            raise RunError(
                f"run {run.run_id} is not an AutoML run",
                next_step="Attach to it with: wb.attach(...)",
            )
        self.run = run
        self.longest_s = math.inf
        """For how many seconds the model is chosen and examined, beyond what is necessary."""
        self._began_s: float | None = None
        self._ended: tuple[int, ChosenModel, np.ndarray] | None = None
        self._analysed: tuple[int, TestAnalysis] | None = None
        self._refitted: dict[str, str] = {}
        self._stored_model: str | None = None
        self._delivered: tuple[int, StoredModel] | None = None
        self._measured_until_s = math.inf
        self._learned_bands: tuple[int, ErrorBands] | None = None
        self._timed: tuple[StoredModel, float] | None = None

    @classmethod
    def attach(cls, run_id: str = "last", *, store: Store | str | None = None) -> Self:
        """Attach to an AutoML run that was started earlier, by this or another process.

        Args:
            run_id: A run id, a prefix or a name that only one run has, or "last".
            store: The store, or None for the usual one.

        Raises:
            RunNotFoundError: If there is no such run.
            RunError: If it is not an AutoML run.
        """
        return cls(attach(run_id, store=store))

    @property
    def finished(self) -> bool:
        """Whether the run has ended, so that there is a result."""
        return self.run.finished

    @property
    def has_result(self) -> bool:
        """Whether the run has ended with a usable result, which may be the simplest guess."""
        return self.finished and can_choose(self.run.history)

    @property
    def progress(self) -> str:
        """The progress of the run in one line."""
        history = self.run.history
        progress = progress_of(history, history.now_unix_s())
        candidates = candidates_of(history)
        parts = [self.run.state, describe_counts(candidates)]
        if best := describe_best(candidates):
            parts.append(best)
        if not self.finished and progress.part is not None:
            part = f"{format_percent(progress.part)} of the budget"
            if left := progress.describe_left():
                part += f", {left}"
            parts.append(part)
        return "; ".join(parts)

    def wait(self, timeout_s: float | None = None) -> Self:
        """Wait for the end of the run. Interrupting the wait does not stop the run.

        Args:
            timeout_s: Maximum number of seconds to wait, or None for no limit.

        Raises:
            RunError: If the run failed or was lost.
        """
        with waiting_for(self.run.stored, lambda: self.progress):
            self.run.wait(timeout_s)
        return self

    def stop(self) -> Self:
        """Stop the run now, and keep what it has found so far."""
        self.run.stop()
        return self

    def leaderboard(self) -> pd.DataFrame:
        """Return one row for the result, each trained model, and the simplest guess.

        The result comes first, then the models from the best on, then the guess. Models below a
        second layer have no weight, as it decides for each class whom to believe.

        `fit_s` is the time of training on all folds in seconds, `predict_s` the time to predict
        1,000 rows with the models of all folds, `row_s` the time in which the result reads and
        predicts one row, and `with` the configuration. Columns
        with `val_` are scores on the rows by which models are chosen, so the best ones are better
        than on new rows. Only the result and the guess have test scores: choosing by test scores
        would make them worthless.

        Raises:
            RunError: If the run has not ended, or no model was trained to its end.
        """
        return table_of({"columns": columns_of(rows := self._rows()), "rows": rows})

    def _rows(self) -> list[dict[str, Any]]:
        """Return the rows of the leaderboard. A row has no value for what was not measured."""
        stored: Any = self.run.history.result
        if stored and self.finished and "leaderboard" in stored:
            return list(stored["leaderboard"]["rows"])
        chosen = self._chosen
        task = self._task
        self._measured_until_s = min(time.monotonic() + _MEASURED_S, self._until_s(1.0))
        is_joined = len(chosen.used) > 1
        row_time = {} if self._row_time is None else {"row_s": self._row_time["row_s"]}
        rows: list[dict[str, Any]] = []
        if is_joined:
            joined = {**self._validated(chosen.predicted), **self._test, **row_time}
            rows.append({"model": self._label, "trial": None, "weight": 1.0, **joined})
        for candidate, weight in zip(chosen.candidates, chosen.weights, strict=True):
            tested = {}
            if weight == 1.0 and not is_joined:
                tested = self._test | row_time
            shown = chosen.shown_weight(weight)
            row = {"model": candidate.title, "trial": candidate.trial, "weight": shown}
            row |= {
                **self._validated(candidate.predicted),
                **tested,
                "fit_s": self._fit_s(candidate.trial),
                "predict_s": self._predict_s(candidate),
            }
            rows.append(row | {"with": describe(candidate.params, candidate.family)})
        guess = np.tile(self._held_out.guess, (len(chosen.targets), 1))
        last = {"model": SIMPLEST[task], "trial": None, "weight": 0.0 if chosen.used else 1.0}
        weights = self._held_out.weights_of_validation(len(chosen.targets))
        guessed = _named("val", self._guess_scores(guess, chosen.targets, weights))
        rows.append({**last, **guessed, **self._guess_test})
        return rows

    def _predict_s(self, candidate: Candidate) -> float | None:
        """Return how long a configuration takes to predict 1,000 rows, in seconds, if it is known.

        The first fold is measured. The others take the same time.
        """
        is_known = bool(candidate.models) or candidate.trial is not None
        if time.monotonic() > self._measured_until_s or not is_known:
            return None
        return predict_s(self.run, candidate, self._learning, len(self._learning.folds))

    def _fit_s(self, trial: int | None) -> float | None:
        """Return how long a configuration was trained on all its folds, in seconds, if it was."""
        if trial is None:
            return None
        trials = self.run.history.trials
        same = [
            other for other in trials.values() if other.configuration == trials[trial].configuration
        ]
        return sum(other.duration_s or 0.0 for other in same)

    def score(self, data: Any = None, target: str | None = None) -> dict[str, float]:
        """Return the scores of the model on samples that it has not seen, the main one first.

        Args:
            data: Samples with their targets, as `automl` takes them, or None for the held-out test
                part. Scores on samples that the run was given are too optimistic.
            target: The column to predict, if data is a table, or None for the run's.

        Returns:
            accuracy, balanced_accuracy and log_loss, or r2, rmse and mae. The optimised one comes
            first.

        Raises:
            RunError: If the run has not ended, or no model was trained to its end.
            DataError: If the samples cannot be read.
        """
        if data is None:
            if (stored := self._stored_scores("test")) is not None:
                return stored
            return {name.removeprefix("test_"): value for name, value in self._test.items()}
        judged = self._tested(data, target)
        return self._scores(judged.predicted, judged.targets, judged.weights)

    def _labelled(self, data: Any, target: str | None) -> tuple[Any, np.ndarray]:
        interpreter = self._interpreter
        if interpreter.target_names:
            return read_several_labelled(data, interpreter.target_names)
        name = target if isinstance(data, tuple) else target or interpreter.target_name
        return read_labelled(data, name, interpreter.labels)

    def intervals(
        self, data: Any = None, target: str | None = None
    ) -> dict[str, tuple[float, float]]:
        """Return the interval of each score that holds its true value with 90 % certainty.

        If rows belong to groups or follow in time, the interval is wider, because such rows are no
        independent evidence.

        Args:
            data: As in `score`.
            target: As in `score`.

        Returns:
            The low and the high end by score. A score is missing if there are too few samples.

        Raises:
            RunError: If the run has not ended, or no model was trained to its end.
            DataError: If the samples cannot be read.
        """
        stored: Any = self.run.history.result
        if data is None and stored and self.finished and "intervals" in stored:
            return {name: (low, high) for name, (low, high) in stored["intervals"].items()}
        judged = self._tested(data, target)
        return score_intervals(
            judged.predicted,
            judged.targets,
            self._task,
            metric_of(self.run.experiment),
            blocks=judged.blocks,
            weights=judged.weights,
            decisions=self._decisions,
            quantiles=self._held_out.quantiles,
            validation=self._validation,
            several=self._several,
        )

    @property
    def _validation(self) -> Judged | None:
        """The validation samples with their predictions."""
        chosen = self._chosen
        num = len(chosen.targets)
        blocks = self._held_out.blocks_of_validation(num)
        if blocks is None or not chosen.used or self._held_out.quantiles:
            return None
        weights = self._held_out.weights_of_validation(num)
        return Judged(chosen.predicted, chosen.targets, blocks, weights)

    def _tested(self, data: Any, target: str | None) -> Judged:
        """Return the test part or other samples with their predictions."""
        if data is None:
            return self._judged(self._ending()[1])
        model = self._model
        samples, targets = self._labelled(data, target)
        weights = None
        name = self._held_out.weight_column
        if name is not None and name in getattr(samples, "columns", ()):
            weights = _of_mean_1(weights_in(samples, name))
        blocks = blocks_in(samples, self._held_out.roles)
        _, predicted, _ = self._predicted(model, samples, field="data")
        return Judged(predicted, targets, blocks, weights)

    def _stored_scores(self, name: str) -> dict[str, float] | None:
        """Return scores as the driver of the run stored them, or None if it stored none."""
        stored: Any = self.run.history.result
        if not stored or not self.finished or name not in stored:
            return None
        return {
            score: math.nan if value is None else value for score, value in stored[name].items()
        }

    @property
    def baseline(self) -> dict[str, float]:
        """The test scores of the simplest guess.

        The most frequent class, or the mean of the target.
        """
        if (stored := self._stored_scores("baseline")) is not None:
            return stored
        return {name.removeprefix("test_"): value for name, value in self._guess_test.items()}

    @property
    def analysis(self) -> TestAnalysis:
        """Which classes are confused or how far off numbers are, and which columns matter.

        They are computed on the test part.

        Raises:
            RunError: If the run has not ended, or no model was trained to its end.
        """
        seq = self.run.row.last_seq
        stored = (self.run.history.result or {}).get("analysis")
        if isinstance(stored, dict):
            return TestAnalysis(stored)
        (chosen, predicted) = self._ending()
        held_out = self._held_out
        if self._analysed is None or self._analysed[0] != seq:
            interpreter = held_out.interpreter
            analysis = analyse(
                lambda samples: chosen.decisions.weighed(chosen.outputs(samples)),
                held_out.samples,
                held_out.targets,
                self._task,
                labels=interpreter.labels,
                target_name=interpreter.target_name,
                predicted=chosen.decisions.weighed(predicted),
                weights=held_out.weights,
                asked=self._asked_score(chosen),
                meant=interpreter.meant(held_out.samples),
                target_unit=interpreter.target_unit,
                longest_s=max(_LEAST_SHUFFLING_S, self._until_s(1.0) - time.monotonic()),
                outputs=chosen.outputs,
                target_names=interpreter.target_names,
            )
            self._analysed = (seq, TestAnalysis(analysis))
        return self._analysed[1]

    def _asked_score(self, chosen: ChosenModel) -> AskedScore | None:
        """Return the metric that the user chose, for importance. None for the default."""
        metric = metric_of(self.run.experiment)
        if metric is None or self._held_out.interpreter.target_names:
            return None
        measure = measure_of(metric, self._task, self._held_out.quantiles)

        def outputs(samples: Any) -> np.ndarray:
            predicted = chosen.outputs(samples)
            if measure.is_decided:
                return chosen.decisions.weighed(predicted)
            return self._with_quantiles(predicted, samples)

        return AskedScore(metric, measure.score, measure.goal == "minimize", outputs)

    @overload
    def predict(self, samples: Any) -> Any: ...

    @overload
    def predict(self, samples: Any, *, interval: float) -> pd.DataFrame: ...

    def predict(self, samples: Any, *, interval: float | None = None) -> np.ndarray | pd.DataFrame:
        """Return the predicted class or number of each sample.

        A warning tells you if rows are far outside of what was learned, which `unusual` lists.
        Others tell you about unknown categories, and values that are missing or cannot be read.

        Args:
            samples: Samples like the X of `automl`, or a table with the same columns: a data frame
                or a path.
            interval: For numbers, the share of true numbers that lie between two ends, such as 0.9.

        Returns:
            The predictions. With `interval`, a table with the columns `prediction`, `low` and
            `high`. If the run was asked for quantiles, a table with a column for each: its level.
            For several targets, a table with a column for each.

        Raises:
            RunError: If the run has not ended, or no model was trained to its end.
            DataError: If they are samples of another kind or shape.
            ArgumentError: If classes have no interval, or it is not between 0 and 1.
        """
        model = self._model
        if interval is not None:
            self._check_interval(interval)
        read, predicted, notes = self._predicted(model, samples)
        _warn(notes)
        interpreter = model.chosen.interpreter
        if interpreter.target_names:
            if interpreter.are_labels:
                predicted = (predicted >= _LABEL_FROM).astype(int)
            return _as_table(predicted, interpreter.target_names)
        if model.chosen.interpreter.task == "regression":
            if interval is not None:
                return _with_interval(model, read, predicted[:, 0], interval)
            return (
                _as_table(predicted[:, 1:], model.quantiles) if model.quantiles else predicted[:, 0]
            )
        decided = model.chosen.decisions.weighed(predicted)
        return np.array(model.chosen.interpreter.labels)[decided.argmax(axis=1)]

    def _check_interval(self, interval: float) -> None:
        if self._interpreter.target_names:
            raise ArgumentError(
                "several targets have no interval",
                field="interval",
                next_step="Predict each in its own run.",
            )
        if self._task == "classification":
            raise ArgumentError(
                "classes have no interval", field="interval", next_step="Use predict_proba."
            )
        if not 0 < interval < 1:
            raise ArgumentError(
                f"{interval:g} is no share of rows",
                field="interval",
                allowed="between 0 and 1, such as 0.9",
            )

    @property
    def _bands(self) -> ErrorBands:
        """How large errors of the chosen model are: learned once for each end of the run."""
        seq = self.run.row.last_seq
        if self._learned_bands is None or self._learned_bands[0] != seq:
            self._learned_bands = (seq, self._learn_bands())
        return self._learned_bands[1]

    @property
    def _has_bands(self) -> bool:
        is_single = self._task == "regression" and not self._interpreter.target_names
        return is_single and bool(self._chosen.used)

    def _learn_bands(self) -> ErrorBands:
        chosen, rows = self._chosen, self._held_out.size_rows
        num = len(chosen.targets)
        if rows is not None:  # a run that was stopped may know the errors of its first folds only
            rows = replace(rows, inputs=rows.inputs[:num], rows=rows.rows[:num])
        weights = self._held_out.weights_of_validation(num)
        return thinned(learn_bands(chosen.predicted[:, 0], chosen.targets, rows, weights=weights))

    def _with_quantiles(self, predicted: np.ndarray, samples: Any) -> np.ndarray:
        """Return predictions with the quantiles that the user asked for, as (samples, 1 + levels).

        The simplest guess has the quantiles of the targets, whatever the sample.
        """
        levels = self._held_out.quantiles
        if not levels or not len(predicted):
            return predicted
        if not self._chosen.used:
            return self._guess_with_quantiles(len(predicted))
        return np.column_stack([predicted, self._bands.quantiles(predicted[:, 0], levels, samples)])

    def _guess_with_quantiles(self, num: int) -> np.ndarray:
        guess = self._held_out.guess
        if levels := self._held_out.quantiles:
            targets = self._chosen.targets
            weights = self._held_out.weights_of_validation(len(targets))
            guess = np.append(guess, weighted_quantiles(targets, levels, weights))
        return np.tile(guess, (num, 1))

    def unusual(self, samples: Any) -> pd.DataFrame:
        """Return the numbers that are far outside of what was learned, by row.

        A prediction is among them if it is far outside of the target's range. Nobody has tested
        the model on such rows.

        Args:
            samples: As in `predict`.

        Raises:
            RunError: If the run has not ended, or no model was trained to its end.
            DataError: If they are samples of another kind or shape.
        """
        import pandas as pd

        model = self._model
        values = _unusual_values(model, *self._predicted(model, samples)[:2])
        return pd.DataFrame(values, columns=list(UnusualValue._fields))

    def predict_proba(self, samples: Any) -> Any:
        """Return the probability of each class, in the order of `classes`.

        Samples and warnings are as in `predict`. For several labels, it is a table with the
        probability of each.

        Raises:
            RunError: If numbers are predicted, or there is no result yet.
        """
        model = self._model
        interpreter = model.chosen.interpreter
        if self._task == "regression" and not interpreter.are_labels:
            raise RunError("a regression has no class probabilities", next_step="Use predict.")
        _, predicted, notes = self._predicted(model, samples)
        _warn(notes)
        return (
            _as_table(predicted, interpreter.target_names) if interpreter.are_labels else predicted
        )

    @property
    def classes(self) -> list[Any]:
        """The classes as they were given, in the order of `predict_proba`, or empty for numbers."""
        return list(self._interpreter.labels)

    @property
    def notes(self) -> tuple[str, ...]:
        """What the user should know about the data, and whether an earlier run goes on."""
        more = () if self.continued is None else (self.continued.note,)
        return (*more, *self._held_out.notes)

    def export(self, folder: str | Path, *, force: bool = False) -> Path:
        """Write the result as a bundle.

        One ONNX graph from the columns as they are to the prediction.

        Args:
            folder: A folder that is empty or does not exist.
            force: Write into a folder that is not empty. Files of the same names are replaced.

        Raises:
            RunError: If there is no result yet, it cannot be exported, or the folder is not empty.
        """
        from workbench.runs.automl.exported_ensemble import write_ensemble

        parts = (self.run, self._model, self._held_out)
        write_ensemble(*parts, Path(folder), label=self._label, force=force)
        (Path(folder) / "MODEL_CARD.md").write_text(self.model_card(), encoding="utf-8")
        return linked(Path(folder))

    def model_card(self) -> str:
        """Return the model card as Markdown: data, scores, limits, and what is left to you.

        Raises:
            RunError: If the run has not ended, or no model was trained to its end.
        """
        target = self._interpreter.target_name
        return model_card(self._document(), name=self.run.name, target=target)

    def report(self, path: str | Path | None = None) -> Path:
        """Write the report of the run as one self-contained page. Arguments as in `Run.report`."""
        return self.run.report(path)

    def summary(
        self, write: Callable[[Suggestion], str] = str, *, has_notes: bool = True
    ) -> list[str]:
        """Return the model, its test scores, and the scores of the simplest guess, in a few lines.

        Args:
            write: Writes a next step that is a command. The default writes Python.
            has_notes: Whether the notes about the data follow, which may have been shown before.
        """
        return summary_lines(self._document(), self.run.history, write, has_notes=has_notes)

    def to_json(self) -> dict[str, Any]:
        """Return the result as plain values, as the driver of the run stored it if it did."""
        document = self._document()
        if "summary" not in document:
            document["summary"] = self.summary()
        return document

    def _document(self) -> dict[str, Any]:
        stored = self.run.history.result
        if stored is not None:
            return dict(stored)
        chosen = self._chosen
        return {
            "run_id": self.run.run_id,
            "state": self.run.state,
            "task": self._task,
            "metric": metric_of(self.run.experiment),
            "model": self._label,
            "used": [
                {
                    "trial": candidate.trial,
                    "family": candidate.family,
                    "weight": chosen.shown_weight(weight),
                    "params": candidate.params,
                    "num_folds": len(candidate.models),
                    "is_taught": candidate.is_taught,
                }
                for candidate, weight in chosen.used
            ],
            "decisions": {
                "temperature": chosen.decisions.temperature,
                "factors": list(chosen.decisions.factors),
                "curves": chosen.decisions.curves,
                "costs": chosen.decisions.costs,
                "text": chosen.decisions.describe(self._held_out.interpreter.labels),
            },
            "num_compared": len(chosen.candidates),
            "test": self.score(),
            "baseline": self.baseline,
            "intervals": {name: list(ends) for name, ends in self.intervals().items()},
            "split": self._split,
            "num_samples": dict(zip(("learning", "test"), self._held_out.num_samples, strict=True)),
            "notes": list(self.notes),
            "prediction_interval": self._tested_interval(),
            "leaderboard": {"columns": columns_of(rows := self._rows()), "rows": rows},
            "analysis": dict(self.analysis.findings),
            "refit": self._refitted,
            "quantiles": self._tested_quantiles(),
            "latency": self._row_time,
            STORED_MODEL: self._stored_model,
        }

    def __repr__(self) -> str:
        stored: Any = self.run.history.result
        text = f"AutoML({self.run.run_id!r}): {self.progress}"
        if stored and stored.get("summary"):
            # The first line may be that nothing was learnt in time.
            text += f"; {stored['summary'][0]}"
        return text

    def _ipython_display_(self) -> None:
        shown = self.run.stored
        # What was chosen only here is not in the store, where a thread would read it.
        is_of_here = shown.finished and shown.history.result is None
        if not is_of_here and is_whole_in_this_cell(shown):
            return
        if is_of_here or is_shown_in_this_cell(shown) or not show_run(shown, _forms_of):
            raise NotImplementedError  # IPython then takes the forms below

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        stored: Any = self.run.history.result
        # Choosing loads what the author of the run pickled, and looking at a run runs nothing of
        # it.
        is_known = stored is not None or (self._ended is not None and self.has_result)
        if stored:
            lines = stored["summary"]
        else:
            lines = self.summary() if is_known else [repr(self)]
        if is_shown_in_this_cell(self.run.stored):
            return {"text/plain": "\n".join(lines)}
        shown = output_forms(self.run.stored)
        if not is_known:
            return shown
        paragraphs = "".join(f"<p style='margin:2px 0'>{html.escape(line)}</p>" for line in lines)
        table = table_of(stored["leaderboard"]) if stored else self.leaderboard()
        page = table.head(12).to_html(
            index=False, na_rep="", float_format="{:.4g}".format, border=0
        )
        forms = {
            "text/html": paragraphs + page + picture(self.run.stored),
            "text/plain": "\n".join(lines),
        }
        # A live view knows no result that was chosen only here, after a run that stored none.
        if not stored:
            return forms
        return shown | forms

    @cached_property
    def _learning(self) -> LearningData:
        component = self.run.experiment.data
        assert component is not None
        return component.load(field="data")

    @cached_property
    def _held_out(self) -> HeldOut:
        component = self.run.experiment.data
        assert component is not None
        sha256 = str(component.options[HELD_OUT])
        return unpack(
            sha256, read_objects(self.run.store.artifacts_of(self.run.run_id), [sha256])[sha256]
        )

    @property
    def _interpreter(self) -> Interpreter:
        """How samples are read. The model that predicts has it, and it is the same for all ends."""
        if self._delivered is not None:
            return self._delivered[1].chosen.interpreter
        return self._held_out.interpreter

    @property
    def _task(self) -> Task:
        return self._interpreter.task

    def _tested_interval(self) -> dict[str, float] | None:
        """Return how often the intervals of predictions hold the numbers of test samples."""
        if not self._has_bands:
            return None
        numbers = self._ending()[1][:, 0]
        low, high = self._bands.around(numbers, LEVEL, self._held_out.samples)
        targets, weights = self._held_out.targets, self._test_weights
        return {
            "level": LEVEL,
            "held": float(np.average((low <= targets) & (targets <= high), weights=weights)),
            "median_width": weighted_median(high - low, weights),
        }

    def _tested_quantiles(self) -> dict[str, float] | None:
        """Return the share of test samples below each quantile that the user asked for."""
        levels = self._held_out.quantiles
        if not levels or not self._chosen.used:
            return None
        below = self._held_out.targets[:, None] <= self._ending()[1][:, 1:]
        shares = np.average(below, axis=0, weights=self._test_weights)
        return {f"{level:g}": float(share) for level, share in zip(levels, shares, strict=True)}

    @property
    def _split(self) -> dict[str, Any]:
        """The columns that decided which samples are tested, and the number of test groups."""
        roles = self._held_out.roles
        num_groups = None
        if roles.group is not None and roles.blocks.groups is not None:
            num_groups = len(np.unique(roles.blocks.groups))
        return {
            "group": roles.group,
            "time": roles.time,
            "num_test_groups": num_groups,
            "own_parts": list(self._held_out.own_parts),
        }

    @property
    def _label(self) -> str:
        used = self._model.chosen.used
        if not used:
            return SIMPLEST[self._task]
        if len(used) == 1:
            return used[0][0].title
        kind = "ensemble" if self._model.chosen.second is None else "stack"
        return f"{kind} of {len(used)}"

    @property
    def _chosen(self) -> ChosenModel:
        return self._ending()[0]

    @property
    def _test(self) -> dict[str, float]:
        return self._named_test(self._ending()[1])

    def _named_test(self, predicted: np.ndarray) -> dict[str, float]:
        judged = self._judged(predicted)
        return _named("test", self._scores(judged.predicted, judged.targets, judged.weights))

    def _judged(self, predicted: np.ndarray) -> Judged:
        """Return the test samples with predictions."""
        held_out = self._held_out
        return Judged(predicted, held_out.targets, held_out.roles.blocks, self._test_weights)

    @property
    def _test_weights(self) -> np.ndarray | None:
        weights = self._held_out.weights
        return None if weights is None else _of_mean_1(weights)

    @property
    def _decisions(self) -> Decisions:
        """How probabilities are corrected, as the stored model or the chosen one does it."""
        if self._delivered is not None and self._delivered[0] == self.run.row.last_seq:
            return self._delivered[1].chosen.decisions
        return self._chosen.decisions

    def _copies(self, chosen: ChosenModel) -> np.ndarray | None:
        """Return the row of each validation sample, or None if no row has copies for its weight."""
        if self._held_out.weights is None:
            return None
        return copies_in(chosen.predicted, chosen.targets)

    def _learn_decisions(self, chosen: ChosenModel) -> Decisions:
        """Learn how probabilities are corrected, and which class follows from them."""
        if self._task == "regression" or not chosen.used:
            return Decisions()  # the simplest guess is the most frequent class, whatever it costs
        metric = metric_of(self.run.experiment)
        measure = None if metric is None else measure_of(metric, self._task)
        return learn_decisions(
            chosen.predicted,
            chosen.targets,
            score=None if measure is None else measure.tuned,
            class_factors=self._held_out.class_factors,
            distance_power=0 if measure is None else measure.distance_power,
            copies=self._copies(chosen),
        )

    def _ending(self) -> tuple[ChosenModel, np.ndarray]:
        """Choose a model and test it: once for each end of the run, which may be extended."""
        last_seq = self._end()
        if self._ended is None or self._ended[0] != last_seq:
            most = (self.run.history.result or {}).get("num_compared")  # in the time that there was
            judged_s = self._until_s(_JUDGED)
            chosen = choose(
                self.run,
                self._learning,
                self._held_out.interpreter,
                self._held_out.guess,
                most=most if isinstance(most, int) else NUM_ENSEMBLED,
                until_s=judged_s,
                fit_until_s=self._until_s(_REFITTED),
                num_rows=sum(self._held_out.num_samples),
                quantiles=self._held_out.quantiles,
                examples=self._held_out.examples,
                are_independent=self._are_independent,
            )
            chosen = replace(chosen, decisions=self._learn_decisions(chosen))
            samples = self._held_out.samples
            # The quantiles of these predictions need the choice.
            self._ended = (last_seq, chosen, predicted := chosen.outputs(samples))
            self._ended = (last_seq, chosen, self._with_quantiles(predicted, samples))
        return self._ended[1], self._ended[2]

    @property
    def _are_independent(self) -> bool:
        """Whether no sample belongs to another one, by group, time or weight."""
        roles = self._held_out.roles
        return roles.group is None and roles.time is None and self._held_out.weights is None

    def _end(self) -> int:
        """Return the number of the last event of the run, which must have ended."""
        row = self.run.row
        if row.state not in FINISHED_RUN_STATES and not self.finished:
            raise RunError(
                f"run {self.run.run_id} is {self.run.state}: there is no result yet",
                next_step="Wait for it with .wait(), or stop it now with .stop().",
            )
        return row.last_seq

    @property
    def _guess_test(self) -> dict[str, float]:
        targets = self._held_out.targets
        guess = self._guess_with_quantiles(len(targets))
        return _named("test", self._guess_scores(guess, targets, self._test_weights))

    def _guess_scores(
        self, guess: np.ndarray, targets: np.ndarray, weights: np.ndarray | None
    ) -> dict[str, float]:
        """Return the scores of the most frequent class, whatever the model decides by."""
        return self._scores(guess, targets, weights, decisions=Decisions())

    def _validated(self, predicted: np.ndarray) -> dict[str, float]:
        targets = self._chosen.targets
        weights = self._held_out.weights_of_validation(len(targets))
        return _named("val", self._scores(predicted, targets, weights))

    @property
    def _several(self) -> Any:
        """The scores of several targets, or None if there is one."""
        interpreter = self._held_out.interpreter
        metric = metric_of(self.run.experiment)
        names, are_labels = interpreter.target_names, interpreter.are_labels
        return several_scores(names, are_labels=are_labels, metric=metric)

    def _scores(
        self,
        predicted: np.ndarray,
        targets: np.ndarray,
        weights: np.ndarray | None,
        *,
        decisions: Decisions | None = None,
    ) -> dict[str, float]:
        metric = metric_of(self.run.experiment)
        quantiles = self._held_out.quantiles
        if decisions is None:
            decisions = self._decisions
        return scores_of(
            predicted,
            targets,
            self._task,
            metric,
            decisions,
            quantiles=quantiles,
            several=self._several,
            weights=weights,
        )

    def _until_s(self, part: float) -> float:
        """Return when a part of the time to conclude is over, by `time.monotonic`."""
        if self._began_s is None:
            self._began_s = time.monotonic()
        return self._began_s + part * self.longest_s

    def refit(self) -> None:
        """Fit the chosen trees to all rows, if there is time. The test score is taken before."""
        until_s = self._until_s(_REFITTED)
        parts = (self.run, self._chosen, self._learning, self._held_out.all_rows)
        self._refitted = refit(*parts, until_s=until_s)
        limit_s = limit_of(self.run.experiment)
        if limit_s is None or not self._refitted:
            return
        examples = self._held_out.examples
        if row_s(self._with_all_rows().outputs_of_new, examples) > limit_s >= self._chosen_row_s:
            self._refitted = {}  # the models of the folds are fast enough, and these are not

    def store_model(self) -> None:
        """Keep the model with the run, so that predicting does not choose again."""
        self._stored_model = write(self.run, self._model)

    @property
    def _model(self) -> StoredModel:
        """The model that predicts: the one that was stored with the result, or else chosen here."""
        seq = self._end()
        if self._delivered is None or self._delivered[0] != seq:
            sha256 = (self.run.history.result or {}).get(STORED_MODEL)
            if not isinstance(sha256, str):
                self._delivered = (seq, self._make_model())
            elif self._delivered is None or self._stored_model != sha256:
                self._delivered = (seq, read(self.run, sha256))
                self._stored_model = sha256
            else:  # something was noted about the run, but it has not had another end
                self._delivered = (seq, self._delivered[1])
        return self._delivered[1]

    @property
    def _chosen_row_s(self) -> float:
        return row_s(self._chosen.outputs_of_new, self._held_out.examples)

    def _with_all_rows(self) -> ChosenModel:
        refitted: Any = (self.run.history.result or {}).get("refit") or self._refitted
        parts = (self.run, self._chosen, self._learning, self._held_out.all_rows)
        return with_all_rows(*parts, refitted)

    @property
    def _row_time(self) -> dict[str, float | None] | None:
        """How long the prediction of one row takes, measured once, and how long it may take."""
        examples = self._held_out.examples
        if examples is None:
            return None
        model = self._model
        if self._timed is None or self._timed[0] is not model:
            self._timed = (model, row_s(model.outputs_of_new, examples))
        return {"row_s": self._timed[1], "limit_s": limit_of(self.run.experiment)}

    def _make_model(self) -> StoredModel:
        """Return the chosen model, whose trees may have been fitted to all rows."""
        chosen, held_out = self._chosen, self._held_out
        final = self._with_all_rows()
        values = {**self._validated(chosen.predicted), **self._test}
        bands, guess = None, held_out.guess
        is_single = not self._interpreter.target_names
        if self._task == "regression" and is_single and len(chosen.targets):
            bands, guess = self._bands, self._guess_with_quantiles(1)[0]
        return without_unused(
            final, self._learning, held_out, values=values, bands=bands, guess=guess
        )

    def _predicted(
        self, model: StoredModel, samples: Any, *, field: str = "samples"
    ) -> tuple[Any, np.ndarray, list[str]]:
        """Return samples in the form that a model takes, its predictions, and notes on both."""
        read, notes = self._read(samples, field), []
        try:
            if hasattr(read, "columns"):
                read, notes = as_learned(read, model.chosen.columns)
            predicted = model.outputs(read)
        except DataError as error:
            raise error.about(field) from error
        if values := _unusual_values(model, read, predicted):
            notes.append(describe_unusual(values, len(predicted)))
        return read, predicted, notes

    @property
    def takes_image_files(self) -> bool:
        """Whether the model learnt from image files, and predicts them."""
        return self._held_out.interpreter.are_files

    def _read(self, samples: Any, field: str) -> Any:
        """Return samples in the form that the model takes."""
        interpreter = self._interpreter
        try:
            return as_samples(
                interpreter.kind, samples, interpreter.text_columns, interpreter.decimal_commas
            )
        except DataError as error:
            raise error.about(field) from error


def _forms_of(stored: StoredRun) -> dict[str, Any]:
    """Return the forms of the output of an AutoML run, without what its author pickled."""
    return AutoML(Run(stored.store, stored.run_id))._repr_mimebundle_()


def export_result(run: Run, folder: str | Path, force: bool) -> Path:
    """Write the result of an AutoML run as a bundle. See `workbench.runs.run`."""
    return AutoML(run).export(folder, force=force)


def _warn(notes: Sequence[str]) -> None:
    """Warn the caller of a public method of notes on samples."""
    for note in notes:
        warnings.warn(note, stacklevel=3)


def _unusual_values(model: StoredModel, samples: Any, predicted: np.ndarray) -> list[UnusualValue]:
    meant = model.chosen.interpreter.meant(samples)
    numbers = numbers_in(samples if meant is None else meant)
    if PREDICTION in model.ranges:
        numbers[PREDICTION] = predicted[:, 0]
    return unusual_values(numbers, model.ranges)


def _with_interval(
    model: StoredModel, samples: Any, numbers: np.ndarray, interval: float
) -> pd.DataFrame:
    import pandas as pd

    if model.bands is None:
        raise RunError(
            "no model was ready in time, so there is no interval",
            next_step="Extend the run: automl.run.extend(time=...).",
        )
    low, high = model.bands.around(numbers, interval, samples)
    return pd.DataFrame({"prediction": numbers, "low": low, "high": high})


def _as_table(numbers: np.ndarray, names: Sequence[Any]) -> pd.DataFrame:
    import pandas as pd

    return pd.DataFrame(numbers, columns=list(names))


def _of_mean_1(weights: np.ndarray) -> np.ndarray:
    return weights / weights.mean()


def _named(part: str, scores: dict[str, float]) -> dict[str, float]:
    return {f"{part}_{name}": value for name, value in scores.items()}
