"""Compute how long frames occupy links, and how often heartbeats are sent.

Links have a bandwidth or a trace of it. `workbench.tiers.processes` sends messages.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np

from workbench.foundation.errors import ExperimentError
from workbench.tiers.placement.tiers_file import Link, TiersFile

_COLUMNS = ("time_s", "bits_per_s")
HEADER_BYTES = 56
"""Bytes of a frame without its tensor."""
ALIVE_BYTES = HEADER_BYTES + 88
"""Bytes of the frame that answers a heartbeat, which is an empty frame."""
HEARTBEAT_SHARE = 0.02
"""The largest share of a link's or a machine's time that heartbeats may take."""
TLS_BYTES = 22
"""Bytes that TLS 1.3 adds to a frame: 5 of header, 1 of type, 16 of authentication."""


def bandwidth_of(link: Link, folder: Path, *, field: str) -> float:
    """Return the bits per second of a link, or the rate with the mean transfer time of its trace.

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
    # The harmonic mean. A frame that is sent at a slow moment takes longer than a fast moment can
    # make up for, so the mean of the rates would be too good.
    return float(lengths_s.sum() / (lengths_s / rates[:-1]).sum())


def read_trace(link: Link, folder: Path, *, field: str) -> list[tuple[float, float]]:
    """Return the trace of a link as (time_s, bits_per_s).

    Arguments and errors as in `bandwidth_of`.
    """
    assert link.trace is not None
    path = folder / link.trace
    try:
        with path.open(encoding="utf-8", newline="") as opened:
            rows = [[float(row[name]) for name in _COLUMNS] for row in csv.DictReader(opened)]
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise ExperimentError(
            f"cannot read {path}: {error}",
            field=f"{field}.trace",
            allowed=f"a CSV file with the columns {' and '.join(_COLUMNS)}",
        ) from error
    times_s, rates = np.array(rows).reshape(-1, 2).T
    if len(rates) < 2 or np.any(np.diff(times_s) <= 0) or np.any(rates <= 0):
        raise ExperimentError(
            f"{path} is not a trace",
            field=f"{field}.trace",
            allowed="two rows or more, times that increase, and rates greater than 0",
        )
    return [(float(at_s), float(rate)) for at_s, rate in zip(times_s, rates, strict=True)]


def occupied_s(num_bytes: float, file: TiersFile, folder: Path) -> np.ndarray:
    """Return how long each link is occupied by a frame, in seconds.

    Args:
        num_bytes: Bytes of the frame, header included.
        file: The file of tiers.
        folder: The folder that its paths are relative to.

    Raises:
        ExperimentError: If a trace cannot be read.
    """
    tls_bytes = TLS_BYTES if file.privacy.transport == "mtls" else 0
    names = [f"{first}-{second}" for first, second in pairwise(file.tiers)]
    return np.array(
        [
            (num_bytes + tls_bytes) * 8 / bandwidth_of(link, folder, field=f"links.{name}")
            for name, link in zip(names, file.links_in_order(), strict=True)
        ]
    )


def beats_per_link(counts: Sequence[int]) -> np.ndarray:
    """Return the heartbeats per link if each first-tier machine sends one to every further tier.

    Args:
        counts: Number of machines of each tier. A link is shared by those that send over it.
    """
    num_further = np.arange(len(counts) - 1, 0, -1)
    return num_further * counts[0] / np.minimum.accumulate(np.array(counts[:-1]))


def heartbeat_s(
    file: TiersFile, folder: Path, counts: Sequence[int], answering_s: Sequence[float]
) -> float:
    """Return the period of the heartbeats from first-tier machines to further tiers, in seconds.

    That is `place.heartbeat_period`, or less often, so that heartbeats keep to `HEARTBEAT_SHARE`.

    Args:
        file: The file of tiers.
        folder: The folder that its paths are relative to.
        counts: Number of machines of each tier.
        answering_s: For each tier, the processor time in which a machine answers a heartbeat.

    Raises:
        ExperimentError: If the trace of a link cannot be read.
    """
    links_s = beats_per_link(counts) * occupied_s(ALIVE_BYTES, file, folder)
    machines_s = counts[0] / np.array(counts[1:]) * np.array(answering_s[1:])
    longest_s = np.concatenate([links_s, machines_s]).max(initial=0.0)
    return max(file.place.heartbeat_period, float(longest_s) / HEARTBEAT_SHARE)
