from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path
from time import monotonic, time
from typing import Any

import numpy as np
import pandas as pd
import pytest

import workbench as wb
from tests.builders.ended_automl import create_automl
from tests.builders.recorded_runs import append, begin, finish
from workbench.foundation.errors import ArgumentError, DataError, RunError
from workbench.foundation.events import TrialEnded, TrialProposed
from workbench.runs.automl import launch
from workbench.runs.automl.conclusion import conclude_given


@pytest.mark.parametrize(
    ("time_s", "part"),
    [("2s", "too short"), (5, "too short"), ("soon", "not a duration"), (True, "not a duration")],
)
def test_a_time_in_which_nothing_can_be_tried_is_refused(time_s, part) -> None:
    with pytest.raises(ArgumentError, match=part):
        wb.automl(pd.DataFrame({"x": range(40), "y": [0, 1] * 20}), "y", time=time_s)


def table() -> pd.DataFrame:
    return pd.DataFrame({"x": range(40), "y": ["no", "yes", "no", "no"] * 10})


def test_the_time_counts_from_the_call_but_some_is_left_to_try_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workbench.runs.launch.start", lambda run, **_: None)
    with wb.Store.open(str(tmp_path / "store.sqlite")) as store:
        found = create_automl(table(), "y", time="1m", store=store)
        for waited_s, counted_s in ((20, 20), (59, 60 - 15 - launch.MIN_TRIAL_TIME_S)):
            launch.start(found, began_s=monotonic() - waited_s)
            last = store.commands(found.run.run_id)[-1]
            assert last.kind == "count_wait"
            assert last.arguments["seconds"] == pytest.approx(counted_s, abs=2)


def test_the_time_of_a_run_in_this_process_counts_from_the_call_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = []
    with wb.Store.open(str(tmp_path / "store.sqlite")) as store:
        monkeypatch.setattr(
            "workbench.cluster.head.attachment.attached", lambda _: contextlib.nullcontext()
        )
        monkeypatch.setattr(
            "workbench.runs.launch.start",
            lambda run, **_: counted.extend(store.commands(run.run_id)),
        )
        found = create_automl(table(), "y", time="1m", store=store)
        num_before = len(store.commands(found.run.run_id))
        launch.start(found, began_s=monotonic() - 20, launcher="inline")
    [waited] = counted[num_before:]
    assert (waited.kind, waited.arguments["seconds"]) == ("count_wait", pytest.approx(20, abs=2))


def test_a_run_that_was_too_short_for_any_trial_answers_with_a_linear_model(
    tmp_path: Path,
) -> None:
    run = without_trials(table(), tmp_path)
    run_id = run.run.run_id
    assert run.has_result
    assert run.score().keys() == run.baseline.keys()
    assert run.predict([]).dtype.kind == "U"
    assert run.leaderboard()["model"].tolist() == ["linear", "most frequent class"]
    (used,) = run.to_json()["used"]
    assert (used["trial"], used["family"], used["weight"]) == (None, "linear", 1.0)
    told = "\n".join(run.summary())
    assert "no trial was ready in time, so a linear model was fitted at once" in told
    assert f'wb.attach("{run_id}").extend(time="1m")' in told
    assert_equal_elsewhere(run, table().drop(columns="y"), tmp_path)


@pytest.mark.parametrize(
    ("labels", "options", "family"),
    [
        (["a", "b"], {}, "lightgbm"),
        pytest.param(["a", "b", "c"], {}, "lightgbm", marks=pytest.mark.slow),
        pytest.param((), {}, "lightgbm", marks=pytest.mark.slow),
        ((), {"families": "linear,boosted_trees"}, "boosted_trees"),
        pytest.param(
            ["a", "b", "c"],
            {"families": "boosted_trees,linear"},
            "boosted_trees",
            marks=pytest.mark.slow,
        ),
        pytest.param((), {"families": "linear,extra_trees"}, "linear", marks=pytest.mark.slow),
        ((), {"limit": "latency=1ms"}, "linear"),
    ],
)
def test_boosted_trees_are_fitted_at_once_where_they_are_better(
    tmp_path: Path, labels: list[str], options: dict[str, Any], family: str
) -> None:
    pytest.importorskip("lightgbm")
    rng = np.random.default_rng(0)
    first, second = rng.normal(size=(2, 600))
    y = first * second  # nothing that a sum of the columns tells
    rows = pd.DataFrame({"a": first, "b": second, "y": y})
    if labels:
        rows["y"] = pd.qcut(y, len(labels), labels=labels).astype(str)
    run = without_trials(rows, tmp_path, **options)
    assert [used["family"] for used in run.to_json()["used"]] == [family]
    assert f"so a {family} model was fitted at once" in "\n".join(run.summary())
    (metric, score), *_ = run.score().items()
    assert (score - run.baseline[metric] > 0.25) == (family != "linear")
    if family != "linear":
        assert_equal_elsewhere(run, rows.drop(columns="y"), tmp_path)


