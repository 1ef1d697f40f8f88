"""What is wrong in an experiment that somebody is still writing: everything that its types find, and more.

First what makes it no experiment, all of it at once; then, where there is an experiment, what keeps it from
running. Nothing is started and no model is built.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from workbench.errors import ExperimentError, WorkbenchError
from workbench.experiment import Experiment
from workbench.experiment.refusals import findings


def check(
    document: Mapping[str, Any], payloads: Mapping[str, bytes], *, on_this_machine: bool = True
) -> tuple[Experiment | None, list[WorkbenchError]]:
    """Read a document as an experiment and hold it against what there is.

    Args:
        document: The experiment as its file would say it.
        payloads: Bytes of embedded objects, by their SHA-256.
        on_this_machine: Whether it is to run here.

    Returns:
        The experiment, None where it is none, and what is wrong; nothing where it could run.
    """
    try:
        experiment = Experiment(**document).with_payloads(payloads)
    except ExperimentError as error:
        cause = error.__cause__
        return None, list(findings(cause, Experiment)) if isinstance(cause, ValidationError) else [error]
    from workbench.sweeps import preflight

    try:
        preflight.check(experiment, on_this_machine=on_this_machine)
    except WorkbenchError as error:
        return experiment, [error]
    return experiment, []
