"""Estimate what a run would take on each machine of a catalogue: time, money and risk.

Estimates come from measurements and have intervals. Estimates that rest on another device, or on
more workers or nodes than were measured, are marked. An interruption costs the work since the last
checkpoint. Machines are compared for the whole run without early stopping, start-up included.
Choosing one is left to `recommendation`.

On a device that was not measured, bounds are wide. A compute-bound step scales with the peak rates
of the two devices, a memory-bound one with their bandwidths, and one that waits for its host gets
no faster at all: the truth lies in between.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, Literal

from workbench.advisor.open_settings import drawn_params
from workbench.advisor.stored_advice import Estimate
from workbench.experiment import Experiment
from workbench.experiment.plan import Plan
from workbench.foundation.formatting import format_bytes, format_duration
from workbench.runs.provisioning.catalogue import Catalogue, Device, Machine, Market
from workbench.runs.provisioning.evidence import Evidence
from workbench.runs.provisioning.fastest_plans import TOLERANCE, FastestPlan, FastestPlans
from workbench.training.planning.settings import resolve

START_UP_S = 300.0
"""Seconds from requesting a machine until it trains: an assumption."""
Answer = Literal["yes", "perhaps", "no"]
_GIB = 2**30
MAX_INTERVAL_RATIO = 100.0
"""Nothing is recommended where the upper bound of a step time is more than this many times the
lower one.
"""
_NONE_PER_HOUR = 1e-9
DEVICE_SLACK = 1.5
"""How far the truth may lie beyond the ratios of two data sheets.