@pytest.mark.parametrize(
    ("share", "waited_s", "options", "is_refused"),
    [
        (0.3, 10, {}, True),  # 170 s at 30 % are 51 s of a processor
        (0.55, 10, {}, False),
        (0.55, 80, {}, True),
        (0.9, 170, {}, False),  # it is short, but the machine is not busy
        (None, 170, {}, False),
        (0.3, 10, {"families": "linear"}, True),
        (0.3, 10, {"families": "boosted_trees"}, True),  # as without LightGBM
        (0.3, 10, {"limit": "latency=1ms"}, True),
    ],
)
def test_on_a_machine_that_is_too_busy_for_other_processes_a_run_has_no_driver(
    tmp_path: Path,
    share: float | None,
    waited_s: float,
    options: dict[str, Any],
    is_refused: bool,
) -> None:
    pytest.importorskip("lightgbm")
    with wb.Store.open(str(tmp_path / "store.sqlite")) as store:
        run = create_automl(table(), "y", time="3m", store=store, **options)
        began_s = monotonic() - waited_s
        reason = launch.reason_for_no_driver(run, share, began_s=began_s)
        assert (reason is not None) == is_refused
        for elsewhere in ({"launcher": "inline"}, {"address": "10.0.0.1:6379"}):
            where: dict[str, Any] = {"began_s": began_s, **elsewhere}
            assert launch.reason_for_no_driver(run, share, **where) is None


def test_networks_of_images_need_a_driver(tmp_path: Path) -> None:
    """Their steps take long, and another process can go on with them."""
    images = np.random.default_rng(0).integers(0, 256, size=(120, 8, 8), dtype=np.uint8)
    with wb.Store.open(str(tmp_path / "store.sqlite")) as store:
        run = create_automl((images, np.arange(120) % 2), time="3m", store=store)
        assert launch.reason_for_no_driver(run, 0.3, began_s=monotonic()) is None


def test_a_run_with_time_for_one_trial_ends_here_and_can_be_extended(tmp_path: Path) -> None:
    pytest.importorskip("lightgbm")
    rng = np.random.default_rng(0)
    rows = pd.DataFrame(rng.normal(size=(600, 2)), columns=["a", "b"])
    rows["y"] = rows["a"] * rows["b"]
    with wb.Store.open(str(tmp_path / "store.sqlite")) as store:
        run = create_automl(rows, "y", time="1m", store=store)
        launch.start(run, began_s=monotonic() - 50, here="the machine is busy")
        history = run.run.history
        assert (history.state, history.message) == ("complete", "its time is used up")
        assert history.waited_s == pytest.approx(50, abs=5)
        (trial,) = history.trials.values()
        assert (trial.state, trial.params["family"]) == ("complete", "lightgbm")
        document = run.to_json()
        assert (document["model"], list(document["refit"])) == ("lightgbm", ["0"])
        assert "fitted again to all rows" in "\n".join(run.summary())
        # The model of all rows knows the test rows. The score is that of the one before.
        residuals = rows["y"] - run.predict(rows.drop(columns="y"))
        assert residuals.std() < run.score()["rmse"]
        assert_equal_elsewhere(run, rows.drop(columns="y"), tmp_path)
        assert history.ended_unix_s is not None
        used_s = history.limited_s(history.ended_unix_s)
        more = create_automl(rows, "y", time=used_s + 100, store=store)
        assert more.continued is not None
        assert more.run.run_id == run.run.run_id


@pytest.mark.slow
def test_who_does_not_wait_gets_the_model_from_another_process(tmp_path: Path) -> None:
    rows = pd.DataFrame(np.random.default_rng(0).normal(size=(300, 2)), columns=["a", "b"])
    rows["y"] = rows["a"] * rows["b"]
    with wb.Store.open(str(tmp_path / "store.sqlite")) as store:
        found = create_automl(rows, "y", time="1m", families="linear,boosted_trees", store=store)
        launch.start(found, began_s=monotonic() - 20, here="the machine is busy", wait=False)
        assert found.run.history.drivers[-1].pid != os.getpid()
        history = found.wait().run.history
        assert (history.state, history.reason) == ("complete", "time")
        assert 20 <= history.waited_s < 60
        assert {trial.params["family"] for trial in history.trials.values()} >= {"boosted_trees"}
        assert found.score()["r2"] > 0.3


