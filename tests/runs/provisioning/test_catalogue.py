from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from workbench.experiment.yaml_file import read_yaml_file, write_yaml
from workbench.foundation.errors import ArgumentError, ExperimentError
from workbench.hardware.performance.flops import gpu_peak_flops_per_s
from workbench.runs.provisioning.catalogue import SHIPPED, read_catalogue

# As drivers name them.
DRIVER_NAMES = {
    "T4": "Tesla T4",
    "V100": "Tesla V100-SXM2-16GB",
    "A10": "NVIDIA A10",
    "H100-PCIe": "NVIDIA H100 PCIe",
    "L4": "NVIDIA L4",
    "A10G": "NVIDIA A10G",
    "A100-40GB": "NVIDIA A100-SXM4-40GB",
    "A100-80GB": "NVIDIA A100 80GB PCIe",
    "H100-NVL": "NVIDIA H100 NVL",
    "H100": "NVIDIA H100 80GB HBM3",
    "H200": "NVIDIA H200",
}


def changed(folder: Path, old: str, new: str) -> Path:
    path = folder / "own.yaml"
    text = SHIPPED.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    return path


def test_every_number_of_the_shipped_one_has_its_source_and_date() -> None:
    catalogue = read_catalogue()
    for machine in catalogue.machines:
        assert machine.source.origin
        for price in (machine.on_demand, machine.spot):
            assert (price.usd_per_hour is None) == (price.origin is None) == (price.date is None)
    assert {machine.provider for machine in catalogue.machines} == {
        "aws",
        "gcp",
        "azure",
        "lambda",
        "runpod",
    }
    assert any(machine.device is None for machine in catalogue.machines)


def test_spot_costs_less_where_both_are_known() -> None:
    for machine in read_catalogue().machines:
        if machine.spot.usd_per_hour and machine.on_demand.usd_per_hour:
            assert machine.spot.usd_per_hour < machine.on_demand.usd_per_hour


@pytest.mark.parametrize("name", DRIVER_NAMES)
def test_devices_are_found_by_what_drivers_call_them_and_have_the_peaks_that_steps_are_held_against(
    name,
):
    device = read_catalogue().device_by_driver_name(DRIVER_NAMES[name])
    assert device is not None
    assert device.name == name
    for precision in ("fp32", "bf16", "fp16"):
        known = gpu_peak_flops_per_s(DRIVER_NAMES[name], precision)
        stated = device.teraflops.get(precision)
        assert (None if stated is None else stated * 1e12) == known


def test_another_device_of_a_like_name_is_another_one() -> None:
    catalogue = read_catalogue()
    assert catalogue.device_by_driver_name("NVIDIA T4G") is None
    assert catalogue.device_by_driver_name("NVIDIA A100X") is None
    assert catalogue.device_by_driver_name("Tesla V100-PCIE-16GB") is None


def test_what_is_wrong_is_named_by_its_dotted_field(tmp_path: Path) -> None:
    with pytest.raises(
        ExperimentError, match=r"own.yaml.machines.0.vcpus: -8 is not valid; allowed: a"
    ):
        read_catalogue(changed(tmp_path, "vcpus: 8", "vcpus: -8"))
    with pytest.raises(
        ExperimentError, match=r"machines.0.vcpu: unknown key; .*Did you mean vcpus"
    ):
        read_catalogue(changed(tmp_path, "vcpus: 8", "vcpu: 8"))
    with pytest.raises(
        ExperimentError, match=r"machines.1.device: the catalogue has no device 'T5'"
    ):
        read_catalogue(changed(tmp_path, "device: T4", "device: T5"))
    with pytest.raises(ExperimentError, match=r"interruptions.0.most: 0.2 is less than least, 0.9"):
        read_catalogue(changed(tmp_path, "least: 0.0", "least: 0.9"))
    with pytest.raises(ExperimentError, match=r"machines.1.gpus: gpus is 0, but the device is T4"):
        read_catalogue(changed(tmp_path, "    gpus: 1\n", ""))


def test_an_empty_catalogue_is_told_what_one_holds(tmp_path: Path) -> None:
    (tmp_path / "own.yaml").write_text("# nothing yet")
    with pytest.raises(ExperimentError, match=r"own.yaml is empty; allowed: a catalogue: machines"):
        read_catalogue(tmp_path / "own.yaml")


def test_a_price_without_a_source_is_refused(tmp_path: Path) -> None:
    document = read_yaml_file(SHIPPED)
    document["machines"][0]["spot"] = {"usd_per_hour": 0.1}
    path = tmp_path / "own.yaml"
    path.write_text(re.sub(r"(\d{4}-\d\d-\d\d)T.*", r"\1", write_yaml(document)))
    with pytest.raises(
        ExperimentError, match=r"machines.0.spot.origin: a price needs an origin and a date"
    ):
        read_catalogue(path)


def test_a_month_an_hour_and_a_part_become_a_rate() -> None:
    of_month, of_hour = read_catalogue().interruptions
    middle, least, most = of_hour.rates_per_hour()
    assert (middle, least, most) == pytest.approx((0.1053605, 0.0, 0.2231436))
    assert of_month.rates_per_hour()[2] == pytest.approx(0.2231436 / 730)


def test_a_machine_is_found_by_its_type() -> None:
    assert read_catalogue().machine("g5.xlarge").device == "A10G"
    with pytest.raises(
        ArgumentError, match=r"--machine: the catalogue has no machines of type .g9.; allowed: c5"
    ):
        read_catalogue().machine("g9")


def test_clouds_are_ranked_by_criteria_with_sources_and_otherwise_unknown(tmp_path: Path) -> None:
    catalogue = read_catalogue()
    newest = catalogue.newest_criteria()
    assert set(newest) == {"price", "performance", "stability", "maturity", "flexibility"}
    assert [newest["price"].place(name) for name in ("azure", "gcp", "aws")] == [1, 2, 3]
    assert [newest["flexibility"].place(name) for name in ("gcp", "aws", "azure")] == [1, 2.5, 2.5]
    assert newest["maturity"].place("lambda") is None
    assert all(entry.source.origin for entry in catalogue.criteria)

    newer = changed(
        tmp_path,
        "criteria:\n",
        "criteria:\n  - {name: price, ranking: [[lambda], [aws]],"
        " source: {origin: mine, date: 2026-01-01}}\n",
    )
    price = read_catalogue(newer).newest_criteria()["price"]
    assert (price.place("lambda"), price.place("azure")) == (1, None)
    twice = changed(tmp_path, "[[azure], [gcp], [aws]]", "[[azure], [azure]]")
    with pytest.raises(ExperimentError, match="azure is listed twice"):
        read_catalogue(twice)


def test_the_rent_of_computing_is_a_median_of_prices_with_a_source() -> None:
    catalogue = read_catalogue()
    rents = catalogue.rent_per_teraflops()
    costs = [
        100 * machine.on_demand.usd_per_hour / machine.gpus / device.teraflops["fp16"]
        for machine in catalogue.machines
        if machine.provider == "aws"
        and (device := catalogue.device(machine.device)) is not None
        and "fp16" in device.teraflops
        and machine.on_demand.usd_per_hour is not None
    ]
    assert rents["aws"][0] == pytest.approx(float(np.median(costs)))
