"""What the process that programs are forked from has loaded, see `warm_process`."""

import importlib

import workbench.data.preview
import workbench.models.layers
import workbench.performance.flops
import workbench.planning.settings
import workbench.probes.fake_steps
import workbench.training.assembly
import workbench.training.loading  # noqa: F401

_WITHOUT_VALUES = ("capacity", "memory_estimate", "memory_peaks", "model_summary")
"""Those that compute without values, for which torch imports its compiler. That takes as long as torch."""


def load_for(module: str) -> None:
    """Load what a program needs besides, once it is first wanted: what is forked later has it.

    Args:
        module: The module of the program.
    """
    if module.rpartition(".")[2] in _WITHOUT_VALUES:
        importlib.import_module("torch._dynamo")
