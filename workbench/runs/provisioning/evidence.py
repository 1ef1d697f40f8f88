"""What was measured of an experiment, on whatever hardware, in the runs of a store."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from workbench.advisor.advice import apply_settings
from workbench.advisor.open_settings import base_params, check_advisable, drawn_params
from workbench.advisor.plan_variants import plan_of, plan_with, read_plan, variant_of
from workbench.advisor.plans import Knowledge
from workbench.advisor.speed_history import earlier_runs, hardware_of, read_measurements, work_of
from workbench.advisor.stored_advice import mapping
from workbench.experiment import Experiment
from workbench.experiment.actions import suggest
from workbench.experiment.plan import Plan
from workbench.foundation.errors import ExperimentError
from workbench.foundation.events import AdviceGiven, PlanMeasured
from workbench.store.database import Store
from workbench.training.planning.settings import resolve


@dataclass(frozen=True)
class Evidence:
    """What was measured on one kind of device, and how trials would train.

    Attributes:
        run_id: The newest run that measured it.
        device: The device: "cpu", or its name in the driver.
        knowledge: The models that are fitted to it.
        usual: How a trial would train there.
        num_train_samples: Samples of the training data.
        settings: The fixed settings of a plan, by dotted path. How it is divided is open.
    """

    run_id: str
    device: str
    knowledge: Knowledge
    usual: Plan
    num_train_samples: int
    settings: dict[str, Any]

    def flops_per_s(self) -> float | None:
        """Return the operations a second that one worker did, at best.

        None if that was not counted.
        """
        usual = variant_of(self.usual)
        rates = [
            event.step_flops / event.step_time_s / plan.workers
            for event in self.knowledge.measured
            if (plan := read_plan(event.plan)) is not None
            and event.step_flops
            and event.step_time_s
            and variant_of(plan) == usual
        ]
        return max(rates, default=None)


def evidence_of(store: Store, experiment: Experiment, *, file: str = "FILE") -> list[Evidence]:
    """Find what was measured of an experiment.

    Args:
        store: The store.
        experiment: What is to be run.
        file: Its file, to be named in the next step.

    Returns:
        What is known of each kind of device, the newest first. Never empty.

    Raises:
        ExperimentError: If it cannot be measured, or nothing was.
    """
    if not experiment.trains_model:
        field = "train"
        if experiment.command is not None:
            field = "command"
        raise ExperimentError(
            "machines can only be recommended for models, because the number of samples of a"
            " function or program is unknown",
            field=field,
            next_step="Use a model and data instead.",
        )
    check_advisable(experiment)
    work = work_of(experiment, base_params(experiment))
    by_device: dict[str, Evidence] = {}
    wanted = ["plan_measured", "advice_given"]
    for run_id, events in earlier_runs(store, wanted, of=lambda other: _is_same_work(other, work)):
        measured = [event for event in events if isinstance(event, PlanMeasured)]
        advice = next(
            (event.advice for event in reversed(events) if isinstance(event, AdviceGiven)), None
        )
        for device in dict.fromkeys(event.device for event in measured):
            if device in by_device:
                continue
            settings = dict.fromkeys(event.setting for event in measured if event.device == device)
            known = [event for setting in settings for event in read_measurements(store, setting)]
            evidence = _evidence(experiment, run_id, device, known, advice)
            if evidence is not None:
                by_device[device] = evidence
    if not by_device:
        raise ExperimentError(
            "the store has no measurement of this experiment: only trials with three or more"
            " reports count as measurements",
            next_step=suggest(
                "advise", file, lead="Measure it first, preferably on one of these machines"
            ),
        )
    return list(by_device.values())


def _evidence(
    experiment: Experiment,
    run_id: str,
    device: str,
    measured: list[PlanMeasured],
    advice: Mapping[str, Any] | None,
) -> Evidence | None:
    samples = next((event.num_train_samples for event in measured if event.num_train_samples), None)
    knowledge = Knowledge(measured, [1], limit_bytes=None)
    if samples is None or not knowledge.variants:
        return None
    on_gpu = device != "cpu"
    if advice is not None:
        chosen = mapping(advice.get("choice"))
        usual = plan_of(mapping(chosen.get("plan")))
    else:
        usual = resolve(
            experiment,
            drawn_params(experiment),
            num_train_samples=samples,
            hardware=hardware_of(measured, has_gpu=on_gpu),
        ).plan
    if variant_of(usual) not in knowledge.variants:
        usual = plan_with(
            knowledge.variants[0], usual.workers, usual.micro_batch, usual.accumulation
        )
    decided: dict[str, Any] = {
        f"plan.{name}": value for name, value in variant_of(usual).applicable().values
    }
    decided["training.global_batch"] = usual.global_batch
    apply_settings(experiment, decided)  # refused here rather than for each machine
    return Evidence(
        run_id=run_id,
        device=device,
        knowledge=knowledge,
        usual=usual,
        num_train_samples=samples,
        settings=decided,
    )


def _is_same_work(experiment: Experiment, work: Mapping[str, Any]) -> bool:
    return experiment.trained is not None and work_of(experiment, base_params(experiment)) == work
