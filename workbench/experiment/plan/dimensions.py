"""What a dimension of a plan declares, and every dimension, declared once.

Each states its default and choices, how it is written, whether it changes what is computed, and
whether the advisor may try other values, and why. Plans themselves are made in `plan`.
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
    """What the default of a dimension may depend on.

    Attributes:
        has_gpu: Whether workers compute on GPUs.
        has_bf16: Whether these compute in bf16 at full speed.
        has_full_nodes: Whether there are several nodes, one of which holds several workers.
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
        default: The value of an old stored plan that does not have the dimension.
        choices: The values that may be written; None for any whole number from `minimum` on, or,
            where the default is a text, any name of a registry.
        minimum: The smallest number that may be written.
        unit: Unit of a number; None where it has none.
        wording: How `Plan.describe` writes a value; "" for the sizes, which it writes as a product.
        wordings: How it writes the values that have words of their own.
        unmentioned: The value that `Plan.describe` leaves out.
        aliases: Names of the same setting in other tools.
        short_names: Names in the section `plan`; elsewhere they may be parameters of a model.
        changes_result: Whether another value changes what is computed, not only how fast.
        advised_for: Why the advisor may try other values: for speed, to save memory where plans do
            not fit otherwise, or for nothing.
        candidates: The values that are tried where an experiment leaves the dimension open, by
            hardware. The first is the default. None for the sizes, which follow from the global
            batch.
        size_wording: How `Plan.describe` writes a size in bytes, which may be written besides
            choices; None where it may not.
        option_of: Name of the dimension to some values of which it belongs; at the others it is 0.

    Raises:
        TypeError: If there are no candidates, and it is none of the sizes.
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
                f"The dimension {self.name} of a plan needs `candidates`, of which the first is its"
                " value where an experiment leaves it open."
            )

    @property
    def is_number(self) -> bool:
        """Whether values are whole numbers."""
        return isinstance(self.default, int)

    @property
    def is_size(self) -> bool:
        """Whether it is a factor of the global batch."""
        return self.candidates is None

    @property
    def help(self) -> str:
        """The help text of forms and references."""
        also = " Changes the result, not only the speed." if self.changes_result else ""
        return self.description + also

    def accepts(self, value: object) -> bool:
        """Return whether a value is one of this dimension."""
        if self.choices is not None:
            return value in self.choices or (
                self.size_wording is not None and size_bytes(value) is not None
            )
        if isinstance(value, bool) or not isinstance(value, int if self.is_number else str):
            return False
        is_none = self.option_of is not None and value == 0
        return is_none or not isinstance(value, int) or value >= self.minimum

    def describe(self, value: PlanValue) -> str:
        """Return the words for a value; "" for one that goes without saying."""
        if self.size_wording is not None and size_bytes(value) is not None:
            return self.size_wording.format(value)
        wording = self.wordings.get(value, self.wording)
        words = "" if value == self.unmentioned else wording.format(value)
        return words.removesuffix("s") if value == 1 else words


def size_bytes(value: object) -> int | None:
    """Return the bytes of a size greater than 0; None for any other value.

    Example:
        >>> size_bytes("500MB"), size_bytes("blocks")
        (500000000, None)
    """
    try:
        found = parse_bytes(value) if isinstance(value, str) else 0
    except ExperimentError:
        return None
    return found or None


def declare(default: PlanValue, description: str, **declared: Any) -> Any:
    """Declare a dimension; arguments as the attributes of `Dimension`."""
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
    """Declare what belongs to some exchanges only."""
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
