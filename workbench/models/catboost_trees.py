"""Grows trees with CatBoost, and reads them.

Source: https://catboost.ai/docs and its JSON model format: all nodes of a level share a split, and
a value goes right if it is above the border.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import catboost  # pyright: ignore[reportMissingImports]
import numpy as np


class Grower:
    """A CatBoost model that grows; see `library_trees.Booster`."""

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
            options: Options of CatBoost.
        """
        loss = {None: "RMSE", 2: "Logloss"}.get(num_classes, "MultiClass")
        self._num_scores = 1 if num_classes in (None, 2) else int(num_classes)
        self._options = {
            "loss_function": loss,
            "boosting_type": "Plain",  # the only kind that can be continued
            "allow_writing_files": False,
            "logging_level": "Silent",
        } | options
        self._num_threads = options.get("thread_count", 1)
        self._data = catboost.Pool(rows, targets, thread_count=self._num_threads)
        self._data.quantize(border_count=options.get("border_count", 254))
        self._model: Any = None

    def extend(self, num_more: int) -> None:
        """Grow trees for some more rounds."""
        grown = catboost.CatBoost(self._options | {"iterations": num_more})
        grown.fit(self._data, init_model=self._model)
        self._model = grown

    def packed(self) -> bytes:
        """Return all trees. See `library_trees.Booster`."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "model.cbm")
            self._model.save_model(str(path))
            return path.read_bytes()

    def load(self, packed: bytes, num_rounds: int) -> None:
        """Take the trees of an earlier attempt. See `library_trees.Booster`."""
        self._model = catboost.CatBoost().load_model(blob=packed)

    def scores(self, rows: np.ndarray, num_rounds: int) -> np.ndarray:
        """Return what the trees of the first rounds add up to, as (rows, scores)."""
        scores = self._model.predict(
            rows,
            prediction_type="RawFormulaVal",
            ntree_end=num_rounds,
            thread_count=self._num_threads,
        )
        return np.asarray(scores, dtype=np.float64).reshape(len(rows), -1)

    def trees(self, num_rounds: int) -> tuple[list[dict[str, np.ndarray]], np.ndarray]:
        """Return the trees of the first rounds and what is added to each score."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "model.json")
            self._model.save_model(str(path), format="json")
            document = json.loads(path.read_text(encoding="utf-8"))
        scale, start = document["scale_and_bias"]
        features = document["features_info"]["float_features"]
        trees = [
            _tree(tree, features, self._num_scores, scale)
            for tree in document["oblivious_trees"][:num_rounds]
        ]
        return trees, np.broadcast_to(np.asarray(start, dtype=np.float64), (self._num_scores,))


def _tree(
    stored: dict[str, Any], features: list[dict[str, Any]], num_scores: int, scale: float
) -> dict[str, np.ndarray]:
    leaves = np.asarray(stored["leaf_values"], dtype=np.float64).reshape(-1, num_scores) * scale
    num_inner = len(leaves) - 1
    nodes = np.arange(2 * len(leaves) - 1)
    is_inner = nodes < num_inner
    # The first split decides the last bit of the number of the leaf.
    splits = list(reversed(stored.get("splits") or []))
    described = [features[split["float_feature_index"]] for split in splits]
    borders = [np.float32(split["border"]) for split in splits]
    missing_left = [feature.get("nan_value_treatment") != "AsTrue" for feature in described]
    level = np.floor(np.log2(nodes[:num_inner] + 1)).astype(int)

    def at_nodes(values: list[Any], dtype: Any) -> np.ndarray:
        spread = np.zeros(len(nodes), dtype=dtype)
        spread[:num_inner] = np.array(values, dtype=dtype)[level]
        return spread

    return {
        "feature": at_nodes([feature["flat_feature_index"] for feature in described], np.int64),
        "threshold": at_nodes(borders, np.float64),
        "missing_left": at_nodes(missing_left, bool),
        "left": np.where(is_inner, 2 * nodes + 1, -1),
        "right": np.where(is_inner, 2 * nodes + 2, -1),
        "value": np.concatenate([np.zeros((num_inner, num_scores)), leaves]),
    }
