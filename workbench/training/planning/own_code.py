"""Translates the parameters of your function or program into the names that plans use, and back.

So the advisor can treat your code like a model: it measures, predicts and trains in the same way.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from pydantic import JsonValue

from workbench.experiment import Experiment, PlanSettings, Space, Training
from workbench.experiment.domain import Domain
from workbench.experiment.plan import NAMES as PLAN_NAMES

BATCH, RATE = "micro_batch", "lr"
PREFIX = "own."
"""Prefix of a parameter that has the name of one of our settings but means something else."""
_TAKEN = {*PLAN_NAMES, *Training.model_fields}


def in_words_of_plans(experiment: Experiment) -> Experiment:
    """Return an experiment whose batch and learning rate are named like the settings of a model.

    Only the micro batch of its plan can be chosen, and the workers if they are open. The rate is
    the same at every batch, because nothing is known about the optimizer. An experiment with a
    model is returned unchanged.

    Args:
        experiment: A function or a program with `advise`, or a model.
    """
    advise = experiment.advise
    if advise is None:
        return experiment
    names = {own: name for name, own in _names(experiment).items()}
    search = {names[own]: _renamed(domain, names) for own, domain in experiment.search.root.items()}
    rate = 1.0 if advise.lr is None else _middle(search[RATE])
    workers = experiment.plan.workers
    if workers == "auto" and not advise.workers:
        workers = 1
    return experiment.model_copy(
        update={
            "search": Space(search),
            "training": Training(
                lr=rate, lr_rule="constant", reference_batch=max(1, round(_middle(search[BATCH])))
            ),
            "plan": PlanSettings(
                workers=workers,
                accumulation=1,
                precision="fp32",
                strategy="ddp",
                recompute="none",
                compile="none",
                loaders=0,
                pipeline_schedule="1f1b",
            ),
        }
    )


def own_values(
    experiment: Experiment, params: Mapping[str, JsonValue], micro_batch: int, lr: float
) -> dict[str, JsonValue]:
    """Return the configuration that the function or program receives.

    Args:
        experiment: The experiment as it was written.
        params: A configuration with the names that plans use.
        micro_batch: Samples of a step of one worker.
        lr: The learning rate.
    """
    decided = {BATCH: micro_batch, RATE: lr}
    named = {**params, **decided}
    return {own: named[name] for name, own in _names(experiment).items() if name in named}


def own_settings(experiment: Experiment, settings: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """Return recommended settings with the parameter names of the function or program.

    Args:
        experiment: The experiment as it was written.
        settings: Values by dotted path, such as `plan.micro_batch`.
    """
    advise = experiment.advise
    assert advise is not None
    renamed: dict[str, JsonValue] = {}
    for path, value in settings.items():
        match path:
            case "plan.micro_batch":
                renamed[f"search.{advise.batch}"] = value
            case "training.lr":
                renamed[f"search.{advise.lr}"] = value
            case "plan.workers":
                renamed |= {path: value, "advise.workers": False}
            case "resources.placement":
                renamed[path] = value
    return renamed


def _names(experiment: Experiment) -> dict[str, str]:
    """Return the parameters' own names, by the names that plans use."""
    advise = experiment.advise
    assert advise is not None
    renamed = {advise.batch: BATCH}
    if advise.lr is not None:
        renamed[advise.lr] = RATE
    own_names: dict[str, str] = {}
    for own in experiment.search.root:
        name = renamed.get(own, f"{PREFIX}{own}" if own in _TAKEN else own)
        own_names[name] = own
    return own_names


def _renamed(domain: Domain, names: Mapping[str, str]) -> Any:
    when = {names[parent]: wanted for parent, wanted in domain.when.items()}
    if not when:
        return domain
    return domain.model_copy(update={"when": when})


def _middle(domain: Domain) -> float:
    """Return the middle of a domain of positive numbers on a logarithmic scale."""
    low, high = getattr(domain, "low", None), getattr(domain, "high", None)
    if low is not None and high is not None:
        return float(f"{math.sqrt(low * high):.3g}")
    values: list[Any] = sorted(domain.values() or [])  # type: ignore[type-var]
    return values[(len(values) - 1) // 2]
