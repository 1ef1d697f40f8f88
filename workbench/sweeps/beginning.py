"""What a training needs on its machine, before anything runs.

Weights, the library for adapters, a compiler.

Whether the weights fit the model is found where it is built.
"""

from __future__ import annotations

from pathlib import Path

from workbench.data.options import existing_path
from workbench.experiment import Experiment
from workbench.experiment.module_inspection import find_source
from workbench.experiment.pretrained import uses_adapter, weights_of
from workbench.foundation.errors import ExperimentError, install_command
from workbench.hardware.resources.compiler import check_compiler
from workbench.training.planning.plan_resolution import field_of


def check_beginning(experiment: Experiment) -> None:
    """Refuse weights that do not exist, adapters without peft, and compiling without a compiler.

    Raises:
        DataError: If there is no such path.
        ExperimentError: If peft is not installed, or no compiler.
    """
    searched = experiment.search.root.get("compile")
    wanted = [
        experiment.plan.decided.get("compile"),
        *((searched.values() or []) if searched else []),
    ]
    if "default" in wanted:
        check_compiler(field_of("plan", "compile", experiment.search.root))
    for path in weights_of(experiment):
        existing_path(Path(path), field=field_of("training", "weights", experiment.search.root))
    if uses_adapter(experiment) and find_source("peft") is None:
        raise ExperimentError(
            "LoRA needs the package peft, which is not installed",
            field=field_of("training", "adapter", experiment.search.root),
            next_step=f"Install it: {install_command('lora')}",
        )
