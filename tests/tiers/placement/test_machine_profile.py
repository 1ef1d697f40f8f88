from __future__ import annotations

from pathlib import Path

import pytest

from workbench.foundation.errors import ArgumentError, ExperimentError
from workbench.tiers.placement.machine_profile import Profile, StageTiming, find_device

TIMING = StageTiming(file="a.onnx", sha256="0", batch=1, mean_s=1.0, p50_s=1.0, p95_s=1.0)
BOARD = "ssh://pi@board.local:2222"
TIERS = """
tiers:
  end: {machine: board.json, arrivals: 1/s}
  edge: {machine: copied.json}
  near: {machine: absent.json}
  cloud: {}
links: {end-edge: {bandwidth: 1Mbit}, edge-near: {bandwidth: 1Mbit}, near-cloud: {bandwidth: 1Mbit}}
place: {from: bundle}
"""


@pytest.fixture
def file(tmp_path: Path) -> str:
    for name, device in (("board", BOARD), ("copied", "here")):
        profile = Profile(machine="a", device=device, runtime="b", threads=1, timings=(TIMING,))
        profile.write(tmp_path / f"{name}.json")
    (tmp_path / "tiers.yaml").write_text(TIERS)
    return str(tmp_path / "tiers.yaml")


def test_the_machine_of_a_tier_is_where_its_profile_was_measured(file: str) -> None:
    assert find_device(f"{file}:end") == BOARD
    assert find_device(f"{file}:cloud") == "here"


def test_other_devices_stay_as_they_are() -> None:
    assert [find_device(machine) for machine in ("here", BOARD)] == ["here", BOARD]


def test_a_machine_that_cannot_be_found_is_refused(file: str) -> None:
    with pytest.raises(ArgumentError, match=r"no tier 'moon'; allowed: end, edge, near, cloud"):
        find_device(f"{file}:moon")
    with pytest.raises(ArgumentError, match=r"copied.json was measured on the machine itself"):
        find_device(f"{file}:edge")
    with pytest.raises(ExperimentError, match=r"tiers\.near\.machine: cannot read"):
        find_device(f"{file}:near")
    with pytest.raises(ExperimentError, match="cannot read"):
        find_device("nowhere.yaml:end")
