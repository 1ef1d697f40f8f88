"""Choose the models to try on a data set, their search space, and the configurations to start with.

The result is an ordinary experiment. The ranges suit small and medium data sets. The first
configurations are sound defaults of each family, so that even a short run tries all of them.
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np

from workbench.data.encoders import SampleKind
from workbench.experiment import Experiment
from workbench.experiment.automl import IS_LOG, NUM_TARGETS, STANDARDISES_TARGET
from workbench.experiment.domain import Float, Int
from workbench.experiment.metric_declarations import TASKS
from workbench.foundation.errors import (
    ArgumentError,
    MissingDependencyError,
    install_command,
)
from workbench.foundation.validation_errors import closest
from workbench.models.foundation_models import FoundationWeights, find_weights
from workbench.models.zoo import Family, TabularMLPConfiguration
from workbench.runs.automl.latency import LATENCY_LIMIT
from workbench.runs.automl.preparation import LearningData
from workbench.runs.automl.presets import DEFAULT, PRESET, PresetName
from workbench.runs.automl.scores import METRICS
from workbench.runs.automl.targets import Task

FAMILIES: dict[SampleKind, tuple[Family, ...]] = {
    # Trees first: if libraries take most of a short run to load, there is time for one family.
    "table": (
        "lightgbm",
        "linear",
        "catboost",
        "tabular_mlp",
        "xgboost",
        "extra_trees",
        "boosted_trees",
        "neighbours",
        "forest",
        "foundation",
    ),
    "images": ("convnet", "resnet"),
    "texts": ("mlp",),
}
_SAMPLES: dict[SampleKind, str] = {"table": "tables", "images": "images", "texts": "texts"}
NUM_ENSEMBLED = 40
FOUNDATION_WEIGHTS = "foundation_weights_path"
METRIC = "metric"
"""The option of the data that holds the metric to optimise, if the user chose one."""
MAX_TRIALS = 400
PLATEAU_TRIALS = 80
LIBRARIES: dict[Family, str] = {
    "lightgbm": "LightGBM",
    "catboost": "CatBoost",
    "xgboost": "XGBoost",
}
"""Families that need a package of their own, and how they are spelt."""
_FITTED: tuple[Family, ...] = (
    "linear",
    "neighbours",
    "boosted_trees",
    "tabular_mlp",
    "extra_trees",
    "forest",
    "foundation",
    *LIBRARIES,
)
_VOTING: tuple[Family, ...] = ("extra_trees", "forest")
# Trees try every threshold of every feature. Beyond this size a network is trained faster.
# Each prediction compares with all of them.
_MAX_NEIGHBOURS = 5_000
# A foundation model reads all of them for each prediction, which takes minutes on one core.
_MAX_FOUNDATION_SAMPLES = 10_000
_MAX_TREE_NUMBERS = 200_000_000
# A forest stores all of its leaves: with more data each leaf holds more samples, to stay below 300
# MB.
_MAX_LEAVES = 20_000
_STARTUP_TRIALS = 8
# Approximate number of steps of a training, and maximum number of epochs.
_STEPS_AND_EPOCHS: dict[SampleKind, tuple[int, int]] = {
    "images": (500, 25),
    "texts": (600, 40),
}

_MAX_THRESHOLDS = 255
_NUM_COUNTED_ROWS = 1_000


@dataclass(frozen=True)
class _TreeTime:
    """The time of a boosted tree for one output, on one core, in seconds.

    Fitted to measurements on 500 to 40,000 samples of 6 to 100 features. Features count by their
    different values: a tree tries as many thresholds.
    """

    per_feature: float
    per_sample: float
    per_number: float
    fixed: float = 1e-4

    def of(self, inputs: np.ndarray) -> float:
        """Return the time for (samples, features)."""
        thresholds = np.minimum(_num_distinct(inputs), _MAX_THRESHOLDS) / _MAX_THRESHOLDS
        return (
            self.fixed
            + self.per_feature * thresholds.sum()
            + self.per_sample * len(inputs)
            + self.per_number * inputs.size
        )


_TREE_TIMES: dict[Family, _TreeTime] = {
    "lightgbm": _TreeTime(per_feature=6.4e-5, per_sample=3.5e-8, per_number=1.0e-9),
    "xgboost": _TreeTime(per_feature=1.5e-4, per_sample=4.0e-8, per_number=1.2e-9),
    "catboost": _TreeTime(per_feature=7.0e-5, per_sample=7.0e-8, per_number=0.9e-9),
}
# What is fitted at once where no trial was ready in time.
_INSTANT_S, _INSTANT_SHRINKAGE = 1.0, 0.1
_MAX_INSTANT_TREES, _MIN_INSTANT_TREES = 200, 40
_INSTANT_TREES: dict[Family, float] = {
    "lightgbm": 1.0,
    "xgboost": 2.0,
    "catboost": 2.0,
    "boosted_trees": 3.0,
}
"""The trees to fit at once, the first that a run may try, and their time next to LightGBM's."""
_SLOW: tuple[Family, ...] = ("tabular_mlp", "foundation")
# A randomised tree compares each sample at each of its levels with some of the features.
_FOREST_NUMBER_S = 8e-9
_MAX_FOREST_TREES, _MIN_FOREST_TREES = 200, 30
# A random forest compares with all thresholds instead of one.
_THRESHOLDS_FACTOR = 3.0
# The passes of a network over the samples, and its time for a step, for a sample and for each unit
# of its layers. The calls of a step take 1.4 ms, which is most of it in small tables. Measured with
# 300 to 6,000 samples.
_MAX_PASSES, _MIN_PASSES = 100.0, 10.0
_EMBEDDING_WIDTH, _HIDDEN_WIDTH = 8, 128
_STEP_S, _SAMPLE_S, _WEIGHT_S = 1.4e-3, 1.2e-5, 1.0e-7
# A network differs most from trees, so an ensemble needs it: it may take longer.
_NETWORK_FACTOR = 2.0
_SIZED: dict[Family, str] = {
    "tabular_mlp": "tabular_mlp_num_passes",
    **{family: f"{family}_num_trees" for family in (*_VOTING, *LIBRARIES)},
}
"""The option of a family with the trees or passes for which a run has time."""
# The part of the time of a run that training one set of trees on all folds may take.
_FIT_PART = 0.08
_MIN_TREES, _MAX_TREES = 60, 1000
# With fewer samples in a fold, shallow trees of CatBoost are tried before deep ones. On eight
# tables of 3,000 to 13,000, deep ones lost 1.6 % less on average. On two of less than 2,000, they
# lost 1.6 % more.
_FEWEST_FOR_DEEP = 2_500
# With fewer samples in a fold, the first trees of LightGBM may have smaller leaves. On 26 tables of
# 650 to 4,000 rows, they lowered the loss on test rows by 1.3 % on average. At most, they lowered
# it by 9 %, or raised it by 0.7 %.
_FEWEST_FOR_LARGE_LEAVES, _SMALL_LEAF = 2_600, 10
# Shrinkage times trees: with less, boosting has not converged. The steps of LightGBM grow with the
# number of classes. On six tables of 4 to 32 classes, the best of 60 rounds of 0.1 lost 2 to 19 %
# less than of 0.27 on five, and 0.3 % more on one. XGBoost, which keeps leaves without evidence
# small, lost up to 44 % more.
_MIN_SHRINKAGE_SUM, _MIN_SUM_OF_CLASSES = 8.0, 3.0
_MIN_EPOCHS = 10
# Models of tables are fitted in at most so many rounds, after each of which they may be set aside.
_NUM_ROUNDS = 16

