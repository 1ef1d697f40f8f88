"""Experiment files as they are run: with settings changed by dotted path, and with their objects at hand."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from workbench.errors import ExperimentError
from workbench.experiment import Experiment
from workbench.experiment.yaml_file import read_yaml_file

OBJECTS_FOLDER = "objects"
_NAMED_PARTS = frozenset({"model", "data", "train", "loss", "sampler"})


def read_experiment(path: str | Path, settings: Mapping[str, Any] | None = None) -> Experiment:
    """Read an experiment file, and the embedded objects that lie in the folder `objects` beside it.

    Args:
        path: The file.
        settings: Values by dotted path, such as `{"training.epochs": 5, "objectives.0.target": 0.98}`; they
            replace what the file says.

    Returns:
        The experiment; without a name in the file it is named like the file.

    Raises:
        ExperimentError: If the file cannot be read, a path leads nowhere, or the result is no experiment.
        RunError: If the bytes of an embedded object are not those that its name was made from.
    """
    path = Path(path)
    document = read_yaml_file(path)
    document.setdefault("name", path.stem)
    for dotted, value in (settings or {}).items():
        _set(document, dotted, value)
    return Experiment(**document).with_payloads(_read_objects(path.parent / OBJECTS_FOLDER))


def _read_objects(folder: Path) -> dict[str, bytes]:
    if not folder.is_dir():
        return {}
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def _set(document: dict[str, Any], dotted: str, value: Any) -> None:
    """Change the value at a dotted path; parts that are not written yet are added."""
    keys = dotted.split(".")
    if not all(keys):
        raise ExperimentError(
            "no setting is called so", field=dotted, allowed="a dotted path, such as training.epochs"
        )
    place: Any = document
    for depth, key in enumerate(keys[:-1]):
        place = _step_into(place, key, keys[: depth + 1])
    if isinstance(place, list):
        place[_index(place, keys[-1], dotted)] = value
    else:
        place[keys[-1]] = value


def _step_into(place: Any, key: str, keys: list[str]) -> Any:
    """Return what lies below `key`, made ready to be changed."""
    field = ".".join(keys)
    at: Any = _index(place, key, field) if isinstance(place, list) else key
    inner = place[at] if isinstance(place, list) else place.get(at)
    if inner is None:
        inner = {}
    elif isinstance(inner, str) and field in _NAMED_PARTS:
        inner = {"name": inner}
    elif not isinstance(inner, dict | list):
        raise ExperimentError(f"is {inner!r} and has no parts", field=field, next_step=f"Set {field} itself.")
    place[at] = inner
    return inner


def _index(place: list[Any], key: str, field: str) -> int:
    if not key.isdecimal() or int(key) >= len(place):
        raise ExperimentError(
            f"{key!r} is no place in a list", field=field, allowed=f"a number from 0 to {len(place) - 1}"
        )
    return int(key)
