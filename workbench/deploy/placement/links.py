"""How long a message takes over a link, and what it costs: bandwidth or a trace of it, round trips, energy.

Sending messages is left to `workbench.deploy.tiers`.
"""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np

from workbench.deploy.placement.tiers_file import Link
from workbench.errors import ExperimentError

_COLUMNS = ("time_s", "bits_per_s")
HEADER_BYTES = 56
"""Bytes of a frame beside its tensor."""
HEARTBEAT_S = 0.1
"""How often a tier probes one that it may send to, with an empty frame."""
TLS_BYTES = 22
"""Bytes that a record of TLS 1.3 adds to a frame: five of header, one of type, 16 of authentication."""


def bandwidth_of(link: Link, folder: Path, *, field: str) -> float:
    """Return the bits per second of a link; of a trace, those that give its mean time of a transfer.

    Args:
        link: The link.
        folder: The folder that the path of a trace is relative to.
        field: The dotted field of the link, for errors.

    Raises:
        ExperimentError: If the trace cannot be read.
    """
    if link.trace is None:
        assert link.bandwidth is not None
        return link.bandwidth
    times_s, rates = np.array(read_trace(link, folder, field=field)).T
    lengths_s = np.diff(times_s)
    return float(lengths_s.sum() / (lengths_s / rates[:-1]).sum())


def read_trace(link: Link, folder: Path, *, field: str) -> list[tuple[float, float]]:
    """Return the trace of a link as (time_s, bits_per_s); arguments and errors as in `bandwidth_of`."""
    assert link.trace is not None
    path = folder / link.trace
    try:
        with path.open(encoding="utf-8", newline="") as opened:
            rows = [[float(row[name]) for name in _COLUMNS] for row in csv.DictReader(opened)]
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise ExperimentError(
            f"cannot read {path}: {error}", field=f"{field}.trace",
            allowed=f"a CSV file with the columns {' and '.join(_COLUMNS)}",
        ) from error  # fmt: skip
    times_s, rates = np.array(rows).reshape(-1, 2).T
    if len(rates) < 2 or np.any(np.diff(times_s) <= 0) or np.any(rates <= 0):
        raise ExperimentError(
            f"{path} is not a trace", field=f"{field}.trace",
            allowed="two rows or more, times that increase, and rates greater than 0",
        )  # fmt: skip
    return [(float(at_s), float(rate)) for at_s, rate in zip(times_s, rates, strict=True)]


def transfer_s(num_bytes: float, bandwidth: float, rtt: float) -> float:
    """Return the time of one message in one direction.

    Args:
        num_bytes: Bytes of the message, header included.
        bandwidth: Bits per second.
        rtt: Time of an empty message there and back, in seconds.

    Example:
        >>> transfer_s(1250, 1e6, 0.02)
        0.02
    """
    return rtt / 2 + num_bytes * 8 / bandwidth
