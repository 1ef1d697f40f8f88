"""Loads the data of an experiment, once per process. Torch is only needed for your own data."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np
from pydantic import JsonValue

from workbench.data import Datasets, Split, load, with_searched_options
from workbench.data.batches import Groups
from workbench.data.conversations import RepeatedRows
from workbench.data.ordered_splits import OrderedSplit
from workbench.data.own_data import takes_training_seed
from workbench.data.splits import ArraySplit
from workbench.data.targets import known_targets, with_targets_as_inputs
from workbench.experiment import Component, Experiment
from workbench.experiment.searched_fields import data_params
from workbench.experiment.space import Domain
from workbench.foundation.errors import ExperimentError
from workbench.foundation.formatting import parse_count

_last_loaded: tuple[tuple[str, str, int, int | None, bool], Datasets] | None = None
_first_samples: tuple[tuple[str, str, int, int | None], tuple[int, str]] | None = None
_last_read: tuple[str, Callable[..., Any]] | None = None


def load_trial_data(
    run_id: str,
    experiment: Experiment,
    training_seed: int | None = None,
    params: Mapping[str, JsonValue] = MappingProxyType({}),
) -> Datasets:
    """Load the data of an experiment. Trials of a run on the same warm worker share it.

    Args:
        run_id: The run.
        experiment: The experiment. It must train a model.
        training_seed: Seed of the training, for data that takes it. None if nothing is trained.
        params: The configuration, which may set options of the data and the share of the training
            samples.

    Raises:
        ExperimentError: If the name or an option is wrong, or if your own data has other validation
            samples than with the first value of a searched option.
        DataError: If the data is missing or cannot be read or understood.
    """
    global _last_loaded
    assert experiment.data is not None
    component = with_searched_options(experiment.data, params)
    data = _read(component) if component.is_reference else component.name
    given = training_seed if callable(data) and takes_training_seed(data) else None
    feeds_targets = experiment.leaves_loss_to_model or experiment.makes_own_steps
    key = (run_id, component.model_dump_json(), experiment.seed, given, feeds_targets)
    if _last_loaded is None or _last_loaded[0] != key:
        _last_loaded = None
        loaded = load(data, component.options, seed=experiment.seed, training_seed=given)
        if callable(data) and data_params(params):
            _check_same_samples(loaded, run_id, data, experiment, given)
        _last_loaded = (key, with_targets_as_inputs(loaded) if feeds_targets else loaded)
    share = params.get("samples", experiment.training.samples)
    assert isinstance(share, int | float)
    datasets = with_share(_last_loaded[1], share, seed=experiment.seed)
    tokens: Any = parse_count(params.get("tokens", experiment.training.tokens))
    if tokens is None:
        return datasets
    num_parts: Any = params.get("epochs", experiment.training.epochs)
    return with_tokens(datasets, tokens, num_parts)


def _check_same_samples(
    loaded: Datasets,
    run_id: str,
    data: Callable[..., Any],
    experiment: Experiment,
    training_seed: int | None,
) -> None:
    """Reject your own data if an option changes what trials are validated on."""
    global _first_samples
    assert experiment.data is not None
    key = (run_id, experiment.data.model_dump_json(), experiment.seed, training_seed)
    searched = data_params(dict.fromkeys(experiment.search.root))
    if _first_samples is None or _first_samples[0] != key:
        first = {name: _first_value(experiment.search.root[name]) for name in searched}
        options = with_searched_options(experiment.data, first).options
        compared = load(data, options, seed=experiment.seed, training_seed=training_seed)
        _first_samples = (key, _validated(compared))
    if _validated(loaded) != _first_samples[1]:
        raise ExperimentError(
            f"{' and '.join(searched)} changes the validation samples, their order or their"
            " targets, so trials could not be compared",
            field=f"search.{next(iter(searched))}",
            next_step="Validate on the same samples for every value, with targets in one unit.",
        )


def _first_value(domain: Domain) -> JsonValue:
    values = domain.values()
    return values[0] if values else getattr(domain, "low", None)


def _validated(datasets: Datasets) -> tuple[int, str]:
    """Return the number of validation samples, and a hash of their targets if these are known."""
    targets = known_targets(datasets.validation)
    digest = "" if targets is None else hashlib.sha256(targets.tobytes()).hexdigest()
    return len(datasets.validation), digest


def _read(component: Component) -> Callable[..., Any]:
    """Return the function that returns the data.

    If it is embedded in the experiment, it may contain the data, so it is only read once.
    """
    global _last_read
    if component.payload_hash is None:
        return component.load(field="data")
    if _last_read is None or _last_read[0] != component.name:
        _last_read = None
        _last_read = (component.name, component.load(field="data"))
    return _last_read[1]


def with_share(datasets: Datasets, share: float, *, seed: int) -> Datasets:
    """Return data with only a share of the training samples.

    These are the first samples of a random order, so a larger share contains a smaller one.

    Args:
        datasets: The data. Validation and test stay as they are.
        share: In (0, 1]. At least one sample is used.
        seed: Decides which samples are used.

    Raises:
        ExperimentError: If a sampler or a stream chooses the samples, so none can be skipped.
    """
    if share == 1.0:
        return datasets
    split = datasets.train
    if isinstance(split, OrderedSplit):
        raise ExperimentError(
            "a share cannot be used, because the data has a sampler or is a stream",
            field="training.samples",
            allowed="1.0",
            next_step="Remove it, or let the data take a parameter that makes it smaller.",
        )
    order = np.random.default_rng(seed).permutation(len(split))
    indices = np.sort(order[: max(1, round(share * len(split)))])
    return dataclasses.replace(datasets, train=_chosen(split, indices))


def with_tokens(datasets: Datasets, num_tokens: int, num_parts: int) -> Datasets:
    """Return data whose epochs are equal parts of a number of tokens.

    A part ends within a pass over the samples, or holds several passes.

    Args:
        datasets: The data. Validation and test stay as they are.
        num_tokens: Tokens of all parts together, without padding.
        num_parts: Number of parts.

    Raises:
        ExperimentError: If the samples are not conversations, whose tokens are known.
    """
    split = datasets.train
    in_all = getattr(split, "num_tokens", None)
    if in_all is None:
        raise ExperimentError(
            f"{datasets.name} does not count the tokens of its samples",
            field="training.tokens",
            next_step="Set training.epochs instead, or use data: {name: conversations}.",
        )
    per_row = in_all / len(split)
    num_rows = max(1, round(num_tokens / num_parts / per_row))
    return dataclasses.replace(datasets, train=RepeatedRows(split, num_rows))


def _chosen(split: Split, indices: np.ndarray) -> Split:
    if isinstance(split, ArraySplit) and not isinstance(split.inputs, np.memmap):
        return ArraySplit(split.inputs[indices], split.targets[indices])
    return _ChosenSplit(split, indices)


@dataclass(frozen=True)
class _ChosenSplit:
    split: Any
    indices: np.ndarray = field(repr=False)

    def __len__(self) -> int:
        return len(self.indices)

    @property
    def draws_samples(self) -> bool:
        return getattr(self.split, "draws_samples", False)

    @property
    def num_tokens(self) -> float | None:
        num = getattr(self.split, "num_tokens", None)
        if num is None:
            return None
        return num * len(self) / len(self.split)

    @property
    def shuffle_groups(self) -> Groups | None:
        groups = getattr(self.split, "shuffle_groups", None)
        if groups is None:
            return None
        return groups._replace(of_sample=groups.of_sample[self.indices])

    def batch(self, indices: np.ndarray, **how: Any) -> tuple[Any, Any]:
        return self.split.batch(self.indices[indices], **how)
