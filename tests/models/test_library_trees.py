"""Trees of other libraries: the module says what the library says, to the last sample."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch

from workbench.deploy.graph import Graph
from workbench.deploy.onnx_export import add_trees
from workbench.foundation.errors import MissingDependencyError
from workbench.models import library_trees
from workbench.models.configurations import FittedConfiguration, configure
from workbench.models.library_trees import LibraryTrees, stage_sizes
from workbench.models.trees import TreeEnsemble

LIBRARIES = ("lightgbm", "xgboost", "catboost")
TASKS = {"numbers": None, "two classes": 2, "three classes": 3, "a class without samples": 4}


def data(num_classes: int | None, *, has_missing: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return few distinct values, so that many lie exactly on a threshold."""
    random = np.random.default_rng(3)
    inputs = random.integers(-3, 4, (240, 4)).astype(np.float32) / np.float32(10)
    score = inputs[:, 0] + inputs[:, 1] * inputs[:, 2] + 0.1 * random.normal(size=240)
    targets = score.astype(np.float32)
    if num_classes is not None:
        cuts = np.quantile(score, np.linspace(0, 1, min(num_classes, 3) + 1)[1:-1])
        targets = np.digitize(score, cuts)
        if num_classes == 4:
            targets = np.array([0, 2, 3])[targets]
    if has_missing:
        inputs[::5, 0] = np.nan
    return inputs, targets


def grow(library: str, inputs: Any, targets: Any, num_classes: int | None, **values: Any) -> Any:
    pytest.importorskip(library)
    configuration = configure(library, {"num_trees": 12, "shrinkage": 0.3, **values})
    assert isinstance(configuration, FittedConfiguration)
    return list(configuration.grow(inputs, targets, num_classes=num_classes, num_rounds=3, seed=1))


def rows_like(inputs: np.ndarray) -> np.ndarray:
    """Return rows with values on thresholds, next to them, far outside and missing."""
    near = np.concatenate([np.nextafter(inputs, np.float32(np.inf)), inputs, inputs * 1e6])
    near[::7, 1] = np.nan
    near[:, 3][::11] = 0.0
    return near.astype(np.float32)


@pytest.mark.parametrize("has_missing", [False, True])
@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("library", LIBRARIES)
def test_the_module_and_its_graph_say_what_the_library_says(
    library: str, task: str, has_missing: bool
) -> None:
    num_classes = TASKS[task]
    inputs, targets = data(num_classes, has_missing=has_missing)
    rows = rows_like(inputs)
    *_, grown = grow(library, inputs, targets, num_classes)
    by_library = grown(torch.from_numpy(rows))
    loaded = TreeEnsemble()
    loaded.load_state_dict(grown.state_dict())

    torch.testing.assert_close(
        loaded(torch.from_numpy(rows)).float(), by_library, rtol=1e-5, atol=1e-5
    )
    graph = Graph()
    value = add_trees(graph, loaded, graph.input("rows", np.dtype("float32"), (4,)))
    model = graph.model(value, "scores", np.dtype("float32"), (num_classes or 1,))
    session = onnxruntime.InferenceSession(model.SerializeToString())
    np.testing.assert_allclose(
        session.run(None, {"rows": rows})[0], by_library, rtol=1e-5, atol=1e-5
    )


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_stage_keeps_its_trees_while_the_next_ones_are_grown(library: str) -> None:
    inputs, targets = data(3, has_missing=False)
    stages = grow(library, inputs, targets, 3)
    assert len(stages) == 3
    early = stages[0](torch.from_numpy(inputs))
    stages[0].convert()
    torch.testing.assert_close(
        stages[0](torch.from_numpy(inputs)).float(), early, rtol=1e-5, atol=1e-5
    )
    assert len(stages[0].roots) < len(stages[2].state_dict()["roots"])


@pytest.mark.parametrize("library", LIBRARIES)
def test_the_same_seed_grows_the_same_trees(library: str) -> None:
    inputs, targets = data(2, has_missing=False)
    first, second = (grow(library, inputs, targets, 2)[-1].state_dict() for _ in range(2))
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_a_fold_of_one_class_is_answered_with_it() -> None:
    inputs, _ = data(3, has_missing=False)
    grown = grow("lightgbm", inputs, np.ones(len(inputs), dtype=int), 3)
    assert grown[-1](torch.from_numpy(inputs)).softmax(1)[:, 1].min() > 0.999


def test_large_steps_of_many_classes_do_not_diverge() -> None:
    random, classes = np.random.default_rng(0), np.arange(640) % 32
    inputs = 5 * np.random.default_rng(9).normal(size=(32, 6))[classes]
    train, new = (inputs + random.normal(size=inputs.shape) for _ in range(2))
    wrong = random.random(640) < 0.03
    targets = np.where(wrong, random.integers(0, 32, 640), classes)
    values = {"num_trees": 20, "shrinkage": 0.3, "min_samples_leaf": 10}
    *_, grown = grow("lightgbm", train, targets, 32, **values)
    outputs = grown(torch.from_numpy(new.astype(np.float32)))
    assert torch.nn.functional.cross_entropy(outputs, torch.from_numpy(classes)) < 1.0


def test_stages_grow_and_end_with_all_trees() -> None:
    assert stage_sizes(1000, 8)[-1] == 1000
    assert stage_sizes(1000, 8) == sorted(stage_sizes(1000, 8))
    assert stage_sizes(1, 5) == [1]
    assert min(stage_sizes(3, 10)) == 1


def test_a_library_that_is_missing_is_named_with_the_command(monkeypatch: Any) -> None:
    monkeypatch.setattr(library_trees, "is_installed", lambda _: False)
    inputs, targets = data(None, has_missing=False)
    with pytest.raises(MissingDependencyError, match="catboost is not installed") as caught:
        grow("catboost", inputs, targets, None)
    assert "tables" in str(caught.value.next_step)


@pytest.mark.parametrize("library", LIBRARIES)
def test_each_of_several_numbers_has_trees_like_those_it_has_alone(library: str) -> None:
    inputs, targets = data(None, has_missing=False)
    both = np.stack([targets, targets * -3.0], axis=1)
    said = grow(library, inputs, both, None)[-1](torch.from_numpy(inputs))
    for place in (0, 1):
        alone = grow(library, inputs, both[:, place], None)[-1](torch.from_numpy(inputs))
        torch.testing.assert_close(said[:, place], alone[:, 0], rtol=1e-5, atol=1e-5)


def test_weights_of_an_older_release_send_missing_values_right(tmp_path: Path) -> None:
    inputs, targets = data(None, has_missing=True)
    state = grow("lightgbm", inputs, targets, None)[-1].state_dict()
    torch.save(
        {name: value for name, value in state.items() if name != "missing_left"}, tmp_path / "w"
    )
    loaded = TreeEnsemble()
    loaded.load_state_dict(torch.load(tmp_path / "w"))
    assert not loaded.missing_left.any()
    assert not isinstance(loaded, LibraryTrees)
