"""The clients of a federation.

Which samples of the loaded data each of them trains and is evaluated on.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from workbench.data import Datasets, Split
from workbench.data.class_targets import class_of_each
from workbench.data.draws import seed_of
from workbench.data.ordered import OrderedSplit
from workbench.experiment.federated import Federated
from workbench.foundation.errors import ExperimentError
from workbench.training.federated.partitions import (
    Shards,
    by_owner,
    by_shares,
    dirichlet_shares,
    iid,
    label_shares,
)

_READ_AT_ONCE = 1024
_TRAIN, _VALIDATION = 1, 2


@dataclass(frozen=True)
class Clients:
    """Who holds what.

    Attributes:
        train: The numbers of each client's training samples; a client may have none.
        validation: The same of the validation samples, divided in the same way.
    """

    train: Shards
    validation: Shards


def clients_of(datasets: Datasets, federated: Federated, seed: int) -> Clients:
    """Divide the samples of a data set among clients.

    Args:
        datasets: The data.
        federated: States how.
        seed: Seed of the division.

    Raises:
        ExperimentError: If the data cannot be divided in this way.
    """
    if isinstance(datasets.train, OrderedSplit):
        raise ExperimentError(
            "samples that come in an order of their own cannot be divided among clients",
            field="data",
            next_step=(
                "Give a data set that is indexed by sample number, or remove the section federated."
            ),
        )
    if datasets.order.drops_last:
        raise ExperimentError(
            "the DataLoader of train has drop_last=True, but clients use all their samples: a last"
            " batch of theirs is smaller",
            field="data",
            next_step="Leave drop_last out, or remove the section federated.",
        )
    splits = {_TRAIN: datasets.train, _VALIDATION: datasets.validation}
    if federated.partition == "owners":
        return _owned(datasets, federated.clients)
    if federated.partition == "iid":
        found = [
            iid(len(split), federated.clients, seed=seed_of(seed, part))
            for part, split in splits.items()
        ]
        return Clients(*found)
    if datasets.task != "classification":
        raise ExperimentError(
            f"the samples of {datasets.name} have no classes to divide them by",
            field="federated.partition",
            allowed="iid or owners",
        )
    shares = _shares(federated, datasets.num_outputs, seed)
    parts = [
        by_shares(_classes(split, datasets.num_outputs), shares, seed=seed_of(seed, part))
        for part, split in splits.items()
    ]
    return Clients(*parts)


def _owned(datasets: Datasets, num_clients: int) -> Clients:
    if datasets.owners is None:
        raise ExperimentError(
            f"{datasets.name} does not name the client that holds a sample",
            field="federated.partition",
            next_step=(
                "Set data.client to a column of a table or data.client_folders of images, or give"
                " your own Datasets owners."
            ),
        )
    train, validation = datasets.owners
    num_named = 1 + int(max(train.max(initial=-1), validation.max(initial=-1)))
    if num_named != num_clients:
        raise ExperimentError(
            f"{num_clients} clients, but the data name {num_named}",
            field="federated.clients",
            allowed=str(num_named),
        )
    return Clients(by_owner(train, num_clients), by_owner(validation, num_clients))


def _shares(federated: Federated, num_classes: int, seed: int) -> np.ndarray:
    partition, num_clients = federated.partition, federated.clients
    assert not isinstance(partition, str)
    if partition.dirichlet is not None:
        return dirichlet_shares(
            num_classes, num_clients, concentration=partition.dirichlet, seed=seed
        )
    assert partition.labels is not None
    least = -(-num_classes // num_clients)
    if not least <= partition.labels <= num_classes:
        raise ExperimentError(
            f"{num_clients} clients with {partition.labels} classes each cannot hold {num_classes}"
            " classes",
            field="federated.partition.labels",
            allowed=f"from {least} to {num_classes}",
        )
    return label_shares(num_classes, num_clients, num_labels=partition.labels, seed=seed)


def _classes(split: Split, num_classes: int) -> np.ndarray:
    """Return the class of each sample; without reading inputs where the split holds its targets."""
    targets = getattr(split, "targets", None)
    if targets is None:
        numbers = np.arange(len(split))
        chunks = (numbers[at : at + _READ_AT_ONCE] for at in range(0, len(numbers), _READ_AT_ONCE))
        targets = np.concatenate([np.asarray(split.batch(chunk)[1]) for chunk in chunks])
    return class_of_each(targets, num_classes)
