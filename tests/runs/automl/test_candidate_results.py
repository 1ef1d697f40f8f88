from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from workbench.cli.automl_result import CandidatesView
from workbench.experiment import Experiment
from workbench.foundation.events import (
    CheckpointSaved,
    CommandHandled,
    DriverStarted,
    Event,
    RunStateChanged,
    TrialEnded,
    TrialEnqueued,
    TrialProposed,
)
from workbench.runs.automl.candidate_results import (
    candidate,
    candidates_of,
    describe_best,
    describe_counts,
    describe_cut_short,
)
from workbench.runs.automl.model_selection import num_folds_compared
from workbench.store.history import History

EXPERIMENT = Experiment(
    train="json:dumps",
    objectives=[{"metric": "val_loss", "goal": "minimize"}],
    repeats=3,
    search={"family": {"choices": ["mlp", "forest"]}, "forest_num_trees": {"low": 1, "high": 9}},
    budget={"time": 60},
)
FAMILIES = ("mlp", "forest", "mlp", "forest")


def events() -> list[Event]:
    """Four candidates in three folds.

    Complete, pruned in the second fold, failed, and one under way.
    """
    recorded: list[Event] = [
        DriverStarted(pid=1, host="here", num_cpus=2),
        RunStateChanged(state="running"),
        CommandHandled(command=1, kind="enqueue", done=True, message="it is next"),
        TrialEnqueued(params={"family": "mlp"}),
    ]
    endings = [["complete"] * 3, ["complete", "pruned"], ["failed"], ["complete", None]]
    number = 0
    for configuration, states in enumerate(endings):
        for repeat, state in enumerate(states):
            params: dict[str, Any] = {"family": FAMILIES[configuration], "forest_num_trees": 5}
            recorded.append(
                TrialProposed(
                    trial=number,
                    params=params,
                    configuration=configuration,
                    repeat=repeat,
                    seed=repeat,
                )
            )
            if state is not None:
                values = {
                    "val_loss": 0.25 + configuration + repeat,
                    "val_accuracy": 0.5,
                    "train_loss": 0.1,
                }
                reason: Any = "error" if state == "failed" else None
                recorded.append(
                    TrialEnded(
                        trial=number,
                        attempt=0,
                        state=state,
                        step=1,
                        values=values if reason is None else {},
                        reason=reason,
                        message="ValueError: too\nwide" if reason else None,
                    )
                )
            number += 1
    return recorded


def test_trials_that_differ_in_their_fold_are_one_candidate() -> None:
    history = History.of(EXPERIMENT, events())
    tried = candidates_of(history)
    assert [(each.number, each.family, each.state, each.num_folds) for each in tried] == [
        (1, "mlp", "complete", 3),
        (2, "forest", "set aside", 1),
        (3, "mlp", "failed", 0),
        (4, "forest", "under way", 1),
    ]
    assert tried[0].values == {"loss": 1.25, "accuracy": 0.5}
    assert tried[2].message == "ValueError: too"
    assert describe_counts(tried) == "2 candidates tried, 1 more failed, 1 more under way"
    assert describe_counts([]) == "0 candidates tried"
    assert describe_counts(tried[-2:]) == "1 candidate failed, 1 more under way"
    history.apply(RunStateChanged(state="complete", reason="time"))
    assert candidate(history, 3).state == "cut short"


def test_a_candidate_whose_family_is_not_searched_has_the_model_of_the_experiment() -> None:
    proposed = TrialProposed(trial=0, params={"lr": 0.1}, configuration=0, seed=0)
    fixed = Experiment(
        model="mlp",
        data="digits",
        objectives=EXPERIMENT.objectives,
        search={"lr": {"low": 0.1, "high": 1.0}},
    )
    for experiment, family in ((fixed, "mlp"), (EXPERIMENT, "model")):
        (candidate,) = candidates_of(History.of(experiment, [proposed]))
        assert candidate.family == family
        assert "lr=0.1" in candidate.line(is_best=False)


@pytest.mark.parametrize("as_json", [False, True])
def test_a_terminal_is_told_of_candidates_and_their_scores_alone(
    capsys: pytest.CaptureFixture[str], as_json: bool
) -> None:
    history = History(EXPERIMENT)
    view = CandidatesView(history, as_json)
    for event in [*events(), RunStateChanged(state="complete", reason="time")]:
        history.apply(event)
        view.show(event)
        view.refresh(history.state)
    view.close()

    streams = capsys.readouterr()
    assert (streams.out == "") == as_json
    lines = [line.strip() for line in (streams.err if as_json else streams.out).splitlines()]
    assert [line[line.index("candidate") :] for line in lines] == [
        (
            "candidate   1  mlp            validation: loss 1.2500, accuracy 0.5000  (best so far) "
            " forest_num_trees=5"
        ),
        (
            "candidate   2  forest         validation: loss 1.2500, accuracy 0.5000  set aside"
            " after 1 of 3 folds  num_trees=5"
        ),
        "candidate   3  mlp            failed: ValueError: too",
        (
            "candidate   4  forest         validation: loss 3.2500, accuracy 0.5000  cut short"
            " after 1 of 3 folds  num_trees=5"
        ),
    ]


def test_a_candidate_of_few_folds_is_the_best_only_where_none_has_all() -> None:
    tried = candidates_of(History.of(EXPERIMENT, events()))
    easy = replace(tried[3], values={"loss": 0.01})
    assert describe_best([*tried[:3], easy]) == "best validation loss 1.25 (mlp)"
    assert (
        describe_best([tried[2], easy]) == "best validation loss 0.01 (forest) after 1 of 3 folds"
    )
    assert describe_best([tried[2]]) is None