_DECAY = {"weight_decay": {"low": 1e-5, "high": 0.5, "log": True}}
_SEARCH: dict[Family, dict[str, Any]] = {
    "mlp": {
        "mlp_num_layers": {"low": 0, "high": 3},
        "mlp_hidden_width": {"choices": [32, 64, 128, 256]},
        "mlp_dropout": {"low": 0.0, "high": 0.5},
    },
    "neighbours": {"neighbours_num_neighbours": {"low": 2, "high": 100, "log": True}},
    "linear": {"linear_l2": {"low": 1e-3, "high": 1e3, "log": True}},
    "boosted_trees": {
        "boosted_trees_num_trees": {"low": 40, "high": 400, "log": True},
        "boosted_trees_shrinkage": {"low": 0.02, "high": 0.3, "log": True},
        "boosted_trees_max_leaves": {"low": 3, "high": 63, "log": True},
        "boosted_trees_min_samples_leaf": {"low": 2, "high": 50, "log": True},
        "boosted_trees_l2": {"low": 1e-3, "high": 10.0, "log": True},
    },
    "lightgbm": {
        "lightgbm_num_trees": {"choices": [1000]},
        "lightgbm_shrinkage": {"low": 0.02, "high": 0.2, "log": True},
        "lightgbm_max_leaves": {"low": 4, "high": 128, "log": True},
        "lightgbm_min_samples_leaf": {"low": 2, "high": 100, "log": True},
        "lightgbm_l2": {"low": 1e-3, "high": 10.0, "log": True},
        "lightgbm_features_per_tree": {"low": 0.4, "high": 1.0},
        "lightgbm_samples_per_tree": {"low": 0.5, "high": 1.0},
        "lightgbm_random_thresholds": {"choices": [False, True]},
    },
    "catboost": {
        "catboost_num_trees": {"choices": [1000]},
        "catboost_shrinkage": {"low": 0.02, "high": 0.2, "log": True},
        "catboost_depth": {"low": 3, "high": 8},
        "catboost_l2": {"low": 1.0, "high": 30.0, "log": True},
        "catboost_random_strength": {"low": 0.0, "high": 2.0},
        "catboost_features_per_split": {"low": 0.4, "high": 1.0},
    },
    "xgboost": {
        "xgboost_num_trees": {"choices": [1000]},
        "xgboost_shrinkage": {"low": 0.02, "high": 0.2, "log": True},
        "xgboost_max_depth": {"low": 3, "high": 10},
        "xgboost_min_child_weight": {"low": 0.1, "high": 20.0, "log": True},
        "xgboost_l2": {"low": 1e-2, "high": 10.0, "log": True},
        "xgboost_features_per_tree": {"low": 0.4, "high": 1.0},
        "xgboost_samples_per_tree": {"low": 0.5, "high": 1.0},
    },
    "tabular_mlp": {
        "tabular_mlp_num_passes": {"choices": [100.0]},
        "tabular_mlp_num_layers": {"low": 1, "high": 3},
        "tabular_mlp_hidden_width": {"choices": [64, 128, 256]},
        "tabular_mlp_numeric_embedding": {"choices": ["piecewise", "periodic"]},
        "tabular_mlp_dropout": {"low": 0.0, "high": 0.4},
        "tabular_mlp_step_size": {"low": 1e-3, "high": 2e-2, "log": True},
        "tabular_mlp_decay": {"low": 1e-4, "high": 0.1, "log": True},
    },
    "extra_trees": {
        "extra_trees_num_trees": {"choices": [200]},
        "extra_trees_min_samples_leaf": {"low": 1, "high": 10, "log": True},
        "extra_trees_features_per_split": {"low": 0.1, "high": 1.0},
    },
    "foundation": {"foundation_num_estimators": {"choices": [4]}},
    "forest": {
        "forest_num_trees": {"choices": [200]},
        "forest_min_samples_leaf": {"low": 1, "high": 10, "log": True},
        "forest_features_per_split": {"low": 0.1, "high": 0.6},
    },
    "convnet": {
        "convnet_width": {"choices": [16, 32, 64]},
        "convnet_num_blocks": {"low": 2, "high": 3},
        "convnet_convolutions_per_block": {"low": 1, "high": 2},
        "convnet_dropout": {"low": 0.0, "high": 0.4},
    },
    "resnet": {
        "resnet_depth": {"choices": [8, 14, 20]},
        "resnet_width": {"choices": [16, 32]},
        "resnet_dropout": {"low": 0.0, "high": 0.4},
    },
}
_LR = {"mlp": (3e-4, 3e-2), "images": (1e-3, 2e-2)}
_FIRST: dict[Family, list[dict[str, Any]]] = {
    "mlp": [
        {
            "mlp_num_layers": 0,
            "mlp_hidden_width": 64,
            "mlp_dropout": 0.0,
            "lr": 0.01,
            "weight_decay": 0.05,
        },
        {
            "mlp_num_layers": 2,
            "mlp_hidden_width": 128,
            "mlp_dropout": 0.2,
            "lr": 3e-3,
            "weight_decay": 0.01,
        },
    ],
    # Ready in milliseconds, so that even the shortest run has a result.
    "linear": [{"linear_l2": 1.0}],
    "neighbours": [{"neighbours_num_neighbours": 10}],
    "boosted_trees": [
        {
            "boosted_trees_num_trees": 100,
            "boosted_trees_shrinkage": 0.1,
            "boosted_trees_max_leaves": 31,
            "boosted_trees_min_samples_leaf": 20,
            "boosted_trees_l2": 1e-3,
        },
        {
            "boosted_trees_num_trees": 200,
            "boosted_trees_shrinkage": 0.05,
            "boosted_trees_max_leaves": 5,
            "boosted_trees_min_samples_leaf": 10,
            "boosted_trees_l2": 1.0,
        },
    ],
    "lightgbm": [
        {
            "lightgbm_num_trees": 1000,
            "lightgbm_shrinkage": 0.05,
            "lightgbm_max_leaves": 31,
            "lightgbm_min_samples_leaf": 20,
            "lightgbm_l2": 1e-3,
            "lightgbm_features_per_tree": 0.8,
            "lightgbm_samples_per_tree": 0.8,
            "lightgbm_random_thresholds": False,
        },
        {
            "lightgbm_num_trees": 1000,
            "lightgbm_shrinkage": 0.1,
            "lightgbm_max_leaves": 31,
            "lightgbm_min_samples_leaf": 20,
            "lightgbm_l2": 1e-3,
            "lightgbm_features_per_tree": 0.8,
            "lightgbm_samples_per_tree": 0.8,
            "lightgbm_random_thresholds": True,
        },
        {
            "lightgbm_num_trees": 1000,
            "lightgbm_shrinkage": 0.05,
            "lightgbm_max_leaves": 7,
            "lightgbm_min_samples_leaf": 10,
            "lightgbm_l2": 1.0,
            "lightgbm_features_per_tree": 0.6,
            "lightgbm_samples_per_tree": 0.8,
            "lightgbm_random_thresholds": False,
        },
    ],
    "catboost": [
        {
            "catboost_num_trees": 1000,
            "catboost_shrinkage": 0.08,
            "catboost_depth": 4,
            "catboost_l2": 5.0,
            "catboost_random_strength": 1.0,
            "catboost_features_per_split": 0.7,
        },
        {
            "catboost_num_trees": 1000,
            "catboost_shrinkage": 0.08,
            "catboost_depth": 6,
            "catboost_l2": 3.0,
            "catboost_random_strength": 1.0,
            "catboost_features_per_split": 1.0,
        },
    ],
    "xgboost": [
        {
            "xgboost_num_trees": 1000,
            "xgboost_shrinkage": 0.05,
            "xgboost_max_depth": 6,
            "xgboost_min_child_weight": 1.0,
            "xgboost_l2": 1.0,
            "xgboost_features_per_tree": 0.8,
            "xgboost_samples_per_tree": 0.8,
        },
    ],
    "tabular_mlp": [
        {
            "tabular_mlp_num_passes": 100.0,
            "tabular_mlp_num_layers": 2,
            "tabular_mlp_hidden_width": 128,
            "tabular_mlp_numeric_embedding": "piecewise",
            "tabular_mlp_dropout": 0.1,
            "tabular_mlp_step_size": 5e-3,
            "tabular_mlp_decay": 1e-3,
        },
        {
            "tabular_mlp_num_passes": 100.0,
            "tabular_mlp_num_layers": 2,
            "tabular_mlp_hidden_width": 128,
            "tabular_mlp_numeric_embedding": "periodic",
            "tabular_mlp_dropout": 0.2,
            "tabular_mlp_step_size": 2e-3,
            "tabular_mlp_decay": 1e-2,
        },
    ],
    "extra_trees": [
        {
            "extra_trees_num_trees": 200,
            "extra_trees_min_samples_leaf": 3,
            "extra_trees_features_per_split": 0.3,
        },
        {
            "extra_trees_num_trees": 200,
            "extra_trees_min_samples_leaf": 5,
            "extra_trees_features_per_split": 0.6,
        },
    ],
    "foundation": [{"foundation_num_estimators": 4}],
    "forest": [
        {"forest_num_trees": 200, "forest_min_samples_leaf": 3, "forest_features_per_split": 0.3},
    ],
    "convnet": [
        {
            "convnet_width": 32,
            "convnet_num_blocks": 2,
            "convnet_convolutions_per_block": 2,
            "convnet_dropout": 0.1,
            "lr": 5e-3,
            "weight_decay": 0.01,
        },
    ],
    "resnet": [
        {
            "resnet_depth": 8,
            "resnet_width": 16,
            "resnet_dropout": 0.1,
            "lr": 5e-3,
            "weight_decay": 0.01,
        },
    ],
}


