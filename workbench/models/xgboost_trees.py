"""Grows trees with XGBoost, and reads them.

Source: https://xgboost.readthedocs.io/ and its JSON model format: a float32 value goes left if it
is below the float32 threshold.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import torch
import xgboost  # pyright: ignore[reportMissingImports]

from workbench.models.trees import TreeEnsemble

_NUM_COMPARED = 64


class Grower:
    """An XGBoost model that grows; see `library_trees.Booster`."""

    def __init__(
        self,
        rows: np.ndarray,
        targets: np.ndarray,
        *,
        num_classes: int | None,
        options: dict[str, Any],
    ) -> None:
        """Prepare the data.

        Args:
            rows: (samples, features) as float32.
            targets: Class numbers, or numbers.
            num_classes: Number of classes, all of which occur, or None for a regression.
            options: Options of XGBoost.
        """
        self._num_scores = 1 if num_classes in (None, 2) else int(num_classes)
        objective = {None: "reg:squarederror", 2: "binary:logistic"}.get(
            num_classes, "multi:softprob"
        )
        params = {"objective": objective, "tree_method": "hist", "verbosity": 0} | options
        if self._num_scores > 1:
            params["num_class"] = self._num_scores
        self._data = xgboost.QuantileDMatrix(
            rows, targets, nthread=options.get("nthread", 1), max_bin=options.get("max_bin", 256)
        )
        self._params = params
        self._booster = xgboost.Booster(params, [self._data])
        self._compared = rows[:_NUM_COMPARED]
        self._num_done = 0

    def extend(self, num_more: int) -> None:
        """Grow trees for some more rounds."""
        for _ in range(num_more):
            self._booster.update(self._data, self._num_done)
            self._num_done += 1

    def packed(self) -> bytes:
        """Return all trees. See `library_trees.Booster`."""
        return bytes(self._booster.save_raw("ubj"))

    def load(self, packed: bytes, num_rounds: int) -> None:
        """Take the trees of an earlier attempt. See `library_trees.Booster`."""
        self._booster.load_model(bytearray(packed))
        self._booster.set_param(self._params)
        self._num_done = num_rounds

    def scores(self, rows: np.ndarray, num_rounds: int) -> np.ndarray:
        """Return what the trees of the first rounds add up to, as (rows, scores)."""
        scores = self._booster.inplace_predict(
            rows, iteration_range=(0, num_rounds), predict_type="margin"
        )
        return np.asarray(scores, dtype=np.float64).reshape(len(rows), -1)

    def trees(self, num_rounds: int) -> tuple[list[dict[str, np.ndarray]], np.ndarray]:
        """Return the trees of the first rounds and what is added to each score."""
        document = json.loads(bytes(self._booster[:num_rounds].save_raw("json")))
        model = document["learner"]["gradient_booster"]["model"]
        trees = [
            _tree(tree, score, self._num_scores)
            for tree, score in zip(model["trees"], model["tree_info"], strict=True)
        ]
        # The form in which the start is stored depends on the release and the objective.
        joined = TreeEnsemble.of(trees, np.zeros(self._num_scores), votes=False)
        sums = joined(torch.from_numpy(self._compared)).numpy()
        differences = self.scores(self._compared, num_rounds) - sums
        return trees, np.median(differences, axis=0)


def _tree(stored: dict[str, Any], score: int, num_scores: int) -> dict[str, np.ndarray]:
    left = np.array(stored["left_children"], dtype=np.int64)
    conditions = np.array(stored["split_conditions"], dtype=np.float32)
    is_leaf = left < 0
    value = np.zeros((len(left), num_scores))
    value[is_leaf, score] = conditions[is_leaf]
    # Below a float32 is at most the float32 before it.
    threshold = np.nextafter(conditions, np.float32(-np.inf))
    return {
        "feature": np.array(stored["split_indices"], dtype=np.int64),
        "threshold": np.where(is_leaf, 0.0, threshold).astype(np.float64),
        "missing_left": np.array(stored["default_left"], dtype=bool),
        "left": left,
        "right": np.array(stored["right_children"], dtype=np.int64),
        "value": value,
    }
