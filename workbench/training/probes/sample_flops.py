"""Operations that a model needs for one sample, counted on the CPU.

Once for all plans of a configuration.

What plans make of it is left to `plan_probe`.
"""

from __future__ import annotations

import gc
import json
import traceback

import numpy as np
import torch

from workbench.experiment.plan import SIZES
from workbench.models.calls import num_samples
from workbench.training.assembly import build_trial_model
from workbench.training.loading import load_trial_data
from workbench.training.loss_and_metrics import count_step_flops
from workbench.training.planning.settings import TrialSettings
from workbench.training.source import Source
from workbench.training.task import TrialTask

_COUNTED_SAMPLES = 2
"""Batch normalisation does not train on a single one."""
_UNRELATED = frozenset({"lr", "global_batch", *SIZES})
"""The parameters that change nothing of what a sample needs."""
_counted: dict[str, float | None] = {}
"""What this process has counted.

Counting builds the model anew, which takes long where it is large.
"""


def flops_of_a_sample(task: TrialTask, settings: TrialSettings) -> float | None:
    """Return the operations of forward and backward for one sample, as counted once in this
    process.

    Args:
        task: The experiment and the configuration.
        settings: The settings that follow from them.

    Returns:
        Operations, or None where the model does not run on the CPU.
    """
    params = {name: value for name, value in task.params.items() if name not in _UNRELATED}
    key = json.dumps([task.experiment_json, params], sort_keys=True)
    if key not in _counted:
        _counted.clear()
        _counted[key] = None
        try:
            _counted[key] = _count(task, settings)
        except Exception as error:  # the model's own code; a measurement is useful without it
            traceback.clear_frames(error.__traceback__)
        gc.collect()  # parts of the model refer to each other
    return _counted[key]


def _count(task: TrialTask, settings: TrialSettings) -> float:
    experiment = task.experiment
    datasets = load_trial_data(task.run_id, experiment)
    model = build_trial_model(experiment, task.params, settings, datasets, pretrained=False)
    source = Source(datasets.train, torch.device("cpu"))
    inputs, targets = source.fetch(np.arange(min(_COUNTED_SAMPLES, len(source))))
    return count_step_flops(experiment, datasets, model, inputs, targets) / num_samples(inputs)
