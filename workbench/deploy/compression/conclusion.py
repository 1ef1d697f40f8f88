"""The end of a compression.

Its verdict, and one look at the test samples for what is recommended.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from workbench.deploy.card import MODEL
from workbench.deploy.compression.compression import Compression
from workbench.deploy.compression.trained_base import measure
from workbench.foundation.events import Noted, RunStateChanged
from workbench.foundation.formatting import format_number
from workbench.store.database import Store
from workbench.store.database.run_files import trial_folder
from workbench.store.history import History, Trial
from workbench.store.history.compression import compressed


def conclude(store: Store, run_id: str, ending: RunStateChanged) -> Noted:
    """Return the verdict of a run, with the test result of the recommended trial if the data has a
    test part.

    Args:
        store: The store of the run.
        run_id: Its id; no trial is under way any more.
        ending: How the run is about to end.
    """
    experiment = store.experiment(run_id)
    history = History.of(experiment, (stored.event for stored in store.events(run_id)))
    found = compressed(history)
    if found.recommended is None:
        return Noted(level="info", message=found.words)
    assert experiment.train is not None
    tested = measure_on_test(store, run_id, experiment.train.load(), found.recommended)
    return Noted(level="info", message=f"{found.words}; {tested}")


def measure_on_test(store: Store, run_id: str, compression: Compression, trial: Trial) -> str:
    """Return what the model of a trial and the base measure on the test samples, in words.

    Args:
        store: The store of the run.
        run_id: Its id.
        compression: What its train function is.
        trial: The trial.
    """
    base = compression.base
    _, datasets = base.build()
    if datasets.test is None:
        return "the data has no test samples"
    left = store.artifacts_of(run_id).below(f"{trial_folder(trial.number)}/checkpoints")
    with tempfile.TemporaryDirectory() as folder, left.as_file(MODEL) as path:
        original = Path(folder, MODEL)
        original.write_bytes(base.onnx)
        values, before = (
            measure(each, base.experiment, datasets, part="test") for each in (path, original)
        )
    metric = base.metric.replace("val_", "test_", 1)
    return (
        f"on the test samples, which no decision has used, {metric} is"
        f" {format_number(values[metric])}, and {format_number(before[metric])} for the base"
    )
