"""What the best score of a run rests on."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from workbench.experiment import Experiment
from workbench.experiment.metric_declarations import METRICS, declaration_of
from workbench.foundation.events import (
    Event,
    TrialEnded,
    TrialPlanned,
    TrialProposed,
    TrialTested,
    from_json,
    to_json,
)
from workbench.store.history import History
from workbench.store.history.certainty import certainty_lines, describe_luck
from workbench.store.history.evidence import describe_evidence, rate_interval


@pytest.mark.parametrize("num_right", [0, 1, 7, 180, 359, 360])
@pytest.mark.parametrize("certainty", [0.8, 0.95, 0.99])
def test_the_interval_of_a_rate_is_that_of_scipy(num_right: int, certainty: float) -> None:
    expected = binomtest(num_right, 360).proportion_ci(certainty, method="wilson")
    assert rate_interval(num_right / 360, 360, certainty) == pytest.approx(
        (expected.low, expected.high), abs=1e-12
    )


def test_the_interval_of_a_rate_is_that_of_a_textbook() -> None:
    """Newcombe, Two-sided confidence intervals for the single proportion, 1998, table I, method
    3.
    """
    published = {
        (81, 263): (0.2553, 0.3662),
        (15, 148): (0.0624, 0.1605),
        (0, 20): (0.0, 0.1611),
        (1, 29): (0.0061, 0.1718),
    }
    for (num_right, num_samples), ends in published.items():
        assert rate_interval(num_right / num_samples, num_samples) == pytest.approx(ends, abs=6e-5)


@given(st.floats(0, 1), st.integers(1, 10**9))
def test_an_interval_holds_its_rate_and_stays_a_share(rate: float, num_samples: int) -> None:
    low, high = rate_interval(rate, num_samples)
    assert 0 <= low <= rate + 1e-9
    assert rate - 1e-9 <= high <= 1


EXPERIMENT = {"model": "mlp", "data": "digits", "search": {"lr": {"low": 0.001, "high": 0.1}}}


def history_of(
    values: list[float],
    *,
    metric: str = "val_accuracy",
    goal: str = "maximize",
    num_validation: int | None = 360,
    rates: tuple[str, ...] = ("val_accuracy",),
    tested: dict[str, float] | None = None,
    num_test: int = 0,
    side: dict[str, float] | None = None,
    **changes: object,
) -> History:
    """Make a history of complete trials with these values; the first is tested."""
    objective = {"metric": metric, "goal": goal}
    history = History(
        Experiment(**{**EXPERIMENT, "objectives": [objective], "budget": {"trials": 9}, **changes})
    )
    for number, value in enumerate(values):
        events: list[Event] = [
            TrialProposed(
                trial=number, params={"lr": 0.01}, configuration=number, repeat=0, seed=0
            ),
            TrialPlanned(
                trial=number,
                plan={},
                num_validation=num_validation,
                num_test=num_test,
                rates=list(rates),
            ),
        ]
        if tested and not number:
            events.append(TrialTested(trial=number, values=tested))
        events.append(
            TrialEnded(
                trial=number, attempt=0, state="complete", values={metric: value, **(side or {})}
            )
        )
        for event in events:
            history.apply(from_json(to_json(event)))
    return history


def test_an_accuracy_comes_with_its_samples_its_interval_and_that_they_chose_it() -> None:
    assert describe_evidence(history_of([1.0, 0.9, 0.8])) == [
        "val_accuracy 1 on 360 validation samples: between 0.989 and 1 with 95 % certainty",
        (
            "The same samples chose it among 3, so expect a somewhat worse score on new data, and"
            " no test samples say by how much"
        ),
    ]


def test_the_score_on_data_that_chose_nothing_stands_next_to_it() -> None:
    tested = history_of([1.0, 0.9], tested={"test_accuracy": 0.975, "test_loss": 0.1}, num_test=360)
    assert describe_evidence(tested)[1:] == [
        "On 360 test samples, which chose nothing, test_accuracy is 0.975: between 0.953 and 0.987"
        " with 95 % certainty"
    ]


def test_only_the_test_of_the_best_trial_is_shown() -> None:
    worse = history_of([0.8, 1.0], tested={"test_accuracy": 0.975}, num_test=360)
    assert "test_accuracy" not in " ".join(certainty_lines(worse))


def test_a_mean_states_its_samples_without_an_interval() -> None:
    mean = history_of([0.25, 0.5], metric="val_loss", goal="minimize", rates=("val_accuracy",))
    assert describe_evidence(mean)[0] == "val_loss 0.25 was measured on 360 validation samples"


def test_one_trial_was_not_chosen_among_others() -> None:
    assert len(describe_evidence(history_of([0.9]))) == 1


def test_what_no_samples_measure_has_none() -> None:
    assert describe_evidence(history_of([10.0, 20.0], metric="size_bytes", goal="minimize")) == []
    assert describe_evidence(history_of([])) == []


def test_runs_of_earlier_versions_state_what_they_know() -> None:
    old = history_of([0.9, 0.8], num_validation=None, rates=())
    assert describe_evidence(old) == []
    assert (describe_luck(old) or "").startswith("It leads the second best, 0.8, by 0.1")
    assert from_json('{"type":"trial_planned","trial":0,"plan":{},"time_unix_s":1.0}').rates == []  # type: ignore


def test_a_function_says_itself_on_how_many_samples_it_measures() -> None:
    function = {"model": None, "data": None, "train": "m:f"}
    counted = {"num_val_samples": 50.0, "num_test_samples": 200.0, "test_accuracy": 0.9}
    assert describe_evidence(
        history_of([0.96, 0.9], num_validation=None, rates=(), side=counted, **function)
    ) == [
        "val_accuracy 0.96 on 50 validation samples: between 0.865 and 0.989 with 95 % certainty",
        (
            "On 200 test samples, which chose nothing, test_accuracy is 0.9: between 0.85 and 0.935"
            " with 95 % certainty"
        ),
    ]
    percent = history_of(
        [96.0, 90.0], num_validation=None, rates=(), side={"num_val_samples": 50.0}, **function
    )
    assert describe_evidence(percent)[0] == "val_accuracy 96 was measured on 50 validation samples"
    unknown = history_of([0.96, 0.9], num_validation=None, rates=(), **function)
    assert describe_evidence(unknown) == []


def test_only_a_share_of_samples_has_the_interval_of_a_rate() -> None:
    rates = {item.name for item in METRICS if item.is_rate}
    assert rates == {"accuracy", "top5_accuracy"}
    assert all(item.unit == "share" for item in METRICS if item.is_rate)
    area = declaration_of("val_roc_auc")
    assert area is not None
    assert not area.is_rate
