"""Reads the `config.json` of a language model, without importing transformers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from workbench.foundation.errors import DataError


def read_model_config(path: Path) -> dict[str, Any]:
    """Read the configuration of a language model, also of one that is part of a larger model.

    Args:
        path: The folder of a model of transformers, or its `config.json`.

    Raises:
        DataError: If there is none.
    """
    if path.is_dir():
        path = path / "config.json"
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(
            f"{path} cannot be read: {error}",
            next_step="Give the folder of a model of transformers, which has a config.json.",
        ) from error
    if not isinstance(config, dict):
        raise DataError(f"{path} contains no configuration of a model")
    # Models that also see images describe their language model in a part.
    part = config.get("text_config") or config.get("llm_config")
    return {**config, **part} if isinstance(part, dict) else config


def max_positions(config: Mapping[str, Any]) -> int | None:
    """Return how many tokens a model reads at once, or None if its configuration does not say.

    Args:
        config: The result of `read_model_config`.
    """
    names = ("max_position_embeddings", "n_positions", "n_ctx")
    return next((int(config[name]) for name in names if config.get(name)), None)
