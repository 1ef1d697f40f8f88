"""The rivals of `automl`, in a process of their own without anything of ours: FLAML, scikit-learn.

Called as `python automl_rivals.py SIDE DATA.npz TIME_S SEED`; prints predictions of the test
samples as JSON.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import numpy as np


def features(train: np.ndarray, test: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return what classical models take.

    Pixels in a row, and TF-IDF with its defaults for texts.
    """
    if train.dtype.kind == "U":
        from sklearn.feature_extraction.text import TfidfVectorizer

        vectorizer = TfidfVectorizer(sublinear_tf=True).fit(train)
        return vectorizer.transform(train).toarray(), vectorizer.transform(test).toarray()
    return train.reshape(len(train), -1), test.reshape(len(test), -1)


def plain_scikit_learn(given: dict[str, Any], *, seed: int, time_s: float) -> np.ndarray:
    """Fit boosted trees and a linear model with their defaults, and refit the better on all there
    is.
    """
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
    from sklearn.linear_model import LogisticRegression, RidgeCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    inputs, test_inputs, targets = given["inputs"], given["test_inputs"], given["targets"]
    if given["task"] == "regression":
        models: list[Any] = [
            HistGradientBoostingRegressor(random_state=seed),
            make_pipeline(StandardScaler(), RidgeCV()),
        ]
    else:
        models = [
            HistGradientBoostingClassifier(random_state=seed),
            make_pipeline(StandardScaler(), LogisticRegression(max_iter=2000)),
        ]
    validation = given["validation"]
    scores = [
        model.fit(inputs[~validation], targets[~validation]).score(
            inputs[validation], targets[validation]
        )
        for model in models
    ]
    return models[int(np.argmax(scores))].fit(inputs, targets).predict(test_inputs)


def flaml(given: dict[str, Any], *, seed: int, time_s: float) -> np.ndarray:
    """Let FLAML search for as long as everybody may."""
    from flaml import AutoML

    is_regression = given["task"] == "regression"
    auto_m_l = AutoML()
    auto_m_l.fit(
        given["inputs"],
        given["targets"],
        task="regression" if is_regression else "classification",
        metric="r2" if is_regression else "log_loss",
        time_budget=time_s,
        seed=seed,
        verbose=0,
    )
    return auto_m_l.predict(given["test_inputs"])


SIDES = {"scikit-learn": plain_scikit_learn, "FLAML": flaml}


def main() -> None:
    """Run one side and print what it predicts and how long it took, in seconds."""
    side, path, time_s, seed = sys.argv[1:]
    with np.load(path) as kept:
        given: dict[str, Any] = dict(kept)
    given["task"] = str(given["task"])
    began_s = time.monotonic()
    given["inputs"], given["test_inputs"] = features(given["inputs"], given["test_inputs"])
    predicted = SIDES[side](given, seed=int(seed), time_s=float(time_s))
    print(
        json.dumps(
            {"predicted": np.asarray(predicted).tolist(), "time_s": time.monotonic() - began_s}
        )
    )


if __name__ == "__main__":
    main()
