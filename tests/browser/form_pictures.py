"""Pictures of the slow parts of a form, as a kernel sends them.

A small network on handwritten digits.
"""

from __future__ import annotations

import base64
import struct
import zlib
from typing import Any

_LAYERS = [
    ("blocks", "Sequential", 0, [32, 4, 4], 14144),
    ("blocks.0", "Conv2d", 1, [16, 8, 8], 160),
    ("blocks.1", "BatchNorm2d", 1, [16, 8, 8], 32),
    ("blocks.2", "ReLU", 1, [16, 8, 8], 0),
    ("blocks.3", "Conv2d", 1, [32, 8, 8], 4640),
    ("blocks.4", "MaxPool2d", 1, [32, 4, 4], 0),
    ("blocks.5", "Conv2d", 1, [32, 4, 4], 9248),
    ("head", "Linear", 0, [10], 5130),
]


def png(seed: int, size: int = 8) -> str:
    """A picture of grey dots as a data URL."""
    rows = b"".join(
        b"\0" + bytes((seed * 37 + 23 * x * (y + seed % 5)) % 256 for x in range(size))
        for y in range(size)
    )
    chunks = [
        (b"IHDR", struct.pack(">IIBBBBB", size, size, 8, 0, 0, 0, 0)),
        (b"IDAT", zlib.compress(rows)),
        (b"IEND", b""),
    ]
    data = b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
        for name, body in chunks
    )
    return "data:image/png;base64," + base64.b64encode(data).decode()


MODEL: dict[str, Any] = {
    "layers": [
        {"name": name, "kind": kind, "depth": depth, "output_shape": shape, "num_parameters": count}
        for name, kind, depth, shape, count in _LAYERS
    ],
    "num_parameters": 19274,
    "flops_per_sample": 3_120_000,
    "memory": {
        "micro_batch": 64,
        "bytes": 21_500_000,
        "parts": {
            "parameters": 77_096,
            "optimizer": 154_192,
            "activations": 20_400_000,
            "gradients": 77_096,
        },
        "fits": True,
        "largest_micro_batch": 65536,
        "words": "fits into the 16 GiB that a worker has here; estimated from shapes alone",
    },
    "problems": [],
}

DATA: dict[str, Any] = {
    "name": "digits",
    "task": "classification",
    "sizes": {"train": 1437, "validation": 180, "test": 180},
    "input_shape": [1, 8, 8],
    "class_names": [str(digit) for digit in range(10)],
    "class_counts": [142, 146, 142, 146, 145, 145, 145, 143, 139, 144],
    "samples": [{"kind": "image", "png": png(seed), "target": seed % 10} for seed in range(12)],
    "load_samples_per_s": 412_000.0,
    "needed_samples_per_s": 9_300.0,
    "warnings": [],
}

ROWS: dict[str, Any] = {
    **DATA,
    "task": "regression",
    "input_shape": [3],
    "class_names": [],
    "class_counts": None,
    "target_histogram": {"edges": [0.0, 2.5, 5.0, 7.5], "counts": [120, 310, 40]},
    "samples": [
        {
            "kind": "row",
            "cells": {"age": 0.31 * row, "rooms": row, "town": "Ulm"},
            "target": 2.5 * row,
        }
        for row in range(4)
    ],
    "load_samples_per_s": 2_000.0,
    "warnings": ["The target of 3 rows is missing; they are left out."],
}

TEXT: dict[str, Any] = {
    **DATA,
    "task": "next_token",
    "input_shape": [64],
    "class_names": None,
    "class_counts": None,
    "samples": [
        {"kind": "text", "text": "def parse(line):\n    return line.split()", "target": None}
    ],
}

CARD: dict[str, Any] = {
    "goal": "the least time to val_accuracy 0.98",
    "headline": [
        {"name": "global batch", "text": "128 samples = 64 x 1 accumulated x 2 workers"},
        {"name": "strategy", "text": "ddp"},
        {"name": "lr", "text": "0.012"},
    ],
    "gain": {"factor": 1.6, "low": 1.2, "high": 2.1, "words": "as fast to the target"},
    "predicted": [{"name": "time to target", "text": "41 s (30 s to 55 s)"}],
    "why": ["both workers are free, and the batch is below the noise scale"],
    "others": [
        {
            "name": "runner-up",
            "plan": "global batch 64 on one worker",
            "compared": "1.27 times the time",
        },
    ],
    "measured": ["12 plans in 40 s"],
    "exchanges": ["bf16, approximate: 9 ms a step"],
    "rejected": [],
    "would_change": ["more than 4 workers"],
    "settings": ["training:", "  global_batch: 128"],
}

