"""Members of a population.

Who continues from whom, with what, whatever the order of the results.
"""

from __future__ import annotations

import random
from collections.abc import Collection
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders.examples import examples
from workbench.experiment import Experiment
from workbench.foundation.errors import ExperimentError
from workbench.foundation.events import (
    Event,
    TrialEnded,
    TrialEnqueued,
    TrialProposed,
    from_json,
    to_json,
)
from workbench.search import Study

SEARCH = {
    "lr": {"low": 1e-4, "high": 1.0, "log": True},
    "momentum": {"low": 0.0, "high": 0.9},
    "layers": {"low": 1, "high": 4},
    "batch": {"choices": [16, 32, 64]},
    "kind": {"choices": ["a", "b"]},
    "inner": {"low": 0.0, "high": 0.4, "step": 0.1, "when": {"kind": "a"}},
    "fixed": 3,
}
CHANGES = ["lr", "momentum", "batch", "inner"]


def experiment(
    sampler: str = "pbt", population: int = 6, goal: str = "minimize", **options: Any
) -> Experiment:
    return Experiment(
        train="math:sqrt",
        objectives=[{"metric": "loss", "goal": goal}],
        search=SEARCH,
        seed=3,
        sampler={
            "name": sampler,
            "options": {
                "population": population,
                "every": 10,
                "length": 40,
                "changes": CHANGES,
                **options,
            },
        },
    )


def play(
    tuned: Experiment, order: int, concurrency: int, failing: Collection[tuple[int, int]] = ()
) -> list[Event]:
    """Play a population whose results come in a drawn order and follow from the parameters."""
    study, rng, running, events = Study(tuned), random.Random(order), [], []
    level: dict[int, float] = {}
    while True:
        while len(running) < concurrency and (proposal := study.ask()) is not None:
            running.append(proposal)
            events.append(proposal.event())
        if not running:
            assert study.exhausted
            return events
        proposal = running.pop(rng.randrange(len(running)))
        part = proposal.segment
        assert part is not None
        begin = level[part.continues] if part.continues is not None else 10.0
        momentum = proposal.params["momentum"]
        assert isinstance(momentum, float)
        level[proposal.trial] = begin * (0.5 + abs(momentum - part.end / 50))
        fails = (part.member, part.end) in failing
        ended = TrialEnded(
            trial=proposal.trial,
            attempt=0,
            state="failed" if fails else "complete",
            reason="diverged" if fails else None,
            step=part.end,
            values={} if fails else {"loss": level[proposal.trial]},
        )
        study.tell(proposal.trial, ended)
        events.append(ended)


def proposed(events: list[Event]) -> list[TrialProposed]:
    return [event for event in events if isinstance(event, TrialProposed)]


def by_place(events: list[Event]) -> dict[tuple[int, int], Any]:
    """What each member was trained with in each part, and whether it continued itself."""
    parts, members = {}, {event.trial: event.segment for event in proposed(events)}
    for event in proposed(events):
        part = event.segment
        assert part is not None
        before = None if part.continues is None else members[part.continues]
        parts[part.member, part.end] = (event.params, before and (before.member, before.end))
    return parts


@pytest.mark.parametrize("sampler", ["pbt", "pb2"])
@examples(8)
@given(
    order=st.integers(0, 10**6),
    concurrency=st.integers(1, 7),
    failing=st.sets(st.tuples(st.integers(0, 5), st.sampled_from([10, 20, 30])), max_size=4),
)
def test_the_order_of_results_and_the_concurrency_change_nothing(
    sampler: str, order: int, concurrency: int, failing: set[tuple[int, int]]
) -> None:
    first = play(experiment(sampler), 0, 1, failing)
    assert len(proposed(first)) == 24
    assert by_place(play(experiment(sampler), order, concurrency, failing)) == by_place(first)


@pytest.mark.parametrize("sampler", ["pbt", "pb2"])
def test_a_rebuilt_study_proposes_the_same_at_every_prefix(sampler: str) -> None:
    events = [from_json(to_json(event)) for event in play(experiment(sampler), 5, 3, {(1, 20)})]
    for place, event in enumerate(events):
        if isinstance(event, TrialProposed):
            proposal = Study.rebuild(experiment(sampler), events[:place]).ask()
            assert proposal is not None
            assert proposal.event().model_copy(update={"time_unix_s": event.time_unix_s}) == event


@pytest.mark.parametrize("goal", ["minimize", "maximize"])
def test_the_weak_continue_from_the_strong_at_the_same_epoch(goal: str) -> None:
    events = play(experiment(goal=goal, quantile=0.34), 7, 4)
    values = {
        event.trial: event.values["loss"] for event in events if isinstance(event, TrialEnded)
    }
    parts = {event.trial: event.segment for event in proposed(events)}
    num_replaced = 0
    for trial, part in parts.items():
        assert part is not None
        if part.continues is None:
            continue
        before = parts[part.continues]
        assert before is not None
        assert before.end == part.begin
        peers = [
            other
            for other, chosen in parts.items()
            if chosen is not None and chosen.end == part.begin
        ]
        ranked = sorted(peers, key=values.__getitem__, reverse=goal == "maximize")
        if part.replaced is None:
            assert before.member == part.member, trial
            assert part.continues not in ranked[-2:]
        else:
            num_replaced += 1
            assert part.replaced in ranked[-2:]
            assert part.continues in ranked[:2]
    assert num_replaced == 6  # two of six, three times


