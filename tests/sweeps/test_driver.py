"""What a run stores: one sweep of every kind of ending, and how budgets end runs."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.services.sweeps import Sweep
from tests.services.waiting import wait_until
from workbench.foundation.events import TrialEnded, TrialReported
from workbench.foundation.outside_text import MAX_LINE_CHARS
from workbench.store.database import Store

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("free_pool")]

WAYS = [
    "well",
    "returns",
    "prints",
    "raises",
    "exits",
    "memory",
    "nan",
    "silent",
    "wrong report",
    "deaf",
    "file name",
    "endless",
]


@pytest.fixture(scope="module")
def endings(ray_head: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sweep]:
    """One sweep with a trial for every way of ending."""
    with Store.open(str(tmp_path_factory.mktemp("endings") / "store.sqlite")) as store:
        sweep = Sweep.create(
            store,
            "behave",
            search={"how": {"choices": WAYS}},
            sampler="grid",
            resources={"concurrency": 2, "trial_time": 2},
        )
        yield sweep.launch("inline")


@pytest.mark.parametrize(
    ("how", "state", "reason", "message", "values"),
    [
        ("well", "complete", None, None, {"loss": 0.4}),
        ("returns", "complete", None, None, {"loss": 0.25}),
        ("raises", "failed", "error", "ValueError: x is too large", {"loss": 0.7}),
        ("exits", "failed", "error", "SystemExit: I have had enough", {}),
        ("memory", "failed", "oom", "MemoryError: cannot have it", {}),
        ("nan", "failed", "diverged", "loss became nan", {"loss": 0.9}),
        ("silent", "failed", "error", "accuracy", {}),
        ("wrong report", "failed", "error", "report.loss", {}),
        (
            "file name",
            "failed",
            "error",
            r"FileNotFoundError: there is no missing-\xff.csv",
            {"loss": 0.6},
        ),
        ("endless", "failed", "error", r"RuntimeError: CUDA error: \x00", {"loss": 0.3}),
        ("deaf", "failed", "timeout", "it exceeded resources.trial_time (2 s)", {"loss": 0.8}),
        ("deaf", "failed", "timeout", "has 10% of its limit to stop, at least 1 s)", {"loss": 0.8}),
    ],
)
def test_a_trial_ends_as_it_did(
    endings: Sweep,
    *,
    how: str,
    state: str,
    reason: str | None,
    message: str | None,
    values: dict[str, float],
) -> None:
    trial = endings.trial_with(how=how)
    assert (trial.state, trial.reason) == (state, reason)
    assert {"loss": trial.values["loss"]} == values if values else trial.values == {}
    assert (message or "") in (trial.message or "")


def test_the_run_goes_on_after_every_failure_and_ends_exhausted(endings: Sweep) -> None:
    assert (endings.state, endings.history.reason) == ("complete", "exhausted")
    assert sorted(str(trial.params["how"]) for trial in endings.trials) == sorted(WAYS)
    endings.assert_sound()


def test_names_and_messages_from_outside_are_stored_in_writing(endings: Sweep) -> None:
    trial = endings.trial_with(how="file name")
    assert trial.last_values == {"loss": 0.6, r"size of caf\xe9": 1.0}
    endless = endings.trial_with(how="endless").message or ""
    assert endless.startswith("RuntimeError: CUDA error: \\x00\nxxx")
    assert "(cut: this line has 1,048,576 characters)" in endless
    assert len(endless) < 2 * MAX_LINE_CHARS


def test_tracebacks_are_stored(endings: Sweep) -> None:
    for how in ("raises", "exits", "memory", "wrong report"):
        assert "sweep_functions.py" in (endings.trial_with(how=how).traceback or ""), how


def test_nothing_after_the_value_that_diverged_is_stored(endings: Sweep) -> None:
    reports = endings.of(TrialReported, endings.trial_with(how="nan").number)
    assert [report.step for report in reports] == [1, 2]
    assert math.isnan(reports[1].values["loss"])


def test_prints_land_in_the_log_of_the_trial(endings: Sweep) -> None:
    number = endings.trial_with(how="prints").number
    log = endings.store.folder(endings.run_id) / "trials" / f"{number:05d}" / "log.txt"
    assert log.read_text() == "printed by the trial\n"


def test_the_process_of_a_trial_that_does_not_stop_in_time_is_ended(endings: Sweep) -> None:
    trial = endings.trial_with(how="deaf")
    [pid] = trial.worker_pids
    # The driver does not wait for the process that it has killed.
    wait_until(lambda: not Path(f"/proc/{pid}").exists())


def test_pruned_trials_keep_their_reports_and_give_their_warm_worker_to_the_next(
    store: Store,
) -> None:
    sweep = Sweep.create(
        store,
        "curve",
        options={"steps": 9},
        search={"x": {"choices": [0.1, 0.9, 0.8, 0.7]}},
        early_stop={"pruner": "asha", "reduction_factor": 3},
        sampler="grid",
        seed=1,
    ).launch("inline")

    pruned = sweep.history.in_state("pruned")
    assert pruned
    assert len(pruned) < len(sweep.trials)
    for trial in pruned:
        reports = sweep.of(TrialReported, trial.number)
        assert [report.step for report in reports] == list(range(1, trial.last_step + 1))
        assert trial.last_step < 9
        assert trial.values == reports[-1].values
    # The next trial may begin while the worker of a pruned one stops: then there is a second one.
    assert len({trial.worker_pids[0] for trial in sweep.trials}) <= 2 < len(sweep.trials)
    sweep.assert_sound()


def test_several_objectives_with_a_trial_that_is_not_a_number(store: Store) -> None:
    sweep = Sweep.create(
        store,
        "two_objectives",
        search={"x": {"choices": [0, 1, 2]}},
        sampler="grid",
        objectives=[{"metric": "loss", "goal": "minimize"}, {"metric": "size", "goal": "minimize"}],
    ).launch("inline")

    assert sweep.state == "complete"
    assert sweep.trial_with(x=2).reason == "diverged"
    assert [trial.params["x"] for trial in sweep.history.front()] in ([0, 1], [1, 0])


def test_each_configuration_is_repeated_with_other_seeds(store: Store) -> None:
    sweep = Sweep.create(
        store, "behave", search={"how": {"choices": ["prints"]}}, sampler="grid", repeats=3
    ).launch("inline")

    assert [(trial.configuration, trial.repeat) for trial in sweep.trials] == [
        (0, 0),
        (0, 1),
        (0, 2),
    ]
    seeds = {report.values["seed"] for report in sweep.of(TrialReported)}
    assert seeds == {float(trial.seed) for trial in sweep.trials}
    assert len(seeds) == 3


def test_a_trial_that_breaks_a_limit_is_never_the_best(store: Store) -> None:
    sweep = Sweep.create(
        store,
        "two_objectives",
        search={"x": {"choices": [0, 0.5, 1]}},
        sampler="grid",
        constraints=[{"metric": "size", "at_most": 0.6}],
    ).launch("inline")

    best = sweep.history.best()
    assert best is not None
    assert best.params == {"x": 0.5}
    assert all(trial.state == "complete" for trial in sweep.trials)


@pytest.mark.parametrize(
    ("fields", "reason", "num_trials"),
    [
        ({"budget": {"trials": 3}}, "trials", 3),
        (
            {
                "budget": {"trials": 30, "plateau": 2},
                "search": {"x": 1, "unread": {"low": 0.0, "high": 1.0}},
            },
            "plateau",
            3,
        ),
        (
            {
                "objectives": [{"metric": "loss", "goal": "minimize", "target": 2.5}],
                "budget": {"trials": 9},
            },
            "target",
            1,
        ),
    ],
)
def test_a_run_ends_at_its_limit(
    store: Store,
    fields: dict[str, object],
    reason: str,
    num_trials: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from workbench.sweeps.tune_internals import tune

    kept: list[dict[str, object]] = []
    fit = tune.Tuner.fit

    def observed_fit(tuner: tune.Tuner) -> tune.ResultGrid:
        results = fit(tuner)
        kept.extend(
            trial.run_metadata.metric_analysis for trial in results._experiment_analysis.trials
        )
        return results

    monkeypatch.setattr(tune.Tuner, "fit", observed_fit)
    sweep = Sweep.create(store, "curve", **fields).launch("inline")

    assert kept, "Tune ran no trial"
    assert not any(kept), "Tune keeps what only the store has to keep"
    assert (sweep.state, sweep.history.reason) == ("complete", reason)
    assert [trial.state for trial in sweep.trials] == ["complete"] * num_trials
    sweep.assert_sound()


def test_a_run_whose_time_is_over_stops_trials_that_report_nothing(store: Store) -> None:
    sweep = Sweep.create(
        store, "behave", search={"how": {"choices": ["deaf"]}}, budget={"time": 2, "trials": 5}
    ).launch("inline")

    assert (sweep.state, sweep.history.reason) == ("complete", "time")
    assert [trial.state for trial in sweep.trials] == ["stopped"]
    assert sweep.history.best() is None
    sweep.assert_sound()


def test_the_same_seed_gives_the_same_configurations(store: Store) -> None:
    def propose(seed: int) -> list[object]:
        sweep = Sweep.create(store, "curve", sampler="tpe", budget={"trials": 12}, seed=seed)
        return [trial.params["x"] for trial in sweep.launch("inline").trials]

    first = propose(3)
    assert propose(3) == first
    assert len(set(first)) == 12


@pytest.mark.slow
def test_a_run_takes_no_longer_than_its_trials_when_many_are_short(store: Store) -> None:
    sweep = Sweep.create(store, "curve", budget={"trials": 100}, resources={"concurrency": 2})
    sweep.launch("inline")

    ended = [event.time_unix_s for event in sweep.of(TrialEnded)]
    assert len(ended) == 100
    assert (ended[-1] - ended[49]) / 50 < 0.25


@pytest.mark.slow
def test_workers_of_a_function_may_leave_reports_to_the_first(store: Store) -> None:
    sweep = Sweep.create(
        store,
        "exchange",
        options={"steps": 30},
        search={"x": {"choices": [0.0, 5.0, 6.0]}},
        sampler="grid",
        plan={"workers": 2},
        early_stop={"pruner": "median", "grace": 2, "startup_trials": 1},
        seed=6,
    ).launch("inline")
    assert sweep.state == "complete"
    why_pruned = [
        f"loss {loss} at step 2 is above the median 0.5 of 1 complete trial there"
        for loss in (5.5, 6.5)
    ]
    assert [trial.state for trial in sweep.trials] == ["complete", "pruned", "pruned"]
    assert [trial.message for trial in sweep.trials] == [None, *why_pruned]
    assert all(report.values["total"] == 2.0 for report in sweep.of(TrialReported))
    assert [len(sweep.of(TrialReported, trial)) for trial in range(3)] == [30, 2, 2]
    assert len({pid for trial in sweep.trials for pid in trial.worker_pids}) == 2, (
        "no worker was replaced"
    )
    sweep.assert_sound()
