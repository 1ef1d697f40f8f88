"""Which client holds which samples: at random, by class, or by the values of a column.

Each function returns one sorted array of sample numbers per client. Together they hold every sample
exactly once; a client may hold none.
"""

from __future__ import annotations

import numpy as np

Shards = list[np.ndarray]


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
        concentration: Of the distribution: below 1, most of a class is with few clients; large
            numbers give equal shares.
        seed: Seed of the draw.

    Returns:
        (classes, clients); each row adds up to 1.

    Source: Hsu, Qi, Brown, "Measuring the Effects of Non-Identical Data Distribution", 2019; by
    class as in Li et al., "Federated Learning on Non-IID Data Silos", 2022.
    """
    rng = np.random.default_rng(seed)
    # Of gamma variables, whose logarithms do not underflow as those of tiny concentrations do.
    logs = np.log(rng.standard_gamma(concentration + 1.0, (num_classes, num_clients)))
    logs += np.log1p(-rng.random((num_classes, num_clients))) / concentration
    shares = np.exp(logs - logs.max(axis=1, keepdims=True))
    return shares / shares.sum(axis=1, keepdims=True)


def label_shares(num_classes: int, num_clients: int, *, num_labels: int, seed: int) -> np.ndarray:
    """Give each client the same number of classes; the clients of a class hold equal shares of it.

    Args:
        num_classes: Number of classes.
        num_clients: Number of clients; together they hold every class, so clients x labels >=
            classes.
        num_labels: Classes of a client; at most `num_classes`.
        seed: Seed of the draw.

    Returns:
        (classes, clients); each row adds up to 1.
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
        for part, found in zip(parts, np.split(members, ends[:-1]), strict=True):
            part.append(found)
    return [np.sort(np.concatenate(part)) for part in parts]


def by_owner(owners: np.ndarray, num_clients: int) -> Shards:
    """Divide samples by the client that each belongs to.

    Args:
        owners: The client of each sample, from 0.
        num_clients: Number of clients.
    """
    return [np.flatnonzero(owners == client) for client in range(num_clients)]
