"""Predict what a measurement on this machine shows, and compare the two.

Times of stages are measured in many calls in a row. What an answer of a process takes beyond them
(encryption, waking up, reading and writing frames, and a model that computes once in a while), what
a frame takes between processes, what the processes of links add to the time of links, and what
values take to be made ready for a frame are measured on this machine.
"""

from __future__ import annotations

import statistics
import tempfile
import timeit
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from workbench.deploy.card import read_card
from workbench.deploy.stages import Stages
from workbench.tiers.placement.assembly import assemble, stages_of
from workbench.tiers.placement.class_groups import Groups, groups_of
from workbench.tiers.placement.cut_bundle import write_cut
from workbench.tiers.placement.links import HEADER_BYTES, TLS_BYTES
from workbench.tiers.placement.mapping import Mapping
from workbench.tiers.placement.scheduler_plans import about_full
from workbench.tiers.placement.schedulers import Outcome, policies_for
from workbench.tiers.placement.system import System
from workbench.tiers.placement.tiers_file import HERE, Privacy, TiersFile
from workbench.tiers.processes.features import Outgoing, received
from workbench.tiers.processes.measured_run import Measured, Probes, measure_tiers
from workbench.tiers.processes.profiling import profile_stages
from workbench.tiers.processes.requesting import OnStatus

_NUM_FRAMES = 50


@dataclass(frozen=True)
class Expected:
    """What is expected of a measurement: response times, in seconds, and accuracy.

    Attributes:
        mean_s: Their mean.
        p50_s: Their median.
        p95_s: Their 95th percentile.
        accuracy: Share of correct answers.
        full: Which tier or link is full, and its limit, in a sentence, or None if none is.
    """

    mean_s: float
    p50_s: float
    p95_s: float
    accuracy: float
    full: str | None = None


def measure_scheduler(
    scheduler: str,
    tiers: TiersFile,
    *,
    folder: Path,
    bundle: Path,
    system: System,
    samples: tuple[np.ndarray, np.ndarray],
    moments_s: Sequence[float],
    on_status: OnStatus | None = None,
) -> tuple[Measured, Expected, System]:
    """Return what was measured with a scheduler, what was expected of it, and the system that ran.

    A model that is cut without exits runs as the stages that its parts are.

    Args:
        scheduler: The scheduler. `cut` needs a system with a cut.
        tiers: The file of tiers.
        folder: The folder that its paths are relative to.
        bundle: The bundle whose stages are spread.
        system: What runs, as of `system_here`, with groups of classes if the file has any.
        samples: Inputs of the validation split, and the right classes.
        moments_s: When requests are sent, in seconds.
        on_status: As of `measure_tiers`.

    Raises:
        ExperimentError: If the file cannot be carried out.
        RunError: If a process does not start, nothing is answered, or `on_status` has ended it.
    """
    groups = None
    if system.group_threshold is not None:
        classes = groups_of(tiers.place.labels, read_card(bundle).outputs[0].classes)
        groups = Groups(tuple(map(tuple, classes)), system.group_threshold)
    with tempfile.TemporaryDirectory() as parts:
        runs_as = scheduler
        if scheduler == "cut":
            assert system.cut is not None
            write_cut(bundle, system.cut.is_there, system.evidence, Path(parts))
            bundle, (system, runs_as) = Path(parts), system.as_cut()
        measured = measure_tiers(
            tiers,
            folder,
            bundle,
            *samples,
            scheduler=runs_as,
            moments_s=moments_s,
            on_status=on_status,
            system=system,
            groups=groups,
        )
        if list(tiers.tiers.values())[-1].machine != HERE:
            measured = replace(measured, probes=_as_planned(system, measured.probes))
        framings_s = framings_of(stages_of(tiers, bundle), tiers.privacy)
        expected = expected_of(
            system, measured.probes, framings_s, bytes_per_sample=measured.bytes_per_sample
        )[runs_as]
    return replace(measured, scheduler=scheduler), expected, system


def _as_planned(system: System, probes: Probes) -> Probes:
    """Return probes with the time of the stages on the machine of the last tier.

    What was sent straight to its process was computed on this machine, and waited for no other.
    """
    alone = tuple(
        (stage, took_s + float(_alone_s(system)[stage])) for stage, took_s in probes.alone
    )
    return replace(probes, alone=alone)


def system_here(
    file: TiersFile,
    folder: Path,
    rate_per_s: float,
    *,
    cut_at: np.ndarray | None = None,
    on_progress: Callable[[str], None] = lambda _: None,
) -> System:
    """Return the system that runs on this machine: that of the file, at some rate of requests.

    Making and reading frames counts only for tiers that are another machine. On this one it is
    measured while it runs.

    Args:
        file: The file of tiers.
        folder: The folder that its paths are relative to.
        rate_per_s: Requests per second, in all.
        cut_at: Where the model is cut without exits, as for `assemble`.
        on_progress: Receives what is measured.

    Raises:
        WorkbenchError: If a file does not fit the bundle, or its stages cannot be measured.
    """
    measure = partial(profile_stages, on_progress=on_progress)
    system, _ = assemble(file, folder, measure=measure, with_frames=False, cut_at=cut_at)
    return replace(system, arrivals_per_s=rate_per_s / system.counts[0])


def beyond_stages_s(system: System, alone: Sequence[tuple[int, float]]) -> np.ndarray:
    """Return what answers of one process took beyond the times of their stages, in seconds.

    Args:
        system: What runs, as of `system_here`.
        alone: The last stage and the time of each request to the last tier, without a link.

    Returns:
        (requests,): at least 0.
    """
    stages, took_s = np.array(alone, dtype=float).reshape(-1, 2).T
    return np.maximum(0.0, took_s - _alone_s(system)[stages.astype(int)])