_SPEEDS = [
    {"x": [1, 2, 4], "y": [9300, 16900, 28100], "type": "scatter", "name": "samples a second"}
]

ADVICE: dict[str, Any] = {
    "card": CARD,
    "figures": [
        {
            "name": "speeds",
            "title": "Samples a second by workers",
            "figure": {"data": _SPEEDS, "layout": {}},
        }
    ],
    "apply": [
        {
            "path": "training.global_batch",
            "label": "Global batch",
            "now": "auto",
            "value": 128,
            "reason": "noise of gradients at 64: 310 samples",
        },
        {
            "path": "training.lr",
            "label": "Learning rate",
            "now": "searched",
            "value": 0.012,
            "reason": None,
            "removals": ["search.lr"],
        },
        {
            "path": "plan.workers",
            "label": "Workers",
            "now": "auto",
            "value": 2,
            "reason": "both cores",
        },
    ],
    "controls": [
        {
            "path": "workers",
            "label": "Workers",
            "kind": "choice",
            "choices": ["auto", 1, 2, 4, 8],
            "default": "auto",
            "value": 2,
        },
        {
            "path": "precision",
            "label": "Precision",
            "kind": "choice",
            "choices": ["auto", "fp32", "bf16"],
            "default": "auto",
            "value": "fp32",
        },
    ],
}

NO_ADVICE: dict[str, Any] = {"card": None, "figures": [], "apply": [], "controls": []}

WHAT_IF: dict[str, Any] = {
    "samples_per_s": {"value": 16_900.0, "low": 15_100.0, "high": 18_200.0},
    "step_time_s": {"value": 0.0076, "low": 0.007, "high": 0.0085},
    "memory_bytes": {"value": 21_500_000, "low": 20_000_000, "high": 24_000_000},
    "fits": True,
    "time_to_target_s": {"value": None, "message": "nothing above 4 workers was measured"},
    "message": None,
}

PREFLIGHT: dict[str, Any] = {
    "lines": [
        "2 workers of 1 CPU core each; 1 trial at a time",
        "24 trials or 2 min 30 s, whichever is first",
    ],
    "notes": [
        "budget.trials: the population needs 32 trials, one for each part of a member's training,"
        " but budget.trials is 24. Set budget.trials to 32, or remove it"
    ],
    "problems": [],
    "forecast": [
        "about 2 min 30 s; the time ends it after some 20 trials",
        "checkpoints of up to 3 MiB",
    ],
    "duration": "at most 2 min 30 s",
}


def _row(trial: int, accuracy: float, lr: float, width: int) -> dict[str, Any]:
    values = {"val_accuracy": accuracy, "val_loss": round(1.3 - accuracy, 3)}
    params = {"lr": lr, "width": width}
    return {
        "trial": trial,
        "state": "complete",
        "values": values,
        "params": params,
        "duration_s": 6.4,
    }


RESULT: dict[str, Any] = {
    "run_id": "swift-otter-41",
    "state": "complete",
    "metric": "val_accuracy",
    "best": _row(7, 0.9861, 0.0123, 32),
    "default_comparison": {
        "words": "nobody tried the default configuration: what it reaches is not known",
        "default": None,
        "enqueue": {"lr": 0.001, "width": 16},
        "try_it": {
            "command": "workbench extend swift-otter-41 --more-trials 1 --param lr=0.001",
            "python": "wb.attach('swift-otter-41').extend(trials=1, enqueue={'lr': 0.001})",
        },
    },
    "leaderboard": [
        _row(7, 0.9861, 0.0123, 32),
        _row(3, 0.9806, 0.031, 32),
        _row(11, 0.9722, 0.0042, 16),
    ],
    "commands": [
        {
            "label": "Export",
            "command": "workbench export swift-otter-41 --to best",
            "python": 'wb.attach("swift-otter-41").export("best")',
        },
    ],
}
