from __future__ import annotations

from pathlib import Path

import pytest

from workbench.foundation.errors import ExperimentError
from workbench.tiers.placement.tiers_file import read_tiers

WHOLE = """
tiers:
  end: {count: 100000, machine: pi.json, memory: 64MB, power: 2W, arrivals: 0.1/s}
  edge: {count: 200}
  cloud: {count: 4, machine: here, batch: 16}
links:
  end-edge: {bandwidth: 20Mbit, rtt: 5ms, energy: 0.5uJ/B}
  edge-cloud: {trace: cell.csv, rtt: 40ms}
place: {from: best, scheduler: mapping, objective: {p95_latency: 100ms, accuracy: max}, busy: 0.7}
privacy: {transport: mtls, features: uint8, noise: 0.0, report_leak: true}
"""


def read(folder: Path, text: str):
    (folder / "tiers.yaml").write_text(text)
    return read_tiers(folder / "tiers.yaml")


def test_units_are_read_into_plain_ones(tmp_path: Path) -> None:
    read_back = read(tmp_path, WHOLE)
    end, link = read_back.tiers["end"], read_back.links_in_order()[0]
    assert (end.memory, end.power, end.arrivals) == (64_000_000, 2.0, 0.1)
    assert (link.bandwidth, link.rtt, link.energy) == (20e6, 0.005, pytest.approx(5e-7))
    assert read_back.place.objective.p95_latency == 0.1
    assert list(read_back.tiers) == ["end", "edge", "cloud"]


@pytest.mark.parametrize(
    ("old", "new", "field", "written"),
    [
        ("rtt: 5ms", "rtt: 20", "links.end-edge.rtt", "20ms"),
        ("20Mbit", "1", "links.end-edge.bandwidth", "1Mbit"),
        ("0.5uJ/B", "0.5", "links.end-edge.energy", "0.5uJ/B"),
        ("64MB", "64", "tiers.end.memory", "64MB"),
        ("2W", "'2.0'", "tiers.end.power", "2.0W"),
        ("0.1/s", "0.1", "tiers.end.arrivals", "0.1/s"),
        ("100ms", "100", "place.objective.p95_latency", "100ms"),
        ("busy: 0.7", "timeout: 1", "place.timeout", "1s"),
    ],
)
def test_a_number_without_a_unit_is_refused_with_the_usual_one(
    old: str, new: str, field: str, written: str, tmp_path: Path
) -> None:
    with pytest.raises(ExperimentError, match="has no unit") as caught:
        read(tmp_path, WHOLE.replace(old, new))
    assert caught.value.field == field
    assert caught.value.next_step == f"Write {written} if that is meant."


@pytest.mark.parametrize(
    ("old", "new", "field"),
    [
        ("100ms", "soon", "place.objective.p95_latency"),
        ("rtt: 5ms", "rtt: soon", "links.end-edge.rtt"),
        ("busy: 0.7", "timeout: soon", "place.timeout"),
        ("busy: 0.7", "heartbeat_period: soon", "place.heartbeat_period"),
    ],
)
def test_what_is_no_duration_is_not_told_to_be_a_number_without_a_unit(
    old: str, new: str, field: str, tmp_path: Path
) -> None:
    with pytest.raises(ExperimentError, match="not a duration") as caught:
        read(tmp_path, WHOLE.replace(old, new))
    assert caught.value.field == field
    assert caught.value.allowed == "a number with its unit, such as 100ms, 2s or 10m"


def test_next_tier_needs_a_tier_between_the_first_and_the_last(tmp_path: Path) -> None:
    three = WHOLE.replace("scheduler: mapping", "scheduler: next-tier")
    assert read(tmp_path, three).place.scheduler == "next-tier"
    two = three.replace("  edge: {count: 200}\n", "").replace("end-edge", "end-cloud")
    two = two.replace("  edge-cloud: {trace: cell.csv, rtt: 40ms}\n", "")
    with pytest.raises(ExperimentError, match="three tiers or more, and there are 2") as caught:
        read(tmp_path, two)
    assert caught.value.field == "place.scheduler"
    assert "end-cloud" in str(caught.value.allowed)
    assert "next-tier" not in str(caught.value.allowed)


def test_nothing_needs_no_unit(tmp_path: Path) -> None:
    assert read(tmp_path, WHOLE.replace("rtt: 5ms", "rtt: 0")).links_in_order()[0].rtt == 0.0


@pytest.mark.parametrize("models", ["{end: small}", "{end: small, cloud: best}"])
def test_models_stand_before_that_of_from(models: str, tmp_path: Path) -> None:
    read_back = read(tmp_path, WHOLE.replace("from: best", f"from: best, models: {models}"))
    assert read_back.models_of_ends() == {"end": "small", "cloud": "best"}


def test_names_of_classes_may_be_numbers(tmp_path: Path) -> None:
    read_back = read(
        tmp_path, WHOLE.replace("from: best", "from: best, labels: {0: [1, 2], odd: [3, four]}")
    )
    assert read_back.place.labels == {"0": ("1", "2"), "odd": ("3", "four")}


def test_a_misspelt_key_of_a_link_is_answered_with_the_closest(tmp_path: Path) -> None:
    with pytest.raises(ExperimentError) as caught:
        read(tmp_path, WHOLE.replace("bandwidth: 20Mbit", "bandwith: 20Mbit"))
    assert caught.value.next_step == "Did you mean bandwidth?"


@pytest.mark.parametrize(
    ("old", "new", "field"),
    [
        ("20Mbit", "20MB", "links.end-edge.bandwidth"),
        ("count: 4", "cuont: 4", "tiers.cloud.cuont"),
        ("edge-cloud", "end-cloud", "links.end-cloud"),
        ("arrivals: 0.1/s", "batch: 1", "tiers.end.arrivals"),
        ("{count: 200}", "{count: 200, arrivals: 1/s}", "tiers.edge.arrivals"),
        ("mapping", "nearest", "place.scheduler"),
        ("trace: cell.csv, ", "", "links.edge-cloud.bandwidth"),
        ("from: best, ", "", "place.from"),
        ("from: best", "models: {moon: best}", "place.models.moon"),
        ("from: best", "models: {end: small, edge: best}", "place.models"),
        ("from: best", "models: {end: small}", "place.models"),
        ("features: uint8", "features: int3", "privacy.features"),
        ("busy: 0.7", "busy: 1.0", "place.busy"),
    ],
)
def test_what_is_wrong_is_named_by_its_dotted_field(
    tmp_path: Path, old: str, new: str, field: str
) -> None:
    assert old in WHOLE
    with pytest.raises(ExperimentError) as caught:
        read(tmp_path, WHOLE.replace(old, new))
    assert caught.value.field == field
