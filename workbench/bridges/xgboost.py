"""XGBoost: a callback that reports the evaluations of each round, and saves the booster."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from workbench.bridges import Bridge, missing

try:
    from xgboost.callback import TrainingCallback  # pyright: ignore[reportMissingImports]
except ModuleNotFoundError as error:
    raise missing("xgboost") from error


class TrialCallback(Bridge, TrainingCallback):
    """Reports each round as a step, with metrics named like `validation_logloss`.

    To resume, pass `xgb_model=callback.resume_from` and `num_boost_round=callback.num_left(...)`.
    """

    def __init__(
        self,
        report: Callable[..., bool],
        folder: Path | str | None = None,
        *,
        every: int = 1,
        save_every: int = 10,
    ) -> None:
        """See Bridge."""
        super().__init__(report, folder, every=every, save_every=save_every)

    def after_iteration(
        self, model: Any, epoch: int, evals_log: Mapping[str, Mapping[str, Any]]
    ) -> bool:
        """Report a round. See TrainingCallback."""
        metrics = {
            f"{data}_{metric}": values[-1]
            for data, of_metric in evals_log.items()
            for metric, values in of_metric.items()
        }
        return self.advance(model.num_boosted_rounds(), metrics, model.save_model, suffix=".ubj")
