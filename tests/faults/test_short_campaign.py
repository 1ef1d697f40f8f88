"""The fault campaign in short: a few kinds of victims at drawn moments; `make faults` is the long one."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from tests.faults.campaign import Campaign, Fault
from tests.faults.house import House
from tests.faults.sweeps import SHORT

pytestmark = pytest.mark.ray


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Campaign]:
    house = House(tmp_path_factory.mktemp("house"))
    yield Campaign(house)
    house.close()
    assert house.outlived() == []


@pytest.mark.slow
@pytest.mark.parametrize("victim", ["driver", "head", "pool", "worker", "coordinator"])
def test_a_sweep_survives_a_kill_and_ends_as_if_nothing_had_happened(campaign: Campaign, victim: str) -> None:
    chance = random.Random(victim)
    fault = Fault(victim, SHORT, 1, chance.random(), chance.random())
    outcome = campaign.suffer(fault)
    assert outcome.findings.wrong == [], f"{fault}: {outcome.notes}"
    assert outcome.findings.num_lost == 0