def _alone_s(system: System) -> np.ndarray:
    """Return the time of the last tier until each exit for what was sent straight to it."""
    if system.num_views == 1:
        return system.until_s[-1]
    # It was sent what the first tier computes, as one device has only one view.
    return system.until_s[-1] - system.stage_s[-1, 0]


def framings_of(stages: Stages, privacy: Privacy) -> tuple[float, float]:
    """Return the median seconds of writing and reading frames, for inputs and for features.

    Args:
        stages: The stages that take them.
        privacy: How they are sent.
    """
    random = np.random.default_rng(0)
    framings_s = []
    for stage in (stages.stages[0], stages.stages[min(1, len(stages.stages) - 1)]):
        values = random.normal(size=(1, *stage.wire_shape)).astype(stage.input_dtype)
        outgoing = Outgoing(privacy.features, privacy.noise, random)
        times_s = timeit.repeat(
            partial(received, values, outgoing, stage=1), number=1, repeat=_NUM_FRAMES
        )
        framings_s.append(statistics.median(times_s))
    return framings_s[0], framings_s[1]


def expected_of(
    system: System,
    probes: Probes,
    framings_s: tuple[float, float] = (0.0, 0.0),
    *,
    bytes_per_sample: float = 0.0,
) -> dict[str, Expected]:
    """Return what is expected of each scheduler.

    In a few hundred requests, the share that continues differs from the share among all validation
    samples, so the samples that were sent decide.

    Args:
        system: What runs, as of `system_here`.
        probes: What single steps took. The first tier is a process that frames pass where it sends
            all.
        framings_s: Times to make inputs, and features, ready to be sent, as of `framings_of`.
        bytes_per_sample: Bytes that left the first tier for a request while steps were measured.
            Steps that waited for a link do not count, as queues on links are expected by
            themselves.
    """
    if probes.samples:
        system = system.of_samples(np.array(probes.samples))
    beyond_s = beyond_stages_s(system, probes.alone)
    system = _beside_probes(system, probes)
    probes = replace(probes, links_s=_on_free_links(system, probes.links_s, bytes_per_sample))
    means = _responses(system, _Steps.of(probes, beyond_s, np.mean), framings_s)
    medians = _responses(system, _Steps.of(probes, beyond_s, np.median), framings_s)
    random = np.random.default_rng(0)
    expected = {}
    for name, outcome in medians.items():
        # Each request is answered by at least one process.
        response_s = outcome.response_s + random.choice(beyond_s, len(outcome.response_s))
        p50_s, p95_s = np.quantile(response_s, [0.5, 0.95], method="lower")
        mean_s = float(means[name].response_s.mean() + beyond_s.mean())
        full = about_full(system, outcome, (mean_s, float(p95_s)))
        expected[name] = Expected(mean_s, float(p50_s), float(p95_s), outcome.accuracy, full)
    return expected


def _beside_probes(system: System, probes: Probes) -> System:
    """Return a system whose links have only the time that measured empty frames leave them."""
    if not probes.samples:
        return system
    share = (HEADER_BYTES + TLS_BYTES) / (max(1.0, float(system.sent_bytes[-1])) + TLS_BYTES)
    per_s = len(probes.links_s) * system.total_per_s / len(probes.samples)
    free = np.maximum(1.0 - per_s * share * system.links_s, 0.1)
    return replace(system, links_s=system.links_s / free, links_raw_s=system.links_raw_s / free)


def _on_free_links(
    system: System, links_s: Sequence[float], bytes_per_sample: float
) -> tuple[float, ...]:
    """Return the shortest of some times over links: as many as found links free."""
    free = 1.0
    for link_s in system.links_s / max(1.0, float(system.sent_bytes[-1])) * bytes_per_sample:
        free *= max(0.1, 1.0 - system.arrivals_per_s * float(link_s))
    return tuple(sorted(links_s)[: max(1, round(free * len(links_s)))])


@dataclass(frozen=True)
class _Steps:
    """What single steps take, in seconds.

    Attributes:
        hop_s: A frame to a process and back.
        links_s: All links there and back, beyond the time that they take by themselves.
        answer_s: An answer of a process, beyond its stages.
    """

    hop_s: float
    links_s: float
    answer_s: float

    @classmethod
    def of(cls, probes: Probes, beyond_s: np.ndarray, middle: Callable[..., Any]) -> _Steps:
        hop_s = float(middle(probes.hops_s))
        # At the end of the links the last tier receives the frame, as the first does at the end of
        # a hop.
        links_s = max(0.0, float(middle(probes.links_s)) - hop_s) if probes.links_s else 0.0
        return cls(hop_s, links_s, float(middle(beyond_s)))


def _responses(
    system: System, steps: _Steps, framings_s: tuple[float, float]
) -> dict[str, Outcome]:
    """Return what comes of each scheduler without the answer of the first process that computes."""
    num_links = np.arange(len(system.names))
    raw_s, features_s = framings_s
    is_far = num_links > 0
    over_links_s = steps.links_s * num_links / max(1, num_links[-1])
    further = replace(
        system,
        send_s=system.send_s + is_far * (over_links_s + steps.answer_s + features_s),
        send_raw_s=system.send_raw_s + is_far * (over_links_s + steps.hop_s + raw_s),
    )
    if further.hops is not None:
        hops = further.hops
        further = replace(
            further,
            hops=replace(
                hops,
                send_s=hops.send_s + over_links_s[1] + steps.answer_s + features_s,
            ),
        )
    return {
        name: (Mapping().settled(system) if name == "mapping" else policy).expect(further)
        for name, policy in policies_for(further).items()
    }
