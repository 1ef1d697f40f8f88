"""Classes of scikit-learn's kind as models.

With `fit` and `predict`, on any data, judged after each stage.

The fitted object is kept as bytes in a torch module, so that checkpoints, bundles and predictions
are as for all other models. The bytes are a pickle: like the user's code, they are for those who
trust the run.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from workbench.experiment import Component
from workbench.foundation.errors import ExperimentError
from workbench.models.configurations import FittedConfiguration
from workbench.models.stages import fit_stages, way_of

if TYPE_CHECKING:
    import numpy as np
    from torch import nn

_LIBRARIES = ("sklearn", "xgboost", "lightgbm", "catboost")
_RENAMED = {"lr": "learning_rate"}
"""Names of an experiment, and what they were before it resolved its aliases."""


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
    """A class with `fit` and `predict`, and what it is made with."""

    name = "a class with fit and predict"

    model: Component
    values: dict[str, Any]
    """Its own options and the searched parameters; those of the training among them."""
    training_names: frozenset[str]

    def build(
        self, *, input_shape: tuple[int, ...], num_outputs: int, vocabulary_size: int | None
    ) -> nn.Module:
        """Build the model as it is before it is fitted; see ModelConfiguration.build."""
        if vocabulary_size is not None or not input_shape:
            self.refuse(input_shape, vocabulary_size, "numbers of any shape")
        from workbench.models.fitted_estimator import FittedEstimator

        return FittedEstimator()

    def describe(self, num_classes: int | None) -> str:
        """Say what will be fitted; see FittedConfiguration.describe."""
        how = "at once" if way_of(self._make(0, num_classes)) == "at once" else "in stages"
        return f"{self.model.short_name}, fitted {how}"

    def grow(
        self,
        inputs: np.ndarray,
        targets: np.ndarray,
        *,
        num_classes: int | None,
        num_rounds: int,
        seed: int,
    ) -> Iterator[nn.Module]:
        """Fit the estimator; see FittedConfiguration.grow."""
        from workbench.models.fitted_estimator import FittedEstimator

        estimator = self._make(seed, num_classes)
        is_column = targets.ndim == 2 and targets.shape[1] == 1
        for _ in fit_stages(
            estimator, inputs, targets[:, 0] if is_column else targets, num_stages=num_rounds
        ):
            yield FittedEstimator.of(estimator, num_classes)

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
    """Return the arguments that a class is made with; unknown ones are refused."""
    parameters = inspect.signature(kind).parameters
    takes_any = any(
        parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters.values()
    )
    arguments = {}
    for name, value in values.items():
        own_name = name if name in parameters else _RENAMED.get(name, name)
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
    """Refuse a classifier where numbers are predicted, and the other way round."""
    from sklearn.base import is_classifier, is_regressor

    try:
        wrong = is_regressor(estimator) if num_classes else is_classifier(estimator)
    except (AttributeError, TypeError):  # it does not say which it is
        return
    if wrong:
        needed = "a classifier" if num_classes else "a regressor"
        raise ExperimentError(
            f"{title} does not fit the task of the data", field="model", allowed=needed
        )
