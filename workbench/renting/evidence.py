"""What was measured of an experiment, on whatever hardware, in the runs of a store."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from workbench.advisor.advice import apply_settings
from workbench.advisor.choices import base_params, check_advisable, drawn_params
from workbench.advisor.measurements import NUM_EARLIER_RUNS, read_measurements, work_of
from workbench.advisor.plans import Knowledge, PlanChoice, plan_of, variant_of
from workbench.advisor.stored_advice import mapping
from workbench.errors import ExperimentError, WorkbenchError
from workbench.events import AdviceGiven, PlanMeasured
from workbench.experiment import Experiment
from workbench.store import Store
from workbench.training.settings import resolve

_DECIDED = ("training.global_batch", "plan.precision", "plan.strategy", "plan.recompute")


@dataclass(frozen=True)
class Evidence:
    """What was measured on one kind of device, and how trials would train.

    Attributes:
        run_id: The newest run that measured it.
        device: Where: "cpu", or as the driver names it.
        knowledge: The models that are fitted to it.
        usual: How a trial would train there.
        num_train_samples: Samples of the training data.
        settings: What is fixed of a plan, by dotted path; how it is divided is open.
    """

    run_id: str
    device: str
    knowledge: Knowledge
    usual: PlanChoice
    num_train_samples: int
    settings: dict[str, Any]

    def flops_per_s(self) -> float | None:
        """Return the operations a second that one worker did, at best; None where that was not counted."""
        rates = [
            each.step_flops / each.step_time_s / int(str(each.plan["workers"]))
            for each in self.knowledge.measured
            if each.step_flops and each.step_time_s and variant_of(each.plan) == self.usual.variant
        ]
        return max(rates, default=None)


def evidence_of(store: Store, experiment: Experiment) -> list[Evidence]:
    """Find what was measured of an experiment.

    Args:
        store: The store.
        experiment: What is to be run.

    Returns:
        What is known of each kind of device, the newest first; at least one.

    Raises:
        ExperimentError: If it cannot be measured, or nothing was.
    """
    check_advisable(experiment)
    work = work_of(experiment, base_params(experiment))
    found: dict[str, Evidence] = {}
    for row in store.runs(NUM_EARLIER_RUNS):
        try:
            other = store.experiment(row.run_id)
            if other.model is None or work_of(other, base_params(other)) != work:
                continue
            stored = store.events(row.run_id, types=["plan_measured", "advice_given"])
        except WorkbenchError:  # of a newer version, or code that is gone
            continue
        events = [item.event for item in stored]
        measured = [event for event in events if isinstance(event, PlanMeasured)]
        advice = next((event.advice for event in reversed(events) if isinstance(event, AdviceGiven)), None)
        for device in dict.fromkeys(event.device for event in measured):
            if device in found:
                continue
            settings = dict.fromkeys(event.setting for event in measured if event.device == device)
            known = [each for setting in settings for each in read_measurements(store, setting)]
            evidence = _evidence(experiment, row.run_id, device, known, advice)
            if evidence is not None:
                found[device] = evidence
    if not found:
        raise ExperimentError(
            "no measurement: nothing in the store was measured of this experiment",
            next_step="Run `workbench advise FILE` first, best on one of the machines.",
        )
    return list(found.values())


def _evidence(
    experiment: Experiment,
    run_id: str,
    device: str,
    measured: list[PlanMeasured],
    advice: Mapping[str, Any] | None,
) -> Evidence | None:
    samples = next((each.num_train_samples for each in measured if each.num_train_samples), None)
    knowledge = Knowledge(measured, [1], limit_bytes=None)
    if samples is None or not knowledge.variants:
        return None
    on_gpu = device != "cpu"
    if advice is not None:
        chosen = mapping(advice.get("choice"))
        usual = plan_of(mapping(chosen.get("plan")))
    else:
        has_bf16 = any(each.plan.get("precision") == "bf16" for each in measured)
        settings = resolve(
            experiment, drawn_params(experiment), num_train_samples=samples,
            device="cuda" if on_gpu else "cpu", has_bf16=has_bf16,
        )  # fmt: skip
        usual = plan_of(settings.plan())
    if usual.variant not in knowledge.variants:
        usual = PlanChoice(usual.workers, usual.micro_batch, usual.accumulation, knowledge.variants[0])
    values = (usual.global_batch, usual.variant.precision, usual.variant.strategy, usual.variant.recompute)
    decided: dict[str, Any] = dict(zip(_DECIDED, values, strict=True))
    apply_settings(experiment, decided)  # refused here rather than for each machine
    return Evidence(run_id, device, knowledge, usual, samples, decided)
