"""The experiment: what to tune, as one frozen object, one YAML file and one content hash.

An experiment says what the user wants. This package checks names, ranges, conditions, and settings
that exclude each other. The start of a run checks whether models, datasets and hardware fit. Every
error says which dotted field is wrong, what is allowed, and what to do next.
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
