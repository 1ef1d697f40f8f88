"""A round's clients follow from seed and round alone, in the shares that were set."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from workbench.training.federated.rounds import draw_round

SETTINGS: dict[str, Any] = {"num_clients": 50, "fraction": 0.2, "failures": 0.3, "stragglers": 0.5}


@given(
    seed=st.integers(0, 2**32 - 1),
    number=st.integers(0, 1000),
    num_clients=st.integers(1, 60),
    fraction=st.floats(0.001, 1.0),
)
def test_a_round_has_its_share_of_different_clients_and_repeats_itself(
    seed: int, number: int, num_clients: int, fraction: float
) -> None:
    settings = {**SETTINGS, "num_clients": num_clients, "fraction": fraction}
    drawn = draw_round(seed, number, **settings)
    clients = [member.client for member in drawn]
    assert clients == sorted(set(clients))
    assert len(clients) == min(num_clients, max(1, round(fraction * num_clients)))
    assert set(clients) <= set(range(num_clients))
    assert all(0.0 < each.part <= 1.0 for each in drawn)
    assert drawn == draw_round(seed, number, **settings)


def test_failures_and_stragglers_come_as_often_as_they_should() -> None:
    drawn = [member for number in range(500) for member in draw_round(3, number, **SETTINGS)]
    assert len(drawn) == 5000
    assert abs(sum(each.fails for each in drawn) / 5000 - 0.3) < 0.03
    assert abs(sum(each.part < 1.0 for each in drawn) / 5000 - 0.5) < 0.03


def test_nobody_fails_where_nothing_is_set() -> None:
    drawn = draw_round(3, 0, num_clients=9, fraction=1.0, failures=0.0, stragglers=0.0)
    assert [(member.client, member.fails, member.part) for member in drawn] == [
        (n, False, 1.0) for n in range(9)
    ]
