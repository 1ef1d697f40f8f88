"""One small training with each library, written as its users would, in four epochs or rounds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

NUM_STEPS = 4


def samples() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(64, 3)).astype(np.float32)
    return inputs, (inputs[:, 0] - 2 * inputs[:, 1] > 0).astype(np.float32)


def train_xgboost(config: dict[str, Any], report: Any, folder: Path) -> None:
    import xgboost

    from workbench.bridges.xgboost import TrialCallback

    callback = TrialCallback(report, folder, save_every=1)
    data = xgboost.DMatrix(*samples())
    xgboost.train(
        {"objective": "binary:logistic", "eta": 0.3, "nthread": 1},
        data,
        num_boost_round=callback.num_left(NUM_STEPS),
        evals=[(data, "train")],
        callbacks=[callback],
        xgb_model=callback.resume_from,
        verbose_eval=False,
    )


def train_lightgbm(config: dict[str, Any], report: Any, folder: Path) -> None:
    import lightgbm

    from workbench.bridges.lightgbm import TrialCallback

    callback = TrialCallback(report, folder, save_every=1)
    data = lightgbm.Dataset(*samples())
    lightgbm.train(
        {"objective": "binary", "num_threads": 1, "min_data_in_leaf": 4, "verbose": -1},
        data,
        num_boost_round=callback.num_left(NUM_STEPS),
        valid_sets=[data],
        valid_names=["train"],
        callbacks=[callback],
        init_model=callback.resume_from,
    )


def train_sklearn(config: dict[str, Any], report: Any, folder: Path) -> None:
    from sklearn.ensemble import GradientBoostingClassifier
    from sklearn.metrics import log_loss

    from workbench.bridges.sklearn import TrialCallback

    inputs, targets = samples()
    TrialCallback(report, folder).fit(
        GradientBoostingClassifier(n_estimators=8, max_depth=2, random_state=0),
        inputs,
        targets,
        measure=lambda fitted: {"log_loss": log_loss(targets, fitted.predict_proba(inputs))},
        num_stages=NUM_STEPS,
    )
