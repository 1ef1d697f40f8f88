"""LightGBM: a callback that reports the evaluations of each round, and saves the booster."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from workbench.bridges import Bridge, missing

try:
    from lightgbm.callback import EarlyStopException  # pyright: ignore[reportMissingImports]
except ModuleNotFoundError as error:
    raise missing("lightgbm") from error


class TrialCallback(Bridge):
    """Reports each round as a step, with metrics named like `valid_0_l2`.

    To resume, pass `init_model=callback.resume_from` and `num_boost_round=callback.num_left(...)`.
    """

    order = 40  # after LightGBM's own early stopping
    before_iteration = False

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

    def __call__(self, env: Any) -> None:
        """Report a round. LightGBM calls this."""
        results = env.evaluation_result_list or []
        metrics = {f"{data}_{metric}": value for data, metric, value, *_ in results}
        if self.advance(env.iteration + 1, metrics, env.model.save_model, suffix=".txt"):
            raise EarlyStopException(env.iteration, results)
