from __future__ import annotations

import contextlib
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from tests.tiers.processes.drawn_systems import draw_system
from tests.tiers.processes.running_tiers import SURE, UNSURE, stages
from workbench.deploy.stages import Evidence, Stage, Stages, read_evidence
from workbench.foundation.errors import ArgumentError, RunError
from workbench.tiers.placement.assembly import assemble, stages_of
from workbench.tiers.placement.class_groups import Groups
from workbench.tiers.placement.mapping import Mapping
from workbench.tiers.placement.tiers_file import Link, TiersFile
from workbench.tiers.processes.measured_run import measure_tiers, poisson_moments_s
from workbench.tiers.processes.next_tier import STATUS
from workbench.tiers.processes.profiling import profile_stages
from workbench.tiers.processes.spreading import destinations, empty_frame_s, settings_of
from workbench.tiers.processes.tier_settings import read_settings

SAMPLES, TARGETS = np.stack([SURE, UNSURE, SURE, SURE]), np.array([0, 0, 0, 1])


def file_of(*names: str, scheduler: str = "end-cloud", **privacy: Any) -> TiersFile:
    links = {
        f"{first}-{second}": {"bandwidth": "1Mbit", "rtt": "20ms"}
        for first, second in pairwise(names)
    }
    tiers: dict[str, Any] = {name: {} for name in names}
    tiers[names[0]] = {"arrivals": "1/s"}
    place = {"from": "bundle", "scheduler": scheduler}
    return TiersFile.model_validate(
        {"tiers": tiers, "links": links, "place": place, "privacy": privacy}
    )


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    first, last = stages(tmp_path)
    parts = [
        Stage(
            file=Path(path).name,
            input_shape=(3,),
            temperature=1.0,
            accuracy=0.75,
            threshold=limit,
            share=0.5,
        )
        for path, limit in ((first, 0.9), (last, 0.0))
    ]
    Stages(stages=tuple(parts), accuracy=0.75, num_samples=4).write(tmp_path)
    confidence = np.array([[0.96, 1], [0.51, 1], [0.96, 1], [0.96, 1]])
    Evidence(confidence, np.array([[True] * 2] * 3 + [[False] * 2])).write(tmp_path)
    return tmp_path


@pytest.mark.slow
def test_what_runs_is_measured_as_the_samples_demand(bundle: Path) -> None:
    before = set(psutil.Process().children(recursive=True))
    reports: list[list[dict[str, float]]] = []

    def note(found: list[dict[str, float]]) -> bool:
        reports.append(found)
        return True

    moments_s = np.arange(0, 2, 0.05).tolist()
    found = measure_tiers(
        file_of("end", "edge", "cloud", features="uint8"),
        bundle,
        bundle,
        SAMPLES,
        TARGETS,
        scheduler="end-cloud",
        moments_s=moments_s,
        on_status=note,
        groups=Groups(((0, 1), (2,)), 0.6),
    )
    # The first stage is sure of the first two classes together where it is not of one, before it
    # sends on. The sample that is answered wrongly has the other class of that group.
    assert found.groups is not None
    assert (found.groups.accuracy, found.groups.early_share, found.groups.early_accuracy) == (
        1.0,
        0.25,
        1.0,
    )
    assert (found.accuracy, found.num_requests, found.num_unanswered) == (0.75, 40, 0)
    # A cloud that a busy machine keeps from answering heartbeats is given up for a moment.
    share = 0.25 - found.num_fallbacks / 40
    assert found.answered_by == pytest.approx({"end": 1.0 - share, "edge": 0.0, "cloud": share})
    assert found.bytes_per_sample >= share * (56 + 3)
    assert found.num_fallbacks or found.bytes_per_sample == pytest.approx((56 + 3) / 4)
    # Two links of 20 ms; a busy machine can only be slower.
    assert found.p95_s > 0.04
    assert found.low <= found.p95_s <= found.high
    # Steps are measured beside the requests; what is computed alone, over no link, ends at either
    # stage.
    assert len(found.probes.hops_s) == len(found.probes.links_s) == 20
    # The last tier computes alone as often as the first does, which its load does not count.
    assert len(found.probes.alone) == 39
    early, late = reports[0][-1], reports[-1][-1]
    counted_s = found.load["cloud"] * (late["now_s"] - early["now_s"])
    assert 0.0 < counted_s < 0.5 * late["busy_s"]
    # Links never take less than they should, but for the resolution of their clock.
    assert min(found.probes.links_s) > -0.002
    assert {stage for stage, _ in found.probes.alone} == {0, 1}
    assert set(psutil.Process().children(recursive=True)) <= before
    # What each of the three tiers reported meanwhile.
    assert len(reports) > 1
    assert all(len(found) == 3 for found in reports)
    assert reports[-1][0]["num_answered"] > reports[0][0]["num_answered"]


