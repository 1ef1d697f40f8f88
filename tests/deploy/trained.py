"""Models as a training leaves them, on small data, with the folder of their export."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import nn

from workbench.data import Datasets, load
from workbench.deploy.card import Card
from workbench.deploy.exported_bundle import Exported, add_trial
from workbench.experiment import Experiment
from workbench.models.adapters import build_model
from workbench.models.configurations import FittedConfiguration, configure
from workbench.models.exits import EarlyExits


def write_table(path: Path, num_rows: int = 300) -> pd.DataFrame:
    """Write a table with a column of every kind, each with gaps, and return it."""
    random = np.random.default_rng(0)
    times = pd.date_range("2024-01-01", periods=num_rows, freq="31h")
    frame = pd.DataFrame(
        {
            "colour": random.choice(["red", "green", "blue", None], num_rows),
            "size": np.where(random.random(num_rows) < 0.1, np.nan, random.normal(10, 3, num_rows)),
            "day": times.strftime("%d/%m/%Y"),
            "at": times.astype(str),
            "town": random.choice([f"town {number}" for number in range(60)], num_rows),
            "new": random.choice([True, False], num_rows),
            "share": [f"{row % 100}.5%" for row in range(num_rows)],
        }
    )
    frame["price"] = frame["size"].fillna(10) * 3 + frame["new"] * 5 + random.normal(0, 1, num_rows)
    frame.to_csv(path, index=False)
    return frame


def build_own(config: dict[str, Any]) -> nn.Module:
    """A model of a user's own: what it does with an image is not one of the zoo's ways."""
    return nn.Sequential(nn.Unfold(2, stride=2), nn.Flatten(), nn.Linear(64, 10))


class OwnBlocks(nn.Module):
    """A model of a user's own that computes a list of blocks, one after another."""

    def __init__(self) -> None:
        super().__init__()
        self.begin = nn.Linear(64, 32)
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(32, 32), nn.ReLU()) for _ in range(4))
        self.end = nn.Linear(32, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        values = self.begin(images.flatten(1)).relu()
        for block in self.blocks:
            values = values + block(values)
        return self.end(values)


def build_own_with_exit(config: dict[str, Any]) -> nn.Module:
    """That model with an exit after two of its blocks."""
    return EarlyExits(OwnBlocks(), input_shape=(1, 8, 8), num_outputs=10, num_exits=1, weight=0.3)


def write_texts(path: Path, num_texts: int = 120) -> None:
    """Write a table of texts of three classes."""
    random = np.random.default_rng(0)
    classes = [["a", "red", "apple"], ["some", "green", "grass"], ["deep", "blue", "sea"]]
    labels = random.integers(3, size=num_texts)
    texts = [
        " ".join(random.choice(classes[label], size=random.integers(1, 7))) for label in labels
    ]
    pd.DataFrame({"text": texts, "label": labels.astype(str)}).to_csv(path, index=False)


def experiment(model: str, data: Any) -> Experiment:
    return Experiment(
        model=model, data=data, objectives=[{"metric": "val_loss", "goal": "minimize"}]
    )


def trained(model: str, data: Datasets, **values: Any) -> nn.Module:
    """Return a model with weights; trees are grown, others have those that they begin with."""
    torch.manual_seed(0)
    configuration = None if ":" in model else configure(model, values)
    if not isinstance(configuration, FittedConfiguration):
        return build_model(
            model,
            values,
            input_shape=data.input_shape,
            num_outputs=data.num_outputs,
            vocabulary_size=data.vocabulary_size,
            target_shape=data.target_shape,
        ).eval()
    inputs, targets = data.train.batch(np.arange(len(data.train)))
    num_classes = data.num_outputs if data.task == "classification" else None
    *_, grown = configuration.grow(
        inputs.reshape(len(inputs), -1), targets, num_classes=num_classes, num_rounds=1, seed=0
    )
    made = configuration.build(
        input_shape=data.input_shape, num_outputs=data.num_outputs, vocabulary_size=None
    )
    made.load_state_dict(grown.state_dict())
    return made


def exported(
    folder: Path,
    model: str,
    data: Any,
    *,
    change: Callable[[nn.Module], None] | None = None,
    format: str = "onnx",
    **values: Any,
) -> tuple[nn.Module, Datasets, Card]:
    """Train a model, change its weights if that is wanted, and export it into a folder."""
    wanted = experiment(model, data)
    assert wanted.data is not None
    loaded = load(wanted.data.name, wanted.data.options, seed=wanted.seed)
    made = trained(model, loaded, **values)
    if change is not None:
        change(made)
    folder.mkdir(exist_ok=True)
    origin = Exported(
        "mine",
        "mine-1",
        3,
        model,
        str(data),
        loaded.task,
        {"val_loss": 0.5, "val_accuracy": 0.9},
        len(loaded.train),
    )
    return made, loaded, add_trial(folder, made, loaded, wanted, origin, format=format)
