"""Formats beside ONNX are compared with it before they are kept; other packages can add some."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.deploy.trained import exported
from workbench.deploy.formats import FORMATS, format_names
from workbench.deploy.predictor import Predictor
from workbench.foundation.errors import ArgumentError, RunError
from workbench.foundation.files import sha256_of
from workbench.runs.bundles.bundle_formats import check_format

PACKAGE = '''
import json
import numpy as np
import onnx
import torch
from onnx.reference import ReferenceEvaluator
from workbench.deploy.formats import Written
from workbench.foundation.errors import RunError

def write(folder, program):
    """Keep the weights as JSON, and compute with ONNX's own slow evaluator."""
    model = onnx.load(folder / "model.onnx")
    names = [one.name for one in model.graph.initializer]
    (folder / "mine.json").write_text(json.dumps(names))
    evaluator = ReferenceEvaluator(model)
    return Written(("mine.json",), lambda feeds: evaluator.run(None, dict(feeds))[0])

def wrong(folder, program):
    made = write(folder, program)
    return Written(made.files, lambda feeds: made.run(feeds) + 1e-3)

def lowered(folder, program):
    """Lower the program of torch, as ExecuTorch and LiteRT do: by torch.export."""
    if program is None:
        raise RunError("only a model of torch that takes arrays can be lowered")
    batch = {0: torch.export.Dim("batch")}
    shapes = ((batch,) * len(program.example),)
    made = torch.export.export(program.module, program.example, dynamic_shapes=shapes)
    torch.export.save(made, folder / "lowered.pt2")
    loaded = torch.export.load(folder / "lowered.pt2").module()
    run = lambda feeds: loaded(*map(torch.from_numpy, feeds.values())).detach().numpy()
    return Written(("lowered.pt2",), run)
