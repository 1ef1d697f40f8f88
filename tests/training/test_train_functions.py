"""A trial that is a person's own function."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import workbench as wb
from workbench.experiment import Experiment
from workbench.foundation.events import Event, Noted, TrialEnded, TrialReported
from workbench.training.trial import run_trial
from workbench.training.worker_task import TrialTask


def run(
    function: Callable[..., Any] | str,
    folder: Path,
    *,
    stop_at: int | None = None,
    early_stop: Mapping[str, Any] | None = None,
    **task: Any,
) -> tuple[TrialEnded, list[TrialReported]]:
    objectives = [{"metric": "score", "goal": "maximize"}]
    experiment = Experiment(train=function, objectives=objectives, early_stop=early_stop or {})
    objects = folder / "objects"
    objects.mkdir(exist_ok=True)
    for name, payload in experiment.payloads().items():
        (objects / name).write_bytes(payload)
    order = TrialTask(
        "r", 0, 0, experiment.model_dump_json(), objects=str(objects), folder=str(folder), **task
    )
    reports: list[TrialReported] = []

    def take(event: Event) -> bool:
        assert isinstance(event, TrialReported)
        reports.append(event)
        return event.step == stop_at

    return run_trial(order, take), reports


def test_reports_reach_the_reader(tmp_path: Path) -> None:
    def train(config: dict[str, Any], report: Callable[..., bool]) -> None:
        for step in range(1, 4):
            assert report(step=step, score=config["x"] * step, extra=np.float32(0.5)) is False

    ended, reports = run(train, tmp_path, params={"x": 2.0})
    assert ended.state == "complete", ended.traceback
    assert [(item.step, item.values) for item in reports] == [
        (step, {"score": 2.0 * step, "extra": 0.5}) for step in (1, 2, 3)
    ]
    assert (ended.step, ended.values) == (3, {"score": 6.0, "extra": 0.5})


def test_reports_without_a_step_are_counted(tmp_path: Path) -> None:
    def train(config: dict[str, Any], report: Callable[..., bool]) -> None:
        for _ in range(3):
            report(score=1.0)
        report(10, score=2.0)
        report(score=3.0)

    ended, reports = run(train, tmp_path)
    assert ended.state == "complete", ended.traceback
    assert [item.step for item in reports] == [1, 2, 3, 10, 11]


def test_the_report_of_scripts_works_in_a_function_and_only_while_it_runs(tmp_path: Path) -> None:
    def train(config: dict[str, Any], report: Callable[..., bool]) -> None:
        wb.report(score=1.0)
        report(score=2.0)
        while not wb.report(score=3.0, step=7):
            pass

    ended, reports = run(train, tmp_path, stop_at=7)
    assert ended.state == "stopped", ended.traceback
    assert [(item.step, item.values["score"]) for item in reports] == [(1, 1.0), (2, 2.0), (7, 3.0)]
    assert wb.report(score=4.0) is False
    assert len(reports) == 3


@pytest.mark.parametrize("first", [0.5, {"score": 0.5}, "score"])
def test_a_metric_without_a_name_is_refused_with_what_to_write(first: Any, tmp_path: Path) -> None:
    def train(config: dict[str, Any], report: Callable[..., bool]) -> None:
        report(first)

    ended, _ = run(train, tmp_path)
    assert "report(loss=0.5)" in (ended.message or "")


def test_a_function_that_is_told_to_stop_is_stopped(tmp_path: Path) -> None:
    def train(config: dict[str, Any], report: Callable[..., bool]) -> None:
        for step in range(100):
            if report(step=step, score=1.0):
                return

    ended, reports = run(train, tmp_path, stop_at=4)
    assert (ended.state, ended.step, len(reports)) == ("stopped", 4, 5)


@pytest.mark.parametrize("returned", [0.25, {"score": 0.25}, np.float64(0.25), torch.tensor(0.25)])
def test_what_a_function_returns_is_its_last_report(returned: Any, tmp_path: Path) -> None:
    def train(config: dict[str, Any], report: Callable[..., bool]) -> Any:
        return returned

    ended, reports = run(train, tmp_path)
    assert ended.state == "complete", ended.traceback
    assert [item.values for item in reports] == [{"score": 0.25}]


def test_a_function_that_asks_for_a_folder_finds_it_again(tmp_path: Path) -> None:
    def train(
        config: dict[str, Any], report: Callable[..., bool], folder: Path, *, seed: int
    ) -> float:
        counter = folder / "count.json"
        count = json.loads(counter.read_text()) + 1 if counter.exists() else seed
        counter.write_text(json.dumps(count))
        return count

    assert run(train, tmp_path, seed=5)[0].values == {"score": 5.0}
    assert run(train, tmp_path, seed=5, resume=True)[0].values == {"score": 6.0}


@pytest.mark.parametrize("states_step", [True, False])
def test_a_function_that_may_continue_without_its_step_is_told_that_reports_are_counted_from_1(
    tmp_path: Path, states_step: bool
) -> None:
    def train(config: dict[str, Any], report: Callable[..., bool], folder: Path) -> None:
        done = folder / "done"
        start = int(done.read_text()) if done.exists() else 0
        for step in range(start + 1, start + 4):
            done.write_text(str(step))
            if states_step:
                report(step=step, score=1.0)
            else:
                report(score=1.0)

    events: list[Event] = []

    def attempt(number: int) -> list[str]:
        objectives = [{"metric": "score", "goal": "maximize"}]
        experiment = Experiment(train=train, objectives=objectives)
        for name, payload in experiment.payloads().items():
            (tmp_path / name).write_bytes(payload)
        written, folder = experiment.model_dump_json(), str(tmp_path / "trial")
        order = TrialTask(
            "r", 0, number, written, objects=str(tmp_path), folder=folder, resume=number > 0
        )
        events.clear()

        def take(event: Event) -> bool:
            events.append(event)
            return False

        assert run_trial(order, take).state == "complete"
        return [event.message for event in events if isinstance(event, Noted)]

    assert attempt(0) == []
    assert attempt(1) == (
        []
        if states_step
        else [
            "attempt 2 counts its reports from 1, but an earlier attempt reached step 3. "
            "If the function continues from its folder, it must report the step: "
            "report(step=3, ...)"
        ]
    )
    reports = [event for event in events if isinstance(event, TrialReported)]
    assert [event.step for event in reports[-3:]] == ([4, 5, 6] if states_step else [1, 2, 3])


NOT_RESULTS = [
    "high",
    None,
    np.zeros(3),
    np.zeros(0),
    [],
    [1.0],
    object(),
    False,
    np.bool_(True),
    torch.tensor(True),
    np.ma.masked,
    1 + 0j,
    torch.tensor(1 + 0j),
]


@pytest.mark.parametrize("value", NOT_RESULTS)
def test_what_is_no_number_is_refused_by_name(value: Any, tmp_path: Path) -> None:
    def train(config: dict[str, Any], report: Callable[..., bool]) -> None:
        report(step=1, score=value)

    ended, reports = run(train, tmp_path)
    assert (ended.state, ended.reason) == ("failed", "error")
    assert "report.score" in (ended.message or "")
    assert not reports


async def awaited(config: dict[str, Any], report: Callable[..., bool]) -> float:
    return 1.0


def yields(config: dict[str, Any], report: Callable[..., bool]) -> Any:
    yield 1.0


A_NUMBER = 3


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("awaited", "an async function"),
        ("yields", "a generator"),
        ("A_NUMBER", "a value of type int"),
    ],
)
def test_what_is_no_plain_function_is_refused_in_words(
    name: str, what: str, tmp_path: Path
) -> None:
    ended, _ = run(f"{__name__}:{name}", tmp_path)
    assert ended.reason == "error"
    assert re.search(rf"^train: {__name__}:{name} is {what}.*plain function", ended.message or "")
    assert ended.traceback is None, "no line of it would be the person's"


def test_a_function_with_one_parameter_receives_the_configuration_and_its_result_counts(
    tmp_path: Path,
) -> None:
    ended, reports = run(lambda config: 0.25, tmp_path)
    assert (ended.state, ended.values) == ("complete", {"score": 0.25})
    assert len(reports) == 1

    def train(config: dict[str, Any]) -> float:
        wb.report(score=0.75)
        return 0.5

    ended, reports = run(train, tmp_path)
    assert (ended.state, ended.values) == ("complete", {"score": 0.5})
    assert [report.values for report in reports] == [{"score": 0.75}, {"score": 0.5}]


def test_a_function_that_gives_no_objective_is_described_by_what_it_gives(tmp_path: Path) -> None:
    ended, _ = run(lambda config, report: {"loss": 1.0, "steps": 3}, tmp_path)
    assert "without reporting or returning 'score'; it gave loss, steps" in (ended.message or "")
    assert (ended.message or "").endswith(
        "to improve one of these instead: --set objectives.0.metric=NAME"
    )


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_an_objective_that_is_not_finite_is_diverged(value: float, tmp_path: Path) -> None:
    def train(config: dict[str, Any], report: Callable[..., bool]) -> None:
        report(step=1, score=1.0)
        assert report(step=2, score=value)

    ended, reports = run(train, tmp_path)
    assert (ended.state, ended.reason, ended.step) == ("failed", "diverged", 2)
    assert len(reports) == 2


def test_a_step_that_goes_back_is_refused(tmp_path: Path) -> None:
    def train(config: dict[str, Any], report: Callable[..., bool]) -> None:
        report(step=5, score=1.0)
        report(step=4, score=1.0)

    assert "report.step" in (run(train, tmp_path)[0].message or "")


def test_a_function_that_never_reports_the_objective_is_told_so(tmp_path: Path) -> None:
    def train(config: dict[str, Any], report: Callable[..., bool]) -> None:
        report(step=1, accuracy=1.0)

    ended, _ = run(train, tmp_path)
    assert ended.state == "failed"
    assert "'score'" in (ended.message or "")
    assert "accuracy" in (ended.message or "")


def test_a_function_of_another_form_is_refused(tmp_path: Path) -> None:
    def train() -> None:
        raise AssertionError

    ended, _ = run(train, tmp_path)
    assert (ended.message or "").startswith("train: ")


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ValueError("no"), "error"),
        (SystemExit(3), "error"),
        (KeyboardInterrupt(), "error"),
        (MemoryError(), "oom"),
        (torch.OutOfMemoryError("CUDA out of memory"), "oom"),
        (
            RuntimeError("CUDA error: out of memory\nCUDA kernel errors might be reported later"),
            "oom",
        ),
        (
            RuntimeError(
                "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"
            ),
            "oom",
        ),
        (RuntimeError("CUDA error: device-side assert triggered"), "error"),
    ],
)
def test_what_a_function_raises_ends_the_trial(
    error: BaseException, reason: str, tmp_path: Path
) -> None:
    def train(config: dict[str, Any], report: Callable[..., bool]) -> None:
        report(step=9, score=0.0)
        raise error

    ended, _ = run(train, tmp_path)
    assert (ended.state, ended.reason, ended.step) == ("failed", reason, 9)
    assert type(error).__name__ in (ended.traceback or "")


def test_a_traceback_begins_with_the_code_of_the_user(tmp_path: Path) -> None:
    def train(config: dict[str, Any], report: Callable[..., bool]) -> None:
        json.loads("{")

    ended, _ = run(train, tmp_path)
    head, first, *_ = (ended.traceback or "").splitlines()
    assert head == "Traceback (most recent call last):"
    assert first.startswith(f'  File "{__file__}", line ')


def test_a_full_gpu_is_described_without_the_details_of_its_allocator(tmp_path: Path) -> None:
    message = (
        "CUDA out of memory. Tried to allocate 626.00 MiB. GPU 0 has a total capacity of 79.18 GiB"
        " of which 1.91 GiB is free."
    )

    def train(config: dict[str, Any], report: Callable[..., bool]) -> None:
        raise torch.OutOfMemoryError(
            f"{message} Including non-PyTorch memory, this process has 77.20 GiB"
        )

    ended, _ = run(train, tmp_path)
    assert ended.message == f"OutOfMemoryError: {message}"
    assert "77.20 GiB" in (ended.traceback or "")


@pytest.mark.parametrize("library", ["torch", "numpy"])
def test_an_allocation_that_the_machine_refuses_is_oom(library: str, tmp_path: Path) -> None:
    def train(config: dict[str, Any], report: Callable[..., bool]) -> None:
        if config["library"] == "torch":
            torch.empty(1 << 52, dtype=torch.uint8)
        else:
            np.ones(1 << 52, dtype=np.uint8)

    ended, _ = run(train, tmp_path, params={"library": library})
    assert (ended.state, ended.reason) == ("failed", "oom"), ended.message


def test_a_function_that_needs_no_torch_loads_none(tmp_path: Path) -> None:
    (tmp_path / "own_loop.py").write_text(
        "def train(config, report):\n    report(step=1, score=config['x'])\n"
    )
    code = """
