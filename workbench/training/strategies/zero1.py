"""Every worker holds the whole model and a share of the optimizer's state.

Source: Rajbhandari et al. 2020, "ZeRO: Memory Optimizations Toward Training Trillion Parameter
Models".
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import Any, cast

from torch import nn

from workbench.training.strategies.capabilities import BUILT_IN
from workbench.training.strategies.ddp import DataParallel
from workbench.training.strategies.divided_optimizer import DividedOptimizer
from workbench.training.strategies.strategy import OptimizerFactory, Worker


class DividedState(DataParallel):
    """The step of `ddp`, with the state of the optimizer divided among the workers."""

    capabilities = BUILT_IN["zero1"]

    def setup(self, model: nn.Module, optimizer: OptimizerFactory, worker: Worker) -> None:
        """Place the model and make the optimizer. See Strategy.setup."""
        divided: Any = functools.partial(DividedOptimizer, optimizer, group=worker.group)
        super().setup(model, divided, worker)

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Compute without the other workers in this context. See Probeable.alone."""
        optimizer = cast(DividedOptimizer, self._optimizer)
        optimizer.is_alone = True
        try:
            with super().alone():
                yield
        finally:
            optimizer.is_alone = False