def test_a_measurement_ends_when_its_status_is_not_wanted_any_more(bundle: Path) -> None:
    before = set(psutil.Process().children(recursive=True))
    with pytest.raises(RunError, match="the measurement was stopped"):
        measure_tiers(
            file_of("end", "cloud"),
            bundle,
            bundle,
            SAMPLES,
            TARGETS,
            scheduler="end",
            moments_s=np.arange(0, 1000, 1.0).tolist(),
            on_status=lambda found: False,
        )
    assert set(psutil.Process().children(recursive=True)) <= before


def test_a_threshold_of_the_file_replaces_that_of_the_first_exit(bundle: Path) -> None:
    file = file_of("end", "cloud")
    changed = file.model_copy(update={"place": file.place.model_copy(update={"threshold": 0.3})})
    assert [stage.threshold for stage in stages_of(file, bundle).stages] == [0.9, 0.0]
    assert [stage.threshold for stage in stages_of(changed, bundle).stages] == [0.3, 0.0]
    first, _ = settings_of(
        changed,
        stages_of(changed, bundle),
        read_evidence(bundle),
        bundle,
        folder=bundle,
        scheduler="end-cloud",
        identity=None,
    )
    assert first.stages[0].threshold == 0.3


@pytest.mark.parametrize(
    ("scheduler", "tier"),
    [
        pytest.param("cloud", "cloud", marks=pytest.mark.slow),
        pytest.param("next-tier", None, marks=pytest.mark.slow),
        ("end-cloud", None),
        pytest.param("end", "end", marks=pytest.mark.slow),
        pytest.param("threshold", None, marks=pytest.mark.slow),
    ],
)
def test_each_scheduler_runs(bundle: Path, scheduler: str, tier: str | None) -> None:
    tiers = measure_tiers(
        file_of("end", "cloud"),
        bundle,
        bundle,
        SAMPLES,
        TARGETS,
        scheduler=scheduler,
        moments_s=np.arange(0, 1, 0.05).tolist(),
    )
    assert (tiers.accuracy, tiers.num_unanswered, tiers.refused) == (0.75, 0, 0)
    # What is computed in microseconds is never sent over 20 ms.
    assert tier is None or tiers.answered_by[tier] == 1.0


@pytest.mark.slow
def test_machines_of_a_tier_take_as_long_as_they_would(tmp_path: Path) -> None:
    drawn = draw_system(tmp_path, 1)
    system, _ = assemble(drawn.file, tmp_path, measure=profile_stages)
    tiers = measure_tiers(
        drawn.file,
        tmp_path,
        drawn.bundle,
        drawn.samples,
        drawn.targets,
        scheduler="mapping",
        moments_s=np.arange(0, 2, 0.05).tolist(),
        system=system,
    )
    assert (tiers.num_unanswered, tiers.num_fallbacks, tiers.accuracy) == (0, 0, 1.0)
    expected = Mapping().expect(system)
    # A busy machine can only be slower.
    assert tiers.p50_s >= 0.95 * system.stage_s[0, 0]
    assert tiers.p50_s >= 0.9 * expected.quantile_s(0.2)