Software uses some devices better.
"""
CPU_SLACK = 2.0
"""The same between two kinds of CPU. Clouds count the threads of a core as CPUs."""
MAX_UTILISATION = 0.6
"""No training gets closer to the peak rate of a data sheet."""


@dataclass(frozen=True)
class Requirements:
    """What the user requires of the machines.

    Attributes:
        deadline_s: Seconds within which the run should end, or None for any time.
        budget_usd: Its maximum cost, or None for any sum.
        max_nodes: Maximum number of machines of one type.
        start_up_s: Seconds until a machine trains.
    """

    deadline_s: float | None = None
    budget_usd: float | None = None
    max_nodes: int = 8
    start_up_s: float = START_UP_S


@dataclass(frozen=True)
class Offer:
    """Machines of one type, rented in one way, and what the run would take on them.

    Attributes:
        provider: The provider.
        machine: The type of the machine.
        region: The region.
        market: on demand, or spot.
        nodes: Number of machines.
        device: Their GPUs, or None for CPUs only.
        gpus: GPUs of all machines.
        plan: How a trial trains, or None if nothing fits.
        at_once: Number of concurrent trials.
        step_s: Seconds of a step, or None if it cannot be estimated.
        run_s: Seconds of the run, start-up and interruptions included, or None if unknown.
        usd_per_hour: Price of all machines, or None if unknown.
        cost_usd: Cost of the run.
        interruptions: Expected number in the run, or None if their rate is unknown, 0 on demand.
        lost: Fraction of the time lost to interruptions, or None if unknown.
        fits: Whether a worker fits into memory, or None if unknown.
        in_time: Whether the deadline is met, or None without one, or if that is unknown.
        in_budget: The same for the budget.
        measured: Whether the step time was measured, not extrapolated.
        notes: Where the estimates come from, and what is unknown, in sentences.
    """

    provider: str
    machine: str
    region: str
    market: Market
    nodes: int
    device: str | None
    gpus: int
    plan: str | None = None
    at_once: int = 0
    step_s: Estimate | None = None
    run_s: Estimate | None = None
    usd_per_hour: float | None = None
    cost_usd: Estimate | None = None
    interruptions: Estimate | None = None
    lost: Estimate | None = None
    fits: bool | None = None
    in_time: Answer | None = None
    in_budget: Answer | None = None
    measured: bool = False
    notes: tuple[str, ...] = field(default=())

    def to_json(self) -> dict[str, Any]:
        """Return it as plain values."""
        return dataclasses.asdict(self) | {"recommendable": self.is_recommendable}

    @property
    def title(self) -> str:
        """What would be rented, in words."""
        return f"{self.nodes} x {self.machine} of {self.provider} ({self.region}), {self.market}"

    @property
    def duration_s(self) -> float:
        """Expected seconds of the run, or infinite if they are unknown."""
        return math.inf if self.run_s is None else self.run_s.value

    @property
    def is_vague(self) -> bool:
        """Whether the estimate of its step time is too uncertain to recommend it."""
        return self.step_s is not None and self.step_s.high > MAX_INTERVAL_RATIO * self.step_s.low

    @property
    def is_recommendable(self) -> bool:
        """Whether it can be recommended.

        It fits, its cost is known, and it may meet the requirements.
        """
        return self.rank()[0] < 2.0

    def rank(self) -> tuple[float, ...]:
        """Return the sort key of offers, the best first."""
        answers = (self.in_time, self.in_budget)
        if self.fits is False:
            tier = 6
        elif self.run_s is None:
            tier = 5
        elif self.is_vague:
            tier = 4
        elif self.cost_usd is None:
            tier = 3
        elif "no" in answers:
            tier = 2
        else:
            tier = 1 if "perhaps" in answers else 0
        cost_usd = math.inf
        if self.cost_usd:
            cost_usd = self.cost_usd.value
        return tier, cost_usd, self.duration_s


def compare(
    experiment: Experiment,
    evidence: Sequence[Evidence],
    catalogue: Catalogue,
    requirements: Requirements,
    plans: FastestPlans | None = None,
) -> list[Offer]:
    """Compare the machines of a catalogue for a run.

    Args:
        experiment: What is to be run.
        evidence: What was measured of it, at least one.
        catalogue: The machines.
        requirements: What the user requires.
        plans: Plans that were chosen before, if the same evidence is compared again for other
            requirements.

    Returns:
        An offer for each machine and way of renting it, the best first.

    Raises:
        ExperimentError: If settings of the experiment exclude each other.
    """
    question = _Question(
        experiment, evidence, catalogue, requirements, plans or FastestPlans(experiment)
    )
    offers = [
        _best_number(question, machine, market)
        for machine in catalogue.machines
        for market in machine.markets
    ]
    return sorted(offers, key=Offer.rank)


@dataclass(frozen=True)
class _Question:
    """What is asked about every machine: which run, from which evidence, under which conditions."""

    experiment: Experiment
    evidence: Sequence[Evidence]
    catalogue: Catalogue
    requirements: Requirements
    plans: FastestPlans


def _best_number(question: _Question, machine: Machine, market: Market) -> Offer:
    """Return the offer with the best number of machines.

    The cheapest that is good enough, or the fastest.
    """
    known, transferred = _nearest(question.evidence, question.catalogue, machine)
    counts = [2**power for power in range(question.requirements.max_nodes.bit_length())]
    offers = []
    for nodes in counts:
        offer = _rental(machine, market, nodes, transferred.reason)
        if transferred.factor is not None:
            offer = _with_estimates(question, offer, machine, known, transferred.factor)
        offers.append(offer)
    tier = min(offer.rank()[0] for offer in offers)
    offers = [offer for offer in offers if offer.rank()[0] == tier]
    if tier >= 3.0:  # without a cost: as few as are in time
        return next((offer for offer in offers if offer.in_time != "no"), offers[0])
    affordable = [offer for offer in offers if offer.in_budget != "no"]
    if tier == 2.0 and affordable:
        return min(affordable, key=attrgetter("duration_s"))
    cheapest = min(offer.cost_usd.value for offer in offers if offer.cost_usd)
    near = [
        offer
        for offer in offers
        if offer.cost_usd and offer.cost_usd.value <= cheapest * (1 + TOLERANCE)
    ]
    return min(near, key=attrgetter("duration_s"))


def _nearest(
    evidence: Sequence[Evidence], catalogue: Catalogue, machine: Machine
) -> tuple[Evidence, Transfer]:
    """Return the evidence that says most about a machine: of the same device, or the closest."""
    target = catalogue.device(machine.device)
    transfers: list[tuple[Evidence, Transfer]] = []
    for known in evidence:
        measured = None
        if known.device != "cpu":
            measured = catalogue.device_by_driver_name(known.device)
        transferred = transfer(
            measured,
            target,
            precision=known.usual.precision,
            measured_name=known.device,
            step_flops_per_s=known.flops_per_s(),
        )
        transfers.append((known, transferred))

    def width(pair: tuple[Evidence, Transfer]) -> float:
        factor = pair[1].factor
        if factor is None:
            return math.inf
        return factor.high / factor.low

    return min(transfers, key=width)


def _rental(machine: Machine, market: Market, nodes: int, note: str) -> Offer:
    """Return the offer of some machines, without any estimate."""
    price_usd = machine.price(market).usd_per_hour
    usd_per_hour = None
    if price_usd is not None:
        usd_per_hour = price_usd * nodes
    offer = Offer(
        provider=machine.provider,
        machine=machine.type,
        region=machine.region,
        market=market,
        nodes=nodes,
        device=machine.device,
        gpus=nodes * machine.gpus,
        usd_per_hour=usd_per_hour,
        notes=(note,),
    )
    if usd_per_hour is None:
        return _with_note(offer, "its price is unknown")
    return offer


def _with_estimates(
    question: _Question, offer: Offer, machine: Machine, known: Evidence, factor: Estimate
) -> Offer:
    """Add the plan of a trial, its step time, how long the run takes, and what it costs."""
    places = _workers_per_node(question.experiment, machine)
    if places == 0:
        return _with_note(offer, "a worker needs more CPUs than it has", fits=False)
    same_kind = (machine.device is None) == (known.device == "cpu")
    device = question.catalogue.device(machine.device)
    memory_gib = machine.memory_gib / places
    if device is not None:
        memory_gib = device.memory_gib
    memory_bytes = None  # on another kind of device a plan takes other memory
    if same_kind:
        memory_bytes = memory_gib * _GIB
    chosen = question.plans.of(known, [places] * offer.nodes, memory_bytes, on_gpu=machine.gpus > 0)
    if chosen is None:
        return _with_note(
            offer, f"no plan fits into {format_bytes(memory_gib * _GIB)} of a worker", fits=False
        )
    plan = chosen.plan
    step_s = chosen.step_s
    if step_s.extrapolated:
        offer = _with_note(
            offer,
            f"{plan.workers} workers with micro batches of {plan.micro_batch} were not measured",
        )
    offer = dataclasses.replace(
        offer,
        plan=chosen.forecast.plan,
        at_once=chosen.forecast.at_once,
        step_s=_product(step_s, factor),
        fits=True if same_kind and chosen.has_known_memory else None,
        measured=not (step_s.extrapolated or factor.extrapolated),
    )
    return _priced(_timed(question, offer, machine, chosen, factor), question.requirements)


def _workers_per_node(experiment: Experiment, machine: Machine) -> int:
    resources = experiment.resources
    by_cpus = machine.vcpus // resources.cpus_per_worker
    if not machine.gpus:
        return by_cpus
    gpus = resources.gpus_of_worker
    of_worker = 1.0
    if gpus not in ("auto", 0):
        of_worker = float(gpus)
    return min(by_cpus, int(machine.gpus / of_worker + 1e-6))


def _timed(
    question: _Question, offer: Offer, machine: Machine, chosen: FastestPlan, factor: Estimate
) -> Offer:
    """Add how long the run takes, including interruptions and its own time limit."""
    experiment = question.experiment
    start_up_s = question.requirements.start_up_s
    plan = chosen.plan
    forecast = chosen.forecast
    trial_s = _product(forecast.trial_s, factor)
    run_s = forecast.run_s and _product(forecast.run_s, factor)
    interruption = None
    lost: Estimate | None = Estimate(0.0, 0.0, 0.0)
    if offer.market == "spot":
        interruption = question.catalogue.interruption(machine)
        lost = None
    rates = (0.0, 0.0, 0.0)
    if interruption is not None:
        rates = interruption.rates_per_hour()
    if interruption is not None:
        spans = math.ceil(plan.workers / max(1, _workers_per_node(experiment, machine)))
        checkpoint_s = _checkpoint_s(experiment, plan, trial_s)
        factors = [slowdown(rate * spans, checkpoint_s, start_up_s) for rate in rates]
        if math.isinf(max(factors)):
            return _with_note(
                offer,
                "interruptions may be so frequent that it never gets from one checkpoint to the"
                " next",
            )
        lost = _estimate([1.0 - 1.0 / ratio for ratio in factors])
        run_s = run_s and _product(run_s, _estimate(factors))
    elif offer.market == "spot":
        offer = _with_note(
            offer, "how often it is interrupted is unknown and not taken into account"
        )
    budget_s = experiment.budget.time
    if budget_s is not None and (run_s is None or run_s.value > budget_s):
        num = max(1, int(offer.at_once * budget_s / trial_s.value))
        offer = _with_note(
            offer,
            f"its time limit of {format_duration(budget_s)} ends it after about {num} trainings",
        )
        soonest_s = budget_s
        if run_s:  # the run may end before the limit
            soonest_s = min(budget_s, run_s.low)
        run_s = Estimate(budget_s, soonest_s, budget_s)
    if run_s is None:
        return _with_note(offer, "the experiment has no end: set budget.trials or budget.time")
    run_s = _estimate(
        [part + start_up_s for part in (run_s.value, run_s.low, run_s.high)],
        run_s.extrapolated,
    )
    hours = [part / 3600.0 * offer.nodes for part in (run_s.value, run_s.low, run_s.high)]
    expected = [rate * hour for rate, hour in zip(rates, hours, strict=True)]
    interruptions = lost and _estimate(expected)
    return dataclasses.replace(offer, run_s=run_s, lost=lost, interruptions=interruptions)


def _checkpoint_s(experiment: Experiment, plan: Plan, trial_s: Estimate) -> float:
    """Return the seconds of training between checkpoints."""
    training = resolve(experiment, drawn_params(experiment)).training
    by_epochs_s = trial_s.value / training.epochs * training.checkpoint_every
    return min(by_epochs_s, training.checkpoint_after or math.inf)


def _priced(offer: Offer, requirements: Requirements) -> Offer:
    """Add what it costs, and whether cost and time meet the requirements."""
    if offer.run_s is None:
        return offer
    cost = None
    if offer.usd_per_hour is not None:
        cost = offer.run_s.times(offer.usd_per_hour / 3600.0)
    return dataclasses.replace(
        offer,
        cost_usd=cost,
        in_time=_within(offer.run_s, requirements.deadline_s),
        in_budget=_within(cost, requirements.budget_usd),
    )


def _within(estimate: Estimate | None, limit: float | None) -> Answer | None:
    if estimate is None or limit is None:
        return None
    if estimate.high <= limit:
        return "yes"
    if estimate.value > limit:
        return "no"
    return "perhaps"


def _estimate(parts: Sequence[float], extrapolated: bool = False) -> Estimate:
    value, low, high = parts
    return Estimate(value, low, high, extrapolated)


def _product(first: Estimate, second: Estimate) -> Estimate:
    return Estimate(
        first.value * second.value,
        first.low * second.low,
        first.high * second.high,
        first.extrapolated or second.extrapolated,
    )


def _with_note(offer: Offer, note: str, **changes: Any) -> Offer:
    return dataclasses.replace(offer, notes=(*offer.notes, note), **changes)


def slowdown(
    failures_per_hour: float, checkpoint_s: float, restart_s: float, write_s: float = 0.0
) -> float:
    """Return how many times as long a training takes as one without interruptions.

    Failures occur at random, also during a restart or while a checkpoint is written.

    Args:
        failures_per_hour: Failures of any of its machines, per hour.
        checkpoint_s: Seconds of training between checkpoints, > 0.
        restart_s: Seconds from a failure until it trains again.
        write_s: Seconds for which writing a checkpoint interrupts the training.

    Returns:
        At least 1, or infinity if it would never end.

    Source: Daly 2006, "A higher order estimate of the optimum checkpoint interval for restart
    dumps", the
        complete expression of the wall clock time.
    """
    if failures_per_hour < _NONE_PER_HOUR:
        return 1.0 + write_s / checkpoint_s
    between_s = 3600.0 / failures_per_hour
    try:
        return (
            between_s
            * math.exp(restart_s / between_s)
            * math.expm1((checkpoint_s + write_s) / between_s)
        ) / checkpoint_s
    except OverflowError:
        return math.inf


@dataclass(frozen=True)
class Transfer:
    """The factor between two step times and where it comes from.

    Attributes:
        factor: The factor for measured step times, or None if it cannot be estimated.
        reason: Where the factor comes from, or why there is none.
    """

    factor: Estimate | None
    reason: str


def transfer(
    measured: Device | None,
    target: Device | None,
    *,
    precision: str,
    measured_name: str,
    step_flops_per_s: float | None = None,
) -> Transfer:
    """Transfer step times from one device to another.

    Args:
        measured: The device they were measured on, or None for CPUs, and for a GPU that is not in
            the catalogue.
        target: The device they are estimated for, or None for CPUs.
        precision: fp32, bf16 or fp16.
        measured_name: The name of the measured device: "cpu", or as its driver reports it.
        step_flops_per_s: Operations per second of a measured worker, or None if unknown.
    """
    from_cpu = measured_name == "cpu"
    wanted = "CPUs"
    if target is not None:
        wanted = target.name
    devices = f"measured on {measured_name}, not on {wanted}"
    if from_cpu and target is None:
        return Transfer(
            Estimate(1.0, 1.0 / CPU_SLACK, CPU_SLACK, True),
            "measured on CPUs, maybe of another kind",
        )
    if target is None:
        return Transfer(None, f"{devices}: the step time on CPUs cannot be estimated")
    if measured is not None and measured.name == target.name:
        return Transfer(Estimate(1.0, 1.0, 1.0, False), f"measured on {measured_name}")
    if from_cpu:
        return _from_cpu(target, precision, step_flops_per_s, devices)
    if measured is None:
        return Transfer(
            None, f"{devices}: {measured_name} is not in the catalogue. Add it to `devices`"
        )
    ratios = [measured.memory_gb_per_s / target.memory_gb_per_s]
    rates = [device.teraflops.get(precision) for device in (measured, target)]  # type: ignore[call-overload]
    if rates[0] and rates[1]:
        ratios.append(rates[0] / rates[1])
    value = math.exp(sum(map(math.log, ratios)) / len(ratios))
    return Transfer(
        Estimate(value, min(ratios) / DEVICE_SLACK, max(*ratios, 1.0) * DEVICE_SLACK, True),
        f"{devices}: scaled by their data sheets",
    )


def _from_cpu(
    target: Device, precision: str, step_flops_per_s: float | None, devices: str
) -> Transfer:
    peak = target.teraflops.get(precision)  # type: ignore[call-overload]
    if step_flops_per_s is None or peak is None:
        return Transfer(None, f"{devices}: the speed-up cannot be estimated")
    fastest = step_flops_per_s / (MAX_UTILISATION * peak * 1e12)
    if fastest >= 1.0:
        return Transfer(None, f"{devices}: the speed-up cannot be estimated")
    return Transfer(
        Estimate(math.sqrt(fastest), fastest, 1.0, True),
        f"{devices}: the speed may be anything up to {MAX_UTILISATION:.0%} of its peak. Measure on"
        " one first",
    )
