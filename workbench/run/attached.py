"""One run, attached to: what it has come to, and the ways to change it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from pydantic import JsonValue

from workbench.errors import RunError
from workbench.events import FINISHED_RUN_STATES, CommandHandled
from workbench.experiment.changing import change, values_of
from workbench.experiment.sections import Auto, parse_duration_s
from workbench.history import History
from workbench.run.bundle import write_bundle
from workbench.run.pictures import draw, write_report
from workbench.run.view import POLL_S, RunView
from workbench.run.words import how_to_extend
from workbench.store import Store

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

_ANSWER_TIMEOUT_S = 5.0
LEAVING_PATIENCE_S = 60.0


def open_store(store: Store | str | None) -> Store:
    """Return the store that is meant: itself, by URL, or the default."""
    return store if isinstance(store, Store) else Store.open(store)


def attach(run_id: str = "last", *, store: Store | str | None = None) -> Run:
    """Take hold of a run that somebody started earlier, here or elsewhere.

    Args:
        run_id: A run id, a beginning that only one run has, or "last".
        store: Where it is kept; None for what WORKBENCH_STORE names, or else the user's own store.

    Returns:
        The run.

    Raises:
        RunNotFoundError: If there is no such run; near ones are named.
    """
    opened = open_store(store)
    return Run(opened, opened.run(run_id).run_id)


class Run(RunView):
    """A run in a store, to look at and to change; letting go of it changes nothing."""

    def stop(self, trial: int | None = None) -> str | None:
        """Ask the driver to end the run, or one trial, and wait a moment for its answer.

        Args:
            trial: Only this trial.

        Returns:
            What the driver answered, or None if it has not yet: then it will when it can.

        Raises:
            RunError: If the run has ended, or there is no such trial under way.
        """
        if trial is None:
            return self.command("stop", {})
        record = self.history.trials.get(trial)
        if record is None or record.finished:
            found = "there is no such trial" if record is None else f"it is {record.state} already"
            running = [str(item.number) for item in self.history.in_state("running", "waiting")]
            raise RunError(
                f"trial {trial} cannot be stopped: {found}", field="trial", allowed=running or None
            )
        return self.command("stop_trial", {"trial": trial})

    def enqueue(self, params: Mapping[str, JsonValue]) -> str | None:
        """Ask for a configuration to be tried next, and wait a moment for the driver's answer.

        Args:
            params: Every searched parameter, by name; fixed ones may be left out.

        Returns:
            What the driver answered, or None if it has not yet: then it will when it can.

        Raises:
            ExperimentError: If it is no configuration of the search space.
            RunError: If the run has ended.
        """
        return self.command("enqueue", {"params": self.experiment.search.check(params)})

    def set(
        self,
        *,
        concurrency: int | Auto | None = None,
        trials: int | None = None,
        time: float | str | None = None,
        plateau: int | None = None,
    ) -> str | None:
        """Change how much the run may do, from now on; what is left out stays as it is.

        The experiment and its hash stay. A limit below what was done already ends the run.

        Args:
            concurrency: Trials at once, or `auto` for as many as the hardware holds.
            trials: Configurations in all.
            time: Time of the run in all, in seconds or such as 1h30m.
            plateau: Configurations in a row without a better one after which the run ends.

        Returns:
            What the driver answered, or None if it has not yet: then it will when it can.

        Raises:
            ExperimentError: If nothing is given, or something that an experiment could not have.
            RunError: If the run has ended.
        """
        given = {
            "resources.concurrency": concurrency, "budget.trials": trials, "budget.time": time,
            "budget.plateau": plateau,
        }  # fmt: skip
        settings = {path: value for path, value in given.items() if value is not None}
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
        """Let the run go on for longer than its limits; one that has ended gets a new driver.

        The study proposes what it would have proposed in a run with these limits from the beginning.

        Args:
            trials: How many more configurations.
            time: How much more time, in seconds or such as 1h30m.
            plateau: How many more configurations without a better one.
            enqueue: A configuration to try next, as in `enqueue`; alone it is one more configuration.
            launcher: As in `sweep`, where the run has ended.
            address: As in `sweep`, where the run has ended.

        Returns:
            What the driver answered, or None if it has not yet: then it will when it can.

        Raises:
            ExperimentError: If the run has no such limit, would end at once all the same, or `enqueue` is no
                configuration of the search space.
            RunError: If it is just about to end.
        """
        given = {"budget.trials": trials, "budget.time": parse_duration_s(time), "budget.plateau": plateau}
        more = {path: value for path, value in given.items() if value is not None}
        params = None if enqueue is None else self.experiment.search.check(enqueue)
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

        self._await_leaving()
        launch(self.store, self.run_id, launcher=launcher, address=address)
        return self._answer(number, row.last_seq)

    def replay(self, *, launcher: str = "ray", address: str | None = None) -> Self:
        """Start a new run that tries again, in their order, exactly the configurations that this one tried.

        Args:
            launcher: As in `sweep`.
            address: As in `sweep`.

        Returns:
            The new run; `comparison` says how it differs.

        Raises:
            RunError: If this run has proposed nothing, or the driver could not be started.
        """
        from workbench.sweeps import launch
        from workbench.sweeps.prior import recorded_proposals

        recorded_proposals(self.store, self.run_id)
        again = type(self)(self.store, self.store.create_run(self.experiment))
        launch(self.store, again.run_id, launcher=launcher, address=address, replay_of=self.run_id)
        return again

    def command(self, kind: str, arguments: Mapping[str, Any]) -> str | None:
        """Leave a command for the driver, and wait a moment for its answer.

        Args:
            kind: What to do.
            arguments: With what, as JSON values.

        Returns:
            What the driver answered, or None if it has not yet.

        Raises:
            RunError: If the run has ended or the driver refused.
        """
        row = self.row
        if row.state in FINISHED_RUN_STATES:
            raise RunError(
                f"run {self.run_id} has ended ({row.state})",
                next_step=self._how_to_go_on() if row.state == "complete"
                else f"Start it again with: workbench resume {self.run_id}",
            )  # fmt: skip
        return self._answer(self.store.command(self.run_id, kind, arguments), row.last_seq)

    def _answer(self, number: int, after: int) -> str | None:
        """Wait a moment for the answer to a command, which comes after the event `after`."""
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
        """Give a run that was stopped, failed or lost a new driver; finished trials are kept.

        A run that is under way goes on as it does; where its driver is about to leave it, that is waited for.

        Args:
            launcher: As in `sweep`.
            address: As in `sweep`.

        Raises:
            RunError: If it is complete, its driver does not leave, or another one cannot be started.
        """
        from workbench.sweeps import launch

        if self.is_under_way:
            return self
        self._await_leaving()
        if self.state == "complete":
            raise RunError(
                f"run {self.run_id} is complete: there is nothing to go on with",
                next_step=self._how_to_go_on(),
            )
        launch(self.store, self.run_id, launcher=launcher, address=address)
        return self

    def _await_leaving(self) -> None:
        """Wait for a driver that stops its trials, or tells of the end, until it has left the run."""
        until_s = time.monotonic() + LEAVING_PATIENCE_S
        while self.driven:
            if time.monotonic() > until_s:
                raise RunError(
                    f"the driver of run {self.run_id} is about to leave it, and has not after "
                    f"{LEAVING_PATIENCE_S:g} s",
                    next_step=f"Ask again in a moment: workbench resume {self.run_id}",
                )
            time.sleep(0.1)

    def _how_to_go_on(self) -> str:
        more = how_to_extend(self.history)
        if more is None:
            return "Start another run."
        return f"Let it go on for longer: workbench extend {self.run_id} {' '.join(more)}"

    def figure(self, name: str = "convergence", **options: Any) -> Figure:
        """Draw one of the figures of the plots.

        Args:
            name: Which one; an unknown name lists those there are.
            **options: What that figure takes.

        Raises:
            UnknownNameError: If there is no such figure.
        """
        return draw(self, name, options)

    def report(self, path: str | Path | None = None) -> Path:
        """Write the report of the run: one page that needs no network.

        Args:
            path: The file; None for `report.html` in the run's folder.

        Returns:
            Where it was written.

        Raises:
            RunError: If it cannot be written there.
        """
        return write_report(self, self.folder / "report.html" if path is None else Path(path))

    def export(
        self, folder: str | Path, *, trial: int | None = None, force: bool = False, weights: bool = True
    ) -> Path:
        """Write a trial as a bundle: configuration, weights, how to train it again, the report.

        Args:
            folder: A folder that is empty or does not exist.
            trial: Which trial; None for the best.
            force: Write into a folder that holds something; files of the same names are replaced.
            weights: Write the weights, where a model of ours was trained.

        Returns:
            The folder.

        Raises:
            RunError: If no trial is complete, its weights are gone, or the folder holds something.
        """
        return write_bundle(self, Path(folder), trial=trial, force=force, weights=weights)

    def export_study(self, url: str, name: str | None = None) -> str:
        """Write the run as a study of Optuna, for its dashboard and its other tools.

        Args:
            url: Any storage of Optuna, such as sqlite:///study.db.
            name: What the study is called there; None for the run id.

        Returns:
            The name.
        """
        from workbench.study import Study

        name = name or self.run_id
        Study.rebuild(self.experiment, self.events()).export(url, name)
        return name


def _longer_limits(history: History, more: Mapping[str, Any]) -> dict[str, Any]:
    """Return the limits of a run that goes on for longer, or refuse before anything is sent."""
    from workbench.sweeps.budget import extended

    limits = extended(history, more, time.time())
    change(history.in_force, limits)
    return limits
