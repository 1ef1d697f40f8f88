"""A run as an object: its results, and the methods that change it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from pydantic import JsonValue

from workbench.actions import action_of, check_arguments, stored_payload, suggest
from workbench.errors import RunError
from workbench.events import FINISHED_RUN_STATES, CommandHandled
from workbench.experiment.changing import change, values_of
from workbench.experiment.setting_types import Auto
from workbench.formatting import duration_argument_s
from workbench.history import History
from workbench.runs.bundle import write_bundle
from workbench.runs.descriptions import how_to_continue, why_not_resumed
from workbench.runs.figures import draw, write_report
from workbench.runs.labelled import LabelledRun
from workbench.runs.view import POLL_S
from workbench.store import Store

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

_ANSWER_TIMEOUT_S = 5.0


def open_store(store: Store | str | None) -> Store:
    """Return the store that is meant: itself, by URL, or the default."""
    return store if isinstance(store, Store) else Store.open(store)


def attach(run_id: str = "last", *, store: Store | str | None = None) -> Run:
    """Return a run that was started earlier, by this process or another.

    Args:
        run_id: A run id, a prefix that only one run has, or "last".
        store: The store that keeps it; None for the one that WORKBENCH_STORE names, or else the user's own.

    Returns:
        The run.

    Raises:
        RunNotFoundError: If there is no such run; similar names are listed.

    Example:
        >>> wb.attach(run.run_id).state
        'complete'
    """
    opened = open_store(store)
    return Run(opened, opened.run(run_id).run_id)


class Run(LabelledRun):
    """A run in a store; dropping the object changes nothing about the run.

    Example:
        >>> run.best.values["val_loss"] < 1
        True
        >>> list(run.best.params)
        ['lr']
    """

    def act(self, kind: str, arguments: Mapping[str, Any], **options: Any) -> Any:
        """Call the method of an action of the table, and return what it returns.

        Args:
            kind: The kind of the action.
            arguments: Its arguments, by name.
            **options: Where to launch a driver, as in `extend`.

        Raises:
            ArgumentError: If there is no such action, or an argument is wrong.
        """
        action = action_of(kind)
        values = check_arguments(action.arguments, arguments)
        first = [values.pop(one.name) for one in action.arguments if one.is_positional and one.name in values]
        return getattr(self, action.method or kind)(*first, **values, **options)

    def stop(self, trial: int | None = None) -> str | None:
        """Stop the run, or one of its trials, and wait up to five seconds for the driver's answer.

        Args:
            trial: The number of the trial; None for the whole run.

        Returns:
            The driver's answer; None if it has not answered yet, and will carry the command out when it can.

        Raises:
            ArgumentError: If `trial` is not a number of a trial.
            RunError: If the run has ended, or no such trial is under way.

        Example:
            >>> answer = running.stop()
            >>> running.wait().state
            'stopped'
        """
        if trial is None:
            return self.command("stop", {})
        payload = stored_payload("stop_trial", {"trial": trial})
        record = self.history.trials.get(trial)
        if record is None or record.finished:
            problem = "there is no such trial" if record is None else f"it is already {record.state}"
            running = [str(item.number) for item in self.history.in_state("running", "waiting")]
            raise RunError(f"trial {trial} cannot be stopped: {problem}", allowed=running or None)
        return self.command("stop_trial", payload)

    def enqueue(self, params: Mapping[str, JsonValue]) -> str | None:
        """Try a given configuration next, and wait up to five seconds for the driver's answer.

        Args:
            params: The value of every searched parameter, by name; fixed parameters may be left out.

        Returns:
            The driver's answer; None if it has not answered yet, and will carry the command out when it can.

        Raises:
            ExperimentError: If the configuration does not lie in the search space.
            RunError: If the run has ended.

        Example:
            >>> answer = running.enqueue({"lr": 0.01})
        """
        payload = stored_payload("enqueue", {"params": params})
        return self.command("enqueue", payload | {"params": self.experiment.search.check(params)})

    def set(
        self,
        *,
        concurrency: int | Auto | None = None,
        trials: int | None = None,
        time: float | str | None = None,
        plateau: int | None = None,
    ) -> str | None:
        """Change limits of the run while it is under way; limits that are left out stay as they are.

        The experiment and its hash do not change. A limit that the run has already passed ends it.

        Args:
            concurrency: Trials at once, or `auto` for as many as the hardware holds.
            trials: Configurations in total.
            time: Time of the run in total, in seconds or such as 1h30m.
            plateau: Configurations in a row without a better one after which the run ends.

        Returns:
            The driver's answer; None if it has not answered yet, and will carry the command out when it can.

        Raises:
            ArgumentError: If a limit is not valid.
            ExperimentError: If no limit is given, or the experiment cannot have it.
            RunError: If the run has ended.

        Example:
            >>> answer = running.set(concurrency=1, time="10m")
        """
        settings = stored_payload(
            "set", {"concurrency": concurrency, "trials": trials, "time": time, "plateau": plateau}
        )
        values = values_of(change(self.history.in_force, settings))
        return self.command("set", {path: values[path] for path in settings})

    def extend(
        self,
        *,
        trials: int | None = None,
        time: float | str | None = None,
        plateau: int | None = None,
        enqueue: Mapping[str, JsonValue] | None = None,
        launcher: str = "ray",
        address: str | None = None,
    ) -> str | None:
        """Give the run a larger budget; a run that has ended continues with a new driver.

        The study proposes what it would have proposed with the larger budget from the beginning.

        Args:
            trials: Number of additional configurations.
            time: Additional time, in seconds or such as 1h30m.
            plateau: Number of additional configurations without a better one.
            enqueue: A configuration to try next, as in `enqueue`; without a limit the run gets one more
                trial.
            launcher: As in `sweep`; used where the run has ended.
            address: As in `sweep`; used where the run has ended.

        Returns:
            The driver's answer; None if it has not answered yet, and will carry the command out when it can.

        Raises:
            ArgumentError: If an argument is not valid.
            ExperimentError: If the run has no such limit, would end at once anyway, or the configuration does
                not lie in the search space.
            RunError: If the run is about to end.

        Example:
            >>> answer = run.extend(trials=1)
            >>> run.wait().state
            'complete'
        """
        more = stored_payload(
            "extend", {"trials": trials, "time": time, "plateau": plateau, "enqueue": enqueue}
        )
        if "budget.time" in more:
            more["budget.time"] = duration_argument_s(more["budget.time"], field="time")
        enqueued = more.pop("enqueue", None)
        params = None if enqueued is None else self.experiment.search.check(enqueued)
        if params is not None and not more:
            more = {"budget.trials": 1}
        limits = _longer_limits(self.history, more)
        row = self.row
        number = self.store.command(self.run_id, "extend", limits)
        if params is not None:  # carried out after the other, whoever drives
            self.store.command(self.run_id, "enqueue", {"params": params})
        if row.state in ("waiting", "running", "stopping"):
            answer = self._answer(number, row.last_seq)
            if answer is not None or not self.finished:
                return answer
        from workbench.sweeps import launch

        self.await_leaving()
        launch(self.store, self.run_id, launcher=launcher, address=address)
        return self._answer(number, row.last_seq)

    def replay(self, *, launcher: str = "ray", address: str | None = None) -> Self:
        """Start a new run that tries exactly the configurations of this run again, in the same order.

        Args:
            launcher: As in `sweep`.
            address: As in `sweep`.

        Returns:
            The new run; its `comparison` describes how it differs.

        Raises:
            RunError: If this run has proposed nothing, or the driver cannot be started.

        Example:
            >>> again = run.replay().wait()
            >>> again.comparison.of_run_id == run.run_id
            True
        """
        from workbench.sweeps import launch
        from workbench.sweeps.warm_start import recorded_proposals

        recorded_proposals(self.store, self.run_id)
        again = type(self)(self.store, self.store.create_run(self.experiment))
        launch(self.store, again.run_id, launcher=launcher, address=address, replay_of=self.run_id)
        return again

    def command(self, kind: str, arguments: Mapping[str, Any]) -> str | None:
        """Store a command for the driver, and wait up to five seconds for its answer.

        Args:
            kind: What to do.
            arguments: The payload, as JSON values.

        Returns:
            The driver's answer; None if it has not answered yet.

        Raises:
            RunError: If the run has ended, or the driver refused.
        """
        row = self.row
        if row.state in FINISHED_RUN_STATES:
            raise RunError(
                f"run {self.run_id} has ended ({row.state})",
                next_step=how_to_continue(self.run_id, self.history) if row.state == "complete"
                else suggest("resume", self.run_id, lead="To continue it"),
            )  # fmt: skip
        return self._answer(self.store.command(self.run_id, kind, arguments), row.last_seq)

    def _answer(self, number: int, after: int) -> str | None:
        """Wait for the answer to a command, which comes after the event `after`."""
        until = time.monotonic() + _ANSWER_TIMEOUT_S
        while time.monotonic() < until:
            for stored in self.store.events(self.run_id, after=after):
                after = stored.seq
                if isinstance(stored.event, CommandHandled) and stored.event.command == number:
                    if not stored.event.done:
                        raise RunError(f"the driver refused: {stored.event.message}")
                    return stored.event.message
            time.sleep(POLL_S / 2)
        return None

    def resume(self, *, launcher: str = "ray", address: str | None = None) -> Self:
        """Continue a run that was stopped, failed or lost with a new driver; finished trials are kept.

        A run that is under way is left alone. If its driver is about to leave it, this waits until it has.

        Args:
            launcher: As in `sweep`.
            address: As in `sweep`.

        Raises:
            RunError: If the run is complete or has no trial left, or no new driver can be started.
        """
        from workbench.sweeps import launch

        if self.is_under_way:
            return self
        self.await_leaving()
        if (problem := why_not_resumed(self.state, self.history)) is not None:
            next_step = how_to_continue(self.run_id, self.history)
            raise RunError(f"run {self.run_id} {problem}", next_step=next_step)
        launch(self.store, self.run_id, launcher=launcher, address=address)
        return self

    def figure(self, name: str = "convergence", **options: Any) -> Figure:
        """Draw a figure.

        Args:
            name: Its name; the error for an unknown name lists them all.
            **options: The options of that figure.

        Raises:
            UnknownNameError: If there is no such figure.

        Example:
            >>> run.figure("convergence").layout.title.text
            'Convergence'
        """
        return draw(self, name, options)

    def report(self, path: str | Path | None = None) -> Path:
        """Write the report of the run: one HTML page that needs no network.

        Args:
            path: A file in a folder that exists; None for `report.html` in the run's folder.

        Returns:
            The path of the file.

        Raises:
            ArgumentError: If the folder of the file does not exist.
            RunError: If the file cannot be written.

        Example:
            >>> run.report("report.html").name
            'report.html'
        """
        return write_report(self, self.folder / "report.html" if path is None else Path(path))

    def export(
        self, folder: str | Path, *, trial: int | None = None, force: bool = False, weights: bool = True
    ) -> Path:
        """Write a trial as a bundle: configuration, weights, the command that retrains it, and the report.

        Args:
            folder: A folder that is empty or does not exist.
            trial: The number of the trial; None for the best.
            force: Write into a folder that is not empty; files of the same names are replaced.
            weights: Include the weights, where the workbench trained the model.

        Returns:
            The folder.

        Raises:
            RunError: If no trial is complete, its weights are missing, or the folder is not empty.

        Example:
            >>> folder = run.export("best")
            >>> (folder / "weights.safetensors").exists()
            True
        """
        return write_bundle(self, Path(folder), trial=trial, force=force, weights=weights)

    def export_study(self, url: str, name: str | None = None) -> str:
        """Write the run as an Optuna study, for Optuna's dashboard and other tools.

        Args:
            url: An Optuna storage, such as sqlite:///study.db.
            name: The name of the study; None for the run id.

        Returns:
            The name of the study.

        Example:
            >>> run.export_study("sqlite:///study.db", "mine")
            'mine'
        """
        from workbench.study import Study

        name = name or self.run_id
        Study.rebuild(self.experiment, self.events()).export(url, name)
        return name


def _longer_limits(history: History, more: Mapping[str, Any]) -> dict[str, Any]:
    """Return the limits of an extended run; an extension that is not possible raises an error."""
    from workbench.sweeps.budget import extended

    limits = extended(history, more, time.time())
    change(history.in_force, limits)
    return limits
