"""A training begins with the weights of a file; what does not fit is named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from workbench.experiment import Experiment
from workbench.experiment.training_section import PretrainedWeights
from workbench.foundation.errors import DataError, ExperimentError
from workbench.foundation.events import Event, Noted
from workbench.models.adapters import build_model
from workbench.models.pretrained import load_pretrained
from workbench.sweeps.preflight import check
from workbench.training import checkpoint
from workbench.training.trained_model import read_model, write_weights
from workbench.training.trial import run_trial
from workbench.training.worker_task import TrialTask


class Net(nn.Module):
    """A body, a tied pair of layers, and a head."""

    def __init__(self, num_outputs: int = 2) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(30, 8), nn.BatchNorm1d(8), nn.Linear(8, 8))
        self.again = nn.Linear(8, 8)
        self.again.weight = self.body[2].weight
        self.head = nn.Linear(8, num_outputs)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.head(self.again(self.body(inputs)))


def build(config: dict[str, Any]) -> nn.Module:
    return Net()


def other_weights(num_outputs: int = 2) -> dict[str, torch.Tensor]:
    torch.manual_seed(99)
    return Net(num_outputs).state_dict()


def load(path: Path, **options: Any) -> nn.Module:
    torch.manual_seed(1)
    model = Net()
    load_pretrained(model, PretrainedWeights(path=str(path), **options))
    return model


@pytest.mark.parametrize(
    "kind", ["safetensors", "torch", "nested", "checkpoint", "folder", "parts", "compiled"]
)
def test_weights_are_read_from_every_usual_kind_of_file(kind: str, tmp_path: Path) -> None:
    weights = other_weights()
    untied = {name: value for name, value in weights.items() if name != "again.weight"}
    path = tmp_path / "net.pt"
    if kind == "torch":
        torch.save(weights, path)
    elif kind == "nested":
        torch.save({"epoch": 3, "state_dict": weights, "optimizer": {"lr": 0.1}}, path)
    elif kind == "checkpoint":
        path = Path(
            checkpoint.save(
                tmp_path, {"strategy": {"model": weights}, "step": 1}, last=True, best=False
            )
        )
    elif kind == "parts":
        save_file(dict(list(untied.items())[:3]), tmp_path / "a.safetensors")
        save_file(dict(list(untied.items())[3:]), tmp_path / "b.safetensors")
        names = {name: "ab"[index > 2] + ".safetensors" for index, name in enumerate(untied)}
        index = str({"weight_map": names}).replace("'", '"')
        (tmp_path / "model.safetensors.index.json").write_text(index)
        path = tmp_path
    elif kind == "compiled":
        torch.save({f"_orig_mod.{name}": value for name, value in weights.items()}, path)
    else:  # safetensors holds tied weights once
        path = tmp_path / "model.safetensors"
        save_file(untied, path)
        path = tmp_path if kind == "folder" else path
    for name, value in load(path).state_dict().items():
        assert torch.equal(value, weights[name]), name


def test_what_differs_is_named(tmp_path: Path) -> None:
    weights = other_weights(num_outputs=5)
    weights["extra"] = weights.pop("body.0.bias")
    torch.save(weights, tmp_path / "net.pt")
    with pytest.raises(ExperimentError) as refused:
        load(tmp_path / "net.pt")
    text = str(refused.value)
    assert "missing: body.0.bias" in text
    assert "unexpected: extra" in text
    assert "head.weight (5, 8) instead of (2, 8)" in text
    assert "strict: false" in text


def test_a_new_head_is_allowed_where_it_is_stated(tmp_path: Path) -> None:
    weights = other_weights(num_outputs=5)
    torch.save(weights, tmp_path / "net.pt")
    model = load(tmp_path / "net.pt", skip=["^head"])
    assert torch.equal(model.state_dict()["body.0.weight"], weights["body.0.weight"])
    torch.manual_seed(1)
    assert torch.equal(model.state_dict()["head.weight"], Net().state_dict()["head.weight"])
    del weights["body.0.bias"]
    torch.save(weights, tmp_path / "net.pt")
    model = load(tmp_path / "net.pt", strict=False)
    assert torch.equal(model.state_dict()["body.0.weight"], weights["body.0.weight"])


def test_prefixes_are_removed_added_and_recommended(tmp_path: Path) -> None:
    weights = other_weights()
    torch.save(
        {f"module.{name}": value for name, value in weights.items()}, tmp_path / "wrapped.pt"
    )
    torch.save(
        {
            name.removeprefix("body."): value
            for name, value in weights.items()
            if name.startswith("body.")
        },
        tmp_path / "body.pt",
    )
    with pytest.raises(ExperimentError, match=r'Set strip: "module\."'):
        load(tmp_path / "wrapped.pt")
    loaded = load(tmp_path / "wrapped.pt", strip="module.")
    assert torch.equal(loaded.state_dict()["head.weight"], weights["head.weight"])
    loaded = load(tmp_path / "body.pt", prefix="body.", skip=["^head", "^again.bias"])
    assert torch.equal(loaded.state_dict()["body.0.weight"], weights["body.0.weight"])
    with pytest.raises(ExperimentError, match="strip"):
        load(tmp_path / "body.pt", strip="model.")


def test_files_that_are_no_weights_are_refused_and_never_executed(tmp_path: Path) -> None:
    class Hostile:
        def __reduce__(self) -> Any:
            return Path.touch, (tmp_path / "executed",)

    torch.save({"state_dict": Hostile()}, tmp_path / "hostile.pt")
    torch.save({"epoch": 3}, tmp_path / "empty.pt")
    (tmp_path / "torn.safetensors").write_bytes(b"x" * 99)
    (tmp_path / "folder").mkdir()
    for name in ("hostile.pt", "empty.pt", "torn.safetensors", "folder", "absent.pt"):
        with pytest.raises(ExperimentError, match=r"training\.weights"):
            load(tmp_path / name)
    assert not (tmp_path / "executed").exists()
    save_file({"x": torch.zeros(1)}, tmp_path / "x.safetensors")
    with pytest.raises(ExperimentError, match="none of the"):
        load(tmp_path / "x.safetensors", strict=False)


def experiment(model: Any, **training: Any) -> Experiment:
    return Experiment(
        model=model,
        data="breast_cancer",
        objectives=[{"metric": "val_loss", "goal": "minimize"}],
        training={"epochs": 1, "lr": 1e-9, "weight_decay": 0.0, **training},
    )


def train(
    folder: Path, written: Experiment, events: list[Event] | None = None, **task: Any
) -> dict[str, Any]:
    ended = run_trial(
        TrialTask("run", 0, 0, written.model_dump_json(), folder=str(folder), **task),
        lambda event: events is not None and bool(events.append(event)),
    )
    assert ended.state == "complete", ended.traceback
    return checkpoint.read(folder / "checkpoints" / "last.pt")["strategy"]["model"]


def test_models_of_both_kinds_begin_with_them_and_are_exported_without_the_file(
    tmp_path: Path,
) -> None:
    torch.manual_seed(98)
    mlp = build_model("mlp", {}, input_shape=(30,), num_outputs=2).state_dict()
    for model, weights in ((f"{__name__}:build", other_weights()), ("mlp", mlp)):
        path = tmp_path / "weights.pt"
        torch.save(weights, path)
        written = experiment(model, weights=str(path))
        check(written)
        folder = tmp_path / model.partition(":")[2]
        events: list[Event] = []
        trained = train(folder, written, events)
        notes = [event.message for event in events if isinstance(event, Noted)]
        assert [f"{len(weights)} of {len(weights)} tensors" in note for note in notes] == [True]
        for name, value in weights.items():
            if not name.endswith(("running_mean", "running_var", "num_batches_tracked")):
                torch.testing.assert_close(trained[name], value, rtol=0, atol=1e-5)
        path.unlink()
        with pytest.raises(DataError, match="does not exist"):
            check(written)
        write_weights(folder / "checkpoints" / "best.pt", folder / "exported.safetensors")
        exported, _ = read_model(written, {}, folder / "exported.safetensors")
        assert torch.equal(next(exported.parameters()), next(iter(trained.values())))


def test_weights_are_searched_and_an_export_can_begin_another_training(tmp_path: Path) -> None:
    first = train(tmp_path / "first", experiment("mlp", lr=0.1))
    (tmp_path / "export").mkdir()
    write_weights(
        tmp_path / "first" / "checkpoints" / "last.pt", tmp_path / "export" / "weights.safetensors"
    )
    written = experiment("mlp").replace(
        search={"weights": {"choices": [str(tmp_path / "export"), None]}}
    )
    check(written)
    began = train(tmp_path / "second", written, params={"weights": str(tmp_path / "export")})
    anew = train(tmp_path / "third", written, params={"weights": None})
    for name, value in first.items():
        torch.testing.assert_close(began[name], value, rtol=0, atol=1e-5)
    assert any(not torch.allclose(anew[name], value, atol=1e-3) for name, value in first.items())
