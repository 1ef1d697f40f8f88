"""Stored experiments whose sampler or pruner comes from a package that is not installed here.

They can be read, shown and reported; running them is refused with the name of what is missing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from workbench.experiment import Experiment
from workbench.experiment.dotted import SHORT_FORMS
from workbench.experiment.pruners import PRUNERS
from workbench.experiment.samplers import SAMPLERS
from workbench.experiment.search_methods import EarlyStop, Sampler
from workbench.experiment.setting_types import Section
from workbench.foundation.errors import ExperimentError, WorkbenchError
from workbench.foundation.registry import Registry

# The sampler of stored experiments that name none: the default when they were stored.
_UNWRITTEN_SAMPLER = "tpe"


def write_stored(experiment: Experiment) -> str:
    """Return the JSON of an experiment as the store keeps it.

    It names the sampler even if that is the default, which has been another one before.
    """
    document = experiment.model_dump(mode="json")
    return json.dumps({"sampler": {"name": experiment.sampler.name}} | document)


def read_stored(written: str) -> Experiment:
    """Read an experiment that was valid when it was stored.

    Args:
        written: Its JSON.

    Raises:
        ExperimentError: If this version cannot read it, for any other reason than a missing
            package.
    """
    return read_document({"sampler": _UNWRITTEN_SAMPLER} | json.loads(written))


def read_document(document: Mapping[str, Any]) -> Experiment:
    """Read an experiment that was valid where its sampler and pruner are installed.

    Args:
        document: Its settings.

    Raises:
        ExperimentError: If this version cannot read it, for any other reason than a missing
            package.
    """
    absent = _absent_sections(document)
    found = Experiment(**{key: value for key, value in document.items() if key not in absent})
    return found.model_copy(update=absent) if absent else found


def check_installed(experiment: Experiment) -> None:
    """Check that the sampler and the pruner of an experiment are installed here.

    Raises:
        ExperimentError: If one is not.
    """
    named = (
        (SAMPLERS, experiment.sampler.name, "sampler.name"),
        (PRUNERS, experiment.early_stop.pruner, "early_stop.pruner"),
    )
    for registry, name, field in named:
        if (problem := _problem_of(registry, name)) is not None:
            raise ExperimentError(
                f"the {registry.kind} {name!r} is not installed here: {problem}",
                field=field,
                next_step="Install the package that provides it, here and where the run is driven.",
            )


def _absent_sections(document: Mapping[str, Any]) -> dict[str, Section]:
    absent: dict[str, Section] = {}
    sampler = _fields_of(document, "sampler")
    if _is_absent(SAMPLERS, sampler.get("name")):
        absent["sampler"] = Sampler.model_construct(**sampler)
    early_stop = _fields_of(document, "early_stop")
    if _is_absent(PRUNERS, early_stop.get("pruner")):
        absent["early_stop"] = EarlyStop.model_construct(**early_stop)
    return absent


def _fields_of(document: Mapping[str, Any], section: str) -> dict[str, Any]:
    """Return the fields of a section that may be written as one name."""
    written = document.get(section)
    if isinstance(written, str):
        return {SHORT_FORMS[section]: written}
    return dict(written) if isinstance(written, Mapping) else {}


def _is_absent(registry: Registry, name: object) -> bool:
    return isinstance(name, str) and _problem_of(registry, name) is not None


def _problem_of(registry: Registry, name: str) -> str | None:
    """Return why a name of a registry cannot be used here; None if it can."""
    try:
        registry.load(name)
    except WorkbenchError as error:
        return error.problem
    return None
