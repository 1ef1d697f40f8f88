"""The road for any function: other frameworks, other people's loops, black-box objectives.

The function is called as `function(config, report)`. Where it has parameters named `folder` or `seed` it
is given a folder for its checkpoints, which the next attempt at the same trial finds again, and the seed
of the trial; one named `worker` says which of several workers it runs on, with torch.distributed ready for
their exchanges. Then all workers must report equally often: rank 0 is heard, and all are told alike to stop.
Torch is loaded only if the function loads it, or for several workers.
"""

from __future__ import annotations

import inspect
import numbers
import random
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.errors import ExperimentError
from workbench.events import Event, TrialReported
from workbench.experiment import Experiment
from workbench.training.mirror import Mirror
from workbench.training.outcome import Outcome, diverged, find_divergence
from workbench.training.task import TrialTask

if TYPE_CHECKING:
    from workbench.strategies.strategy import Worker


_ENDED = "ended"


def run_function(task: TrialTask, report: Callable[[Event], bool]) -> Outcome:
    """Call the function that an experiment's `train` names.

    Args:
        task: The order.
        report: Takes events; returns whether the trial should stop.

    Returns:
        How it ended. A number or a mapping of numbers that the function returns is taken as a last report.

    Raises:
        ExperimentError: If the function cannot be called like this, or reports what is no number.
    """
    experiment = task.experiment
    component = experiment.train
    assert component is not None
    function = component.load(field="train")
    config = {**component.options, **task.params}
    worker = _join(task) if task.num_workers > 1 or "worker" in _parameters(function) else None
    reporter = _Reporter(task, experiment, report, worker)
    try:
        arguments = _extra_arguments(function, task, config, reporter, worker)
        _seed(task.seed)
        returned = function(config, reporter, **arguments)
        if returned is not None:
            reporter.take_returned(returned)
        reporter.agree(_ENDED)
        return reporter.outcome()
    finally:
        reporter.close_folder()
        if worker is not None:
            worker.group.close()


def _join(task: TrialTask) -> Worker:
    from workbench.strategies.group import Group
    from workbench.strategies.strategy import Worker
    from workbench.training.device import choose_device

    device = choose_device(task.experiment)
    group = Group(task.rank, task.num_workers, device, task.meeting)
    return Worker(task.rank, task.num_workers, device, group)


