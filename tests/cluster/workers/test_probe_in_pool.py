"""Plans that are measured by the workers of the pool."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from workbench.advisor.batch_finder import find_fastest
from workbench.cluster.workers.admission import Request
from workbench.cluster.workers.gang import Gang
from workbench.experiment import Experiment
from workbench.experiment.plan import PartialPlan
from workbench.foundation.events import PlanMeasured
from workbench.training.probes.measurements import PlanProbe
from workbench.training.worker_task import TrialTask

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_head")]


class Pool:
    """Measures micro batches with a gang of the pool that is leased for each call."""

    def __init__(self, folder: Path, num_workers: int) -> None:
        experiment = Experiment(
            model={"name": "mlp", "hidden_width": 128},
            data="digits",
            objectives=[{"metric": "val_loss", "goal": "minimize"}],
        )
        self._text = experiment.model_dump_json()
        self._folder = str(folder)
        self._num_workers = num_workers
        # Workers compare their memory with that after the first trial of a run: other tests have
        # other runs.
        self._run_id = f"run-{folder.name}"

    def __call__(self, sizes: Sequence[int]) -> list[PlanMeasured]:
        plans = tuple(PartialPlan.of(micro_batch=size, accumulation=1) for size in sizes)
        order = PlanProbe(plans, warmup_steps=2, num_steps=5, setting="pool")
        task = TrialTask(self._run_id, 0, 0, self._text, folder=self._folder, measurement=order)
        request = Request(self._run_id, num_workers=self._num_workers, preload=("torch",))
        gang = Gang.lease(request, timeout_s=120)
        try:
            gang.start(task)
            progress = gang.next(timeout_s=120)
            events = list(progress.events)
            while progress.ended is None and progress.lost is None:
                progress = gang.next(timeout_s=120)
                events += progress.events
        finally:
            gang.release()
        assert progress.ended is not None, progress.message
        assert progress.ended.state == "complete", progress.ended.traceback
        assert progress.unfit is None
        return [event for event in events if isinstance(event, PlanMeasured)]


@pytest.mark.parametrize("num_workers", [1, 2])
@pytest.mark.slow
def test_measurements_come_from_the_pool(num_workers: int, tmp_path: Path) -> None:
    measured = Pool(tmp_path, num_workers)((8, 32))
    assert [event.plan["micro_batch"] for event in measured] == [8, 32]
    for event in measured:
        assert event.fits
        assert event.plan["workers"] == num_workers
        assert event.workers_per_node == [num_workers]
        assert event.num_steps == 5
        assert event.samples_per_s is not None
        assert event.samples_per_s > 0.0


def test_the_fastest_micro_batch_is_found_with_the_pool(tmp_path: Path) -> None:
    fastest = find_fastest(Pool(tmp_path, 1), smallest=4, largest=64)
    assert fastest.best is not None
    speeds = [event.samples_per_s or 0.0 for event in fastest.measured]
    assert fastest.best.samples_per_s == max(speeds)
    assert [event.plan["micro_batch"] for event in fastest.measured[:2]] == [4, 8]