def test_what_cannot_change_stays_with_the_weights() -> None:
    events = proposed(play(experiment(resample=1.0), 1, 2))
    params = {event.trial: event.params for event in events}
    copied = [
        event
        for event in events
        if event.segment is not None and event.segment.replaced is not None
    ]
    assert copied
    for event in copied:
        assert event.segment is not None
        assert event.segment.continues is not None
        source = params[event.segment.continues]
        assert all(event.params[name] == source[name] for name in ("layers", "kind", "fixed"))
        assert event.params != source


@examples(20)
@given(seed=st.integers(0, 2**32 - 1), resample=st.sampled_from([0.0, 0.3, 1.0]))
def test_what_is_explored_is_a_configuration_of_the_space(seed: int, resample: float) -> None:
    tuned = experiment(resample=resample).replace(seed=seed)
    for event in proposed(play(tuned, seed % 5, 3)):
        assert tuned.search.check(event.params) == event.params


def test_without_anyone_left_the_population_ends() -> None:
    events = play(experiment(population=3), 0, 2, {(member, 10) for member in range(3)})
    assert len(proposed(events)) == 3


def test_the_checkpoints_that_others_may_need_are_known() -> None:
    study = Study(experiment(population=2))
    first, second = study.ask(), study.ask()
    assert first is not None
    assert second is not None
    assert study.ask() is None
    for proposal, loss in ((first, 1.0), (second, 2.0)):
        study.tell(
            proposal.trial,
            TrialEnded(trial=proposal.trial, attempt=0, state="complete", values={"loss": loss}),
        )
    assert study.needed() == {0, 1}
    third, fourth = study.ask(), study.ask()
    assert third is not None
    assert third.segment is not None
    assert fourth is not None
    assert fourth.segment is not None
    assert (third.segment.continues, fourth.segment.continues) == (0, 0)
    assert fourth.segment.replaced == 1
    assert study.needed() == {0, 2, 3}


def test_first_configurations_can_be_given() -> None:
    study = Study(experiment(population=2))
    given_params = {"lr": 0.1, "momentum": 0.5, "layers": 2, "batch": 32, "kind": "b"}
    study.enqueue(given_params)
    events: list[Event] = [TrialEnqueued(params=given_params)]
    first, second = study.ask(), study.ask()
    assert first is not None
    assert second is not None
    assert (first.source, first.params) == ("enqueued", {**given_params, "fixed": 3})
    events.append(first.event())
    again = Study.rebuild(experiment(population=2), events).ask()
    assert again is not None
    assert again.params == second.params
    with pytest.raises(ExperimentError, match="every member"):
        study.enqueue(given_params)
    with pytest.raises(ExperimentError, match="cannot change the search space of a population"):
        study.change_search({"lr": 0.1})


def test_a_replay_waits_for_what_it_continues() -> None:
    recorded = proposed(play(experiment(population=2), 0, 1))
    study = Study(experiment(population=2))
    study.replay(recorded)
    first, second = study.ask(), study.ask()
    assert first is not None
    assert second is not None
    assert study.ask() is None
    assert study.needed() >= {event.segment.continues for event in recorded[2:] if event.segment}
    for trial in (0, 1):
        study.tell(
            trial, TrialEnded(trial=trial, attempt=0, state="complete", values={"loss": 1.0})
        )
    third = study.ask()
    assert third is not None
    assert (third.params, third.segment) == (recorded[2].params, recorded[2].segment)


def test_a_schedule_trains_the_parts_as_written() -> None:
    parts = [{"until": 5, "params": {"x": 0.1}}, {"until": 9, "params": {"x": 0.5}}]
    tuned = Experiment(
        train="math:sqrt",
        objectives=[{"metric": "loss", "goal": "minimize"}],
        search={"x": {"low": 0.0, "high": 1.0}},
        sampler={"name": "schedule", "options": {"parts": parts}},
    )
    assert tuned.max_configurations() == 2
    study, trained = Study(tuned), []
    while (proposal := study.ask()) is not None:
        assert study.ask() is None
        part = proposal.segment
        assert part is not None
        trained.append((proposal.params, part.begin, part.end, part.continues))
        study.tell(
            proposal.trial,
            TrialEnded(trial=proposal.trial, attempt=0, state="complete", values={"loss": 1.0}),
        )
    assert trained == [({"x": 0.1}, 0, 5, None), ({"x": 0.5}, 5, 9, 0)]
    assert study.exhausted


def test_a_gaussian_process_finds_a_schedule_that_chance_does_not() -> None:
    """The best momentum rises with time.

    Of what PB2 proposes late, more is near it than of what PBT does.
    """

    def distance(sampler: str) -> float:
        values = []
        for seed in range(3):
            tuned = experiment(sampler, 8, length=80).replace(seed=seed)
            for event in proposed(play(tuned, seed, 4)):
                part = event.segment
                if part is not None and part.replaced is not None and part.begin >= 20:
                    momentum = event.params["momentum"]
                    assert isinstance(momentum, float)
                    values.append(abs(momentum - min(part.end / 50, 0.9)))
        return sum(values) / len(values)

    assert distance("pb2") < distance("pbt")
