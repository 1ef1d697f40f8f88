"""A run as an object: found by its id, controlled by its methods, and the source of figures and
files.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from typing_extensions import Self

from workbench.experiment.actions import action_of, check_arguments
from workbench.experiment.automl import is_automl
from workbench.runs.bundle import write_bundle
from workbench.runs.bundle_formats import write_result
from workbench.runs.controlled import ControlledRun
from workbench.runs.figures import draw, write_report, write_trace
from workbench.runs.written_file import linked
from workbench.store.database import Store
from workbench.store.database.urls import check_exists

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from workbench.runs.ensemble import Ensemble


def open_store(store: Store | str | None) -> Store:
    """Return the store that is meant: itself, by URL, or the default."""
    return store if isinstance(store, Store) else Store.open(store)


def open_existing_store(store: Store | str | None) -> Store:
    """Return the store that is meant, as `open_store` does; a file that is named must exist.

    Raises:
        StoreError: If it does not.
    """
    if not isinstance(store, Store):
        check_exists(store)
    return open_store(store)


def attach(run_id: str = "last", *, store: Store | str | None = None) -> Run:
    """Return a run that was started earlier, by this process or another.

    Args:
        run_id: A run id, a prefix or a name that only one run has, or "last", the newest that is
            not advice.
        store: The store that keeps it; None for the one that WORKBENCH_STORE names, or else the
            user's own.

    Returns:
        The run.

    Raises:
        RunNotFoundError: If there is no such run; similar names are listed.
        StoreError: If the file that is named does not exist.

    Example:
        >>> wb.attach(run.run_id).state
        'complete'
    """
    opened = open_existing_store(store)
    return Run(opened, opened.run(run_id).run_id)


class Run(ControlledRun):
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
        first = [
            values.pop(one.name)
            for one in action.arguments
            if one.is_positional and one.name in values
        ]
        return getattr(self, action.method or kind)(*first, **values, **options)

    def replay(self, *, launcher: str = "ray", address: str | None = None) -> Self:
        """Start a new run that tries exactly the configurations of this run again, in the same
        order.

        Args:
            launcher: As in `sweep`.
            address: As in `sweep`.

        Returns:
            The new run; its `comparison` describes how it differs.

        Raises:
            RunError: If this run has proposed nothing, or the driver cannot be started; with the
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

        recorded_proposals(self.store, self.run_id)
        return type(self)(self.store, self.store.create_run(self.experiment))

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
            The path of the file, which a notebook shows as a link.

        Raises:
            ArgumentError: If the folder of the file does not exist.
            RunError: If the file cannot be written.

        Example:
            >>> run.report("report.html").name
            'report.html'
        """
        written = write_report(self, self.folder / "report.html" if path is None else Path(path))
        return linked(written, self.run_id)

    def trace(self, path: str | Path | None = None, *, trial: int | None = None) -> Path:
        """Write what each worker did and when, as a trace that Perfetto (ui.perfetto.dev) opens.

        Args:
            path: A file in a folder that exists; None for `trace.json` in the run's folder.
            trial: Only this trial, with its speed and its metrics over time; None for all, without
                these.

        Returns:
            The path of the file.

        Raises:
            ArgumentError: If the folder of the file does not exist, or the run has no such trial.
            RunError: If the file cannot be written.

        Example:
            >>> run.trace("trace.json", trial=0).name
            'trace.json'
        """
        written = write_trace(
            self, self.folder / "trace.json" if path is None else Path(path), trial
        )
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
        """Write a trial as a bundle.

        Configuration, weights, the command that retrains it, and the report.

        Of an AutoML run it writes the result, as `AutoML.export` does, unless a trial is named.

        Args:
            folder: A folder that is empty or does not exist.
            trial: The number of the trial; None for the chosen or best, or for the result of an
                AutoML run.
            format: "onnx" adds the model as ONNX, its card, and a script that predicts without
                torch; "openvino", or a format of another package, adds its files beside these;
                "flower" adds the federation of the trial as an application for Flower.
            force: Write into a folder that is not empty; files of the same names are replaced.
            weights: Include the weights, where the workbench trained the model.

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
        if trial is None and is_automl(self.experiment):
            write_result(self, Path(folder), format=format, force=force, weights=weights)
            return linked(Path(folder))
        return linked(
            write_bundle(
                self, Path(folder), trial=trial, format=format, force=force, weights=weights
            )
        )

    def ensemble(
        self,
        *,
        size: int | None = None,
        trials: Iterable[int] | None = None,
        metric: str | None = None,
    ) -> Ensemble:
        """Combine trials: select those whose mean answer is best, and compare it with the best
        trial.

        The weights are chosen on one half of the validation samples and judged on the other, and on
        the test samples, if the data has some. Classes are answered by the mean of probabilities,
        numbers by their mean.

        Args:
            size: Maximum number of trials that the ensemble has; None for any number.
            trials: The numbers of the trials to select from; None for the best 20 whose checkpoints
                are kept.
            metric: The objective to improve; None for the first.

        Returns:
            The ensemble, which states whether it is better, predicts, and exports itself as a
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
        from workbench.runs.ensemble import find_ensemble

        return find_ensemble(self, size=size, trials=trials, metric=metric)

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
        ONNX, and measures its latency in turn with that of the unchanged model. What is slower than
        that, or worse than `limits` allow, is never the best trial of the run.

        Args:
            trial: The number of the trial to compress; None for the chosen or best.
            objective: What to keep, such as val_loss; None for the accuracy where it is measured,
                else for the first objective.
            limits: The most that is allowed: `drop` of the objective (0.5% by default), `latency`
                of a call (such as 5ms), `size` of the file (such as 500KB), `memory` of a process
                that runs the model (such as 100MB).
            trials: Maximum number of compressions to try; 12 if there is no time limit either.
            time: Maximum time, in seconds or such as 10m.
            threads: Number of threads of each call that is timed.
            device: Where the latency is measured: here, ssh://[USER@]HOST[:PORT], or FILE:TIER, a
                tier of a file of tiers. What was measured on a machine of the same files is reused
                for a day.
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

        created = create_compression(
            self,
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
        launch(created.store, created.run_id, launcher=launcher, address=address)
        return type(self)(created.store, created.run_id)

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
        from workbench.search import Study

        name = name or self.run_id
        Study.rebuild(self.experiment, self.events()).export(url, name)
        return name
