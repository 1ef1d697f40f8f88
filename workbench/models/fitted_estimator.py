"""A fitted estimator as a torch module. Its bytes are the weights, and predictions the outputs."""

from __future__ import annotations

import functools
import pickle
from collections.abc import Mapping, Sequence
from typing import Any

import cloudpickle
import numpy as np
import torch
from torch import Tensor, nn


def add_loaded_buffers(
    model: nn.Module, names: Sequence[str], *, dtype: torch.dtype = torch.float32
) -> None:
    """Register empty buffers. Loading a state gives each of them its size and type.

    Args:
        model: The model. Hooks that change a state must be registered before this call.
        names: The buffers.
        dtype: The type of the buffers while they are empty.
    """
    for name in names:
        model.register_buffer(name, torch.zeros(0, dtype=dtype))

    model.register_load_state_dict_pre_hook(functools.partial(_make_room, tuple(names)))


def _make_room(
    names: tuple[str, ...], model: nn.Module, state: Mapping[str, Any], prefix: str, *_: Any
) -> None:
    for name in names:
        if prefix + name in state:
            setattr(model, name, torch.empty_like(state[prefix + name]))


# An estimator that gives a class the probability 0 is too sure: the class is only unlikely.
_MIN_PROBABILITY = 1e-6


class FittedEstimator(nn.Module):
    """Logarithms of probabilities of the classes, or the predicted numbers."""

    pickled: Tensor

    def __init__(self) -> None:
        """Build a module without an estimator. Loading a state adds one."""
        super().__init__()
        self._fitted: tuple[Any, int | None] | None = None
        self.register_state_dict_pre_hook(_write_bytes)
        self.register_load_state_dict_pre_hook(_forget)
        add_loaded_buffers(self, ("pickled",), dtype=torch.uint8)

    @classmethod
    def of(cls, estimator: Any, num_classes: int | None) -> FittedEstimator:
        """Make a module of an estimator.

        Args:
            estimator: An object with `predict`.
            num_classes: Number of classes, or None for a regression.
        """
        made = cls()
        made._fitted = (estimator, num_classes)
        return made

    def forward(self, inputs: Tensor) -> Tensor:
        """Map (batch, ...) numbers to (batch, num_outputs)."""
        fitted = self._fitted or pickle.loads(self.pickled.cpu().numpy().tobytes())
        self._fitted, (estimator, num_classes) = fitted, fitted
        rows = inputs.detach().flatten(1).cpu().numpy()
        if num_classes is None:
            outputs = _numbers(estimator, rows)
        else:
            outputs = _scores(estimator, rows, num_classes)
        return torch.from_numpy(np.ascontiguousarray(outputs, dtype=np.float32)).to(inputs.device)


def _numbers(estimator: Any, rows: np.ndarray) -> np.ndarray:
    return np.asarray(estimator.predict(rows)).reshape(len(rows), -1)


def _scores(estimator: Any, rows: np.ndarray, num_classes: int) -> np.ndarray:
    """Return logarithms of probabilities, including classes that the estimator has never seen."""
    shares = np.zeros((len(rows), num_classes))
    if hasattr(estimator, "predict_proba"):
        probabilities = np.asarray(estimator.predict_proba(rows))
        known = np.asarray(
            getattr(estimator, "classes_", np.arange(probabilities.shape[1]))
        ).astype(int)
        shares[:, known] = probabilities
    else:
        shares[np.arange(len(rows)), np.ravel(estimator.predict(rows)).astype(int)] = 1.0
    return np.log(np.clip(shares, _MIN_PROBABILITY, 1.0))


def _write_bytes(model: FittedEstimator, *_: Any) -> None:
    """Update the bytes when a checkpoint is written, rather than after each stage."""
    if model._fitted is not None:
        content = bytearray(cloudpickle.dumps(model._fitted, protocol=pickle.HIGHEST_PROTOCOL))
        model.pickled = torch.frombuffer(content, dtype=torch.uint8)


def _forget(model: FittedEstimator, state: Mapping[str, Any], prefix: str, *_: Any) -> None:
    """Forget the estimator of the earlier state."""
    if f"{prefix}pickled" in state:
        model._fitted = None
