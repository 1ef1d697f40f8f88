"""How many plans a measurer measures when time is short, and where it puts the workers of a trial."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.advisor.plan_measurement import MeasurementContext, PlanMeasurer, num_affordable
from workbench.advisor.plans import Knowledge
from workbench.events import PlanMeasured
from workbench.experiment import Experiment
from workbench.plan import PartialPlan
from workbench.planning.settings import resolve
from workbench.probes.measurements import PlanProbe
from workbench.workers.admission import Placement, Shape
from workbench.workers.capacity import Capacity

seconds = st.floats(min_value=-1e4, max_value=1e4)
plan_seconds = st.floats(min_value=1e-6, max_value=1e3)


def test_all_plans_are_measured_while_there_is_time() -> None:
    assert num_affordable(5, math.inf, 2.0) == 5
    assert num_affordable(5, 10.0, 2.0) == 5


def test_fewer_plans_are_measured_when_time_is_short() -> None:
    assert num_affordable(5, 7.0, 2.0) == 3


def test_two_plans_are_measured_even_when_all_time_is_spent() -> None:
    assert num_affordable(5, -3.0, 2.0) == 2


@given(most=st.integers(2, 20), left_s=seconds, more_s=st.floats(0.0, 1e4), plan_s=plan_seconds)
def test_more_time_never_means_fewer_plans(most: int, left_s: float, more_s: float, plan_s: float) -> None:
    few, many = num_affordable(most, left_s, plan_s), num_affordable(most, left_s + more_s, plan_s)
    assert 2 <= few <= many <= most


SAMPLES = 4096
ROOM = (2, 2)


class TwoNodes:
    """Two nodes of two workers; steps of workers on one node take `packed` as long, else `apart`."""

    def __init__(self, experiment: Experiment, packed: float, apart: float) -> None:
        self.placement: Placement = "pack"
        self.placements: set[Placement] = set()
        self._experiment, self._packed, self._apart = experiment, packed, apart

    def put(self, placement: Placement) -> None:
        self.placement = placement

    def probe(
        self, num_workers: int, plans: Sequence[PartialPlan], order: PlanProbe,
        params: Mapping[str, Any],
    ) -> list[PlanMeasured]:  # fmt: skip
        self.placements.add(self.placement)
        topology = Knowledge([], ROOM, placement=self.placement, limit_bytes=None).topology(num_workers)
        factor = 1.0 if num_workers == 1 else self._packed if topology.num_nodes == 1 else self._apart
        found = []
        for plan in plans:
            decided = plan | PartialPlan.of(workers=num_workers)
            settings = resolve(self._experiment, params, num_train_samples=SAMPLES, decided=decided)
            found.append(
                PlanMeasured(
                    setting=order.setting,
                    plan=settings.plan.to_json(),
                    workers_per_node=list(topology.gpus_per_node),
                    num_train_samples=SAMPLES,
                    step_time_s=factor * (1e-3 + 1e-4 * settings.plan.micro_batch),
                )
            )
        return found


def survey_two_nodes(packed: float, apart: float, **resources: Any) -> tuple[PlanMeasurer, TwoNodes]:
    experiment = Experiment(
        model="mlp", data="digits", objectives=[{"metric": "val_loss", "goal": "minimize"}],
        plan={"workers": 2}, resources=resources,
    )  # fmt: skip
    bench = TwoNodes(experiment, packed, apart)
    around = MeasurementContext(Capacity(Shape(1, 0.0), ROOM), on_gpu=False, limit_bytes=None, setting="s")
    measurer = PlanMeasurer(experiment, bench, around, 60.0)  # type: ignore[arg-type]
    measurer.measure_plans()
    measurer.compare_placements(measurer.fastest_plans("time", None))
    return measurer, bench


@pytest.mark.parametrize(("packed", "apart", "chosen"), [(1.5, 1.0, "spread"), (1.0, 1.5, "pack")])
def test_workers_go_where_their_steps_were_faster(packed: float, apart: float, chosen: str) -> None:
    measurer, bench = survey_two_nodes(packed, apart)
    assert bench.placements == {"pack", "spread"}
    assert measurer.placement == bench.placement == chosen
    assert measurer.placements_s["spread"] / measurer.placements_s["pack"] == pytest.approx(apart / packed)


def test_where_a_person_says_where_workers_go_nothing_else_is_tried() -> None:
    measurer, bench = survey_two_nodes(1.5, 1.0, placement="pack")
    assert bench.placements == {"pack"}
    assert measurer.placement == "pack"
