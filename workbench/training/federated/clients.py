"""The clients of a federation: which samples each of them trains and is evaluated on.

Samples are divided at random, by class, or by the values of a column. Each way returns one sorted
array of sample numbers per client. Together, the arrays contain every sample exactly once. A client
may have no samples.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from workbench.data import Datasets, Split
from workbench.data.ordered_splits import OrderedSplit
from workbench.data.sample_seeding import seed_of
from workbench.data.targets import class_of_each
from workbench.experiment.federated import Federated
from workbench.foundation.errors import ExperimentError

_READ_AT_ONCE = 1024
_TRAIN, _VALIDATION = 1, 2
Shards = list[np.ndarray]


@dataclass(frozen=True)
class Clients:
    """The samples of each client.

    Attributes:
        train: The numbers of each client's training samples. A client may have none.
        validation: The numbers of each client's validation samples, divided in the same way.
    """

    train: Shards
    validation: Shards


def clients_of(datasets: Datasets, federated: Federated, seed: int) -> Clients:
    """Divide the samples of a data set among clients.

    Args:
        datasets: The data.
        federated: How to divide them.
        seed: Seed of the division.

    Raises:
        ExperimentError: If the data cannot be divided in this way.
    """
    if isinstance(datasets.train, OrderedSplit):
        raise ExperimentError(
            "samples with a fixed order cannot be divided among clients",
            field="data",
            next_step=(
                "Use a data set that is indexed by sample number, or remove the section federated."
            ),
        )
    if datasets.order.drops_last:
        raise ExperimentError(
            "the DataLoader of train has drop_last=True, but clients use all of their samples, so"
            " their last batch may be smaller",
            field="data",
            next_step="Remove drop_last, or remove the section federated.",
        )
    splits = {_TRAIN: datasets.train, _VALIDATION: datasets.validation}
    if federated.partition == "owners":
        return _owned(datasets, federated.clients)
    if federated.partition == "iid":
        shards = [
            iid(len(split), federated.clients, seed=seed_of(seed, part))
            for part, split in splits.items()
        ]
        return Clients(*shards)
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
            f"{datasets.name} does not say which client a sample belongs to",
            field="federated.partition",
            next_step=(
                "Set data.client to a column of a table, or data.client_folders for images, or give"
                " owners to your own Datasets."
            ),
        )
    train, validation = datasets.owners
    num_named = 1 + int(max(train.max(initial=-1), validation.max(initial=-1)))
    if num_named != num_clients:
        raise ExperimentError(
            f"there are {num_clients} clients, but the data has samples of {num_named}",
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
    """Return the class of each sample. Inputs are only read if targets are not in memory."""
    targets = getattr(split, "targets", None)
    if targets is None:
        numbers = np.arange(len(split))
        chunks = (numbers[at : at + _READ_AT_ONCE] for at in range(0, len(numbers), _READ_AT_ONCE))
        targets = np.concatenate([np.asarray(split.batch(chunk)[1]) for chunk in chunks])
    return class_of_each(targets, num_classes)


def iid(num_samples: int, num_clients: int, *, seed: int) -> Shards:
    """Divide samples at random into shards whose sizes differ by at most one.

    Args:
        num_samples: Number of samples.
        num_clients: Number of clients.
        seed: Seed of the division.
    """
    order = np.random.default_rng(seed).permutation(num_samples)
    return [np.sort(part) for part in np.array_split(order, num_clients)]


def dirichlet_shares(
    num_classes: int, num_clients: int, *, concentration: float, seed: int
) -> np.ndarray:
    """Draw which share of each class each client holds.

    Args:
        num_classes: Number of classes.
        num_clients: Number of clients.
        concentration: Concentration of the distribution. Below 1, a few clients hold most of a
            class. Large numbers give equal shares.
        seed: Seed of the draw.

    Returns:
        Shares of shape (classes, clients). Each row adds up to 1.

    Source: Hsu, Qi, Brown, "Measuring the Effects of Non-Identical Data Distribution", 2019.
    Divided by class, as in Li et al., "Federated Learning on Non-IID Data Silos", 2022.
    """
    rng = np.random.default_rng(seed)
    # A Dirichlet draw is a normalised row of gamma variables. Their logarithms do not underflow,
    # even for tiny concentrations.
    logs = np.log(rng.standard_gamma(concentration + 1.0, (num_classes, num_clients)))
    logs += np.log1p(-rng.random((num_classes, num_clients))) / concentration
    shares = np.exp(logs - logs.max(axis=1, keepdims=True))
    return shares / shares.sum(axis=1, keepdims=True)


def label_shares(num_classes: int, num_clients: int, *, num_labels: int, seed: int) -> np.ndarray:
    """Give each client the same number of classes, and divide a class equally among its clients.

    Args:
        num_classes: Number of classes.
        num_clients: Number of clients. Together they hold every class, so clients x labels must be
            at least the number of classes.
        num_labels: Classes of a client, at most `num_classes`.
        seed: Seed of the draw.

    Returns:
        Shares of shape (classes, clients). Each row adds up to 1.
    """
    assert num_labels <= num_classes <= num_clients * num_labels
    rng = np.random.default_rng(seed)
    order, clients = rng.permutation(num_classes), rng.permutation(num_clients)
    held = np.zeros((num_classes, num_clients))
    dealt = order[np.arange(num_clients * num_labels) % num_classes].reshape(
        num_clients, num_labels
    )
    for client, classes in zip(clients, dealt, strict=True):
        held[classes, client] = 1.0
    return held / held.sum(axis=1, keepdims=True)


def by_shares(classes: np.ndarray, shares: np.ndarray, *, seed: int) -> Shards:
    """Divide samples so that each client holds its share of each class.

    Args:
        classes: The class of each sample, from 0.
        shares: (classes, clients), from `dirichlet_shares` or `label_shares`.
        seed: Seed of the division.
    """
    rng = np.random.default_rng(seed)
    parts: list[list[np.ndarray]] = [[] for _ in range(shares.shape[1])]
    for number, row in enumerate(shares):
        members = rng.permutation(np.flatnonzero(classes == number))
        ends = np.rint(np.cumsum(row) * len(members)).astype(int)
        ends[-1] = len(members)
        for part, members_held in zip(parts, np.split(members, ends[:-1]), strict=True):
            part.append(members_held)
    return [np.sort(np.concatenate(part)) for part in parts]


def by_owner(owners: np.ndarray, num_clients: int) -> Shards:
    """Divide samples by the client that each sample belongs to.

    Args:
        owners: The client of each sample, from 0.
        num_clients: Number of clients.
    """
    return [np.flatnonzero(owners == client) for client in range(num_clients)]
