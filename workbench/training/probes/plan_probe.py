"""Makes a few real steps of several plans instead of a training, and measures time and memory.

If a plan does not fit, that is reported, and the next one is tried. If workers hold whole models,
each first makes a step alone. They only exchange gradients once they know that it fitted
everywhere. So none of them waits for a worker that ran out of memory. A worker that fails later
leaves the group. The others notice that, and the probe ends like a trial. Choosing the plans and
using the numbers is left to the advisor.

Copies of one training that share a device are measured by the same steps at the same time. Through
the group, they only start together and add up their speeds. So the measurement shows how fast the
device is with several trials at once, whatever limits it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import json
import os
import socket
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np
import torch
from pydantic import JsonValue

from workbench.experiment.plan import SIZES, PartialPlan
from workbench.experiment.searched_fields import data_params
from workbench.foundation.errors import ExperimentError, ResourcesError
from workbench.foundation.events import Event, PlanMeasured
from workbench.foundation.freed_memory import return_freed_memory
from workbench.hardware.performance.flops import peak_flops_per_s, utilisation
from workbench.hardware.performance.memory import StepMemory, fit_law
from workbench.hardware.performance.profiler import StepProfiler, StepTimes
from workbench.hardware.resources import EnergyCounter, energy_between_j, inventory
from workbench.hardware.resources.power_limits import PowerLimits, changeable_limits
from workbench.models.model_calls import num_samples
from workbench.training.assembly import Parts, assemble, build_trial_model, trial_settings
from workbench.training.device import (
    choose_device,
    energy_counters,
    join_trial,
    limit_memory,
    uuid_of,
)
from workbench.training.loading import load_trial_data
from workbench.training.loss_and_metrics import count_step_flops
from workbench.training.loss_division import find_division, refuse_division
from workbench.training.outcome import Outcome, describe, ran_out_of_memory
from workbench.training.planning.settings import TrialSettings
from workbench.training.probes.link_sweep import LinkSweeps, describe_exchanges, sweep_links
from workbench.training.probes.measurements import NeighbourProbe, PlanProbe, PowerProbe
from workbench.training.probes.timed_steps import PeakMemory, TimedSteps, num_bytes
from workbench.training.strategies import STRATEGIES
from workbench.training.strategies.capabilities import capabilities_of
from workbench.training.strategies.strategy import Probeable, Strategy, Worker
from workbench.training.strategies.worker_group import Group
from workbench.training.tensor_source import Source
from workbench.training.worker_task import TrialTask

Report = Callable[[Event], bool]
_COLD_S = 0.3
"""How long the first steps of a process are slower than later ones."""
_is_warm = False
_METERED_S = 0.5
"""Minimum time for measuring power. Energy counters move about every tenth of a second."""
_MANY_STEPS = 10_000
"""More than are made: under power limits, the time ends the measurement."""
_COUNTED_SAMPLES = 2
"""Two, because batch normalisation cannot train on a single sample."""
_UNRELATED = frozenset({"lr", "global_batch", *SIZES})
"""The parameters that do not change the operations of a sample."""
_counted: dict[str, float | None] = {}
"""Results of this process. Counting builds the model again, which takes long for a large model."""
_WARMUP_STEPS = 5


def measure_plans(task: TrialTask, order: PlanProbe, report: Report) -> Outcome:
    """Measure plans.

    Args:
        task: The order of this worker.
        order: The plans, and how to measure them.
        report: Receives a `PlanMeasured` for each plan, and returns whether to stop. Called on rank
            0 only.

    Returns:
        How it ended. The step of the outcome is the number of plans that were reported.

    Raises:
        WorkbenchError: If a plan contradicts the experiment, or the experiment trains no model.
    """
    worker = join_trial(task)
    try:
        return _Probe(task, order, worker, report).run()
    finally:
        worker.group.close()


def measure_power(task: TrialTask, order: PowerProbe, report: Report) -> Outcome:
    """Measure the steps and the power of a plan under several power limits of its GPUs.

    The limits are restored after any end, see `power_limits`.

    Args:
        task: The order of this worker.
        order: The plan and the number of limits.
        report: Receives a `PlanMeasured` for each limit, and returns whether to stop. Called on
            rank 0 only.

    Returns:
        How it ended.

    Raises:
        ResourcesError: If a worker has no GPU whose limit may be changed, or shares it.
        WorkbenchError: If the plan contradicts the experiment.
    """
    worker = join_trial(task)
    try:
        with contextlib.ExitStack() as opened:
            limits, problem = None, None
            try:
                limits = opened.enter_context(_limits_of(worker.device))
            except ResourcesError as error:
                problem = error
            # All workers stop together: the others would wait for one that may change nothing.
            problems = worker.group.gather(None if problem is None else str(problem))
            reason = next((text for text in problems if text is not None), None)
            if limits is None or reason is not None:
                raise ResourcesError(str(reason))
            steps_w = worker.group.gather(limits.steps_w(order.num_limits))
            tried_w = [max(limits_w) for limits_w in zip(*steps_w, strict=True)]
            return _under_limits(task, order, worker, report, limits=limits, tried_w=tried_w)
    finally:
        worker.group.close()


def _limits_of(device: torch.device) -> contextlib.AbstractContextManager[PowerLimits]:
    if device.type != "cuda":
        raise ResourcesError(
            "power limits need NVIDIA GPUs, and this training runs on CPUs",
            next_step="Omit --max-slowdown.",
        )
    return changeable_limits([uuid_of(device)], [os.getpid()])


def _under_limits(
    task: TrialTask,
    order: PowerProbe,
    worker: Worker,
    report: Report,
    *,
    limits: PowerLimits,
    tried_w: Sequence[float],
) -> Outcome:
    probed = PlanProbe(
        (order.plan,),
        longest_s=order.longest_s,
        num_steps=_MANY_STEPS,
        setting=order.setting,
        measures_power=True,
        surveys_links=False,
    )
    for number, limit_w in enumerate(tried_w):
        limits.set(limit_w)

        def report_with_limit(event: Event, limit_w: float = limit_w) -> bool:
            return report(event.model_copy(update={"power_limit_w": limit_w}))

        if _Probe(task, probed, worker, report_with_limit).run().state == "stopped":
            return Outcome("stopped", number)
    return Outcome("complete", len(tried_w))


@dataclass(frozen=True)
class _Tried:
    """The result of a plan. `kind` is all that memory depends on, except the micro batch."""

    kind: tuple[Any, ...]
    micro_batch: int
    misfit: str | None
    is_possible: bool
    peak_bytes: int


@dataclass(frozen=True)
class _Measured:
    """The result of the steps of a plan. It has no times if the plan does not fit."""

    misfit: str | None = None
    is_possible: bool = True
    times: StepTimes | None = None
    peak_bytes: int | None = None
    power_w: float | None = None
    state_bytes: int | None = None
    compile_s: float | None = None


class _Probe:
    """The plans of one order, one after another."""

    def __init__(self, task: TrialTask, order: PlanProbe, worker: Worker, report: Report) -> None:
        self._task, self._order, self._worker, self._report = task, order, worker, report
        self._tried: list[_Tried] = []
        self._divides_batch: bool | None = None
        self._limit_bytes = min(worker.group.gather(_limit_bytes(order, worker)))
        self._nodes = worker.group.gather(socket.gethostname())
        self._workers_per_node = list(Counter(self._nodes).values())
        self._links: LinkSweeps | None = None
        self._exchanges: dict[str, dict[str, JsonValue]] = {}

    def run(self) -> Outcome:
        """Measure all plans, unless a stop is requested."""
        # What an earlier order left, such as the frames of an error, would count for every plan.
        # Memory would not seem to grow with the micro batch, and too large ones would be tried.
        gc.unfreeze()
        self._tidy()
        for num_done, plan in enumerate(self._order.plans, start=1):
            decided = self._task.plan | plan | PartialPlan.of(workers=self._worker.num_workers)
            if self._send(self._measure(dataclasses.replace(self._task, plan=decided))):
                return Outcome("stopped", num_done)
        return Outcome("complete", len(self._order.plans))

    def _measure(self, task: TrialTask) -> PlanMeasured:
        datasets = load_trial_data(task.run_id, task.experiment, params=data_params(task.params))
        settings = trial_settings(task, self._worker.device, datasets)
        plan = settings.plan
        # Accumulated gradients take memory. How often they are accumulated does not matter.
        kind = (PartialPlan.of_plan(plan).without(*SIZES), plan.accumulation > 1)
        micro_batch = plan.micro_batch
        measured = self._foreseen_misfit(kind, micro_batch) or self._try(task)
        self._tidy()
        self._tried.append(
            _Tried(
                kind, micro_batch, measured.misfit, measured.is_possible, measured.peak_bytes or 0
            )
        )
        return self._event(task, settings, measured, len(datasets.train))

    def _foreseen_misfit(self, kind: tuple[Any, ...], micro_batch: int) -> _Measured | None:
        """Return why a plan need not be tried, or None if it must be.

        A strategy that shards the model cannot make a step alone. If one of its workers ran out of
        memory, the others would wait for it, and only this prediction prevents that. So plans
        should come in order of size. All workers know the same results, so they decide the same.
        """
        similar = [tried for tried in self._tried if tried.kind == kind]
        for tried in similar:
            if not tried.is_possible:
                return _Measured(tried.misfit, is_possible=False)
            if tried.misfit is not None and tried.micro_batch <= micro_batch:
                return _Measured(
                    f"a micro batch of {tried.micro_batch} did not fit: {tried.misfit}"
                )
        # Two sizes give a line, by which memory grows with the micro batch.
        smaller = [
            tried for tried in similar if tried.misfit is None and tried.micro_batch <= micro_batch
        ]
        if len({tried.micro_batch for tried in smaller}) < 2:
            return None
        law = fit_law(
            [
                StepMemory(
                    micro_batch=tried.micro_batch,
                    parameters_bytes=0,
                    gradients_bytes=0,
                    optimizer_bytes=0,
                    compute_peak_bytes=tried.peak_bytes,
                    update_peak_bytes=0,
                )
                for tried in smaller
            ]
        )
        expected_bytes = law.peak_bytes(micro_batch)
        if expected_bytes <= self._limit_bytes:
            return None
        most = f"{self._limit_bytes:.4g}"
        return _Measured(
            f"needs about {expected_bytes:.4g} bytes by smaller micro batches, and the limit is"
            f" {most}"
        )

    def _try(self, task: TrialTask) -> _Measured:
        """Assemble a plan, make its steps, and drop it again."""
        try:
            return self._assemble_and_step(task)
        except ExperimentError as error:  # raised on all workers, so they stay together
            if not _is_idea_of_advisor(task, error):
                raise
            traceback.clear_frames(error.__traceback__)
            return _Measured(error.problem, is_possible=False)

    def _assemble_and_step(self, task: TrialTask) -> _Measured:
        peak = PeakMemory(self._worker.device)
        profiler = _watching_profiler(self._worker.device, peak)
        assembled: list[Parts] = []
        misfit = self._alone_or_fail(
            lambda: assembled.append(assemble(task, self._worker, profiler))
        )
        if misfit is not None:
            return _Measured(misfit)
        parts = assembled.pop()
        try:
            return self._steps(parts, peak)
        finally:
            parts.close()

    def _steps(self, parts: Parts, peak: PeakMemory) -> _Measured:
        order, strategy = self._order, parts.strategy
        misfit = self._alone_or_fail(lambda: find_division(parts))
        if misfit is not None:
            return _Measured(misfit)
        self._divides_batch = parts.loss.division != "none"
        refuse_division(parts)
        steps = TimedSteps(parts, peak, self._task.seed)
        strategy.train(True)
        peak.pause()  # a step alone may need more memory than the steps that count
        misfit = None
        if steps.can_step_alone:
            misfit = self._together(steps.try_alone)
        misfit = misfit or self._alone_or_fail(lambda: self._warm_up(steps))
        if misfit is not None:
            return _Measured(misfit)
        # Memory that was allocated may still be above the limit that the advisor works with.
        peak_bytes = self._most(peak)
        if peak_bytes > self._limit_bytes:
            return self._too_large(peak_bytes)
        times: list[StepTimes] = []
        # Steps without exchanges would lower the measured power.
        compares = self._compares(parts, peak_bytes) and not order.measures_power
        before, began_s = self._counters(), perf_counter()
        misfit = self._alone_or_fail(lambda: times.append(self._time(steps, compares)))
        used_j, elapsed_s = energy_between_j(before, self._counters()), perf_counter() - began_s
        if misfit is None:
            strategy.train(False)
            # With the whole model, a worker evaluates without the others. If it runs out of memory
            # there, none of them is left waiting.
            may_fail_alone = strategy.capabilities.holds_whole_model
            run = self._together if may_fail_alone else self._alone_or_fail
            misfit = run(steps.evaluate)
        if misfit is not None:
            return _Measured(misfit)
        peak_bytes = self._most(peak)
        if peak_bytes > self._limit_bytes:
            return self._too_large(peak_bytes)
        if order.surveys_links and self._links is None and self._worker.num_workers > 1:
            self._survey_links(strategy)
        return _Measured(
            times=times[0],
            peak_bytes=peak_bytes,
            power_w=None if used_j is None else used_j / elapsed_s,
            compile_s=steps.compile_s if parts.settings.plan.compile == "default" else None,
            state_bytes=(
                num_bytes(strategy.state()) if strategy.capabilities.holds_whole_model else None
            ),
        )

    def _survey_links(self, strategy: Strategy) -> None:
        """Measure the links and the exchanges, once for all plans."""
        if not strategy.capabilities.takes_exchange:
            return
        trained = [
            values for values in strategy.state()["model"].values() if values.is_floating_point()
        ]
        self._links = sweep_links(self._worker, self._nodes)
        self._exchanges = describe_exchanges(
            self._worker, [tuple(values.shape) for values in trained]
        )

    def _warm_up(self, steps: TimedSteps) -> None:
        global _is_warm
        order, shortest_s = self._order, 0.0 if _is_warm else _COLD_S
        steps.warm_up(order.warmup_steps, 0.5 * order.longest_s, shortest_s=shortest_s)
        _is_warm = True

    def _time(self, steps: TimedSteps, compares: bool) -> StepTimes:
        order = self._order
        shortest_s = _METERED_S if order.measures_power else 0.0
        return steps.time(
            order.num_steps, order.longest_s, compares=compares, shortest_s=shortest_s
        )

    def _counters(self) -> dict[str, EnergyCounter]:
        """Read the energy counters of all devices of the group, if the order asks for them."""
        if not self._order.measures_power:
            return {}
        gathered = self._worker.group.gather(energy_counters(self._worker.device))
        return {name: counter for own in gathered for name, counter in own.items()}

    def _compares(self, parts: Parts, peak_bytes: int) -> bool:
        """Return whether to time steps without exchanges as well, which takes more memory."""
        strategy = parts.strategy
        if self._worker.num_workers == 1 or not isinstance(strategy, Probeable):
            return False
        return peak_bytes + strategy.alone_bytes() <= self._limit_bytes

    def _most(self, peak: PeakMemory) -> int:
        return max(self._worker.group.gather(peak.most_bytes))

    def _too_large(self, peak_bytes: int) -> _Measured:
        misfit = f"one worker held {peak_bytes:.4g} bytes, and the limit is {self._limit_bytes:.4g}"
        return _Measured(misfit, peak_bytes=peak_bytes)

    def _together(self, action: Callable[[], None]) -> str | None:
        """Run an action that needs no other worker. Return why it did not fit on one of them."""
        misfits = self._worker.group.gather(attempt(action))
        return next((misfit for misfit in misfits if misfit is not None), None)

    def _alone_or_fail(self, action: Callable[[], None]) -> str | None:
        """Run an action that may need other workers.

        Only a single worker can continue if it does not fit. Several end the probe.
        """
        if self._worker.num_workers == 1:
            return attempt(action)
        action()
        return None

    def _tidy(self) -> None:
        """Free a plan's memory for the next one."""
        gc.collect()  # the parts of a plan refer to each other
        gc.freeze()  # lasting objects, such as modules, need not be traversed again
        if self._worker.device.type == "cuda":
            torch.cuda.empty_cache()
        else:
            # Else it would count for each of the next plans, whose own growth would not show.
            return_freed_memory()

    def _event(
        self, task: TrialTask, settings: TrialSettings, measured: _Measured, num_train_samples: int
    ) -> PlanMeasured:
        on_gpu = self._worker.device.type == "cuda"
        event = PlanMeasured(
            setting=self._order.setting,
            plan=settings.plan.to_json(),
            workers_per_node=self._workers_per_node,
            device=torch.cuda.get_device_name() if on_gpu else "cpu",
            fits=measured.misfit is None,
            is_possible=measured.is_possible,
            message=measured.misfit,
            num_train_samples=num_train_samples,
            divides_batch=self._divides_batch,
            peak_bytes=measured.peak_bytes,
        )
        if measured.times is None or self._worker.rank != 0:
            return event
        times, global_batch = measured.times, settings.plan.global_batch
        sample_flops = flops_of_a_sample(task, settings)
        step_flops = None
        if sample_flops is not None:
            step_flops = sample_flops * global_batch
        used = None
        if step_flops is not None:
            peak_rate = peak_flops_per_s(self._worker.device, settings.plan.precision)
            used = utilisation(step_flops, times.step_time_s, peak_rate, self._worker.num_workers)
        return event.model_copy(
            update={
                "num_steps": times.num_steps,
                "step_time_s": times.step_time_s,
                "step_time_spread_s": times.spread_s,
                "parts_s": times.parts_s,
                "straggling_s": times.straggling_s,
                "samples_per_s": global_batch / times.step_time_s,
                "step_flops": step_flops,
                "utilisation": used,
                "power_w": measured.power_w,
                "compile_s": measured.compile_s,
                "state_bytes": measured.state_bytes,
                **({} if self._links is None else self._links.stored()),
                "exchanges": self._exchanges,
            }
        )

    def _send(self, event: PlanMeasured) -> bool:
        """Report from rank 0, and let every worker know whether to stop."""
        worker = self._worker
        stop = worker.rank == 0 and bool(self._report(event))
        if worker.num_workers > 1:
            flag = torch.tensor(float(stop), device=worker.device)
            stop = bool(worker.group.total(flag).item() > 0)
        return stop