def test_the_process_of_such_a_model_is_told_its_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[Any] = []
    with wb.Store.open(str(tmp_path / "store.sqlite")) as store:
        found = create_automl(table(), "y", time="1m", store=store)
        with monkeypatch.context() as patched:
            patched.setattr("workbench.runs.automl.conclusion.sys.executable", shutil.which("env"))
            with pytest.raises(RunError, match="ended with 125") as refused:  # no such option
                launch.start(found, began_s=monotonic(), here="busy", wait=False)
        assert (found.run.folder / "driver.log").exists()
        assert str(found.run.folder) in str(refused.value.next_step)
        monkeypatch.setenv("WORKBENCH_STORE", store.url)
        monkeypatch.setattr(
            "workbench.runs.automl.conclusion.conclude_here",
            lambda store, *words, waited_s: told.append((store.url, *words, waited_s)),
        )
        monkeypatch.setattr("sys.argv", ["-c", found.run.run_id, "busy", str(time() - 30)])
        conclude_given()
        assert told[0][:3] == (store.url, found.run.run_id, "busy")
        assert told[0][3] == pytest.approx(30, abs=15)


def test_a_run_that_is_interrupted_without_trials_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("workbench.runs.automl.conclusion.result_of", interrupt)
    with wb.Store.open(str(tmp_path / "store.sqlite")) as store:
        run = create_automl(table(), "y", time="1m", store=store)
        with pytest.raises(KeyboardInterrupt):
            launch.start(run, began_s=monotonic() - 50, here="the machine is busy")
        history = run.run.history
        assert (history.state, history.reason) == ("stopped", "person")
        assert not store.is_driven(run.run.run_id)


def without_trials(rows: pd.DataFrame, tmp_path: Path, **options: Any) -> wb.AutoML:
    """Return an ended run that had no time for a trial."""
    store = wb.Store.open(str(tmp_path / "store.sqlite"))
    run = create_automl(rows, "y", time="10s", store=store, **options)
    append(store, run.run.run_id, [*begin(), *finish(10, "complete", "time")])
    return run


def assert_equal_elsewhere(found: wb.AutoML, rows: pd.DataFrame, tmp_path: Path) -> None:
    """Assert that another process and a bundle predict the same."""
    with wb.Store.open(str(tmp_path / "store.sqlite")) as store:
        again = wb.AutoML.attach(found.run.run_id, store=store)
        bundle = wb.load_bundle(found.export(tmp_path / "best"))
        answers = bundle.predict(rows)
        if answers.probabilities is None:
            assert again.predict(rows).tolist() == found.predict(rows).tolist()
            assert answers.values == pytest.approx(found.predict(rows), rel=1e-5, abs=1e-6)
        else:
            assert again.predict_proba(rows).tolist() == found.predict_proba(rows).tolist()
            assert answers.probabilities == pytest.approx(found.predict_proba(rows), abs=1e-5)


def test_a_second_run_on_the_same_rows_learns_from_the_first(tmp_path: Path) -> None:
    with wb.Store.open(str(tmp_path / "store.sqlite")) as store:

        def earlier_of(rows: pd.DataFrame, **options: Any) -> list[Any]:
            run = create_automl(rows, "y", time="10s", store=store, **options)
            commands = store.commands(run.run.run_id)
            return [
                command.arguments["run_id"] for command in commands if command.kind == "warm_start"
            ]

        first = create_automl(table(), "y", time="10s", store=store)
        assert earlier_of(table()) == [], "it has no trial"
        params = {"family": "linear", "linear_l2": 2.0}
        append(
            store,
            first.run.run_id,
            [
                *begin(),
                TrialProposed(trial=0, params=params, configuration=0, seed=1),
                TrialEnded(trial=0, attempt=0, state="complete", values={"val_loss": 0.5}, step=1),
                *finish(10, "complete", "time"),
            ],
        )
        assert earlier_of(table()) == [first.run.run_id]
        assert earlier_of(table(), seed=1) == [], "other rows are tested"
        assert earlier_of(table().assign(x=range(1, 41))) == []


