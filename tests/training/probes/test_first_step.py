"""What `check` calls valid can start: real first steps, in a child process."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from workbench.cli.check import describe_first_steps
from workbench.experiment import Experiment
from workbench.foundation.errors import DataError, ExperimentError, RunError
from workbench.training.planning.typical_configurations import configurations_to_try
from workbench.training.probes import first_step
from workbench.training.probes.first_step import FirstStep, try_first_steps

OWN = """
import os
import sys
import torch
from torch import nn

def build(config):
    return nn.Sequential(nn.Flatten(), nn.LazyLinear(10, bias=False))

def deep(config):
    class Deep(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(64, 10)
        def forward(self, inputs):
            if self.training and config["depth"] == 3:
                raise IndexError("no third layer")
            return self.layer(inputs.flatten(1))
    return Deep()

class Pieces(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.first, self.last = nn.Linear(64, 8), nn.Linear(8, 10)
        self.forgets = config["forgets"]
    def forward(self, inputs):
        return self.last(self.begin(inputs).relu())
    def begin(self, inputs):
        return self.first(inputs.flatten(1))
    def pieces(self):
        return [(self.begin, self.first), *([] if self.forgets else [nn.ReLU()]), self.last]

def no_options():
    return None

def no_samples(options):
    raise KeyError("no column of samples")

def wrong_metric(outputs, targets):
    return outputs.no_such_attribute

def early(config, report, folder):
    (folder / "notes").write_text("x")
    report(step=1, loss=1.0)
    os._exit(3)

def continues(config, report, folder):
    kept = folder / "rate"
    assert not kept.exists() or kept.read_text() == str(config["rate"]), "of another configuration"
    kept.write_text(str(config["rate"]))
    report(step=1, loss=1.0)

def returns(config, report):
    return config["rate"]

def diverges(config, report):
    report(step=1, loss=float("nan"))

def diverges_above(config, report):
    report(loss=float("nan") if config["rate"] > 0.99 else 1.0)

def returns_others(config, report):
    return {"other": 1.0, "other_5": 2.0}

def fails_above(config, report):
    if config["rate"] > 0.99:
        raise ValueError("too fast")
    report(loss=1.0)

def fails(config, report):
    return {}["absent"]

def silent(config, report):
    return None

def endless(config, report):
    while True:
        pass

def dies(config, report):
    os._exit(7)

def imports_late(config, report):
    # A library that hides whatever ends an import, as PyTorch does where it looks for NumPy.
    try:
        import imported_late
    except BaseException:
        pass
    report(loss=sys.modules["imported_late"].x)
"""
MODEL: dict[str, Any] = {
    "model": "mlp",
    "data": "digits",
    "objectives": [{"metric": "val_accuracy", "goal": "maximize"}],
}
FUNCTION: dict[str, Any] = {"objectives": [{"metric": "loss", "goal": "minimize"}]}


@pytest.fixture(autouse=True)
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_first.py").write_text(OWN)
    monkeypatch.syspath_prepend(str(tmp_path))


def try_model(limit_s: float = 240.0, **fields: Any) -> list[FirstStep]:
    return try_first_steps(Experiment(**MODEL | fields), limit_s=limit_s)


def try_function(name: str, limit_s: float = 240.0, **fields: Any) -> list[FirstStep]:
    return try_first_steps(
        Experiment(**FUNCTION | {"train": f"own_first:{name}"} | fields), limit_s=limit_s
    )


def test_a_sample_and_both_ends_of_the_space_are_tried() -> None:
    search = {
        "lr": {"low": 1e-4, "high": 1.0, "log": True},
        "hidden_width": {"choices": [64, 8, 16]},
        "optimizer": {"choices": ["adamw", "sgd"]},
        "momentum": {"low": 0.5, "high": 0.9, "when": {"optimizer": "sgd"}},
    }
    steps = try_model(search=search, plan={"workers": 2, "micro_batch": 16, "strategy": "fsdp"})
    assert [(step.which, step.outcome) for step in steps] == [
        ("a sample", "fine"),
        ("the largest values", "fine"),
        ("the smallest values", "fine"),
    ]
    assert steps[1].params == {"lr": 1.0, "hidden_width": 64, "optimizer": "sgd", "momentum": 0.9}
    assert steps[2].params == {"lr": 1e-4, "hidden_width": 8, "optimizer": "adamw"}


@pytest.mark.slow
def test_each_strategy_is_tried_on_one_worker_after_the_other() -> None:
    search = {"strategy": {"choices": ["ddp", "zero1", "pipeline"]}}
    steps = try_model(search=search, plan={"workers": 2, "micro_batch": 16})
    assert [step.outcome for step in steps] == ["fine"] * 3


@pytest.mark.parametrize("workers", [1, 2])
def test_what_trains_in_fp16_on_a_gpu_makes_its_first_step_here_in_another_precision(
    workers: int,
) -> None:
    steps = try_model(plan={"precision": "fp16", "workers": workers, "micro_batch": 16})
    assert [step.outcome for step in steps] == ["fine"]


def test_a_model_that_cannot_be_cut_into_stages_is_refused() -> None:
    with pytest.raises(ExperimentError, match=r"plan\.stages: Deep cannot be cut into stages"):
        try_model(model="own_first:deep", search={"depth": {"choices": [2]}}, plan={"stages": 2})


@pytest.mark.slow
def test_pieces_must_compute_what_the_model_computes() -> None:
    tried = try_model(model={"name": "own_first:Pieces", "forgets": False}, plan={"stages": 2})
    assert [step.outcome for step in tried] == ["fine"]
    with pytest.raises(ExperimentError, match=r"plan\.stages: the pieces of the model do not comp"):
        try_model(model={"name": "own_first:Pieces", "forgets": True}, plan={"stages": 2})


@pytest.mark.slow
def test_a_model_whose_layers_cannot_be_cut_is_refused() -> None:
    with pytest.raises(ExperimentError, match=r"plan\.tensor: the layers of a Deep cannot be cut"):
        try_model(model="own_first:deep", search={"depth": {"choices": [2]}}, plan={"tensor": 2})
    widths = {"hidden_width": {"choices": [8, 9]}}
    with pytest.raises(ExperimentError, match=r"plan\.tensor: layers\.\d+ has 9 outputs"):
        try_model(search=widths, plan={"tensor": 2})
    assert [step.outcome for step in try_model(plan={"tensor": 2})] == ["fine"]


@pytest.mark.slow
def test_a_fitted_model_grows_a_first_part() -> None:
    assert [step.outcome for step in try_model(model="forest")] == ["fine"]


def test_an_optimizer_that_a_custom_model_allows_is_used() -> None:
    steps = try_model(model="own_first:build", training={"optimizer": "sgd"})
    assert [step.outcome for step in steps] == ["fine"]


def test_what_fails_at_an_end_of_the_space_is_refused_with_its_configuration() -> None:
    with pytest.raises(ExperimentError) as refusal:
        try_model(model="own_first:deep", search={"depth": {"choices": [1, 3]}}, seed=1)
    message = str(refusal.value)
    assert message.startswith(
        "model: the first step of a trial fails: IndexError: no third layer (own_first.py"
    )
    assert "depth=3" in message


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"metrics": ["accuracy", "own_first:wrong_metric"]}, "no_such_attribute"),
        ({"training": {"global_batch": 4096}}, "larger than the training data"),
        (
            {"training": {"optimizer": "adamw", "optimizer_options": {"beta": 1}}},
            "no such argument",
        ),
        (
            {"model": "own_first:build", "training": {"optimizer": "sparseadam"}},
            "first step of a trial fails",
        ),
    ],
)
def test_a_step_that_fails_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ExperimentError, match=message):
        try_model(**fields)


@pytest.mark.slow
def test_data_that_cannot_be_read_is_refused() -> None:
    with pytest.raises(DataError, match="does not exist"):
        try_model(data={"name": "table", "path": "no_such.csv", "target": "y"})
    with pytest.raises(
        ExperimentError, match=r"^data: .*no_options\(\) cannot be called with the options"
    ):
        try_model(data="own_first:no_options")
    with pytest.raises(
        ExperimentError, match=r"^data: .*KeyError: 'no column of samples' \(own_first\.py"
    ):
        try_model(data="own_first:no_samples")


@pytest.mark.slow
def test_data_that_cannot_be_divided_among_clients_are_refused() -> None:
    training = {"optimizer": "sgd", "global_batch": 16}
    with pytest.raises(
        ExperimentError, match=r"^federated.partition: digits does not say which client"
    ):
        try_model(federated={"clients": 3, "partition": "owners"}, training=training)
    with pytest.raises(
        ExperimentError, match=r"^federated.partition.labels: .* cannot hold 10 classes"
    ):
        try_model(federated={"clients": 2, "partition": {"labels": 3}}, training=training)
    (step,) = try_model(federated={"clients": 5000}, training=training)
    note = list(describe_first_steps([step]))[-1]
    assert note.startswith("3,562 of the clients have no training sample"), "of 1,438 samples"


@pytest.mark.parametrize("name", ["early", "returns", "continues"])
def test_a_function_runs_until_its_first_report(name: str) -> None:
    steps = try_function(name, search={"rate": {"low": 0.0, "high": 1.0}})
    assert [step.outcome for step in steps] == ["fine"] * 3


@pytest.mark.parametrize(
    ("name", "message"), [("fails", "KeyError: 'absent'"), ("silent", "without reporting")]
)
def test_a_function_that_fails_before_it_reports_is_refused(name: str, message: str) -> None:
    with pytest.raises(ExperimentError, match=message):
        try_function(name)


def test_configurations_that_fail_are_named_beside_those_that_do_not() -> None:
    with pytest.raises(
        ExperimentError, match=r"^train: the first step .*: ValueError: too fast"
    ) as raised:
        try_function("fails_above", search={"rate": {"low": 0.0, "high": 1.0}})
    assert isinstance(raised.value.next_step, str)
    failing, _, succeeding = raised.value.next_step.partition(", and succeeds with ")
    assert failing == "It fails with the largest values: rate=1"
    assert succeeding.startswith("a sample: rate=")
    assert "; the smallest values: rate=0. Correct it" in succeeding


@pytest.mark.slow
def test_objectives_that_the_first_report_lacks_are_named() -> None:
    (step,) = try_function("early")
    assert step.unreported == ()
    wanted = [{"metric": "loss", "goal": "minimize"}, {"metric": "accuracy", "goal": "maximize"}]
    (step,) = try_function("early", objectives=wanted)
    assert (step.outcome, step.unreported) == ("fine", ("accuracy",))
    note = list(describe_first_steps([step]))[-1]
    assert note.startswith("Its first report has loss but not accuracy")


def test_a_function_that_returns_other_values_than_the_objectives_is_refused() -> None:
    with pytest.raises(
        ExperimentError,
        match=r"^objectives: the function reports nothing and returns other, other_5.*but not loss",
    ):
        try_function("returns_others")


@pytest.mark.slow
def test_what_is_never_finite_is_refused_and_what_is_not_with_some_values_is_named() -> None:
    with pytest.raises(ExperimentError, match=r"^train: the first report of loss is not a finite"):
        try_function("diverges")
    with pytest.raises(
        ExperimentError, match=r"^command: the first report of loss is not a finite"
    ):
        try_first_steps(Experiment(**FUNCTION, command=["sh", "-c", "echo loss=nan"]))
    steps = try_function("diverges_above", search={"rate": {"low": 0.0, "high": 1.0}})
    assert {step.which: step.not_finite for step in steps}["the largest values"] == ("loss",)
    (warning,) = [line for line in describe_first_steps(steps) if line.startswith("Warning")]
    assert warning.startswith(
        "Warning: with the largest values, loss is not finite in the first report"
    )


def test_a_printed_name_with_two_meanings_is_refused_with_its_lines() -> None:
    prints = "for n in 1 2 3; do echo step $n loss $n.5; echo epoch $n loss $n.25; done"
    with pytest.raises(
        ExperimentError, match=r"^objectives: .*'step 1 loss 1.5' and 'epoch 1 loss"
    ):
        try_first_steps(Experiment(**FUNCTION, command=["sh", "-c", prints]))


def test_files_that_other_trials_would_overwrite_are_noted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    (tmp_path / "old.txt").write_text("x")
    os.utime(tmp_path / "old.txt", (1.0, 1.0))
    writes = "echo 1 > runs/model.pt; echo 1 > {folder}/mine.pt; echo loss=0.5"
    experiment = Experiment(**FUNCTION, command=["sh", "-c", writes])
    (tried,) = try_first_steps(experiment)
    (note,) = tried.notes
    assert note.startswith("a trial has written runs/model.pt in the working folder"), note
    assert "workdir: fresh" in note
    (tried,) = try_first_steps(
        experiment.replace(workdir="fresh", command=["sh", "-c", "echo loss=1"])
    )
    assert tried.notes == ()


def test_a_step_that_is_never_written_is_noted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    prints = "for n in 0 1 2; do echo round $n loss $n.5; done"
    without = Experiment(**FUNCTION, command=["sh", "-c", prints], step="epoch")
    (tried,) = try_first_steps(without)
    assert "the program writes no epoch with its objective" in tried.notes[0]
    assert "If epoch never comes, the trial fails at its end" in tried.notes[0]
    written = ["sh", "-c", prints.replace("round", "epoch")]
    (tried,) = try_first_steps(without.replace(command=written))
    assert tried.notes == ()


def test_a_function_that_ends_the_process_is_refused() -> None:
    with pytest.raises(RunError, match="the process ended with 7"):
        try_function("dies")


def test_what_takes_too_long_is_left_open() -> None:
    assert [step.outcome for step in try_function("endless", limit_s=0.5)] == ["out of time"]


def test_the_time_that_a_thread_waits_for_a_processor_is_read(tmp_path: Path) -> None:
    (tmp_path / "schedstat").write_text("71000000 2500000000 12\n")  # runs, waits, number of turns
    assert first_step._waited_of(tmp_path) == 2.5
    assert first_step._waited_of(tmp_path / "ended") == 0.0


def test_the_time_limit_does_not_interrupt_an_import(tmp_path: Path) -> None:
    (tmp_path / "imported_late.py").write_text(
        "import signal\n"
        "signal.getsignal(signal.SIGALRM).__self__.limit_s = 0\n"
        "signal.raise_signal(signal.SIGALRM)\n"
        "signal.setitimer(signal.ITIMER_REAL, 0)\n"
        "x = 1\n"
    )
    (step,) = try_function("imports_late")
    assert (step.outcome, step.reported) == ("fine", ("loss",))


def test_a_function_on_several_workers_is_left_open() -> None:
    assert [step.outcome for step in try_function("early", plan={"workers": 2})] == [
        "several workers"
    ]


def test_without_a_space_only_one_configuration_is_tried() -> None:
    assert list(configurations_to_try(Experiment(**MODEL))) == [("a sample", {})]


def test_a_step_that_had_not_ended_says_after_how_long_and_what_to_do() -> None:
    step = FirstStep("out of time", which="typical values", params={"lr": 0.1}, elapsed_s=30.0)
    (told,) = describe_first_steps([step])
    assert told.startswith("Not tried with typical values: it had not ended after 30 s")
    assert "--no-step" in told
