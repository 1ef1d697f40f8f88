"""Fits an estimator like scikit-learn's in stages, so that it can be evaluated before the end.

An estimator is any object with `fit` and `predict`. This module finds out how its fit can be
divided, and says how far a fit is, so that another process can continue it after a kill. What
happens between two stages is left to the caller.
"""

from __future__ import annotations

import inspect
import pickle
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import cloudpickle

if TYPE_CHECKING:
    import numpy as np

MIN_PROBABILITY = 1e-3
"""The share of the votes of a forest for a class that no tree votes for."""
TREES_RATIO = 1.4
"""Each round of boosted trees has so many times the trees of the one before.

The best number of trees is rarely missed by more than a fifth.
"""
PASSES_RATIO = 1.25
"""Each round of a network for tables makes so many times the steps of all rounds before."""

StageMethod = Literal["partial_fit", "warm_start", "continue", "at once"]

_EARLIER_MODEL = ("xgb_model", "init_model")
"""Arguments of `fit` through which XGBoost and LightGBM extend an earlier model."""


def stage_method_of(estimator: Any) -> StageMethod:
    """Return how an estimator can be fitted in parts.

    Args:
        estimator: An object with `fit` and `predict`.
    """
    options = _options_of(estimator)
    if hasattr(estimator, "partial_fit") and not options.get("early_stopping"):
        return "partial_fit"
    if _size_name(options) is not None and "warm_start" in options:
        return "warm_start"
    if "n_estimators" in options and _earlier_model_name(estimator) is not None:
        return "continue"
    return "at once"


def _options_of(estimator: Any) -> dict[str, Any]:
    if not hasattr(estimator, "get_params"):
        return {}
    return estimator.get_params(deep=False)


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

    With `partial_fit`, a stage is one pass over all samples. If trees can be added, a stage adds an
    equal part of them. Any other estimator is fitted in one stage.

    Args:
        estimator: An object with `fit` and `predict`. It is changed in place.
        inputs: Samples as (samples, features).
        targets: The targets to predict.
        num_stages: Maximum number of stages.
        num_done: Stages that the estimator has completed already.
        size: Final number of trees, or None for the number that the estimator has now.

    Yields:
        The number of completed stages, after each one. Stages that would change nothing are
        skipped.
    """
    way = stage_method_of(estimator)
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


def fit_rounds(
    estimator: Any, inputs: np.ndarray, targets: np.ndarray, num_rounds: int, growth: Growth
) -> Iterator[Any]:
    """Fit an estimator in stages, or the estimator that an earlier attempt stored.

    Args:
        estimator: See `fit_stages`.
        inputs: See `fit_stages`.
        targets: See `fit_stages`.
        num_rounds: Maximum number of stages.
        growth: Where an earlier attempt was. Its estimator is unpickled, so the trial must have
            written it.

    Yields:
        The estimator after each stage.
    """
    size, num_done = size_of(estimator), 0
    if growth.state is not None:
        estimator = pickle.loads(growth.state["estimator"])
        num_done = growth.state["stage"]

    done = [num_done]
    growth.keep(lambda: {"estimator": cloudpickle.dumps(estimator), "stage": done[-1]})
    for stage in fit_stages(
        estimator, inputs, targets, num_stages=num_rounds, num_done=num_done, size=size
    ):
        done.append(stage)
        yield estimator


def size_of(estimator: Any) -> int:
    """Return how many trees a fitted estimator has, or 1 if it has no trees."""
    options = _options_of(estimator)
    name = _size_name(options)
    if name is None:
        return 1
    if options[name] is None:
        return 100  # XGBoost's default
    return options[name]


def _fit_passes(
    estimator: Any, inputs: np.ndarray, targets: np.ndarray, num_stages: int, num_done: int
) -> Iterator[int]:
    arguments = {}
    if "classes" in inspect.signature(estimator.partial_fit).parameters:
        # The first pass must know all classes.
        import numpy as np  # describing a model needs none

        arguments["classes"] = np.unique(targets)
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
    name, way = _size_name(estimator.get_params(deep=False)), stage_method_of(estimator)
    assert name is not None
    sizes = [max(1, total * (stage + 1) // num_stages) for stage in range(num_stages)]
    size = 0
    if num_done:
        size = sizes[num_done - 1]
    for stage in range(num_done + 1, num_stages + 1):
        more = sizes[stage - 1] - size
        if more == 0:
            continue
        arguments = {}
        if way == "warm_start":
            estimator.set_params(**{name: size + more, "warm_start": True})
        else:
            estimator.set_params(**{name: more})
            if size:
                earlier = _earlier_model_name(estimator)
                assert earlier is not None
                arguments[earlier] = _booster_of(estimator)
        estimator.fit(inputs, targets, **arguments)
        size += more
        yield stage


def _booster_of(estimator: Any) -> Any:
    if hasattr(estimator, "get_booster"):  # XGBoost
        return estimator.get_booster()
    return estimator.booster_


def _size_name(options: dict[str, Any]) -> str | None:
    """Return the name of the parameter with the number of trees.

    Linear models also have a `max_iter`, but it counts something else.
    """
    if "n_estimators" in options:
        return "n_estimators"
    if "max_iter" in options and "max_leaf_nodes" in options:
        return "max_iter"
    return None


def _earlier_model_name(estimator: Any) -> str | None:
    parameters = inspect.signature(estimator.fit).parameters
    return next((name for name in _EARLIER_MODEL if name in parameters), None)


@dataclass
class Growth:
    """The completed rounds of a fit.

    Attributes:
        num_done: Rounds that an earlier attempt has completed.
        state: What it stored after the last one of them: tensors and plain values. None if it
            stored nothing.
    """

    num_done: int = 0
    state: Mapping[str, Any] | None = None
    _take: Callable[[], dict[str, Any]] | None = field(default=None, repr=False)

    def keep(self, take: Callable[[], dict[str, Any]]) -> None:
        """Say how the state after the newest round is taken. A fit calls this once.

        Args:
            take: Returns tensors and plain values. They may change later, so they must be stored at
                once.
        """
        self._take = take

    def taken(self) -> dict[str, Any] | None:
        """Return the state after the newest round, or None if the fit cannot be continued."""
        return None if self._take is None else self._take()
