"""Training with differential privacy.

What an experiment may ask for, and what it cannot be combined with.

Clipping, noise and the accounting of what was spent are left to training.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import Field, PositiveFloat

from workbench.experiment.plan import PlanValue
from workbench.experiment.plan_settings import find_other_value
from workbench.experiment.setting_types import Section
from workbench.foundation.errors import ExperimentError

if TYPE_CHECKING:
    from workbench.experiment import Experiment

EPSILON_METRIC = "epsilon"
"""The metric under which a private training reports what it has spent."""
PREFIX = "private."
# What one sample must not reach beside its own clipped gradient, or what clips and measures
# otherwise.
_EXCLUDED_TRAINING = {
    "clip_norm": "the gradient of each sample is clipped by private.max_norm instead",
    "gradient_hook": "it would see the gradients before their noise",
}
_EXCLUDED_PLAN: dict[str, tuple[tuple[PlanValue, ...], str]] = {
    "workers": ((1,), "a private training has one worker"),
    "precision": (("fp32",), "the gradients of single samples are computed in fp32"),
    "compile": (("none",), "the gradients of single samples are not compiled"),
    "memory_format": (("contiguous",), "the gradients of single samples are computed as they lie"),
    "recompute": (("none",), "the gradients of single samples keep their activations"),
    "strategy": (("single", "ddp"), "a private training has one worker"),
}


class Private(Section):
    """How much a training may reveal about any one sample, and how gradients are bounded for
    that.
    """

    epsilon: PositiveFloat = Field(
        default=8.0,
        description="What the whole training may spend; 1 is strong protection, 8 is usual.",
    )
    delta: Annotated[float, Field(gt=0, lt=1)] = Field(
        default=1e-5,
        description="Probability that epsilon does not hold; below 1 / number of samples.",
    )
    max_norm: PositiveFloat = Field(
        default=1.0, description="Norm to which the gradient of each sample is clipped."
    )


def is_private(experiment: Experiment) -> bool:
    """Return whether trials of an experiment train with differential privacy."""
    return experiment.training.private is not None


def check_private(experiment: Experiment) -> None:
    """Refuse what would break the promise, or would be ignored.

    Raises:
        ExperimentError: If there is such a setting.
    """
    searched = experiment.search.root
    if not is_private(experiment):
        name = next((name for name in searched if name.startswith(PREFIX)), None)
        if name is not None:
            raise ExperimentError(
                "the training is not private",
                field=f"search.{name}",
                next_step="Add training.private: {epsilon: 8}, or remove the parameter.",
            )
        return
    if experiment.model is None or experiment.federated is not None:
        raise ExperimentError(
            "only a model that the workbench trains by itself can be trained with differential"
            " privacy",
            field="training.private",
            next_step="Remove it, or name a model and data, without federated.",
        )
    if "private" in searched:
        raise ExperimentError(
            "private training is on for all trials or for none",
            field="search.private",
            next_step="Search private.epsilon or private.max_norm instead.",
        )
    for name, reason in _EXCLUDED_TRAINING.items():
        if name in searched or getattr(experiment.training, name) is not None:
            raise _cannot(reason, f"search.{name}" if name in searched else f"training.{name}")
    if experiment.training.lr_rule == "adascale":
        raise _cannot("adascale follows gradients without noise", "training.lr_rule")
    augment = experiment.training.augment
    if "augment.mixup" in searched or (augment is not None and augment.mixup):
        raise _cannot("mixup lets a sample reach the gradients of others", "training.augment.mixup")
    found = find_other_value(
        experiment, {name: allowed for name, (allowed, _) in _EXCLUDED_PLAN.items()}
    )
    if found is not None:
        raise _cannot(_EXCLUDED_PLAN[found[0]][1], found[1])


def _cannot(reason: str, field: str) -> ExperimentError:
    return ExperimentError(reason, field=field, next_step="Remove it, or training.private.")
