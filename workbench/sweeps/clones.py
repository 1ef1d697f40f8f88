"""Clone a trial while its run goes on: check the request, and keep the checkpoint to continue from.

The parent may be training, so it replaces its checkpoint while the clone waits for a worker. The
driver therefore copies the checkpoint into a folder of the parent when it carries out the command.
The copy is deleted when no clone needs it any more. How a worker continues from the copy is left to
`training`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from typing import Literal

from pydantic import JsonValue

from workbench.experiment import Experiment
from workbench.experiment.aliases import resolve_parameters
from workbench.experiment.populations import may_change
from workbench.experiment.schedules import DECAY
from workbench.experiment.space import Params, Space, same_value
from workbench.foundation.artifacts import Artifacts
from workbench.foundation.errors import ArtifactsError, ExperimentError, RunError
from workbench.foundation.events import Clone
from workbench.foundation.validation_errors import closest
from workbench.store.database.run_files import trial_folder
from workbench.store.history import History, Trial
from workbench.store.history.history import no_such_trial
from workbench.store.history.lineage import describe_branch, describe_changed
from workbench.sweeps.ledger import Ledger
from workbench.sweeps.plan_checks import check_keeps_checkpoints, check_trains_in_steps
from workbench.training.mirrored_folder import branch_at, copy_files, keep_branch, written_files

logger = logging.getLogger(__name__)

BeginsFrom = Literal["weights", "start"]

_EPOCHS = "epochs"
_NAME = "a clone with weights"
_FROM_START = 'clone the trial from its start: from_="start", or --from start'
_SETTLED_S = 3.0
"""How long to wait until a trial leaves its files unchanged while they are copied."""
_PAUSE_S = 0.05


def check_clone(
    history: History, number: int, changes: Mapping[str, JsonValue], begins_from: BeginsFrom
) -> Params:
    """Check a request to clone a trial, and return the configuration of the clone.

    Args:
        history: The run.
        number: The trial to clone.
        changes: New values of searched parameters. All others are copied.
        begins_from: `weights` continues from a checkpoint, `start` trains from the beginning.

    Raises:
        ArgumentError: If there is no such trial.
        ExperimentError: If a parameter is unknown, out of range, or cannot change while the weights
            stay, or if the clone would repeat its parent.
    """
    parent = history.trials.get(number)
    if parent is None:
        raise no_such_trial(history, number)
    experiment = history.in_force
    if not experiment.search.has_choice:
        raise ExperimentError(
            "nothing is searched, so a clone could only repeat the trial",
            field="search",
            next_step="Search the parameter that you want to change, and start another run.",
        )
    try:
        params = _changed(experiment.search, parent.params, changes)
    except ExperimentError as error:
        raise error.at("set") from error
    differing = [
        name
        for name in dict.fromkeys([*parent.params, *params])
        if name not in params
        or name not in parent.params
        or not same_value(params[name], parent.params[name])
    ]
    if begins_from == "weights":
        _check_weights(experiment, parent, params, differing)
    was_cut = parent.state in ("pruned", "stopped", "failed")
    if not differing and not (was_cut and begins_from == "weights"):
        raise ExperimentError(
            f"the clone would train exactly like trial {number}",
            field="set",
            allowed=list(experiment.search.root),
            next_step="Give at least one parameter another value.",
        )
    return params


def _changed(space: Space, params: Params, changes: Mapping[str, JsonValue]) -> Params:
    """Return a configuration with changes, without the parameters that no longer exist."""
    changes = resolve_parameters(changes, space.root)
    for name in changes:
        if name not in space.root:
            allowed, meant = closest(name, list(space.root))
            raise ExperimentError(
                "this parameter is not searched", field=name, allowed=allowed, next_step=meant
            )
    merged = {**params, **changes}
    for name in space.order():
        if name in merged and name not in changes and not space.exists(name, merged):
            del merged[name]
    return space.check({name: value for name, value in merged.items() if name in space.root})


def _check_weights(
    experiment: Experiment, parent: Trial, params: Params, differing: list[str]
) -> None:
    """Raise an error if a trial with these parameters cannot continue from the checkpoint."""
    if experiment.federated is not None:
        raise ExperimentError(
            "clients and server have states of their own, so no trial can continue another one",
            field="from_",
            next_step=f"To try other values, {_FROM_START}.",
        )
    check_keeps_checkpoints(experiment, _NAME, _FROM_START)
    if not experiment.trains_model:
        return
    check_trains_in_steps(experiment, params, _NAME)
    for name in differing:
        if not _may_differ(name):
            raise ExperimentError(
                f"{name} cannot change while the weights of trial {parent.number} stay",
                field=f"set.{name}",
                allowed=[other for other in experiment.search.root if _may_differ(other)],
                next_step=f"To try another value, {_FROM_START}.",
            )
    epochs = params.get(_EPOCHS, experiment.training.epochs)
    is_done = parent.last_epoch is not None and isinstance(epochs, int | float)
    if is_done and parent.state == "complete" and (parent.last_epoch or 0.0) >= epochs:  # type: ignore[operator]
        raise ExperimentError(
            f"trial {parent.number} has trained all its {epochs} epochs, so nothing is left to"
            " train with its weights",
            field="trial",
            next_step=f"Choose a trial that is still training, or {_FROM_START}.",
        )


def _may_differ(name: str) -> bool:
    """Return whether a parameter of a model may differ while the weights stay."""
    return name in (_EPOCHS, DECAY) or may_change(name)


def describe_begin(history: History, params: Params, clone: Clone) -> str:
    """Describe with what a clone begins, as the end of a sentence.

    Args:
        history: The run.
        params: The configuration of the clone.
        clone: Where it comes from.
    """
    changes = describe_changed(history.trials[clone.of].params, params)
    text = ", from the start"
    if clone.inherits:
        text = f", with the weights of trial {clone.of} at {describe_branch(history, clone)}"
    return f"{text}: {changes}" if changes else text


class Clones:
    """Keeps the checkpoints from which the clones of one run continue."""

    def __init__(self, ledger: Ledger, artifacts: Artifacts) -> None:
        """Keep files in `artifacts` for the clones in `ledger`."""
        self._ledger = ledger
        self._artifacts = artifacts

    def begin(self, number: int, begins_from: BeginsFrom) -> Clone:
        """Return where a clone comes from. If it inherits weights, its checkpoint is kept now.

        Args:
            number: The trial to clone, which `check_clone` has accepted.
            begins_from: As in `check_clone`.

        Raises:
            RunError: If the trial has no checkpoint, or changes its files all the time.
            ArtifactsError: If a file cannot be read or written.
        """
        parent = self._ledger.history.trials[number]
        if begins_from == "start":
            return Clone(of=number, begins_from=begins_from)
        step = parent.last_step
        if self._ledger.experiment.trains_model:
            step = parent.saved_step
        folder = self._folder(number)
        self._check_saved(parent, folder)
        keep_branch(folder, step, lambda target: self._copy(parent, folder, target))
        return Clone(
            of=number,
            begins_from=begins_from,
            step=step,
            branch=step,
            turn=parent.turn,
            first_step=parent.first_step,
        )

    def tidy(self) -> None:
        """Delete the checkpoints that no clone needs any more."""
        needed = {(clone.of, clone.branch) for clone in self._unfinished()}
        for trial in self._ledger.history.trials.values():
            clone = trial.clone
            if clone is None or not clone.inherits or (clone.of, clone.branch) in needed:
                continue
            try:
                branch_at(self._folder(clone.of), clone.branch).delete("")
            except ArtifactsError as error:
                logger.warning("a copy for clones of trial %d stays: %s", clone.of, error)

    def _unfinished(self) -> Iterator[Clone]:
        yield from self._ledger.study.enqueued_clones()
        for trial in self._ledger.history.trials.values():
            is_over = trial.finished and not trial.interrupted
            if trial.clone is not None and not is_over:
                yield trial.clone

    def _folder(self, number: int) -> Artifacts:
        return self._artifacts.below(trial_folder(number))

    def _check_saved(self, parent: Trial, folder: Artifacts) -> None:
        """Raise an error if there is no checkpoint."""
        trains_model = self._ledger.experiment.trains_model
        if parent.checkpoints_deleted is not None:
            raise RunError(
                f"the checkpoints of trial {parent.number} were deleted in favour of better ones,"
                f" as resources.{parent.checkpoints_deleted} requires",
                next_step=f"Choose another trial, or {_FROM_START}.",
            )
        if trains_model:
            is_saved = parent.last_checkpoint is not None
        else:
            is_saved = parent.reports > 0 and bool(written_files(folder))
        if not is_saved:
            raise RunError(
                f"trial {parent.number} has not saved a checkpoint yet",
                next_step=f"Wait for its first checkpoint, or {_FROM_START}.",
            )

    def _copy(self, parent: Trial, folder: Artifacts, target: Artifacts) -> None:
        """Copy the checkpoint, between two changes of its files."""
        until_s = time.monotonic() + _SETTLED_S
        num_tries = 0
        while True:
            num_tries += 1
            problem, changed = self._try_to_copy(folder, target, accepts_logs=num_tries > 2)
            if problem is None and changed is None:
                return
            if time.monotonic() > until_s:
                break
            time.sleep(_PAUSE_S)
        if problem is not None:
            raise problem
        raise RunError(
            f"trial {parent.number} changes {changed} all the time, so it cannot be copied as a"
            " whole",
            next_step=f"Try again, or {_FROM_START}.",
        )

    def _try_to_copy(
        self, folder: Artifacts, target: Artifacts, *, accepts_logs: bool
    ) -> tuple[ArtifactsError | None, str | None]:
        """Copy the checkpoint once.

        Args:
            folder: The folder of the trial.
            target: The folder of the copy.
            accepts_logs: Whether files may grow meanwhile. A log does all the time.

        Returns:
            Why a file could not be copied, and a file that changed meanwhile, if there are any.
        """
        source, trains_model = folder.below("checkpoints"), self._ledger.experiment.trains_model
        before = source.stamps()
        written = before if trains_model else written_files(folder)
        # Names with a dot are incomplete files of the training.
        names = [
            name
            for name in written
            if name in before and not (trains_model and name.rpartition("/")[2].startswith("."))
        ]
        target.delete("")
        try:
            copy_files(source, target, names, may_link=trains_model)
        except ArtifactsError as error:  # the trial may have removed the file meanwhile
            return error, None
        after = source.stamps()
        for name in names:
            has_grown = name in after and after[name][0] > before[name][0]
            if after.get(name) != before[name] and not (accepts_logs and has_grown):
                return None, name
        return None, None
