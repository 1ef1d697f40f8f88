"""Prepare for proposals while trials run, so that no worker waits for an import.

What is proposed does not depend on it: a proposal is a function of the history and a seed. No
proposal is made ahead: the trial whose end frees a worker is what the next one has to learn from.
One made before would treat that trial as still running, and which result it lacks would depend on
how fast the machine is: the same seed would no longer lead to the same trials.
"""

from __future__ import annotations

import contextlib
import threading
from importlib import import_module

from workbench.experiment import Experiment


def prepare_proposals(experiment: Experiment) -> threading.Thread:
    """Import in the background what later proposals and decisions of the pruner need.

    Args:
        experiment: What is tuned.

    Returns:
        The thread, started.
    """
    modules = (*experiment.sampler.kind.needs_later, *experiment.early_stop.kind.needs_later)
    thread = threading.Thread(target=_import_all, args=(modules,), name="proposals", daemon=True)
    thread.start()
    return thread


def _import_all(modules: tuple[str, ...]) -> None:
    for module in modules:
        with contextlib.suppress(ImportError):  # the proposal that needs it says so
            import_module(module)
