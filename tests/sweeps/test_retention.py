"""Which checkpoints stay, over real files and real stores; and one sweep of models, end to end."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.services.sweeps import Sweep, make_experiment
from workbench.foundation.errors import RunError
from workbench.foundation.events import (
    CheckpointSaved,
    CheckpointsDeleted,
    Event,
    Noted,
    RunStateChanged,
    TrialEnded,
    TrialProposed,
)
from workbench.runs import Run
from workbench.store.database import Store
from workbench.sweeps.ledger import Ledger
from workbench.sweeps.retention import Retention

TWO = [{"metric": "loss", "goal": "minimize"}, {"metric": "size", "goal": "minimize"}]


class Course:
    """A run whose trials are told by hand; each keeps a checkpoint of some bytes."""

    def __init__(self, store: Store, **fields: object) -> None:
        self.store = store
        self.run_id = store.create_run(make_experiment("go_on", **fields))
        self.artifacts = store.artifacts_of(self.run_id)
        self.ledger = Ledger(store, self.run_id)
        self._writer = store.writer(self.run_id, owner_pid=os.getpid(), owner_host="here")
        self.ledger.replay(self._writer)
        self.retention = Retention(self.ledger, self.artifacts)
        self.retention.begin()

    def close(self) -> None:
        self._writer.close()

    def begin(self, number: int, size_bytes: int = 100) -> None:
        self.ledger.record(
            TrialProposed(trial=number, params={"x": 0.5}, configuration=number, seed=1)
        )
        self.artifacts.write(f"trials/{number:05d}/checkpoints/last.pt", bytes(size_bytes))
        self.artifacts.write(f"trials/{number:05d}/log.txt", b"said")

    def end(self, number: int, state: str = "complete", **values: float) -> None:
        ended = TrialEnded(trial=number, attempt=0, state=state, values=values)  # pyright: ignore
        self.ledger.record(ended)
        self.retention.on_events(number, [ended])

    @property
    def kept(self) -> set[int]:
        """The trials that have checkpoints on the disk."""
        names = (name.split("/") for name in self.artifacts.sizes("trials"))
        return {int(parts[1]) for parts in names if parts[2] == "checkpoints"}

    def of(self, kind: type[Event]) -> list[Event]:
        return [
            stored.event
            for stored in self.store.events(self.run_id)
            if isinstance(stored.event, kind)
        ]


@pytest.fixture
def course(store: Store, request: pytest.FixtureRequest) -> Iterator[Course]:
    course = Course(store, **request.param)
    yield course
    course.close()


def resources(**fields: object) -> dict[str, object]:
    return {"resources": fields}


@pytest.mark.parametrize("course", [resources(keep_best=3)], indirect=True)
def test_the_best_finished_trials_and_all_unfinished_ones_keep_their_checkpoints(
    course: Course,
) -> None:
    losses = [0.9, 0.2, 0.5, 0.1, 0.8, 0.3, 0.05]
    for number in range(9):
        course.begin(number)
    for number, loss in enumerate(losses):
        course.end(number, loss=loss)
    assert course.kept == {1, 3, 6, 7, 8}
    course.end(7, "pruned", loss=0.01)
    assert course.kept == {1, 3, 6, 8}
    assert {event.trial for event in course.of(CheckpointsDeleted)} == {0, 2, 4, 5, 7}
    # Only checkpoints go; what trials printed stays.
    assert course.artifacts.read("trials/00000/log.txt") == b"said"


@pytest.mark.parametrize("course", [resources(keep_best=1) | {"objectives": TWO}], indirect=True)
def test_the_whole_front_counts_as_best(course: Course) -> None:
    values = [(0.9, 0.1), (0.1, 0.9), (0.5, 0.5), (0.6, 0.6), (0.4, 0.7), (0.05, 1.0)]
    for number, (loss, size) in enumerate(values):
        course.begin(number)
        course.end(number, loss=loss, size=size)
    assert course.kept == {0, 1, 2, 4, 5}
    assert course.kept == {trial.number for trial in course.ledger.history.front()}


@pytest.mark.parametrize("course", [resources(keep_best="all")], indirect=True)
def test_everything_stays_where_a_person_says_so(course: Course) -> None:
    for number in range(20):
        course.begin(number)
        course.end(number, loss=random.random())
    assert course.kept == set(range(20))


@pytest.mark.parametrize(
    "course", [resources(keep_best="all", max_checkpoints_size="1KB")], indirect=True, ids=["1KB"]
)
def test_the_least_valuable_go_first_when_space_is_short_and_a_warning_says_if_that_is_not_enough(
    course: Course,
) -> None:
    for number, loss in enumerate([0.5, 0.1, 0.9]):
        course.begin(number, 300)
        course.end(number, loss=loss)
    assert course.kept == {0, 1, 2}
    course.begin(3, 300)
    course.end(3, loss=0.3)
    assert course.kept == {0, 1, 3}
    assert course.of(Noted) == []
    for number in (4, 5):
        course.begin(number, 900)
        course.end(number, loss=0.01 * (6 - number))
    assert course.kept == {5}
    course.begin(6, 2000)
    course.end(6, loss=0.001)
    course.begin(7, 3000)
    course.end(7, loss=0.0001)
    assert course.kept == {7}
    [warning] = course.of(Noted)
    assert "max_checkpoints_size = 0.977 KiB" in warning.message  # pyright: ignore


@pytest.mark.parametrize("course", [resources(keep_best="all")], indirect=True)
def test_unfinished_trials_whose_checkpoints_are_gone_are_noted_when_the_run_is_driven_again(
    course: Course,
) -> None:
    for number in range(5):
        course.begin(number)
        folder = course.artifacts.below(f"trials/{number:05d}/checkpoints")
        if number < 4:  # the last one has not saved any
            saved = CheckpointSaved(trial=number, attempt=0, step=3, path=f"{folder}/last.pt")
            course.ledger.record(saved)
    course.end(0, loss=0.5)
    for number in (0, 1, 3, 4):
        course.artifacts.delete(f"trials/{number:05d}/checkpoints")
    Retention(course.ledger, course.artifacts).begin()
    [warning] = course.of(Noted)
    where = course.artifacts.below("trials")
    assert warning.message == (  # pyright: ignore
        f"trials 1, 3 start over: their checkpoints are no longer in {where}"
    )


@pytest.mark.parametrize("course", [resources(keep_best=1)], indirect=True)
def test_what_a_late_worker_or_a_crash_left_is_removed_and_interrupted_trials_keep_theirs(
    course: Course,
) -> None:
    for number, loss in enumerate([0.1, 0.5]):
        course.begin(number)
        course.end(number, loss=loss)
    course.begin(2)
    course.artifacts.write("trials/00001/checkpoints/best.pt", b"late")
    course.ledger.record(RunStateChanged(state="stopped"))
    course.retention.end()
    assert course.kept == {0, 2}

    course.artifacts.write("trials/00001/checkpoints/best.pt", b"late again")
    Retention(course.ledger, course.artifacts).begin()
    assert course.kept == {0, 2}
    assert len(course.of(CheckpointsDeleted)) == 1


@pytest.mark.ray
@pytest.mark.usefixtures("free_pool")
@pytest.mark.slow
def test_a_sweep_of_models_keeps_the_best_and_says_what_became_of_the_others(
    store: Store, tmp_path: Path
) -> None:
    experiment = make_experiment(
        "go_on",
        train=None,
        model="mlp",
        data="digits",
        resources={"concurrency": 1, "keep_best": 1},
        objectives=[{"metric": "val_loss", "goal": "minimize"}],
        sampler="grid",
        search={"lr": {"choices": [1e-5, 0.01, 1e-4]}},
        training={"epochs": 2, "global_batch": 128},
    )
    sweep = Sweep(store, store.create_run(experiment)).launch("inline")

    best = sweep.history.best()
    assert best is not None
    run = Run(store, sweep.run_id)
    kept = {
        name.split("/")[1]
        for name in store.artifacts_of(sweep.run_id).sizes("trials")
        if ".pt" in name
    }
    assert kept == {f"{best.number:05d}"}
    assert (run.export(tmp_path / "best") / "weights.safetensors").exists()
    other = (best.number + 1) % 3
    with pytest.raises(RunError, match="deleted in favour of better ones") as caught:
        run.export(tmp_path / "other", trial=other)
    assert "weights=False" in str(caught.value)
    without = run.export(tmp_path / "other", trial=other, weights=False)
    assert (without / "retrain.sh").exists()
    assert not (without / "weights.safetensors").exists()
