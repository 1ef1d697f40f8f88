"""Plans that are measured instead of trained, by one worker and by two."""

from __future__ import annotations

import contextlib
import gc
import resource
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch
from torch import nn

from tests.services.process_group import run_together
from workbench.data import Datasets
from workbench.data.splits import ArraySplit
from workbench.experiment import Experiment
from workbench.experiment.plan import PartialPlan
from workbench.foundation.events import Event, PlanMeasured, TrialEnded
from workbench.foundation.events.trials import input_stall
from workbench.hardware.resources import EnergyCounter, processor_counters
from workbench.hardware.resources.power_limits import PowerLimits, PowerRange
from workbench.training.assembly import trial_settings
from workbench.training.loading import load_trial_data
from workbench.training.probes import plan_probe
from workbench.training.probes.measurements import PlanProbe, PowerProbe
from workbench.training.probes.plan_probe import flops_of_a_sample
from workbench.training.trial import run_trial
from workbench.training.worker_task import TrialTask

FAST = {"warmup_steps": 2, "num_steps": 5, "longest_s": 20.0}
GIB = 2**30
COPIES = 20_000
BATCH_DELAY_S = 0.1


def experiment(**fields: Any) -> str:
    settings: dict[str, Any] = {
        "model": {"name": "mlp", "hidden_width": 512},
        "data": "digits",
        "objectives": [{"metric": "val_accuracy", "goal": "maximize"}],
    }
    return Experiment(**settings | fields).model_dump_json()


def sizes(*micro_batches: int, **plan: Any) -> list[dict[str, Any]]:
    """Return plans without accumulation."""
    return [{"micro_batch": size, "accumulation": 1, **plan} for size in micro_batches]


def measure(
    rank: int,
    num_workers: int,
    meeting: str | None,
    text: str,
    plans: Sequence[dict[str, Any]],
    **order: Any,
) -> tuple[TrialEnded, list[PlanMeasured]]:
    events: list[PlanMeasured] = []
    stop_after = order.pop("stop_after", None)

    def report(event: Event) -> bool:
        assert isinstance(event, PlanMeasured)
        events.append(event)
        return len(events) == stop_after

    task = TrialTask(
        "run",
        0,
        0,
        text,
        seed=3,
        folder="unused",
        rank=rank,
        num_workers=num_workers,
        meeting=meeting,
        measurement=PlanProbe(
            tuple(PartialPlan.of(**plan) for plan in plans), setting="here", **FAST | order
        ),
    )
    return run_trial(task, report), events


def check_times(event: PlanMeasured, num_steps: int = 5) -> None:
    assert event.fits
    assert event.num_steps == num_steps
    assert event.step_time_s is not None
    assert event.step_time_spread_s is not None
    assert event.step_time_spread_s >= 0.0
    assert event.samples_per_s == pytest.approx(event.plan["global_batch"] / event.step_time_s)  # type: ignore[operator]
    assert {"data", "forward", "backward", "update"} <= event.parts_s.keys()
    assert sum(event.parts_s.values()) > 0.0
    assert event.peak_bytes is not None
    assert event.peak_bytes > 10 * 2**20
    assert event.utilisation is not None
    assert 0.0 < event.utilisation <= 1.0


def test_one_worker_measures_plans_in_their_order() -> None:
    plans = [{"micro_batch": 8, "accumulation": 2}, {"micro_batch": 64, "recompute": "none"}]
    ended, events = measure(0, 1, None, experiment(), plans)
    assert (ended.state, ended.step) == ("complete", 2), ended.traceback
    assert [event.plan["micro_batch"] for event in events] == [8, 64]
    assert events[0].plan["global_batch"] == 16
    assert {(event.setting, event.device) for event in events} == {("here", "cpu")}
    for event in events:
        check_times(event)
        assert list(event.parts_s) == ["data", "forward", "backward", "communication", "update"]
        assert event.parts_s["communication"] == 0.0
        assert event.workers_per_node == [1]
        assert event.step_flops == event.plan["global_batch"] * sample_flops(512)


def sample_flops(width: int) -> int:
    """Count those of digits and the zoo's mlp, of two hidden layers: 64-width-width-10."""
    first, others = 64 * width, width * width + width * 10
    return 2 * (2 * first + 3 * others)


