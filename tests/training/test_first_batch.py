"""What does not fit together ends a trial before its first step, and `check` says the same."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import Dataset, TensorDataset, random_split

from workbench.experiment import Experiment
from workbench.foundation.errors import DataError, WorkbenchError
from workbench.foundation.events import Noted, TrialEnded, TrialReported
from workbench.training.probes.first_step import try_first_steps
from workbench.training.trial import run_trial
from workbench.training.worker_task import TrialTask

NUM_TRAIN, NUM_VALIDATION = 40, 20
GENERATOR = torch.Generator().manual_seed(0)
INPUTS = torch.randn(NUM_TRAIN + NUM_VALIDATION, 6, generator=GENERATOR)
CLASSES = (INPUTS[:, 0] > 0).long() + (INPUTS[:, 1] > 0).long()
NUMBERS = INPUTS[:, :4].sin()


class Net(nn.Module):
    """One layer whose outputs take another form."""

    def __init__(self, num_outputs: int, form: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.layer, self.form = nn.Linear(6, num_outputs), form

    def forward(self, inputs: Tensor) -> Any:
        return self.form(self.layer(inputs))


class Lazy(Dataset):
    """Samples whose targets are known only when they are read."""

    def __init__(self, inputs: Tensor, targets: Tensor) -> None:
        self.inputs, self.targets = inputs, targets

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return self.inputs[index], self.targets[index]


def experiment(
    targets: Any,
    *,
    num_outputs: int,
    task: str = "classification",
    num_classes: int = 3,
    form: Callable[[Tensor], Any] = lambda outputs: outputs,
    kind: Any = TensorDataset,
    **fields: Any,
) -> Experiment:
    def load(options: Any) -> Any:
        return (
            kind(INPUTS[:NUM_TRAIN], targets[:NUM_TRAIN]),
            kind(INPUTS[NUM_TRAIN:], targets[NUM_TRAIN:]),
        )

    def build(config: Any) -> nn.Module:
        return Net(num_outputs, form)

    data = {"name": load, "task": task} | (
        {} if task == "regression" else {"num_outputs": num_classes}
    )
    return Experiment(
        **{
            "model": build,
            "data": data,
            "objectives": [{"metric": "val_loss", "goal": "minimize"}],
            "training": {"epochs": 1, "global_batch": 10, "lr": 0.05},
            "plan": {"micro_batch": 10},
        }
        | fields
    )


def train(
    folder: Path, asked: Experiment, events: list[Any] | None = None
) -> tuple[TrialEnded, int]:
    """Return how a trial ended, and how many reports it made; keep its events."""
    objects = folder / "objects"
    objects.mkdir()
    for sha256, payload in asked.payloads().items():
        (objects / sha256).write_bytes(payload)
    reports: list[Any] = [] if events is None else events

    def report(event: Any) -> bool:
        reports.append(event)
        return False

    task = TrialTask(
        str(folder),
        0,
        0,
        asked.model_dump_json(),
        objects=str(objects),
        folder=str(folder / "trial"),
    )
    ended = run_trial(task, report)
    return ended, sum(isinstance(event, TrialReported) for event in reports)


def noisy(outputs: Tensor) -> Tensor:
    return outputs + torch.rand_like(outputs)


def over_the_samples(outputs: Tensor) -> Tensor:
    return outputs - outputs.mean(dim=0)


@pytest.mark.parametrize(
    ("form", "is_noted"),
    [
        (nn.Softmax(dim=0), True),
        (over_the_samples, True),
        (lambda outputs: outputs.flip(0).cumsum(0), True),
        (nn.Softmax(dim=1), False),
        (nn.BatchNorm1d(3), False),
        (nn.Dropout(0.5), False),
        (noisy, False),
    ],
)
def test_answers_that_depend_on_other_samples_are_noted_once(
    form: Any, is_noted: bool, tmp_path: Path
) -> None:
    events: list[Any] = []
    asked = experiment(CLASSES, num_outputs=3, form=form)
    assert train(tmp_path, asked, events)[0].state == "complete"
    notes = [event.message for event in events if isinstance(event, Noted)]
    assert len(notes) == is_noted
    assert all("depends on the other samples in its batch" in note for note in notes)


def test_a_forward_pass_without_gradients_ends_with_advice(tmp_path: Path) -> None:
    ended, num_reports = train(tmp_path, experiment(CLASSES, num_outputs=3, form=Tensor.detach))
    assert (ended.state, num_reports) == ("failed", 0)
    assert "model: the loss does not depend on any trained parameter" in (ended.message or "")
    assert "Remove torch.no_grad" in (ended.message or "")


@pytest.mark.parametrize(
    ("batch", "micro_batch", "is_alone"),
    [(13, 13, True), (39, 39, True), (14, 14, False), (12, 4, False), (10, 1, True)],
)
def test_a_single_sample_is_refused_where_batch_normalisation_needs_two(
    tmp_path: Path, batch: int, micro_batch: int, is_alone: bool
) -> None:
    # 40 samples: the last step of batches of 13 has one.
    asked = experiment(
        CLASSES,
        num_outputs=3,
        form=nn.BatchNorm1d(3),
        training={"epochs": 1, "global_batch": batch, "lr": 0.05},
        plan={"micro_batch": micro_batch},
    )
    ended, num_reports = train(tmp_path, asked)
    assert ended.state == ("failed" if is_alone else "complete"), ended.message
    if is_alone:
        assert num_reports == 0
        assert ended.message is not None
        assert (
            f"with 40 samples in batches of {batch}, a worker gets a single sample" in ended.message
        )
        assert "training.global_batch" in ended.message


def test_a_single_image_has_many_values_of_a_channel(tmp_path: Path) -> None:
    def form(outputs: Tensor) -> Tensor:
        return images(outputs.unflatten(1, (3, 2))).mean(2)

    images = nn.BatchNorm1d(3)
    asked = experiment(
        CLASSES,
        num_outputs=6,
        form=form,
        training={"epochs": 1, "global_batch": 13, "lr": 0.05},
        plan={"micro_batch": 13},
    )
    assert train(tmp_path, asked)[0].state == "complete"


def broken(values: Tensor, value: float, place: int) -> Tensor:
    """Return values with another one in a place that the first batches do not reach."""
    values = values.clone()
    values[place] = value
    return values


def squared(outputs: Tensor, targets: Tensor) -> Tensor:
    return (outputs - targets).square().mean()


def share_right(outputs: Tensor, targets: Tensor) -> Tensor:
    return (outputs.argmax(1) == targets).float().mean()


def share_right_of_numpy(outputs: Tensor, targets: Tensor) -> float:
    return float((outputs.argmax(1).numpy() == targets.numpy()).mean())


class MeanError:
    """A metric of the whole set."""

    def __init__(self) -> None:
        self.errors: list[Tensor] = []

    def update(self, outputs: Tensor, targets: Tensor) -> None:
        self.errors.append((outputs - targets).abs())

    def compute(self) -> Tensor:
        return torch.cat(self.errors).mean()


REFUSED: dict[str, tuple[dict[str, Any], str, str]] = {
    "transposed": (
        {
            "targets": NUMBERS,
            "num_outputs": 4,
            "task": "regression",
            "form": lambda outputs: outputs.T,
        },
        "model",
        r"shape \(4, 10\).*shape \(10, 4\)",
    ),
    "transposed, as many samples as outputs": (
        {
            "targets": NUMBERS,
            "num_outputs": 4,
            "task": "regression",
            "form": lambda outputs: outputs.T,
            "plan": {"micro_batch": 4},
            "training": {"epochs": 1, "global_batch": 4},
        },
        "model",
        r"shape \(4, 3\).*shape \(3, 4\)",
    ),
    "classes in one of two dimensions": (
        {
            "targets": torch.zeros(60, 3, dtype=torch.long),
            "num_outputs": 9,
            "form": lambda outputs: outputs.reshape(-1, 3, 3),
        },
        "model",
        "in two ways",
    ),
    "labels from 1": ({"targets": CLASSES + 1, "num_outputs": 3}, "data", "Subtract 1"),
    "one wrong label": ({"targets": broken(CLASSES, 7, 33), "num_outputs": 3}, "data", "sample 33"),
    "one wrong label of validation": (
        {"targets": broken(CLASSES, -1, 59), "num_outputs": 3},
        "data",
        "validation.*sample 19",
    ),
    "one NaN": (
        {"targets": broken(NUMBERS, math.nan, 33), "num_outputs": 4, "task": "regression"},
        "data",
        "sample 33",
    ),
    "several classes of a sample": (
        {
            "targets": (NUMBERS[:, :3] > 0).float(),
            "num_outputs": 3,
            "loss": functional.binary_cross_entropy_with_logits,
        },
        "metrics.accuracy",
        "your own loss",
    ),
    "a loss that broadcasts": (
        {"targets": NUMBERS[:, 0], "num_outputs": 1, "task": "regression", "loss": squared},
        "loss",
        r"every other one.*outputs\.squeeze\(1\)",
    ),
    "a metric that broadcasts": (
        {"targets": CLASSES[:, None], "num_outputs": 3, "metrics": [share_right]},
        "metrics.share_right",
        r"every other one.*targets\.squeeze\(1\)",
    ),
    "a metric of numpy that broadcasts": (
        {"targets": CLASSES[:, None], "num_outputs": 3, "metrics": [share_right_of_numpy]},
        "metrics.share_right_of_numpy",
        r"every other one",
    ),
    "a metric of the whole set that broadcasts": (
        {"targets": NUMBERS[:, 0], "num_outputs": 1, "task": "regression", "metrics": [MeanError]},
        "metrics.MeanError",
        "every other one",
    ),
    "probabilities or logits": (
        {
            "targets": CLASSES.clamp(max=1).float()[:, None],
            "num_outputs": 1,
            "num_classes": 2,
            "form": torch.sigmoid,
            "loss": lambda outputs, targets: functional.binary_cross_entropy(outputs, targets),
        },
        "metrics.accuracy",
        "probabilities or logits",
    ),
    "a sigmoid before the default loss": (
        {
            "targets": CLASSES.clamp(max=1),
            "num_outputs": 1,
            "num_classes": 2,
            "form": lambda outputs: torch.sigmoid(outputs).squeeze(1).clamp(1e-6, 1 - 1e-6),
        },
        "model",
        "ends with a sigmoid",
    ),
    "a loss of torch that cannot take the targets": (
        {"targets": CLASSES[:, None], "num_outputs": 3, "loss": functional.cross_entropy},
        "loss",
        r"outputs of shape \(10, 3\).*targets of shape \(10, 1\)",
    ),
    "a vector as a loss": (
        {
            "targets": NUMBERS,
            "num_outputs": 4,
            "task": "regression",
            "loss": lambda outputs, targets: (outputs - targets).square().mean(1),
        },
        "loss",
        r"shape \(10,\)",
    ),
    "whole outputs": (
        {"targets": CLASSES, "num_outputs": 3, "form": lambda outputs: outputs.argmax(1)},
        "model",
        "before argmax",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_trial_ends_before_its_first_step_where_something_does_not_fit(
    name: str, tmp_path: Path
) -> None:
    fields, field, said = REFUSED[name]
    ended, num_reports = train(tmp_path, experiment(**fields))
    assert (ended.state, num_reports) == ("failed", 0)
    assert (ended.message or "").startswith(f"{field}: ")
    assert re.search(said, ended.message or "", re.DOTALL), ended.message
    assert not (tmp_path / "trial" / "checkpoints").exists()


def test_check_says_the_same() -> None:
    with pytest.raises(WorkbenchError, match=r"shape \(4, 10\)") as caught:
        try_first_steps(experiment(**REFUSED["transposed"][0]))
    assert caught.value.field == "model"
    with pytest.raises(DataError, match="sample 33"):
        try_first_steps(experiment(**REFUSED["one wrong label"][0]))


@pytest.mark.parametrize(
    ("targets", "task"),
    [
        (broken(CLASSES, 7, 33), "classification"),
        (broken(NUMBERS[:, 0], math.nan, 33), "regression"),
    ],
)
def test_targets_that_are_not_in_memory_are_refused_by_the_first_batch_that_has_them(
    targets: Tensor, task: str, tmp_path: Path
) -> None:
    num_outputs = 3 if task == "classification" else 1
    asked = experiment(targets, num_outputs=num_outputs, task=task, kind=Lazy)
    ended, num_reports = train(tmp_path, asked)
    assert (ended.state, num_reports) == ("failed", 0)
    assert "of the batch" in (ended.message or "")


ACCEPTED: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "a column": (
        {"targets": CLASSES[:, None], "num_outputs": 3},
        {"targets": CLASSES, "num_outputs": 3},
    ),
    "one-hot": (
        {"targets": functional.one_hot(CLASSES, 3), "num_outputs": 3},
        {"targets": CLASSES, "num_outputs": 3},
    ),
    "floats": (
        {"targets": CLASSES.float(), "num_outputs": 3},
        {"targets": CLASSES, "num_outputs": 3},
    ),
    "squeezed": (
        {
            "targets": NUMBERS[:, 0],
            "num_outputs": 1,
            "task": "regression",
            "form": lambda outputs: outputs.squeeze(),
        },
        {"targets": NUMBERS[:, :1], "num_outputs": 1, "task": "regression"},
    ),
    "squeezed, one sample at a time": (
        {
            "targets": NUMBERS[:, 0],
            "num_outputs": 1,
            "task": "regression",
            "plan": {"micro_batch": 1},
            "form": lambda outputs: outputs.squeeze(),
        },
        {
            "targets": NUMBERS[:, :1],
            "num_outputs": 1,
            "task": "regression",
            "plan": {"micro_batch": 1},
        },
    ),
    "a class of torch": (
        {"targets": CLASSES, "num_outputs": 3, "loss": "torch.nn:CrossEntropyLoss"},
        {"targets": CLASSES, "num_outputs": 3},
    ),
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_another_form_of_the_same_targets_trains_the_same(name: str, tmp_path: Path) -> None:
    losses = []
    for number, fields in enumerate(ACCEPTED[name]):
        folder = tmp_path / str(number)
        folder.mkdir()
        ended, _ = train(folder, experiment(**fields))
        assert ended.state == "complete", ended.message
        losses.append(
            {key: value for key, value in ended.values.items() if key[:3] in ("val", "tra")}
        )
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


@pytest.mark.parametrize("kind", [torch.float64, torch.int64, torch.uint8])
def test_inputs_of_another_type_than_the_weights_are_named(
    kind: torch.dtype, tmp_path: Path
) -> None:
    asked = experiment(
        CLASSES, num_outputs=3, kind=lambda inputs, targets: TensorDataset(inputs.to(kind), targets)
    )
    ended, num_reports = train(tmp_path, asked)
    assert (ended.state, num_reports) == ("failed", 0)
    name = str(kind).removeprefix("torch.")
    assert re.search(
        rf"takes float32.*has {name} inputs of shape \('batch', 6\)", str(ended.message)
    )
    assert ".float()" in str(ended.message)


@pytest.mark.parametrize("form", [torch.sigmoid, lambda outputs: outputs])
def test_a_single_number_of_two_classes_is_read_as_the_loss_of_torch_reads_it(
    form: Any, tmp_path: Path
) -> None:
    labels = (INPUTS[:, 0] > 0).float()[:, None]
    loss = (
        functional.binary_cross_entropy
        if form is torch.sigmoid
        else functional.binary_cross_entropy_with_logits
    )
    asked = experiment(
        labels,
        num_outputs=1,
        num_classes=2,
        form=form,
        loss=loss,
        training={"epochs": 30, "global_batch": 10, "lr": 0.1},
    )
    ended, _ = train(tmp_path, asked)
    assert ended.state == "complete", ended.message
    assert ended.values["val_accuracy"] > 0.8, (
        "of probabilities as logits it would be the share of one class"
    )


@pytest.mark.parametrize("kind", [pd.DataFrame, pd.Series])
def test_a_table_is_not_a_data_set(kind: Any, tmp_path: Path) -> None:
    frame = pd.DataFrame({"x": [1.0, 2.0], "target": [0, 1]})
    asked = experiment(
        CLASSES, num_outputs=3, kind=lambda *_: frame if kind is pd.DataFrame else frame["x"]
    )
    ended, _ = train(tmp_path, asked)
    assert "of pandas, and it is not clear which column is the target" in (ended.message or "")


def test_targets_of_a_part_of_a_data_set_are_numbered_as_it_numbers_them() -> None:
    from workbench.data.splits import MapSplit
    from workbench.data.targets import known_targets

    part, _ = random_split(
        TensorDataset(INPUTS, CLASSES), [40, 20], torch.Generator().manual_seed(1)
    )
    split: Any = MapSplit(part)
    targets = known_targets(split)
    assert targets is not None
    assert targets.tolist() == [int(split.batch([index])[1]) for index in range(40)]
    pairs: Any = [(row, int(number)) for row, number in zip(INPUTS, CLASSES, strict=True)]
    named: Any = [{"x": row, "labels": number} for row, number in pairs]
    for samples in (pairs, named):
        targets = known_targets(MapSplit(samples))
        assert targets is not None
        assert targets.tolist() == CLASSES.tolist()
    read: Any = Lazy(INPUTS, CLASSES)
    assert known_targets(MapSplit(read)) is None
