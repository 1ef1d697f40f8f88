"""What the process that programs are forked from has loaded, see `warm_process`."""

import importlib

_WITHOUT_VALUES = ("capacity", "memory_estimate", "memory_peaks", "model_summary")
"""Those that compute without values, for which torch imports its compiler.

That takes as long as torch.
"""


def load_for(module: str) -> None:
    """Load what a program needs besides, once it is first wanted: what is forked later has it.

    Args:
        module: The module of the program.
    """
    if module.rpartition(".")[2] in _WITHOUT_VALUES:
        importlib.import_module("torch._dynamo")