@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
@pytest.mark.slow
def test_two_workers_measure_together_and_know_what_their_exchange_costs(strategy: str) -> None:
    plans = [{"micro_batch": 8, "accumulation": num, "strategy": strategy} for num in (1, 2)]
    (ended, events), (other, untold) = run_together(measure_longer, 2, experiment(), plans)
    assert (ended.state, other.state) == (
        "complete",
        "complete",
    ), f"{ended.traceback} {other.traceback}"
    assert untold == []
    for event in events:
        check_times(event, num_steps=25)
        assert event.plan["workers"] == 2
        assert event.workers_per_node == [2]
        assert event.parts_s["communication"] > 0.0
        assert event.step_flops == event.plan["global_batch"] * sample_flops(512)


def measure_longer(rank: int, num_workers: int, meeting: str, text: str, plans: Any) -> Any:
    return measure(rank, num_workers, meeting, text, plans, num_steps=25)


def test_the_wish_to_stop_ends_the_probe_on_all_workers() -> None:
    plans = sizes(4, 8, 16)
    (ended, events), (other, _) = run_together(measure_until_second, 2, experiment(), plans)
    assert (ended.state, other.state) == ("stopped", "stopped")
    assert len(events) == 2


def measure_until_second(rank: int, num_workers: int, meeting: str, text: str, plans: Any) -> Any:
    return measure(rank, num_workers, meeting, text, plans, stop_after=2)


def test_at_least_three_steps_are_timed_and_short_data_begins_again() -> None:
    """Digits have 1,437 samples to train on: two full batches of 700 an epoch."""
    ended, (event,) = measure(0, 1, None, experiment(), sizes(700), longest_s=0.0)
    assert ended.state == "complete", ended.traceback
    assert event.num_steps == 3


class SlowSplit(ArraySplit):
    """Samples that take long to come."""

    def batch(self, indices: np.ndarray) -> Any:
        time.sleep(BATCH_DELAY_S)
        return super().batch(indices)


def slow_data(options: Any) -> Datasets:
    rng = np.random.default_rng(0)
    splits = [
        SlowSplit(rng.normal(size=(64, 8)).astype(np.float32), rng.integers(0, 3, 64))
        for _ in range(2)
    ]
    return Datasets(
        name="slow",
        task="classification",
        train=splits[0],
        validation=splits[1],
        test=None,
        input_shape=(8,),
        num_outputs=3,
    )


def test_a_slow_data_loader_shows_as_an_input_stall() -> None:
    text = experiment(model={"name": "mlp", "hidden_width": 16}, data="test_plan_probe:slow_data")
    ended, (event,) = measure(0, 1, None, text, sizes(8))
    assert ended.state == "complete", ended.traceback
    assert event.parts_s["data"] >= BATCH_DELAY_S
    assert input_stall(event.parts_s) > 0.5
    _, (quick,) = measure(0, 1, None, experiment(), sizes(128))
    assert input_stall(quick.parts_s) < 0.3


class Wide(nn.Module):
    """Holds 5 MB of activations a sample, several times."""

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(64, 10)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        many = inputs.reshape(-1, 64).repeat(COPIES, 1, 1) * self.last.bias.mean()
        return self.last(torch.tanh(many).mean(dim=0))


def build_wide(config: dict[str, Any]) -> nn.Module:
    return Wide()