def families_for(
    kind: SampleKind,
    learning: LearningData,
    asked: Sequence[str] = (),
    *,
    has_foundation: bool = False,
) -> tuple[Family, ...]:
    """Return the model families to try.

    Args:
        kind: The kind of sample.
        learning: The data, for its size.
        asked: As `check_families` returns them.
        has_foundation: Whether there are weights of a foundation model.
    """
    if asked:
        chosen: set[Any] = set(asked)
        return tuple(family for family in FAMILIES[kind] if family in chosen)
    left_out = set(FAMILIES[kind]) - _usual(kind, set())
    if has_foundation and len(learning.folds[0].train_targets) <= _MAX_FOUNDATION_SAMPLES:
        left_out.discard("foundation")
    if learning.num_targets > 1:
        left_out |= {"boosted_trees", "foundation"}  # they predict one number only
    size = learning.folds[0].train_inputs.size * math.sqrt(learning.num_outputs)
    if len(learning.folds[0].train_targets) > _MAX_NEIGHBOURS:
        left_out.add("neighbours")
    if size > _MAX_TREE_NUMBERS:
        left_out |= {"boosted_trees", *_VOTING}
    return tuple(family for family in FAMILIES[kind] if family not in left_out)


def check_families(kind: SampleKind, given: str | Sequence[str]) -> tuple[Family, ...]:
    """Return the families that a user chose, or () if all are to be tried.

    Args:
        kind: The kind of sample.
        given: Names as one text with commas or as a list. A minus before a name leaves it out.

    Raises:
        ArgumentError: If a name is unknown, or no family is left.
        MissingDependencyError: If the package of a chosen family is not installed.
    """
    listed = given.split(",") if isinstance(given, str) else list(given)
    names = [name.strip() for name in listed if name.strip()]
    known = FAMILIES[kind]
    for name in names:
        if name.removeprefix("-") not in known:
            allowed, meant = closest(name.removeprefix("-"), list(known))
            raise ArgumentError(
                f"{name.removeprefix('-')!r} is not a family for {_SAMPLES[kind]}",
                field="families",
                allowed=allowed,
                next_step=meant,
            )
    left_out = cast(
        "set[Family]", {name.removeprefix("-") for name in names if name.startswith("-")}
    )
    chosen = cast("set[Family]", {name for name in names if not name.startswith("-")})
    for family, title in LIBRARIES.items():
        if family not in chosen or not _is_missing(family):
            continue
        raise MissingDependencyError(
            f"{title} is not installed",
            field="families",
            next_step=f"Install it with: {install_command('tables')}",
        )
    if not chosen and left_out:
        chosen = set(_usual(kind, left_out))
    kept = tuple(sorted(set(known) & (chosen - left_out), key=known.index))
    if names and not kept:
        raise ArgumentError("no family is left to try", field="families", allowed=list(known))
    return kept


