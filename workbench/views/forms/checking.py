"""Check an experiment that is still being written: whether it is valid, then whether it could run.

If it is not a valid experiment, all reasons are reported at once. Nothing is started and no model
is built.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from workbench.experiment import Experiment
from workbench.experiment.refusals import findings
from workbench.foundation.errors import ExperimentError, WorkbenchError


def check(
    document: Mapping[str, Any], payloads: Mapping[str, bytes], *, on_this_machine: bool = True
) -> tuple[Experiment | None, list[WorkbenchError]]:
    """Validate a document as an experiment, and check whether it could run.

    Args:
        document: The experiment as in its file.
        payloads: Bytes of embedded objects by their SHA-256.
        on_this_machine: Whether it is to run on this machine.

    Returns:
        The experiment, or None if it is invalid, and its problems; none if it could run.
    """
    try:
        experiment = Experiment(**document).with_payloads(payloads)
    except ExperimentError as error:
        cause = error.__cause__
        return None, (
            list(findings(cause, Experiment)) if isinstance(cause, ValidationError) else [error]
        )
    from workbench.sweeps.preflight import find_problems

    return experiment, list(find_problems(experiment, on_this_machine=on_this_machine))
