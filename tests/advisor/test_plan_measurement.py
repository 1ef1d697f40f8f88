"""How many plans a measurer measures when time is short, and where it puts the workers of a
trial.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.advisor.plan_measurement import (
    MeasurementContext,
    PlanMeasurer,
    combined_variant,
    num_affordable,
)
from workbench.advisor.plan_variants import Variant, plan_with, read_plan, variant_of
from workbench.advisor.plans import Knowledge
from workbench.cluster.workers.admission import Capacity, Placement, Shape
from workbench.experiment import Experiment
from workbench.experiment.plan import PartialPlan, Plan
from workbench.foundation.errors import ExperimentError
from workbench.foundation.events import PlanMeasured
from workbench.training.planning.settings import resolve
from workbench.training.probes.measurements import PlanProbe

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
def test_more_time_never_means_fewer_plans(
    most: int, left_s: float, more_s: float, plan_s: float
) -> None:
    few, many = num_affordable(most, left_s, plan_s), num_affordable(most, left_s + more_s, plan_s)
    assert 2 <= few <= many <= most


SAMPLES = 4096
ROOM = (2, 2)


def resolved(
    experiment: Experiment,
    num_workers: int,
    plans: Sequence[PartialPlan],
    params: Mapping[str, Any],
) -> Iterator[Plan]:
    """Yield the plans that a bench would measure."""
    for plan in plans:
        decided = plan | PartialPlan.of(workers=num_workers)
        yield resolve(experiment, params, num_train_samples=SAMPLES, decided=decided).plan


class TwoNodes:
    """Two nodes of two workers.

    Steps of workers on one node take `packed` as long, else `apart`.
    """

    def __init__(self, experiment: Experiment, packed: float, apart: float) -> None:
        self.placement: Placement = "pack"
        self.placements: set[Placement] = set()
        self._experiment, self._packed, self._apart = experiment, packed, apart

    def put(self, placement: Placement) -> None:
        self.placement = placement

    def probe(
        self,
        num_workers: int,
        plans: Sequence[PartialPlan],
        order: PlanProbe,
        params: Mapping[str, Any],
    ) -> list[PlanMeasured]:
        self.placements.add(self.placement)
        topology = Knowledge([], ROOM, placement=self.placement, limit_bytes=None).topology(
            num_workers
        )
        factor = self._packed if topology.num_nodes == 1 else self._apart
        if num_workers == 1:
            factor = 1.0
        return [
            PlanMeasured(
                setting=order.setting,
                plan=plan.to_json(),
                workers_per_node=list(topology.gpus_per_node),
                num_train_samples=SAMPLES,
                step_time_s=factor * (1e-3 + 1e-4 * plan.micro_batch),
            )
            for plan in resolved(self._experiment, num_workers, plans, params)
        ]


def survey_two_nodes(
    packed: float, apart: float, **resources: Any
) -> tuple[PlanMeasurer, TwoNodes]:
    experiment = Experiment(
        model="mlp",
        data="digits",
        objectives=[{"metric": "val_loss", "goal": "minimize"}],
        plan={"workers": 2},
        resources=resources,
    )
    bench = TwoNodes(experiment, packed, apart)
    around = MeasurementContext(
        Capacity(Shape(1, 0.0), ROOM), on_gpu=False, limit_bytes=None, setting="s"
    )
    measurer = PlanMeasurer(experiment, bench, around, 60.0)  # type: ignore[arg-type]
    measurer.measure_plans()
    measurer.compare_placements(measurer.fastest_plans("time", None))
    return measurer, bench


@pytest.mark.parametrize(("packed", "apart", "chosen"), [(1.5, 1.0, "spread"), (1.0, 1.5, "pack")])
def test_workers_go_where_their_steps_were_faster(packed: float, apart: float, chosen: str) -> None:
    measurer, bench = survey_two_nodes(packed, apart)
    assert bench.placements == {"pack", "spread"}
    assert measurer.placement == bench.placement == chosen
    assert measurer.placements_s["spread"] / measurer.placements_s["pack"] == pytest.approx(
        apart / packed
    )


def test_where_a_person_says_where_workers_go_nothing_else_is_tried() -> None:
    measurer, bench = survey_two_nodes(1.5, 1.0, placement="pack")
    assert bench.placements == {"pack"}
    assert measurer.placement == "pack"


class OnALink:
    """Two workers whose gradients take `exchange_s` to exchange.

    Stages exchange next to nothing.
    """

    def __init__(
        self, experiment: Experiment, exchange_s: float, *, can_divide: bool = True
    ) -> None:
        self._experiment, self._exchange_s, self._can_divide = experiment, exchange_s, can_divide
        self.tried: set[tuple[str, str]] = set()
        self.surveyed: list[int] = []

    def probe(
        self,
        num_workers: int,
        plans: Sequence[PartialPlan],
        order: PlanProbe,
        params: Mapping[str, Any],
    ) -> list[PlanMeasured]:
        measured = []
        self.surveyed += [num_workers] if order.surveys_links else []
        for plan in resolved(self._experiment, num_workers, plans, params):
            self.tried.add((plan.strategy, plan.pipeline_schedule))
            if plan.workers_per_replica > 1 and not self._can_divide:
                measured.append(
                    PlanMeasured(
                        setting="s",
                        plan=plan.to_json(),
                        fits=False,
                        is_possible=False,
                        message="no",
                    )
                )
                continue
            waits_s = self._exchange_s if plan.replicas > 1 else 0.0
            measured.append(
                PlanMeasured(
                    setting=order.setting,
                    plan=plan.to_json(),
                    workers_per_node=[1] * num_workers,
                    num_train_samples=SAMPLES,
                    step_time_s=1e-3 + 1e-4 * plan.micro_batch + waits_s,
                    parts_s={"communication": waits_s} if plan.workers_per_replica == 1 else {},
                    all_reduce_s={"4096": 1e-3} if order.surveys_links else {},
                )
            )
        return measured


def survey_link(
    exchange_s: float, budget_s: float = 60.0, *, can_divide: bool = True, **changes: Any
) -> tuple[PlanMeasurer, OnALink]:
    fields: dict[str, Any] = {
        "model": "mlp",
        "data": "digits",
        "objectives": [{"metric": "val_loss", "goal": "minimize"}],
        "plan": {"workers": 2},
        **changes,
    }
    experiment = Experiment(**fields)
    bench = OnALink(experiment, exchange_s, can_divide=can_divide)
    around = MeasurementContext(
        Capacity(Shape(1, 0.0), (1, 1)), on_gpu=False, limit_bytes=None, setting="s"
    )
    measurer = PlanMeasurer(experiment, bench, around, budget_s)  # type: ignore[arg-type]
    measurer.measure_plans()
    return measurer, bench


def test_when_the_time_is_used_up_only_the_usual_plans_are_measured() -> None:
    measurer, bench = survey_link(exchange_s=2.0, budget_s=0.0)
    assert bench.tried == {("ddp", "1f1b")}
    assert measurer.fastest_plans("time", None)


def test_where_gradients_take_longer_than_the_step_the_model_is_divided_instead() -> None:
    measurer, bench = survey_link(exchange_s=2.0)
    assert bench.tried == {
        ("ddp", "1f1b"),
        ("pipeline", "1f1b"),
        ("pipeline", "zero_bubble"),
        ("tensor", "1f1b"),
    }
    best = measurer.fastest_plans("time", None)[0]
    assert (best.strategy, best.stages, best.pipeline_schedule) == ("pipeline", 2, "zero_bubble")


def test_a_model_that_cannot_be_divided_is_not_taken_for_one_that_needs_less_memory() -> None:
    measurer, bench = survey_link(exchange_s=2.0, can_divide=False)
    assert {strategy for strategy, _ in bench.tried} == {"ddp", "pipeline", "tensor"}
    assert {plan.strategy for plan in measurer.fastest_plans("time", None)} == {"ddp"}


def test_links_are_surveyed_once_for_all_plans_of_the_same_workers() -> None:
    bench = survey_link(exchange_s=2.0)[1]
    assert len(bench.tried) > 1
    assert bench.surveyed == [2]


def test_micro_batches_in_stages_are_compared_in_both_orders_where_stages_are_searched() -> None:
    search = {"stages": {"choices": [1, 2]}}
    assert survey_link(exchange_s=0.0, search=search)[1].tried == {
        ("ddp", "1f1b"),
        ("pipeline", "1f1b"),
        ("pipeline", "zero_bubble"),
    }
    written = survey_link(exchange_s=0.0, plan={"stages": 2, "schedule": "gpipe"})[1]
    assert written.tried == {("pipeline", "gpipe")}


@pytest.mark.parametrize(
    "changes",
    [
        {"plan": {"workers": 2, "strategy": "ddp"}},
        {"plan": {"workers": 2, "exchange": "powersgd"}},
        {"training": {"optimizer": "adafactor"}},
        {"training": {"lr_rule": "adascale"}},
    ],
)
def test_nothing_is_divided_that_the_experiment_does_not_leave_open(
    changes: dict[str, Any],
) -> None:
    changes = {"plan": {"workers": 2}} | changes
    assert survey_link(exchange_s=2.0, **changes)[1].tried == {("ddp", "1f1b")}


def test_a_micro_batch_is_measured_by_itself_where_the_experiment_accumulates_several() -> None:
    plan, training = (
        {"workers": "auto", "micro_batch": 64, "accumulation": "auto"},
        {"reference_batch": 128},
    )
    measurer, _ = survey_link(exchange_s=1e-3, plan=plan, training=training)
    plans = [read_plan(row.plan) for row in measurer.knowledge.measured]
    sizes = {
        (plan.workers, plan.accumulation) for plan in plans if plan is not None and plan.stages == 1
    }
    assert sizes == {(1, 2), (1, 1), (2, 1)}


def test_nothing_is_divided_where_links_are_fast() -> None:
    assert survey_link(exchange_s=1e-3)[1].tried == {("ddp", "1f1b")}


class WithLittleMemory:
    """Workers that hold at most so many samples at once."""

    def __init__(self, experiment: Experiment, most: int) -> None:
        self._experiment, self._most = experiment, most
        self.tried: list[int] = []

    def probe(
        self,
        num_workers: int,
        plans: Sequence[PartialPlan],
        order: PlanProbe,
        params: Mapping[str, Any],
    ) -> list[PlanMeasured]:
        measured = []
        for plan in resolved(self._experiment, num_workers, plans, params):
            self.tried.append(plan.micro_batch)
            fits = plan.micro_batch <= self._most
            measured.append(
                PlanMeasured(
                    setting=order.setting,
                    plan=plan.to_json(),
                    workers_per_node=[1] * num_workers,
                    num_train_samples=SAMPLES,
                    fits=fits,
                    message=None if fits else "memory ran out.",
                    step_time_s=1e-3 + 1e-4 * plan.micro_batch if fits else None,
                )
            )
        return measured


def begin_with_little_memory(most: int, **plan: Any) -> tuple[PlanMeasurer, WithLittleMemory]:
    experiment = Experiment(
        model="mlp",
        data="digits",
        objectives=[{"metric": "val_loss", "goal": "minimize"}],
        training={"global_batch": 512},
        plan={"workers": 1, **plan},
    )
    bench = WithLittleMemory(experiment, most)
    around = MeasurementContext(
        Capacity(Shape(1, 0.0), (1,)), on_gpu=False, limit_bytes=None, setting="s"
    )
    return PlanMeasurer(experiment, bench, around, 60.0), bench  # type: ignore[arg-type]


def test_a_batch_that_does_not_fit_is_divided_as_a_trial_would_divide_it() -> None:
    measurer, bench = begin_with_little_memory(128)
    assert bench.tried == [512, 256, 128]
    assert (measurer.reference.plan["micro_batch"], measurer.reference.plan["accumulation"]) == (
        128,
        4,
    )


def test_a_micro_batch_that_the_experiment_states_is_not_divided() -> None:
    with pytest.raises(
        ExperimentError, match=r"do not fit: memory ran out\. Make the model smaller"
    ) as stated:
        begin_with_little_memory(128, micro_batch=512)
    assert stated.value.field == "plan.micro_batch"


class OneGpu:
    """A GPU on which images with their channels last and CUDA graphs both help."""

    def __init__(self, experiment: Experiment) -> None:
        self._experiment = experiment

    def probe(
        self,
        num_workers: int,
        plans: Sequence[PartialPlan],
        order: PlanProbe,
        params: Mapping[str, Any],
    ) -> list[PlanMeasured]:
        measured = []
        for plan in resolved(self._experiment, num_workers, plans, params):
            factor = 0.8 if plan.memory_format == "channels_last" else 1.0
            factor *= 0.5 if plan.compile == "cuda_graphs" else 1.0
            measured.append(
                PlanMeasured(
                    setting=order.setting,
                    plan=plan.to_json(),
                    workers_per_node=[num_workers],
                    num_train_samples=SAMPLES,
                    step_time_s=factor * (1e-3 + 1e-4 * plan.micro_batch),
                )
            )
        return measured


def test_changes_that_help_one_by_one_are_measured_together() -> None:
    experiment = Experiment(
        model="convnet",
        data="digits",
        objectives=[{"metric": "val_loss", "goal": "minimize"}],
        resources={"gpus_per_worker": 1},
    )
    around = MeasurementContext(
        Capacity(Shape(1, 1.0), (1,)), on_gpu=True, limit_bytes=None, setting="s"
    )
    measurer = PlanMeasurer(experiment, OneGpu(experiment), around, 60.0)  # type: ignore[arg-type]
    measurer.measure_plans()
    fastest = measurer.fastest_plans("throughput", None)[0]
    assert (fastest.memory_format, fastest.compile) == ("channels_last", "cuda_graphs")


BASE = variant_of(Plan(precision="bf16"))


def changed(**change: Any) -> Variant:
    return BASE | PartialPlan.of(**change)


def measured(
    variant: Variant, factor: float, *, sizes: tuple[int, ...] = (8, 64)
) -> list[PlanMeasured]:
    return [
        PlanMeasured(
            setting="s",
            plan=plan_with(variant, 1, size).to_json(),
            workers_per_node=[1],
            step_time_s=factor * size,
        )
        for size in sizes
    ]


LAST, RECORDED = changed(memory_format="channels_last"), changed(compile="cuda_graphs")


def of(*timed: tuple[Variant, float]) -> Variant | None:
    rows = [row for variant, factor in [(BASE, 1.0), *timed] for row in measured(variant, factor)]
    return combined_variant(rows, BASE, [variant for variant, _ in timed])


def test_two_that_help_are_put_together() -> None:
    assert of((LAST, 0.8), (RECORDED, 0.5)) == LAST | PartialPlan.of(compile="cuda_graphs")


@pytest.mark.parametrize(("last", "recorded"), [(0.8, 1.2), (0.8, 0.99), (1.0, 0.5), (1.1, 1.1)])
def test_one_alone_is_measured_already(last: float, recorded: float) -> None:
    assert of((LAST, last), (RECORDED, recorded)) is None


def test_of_values_that_exclude_each_other_the_better_one_stays() -> None:
    blocks = changed(recompute="blocks")
    assert of((RECORDED, 0.5), (blocks, 0.9)) is None
    assert of((RECORDED, 0.9), (blocks, 0.5), (LAST, 0.8)) == blocks | PartialPlan.of(
        memory_format="channels_last"
    )
    single = changed(precision="fp32"), changed(precision="fp16")
    assert of((single[0], 0.9), (single[1], 0.8)) is None


def test_what_was_measured_at_other_sizes_is_not_compared() -> None:
    rows = [*measured(BASE, 1.0), *measured(LAST, 0.5, sizes=(16,)), *measured(RECORDED, 0.5)]
    assert combined_variant(rows, BASE, [LAST, RECORDED]) is None


def test_an_approximate_exchange_is_left_out() -> None:
    sent = changed(exchange="topk", exchange_compression=100)
    assert of((LAST, 0.8), (sent, 0.5)) is None
