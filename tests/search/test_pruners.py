"""Pruning decisions, against Optuna's own pruners on the same curves."""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np
import optuna
import pytest

from tests.builders.studies import Drive, make_experiment
from workbench.foundation.errors import ExperimentError
from workbench.foundation.events import (
    RepeatsInherited,
    TrialEnded,
    TrialProposed,
    TrialReported,
)
from workbench.search import Study

CURVES = [
    [base + 1 / rung for rung in range(1, 10)]
    for base in [random.Random(7).random() * k for k in range(1, 25)]
]
PRUNERS: dict[str, tuple[dict[str, Any], optuna.pruners.BasePruner]] = {
    "asha": (
        {"grace": 1, "reduction_factor": 3},
        optuna.pruners.SuccessiveHalvingPruner(min_resource=1, reduction_factor=3),
    ),
    "median": (
        {"startup_trials": 2, "grace": 2},
        optuna.pruners.MedianPruner(n_startup_trials=2, n_warmup_steps=2),
    ),
    "percentile": (
        {"startup_trials": 2, "grace": 2, "percentile": 25.0},
        optuna.pruners.PercentilePruner(25.0, n_startup_trials=2, n_warmup_steps=2),
    ),
    "hyperband": (
        {"grace": 1, "reduction_factor": 3},
        optuna.pruners.HyperbandPruner(1, "auto", 3),
    ),
}


@pytest.mark.parametrize("name", PRUNERS)
def test_trials_stop_where_optuna_stops_them(name: str) -> None:
    settings, pruner = PRUNERS[name]
    reference = optuna.create_study(study_name="study", pruner=pruner)
    drive = Drive(make_experiment(sampler="random", early_stop={"pruner": name, **settings}))
    stops = []
    for curve in random.Random(3).sample(CURVES, len(CURVES)):
        theirs, ours = reference.ask(), drive.ask().trial
        for rung, value in enumerate(curve, start=1):
            theirs.report(value, rung)
            expected = theirs.should_prune()
            assert drive.report(ours, rung, loss=value) == expected
            if expected:
                reference.tell(theirs, state=optuna.trial.TrialState.PRUNED)
                drive.end(ours, "pruned")
                stops.append(rung)
                break
        else:
            reference.tell(theirs, curve[-1])
            drive.end(ours)
    assert stops


def test_patience_counts_rungs_without_improvement() -> None:
    drive = Drive(make_experiment(early_stop={"pruner": "patience", "patience": 3, "grace": 2}))
    drive.ask()
    losses = [0.5, 0.4, 0.4, 0.6, 0.4]
    assert [drive.report(0, rung, loss=loss) for rung, loss in enumerate(losses, start=1)] == [
        False
    ] * 4 + [True]


def test_no_trial_stops_before_grace() -> None:
    drive = Drive(make_experiment(early_stop={"pruner": "patience", "patience": 1, "grace": 4}))
    drive.ask()
    assert [drive.report(0, rung, loss=float(rung)) for rung in range(1, 6)] == [False] * 3 + [
        True
    ] * 2


def test_a_resumed_trial_is_not_judged_twice_at_a_rung() -> None:
    drive = Drive(make_experiment(early_stop={"pruner": "asha"}))
    for loss in (0.1, 0.2):
        drive.ask()
        drive.report(0 if loss == 0.1 else 1, 1, loss=loss)
    assert drive.report(1, 1, loss=0.0)
    assert not drive.report(0, 1, loss=9.0)


