"""The plan of a trial: how it uses hardware, as one typed value.

Its dimensions are declared once, in `dimensions`. The `plan` section of an experiment, the stored
JSON, descriptions and what the advisor enumerates follow from these declarations.

Where workers are placed is a setting of the run (`resources.placement`), alike for all of its
trials. Answering what an experiment leaves open is left to `workbench.training.planning`.
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