def with_little_memory(action: Callable[[], Any]) -> Any:
    """Do something in a process that may allocate half a GiB more and no more."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    limit = psutil.Process().memory_info().vms + GIB // 2
    resource.setrlimit(resource.RLIMIT_AS, (limit, before[1]))
    try:
        return action()
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def measure_with_little_memory_on_rank_1(
    rank: int, num_workers: int, meeting: str, text: str, plans: Any
) -> Any:
    def action() -> Any:
        return measure(rank, num_workers, meeting, text, plans, num_steps=3)

    return with_little_memory(action) if rank == 1 else action()


@pytest.mark.slow
def test_a_worker_that_alone_runs_out_of_memory_ends_its_plan_on_all_and_the_next_is_measured() -> (
    None
):
    text = experiment(model="test_plan_probe:build_wide")
    plans = sizes(4, 128, 256, 2)
    (ended, events), (other, _) = run_together(measure_with_little_memory_on_rank_1, 2, text, plans)
    assert (ended.state, other.state) == (
        "complete",
        "complete",
    ), f"{ended.traceback} {other.traceback}"
    assert [event.fits for event in events] == [True, False, False, True]
    assert "can't allocate memory" in str(events[1].message)
    assert events[1].step_time_s is None
    assert str(events[2].message).startswith("a micro batch of 128 did not fit: ")
    assert events[3].step_time_s is not None


class Growing(Wide):
    """Needs little memory at first, and much from its fourth step on."""

    num_steps = 0

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        self.num_steps += 1
        return super().forward(inputs) if self.num_steps > 3 else self.last(inputs.reshape(-1, 64))


def build_growing(config: dict[str, Any]) -> nn.Module:
    return Growing()


@pytest.mark.slow
def test_a_worker_that_runs_out_of_memory_in_an_exchange_ends_the_probe_and_nobody_waits() -> None:
    text = experiment(model="test_plan_probe:build_growing")
    (noticed, _), (failed, _) = run_together(
        measure_with_little_memory_on_rank_1, 2, text, sizes(128)
    )
    assert (failed.state, failed.reason) == ("failed", "oom")
    assert (noticed.state, noticed.reason) == ("failed", "error")


def count_models(rank: int, num_workers: int, meeting: str, text: str, plans: Any) -> list[int]:
    counts = []
    # Other modules of a process, such as those that libraries make on import, are none of the
    # plans'.
    gc.collect()
    before = {id(item) for item in gc.get_objects() if isinstance(item, nn.Module)}

    def report(event: Event) -> bool:
        alive = {id(item) for item in gc.get_objects() if isinstance(item, nn.Module)}
        counts.append(len(alive - before))
        return False

    order = PlanProbe(tuple(PartialPlan.of(**plan) for plan in plans), num_steps=3)
    task = TrialTask(
        "run",
        0,
        0,
        text,
        folder="unused",
        rank=rank,
        num_workers=num_workers,
        meeting=meeting,
        measurement=order,
    )
    run_trial(task, report)
    return counts


@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_no_model_is_kept_when_a_plan_is_reported(strategy: str) -> None:
    counts, _ = run_together(count_models, 2, experiment(), sizes(8, 16, strategy=strategy))
    assert counts == [0, 0]


def measure_with_little_memory(
    rank: int, num_workers: int, meeting: str, text: str, plans: Any
) -> Any:
    return with_little_memory(lambda: measure(rank, 1, None, text, plans, num_steps=3))


def test_one_worker_that_runs_out_of_memory_goes_on_with_the_next_plan() -> None:
    text = experiment(model="test_plan_probe:build_wide")
    ((ended, events),) = run_together(measure_with_little_memory, 1, text, sizes(128, 4))
    assert ended.state == "complete", ended.traceback
    assert [event.fits for event in events] == [False, True]


@pytest.mark.slow
def test_what_holds_more_than_allowed_does_not_fit_and_nothing_larger_is_tried() -> None:
    limit_bytes = psutil.Process().memory_info().rss + GIB // 4
    plans = sizes(1, 32, 128, 33)
    text = experiment(model="test_plan_probe:build_wide")
    ended, events = measure(0, 1, None, text, plans, num_steps=3, limit_bytes=limit_bytes)
    assert ended.state == "complete", ended.traceback
    assert [event.fits for event in events] == [True, False, False, False]
    assert "one worker held" in str(events[1].message)
    assert events[1].peak_bytes is not None
    assert events[1].peak_bytes > limit_bytes
    assert all(
        str(event.message).startswith("a micro batch of 32 did not fit: ") for event in events[2:]
    )


def measure_shards_within(rank: int, num_workers: int, meeting: str, text: str) -> Any:
    limit_bytes = psutil.Process().memory_info().rss + GIB
    plans = sizes(4, 32, 512, strategy="fsdp")
    return measure(rank, num_workers, meeting, text, plans, num_steps=3, limit_bytes=limit_bytes)


@pytest.mark.slow
def test_shards_are_not_tried_at_a_size_that_smaller_ones_say_is_too_large() -> None:
    (ended, events), _ = run_together(
        measure_shards_within, 2, experiment(model="test_plan_probe:build_wide")
    )
    assert ended.state == "complete", ended.traceback
    assert [event.fits for event in events] == [True, True, False]
    assert "by smaller micro batches" in str(events[2].message)
    assert events[2].peak_bytes is None


def train_alone(config: dict[str, Any], report: Any) -> None:
    raise AssertionError("it was called")


def test_what_devices_use_is_told_where_they_count_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The counter stands, whenever it is read, where a processor of 50 W would have raised it
    to.
    """
    zone = tmp_path / "intel-rapl:0"
    zone.mkdir()
    (zone / "max_energy_range_uj").write_text("262143328850")
    began_s = time.perf_counter()

    def read() -> dict[str, EnergyCounter]:
        (zone / "energy_uj").write_text(str(round(50e6 * (time.perf_counter() - began_s))))
        return processor_counters(tmp_path)

    monkeypatch.setattr("workbench.training.device.processor_counters", read)
    metered, plain = (
        measure(0, 1, None, experiment(), sizes(32), measures_power=power)[1][0]
        for power in (True, False)
    )
    assert metered.power_w == pytest.approx(50.0, rel=0.1)
    assert metered.num_steps > FAST["num_steps"], "too few steps for a counter to move"
    assert plain.power_w is None


