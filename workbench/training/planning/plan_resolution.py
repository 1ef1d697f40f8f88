"""The plan of one trial. Dimensions that the experiment does not decide get their defaults."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import JsonValue

from workbench.experiment import Training
from workbench.experiment.plan import EXCHANGE_OPTIONS, VARIANT, Hardware, PartialPlan, Plan
from workbench.experiment.plan.dimensions import size_bytes
from workbench.foundation.errors import ExperimentError
from workbench.training.exchanges import EXCHANGES
from workbench.training.exchanges.capabilities import USUAL, with_options
from workbench.training.exchanges.capabilities import capabilities_of as exchange_capabilities
from workbench.training.strategies import STRATEGIES
from workbench.training.strategies.capabilities import (
    BY_AXIS,
    capabilities_of,
    conflict_in,
    strategies_that,
    strategy_on,
)


def resolve_plan(
    training: Training,
    written: PartialPlan,
    *,
    num_train_samples: int | None,
    hardware: Hardware | None,
    params: Mapping[str, JsonValue],
) -> Plan:
    """Return the complete plan of a trial.

    Args:
        training: The training section, with searched values in place.
        written: The decided part of the plan.
        num_train_samples: Samples to train on, or None if not known yet.
        hardware: The hardware of the workers. None means unknown, which gives the CPU defaults.
        params: The configuration of the trial, so that errors point to the field in which a value
            was written.

    Raises:
        ExperimentError: If values contradict each other. It has the dotted field.
    """
    written = _with_axes(written, params)
    sizes = divide_batch(training, written, num_train_samples, params)
    assert sizes.workers is not None
    chosen = {
        dimension.name: dimension.candidates(hardware or Hardware())[0]
        for dimension in VARIANT
        if dimension.candidates is not None
    }
    if training.private is not None:
        chosen["precision"] = "fp32"  # gradients of single samples are only computed in fp32
    chosen["strategy"] = strategy_on(str(chosen["strategy"]), sizes.workers)
    decided = PartialPlan.of(**chosen) | written | sizes
    _check_options(decided, params)
    plan = with_options(decided).complete()
    assert plan is not None
    _check_precision(plan, hardware, params)
    _check_gpu(plan, hardware, params)
    _check_strategy(plan, params)
    _check_shard(plan, params)
    _check_combination(plan, params)
    _check_bucket(plan, params)
    _check_gradient_hook(plan, training, params)
    _check_exchange(plan, training, params)
    return plan


def divide_batch(
    training: Training,
    written: PartialPlan,
    num_train_samples: int | None,
    params: Mapping[str, JsonValue],
) -> PartialPlan:
    """Decide how an optimizer step is divided.

    `workers: auto` means one replica. Whichever of global batch, micro batch and accumulation are
    given decide the others. By default, accumulation is 1. The global batch is the reference batch,
    or the training data if that is smaller, rounded so that all parts are equal.

    Args:
        training: The training section, with searched values in place.
        written: The decided part of the plan.
        num_train_samples: Samples to train on, or None if not known yet.
        params: The configuration of the trial.

    Returns:
        Workers, micro batch and accumulation.

    Raises:
        ExperimentError: If the numbers contradict each other, or the global batch is larger than
            the training data.
    """
    workers, wanted = (
        written.workers or written.workers_per_replica * max(1, written.shard),
        training.global_batch,
    )
    replicas, rest = divmod(workers, written.workers_per_replica)
    if rest or not replicas:
        raise ExperimentError(
            f"{workers} workers cannot hold copies of a model, because each copy needs"
            f" {written.workers_per_replica}",
            field=field_of("plan", "workers", params),
            allowed=(
                f"{written.workers_per_replica}, or another multiple of plan.stages x plan.tensor"
            ),
        )
    micro_batch = written.micro_batch
    accumulation = written.accumulation
    target = wanted
    if target == "auto":
        target = min(training.reference_batch, num_train_samples or 2**62)
    if micro_batch is None:
        accumulation = accumulation or 1
        micro_batch = max(1, target // (accumulation * replicas))
    elif accumulation is None:
        accumulation = max(1, target // (micro_batch * replicas))
    global_batch = micro_batch * accumulation * replicas
    replicated = "workers" if written.workers_per_replica == 1 else "replicas"
    if wanted not in ("auto", global_batch):
        raise ExperimentError(
            f"{wanted} samples do not equal micro_batch {micro_batch} x accumulation"
            f" {accumulation} x {replicated} {replicas}",
            field=field_of("training", "global_batch", params),
            allowed=(
                f"{global_batch}, or another multiple of micro_batch x accumulation x {replicated}"
            ),
            next_step="Change one of the four, or set one of them to auto.",
        )
    if num_train_samples is not None and global_batch > num_train_samples:
        blamed = ("training", "global_batch") if wanted != "auto" else ("plan", "micro_batch")
        raise ExperimentError(
            f"a step of {global_batch} samples is larger than the training data",
            field=field_of(*blamed, params),
            allowed=f"at most {num_train_samples} samples per step",
        )
    return PartialPlan.of(workers=workers, micro_batch=micro_batch, accumulation=accumulation)


def _with_axes(written: PartialPlan, params: Mapping[str, JsonValue]) -> PartialPlan:
    """Choose the strategy by how the model is divided, or the division by the strategy.

    Raises:
        ExperimentError: If both are decided and contradict each other.
    """
    divided = [axis for axis in BY_AXIS if (written.get(axis) or 1) != 1]
    if "strategy" not in written and divided:
        written |= PartialPlan.of(strategy=BY_AXIS[divided[0]])
    elif "strategy" not in written and written.shard:
        written |= PartialPlan.of(strategy=_taking_shards()[0])
    strategy = written.get("strategy")
    if strategy is None or strategy not in STRATEGIES:  # loading an unknown one is an error
        return written
    own = capabilities_of(str(strategy)).axis
    for axis in divided:
        if axis != own:
            able = strategies_that(lambda can, axis=axis: can.axis == axis)
            raise ExperimentError(
                f"{strategy} can only train with plan.{axis} 1",
                field=field_of("plan", axis if axis in params else "strategy", params),
                allowed=", ".join(["auto", *able]),
                next_step=f"Choose one of these, or set plan.{axis} to 1.",
            )
    if own is None:
        return written
    workers_per_replica = max(1, (written.workers or 1) // max(1, written.shard))
    return PartialPlan.of(**{own: workers_per_replica}) | written


def field_of(section: str, name: str, params: Mapping[str, Any]) -> str:
    """Return the dotted field in which a setting was written.

    The field is in `search` if the setting is searched.
    """
    if name in params:
        return f"search.{name}"
    return f"{section}.{name}"


def _check_precision(
    plan: Plan, hardware: Hardware | None, params: Mapping[str, JsonValue]
) -> None:
    if plan.precision == "fp16" and hardware is not None and not hardware.has_gpu:
        raise ExperimentError(
            "a CPU cannot train in fp16",
            field=field_of("plan", "precision", params),
            allowed="fp32, bf16, auto",
        )


def _check_gpu(plan: Plan, hardware: Hardware | None, params: Mapping[str, JsonValue]) -> None:
    if plan.compile == "cuda_graphs" and hardware is not None and not hardware.has_gpu:
        raise ExperimentError(
            "a CPU has no CUDA graphs",
            field=field_of("plan", "compile", params),
            allowed="auto, none, default",
            next_step="Set it to none, or resources.gpus_per_worker to 1.",
        )


def _check_strategy(plan: Plan, params: Mapping[str, JsonValue]) -> None:
    # An unknown name is an error when the strategy is loaded.
    if plan.workers == 1 or plan.strategy not in STRATEGIES:
        return
    limit = capabilities_of(plan.strategy).max_workers
    if limit is not None and plan.workers > limit:
        able = strategies_that(
            lambda can: can.max_workers is None or can.max_workers >= plan.workers
        )
        raise ExperimentError(
            f"the strategy {plan.strategy} cannot use {plan.workers} workers",
            field=field_of("plan", "strategy", params),
            allowed=", ".join(["auto", *able]),
            next_step="Choose one of these, or set plan.workers to 1.",
        )


def _check_combination(plan: Plan, params: Mapping[str, JsonValue]) -> None:
    """Check that no values contradict each other."""
    conflict = conflict_in(PartialPlan.of_plan(plan))
    if conflict is not None:
        raise ExperimentError(
            conflict.problem,
            field=field_of("plan", conflict.dimension, params),
            allowed=conflict.allowed,
            next_step=conflict.next_step,
        )


def _taking_shards() -> list[str]:
    """Return the strategies that take shards.

    The strategy that divides a model in no other way comes first.
    """
    able = strategies_that(lambda can: can.takes_shard)
    return sorted(able, key=lambda name: capabilities_of(name).axis is not None)


def _check_shard(plan: Plan, params: Mapping[str, JsonValue]) -> None:
    """Check that the strategy has shards, and that the workers make whole copies."""
    if plan.shard == 0 or plan.strategy not in STRATEGIES:
        return
    if not capabilities_of(plan.strategy).takes_shard:
        problem = f"the strategy {plan.strategy} cannot divide parameters among some replicas"
        raise _needs_strategy(problem, "shard", params, "auto, or a number", _taking_shards())
    if plan.replicas % plan.shard:
        replicas = "workers" if plan.workers_per_replica == 1 else "replicas"
        raise ExperimentError(
            f"{plan.replicas} {replicas} cannot be grouped by {plan.shard}, so that each group"
            " divides a copy",
            field=field_of("plan", "shard", params),
            allowed=f"auto, or a number that divides the {replicas}",
        )


def _check_bucket(plan: Plan, params: Mapping[str, JsonValue]) -> None:
    """Check that replicas exchange gradients of whole models if the size of buckets is set."""
    if size_bytes(plan.bucket) is None or plan.workers == 1 or plan.strategy not in STRATEGIES:
        return
    if not capabilities_of(plan.strategy).holds_whole_model:
        able = strategies_that(lambda can: can.holds_whole_model and can.max_workers is None)
        problem = f"the strategy {plan.strategy} does not exchange gradients in buckets"
        raise _needs_strategy(problem, "bucket", params, "auto, default, or a size", able)
    if plan.exchange in EXCHANGES and not exchange_capabilities(plan.exchange).is_by_bucket:
        raise ExperimentError(
            f"the exchange {plan.exchange} does not send gradients in buckets",
            field=field_of("plan", "bucket", params),
            allowed="auto, default, or a size with another exchange",
            next_step=f"Remove it, or set plan.exchange to {USUAL}.",
        )


def _needs_strategy(
    problem: str, name: str, params: Mapping[str, JsonValue], allowed: str, able: Sequence[str]
) -> ExperimentError:
    """Return the error for a dimension of the plan that only some strategies have.

    Args:
        problem: What the strategy cannot do.
        name: The dimension.
        params: The configuration. The dimension may be one of the searched parameters.
        allowed: The values that are always allowed, and the values for the strategies in `able`.
        able: The strategies that have the dimension.
    """
    step = f"Remove it, or set plan.strategy to {able[0]}."
    if name in params:
        step = f"Remove it, or search it only where it applies: when: {{strategy: {able[0]}}}."
    return ExperimentError(
        problem,
        field=field_of("plan", name, params),
        allowed=f"{allowed} with plan.strategy {' or '.join(able)}",
        next_step=step,
    )


def _check_gradient_hook(plan: Plan, training: Training, params: Mapping[str, JsonValue]) -> None:
    """Check that workers hold whole gradients if there is a gradient hook."""
    if training.gradient_hook is None or plan.strategy not in STRATEGIES:
        return
    if not capabilities_of(plan.strategy).has_whole_step:
        able = strategies_that(lambda can: can.has_whole_step)
        raise ExperimentError(
            f"the strategy {plan.strategy} divides gradients, but a gradient hook needs whole ones",
            field=field_of("plan", "strategy", params),
            allowed=", ".join(["auto", *able]),
            next_step="Choose one of these, or remove training.gradient_hook.",
        )


def _check_options(decided: PartialPlan, params: Mapping[str, JsonValue]) -> None:
    """Check that the exchange has the options that are set."""
    exchange = str(decided.get("exchange"))
    if exchange not in EXCHANGES:  # loading an unknown one is an error
        return
    known = exchange_capabilities(exchange).options
    for name in EXCHANGE_OPTIONS:
        if decided.get(name) and name not in known:
            able = [
                other for other in EXCHANGES.names() if name in exchange_capabilities(other).options
            ]
            raise ExperimentError(
                f"the exchange {exchange} has no {name}",
                field=field_of("plan", name, params),
                allowed=f"auto, or a number with plan.exchange {', '.join(able)}",
                next_step=(
                    f"Remove it, or search it only where it applies: when: {{exchange: {able[0]}}}."
                    if name in params
                    else "Remove it, or choose one of these exchanges."
                ),
            )


def _check_exchange(plan: Plan, training: Training, params: Mapping[str, JsonValue]) -> None:
    """Check that the exchange can be combined with the other settings."""
    field = field_of("plan", "exchange", params)
    able = exchange_capabilities(plan.exchange, field=field)
    if plan.exchange == USUAL:
        return
    is_known = plan.workers > 1 and plan.strategy in STRATEGIES
    if is_known and not capabilities_of(plan.strategy).takes_exchange:
        takes = strategies_that(lambda can: can.takes_exchange)
        raise ExperimentError(
            f"the strategy {plan.strategy} exchanges gradients itself, so it cannot use"
            f" {plan.exchange}",
            field=field,
            allowed=f"auto, {USUAL}, or {plan.exchange} with plan.strategy {' or '.join(takes)}",
            next_step=f"Remove it, or set plan.strategy to {takes[0]}.",
        )
    if plan.exchange_servers > plan.replicas > 1:
        raise ExperimentError(
            f"{plan.exchange_servers} parameter servers need as many replicas, but there are only"
            f" {plan.replicas}",
            field=field_of("plan", "exchange_servers", params),
            allowed=f"at most {plan.replicas}",
        )
    if plan.precision == "fp16" and not able.scales_loss:
        raise ExperimentError(
            f"the exchange {plan.exchange} adds the unsent part of a step to a later step, and fp16"
            " scales each step differently",
            field=field,
            next_step="Set plan.precision to bf16 or fp32, or choose another exchange.",
        )
    if training.lr_rule == "adascale" and not able.is_exact:
        raise ExperimentError(
            "adascale needs the noise of the gradients, which cannot be measured with the exchange"
            f" {plan.exchange}",
            field=field_of("training", "lr_rule", params),
            next_step=f"Choose another rule, or the exchange {USUAL}.",
        )