def _usual(kind: SampleKind, left_out: set[Any]) -> set[Family]:
    """Return the families that are installed and not left out, none of them twice."""
    usual: set[Family] = set(FAMILIES[kind]) - left_out
    usual -= {family for family in LIBRARIES if _is_missing(family)}
    usual.discard("foundation")  # whoever wants it brings its weights
    if "lightgbm" in usual:
        usual.discard("boosted_trees")  # scikit-learn grows the same trees, but takes longer
    return usual


def check_foundation(
    kind: SampleKind, task: Task, chosen: Sequence[Family], folder: Path | str | None
) -> FoundationWeights | None:
    """Return the weights of the foundation model to try, or None if there is none.

    Args:
        kind: The kind of sample.
        task: Whether classes or numbers are predicted.
        chosen: As `check_families` returns them.
        folder: The folder with the weights, or None.

    Raises:
        ArgumentError: If only one of the family and the folder is given, or the folder has no
            weights for the task.
        MissingDependencyError: If the package of the weights is not installed.
    """
    if folder is None:
        if "foundation" in chosen:
            raise ArgumentError(
                "the family foundation needs weights, which are never downloaded",
                field="foundation_weights",
                allowed="a folder with the weights of TabICL or TabPFN",
                next_step="Pass the folder: --foundation-weights FOLDER.",
            )
        return None
    if kind != "table":
        raise ArgumentError(
            f"foundation models are for tables, not for {_SAMPLES[kind]}",
            field="foundation_weights",
            next_step="Remove it.",
        )
    if chosen and "foundation" not in chosen:
        raise ArgumentError(
            "there are weights of a foundation model, but the families to try do not include it",
            field="families",
            next_step="Add foundation to them, or remove foundation_weights.",
        )
    return find_weights(folder, task)