def test_a_second_call_with_more_time_continues_the_first(tmp_path: Path) -> None:
    with wb.Store.open(str(tmp_path / "store.sqlite")) as store:

        def called(time: str = "50s", rows: pd.DataFrame | None = None, **options: Any) -> Any:
            rows = table() if rows is None else rows
            return create_automl(rows, "y", time=time, store=store, **options)

        first = called("20s")
        assert first.continued is None
        assert called("20s").continued is None, "nothing has started the first one"
        append(store, first.run.run_id, [*begin(), *finish(20, "complete", "time")])
        for other in ({"seed": 1}, {"metric": "accuracy"}, {"families": "linear"}, {"name": "b"}):
            assert called(**other).continued is None, other
        assert called(rows=table()[:39]).continued is None
    with wb.Store.open(str(tmp_path / "other.sqlite")) as store:
        first = called("20s")
        append(store, first.run.run_id, [*begin(), *finish(20, "complete", "time")])
        again = called("50s")
        assert again.run.run_id == first.run.run_id
        assert again.continued.more_s == 30.0
        expected = f"run {first.run.run_id} is the same call: it continues with 30 s more"
        assert again.notes[0].startswith(expected)
        shorter = called("15s")
        assert shorter.continued is None, "it has had its time"


def test_a_second_call_goes_on_with_an_interrupted_run(tmp_path: Path) -> None:
    with wb.Store.open(str(tmp_path / "store.sqlite")) as store:
        first = create_automl(table(), "y", time="20s", store=store)
        append(store, first.run.run_id, begin())  # and no driver works on it
        again = create_automl(table(), "y", time="20s", store=store)
        assert again.run.run_id == first.run.run_id
        assert again.continued is not None
        assert again.continued.more_s == 0.0
        assert "it continues from what it knows" in again.notes[0]


def test_a_second_call_returns_the_result_of_a_run_that_ends_while_it_waits(tmp_path: Path) -> None:
    with wb.Store.open(str(tmp_path / "store.sqlite")) as store:
        first = create_automl(table(), "y", time="20s", store=store)
        append(store, first.run.run_id, begin())
        again = create_automl(table(), "y", time="20s", store=store)
        append(store, first.run.run_id, finish(20, "complete", "time"))
        launch.start(again, began_s=monotonic())
        assert again.run.run_id == first.run.run_id
        assert not again.has_new_driver
        assert again.has_result
        assert "it has just ended: this is its result" in again.notes[0]


# The test part has a fifth of each class.
GRADES = pd.DataFrame({"x": range(100), "y": ["low"] * 50 + ["mid"] * 10 + ["high"] * 40})
GRADES = GRADES.sample(frac=1.0, random_state=0).reset_index(drop=True)
HEAVY = table().assign(w=[1, 9, 1, 1] * 10)


@pytest.mark.parametrize(
    ("rows", "options", "accuracy"),
    [
        (table(), {"class_weights": {"yes": 50}}, 6 / 8),
        (table(), {"class_weights": "balanced"}, 6 / 8),
        (table(), {"metric": "balanced_accuracy"}, 6 / 8),
        (GRADES, {"class_order": ["low", "mid", "high"]}, 10 / 20),
        (HEAVY, {"weight_column": "w"}, 2 * 9 / (2 * 9 + 6)),
        (HEAVY, {"weight_column": "w", "class_weights": {"no": 50}}, 2 * 9 / (2 * 9 + 6)),
    ],
)
def test_the_baseline_is_the_most_frequent_class_whatever_mistakes_cost(
    rows: pd.DataFrame, options: dict[str, Any], accuracy: float, tmp_path: Path
) -> None:
    how: dict[str, Any] = {"group_column": "none", "time_column": "none", **options}
    with wb.Store.open(str(tmp_path / "store.sqlite")) as store:
        run = create_automl(rows, "y", time="10s", store=store, **how)
        append(store, run.run.run_id, [*begin(), *finish(10, "complete", "time")])
        assert run.baseline["accuracy"] == pytest.approx(accuracy)
        last = run.leaderboard().iloc[-1]
        assert last["model"] == "most frequent class"
        assert last["test_accuracy"] == pytest.approx(accuracy)


def test_a_run_of_which_every_model_failed_says_why(tmp_path: Path) -> None:
    with wb.Store.open(str(tmp_path / "store.sqlite")) as store:
        run = create_automl(table(), "y", time="10s", store=store)
        proposed = TrialProposed(trial=0, params={"family": "mlp"}, configuration=0, seed=1)
        failed = TrialEnded(
            trial=0, attempt=0, state="failed", reason="error", message="ValueError: wide"
        )
        append(store, run.run.run_id, [*begin(), proposed, failed, *finish(10, "complete", "time")])

        assert not run.has_result
        with pytest.raises(
            RunError, match=r"no model .* was trained \(the last failed: ValueError: wide\)"
        ):
            run.predict(table())


