"""Run `Tuner.fit` for a driver, without its output.

Tune's own folders are temporary: loggers, experiment snapshots and restore are off; only the store
counts.
"""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
import threading
from pathlib import Path
from typing import Any

from ray._private import worker as ray_worker

from workbench.sweeps import coordinator_threads
from workbench.sweeps.tune_adapters import Conductor, NoProgress, StudyScheduler, StudySearcher
from workbench.sweeps.tune_names import tune

NEVER_S = "1000000000"
UNLIMITED = "1000000"


_TRAINABLE = "workbench"
"""What Tune knows a coordinator as; no process has one."""
_REGISTERING = threading.Lock()
"""A process may drive several runs, each in a thread, and Tune's registry cannot take that."""


def fit(conductor: Conductor, name: str) -> None:
    """Let Tune run trials until there are none left.

    Args:
        conductor: Decides which trials to start and when to stop them.
        name: Name of the run in Tune's own folders.
    """
    # The conductor decides how many trials may start, and must be called also while some of them
    # wait.
    os.environ["TUNE_MAX_PENDING_TRIALS_PG"] = UNLIMITED
    os.environ["TUNE_GLOBAL_CHECKPOINT_S"] = NEVER_S
    # With a handler of its own, Tune takes an interruption for the end of a run.
    os.environ["TUNE_DISABLE_SIGINT_HANDLER"] = "1"
    coordinator_threads.install()
    # It warns once per trial that the files of Tune's loggers are missing.
    logging.getLogger("ray.tune.analysis").setLevel(logging.ERROR)
    # It warns where a result takes long: the proposal of the next trial is a part of that.
    logging.getLogger("ray.tune.utils.util").setLevel(logging.ERROR)
    prefix, session_folder = _clear_scratch(name)
    with _REGISTERING:
        tune.register_trainable(_TRAINABLE, tune.Trainable)
    searcher = StudySearcher(conductor)
    with tempfile.TemporaryDirectory(prefix=prefix, dir=session_folder) as scratch:
        tuner = tune.Tuner(
            _TRAINABLE,
            tune_config=tune.TuneConfig(
                search_alg=searcher,
                scheduler=StudyScheduler(conductor, searcher),
                num_samples=-1,
                reuse_actors=True,
                trial_dirname_creator=lambda trial: trial.trial_id,
            ),
            run_config=tune.RunConfig(
                name=name,
                storage_path=scratch,
                verbose=0,
                progress_reporter=tune.CLIReporter(),
                callbacks=[NoProgress()],
                checkpoint_config=tune.CheckpointConfig(
                    checkpoint_frequency=0, checkpoint_at_end=False
                ),
            ),
        )
        try:
            tuner.fit()
        finally:
            coordinator_threads.end_all()


def _clear_scratch(name: str) -> tuple[str, str]:
    """Remove what a killed driver of the run left behind.

    Return prefix and parent of the next folder.

    The parent is Ray's own folder, so that what nobody removes disappears with the cluster.
    """
    session: Any = ray_worker._global_node
    folder, prefix = session.get_session_dir_path(), f"workbench-tune-{name}-"
    for left_over in Path(folder).glob(f"{prefix}*"):
        shutil.rmtree(left_over, ignore_errors=True)
    return prefix, folder