def missing_note(kind: SampleKind) -> str | None:
    """Return a note about families whose packages are not installed, or None if there are none.

    Args:
        kind: The kind of sample.
    """
    missing = [LIBRARIES[family] for family in FAMILIES[kind] if _is_missing(family)]
    if not missing:
        return None
    verb = "is" if len(missing) == 1 else "are"
    return (
        f"{_in_words(missing)} {verb} not installed, so only other models are tried. Install"
        f" with: {install_command('tables')}"
    )


def _in_words(names: list[str]) -> str:
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


def _is_missing(family: Family) -> bool:
    return family in LIBRARIES and importlib.util.find_spec(family) is None


def experiment_for(
    kind: SampleKind,
    learning: LearningData,
    *,
    held_out: str,
    time_s: float,
    seed: int,
    name: str,
    task: Task = "classification",
    metric: str | None = None,
    families: Sequence[str] = (),
    foundation: FoundationWeights | None = None,
    preset: PresetName = DEFAULT,
    latency_limit_s: float | None = None,
) -> Experiment:
    """Create the experiment that tries the candidates.

    Args:
        kind: The kind of sample.
        learning: The data.
        held_out: SHA-256 of the object that holds the test part.
        time_s: Time that the user allows in seconds, for trials and to choose and test the model.
        seed: Seed of the run.
        name: Name of the experiment.
        task: Whether classes or numbers are predicted.
        metric: The optimised metric, or None for the loss.
        families: The families to try, as `check_families` returns them.
        foundation: The weights of the foundation model to try, as `check_foundation` returns them.
        preset: The preset of the run.
        latency_limit_s: How long the prediction of one row may take, or None for any time.
    """
    measure = None
    data_options: dict[str, Any] = {"held_out": held_out}
    if task == "regression":
        data_options[STANDARDISES_TARGET] = True
    if learning.num_targets > 1:
        data_options[NUM_TARGETS] = learning.num_targets
    if learning.is_log:
        data_options[IS_LOG] = True
    if metric is not None:
        measure = METRICS[task][metric]
        data_options[METRIC] = metric
    objective = {"metric": "val_loss", "goal": "minimize"}
    if measure is not None:
        objective = {"metric": measure.objective, "goal": measure.objective_goal}
    if preset != DEFAULT:
        data_options[PRESET] = preset
    if latency_limit_s is not None:
        data_options[LATENCY_LIMIT] = latency_limit_s
    families = families_for(kind, learning, families, has_foundation=foundation is not None)
    sizes: dict[Family, float] = {
        family: _size_in_time(family, learning, time_s) for family in families
    }
    num_train = len(learning.folds[0].train_targets)
    search = _search_for(kind, families, _min_samples_leaf(num_train), sizes, learning)
    if foundation is not None and "foundation" in families:
        search[FOUNDATION_WEIGHTS] = {
            "choices": [str(foundation.path)],
            "when": {"family": "foundation"},
        }
    num_folds = len(learning.folds)
    batch = _batch_for(num_train)
    epochs = _epochs_for(kind, num_train, batch)
    return Experiment(
        name=name,
        model="one_of",
        data={"name": learning, **data_options},
        metrics=_reported_metrics(task, objective["metric"].removeprefix("val_")),
        objectives=[objective],
        search=search,
        training={
            "epochs": epochs,
            "global_batch": batch,
            "reference_batch": batch,
            "checkpoint_every": epochs,
            "clip_norm": 1.0,
        },
        # Concurrent candidates use the hardware better than several workers for each.
        plan={"workers": 1},
        budget={"time": time_s, "trials": MAX_TRIALS, "plateau": PLATEAU_TRIALS},
        early_stop=_early_stop(num_folds, epochs),
        sampler={"name": "tpe", "options": {"multivariate": True, "group": True}},
        resources={"keep_best": NUM_ENSEMBLED * num_folds},
        repeats=num_folds,
        seed=seed,
    )


