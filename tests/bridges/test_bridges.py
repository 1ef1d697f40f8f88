"""Every bridge keeps the same contract, with its real library.

Reports, stops, resumes after SIGKILL.
"""

from __future__ import annotations

import importlib
import importlib.util
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.bridges import bridged_functions
from tests.bridges.bridged_functions import NUM_STEPS
from tests.services.process_group import run_together
from workbench.bridges import Bridge
from workbench.experiment import Experiment
from workbench.foundation.errors import ArgumentError, MissingDependencyError
from workbench.foundation.events import Event, TrialEnded, TrialReported
from workbench.training.trial import run_trial
from workbench.training.worker_task import TrialTask

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Case:
    """A bridge, the packages that its test needs, and the metric that its training minimises."""

    name: str
    packages: tuple[str, ...]
    metric: str

    @property
    def needed(self) -> Any:
        absent = [package for package in self.packages if importlib.util.find_spec(package) is None]
        reason = f"not installed: {', '.join(absent)} (make bridges installs what the bridges need)"
        return pytest.param(
            self, id=self.name, marks=pytest.mark.skipif(bool(absent), reason=reason)
        )


CASES = (
    Case("xgboost", ("xgboost",), "train_logloss"),
    Case("lightgbm", ("lightgbm",), "train_binary_logloss"),
    Case("sklearn", (), "log_loss"),
    Case("lightning", ("lightning",), "last_loss"),
    Case("transformers", ("transformers", "accelerate"), "eval_loss"),
    Case("keras", ("keras",), "val_loss"),
    Case("jax", ("jax", "optax"), "loss"),
)
DISTRIBUTED = ("lightning", "transformers")
each_bridge = pytest.mark.parametrize("case", [case.needed for case in CASES])


def run(
    case: Case,
    folder: Path,
    *,
    stop_at: int | None = None,
    dies_at: int | None = None,
    **order: Any,
) -> tuple[TrialEnded, list[TrialReported]]:
    experiment = Experiment(
        train=f"{bridged_functions.__name__}:train_{case.name}",
        objectives=[{"metric": case.metric, "goal": "minimize"}],
    )
    reports: list[TrialReported] = []

    def take(event: Event) -> bool:
        assert isinstance(event, TrialReported)
        reports.append(event)
        if event.step == dies_at:
            import os
            import signal

            os.kill(os.getpid(), signal.SIGKILL)
        return event.step == stop_at

    task = TrialTask("r", 0, 0, experiment.model_dump_json(), folder=str(folder), **order)
    return run_trial(task, take), reports


@each_bridge
def test_each_epoch_is_reported_and_the_objective_is_among_it(case: Case, tmp_path: Path) -> None:
    ended, reports = run(case, tmp_path)
    assert ended.state == "complete", ended.traceback
    assert [report.step for report in reports] == list(range(1, NUM_STEPS + 1))
    losses = [report.values[case.metric] for report in reports]
    assert losses[-1] < losses[0]


@each_bridge
def test_a_trial_that_is_stopped_trains_no_further(case: Case, tmp_path: Path) -> None:
    ended, reports = run(case, tmp_path, stop_at=2)
    assert (ended.state, [report.step for report in reports]) == ("stopped", [1, 2]), (
        ended.traceback
    )


@each_bridge
@pytest.mark.slow
def test_a_killed_trial_continues_where_it_was(case: Case, tmp_path: Path) -> None:
    program = (
        "from pathlib import Path; from tests.bridges.test_bridges import CASES, run;"
        f" run(next(case for case in CASES if case.name == {case.name!r}), Path({str(tmp_path)!r}),"
        " dies_at=3)"
    )
    killed = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, check=False, capture_output=True
    )
    assert killed.returncode == -9, killed.stderr.decode()
    ended, reports = run(case, tmp_path, resume=True)
    assert ended.state == "complete", ended.traceback
    # The steps before the kill are repeated from the journal; only those after the checkpoint are
    # made.
    made = [report.step for report in reports if not report.told_again]
    assert made == [3, 4]
    _, whole = run(case, tmp_path / "whole")
    assert reports[-1].values[case.metric] == pytest.approx(whole[-1].values[case.metric], rel=1e-4)


def run_rank(
    rank: int,
    num_workers: int,
    meeting: str,
    start: tuple[str, str, int | None, bool],
) -> tuple[TrialEnded, list[TrialReported]]:
    """Run a case by its name, in a folder; stop it at a step, or resume it."""
    name, folder, stop_at, resume = start
    case = next(case for case in CASES if case.name == name)
    order: dict[str, Any] = {
        "rank": rank,
        "num_workers": num_workers,
        "meeting": meeting,
        "resume": resume,
    }
    return run(case, Path(folder), stop_at=stop_at, **order)