class _Reporter:
    """The `report` that a function is given."""

    def __init__(
        self,
        task: TrialTask,
        experiment: Experiment,
        report: Callable[[Event], bool],
        worker: Worker | None,
    ) -> None:
        self._task = task
        self._worker = worker
        self._objectives = experiment.objectives
        self._report = report
        self._started_s = time.perf_counter()
        self._step = 0
        self._values: dict[str, float] = {}
        self._stop = False
        self._failed: Outcome | None = None
        self._folder: Mirror | None = None

    def open_folder(self) -> Path:
        """Return the folder for checkpoints, with what the attempt before left there."""
        self._folder = Mirror(self._task.checkpoints)
        return self._folder.open()

    def close_folder(self) -> None:
        """Keep what the function left in its folder."""
        if self._folder is not None:
            self._folder.close()

    def __call__(self, step: int, **metrics: Any) -> bool:
        """Report metrics at a step.

        Args:
            step: How far the training is: a whole number that does not fall.
            **metrics: Numbers by name.

        Returns:
            Whether the trial should stop: the function should return soon.
        """
        self._step = self._check_step(step)
        values = {name: _as_float(name, value) for name, value in metrics.items()}
        self._values |= values
        if self._folder is not None:
            self._folder.keep()
        event = TrialReported(
            trial=self._task.trial,
            attempt=self._task.attempt,
            step=self._step,
            epoch=None,
            elapsed_s=time.perf_counter() - self._started_s,
            values=values,
        )
        stop = self._report(event)
        self._stop = self.agree("stop" if stop else "go on") or self._stop
        name = find_divergence(self._objectives, values)
        if name is not None and self._failed is None:
            self._failed = diverged(name, values[name], self._step, dict(self._values))
        return self._stop or self._failed is not None

    def agree(self, word: str) -> bool:
        """Hear from every worker where it is, and tell whether rank 0 was told to stop.

        Args:
            word: "stop", "go on", or that this worker's function has returned.

        Raises:
            ExperimentError: If some workers report while the function has returned on others.
        """
        if self._worker is None:
            return word == "stop"
        words = self._worker.group.gather(word)
        if _ENDED in words and set(words) != {_ENDED}:
            ended = ", ".join(str(rank) for rank, said in enumerate(words) if said == _ENDED)
            raise ExperimentError(
                f"the function has returned on rank {ended} while it still reports on others",
                field="train",
                allowed="as many reports on every worker",
            )
        return words[0] == "stop"

    def take_returned(self, returned: Any) -> None:
        """Take what the function returned as a last report."""
        if isinstance(returned, Mapping):
            metrics = {str(name): value for name, value in returned.items()}
            step = metrics.pop("step", self._step)
        else:
            metrics, step = {self._objectives[0].metric: returned}, self._step
        # A function that returns what it reported last says nothing new.
        if (
            any(self._values.get(name) != _as_float(name, value) for name, value in metrics.items())
            or step != self._step
        ):
            self(step, **metrics)

    def outcome(self) -> Outcome:
        """Return how the training ended, once the function has returned."""
        if self._failed is not None:
            return self._failed
        known = {**self._task.reported, **self._values}  # the last attempt may have left nothing to do
        missing = [item.metric for item in self._objectives if item.metric not in known]
        if missing and not self._stop:
            raise ExperimentError(
                f"the function ended without reporting {missing[0]!r}",
                field="objectives",
                allowed=[*self._values] or "nothing: it reported no metric at all",
                next_step=f"Call report(step=..., {missing[0]}=...) in the function, or return it.",
            )
        return Outcome("stopped" if self._stop else "complete", self._step, self._values)

    def _check_step(self, step: Any) -> int:
        if hasattr(step, "item"):
            step = step.item()
        if isinstance(step, bool) or not isinstance(step, int) or step < self._step:
            raise ExperimentError(
                f"{step!r} is no step after {self._step}",
                field="report.step",
                allowed=f"a whole number from {self._step} upwards",
            )
        return step


def _as_float(name: str, value: Any) -> float:
    """Turn a Python, numpy or torch scalar into a float."""
    found = value
    if getattr(value, "size", None) == 1 or getattr(value, "ndim", None) == 0:
        found = value.item()
    if isinstance(found, numbers.Real):
        return float(found)
    raise ExperimentError(
        f"{type(value).__name__} is no number",
        field=f"report.{name}",
        allowed="Python, numpy and torch scalars",
    )


def _extra_arguments(
    function: Callable[..., Any],
    task: TrialTask,
    config: dict[str, Any],
    reporter: _Reporter,
    worker: Worker | None,
) -> dict[str, Any]:
    """Return what the function asks for by the names of its parameters."""
    parameters, arguments = _parameters(function), {}
    if "seed" in parameters:
        arguments["seed"] = task.seed
    if "folder" in parameters:
        arguments["folder"] = reporter.open_folder()
    if "worker" in parameters:
        arguments["worker"] = worker
    elif worker is not None:
        raise ExperimentError(
            f"{worker.num_workers} workers would all do the same: the function does not ask which it is",
            field="plan.workers",
            allowed="1, or a function with a parameter named worker",
        )
    if not parameters:
        return arguments
    signature = inspect.signature(function)
    try:
        signature.bind(config, reporter, **arguments)
    except TypeError as error:
        raise ExperimentError(
            f"{getattr(function, '__qualname__', function)}{signature} cannot be called: {error}",
            field="train",
            allowed="function(config, report), and parameters named folder, seed, worker if it wants them",
        ) from error
    return arguments


def _parameters(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    """Return the parameters of a function by name; none where Python cannot tell."""
    try:
        return inspect.signature(function).parameters
    except (TypeError, ValueError):
        return {}


def _seed(seed: int) -> None:
    """Seed the global generators that are loaded, so that trials in a warm worker do not feel each other."""
    random.seed(seed)
    if (numpy := sys.modules.get("numpy")) is not None:
        numpy.random.seed(seed)
    if (torch := sys.modules.get("torch")) is not None:
        torch.manual_seed(seed)
