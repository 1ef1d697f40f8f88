"""Foundation models for tables: the weights in a folder, and a tiny random TabICL."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from workbench.foundation.errors import ArgumentError, MissingDependencyError
from workbench.models import foundation_models
from workbench.models.configurations import FittedConfiguration, configure
from workbench.models.foundation_models import find_weights

RANDOM = np.random.default_rng(0)
INPUTS = RANDOM.normal(size=(60, 3)).astype(np.float32)


def write_random_weights(folder: Path) -> None:
    """Write a tiny TabICL with random weights for each task, as its publisher would."""
    module = pytest.importorskip("tabicl._model.tabicl", reason="needs the extra foundation")
    small: dict[str, Any] = {
        "embed_dim": 16,
        "col_num_blocks": 1,
        "col_nhead": 2,
        "col_num_inds": 4,
        "row_num_blocks": 1,
        "row_nhead": 2,
        "row_num_cls": 2,
        "icl_num_blocks": 1,
        "icl_nhead": 2,
    }
    torch.manual_seed(0)
    for part, max_classes in (("classifier", 10), ("regressor", 0)):
        config = small | {"max_classes": max_classes, "num_quantiles": 9}
        state = module.TabICL(**config).state_dict()
        torch.save({"config": config, "state_dict": state}, folder / f"tabicl-{part}-v2-tiny.ckpt")


@pytest.fixture
def any_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(foundation_models.importlib.util, "find_spec", lambda name: name)


@pytest.mark.usefixtures("any_package")
def test_weights_are_found_by_task_with_their_license(tmp_path: Path) -> None:
    for name in ("tabicl-classifier-v1.ckpt", "tabicl-classifier-v2.ckpt", "notes.txt"):
        (tmp_path / name).touch()
    weights = find_weights(tmp_path, "classification")
    assert (weights.path.name, weights.package) == ("tabicl-classifier-v2.ckpt", "tabicl")
    assert "There is no license next to them" in weights.note

    (tmp_path / "LICENSE").write_text("\n  BSD 3-Clause License\n\nCopyright")
    note = find_weights(str(tmp_path), "classification").note
    assert note.startswith("TabICL is tried with the weights tabicl-classifier-v2.ckpt.")
    assert note.endswith(": BSD 3-Clause License")
    with pytest.raises(ArgumentError, match=r"has no weights for a regression.*tabpfn-regressor"):
        find_weights(tmp_path, "regression")
    with pytest.raises(ArgumentError, match="is not a folder"):
        find_weights(tmp_path / "nowhere", "regression")

    (tmp_path / "tabpfn-v2-regressor.ckpt").touch()
    assert find_weights(tmp_path, "regression").package == "tabpfn"


def test_a_package_that_is_missing_is_an_error_with_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tabicl-classifier-v2.ckpt").touch()
    monkeypatch.setattr(foundation_models.importlib.util, "find_spec", lambda _: None)
    with pytest.raises(MissingDependencyError, match="TabICL is not installed") as caught:
        find_weights(tmp_path, "classification")
    assert "foundation" in str(caught.value.next_step)


@pytest.mark.parametrize(("part", "num_classes"), [("classifier", 3), ("regressor", None)])
def test_random_weights_predict_and_are_stored(
    part: str, num_classes: int | None, tmp_path: Path
) -> None:
    write_random_weights(tmp_path)
    targets = INPUTS[:, 0] if num_classes is None else np.arange(60) % 3
    path = tmp_path / f"tabicl-{part}-v2-tiny.ckpt"
    configuration = configure("foundation", {"weights_path": str(path), "num_estimators": 1})
    assert isinstance(configuration, FittedConfiguration)
    (model,) = configuration.grow(INPUTS, targets, num_classes=num_classes, num_rounds=9, seed=0)
    outputs = model(torch.from_numpy(INPUTS[:7]))
    assert outputs.shape == (7, num_classes or 1)
    assert torch.isfinite(outputs).all()

    empty = configuration.build(input_shape=(3,), num_outputs=3, vocabulary_size=None)
    empty.load_state_dict(model.state_dict())
    torch.testing.assert_close(empty(torch.from_numpy(INPUTS[:7])), outputs)

    path.unlink()
    with pytest.raises(ArgumentError, match="there are no weights of a foundation model"):
        list(configuration.grow(INPUTS, targets, num_classes=num_classes, num_rounds=1, seed=0))