def load_libraries(rank: int, num_workers: int, meeting: str, names: tuple[str, ...]) -> None:
    for name in names:
        importlib.import_module(name)


@pytest.mark.slow
@pytest.mark.parametrize("case", [case.needed for case in CASES if case.name in DISTRIBUTED])
def test_two_workers_train_together_stop_together_and_continue(case: Case, tmp_path: Path) -> None:
    # Takes a minute on a busy machine, nothing waits for it.
    run_together(load_libraries, 2, case.packages)
    stopped = run_together(run_rank, 2, (case.name, str(tmp_path), 2, False))
    assert [ended.state for ended, _ in stopped] == ["stopped", "stopped"], stopped[0][0].traceback
    assert [event.step for event in stopped[0][1]] == [1, 2]
    resumed = run_together(run_rank, 2, (case.name, str(tmp_path), None, True))
    assert [ended.state for ended, _ in resumed] == ["complete", "complete"], resumed[0][
        0
    ].traceback
    made = [event for event in resumed[0][1] if not event.told_again]
    assert [event.step for event in made] == [3, 4]
    # Twice two steps an epoch instead of four: another training, but one that has divided the
    # samples.
    _, alone = run(case, tmp_path / "alone")
    assert made[-1].values[case.metric] < stopped[0][1][0].values[case.metric]
    assert made[-1].values[case.metric] != pytest.approx(alone[-1].values[case.metric], rel=1e-6)


def test_half_a_checkpoint_is_no_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "partial-7.ubj").write_text("half")
    (tmp_path / "saved-3.ubj").write_text("whole")
    (tmp_path / "saved-12.ubj").write_text("whole")
    bridge = Bridge(lambda **_: False, tmp_path)
    assert (bridge.num_done, bridge.resume_from) == (12, str(tmp_path / "saved-12.ubj"))
    assert (bridge.num_left(20), bridge.num_left(5)) == (8, 0)
    assert not (tmp_path / "partial-7.ubj").exists()


def test_reports_and_checkpoints_have_their_own_pace(tmp_path: Path) -> None:
    reported: list[int] = []
    saved: list[str] = []

    def save(path: str) -> None:
        saved.append(Path(path).name)
        Path(path).touch()

    bridge = Bridge(lambda step, loss: reported.append(step), tmp_path, every=2, save_every=3)
    for step in range(1, 8):
        bridge.advance(step, {"loss": 1.0, "table": [1, 2]}, save)
    assert reported == [2, 4, 6]
    assert saved == ["partial-3", "partial-6"]
    assert [path.name for path in tmp_path.iterdir()] == ["saved-6"]


def test_single_values_are_passed_on_as_what_they_are(tmp_path: Path) -> None:
    reported: list[dict[str, Any]] = []
    bridge = Bridge(lambda **values: bool(reported.append(values)))
    metrics = {
        "loss": torch.tensor([0.25], requires_grad=True),
        "f1": np.float32(0.5),
        "nan": float("nan"),
        "none": None,
        "masked": np.ma.masked,
        "best": np.bool_(True),
        "text": "high",
        "matrix": np.eye(2),
        "list": [1.0],
    }
    bridge.advance(1, metrics)
    [values] = reported
    assert np.isnan(values.pop("nan"))
    assert values.pop("masked") is np.ma.masked
    assert values == {"step": 1, "loss": 0.25, "f1": 0.5, "none": None, "best": True}


def test_an_objective_that_a_library_gives_as_something_else_fails_the_trial(
    tmp_path: Path,
) -> None:
    def train(config: dict[str, Any], report: Any) -> None:
        bridge = Bridge(report)
        bridge.advance(1, {"loss": 0.9, "acc": None})
        bridge.advance(2, {"loss": config.get("last"), "acc": 0.5})

    asked = Experiment(train=train, objectives=[{"metric": "loss", "goal": "minimize"}])
    for name, payload in asked.payloads().items():
        (tmp_path / name).write_bytes(payload)
    order = TrialTask(
        "r", 0, 0, asked.model_dump_json(), objects=str(tmp_path), folder=str(tmp_path / "trial")
    )
    ended = run_trial(order, lambda event: False)
    assert (ended.state, ended.reason) == ("failed", "error")
    assert "report.loss: None is not a number" in (ended.message or "")


def test_a_pace_of_zero_is_refused() -> None:
    with pytest.raises(ArgumentError, match="save_every"):
        Bridge(lambda **_: False, save_every=0)


@pytest.mark.parametrize("library", ["xgboost", "lightgbm"])
def test_a_missing_library_is_named_with_the_command_that_installs_it(
    library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == library]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delitem(sys.modules, f"workbench.bridges.{library}", raising=False)
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(MissingDependencyError, match=f"pip install {library}"):
        importlib.import_module(f"workbench.bridges.{library}")