def history_of(*candidates: tuple[str, list[float]], goal: str = "minimize") -> History:
    """Return an ended run of candidates, by the state of the last fold and the values of all
    folds.
    """
    objective = {"metric": "val_loss", "goal": goal}
    history = History.of(EXPERIMENT.replace(objectives=[objective]), events()[:2])
    number = 0
    for configuration, (state, values) in enumerate(candidates):
        for repeat, value in enumerate(values):
            params: dict[str, Any] = {"family": "mlp", "forest_num_trees": 5}
            last: Any = state if repeat == len(values) - 1 else "complete"
            for event in (
                TrialProposed(
                    trial=number,
                    params=params,
                    configuration=configuration,
                    repeat=repeat,
                    seed=repeat,
                ),
                CheckpointSaved(trial=number, attempt=0, step=1, path="kept", best=True),
                TrialEnded(trial=number, attempt=0, state=last, step=1, values={"val_loss": value}),
            ):
                history.apply(event)
            number += 1
    history.apply(RunStateChanged(state="complete", reason="time"))
    return history


def test_a_candidate_that_was_cut_short_while_it_was_ahead_is_named_with_the_numbers() -> None:
    # On the same two folds: 0.39 against 0.4, although the mean of all folds of the complete one
    # is 0.3.
    history = history_of(
        ("complete", [0.4, 0.4, 0.1]), ("stopped", [0.39, 0.39, 9.0]), ("stopped", [0.395, 9.0])
    )
    assert (
        describe_cut_short(history)
        == "candidate 2 (mlp) was cut short after 2 of 3 folds with a val_loss of 0.39. Candidate"
        " 1, the best complete one, had 0.4 on the same folds, the most of 2 such"
        " candidates. More time may find a better model"
    )
    in_first = describe_cut_short(history_of(("complete", [0.4, 0.4, 0.4]), ("stopped", [0.39])))
    assert in_first is not None
    assert "cut short in its first fold with a val_loss of 0.39." in in_first


@pytest.mark.parametrize(
    ("others", "num_folds"),
    [
        ([("stopped", [0.37, 0.37, 9.0])], 2),  # clearly better on both
        ([("stopped", [0.39, 0.39, 9.0])], 3),  # not clearly
        ([("stopped", [0.3, 9.0]), ("stopped", [0.37, 0.37, 9.0])], 1),  # the most
        ([("pruned", [0.1, 0.1])], 3),  # set aside
        ([("stopped", [0.1])], 1),
        ([("stopped", [0.1, 0.1, 9.0]), ("complete", [0.05, 0.05, 0.05])], 3),
    ],
)
def test_candidates_are_compared_on_fewer_folds_if_the_end_cut_a_clearly_better_one_short(
    others: list[tuple[Any, list[float]]], num_folds: int
) -> None:
    history = history_of(("complete", [0.4, 0.4, 0.1]), *others)
    assert num_folds_compared(history) == num_folds
    told = describe_cut_short(history) or ""
    assert ("candidates were compared on the first" in told) == (num_folds < 3)


def test_a_candidate_that_was_cut_short_behind_the_best_is_not_named() -> None:
    assert (
        describe_cut_short(history_of(("complete", [0.4, 0.4, 0.1]), ("stopped", [0.45, 9.0])))
        is None
    )
    assert (
        describe_cut_short(history_of(("complete", [0.4] * 3), ("pruned", [0.2, 0.2]))) is None
    ), "set aside"
    assert describe_cut_short(history_of(("stopped", [0.45, 9.0]))) is None, "it is what was chosen"
    maximised = history_of(("complete", [0.4] * 3), ("stopped", [0.41, 0.41]), goal="maximize")
    assert "0.41" in (describe_cut_short(maximised) or "")
    clearly = history_of(("complete", [0.4] * 3), ("stopped", [0.5, 0.5]), goal="maximize")
    assert num_folds_compared(clearly) == 1


def test_candidates_are_ordered_by_what_is_optimised() -> None:
    experiment = EXPERIMENT.replace(objectives=[{"metric": "val_accuracy", "goal": "maximize"}])
    tried = candidates_of(History.of(experiment, events()))
    better = replace(tried[0], values={"loss": 9.0, "accuracy": 0.75})
    assert better.loss < tried[0].loss
    assert describe_best([tried[0], better]) == "best validation accuracy 0.75 (mlp)"
    assert "accuracy 0.7500, loss 9.0000" in better.line(is_best=False)


def test_a_run_that_has_ended_is_followed_with_the_times_that_it_had(
    capsys: pytest.CaptureFixture[str],
) -> None:
    ended_s = iter([4.0, 7.0, 9.0, 11.0, 12.0, 20.0, 30.0])
    recorded: list[Event] = []
    for event in events():
        time_s = next(ended_s) if isinstance(event, TrialEnded) else 0.0
        recorded.append(event.model_copy(update={"time_unix_s": 1000.0 + time_s}))
    end = RunStateChanged(state="complete", reason="time", time_unix_s=1043.0)
    history = History.of(EXPERIMENT, [*recorded, end])
    view = CandidatesView(history, as_json=False)
    for event in [*recorded, end]:
        view.show(event)
    view.close()
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition("candidate")[0].strip() for line in lines] == [
        "9 s",
        "12 s",
        "20 s",
        "30 s",
    ]
