"""Boosted trees that LightGBM, XGBoost or CatBoost grows, as a torch module.

While a model grows, its library predicts, which is fast. As soon as its weights are read, the trees
are converted, so that checkpoints, predictions and exports need no library. The module and the
library give the same answers.
"""

from __future__ import annotations

import importlib
import importlib.util
import pickle
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from workbench.foundation.errors import MissingDependencyError, install_command
from workbench.models.staged_fitting import TREES_RATIO, Growth
from workbench.models.trees import UNSEEN, TreeEnsemble


class Booster(Protocol):
    """Trees that a library has grown, and its way to add more.

    Scores are those of the library: one number, or one for each class; of two classes only the
    second has a score.
    """

    def extend(self, num_more: int) -> None:
        """Grow trees for some more rounds."""

    def packed(self) -> bytes:
        """Return all trees in a format of the library, for `load`."""
        ...

    def load(self, packed: bytes, num_rounds: int) -> None:
        """Take the trees of an earlier attempt. Nothing was grown yet."""

    def scores(self, rows: np.ndarray, num_rounds: int) -> np.ndarray:
        """Return what the trees of the first rounds add up to, as (rows, scores)."""
        ...

    def trees(self, num_rounds: int) -> tuple[list[dict[str, np.ndarray]], np.ndarray]:
        """Return the trees of the first rounds and what is added to each score.

        The trees are in the form of `TreeEnsemble.of`, with the scores as outputs.
        """
        ...


class _Several:
    """A booster for each of several numbers."""

    def __init__(self, boosters: Sequence[Booster]) -> None:
        self._boosters = boosters

    def extend(self, num_more: int) -> None:
        for booster in self._boosters:
            booster.extend(num_more)

    def packed(self) -> bytes:
        return pickle.dumps([booster.packed() for booster in self._boosters])

    def load(self, packed: bytes, num_rounds: int) -> None:
        for booster, of_one in zip(self._boosters, pickle.loads(packed), strict=True):
            booster.load(of_one, num_rounds)

    def scores(self, rows: np.ndarray, num_rounds: int) -> np.ndarray:
        return np.concatenate(
            [booster.scores(rows, num_rounds) for booster in self._boosters], axis=1
        )

    def trees(self, num_rounds: int) -> tuple[list[dict[str, np.ndarray]], np.ndarray]:
        trees, starts = [], []
        for place, booster in enumerate(self._boosters):
            of_one, start = booster.trees(num_rounds)
            starts.append(start)
            for tree in of_one:
                value = np.zeros((len(tree["value"]), len(self._boosters)))
                value[:, place : place + 1] = tree["value"]
                trees.append(tree | {"value": value})
        return trees, np.concatenate(starts)


class LibraryTrees(TreeEnsemble):
    """The trees of the first rounds of a booster."""

    def __init__(self, booster: Booster, num_rounds: int, places: np.ndarray, num_outputs: int):
        """Wrap them.

        Args:
            booster: The booster, which may grow further.
            num_rounds: How many rounds count.
            places: The output of each score.
            num_outputs: Number of outputs.
        """
        super().__init__()
        self._booster, self._num_rounds = booster, num_rounds
        self._places, self._num_outputs = places, num_outputs
        self._is_converted = False
        self._below_all = 0.0
        if len(places) < num_outputs:
            self._below_all = float(min(0.0, booster.trees(1)[1].min())) - UNSEEN
        self.register_state_dict_pre_hook(_convert)

    def forward(self, inputs: Tensor) -> Tensor:
        """Map (batch, ...) numbers to (batch, num_outputs)."""
        if self._is_converted:
            return super().forward(inputs)
        rows = inputs.detach().flatten(1).cpu().numpy()
        scores = self._booster.scores(rows, self._num_rounds)
        outputs = self._spread(scores, np.zeros(self._num_outputs))
        if len(self._places) < self._num_outputs:
            outputs[:, self._unseen()] = self._below_all
        return torch.from_numpy(outputs.astype(np.float32)).to(inputs.device)

    def convert(self) -> None:
        """Turn the trees of the library into those of the module."""
        if self._is_converted:
            return
        trees, start = self._booster.trees(self._num_rounds)
        spread = [
            tree | {"value": self._spread(tree["value"], np.zeros(self._num_outputs))}
            for tree in trees
        ]
        whole = np.zeros(self._num_outputs)
        whole[self._unseen()] = self._below_all
        joined = TreeEnsemble.of(
            [tree | {"value": tree["value"].astype(np.float32)} for tree in spread],
            self._spread(start[None], whole)[0],
            votes=False,
        )
        for name, values in joined.named_buffers():
            setattr(self, name, values)
        self.forget_walk()
        self._is_converted = True

    def _spread(self, scores: np.ndarray, others: np.ndarray) -> np.ndarray:
        outputs = np.tile(others, (len(scores), 1))
        outputs[:, self._places[-scores.shape[1] :]] = scores
        return outputs

    def _unseen(self) -> np.ndarray:
        return np.setdiff1d(np.arange(self._num_outputs), self._places)


