"""Grows trees with LightGBM, and reads them.

Source: https://lightgbm.readthedocs.io/ and the decisions in its `include/LightGBM/tree.h`: a value
goes left if it is not above the threshold.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import lightgbm  # pyright: ignore[reportMissingImports]
import numpy as np

from workbench.models.library_trees import leaf_only

_DEFAULT_LEFT, _MISSING_IS_NAN = 2, 8
"""Bits of the type of a decision."""

# What a leaf adds to the score of a class at most, before the shrinkage. Its Newton step is as many
# times the gradient as there are classes, and is longer still for a sample whose own class got a
# tiny probability. On tables of 7 to 32 classes, a shrinkage of 0.27 then raised the log loss to
# more than 1,000 within ten rounds. With this limit, it fell to that of smaller shrinkages.
_MAX_STEP = 4.0


class Grower:
    """A LightGBM model that grows; see `library_trees.Booster`."""

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
            options: Options of LightGBM.
        """
        self._num_scores = 1 if num_classes in (None, 2) else int(num_classes)
        objective = {None: "regression", 2: "binary"}.get(num_classes, "multiclass")
        params = {"objective": objective, "verbosity": -1, "deterministic": True} | options
        params |= {"force_col_wise": True, "feature_pre_filter": False}
        if self._num_scores > 1:
            params = {"max_delta_step": _MAX_STEP, "num_class": self._num_scores} | params
        self._num_threads = options.get("num_threads", 1)
        self._data = lightgbm.Dataset(rows, targets, params=params, free_raw_data=True)
        self._params = params
        self._booster: Any = None
        self._earlier: lightgbm.Booster | None = None

    def extend(self, num_more: int) -> None:
        """Grow trees for some more rounds."""
        if self._booster is None:
            self._booster = lightgbm.train(
                self._params,
                self._data,
                num_boost_round=1,
                init_model=self._earlier,
                keep_training_booster=True,
            )
            num_more -= 1
        for _ in range(num_more):
            self._booster.update()

    def packed(self) -> bytes:
        """Return all trees as text. See `library_trees.Booster`."""
        return self._booster.model_to_string(num_iteration=-1).encode()

    def load(self, packed: bytes, num_rounds: int) -> None:
        """Take the trees of an earlier attempt. See `library_trees.Booster`."""
        self._earlier = lightgbm.Booster(model_str=packed.decode())
        # With the same seed, new trees would see the samples and features of the first ones again.
        self._params = self._params | {"seed": int(self._params.get("seed", 0)) + num_rounds}

    def scores(self, rows: np.ndarray, num_rounds: int) -> np.ndarray:
        """Return what the trees of the first rounds add up to, as (rows, scores)."""
        scores = self._booster.predict(
            rows, num_iteration=num_rounds, raw_score=True, num_threads=self._num_threads
        )
        return np.asarray(scores).reshape(len(rows), -1)

    def trees(self, num_rounds: int) -> tuple[list[dict[str, np.ndarray]], np.ndarray]:
        """Return the trees of the first rounds; nothing is added to their sum."""
        text = self._booster.model_to_string(num_iteration=num_rounds)
        trees = [
            _tree(block, number % self._num_scores, self._num_scores)
            for number, block in enumerate(_blocks(text))
        ]
        return trees, np.zeros(self._num_scores)


def _blocks(text: str) -> Iterator[dict[str, str]]:
    """Yield the fields of each tree of a model as text."""
    body = text.partition("end of trees")[0]
    for block in body.split("\nTree=")[1:]:
        yield dict(line.split("=", 1) for line in block.splitlines() if "=" in line)


def _tree(block: dict[str, str], score: int, num_scores: int) -> dict[str, np.ndarray]:
    leaves = np.array(block["leaf_value"].split(), dtype=np.float64)
    value = np.zeros((len(leaves), num_scores))
    value[:, score] = leaves
    if len(leaves) == 1:
        return leaf_only(value[0])
    num_inner = len(leaves) - 1

    def numbers(name: str, dtype: Any = np.int64) -> np.ndarray:
        return np.array(block[name].split(), dtype=dtype)

    def child(name: str) -> np.ndarray:
        children = numbers(name)  # leaves are counted from -1 down
        return np.where(children < 0, num_inner + ~children, children)

    threshold, decision = numbers("threshold", np.float64), numbers("decision_type")
    # Where no value was missing in training, a missing one counts as 0.
    missing_left = np.where(
        decision & _MISSING_IS_NAN, (decision & _DEFAULT_LEFT) > 0, threshold >= 0.0
    )
    at_leaves = np.full(len(leaves), -1)
    return {
        "feature": np.concatenate([numbers("split_feature"), np.zeros(len(leaves), dtype=int)]),
        "threshold": np.concatenate([threshold, np.zeros(len(leaves))]),
        "missing_left": np.concatenate([missing_left, np.zeros(len(leaves), dtype=bool)]),
        "left": np.concatenate([child("left_child"), at_leaves]),
        "right": np.concatenate([child("right_child"), at_leaves]),
        "value": np.concatenate([np.zeros((num_inner, num_scores)), value]),
    }
