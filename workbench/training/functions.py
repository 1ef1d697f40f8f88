"""Training by your own function: other frameworks, existing loops, black-box objectives.

The function is called as `function(config, report)`, or as `function(config)` if it has one
parameter. Inside it, `workbench.report` is the same as `report`. Further parameters are passed by
name:

- `folder`: for checkpoints. The next attempt at the same trial gets the same files.
- `seed`: the seed of the trial.
- `worker`: which of several workers this is. With several, torch.distributed is initialized, and
  the environment variables of torchrun are set.

All workers may report, but only rank 0's reports count. Torch is only loaded if the function loads
it, or for several workers.
"""

from __future__ import annotations

import contextlib
import inspect
import random
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from workbench.experiment import Experiment
from workbench.experiment.goals import describe_other_metric, trained_metrics
from workbench.experiment.train_function import check_kind, kind_of, plan_call, signature_of
from workbench.experiment.trial_value import find_divergence
from workbench.foundation.errors import ExperimentError
from workbench.foundation.events import Event, Noted, TrialReported
from workbench.foundation.reported_values import (
    NotANumber,
    ReportedValues,
    judge,
    result_of,
    sort_values,
    why_no_result,
)
from workbench.training.kept_attachments import KeptAttachments
from workbench.training.mirrored_folder import Mirror, take_over
from workbench.training.outcome import Outcome, diverged, is_failed_exchange
from workbench.training.programs.script_report import reports_go_to
from workbench.training.ranks import LEAVE_S, STOPPED_S, Ranks, host_of, torchrun_variables
from workbench.training.worker_task import TrialTask

if TYPE_CHECKING:
    from workbench.training.strategies.strategy import Worker

_COUNTS_AGAIN = (
    "attempt {} counts its reports from 1, but an earlier attempt reached step {}. If the function"
    " continues from its folder, it must report the step: report(step=3, ...)"
)


def run_function(task: TrialTask, report: Callable[[Event], bool]) -> Outcome:
    """Call the function in an experiment's `train`.

    Args:
        task: The trial to run.
        report: Receives events, and returns whether the trial should stop.

    Returns:
        How the training ended. If the function returns a number or a mapping of numbers, that is
        also reported.

    Raises:
        ExperimentError: If the function does not accept the arguments, or a metric of the
            experiment is not a number.
    """
    experiment = task.experiment
    component = experiment.train
    assert component is not None
    if task.segment is not None and task.reported_step >= task.segment.end:
        # The function had already reached the end when the driver died.
        return Outcome("complete", task.reported_step, dict(task.reported))
    is_in_steps = experiment.early_stop.counted_metric is None
    if task.turn is not None and is_in_steps and task.turn.is_over(task.reported_step):
        return Outcome("stopped", task.reported_step, dict(task.reported), ends_turn=True)
    function = component.load(field="train")
    check_kind(kind_of(function), component.title, type(function).__name__)
    config = {**component.options, **experiment.search.without_version(task.params)}
    worker = None
    if task.num_workers > 1 or "worker" in _parameters(function):
        from workbench.training.device import join_trial

        worker = join_trial(task)
    with contextlib.ExitStack() as stack:
        # Callbacks run in reverse order: the folder is stored before this worker leaves the group.
        stack.callback(_leave, worker)
        if worker is not None:
            stack.enter_context(torchrun_variables(worker.group, host_of(task)))
        reporter = _Reporter(task, experiment, report, worker)
        stack.callback(reporter.close_folder)
        given, named = _arguments(
            function, component.short_name, config, task=task, reporter=reporter, worker=worker
        )
        try:
            with seeded(task.seed), reports_go_to(reporter):
                returned = function(*given, **named)
        except Exception as error:
            return reporter.outcome_of_failure(error)
        if returned is not None and task.rank == 0 and not reporter.ends_turn:
            reporter.take_returned(returned)
        reporter.finish()
        return reporter.outcome()


def _leave(worker: Worker | None) -> None:
    """Leave the process group of the trial, and any group that the function has made."""
    if worker is not None:
        worker.group.close()
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        distributed.destroy_process_group()


