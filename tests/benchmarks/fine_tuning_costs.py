"""Fit the law of fine-tuning that is included, and judge it on what is left out.

Run `python -m tests.benchmarks.fine_tuning_costs [--write]`. It reads `fine_tuning` of the public
measurements. `--write` stores the factors in `workbench/advisor`. The file contains no measurement.

Each language model is predicted from all others, and each adapter from all other adapters.
"""

from __future__ import annotations

import argparse
import csv
import json
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from tests.builders.measured import find_measured
from workbench.advisor.fine_tuning_costs import (
    SHIPPED,
    FineTuningPlan,
    fit_fine_tuning_law,
    read_fine_tunings,
)

_DIGITS = 6


@dataclass
class Score:
    """How well plans that were left out are predicted.

    Attributes:
        memory: The relative errors of the peaks.
        seconds: The relative errors of the times of a step.
        in_interval: Whether each peak is in its interval.
        right: Whether each plan that fits, or not, was predicted to.
    """

    memory: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    in_interval: list[bool] = field(default_factory=list)
    right: list[bool] = field(default_factory=list)

    def describe(self) -> str:
        """Return the score as one line."""
        text = f"memory {np.mean(np.abs(self.memory)):.1%}, in interval"
        text += f" {np.mean(self.in_interval):.0%} of {len(self.memory)}"
        if self.right:
            text += f", fits or not {np.mean(self.right):.0%}"
        if self.seconds:
            text += f", seconds {np.mean(np.abs(self.seconds)):.1%}"
        return text


def score_left_out(plans: Sequence[FineTuningPlan], groups: Sequence[object]) -> Score:
    """Predict each group of plans from all others."""
    score = Score()
    for group in dict.fromkeys(groups):
        others = [plan for plan, name in zip(plans, groups, strict=True) if name != group]
        own = [plan for plan, name in zip(plans, groups, strict=True) if name == group]
        asked = [
            replace(plan, memory_gb=None, out_of_memory=False, seconds_per_step=None)
            for plan in own
        ]
        for plan, predicted in zip(own, fit_fine_tuning_law(others).predict(asked), strict=True):
            if predicted.fits is not None:
                score.right.append(predicted.fits != plan.out_of_memory)
            if plan.memory_gb is not None:
                score.memory.append(predicted.memory_gb / plan.memory_gb - 1)
                score.in_interval.append(predicted.low_gb <= plan.memory_gb <= predicted.high_gb)
            if plan.seconds_per_step is not None and predicted.seconds_per_step is not None:
                score.seconds.append(predicted.seconds_per_step / plan.seconds_per_step - 1)
    return score


def read_names(path: Path) -> list[str]:
    """Return the models of a table."""
    with path.open(newline="") as file:
        return [row["model"] for row in csv.DictReader(file)]


def main() -> None:
    """Judge the law, and store it if requested."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true")
    write = parser.parse_args().write
    folder = find_measured("fine_tuning")
    if folder is None:
        parser.error("the public measurements are missing: set WORKBENCH_MEASURED to their folder")
    warnings.simplefilter("ignore", UserWarning)  # columns such as the accuracy are not read
    models = read_fine_tunings(folder / "fine_tuning_memory.csv")
    adapters = read_fine_tunings(folder / "adapter_costs.csv")
    names = read_names(folder / "fine_tuning_memory.csv")
    print(f"models left out: {score_left_out(models, names).describe()}")
    print(f"adapters left out: {score_left_out(adapters, range(len(adapters))).describe()}")
    if write:
        law = fit_fine_tuning_law(models)
        covariance = [[_round(value) for value in row] for row in law.covariance]
        stored = {
            "logarithms": [_round(value) for value in law.logarithms],
            "covariance": covariance,
            "noise": _round(law.noise),
        }
        SHIPPED.write_text(json.dumps(stored) + "\n", encoding="utf-8")


def _round(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")


if __name__ == "__main__":
    main()
