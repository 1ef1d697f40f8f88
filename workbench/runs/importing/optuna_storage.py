"""Reads storages of Optuna: a SQLite file or a journal. A study becomes a run.

The journal is read as Optuna replays it. Distributions of a study become the search space.
"""

from __future__ import annotations

import json
import math
import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from pydantic import JsonValue

from workbench.experiment.goals import Goal
from workbench.foundation.errors import DataError
from workbench.runs.importing.old_runs import OldRun, OldRuns, OldState, Point, key_of, unix_s
from workbench.runs.importing.sqlite_file import columns_of, opened

TABLES = frozenset({"studies", "trials", "trial_params", "trial_values", "study_directions"})
_STATES: dict[str, OldState] = {
    "COMPLETE": "complete",
    "PRUNED": "pruned",
    "FAIL": "failed",
    "RUNNING": "running",
    "WAITING": "running",
}
_NUMBERED = ("RUNNING", "COMPLETE", "PRUNED", "FAIL", "WAITING")
_METRIC_NAMES = "study:metric_names"
# Operations of a journal, in Optuna's order.
_CREATE_STUDY, _DELETE_STUDY, _SET_SYSTEM = 0, 1, 3
_CREATE_TRIAL, _SET_PARAM, _SET_STATE, _SET_INTERMEDIATE = 4, 5, 6, 7


@dataclass
class _Trial:
    state: str = "RUNNING"
    begun: Any = None
    ended: Any = None
    params: dict[str, JsonValue] = field(default_factory=dict)
    domains: dict[str, dict[str, Any]] = field(default_factory=dict)
    values: list[float] = field(default_factory=list)
    intermediate: dict[int, float] = field(default_factory=dict)

    def set_param(self, name: str, internal: float, distribution: str) -> None:
        """Set a parameter from its internal value and its distribution as JSON."""
        kind, attributes = _read_distribution(distribution)
        if "choices" in attributes:
            choices = attributes["choices"]
            self.params[name] = choices[int(internal)]
            self.domains[name] = {"choices": choices}
            return
        is_whole = kind.startswith("Int")
        self.params[name] = round(internal) if is_whole else float(internal)
        domain: dict[str, Any] = {"low": attributes["low"], "high": attributes["high"]}
        step = attributes.get("step", attributes.get("q"))
        if attributes.get("log") or kind.startswith("LogUniform"):
            domain["log"] = True
        elif step is not None and not (is_whole and step == 1):
            domain["step"] = step
        domain["type"] = "int" if is_whole else "float"
        self.domains[name] = domain


@dataclass
class _Study:
    name: str
    goals: list[Goal]
    metric_names: list[str] | None = None
    trials: list[_Trial] = field(default_factory=list)


def _read_distribution(text: str) -> tuple[str, dict[str, Any]]:
    document = json.loads(text)
    return str(document["name"]), dict(document["attributes"])


def is_journal(path: Path) -> bool:
    """Return whether a file is a journal of Optuna."""
    try:
        with path.open("rb") as file:
            first = json.loads(file.readline(2**20))
    except (OSError, ValueError):
        return False
    return isinstance(first, dict) and {"op_code", "worker_id"} <= first.keys()


def read_optuna_database(path: Path) -> list[OldRuns]:
    """Read the studies of a SQLite file.

    Args:
        path: The file.

    Raises:
        DataError: If it cannot be read.
    """
    with opened(path) as connection:
        studies = [
            _study_of_database(connection, number, name)
            for number, name in connection.execute(
                "SELECT study_id, study_name FROM studies ORDER BY study_id"
            ).fetchall()
        ]
    return [_group(path, study) for study in studies]


