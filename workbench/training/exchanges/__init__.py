"""How replicas of a model agree on what they train.

An exchange takes part in the steps of strategies that support it. It exchanges the gradients of the
replicas, or lets them step alone and exchanges their parameters. Placing the model and making the
steps is left to `strategies`, and choosing an exchange to `planning`.
"""

from __future__ import annotations

from workbench.foundation.registry import Registry

EXCHANGES = Registry(
    "exchange",
    {
        "allreduce": "workbench.training.exchanges.allreduce:AllReduce",
        "bf16": "workbench.training.exchanges.allreduce:HalfPrecision",
        "hierarchical": "workbench.training.exchanges.allreduce:Hierarchical",
        "powersgd": "workbench.training.exchanges.error_feedback:LowRank",
        "onebit": "workbench.training.exchanges.error_feedback:OneBit",
        "topk": "workbench.training.exchanges.error_feedback:Largest",
        "local": "workbench.training.exchanges.local:LocalSteps",
        "diloco": "workbench.training.exchanges.local:DiLoCo",
        "server": "workbench.training.exchanges.parameter_server:ParameterServer",
        "asynchronous": "workbench.training.exchanges.parameter_server:Asynchronous",
    },
    group="workbench.exchanges",
    needs=("capabilities",),
)
