"""The pruners by name: the settings that each one reads, and what it supports.

To add a pruner, write a subclass of `PrunerOptions` with a factory, and add a line to `PRUNERS`. In
another package, use an entry point of the group `workbench.pruners`. Its own options are written
under `early_stop.options`. This module does not load Optuna: the study imports the factory, which
makes Optuna's object.
"""

from __future__ import annotations

from typing import ClassVar

from pydantic import BaseModel, ConfigDict, Field

from workbench.foundation.registry import Registry

PRUNERS = Registry(
    "pruner",
    {
        "none": "workbench.experiment.pruners:NoPruner",
        "asha": "workbench.experiment.pruners:ASHA",
        "hyperband": "workbench.experiment.pruners:Hyperband",
        "median": "workbench.experiment.pruners:Median",
        "percentile": "workbench.experiment.pruners:Percentile",
        "patience": "workbench.experiment.pruners:Patience",
        "curves": "workbench.experiment.pruners:Curves",
        "wilcoxon": "workbench.experiment.pruners:Wilcoxon",
    },
    group="workbench.pruners",
    needs=("factory", "model_fields"),
)

SHARED_SETTINGS = ("reduction_factor", "percentile", "startup_trials", "patience", "p_threshold")
"""The settings of `early_stop` that only some pruners read."""


class PrunerOptions(BaseModel):
    """A pruner: its options under `early_stop.options`, the settings it reads, what it supports."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    factory: ClassVar[str]
    """`package.module:function` that takes the experiment and the checked options, and returns
    Optuna's pruner.
    """
    reads: ClassVar[tuple[str, ...]] = ()
    """Which of `SHARED_SETTINGS` it reads."""
    needs_later: ClassVar[tuple[str, ...]] = ()
    """Modules that later decisions need, imported while the first trial runs."""
    handles_several_objectives: ClassVar[bool] = False
    compares_complete: ClassVar[bool] = False
    """Whether it compares only with complete trials, so that it needs some first."""
    compares_repeats: ClassVar[bool] = False
    """Whether it compares the repeats of a configuration instead of the steps of one training."""


class NoPruner(PrunerOptions):
    """Never stops a trial."""

    factory = "workbench.search.pruners:make_none"
    handles_several_objectives = True


class ASHA(PrunerOptions):
    """Asynchronous successive halving."""

    factory = "workbench.search.pruners:make_asha"
    reads = ("reduction_factor",)


class Hyperband(PrunerOptions):
    """Successive halving with several starting points."""

    factory = "workbench.search.pruners:make_hyperband"
    reads = ("reduction_factor",)


class Median(PrunerOptions):
    """Stops trials below the median of earlier ones."""

    factory = "workbench.search.pruners:make_median"
    compares_complete = True
    reads = ("startup_trials",)


class Percentile(PrunerOptions):
    """Stops trials below a percentile of earlier ones."""

    factory = "workbench.search.pruners:make_percentile"
    compares_complete = True
    reads = ("percentile", "startup_trials")


class Patience(PrunerOptions):
    """Stops trials that no longer improve."""

    factory = "workbench.search.pruners:make_patience"
    reads = ("patience",)


class Curves(PrunerOptions):
    """Stops trials whose learning curve is unlikely to end better than the best one.

    With several objectives, it stops trials that are unlikely to add a hundredth to the hypervolume
    of the front.
    """

    factory = "workbench.search.pruners:make_curves"
    needs_later = ("workbench.search.curves",)
    handles_several_objectives = True

    chance: float = Field(
        default=0.1,
        gt=0,
        lt=0.5,
        description=(
            "Stop a trial if the probability that it ends as the best, or extends the front, is "
            "lower than this."
        ),
    )
    resume: bool = Field(
        default=True,
        description=(
            "Continue a stopped trial if later curves show that its probability is higher than "
            "it seemed: at least 1.5 times chance."
        ),
    )


class Wilcoxon(PrunerOptions):
    """Stops the repeats of a configuration that is significantly worse than the best."""

    factory = "workbench.search.pruners:make_wilcoxon"
    reads = ("p_threshold",)
    compares_repeats = True


def pruners_for_several_objectives() -> list[str]:
    """Return the names of the pruners that handle several objectives."""
    return [name for name, kind in PRUNERS.loadable().items() if kind.handles_several_objectives]


def pruners_for_turns() -> list[str]:
    """Return the names of the pruners that can judge trials of which none is complete."""
    return [name for name, kind in PRUNERS.loadable().items() if not kind.compares_complete]


def readers_of(setting: str) -> tuple[str, ...] | None:
    """Return the names of the pruners that read a setting of `early_stop`, or None if all do."""
    if setting not in (*SHARED_SETTINGS, "options"):
        return None
    return tuple(
        name
        for name, kind in PRUNERS.loadable().items()
        if setting in kind.reads or (setting == "options" and kind.model_fields)
    )
