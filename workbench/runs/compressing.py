"""Start a run that makes a trained model smaller and faster.

A compression of one of a run's trials.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.cluster.remote.code_dependencies import with_paths_in
from workbench.experiment.actions import suggest
from workbench.experiment.automl import is_automl
from workbench.foundation.errors import RunError
from workbench.foundation.formatting import duration_argument_s
from workbench.runs.bundles.bundle import choose_trial, fetched_checkpoint, narrow

if TYPE_CHECKING:
    from workbench.runs.stored_run import StoredRun

_NAME_LENGTH = 60


def create_compression(
    run: StoredRun,
    *,
    trial: int | None = None,
    objective: str | None = None,
    limits: Mapping[str, Any] | None = None,
    trials: int | None = None,
    time: float | str | None = None,
    threads: int = 1,
    device: str = "here",
    python: str = "python3",
    launcher: str = "ray",
    address: str | None = None,
) -> str:
    """Store a run that compresses a trial, without starting its driver.

    Arguments as in `Run.compress`.

    Returns:
        The id of the new run.
    """
    from workbench.deploy.compression.compression import Compression
    from workbench.deploy.compression.search import experiment_for
    from workbench.deploy.compression.trained_base import make_base
    from workbench.runs.creation import create_run
    from workbench.sweeps.code_versions import read_origin
    from workbench.tiers.placement.machine_profile import find_device
    from workbench.training.trained_model import write_weights

    chosen = choose_trial(run, run.history, trial)
    if not run.experiment.trains_model:
        raise RunError(
            f"run {run.run_id} calls a train function or a program, so only your code knows its"
            " model",
            next_step="Compress a trial of a model that the workbench trained.",
        )
    if is_automl(run.experiment):
        raise RunError(
            "a trial of an AutoML run is the model of one fold, whose inputs are encoded columns",
            next_step=suggest("export", run.run_id, lead="To export the result", to="best"),
        )
    if chosen.best_checkpoint is None or chosen.checkpoints_deleted:
        raise RunError(
            f"the checkpoints of trial {chosen.number} are not kept, so there is no model to"
            " compress",
            next_step=suggest("compress", run.run_id, lead="To compress the best trial"),
        )
    origin = read_origin(run.store.artifacts_of(run.run_id))
    folder_of_run = Path(origin.on_this_machine().directory)
    experiment = with_paths_in(narrow(run.experiment, chosen), folder_of_run)
    with tempfile.TemporaryDirectory() as folder:
        weights = Path(folder, "weights.safetensors")
        with fetched_checkpoint(run, chosen.best_checkpoint) as checkpoint:
            write_weights(checkpoint, weights)
        base = make_base(
            experiment,
            chosen.params,
            weights,
            run_id=run.run_id,
            trial=chosen.number,
            metric=objective,
        )
    device = find_device(device)
    Compression(base, threads, device=device, python=python).check_device()
    if time is not None:
        time = duration_argument_s(time, field="time")
    searched, first = experiment_for(
        base,
        name=f"{run.name[:_NAME_LENGTH]}-compressed",
        limits=limits,
        trials=trials,
        threads=threads,
        time_s=time,
        seed=experiment.seed,
        device=device,
        python=python,
    )
    # Its workers need the code of the run that trained the model, wherever this process was
    # started.
    created = create_run(
        searched, store=run.store, launcher=launcher, address=address, like=run.run_id
    )
    for params in first[: searched.max_configurations()]:
        run.store.command(created, "enqueue", {"params": params})
    return created