def test_a_tier_never_computes_what_it_has_no_memory_for(tmp_path: Path) -> None:
    drawn = draw_system(tmp_path, 0)
    system, _ = assemble(drawn.file, tmp_path, measure=profile_stages)
    held = [np.flatnonzero(np.isfinite(times_s)).tolist() for times_s in system.stage_s]
    assert held[0] == [0]
    settings = settings_of(
        drawn.file,
        stages_of(drawn.file, drawn.bundle),
        read_evidence(drawn.bundle),
        drawn.bundle,
        folder=tmp_path,
        scheduler="mapping",
        identity=None,
        system=system,
    )
    assert [[stage.number for stage in tier.stages] for tier in settings] == held
    assert settings[0].known is not None
    assert settings[0].known.stay_s == np.inf
    # Only tiers that hold the whole rest are asked for it.
    assert all(len(held[place.tier]) == 3 for place in settings[0].known.places)
    write = settings[0].write(tmp_path / "settings.json")
    assert write is None
    assert read_settings(tmp_path / "settings.json") == settings[0]


def end_tier(number: int) -> None:
    """End the process of a tier that this process has started."""
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.ZombieProcess):  # one of another test
            if f"tier-{number}-0.json" in " ".join(child.cmdline()):
                child.kill()


@pytest.mark.parametrize("scheduler", ["cloud", pytest.param("end-cloud", marks=pytest.mark.slow)])
def test_a_last_tier_that_ends_in_the_middle_leaves_no_request_unanswered_and_is_named(
    bundle: Path, scheduler: str
) -> None:
    num_answered: list[float] = []

    def end_last(reports: list[dict[str, float]]) -> bool:
        num_answered.append(reports[-1]["num_answered"])
        if num_answered[-1] >= num_answered[0] + 10:
            end_tier(1)
        return True

    tiers = measure_tiers(
        file_of("end", "cloud"),
        bundle,
        bundle,
        SAMPLES,
        TARGETS,
        scheduler=scheduler,
        moments_s=np.arange(0, 5, 0.1).tolist(),
        on_status=end_last,
    )
    assert tiers.ended == ("the tier cloud",)
    assert tiers.num_unanswered == 0
    assert tiers.num_fallbacks > 0
    assert tiers.answered_by["end"] > 0


def test_empty_frames_take_the_time_of_all_links(bundle: Path) -> None:
    num_bytes = 2 * (56 + 22) + 8 * len(STATUS)
    assert empty_frame_s(file_of("end", "edge", "cloud"), bundle, 2) == pytest.approx(
        2 * (0.02 + num_bytes * 8 / 1e6)
    )
    plain = empty_frame_s(file_of("end", "cloud", transport="plain"), bundle, 1)
    assert plain == pytest.approx(0.02 + (num_bytes - 44) * 8 / 1e6)


def test_processes_send_as_few_heartbeats_as_their_link_demands(bundle: Path) -> None:
    fast = file_of("end", "cloud")
    slow = fast.model_copy(
        update={"links": {"end-cloud": Link.model_validate({"bandwidth": "10kbit"})}}
    )
    fast_s, slow_s = (
        settings_of(
            file,
            stages_of(file, bundle),
            read_evidence(bundle),
            bundle,
            folder=bundle,
            scheduler="end-cloud",
            identity=None,
        )[0].heartbeat_s
        for file in (fast, slow)
    )
    assert fast_s == 0.1
    assert slow_s == pytest.approx((56 + 22 + 8 * len(STATUS)) * 8 / 10e3 / 0.02)


def test_requests_go_to_the_preferred_tier_or_to_the_ones_that_take_over() -> None:
    assert destinations(0, 3, "mapping") == (2, 1)
    assert destinations(0, 3, "end") == destinations(1, 3, "mapping") == ()
    assert [destinations(number, 3, "next-tier") for number in range(3)] == [(1, 2), (2,), ()]


def test_too_few_requests_are_refused() -> None:
    assert len(poisson_moments_s(10, 60)) == pytest.approx(600, rel=0.2)
    with pytest.raises(ArgumentError, match="too few"):
        poisson_moments_s(0.1, 30)
