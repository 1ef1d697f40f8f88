"""Tune PyTorch models: experiments, sweeps, and what they measured.

`import workbench as wb` is quick: every name is loaded when it is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from workbench.version import VERSION as __version__  # noqa: N811 (the name that packages have for it)

if TYPE_CHECKING:
    from workbench.experiment import (
        Budget,
        Component,
        Confirm,
        Constraint,
        EarlyStop,
        Experiment,
        Objective,
        PlanSettings,
        Resources,
        Sampler,
        Training,
    )
    from workbench.experiment.metric_declarations import metric
    from workbench.experiment.plan import Plan
    from workbench.experiment.space import Choice, Fixed, Float, Int, Space
    from workbench.foundation.errors import WorkbenchError
    from workbench.runs import (
        Bundle,
        Ensemble,
        Run,
        SubmittedRun,
        advise,
        attach,
        compare,
        compare_table,
        load_bundle,
        submit,
        sweep,
    )
    from workbench.runs.automl import AutoML, automl
    from workbench.runs.importing.import_runs import import_runs
    from workbench.runs.trial_decisions import decide
    from workbench.store.database import Store
    from workbench.store.history import History, Trial
    from workbench.training.programs.script_report import report
    from workbench.views import widgets
    from workbench.views.widgets import app, live


_HOMES = {
    "runs.automl": ("AutoML", "automl"),
    "runs.importing.import_runs": ("import_runs",),
    "runs.trial_decisions": ("decide",),
    "foundation.errors": ("WorkbenchError",),
    "experiment": (
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
        "Training",
    ),
    "experiment.metric_declarations": ("metric",),
    "store.history": ("History", "Trial"),
    "experiment.plan": ("Plan",),
    "runs": (
        "Bundle",
        "Ensemble",
        "Run",
        "SubmittedRun",
        "advise",
        "attach",
        "compare",
        "compare_table",
        "load_bundle",
        "submit",
        "sweep",
    ),
    "experiment.space": ("Choice", "Fixed", "Float", "Int", "Space"),
    "store.database": ("Store",),
    "training.programs.script_report": ("report",),
    "views.widgets": ("app", "live"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "AutoML",
    "Budget",
    "Bundle",
    "Choice",
    "Component",
    "Confirm",
    "Constraint",
    "EarlyStop",
    "Ensemble",
    "Experiment",
    "Fixed",
    "Float",
    "History",
    "Int",
    "Objective",
    "Plan",
    "PlanSettings",
    "Resources",
    "Run",
    "Sampler",
    "Space",
    "Store",
    "SubmittedRun",
    "Training",
    "Trial",
    "WorkbenchError",
    "__version__",
    "advise",
    "app",
    "attach",
    "automl",
    "compare",
    "compare_table",
    "decide",
    "import_runs",
    "live",
    "load_bundle",
    "metric",
    "report",
    "submit",
    "sweep",
    "widgets",
]


def __getattr__(name: str) -> Any:
    home = _HOME_OF.get(name)
    if name == "widgets":
        return importlib.import_module("workbench.views.widgets")
    if home is None:
        raise AttributeError(f"module 'workbench' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"workbench.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
