"""The files of tiers that commands take, with the model that they name exported for the time of a
command.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from workbench.cli.options import attach
from workbench.cli.output import print_note

if TYPE_CHECKING:
    from workbench.tiers.placement.tiers_file import TiersFile

NEEDS_MODEL = (
    "place.from in FILE names the model, a bundle or a trial such as last/best, which must exist."
    " docs/guides/tiers.yaml needs the bundle docs/guides/digits-exits; the guide on tiers trains"
    " and exports one."
)


@contextlib.contextmanager
def placing(file: Path) -> Iterator[TiersFile]:
    """Read a file of tiers whose `place.from` is then a bundle with stages, for the time of the
    context.
    """
    from workbench.tiers.placement.tiers_file import read_tiers
    from workbench.tiers.processes.placing import placed

    with tempfile.TemporaryDirectory(prefix="workbench-place-") as temporary:
        tiers = read_tiers(file)
        if (
            tiers.place.source is not None
            and tiers.place.source not in tiers.models_of_ends().values()
        ):
            print_note("place.from is not used: place.models names the models of both tiers")
        yield placed(tiers, file.parent, Path(temporary), export=_export)


def _export(name: str, folder: Path) -> None:
    run_id, _, trial = name.rpartition("/")
    attach(run_id).export(folder, trial=int(trial) if trial.isdigit() else None, format="onnx")