def test_a_training_of_all_its_epochs_is_complete_where_the_last_rung_is_the_last_epoch() -> None:
    study = Study(
        make_experiment(
            train=None,
            model="convnet",
            data="digits",
            training={"epochs": 4},
            search={"lr": {"low": 0.1, "high": 1.0}},
            sampler="random",
            early_stop={"pruner": "median", "startup_trials": 1, "grace": 1},
        )
    )

    def stops(trial: int, epoch: int, loss: float) -> bool:
        report = TrialReported(trial=trial, step=10 * epoch, epoch=epoch, values={"loss": loss})
        return study.take_report(report)

    for _ in range(3):
        study.ask()
    assert not any(stops(0, epoch, 0.1) for epoch in (1, 2, 3, 4))
    study.tell(0, TrialEnded(trial=0, attempt=0, state="complete", values={"loss": 0.1}))
    assert stops(1, 3, 9.0), "an epoch is left that need not be trained"
    assert not stops(2, 4, 9.0), "nothing is left to stop"
    study.tell(2, TrialEnded(trial=2, attempt=0, state="complete", values={"loss": 9.0}))
    assert [
        trial.state.name for trial in study._learner._projection._study.get_trials(deepcopy=False)
    ] == [
        "COMPLETE",
        "RUNNING",
        "COMPLETE",
    ]


def test_trials_that_report_by_the_clock_are_compared_at_whole_epochs() -> None:
    study = Study(
        make_experiment(
            train=None,
            model="convnet",
            data="digits",
            training={"epochs": 4, "evaluate_every": 4},
            search={"lr": {"low": 0.1, "high": 1.0}},
            sampler="random",
            early_stop={"pruner": "median", "startup_trials": 1},
        )
    )
    curves = {
        0: ([0.7, 1.9, 2.1, 4.0], [9.0, 5.0, 4.0, 1.0]),
        1: ([0.5, 1.0, 3.5], [8.0, 7.0, 6.0]),
    }
    stops = []
    for trial, (epochs, losses) in curves.items():
        study.ask()
        for epoch, loss in zip(epochs, losses, strict=True):
            report = TrialReported(trial=trial, step=1, epoch=epoch, values={"loss": loss})
            stops.append(study.take_report(report))
        if trial == 0:
            study.tell(0, TrialEnded(trial=0, attempt=0, state="complete", values={"loss": 1.0}))
    told = study._learner._projection._study.get_trials(deepcopy=False)
    for trial, (epochs, losses) in curves.items():
        seen = {rung: loss for rung, loss in told[trial].intermediate_values.items() if rung}
        rungs = range(1, math.floor(epochs[-1]) + 1)
        assert seen == pytest.approx(
            {rung: float(np.interp(rung, epochs, losses)) for rung in rungs}
        )
    # At epoch 1, the first trial had 8.0. At epoch 2, it had 4.5, and the second one has 6.6.
    assert stops == [False] * 6 + [True]


def test_what_a_function_returns_is_never_pruned() -> None:
    drive = Drive(
        make_experiment(sampler="random", early_stop={"pruner": "median", "startup_trials": 1})
    )
    drive.train(lambda *_: 0.1, rungs=2)
    drive.ask()
    bad = TrialReported(trial=1, step=2, values={"loss": 9.0}, returned=True)
    assert not drive.study.take_report(bad)
    drive.ask()
    assert drive.study.take_report(bad.model_copy(update={"trial": 2, "returned": False}))


