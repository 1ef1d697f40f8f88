from __future__ import annotations

from tests.builders.recorded_runs import EXPERIMENT, WHY_PRUNED, begin, trial_events
from workbench.events import Event, PlanMeasured
from workbench.experiment import Experiment
from workbench.history import History
from workbench.runs.event_lines import Narrator, measurement_line


def lines_of(*events: Event) -> list[str]:
    history = History(Experiment(**EXPERIMENT))
    narrator = Narrator(history)
    found = []
    for event in events:
        history.apply(event)
        found.append(narrator.line_of(event))
    return [line for line in found if line]


def test_a_trial_that_is_better_by_less_than_is_printed_is_not_named_the_best_again() -> None:
    values = (0.75840001, 0.75840002, 0.9)
    trials = [trial_events(number, at_s=number, accuracy=value)[-1] for number, value in enumerate(values)]
    proposed = [trial_events(number, at_s=number)[0] for number in range(3)]
    ends = lines_of(*begin(), *proposed, *trials)[-3:]
    assert ["(best so far)" in line for line in ends] == [True, False, True]


def test_a_way_that_the_model_does_not_allow_is_not_described_as_one_that_needs_memory() -> None:
    plan = {"workers": 2, "micro_batch": 8, "accumulation": 1, "strategy": "tensor", "tensor": 2}
    event = PlanMeasured(setting="s", plan=plan, fits=False, is_possible=False, message="no layers to cut")
    assert measurement_line(event) == "not possible with this model: tensor, 2 tensor parts: no layers to cut"


def test_a_pruned_trial_states_why() -> None:
    *_, line = lines_of(*begin(), *trial_events(0, at_s=1, state="pruned"))
    assert line == f"trial 0 pruned: {WHY_PRUNED}; lr=0.01 width=16"
