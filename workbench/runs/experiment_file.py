"""Experiment files as they are run.

With settings changed by dotted path, and with their objects at hand.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from workbench.experiment import Experiment
from workbench.experiment.actions import suggest
from workbench.experiment.dotted import set_at
from workbench.experiment.yaml_file import read_yaml_file
from workbench.foundation.errors import ExperimentError
from workbench.foundation.files import write_atomically
from workbench.foundation.text_tables import PARQUET_ENDINGS, SIGNS

OBJECTS_FOLDER = "objects"


def read_experiment(path: str | Path, settings: Mapping[str, Any] | None = None) -> Experiment:
    """Read an experiment file, and its embedded objects from the folder `objects` next to it.

    Args:
        path: The file.
        settings: Values by dotted path, such as `{"training.epochs": 5, "objectives.0.target":
            0.98}`. They replace what the file says.

    Returns:
        The experiment. Without a name in the file it is named like the file.

    Raises:
        ExperimentError: If the file cannot be read, a path leads nowhere, or the result is not an
            experiment.
        RunError: If the content of an embedded object does not match the hash in its name.
    """
    path = Path(path)
    if path.is_file():
        _check_kind(path)
    document = read_yaml_file(path)
    document.setdefault("name", path.stem)
    experiment = _changed(document, settings)
    folder = path.parent / OBJECTS_FOLDER
    return experiment.with_payloads(_read_objects(folder, experiment.payload_hashes()))


def _check_kind(path: Path) -> None:
    """Raise an error for a file that is often given instead of an experiment file."""
    if path.suffix.lower() == ".py":
        raise ExperimentError(
            f"{path} is a Python file, not an experiment file",
            next_step=suggest("init", str(path), lead="To write an experiment file for it"),
        )
    if path.suffix.lower() in (*SIGNS, *PARQUET_ENDINGS):
        raise ExperimentError(
            f"{path} is a table, not an experiment file",
            next_step=suggest("automl", str(path), target="COLUMN", lead="To train models on it"),
        )


def change_experiment(experiment: Experiment, settings: Mapping[str, Any]) -> Experiment:
    """Return an experiment with settings changed by dotted path. Errors as in `read_experiment`.

    Args:
        experiment: The experiment.
        settings: As in `read_experiment`.
    """
    return _changed(experiment.model_dump(mode="json"), settings).with_payloads(
        experiment.payloads()
    )


def write_experiment(experiment: Experiment, path: str | Path) -> None:
    """Write an experiment file, and its embedded objects into the folder `objects` next to it.

    Args:
        experiment: What is written.
        path: The file. An existing one is replaced.

    Raises:
        OSError: If it cannot be written there.
    """
    path = Path(path)
    for sha256, payload in experiment.payloads().items():
        place = path.parent / OBJECTS_FOLDER / sha256
        place.parent.mkdir(exist_ok=True)
        write_atomically(place, payload)
    write_atomically(path, experiment.to_yaml())


def _changed(document: dict[str, Any], settings: Mapping[str, Any] | None) -> Experiment:
    for dotted, value in (settings or {}).items():
        set_at(document, dotted, value)
    return Experiment(**document)


def _read_objects(folder: Path, hashes: Sequence[str]) -> dict[str, bytes]:
    """Return the embedded objects. The folder may contain other files."""
    places = {name: folder / name for name in hashes if name == Path(name).name}
    return {name: place.read_bytes() for name, place in places.items() if place.is_file()}
