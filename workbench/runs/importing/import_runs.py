"""Stores the runs of another tool as runs that have ended, and says what was taken.

A source, such as a project or a study, becomes one run, and each of its runs a trial. A source that
was imported before only gets the trials that it does not have yet.
"""

from __future__ import annotations

import math
import os
import socket
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from workbench.experiment import Experiment
from workbench.experiment.goals import Goal
from workbench.experiment.train_function import IMPORTED_TAG, imported_component, importing_tool
from workbench.experiment.trial_value import TrialValue
from workbench.foundation.errors import ArgumentError, WorkbenchError
from workbench.foundation.events import (
    Event,
    RunsImported,
    RunStateChanged,
    TrialEnded,
    TrialImported,
    TrialProposed,
    TrialReported,
    TrialStarted,
    TrialState,
    process_unix_s,
)
from workbench.foundation.formatting import format_count
from workbench.foundation.garbage import no_garbage_search
from workbench.runs.importing.formats import read_old_runs
from workbench.runs.importing.naming import (
    Names,
    has_other_seed,
    name_runs,
    resolve_mapping,
    seed_of,
)
from workbench.runs.importing.old_runs import RUNNING, OldRun, OldRuns, Point
from workbench.runs.run import Run, open_store
from workbench.store.database import Store
from workbench.store.database.labels import change_tags
from workbench.store.database.store import delete_run
from workbench.sweeps.ledger import EventBlocks

_BATCH_EVENTS = 4000
"""How many events are stored at once. A trial is never divided."""
_MAX_NAME = 80
_CHANGED = "changed since they were imported"
_OPTIONS = ("place", "source", "map", "labels")


