"""torch.compile as a dimension of the plan.

The same training, its warm-up apart, names as they are.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from workbench.experiment import Experiment
from workbench.experiment.plan import PartialPlan
from workbench.foundation.errors import ExperimentError
from workbench.foundation.events import Event, Noted, PlanMeasured, TrialReported
from workbench.sweeps.preflight import check
from workbench.training import checkpoint
from workbench.training.probes.measurements import PlanProbe
from workbench.training.strategies import strategy
from workbench.training.trained_model import read_model, write_weights
from workbench.training.trial import run_trial
from workbench.training.worker_task import TrialTask


def experiment(compile: str | None = None, **changes: Any) -> Experiment:
    fields: dict[str, Any] = {
        "model": {"name": "mlp", "hidden_width": 16},
        "data": "breast_cancer",
        "objectives": [{"metric": "val_loss", "goal": "minimize"}],
        "training": {"epochs": 2, "global_batch": 100, "lr": 0.01, "lr_rule": "constant"},
        "plan": {} if compile is None else {"compile": compile},
    }
    return Experiment(**{**fields, **changes})


def train(folder: Path, written: Experiment, **task: Any) -> tuple[dict[str, Any], list[Event]]:
    """Return the weights, and what was reported."""
    events: list[Event] = []
    order = TrialTask("run", 0, 0, written.model_dump_json(), seed=3, folder=str(folder), **task)
    ended = run_trial(order, lambda event: bool(events.append(event)))
    assert ended.state == "complete", ended.traceback
    return checkpoint.read(folder / "checkpoints" / "last.pt")["strategy"]["model"], events


def assert_is_compiled_and_the_same(tmp_path: Path) -> None:
    plain, without = train(tmp_path / "plain", experiment("none"))
    assert not any(isinstance(event, Noted) for event in without)
    weights, events = train(tmp_path / "compiled", experiment("default"))
    notes = [event.message for event in events if isinstance(event, Noted)]
    assert notes
    assert all(note.startswith("compiled in") for note in notes)
    for name, value in plain.items():  # the names are those of the model, without _orig_mod
        torch.testing.assert_close(weights[name], value, rtol=1e-3, atol=1e-5)
    reports = [event for event in events if isinstance(event, TrialReported)]
    warm_up_s = sum(report.compile_s or 0.0 for report in reports)
    assert 0 < warm_up_s <= reports[-1].elapsed_s
    assert all(event.compile_s is None for event in without if isinstance(event, TrialReported))
    whole = next(report for report in reports if report.epoch == 1)
    assert whole.samples_per_s is None or whole.samples_per_s > 456 / whole.elapsed_s, (
        "warm-up is left out"
    )
    write_weights(
        tmp_path / "compiled" / "checkpoints" / "best.pt", tmp_path / "weights.safetensors"
    )
    model, _ = read_model(experiment("default"), {}, tmp_path / "weights.safetensors")
    assert list(model.state_dict()) == list(plain)


class TestWithoutCode:
    """With torch's backend that records what is to be compiled and runs it as it is, in seconds."""

    @pytest.fixture(autouse=True)
    def _no_code(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(
            strategy, "_compile", lambda target: torch.compile(target, backend="eager")
        )

    @pytest.mark.slow
    def test_a_compiled_training_is_the_same(self, tmp_path: Path) -> None:
        assert_is_compiled_and_the_same(tmp_path)

    def test_a_probe_measures_it_beside_the_plain_plan(self, tmp_path: Path) -> None:
        plans = tuple(
            PartialPlan.of(micro_batch=50, compile=value) for value in ("none", "default")
        )
        probe = PlanProbe(plans=plans, setting="s")
        events = []
        order = TrialTask(
            "run", 0, 0, experiment().model_dump_json(), folder=str(tmp_path), measurement=probe
        )
        ended = run_trial(order, lambda event: bool(events.append(event)))
        assert ended.state == "complete", ended.traceback
        plain, compiled = (event for event in events if isinstance(event, PlanMeasured))
        assert (plain.plan["compile"], compiled.plan["compile"]) == ("none", "default")
        assert plain.compile_s is None
        assert compiled.compile_s is not None
        assert compiled.step_time_s is not None
        assert compiled.step_time_s < compiled.compile_s


@pytest.mark.slow
def test_code_is_made_by_the_compiler(tmp_path: Path) -> None:
    assert_is_compiled_and_the_same(tmp_path)


@pytest.mark.parametrize("searched", [False, True])
def test_without_a_compiler_it_is_refused(
    searched: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    choices = {"search": {"compile": {"choices": ["none", "default"]}}}
    written = experiment(**choices) if searched else experiment("default")
    field = "search.compile" if searched else "plan.compile"
    with pytest.raises(ExperimentError, match=rf"{field}: .*no-such-compiler.*g\+\+"):
        check(written)
    check(written, on_this_machine=False)
    params = {"compile": "default"} if searched else {}
    order = TrialTask("run", 0, 0, written.model_dump_json(), folder=str(tmp_path), params=params)
    ended = run_trial(order, lambda _: False)
    assert (ended.state, ended.reason) == ("failed", "error")
    assert f"{field}: torch.compile needs a C++ compiler" in str(ended.message)


def test_own_steps_compile_themselves() -> None:
    with pytest.raises(ExperimentError, match="configure"):
        experiment("default", model=None, train="gan:GAN")
