"""Models of several inputs, or of more than one output, are compressed like all others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from safetensors.torch import save_file

from tests.deploy.test_several_inputs import HERE, Pair, Sides, Tagger
from workbench.data import load
from workbench.deploy.compression.compression import Compression
from workbench.deploy.compression.trained_base import make_base
from workbench.deploy.exported_bundle import Exported, add_trial
from workbench.deploy.image_files import answers_for
from workbench.deploy.onnx_export import OnnxModule, Positional, feeds_for, write_onnx
from workbench.deploy.predictor import Predictor
from workbench.experiment import Experiment
from workbench.foundation.errors import RunError

WAY = {"pruning": 0.0, "rank": 1.0, "epochs": 1, "lr": 1e-3, "distillation": 0.5}


def answered(name: str, module: Any, batch: Any) -> torch.Tensor:
    """Return what a module answers, called by hand."""
    if name == "tagger":
        return module(batch["input_ids"], batch["attention_mask"]).logits
    if name == "pair":
        return module(*batch[:2])["logits"]
    return module(image=batch["image"], sizes=batch["sizes"])["heads"][0]


def arrays_of(name: str, batch: Any) -> list[np.ndarray]:
    """Return the arrays that a graph takes, in its order."""
    if name == "tagger":
        return [batch["input_ids"], batch["attention_mask"]]
    if name == "pair":
        return [*batch[:2]]
    return [batch["image"]["right"], batch["image"]["left"], *batch["sizes"]]


def as_tensors(part: Any) -> Any:
    if isinstance(part, dict):
        return {name: as_tensors(value) for name, value in part.items()}
    if isinstance(part, tuple):
        return tuple(map(as_tensors, part))
    return torch.from_numpy(part)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "data", "kind", "quantiser", "names"),
    [
        ("tagger", "tags", Tagger, "dynamic", ["input_ids", "attention_mask"]),
        ("pair", "tuples", Pair, "static", ["inputs_0", "inputs_1"]),
        ("sides", "nested", Sides, "none", ["image.right", "image.left", "sizes.0", "sizes.1"]),
    ],
)
def test_a_model_of_several_inputs_is_compressed_and_exported(
    tmp_path: Path, *, name: str, data: str, kind: Any, quantiser: str, names: list[str]
) -> None:
    torch.manual_seed(0)
    options = {"name": f"{HERE}:{data}", "task": "classification", "num_outputs": 2}
    experiment = Experiment(
        name="several",
        model=f"{HERE}:{name}",
        data=options,
        objectives=[{"metric": "val_accuracy", "goal": "maximize"}],
    )
    module = kind().eval()
    save_file(module.state_dict(), tmp_path / "weights.safetensors")
    base = make_base(experiment, {}, tmp_path / "weights.safetensors", run_id="run", trial=0)
    assert experiment.data is not None
    datasets = load(experiment.data.name, experiment.data.options)
    batch, targets = datasets.validation.batch(np.arange(20))
    with torch.no_grad():
        known = answered(name, module, as_tensors(batch))
    assert base.metric == "val_accuracy"
    right = (known.argmax(dim=-1).numpy() == targets).mean()
    assert base.values["val_accuracy"] == pytest.approx(right)

    way = {**WAY, "quantiser": quantiser, "calibration": "minmax", "calibration_samples": 32}
    folder = tmp_path / "trial"
    folder.mkdir()
    values = Compression(base)(way, lambda **_: False, folder, 0)
    assert values is not None
    assert values["latency_ratio"] > 0
    compressed = OnnxModule((folder / "model.onnx").read_bytes())
    origin = Exported("several", "run", 0, "small", data, "classification", {}, 40)
    (tmp_path / "bundle").mkdir()
    card = add_trial(tmp_path / "bundle", compressed, datasets, experiment, origin)
    assert [taken.name for taken in card.inputs] == names
    session = onnxruntime.InferenceSession(folder / "model.onnx")
    some = datasets.train.batch(np.arange(5))[0]
    flat = arrays_of(name, some)
    feeds = {taken.name: value for taken, value in zip(session.get_inputs(), flat, strict=True)}
    outputs = torch.from_numpy(session.run(None, feeds)[0])
    predictor = Predictor.open(tmp_path / "bundle", threads=1)
    answers = answers_for(predictor, dict(zip(names, flat, strict=True)))
    assert answers.probabilities == pytest.approx(outputs.softmax(-1).numpy(), abs=1e-5)


@pytest.mark.slow
def test_samples_of_another_shape_are_refused_with_what_to_do(tmp_path: Path) -> None:
    example = (torch.ones(2, 4), torch.ones(2, 3))
    model = Positional(Pair().eval(), example)
    write_onnx(model, model.given(example), tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    assert list(feeds_for(session, (torch.ones(5, 4), torch.ones(5, 3)))) == [
        "inputs_0",
        "inputs_1",
    ]
    with pytest.raises(RunError, match=r"'inputs_1' has samples of shape \(2,\)") as refused:
        feeds_for(session, (torch.ones(5, 4), torch.ones(5, 2)))
    assert "pad" in str(refused.value)
