"""The stages of a model that one tier computes, with ONNX Runtime.

Features in, answers or features out.

A graph has one input and an optional `mask`, one output of probabilities, and an optional output
`features` for the next stage. Without it the next stage takes what this one took.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnxruntime

from workbench.tiers.processes.tier_settings import StageSettings

MASK = "mask"
FEATURES = "features"
_DTYPES = {
    "tensor(float)": np.float32,
    "tensor(double)": np.float64,
    "tensor(float16)": np.float16,
    "tensor(int64)": np.int64,
    "tensor(int32)": np.int32,
    "tensor(uint8)": np.uint8,
    "tensor(bool)": np.bool_,
}


@dataclass(frozen=True)
class Result:
    """What became of one input.

    Attributes:
        probabilities: The answer of the last stage that was computed, or None if that has no exit.
        stage: The number of that stage.
        is_final: Whether the answer is confident enough, or no stage follows.
        onward: What the next stage takes.
        groups: The probability of each group of classes, if the answer is only sure of a group.
    """

    probabilities: np.ndarray | None
    stage: int
    is_final: bool
    onward: np.ndarray
    groups: np.ndarray | None = None


class StageModel:
    """One stage."""

    def __init__(self, settings: StageSettings, *, threads: int) -> None:
        """Load a stage.

        Args:
            settings: Which one.
            threads: Threads that compute a batch.

        Raises:
            ValueError: If the graph is not a stage.
        """
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        self.settings = settings
        self._session = onnxruntime.InferenceSession(
            settings.path, options, providers=["CPUExecutionProvider"]
        )
        given = {item.name: item for item in self._session.get_inputs()}
        taken_mask = given.pop(MASK, None)
        self.num_views = 0 if taken_mask is None else taken_mask.shape[1]
        names = [item.name for item in self._session.get_outputs()]
        answers = [name for name in names if name != FEATURES]
        if len(given) != 1 or len(answers) > 1:
            raise ValueError(
                f"{settings.path} is not a stage: inputs {list(given)}, outputs {names}"
            )
        (taken,) = given.values()
        if taken.type not in _DTYPES:
            raise ValueError(f"{settings.path} takes {taken.type}, which is not sent between tiers")
        self.name, self.dtype = taken.name, np.dtype(_DTYPES[taken.type])
        self.shape = tuple(item if isinstance(item, int) else 1 for item in taken.shape[1:])
        self._outputs = [*answers, *(name for name in names if name == FEATURES)]
        self._has_exit, self._has_features = bool(answers), FEATURES in names

    def run(
        self, batch: np.ndarray, masks: np.ndarray | None = None
    ) -> tuple[np.ndarray | None, np.ndarray]:
        """Return the probabilities, if it has an exit, and what the next stage takes.

        Args:
            batch: Inputs, the sample first.
            masks: (samples, views), for a graph that takes them. None if all views are there.
        """
        feeds: dict[str, Any] = {self.name: batch}
        if self.num_views:
            everything = np.ones((len(batch), self.num_views), dtype=np.float32)
            feeds[MASK] = everything if masks is None else masks
        outputs: list[Any] = list(self._session.run(self._outputs, feeds))
        onward = outputs[-1] if self._has_features else batch
        return (outputs[0] if self._has_exit else None), onward


Input = tuple[int, np.ndarray, np.ndarray | None, int, int | None]
"""The first stage, the values, their mask, how often thresholds were eased, and the last stage.

Only the views of several devices have a mask. Without a last stage, all stages are computed.
"""


class StageModels:
    """The stages of one tier, one after another."""

    def __init__(self, settings: Sequence[StageSettings], *, threads: int) -> None:
        """Load stages. The arguments and errors are those of `StageModel`."""
        self._models = {stage.number: StageModel(stage, threads=threads) for stage in settings}

    @property
    def first(self) -> int:
        """The number of the first stage that is computed here."""
        return min(self._models, default=0)

    def can_begin(self, stage: int) -> bool:
        """Return whether a stage is computed here."""
        return stage in self._models

    def example(self) -> Input:
        """Return an input of the first stage."""
        number = self.first
        first = self._models[number]
        return number, np.zeros(first.shape, dtype=first.dtype), None, 0, None

    def predict(self, inputs: Sequence[Any]) -> list[Any]:
        """Compute inputs together as far as each of them goes.

        Args:
            inputs: What to compute, each an `Input`.

        Returns:
            A `Result` for each of them.

        Raises:
            ValueError: If the shape of one does not fit its stage.
        """
        results: dict[int, Result] = {}
        current = {place: (stage, values) for place, (stage, values, *_) in enumerate(inputs)}
        for number, model in sorted(self._models.items()):
            places = [place for place, (stage, _) in current.items() if stage == number]
            if not places:
                continue
            wrong = [
                current[place][1].shape
                for place in places
                if current[place][1].shape != model.shape
            ]
            if wrong:
                raise ValueError(f"stage {number} takes {model.shape}, not {wrong[0]}")
            batch = np.stack([current[place][1] for place in places]).astype(
                model.dtype, copy=False
            )
            probabilities, onward = model.run(batch, _masks([inputs[place][2] for place in places]))
            for row, place in enumerate(places):
                answer = None if probabilities is None else probabilities[row]
                is_final = _is_final(answer, model.settings, level=inputs[place][3])
                groups = None if is_final else _groups(answer, model.settings)
                results[place] = Result(answer, number, is_final, onward[row], groups)
                del current[place]
                last = inputs[place][4]
                if not is_final and number + 1 in self._models and (last is None or number < last):
                    current[place] = (number + 1, onward[row])
        return [results[place] for place in range(len(inputs))]


def _is_final(answer: np.ndarray | None, settings: StageSettings, *, level: int) -> bool:
    threshold = settings.threshold
    if level and settings.eased:
        threshold = settings.eased[min(level, len(settings.eased)) - 1]
    # Not a number is never confident.
    return answer is not None and threshold is not None and bool(answer.max() >= threshold)


def _groups(answer: np.ndarray | None, settings: StageSettings) -> np.ndarray | None:
    if answer is None or not settings.groups:
        return None
    shares = np.array([answer[list(group)].sum() for group in settings.groups], dtype=np.float32)
    return shares if shares.max() >= settings.group_threshold else None


def _masks(masks: Sequence[np.ndarray | None]) -> np.ndarray | None:
    """Return the masks of a batch. A request without one has all views."""
    known = [mask for mask in masks if mask is not None]
    if not known:
        return None
    everything = np.ones_like(known[0])
    return np.stack([everything if mask is None else mask for mask in masks])
