"""The tasks that searches are compared on.

Public trainings where they are at hand, and classic functions.

A task trains a configuration: it returns what every epoch would report and when. Larger values are
better.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from tests.builders.measured_search import SEARCH, SearchTask, read_search_tasks
from workbench.experiment import Space

Params = Mapping[str, Any]
_NUM_DRAWS = 20_000


class Task(Protocol):
    """Something to be tuned."""

    @property
    def name(self) -> str:
        """Its name."""
        ...

    @property
    def search(self) -> Mapping[str, Any]:
        """Its space, as an experiment writes it."""
        ...

    def train(self, params: Params) -> tuple[np.ndarray, np.ndarray]:
        """Return the value after every epoch, and the seconds since the beginning.

        Both of shape [epochs].
        """
        ...

    def regret(self, value: float) -> float:
        """Return how far a value is from the best of 20,000 random ones.

        0 there, 1 at their median.
        """
        ...


@dataclass(frozen=True)
class PublicTask:
    """Trainings of a network on one public data set, as a published surrogate predicts them."""

    measured: SearchTask

    @property
    def name(self) -> str:
        """The code of the data set."""
        return self.measured.name

    @property
    def search(self) -> Mapping[str, Any]:
        """Seven parameters."""
        return SEARCH

    def train(self, params: Params) -> tuple[np.ndarray, np.ndarray]:
        """Return the validation accuracy [%] and the seconds after each of 52 epochs."""
        accuracy, seconds = self.measured.curves(np.array([[params[name] for name in SEARCH]]))
        return accuracy[0], seconds[0]

    def regret(self, value: float) -> float:
        """Return the regret of an accuracy."""
        return self.measured.regret(value)


@dataclass(frozen=True)
class ClassicTask:
    """A function with known minima, evaluated in one epoch of one second."""

    name: str
    search: Mapping[str, Any]
    function: Callable[[Params], float]
    best: float
    median: float

    @classmethod
    def of(
        cls, name: str, search: Mapping[str, Any], function: Callable[[Params], float]
    ) -> ClassicTask:
        """Make a task of a function to be minimised; random values are drawn for its regret."""
        space, rng = Space(search), random.Random(0)
        values = [-function(space.sample(rng)) for _ in range(_NUM_DRAWS)]
        return cls(name, search, function, max(values), float(np.median(values)))

    def train(self, params: Params) -> tuple[np.ndarray, np.ndarray]:
        """Return the value of the function, negated."""
        return np.array([-self.function(params)]), np.ones(1)

    def regret(self, value: float) -> float:
        """Return the regret of a value."""
        return (self.best - value) / (self.best - self.median)


def branin(params: Params) -> float:
    """Return Branin's function of two parameters; its minimum is 0.398."""
    x, y = params["x"], params["y"]
    bent = y - 5.1 / (4 * math.pi**2) * x**2 + 5 / math.pi * x - 6
    return bent**2 + 10 * (1 - 1 / (8 * math.pi)) * math.cos(x) + 10


_ALPHA = np.array([1.0, 1.2, 3.0, 3.2])
_SHARPNESS = np.array(
    [
        [10, 3, 17, 3.5, 1.7, 8],
        [0.05, 10, 17, 0.1, 8, 14],
        [3, 3.5, 1.7, 10, 17, 8],
        [17, 8, 0.05, 10, 0.1, 14],
    ]
)
_CENTRES = 1e-4 * np.array(
    [
        [1312, 1696, 5569, 124, 8283, 5886],
        [2329, 4135, 8307, 3736, 1004, 9991],
        [2348, 1451, 3522, 2883, 3047, 6650],
        [4047, 8828, 8732, 5743, 1091, 381],
    ]
)


def _vector(params: Params) -> np.ndarray:
    return np.array([params[f"x{index}"] for index in range(len(params))])


def hartmann6(params: Params) -> float:
    """Return Hartmann's function of six parameters; its minimum is -3.322."""
    x = _vector(params)
    return -float(_ALPHA @ np.exp(-(_SHARPNESS * (x - _CENTRES) ** 2).sum(1)))


def mixed_rates(params: Params) -> float:
    """Return the error of an imaginary training.

    A valley of rates that depends on the optimiser.
    """
    adaptive = params["optimizer"] == "adam"
    off = math.log10(params["lr"]) + (3.0 if adaptive else 1.2)
    width = math.log2(params["width"]) - 7.0
    overfit = 0.5 * (params["dropout"] - 0.2) ** 2
    return off**2 + 0.15 * (width - off) ** 2 + (0.0 if adaptive else 0.1) + overfit


def ackley(params: Params) -> float:
    """Return Ackley's function: a funnel with many dents.

    Its minimum is 0, where all parameters are.
    """
    x = _vector(params)
    funnel = 20 - 20 * math.exp(-0.2 * math.sqrt((x**2).mean()))
    return float(funnel + math.e - math.exp(np.cos(2 * math.pi * x).mean()))


def rosenbrock(params: Params) -> float:
    """Return Rosenbrock's function: a bent valley; its minimum is 0, where all parameters are 1."""
    x = _vector(params)
    return float((100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum())


def levy(params: Params) -> float:
    """Return Levy's function: waves in a bowl; its minimum is 0, where all parameters are 1."""
    w = 1 + (_vector(params) - 1) / 4
    inner = (w[:-1] - 1) ** 2 * (1 + 10 * np.sin(math.pi * w[:-1] + 1) ** 2)
    last = (w[-1] - 1) ** 2 * (1 + math.sin(2 * math.pi * w[-1]) ** 2)
    return float(math.sin(math.pi * w[0]) ** 2 + inner.sum() + last)


def classic_tasks() -> list[Task]:
    """Return the tasks that need no measurements."""
    unit = {"low": 0.0, "high": 1.0}
    off_centre, whole = {"low": -5.0, "high": 10.0}, {"low": -10, "high": 10}
    return [
        ClassicTask.of("ackley8", {f"x{index}": off_centre for index in range(8)}, ackley),
        ClassicTask.of("rosenbrock4", {f"x{index}": off_centre for index in range(4)}, rosenbrock),
        ClassicTask.of("levy5, whole numbers", {f"x{index}": whole for index in range(5)}, levy),
        ClassicTask.of(
            "branin", {"x": {"low": -5.0, "high": 10.0}, "y": {"low": 0.0, "high": 15.0}}, branin
        ),
        ClassicTask.of("hartmann6", {f"x{index}": unit for index in range(6)}, hartmann6),
        ClassicTask.of(
            "mixed rates",
            {
                "optimizer": {"choices": ["sgd", "adam"]},
                "lr": {"low": 1e-5, "high": 1.0, "log": True},
                "width": {"low": 8, "high": 1024, "log": True},
                "dropout": {"low": 0.0, "high": 0.8},
            },
            mixed_rates,
        ),
    ]


def public_tasks(folder: Path | None, num: int | None = None) -> list[Task]:
    """Return the public trainings, none where they are absent.

    Args:
        folder: Folder of the surrogate.
        num: How many of them, spread evenly; None for all.
    """
    return [] if folder is None else [PublicTask(task) for task in read_search_tasks(folder, num)]
