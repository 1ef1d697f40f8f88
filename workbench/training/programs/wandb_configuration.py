"""The configuration of a trial as wandb reads it, so that `wandb.config` holds it as in a sweep of
W&B.

wandb takes it from the file that the variable WANDB_SWEEP_PARAM_PATH names, and reads that as YAML
1.1.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from pydantic import JsonValue


def wandb_configuration(params: Mapping[str, JsonValue]) -> str:
    """Return the content of the file.

    Args:
        params: Values by name; nested parameters as mappings.

    Example:
        >>> from workbench.training.programs.wandb_configuration import wandb_configuration
        >>> print(wandb_configuration({"lr": 1e-05, "optimizer": {"name": "no"}}), end="")
        wandb_version: 1
        "lr": {"value": 1.0e-05}
        "optimizer": {"value": {"name": "no"}}
    """
    lines = [
        f'{json.dumps(name)}: {{"value": {_written(value)}}}' for name, value in params.items()
    ]
    return "\n".join(["wandb_version: 1", *lines, ""])


def _written(value: JsonValue) -> str:
    """Return a value as JSON that is also YAML 1.1, where a number with an exponent needs a
    point.
    """
    if isinstance(value, dict):
        return f"{{{', '.join(f'{json.dumps(name)}: {_written(part)}' for name, part in value.items())}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(_written, value))}]"
    text = json.dumps(value)
    return (
        text.replace("e", ".0e")
        if isinstance(value, float) and "e" in text and "." not in text
        else text
    )