'''


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Another package that is installed and registers three formats."""
    site = tmp_path / "site"
    (site / "mine-1.0.dist-info").mkdir(parents=True)
    (site / "mine_format.py").write_text(PACKAGE)
    (site / "mine-1.0.dist-info/METADATA").write_text(
        "Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n"
    )
    (site / "mine-1.0.dist-info/entry_points.txt").write_text(
        "[workbench.export_formats]\nmine = mine_format:write\nwrong = mine_format:wrong\n"
        "lowered = mine_format:lowered\n"
    )
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.setattr(FORMATS, "_scanned_at_s", None)
    yield
    monkeypatch.setattr(FORMATS, "_scanned_at_s", None)
    sys.modules.pop("mine_format", None)


def test_a_format_of_another_package_is_offered_written_and_verified(
    tmp_path: Path, package: None
) -> None:
    assert format_names()[:3] == ["onnx", "openvino", "executorch"]
    check_format("mine", has_weights=True)
    folder = tmp_path / "bundle"
    exported(folder, "mlp", "digits", format="mine", hidden_width=8)
    card = json.loads((folder / "card.json").read_text())
    assert card["files"]["mine.json"] == sha256_of(folder / "mine.json")
    assert card["guarantees"][-1].startswith(
        "mine: within 1e-05 of model.onnx for batches of 1 and 7"
    )


def test_a_format_that_answers_otherwise_is_refused_and_leaves_nothing(
    tmp_path: Path, package: None
) -> None:
    with pytest.raises(RunError, match=r"as wrong differs from the exported one by 0\.001"):
        exported(tmp_path / "bundle", "mlp", "digits", format="wrong", hidden_width=8)
    assert not (tmp_path / "bundle/mine.json").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "data", "values"),
    [
        ("forecaster", {"name": "series", "targets": ["load"], "lookback": 12, "horizon": 3}, {}),
        ("detector", {"name": "boxes"}, {"width": 4}),
    ],
)
def test_a_format_can_lower_the_program_of_torch(
    tmp_path: Path, package: None, model: str, data: Any, values: dict[str, Any]
) -> None:
    folder = tmp_path / "bundle"
    _, _, card = exported(folder, model, data, format="lowered", **values)
    assert card.files["lowered.pt2"] == sha256_of(folder / "lowered.pt2")
    assert card.guarantees[-1].startswith(
        "lowered: within 1e-05 of model.onnx for batches of 1 and 7"
    )


def test_a_format_is_notified_where_there_is_no_program_of_torch(
    tmp_path: Path, package: None
) -> None:
    with pytest.raises(RunError, match="only a model of torch that takes arrays"):
        exported(
            tmp_path / "bundle", "boosted_trees", "breast_cancer", format="lowered", num_trees=3
        )


def test_an_unknown_format_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(ArgumentError, match="'tflite' is not a format") as refused:
        check_format("tflite", has_weights=True)
    assert refused.value.allowed == "onnx, openvino, executorch, flower"


MODELS: list[tuple[str, Any, dict[str, Any]]] = [
    ("mlp", "breast_cancer", {"hidden_width": 8}),
    ("convnet", "digits", {"width": 8}),
    ("resnet", "digits", {"width": 4, "depth": 8}),
    ("detector", {"name": "boxes"}, {"width": 4}),
    ("unet", {"name": "masks"}, {"width": 4}),
    (
        "transformer",
        {"name": "text", "context": 16, "max_characters": 5000},
        {"width": 16, "num_layers": 1},
    ),
    ("lstm", {"name": "text", "context": 16, "max_characters": 5000}, {"hidden_width": 16}),
    ("forecaster", {"name": "series", "targets": ["load"], "lookback": 12, "horizon": 3}, {}),
]


@pytest.mark.slow
@pytest.mark.parametrize(("model", "data", "values"), MODELS, ids=[model for model, _, _ in MODELS])
def test_models_of_the_zoo_answer_the_same_in_openvino(
    tmp_path: Path, model: str, data: Any, values: dict[str, Any]
) -> None:
    openvino = pytest.importorskip("openvino")
    folder = tmp_path / "bundle"
    _, _, card = exported(folder, model, data, format="openvino", **values)
    assert {"openvino.xml", "openvino.bin"} <= card.files.keys()
    compiled = openvino.Core().compile_model(folder / "openvino.xml", "CPU")
    draws = np.random.default_rng(0)
    given = {
        one.name: draws.integers(0, 5, (7, *one.shape)).astype(one.dtype) for one in card.inputs
    }
    # Without the hint for 32-bit floats a processor may compute with fewer, so only the classes are
    # compared.
    predictor = Predictor.open(folder, threads=1)
    outputs, wanted = compiled(predictor.shaped(given))[0], predictor.run(given)
    assert outputs.shape == wanted.shape
    assert (outputs.argmax(axis=-1) == wanted.argmax(axis=-1)).mean() > 0.9


@pytest.mark.slow
@pytest.mark.parametrize("model", ["convnet", "transformer", "lstm"])
def test_models_of_the_zoo_answer_the_same_in_executorch(tmp_path: Path, model: str) -> None:
    runtime = pytest.importorskip("executorch.runtime")
    data, values = next((data, values) for name, data, values in MODELS if name == model)
    folder = tmp_path / "bundle"
    _, _, card = exported(folder, model, data, format="executorch", **values)
    assert "executorch.pte" in card.files
    method = runtime.Runtime.get().load_program(folder / "executorch.pte").load_method("forward")
    draws = np.random.default_rng(0)
    predictor = Predictor.open(folder, threads=1)
    for size in (1, 5, 64):
        given = {
            item.name: draws.integers(0, 5, (size, *item.shape)).astype(item.dtype)
            for item in card.inputs
        }
        tensors = [torch.from_numpy(values) for values in predictor.shaped(given).values()]
        wanted = predictor.run(given)
        difference = np.abs(method.execute(tensors)[0].numpy() - wanted).max()
        assert difference <= 1e-5 * max(1.0, float(np.abs(wanted).max()))


@pytest.mark.slow
def test_what_executorch_cannot_lower_is_refused_in_words(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="ExecuTorch takes models of torch whose inputs are arrays"):
        exported(
            tmp_path / "bundle", "boosted_trees", "breast_cancer", format="executorch", num_trees=3
        )
    assert not (tmp_path / "bundle/executorch.pte").exists()


@pytest.mark.slow
def test_what_openvino_cannot_read_is_refused_in_words(tmp_path: Path) -> None:
    pytest.importorskip("openvino")
    with pytest.raises(RunError, match="OpenVINO cannot read the model"):
        exported(
            tmp_path / "bundle", "boosted_trees", "breast_cancer", format="openvino", num_trees=3
        )
    assert not (tmp_path / "bundle/openvino.xml").exists()


def test_a_format_whose_package_is_missing_names_its_installation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "openvino", None)
    with pytest.raises(ImportError, match=r"\[openvino\]"):
        exported(tmp_path / "bundle", "mlp", "digits", format="openvino", hidden_width=8)
