"""What is sent along with a submitted run: the experiment, what was made in cells, and the person's code.

The code is the folder in which the run is submitted, as a sweep would find it there, and the modules that
the experiment names from elsewhere, unless they are installed. The same experiment with the same files is the
same parcel. Bringing it to a cluster is left to `submitting`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from workbench.errors import DataError
from workbench.experiment import Component, Experiment
from workbench.store.run_ids import words_of
from workbench.workers.code_archive import CodeArchive, pack
from workbench.workers.origin import is_installed

FOLDER = ".workbench"
EXPERIMENT_NAME = f"{FOLDER}/experiment.yaml"
MODULES_FOLDER = f"{FOLDER}/modules"


@dataclass(frozen=True)
class Parcel:
    """All that a cluster needs to carry an experiment out."""

    archive: CodeArchive
    run_id: str
    """Made of the name of the experiment and all that is in the parcel: sending it again is the same run."""


def make_parcel(experiment: Experiment, folder: Path) -> Parcel:
    """Pack an experiment with the code that lies in a folder.

    Args:
        experiment: What to tune, with its embedded objects at hand.
        folder: Where paths of data and the names of modules are meant from.

    Raises:
        DataError: If data is not where the experiment says.
        RunError: If that is more than can be sent, or an embedded object is not at hand.
    """
    added = {EXPERIMENT_NAME: experiment.to_yaml().encode()}
    added |= {f"{FOLDER}/objects/{sha256}": content for sha256, content in experiment.payloads().items()}
    for component in components_of(experiment):
        if component.is_reference and component.payload_hash is None:
            added |= dict(_module_from_elsewhere(component.name.partition(":")[0], folder))
    archive = pack(folder, also=_data_of(experiment, folder), added=added)
    return Parcel(archive, f"{words_of(experiment.name)}-{archive.identity[:10]}")


def components_of(experiment: Experiment) -> list[Component]:
    """Return everything that an experiment names."""
    found = [experiment.model, experiment.data, experiment.train, experiment.loss, *experiment.metrics]
    return [item for item in found if item is not None]


def _data_of(experiment: Experiment, folder: Path) -> list[str]:
    """Return where the data lies, if it lies in the folder."""
    path = experiment.data.options.get("path") if experiment.data else None
    if not isinstance(path, str) or "://" in path or path.startswith("~") or Path(path).is_absolute():
        return []  # where that is on the cluster, only the cluster knows
    place = folder / path
    if not place.exists():
        raise DataError(
            f"there is no {path} in {folder}", field="data.path",
            next_step="Submit from the folder that holds it, or name a path that the cluster has.",
        )  # fmt: skip
    if not place.resolve().is_relative_to(folder.resolve()):
        raise DataError(
            f"{path} lies outside of {folder}, which is what is sent", field="data.path",
            next_step="Submit from a folder that holds it, or name a path that the cluster has.",
        )  # fmt: skip
    return [place.resolve().relative_to(folder.resolve()).as_posix()]


def _module_from_elsewhere(module: str, folder: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the files of a module that is neither in the folder nor installed: all of its package."""
    top = module.partition(".")[0]
    if top == "workbench" or (folder / top).is_dir() or (folder / f"{top}.py").is_file():
        return
    for entry in sys.path:
        place = Path(entry or ".").resolve()
        if is_installed(str(place)):
            continue
        if (place / f"{top}.py").is_file():
            yield f"{MODULES_FOLDER}/{top}.py", (place / f"{top}.py").read_bytes()
            return
        if (place / top).is_dir():
            for path in sorted((place / top).rglob("*")):
                if path.is_file() and "__pycache__" not in path.parts:
                    yield f"{MODULES_FOLDER}/{path.relative_to(place).as_posix()}", path.read_bytes()
            return