def _study_of_database(connection: sqlite3.Connection, number: int, name: str) -> _Study:
    directions = connection.execute(
        "SELECT direction FROM study_directions WHERE study_id = ? ORDER BY objective", (number,)
    )
    study = _Study(name, [_goal(str(direction)) for (direction,) in directions])
    names = connection.execute(
        "SELECT value_json FROM study_system_attributes WHERE study_id = ? AND key = ?",
        (number, _METRIC_NAMES),
    ).fetchone()
    if names is not None:
        study.metric_names = json.loads(names[0])
    trials = {
        trial: _Trial(state, _local(begun), _local(ended))
        for trial, state, begun, ended in connection.execute(
            "SELECT trial_id, state, datetime_start, datetime_complete FROM trials"
            " WHERE study_id = ? ORDER BY number, trial_id",
            (number,),
        )
    }
    study.trials = list(trials.values())
    _add_params(connection, number, trials)
    _add_values(connection, number, trials)
    return study


def _local(written: str | None) -> float | None:
    """Return a time that Optuna has written without a time zone, in the one of the machine."""
    if written is None:
        return None
    return datetime.fromisoformat(written).astimezone().timestamp()


def _add_params(connection: sqlite3.Connection, study: int, trials: Mapping[int, _Trial]) -> None:
    rows = connection.execute(
        "SELECT p.trial_id, p.param_name, p.param_value, p.distribution_json FROM trial_params p"
        " JOIN trials t ON t.trial_id = p.trial_id WHERE t.study_id = ? ORDER BY p.param_id",
        (study,),
    )
    for trial, name, value, distribution in rows:
        trials[trial].set_param(name, value, distribution)


def _add_values(connection: sqlite3.Connection, study: int, trials: Mapping[int, _Trial]) -> None:
    """Add final and intermediate values. Old versions have no types, and NULL for NaN."""
    final = _typed("value", columns_of(connection, "trial_values"))
    rows = connection.execute(
        f"SELECT v.trial_id, v.value, {final} FROM trial_values v"
        " JOIN trials t ON t.trial_id = v.trial_id WHERE t.study_id = ? ORDER BY v.objective",
        (study,),
    )
    for trial, value, kind in rows:
        trials[trial].values.append(_number(value, kind))
    kind_of = _typed("intermediate_value", columns_of(connection, "trial_intermediate_values"))
    rows = connection.execute(
        f"SELECT v.trial_id, v.step, v.intermediate_value, {kind_of}"
        " FROM trial_intermediate_values v"
        " JOIN trials t ON t.trial_id = v.trial_id WHERE t.study_id = ?",
        (study,),
    )
    for trial, step, value, kind in rows:
        trials[trial].intermediate[step] = _number(value, kind)


def _typed(column: str, columns: Iterable[str]) -> str:
    return f"v.{column}_type" if f"{column}_type" in columns else "'FINITE'"


def _number(value: float | None, kind: str) -> float:
    if kind == "INF_POS":
        return math.inf
    if kind == "INF_NEG":
        return -math.inf
    return math.nan if value is None else value


def _goal(direction: str) -> Goal:
    return "maximize" if direction in ("MAXIMIZE", "2") else "minimize"


def read_optuna_journal(path: Path) -> list[OldRuns]:
    """Read the studies of a journal.

    Args:
        path: The file.

    Raises:
        DataError: If a line cannot be read.
    """
    journal = _Journal()
    torn = 0
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                entry = json.loads(line)
            except ValueError as error:
                if not line.endswith(b"\n"):  # it is being written
                    torn += 1
                    continue
                raise DataError(
                    f"line {number} of {path} is not JSON", allowed="a journal of Optuna"
                ) from error
            journal.apply(entry)
    groups = [_group(path, study) for study in journal.studies.values()]
    if torn and groups:
        groups[0].left_out["a line that is still being written"] += torn
    return groups


