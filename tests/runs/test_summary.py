"""A run in sentences, against runs whose content is known."""

from __future__ import annotations

import itertools
import math
import random
from pathlib import Path
from typing import Any

import pytest

from tests.builders.recorded_runs import EXPERIMENT, append, begin, finish, trial_events
from workbench.experiment import Experiment
from workbench.foundation.events import (
    Event,
    TrialEnded,
    TrialPlanned,
    TrialProposed,
    TrialReported,
)
from workbench.runs import Run
from workbench.runs.summary import RunSummary, _chance_of_span, summarize
from workbench.store.database import Store

SEARCH = {
    "lr": {"low": 1e-4, "high": 1.0, "log": True},
    "optimizer": {"choices": ["sgd", "adamw"]},
    "width": {"choices": [8, 16]},
}


def trial(number: int, accuracy: float, params: dict[str, Any]) -> list[Event]:
    """A complete trial with a configuration and a value of its own."""
    changed: list[Event] = []
    for event in trial_events(number, at_s=number):
        if isinstance(event, TrialProposed):
            event = event.model_copy(update={"params": params})
        if isinstance(event, TrialReported | TrialEnded):
            event = event.model_copy(update={"values": {"val_accuracy": accuracy}})
        changed.append(event)
    return changed


def summary_of(
    tmp_path: Path, trials: list[list[Event]], end: list[Event], **settings: Any
) -> RunSummary | None:
    experiment = Experiment(**{**EXPERIMENT, "search": SEARCH, **settings})
    with Store.open(str(tmp_path / "store.sqlite")) as store:
        run = Run(store, store.create_run(experiment))
        append(store, run.run_id, [*begin(), *itertools.chain(*trials), *end])
        return summarize(run.run_id, run.state, run.history, 75.0)


