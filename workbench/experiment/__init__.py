"""The experiment: what to tune, as one frozen object, one YAML file, one content hash.

It states what the user wants and checks that it is consistent: names, ranges, conditions, parts
that exclude each other. Whether models, datasets and hardware can satisfy it is checked where a run
starts. Every refusal names the dotted field, what was allowed, and the next step.
"""

from workbench.experiment.components import Component
from workbench.experiment.experiment import Experiment
from workbench.experiment.goals import Constraint, Objective
from workbench.experiment.search_methods import Confirm, EarlyStop, Sampler
from workbench.experiment.sections import Budget, PlanSettings, Resources
from workbench.experiment.space import Space
from workbench.experiment.training_section import Training

__all__ = [
    "Budget",
    "Component",
    "Confirm",
    "Constraint",
    "EarlyStop",
    "Experiment",
    "Objective",
    "PlanSettings",
    "Resources",
    "Sampler",
    "Space",
    "Training",
]
