"""The data of an experiment; torch is loaded only where a person's own data does it."""

from __future__ import annotations

from workbench.data import Datasets, load
from workbench.experiment import Experiment


def load_datasets(experiment: Experiment) -> Datasets:
    """Load what an experiment trains on, divided as its seed says.

    Args:
        experiment: The experiment; it trains a model.

    Raises:
        ExperimentError: If the name or an option is wrong.
        DataError: If the data is missing or cannot be read or understood.
    """
    component = experiment.data
    assert component is not None
    data = component.load(field="data") if component.is_reference else component.name
    return load(data, component.options, seed=experiment.seed)
