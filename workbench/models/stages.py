"""Fitting an estimator of scikit-learn's kind in stages, so that it can be judged before it is
finished.

An estimator is any object with `fit` and `predict`. Which of its own means divides the work is
found out here; what happens between two stages is left to those who call it.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any, Literal

import numpy as np

Way = Literal["partial_fit", "warm_start", "continue", "at once"]

_EARLIER_MODEL = ("xgb_model", "init_model")
"""Arguments of `fit` by which XGBoost and LightGBM grow an earlier model."""


def way_of(estimator: Any) -> Way:
    """Return how an estimator can be fitted in parts.

    Args:
        estimator: An object with `fit` and `predict`.
    """
    options = estimator.get_params(deep=False) if hasattr(estimator, "get_params") else {}
    if hasattr(estimator, "partial_fit") and not options.get("early_stopping"):
        return "partial_fit"
    if _size_name(options) is not None and "warm_start" in options:
        return "warm_start"
    if "n_estimators" in options and _earlier_model_name(estimator) is not None:
        return "continue"
    return "at once"


def fit_stages(
    estimator: Any,
    inputs: np.ndarray,
    targets: np.ndarray,
    *,
    num_stages: int,
    num_done: int = 0,
    size: int | None = None,
) -> Iterator[int]:
    """Fit an estimator in stages.

    With `partial_fit` a stage is one pass over all samples; of trees that can be grown further, it
    is an equal part of all of them; anything else is fitted in one stage.

    Args:
        estimator: An object with `fit` and `predict`; it is changed in place.
        inputs: Samples as (samples, features).
        targets: What is to be predicted.
        num_stages: How many stages, at most.
        num_done: Stages that the estimator has behind it already.
        size: How many trees there are in the end, where it is grown; None for the number that it
            has now.

    Yields:
        The number of stages that are done, after each; stages that would change nothing are
        skipped.
    """
    way = way_of(estimator)
    if way == "partial_fit":
        yield from _fit_passes(estimator, inputs, targets, num_stages, num_done)
    elif way == "at once":
        if num_done == 0:
            estimator.fit(inputs, targets)
            yield 1
    else:
        yield from _fit_parts(
            estimator,
            inputs,
            targets,
            num_stages=num_stages,
            num_done=num_done,
            total=size or size_of(estimator),
        )


def size_of(estimator: Any) -> int:
    """Return how many trees an estimator has when it is fitted; 1 for anything but trees."""
    options = estimator.get_params(deep=False) if hasattr(estimator, "get_params") else {}
    name = _size_name(options)
    if name is None:
        return 1
    return 100 if options[name] is None else options[name]  # what XGBoost does without a number


def _fit_passes(
    estimator: Any, inputs: np.ndarray, targets: np.ndarray, num_stages: int, num_done: int
) -> Iterator[int]:
    takes_classes = "classes" in inspect.signature(estimator.partial_fit).parameters
    arguments = {"classes": np.unique(targets)} if takes_classes else {}
    for stage in range(num_done + 1, num_stages + 1):
        estimator.partial_fit(inputs, targets, **arguments)
        yield stage


def _fit_parts(
    estimator: Any,
    inputs: np.ndarray,
    targets: np.ndarray,
    *,
    num_stages: int,
    num_done: int,
    total: int,
) -> Iterator[int]:
    name, way = _size_name(estimator.get_params(deep=False)), way_of(estimator)
    assert name is not None
    sizes = [max(1, total * (stage + 1) // num_stages) for stage in range(num_stages)]
    size = sizes[num_done - 1] if num_done else 0
    for stage in range(num_done + 1, num_stages + 1):
        more = sizes[stage - 1] - size
        if more == 0:
            continue
        arguments = {}
        if way == "warm_start":
            estimator.set_params(**{name: size + more, "warm_start": True})
        else:
            estimator.set_params(**{name: more})
            earlier = _earlier_model_name(estimator)
            assert earlier is not None
            arguments = {earlier: _booster_of(estimator)} if size else {}
        estimator.fit(inputs, targets, **arguments)
        size += more
        yield stage


def _booster_of(estimator: Any) -> Any:
    return estimator.get_booster() if hasattr(estimator, "get_booster") else estimator.booster_


def _size_name(options: dict[str, Any]) -> str | None:
    """Return the parameter that holds the number of trees.

    `max_iter` of linear models is not one.
    """
    if "n_estimators" in options:
        return "n_estimators"
    return "max_iter" if "max_iter" in options and "max_leaf_nodes" in options else None


def _earlier_model_name(estimator: Any) -> str | None:
    parameters = inspect.signature(estimator.fit).parameters
    return next((name for name in _EARLIER_MODEL if name in parameters), None)
