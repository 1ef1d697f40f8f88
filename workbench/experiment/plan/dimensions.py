"""Every dimension of a plan, declared once; plans themselves are made in the package.

Each field states its default and choices, how it is written, whether it changes what is computed,
and whether the advisor may try other values.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from workbench.experiment.plan.dimension import Dimension, declare, declare_exchange_option


@dataclass(frozen=True)
class Dimensions:
    """The values of all dimensions."""

    workers: int = declare(
        1,
        "Processes that make each step of a trial together.",
        wording="",
        aliases=("num_workers",),
        advised_for="speed",
    )
    micro_batch: int = declare(
        1,
        "Samples that one worker takes at once.",
        unit="samples",
        wording="",
        aliases=("per_device_train_batch_size", "micro_batch_size"),
        advised_for="speed",
    )
    accumulation: int = declare(
        1,
        "Micro batches per optimizer step.",
        wording="",
        aliases=("gradient_accumulation_steps", "accumulate_grad_batches"),
        advised_for="speed",
    )
    precision: str = declare(
        "fp32",
        "Type of the arithmetic.",
        choices=("fp32", "bf16", "fp16"),
        changes_result=True,
        advised_for="speed",
        candidates=lambda hardware: (
            ("bf16", "fp32") if hardware.has_gpu and hardware.has_bf16 else ("fp32",)
        ),
    )
    strategy: str = declare(
        "single",
        "How workers make one step: single, ddp, zero1, fsdp, tensor, pipeline, or auto.",
        advised_for="memory",
        candidates=lambda hardware: ("ddp", "zero1", "fsdp"),
    )
    recompute: str = declare(
        "none",
        "What is computed again in the backward pass: none, all blocks, or those not kept in a size"
        " (2GB).",
        choices=("none", "blocks"),
        unmentioned="none",
        wording="{} recomputed",
        size_wording="at most {} kept",
        advised_for="memory",
        candidates=lambda hardware: ("none", "blocks"),
    )
    compile: str = declare(
        "none",
        "Whether torch.compile makes code for the model (default), or kernels are replayed"
        " (cuda_graphs).",
        choices=("none", "default", "cuda_graphs"),
        unmentioned="none",
        advised_for="speed",
        wordings={"default": "compiled", "cuda_graphs": "CUDA graphs"},
        # Compiling may take longer than a whole training: it is compared where an experiment
        # searches it.
        candidates=lambda hardware: ("none", "cuda_graphs") if hardware.has_gpu else ("none",),
    )
    memory_format: str = declare(
        "contiguous",
        "How images lie in memory: contiguous, or channels_last, in which convolutions are often"
        " faster.",
        choices=("contiguous", "channels_last"),
        unmentioned="contiguous",
        wordings={"channels_last": "channels last"},
        advised_for="speed",
        candidates=lambda hardware: ("contiguous", "channels_last"),
    )
    loaders: int = declare(
        0,
        "Processes of each worker that read, decode and augment samples ahead; 0 loads within the"
        " step.",
        minimum=0,
        unit="processes",
        wording="{} loaders",
        unmentioned=0,
        aliases=("dataloader_num_workers",),
        advised_for="speed",
        # What loading costs is measured before any number is tried.
        candidates=lambda hardware: (0,),
    )
    stages: int = declare(
        1,
        "Workers that hold one copy of the model together, a stage each (pipeline).",
        wording="{} stages",
        unmentioned=1,
        advised_for="memory",
        candidates=lambda hardware: (1,),
    )
    tensor: int = declare(
        1,
        "Workers that hold one copy of the model together, a part of each large layer each.",
        wording="{} tensor parts",
        unmentioned=1,
        aliases=("tensor_parallel_size",),
        advised_for="memory",
        candidates=lambda hardware: (1,),
    )
    shard: int = declare(
        0,
        "Replicas that divide parameters among them; auto: all with fsdp, none with pipeline and"
        " tensor.",
        wording="shards on {} workers",
        minimum=2,
        unmentioned=0,
        option_of="strategy",
        candidates=lambda hardware: (0,),
    )
    bucket: str = declare(
        "default",
        "Size of the pieces in which ddp and zero1 exchange gradients (50MB), or default: as torch"
        " does.",
        choices=("default",),
        unmentioned="default",
        wording="{}",
        size_wording="buckets of {}",
        # What a size costs depends on the link: sizes are compared where an experiment searches
        # them.
        advised_for="speed",
        candidates=lambda hardware: ("default",),
    )
    pipeline_schedule: str = declare(
        "1f1b",
        "In which order a stage computes: 1f1b holds less than gpipe, zero_bubble waits less than"
        " both.",
        choices=("1f1b", "gpipe", "zero_bubble"),
        unmentioned="1f1b",
        short_names=("schedule",),
        advised_for="speed",
        candidates=lambda hardware: ("1f1b", "zero_bubble"),
    )
    exchange: str = declare(
        "allreduce",
        "How replicas agree: allreduce, hierarchical, bf16, powersgd, onebit, topk, local, diloco,"
        " server...",
        wording="{} exchange",
        unmentioned="allreduce",
        changes_result=True,
        advised_for="speed",
        # Others need more steps to the same loss: they are compared where an experiment searches
        # them.
        candidates=lambda hardware: (
            "allreduce",
            *(("hierarchical",) if hardware.has_full_nodes else ()),
        ),
    )
    exchange_rank: int = declare_exchange_option(
        "Rank of the approximation that powersgd sends for the gradient of a matrix; auto: 4.",
        "rank {}",
        short_names=("rank",),
    )
    exchange_compression: int = declare_exchange_option(
        "topk sends one of this many gradient values; auto: 100.",
        "1 in {}",
        unit="values",
        short_names=("compression",),
    )
    exchange_period: int = declare_exchange_option(
        "Steps after which replicas agree with local or diloco; auto: 8 or 32.",
        "every {} steps",
        unit="steps",
        short_names=("period",),
    )
    exchange_staleness: int = declare_exchange_option(
        "Steps that a replica may be behind the others with server; 0: none, as in a synchronous"
        " step.",
        "up to {} steps stale",
        minimum=0,
        short_names=("staleness",),
    )
    exchange_servers: int = declare_exchange_option(
        "Replicas that each serve a part of the parameters, with server or asynchronous; auto: 1.",
        "{} servers",
        short_names=("servers",),
    )


DIMENSIONS: tuple[Dimension, ...] = tuple(
    Dimension(field.name, **field.metadata["dimension"]) for field in dataclasses.fields(Dimensions)
)
"""Every dimension of a plan, in the order in which it is written."""
BY_NAME = {dimension.name: dimension for dimension in DIMENSIONS}
NAMES: tuple[str, ...] = tuple(BY_NAME)
SIZES: tuple[str, ...] = tuple(dimension.name for dimension in DIMENSIONS if dimension.is_size)
"""The factors of the global batch."""
VARIANT: tuple[Dimension, ...] = tuple(
    dimension for dimension in DIMENSIONS if not dimension.is_size
)
"""What changes the work itself rather than how it is divided."""
EXCHANGE_OPTIONS: tuple[str, ...] = tuple(
    dimension.name for dimension in DIMENSIONS if dimension.option_of == "exchange"
)
"""What belongs to some exchanges only."""
