"""What a trial is worth: a pure function of its reports, what it returned, and the mode."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.experiment import Experiment
from workbench.experiment.trial_value import TrialValue, describe_shown_values, describe_value
from workbench.foundation.errors import ExperimentError

MODES: list[Any] = ["returned", "last", "best", {"mean_last": 1}, {"mean_last": 3}]
modes = st.sampled_from(MODES)
values = st.floats(-1e6, 1e6) | st.just(math.nan) | st.just(math.inf)


def function_experiment(*given: Any, goal: str = "maximize") -> Experiment:
    objectives = [
        {"metric": f"m{at}", "goal": goal, "value": mode} for at, mode in enumerate(given)
    ]
    return Experiment(train="module:function", objectives=objectives)


def own_experiment(*given: Any) -> Experiment:
    named = [
        {"metric": "val_loss", "goal": "minimize"},
        {"metric": "val_accuracy", "goal": "maximize"},
    ]
    objectives = [named[at] | {"value": mode} for at, mode in enumerate(given)]
    return Experiment(model="convnet", data="digits", objectives=objectives)


def value_of(
    experiment: Experiment, reports: Sequence[float], returned: float | None = None
) -> float | None:
    value = TrialValue(experiment)
    for step, report in enumerate(reports, start=1):
        value.report({"m0": report}, step=step)
    if returned is not None:
        value.report({"m0": returned}, step=len(reports), returned=True)
    return value.result().get("m0")


def expected(mode: Any, goal: str, reports: list[float], returned: float | None) -> float | None:
    reports = [report for report in reports if math.isfinite(report)]
    returned = returned if returned is not None and math.isfinite(returned) else None
    every = [*reports, *([] if returned is None else [returned])]
    if not every:
        return None
    if mode == "returned":
        return every[-1]
    if mode == "best":
        return (max if goal == "maximize" else min)(every)
    last = (reports or every)[-1 if mode == "last" else -mode["mean_last"] :]
    return math.fsum(last) / len(last)


@given(
    modes,
    st.sampled_from(["maximize", "minimize"]),
    st.lists(values, max_size=8),
    st.none() | values,
)
def test_the_value_is_what_the_mode_says(
    mode: Any, goal: str, reports: list[float], returned: float | None
) -> None:
    value = value_of(function_experiment(mode, goal=goal), reports, returned)
    assert value == pytest.approx(expected(mode, goal, reports, returned), nan_ok=False)


@given(
    st.lists(modes, min_size=2, max_size=3), st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=6)
)
def test_objectives_are_read_together_as_alone(several: list[Any], curve: list[float]) -> None:
    experiment = function_experiment(*several)
    together = TrialValue(experiment)
    for step, value in enumerate(curve, start=1):
        together.report({item.metric: value for item in experiment.objectives}, step=step)
    for at, mode in enumerate(several):
        alone = value_of(function_experiment(mode), curve)
        assert together.result()[f"m{at}"] == alone


@given(modes, st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=8), st.integers(0, 8))
def test_a_value_continues_from_its_state(mode: Any, curve: list[float], cut: int) -> None:
    experiment = function_experiment(mode)
    whole, first, second = (TrialValue(experiment) for _ in range(3))
    for step, value in enumerate(curve, start=1):
        whole.report({"m0": value}, step=step)
    for step, value in enumerate(curve[:cut], start=1):
        first.report({"m0": value}, step=step)
    second.load(json.loads(json.dumps(first.state())))
    for step, value in enumerate(curve[cut:], start=cut + 1):
        second.report({"m0": value}, step=step, attempt=1)
    assert second.result() == whole.result()


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=8), st.integers(0, 8), st.integers(1, 4))
def test_a_repeated_step_does_not_count_twice(
    curve: list[float], lost_from: int, count: int
) -> None:
    experiment = function_experiment({"mean_last": count})
    whole, interrupted = TrialValue(experiment), TrialValue(experiment)
    for step, value in enumerate(curve, start=1):
        whole.report({"m0": value}, step=step)
        interrupted.report({"m0": value + 1}, step=step)
    kept = min(lost_from, len(curve) - 1)
    again = TrialValue(experiment)
    for step, value in enumerate(curve[:kept], start=1):
        again.report({"m0": value}, step=step)
    for step, value in enumerate(curve[kept:], start=kept + 1):
        again.report({"m0": value + 1}, step=step)
    for step, value in enumerate(curve[kept:], start=kept + 1):
        again.report({"m0": value}, step=step, attempt=1)
    assert again.result() == whole.result()


def test_the_best_of_several_objectives_is_one_report() -> None:
    value = TrialValue(function_experiment("best", "best"))
    for step, (first, second) in enumerate([(0.5, 0.9), (0.9, 0.1), (0.6, 0.8)], start=1):
        value.report({"m0": first, "m1": second, "latency": float(step)}, step=step)
    assert value.result() == {"m0": 0.9, "m1": 0.1, "latency": 2.0}


def test_metrics_reported_beside_the_best_report_belong_to_it() -> None:
    value = TrialValue(function_experiment("best"))
    for step, one in enumerate([0.5, 0.9, 0.6], start=1):
        value.report({"m0": one}, step=step)
        value.report({"latency": step * 10.0}, step=step)
    value.report({"size": 7.0}, step=3)
    assert value.result() == {"m0": 0.9, "latency": 20.0, "size": 7.0}


def test_a_trial_that_reported_no_objective_has_no_values() -> None:
    value = TrialValue(function_experiment("returned"))
    value.report({"accuracy": 0.5}, step=1)
    assert value.result() == {}


def test_a_model_is_read_at_the_checkpoint_that_is_exported() -> None:
    default, last = (
        TrialValue(own_experiment("returned", "best")),
        TrialValue(own_experiment("last", "last")),
    )
    assert default.follows_best
    assert not last.follows_best
    for step, (loss, accuracy) in enumerate([(0.5, 0.7), (0.2, 0.6), (0.4, 0.9)], start=1):
        for value in (default, last):
            value.report({"val_loss": loss, "val_accuracy": accuracy}, step=step)
    assert default.result() == {"val_loss": 0.2, "val_accuracy": 0.6}
    assert last.result() == {"val_loss": 0.4, "val_accuracy": 0.9}


@pytest.mark.parametrize(
    "given", [("best", "last"), ("last", "returned"), ({"mean_last": 2}, "best")]
)
def test_objectives_of_a_model_name_one_checkpoint(given: Any) -> None:
    with pytest.raises(ExperimentError, match="exported from one checkpoint") as refusal:
        own_experiment(*given)
    assert refusal.value.field == "objectives.1.value"
    assert len(function_experiment(*given).objectives) == 2


@pytest.mark.parametrize(
    ("written", "field", "said"),
    [
        ("median", "objectives.0.value", "returned, last, best"),
        (3, "objectives.0.value", "mean_last: 3"),
        ({"mean_first": 3}, "objectives.0.value", "mean_last: 3"),
        ({"mean_last": 0}, "objectives.0.value.mean_last", "above 0"),
        ({"mean_last": True}, "objectives.0.value.mean_last", "above 0"),
        ("mean_last: 0", "objectives.0.value.mean_last", "above 0"),
    ],
)
def test_an_unknown_mode_is_refused_at_its_field(written: Any, field: str, said: str) -> None:
    with pytest.raises(ExperimentError, match=said) as refusal:
        function_experiment(written)
    assert refusal.value.field == field


@pytest.mark.parametrize("mode", MODES)
def test_yaml_and_python_write_the_same_mode(mode: Any) -> None:
    experiment = function_experiment(mode)
    text = experiment.to_yaml()
    assert ("value" in text) is (mode != "returned")
    assert Experiment.from_yaml(text) == experiment


def test_a_form_writes_the_mean_as_text() -> None:
    assert function_experiment("mean_last: 3") == function_experiment({"mean_last": 3})


@pytest.mark.parametrize(
    ("experiment", "words"),
    [
        (function_experiment("returned"), "what the function returns, else its last report"),
        (function_experiment("best"), "the best report"),
        (function_experiment("best", "best"), "the best report by m0"),
        (function_experiment({"mean_last": 3}), "the mean of the last 3 reports"),
        (function_experiment("last", "best"), "m0: the last report; m1: the best report by m1"),
        (own_experiment("returned"), "the best evaluation, whose checkpoint is exported"),
        (own_experiment("last"), "the last evaluation, whose checkpoint is exported"),
        (
            own_experiment({"mean_last": 2}),
            "the mean of the last 2 evaluations (the last checkpoint is exported)",
        ),
    ],
)
def test_the_rule_is_described(experiment: Experiment, words: str) -> None:
    assert describe_value(experiment) == words


def test_what_differs_from_the_value_at_the_end_is_described_where_tables_show_it() -> None:
    plain, best = function_experiment("returned"), function_experiment("best")
    assert describe_shown_values(plain.replace(early_stop="asha")) == describe_value(plain)
    while_it_runs = "the best report; while it runs, its last report"
    assert describe_shown_values(best.replace(early_stop="none")) == while_it_runs
    assert describe_shown_values(best.replace(early_stop="asha")) == (
        f"{while_it_runs}; the reason of a pruned trial shows the single report that was compared"
    )
