"""scikit-learn, and anything with `fit` and `predict`: stages that are reported and saved."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from workbench.bridges import Bridge
from workbench.models.staged_fitting import fit_stages, size_of

Estimator = TypeVar("Estimator")


class TrialCallback(Bridge):
    """Fits an estimator in stages, by `partial_fit`, by growing trees further, or at once."""

    def __init__(
        self,
        report: Callable[..., bool],
        folder: Path | str | None = None,
        *,
        every: int = 1,
        save_every: int = 1,
    ) -> None:
        """See Bridge."""
        super().__init__(report, folder, every=every, save_every=save_every)

    def fit(
        self,
        estimator: Estimator,
        inputs: Any,
        targets: Any,
        *,
        measure: Callable[[Estimator], Mapping[str, Any]],
        num_stages: int = 10,
    ) -> Estimator:
        """Fit an estimator, or continue with the estimator of an earlier attempt.

        Args:
            estimator: An object with `fit` and `predict`.
            inputs: Samples as (samples, features).
            targets: The targets to predict.
            measure: Returns the metrics of a stage, by name.
            num_stages: Maximum number of stages.

        Returns:
            The fitted estimator.
        """
        size = size_of(estimator)
        if self.resume_from is not None:
            # Unpickling is safe: the trial has written the file itself, into its own folder.
            estimator = pickle.loads(Path(self.resume_from).read_bytes())
        for stage in fit_stages(
            estimator,
            inputs,
            np.asarray(targets),
            num_stages=num_stages,
            num_done=self.num_done,
            size=size,
        ):
            if self.advance(stage, measure(estimator), _writer(estimator), suffix=".pickle"):
                break
        return estimator


def _writer(estimator: Any) -> Callable[[str], object]:
    return lambda path: Path(path).write_bytes(pickle.dumps(estimator))
