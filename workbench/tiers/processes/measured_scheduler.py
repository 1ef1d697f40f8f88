"""One scheduler measured with the processes of all tiers, beside what is expected of it.

The processes are started by `measured_run`; what is expected follows from `prediction`.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from workbench.deploy.card import read_card
from workbench.tiers.placement.assembly import stages_of
from workbench.tiers.placement.cut_bundle import write_cut
from workbench.tiers.placement.labels import Groups, groups_of
from workbench.tiers.placement.policies import Mapping
from workbench.tiers.placement.system import System
from workbench.tiers.placement.tiers_file import TiersFile
from workbench.tiers.processes.measured_run import Measured, measure_tiers
from workbench.tiers.processes.prediction import Expected, expected_of, framings_of
from workbench.tiers.processes.requesting import OnStatus


def measure_scheduler(
    scheduler: str,
    tiers: TiersFile,
    folder: Path,
    bundle: Path,
    system: System,
    samples: tuple[np.ndarray, np.ndarray],
    moments_s: Sequence[float],
    *,
    on_status: OnStatus | None = None,
) -> tuple[Measured, Expected, System]:
    """Return what was measured with a scheduler, what was expected of it, and the system that ran.

    A model that is cut without exits runs as the stages that its parts are.

    Args:
        scheduler: The scheduler; `cut` where the system has one.
        tiers: The file of tiers.
        folder: The folder that its paths are relative to.
        bundle: The bundle whose stages are spread.
        system: What runs, as of `system_here`, with groups of classes if the file has any.
        samples: Inputs of the validation split, and the right classes.
        moments_s: When requests are sent, in seconds.
        on_status: As of `measure_tiers`.

    Raises:
        ExperimentError: If the file cannot be carried out.
        RunError: If a process does not start, nothing is answered, or `on_status` has ended it.
    """
    groups = None
    if system.group_threshold is not None:
        classes = groups_of(tiers.place.labels, read_card(bundle).outputs[0].classes)
        groups = Groups(tuple(map(tuple, classes)), system.group_threshold)
    with tempfile.TemporaryDirectory() as parts:
        runs_as = scheduler
        if scheduler == "cut":
            assert system.cut is not None
            write_cut(bundle, system.cut.is_there, system.evidence, Path(parts))
            bundle, (system, runs_as) = Path(parts), system.as_cut()
        measured = measure_tiers(
            tiers,
            folder,
            bundle,
            *samples,
            scheduler=runs_as,
            moments_s=moments_s,
            on_status=on_status,
            charge_s=Mapping().charge_s(system),
            groups=groups,
        )
        framings_s = framings_of(stages_of(tiers, bundle), tiers.privacy)
        expected = expected_of(
            system, measured.probes, framings_s, bytes_per_sample=measured.bytes_per_sample
        )[runs_as]
    return replace(measured, scheduler=scheduler), expected, system