import sys
from workbench.experiment import Experiment
from workbench.training.worker_task import TrialTask
from workbench.training.trial import run_trial
objective = {"metric": "score", "goal": "maximize"}
experiment = Experiment(train="own_loop:train", objectives=[objective])
task = TrialTask("r", 0, 0, experiment.model_dump_json(), params={"x": 4})
ended = run_trial(task, lambda event: False)
assert ended.state == "complete" and ended.values == {"score": 4.0}, ended
heavy = {"torch", "ray", "optuna", "sklearn", "pandas"} & set(sys.modules)
assert not heavy, heavy
"""
    search_path = f"{Path(__file__).parents[2]}:{tmp_path}"
    # Its journal goes to the working directory.
    subprocess.run(
        [sys.executable, "-c", code], check=True, cwd=tmp_path, env={"PYTHONPATH": search_path}
    )


def test_the_progress_that_trials_are_compared_by_is_reported_and_grows(tmp_path: Path) -> None:
    def train(config: dict[str, Any], report: Callable[..., bool]) -> None:
        for step, samples in enumerate(config["samples"]):
            report(
                step=step,
                **({"score": 1.0} if samples is None else {"score": 1.0, "samples": samples}),
            )
            report(step=step, speed=2.0)

    def ending(*samples: int | None) -> TrialEnded:
        params = {"samples": list(samples)}
        return run(
            train, tmp_path, early_stop={"pruner": "asha", "unit": "samples"}, params=params
        )[0]

    assert ending(32, 32, 64).state == "complete"
    assert "report.samples: missing, but early_stop.unit" in str(ending(32, None).message)
    assert "report.samples: 16 is not valid after 32" in str(ending(32, 16).message)


@pytest.mark.parametrize("value", NOT_RESULTS)
def test_what_is_no_number_is_refused_where_it_is_all_that_a_function_returns(
    value: Any, tmp_path: Path
) -> None:
    for returned in (value, {"score": value}):
        ended, reports = run(lambda config, report, returned=returned: returned, tmp_path)
        assert (ended.state, ended.reason) == ("failed", "error")
        named = "without reporting or returning 'score'" if returned is None else "report.score"
        assert named in (ended.message or "")
        assert not reports


class Notes:
    """Runs a function, and keeps its notes, too."""

    def __init__(self, function: Callable[..., Any], folder: Path, **fields: Any) -> None:
        objectives = [{"metric": "score", "goal": "maximize"}]
        experiment = Experiment(train=function, objectives=objectives, **fields)
        for name, payload in experiment.payloads().items():
            (folder / name).write_bytes(payload)
        order = TrialTask(
            "r",
            0,
            0,
            experiment.model_dump_json(),
            objects=str(folder),
            folder=str(folder / "trial"),
        )
        self.events: list[Event] = []
        self.ended = run_trial(order, lambda event: bool(self.events.append(event)))

    @property
    def notes(self) -> list[str]:
        return [event.message for event in self.events if isinstance(event, Noted)]


@pytest.mark.parametrize("returned", [False, np.bool_(True), torch.nn.Linear(1, 1), [0.1], "done"])
def test_what_is_returned_beside_a_reported_objective_costs_no_training(
    returned: Any, tmp_path: Path
) -> None:
    def train(config: dict[str, Any], report: Callable[..., bool]) -> Any:
        stop = report(score=0.3)
        return stop if returned is False else returned

    notes = Notes(train, tmp_path)
    assert (notes.ended.state, notes.ended.values) == ("complete", {"score": 0.3})
    [note] = notes.notes
    assert "not a number, so the last reported score counts" in note


@pytest.mark.parametrize(
    ("returned", "score"), [(0, 0.3), (0.0, 0.0), (np.int64(0), 0.0), (1, 1.0), ({"score": 0}, 0.0)]
)
def test_a_whole_zero_after_reports_is_an_exit_status(
    returned: Any, score: float, tmp_path: Path
) -> None:
    def train(config: dict[str, Any], report: Callable[..., bool]) -> Any:
        report(score=0.3)
        return returned

    notes = Notes(train, tmp_path)
    assert (notes.ended.state, notes.ended.values) == ("complete", {"score": score})
    assert len(notes.notes) == (score == 0.3)


def test_a_whole_zero_that_nothing_was_reported_before_is_the_result(tmp_path: Path) -> None:
    notes = Notes(lambda config, report: 0, tmp_path)
    assert (notes.ended.values, notes.notes) == ({"score": 0.0}, [])


@pytest.mark.parametrize("returned", [np.ma.masked, 1j, {"score": None}, {"score": False}])
def test_what_is_returned_in_the_place_of_the_objective_does_not_let_an_earlier_report_win(
    returned: Any, tmp_path: Path
) -> None:
    def train(config: dict[str, Any], report: Callable[..., bool]) -> Any:
        report(score=0.9)
        return returned

    notes = Notes(train, tmp_path)
    assert (notes.ended.state, notes.ended.reason) == ("failed", "error")
    assert "report.score" in (notes.ended.message or "")


@pytest.mark.parametrize(
    "nan", [float("nan"), np.float32("nan"), torch.tensor(float("nan")), "nan", {"score": np.nan}]
)
def test_a_nan_that_is_returned_is_a_divergence(nan: Any, tmp_path: Path) -> None:
    def train(config: dict[str, Any], report: Callable[..., bool]) -> Any:
        report(score=0.9)
        return nan

    assert (run(train, tmp_path)[0].state, run(train, tmp_path)[0].reason) == ("failed", "diverged")


def test_values_beside_the_objective_are_kept_where_they_are_numbers_and_noted_once_where_not(
    tmp_path: Path,
) -> None:
    def train(config: dict[str, Any], report: Callable[..., bool]) -> dict[str, Any]:
        for step in range(3):
            report(score=float(step), acc=None if step < 2 else 0.5, val_loss=float("nan"))
        return {
            "score": 3.0,
            "model": torch.nn.Linear(1, 1),
            "is_best": True,
            "rest": {"f1": np.float32(0.5), "history": [1, 2], "z": 1j},
            "empty": np.array([]),
        }

    notes = Notes(train, tmp_path)
    assert notes.ended.state == "complete", notes.ended.message
    values = dict(notes.ended.values)
    assert np.isnan(values.pop("val_loss"))
    assert values == {"score": 3.0, "acc": 0.5, "is_best": 1.0, "rest.f1": 0.5}
    assert [note.partition(" is not kept: ")[0] for note in notes.notes] == [
        "'acc'",
        "'model'",
        "'rest.history'",
        "'rest.z'",
        "'empty'",
    ]


def test_notes_on_values_of_very_many_names_end(tmp_path: Path) -> None:
    notes = Notes(
        lambda config, report: {"score": 1.0, **dict.fromkeys(map(str, range(100)))}, tmp_path
    )
    assert notes.ended.state == "complete"
    assert len(notes.notes) == 21
    assert "and others" in notes.notes[-1]


def test_only_what_the_experiment_names_can_end_a_trial(tmp_path: Path) -> None:
    def train(config: dict[str, Any], report: Callable[..., bool]) -> None:
        for _ in range(2):
            report(score=1.0, latency=config.get("latency", float("nan")), train_loss=float("nan"))

    limit = {"constraints": [{"metric": "latency", "at_most": 1.0}]}
    (tmp_path / "free").mkdir()
    assert Notes(train, tmp_path / "free").ended.state == "complete"
    ended = Notes(train, tmp_path, **limit).ended
    assert (ended.state, ended.reason, ended.message) == (
        "failed",
        "diverged",
        "latency is nan at step 1",
    )
    missing = Notes(lambda config, report: report(score=1.0, latency=None), tmp_path, **limit).ended
    assert "report.latency: None is not a number" in (missing.message or "")
    late = Notes(
        lambda config, report: {"score": 1.0, "latency": float("inf")}, tmp_path, **limit
    ).ended
    assert late.state == "complete", "infinity can be compared with a limit"


@pytest.mark.parametrize("step", [3, None, 7.5, "last", True])
def test_a_returned_step_that_is_not_valid_costs_no_training(step: Any, tmp_path: Path) -> None:
    def train(config: dict[str, Any], report: Callable[..., bool]) -> dict[str, Any]:
        report(step=10, score=0.5)
        return {"score": 0.75, "step": step}

    notes = Notes(train, tmp_path)
    assert (notes.ended.state, notes.ended.values, notes.ended.step) == (
        "complete",
        {"score": 0.75},
        10,
    )
    assert f"returned the step {step!r}" in notes.notes[0]