@dataclass(frozen=True)
class ImportedSource:
    """What was taken of one source, and what was not.

    Attributes:
        source: Its name in the tool.
        tool: The tool.
        run_id: The run, or None if nothing was taken.
        num_added: Trials that are new.
        num_known: Trials that had been imported before.
        num_reports: Reports of the new trials.
        left_out: How often something was not taken, by the reason.
        notes: What was decided, such as the objective, as sentences without their full stops.
    """

    source: str
    tool: str
    run_id: str | None = None
    num_added: int = 0
    num_known: int = 0
    num_reports: int = 0
    left_out: dict[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def describe(self) -> list[str]:
        """Return lines of text: what was taken, what was decided, and what was not taken."""
        taken = format_count(self.num_added, "trial")
        if self.num_known:
            taken += f" ({format_count(self.num_known)} had been imported before)"
        if self.run_id is None:
            lines = [f"{self.source}: nothing was imported"]
        else:
            reports = format_count(self.num_reports, "report")
            lines = [f"{self.source}: {taken} with {reports} added to run {self.run_id}"]
        lines += [f"  {note}" for note in self.notes]
        lines += [f"  not taken: {format_count(num)} {why}" for why, num in self.left_out.items()]
        return lines


@dataclass(frozen=True)
class Imported:
    """The result of an import.

    Attributes:
        sources: One for each project, study or file.
        store: The store of the runs.
    """

    sources: tuple[ImportedSource, ...]
    store: Store = field(repr=False)

    @property
    def runs(self) -> list[Run]:
        """The runs that the trials are in."""
        return [Run(self.store, item.run_id) for item in self.sources if item.run_id is not None]

    def describe(self) -> list[str]:
        """Return what was taken and what was not, as lines of text."""
        return [line for source in self.sources for line in source.describe()]

    def to_json(self) -> dict[str, Any]:
        """Return what `workbench import runs --json` prints, as plain values."""
        return {"sources": [asdict(source) for source in self.sources]}


def import_runs(
    place: str | Path,
    *,
    format: str | None = None,
    metric: str | None = None,
    goal: Goal | None = None,
    names: Mapping[str, str] | None = None,
    store: Store | str | None = None,
) -> Imported:
    """Import runs of another tool, to list, compare, report and learn from them.

    Nothing in the files is executed or unpickled. A second import only adds new trials.

    Args:
        place: A table (CSV, lines of JSON or Parquet), a store of MLflow, Optuna or Trackio, or a
            folder of TensorBoard, W&B, Ray Tune, neptune-exporter or tables.
        format: `csv`, `mlflow`, `tensorboard`, `wandb`, `optuna`, `ray`, `trackio` or `neptune`. By
            default it is recognized by the content.
        metric: The objective. By default that of the tool, or else the most likely one.
        goal: `minimize` or `maximize`. By default that of the tool, or else the usual one.
        names: New names of parameters and metrics, by the old ones.
        store: The store for the runs, or None for the default one.

    Returns:
        What was taken and what was not.

    Raises:
        ArgumentError: If nothing is recognized, or a name does not exist.
        DataError: If a file cannot be read.

    Example:
        >>> from pathlib import Path
        >>> rows = ["run,step,val_loss,learning_rate", "first,0,0.5,0.1", "second,0,0.4,0.01"]
        >>> _ = Path("old.csv").write_text(chr(10).join(rows))
        >>> imported = wb.import_runs("old.csv", names={"learning_rate": "lr"})
        >>> imported.runs[0].best.params
        {'lr': 0.01}
    """
    mapping = dict(names or {})
    if goal not in (None, "minimize", "maximize"):
        raise ArgumentError(f"{goal!r} is not a goal", field="goal", allowed="minimize, maximize")
    with no_garbage_search():
        return _import(_path_of(place), format, (mapping, metric, goal), store)


def _import(place: Path, format: str | None, given: _Given, store: Store | str | None) -> Imported:
    mapping, metric, goal = given
    groups = read_old_runs(place, format, mapping, metric)
    mapping = resolve_mapping(groups, mapping)
    opened = open_store(store)
    sources = []
    problems: list[WorkbenchError] = []
    for group in groups:
        try:
            sources.append(_import_group(opened, group, (mapping, metric, goal)))
        except ArgumentError as error:
            problems.append(error)
            sources.append(
                ImportedSource(group.source, group.tool, left_out={str(error): len(group.runs)})
            )
        finally:
            group.close()
    if problems and not any(source.run_id for source in sources):
        raise problems[0]
    return Imported(tuple(sources), opened)


def _path_of(place: str | Path) -> Path:
    """Return the path of a place, which may be the address of a file, as MLflow and Optuna use."""
    text = str(place)
    for prefix in ("sqlite:///", "file://"):
        text = text.removeprefix(prefix)
    return Path(text).expanduser()


_Given = tuple[Mapping[str, str], str | None, Goal | None]


def _import_group(store: Store, group: OldRuns, given: _Given) -> ImportedSource:
    mapping, metric, goal = given
    ended = [run for run in group.runs if run.state != "running"]
    if len(ended) < len(group.runs):
        group.left_out[RUNNING] += len(group.runs) - len(ended)
    group.runs = ended
    known = _find_known(store, group)
    if not ended:
        return ImportedSource(group.source, group.tool, left_out=dict(group.left_out))
    if known is None:
        names = name_runs(group, mapping, metric=metric, goal=goal)
        known = _Known(store, group, names, _experiment(group, names))
    else:
        known.check_given(mapping, metric, goal)
        known.names.select(group)
    new = known.select(group.runs, group.left_out)
    if num_other := sum(map(has_other_seed, new)):
        group.notes["runs have a seed that is not a whole number. It is stored as 0"] += num_other
    num_known = len(known.keys)
    num_reports = 0
    if new:
        num_reports = known.add(new)
    return ImportedSource(
        source=group.source,
        tool=group.tool,
        run_id=known.run_id,
        num_added=len(new),
        num_known=num_known,
        num_reports=num_reports,
        left_out=dict(group.left_out),
        notes=(*known.names.notes, *(f"{num} {why}" for why, num in group.notes.items())),
    )


def _find_known(store: Store, group: OldRuns) -> _Known | None:
    """Return the run that an earlier import of the source has made, or None."""
    for run_id in store.imported_ids():
        experiment = store.experiment(run_id)
        if importing_tool(experiment) != group.tool or experiment.train is None:
            continue
        options = experiment.train.options
        is_same = (options.get("place"), options.get("source")) == (group.place, group.source)
        known = _Known.of(store, group, run_id, experiment)
        if is_same or known.holds(group):
            return known
    return None


class _Known:
    """The run of one source: what it has, and how more is added."""

    def __init__(self, store: Store, group: OldRuns, names: Names, experiment: Experiment) -> None:
        self.names, self.experiment = names, experiment
        self.keys: dict[str, str] = {}
        """The names of its trials in the tool, by their keys."""
        self.run_id: str | None = None
        self._store, self._group = store, group
        self._configurations: dict[str, list[int]] = {}
        """The number of each configuration, and how often it was trained."""
        self._num_trials = 0

    @classmethod
    def of(cls, store: Store, group: OldRuns, run_id: str, experiment: Experiment) -> _Known:
        """Read what a run has."""
        assert experiment.train is not None
        options: dict[str, Any] = dict(experiment.train.options)
        names = Names(
            [(item.metric, item.goal) for item in experiment.objectives],
            dict(options.get("map", {})),
            list(options.get("labels", [])),
            {
                name: {"type": getattr(domain, "type", None)}
                for name, domain in experiment.search.root.items()
            },
        )
        known = cls(store, group, names, experiment)
        known.run_id = run_id
        for stored in store.events(run_id, types=["trial_imported", "trial_proposed"]):
            event = stored.event
            if isinstance(event, TrialImported):
                known.keys[event.key] = event.name
            elif isinstance(event, TrialProposed):
                known._number(names.configuration_of(event.params))
                known._num_trials = event.trial + 1
        return known

    def holds(self, group: OldRuns) -> bool:
        """Return whether these are its trials, read at another place.

        The keys of other tools are unique. Rows of different tables may be equal, so a table has to
        be equal as a whole.
        """
        if group.tool != "csv":
            return any(run.key in self.keys for run in group.runs)
        return bool(self.keys) and self.keys.keys() == {
            run.key for run in group.runs if self.names.takes(run)
        }

    def check_given(
        self, mapping: Mapping[str, str], metric: str | None, goal: Goal | None
    ) -> None:
        """Refuse other names than those of the first import."""
        own_metric, own_goal = self.names.objectives[0]
        differs = (metric not in (None, own_metric)) or (goal not in (None, own_goal))
        differs |= any(self.names.renamed.get(old, old) != new for old, new in mapping.items())
        if differs:
            raise ArgumentError(
                f"{self._group.source} was imported with other names: the objective is"
                f" {own_metric}, to {own_goal}",
                field="map" if mapping else "metric",
                next_step=f"Delete run {self.run_id} first, or import it into another --store.",
            )
        for run in self._group.runs:
            for name in (*run.params, *run.metrics, *run.results):
                self.names.renamed.setdefault(name, name)

    def select(self, runs: Sequence[OldRun], left_out: Counter[str]) -> list[OldRun]:
        """Return the runs that are not stored yet, oldest first."""
        present = {run.key for run in runs}
        vanished = {name for key, name in self.keys.items() if key not in present}
        new = []
        for run in runs:
            if run.key in self.keys:
                continue
            if run.name in vanished and self._group.tool == "csv":
                left_out[_CHANGED] += 1
                continue
            new.append(run)
        return sorted(new, key=lambda run: run.begun_unix_s or math.inf)

    def _number(self, configuration: str) -> tuple[int, int]:
        """Return the number of a configuration, and the number of this training of it."""
        counts = self._configurations.setdefault(configuration, [len(self._configurations), 0])
        counts[1] += 1
        return counts[0], counts[1] - 1

    def add(self, runs: Sequence[OldRun]) -> int:
        """Store runs as trials, and return how many reports they have.

        If one of them cannot be read, no run is left that has only some of its trials.
        """
        is_new = self.run_id is None
        try:
            return self._add(runs)
        except BaseException:
            if is_new and self.run_id is not None:
                delete_run(self._store, self.run_id)
            raise

    def _add(self, runs: Sequence[OldRun]) -> int:
        begun_unix_s = min(
            (run.begun_unix_s for run in runs if run.begun_unix_s is not None),
            default=process_unix_s(),
        )
        ended_unix_s = max(
            (run.ended_unix_s for run in runs if run.ended_unix_s is not None),
            default=process_unix_s(),
        )
        if self.run_id is None:
            self.run_id = self._store.create_run(self.experiment)
            change_tags(self._store, self.run_id, [IMPORTED_TAG])
        group = self._group
        num_reports = 0
        with self._store.writer(
            self.run_id, owner_pid=os.getpid(), owner_host=socket.gethostname()
        ) as writer:
            blocks = EventBlocks(self._store, writer)
            writer.append(
                RunsImported(
                    time_unix_s=begun_unix_s,
                    tool=group.tool,
                    place=group.place,
                    source=group.source,
                )
            )
            try:
                for events in _batches(self._events(runs)):
                    num_reports += sum(isinstance(event, TrialReported) for event in events)
                    blocks.note(writer.append(*events))
            finally:  # whole trials are stored, and importing again adds the others
                writer.append(
                    RunStateChanged(
                        state="complete",
                        time_unix_s=ended_unix_s,
                        reason=IMPORTED_TAG,
                        message=f"imported from {group.tool}: {group.source}",
                    )
                )
        return num_reports

    def _events(self, runs: Sequence[OldRun]) -> Iterator[list[Event]]:
        for run in runs:
            params = self.names.params_of(run)
            configuration, repeat = self._number(self.names.configuration_of(params))
            proposed = TrialProposed(
                trial=self._num_trials,
                params=params,
                configuration=configuration,
                repeat=repeat,
                seed=seed_of(run),
                time_unix_s=_begun(run),
            )
            self._num_trials += 1
            yield _events_of(self.experiment, proposed, run, self.names, self._group.left_out)


def _experiment(group: OldRuns, names: Names) -> Experiment:
    options = {
        "place": group.place,
        "source": group.source,
        "map": {old: new for old, new in names.renamed.items() if old != new},
        "labels": names.labels,
    }
    return Experiment(
        name=_name(group.source),
        train=imported_component(group.tool, {name: options[name] for name in _OPTIONS}),
        objectives=[{"metric": metric, "goal": goal} for metric, goal in names.objectives],
        search=names.search,
    )


def _name(source: str) -> str:
    """Return the name of a source as that of an experiment."""
    plain = "".join(
        character if character.isprintable() and character not in "/\\" else "-"
        for character in source
    )
    return plain.strip(" .")[:_MAX_NAME] or IMPORTED_TAG


def _batches(trials: Iterator[list[Event]]) -> Iterator[list[Event]]:
    batch: list[Event] = []
    for events in trials:
        batch += events
        if len(batch) >= _BATCH_EVENTS:
            yield batch
            batch = []
    if batch:
        yield batch


def _begun(run: OldRun) -> float:
    return process_unix_s() if run.begun_unix_s is None else run.begun_unix_s


def _events_of(
    experiment: Experiment,
    proposed: TrialProposed,
    run: OldRun,
    names: Names,
    left_out: Counter[str],
) -> list[Event]:
    """Return the events of one trial."""
    number = proposed.trial
    begun_unix_s = proposed.time_unix_s
    events: list[Event] = [
        proposed,
        TrialImported(trial=number, key=run.key, name=run.name, time_unix_s=begun_unix_s),
    ]
    if run.begun_unix_s is not None:
        events.append(
            TrialStarted(trial=number, attempt=0, worker_pids=[], time_unix_s=begun_unix_s)
        )
    value = TrialValue(experiment)
    last: dict[str, float] = {}
    step = 0
    for step, (time_unix_s, values) in _by_step(run.read_points(), names, left_out).items():
        at_unix_s = begun_unix_s if time_unix_s is None else max(time_unix_s, begun_unix_s)
        events.append(
            TrialReported(
                trial=number,
                step=step,
                elapsed_s=at_unix_s - begun_unix_s,
                values=values,
                time_unix_s=at_unix_s,
            )
        )
        value.report(values, step=step)
        last |= values
    results = {names.renamed.get(name, name): result for name, result in run.results.items()}
    ended_unix_s = max(run.ended_unix_s or begun_unix_s, events[-1].time_unix_s)
    if results:
        value.report(results, step=step, returned=True)
        last |= results
        events.append(
            TrialReported(
                trial=number,
                step=step,
                elapsed_s=ended_unix_s - begun_unix_s,
                values=results,
                returned=True,
                time_unix_s=ended_unix_s,
            )
        )
    events.append(_end(experiment, proposed, run, (value.result(), last, step, ended_unix_s)))
    return events


def _end(
    experiment: Experiment,
    proposed: TrialProposed,
    run: OldRun,
    result: tuple[dict[str, float], Mapping[str, float], int, float],
) -> TrialEnded:
    """Return the end of a trial. One whose last objective is not finite has diverged."""
    values, last, step, time_unix_s = result
    state: TrialState = run.state
    reason = "error" if run.state == "failed" else None
    message = run.message
    diverged = [
        item.metric
        for item in experiment.objectives
        if not math.isfinite(last.get(item.metric, 0.0))
    ]
    missing = [item.metric for item in experiment.objectives if item.metric not in last]
    if state == "complete" and diverged:
        state, reason = "failed", "diverged"
        message = f"{diverged[0]} was {last[diverged[0]]} at the end"
    elif state == "complete" and missing:
        state, reason = "failed", "error"
        message = f"it never reported {missing[0]}"
    return TrialEnded(
        trial=proposed.trial,
        attempt=0,
        state=state,  # type: ignore[arg-type]
        reason=reason,  # type: ignore[arg-type]
        message=message,
        values=values if state != "failed" else {},
        step=step,
        time_unix_s=time_unix_s,
    )


def _by_step(
    points: Sequence[Point], names: Names, left_out: Counter[str]
) -> dict[int, tuple[float | None, dict[str, float]]]:
    """Return the values of each step, in their order.

    Values that were all logged at one step are numbered. Of several values at a step, the last one
    counts.
    """
    steps: dict[str, set[int]] = {}
    counts: Counter[str] = Counter()
    for point in points:
        steps.setdefault(point.metric, set()).add(point.step)
        counts[point.metric] += 1
    is_counted = {name: len(own) == 1 and counts[name] > 1 for name, own in steps.items()}
    seen: Counter[str] = Counter()
    rows: dict[int, tuple[float | None, dict[str, float]]] = {}
    num_replaced = 0
    for point in points:
        step = point.step
        if is_counted[point.metric]:
            step = seen[point.metric]
            seen[point.metric] += 1
        metric = names.renamed.get(point.metric, point.metric)
        _, values = rows.get(step, (None, {}))
        num_replaced += metric in values
        values[metric] = point.value
        rows[step] = point.time_unix_s, values
    if num_replaced:
        left_out["values at a step that a later value of the step replaces"] += num_replaced
    return dict(sorted(rows.items()))