def _stops_of_batches(early_stop: dict[str, Any]) -> dict[int, int | None]:
    """Train with batches of 100 and 10 samples, each as good per sample.

    Return the step of each stop.
    """
    drive = Drive(make_experiment(early_stop=early_stop))
    stops: dict[int, int | None] = {}
    for batch in (100, 10):
        trial = drive.ask().trial
        stops[batch] = None
        for step in range(1, 1000 // batch + 1):
            samples = step * batch
            if drive.report(trial, step, loss=1 / samples, samples=float(samples)):
                stops[batch] = step
                break
        drive.end(trial, "complete" if stops[batch] is None else "pruned")
    return stops


@pytest.mark.parametrize(
    "settings",
    [{"pruner": "asha", "reduction_factor": 2}, {"pruner": "median", "startup_trials": 1}],
)
def test_batch_sizes_are_compared_after_equally_many_samples(settings: dict[str, Any]) -> None:
    assert _stops_of_batches(settings) == {100: None, 10: 1}
    assert _stops_of_batches({**settings, "unit": "samples", "grace": 200}) == {100: None, 10: None}


def test_a_report_counts_for_the_last_multiple_of_grace_that_it_has_reached() -> None:
    drive = Drive(make_experiment(early_stop={"pruner": "asha", "unit": "samples", "grace": 64}))
    for losses in ((0.1, 0.1), (0.2, 0.2)):
        trial = drive.ask().trial
        stopped = [
            drive.report(trial, step, loss=loss, samples=48.0 * step)
            for step, loss in enumerate(losses, start=1)
        ]
    assert stopped == [False, True], "48 samples are less than 64, and 96 count as 64"


def _train(drive: Drive, curve: list[float]) -> int:
    """Train along a curve, and return how many rungs it was trained for."""
    trial = drive.ask().trial
    for rung, value in enumerate(curve, start=1):
        if drive.report(trial, rung, loss=value):
            drive.end(trial, "pruned")
            return rung
    drive.end(trial)
    return len(curve)


def _falling(limit: float, power: float = 0.7, num_rungs: int = 32) -> list[float]:
    return [limit + rung**-power for rung in range(1, num_rungs + 1)]


def test_curves_stops_what_is_unlikely_to_end_as_the_best() -> None:
    drive = Drive(make_experiment(early_stop={"pruner": "curves", "grace": 2}))
    assert [_train(drive, _falling(limit)) for limit in (0.4, 0.3, 0.1)] == [32, 32, 32]
    rungs = [_train(drive, _falling(limit)) for limit in (0.5, 0.4, 0.6)]
    assert max(rungs) < 24
    assert min(rungs) >= 2
    # Worse than the others at first, and the best in the end.
    assert _train(drive, _falling(-0.4, power=0.25)) == 32
    assert drive.rebuilt().best_trials() == drive.study.best_trials() == [6]


def test_curves_stops_the_worst_third_of_trials_at_once_before_any_is_complete() -> None:
    drive = Drive(make_experiment(early_stop={"pruner": "curves", "grace": 2}))
    trials = [drive.ask().trial for _ in range(4)]
    stopped: dict[int, int] = {}
    for rung in range(1, 5):
        for trial, limit in zip(trials, (0.2, 0.3, 0.1, 0.6), strict=True):
            if trial not in stopped and drive.report(trial, rung, loss=limit + rung**-0.7):
                stopped[trial] = rung
                drive.end(trial, "pruned")
    assert stopped[trials[3]] == 2, "worse than three others"
    assert trials[2] not in stopped


def test_curves_stops_the_second_trial_where_it_is_behind_the_first() -> None:
    drive = Drive(make_experiment(early_stop={"pruner": "curves", "grace": 2}))
    assert [_train(drive, _falling(limit)) for limit in (0.2, 0.3, 0.1)] == [32, 2, 32]


def test_curves_stops_more_with_a_higher_chance() -> None:
    used = []
    for chance in (0.01, 0.3):
        drive = Drive(
            make_experiment(early_stop={"pruner": "curves", "options": {"chance": chance}})
        )
        for limit in (1.4, 1.3, 1.2):
            assert _train(drive, _falling(limit)) == 32
        draws = random.Random(1)
        used.append(
            sum(_train(drive, _falling(draws.random(), draws.uniform(0.3, 1))) for _ in range(20))
        )
    assert used[1] < used[0] < 20 * 32


def test_curves_does_not_compare_with_trials_that_break_a_limit() -> None:
    drive = Drive(
        make_experiment(
            early_stop={"pruner": "curves"}, constraints=[{"metric": "size", "at_most": 1.0}]
        )
    )
    for limit, size in (*[(0.0, 2.0)] * 2, (0.9, 0.5), (0.89, 0.5), (0.88, 0.5)):
        trial = drive.ask().trial
        for rung, value in enumerate(_falling(limit), start=1):
            assert not drive.report(trial, rung, loss=value, size=size)
        drive.end(trial)
    trial = drive.ask().trial
    assert not any(
        drive.report(trial, rung, loss=value, size=0.5)
        for rung, value in enumerate(_falling(0.5), start=1)
    )


def test_curves_never_stops_what_is_better_than_every_end_so_far() -> None:
    settings = {"pruner": "curves", "options": {"chance": 0.4}}
    drive = Drive(make_experiment(early_stop=settings))
    for scale in (3.0, 2.0, 1.0):  # all diverge, after a beginning like that of the last
        assert _train(drive, [0.7 + scale * math.exp(rung - 16) for rung in range(1, 33)]) == 32
    assert _train(drive, [0.7] * 32) == 32


def test_a_chance_has_limits() -> None:
    with pytest.raises(ExperimentError, match=r"early_stop\.options\.chance: 0\.9"):
        make_experiment(early_stop={"pruner": "curves", "options": {"chance": 0.9}})


def _with_noise(early_stop: dict[str, Any], deviation: float) -> Drive:
    """Return a run that knows from twenty trainings of earlier runs how much results differ."""
    rng = random.Random(1)
    groups = []
    for _ in range(4):
        values = [rng.gauss(0, 1) for _ in range(5)]
        spread = float(np.std(values, ddof=1))
        groups.append(
            {"values": [deviation * value / spread for value in values], "seeds": list(range(5))}
        )
    drive = Drive(make_experiment(sampler="random", early_stop=early_stop))
    drive.apply(RepeatsInherited.model_validate({"from_run_ids": ["earlier"], "groups": groups}))
    return drive


@pytest.mark.parametrize(
    "early_stop",
    [
        {"pruner": "asha", "grace": 2, "reduction_factor": 2},
        {"pruner": "median", "startup_trials": 1, "grace": 2},
        {"pruner": "percentile", "startup_trials": 1, "grace": 2, "percentile": 50.0},
        {"pruner": "curves", "grace": 2},
    ],
)
def test_a_trial_that_is_behind_by_less_than_the_noise_is_not_stopped_by_one_value(
    early_stop: dict[str, Any],
) -> None:
    best = [1.0] * 8
    # Two trainings of one configuration differ by 0.1 x the root of 2 = 0.141 (one deviation).
    for behind, next_value, rungs in [
        (0.1, 1.05, 3),  # the mean of both is behind too
        (0.1, 0.85, 8),  # the mean 0.975 is not
        (0.2, 0.85, 2),  # behind by more than the noise
    ]:
        drive = _with_noise(early_stop, 0.1)
        assert _train(drive, best) == 8
        if early_stop["pruner"] == "curves":
            assert _train(drive, best) == 8
        curve = [1.0 + behind, 1.0 + behind, next_value, *[0.85] * 5]
        assert _train(drive, curve) == rungs, (behind, next_value)
    drive = Drive(make_experiment(sampler="random", early_stop=early_stop))
    _train(drive, best)
    if early_stop["pruner"] == "curves":
        _train(drive, best)
    assert _train(drive, [1.1, 1.1, 0.85]) == 2, "nothing is known about the noise"


def test_the_noise_is_also_learned_from_repeats_of_this_run_and_a_rebuilt_study_agrees() -> None:
    drive = Drive(
        make_experiment(
            sampler="random", early_stop={"pruner": "asha", "grace": 2, "reduction_factor": 2}
        )
    )
    _train(drive, [1.0] * 4)
    first = drive.events[0]
    assert isinstance(first, TrialProposed)
    again = first.model_copy(update={"trial": 1, "repeat": 1, "seed": 8})
    drive.apply(again)
    for rung in range(1, 5):
        drive.report(1, rung, loss=1.4)
    drive.end(1)
    assert _train(drive, [1.2, 1.2, 1.1, 1.1]) == 3
    why = drive.study.why_pruned(2)
    assert why == drive.rebuilt().why_pruned(2)
    assert why is not None
    assert "loss 1.2 at step 2" in why
    assert why.endswith("as is the mean 1.15 of 2 values")
