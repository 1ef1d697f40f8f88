"""Fit the law of adapters that is included, and judge it on models that are left out.

Run `python -m tests.benchmarks.adapter_law [--write]`. It reads `fine_tuning/adapter_rates.csv` of
the public measurements. `--write` stores the coefficients in `workbench/advisor`. The file contains
no measurement.

For each model, the law is fitted to all others. Regret is the test loss of the point with the
lowest prediction minus the lowest test loss of that model.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.builders.measured import find_measured
from workbench.advisor.adapter_rates import (
    NUM_SHARED,
    SHIPPED,
    AdapterPoint,
    fit_adapter_law,
    read_trained_adapters,
)

_DIGITS = 6


@dataclass(frozen=True)
class LeftOut:
    """How well a model that was left out is predicted.

    Attributes:
        model: Its name.
        regret: In nats per token.
        held: How many of its losses are in their intervals.
        num_points: How many losses it has.
        error: The mean absolute error, in nats per token.
    """

    model: str
    regret: float
    held: int
    num_points: int
    error: float


def leave_out(trained: list[AdapterPoint], model: str) -> LeftOut:
    """Predict a model from all others. Equal trainings are averaged."""
    losses: dict[AdapterPoint, list[float]] = {}
    for point in trained:
        if point.model == model and not point.diverged and point.test_nll is not None:
            losses.setdefault(replace(point, test_nll=None), []).append(point.test_nll)
    excess = np.array([np.mean(values) for values in losses.values()])
    excess -= excess.min()
    others = [point for point in trained if point.model != model]
    predictions = np.array(fit_adapter_law(others).predict(list(losses)))
    low, high = predictions[:, 1] - 1e-9, predictions[:, 2] + 1e-9
    return LeftOut(
        model,
        float(excess[predictions[:, 0].argmin()]),
        int(((low <= excess) & (excess <= high)).sum()),
        len(excess),
        float(np.abs(predictions[:, 0] - excess).mean()),
    )


def _rounded(values: NDArray[np.float64]) -> NDArray[np.float64]:
    rounded = [float(f"{value:.{_DIGITS}g}") for value in values.flat]
    return np.array(rounded).reshape(values.shape)


def main() -> None:
    """Judge the law, and store it if requested."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true")
    write = parser.parse_args().write
    folder = find_measured("fine_tuning")
    if folder is None:
        parser.error("the public measurements are missing: set WORKBENCH_MEASURED to their folder")
    trained = read_trained_adapters(folder / "adapter_rates.csv")
    results = [
        leave_out(trained, model) for model in dict.fromkeys(str(point.model) for point in trained)
    ]
    for result in results:
        print(
            f"{result.model:46s} regret {result.regret:.4f}  "
            f"in interval {result.held}/{result.num_points}  error {result.error:.4f}"
        )
    regrets = [result.regret for result in results]
    held = sum(result.held for result in results) / sum(result.num_points for result in results)
    print(f"mean regret {np.mean(regrets):.5f}, worst {max(regrets):.4f}, intervals {held:.1%}")
    if write:
        law = fit_adapter_law(trained)
        stored = {
            "means": law.means[:NUM_SHARED],
            "covariance": law.covariance[:NUM_SHARED, :NUM_SHARED],
            "spread": law.spread,
            "stability": law.stability,
        }
        rounded: dict[str, Any] = {
            name: _rounded(values).tolist() for name, values in stored.items()
        }
        rounded["families"] = {
            family: {"num_models": num, "differences": _rounded(differences).tolist()}
            for family, (num, differences) in sorted(law.families.items())
        }
        SHIPPED.write_text(json.dumps(rounded) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
