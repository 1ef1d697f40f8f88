"""Verdicts on where the time of a run went.

Only what costs much, with numbers and the next step.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders.examples import examples
from tests.builders.report_pages import report_html
from workbench.experiment import Experiment
from workbench.experiment.automl import HELD_OUT
from workbench.foundation.events import (
    DriverStarted,
    Event,
    TrialEnded,
    TrialPlanned,
    TrialProposed,
    TrialReported,
    TrialStarted,
)
from workbench.store.history import History, Verdict, verdicts_of
from workbench.store.history.reports import Reports

PLAN = {"workers": 1, "micro_batch": 32, "accumulation": 1}


def trial_events(
    number: int,
    data_s: float,
    *,
    rest_s: float = 0.1,
    loaders: int = 0,
    start_s: float = 1.0,
    train_s: float = 60.0,
) -> list[Event]:
    """A trial that is proposed at 0 s, makes its first step after `start_s`, and trains for
    `train_s`.
    """
    plan: dict[str, Any] = {**PLAN, "loaders": loaders}
    end_s = start_s + train_s
    parts = {"data": data_s, "forward": rest_s / 2, "backward": rest_s / 2, "update": 0.0}
    return [
        TrialProposed(
            time_unix_s=1.0, trial=number, configuration=number, repeat=0, seed=0, params={}
        ),
        TrialStarted(
            time_unix_s=1.0 + start_s / 2, trial=number, attempt=0, worker_pids=[1], plan=plan
        ),
        TrialPlanned(time_unix_s=1.0 + start_s, trial=number, plan=plan),
        TrialReported(
            time_unix_s=1.0 + end_s, trial=number, step=1, parts_s=parts, values={"val_loss": 1.0}
        ),
        TrialEnded(time_unix_s=1.0 + end_s, trial=number, attempt=0, state="complete", step=1),
    ]


EXPERIMENT = Experiment(
    model="mlp", data="digits", objectives=[{"metric": "val_loss", "goal": "minimize"}]
)


def judge(*trials: list[Event]) -> list[Verdict]:
    return verdicts_of(History.of(EXPERIMENT, (event for trial in trials for event in trial)))


def test_the_report_states_the_verdict_where_it_shows_the_time() -> None:
    page = report_html(EXPERIMENT, trial_events(0, 0.3))
    waits = "trial 0 spends 75% of each step waiting for data"
    assert waits in page.partition("Where the time went")[2]
    assert "waiting for data" not in report_html(EXPERIMENT, trial_events(0, 0.0))


def test_a_run_that_waits_for_data_names_the_trial_and_the_loaders_that_would_hide_it() -> None:
    (verdict,) = judge(trial_events(0, 0.05), trial_events(1, 0.3))
    assert verdict.text.startswith(
        "trial 1 spends 75% of each step waiting for data. Set plan.loaders to 3 if CPU cores"
    )
    assert verdict.trial == 1
    assert verdict.next_step is not None
    assert verdict.next_step.words == ("sweep", "FILE", "--set", "plan.loaders=3")


@pytest.mark.parametrize(
    ("num_cpus", "at_once", "settings", "says"),
    [
        (16, 1, ["plan.loaders=9"], "of each step waiting for data. Set plan.loaders to 9"),
        (2, 1, ["plan.loaders=1"], "There are no cores for the 9 that would hide the wait"),
        (
            2,
            2,
            ["plan.loaders=1", "resources.concurrency=1"],
            "to 1 and resources.concurrency to 1",
        ),
        (12, 4, ["plan.loaders=2"], "There are no cores for the 9"),
        (1, 1, None, ""),
    ],
)
def test_loaders_need_cores_that_the_trials_leave(
    num_cpus: int, at_once: int, settings: list[str] | None, says: str
) -> None:
    driver: Event = DriverStarted(time_unix_s=1.0, pid=1, host="a", num_cpus=num_cpus)
    trials = [trial_events(number, 0.85) for number in range(at_once)]
    verdicts = verdicts_of(
        History.of(EXPERIMENT, [driver, *(event for trial in trials for event in trial)]),
        "some-run",
    )
    if settings is None:
        assert verdicts == []
        return
    assert says in verdicts[0].text
    assert verdicts[0].next_step is not None
    assert verdicts[0].next_step.words == (
        "sweep",
        *(word for setting in settings for word in ("--set", setting)),
        "--warm-start",
        "some-run",
    )


def test_more_loaders_are_named_where_some_do_not_suffice() -> None:
    (verdict,) = judge(trial_events(0, 0.1, loaders=2))
    assert (
        "trial 0 spends 50% of each step waiting for data with 2 loaders. Set plan.loaders to 4"
        in verdict.text
    )


def test_waiting_that_hardly_matters_has_no_verdict() -> None:
    assert judge(trial_events(0, 0.01)) == []
    assert judge(trial_events(0, 0.3, train_s=3.0)) == [], "a few seconds"
    assert judge(trial_events(0, 3e-4, rest_s=1e-4)) == [], (
        "data in memory: handing over would cost more"
    )


def test_a_run_that_mostly_starts_trials_is_not_one_that_trains() -> None:
    (verdict,) = judge(
        *(trial_events(number, 0.0, start_s=20.0, train_s=10.0) for number in range(4))
    )
    assert verdict.text.startswith("trials spent 67% of their time starting up (20 s each)")
    assert (
        judge(*(trial_events(number, 0.0, start_s=20.0, train_s=100.0) for number in range(4)))
        == []
    )
    assert (
        judge(*(trial_events(number, 0.0, start_s=10.0, train_s=1.0) for number in range(5))) == []
    ), "less than a minute in all"
    assert judge(trial_events(0, 0.0, start_s=20.0, train_s=1.0)) == [], (
        "the first trials start the workers"
    )


def test_a_user_of_automl_is_told_to_extend_the_run_instead_of_how_to_sweep_it() -> None:
    data = EXPERIMENT.data
    assert data is not None
    data = data.model_copy(update={"options": {HELD_OUT: "0" * 64}})
    experiment = EXPERIMENT.model_copy(update={"data": data})
    events = [
        event
        for number in range(4)
        for event in trial_events(number, 0.3, start_s=100.0, train_s=20.0)
    ]
    (verdict,) = verdicts_of(History.of(experiment, events), "some-run")
    assert verdict.text.startswith("candidates spent 83% of their time starting up")
    assert "resources" not in verdict.text
    assert verdict.next_step is not None
    assert verdict.next_step.words[:2] == ("extend", "some-run")


def late_trial(number: int, rank: int, factor: float, *, train_s: float = 60.0) -> list[Event]:
    proposed, started, planned, reported, ended = trial_events(number, 0.0, train_s=train_s)
    return [
        proposed,
        started.model_copy(update={"worker_pids": [1, 2], "hosts": ["a", "b"]}),
        planned,
        reported.model_copy(update={"slowest_rank": rank, "slowest_rank_factor": factor}),
        ended,
    ]


def test_a_worker_for_which_others_wait_is_named_with_its_machine() -> None:
    (verdict,) = judge(late_trial(0, 0, 1.3), late_trial(1, 1, 2.0))
    assert verdict.text.startswith(
        "rank 1 of trial 1 (on b) takes 2 times as long as the other workers to load and compute"
        " its samples"
    )
    assert judge(late_trial(0, 1, 1.2)) == [], "workers are never quite alike"
    assert judge(late_trial(0, 1, 3.0, train_s=6.0)) == [], "a few seconds"


def test_the_last_report_that_names_a_slow_worker_counts_however_many_are_read_at_once() -> None:
    events = late_trial(0, 1, 2.0)
    report = events[3]
    assert isinstance(report, TrialReported)
    later = report.model_copy(update={"slowest_rank": 0, "slowest_rank_factor": 1.5})
    history = History.of(EXPERIMENT, events[:3])
    history.take_reports(
        0, Reports.of([report_of.model_dump(mode="json") for report_of in (report, later)])
    )
    assert history.trials[0].slowest_rank == (0, 1.5)


def _chosen_in(seconds: float, trial: list[Event]) -> list[Event]:
    return [
        (
            event.model_copy(update={"choosing_s": seconds})
            if isinstance(event, TrialProposed)
            else event
        )
        for event in trial
    ]


def test_workers_that_wait_for_proposals_are_a_verdict_from_a_tenth_of_their_time_on() -> None:
    (verdict,) = judge(*(_chosen_in(10.0, trial_events(number, 0.0)) for number in range(3)))
    assert verdict.text.startswith("workers spent 14% of their time waiting for proposals (30 s)")
    assert verdict.next_step is not None
    assert judge(*(_chosen_in(2.0, trial_events(number, 0.0)) for number in range(9))) == [], "3 %"
    assert (
        judge(*(_chosen_in(0.5, trial_events(number, 0.0, train_s=9.0)) for number in range(3)))
        == []
    )


@pytest.mark.parametrize(("hosts", "is_offered"), [(["a", "a"], False), (["a", "b"], True)])
def test_a_machine_is_only_left_out_where_there_is_another(
    hosts: list[str], is_offered: bool
) -> None:
    events = [
        event.model_copy(update={"hosts": hosts}) if getattr(event, "hosts", None) else event
        for event in late_trial(0, 1, 2.0)
    ]
    (verdict,) = judge(events)
    assert ("exclude that machine" in verdict.text) is is_offered


_SAMPLERS = {"auto": True, "tpe": True, "random": False, "grid": False, "qmc": False, "pbt": False}
"""By sampler, whether random proposals could take the place of its own."""


def _experiment(sampler: str) -> Experiment:
    space: dict[str, Any] = {"lr": {"low": 0.001, "high": 0.1}}
    if sampler == "grid":
        space = {"width": {"choices": [8, 16, 32]}}
    return EXPERIMENT.replace(search=space, sampler={"name": sampler}, budget={"trials": 8})


@pytest.mark.parametrize("sampler", _SAMPLERS)
def test_random_proposals_are_offered_only_where_they_could_take_the_place_of_others(
    sampler: str,
) -> None:
    trials = [_chosen_in(10.0, trial_events(number, 0.0)) for number in range(3)]
    history = History.of(_experiment(sampler), [event for trial in trials for event in trial])
    (verdict,) = verdicts_of(history)
    assert verdict.text.startswith("workers spent 14% of their time waiting for proposals")
    assert (verdict.next_step is not None) is _SAMPLERS[sampler]


@examples(60)
@given(
    sampler=st.sampled_from(sorted(_SAMPLERS)),
    num_cpus=st.integers(1, 4),
    at_once=st.booleans(),
    is_late=st.booleans(),
    data_s=st.sampled_from([0.0, 0.3]),
    start_s=st.sampled_from([1.0, 30.0]),
    choosing_s=st.sampled_from([0.0, 20.0]),
    hosts=st.lists(st.sampled_from("ab"), min_size=1, max_size=3),
)
def test_no_hint_is_one_that_cannot_be_followed(
    *,
    sampler: str,
    num_cpus: int,
    at_once: bool,
    is_late: bool,
    data_s: float,
    start_s: float,
    choosing_s: float,
    hosts: list[str],
) -> None:
    events: list[Event] = [DriverStarted(time_unix_s=1.0, pid=1, host="a", num_cpus=num_cpus)]
    for number in range(3):
        moved_s = 0.0 if at_once else 100.0 * number
        for event in _chosen_in(
            choosing_s, trial_events(number, data_s, start_s=start_s, train_s=20.0)
        ):
            changes: dict[str, Any] = {"time_unix_s": event.time_unix_s + moved_s}
            if isinstance(event, TrialStarted):
                changes |= {"hosts": hosts, "worker_pids": list(range(1, len(hosts) + 1))}
            if isinstance(event, TrialReported) and is_late and len(hosts) > 1:
                changes |= {"slowest_rank": len(hosts) - 1, "slowest_rank_factor": 2.0}
            events.append(event.model_copy(update=changes))
    text = " ".join(
        str(verdict.describe()) for verdict in verdicts_of(History.of(_experiment(sampler), events))
    )

    assert "random" not in text or _SAMPLERS[sampler]
    assert "fewer trials at once" not in text or at_once
    assert "exclude that machine" not in text or len(set(hosts)) > 1
    assert "plan.loaders" not in text or num_cpus > len(hosts)
