"""The files that are sent with a submitted run: the experiment, embedded objects, and the user's code.

The code is the folder in which the run is submitted, and the modules outside it that the experiment names,
with their imports, unless they are installed. Files that the workbench wrote into the folder, and other
experiments, are left out. The same experiment with the same files makes the same package. Sending it is left
to `runs`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from workbench.errors import DataError
from workbench.experiment import Experiment
from workbench.remote.code_archive import CodeArchive, pack
from workbench.remote.code_dependencies import files_of, modules_of, relative_data, relative_weights
from workbench.remote.generated_files import results_among
from workbench.store.run_ids import words_of

FOLDER = ".workbench"
EXPERIMENT_NAME = f"{FOLDER}/experiment.yaml"
MODULES_FOLDER = f"{FOLDER}/modules"


@dataclass(frozen=True)
class JobPackage:
    """All that a cluster needs to run an experiment."""

    archive: CodeArchive
    run_id: str
    """Made of the experiment's name and the content, so that sending the same again is the same run."""


def make_package(experiment: Experiment, folder: Path) -> JobPackage:
    """Pack an experiment with the code of a folder.

    Args:
        experiment: What to tune, with its embedded objects available.
        folder: The folder to which paths of data and names of modules are relative.

    Raises:
        DataError: If the data is not where the experiment names it.
        RunError: If the package is too large, or an embedded object is not available.
    """
    added = {EXPERIMENT_NAME: experiment.to_yaml().encode()}
    added |= {f"{FOLDER}/objects/{sha256}": content for sha256, content in experiment.payloads().items()}
    for name, path in files_of(modules_of(experiment), [str(folder)]).items():
        if not path.is_relative_to(folder.absolute()):
            added[f"{MODULES_FOLDER}/{name}"] = path.read_bytes()
    path = relative_data(experiment)
    also = [] if path is None else [_within(path, folder, "data.path")]
    also += [_within(path, folder, "training.weights") for path in relative_weights(experiment)]
    archive = pack(folder, also=also, added=added, without=results_among)
    return JobPackage(archive, f"{words_of(experiment.name)}-{archive.identity[:10]}")


def _within(path: str, folder: Path, field: str) -> str:
    """Return a relative path, if it lies in the folder; any other is a path of the cluster."""
    place = folder / path
    if not place.exists():
        raise DataError(
            f"there is no {path} in {folder}", field=field,
            next_step="Submit from the folder that contains it, or give a path that exists on the cluster.",
        )  # fmt: skip
    if not place.resolve().is_relative_to(folder.resolve()):
        raise DataError(
            f"{path} lies outside {folder}, and only that folder is sent", field=field,
            next_step="Submit from a folder that contains it, or give a path that exists on the cluster.",
        )  # fmt: skip
    return place.resolve().relative_to(folder.resolve()).as_posix()
