"""The result of an AutoML run is an event of the run, and every view shows it."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

import workbench as wb
from tests.builders.ended_automl import create_automl
from tests.builders.recorded_runs import append, begin, finish
from workbench.cli.entry import run_command
from workbench.foundation.events import (
    CheckpointSaved,
    Event,
    ModelChosen,
    Noted,
    RunStateChanged,
    TrialEnded,
    TrialProposed,
    from_json,
    to_json,
)
from workbench.runs.automl import model_selection
from workbench.runs.automl.candidate_results import ranked_candidates
from workbench.runs.notebook_output import RUN_MIME_TYPE
from workbench.runs.waiting import progress_line
from workbench.store.history.trial_columns import values_of_trial
from workbench.sweeps.conclusion import natural_end, result_of
from workbench.views.live_feed.chosen_model import candidates, chosen_model

TABLE = pd.DataFrame({"x": range(40), "y": ["no", "yes", "no", "no"] * 10})


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("WORKBENCH_STORE", str(tmp_path / "store.sqlite"))
    with wb.Store.open(str(tmp_path / "store.sqlite")) as opened:
        yield opened


def fold(trial: int, configuration: int, repeat: int, state: str = "complete") -> list[Event]:
    values = {"val_loss": 0.5 + configuration}
    proposed = TrialProposed(
        trial=trial,
        params={"family": "mlp"},
        configuration=configuration,
        repeat=repeat,
        seed=repeat,
    )
    ended = TrialEnded(trial=trial, attempt=0, state=state, values=values, step=1)  # pyright: ignore
    return [proposed, ended]


def test_the_result_is_stored_before_the_run_has_ended_and_every_view_shows_it(
    store: wb.Store,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = create_automl(TABLE, "y", time="10s", store=store)
    run_id = run.run.run_id
    append(store, run_id, begin())
    # As if its samples were none that a linear model can be fitted to.
    monkeypatch.setattr(model_selection, "instant_model", lambda *_: None)
    ending = RunStateChanged(state="complete", reason="time")

    (event,) = result_of(store, run_id, run.run.experiment, ending)
    assert run.run.history.state == "running", "choosing stores nothing"
    append(store, run_id, [from_json(to_json(event)), ending])

    history = run.run.history
    assert history.result is not None
    assert history.result["model"] == "most frequent class"
    shown = chosen_model(history)
    assert shown is not None
    assert (shown.model, shown.metric, shown.value) == ("most frequent class", "accuracy", 0.75)
    assert shown.columns[:2] == ("model", "weight")
    assert shown.figures == ("confusion",)
    assert run.analysis.confusion().loc["yes"].tolist() == [2, 0], "the guess is always no"
    drawn = run.run.figure("confusion").to_dict()["data"][0]["text"]
    assert list(drawn) == [["6 (100%)", "0"], ["2 (100%)", "0"]]
    page = run.report(tmp_path / "report.html").read_text()
    assert "Chosen model" in page
    assert page.index(">Leaderboard</h2>") < page.index("most frequent class</td>")
    forms = run._repr_mimebundle_()
    assert RUN_MIME_TYPE in forms
    assert "no model was ready in time" in run.run._repr_mimebundle_()["text/plain"]
    assert "no model was ready in time, so the simplest guess is used" in repr(run)
    run_command(["show", run_id])
    told = capsys.readouterr().out
    assert "simplest guess, the most frequent class: accuracy 0.75" in told
    assert "0 candidates tried" in told
    append(store, run_id, [RunStateChanged(state="running")])
    assert run.run.history.result is None, "an extended run chooses again"


def test_a_run_of_which_every_model_failed_ends_with_a_warning(store: wb.Store) -> None:
    run = create_automl(TABLE, "y", time="10s", store=store)
    append(store, run.run.run_id, [*begin(), *fold(0, 0, 0, "failed")])
    ending = RunStateChanged(state="complete", reason="time")

    (event,) = result_of(store, run.run.run_id, run.run.experiment, ending)
    assert isinstance(event, Noted)
    assert event.message.startswith("no model could be chosen: no model of run")


def test_other_runs_have_their_best_trial_as_result(store: wb.Store) -> None:
    experiment = wb.Experiment(
        train="json:dumps",
        search={"lr": {"low": 1, "high": 2}},
        budget={"trials": 1},
        objectives=[{"metric": "loss", "goal": "minimize"}],
    )
    run_id = store.create_run(experiment)
    history = wb.attach(run_id, store=store).history
    assert result_of(store, run_id, experiment, natural_end(history, False)) == []


def test_show_counts_candidates_where_folds_are_trials(
    store: wb.Store, capsys: pytest.CaptureFixture[str]
) -> None:
    run = create_automl(TABLE, "y", time="10s", store=store)
    cut = [*fold(2, 1, 0, "stopped")]
    saved = CheckpointSaved(trial=2, attempt=0, step=1, path="trials/2/best", best=True)
    events = [
        *begin(),
        *fold(0, 0, 0),
        *fold(1, 0, 1),
        cut[0],
        saved,
        cut[1],
        *finish(9, "complete", "time"),
    ]
    append(store, run.run.run_id, events)

    run_command(["show", run.run.run_id])
    told = capsys.readouterr().out
    assert "1 candidate tried (not to the end), 1 more stopped before it had a model" in told
    assert "3 complete" not in told
    assert "candidate" in told
    assert "2 of 5" in told
    forms = run.run._repr_mimebundle_()
    for form in (forms["text/plain"], forms["text/html"], progress_line(run.run.history)):
        assert "2 candidates" in form
        assert "stopped" not in form


def test_a_run_that_is_under_way_has_a_leaderboard_with_errors_in_the_unit_of_the_target(
    store: wb.Store,
) -> None:
    numbers = pd.DataFrame({"x": range(40), "y": [value * 1000.0 for value in range(40)]})
    run = create_automl(numbers, "y", time="10s", store=store)
    append(store, run.run.run_id, [*begin(), *fold(0, 1, 0), *fold(1, 0, 0), *fold(2, 0, 1)])
    history = run.run.history
    for trial in history.trials.values():
        trial.values |= {
            "val_mean_absolute_error": 5_500.0,
            "val_root_mean_squared_error": 11_000.0,
        }
        trial.best_checkpoint = "kept"
    shown = candidates(history)
    assert shown is not None
    scores = ("val_loss (standardised)", "val_mae", "val_rmse")
    assert shown.columns == ("model", "state", *scores, "folds", "training time", "with")
    assert [row[5] for row in shown.rows] == ["2 of 5", "1 of 5"], "the best first"
    best = ranked_candidates(history)[0]
    assert (best.values["mae"], best.values["rmse"]) == (5_500.0, 11_000.0)
    assert f"mean absolute error in the unit of the target {best.values['mae']:.4f}" in best.line(
        is_best=True
    )
    values = values_of_trial(history, history.trials[1])
    assert values["val_mae"] == pytest.approx(best.values["mae"])
    assert set(scores) == values.keys()
    append(store, run.run.run_id, [ModelChosen(result={"model": "mlp"})])
    assert candidates(run.run.history) is not None, "they stay beside the result"
