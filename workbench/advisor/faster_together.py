"""Changes to a plan that made steps faster one by one, put together.

What remains is to measure that.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from workbench.advisor.plans import SAME
from workbench.advisor.variants import Variant, read_plan, variant_of
from workbench.experiment.plan import PartialPlan
from workbench.foundation.events import PlanMeasured
from workbench.training.exchanges.capabilities import capabilities_of as exchange_capabilities
from workbench.training.strategies.capabilities import conflict_in


def together(
    measured: Sequence[PlanMeasured], base: Variant, changed: Sequence[Variant]
) -> Variant | None:
    """Return the base with all changes that made its steps clearly faster and do not exclude each
    other.

    Changes that exclude each other are taken from the one that brings most. Approximate exchanges
    are left out, as steps are not all that they cost.

    Args:
        measured: Of one setting.
        base: The variant from which the others differ.
        changed: Variants that each differ from it in one dimension and the options that belong to
            it.

    Returns:
        None where fewer than two changes go together.
    """
    times_s: dict[Variant, dict[tuple[int, int], float]] = {}
    for each in measured:
        plan = read_plan(each.plan)
        if (
            plan is not None
            and each.step_time_s is not None
            and plan.accumulation == 1
            and not each.by_trial
        ):
            times_s.setdefault(variant_of(plan), {})[plan.workers, plan.micro_batch] = (
                each.step_time_s
            )
    gains: list[tuple[float, PartialPlan]] = []
    before_s = times_s.get(base, {})
    for variant in changed:
        after_s = times_s.get(variant, {})
        ratios = [before_s[size] / after_s[size] for size in before_s.keys() & after_s.keys()]
        if ratios and exchange_capabilities(str(variant.get("exchange"))).is_exact:
            change = PartialPlan(tuple(item for item in variant.values if item not in base.values))
            gains.append((statistics.median(ratios), change))
    found, num_changes = base, 0
    for gain, change in sorted(gains, key=lambda each: each[0], reverse=True):
        is_new = all(base.get(name) == found.get(name) for name, _ in change.values)
        if gain >= 1.0 + SAME and is_new and conflict_in(found | change) is None:
            found, num_changes = found | change, num_changes + 1
    return found if num_changes > 1 else None
