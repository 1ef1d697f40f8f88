"""Energies as people write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.experiment import Budget
from workbench.experiment.budget_units import format_energy, parse_energy_wh
from workbench.foundation.errors import ExperimentError


@pytest.mark.parametrize(
    ("text", "wh"), [("500Wh", 500.0), ("2 kWh", 2000.0), ("0.5kWh", 500.0), ("1.5MWh", 1.5e6)]
)
def test_texts_become_watt_hours(text: str, wh: float) -> None:
    assert parse_energy_wh(text) == wh


@pytest.mark.parametrize("text", ["2", "2 kJ", "much", "-1Wh", "kWh"])
def test_anything_else_is_refused_with_examples(text: str) -> None:
    with pytest.raises(ExperimentError, match="500Wh, 2kWh"):
        parse_energy_wh(text)
    with pytest.raises(ExperimentError, match="energy"):
        Budget(energy=text)  # type: ignore[arg-type]


@given(st.floats(1.0, 1e6))
def test_what_is_written_can_be_read_again(wh: float) -> None:
    assert parse_energy_wh(format_energy(wh).replace(",", "")) == pytest.approx(wh, rel=1e-3)
