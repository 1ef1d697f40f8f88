"""The dimensions of a plan, each declared once.

A declaration gives the default and the choices, how a value is written, whether it changes what is
computed, and why the advisor may try other values. The plans themselves are in `plan`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from workbench.foundation.errors import ExperimentError
from workbench.foundation.formatting import parse_bytes

PlanValue = int | str
AdvisedFor = Literal["speed", "memory", "nothing"]


@dataclass(frozen=True)
class Hardware:
    """The properties of the hardware that the default of a dimension can depend on.

    Attributes:
        has_gpu: Whether workers compute on GPUs.
        has_bf16: Whether the GPUs compute in bf16 at full speed.
        has_full_nodes: Whether there are several nodes, and at least one has several workers.
    """

    has_gpu: bool = False
    has_bf16: bool = False
    has_full_nodes: bool = False


@dataclass(frozen=True)
class Dimension:
    """The declaration of one dimension of a plan.

    Attributes:
        name: Name of the field, in Python, YAML and JSON.
        description: Help text, one sentence.
        default: The value for a stored plan that is older than the dimension.
        choices: The values that can be written. None means any whole number from `minimum` on, or
            any name of a registry if the default is text.
        minimum: The smallest number that can be written.
        unit: Unit of a number, or None.
        wording: How `Plan.describe` writes a value. "" for the sizes, which it writes as a product.
        wordings: How it writes single values, instead of `wording`.
        unmentioned: The value that `Plan.describe` does not mention.
        aliases: Names of the same setting in other tools.
        short_names: Names in the section `plan`. Elsewhere they can be parameters of a model.
        changes_result: Whether another value changes what is computed, not only how fast.
        advised_for: Why the advisor may try other values: for speed, to save memory if no plan fits
            otherwise, or not at all.
        candidates: The values to try if an experiment leaves the dimension open, by hardware. The
            first is the default. None for the sizes, which follow from the global batch.
        size_wording: How `Plan.describe` writes a size in bytes. None if a size cannot be written.
        option_of: The dimension whose values have this option. With other values it is 0.

    Raises:
        TypeError: If there are no candidates, and the dimension is not a size.
    """

    name: str
    description: str
    default: PlanValue
    choices: tuple[PlanValue, ...] | None = None
    minimum: int = 1
    unit: str | None = None
    wording: str = "{}"
    wordings: Mapping[PlanValue, str] = field(default_factory=dict)
    unmentioned: PlanValue | None = None
    aliases: tuple[str, ...] = ()
    short_names: tuple[str, ...] = ()
    changes_result: bool = False
    advised_for: AdvisedFor = "nothing"
    candidates: Callable[[Hardware], tuple[PlanValue, ...]] | None = None
    size_wording: str | None = None
    option_of: str | None = None

    def __post_init__(self) -> None:
        if self.candidates is None and self.wording:
            raise TypeError(
                f"The dimension {self.name} of a plan needs `candidates`. The first is its value if"
                " an experiment leaves it open."
            )

    @property
    def is_number(self) -> bool:
        """Whether values are whole numbers."""
        return isinstance(self.default, int)

    @property
    def is_size(self) -> bool:
        """Whether the dimension is a factor of the global batch."""
        return self.candidates is None

    @property
    def help(self) -> str:
        """The help text of forms and references."""
        if not self.changes_result:
            return self.description
        return f"{self.description} Changes the result, not only the speed."

    def accepts(self, value: object) -> bool:
        """Return whether the dimension can have a value."""
        if self.choices is not None:
            return value in self.choices or (
                self.size_wording is not None and size_bytes(value) is not None
            )
        if not self.is_number:
            return isinstance(value, str)
        if isinstance(value, bool) or not isinstance(value, int):
            return False
        # An option that does not apply is 0, even if its minimum is higher.
        return value >= self.minimum or (self.option_of is not None and value == 0)

    def describe(self, value: PlanValue) -> str:
        """Return the words for a value, or "" for the value that is not mentioned."""
        if self.size_wording is not None and size_bytes(value) is not None:
            return self.size_wording.format(value)
        if value == self.unmentioned:
            return ""
        words = self.wordings.get(value, self.wording).format(value)
        if value == 1:
            return words.removesuffix("s")
        return words


def size_bytes(value: object) -> int | None:
    """Return the bytes of a size above 0, or None for any other value.

    Args:
        value: The value, such as `500MB`.

    Example:
        >>> size_bytes("500MB"), size_bytes("blocks")
        (500000000, None)
    """
    if not isinstance(value, str):
        return None
    try:
        return parse_bytes(value) or None
    except ExperimentError:
        return None


def declare(default: PlanValue, description: str, **declared: Any) -> Any:
    """Declare a dimension.

    Args:
        default: As in `Dimension`.
        description: As in `Dimension`.
        **declared: The other attributes of `Dimension`.
    """
    declared |= {"default": default, "description": description}
    return dataclasses.field(default=default, metadata={"dimension": declared})


def declare_exchange_option(
    description: str,
    wording: str,
    *,
    unit: str | None = None,
    minimum: int = 1,
    short_names: tuple[str, ...],
) -> Any:
    """Declare an option that only some exchanges have. Arguments as in `Dimension`."""
    return declare(
        0,
        description,
        wording=wording,
        unit=unit,
        minimum=minimum,
        unmentioned=0,
        changes_result=True,
        advised_for="speed",
        candidates=lambda hardware: (0,),
        option_of="exchange",
        short_names=short_names,
    )


def _precisions(hardware: Hardware) -> tuple[PlanValue, ...]:
    if hardware.has_gpu and hardware.has_bf16:
        return ("bf16", "fp32")
    return ("fp32",)


def _compilers(hardware: Hardware) -> tuple[PlanValue, ...]:
    # Not "default": compiling can take longer than a whole training, so it has to be searched.
    if hardware.has_gpu:
        return ("none", "cuda_graphs")
    return ("none",)


def _exchanges(hardware: Hardware) -> tuple[PlanValue, ...]:
    # Only exact ones. The others need more steps to reach the same loss, so they have to be
    # searched.
    if hardware.has_full_nodes:
        return ("allreduce", "hierarchical")
    return ("allreduce",)


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
        candidates=_precisions,
    )
    strategy: str = declare(
        "single",
        "How workers make one step: single, ddp, zero1, fsdp, tensor, pipeline, or auto.",
        advised_for="memory",
        candidates=lambda hardware: ("ddp", "zero1", "fsdp"),
    )
    recompute: str = declare(
        "none",
        "What to compute again in the backward pass: none, all blocks, or the blocks beyond a size"
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
        "Compile the model with torch.compile (default), or replay its kernels (cuda_graphs).",
        choices=("none", "default", "cuda_graphs"),
        unmentioned="none",
        advised_for="speed",
        wordings={"default": "compiled", "cuda_graphs": "CUDA graphs"},
        candidates=_compilers,
    )
    memory_format: str = declare(
        "contiguous",
        "Memory format of images: contiguous, or channels_last, which often makes convolutions"
        " faster.",
        choices=("contiguous", "channels_last"),
        unmentioned="contiguous",
        wordings={"channels_last": "channels last"},
        advised_for="speed",
        candidates=lambda hardware: ("contiguous", "channels_last"),
    )
    loaders: int = declare(
        0,
        "Processes per worker that read, decode and augment samples ahead, 0 to do it within the"
        " step.",
        minimum=0,
        unit="processes",
        wording="{} loaders",
        unmentioned=0,
        aliases=("dataloader_num_workers",),
        advised_for="speed",
        # The advisor measures the cost of loading first, and proposes a number itself.
        candidates=lambda hardware: (0,),
    )
    stages: int = declare(
        1,
        "Workers that share one copy of the model, one stage each (pipeline).",
        wording="{} stages",
        unmentioned=1,
        advised_for="memory",
        candidates=lambda hardware: (1,),
    )
    tensor: int = declare(
        1,
        "Workers that share one copy of the model, each with a part of every large layer.",
        wording="{} tensor parts",
        unmentioned=1,
        aliases=("tensor_parallel_size",),
        advised_for="memory",
        candidates=lambda hardware: (1,),
    )
    shard: int = declare(
        0,
        "Replicas that divide the parameters among them (auto: all with fsdp, none with pipeline"
        " and tensor).",
        wording="shards on {} workers",
        minimum=2,
        unmentioned=0,
        option_of="strategy",
        candidates=lambda hardware: (0,),
    )
    bucket: str = declare(
        "default",
        "Size of the pieces in which ddp and zero1 exchange gradients (50MB), or torch's default.",
        choices=("default",),
        unmentioned="default",
        wording="{}",
        size_wording="buckets of {}",
        # The best size depends on the link between workers, so sizes have to be searched.
        advised_for="speed",
        candidates=lambda hardware: ("default",),
    )
    pipeline_schedule: str = declare(
        "1f1b",
        "Order in which a stage computes: 1f1b needs less memory than gpipe, zero_bubble waits"
        " least.",
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
        candidates=_exchanges,
    )
    exchange_rank: int = declare_exchange_option(
        "Rank of the approximation that powersgd sends for the gradient of a matrix (auto: 4).",
        "rank {}",
        short_names=("rank",),
    )
    exchange_compression: int = declare_exchange_option(
        "topk sends one of this many gradient values (auto: 100).",
        "1 in {}",
        unit="values",
        short_names=("compression",),
    )
    exchange_period: int = declare_exchange_option(
        "Steps between exchanges with local or diloco (auto: 8 or 32).",
        "every {} steps",
        unit="steps",
        short_names=("period",),
    )
    exchange_staleness: int = declare_exchange_option(
        "Steps that a replica may be behind the others with server, 0 for synchronous steps.",
        "up to {} steps stale",
        minimum=0,
        short_names=("staleness",),
    )
    exchange_servers: int = declare_exchange_option(
        "Replicas that each serve a part of the parameters with server or asynchronous (auto: 1).",
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
"""The dimensions that change the work itself, not how it is divided."""
EXCHANGE_OPTIONS: tuple[str, ...] = tuple(
    dimension.name for dimension in DIMENSIONS if dimension.option_of == "exchange"
)
"""The options that only some exchanges have."""
