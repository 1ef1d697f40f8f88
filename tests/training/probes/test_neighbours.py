"""Copies of a training that make steps beside each other, each in a process of its own."""

from __future__ import annotations

import itertools

import pytest

from tests.services.process_group import run_together
from workbench.experiment import Experiment
from workbench.experiment.plan import PartialPlan
from workbench.foundation.events import Event, PlanMeasured, TrialEnded
from workbench.training.probes import plan_probe
from workbench.training.probes.measurements import NeighbourProbe
from workbench.training.trial import run_trial
from workbench.training.worker_task import TrialTask

MICRO_BATCH = 32


def measure(
    rank: int,
    num_workers: int,
    meeting: str | None,
    full: int | None = None,
    *,
    num_steps: int | None = None,
) -> tuple[TrialEnded, list[PlanMeasured]]:
    """Measure as one of the copies; on rank `full` memory runs out.

    With `num_steps`, steps are counted instead of made: so many times (rank + 1) in a second.
    """
    events: list[PlanMeasured] = []

    def report(event: Event) -> bool:
        assert isinstance(event, PlanMeasured)
        events.append(event)
        return False

    def run_out(*_arguments: object) -> None:
        raise MemoryError("no room for another one")

    experiment = Experiment(
        model={"name": "mlp", "hidden_width": 64},
        data="digits",
        objectives=[{"metric": "val_accuracy", "goal": "maximize"}],
    )
    order = NeighbourProbe(PartialPlan.of(micro_batch=MICRO_BATCH, accumulation=1), longest_s=0.3)
    task = TrialTask(
        "run",
        0,
        0,
        experiment.model_dump_json(),
        seed=3,
        folder="unused",
        rank=rank,
        num_workers=num_workers,
        meeting=meeting,
        measurement=order,
    )
    with pytest.MonkeyPatch.context() as patch:
        if rank == full:
            patch.setattr(plan_probe, "assemble", run_out)
        if num_steps is not None:
            seconds = itertools.count()
            patch.setattr(plan_probe, "perf_counter", lambda: float(next(seconds)))
            patch.setattr(plan_probe.TimedSteps, "make", lambda *_: num_steps * (rank + 1))
        return run_trial(task, report), events


def counted(
    rank: int, num_workers: int, meeting: str | None
) -> tuple[TrialEnded, list[PlanMeasured]]:
    return measure(rank, num_workers, meeting, num_steps=10)


def test_copies_add_up_what_each_does_by_itself() -> None:
    results = run_together(counted, 2)
    assert [ended.state for ended, _ in results] == ["complete", "complete"]
    (event,), nothing = (events for _, events in results)
    assert nothing == [], "only the first one reports"
    assert event.fits
    assert (event.plan["workers"], event.plan["micro_batch"]) == (1, MICRO_BATCH)
    assert event.num_steps == 10, "those of the slower one"
    assert event.samples_per_s == (10 + 20) * MICRO_BATCH


def test_one_alone_is_measured_in_the_same_way() -> None:
    ended, (event,) = measure(0, 1, None)
    assert ended.state == "complete"
    assert event.num_steps >= 3
    assert event.samples_per_s is not None
    assert event.samples_per_s > 0.0
    assert event.peak_bytes is not None
    assert event.peak_bytes > 10 * 2**20


def test_where_one_runs_out_of_memory_all_end_and_do_not_fit() -> None:
    results = run_together(measure, 2, 1)
    assert [ended.state for ended, _ in results] == ["complete", "complete"]
    ((event,), _) = (events for _, events in results)
    assert not event.fits
    assert event.samples_per_s is None
    assert "no room for another one" in str(event.message)


@pytest.mark.gpu
def test_copies_share_a_real_gpu() -> None:
    results = run_together(measure, 2)
    assert [ended.state for ended, _ in results] == ["complete", "complete"]
    ((event,), _) = (events for _, events in results)
    assert event.fits
    assert event.samples_per_s is not None
    assert event.samples_per_s > 0.0
    assert event.peak_bytes is not None
    assert event.peak_bytes < 2**30, "what the allocator handed out, without the context"