class _Journal:
    """The studies after the operations so far."""

    def __init__(self) -> None:
        self.studies: dict[int, _Study] = {}
        self._num_studies = 0
        self._trials: list[_Trial] = []

    def apply(self, entry: Mapping[str, Any]) -> None:
        code = entry.get("op_code")
        if code == _CREATE_STUDY:
            self._create_study(entry)
        elif code == _DELETE_STUDY:
            self.studies.pop(entry["study_id"], None)
        elif code == _SET_SYSTEM and entry["study_id"] in self.studies:
            names = entry.get("system_attr", {}).get(_METRIC_NAMES)
            study = self.studies[entry["study_id"]]
            study.metric_names = names or study.metric_names
        elif code == _CREATE_TRIAL:
            self._create_trial(entry)
        elif code in (_SET_PARAM, _SET_STATE, _SET_INTERMEDIATE):
            self._change_trial(code, entry)

    def _create_study(self, entry: Mapping[str, Any]) -> None:
        if any(study.name == entry["study_name"] for study in self.studies.values()):
            return  # another worker was first
        goals: list[Goal] = [_goal(str(direction)) for direction in entry["directions"]]
        self.studies[self._num_studies] = _Study(entry["study_name"], goals)
        self._num_studies += 1

    def _create_trial(self, entry: Mapping[str, Any]) -> None:
        study = self.studies.get(entry["study_id"])
        if study is None:
            return
        trial = _Trial(begun=entry.get("datetime_start"))
        if "state" in entry:  # a trial that was added as a whole
            trial.state = _NUMBERED[entry["state"]]
            trial.ended = entry.get("datetime_complete")
            trial.values = _values(entry)
            for name, internal in entry.get("params", {}).items():
                trial.set_param(name, internal, entry["distributions"][name])
            trial.intermediate = {
                int(step): _json_number(value)
                for step, value in entry.get("intermediate_values", {}).items()
            }
        study.trials.append(trial)
        self._trials.append(trial)

    def _change_trial(self, code: int, entry: Mapping[str, Any]) -> None:
        if entry["trial_id"] >= len(self._trials):
            return
        trial = self._trials[entry["trial_id"]]
        if _STATES[trial.state] != "running":
            return  # Optuna refuses changes of trials that have ended
        if code == _SET_PARAM:
            trial.set_param(
                entry["param_name"], entry["param_value_internal"], entry["distribution"]
            )
        elif code == _SET_INTERMEDIATE:
            trial.intermediate[int(entry["step"])] = _json_number(entry["intermediate_value"])
        else:
            trial.state = _NUMBERED[entry["state"]]
            trial.begun = entry.get("datetime_start", trial.begun)
            trial.ended = entry.get("datetime_complete", trial.ended)
            trial.values = _values(entry)


def _values(entry: Mapping[str, Any]) -> list[float]:
    values = entry.get("values") or ([] if entry.get("value") is None else [entry["value"]])
    return [_json_number(value) for value in values]


def _json_number(value: float | None) -> float:
    return math.nan if value is None else float(value)


def _group(path: Path, study: _Study) -> OldRuns:
    names = study.metric_names or _usual_names(len(study.goals))
    group = OldRuns("optuna", str(path.absolute()), study.name, [])
    group.objectives = list(zip(names, study.goals, strict=True))
    changing: defaultdict[str, int] = defaultdict(int)
    for number, trial in enumerate(study.trials):
        for name, domain in trial.domains.items():
            if group.search.setdefault(name, domain) != domain:
                changing[name] += 1
        group.runs.append(_run(study, number, trial, names))
    for name in changing:  # the ranges follow from the values
        del group.search[name]
    return group


def _usual_names(num_objectives: int) -> list[str]:
    if num_objectives == 1:
        return ["value"]
    return [f"value_{number}" for number in range(num_objectives)]


def _run(study: _Study, number: int, trial: _Trial, names: list[str]) -> OldRun:
    points = [Point(step, names[0], value) for step, value in sorted(trial.intermediate.items())]
    return OldRun(
        key=key_of("optuna", study.name, number, str(trial.begun), trial.params),
        name=f"trial {number}",
        state=_STATES.get(trial.state, "stopped"),
        params=trial.params,
        metrics=list(names),
        read_points=lambda: points,
        results=dict(zip(names, trial.values, strict=False)),
        begun_unix_s=unix_s(trial.begun),
        ended_unix_s=unix_s(trial.ended),
    )
