"""The fault campaign in short: a few kinds of victims at drawn moments.

`make faults` is the long one.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults import busy, head_folder, stopped
from tests.faults.campaign import Campaign, Fault, Round
from tests.faults.cluster_house import ClusterHouse
from tests.faults.house import House
from tests.faults.sweeps import SHORT
from tests.services.postgresql import find_programs

pytestmark = [pytest.mark.ray, pytest.mark.slow]
LONGEST_S = 10.0


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Campaign]:
    house = House(tmp_path_factory.mktemp("house"))
    yield Campaign(house)
    house.close()
    assert house.outlived() == []


@pytest.fixture(scope="module")
def cluster_campaign(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Campaign]:
    house = ClusterHouse(tmp_path_factory.mktemp("cluster"), longest_s=LONGEST_S)
    yield Campaign(house)
    house.close()
    assert house.outlived() == []


def suffer(campaign: Campaign, *victims: str) -> None:
    """Let a short sweep suffer faults that are drawn, and hold it to account."""
    chance = random.Random("-".join(victims))
    faults = [
        Fault(victim, chance.random(), chance.random(), chance.random()) for victim in victims
    ]
    outcome = campaign.suffer(
        Round(SHORT, 1, tuple(sorted(faults, key=lambda fault: fault.moment)))
    )
    assert outcome.findings.wrong == [], f"{outcome.round}: {outcome.notes}"
    assert outcome.findings.num_lost == 0


@pytest.mark.parametrize("victim", ["driver", "head", "pool", "worker"])
def test_a_sweep_survives_a_kill_and_ends_as_if_nothing_had_happened(
    campaign: Campaign, victim: str
) -> None:
    suffer(campaign, victim)


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    house = House(tmp_path)
    yield house
    house.close()


@pytest.mark.timeout(900)
@pytest.mark.parametrize("victim", ["driver", "everything"])
def test_a_run_whose_processes_were_stopped_is_not_called_lost(house: House, victim: str) -> None:
    wrong, _ = stopped.play(house, stopped.STOPPED.index(victim))
    assert wrong == []


@pytest.mark.timeout(900)
@pytest.mark.parametrize("number", [0, 1], ids=["unused", "in use"])
def test_a_cleaned_head_is_replaced_only_where_nothing_lives_in_it(
    house: House, number: int
) -> None:
    wrong, _ = head_folder.play(house, number)
    assert wrong == []


@pytest.mark.timeout(1200)
def test_on_a_busy_machine_no_run_is_called_lost(house: House) -> None:
    with busy.load_of(8):
        wrong = [line for number in range(len(busy.WAYS)) for line in busy.play(house, number)[0]]
    assert wrong == []


@pytest.mark.skipif(find_programs() is None, reason="PostgreSQL is not installed")
@pytest.mark.parametrize(
    "victims",
    [("node",), ("silence",), ("cut", "join"), ("store", "driver"), ("store", "node"), ("head",)],
)
def test_on_a_cluster_a_sweep_survives_what_happens_to_its_machines_and_its_store(
    cluster_campaign: Campaign, victims: tuple[str, ...]
) -> None:
    suffer(cluster_campaign, *victims)