class CountedLimits(PowerLimits):
    """Limits of a device that uses as much power as it may, and counts its energy."""

    def __init__(self) -> None:
        super().__init__({"GPU-0": PowerRange(200.0, 200.0, 100.0, 200.0)})
        self.now_w, self.was_set_w = 200.0, []
        self._energy_j, self._since_s = 0.0, time.perf_counter()

    def set(self, limit_w: float) -> None:
        self.read()
        self.now_w = limit_w
        self.was_set_w.append(limit_w)

    def restore(self) -> None:
        self.set(200.0)

    def read(self) -> dict[str, EnergyCounter]:
        now_s = time.perf_counter()
        self._energy_j += self.now_w * (now_s - self._since_s)
        self._since_s = now_s
        return {"GPU-0": EnergyCounter(self._energy_j)}


def power_probe(report: Callable[[Event], bool]) -> TrialEnded:
    order = PowerProbe(PartialPlan.of(micro_batch=32, accumulation=1), 3, longest_s=0.5)
    task = TrialTask("run", 0, 0, experiment(), seed=3, folder="unused", measurement=order)
    return run_trial(task, report)


def test_a_plan_is_measured_under_each_power_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = CountedLimits()

    @contextlib.contextmanager
    def limits_of(device: torch.device) -> Iterator[PowerLimits]:
        try:
            yield limits
        finally:
            limits.restore()

    monkeypatch.setattr(plan_probe, "_limits_of", limits_of)
    monkeypatch.setattr("workbench.training.device.processor_counters", limits.read)
    events: list[Any] = []
    ended = power_probe(lambda event: events.append(event) or False)
    assert ended.state == "complete", ended.traceback
    assert [event.power_limit_w for event in events] == [200.0, 150.0, 100.0]
    for event in events:
        assert event.power_w == pytest.approx(event.power_limit_w, rel=0.05)
        assert event.step_time_s > 0
    assert limits.was_set_w == [200.0, 150.0, 100.0, 200.0]
    ended = power_probe(lambda event: True)
    assert ended.state == "stopped"
    assert limits.was_set_w[4:] == [200.0, 200.0]


def test_power_limits_are_refused_without_a_gpu() -> None:
    ended = power_probe(lambda event: False)
    assert ended.state == "failed"
    assert "NVIDIA" in str(ended.message)


NO_BLOCKS = "the model has no blocks that could be recomputed"


def test_a_plan_that_a_model_without_blocks_cannot_carry_out_is_skipped_with_its_reason() -> None:
    plans = [*sizes(8, 16, recompute="blocks"), *sizes(8, recompute="none")]
    ended, [blocks, larger, plain] = measure(0, 1, None, experiment(model=FLAT), plans)
    assert ended.state == "complete"
    assert [event.fits for event in (blocks, larger, plain)] == [False, False, True]
    assert [event.is_possible for event in (blocks, larger, plain)] == [False, False, True]
    assert (blocks.message, larger.message) == (
        NO_BLOCKS,
        NO_BLOCKS,
    ), "memory has nothing to do with it"


