from __future__ import annotations

import pytest

from tests.builders.recorded_runs import EXPERIMENT, WHY_PRUNED, begin, trial_events
from workbench.experiment import Experiment
from workbench.foundation.events import AttemptEnded, Event, PlanMeasured
from workbench.runs.event_lines import Narrator, measurement_line
from workbench.store.history import History


def lines_of(*events: Event) -> list[str]:
    history = History(Experiment(**EXPERIMENT))
    narrator = Narrator(history)
    lines = []
    for event in events:
        history.apply(event)
        lines.append(narrator.line_of(event))
    return [line for line in lines if line]


@pytest.mark.parametrize(
    ("values", "order"),
    [
        ((0.5, 0.75840001, 0.75840002, 0.9), (0, 1, 2, 3)),
        ((0.9, 0.9, 0.9), (0, 1, 2)),
        ((0.9, 0.9, 0.9), (2, 1, 0)),
        ((0.8, 0.9, 0.9, 0.9), (0, 2, 1, 3)),
    ],
)
def test_a_trial_is_the_best_so_far_if_it_is_better_than_all_that_ended_before(
    values: tuple[float, ...], order: tuple[int, ...]
) -> None:
    history, ends = History(Experiment(**EXPERIMENT)), []
    narrator = Narrator(history)
    for event in (
        *begin(),
        *(trial_events(number, at_s=number)[0] for number in range(len(values))),
    ):
        history.apply(event)
    for at_s, number in enumerate(order):
        ends.append(trial_events(number, at_s=10 + at_s, accuracy=values[number])[-1])
        history.apply(ends[-1])

    lines = [narrator.line_of(end) or "" for end in ends]  # as a page does that is opened later
    ended = [values[number] for number in order]
    improved = [all(value > other for other in ended[:at]) for at, value in enumerate(ended)]
    assert ["(best so far)" in line for line in lines] == improved


def test_a_trial_that_changes_its_workers_has_not_failed() -> None:
    resized = AttemptEnded(
        trial=0,
        attempt=0,
        reason="resized",
        message="grows from 1 to 2 workers: 900 -> about 1,700",
    )
    lines = lines_of(*begin(), *trial_events(0, at_s=0)[:-1], resized)
    assert lines[-1] == "trial 0 waiting: grows from 1 to 2 workers: 900 -> about 1,700"


def test_a_way_that_the_model_does_not_allow_is_not_described_as_one_that_needs_memory() -> None:
    plan = {"workers": 2, "micro_batch": 8, "accumulation": 1, "strategy": "tensor", "tensor": 2}
    event = PlanMeasured(
        setting="s", plan=plan, fits=False, is_possible=False, message="no layers to cut"
    )
    assert (
        measurement_line(event)
        == "not possible with this model: tensor, 2 tensor parts: no layers to cut"
    )


def test_a_pruned_trial_states_why() -> None:
    *_, line = lines_of(*begin(), *trial_events(0, at_s=1, state="pruned"))
    assert line == f"trial 0 pruned: {WHY_PRUNED}; lr=0.01 width=16"
