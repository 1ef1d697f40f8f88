"""What drivers use of Ray Tune, loaded without Ray Data.

That takes half a second, and no run uses it.
"""

import contextlib

from workbench.cluster.head.ray_startup.sitecustomize import without_ray_data

with without_ray_data():
    from ray import tune
    from ray.air.execution._internal.tracked_actor import TrackedActor
    from ray.tune.execution import experiment_state, tune_controller
    from ray.tune.progress_reporter import TrialProgressCallback
    from ray.tune.schedulers import FIFOScheduler, TrialScheduler
    from ray.tune.search import Searcher

# Tune would load it where it saves its state, to look for data sets.
experiment_state.out_of_band_serialize_dataset = contextlib.nullcontext  # pyright: ignore[reportPrivateImportUsage]

__all__ = [
    "FIFOScheduler",
    "Searcher",
    "TrackedActor",
    "TrialProgressCallback",
    "TrialScheduler",
    "tune",
    "tune_controller",
]
