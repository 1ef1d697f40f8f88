from __future__ import annotations

import html
from collections.abc import Sequence
from pathlib import Path

import pytest

import workbench as wb
from tests.builders.recorded_runs import EXPERIMENT, append, begin, finish, record_run, trial_events
from tests.services.shell import Shell
from workbench.experiment import Experiment
from workbench.foundation.errors import ArgumentError, RunError
from workbench.foundation.events import Event, TrialEnded
from workbench.runs.bundles.bundle_formats import formats_of
from workbench.runs.plots.report_answers import describe_export
from workbench.store.database import Store
from workbench.views.live_feed.available_actions import offers_of_run, offers_of_trial

AUTOMATIC = {"name": "table", "path": "a.csv", "target": "y", "held_out": "0123"}
IN_TIME = {"time": "15m"}
STOPPED, COMPLETE = trial_events(0, at_s=0, state="stopped"), trial_events(0, at_s=0)
FAILED = trial_events(0, at_s=0, state="failed", reason="error")


@pytest.fixture
def automatic(tmp_path: Path) -> wb.Run:
    """A run that has the data of AutoML."""
    run_id = record_run(tmp_path, data=AUTOMATIC)
    return wb.attach(run_id, store=Store.open(str(tmp_path / "store.sqlite")))


def test_an_automl_run_is_exported_as_its_result_wherever_that_is_offered(
    automatic: wb.Run, shell: Shell
) -> None:
    history = automatic.history
    assert f"workbench export {automatic.run_id} --to best\n" in shell("show", automatic.run_id)[1]
    [offer] = [
        offered
        for offered in offers_of_run(automatic.row, history, is_advice=False)
        if offered.kind == "export"
    ]
    assert ("ONNX graph" in offer.explanation, [field.name for field in offer.fields]) == (
        True,
        ["to"],
    )
    assert "compress" not in {
        offered.kind for offered in offers_of_run(automatic.row, history, is_advice=False)
    }
    with pytest.raises(RunError, match=f"model of one fold.*{automatic.run_id}.*export"):
        automatic.compress()
    assert describe_export(automatic.experiment).startswith("the result as one ONNX graph")
    with pytest.raises(ArgumentError, match="cannot be written as openvino; allowed: onnx"):
        automatic.export("best", format="openvino")
    with pytest.raises(ArgumentError, match="without its weights"):
        automatic.export("best", weights=False)


def test_the_formats_that_a_dialog_offers_are_those_that_export_writes(automatic: wb.Run) -> None:
    usual = wb.Experiment(**EXPERIMENT)
    own = wb.Experiment(train="a:b", objectives=[{"metric": "loss", "goal": "minimize"}])
    assert formats_of(usual)[0] == "onnx"
    assert "flower" not in formats_of(usual)
    assert formats_of(own) == ()
    assert formats_of(automatic.experiment, of_trial=True) == ()
    trial = automatic.history.trials[0]
    [offer] = [
        offered
        for offered in offers_of_trial(automatic.run_id, "complete", automatic.history, trial)
        if offered.kind == "export"
    ]
    assert "format" not in [field.name for field in offer.fields]


def test_resume_is_not_offered_where_nothing_is_left_to_try(tmp_path: Path) -> None:
    with Store.open(str(tmp_path / "store.sqlite")) as store:
        run_id = store.create_run(wb.Experiment(**{**EXPERIMENT, "budget": {"trials": 1}}))
        failed = trial_events(0, at_s=1, state="failed", reason="error")
        append(store, run_id, [*begin(), *failed, *finish(3, "failed", "failures")])
        run = wb.attach(run_id, store=store)
        kinds = {offer.kind for offer in offers_of_run(run.row, run.history, is_advice=False)}
    assert "resume" not in kinds
    assert "extend" in kinds


@pytest.mark.parametrize(
    ("events", "budget", "steps"),
    [
        ([*STOPPED, *finish(9, "complete", "time")], IN_TIME, ["extend RUN --more-time 15m"]),
        (
            [*FAILED, *finish(9, "failed", "failures")],
            IN_TIME,
            ["resume RUN", "sweep FILE", "show RUN --trial 0"],
        ),
        (finish(9, "stopped", "person"), IN_TIME, ["resume RUN"]),
        ([*COMPLETE, *finish(9)], {"trials": 1}, []),
    ],
)
def test_the_report_of_a_run_without_a_result_names_the_commands_of_the_terminal(
    tmp_path: Path,
    shell: Shell,
    events: Sequence[Event],
    budget: dict[str, object],
    steps: list[str],
) -> None:
    with Store.open(str(tmp_path / "store.sqlite")) as store:
        run_id = store.create_run(Experiment(**{**EXPERIMENT, "budget": budget}))
        append(store, run_id, [*begin(), *events])
        page = html.unescape(
            wb.attach(run_id, store=store).report(tmp_path / "report.html").read_text()
        )
    commands = [f"workbench {step.replace('RUN', run_id)}" for step in steps]
    assert ("Next steps" in page) == bool(steps)
    for command in commands:
        assert f"<code>{command}</code>" in page
        assert command in shell("show", run_id)[1]


def test_of_several_objectives_a_trial_of_the_front_is_exported_by_its_number(
    tmp_path: Path, shell: Shell
) -> None:
    goals = [{"metric": name, "goal": "maximize"} for name in ("val_accuracy", "samples_per_s")]
    beaten, leader = (
        [
            event.model_copy(update={"values": {"val_accuracy": value, "samples_per_s": value}})
            if isinstance(event, TrialEnded)
            else event
            for event in trial_events(number, at_s=number)
        ]
        for number, value in enumerate([0.5, 0.75])
    )
    with Store.open(str(tmp_path / "store.sqlite")) as store:
        run_id = store.create_run(Experiment(**{**EXPERIMENT, "objectives": goals}))
        append(store, run_id, [*begin(), *beaten, *leader, *finish(9)])
    shown = shell("show", run_id)[1]
    assert "export the best" not in shown
    assert f"export one of the front  workbench export {run_id} --to best --trial 1\n" in shown


def test_init_says_how_a_script_is_given_its_own_options(shell: Shell) -> None:
    status, output, problem = shell("init", "train.py", "--model", "cnn")
    assert (status, output) == (2, "")
    assert "workbench init 'train.py --model VALUE'" in problem
