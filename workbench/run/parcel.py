"""What is sent along with a submitted run: the experiment, what was made in cells, and the person's code.

The code is the folder in which the run is submitted, as a sweep would find it there, and the modules that
the experiment names from elsewhere, with what they import, unless they are installed. What the workbench
itself wrote into the folder, and other experiments there, stay at home. The same experiment with the same
files is the same parcel. Bringing it to a cluster is left to `submitting`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from workbench.errors import DataError
from workbench.experiment import Experiment
from workbench.run.leavings import results_among
from workbench.run.own_code import files_of, modules_of, relative_data
from workbench.store.run_ids import words_of
from workbench.workers.code_archive import CodeArchive, pack

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
    for name, path in files_of(modules_of(experiment), [str(folder)]).items():
        if not path.is_relative_to(folder.absolute()):
            added[f"{MODULES_FOLDER}/{name}"] = path.read_bytes()
    also = _data_of(experiment, folder)
    archive = pack(folder, also=also, added=added, without=results_among)
    return Parcel(archive, f"{words_of(experiment.name)}-{archive.identity[:10]}")


def _data_of(experiment: Experiment, folder: Path) -> list[str]:
    """Return where the data lies, if it lies in the folder."""
    path = relative_data(experiment)
    if path is None:
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
