"""Weights for the world outside: a checkpoint's model as a safetensors file."""

from __future__ import annotations

import os
from pathlib import Path

from workbench.training.checkpoint import read


def write_weights(checkpoint: Path, to: Path) -> None:
    """Write the model of a checkpoint as safetensors.

    Args:
        checkpoint: A file that a training wrote, such as `best.pt`.
        to: The file to write; its folder is made if it is missing.

    Raises:
        RunError: If the checkpoint is missing or torn.
    """
    from safetensors.torch import save_file

    # Tied weights share memory, which the format refuses to store.
    tensors = {
        name: value.clone().contiguous() for name, value in read(checkpoint)["strategy"]["model"].items()
    }
    to.parent.mkdir(parents=True, exist_ok=True)
    temporary = to.with_name(f".{to.name}.tmp")
    save_file(tensors, temporary)
    os.replace(temporary, to)
