"""The plan of a trial: how it uses hardware, as one typed value.

`dimensions` declares each dimension once. The section `plan` of an experiment, the stored JSON, the
descriptions and the advisor's candidates all follow from these declarations.

The placement of workers is not part of a plan: it is the same for all trials of a run
(`resources.placement`). `workbench.training.planning` decides what an experiment leaves open.
"""

from workbench.experiment.plan.dimensions import (
    BY_NAME,
    DIMENSIONS,
    EXCHANGE_OPTIONS,
    NAMES,
    SIZES,
    VARIANT,
    AdvisedFor,
    Dimension,
    Dimensions,
    Hardware,
    PlanValue,
)
from workbench.experiment.plan.plan import PartialPlan, Plan

__all__ = [
    "BY_NAME",
    "DIMENSIONS",
    "EXCHANGE_OPTIONS",
    "NAMES",
    "SIZES",
    "VARIANT",
    "AdvisedFor",
    "Dimension",
    "Dimensions",
    "Hardware",
    "PartialPlan",
    "Plan",
    "PlanValue",
]
