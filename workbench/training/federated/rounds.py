"""One round of a federation on the workers of a trial.

Which clients take part, fail or are slow is drawn from seed and round. Worker by worker, each gets
the next client of the round. Every worker receives the updates of all clients, in their order, and
computes the server's step itself. So the result is the same, bit for bit, on any number of workers,
and the new weights need not be sent.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np
import torch
from torch import Tensor

from workbench.data.sample_seeding import seed_generators, seed_of
from workbench.experiment.federated import Federated, default_server_lr
from workbench.foundation.errors import ExperimentError
from workbench.training.assembly import Parts
from workbench.training.federated.clients import Clients
from workbench.training.federated.server import (
    SECRET_BYTES,
    Server,
    SumTooLargeError,
    from_fixed,
    krum,
    masked,
    pair_secret,
    to_fixed,
    trimmed_mean,
    unmasked_sum,
    weighted_mean,
)
from workbench.training.strategies.client_steps import ClientSteps
from workbench.training.tensor_source import WorkerBatch

_FLOAT_BYTES, _FIXED_BYTES = 4, 8
_DRAW_OF_ROUNDS = 0x0F3D
"""Makes these draws independent of other draws with the same seed."""


@dataclass(frozen=True)
class Participation:
    """One client in one round.

    Attributes:
        client: Number of the client, from 0.
        fails: Whether it fails, so that the server receives nothing.
        part: The part of its local training that it completes before the round ends, above 0 and at
            most 1.
    """

    client: int
    fails: bool
    part: float


@dataclass(frozen=True)
class Update:
    """The update of one client, and its measurements."""

    participation: Participation
    weights: np.ndarray
    num_samples: int
    loss_sum: float
    num_trained: int


@dataclass(frozen=True)
class RoundResult:
    """What happened in one round.

    Attributes:
        mean_loss: Mean over the samples that clients trained on, or None if no client finished.
        num_trained: Samples that clients trained on, counted once per pass.
        num_bytes: Bytes that clients received and sent.
        num_answered: Number of clients that sent something.
    """

    mean_loss: float | None
    num_trained: int
    num_bytes: int
    num_answered: int


class Rounds:
    """The server's model and the clients."""

    def __init__(self, parts: Parts, clients: Clients, seed: int) -> None:
        """Start with the weights of the strategy.

        Args:
            parts: Data, model and settings of the trial.
            clients: The samples of each client.
            seed: Seed of the training.
        """
        assert isinstance(parts.strategy, ClientSteps)
        assert parts.settings.federated is not None
        self._parts, self._clients, self._seed = parts, clients, seed
        self._strategy: ClientSteps = parts.strategy
        self._federated: Federated = parts.settings.federated
        self._server = _server(self._federated)
        self.load_weights(self._strategy.weights())
        trained = self._strategy.trained_names()
        self._sent = [
            name
            for name, value in self._weights.items()
            if value.is_floating_point() and name not in self._strategy.frozen_names()
        ]
        self._is_trained = np.concatenate(
            [np.full(self._weights[name].numel(), name in trained) for name in self._sent]
        )

    def run(self, number: int, lr: float) -> RoundResult:
        """Make one round. Afterwards, the strategy has the new weights.

        Args:
            number: Which round, from 0.
            lr: The learning rate of the clients.

        Raises:
            OverflowError: If the change of a client is not finite.
            ExperimentError: If the sum of masked changes could overflow.
        """
        federated, worker = self._federated, self._parts.worker
        drawn = draw_round(
            self._seed,
            number,
            num_clients=federated.clients,
            fraction=federated.fraction,
            failures=federated.failures,
            stragglers=federated.stragglers,
        )
        # A client that fails sends nothing, so its training need not be computed.
        finishing = [taking_part for taking_part in drawn if not taking_part.fails]
        own = [
            self._train(taking_part, number, lr)
            for taking_part in finishing[worker.rank :: worker.num_workers]
        ]
        result = _Sums()
        change = self._aggregate(result.follow(self._in_order(own, len(finishing))), drawn, number)
        # Drop the weights of the last client before the server's step.
        self._strategy.begin(self._weights, proximal=0.0)
        if change is not None:
            self._apply(change)
        num_bytes = self._num_bytes(len(drawn), result.num_answered)
        return RoundResult(result.mean_loss(), result.num_trained, num_bytes, result.num_answered)

    def state(self) -> dict[str, Any]:
        """Return the state for the next round, without the weights, as tensors."""
        return {name: torch.from_numpy(value) for name, value in self._server.state().items()}

    def load(self, weights: dict[str, Tensor], state: dict[str, Any]) -> None:
        """Load weights, and what `state` returned."""
        self._strategy.begin(weights, proximal=0.0)
        self.load_weights(weights)
        self._server.load({name: value.numpy() for name, value in state.items()})

    def load_weights(self, weights: dict[str, Tensor]) -> None:
        """Keep a copy of the weights of the server."""
        self._weights = {name: value.detach().clone() for name, value in weights.items()}

    def _train(self, taking_part: Participation, number: int, lr: float) -> Update | None:
        """Train one client. Everything random follows from seed, round and client.

        Returns:
            Its update, or None if it has not finished in time.
        """
        began_s = perf_counter()
        federated = self._federated
        train = self._parts.train
        settings = self._parts.settings
        shard = self._clients.train[taking_part.client]
        self._strategy.begin(self._weights, proximal=federated.proximal)
        seed = seed_of(self._seed, number, taking_part.client)
        seed_generators(seed)
        torch.manual_seed(seed)  # also seeds all GPUs
        per_epoch = -(-len(shard) // settings.step_batch)
        num_steps = math.ceil(taking_part.part * per_epoch * federated.local_epochs)
        order = shard
        loss_sum = torch.zeros((), dtype=torch.float64)
        num_trained = 0
        for step in range(num_steps):
            local_epoch, place = divmod(step, per_epoch)
            if place == 0:
                # Seeded by round, client and pass: the same order on any number of workers.
                if not self._parts.datasets.order.keeps_order:
                    order = np.random.default_rng([seed, local_epoch]).permutation(shard)
                train.epoch = number * federated.local_epochs + local_epoch
                train.seed = self._seed
            indices = order[place * settings.step_batch : (place + 1) * settings.step_batch]
            batch = WorkerBatch(train, indices, micro_batch=settings.plan.micro_batch)
            loss = self._strategy.forward_backward(batch)
            self._strategy.update(lr)
            loss_sum = loss_sum.to(loss.device) + loss.double() * len(indices)
            num_trained += len(indices)
            if federated.timeout is not None and perf_counter() - began_s > federated.timeout:
                return None
        weights = self._flat(self._strategy.weights())
        return Update(taking_part, weights, len(shard), loss_sum.item(), num_trained)

    def _in_order(self, own: list[Update | None], num_clients: int) -> Iterator[Update]:
        """Yield the updates of all clients, in their order. Each worker holds every n-th one."""
        worker = self._parts.worker
        for first in range(0, num_clients, worker.num_workers):
            turn = first // worker.num_workers
            sent = worker.group.gather(own[turn] if turn < len(own) else None)
            yield from (update for update in sent if update is not None)

    def _aggregate(
        self, updates: Iterator[Update], drawn: list[Participation], number: int
    ) -> np.ndarray | None:
        """Return the change that the server applies, or None if nobody with samples finished."""
        before = self._flat(self._weights).astype(np.float64)
        federated = self._federated
        if federated.secure:
            return self._add_up_masked(updates, before, drawn, number)
        if federated.aggregation == "mean":
            return weighted_mean(
                (update.weights - before, float(update.num_samples)) for update in updates
            )
        changes = [update.weights - before for update in updates if update.num_samples]
        if not changes:
            return None
        if federated.aggregation == "krum":
            return changes[krum(changes, federated.num_bad)]
        return trimmed_mean(changes, federated.trim)

    def _add_up_masked(
        self, updates: Iterator[Update], before: np.ndarray, drawn: list[Participation], number: int
    ) -> np.ndarray | None:
        numbers = [taking_part.client for taking_part in drawn]

        def secret(client: int, other: int) -> bytes:
            return pair_secret(self._seed, number, client, other)

        received = {}
        for update in updates:
            client = update.participation.client
            weight = float(update.num_samples)
            # The server only sees sums. So clients send weighted changes together with their
            # weights, and the server divides one sum by the other.
            change = np.append((update.weights - before) * weight, weight)
            try:
                values = to_fixed(change, num_clients=len(numbers))
            except SumTooLargeError as error:
                raise self._does_not_fit(error, client, update.num_samples, len(numbers)) from None
            others = {other: secret(client, other) for other in numbers if other != client}
            received[client] = masked(values, client, others)
        if not received:
            return None
        failed = [client for client in numbers if client not in received]
        revealed = {(client, gone): secret(client, gone) for client in received for gone in failed}
        total = from_fixed(unmasked_sum(received, revealed))
        if not total[-1]:
            return None
        return total[:-1] / total[-1]

    def _does_not_fit(
        self, error: SumTooLargeError, client: int, num_samples: int, num_clients: int
    ) -> ExperimentError:
        name = self._name_at(error.position)
        if name is None:
            problem = f"client {client} holds {error.value:,.0f} samples"
        else:
            problem = f"client {client} sends {error.value:.3g} for {name}"
            problem += f" (its change x {num_samples:,} samples)"
        return ExperimentError(
            f"{problem}, and the sum of the masked changes of {num_clients} clients could overflow",
            field="federated.secure",
            allowed=f"at most {error.bound:.3g} from each of {num_clients} clients",
            next_step=(
                "Scale the features to about 1, lower training.lr, let fewer clients take part in a"
                " round (federated.fraction), or remove federated.secure."
            ),
        )

    def _name_at(self, position: int) -> str | None:
        """Return the name of the weight at a position of a client's message.

        None if it is the number of samples.
        """
        for name in self._sent:
            position -= self._weights[name].numel()
            if position < 0:
                return name
        return None

    def _apply(self, change: np.ndarray) -> None:
        """Let the server make its step. Buffers, such as running means, are only averaged."""
        step = change.copy()
        step[self._is_trained] = self._server.step(change[self._is_trained])
        values = self._flat(self._weights).astype(np.float64) + step
        first = 0
        for name in self._sent:
            before = self._weights[name]
            part = values[first : first + before.numel()]
            self._weights[name] = torch.from_numpy(part).reshape(before.shape).to(before)
            first += before.numel()
        self._strategy.begin(self._weights, proximal=0.0)

    def _flat(self, weights: dict[str, Tensor]) -> np.ndarray:
        parts = [weights[name].detach().float().cpu().flatten() for name in self._sent]
        return torch.cat(parts).numpy()

    def _num_bytes(self, num_drawn: int, num_finished: int) -> int:
        """Return the bytes of weights that clients receive and send, and of revealed secrets."""
        num_values = len(self._is_trained)
        num_failed = num_drawn - num_finished
        per_value = _FIXED_BYTES if self._federated.secure else _FLOAT_BYTES
        num_bytes = num_values * (num_drawn * _FLOAT_BYTES + num_finished * per_value)
        if self._federated.secure:
            num_bytes += num_finished * (_FIXED_BYTES + num_failed * SECRET_BYTES)
        return num_bytes


def draw_round(
    seed: int, number: int, *, num_clients: int, fraction: float, failures: float, stragglers: float
) -> list[Participation]:
    """Draw the clients of a round, and which of them fail or are slow.

    Args:
        seed: Seed of the training.
        number: Which round, from 0.
        num_clients: Number of clients.
        fraction: Share of the clients that takes part. At least one client does.
        failures: Probability that such a client fails.
        stragglers: Probability that such a client completes only a part of its training.

    Returns:
        The clients, in the order of their numbers.
    """
    rng = np.random.default_rng([_DRAW_OF_ROUNDS, seed, number])
    num_drawn = min(num_clients, max(1, round(fraction * num_clients)))
    drawn = np.sort(rng.choice(num_clients, size=num_drawn, replace=False))
    fails = rng.random(num_drawn) < failures
    is_slow = rng.random(num_drawn) < stragglers
    parts = np.where(is_slow, 1.0 - rng.random(num_drawn), 1.0)
    return [
        Participation(int(client), bool(fail), float(part))
        for client, fail, part in zip(drawn, fails, parts, strict=True)
    ]


class _Sums:
    """Sums of the clients' measurements, in their order."""

    def __init__(self) -> None:
        self._loss_sum = 0.0
        self.num_trained = self.num_answered = 0

    def follow(self, updates: Iterator[Update]) -> Iterator[Update]:
        """Yield updates unchanged, and add up their measurements."""
        for update in updates:
            self._loss_sum += update.loss_sum
            self.num_trained += update.num_trained
            self.num_answered += 1
            yield update

    def mean_loss(self) -> float | None:
        """Return the mean over all samples, or None if there are none."""
        if not self.num_trained:
            return None
        return self._loss_sum / self.num_trained


def _server(federated: Federated) -> Server:
    lr = federated.server_lr
    if lr == "auto":
        lr = default_server_lr(federated.server)
    return Server(
        federated.server,
        lr,
        federated.server_momentum,
        federated.server_second_moment,
        federated.server_tau,
    )
