"""Reads folders with one run each: a file of rows, and a file of hyper-parameters next to it.

Ray Tune writes such folders, and so do the CSV logger of Lightning and many scripts.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import JsonValue

from workbench.experiment.yaml_file import read_yaml_file
from workbench.foundation.errors import DataError, WorkbenchError
from workbench.runs.importing.old_runs import (
    OldRun,
    OldRuns,
    OldState,
    Point,
    flatten,
    key_of,
    numbers_of,
    read_json_file,
)

_PARAMS_FILES = (
    "params.json",
    "hparams.yaml",
    "config.yaml",
    "config.yml",
    "config.json",
    "hparams.json",
    "hyperparameters.json",
    "args.json",
    "params.yaml",
    ".hydra/config.yaml",
)
_STATE_FILES = "experiment_state-*.json"
_RESULTS = "result.json"
_OF_RAY = frozenset(
    (
        "timestamp",
        "checkpoint_dir_name",
        "done",
        "training_iteration",
        "trial_id",
        "date",
        "time_this_iter_s",
        "time_total_s",
        "pid",
        "hostname",
        "node_ip",
        "time_since_restore",
        "iterations_since_restore",
        "should_checkpoint",
        "experiment_id",
        "experiment_tag",
        "timesteps_total",
        "episodes_total",
        "timesteps_since_restore",
        "warmup_time",
    )
)
_STATES: dict[str, OldState] = {
    "TERMINATED": "complete",
    "ERROR": "failed",
    "RUNNING": "running",
    "PENDING": "running",
    "PAUSED": "running",
}
_PRUNED_EARLY = "trials ended before the longest one, so they count as pruned"


def params_next_to(folder: Path) -> dict[str, JsonValue]:
    """Return the hyper-parameters in the first known file of a folder, by dotted names."""
    for name in _PARAMS_FILES:
        path = folder / name
        if not path.is_file():
            continue
        try:
            if path.suffix == ".json":
                document = read_json_file(path)
            else:
                document = read_yaml_file(path, holds="hyper-parameters")
        except WorkbenchError:
            continue
        if isinstance(document, Mapping):
            return flatten(_plain(document))
    return {}


def _plain(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return values without the wrapping `{value: ...}` and the own keys of wandb."""
    return {
        str(name): value["value"] if isinstance(value, Mapping) and "value" in value else value
        for name, value in document.items()
        if not str(name).startswith("_wandb") and name != "wandb_version"
    }


def find_ray_folders(folder: Path) -> list[Path]:
    """Return the experiments of Ray Tune in a folder: itself, or those directly below."""
    places = [folder, *sorted(path for path in folder.iterdir() if path.is_dir())]
    return [place for place in places if next(place.glob(_STATE_FILES), None) is not None]


def read_ray_folder(folder: Path) -> list[OldRuns]:
    """Read the experiments of Ray Tune in a folder, without their pickled files.

    Args:
        folder: The folder of an experiment, or the one that contains several.

    Raises:
        DataError: If a file cannot be read.
    """
    return [_experiment(place) for place in find_ray_folders(folder)]


def _experiment(folder: Path) -> OldRuns:
    group = OldRuns("ray", str(folder.absolute()), folder.absolute().name, [])
    states = {}
    for path in sorted(folder.glob(_STATE_FILES)):  # a resumed experiment has several
        states |= _trial_states(path)
    num_iterations: dict[str, int] = {}
    places = {path.parent for path in folder.rglob(_RESULTS)}
    places |= {path.parent for path in folder.rglob("params.json")}
    for place in sorted(places):
        rows = list(_rows(place / _RESULTS, group.left_out))
        state = states.get(place.relative_to(folder).as_posix(), "stopped")
        run = _ray_run(place, rows, state)
        num_iterations[run.key] = len(rows)
        group.runs.append(run)
    _mark_pruned(group, num_iterations)
    return group


def _trial_states(path: Path) -> dict[str, OldState]:
    """Return the states of trials by their folders. Each is JSON in JSON."""
    states: dict[str, OldState] = {}
    for entry in read_json_file(path).get("trial_data", []):
        try:
            trial = json.loads(entry[0])
            states[str(trial["relative_logdir"])] = _STATES.get(trial["status"], "stopped")
        except (ValueError, KeyError, TypeError, IndexError):
            continue
    return states


def _rows(path: Path, left_out: Counter[str]) -> Iterator[dict[str, Any]]:
    if not path.is_file():
        return
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from error
    for line in lines:
        try:
            row = json.loads(line)
        except ValueError:
            row = None
        if isinstance(row, dict):
            yield row
        else:
            left_out["lines that are not JSON"] += 1


def _ray_run(folder: Path, rows: list[dict[str, Any]], state: OldState) -> OldRun:
    points = [
        Point(int(row.get("training_iteration", number)), name, value, row.get("timestamp"))
        for number, row in enumerate(rows, 1)
        for name, value in numbers_of(_reported(row), separator="/").items()
    ]
    times = [float(row["timestamp"]) for row in rows if "timestamp" in row]
    # Users may name folders themselves, such as trial_0, so the name alone tells no trials apart.
    began: object = folder.parent.name
    if rows:
        began = {name: rows[0].get(name) for name in ("trial_id", "timestamp", "hostname", "pid")}
    last_s = float(rows[-1].get("time_total_s", 0.0)) if rows else 0.0
    return OldRun(
        key=key_of("ray", folder.name, began),
        name=str(rows[0].get("trial_id", folder.name)) if rows else folder.name,
        state=state,
        params=params_next_to(folder),
        metrics=sorted({point.metric for point in points}),
        read_points=partial(list, points),
        begun_unix_s=max(times) - last_s if times else None,
        ended_unix_s=max(times, default=None),
        message=_last_line(folder / "error.txt"),
    )


def _reported(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in {*_OF_RAY, "config"}}


def _last_line(path: Path) -> str | None:
    if not path.is_file():
        return None
    lines = path.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return lines[-1] if lines else None


def _mark_pruned(group: OldRuns, num_iterations: Mapping[str, int]) -> None:
    """Let trials that a scheduler may have stopped count as pruned.

    Ray does not say why a trial ended. Its last value would be taken for that of a full training.
    """
    complete = [run for run in group.runs if run.state == "complete"]
    longest = max((num_iterations[run.key] for run in complete), default=0)
    for run in complete:
        if num_iterations[run.key] < longest:
            run.state = "pruned"
            group.notes[_PRUNED_EARLY] += 1