class Whole(nn.Module):
    """A model that does not state its pieces."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 10)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.layer(inputs.flatten(1))


def build_whole(config: dict[str, Any]) -> nn.Module:
    return Whole()


def measure_stages(rank: int, num_workers: int, meeting: str, text: str) -> Any:
    plans = [
        *sizes(8, strategy="pipeline", stages=2),
        *sizes(8, strategy="tensor", tensor=2),
        *sizes(8),
    ]
    return measure(rank, num_workers, meeting, text, plans)


def test_a_model_that_cannot_be_divided_is_measured_whole_unless_the_experiment_divides_it() -> (
    None
):
    for plan in ({}, {"stages": 2}):
        text = experiment(model="test_plan_probe:build_whole", plan=plan)
        ended, events = run_together(measure_stages, 2, text)[0]
        if plan:
            assert ended.state == "failed"
            assert str(ended.message).startswith("plan.stages:")
        else:
            assert ended.state == "complete", ended.traceback
            assert [event.fits for event in events] == [False, False, True]
            assert "cannot be cut into stages" in str(events[0].message)


@pytest.mark.parametrize(
    ("model", "way", "message"),
    [
        ("flat", "blocks", NO_BLOCKS),
        ("mlp", "1KB", "even if all blocks are recomputed, and the limit is 1,000"),
    ],
)
def test_recomputing_that_an_experiment_demands_in_vain_is_refused_in_words_only(
    model: str, way: str, message: str
) -> None:
    text = experiment(
        model=FLAT if model == "flat" else {"name": "mlp", "num_layers": 3},
        plan={"recompute": way, "micro_batch": 16},
        training={"epochs": 1},
    )
    ended = run_trial(TrialTask("run", 0, 0, text, folder="unused"), lambda event: False)
    assert (ended.state, ended.traceback) == ("failed", None)
    assert str(ended.message).startswith("plan.recompute: ")
    assert message in str(ended.message)
    assert "allowed: " in str(ended.message)


def build_flat(config: dict[str, Any]) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 10))


FLAT = "test_plan_probe:build_flat"


def test_what_a_checkpoint_takes_is_told() -> None:
    _, [plan] = measure(0, 1, None, experiment(), sizes(32))
    weights = 64 * 512 + 512 + 512 * 512 + 512 + 512 * 10 + 10
    assert plan.state_bytes is not None
    # AdamW keeps two numbers for each weight.
    assert 3 * 4 * weights <= plan.state_bytes <= 3.3 * 4 * weights


def test_a_train_function_cannot_be_measured(tmp_path: Path) -> None:
    text = Experiment(
        train="test_plan_probe:train_alone", objectives=[{"metric": "loss", "goal": "minimize"}]
    ).model_dump_json()
    ended, events = measure(0, 1, None, text, [{}])
    assert (ended.state, ended.reason, events) == ("failed", "error", [])
    assert "cannot be measured from outside" in str(ended.message)


EXPERIMENT = Experiment(
    model={"name": "mlp", "num_layers": 1},
    data="digits",
    objectives=[{"metric": "val_loss", "goal": "minimize"}],
    search={"hidden_width": {"choices": [16, 32]}, "lr": {"low": 1e-4, "high": 1e-1}},
)


def count(**params: float) -> float | None:
    task = TrialTask("run", 0, 0, EXPERIMENT.model_dump_json(), params=dict(params))
    datasets = load_trial_data("run", EXPERIMENT)
    return flops_of_a_sample(task, trial_settings(task, torch.device("cpu"), datasets))


def test_operations_are_counted_once_for_a_model(monkeypatch: pytest.MonkeyPatch) -> None:
    builds: list[object] = []
    inner = plan_probe.build_trial_model

    def build(*args: object, **options: object) -> object:
        builds.append(args)
        return inner(*args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(plan_probe, "build_trial_model", build)
    monkeypatch.setattr(plan_probe, "_counted", {})
    narrow = count(hidden_width=16, lr=1e-3)
    assert count(hidden_width=16, lr=1e-2, global_batch=64) == narrow
    assert len(builds) == 1
    wide = count(hidden_width=32, lr=1e-2)
    assert len(builds) == 2
    assert narrow is not None
    assert wide is not None
    # Forward, and both products of the backward pass; the first layer needs no gradient of its
    # inputs.
    assert wide == pytest.approx(2 * narrow)
    assert narrow == 2 * (2 * 64 * 16 + 3 * 16 * 10)