def _is_idea_of_advisor(task: TrialTask, error: ExperimentError) -> bool:
    """Return whether the rejected setting was chosen by the advisor, not by the experiment."""
    written = {**dict(task.experiment.plan.decided.values), **task.experiment.search.root}
    strategy = task.plan.get("strategy")
    axis = None
    if strategy in STRATEGIES:
        axis = capabilities_of(str(strategy)).axis
    divides = axis is not None and "strategy" not in written and axis not in written
    is_division = error.field in ("plan.accumulation", "plan.workers")
    is_open = error.field is not None and error.field.removeprefix("plan.") not in written
    return divides or (is_open and (is_division or error.field == "plan.recompute"))


def attempt(action: Callable[[], None]) -> str | None:
    """Run `action`, and return the message if memory ran out, otherwise None."""
    try:
        action()
    except (MemoryError, RuntimeError) as error:
        if not ran_out_of_memory(error):
            raise
        # The traceback holds frames, and their variables hold the tensors that did not fit.
        traceback.clear_frames(error.__traceback__)
        return describe(error)
    return None


def _limit_bytes(order: PlanProbe, worker: Worker) -> int:
    """Return the memory that this worker may use: as ordered, or else all of its device."""
    if order.limit_bytes is not None:
        return order.limit_bytes
    if worker.device.type == "cuda":
        return torch.cuda.mem_get_info()[1]
    return inventory().memory_bytes