def _convert(model: LibraryTrees, *_: Any) -> None:
    model.convert()


def grow_with_library(
    library: str,
    inputs: np.ndarray,
    targets: np.ndarray,
    *,
    num_classes: int | None,
    num_trees: int,
    num_rounds: int,
    options: Mapping[str, Any],
    growth: Growth,
) -> Iterator[TreeEnsemble]:
    """Grow boosted trees with a library, and yield all of them after each round.

    Rounds add more and more trees: the first ones tell the most about a configuration.

    Args:
        library: lightgbm, xgboost or catboost.
        inputs: See FittedConfiguration.grow.
        targets: A class number, or a number to predict, for each sample.
        num_classes: Number of classes, or None for a regression. Each of several numbers has its
            own trees.
        num_trees: Number of trees, for each class if there are many.
        num_rounds: Number of parts into which the work is divided, at most.
        options: Options of the library.
        growth: Where an earlier attempt was, and what to store for a later one.

    Raises:
        MissingDependencyError: If the library is not installed.
    """
    kind = _booster_type(library)
    places = np.zeros(1, dtype=int)
    if num_classes is not None:
        places, targets = np.unique(targets, return_inverse=True)
        if len(places) == 1:
            yield _certain(int(places[0]), num_classes)
            return
    seen = None if num_classes is None else len(places)
    rows = np.ascontiguousarray(inputs, dtype=np.float32)
    if targets.ndim > 1:
        places = np.arange(targets.shape[1])
        booster: Booster = _Several(
            [
                kind(rows, column, num_classes=None, options=dict(options))
                for column in np.ascontiguousarray(targets.T)
            ]
        )
    else:
        booster = kind(rows, targets, num_classes=seen, options=dict(options))
    done = 0
    if growth.state is not None:
        done = growth.state["trees"]
        booster.load(growth.state["booster"], done)
    growth.keep(lambda: {"booster": booster.packed(), "trees": done})
    for size in stage_sizes(num_trees, num_rounds):
        if size <= done:
            continue
        booster.extend(size - done)
        done = size
        yield LibraryTrees(booster, done, places, num_classes or len(places))


def stage_sizes(num_trees: int, num_stages: int) -> list[int]:
    """Return the number of trees after each stage: few at first, then more and more.

    Args:
        num_trees: The number after the last stage.
        num_stages: How many stages there are, at most.
    """
    wanted = [num_trees / TREES_RATIO ** (num_stages - 1 - stage) for stage in range(num_stages)]
    return sorted({max(1, round(size)) for size in wanted})


def num_rounds_of(model: Any, has_shared_trees: bool) -> int:
    """Return the rounds of boosting that a model consists of.

    Args:
        model: A `TreeEnsemble` of boosted trees.
        has_shared_trees: Whether a tree answers for all classes at once.
    """
    num_scores = int((model.value != 0).any(dim=0).sum())  # of two classes only one has a score
    per_round = max(1, num_scores)
    if has_shared_trees and bool(((model.value != 0).sum(dim=1) > 1).any()):
        per_round = 1
    return max(1, len(model.roots) // per_round)


def is_installed(library: str) -> bool:
    """Return whether a library of boosted trees is installed, without importing it."""
    return importlib.util.find_spec(library) is not None


def _booster_type(library: str) -> Any:
    if not is_installed(library):
        raise MissingDependencyError(
            f"{library} is not installed",
            field="model",
            next_step=f"Install it with: {install_command('tables')}",
        )
    module = importlib.import_module(f"workbench.models.{library}_trees")
    return module.Grower


def _certain(place: int, num_classes: int) -> TreeEnsemble:
    """Return a model that always answers with one class, the only one that it has seen."""
    start = np.full(num_classes, -UNSEEN)
    start[place] = 0.0
    return TreeEnsemble.of([leaf_only(np.zeros(num_classes, dtype=np.float32))], start, votes=False)


def leaf_only(value: np.ndarray) -> dict[str, np.ndarray]:
    """Return a tree without a split.

    Args:
        value: What it adds to each score.
    """
    nothing = np.zeros(1, dtype=np.int64)
    return {
        "feature": nothing,
        "threshold": np.zeros(1),
        "left": nothing - 1,
        "right": nothing - 1,
        "value": value[None],
    }
