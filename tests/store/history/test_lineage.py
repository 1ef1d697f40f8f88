"""How the parts of a population, and clones, are described."""

from __future__ import annotations

from tests.builders.studies import make_experiment
from workbench.foundation.events import Clone, Segment, TrialProposed
from workbench.store.history import History
from workbench.store.history.lineage import describe_segment

POPULATION = {"name": "pbt", "options": {"population": 4, "every": 2, "length": 6}}


def test_a_part_is_described_in_epochs_of_a_model_and_in_steps_of_a_function() -> None:
    segment = Segment(member=0, begin=2, end=4, continues=1)
    proposed = TrialProposed(trial=0, params={"lr": 0.1}, configuration=0, seed=0, segment=segment)
    search = {"lr": {"low": 0.01, "high": 0.3}}
    function = make_experiment(search=search, sampler=POPULATION)
    model = make_experiment(
        train=None,
        model="mlp",
        data="digits",
        search=search,
        training={"epochs": 6},
        objectives=[{"metric": "val_loss", "goal": "minimize"}],
        sampler={"name": "pbt", "options": {"population": 4, "every": 2}},
    )
    for experiment, unit in ((model, "epochs"), (function, "steps")):
        history = History.of(experiment, [proposed])
        described = describe_segment(history, history.trials[0])
        assert described == f"member 0, {unit} 2 to 4, continues trial 1"


def test_a_clone_of_a_function_may_begin_later_than_the_step_that_was_known() -> None:
    search = {"lr": {"low": 0.01, "high": 0.3}}
    parent = TrialProposed(trial=0, params={"lr": 0.1}, configuration=0, seed=0)
    function = make_experiment(search=search)
    model = make_experiment(
        train=None,
        model="mlp",
        data="digits",
        search=search,
        objectives=[{"metric": "val_loss", "goal": "minimize"}],
    )
    for begins_from, experiment, begin in (
        ("weights", model, "its weights at step 60"),
        ("weights", function, "its weights at step 60 or later"),
        ("start", function, "its start"),
    ):
        step = 60 if begins_from == "weights" else 0
        clone = Clone(of=0, begins_from=begins_from, step=step)
        proposed = TrialProposed(trial=1, params={"lr": 0.05}, configuration=1, seed=0, clone=clone)
        history = History.of(experiment, [parent, proposed])
        described = describe_segment(history, history.trials[1])
        assert described == f"clone of trial 0 from {begin}: lr 0.1 -> 0.05"
