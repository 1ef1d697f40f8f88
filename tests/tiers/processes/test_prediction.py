from __future__ import annotations

import contextlib
import ssl
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.tiers.placement.systems import system
from workbench.deploy.stages import Stage, Stages
from workbench.tiers.placement import links
from workbench.tiers.placement.tiers_file import Privacy
from workbench.tiers.processes import frames
from workbench.tiers.processes.certificates import Authority
from workbench.tiers.processes.measured_run import Probes
from workbench.tiers.processes.next_tier import STATUS
from workbench.tiers.processes.prediction import expected_of, framings_of
from workbench.tiers.processes.transport import Identity


def probes(hop_s: float, answer_s: float, link_s: float = 0.0) -> Probes:
    """Steps that always take the same, and requests to a server that leave at both of its exits."""
    server_s = np.cumsum(system().stage_s[-1])
    alone = tuple((stage, answer_s + server_s[stage]) for stage in (0, 1, 1))
    return Probes((hop_s,) * 5, alone, (link_s + hop_s,) * 5)


def test_each_step_between_processes_is_part_of_what_is_expected() -> None:
    quiet = system(devices=1, servers=1, arrivals_per_s=1e-6)
    without, plain = (
        expected_of(quiet, probes(0.0, 0.0)),
        expected_of(quiet, probes(0.001, 0.005, 0.003), (0.02, 0.01)),
    )
    # An answer of a process, whose way is part of it.
    assert plain["end"].p50_s == pytest.approx(without["end"].p50_s + 0.005)
    # To the first tier, what the link adds, inputs put into a frame, and the answer.
    assert plain["cloud"].p95_s == pytest.approx(
        without["cloud"].p95_s + 0.001 + 0.003 + 0.02 + 0.005
    )
    share = quiet.exits.mean()
    further_s = 0.003 + 0.01 + 0.005
    assert plain["end-cloud"].mean_s - without["end-cloud"].mean_s == pytest.approx(
        0.005 + share * further_s
    )
    assert (
        plain["cloud"].accuracy
        == without["cloud"].accuracy
        == pytest.approx(quiet.evidence.is_correct[np.arange(len(quiet.exits)), quiet.exits].mean())
    )


def test_the_spread_of_answers_is_part_of_what_is_expected() -> None:
    quiet = system(devices=1, servers=1, arrivals_per_s=1e-6, threshold=0.3)
    late = Probes((0.0,), (*[(0, 0.001)] * 9, (0, 1.001)))
    expected = expected_of(quiet, late)["cloud"]
    without = expected_of(quiet, probes(0.0, 0.0))["cloud"]
    # One answer of ten is a second late.
    assert expected.p50_s == pytest.approx(without.p50_s)
    assert expected.mean_s == pytest.approx(without.mean_s + 0.1)
    assert expected.p95_s > 1


@pytest.mark.slow
def test_steps_that_waited_for_a_link_do_not_count_beside_its_queue() -> None:
    busy = system(devices=1, servers=1, arrivals_per_s=6.0, link_s=0.05, device_s=(1e-4, 0.2))
    quiet, waited = probes(0.0, 0.0), (0.0,) * 4 + (0.3,) * 6
    without = expected_of(busy, quiet, bytes_per_sample=200.0)["cloud"]  # 6 / s of 0.1 s
    assert without.mean_s - expected_of(replace(busy, links_raw_s=np.zeros(1)), quiet)[
        "cloud"
    ].mean_s == (pytest.approx(0.6 * 0.1 / (2 * 0.4), rel=0.05))
    expected = expected_of(busy, replace(quiet, links_s=waited), bytes_per_sample=200.0)["cloud"]
    assert expected.mean_s == pytest.approx(without.mean_s)
    assert expected.full is None


def test_an_expectation_without_steady_times_names_the_full_link() -> None:
    full = system(devices=1, servers=1, arrivals_per_s=12.0, link_s=0.05, device_s=(1e-4, 0.2))
    is_full = expected_of(full, probes(0.0, 0.0))["cloud"].full
    assert is_full is not None
    assert is_full.startswith("the link end-cloud is full (load 120%)")


def test_what_is_expected_is_that_of_the_samples_that_were_sent() -> None:
    quiet = system(devices=1, servers=1, arrivals_per_s=1e-6)
    goes_on, leaves = np.flatnonzero(quiet.exits > 0)[0], np.flatnonzero(quiet.exits == 0)[0]
    steps = probes(0.001, 0.005)
    first, all_on, mixed = (
        expected_of(quiet, replace(steps, samples=samples))["end-cloud"].mean_s
        for samples in ((leaves,), (goes_on,), (leaves, leaves, leaves, goes_on))
    )
    assert first < all_on
    assert mixed == pytest.approx(0.75 * first + 0.25 * all_on)


def test_the_time_to_make_values_ready_is_measured() -> None:
    stage = Stage(file="a", input_shape=(64, 64), temperature=1, accuracy=1, threshold=0, share=1)
    small = stage.model_copy(update={"input_shape": (2,)})
    raw_s, features_s = framings_of(
        Stages(stages=(small, stage), accuracy=1, num_samples=1), Privacy(features="uint8")
    )
    assert min(raw_s, features_s) > 0


def test_a_frame_takes_as_many_bytes_as_are_planned_for_it(tmp_path: Path) -> None:
    assert links.HEADER_BYTES == frames.HEADER_BYTES
    assert frames.HEADER_BYTES + 8 * len(STATUS) == links.ALIVE_BYTES
    authority = Authority.create()
    for name in ("end", "cloud"):
        authority.issue(name, tmp_path)
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    contexts = [
        Identity.in_folder(tmp_path, name).context(is_server=name == "cloud")
        for name in ("end", "cloud")
    ]
    end = contexts[0].wrap_bio(down, up, server_hostname="cloud")
    cloud = contexts[1].wrap_bio(up, down, server_side=True)
    for side in (end, cloud, end, cloud):
        with contextlib.suppress(ssl.SSLWantReadError):
            side.do_handshake()
    up.read()
    end.write(bytes(500))
    assert len(up.read()) == 500 + links.TLS_BYTES