def _watching_profiler(device: torch.device, peak: PeakMemory) -> StepProfiler:
    """Return a profiler that also samples the memory at the end of each part of a step.

    That is when it holds the most.
    """
    profiler = StepProfiler(device.type, gpu_sampling_interval=1)
    mark = profiler.mark

    def mark_and_sample(part: str) -> None:
        mark(part)
        peak.sample()

    profiler.mark = mark_and_sample
    return profiler


def flops_of_a_sample(task: TrialTask, settings: TrialSettings) -> float | None:
    """Return the operations of forward and backward for one sample.

    They are counted once in this process.

    Args:
        task: The experiment and the configuration.
        settings: The settings that follow from them.

    Returns:
        Operations, or None if the model does not run on the CPU.
    """
    params = {name: value for name, value in task.params.items() if name not in _UNRELATED}
    key = json.dumps([task.experiment_json, params], sort_keys=True)
    if key not in _counted:
        _counted.clear()
        _counted[key] = None
        try:
            _counted[key] = _count(task, settings)
        except Exception as error:  # the model's own code; a measurement is useful without it
            traceback.clear_frames(error.__traceback__)
        gc.collect()  # parts of the model refer to each other
    return _counted[key]


def _count(task: TrialTask, settings: TrialSettings) -> float:
    experiment = task.experiment
    datasets = load_trial_data(task.run_id, experiment, params=data_params(task.params))
    model = build_trial_model(experiment, task.params, settings, datasets, pretrained=False)
    source = Source(datasets.train, torch.device("cpu"))
    inputs, targets = source.fetch(np.arange(min(_COUNTED_SAMPLES, len(source))))
    return count_step_flops(experiment, datasets, model, inputs, targets) / num_samples(inputs)


