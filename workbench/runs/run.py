"""A run as an object: everything that can be read of it and done with it.

Each method says what it does and leaves the doing to others: reading to `stored_run`, waiting to
`waiting`, commands for its driver to `control`, files to `bundles` and `run_figures`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from pydantic import JsonValue
from typing_extensions import Self

from workbench.experiment import Experiment
from workbench.experiment.actions import action_of, check_arguments, suggest
from workbench.experiment.automl import HELD_OUT, is_automl
from workbench.experiment.setting_types import Auto
from workbench.experiment.train_function import refuse_imported
from workbench.foundation.errors import ArgumentError, RunError
from workbench.foundation.events import AttachmentSaved, Event, RunState
from workbench.foundation.registry import Registry
from workbench.runs import control
from workbench.runs.bundles.bundle import write_bundle
from workbench.runs.bundles.bundle_formats import check_result_format
from workbench.runs.cell_outputs import show_run
from workbench.runs.notebook_output import linked, output_forms, snapshot
from workbench.runs.replay_comparison import Comparison
from workbench.runs.run_figures import draw, write_report, write_trace
from workbench.runs.stored_run import RunEnergy, StoredRun
from workbench.runs.waiting import await_end, follow, is_shown_in_this_cell
from workbench.store.database import RunRow, Store, labels
from workbench.store.database.store import RunSize, delete_run, measure_run, refuse_under_way
from workbench.store.database.urls import check_exists
from workbench.store.history import History, Trial
from workbench.store.history.history import check_choice, describe_choice

if TYPE_CHECKING:
    import pandas as pd
    from plotly.graph_objects import Figure

    from workbench.runs.bundles.ensemble import Ensemble


def attach(run_id: str = "last", *, store: Store | str | None = None) -> Run:
    """Return a run that was started earlier, by this process or another.

    Args:
        run_id: A run id, a prefix or a name that only one run has, or "last", the newest that is
            not advice.
        store: The store that keeps it, or None for the one that WORKBENCH_STORE names, or else the
            user's own.

    Returns:
        The run.

    Raises:
        RunNotFoundError: If there is no such run. Similar names are listed.
        StoreError: If the file that is named does not exist.

    Example:
        >>> wb.attach(run.run_id).state
        'complete'
    """
    opened = open_existing_store(store)
    return Run(opened, opened.run(run_id).run_id)


class Run:
    """A run in a store. Dropping the object does not change the run.

    Every property reads the store again.

    Attributes:
        store: The store of the run.
        run_id: Its full id.
        stored: The run as the store holds it, for functions that read it.

    Example:
        >>> run.best.values["val_loss"] < 1
        True
        >>> list(run.best.params)
        ['lr']
    """

    def __init__(self, store: Store, run_id: str) -> None:
        """Open an existing run. You rarely need this: use `sweep` or `attach`.

        Args:
            store: The store of the run.
            run_id: Its full id.
        """
        self.store = store
        self.run_id = run_id
        self.stored = StoredRun(store, run_id)

    # What it is, and its state.

    @property
    def row(self) -> RunRow:
        """The row of the run in the store."""
        return self.stored.row

    @property
    def name(self) -> str:
        """Its name: the experiment's, unless it was renamed."""
        return self.stored.name

    @property
    def experiment(self) -> Experiment:
        """The experiment of the run."""
        return self.stored.experiment

    @property
    def state(self) -> RunState:
        """waiting, running, stopping, complete, stopped, failed, or lost (its driver died)."""
        return self.stored.state

    @property
    def finished(self) -> bool:
        """Whether the run has ended and was not lost."""
        return self.stored.finished

    @property
    def is_under_way(self) -> bool:
        """Whether a driver owns it and is not about to end."""
        return self.stored.is_under_way

    @property
    def driven(self) -> bool:
        """Whether a driver owns it, as far as this machine can tell."""
        return self.stored.driven

    @property
    def waits_for(self) -> str | None:
        """Why it is waiting to train, as its driver last reported, or None if it is not waiting."""
        return self.stored.waits_for

    @property
    def preparation(self) -> str | None:
        """What is measured before its first trial, as last noted by its driver.

        None if nothing is.
        """
        return self.stored.preparation

    @property
    def folder(self) -> Path:
        """The local folder of its files. Artifacts at a URL are not in it."""
        return self.stored.folder

    # Its results.

    @property
    def history(self) -> History:
        """Its trials and their states so far."""
        return self.stored.history

    @property
    def trials(self) -> pd.DataFrame:
        """One row per trial: number, state, parameters, results and progress.

        A metric or parameter whose name is ambiguous becomes the column `values.NAME` or
        `params.NAME`. A metric is the result of its trial, or its last report while it has none.
        `duration_s` is for how long the trial ran, over all attempts. The panel, the terminal and
        the report show the same columns.
        """
        return self.stored.trials

    @property
    def best(self) -> Trial | None:
        """The trial that was chosen by hand, else the best complete one, or None.

        With several objectives, the best is that by the first of them.
        """
        return self.stored.best

    @property
    def comparison(self) -> Comparison | None:
        """The differences from the run that it replays, or None if it is not a replay."""
        return self.stored.comparison

    @property
    def is_advice(self) -> bool:
        """Whether the run is advice: it only measures and recommends."""
        return self.stored.is_advice

    @property
    def advice(self) -> dict[str, Any] | None:
        """The recommendation of the advisor as plain values, or None."""
        return self.stored.advice

    @property
    def energy(self) -> RunEnergy:
        """The energy that its trials have used, in watt-hours, as far as it was metered."""
        return self.stored.energy

    def read_attachment(self, saved: AttachmentSaved) -> bytes:
        """Return the content of a picture, a table or a text that a trial reported.

        Args:
            saved: One of `history.trials[number].attachments`.

        Raises:
            ArtifactsError: If its file is not there.
        """
        return self.stored.read_attachment(saved)

    def events(self, after: int = 0) -> list[Event]:
        """Return the events so far, oldest first.

        Args:
            after: Skip this many of the oldest events.
        """
        return self.stored.events(after)

    def to_json(self) -> dict[str, Any]:
        """Return what `workbench show --json` prints, as plain values."""
        return self.stored.to_json()

    # Waiting for it.

    def wait(self, timeout_s: float | None = None) -> Self:
        """Wait for the end of the run.

        A notebook shows its live view meanwhile, a terminal its progress.

        Args:
            timeout_s: Seconds to wait at most. The run continues, and `state` shows whether it
                ended.

        Returns:
            The run itself.

        Raises:
            RunError: If the run failed or was lost.
            StoreUnavailableError: If the store cannot be read for longer than a minute.
        """
        await_end(self.stored, timeout_s)
        return self

    def follow(self, after: int = 0) -> Iterator[Event]:
        """Yield events as they happen, until the run ends or is lost.

        Args:
            after: Skip this many of the oldest events.
        """
        yield from follow(self.stored, after)

    def await_leaving(self) -> None:
        """Wait until a driver that is about to end has released the run.

        Raises:
            RunError: If it has not within a minute.
        """
        self.stored.await_leaving()

    def ended_by(self, launcher: str) -> Self:
        """Return the run after a launch. A run that was driven in this process has ended.

        Args:
            launcher: The launcher that started its driver.

        Raises:
            RunError: If it was driven in this process and failed, as nobody asks a run that has
                ended.
        """
        if launcher == "inline":
            return self.wait()
        return self

    # What users write about it. The events and the experiment stay as they are.

    @property
    def tags(self) -> tuple[str, ...]:
        """Its tags, in the order in which they were added."""
        return self.row.tags

    @property
    def notes(self) -> str:
        """The notes of users about it, or empty."""
        return self.row.notes

    def rename(self, name: str) -> str:
        """Give the run another name. Its id and its experiment stay as they are.

        Args:
            name: The new name. Empty takes the experiment's name again.

        Returns:
            What was done.

        Raises:
            ExperimentError: If it cannot be a name.

        Example:
            >>> run.rename("baseline")
            'the run is now called baseline'
            >>> run.name
            'baseline'
        """
        return f"the run is now called {labels.rename(self.store, self.run_id, name)}"

    def tag(self, add: str | Sequence[str] = (), *, remove: str | Sequence[str] = ()) -> str:
        """Add tags to the run, or remove some.

        Args:
            add: A tag, or several.
            remove: A tag, or several. Tags that the run does not have are ignored.

        Returns:
            The tags that it has now, in words.

        Raises:
            ArgumentError: If a text cannot be a tag, or there would be too many.

        Example:
            >>> run.tag(["baseline", "small"])
            'tags: baseline, small'
            >>> run.tag(remove="small")
            'tags: baseline'
        """
        tags = labels.change_tags(self.store, self.run_id, _listed(add), _listed(remove))
        if not tags:
            return "it has no tags"
        return f"tags: {', '.join(tags)}"

    def note(self, text: str) -> str:
        """Replace the notes of the run.

        Args:
            text: The notes, or empty to remove them.

        Returns:
            What was done.

        Raises:
            ArgumentError: If they are too long or contain control characters.

        Example:
            >>> run.note("The first one with warm-up.")
            'the notes are stored'
            >>> run.notes
            'The first one with warm-up.'
        """
        labels.write_notes(self.store, self.run_id, text)
        if text.strip():
            return "the notes are stored"
        return "the notes are removed"

    def pin(self, *, undo: bool = False) -> str:
        """Let lists show the run first.

        Args:
            undo: Show it in its place again.

        Returns:
            What was done.

        Example:
            >>> run.pin()
            'pinned'
        """
        labels.set_pinned(self.store, self.run_id, not undo)
        return "no longer pinned" if undo else "pinned"

    def archive(self, *, undo: bool = False) -> str:
        """Hide the run from lists. Nothing of it is deleted.

        Args:
            undo: Show it in lists again.

        Returns:
            What was done.

        Example:
            >>> run.archive()
            'archived'
            >>> run.archive(undo=True)
            'no longer archived'
        """
        labels.set_archived(self.store, self.run_id, not undo)
        return "no longer archived" if undo else "archived"

    def choose(self, trial: int | None = None, *, undo: bool = False) -> str:
        """Choose a trial by hand, to be used instead of the best.

        `best`, `export`, `compress` and RUN/best in commands then mean this trial. The search
        continues as before.

        Args:
            trial: The number of a complete trial that keeps all constraints.
            undo: Use the best again. Leave out `trial` then.

        Returns:
            A confirmation. With several objectives, it includes what the trial gives up.

        Raises:
            ArgumentError: If the trial cannot be chosen, or both or none of the arguments are
                given.
            RunError: If the run is automatic: its result is a separate model, not a trial.

        Example:
            >>> run.choose(run.history.ranked()[-1].number).startswith("trial")
            True
            >>> run.choose(undo=True)
            'no trial is chosen, so the best one is used'
        """
        if (trial is None) != undo:
            raise ArgumentError(
                "give either a trial or undo", field="trial", allowed="a number, or undo=True"
            )
        if trial is not None and is_automl(self.experiment):
            raise RunError(
                f"you cannot choose a trial of {self.run_id}, because its result is a model that"
                " was built from several trials",
                next_step=suggest("export", self.run_id, lead="To export the result", to="best"),
            )
        if trial is not None:
            check_choice(self.history, trial)
        labels.set_chosen(self.store, self.run_id, trial)
        if trial is None:
            return "no trial is chosen, so the best one is used"
        return f"trial {trial} is chosen: {describe_choice(self.history)}"

    def accept(self, version: str) -> str:
        """Accept a version of the code. This is an event with your name.

        Args:
            version: The name of a version that the run searched.

        Returns:
            A confirmation.

        Raises:
            ArgumentError: If there is no such version.
            RunError: If the run has not ended.
        """
        return control.judge(self.stored, version, "accepted")

    def revert(self, version: str) -> str:
        """Revert a version of the code. This is an event with your name.

        Args:
            version: The name of a version that the run searched.

        Returns:
            A confirmation.

        Raises:
            ArgumentError: If there is no such version.
            RunError: If the run has not ended.
        """
        return control.judge(self.stored, version, "reverted")

    # Deleting it.

    @property
    def size(self) -> RunSize:
        """How many bytes its files and its events take up."""
        return measure_run(self.store, self.run_id)

    def refuse_deletion_under_way(self) -> None:
        """Raise RunError if the run is under way: it cannot be deleted then."""
        refuse_under_way(self.row)

    def delete(self) -> str:
        """Delete the run with its events, checkpoints and other files, which take up `size`.

        Returns:
            What was freed, in words.

        Raises:
            RunError: If the run is under way.
            ArtifactsError: If its files cannot be removed. The run is kept.

        Example:
            >>> scratch = wb.sweep(experiment, launcher="inline")
            >>> scratch.delete().startswith("freed ")
            True
        """
        return f"freed {delete_run(self.store, self.run_id).describe()}"

    # Changing it, by commands that its driver carries out.

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
        first = [
            values.pop(argument.name)
            for argument in action.arguments
            if argument.is_positional and argument.name in values
        ]
        return getattr(self, action.method or kind)(*first, **values, **options)

    def stop(self, trial: int | None = None) -> str | None:
        """Stop the run, or one of its trials, and wait up to five seconds for the driver's answer.

        Args:
            trial: The number of the trial, or None for the whole run.

        Returns:
            The driver's answer, or None if it has not answered yet. It will carry the command out
            when it can.

        Raises:
            ArgumentError: If the run has no such trial.
            RunError: If the run or the trial has ended, or the run was lost.

        Example:
            >>> answer = running.stop()
            >>> running.wait().state
            'stopped'
        """
        return control.stop(self.stored, trial)

    def enqueue(self, params: Mapping[str, JsonValue]) -> str | None:
        """Try a given configuration next, and wait up to five seconds for the driver's answer.

        Args:
            params: The value of every searched parameter, by name. You can omit those
                with a single value.

        Returns:
            The driver's answer, or None if it has not answered yet. It will carry the command out
            when it can.

        Raises:
            ExperimentError: If the configuration does not lie in the search space.
            RunError: If the run has ended.

        Example:
            >>> answer = running.enqueue({"lr": 0.01})
        """
        return control.enqueue(self.stored, params)

    def clone(
        self,
        trial: int,
        *,
        set: Mapping[str, JsonValue] | None = None,
        from_: Literal["weights", "start"] = "weights",
    ) -> str | None:
        """Continue a trial in a copy with other values, while the original runs on.

        The clone has the weights and the state of the optimizer of the trial's last checkpoint. Its
        curve begins where it leaves the other one. The sampler does not learn from it, because its
        result also depends on the weights, and no pruner stops it. It is next in the queue. If the
        limit on trials has no room for it, the limit becomes larger.

        Args:
            trial: The number of the trial.
            set: New values of searched parameters, by name. All others are copied.
            from_: `weights` continues from the last checkpoint. `start` trains from the beginning,
                like any other configuration.

        Returns:
            The driver's answer, or None if it has not answered yet. It will carry the command out
            when it can.

        Raises:
            ArgumentError: If the run has no such trial.
            ExperimentError: If a value is not allowed, or cannot change while the weights stay.
            RunError: If the run has ended, or the trial has no checkpoint.

        Example:
            >>> answer = running.clone(0, set={"lr": 0.01}, from_="start")
        """
        return control.clone(self.stored, trial, set or {}, from_)

    def set(
        self,
        *,
        concurrency: int | Auto | None = None,
        trials: int | None = None,
        time: float | str | None = None,
        gpu_time: float | str | None = None,
        energy: float | str | None = None,
        money: float | str | None = None,
        plateau: int | None = None,
        search: Mapping[str, Any] | None = None,
    ) -> str | None:
        """Change limits of the run while it is under way.

        Limits that you do not give stay as they are.

        The experiment and its hash do not change. A limit that the run has already passed ends it.

        Args:
            concurrency: Most trials at once, or `auto` for as many as the hardware holds. Those
                under way are not stopped.
            trials: Configurations in total.
            time: Time of the run in total, in seconds or such as 1h30m.
            gpu_time: Time that all trials together hold GPUs, in seconds or such as 50h.
            energy: Energy that all trials together use, in watt-hours or such as 2kWh.
            money: What the run may cost, in the currency of its price or such as 20 EUR.
            plateau: Configurations in a row without a better one after which the run ends.
            search: Parameters that are searched differently from now on, by name: a value freezes
                one, a range or choices replace its own. You can give one end of a range.

        Returns:
            The driver's answer, or None if it has not answered yet. It will carry the command out
            when it can.

        Raises:
            ArgumentError: If a limit is not valid.
            ExperimentError: If no limit is given, or the experiment cannot have it.
            RunError: If the run has ended.

        Example:
            >>> answer = running.set(concurrency=1, time="10m")
        """
        limits = {
            "concurrency": concurrency,
            "trials": trials,
            "time": time,
            "gpu_time": gpu_time,
            "energy": energy,
            "money": money,
            "plateau": plateau,
            "search": search,
        }
        return control.set_limits(self.stored, limits)

    def extend(
        self,
        *,
        trials: int | None = None,
        time: float | str | None = None,
        gpu_time: float | str | None = None,
        energy: float | str | None = None,
        money: float | str | None = None,
        plateau: int | None = None,
        confirm: int | None = None,
        search: Mapping[str, Any] | None = None,
        code: str | None = None,
        enqueue: Mapping[str, JsonValue] | None = None,
        launcher: str = "ray",
        address: str | None = None,
    ) -> str | None:
        """Give the run a larger budget. A run that has ended continues with a new driver.

        The study proposes the same trials as if it had had the larger budget from the start.

        Args:
            trials: Number of additional configurations.
            time: Additional time, in seconds or such as 1h30m.
            gpu_time: Additional time that trials hold GPUs, in seconds or such as 50h.
            energy: Additional energy, in watt-hours or such as 2kWh.
            money: Additional money, in the currency of its price or such as 20 EUR.
            plateau: Number of additional configurations without a better one.
            confirm: How many of the best configurations to train again with new seeds, to see
                whether they were lucky.
            search: Parameters that are searched differently from now on, as in `set`.
            code: `kept`: trials run the code that the run kept. `current`: new trials run the code
                that is now on the disk, and the sampler treats earlier trials as trials of a
                related run. None means `kept`, or `current` if no trial has a result yet.
            enqueue: A configuration to try next, as in `enqueue`. Without a limit the run gets one
                more trial.
            launcher: As in `sweep`. Used if the run has ended.
            address: As in `sweep`. Used if the run has ended.

        Returns:
            The driver's answer, or None if it has not answered yet. It will carry the command out
            when it can.

        Raises:
            ArgumentError: If an argument is not valid.
            ExperimentError: If the run has no such limit, would end at once anyway, or the
                configuration does not lie in the search space.
            RunError: If the run is about to end. With the launcher `inline`, also if it failed.

        Example:
            >>> answer = run.extend(trials=1)
            >>> run.wait().state
            'complete'
        """
        more = {
            "trials": trials,
            "time": time,
            "gpu_time": gpu_time,
            "energy": energy,
            "money": money,
            "plateau": plateau,
            "confirm": confirm,
            "search": search,
            "code": code,
            "enqueue": enqueue,
        }
        return control.extend(self.stored, more, launcher=launcher, address=address)

    def resume(
        self, *, launcher: str = "ray", address: str | None = None, code: str | None = None
    ) -> Self:
        """Continue a run that was stopped, failed or lost with a new driver.

        Finished trials are kept.

        A run that is under way is left alone. If its driver is about to leave it, this waits until
        it has. A stop that was requested earlier, and that no driver has carried out, is void.

        Args:
            launcher: As in `sweep`.
            address: As in `sweep`.
            code: As in `extend`.

        Raises:
            RunError: If the run is complete or has no trial left, or no new driver can be started.
                With the launcher `inline`, also if it failed.
        """
        if self.is_under_way:
            if code is not None:
                self.use_code(code)
            return self
        self.drive_again(launcher=launcher, address=address, code=code)
        return self.ended_by(launcher)

    def drive_again(
        self, *, launcher: str = "ray", address: str | None = None, code: str | None = None
    ) -> None:
        """Give a run that has ended early a new driver, as `resume` does, whatever comes of it.

        Args:
            launcher: As in `sweep`.
            address: As in `sweep`.
            code: As in `extend`.

        Raises:
            ArgumentError: If `code` is neither `kept` nor `current`.
            RunError: If the run is complete or has no trial left, or no new driver can be started.
        """
        control.drive_again(self.stored, launcher=launcher, address=address, code=code)

    def use_code(self, code: str) -> str | None:
        """Choose which code new trials of a run under way run.

        Args:
            code: As in `extend`.

        Returns:
            The driver's answer, or None if it has not answered yet, or the kept code stays.

        Raises:
            ArgumentError: If `code` is neither `kept` nor `current`.
            RunError: If the driver refused.
        """
        return control.use_code(self.stored, code)

    def command(self, kind: str, arguments: Mapping[str, Any]) -> str | None:
        """Store a command for the driver, and wait up to five seconds for its answer.

        If there is no driver any more, this does not wait.

        Args:
            kind: What to do.
            arguments: The payload, as JSON values.

        Returns:
            The driver's answer, or None if it has not answered yet.

        Raises:
            RunError: If the run has ended, or the driver rejected it.
        """
        return control.command(self.stored, kind, arguments)

    # Figures and files.

    def figure(self, name: str = "convergence", **options: Any) -> Figure:
        """Draw a figure.

        Args:
            name: Its name. An unknown name raises an error that lists all names.
            **options: The options of that figure.

        Raises:
            UnknownNameError: If there is no such figure.

        Example:
            >>> run.figure("convergence").layout.title.text
            'Convergence'
        """
        return draw(self.stored, name, options)

    def report(self, path: str | Path | None = None) -> Path:
        """Write the report of the run: one HTML page that needs no network.

        Args:
            path: A file in a folder that exists, or None for `report.html` in the run's folder.

        Returns:
            The path of the file, which a notebook shows as a link.

        Raises:
            ArgumentError: If the folder of the file does not exist.
            RunError: If the file cannot be written.

        Example:
            >>> run.report("report.html").name
            'report.html'
        """
        target = Path(path or self.folder / "report.html")
        written = write_report(self.stored, target)
        return linked(written, self.run_id)

    def trace(self, path: str | Path | None = None, *, trial: int | None = None) -> Path:
        """Write what each worker did and when, as a trace that Perfetto (ui.perfetto.dev) opens.

        Args:
            path: A file in a folder that exists, or None for `trace.json` in the run's folder.
            trial: Only this trial, with its speed and its metrics over time, or None for all,
                without these.

        Returns:
            The path of the file.

        Raises:
            ArgumentError: If the folder of the file does not exist, or the run has no such trial.
            RunError: If the file cannot be written.

        Example:
            >>> run.trace("trace.json", trial=0).name
            'trace.json'
        """
        target = Path(path or self.folder / "trace.json")
        written = write_trace(self.stored, target, trial)
        return linked(written)

    def export(
        self,
        folder: str | Path,
        *,
        trial: int | None = None,
        format: str | None = None,
        force: bool = False,
        weights: bool = True,
    ) -> Path:
        """Write a trial as a bundle: weights, configuration, retraining command and report.

        For an AutoML run it writes the result, as `AutoML.export` does, unless you give a trial.

        Args:
            folder: A folder that is empty or does not exist.
            trial: The number of the trial. None for the chosen or best one, or for the result of
                an AutoML run.
            format: "onnx" adds the model as ONNX, its card, and a script that predicts without
                torch. "openvino", or a format of another package, also adds its files.
                "flower" adds the federation of the trial as an application for Flower.
            force: Write into a folder that is not empty. Files of the same names are replaced.
            weights: Include the weights, if the workbench trained the model.

        Returns:
            The folder.

        Raises:
            RunError: If no trial is complete, its weights are missing, the model cannot be written
                in this format, or the folder is not empty.
            MissingDependencyError: If a package of the format is not installed.

        Example:
            >>> folder = run.export("best")
            >>> (folder / "weights.safetensors").exists()
            True
        """
        if trial is None and (export_result := result_exporter(self.experiment)) is not None:
            check_result_format(self.experiment, format, has_weights=weights)
            return export_result(self, folder, force)
        return linked(
            write_bundle(
                self.stored, Path(folder), trial=trial, format=format, force=force, weights=weights
            )
        )

    def ensemble(
        self,
        *,
        size: int | None = None,
        trials: Iterable[int] | None = None,
        metric: str | None = None,
    ) -> Ensemble:
        """Combine trials: select those whose mean answer is best.

        The ensemble is compared with the best trial.

        The weights are chosen on one half of the validation samples and judged on the other, and on
        the test samples, if the data has some. Classes are answered by the mean of probabilities,
        numbers by their mean.

        Args:
            size: Maximum number of trials that the ensemble has, or None for any number.
            trials: The numbers of the trials to select from, or None for the best 20 whose
                checkpoints are kept.
            metric: The objective to improve, or None for the first.

        Returns:
            The ensemble, which says whether it is better, predicts, and exports itself as a
            bundle.

        Raises:
            ArgumentError: If a trial cannot be used, or the metric is not an objective of
                predictions.
            RunError: If the workbench did not train the models, fewer than two trials have
                checkpoints, or their answers have no mean.

        Example:
            >>> ensemble = run.ensemble()
            >>> round(sum(ensemble.weights.values()), 6)
            1.0
        """
        from workbench.runs.bundles.ensemble import find_ensemble

        return find_ensemble(self.stored, size=size, trials=trials, metric=metric)

    def export_study(self, url: str, name: str | None = None) -> str:
        """Write the run as an Optuna study, for Optuna's dashboard and other tools.

        Args:
            url: An Optuna storage, such as sqlite:///study.db.
            name: The name of the study, or None for the run id.

        Returns:
            The name of the study.

        Example:
            >>> run.export_study("sqlite:///study.db", "mine")
            'mine'
        """
        from workbench.search import Study

        name = name or self.run_id
        Study.rebuild(self.experiment, self.events()).export(url, name)
        return name

    # New runs that start from it.

    def replay(self, *, launcher: str = "ray", address: str | None = None) -> Self:
        """Start a new run that tries the configurations of this run again, in the same order.

        Args:
            launcher: As in `sweep`.
            address: As in `sweep`.

        Returns:
            The new run. Its `comparison` describes how it differs.

        Raises:
            RunError: If this run has proposed nothing, or the driver cannot be started. With the
                launcher `inline`, also if the new run failed.

        Example:
            >>> again = run.replay().wait()
            >>> again.comparison.of_run_id == run.run_id
            True
        """
        from workbench.sweeps.launchers import launch

        again = self.create_replay()
        launch(self.store, again.run_id, launcher=launcher, address=address, replay_of=self.run_id)
        return again.ended_by(launcher)

    def create_replay(self) -> Self:
        """Store the run that `replay` starts, without starting its driver.

        Returns:
            The new run.

        Raises:
            RunError: If this run has proposed nothing.
        """
        from workbench.sweeps.warm_start import recorded_proposals

        refuse_imported(self.experiment, "replayed")
        recorded_proposals(self.store, self.run_id)
        return type(self)(self.store, self.store.create_run(self.experiment))

    def compress(
        self,
        *,
        trial: int | None = None,
        objective: str | None = None,
        limits: Mapping[str, Any] | None = None,
        trials: int | None = None,
        time: float | str | None = None,
        threads: int = 1,
        device: str = "here",
        python: str = "python3",
        launcher: str = "ray",
        address: str | None = None,
    ) -> Self:
        """Start a run that makes a trained model smaller and faster, and measures what that costs.

        Each of its trials prunes, quantises and fine-tunes the model in another way, writes it as
        ONNX, and measures its latency in turn with the unchanged model. A model that is slower than
        the unchanged one, or worse than `limits` allow, is never the best trial of the run.

        Args:
            trial: The number of the trial to compress, or None for the chosen or best.
            objective: What to keep, such as val_loss, or None for the accuracy where it is
                measured, else for the first objective.
            limits: The most that is allowed: `drop` of the objective (0.5% by default), `latency`
                of a call (such as 5ms), `size` of the file (such as 500KB), `memory` of a process
                that runs the model (such as 100MB).
            trials: Maximum number of compressions to try. 12 if you set no time limit either.
            time: Maximum time, in seconds or such as 10m.
            threads: Number of threads of each call that is timed.
            device: Where the latency is measured: here, ssh://[USER@]HOST[:PORT], or FILE:TIER, a
                tier of a file of tiers. A measurement of the same files on the same machine is
                reused for a day.
            python: The Python of another machine, which needs numpy and onnxruntime.
            launcher: As in `sweep`.
            address: As in `sweep`.

        Returns:
            The new run, which `export` writes as a bundle with the compressed model.

        Raises:
            ArgumentError: If an argument is not valid.
            MissingDependencyError: If onnx, onnxscript or onnxruntime is not installed.
            RunError: If there is no trained model, or it cannot be compressed.

        Example:
            >>> smaller = run.compress(trials=2, limits={"drop": "1%"}).wait()
            >>> smaller.history.trials[1].params["quantiser"]
            'dynamic'
        """
        from workbench.runs.compressing import create_compression
        from workbench.sweeps.launchers import launch

        run_id = create_compression(
            self.stored,
            trial=trial,
            objective=objective,
            limits=limits,
            trials=trials,
            time=time,
            threads=threads,
            device=device,
            python=python,
            launcher=launcher,
            address=address,
        )
        launch(self.store, run_id, launcher=launcher, address=address)
        return type(self)(self.store, run_id)

    # How notebooks and consoles show it.

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.run_id!r}, state={self.state!r})"

    def _ipython_display_(self) -> None:
        if is_shown_in_this_cell(self.stored):
            return
        if not show_run(self.stored):
            raise NotImplementedError  # IPython then takes the forms below

    def _repr_html_(self) -> str | None:
        if is_shown_in_this_cell(self.stored):
            return None
        return snapshot(self.stored)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        if is_shown_in_this_cell(self.stored):
            return {"text/plain": repr(self)}
        return output_forms(self.stored)


def open_store(store: Store | str | None) -> Store:
    """Return a store that is given as an object or a URL, or the default."""
    if isinstance(store, Store):
        return store
    return Store.open(store)


def open_existing_store(store: Store | str | None) -> Store:
    """Return a store like `open_store`, but a file must exist.

    Raises:
        StoreError: If it does not.
    """
    if not isinstance(store, Store):
        check_exists(store)
    return open_store(store)


def _listed(given: str | Sequence[str]) -> list[str]:
    if isinstance(given, str):
        return [given]
    return list(given)


ResultExporter: TypeAlias = Callable[[Any, str | Path, bool], Path]
"""(run, folder, force) -> the folder with the bundle. The run is a `workbench.runs.Run`."""

_EXPORTERS = Registry("result exporter", {HELD_OUT: "workbench.runs.automl.result:export_result"})


def result_exporter(experiment: Experiment) -> ResultExporter | None:
    """Return the exporter of a run's result, or None if its result is its best trial.

    Args:
        experiment: The experiment of the run.
    """
    return _EXPORTERS.load(HELD_OUT) if is_automl(experiment) else None
