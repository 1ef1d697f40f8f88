"""Trees that scikit-learn grew, as a torch module, whole or with early exits.

Growing needs all samples at once, so it is not an optimizer step. The result is a module like any
other, and makes the same predictions as the estimator.

Early exits need no training. The first trees of a boosted model are a smaller model, and the first
trees of a forest vote like all of them. Each part passes on its input and the sum so far.

A step of all rows in tensors waits for the deepest tree, and copies an index for each row and tree.
So predictions walk the trees row by row with scikit-learn's compiled code, which is far faster. All
trees are joined to one of scikit-learn's: its first splits ask for the number of the tree, which is
an extra feature. So each prediction is a single call.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from workbench.foundation.errors import ExperimentError
from workbench.models.fitted_estimator import add_loaded_buffers
from workbench.models.staged_fitting import MIN_PROBABILITY, Growth, fit_rounds

# How far the score of a class without training samples lies below all others: exp(-16) is nearly 0.
UNSEEN = 16.0
_NODE_VALUES = ("feature", "threshold", "missing_left", "value")
_NODE_BUFFERS = ("feature", "threshold", "missing_left", "left", "right", "value")
_BUFFERS = (*_NODE_BUFFERS, "roots", "start", "depth", "votes")
# A program that predicts so few rows once is done before the trees are joined for a fast walk.
_FEW_ROWS = 8
# Few rows are repeated for each tree and walked in one call. Of more rows, all walk tree by tree,
# so that the nodes of a tree stay in the processor's cache.
_MAX_REPEATED_NUMBERS = 200_000


class TreeEnsemble(nn.Module):
    """The sum of the leaf values of all trees. For votes, the logarithm of their shares."""

    feature: Tensor
    threshold: Tensor
    missing_left: Tensor
    left: Tensor
    right: Tensor
    value: Tensor
    roots: Tensor
    start: Tensor
    depth: Tensor
    votes: Tensor
    _walk: TreeWalk | None = None
    _has_walk = False
    _was_called = False

    def __init__(self) -> None:
        """Build a module without trees. Loading a state adds them."""
        super().__init__()
        self.num_exits = 0
        """Number of early exits in its export."""
        self.register_load_state_dict_pre_hook(_add_directions)
        add_loaded_buffers(self, _BUFFERS)

    @classmethod
    def of(
        cls, trees: Iterable[dict[str, np.ndarray]], start: np.ndarray, *, votes: bool
    ) -> TreeEnsemble:
        """Join trees into one module.

        Args:
            trees: Nodes of each tree: feature, threshold, left, right, and value with one number
                for each output. At a leaf, left is below 0. A missing input goes left at the nodes
                where missing_left is true. Without it, a missing input goes right everywhere.
            start: Added to the sum of each output.
            votes: Whether the sum is a share of votes, not a score.
        """
        listed = [
            {"missing_left": np.zeros(len(tree["feature"]), dtype=bool)} | tree for tree in trees
        ]
        sizes = [len(tree["feature"]) for tree in listed]
        roots = np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.int64)
        joined = {name: np.concatenate([tree[name] for tree in listed]) for name in _NODE_BUFFERS}
        own = np.arange(sum(sizes))
        first = np.repeat(roots, sizes)
        is_leaf = joined["left"] < 0
        # A leaf points to itself, so that further steps stay there.
        for name in ("left", "right"):
            joined[name] = np.where(is_leaf, own, joined[name].astype(np.int64) + first)
        joined["feature"] = np.where(is_leaf, 0, joined["feature"]).astype(np.int64)
        joined["missing_left"] = joined["missing_left"].astype(bool)
        ensemble = cls()
        buffers = joined | {"roots": roots, "votes": np.array(votes)}
        buffers["start"] = np.asarray(start, dtype=np.float32)
        buffers["depth"] = np.array(_depth(joined["left"], joined["right"], roots))
        for name, values in buffers.items():
            setattr(ensemble, name, torch.from_numpy(np.ascontiguousarray(values)))
        return ensemble

    def forward(self, inputs: Tensor) -> Tensor:
        """Map (batch, ...) numbers to (batch, num_outputs)."""
        walk = self._walk_for(inputs)
        if walk is None:
            total = self._stepped(inputs)
        else:
            rows = inputs.detach().flatten(1).numpy()
            total = torch.from_numpy((self.start.numpy() + walk(rows)).astype(np.float32))
        if not bool(self.votes):
            return total
        return total.clamp_min(MIN_PROBABILITY).log()

    def _walk_for(self, inputs: Tensor) -> TreeWalk | None:
        """Return the fast way to the leaves for some inputs, or None if there is none."""
        is_usual = inputs.dtype == torch.float32 and self.threshold.device.type == "cpu"
        if not is_usual or inputs.device.type != "cpu" or torch.compiler.is_compiling():
            return None
        if not self._was_called and len(inputs) <= _FEW_ROWS:
            self._was_called = True
            return None
        if not self._has_walk:
            self._walk, self._has_walk = walk_of(self), True
        return self._walk

    def forget_walk(self) -> None:
        """Forget what was derived from the nodes, after they were changed."""
        self._walk, self._has_walk, self._was_called = None, False, False

    def __getstate__(self) -> dict[str, Any]:
        """Return what is pickled: not what can be derived from it."""
        derived = {"_walk", "_has_walk", "_was_called"}
        return {name: value for name, value in self.__dict__.items() if name not in derived}

    def _stepped(self, inputs: Tensor) -> Tensor:
        """Return the sum of leaf values by steps that all rows and trees take together."""
        rows = inputs.flatten(1).double()
        node = self.roots.expand(len(rows), -1)
        has_missing = bool(rows.isnan().any())
        for _ in range(int(self.depth)):
            given = rows.gather(1, self.feature[node])
            goes_left = given <= self.threshold[node]
            if has_missing:
                goes_left |= given.isnan() & self.missing_left[node]
            node = torch.where(goes_left, self.left[node], self.right[node])
        total = self.start.double() + self.value[node].double().sum(dim=1)
        return total.to(self.value.dtype)


def _add_directions(
    model: TreeEnsemble, state: MutableMapping[str, Any], prefix: str, *_: Any
) -> None:
    """Add the direction of missing inputs to a state of an older release, where they went right."""
    model.forget_walk()
    if prefix + "feature" in state and prefix + "missing_left" not in state:
        state[prefix + "missing_left"] = torch.zeros(len(state[prefix + "feature"])).bool()


def grow_boosted(
    inputs: np.ndarray,
    targets: np.ndarray,
    *,
    num_classes: int | None,
    num_rounds: int,
    growth: Growth,
    **options: Any,
) -> Iterator[TreeEnsemble]:
    """Grow boosted trees, and yield all of them after each round.

    Args:
        inputs: See FittedConfiguration.grow.
        targets: A class number, or a number to predict, for each sample.
        num_classes: Number of classes, or None for a regression.
        num_rounds: Number of parts into which the work is divided, at most.
        growth: Where an earlier attempt was, and what to store for a later one.
        **options: Options of scikit-learn's HistGradientBoostingClassifier.

    Raises:
        ExperimentError: If a sample has more than one target.
    """
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

    if targets.ndim > 1:
        raise ExperimentError(
            "boosted trees predict one number for each sample, but the targets have the shape"
            f" {targets.shape}",
            field="model",
            next_step="Choose forest, or a network.",
        )
    kind: Any = HistGradientBoostingClassifier
    if num_classes is None:
        kind = HistGradientBoostingRegressor
    estimator: Any = kind(early_stopping=False, **options)
    for grown in fit_rounds(estimator, inputs, targets, num_rounds, growth):
        yield _of_boosted(grown, num_classes)


def side_by_side(ensembles: Sequence[TreeEnsemble]) -> TreeEnsemble:
    """Return the trees of several ensembles, each of which answers one number, as one ensemble.

    Args:
        ensembles: The ensembles, none of which counts votes.

    Returns:
        An ensemble with an output for each of them.
    """
    sizes = [len(ensemble.feature) for ensemble in ensembles]
    before = np.cumsum([0, *sizes[:-1]]).tolist()
    joined = TreeEnsemble()
    for name in _NODE_VALUES[:-1]:
        setattr(joined, name, torch.cat([getattr(ensemble, name) for ensemble in ensembles]))
    for name in ("left", "right", "roots"):
        moved = [
            getattr(ensemble, name) + first
            for ensemble, first in zip(ensembles, before, strict=True)
        ]
        setattr(joined, name, torch.cat(moved))
    joined.value = torch.block_diag(*[ensemble.value for ensemble in ensembles])
    joined.start = torch.cat([ensemble.start for ensemble in ensembles])
    joined.depth = torch.stack([ensemble.depth for ensemble in ensembles]).max()
    joined.votes = torch.tensor(False)
    return joined


def of_boosted_numbers(estimator: Any) -> TreeEnsemble:
    """Return the trees of a fitted HistGradientBoostingRegressor, as the sum of their leaves.

    Args:
        estimator: The estimator. If its loss has a link, the sum is on the scale of the link.
    """
    return _of_boosted(estimator, None)


def grow_voting(
    estimator: Literal["RandomForest", "ExtraTrees"],
    inputs: np.ndarray,
    targets: np.ndarray,
    *,
    num_classes: int | None,
    num_rounds: int,
    growth: Growth,
    **options: Any,
) -> Iterator[TreeEnsemble]:
    """Grow trees that vote, and yield all of them after each round.

    Args:
        estimator: The class of scikit-learn, without its task.
        inputs: See FittedConfiguration.grow.
        targets: A class number, or the numbers to predict, for each sample.
        num_classes: Number of classes, or None for a regression.
        num_rounds: Number of parts into which the work is divided, at most.
        growth: Where an earlier attempt was, and what to store for a later one.
        **options: Options of the class.
    """
    from sklearn import ensemble

    task = "Regressor" if num_classes is None else "Classifier"
    made: Any = getattr(ensemble, f"{estimator}{task}")(**options)
    for grown in fit_rounds(made, inputs, targets, num_rounds, growth):
        yield _of_voting(grown, num_classes)


def _of_boosted(estimator: Any, num_classes: int | None) -> TreeEnsemble:
    baseline = np.ravel(estimator._baseline_prediction)
    places = _places_of(estimator, num_classes)
    scored = places
    if num_classes is not None and len(places) == 2:
        scored = places[1:]  # for two classes scikit-learn keeps only the score of the second
    start = np.full(num_classes or 1, baseline.min() - UNSEEN)
    start[places] = 0.0
    start[scored] = baseline
    trees = []
    for of_iteration in estimator._predictors:
        for output, predictor in enumerate(of_iteration):
            nodes = predictor.nodes
            value = np.zeros((len(nodes), num_classes or 1), dtype=np.float32)
            value[:, scored[output]] = np.where(nodes["is_leaf"], nodes["value"], 0.0)
            trees.append(
                {
                    "feature": nodes["feature_idx"],
                    "threshold": nodes["num_threshold"].astype(np.float64),
                    "missing_left": nodes["missing_go_to_left"],
                    "left": np.where(nodes["is_leaf"], -1, nodes["left"].astype(np.int64)),
                    "right": nodes["right"].astype(np.int64),
                    "value": value,
                }
            )
    return TreeEnsemble.of(trees, start, votes=False)


def _places_of(estimator: Any, num_classes: int | None) -> np.ndarray:
    """Return the numbers of the classes that an estimator has seen, or 0 for a regression."""
    if num_classes is None:
        return np.zeros(1, dtype=int)
    return np.asarray(estimator.classes_).astype(int)


def _of_voting(estimator: Any, num_classes: int | None) -> TreeEnsemble:
    trees = []
    num_outputs = num_classes or estimator.n_outputs_
    for grown in estimator.estimators_:
        tree = grown.tree_
        if num_classes is None:
            value = tree.value[:, :, 0]
        else:
            votes = tree.value[:, 0, :]
            value = np.zeros((len(votes), num_classes))
            shares = votes / votes.sum(axis=1, keepdims=True)
            value[:, _places_of(estimator, num_classes)] = shares
        trees.append(
            {
                "feature": tree.feature,
                "threshold": tree.threshold,
                "missing_left": tree.missing_go_to_left,
                "left": tree.children_left,
                "right": tree.children_right,
                "value": (value / len(estimator.estimators_)).astype(np.float32),
            }
        )
    return TreeEnsemble.of(trees, np.zeros(num_outputs), votes=num_classes is not None)


def _depth(left: np.ndarray, right: np.ndarray, roots: np.ndarray) -> int:
    """Return the number of steps from the roots to the leaf that is furthest away."""
    depth = 0
    nodes = roots
    while True:
        inner = nodes[left[nodes] != nodes]
        if not len(inner):
            return depth
        nodes = np.concatenate([left[inner], right[inner]])
        depth += 1


class TreeExits:
    """Trees in parts, each followed by an exit.

    Attributes:
        trees: All trees.
        parts: The trees of each stage, which only sum up leaf values.
        num_outputs: Number of outputs of every exit.
    """

    def __init__(self, trees: TreeEnsemble, num_exits: int) -> None:
        """Cut trees into parts of equal numbers.

        Args:
            trees: The trees.
            num_exits: Number of early exits.

        Raises:
            ExperimentError: If there are too few trees.
        """
        self.trees = trees
        self.num_outputs = int(trees.value.shape[1])
        # For more than two classes, each round of boosting grows a tree for every class.
        per_round = 1
        if not bool(trees.votes) and self.num_outputs > 2:
            per_round = self.num_outputs
        num_rounds = len(trees.roots) // per_round
        check_number(num_exits, num_rounds)
        ends = [
            per_round * (num_rounds * (number + 1) // (num_exits + 1))
            for number in range(num_exits + 1)
        ]
        self.parts = [_part(trees, *both) for both in itertools.pairwise([0, *ends])]
        self._ends = ends

    @property
    def num_stages(self) -> int:
        """Number of stages: one more than early exits."""
        return len(self.parts)

    def factor(self, number: int) -> float:
        """Return the factor that turns the votes after a stage into a share of its trees."""
        return len(self.trees.roots) / self._ends[number]

    def stage(self, number: int, values: Tensor) -> Tensor:
        """Compute a stage from the output of the previous stage.

        The last stage returns the outputs of the model.
        """
        rows = values.flatten(1)
        total = torch.zeros(len(rows), self.num_outputs)
        if number:
            rows, total = rows[:, : -self.num_outputs], rows[:, -self.num_outputs :]
        total = total + self.parts[number](rows)
        if number == len(self.parts) - 1:
            return self._answer(number, total)
        return torch.cat([rows, total], 1)

    def exit_outputs(self, inputs: Tensor) -> list[Tensor]:
        """Return the outputs of each exit, including the last one."""
        outputs = []
        values = inputs
        for number in range(self.num_stages - 1):
            values = self.stage(number, values)
            outputs.append(self._answer(number, values[:, -self.num_outputs :]))
        return [*outputs, self.stage(self.num_stages - 1, values)]

    def _answer(self, number: int, total: Tensor) -> Tensor:
        if bool(self.trees.votes):
            return (total * self.factor(number)).clamp_min(MIN_PROBABILITY).log()
        return self.trees.start + total


def check_number(num_exits: int, num_rounds: int) -> None:
    """Check that there are enough places between trees for the exits.

    Args:
        num_exits: Number of early exits.
        num_rounds: Number of trees, or number of rounds if each round has a tree for each class.

    Raises:
        ExperimentError: If there are too few.
    """
    if num_exits >= num_rounds:
        raise ExperimentError(
            f"{num_rounds} trees have no places for {num_exits} early exits",
            field="exits",
            allowed=f"at most {num_rounds - 1}",
            next_step="Use fewer exits or more trees.",
        )


def _part(trees: TreeEnsemble, first: int, end: int) -> TreeEnsemble:
    """Return some of the trees, by number."""
    begins = [*trees.roots.tolist(), len(trees.feature)]
    low, high = begins[first], begins[end]
    part = TreeEnsemble()
    for name in _NODE_VALUES:
        setattr(part, name, getattr(trees, name)[low:high])
    for name in ("left", "right"):
        setattr(part, name, getattr(trees, name)[low:high] - low)
    part.roots = trees.roots[first:end] - low
    part.depth = trees.depth
    # The start of the sum and the logarithm of votes are added once, for the whole.
    part.start = torch.zeros_like(trees.start)
    part.votes = torch.tensor(False)
    return part


MAX_FACTOR = 20.0
"""The largest factor between the size of a row and the mean. The smallest is 1 divided by it."""
_MOST_SAMPLES = 10_000


def fit_sizes(inputs: np.ndarray, sizes: np.ndarray, seed: int) -> TreeEnsemble:
    """Fit the logarithm of sizes relative to their mean, by the deviance of the gamma distribution.

    Args:
        inputs: (samples, columns).
        sizes: (samples,): positive numbers or 0.
        seed: Seed of the samples that are used if there are many.
    """
    from sklearn.ensemble import HistGradientBoostingRegressor
    from threadpoolctl import threadpool_limits

    if len(sizes) > _MOST_SAMPLES:
        rows = np.random.default_rng(seed).choice(len(sizes), _MOST_SAMPLES, replace=False)
        inputs, sizes = inputs[rows], sizes[rows]
    sizes = np.maximum(sizes / sizes.mean(), 1e-3)
    grown = HistGradientBoostingRegressor(
        loss="gamma",
        max_iter=50,
        learning_rate=0.1,
        max_leaf_nodes=8,
        min_samples_leaf=max(20, len(sizes) // 50),
        l2_regularization=1.0,
        early_stopping=False,  # pyright: ignore[reportArgumentType]
        random_state=seed,
    )
    with threadpool_limits(limits=1):  # for so few rows, threads wait for each other
        return of_boosted_numbers(grown.fit(inputs, sizes))


def size_factors(trees: TreeEnsemble, inputs: np.ndarray) -> np.ndarray:
    """Return by which factor the size of each row differs from the mean, within `MAX_FACTOR`.

    Args:
        trees: What `fit_sizes` returned.
        inputs: (samples, columns).
    """
    with torch.inference_mode():
        logarithms = trees(torch.from_numpy(np.ascontiguousarray(inputs, dtype=np.float32)))
    bound = np.log(MAX_FACTOR)
    return np.exp(np.clip(logarithms.numpy()[:, 0].astype(np.float64), -bound, bound))


class Nodes(Protocol):
    """The trees of `TreeEnsemble`, of which each attribute is a tensor."""

    feature: Any
    threshold: Any
    missing_left: Any
    left: Any
    right: Any
    value: Any
    roots: Any


@dataclass(frozen=True)
class TreeWalk:
    """Trees that were joined, with what their leaves add.

    Attributes:
        joined: A tree of scikit-learn.
        value: What each node adds to each output.
        num_trees: Number of trees.
        num_features: Number of features that the trees look at, counted from the first.
    """

    joined: Any
    value: np.ndarray
    num_trees: int
    num_features: int

    def __call__(self, rows: np.ndarray) -> np.ndarray:
        """Return the sum of all leaves that rows come to, (rows, outputs) as float64.

        Args:
            rows: (rows, features) as float32. A missing number is NaN.
        """
        width = self.num_features + 1
        if len(rows) * self.num_trees * width <= _MAX_REPEATED_NUMBERS:
            return self._all_at_once(rows)
        given = np.empty((len(rows), width), dtype=np.float32)
        given[:, :-1] = rows[:, : self.num_features]
        total = np.zeros((len(rows), self.value.shape[1]))
        for number in range(self.num_trees):
            given[:, -1] = number
            total += self.value[self._leaves(given)]
        return total

    def _all_at_once(self, rows: np.ndarray) -> np.ndarray:
        given = np.empty((len(rows), self.num_trees, self.num_features + 1), dtype=np.float32)
        given[:, :, :-1] = rows[:, None, : self.num_features]
        given[:, :, -1] = np.arange(self.num_trees)
        leaves = self._leaves(given.reshape(-1, given.shape[-1]))
        added = self.value[leaves].reshape(len(rows), self.num_trees, -1)
        return added.sum(axis=1, dtype=np.float64)

    def _leaves(self, given: np.ndarray) -> np.ndarray:
        # The nodes that choose a tree come before all others.
        return self.joined.apply(given) - (self.num_trees - 1)


def walk_of(trees: Nodes) -> TreeWalk | None:
    """Return a fast walk through trees, or None if this release of scikit-learn has none.

    Args:
        trees: The trees, on the CPU.
    """
    try:
        from sklearn.tree._tree import NODE_DTYPE, Tree
    except ImportError:
        return None
    needed = {"left_child", "right_child", "feature", "threshold", "missing_go_to_left"}
    if not needed <= set(NODE_DTYPE.names or ()):
        return None
    left, right, feature, roots = (
        getattr(trees, name).numpy() for name in ("left", "right", "feature", "roots")
    )
    num_choices = len(roots) - 1
    num_features = int(feature.max(initial=0)) + 1
    nodes: Any = np.zeros(num_choices + len(left), dtype=NODE_DTYPE)
    choices, others = nodes[:num_choices], nodes[num_choices:]
    is_leaf = left == np.arange(len(left))
    others["left_child"] = np.where(is_leaf, -1, left + num_choices)
    others["right_child"] = np.where(is_leaf, -1, right + num_choices)
    others["feature"] = np.where(is_leaf, -2, feature)
    others["threshold"] = trees.threshold.numpy()
    others["missing_go_to_left"] = trees.missing_left.numpy()
    _add_choices(choices, num_choices + roots, num_features)
    joined = Tree(num_features + 1, np.ones(1, dtype=np.intp), 1)
    values = np.zeros((len(nodes), 1, 1))
    try:
        joined.__setstate__(
            {"max_depth": 0, "node_count": len(nodes), "nodes": nodes, "values": values}
        )
    except (TypeError, ValueError):
        return None
    return TreeWalk(joined, trees.value.numpy(), len(roots), num_features)


def _add_choices(choices: np.ndarray, roots: np.ndarray, feature: int) -> None:
    """Write the nodes that lead to the root of the tree whose number is a feature."""
    count = 0
    spans: list[tuple[int, int, int, str]] = [(0, len(roots), -1, "")]
    while spans:
        first, end, parent, side = spans.pop()
        place = int(roots[first])
        if end - first > 1:
            place, count = count, count + 1
            middle = (first + end) // 2
            choices[place]["feature"] = feature
            choices[place]["threshold"] = middle - 0.5
            spans += [
                (middle, end, place, "right_child"),
                (first, middle, place, "left_child"),
            ]
        if parent >= 0:
            choices[parent][side] = place