def first_configurations(experiment: Experiment, num_train: int = 0) -> list[dict[str, Any]]:
    """Return the configurations that are tried before the sampler proposes any.

    Args:
        experiment: As `experiment_for` returns it.
        num_train: Number of samples to learn from in a fold, or 0 if it is unknown. With many, deep
            trees come first. With few, leaves may be smaller.
    """
    families: Any = experiment.search.root["family"].values()
    listed = [[{"family": family, **params} for params in _FIRST[family]] for family in families]
    for family, configurations in zip(families, listed, strict=True):
        _suit(family, configurations, num_train)
        if family == "foundation":
            (path,) = cast("Any", experiment.search.root[FOUNDATION_WEIGHTS]).values()
            configurations[0][FOUNDATION_WEIGHTS] = path
        if family in _VOTING:
            least = experiment.search.root[f"{family}_min_samples_leaf"]
            assert isinstance(least, Int)
            for params in configurations:
                params[f"{family}_min_samples_leaf"] *= least.low
        if family in _SIZED:
            name = _SIZED[family]
            (size,) = cast("Any", experiment.search.root[name]).values()
            for params in configurations:
                params[name] = size
        if family in LIBRARIES:
            range_ = experiment.search.root[f"{family}_shrinkage"]
            assert isinstance(range_, Float)
            for params in configurations:
                shrinkage = max(params[f"{family}_shrinkage"], 2 * range_.low)
                params[f"{family}_shrinkage"] = min(shrinkage, range_.high)
    longest = max(len(configurations) for configurations in listed)
    # Families take turns, so that the first few configurations differ in kind.
    return [
        configurations[index]
        for index in range(longest)
        for configurations in listed
        if index < len(configurations)
    ]