@dataclasses.dataclass
class _Copy:
    """The result of one worker."""

    plan: dict[str, Any] = dataclasses.field(default_factory=dict)
    num_steps: int = 0
    samples_per_s: float = 0.0
    peak_bytes: int = 0


def measure_neighbours(
    task: TrialTask, order: NeighbourProbe, report: Callable[[Event], bool]
) -> Outcome:
    """Make steps at the same time as the other workers of the gang.

    Args:
        task: The task of this worker.
        order: Which steps to make, and for how long.
        report: Receives one `PlanMeasured` with the plan of one copy, the samples per second of all
            copies, and the peak memory of the largest one. Called on rank 0 only.

    Returns:
        How the measurement ended.

    Raises:
        WorkbenchError: If the plan contradicts the experiment.
    """
    device = choose_device(task.experiment)
    # The group is on the CPU, because NCCL does not accept two workers on one GPU.
    group = Group(task.rank, task.num_workers, torch.device("cpu"), task.meeting)
    try:
        devices = group.gather((socket.gethostname(), os.environ.get("CUDA_VISIBLE_DEVICES")))
        copied = _Copy()
        # Copies on different GPUs would not slow each other down, so that would measure nothing.
        misfit = None
        if len(set(devices)) > 1:
            misfit = "the copies got different GPUs"
        misfit = misfit or _make_steps(task, order, device, group, copied)
        copies = group.gather(copied)
        if task.rank == 0:
            report(
                PlanMeasured(
                    setting=order.setting,
                    plan=copied.plan,
                    fits=misfit is None,
                    message=misfit,
                    num_steps=min(copy.num_steps for copy in copies),
                    samples_per_s=(
                        sum(copy.samples_per_s for copy in copies) if misfit is None else None
                    ),
                    peak_bytes=max(copy.peak_bytes for copy in copies),
                )
            )
        return Outcome("complete", 1)
    finally:
        group.close()


