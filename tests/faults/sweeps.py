"""The sweeps that faults happen to: short, real, and the same every time.

Where trials run side by side, their order of ending is chance: these use samplers whose n-th
proposal depends on the seed and n alone. The sampler that learns runs one trial after another.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

NUM_CPUS = 2
SHORT = "function, short"
_FUNCTION = {
    "train": {"name": "trained_function:descend", "steps": 8, "pause_s": 0.1},
    "objectives": [{"metric": "loss", "goal": "minimize"}],
    "search": {"x": {"low": 0.0, "high": 1.0}, "y": {"low": 1, "high": 9}},
}
_MODEL = {
    "model": "mlp",
    "data": "digits",
    "objectives": [{"metric": "val_loss", "goal": "minimize"}],
    "search": {
        "lr": {"low": 1e-3, "high": 0.1, "log": True},
        "hidden_width": {"choices": [16, 32, 64]},
    },
    "training": {"epochs": 24, "global_batch": 64, "clip_norm": 5.0},
}
_SWEEPS: dict[str, dict[str, Any]] = {
    "model, random": _MODEL | {"sampler": "random", "budget": {"trials": 6}},
    "model, tpe": (
        _MODEL
        | {
            "sampler": {"name": "tpe", "options": {"n_startup_trials": 2}},
            "budget": {"trials": 5},
            "early_stop": {"pruner": "median", "startup_trials": 2, "grace": 8},
        }
    ),
    "function, qmc": _FUNCTION | {"sampler": "qmc", "budget": {"trials": 8}},
    "function, grid": (
        _FUNCTION
        | {
            "sampler": "grid",
            "search": {"x": {"choices": [0.1, 0.4, 0.7]}, "y": {"choices": [1, 5]}},
        }
    ),
    SHORT: _FUNCTION | {"sampler": "random", "budget": {"trials": 4}},
}
LEARNS = frozenset({"model, tpe"})


def names(num_workers: int) -> list[str]:
    """Names of the campaign's sweeps whose trials can have that many workers.

    A function has one.
    """
    return [
        name for name in _SWEEPS if name != SHORT and (num_workers == 1 or "model" in _SWEEPS[name])
    ]


def num_trials(name: str) -> int:
    """How many trials a sweep has: its budget, or all points of its grid."""
    fields = _SWEEPS[name]
    if "budget" in fields:
        return fields["budget"]["trials"]
    return math.prod(len(domain["choices"]) for domain in fields["search"].values())


def make_fields(name: str, num_workers: int, more_resources: Mapping[str, Any]) -> dict[str, Any]:
    """The experiment of a sweep, as a mapping."""
    fields = _SWEEPS[name]
    concurrency = 1 if name in LEARNS else NUM_CPUS // num_workers
    plan = {"plan": {"workers": num_workers}} if num_workers > 1 else {}
    # A fault may cost the same trial more than one worker, and none of these is to be given up.
    resources = {"concurrency": concurrency, "max_retries": 5, **more_resources}
    budget = {"time": "9m", **fields.get("budget", {})}  # the longest takes one
    return {
        "name": name.replace(", ", "-"),
        "seed": 11,
        "resources": resources,
        **plan,
        **fields,
        "budget": budget,
    }
