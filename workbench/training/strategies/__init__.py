"""How N workers make one optimizer step together. Each way has its own file.

A strategy owns the model and the optimizer during a training. It places them on the device, runs
forward and backward over the micro batches of a step, and updates. Batches, stopping and reports
are left to the training loop.

- The interface: `strategy`, `capabilities`, `worker_group`.
- Strategies: `single`, `ddp`, `fsdp`, `pipeline`, `tensor`, `client_steps`.
- Parts of strategies: `sequence`, `pipeline_order`, `tensor_shards`, `divided_optimizer`,
  `recompute`, `kept_blocks`.
- Steps of other kinds: `optimizer_phases`, `private_steps`, `counted_losses`, `weight_mean`.
- Measuring: `gradient_norms`.
"""

from __future__ import annotations

from workbench.foundation.registry import Registry

STRATEGIES = Registry(
    "strategy",
    {
        "single": "workbench.training.strategies.single:Single",
        "ddp": "workbench.training.strategies.ddp:DataParallel",
        "zero1": "workbench.training.strategies.divided_optimizer:DividedState",
        "fsdp": "workbench.training.strategies.fsdp:FullySharded",
        "tensor": "workbench.training.strategies.tensor:TensorParallel",
        "pipeline": "workbench.training.strategies.pipeline:Pipeline",
    },
    group="workbench.strategies",
    needs=("capabilities", "setup", "forward_backward", "update"),
)