def _make_steps(
    task: TrialTask, order: NeighbourProbe, device: torch.device, group: Group, copied: _Copy
) -> str | None:
    """Fill in the result of this worker.

    After each phase, all workers tell each other whether it fitted. So none of them waits for one
    that ran out of memory, and the timed phase starts on all of them together.

    Returns:
        Why the copies do not fit together, or None if they do.
    """
    alone = Worker(0, 1, device, Group(0, 1, device, None))
    own = dataclasses.replace(
        task,
        rank=0,
        num_workers=1,
        meeting=None,
        plan=task.plan | order.plan | PartialPlan.of(workers=1),
    )
    limit_memory(own.experiment, device)
    copies: list[_Steps] = []
    phases: list[Callable[[], None]] = [
        lambda: copies.append(_Steps(assemble(own, alone), task.seed)),
        lambda: copies[0].warm_up(order.longest_s),
        lambda: copies[0].time(order.longest_s, copied),
    ]
    try:
        for phase in phases:
            misfits = group.gather(attempt(phase))
            if any(misfit is not None for misfit in misfits):
                return next(misfit for misfit in misfits if misfit is not None)
        return None
    finally:
        for steps in copies:
            steps.parts.close()
        alone.group.close()


class _Steps:
    """The steps of one copy."""

    def __init__(self, parts: Parts, seed: int) -> None:
        self.parts = parts
        self._peak = PeakMemory(parts.worker.device)
        self._steps = TimedSteps(parts, self._peak, seed)
        parts.strategy.train(True)

    def warm_up(self, longest_s: float) -> None:
        self._steps.warm_up(_WARMUP_STEPS, 0.5 * longest_s)

    def time(self, longest_s: float, copied: _Copy) -> None:
        began_s = perf_counter()
        copied.num_steps = self._steps.make(longest_s)
        plan = self.parts.settings.plan
        copied.samples_per_s = copied.num_steps * plan.global_batch / (perf_counter() - began_s)
        copied.plan, copied.peak_bytes = plan.to_json(), self._peak.most_bytes