@pytest.mark.parametrize(
    ("y", "metric", "objective", "reported"),
    [
        (["no", "yes"] * 20, None, ("val_loss", "minimize"), None),
        (["no", "yes"] * 20, "accuracy", ("val_accuracy", "maximize"), None),
        (["no", "yes"] * 20, "roc_auc", ("val_roc_auc", "maximize"), ["accuracy", "roc_auc"]),
        (np.linspace(0, 1, 40) ** 2, "mae", ("val_mean_absolute_error", "minimize"), None),
        (np.linspace(0, 1, 40) ** 2, "r2", ("val_loss", "minimize"), None),
    ],
)
def test_trials_report_and_are_compared_by_what_is_optimised(
    tmp_path: Path,
    y: Any,
    metric: str | None,
    objective: tuple[str, str],
    reported: list[str] | None,
) -> None:
    data = pd.DataFrame({"x": [3, 1, 4, 1, 5] * 8, "paid": y, "y": y})
    with wb.Store.open(str(tmp_path / "store.sqlite")) as store:
        run = create_automl(data, "y", time="10s", metric=metric, drop=["paid"], store=store)
        experiment = run.run.experiment
        assert [(aim.metric, aim.goal) for aim in experiment.objectives] == [objective]
        assert [own_metric.name for own_metric in experiment.own_metrics] == (reported or [])
        append(store, run.run.run_id, [*begin(), *finish(10, "complete", "time")])
        document = run.to_json()
        assert document["metric"] == metric
        assert next(iter(document["test"])) == (metric or "accuracy")
        notes = [note for note in run.notes if "installed" not in note]
        assert notes == [], "the column that holds the answer is left out"
        assert (f"optimised for {metric}" in "\n".join(document["summary"])) == (metric is not None)


def test_what_cannot_be_optimised_or_left_out_is_refused(tmp_path: Path) -> None:
    with wb.Store.open(str(tmp_path / "store.sqlite")) as store:
        with pytest.raises(
            ArgumentError, match="metric: 'rmse' cannot be optimised in a classification"
        ):
            create_automl(table(), "y", metric="rmse", store=store)
        with pytest.raises(DataError, match="drop: there is no column 'z'"):
            create_automl(table().assign(w=1), "y", drop="z", store=store)
        assert store.runs() == []


@pytest.mark.parametrize(
    ("metric", "task"),
    [
        (None, "classification"),
        ("accuracy", "classification"),
        ("mae", "regression"),
        ("quadratic_kappa", "classification"),
    ],
)
def test_a_metric_decides_whether_whole_numbers_are_classes(
    metric: str | None, task: str, tmp_path: Path
) -> None:
    random = np.random.default_rng(0)
    data = pd.DataFrame({"x": random.normal(size=200), "visits": random.integers(0, 5, 200)})
    with wb.Store.open(str(tmp_path / "store.sqlite")) as store:
        run = create_automl(data, "visits", time="10s", metric=metric, store=store)
        assert run._held_out.interpreter.task == task


def test_a_column_with_a_comma_in_its_name_is_a_target_in_every_form_of_a_table(
    tmp_path: Path,
) -> None:
    rows = pd.DataFrame({"x": range(60), "price, total": np.arange(60) % 7 * 1.5, "b": [0.5] * 60})
    rows["b"] += rows["x"]
    rows.to_csv(tmp_path / "rows.csv", index=False)
    rows.to_parquet(tmp_path / "rows.parquet")
    forms = [rows, rows.to_dict("list"), rows.to_dict("records")]
    forms += [tmp_path / "rows.csv", str(tmp_path / "rows.parquet")]
    with wb.Store.open(str(tmp_path / "store.sqlite")) as store:
        for form in forms:
            created = create_automl(form, "price, total", time="10s", store=store, name="one")
            assert created._interpreter.target_name == "price, total"
            assert not created._interpreter.target_names
        both = create_automl(tmp_path / "rows.csv", "price, total,b", time="10s", store=store)
        assert both._interpreter.target_names == ("price, total", "b")
        with pytest.raises(DataError, match=r"no column 'price'; allowed: x, 'price, total', b"):
            create_automl(tmp_path / "rows.csv", "price, x", time="10s", store=store)
