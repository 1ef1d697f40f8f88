"""Classes with `fit` and `predict`, like scikit-learn's, as models for any data.

They are evaluated after each stage of the fit. The fitted object is kept as bytes in a torch
module, so checkpoints, bundles and predictions work as for all other models. The bytes are a
pickle: like your own code, load them only if you trust the run.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from workbench.experiment import Component
from workbench.foundation.errors import ExperimentError
from workbench.models.configurations import FittedConfiguration
from workbench.models.staged_fitting import Growth, fit_rounds, stage_method_of

if TYPE_CHECKING:
    import numpy as np
    from torch import nn

_LIBRARIES = ("sklearn", "xgboost", "lightgbm", "catboost")
_RENAMED = {"lr": "learning_rate"}
"""Names in an experiment, and the names before its aliases were resolved."""


def is_from_library(model: Component) -> bool:
    """Return whether a model is a class of a library of estimators, without importing it."""
    return model.is_reference and model.name.partition(":")[0].partition(".")[0] in _LIBRARIES


def is_estimator(kind: Any) -> bool:
    """Return whether an object is a class with `fit` and `predict` that is not a torch module."""
    return (
        isinstance(kind, type)
        and all(callable(getattr(kind, name, None)) for name in ("fit", "predict"))
        and not any(base.__module__.startswith("torch.") for base in kind.__mro__)
    )


class EstimatorConfiguration(FittedConfiguration):
    """A class with `fit` and `predict`, and its arguments."""

    name = "a class with fit and predict"
    can_continue = True

    model: Component
    values: dict[str, Any]
    """Its own options and all searched parameters, including parameters of the training."""
    training_names: frozenset[str]

    def build(
        self, *, input_shape: tuple[int, ...], num_outputs: int, vocabulary_size: int | None
    ) -> nn.Module:
        """Build the model before it is fitted. See ModelConfiguration.build."""
        if vocabulary_size is not None or not input_shape:
            self.refuse(input_shape, vocabulary_size, "numbers of any shape")
        from workbench.models.fitted_estimator import FittedEstimator

        return FittedEstimator()

    def describe(self, num_classes: int | None) -> str:
        """Return a description of the estimator. See FittedConfiguration.describe."""
        how = "in stages"
        if stage_method_of(self._make(0, num_classes)) == "at once":
            how = "at once"
        return f"{self.model.short_name}, fitted {how}"

    def grow(
        self,
        inputs: np.ndarray,
        targets: np.ndarray,
        *,
        num_classes: int | None,
        num_rounds: int,
        seed: int,
        num_threads: int = 1,
        growth: Growth | None = None,
    ) -> Iterator[nn.Module]:
        """Fit the estimator. See FittedConfiguration.grow."""
        from workbench.models.fitted_estimator import FittedEstimator

        estimator = self._make(seed, num_classes)
        if targets.ndim == 2 and targets.shape[1] == 1:  # scikit-learn warns about a single column
            targets = targets[:, 0]
        for fitted in fit_rounds(estimator, inputs, targets, num_rounds, growth or Growth()):
            yield FittedEstimator.of(fitted, num_classes)

    def _make(self, seed: int, num_classes: int | None) -> Any:
        kind = self.model.load(field="model")
        if not is_estimator(kind):
            raise ExperimentError(
                f"{self.model.title} is not a class with fit and predict",
                field="model",
                allowed="such a class",
            )
        arguments = _arguments_of(kind, self.values, self.training_names)
        if "random_state" in inspect.signature(kind).parameters:
            arguments.setdefault("random_state", seed)
        estimator = kind(**arguments)
        _check_task(estimator, num_classes, self.model.title)
        return estimator


def _arguments_of(
    kind: type, values: Mapping[str, Any], training_names: frozenset[str]
) -> dict[str, Any]:
    """Return the arguments of a class. An unknown argument is an error."""
    parameters = inspect.signature(kind).parameters
    takes_any = any(
        parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters.values()
    )
    arguments = {}
    for name, value in values.items():
        own_name = name
        if name not in parameters:
            own_name = _RENAMED.get(name, name)
        if own_name in parameters or (takes_any and own_name not in training_names):
            arguments[own_name] = value
        elif own_name not in training_names:
            raise ExperimentError(
                f"{kind.__name__} has no such parameter",
                field=f"search.{name}",
                allowed=list(parameters),
            )
    return arguments


def _check_task(estimator: Any, num_classes: int | None, title: str) -> None:
    """Reject a classifier for numbers, and a regressor for classes."""
    from sklearn.base import is_classifier, is_regressor

    needed, is_other_kind = "a regressor", is_classifier
    if num_classes:
        needed, is_other_kind = "a classifier", is_regressor
    try:
        is_wrong = is_other_kind(estimator)
    except (AttributeError, TypeError):  # the estimator does not say which it is
        return
    if is_wrong:
        raise ExperimentError(
            f"{title} does not fit the task of the data", field="model", allowed=needed
        )
