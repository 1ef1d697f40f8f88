"""The experiment: what to tune, as one frozen object, one YAML file and one content hash.

An experiment says what the user wants. This package checks names, ranges, conditions, and settings
that exclude each other. The start of a run checks whether models, datasets and hardware fit. Every
error says which dotted field is wrong, what is allowed, and what to do next.

- The object: `experiment`, `components`, `sections`, `setting_types`, `validation_errors`.
- Its file: `yaml_file`, `dotted`, `pickling`.
- What is searched: `space`, `domain`, `searched_fields`, `code_versions`.
- How it is searched: `search_methods`, `samplers`, `pruners`, `fidelity`, `populations`.
- What is improved: `goals`, `metric_declarations`, `metric_source`, `trial_value`, `budget_units`.
- Trainings: `training_section`, `trainings`, `schedules`, `federated`, `own_advice`.
- Your function or program: `train_function`, `command`, `module_inspection`.
- While a run runs: `changes`, `alert_rules`.
- AutoML: `automl`.
- Files of other tools: `aliases`, `wandb_sweep`, `nni_search`.
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
