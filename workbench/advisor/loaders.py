"""How many loader processes to measure, from the time that a step waits for data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from workbench.advisor.variants import read_plan
from workbench.experiment.plan import Plan
from workbench.foundation.events import PlanMeasured
from workbench.foundation.events.trials import input_stall, loaders_to_hide
from workbench.foundation.formatting import format_count, format_percent


def loader_numbers(reference: PlanMeasured, free_cores: int) -> tuple[int, ...]:
    """Return the numbers of loaders to measure, the usual one first.

    Args:
        reference: The measurement of the experiment without advice and without loaders.
        free_cores: CPU cores that each worker may use in addition to its own.
    """
    wanted = min(loaders_to_hide(reference.parts_s), free_cores)
    return (0, wanted) if wanted > 0 else (0,)


def describe_loading(measured: Sequence[PlanMeasured]) -> Iterator[str]:
    """Describe how long steps wait for data, and how much faster they are with loaders."""
    by_plan = {
        plan: event for event in measured if event.step_time_s and (plan := read_plan(event.plan))
    }
    gains: dict[int, tuple[float, Plan]] = {}
    for plan, event in by_plan.items():
        without = by_plan.get(replace(plan, loaders=0))
        if plan.loaders and without is not None:
            assert without.step_time_s is not None
            assert event.step_time_s is not None
            faster = (without.step_time_s / event.step_time_s, plan)
            best = gains.get(plan.loaders, faster)
            gains[plan.loaders] = max(best, faster, key=lambda gain: gain[0])
    for loaders, (gain, plan) in sorted(gains.items()):
        part = input_stall(by_plan[replace(plan, loaders=0)].parts_s)
        yield (
            f"{format_percent(part)} of a step waits for data. With"
            f" {format_count(loaders, 'loader')} it is {gain:.1f} times as fast at a micro batch of"
            f" {plan.micro_batch}"
        )


def describe_missing_cores(
    measured: Sequence[PlanMeasured], reference: PlanMeasured, spare_cores: int
) -> Iterator[str]:
    """Say what would shorten the wait for data, if there were too few CPU cores for loaders.

    Args:
        measured: The measured plans.
        reference: The measurement of the experiment without advice and without loaders.
        spare_cores: CPU cores that a worker may use besides its own if only one trial runs.
    """
    tried = max(
        (plan.loaders for event in measured if (plan := read_plan(event.plan))),
        default=0,
    )
    wanted = loaders_to_hide(reference.parts_s)
    if wanted <= tried:
        return
    waits = (
        f"free CPU cores: {format_percent(input_stall(reference.parts_s))} of a step waits for data"
    )
    possible = min(wanted, spare_cores)
    if possible <= tried:
        yield (
            f"{waits}, and no core is left for more loaders."
            " Use a machine with more cores, or make samples cheaper to load"
        )
        return
    hides = "would hide that"
    if possible < wanted:
        hides = f"would shorten that ({wanted} would hide it)"
    yield (
        f"{waits}, and {format_count(possible, 'loader')} a worker {hides}."
        f" Set resources.concurrency to 1 and plan.loaders to {possible}"
    )
