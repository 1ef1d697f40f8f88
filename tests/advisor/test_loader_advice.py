"""How many loaders advice tries, recommends, and what it says about them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from workbench.advisor.advice_from_findings import (
    describe_loading,
    describe_missing_cores,
    loader_numbers,
)
from workbench.advisor.plan_measurement import MeasurementContext, PlanMeasurer
from workbench.cluster.workers.admission import Capacity, Shape, free_cores_of
from workbench.experiment import Experiment
from workbench.experiment.plan import PartialPlan
from workbench.foundation.events import PlanMeasured
from workbench.foundation.events.trials import loaders_to_hide
from workbench.hardware.performance.profiler import summarise
from workbench.hardware.resources import ClusterInventory, NodeInventory
from workbench.training.planning.settings import resolve
from workbench.training.probes.measurements import PlanProbe

DATA_S, COMPUTE_S = 3e-3, 1e-3
"""Seconds of a sample."""


def make_experiment(**changes: Any) -> Experiment:
    objectives = [{"metric": "val_loss", "goal": "minimize"}]
    return Experiment(model="mlp", data="digits", objectives=objectives, **changes)


class LoadingBench:
    """Steps that wait for data; loaders share the loading, and load while the model computes."""

    def __init__(self, experiment: Experiment, data_s: float) -> None:
        self._experiment, self._data_s = experiment, data_s
        self.loaders: set[int] = set()

    def put(self, placement: str) -> None:
        pass

    def probe(
        self,
        num_workers: int,
        plans: Sequence[PartialPlan],
        order: PlanProbe,
        params: Mapping[str, Any],
    ) -> list[PlanMeasured]:
        measured = []
        for next_plan in plans:
            decided = next_plan | PartialPlan.of(workers=num_workers)
            plan = resolve(self._experiment, params, num_train_samples=4096, decided=decided).plan
            self.loaders.add(plan.loaders)
            data_s, compute_s = self._data_s * plan.micro_batch, COMPUTE_S * plan.micro_batch
            waits_s = data_s if not plan.loaders else max(0.0, data_s / plan.loaders - compute_s)
            parts = {
                "data": waits_s,
                "forward": compute_s / 2,
                "backward": compute_s / 2,
                "update": 0.0,
            }
            measured.append(
                PlanMeasured(
                    setting="s",
                    plan=plan.to_json(),
                    workers_per_node=[num_workers],
                    parts_s=parts,
                    num_train_samples=4096,
                    step_time_s=sum(parts.values()),
                )
            )
        return measured


def survey(data_s: float, free_cores: int, **plan: Any) -> tuple[PlanMeasurer, LoadingBench]:
    experiment = make_experiment(plan=plan)
    bench = LoadingBench(experiment, data_s)
    around = MeasurementContext(
        Capacity(Shape(1, 0.0), (1,)),
        on_gpu=False,
        limit_bytes=None,
        setting="s",
        free_cores=free_cores,
    )
    measurer = PlanMeasurer(experiment, bench, around, 60.0)  # type: ignore[arg-type]
    measurer.measure_plans()
    return measurer, bench


def test_as_many_loaders_are_measured_and_chosen_as_hide_the_loading() -> None:
    measurer, bench = survey(DATA_S, free_cores=8)
    assert bench.loaders == {0, 3}
    assert measurer.fastest_plans("time", None)[0].loaders == 3
    lines = list(describe_loading(measurer.knowledge.measured))
    assert len(lines) == 1
    assert lines[0].startswith(
        "75% of a step waits for data. With 3 loaders it is 4.0 times as fast"
    )


def test_no_loaders_are_tried_where_steps_hardly_wait_for_data() -> None:
    measurer, bench = survey(1e-5, free_cores=8)
    assert bench.loaders == {0}
    assert not list(describe_loading(measurer.knowledge.measured))


def test_what_is_written_is_not_changed() -> None:
    assert survey(DATA_S, free_cores=8, loaders=1)[1].loaders == {1}


def test_loaders_have_no_more_cores_than_are_free_and_the_advice_says_what_is_missing() -> None:
    measurer, bench = survey(DATA_S, free_cores=0)
    assert bench.loaders == {0}
    reference = measurer.reference
    advised = {
        7: "and 3 loaders a worker would hide that. Set resources.concurrency to 1 and"
        " plan.loaders to 3",
        1: "and 1 loader a worker would shorten that (3 would hide it). Set resources.concurrency"
        " to 1 and plan.loaders to 1",
        0: "and no core is left for more loaders. Use a machine with more cores, or make samples"
        " cheaper to load",
    }
    for spare_cores, what in advised.items():
        (line,) = describe_missing_cores([reference], reference, spare_cores)
        assert line == f"free CPU cores: 75% of a step waits for data, {what}"
    assert loader_numbers(reference, 2) == (0, 2)
    for data_s in (1e-5, DATA_S):
        measurer = survey(data_s, free_cores=8)[0]
        known = measurer.knowledge.measured
        assert not list(describe_missing_cores(known, measurer.reference, 8))


@pytest.mark.parametrize(
    ("data_s", "rest_s", "loaders"),
    [(0.75, 0.25, 3), (0.5, 0.5, 1), (0.05, 0.95, 0), (1.0, 0.0, 16)],
)
def test_loaders_load_as_fast_as_the_rest_of_a_step_goes(
    data_s: float, rest_s: float, loaders: int
) -> None:
    assert loaders_to_hide({"data": data_s, "forward": rest_s}) == loaders


def test_cores_are_free_that_trials_at_once_leave() -> None:
    cluster = ClusterInventory(
        nodes=(NodeInventory("n", "h", num_cpus=8, num_gpus=2, memory_bytes=2**34),)
    )
    searched = make_experiment(search={"lr": {"low": 0.1, "high": 1.0}})
    on_cpu = searched.replace(resources={"gpus_per_worker": 0})
    assert free_cores_of(searched, cluster) == 3
    assert free_cores_of(searched.replace(resources={"concurrency": 1}), cluster) == 7
    assert free_cores_of(on_cpu, cluster) == 0
    assert free_cores_of(on_cpu.replace(budget={"trials": 2}), cluster) == 3
    assert free_cores_of(make_experiment(), cluster) == 7, (
        "nothing is searched, so there is one trial"
    )


def test_waiting_that_comes_in_bursts_is_not_left_out_of_a_step_time() -> None:
    steps = [
        {"data": data_s, "forward": 1.0, "backward": 0.0, "update": 0.0}
        for data_s in (0.0, 0.0, 9.0)
    ]
    assert summarise(steps).step_time_s == 1.0
    assert summarise(steps, comes_in_bursts=True).step_time_s == pytest.approx(4.0)
