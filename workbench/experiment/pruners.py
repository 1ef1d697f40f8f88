"""The pruners by name: the settings that each reads, and what each can handle.

A new pruner is a subclass of `PrunerOptions` with a factory, and a line in `PRUNERS`, or an entry
point of the group `workbench.pruners` in another package; options of its own are written under
`early_stop.options`. Nothing here loads Optuna: the factory, which makes Optuna's object, is named
by reference and imported by the study.
"""

from __future__ import annotations

from typing import ClassVar

from pydantic import BaseModel, ConfigDict, Field

from workbench.foundation.errors import WorkbenchError
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
    """The options of a pruner under `early_stop.options`, and what it reads and can handle."""

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
    compares_repeats: ClassVar[bool] = False
    """Whether it compares the repeats of a configuration instead of the steps of one training."""


class NoPruner(PrunerOptions):
    """Stops nothing."""

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
    reads = ("startup_trials",)


class Percentile(PrunerOptions):
    """Stops trials below a percentile of earlier ones."""

    factory = "workbench.search.pruners:make_percentile"
    reads = ("percentile", "startup_trials")


class Patience(PrunerOptions):
    """Stops trials that no longer improve."""

    factory = "workbench.search.pruners:make_patience"
    reads = ("patience",)


class Curves(PrunerOptions):
    """Stops trials whose learning curve is unlikely to end better than the best one did.

    With several objectives, trials that are unlikely to add a hundredth to the hypervolume of the
    front.
    """

    factory = "workbench.search.pruners:make_curves"
    needs_later = ("workbench.search.curves",)
    handles_several_objectives = True

    chance: float = Field(
        default=0.1,
        gt=0,
        lt=0.5,
        description=(
            "A trial is stopped if its probability to end as the best, or to extend the front, is "
            "lower."
        ),
    )
    resume: bool = Field(
        default=True,
        description=(
            "A stopped trial is continued from its checkpoint once its probability to end as the "
            "best has risen to one and a half of that, by how other curves went on."
        ),
    )


class Wilcoxon(PrunerOptions):
    """Stops the repeats of a configuration that is significantly worse than the best."""

    factory = "workbench.search.pruners:make_wilcoxon"
    reads = ("p_threshold",)
    compares_repeats = True


def pruners_for_several_objectives() -> list[str]:
    """Return the names of the pruners that handle several objectives."""
    return [name for name, kind in _loaded() if kind.handles_several_objectives]


def readers_of(setting: str) -> tuple[str, ...] | None:
    """Return the names of the pruners that read a setting of `early_stop`; None if all do."""
    if setting not in (*SHARED_SETTINGS, "options"):
        return None
    return tuple(
        name
        for name, kind in _loaded()
        if setting in kind.reads or (setting == "options" and kind.model_fields)
    )


def _loaded() -> list[tuple[str, type[PrunerOptions]]]:
    found = []
    for name in PRUNERS.names():
        try:
            found.append((name, PRUNERS.load(name)))
        except WorkbenchError:  # registered by a package that cannot be imported here
            continue
    return found