class _Reporter:
    """The `report` that a function receives."""

    def __init__(
        self,
        task: TrialTask,
        experiment: Experiment,
        report: Callable[[Event], bool],
        worker: Worker | None,
    ) -> None:
        self._task, self._experiment = task, experiment
        self._decisive = experiment.decisive_metrics
        self._ranks = Ranks(worker.group) if worker is not None and worker.num_workers > 1 else None
        self._objectives = experiment.objectives
        self._counted = experiment.early_stop.counted_metric
        self._count = 0.0
        self._report = report
        self._started_s = time.perf_counter()
        self._step = 0
        self._values: dict[str, float] = {}
        self._stop = False
        self._failed: Outcome | None = None
        self._attachments = KeptAttachments(task, report)
        self._folder: Mirror | None = None
        self._counts_again = False
        self._segment = task.segment
        self._has_reached_end = False
        self._turn = task.turn
        self.ends_turn = False
        """Whether the function was asked to return because its turn is over."""

    def open_folder(self) -> Path:
        """Return the folder for checkpoints, with the files of the previous attempt."""
        take_over(self._task)
        if self._ranks is not None and self._task.continued is not None:
            self._ranks.follow_first()
        self._folder = Mirror(self._task.checkpoints)
        folder = self._folder.open()
        is_whole = self._segment is None and self._turn is None
        if self._task.reported_step > 0 and is_whole and self._task.rank == 0:
            self._counts_again = any(folder.iterdir())
        return folder

    def close_folder(self) -> None:
        """Store the files in the function's folder, and its last attachments."""
        self._attachments.close()
        if self._folder is not None:
            self._folder.close()

    def __call__(self, step: int | None = None, **metrics: Any) -> bool:
        """Report metrics at a step.

        Args:
            step: The progress of the training: a whole number that never decreases. None counts
                the reports of this attempt. A function that continues from its folder must pass it.
            **metrics: Numbers by name. Pictures, tables and texts are kept with the trial.

        Returns:
            Whether the trial should stop. If so, the function should return soon.
        """
        values = sort_values(metrics)
        if step is None:  # a report with only a picture belongs to the last step
            step = self._step + bool(values.side_values)
            if self._counts_again:
                self._counts_again = False
                words = _COUNTS_AGAIN.format(self._task.attempt + 1, self._task.reported_step)
                self._report(Noted(level="warning", message=words, trial=self._task.trial))
        return self._take(step, values, is_empty=not metrics)

    def _take(
        self, step: Any, reported: ReportedValues, *, is_empty: bool = False, returned: bool = False
    ) -> bool:
        is_first = not self._values
        self._step = self._check_step(step, is_first=is_first)
        if is_first and not returned:
            self._check_continues()
        self._keep_others(reported)
        values = reported.side_values
        # An empty report still counts: `report()` asks whether to stop.
        if not values and not is_empty:
            return self._is_over  # other ranks may not report it, so no decision is shared
        if not returned and self._task.rank == 0:
            self._check_count(values)
        self._values |= values
        # Store the files first. A report must never be ahead of the checkpoint that it belongs to.
        if self._folder is not None:
            self._folder.keep()
        event = TrialReported(
            trial=self._task.trial,
            attempt=self._task.attempt,
            step=self._step,
            epoch=None,
            elapsed_s=time.perf_counter() - self._started_s,
            values=values,
            returned=returned,
        )
        stop = bool(self._report(event))
        ends_turn = self._turn is not None and not returned and self._turn.is_over(self._progress)
        if self._ranks is not None and not returned:
            is_asked = self._ranks.decide(stop or ends_turn)
            stop = stop or (is_asked and not ends_turn)
        self._stop = stop or self._stop
        self.ends_turn = ends_turn or self.ends_turn
        end = self._segment.end if self._segment is not None else None
        self._has_reached_end = self._has_reached_end or (end is not None and self._step >= end)
        name = find_divergence(self._experiment, values)
        if name is not None and self._failed is None:
            self._failed = diverged(name, values[name], self._step, dict(self._values))
        return self._is_over

    def _check_continues(self) -> None:
        """Check that the first report of a turn or a clone is after what was trained before."""
        if self._turn is not None:
            self._turn.check_continues(self._step)
        self._task.check_inherits(self._step)

    @property
    def _progress(self) -> float:
        """How far the training is on rank 0, in the unit of early stopping."""
        return self._step if self._counted is None else self._count

    @property
    def _is_over(self) -> bool:
        is_asked = self._stop or self._has_reached_end or self.ends_turn
        return is_asked or self._failed is not None

    def _keep_others(self, reported: ReportedValues) -> None:
        """Keep the pictures, tables and texts of a report, and note values that cannot be kept.

        Raises:
            ExperimentError: If a metric of the experiment is not a number.
        """
        for name, what in reported.what.items():
            if name in self._decisive:
                raise ExperimentError(
                    f"{what} is not a number",
                    field=f"report.{name}",
                    allowed="one real number: Python, numpy and torch scalars",
                    next_step="Return or report a number. If there is none, report nothing.",
                )
        for attachment in reported.attachments.values():
            self._attachments.take(self._step, attachment)
        for name, problem in reported.problems.items():
            self._attachments.refuse(name, problem)

    def finish(self) -> None:
        """Leave the other workers after the function has returned."""
        if self._ranks is None:
            return
        self._ranks.leave(wait_s=STOPPED_S if self._is_over else LEAVE_S)
        if self._task.rank == 0 and (unequal := self._ranks.describe_unequal()) is not None:
            self._report(Noted(level="warning", message=unequal, trial=self._task.trial))

    def outcome_of_failure(self, error: Exception) -> Outcome:
        """Return the outcome of an exchange that failed because rank 0 stopped on request.

        Raises:
            ExperimentError: If the exchange failed because the function has returned on other
                workers.
            Exception: The error itself, if it has another cause.
        """
        if self._ranks is None or not is_failed_exchange(error):
            raise error
        if self._ranks.is_stopped():
            return Outcome("stopped", self._step, self._values)
        explanation = self._ranks.explain()
        if explanation is None:
            raise error
        raise ExperimentError(
            explanation,
            field="train",
            allowed="the same number of exchanges on every worker",
            next_step=(
                "Give all workers the same number of batches, and stop them at the same step."
            ),
        ) from error

    def take_returned(self, returned: Any) -> None:
        """Treat the function's result like a last report.

        Raises:
            ExperimentError: If it is not a number, and the objective was never reported.
        """
        if isinstance(returned, Mapping):
            given = {str(name): value for name, value in returned.items()}
            step = self._returned_step(given.pop("step", self._step))
            reported = sort_values(given)
        elif self._is_beside_the_result(returned):
            metric = self._objectives[0].metric
            message = why_no_result(returned) or "a returned 0 is taken for an exit status"
            message += f", so the last reported {metric} counts"
            if _is_exit_status(returned):
                message += ". Return 0.0 if it is the result"
            self._attachments.note("returned", message)
            return
        else:
            # If an earlier attempt has reported everything, the value belongs to its last step.
            step = self._step or self._task.reported_step
            reported = sort_values({self._objectives[0].metric: returned})
        values = reported.side_values
        is_known = all(self._values.get(name) == value for name, value in values.items())
        if is_known and step == self._step:  # the function may return what it has just reported
            self._keep_others(reported)
        else:
            self._take(step, reported, returned=True)

    def _is_beside_the_result(self, returned: Any) -> bool:
        """Return whether the objective was reported, and the returned value is something else.

        For example, it may be a model. `return report(loss=...)` returns a boolean. And a script
        that became a function may end with `return 0`. But a value that looks like a number and is
        none, such as a masked one, was meant as the result.
        """
        is_reported = self._objectives[0].metric in {**self._task.reported, **self._values}
        if is_reported and _is_exit_status(returned):
            return True
        if not is_reported or result_of(returned) is not None:
            return False
        judged = judge(returned)
        return not (isinstance(judged, NotANumber) and judged.is_missing)

    def _returned_step(self, step: Any) -> int:
        """Return the step of the returned value. A wrong step must not fail a finished training."""
        number = result_of(step)
        if number is not None and number.is_integer() and number >= self._step:
            return int(number)
        last = self._step
        message = (
            f"the function returned the step {step!r}, which is not after {last}, so its result"
            f" counts at step {last}"
        )
        self._attachments.note("returned step", message)
        return last

    def outcome(self) -> Outcome:
        """Return how the training ended, once the function has returned."""
        if self._failed is not None:
            return self._failed
        # If an earlier attempt was almost done, this one may have nothing left to report.
        known = {**self._task.reported, **self._values}
        missing = [name for name in trained_metrics(self._objectives) if name not in known]
        if missing and self._task.clone is not None and not self._values:
            raise self._task.nothing_left()
        if missing and not self._stop and self._task.rank == 0:
            other = describe_other_metric(self._objectives, missing[0], self._values)
            raise ExperimentError(
                f"the function ended without reporting or returning {missing[0]!r}; it gave "
                + (", ".join(self._values) or "nothing"),
                field="objectives",
                next_step=f"Call report(step=..., {missing[0]}=...) in the function, or return it"
                + (f"; {other}" if other else "."),
            )
        if self.ends_turn and not self._stop:
            return Outcome("stopped", self._step, self._values, ends_turn=True)
        state = "stopped" if self._stop else "complete"
        return Outcome(state, self._step, self._values)

    def _check_count(self, values: Mapping[str, float]) -> None:
        """Check that a report of an objective includes the unit by which trials are compared."""
        if self._counted is None or all(item.metric not in values for item in self._objectives):
            return
        if self._counted not in values:
            raise ExperimentError(
                "missing, but early_stop.unit compares trials by it",
                field=f"report.{self._counted}",
                next_step=f"Report it with each objective: report(step=..., {self._counted}=...).",
            )
        if not values[self._counted] >= self._count:
            raise ExperimentError(
                f"{values[self._counted]:g} is not valid after {self._count:g}: early_stop.unit"
                " compares trials by it",
                field=f"report.{self._counted}",
                allowed="a number that never decreases",
            )
        self._count = values[self._counted]

    def _check_step(self, step: Any, *, is_first: bool) -> int:
        if hasattr(step, "item"):
            step = step.item()
        if isinstance(step, bool) or not isinstance(step, int) or step < self._step:
            raise ExperimentError(
                f"{step!r} is not a valid step after step {self._step}",
                field="report.step",
                allowed=f"a whole number from {self._step} upwards",
                next_step=(
                    "Write the metrics by name: report(step=3, loss=0.5), or report(loss=0.5) to"
                    " count the reports."
                ),
            )
        if (
            is_first
            and self._segment is not None
            and step <= self._segment.begin
            and self._segment.begin
        ):
            raise ExperimentError(
                f"the function starts at step {step}, but trial {self._segment.continues} has"
                f" reached step {self._segment.begin}",
                field="report.step",
                next_step=(
                    "Load the checkpoint in the folder before the first step, and save one before"
                    " each report."
                ),
            )
        return step


