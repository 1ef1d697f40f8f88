"""Energies as people write them: watt-hours and kilowatt-hours."""

from __future__ import annotations

from workbench.foundation.formatting import format_number, parse_quantity


def parse_energy_wh(given: str | float | None) -> float | None:
    """Return the watt-hours of an energy such as `500Wh` or `2kWh`.

    Args:
        given: Text with a number and a unit, or a value of another type.

    Returns:
        Watt-hours, or `given` itself if it is not text.

    Raises:
        ExperimentError: If the text is not an energy.

    Example:
        >>> parse_energy_wh("2kWh")
        2000.0
    """
    return parse_quantity(given, ("Wh",), allowed="such as 500Wh, 2kWh, or a number of watt-hours")


def format_energy(wh: float) -> str:
    """Write an energy in watt-hours, or from a thousand on in kilowatt-hours.

    `12.5 Wh`, `2 kWh`.
    """
    return f"{format_number(wh)} Wh" if wh < 1000.0 else f"{format_number(wh / 1000.0)} kWh"
