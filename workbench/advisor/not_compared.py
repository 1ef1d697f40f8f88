"""Values of a plan's dimensions that were allowed and could not be measured in the time that there
was.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from workbench.advisor.choices import Choices
from workbench.advisor.variants import is_possible_on, read_plan
from workbench.experiment.plan import VARIANT, PartialPlan, PlanValue
from workbench.experiment.space import Space
from workbench.foundation.events import PlanMeasured

# What belongs to some workers or exchanges only is measured where a law predicts that it may pay.
_FORECAST = frozenset({"exchange", "pipeline_schedule"})


def not_compared(choices: Choices, measured: Sequence[PlanMeasured]) -> dict[str, list[PlanValue]]:
    """Return the values that were not measured, by dimension, of those that may make steps faster.

    Args:
        choices: What may be chosen.
        measured: All measurements, also those of plans that turned out to be impossible.
    """
    plans = [
        PartialPlan.of_plan(plan) for each in measured if (plan := read_plan(each.plan)) is not None
    ]
    found: dict[str, list[PlanValue]] = {}
    for dimension in VARIANT:
        name = dimension.name
        if dimension.advised_for != "speed" or dimension.option_of or name in _FORECAST:
            continue
        tried = {plan.get(name) for plan in plans}
        missing = [
            value
            for value in choices.options[name]
            if value not in tried and _is_possible(choices, PartialPlan.of(**{name: value}))
        ]
        if missing:
            found[name] = missing
    return found


def describe_not_compared(
    missing: Mapping[str, Sequence[PlanValue]], search: Space
) -> Iterator[str]:
    """Write which values were not measured, and which dimensions stay searched for that."""
    for name, values in missing.items():
        stays = f", so {name} stays searched" if name in search.root else ""
        yield (
            f"for lack of time plan.{name} {' and '.join(map(str, values))} was not"
            f" measured{stays}: allow more (--time)"
        )


def _is_possible(choices: Choices, change: PartialPlan) -> bool:
    return any(
        is_possible_on(choices.usual_variant | change, workers) for workers in choices.workers
    )
