"""Trains one client after another in the same process, each from the weights of its round."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from workbench.training.strategies.capabilities import BUILT_IN, Capabilities
from workbench.training.strategies.single import Single
from workbench.training.strategies.strategy import OptimizerFactory, Worker


class ClientSteps(Single):
    """Steps of a single worker, which starts again for each client.

    The loss may pull the weights towards the weights of the round (FedProx).
    """

    capabilities: ClassVar[Capabilities] = BUILT_IN["single"]

    def setup(self, model: nn.Module, optimizer: OptimizerFactory, worker: Worker) -> None:
        """Place the model and make the optimizer. See Strategy.setup."""
        super().setup(model, optimizer, worker)
        self._fresh = super().state()
        self._anchor: list[Tensor] = []
        self._proximal = 0.0

    def begin(self, weights: dict[str, Any], *, proximal: float) -> None:
        """Start a client from the weights of a round, with a fresh optimizer.

        Args:
            weights: State of the model.
            proximal: Weight of half the squared distance to `weights` in the loss, or 0 for none.
        """
        self.load({**self._fresh, "model": weights})
        self._proximal = proximal
        self._anchor = []
        if proximal:
            self._anchor = [item.detach().clone() for item in self._parameters]

    def weights(self) -> dict[str, Tensor]:
        """Return the state of the model. Its tensors change with the next step."""
        return self._model.state_dict()

    def trained_names(self) -> frozenset[str]:
        """Return the names of the parameters that steps change."""
        return frozenset(name for name, item in self._named() if item.requires_grad)

    def frozen_names(self) -> frozenset[str]:
        """Return the names of the parameters that steps do not change."""
        return frozenset(name for name, item in self._named() if not item.requires_grad)

    def close(self) -> None:
        """Drop the model and everything that belongs to it. See Strategy.close."""
        self._fresh, self._anchor = {}, []
        super().close()

    def _named(self) -> Iterator[tuple[str, nn.Parameter]]:
        return self._model.named_parameters(remove_duplicate=False)

    def _forward(self, inputs: Any, targets: Any) -> Tensor | tuple[Tensor, Tensor | int]:
        """Return the loss with the proximal term.

        Source: Li et al., "Federated Optimization in Heterogeneous Networks", 2020 (FedProx).
        """
        loss = super()._forward(inputs, targets)
        if not self._proximal:
            return loss
        pairs = zip(self._parameters, self._anchor, strict=True)
        distance = torch.stack([(item - anchor).square().sum() for item, anchor in pairs]).sum()
        term = 0.5 * self._proximal * distance
        if isinstance(loss, tuple):
            # The total is divided by the count later, and the term must survive that.
            total, count = loss
            return total + term * count, count
        return loss + term