def _suit(family: Family, configurations: list[dict[str, Any]], num_train: int) -> None:
    """Change the first configurations of a family so that they suit the number of samples."""
    if family == "catboost" and num_train >= _FEWEST_FOR_DEEP:
        configurations.reverse()
    if family == "lightgbm" and 0 < num_train < _FEWEST_FOR_LARGE_LEAVES:
        configurations[0]["lightgbm_min_samples_leaf"] = _SMALL_LEAF


def in_order_of_time(configurations: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return configurations in the order in which to train them if there may be time for few.

    Boosted trees come first, because they alone are good on most tables. What takes much longer
    than trees comes last.

    Args:
        configurations: As `first_configurations` returns them.
    """
    families = [params["family"] for params in configurations]
    trees = next((family for family in _INSTANT_TREES if family in families), None)
    first = families.index(trees) if trees is not None else 0
    places = sorted(
        range(len(configurations)), key=lambda place: (place != first, families[place] in _SLOW)
    )
    return [configurations[place] for place in places]


def instant_models(
    experiment: Experiment, inputs: np.ndarray, num_outputs: int
) -> dict[Family, dict[str, Any]]:
    """Return the families that are fitted in about a second, with their options.

    Args:
        experiment: As `experiment_for` returns it.
        inputs: The samples to learn from, as (samples, features).
        num_outputs: Number of classes, or of numbers to predict.
    """
    models: dict[Family, dict[str, Any]] = {"linear": {"l2": 1.0}}
    if (family := _instant_trees(experiment)) is not None:
        num_scores = num_outputs if num_outputs > 2 else 1
        tree_s = _INSTANT_TREES[family] * _TREE_TIMES["lightgbm"].of(inputs) * num_scores
        num_trees = int(min(_MAX_INSTANT_TREES, max(_MIN_INSTANT_TREES, _INSTANT_S / tree_s)))
        models[family] = {"num_trees": num_trees, "shrinkage": _INSTANT_SHRINKAGE}
    return models


def are_fitted(experiment: Experiment) -> bool:
    """Return whether all models of a run are fitted to all samples at once, as for tables.

    Args:
        experiment: As `experiment_for` returns it.
    """
    families: Any = experiment.search.root["family"].values()
    return set(families) <= set(_FITTED)


def _instant_trees(experiment: Experiment) -> Family | None:
    families: Any = experiment.search.root["family"].values()
    if experiment.data is not None and LATENCY_LIMIT in experiment.data.options:
        return None  # the fastest model is wanted
    return next((family for family in _INSTANT_TREES if family in families), None)


def _reported_metrics(task: Task, optimised: str) -> list[str]:
    """Return the metrics to report if the usual ones do not include the optimised one, or []."""
    usual = TASKS[task].metrics
    if optimised in ("loss", *usual):
        return []
    return [*usual, optimised]


def _early_stop(num_folds: int, epochs: int) -> dict[str, Any]:
    if num_folds > 1:  # a configuration that is worse on most folds is not trained on the others
        return {"pruner": "wilcoxon"}
    # Half of them are trained to the end: an ensemble needs several good models, not only the best.
    return {"pruner": "median", "grace": max(1, epochs // 4), "startup_trials": _STARTUP_TRIALS}


def _min_samples_leaf(num_train: int) -> int:
    return -(-num_train // _MAX_LEAVES)


def _size_in_time(family: Family, learning: LearningData, time_s: float) -> float:
    """Return the most trees or passes of a model, so that a run has time for several models."""
    fit_s = _FIT_PART * time_s / len(learning.folds)
    inputs = learning.folds[0].train_inputs
    if family == "tabular_mlp":
        passes = _NETWORK_FACTOR * fit_s / _pass_s(inputs, learning.num_outputs)
        return float(min(_MAX_PASSES, max(_MIN_PASSES, passes)))
    num_samples = len(inputs)
    num_features = inputs.size // num_samples
    if family in _VOTING:
        levels = max(1.0, math.log2(num_samples))
        features_per_split = max(
            1.0,
            num_features * max(params[f"{family}_features_per_split"] for params in _FIRST[family]),
        )
        tree_s = _FOREST_NUMBER_S * num_samples * levels * features_per_split
        if family == "forest":  # it sorts the samples to try every threshold
            tree_s *= _THRESHOLDS_FACTOR
        return int(min(_MAX_FOREST_TREES, max(_MIN_FOREST_TREES, fit_s / tree_s)))
    if family not in LIBRARIES:
        return _MAX_TREES
    num_scores = 1
    if learning.num_outputs > 2:
        num_scores = learning.num_outputs
    tree_s = _TREE_TIMES[family].of(inputs) * num_scores
    return int(min(_MAX_TREES, max(_MIN_TREES, fit_s / tree_s)))


def _pass_s(inputs: np.ndarray, num_outputs: int) -> float:
    """Return the time of a pass of a network over samples, on one core in seconds."""
    num_numbers = np.count_nonzero(_num_distinct(inputs) > 2)
    width = inputs.shape[1] + _EMBEDDING_WIDTH * num_numbers + _HIDDEN_WIDTH + num_outputs
    num_steps = len(inputs) / TabularMLPConfiguration.batch_for(len(inputs))
    return num_steps * _STEP_S + len(inputs) * (_SAMPLE_S + _WEIGHT_S * width)


def _num_distinct(inputs: np.ndarray) -> np.ndarray:
    """Return how many different values each feature has among some of the samples."""
    some = np.sort(inputs[:: max(1, len(inputs) // _NUM_COUNTED_ROWS)], axis=0)
    return 1 + np.count_nonzero(np.diff(some, axis=0), axis=0)


def _search_for(
    kind: SampleKind,
    families: tuple[Family, ...],
    min_samples_leaf: int,
    sizes: dict[Family, float],
    learning: LearningData,
) -> dict[str, Any]:
    search: dict[str, Any] = {"family": {"choices": list(families)}}
    for family in families:
        search |= {
            name: {**domain, "when": {"family": family}} for name, domain in _SEARCH[family].items()
        }
    for family in families:
        if family in _SIZED:
            search[_SIZED[family]] |= {"choices": [sizes[family]]}
    for family in LIBRARIES:
        if family not in families:
            continue
        shrinkage = search[f"{family}_shrinkage"]
        has_long_steps = family == "lightgbm" and len(learning.class_names) > 2
        sum_ = _MIN_SUM_OF_CLASSES if has_long_steps else _MIN_SHRINKAGE_SUM
        low = max(shrinkage["low"], sum_ / sizes[family])
        search[f"{family}_shrinkage"] = shrinkage | {"low": low, "high": 5 * low}
    for family in _VOTING:
        if family in families:
            search[f"{family}_min_samples_leaf"] |= {
                "low": min_samples_leaf,
                "high": 10 * min_samples_leaf,
            }
    trained = [family for family in families if family not in _FITTED]
    if not trained:
        return search
    low, high = _LR["images" if kind == "images" else "mlp"]
    steps = {"lr": {"low": low, "high": high, "log": True}, **_DECAY}
    return search | {
        name: {**domain, "when": {"family": trained}} for name, domain in steps.items()
    }


def _batch_for(num_train: int) -> int:
    """Return the samples of a step: fewer than the smallest fold has."""
    if num_train < 4_000:
        return max(1, min(32, num_train - 1))
    if num_train < 20_000:
        return 64
    if num_train < 100_000:
        return 128
    return 256


def _epochs_for(kind: SampleKind, num_train: int, batch: int) -> int:
    """Return the number of epochs: small data needs more of them for the same number of steps."""
    if kind == "table":
        return _NUM_ROUNDS
    steps, most = _STEPS_AND_EPOCHS[kind]
    return int(min(most, max(_MIN_EPOCHS, steps * batch / num_train)))
