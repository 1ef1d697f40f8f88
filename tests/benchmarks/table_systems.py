"""Systems that predict from a table, each in a process of its own.

Called as `python table_systems.py SYSTEM FOLDER SECONDS PREDICTIONS`, by an interpreter that has
the system. Reads `train.csv`, `test.csv` and `about.json`, writes the predictions of the test rows
as .npy (probabilities of the sorted classes, or numbers), and prints one line of JSON: the seconds
from the rows to the model, and from the model to the predictions.

Imports and, for ours, the start of Ray are outside of the clock.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

Predict = Callable[[pd.DataFrame], np.ndarray]
SEED = 0
MADE: dict[str, Any] = {}
"""What a system says about its model, which is stored with its loss."""


def ours(rows: pd.DataFrame, about: dict[str, Any], seconds: float) -> Predict:
    """`wb.automl` on a head that is up, with one processor."""
    import workbench as wb

    target = about["target"]
    automl = wb.automl(rows, target=target, time=seconds, task=_task(about), seed=SEED).wait()
    json = automl.to_json()
    board = [[row["model"], row["weight"], row.get("fit_s")] for row in json["leaderboard"]["rows"]]
    MADE["ours"] = {"model": json["model"], "refit": len(json["refit"]), "leaderboard": board}
    if about["task"] == "regression":
        return automl.predict
    places = np.argsort([str(label) for label in automl.classes])
    return lambda inputs: automl.predict_proba(inputs)[:, places]


def autogluon(preset: str) -> Callable[[pd.DataFrame, dict[str, Any], float], Predict]:
    """AutoGluon with a preset."""

    def fit(rows: pd.DataFrame, about: dict[str, Any], seconds: float) -> Predict:
        from autogluon.tabular import TabularPredictor

        metrics = {"regression": "root_mean_squared_error"}
        predictor = TabularPredictor(
            label=about["target"],
            problem_type={"classes": "multiclass"}.get(about["task"], about["task"]),
            eval_metric=metrics.get(about["task"], "log_loss"),
            path=str(Path(tempfile.mkdtemp(), "predictor")),
            verbosity=0,
        )
        predictor.fit(rows, time_limit=seconds, presets=preset, num_cpus=1)
        if about["task"] == "regression":
            return lambda inputs: predictor.predict(inputs).to_numpy()

        def probabilities(inputs: pd.DataFrame) -> np.ndarray:
            shares = predictor.predict_proba(inputs)
            return shares[sorted(shares.columns, key=str)].to_numpy()

        return probabilities

    return fit


def flaml(rows: pd.DataFrame, about: dict[str, Any], seconds: float) -> Predict:
    """FLAML with its defaults."""
    from flaml import AutoML

    inputs, targets = _divided(rows, about)
    automl = AutoML()
    automl.fit(
        _as_categories(inputs),
        targets,
        task=_task(about),
        metric="rmse" if about["task"] == "regression" else "log_loss",
        time_budget=seconds,
        seed=SEED,
        n_jobs=1,
        verbose=0,
    )
    return _predictor(automl, about, _as_categories)


def lightgbm(rows: pd.DataFrame, about: dict[str, Any], seconds: float) -> Predict:
    """LightGBM with its defaults; texts are categories."""
    from lightgbm import LGBMClassifier, LGBMRegressor

    inputs, targets = _divided(rows, about)
    kinds = _learnt_categories(inputs)
    kind = LGBMRegressor if about["task"] == "regression" else LGBMClassifier
    model = kind(n_jobs=1, verbose=-1, random_state=SEED).fit(kinds(inputs), targets)
    return _predictor(model, about, kinds)


def catboost(rows: pd.DataFrame, about: dict[str, Any], seconds: float) -> Predict:
    """CatBoost with its defaults; texts are categories."""
    from catboost import CatBoostClassifier, CatBoostRegressor

    inputs, targets = _divided(rows, about)
    names = list(inputs.select_dtypes(["object", "string", "bool"]))

    def prepared(rows: pd.DataFrame) -> pd.DataFrame:
        texts = {name: rows[name].astype(object).fillna("").astype(str) for name in names}
        return rows.assign(**texts)

    kind = CatBoostRegressor if about["task"] == "regression" else CatBoostClassifier
    model = kind(
        thread_count=1,
        cat_features=names,
        random_seed=SEED,
        verbose=False,
        allow_writing_files=False,
    )
    return _predictor(model.fit(prepared(inputs), targets), about, prepared)


def scikit_learn(rows: pd.DataFrame, about: dict[str, Any], seconds: float) -> Predict:
    """Boosted trees of scikit-learn, tuned by random search in the given time, refitted on all."""
    from sklearn.compose import make_column_transformer
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
    from sklearn.model_selection import cross_val_score
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder

    began_s = time.monotonic()
    inputs, targets = _divided(rows, about)
    names = list(inputs.select_dtypes(["object", "string"]))
    encoder = OneHotEncoder(max_categories=32, handle_unknown="ignore", sparse_output=False)
    random = np.random.default_rng(SEED)
    is_regression = about["task"] == "regression"
    kind = HistGradientBoostingRegressor if is_regression else HistGradientBoostingClassifier
    best_score, best, longest_s = -np.inf, None, 0.0
    while best is None or time.monotonic() - began_s + 1.5 * longest_s < 0.8 * seconds:
        tried_s = time.monotonic()
        options: dict[str, Any] = {"random_state": SEED}
        if best is not None:  # the defaults come first
            options |= {
                "learning_rate": float(10 ** random.uniform(-2, -0.5)),
                "max_leaf_nodes": int(random.integers(4, 64)),
                "min_samples_leaf": int(random.integers(2, 60)),
                "l2_regularization": float(10 ** random.uniform(-4, 1)),
                "max_iter": int(random.integers(50, 400)),
            }
        model = make_pipeline(
            make_column_transformer((encoder, names), remainder="passthrough"), kind(**options)
        )
        scoring = "neg_root_mean_squared_error" if is_regression else "neg_log_loss"
        score = cross_val_score(model, inputs, targets, cv=3, scoring=scoring).mean()
        if score > best_score or best is None:
            best_score, best = score, model
        longest_s = max(longest_s, time.monotonic() - tried_s)
    return _predictor(best.fit(inputs, targets), about, lambda rows: rows)


SYSTEMS: dict[str, Callable[[pd.DataFrame, dict[str, Any], float], Predict]] = {
    "ours": ours,
    "AutoGluon good": autogluon("good_quality"),
    "AutoGluon best": autogluon("best_quality"),
    "FLAML": flaml,
    "LightGBM": lightgbm,
    "CatBoost": catboost,
    "scikit-learn": scikit_learn,
}
WITHOUT_A_BUDGET = ("LightGBM", "CatBoost")


def _task(about: dict[str, Any]) -> Any:
    return "regression" if about["task"] == "regression" else "classification"


def _divided(rows: pd.DataFrame, about: dict[str, Any]) -> tuple[pd.DataFrame, pd.Series]:
    targets = rows[about["target"]]
    if about["task"] != "regression":
        targets = targets.astype(str)
    return rows.drop(columns=about["target"]), targets


def _as_categories(rows: pd.DataFrame) -> pd.DataFrame:
    texts = rows.select_dtypes(["object", "string"])
    return rows.assign(**{name: rows[name].astype("object") for name in texts})


def _learnt_categories(train: pd.DataFrame) -> Callable[[pd.DataFrame], pd.DataFrame]:
    """Return what turns texts into the categories of the train rows."""
    kinds = {
        name: pd.CategoricalDtype(sorted(train[name].dropna().astype(str).unique()))
        for name in train.select_dtypes(["object", "string"])
    }
    return lambda rows: rows.astype(dict.fromkeys(kinds, "str")).astype(kinds)


def _predictor(
    model: Any, about: dict[str, Any], prepared: Callable[[pd.DataFrame], pd.DataFrame]
) -> Predict:
    if about["task"] == "regression":
        return lambda rows: np.ravel(model.predict(prepared(rows)))
    return lambda rows: np.asarray(model.predict_proba(prepared(rows)))


def _prepare(system: str) -> None:
    """Import what a system needs and, for ours, start Ray."""
    if system != "ours":
        return
    from sklearn.datasets import load_wine

    import workbench as wb
    from workbench.cluster.head import attachment

    attachment.connect(num_cpus=1, num_gpus=0)
    wb.automl(load_wine(return_X_y=True), time=10).wait()


def main() -> None:
    """Run one system on one table."""
    system, folder, seconds, predictions = sys.argv[1:]
    place = Path(folder)
    about = json.loads((place / "about.json").read_text())
    rows, test = pd.read_csv(place / "train.csv"), pd.read_csv(place / "test.csv")
    _prepare(system)
    began_s = time.monotonic()
    predict = SYSTEMS[system](rows, about, float(seconds))
    fitted_s = time.monotonic()
    answers = np.asarray(predict(test.drop(columns=about["target"])), dtype=np.float64)
    predicted_s = time.monotonic()
    np.save(predictions, answers)
    took = {"fit_s": fitted_s - began_s, "predict_s": predicted_s - fitted_s}
    print(json.dumps(took | ({"made": MADE[system]} if system in MADE else {})))
    if system == "ours":
        from workbench.cluster.head import local_head

        local_head.shutdown()


if __name__ == "__main__":
    main()