def spread(number: int) -> dict[str, Any]:
    """A configuration whose optimizer decides, and whose width and rate do not."""
    rate = 10 ** (-4 + 4 * ((7 * number) % 20) / 20)
    return {
        "lr": rate,
        "optimizer": "adamw" if number % 2 else "sgd",
        "width": 8 << (number // 2 % 2),
    }


def test_a_summary_says_what_won_by_how_much_what_the_best_share_and_what_it_took(
    tmp_path: Path,
) -> None:
    trials = [
        trial(number, 0.9 + 0.001 * number if number % 2 else 0.5 - 0.001 * number, spread(number))
        for number in range(20)
    ]
    summary = summary_of(tmp_path, trials, finish(99.0))
    assert summary is not None
    won, luck, common, took = summary.sentences
    assert won.startswith("Trial 19 is the best: val_accuracy 0.919 with lr=")
    assert "It leads the second best, 0.917, by 0.002" in luck
    assert common == "The best 6 of 20 trials have optimizer=adamw."
    assert took.startswith("It took 1 min 15 s for 20 trials")
    assert summary.next_step is not None
    assert summary.next_step.verb == "extend"
    assert summary.num_to_confirm == 3
    stopped = summary_of(tmp_path, trials, finish(99.0, "stopped", "person"))
    assert stopped is not None
    assert stopped.num_to_confirm == 0, "it is resumed, not extended"


def test_a_summary_says_what_the_trials_saved_that_begin_with_the_part_of_another(
    tmp_path: Path,
) -> None:
    trials = [trial(number, 0.5 + 0.1 * number, spread(number)) for number in range(3)]
    for number in (1, 2):
        trials[number].insert(2, TrialPlanned(trial=number, plan={}, trunk_of=0, saved_s=40.0))
    summary = summary_of(tmp_path, trials, finish(99.0))
    assert summary is not None
    assert summary.sentences[-1].startswith(
        "It took 1 min 15 s for 3 trials; 2 trials reused the stable part of another one, which"
        " saved 1 min 20 s of training"
    )


def test_repeats_of_a_configuration_are_not_taken_for_what_the_best_share(tmp_path: Path) -> None:
    rng = random.Random(3)
    params = [spread(number) for number in range(12)]
    # Six trainings of one configuration are better than all others.
    chosen = [0] * 6 + [*range(1, 12)]
    trials = [
        [
            event.model_copy(update={"configuration": configuration})
            if isinstance(event, TrialProposed)
            else event
            for event in trial(
                number, 0.9 if configuration == 0 else rng.random() / 2, params[configuration]
            )
        ]
        for number, configuration in enumerate(chosen)
    ]
    summary = summary_of(tmp_path, trials, finish(99.0))
    assert summary is not None
    (common,) = [text for text in summary.sentences if "apart" in text or "have" in text]
    assert common == "No parameter sets the best 4 of 12 configurations apart."


def test_a_summary_claims_nothing_that_chance_would_give(tmp_path: Path) -> None:
    rng = random.Random(3)
    trials = [trial(number, rng.random(), spread(number)) for number in range(20)]
    summary = summary_of(tmp_path, trials, finish(99.0))
    assert summary is not None
    assert "No parameter sets the best 6 of 20 trials apart." in summary.sentences
    few = summary_of(tmp_path, trials[:5], finish(99.0))
    assert few is not None
    assert not any(
        "The best" in sentence or "No parameter" in sentence for sentence in few.sentences
    )


def test_training_that_led_to_no_result_is_counted_and_a_run_without_a_best_says_so(
    tmp_path: Path,
) -> None:
    failed = [trial_events(number, at_s=number, state="failed") for number in range(3)]
    summary = summary_of(tmp_path, failed, finish(99.0, "failed", "failures"))
    assert summary is not None
    assert summary.sentences == (
        "Every trial failed: ValueError: too wide at x.py:1.",
        "It took 1 min 15 s for 3 trials.",
    )
    assert summary.next_step is not None
    assert (summary.next_step.verb, summary.next_step.arguments) == ("show", {"trial": 0})
    mixed = [*failed, trial(3, 0.9, spread(3))]
    summary = summary_of(tmp_path, mixed, finish(99.0))
    assert summary is not None
    assert "75 % of the training time went to failed trials" in summary.sentences[-1]


def test_a_run_whose_trials_all_fail_says_where_and_what_to_do_first(tmp_path: Path) -> None:
    frame = '  File "/home/me/mods.py", line 6, in train\n'
    failed = []
    for number, kind in enumerate(("sgd", "adamw", "sgd")):
        message = f"KeyError: '{kind}'"
        *start, end = trial_events(number, at_s=number, state="failed")
        params = {"lr": 0.1, "optimizer": kind, "width": 8}
        start[0] = start[0].model_copy(update={"params": params})
        text = f"Traceback (most recent call last):\n{frame}{message}\n"
        failed.append([*start, end.model_copy(update={"message": message, "traceback": text})])
    summary = summary_of(tmp_path, failed, finish(99.0, "failed", "failures"))
    assert summary is not None
    assert summary.sentences[0] == (
        "Every trial failed: KeyError: 'sgd' (values differ) at mods.py:6."
    )
    assert summary.next_step is not None
    assert (summary.next_step.verb, summary.next_step.arguments) == ("show", {"trial": 0})

    other = [*trial_events(3, at_s=3, state="failed", reason="oom")]
    summary = summary_of(tmp_path, [*failed, other], finish(99.0, "failed", "failures"))
    assert summary is not None
    assert (
        summary.sentences[1]
        == "The most frequent failure, in 3 trials: KeyError: 'sgd' (values differ) at mods.py:6."
    )
    stopped = trial_events(3, at_s=3, state="stopped")
    summary = summary_of(tmp_path, [*failed, stopped], finish(99.0, "failed", "failures"))
    assert summary is not None
    assert summary.sentences[:2] == (
        "No trial is complete.",
        "3 trials failed: KeyError: 'sgd' (values differ) at mods.py:6.",
    )
    summary = summary_of(tmp_path, [other], finish(99.0, "failed", "failures"))
    assert summary is not None
    assert summary.sentences[1].startswith("Run fewer trials at once")


def test_a_summary_of_several_objectives_names_the_best_of_each(tmp_path: Path) -> None:
    goals = [{"metric": name, "goal": "maximize"} for name in ("val_accuracy", "speed")]
    trials = []
    for number, (accuracy, speed) in enumerate([(0.9, 1.0), (0.8, 2.0), (0.7, 1.5)]):
        *training, end = trial(number, accuracy, spread(number))
        values = {"val_accuracy": accuracy, "speed": speed}
        trials.append([*training, end.model_copy(update={"values": values})])
    summary = summary_of(tmp_path, trials, finish(99.0), objectives=goals)
    assert summary is not None
    assert summary.sentences[:2] == (
        "2 of 3 trials are on the front: no other trial beats them everywhere.",
        "The best val_accuracy is 0.9 (trial 0), the best speed is 2 (trial 1).",
    )

    limit = [{"metric": "speed", "at_least": 1.2}]
    limited = summary_of(tmp_path, trials, finish(99.0), objectives=goals, constraints=limit)
    assert limited is not None
    assert limited.sentences[:3] == (
        "1 of 3 trials is on the front: no other trial that keeps all limits beats it everywhere.",
        "The best val_accuracy is 0.8 (trial 1), the best speed is 2 (trial 1).",
        "1 complete trial does not count, because it breaks a limit: speed at least 1.2.",
    )


@pytest.mark.parametrize(
    ("most", "stated"),
    [
        (0.85, ["1 complete trial does not count, because it breaks a limit"]),
        (0.75, ["2 complete trials do not count, because they break a limit"]),
        (0.9, []),
        (0.1, []),  # the first sentence tells of a run where no trial counts
    ],
)
def test_trials_that_break_a_limit_are_counted_where_others_keep_it(
    tmp_path: Path, most: float, stated: list[str]
) -> None:
    trials = [trial(number, 0.7 + 0.1 * number, spread(number)) for number in range(3)]
    limits = [{"metric": "val_accuracy", "at_most": most}]
    summary = summary_of(tmp_path, trials, finish(99.0), constraints=limits)
    assert summary is not None
    found = [sentence for sentence in summary.sentences if "not count" in sentence]
    assert found == [f"{words}: val_accuracy at most {most}." for words in stated]


def test_a_run_that_goes_on_or_has_no_trial_has_no_summary(tmp_path: Path) -> None:
    assert summary_of(tmp_path, [trial(0, 0.9, spread(0))], []) is None
    assert summary_of(tmp_path, [], finish(9.0)) is None


@pytest.mark.parametrize(("span", "num_chosen", "num_all"), [(3, 3, 8), (5, 3, 9), (9, 4, 9)])
def test_the_chance_of_a_range_is_that_of_counting_all_choices(
    span: int, num_chosen: int, num_all: int
) -> None:
    choices = list(itertools.combinations(range(num_all), num_chosen))
    within = sum(max(choice) - min(choice) < span for choice in choices)
    assert math.isclose(_chance_of_span(span, num_chosen, num_all), within / len(choices))