def _is_exit_status(returned: Any) -> bool:
    return type(returned) is int and returned == 0


def _arguments(
    function: Callable[..., Any],
    title: str,
    config: dict[str, Any],
    *,
    task: TrialTask,
    reporter: _Reporter,
    worker: Worker | None,
) -> tuple[list[Any], dict[str, Any]]:
    """Return the arguments for a function."""
    parameters = _parameters(function)
    values: dict[str, Any] = {
        "config": config,
        "report": reporter,
        "seed": task.seed,
        "worker": worker,
    }
    call = plan_call(signature_of(function), title, config)
    if "folder" in parameters:
        values["folder"] = reporter.open_folder()
    if worker is not None and "worker" not in parameters:
        raise ExperimentError(
            f"{worker.num_workers} workers would all do the same work, because the function has no"
            " parameter `worker`",
            field="plan.workers",
            allowed="1, or a function with a parameter named worker",
        )
    return call.arguments(values)


def _parameters(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    """Return the parameters of a function by name, or nothing if Python cannot determine them."""
    try:
        return inspect.signature(function).parameters
    except (TypeError, ValueError):
        return {}


_SEEDS: dict[str, Callable[[Any, int], object]] = {
    "numpy": lambda numpy, seed: numpy.random.seed(seed),
    "torch": lambda torch, seed: torch.manual_seed(seed),
}
"""How the generators of a library are seeded, given its module."""


@contextlib.contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed the generators of Python, numpy and torch.

    Libraries that are not loaded yet are seeded when they are.

    Args:
        seed: The seed of the trial.
    """
    random.seed(seed)
    for name, seed_library in _SEEDS.items():
        if (library := sys.modules.get(name)) is not None:
            seed_library(library, seed)
    finder = _Finder(seed)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        with contextlib.suppress(ValueError):  # the function has replaced sys.meta_path
            sys.meta_path.remove(finder)


class _Finder(MetaPathFinder):
    """Finds libraries where Python finds them, and lets them be seeded when they are loaded."""

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def find_spec(
        self, fullname: str, path: Any, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in _SEEDS:
            return None
        for finder in sys.meta_path:
            spec = None if finder is self else finder.find_spec(fullname, path, target)
            if spec is not None:
                if spec.loader is not None:
                    spec.loader = _SeedingLoader(spec.loader, self._seed)
                return spec
        return None


class _SeedingLoader(Loader):
    """Loads a library with its own loader, and then seeds it."""

    def __init__(self, loader: Loader, seed: int) -> None:
        self._loader = loader
        self._seed = seed

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        # Give the module its own loader back, because package resources are found through it.
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        _SEEDS[module.__name__](module, self._seed)
