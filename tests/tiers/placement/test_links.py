from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders.examples import examples
from workbench.tiers.placement.links import (
    ALIVE_BYTES,
    HEADER_BYTES,
    HEARTBEAT_SHARE,
    TLS_BYTES,
    beats_per_link,
    heartbeat_s,
    occupied_s,
)
from workbench.tiers.placement.tiers_file import TiersFile


def file_of(bandwidths: list[float], period_s: float = 0.1, transport: str = "mtls") -> TiersFile:
    names = [f"tier{number}" for number in range(len(bandwidths) + 1)]
    return TiersFile.model_validate(
        {
            "tiers": {name: {"arrivals": "1/s"} if name == names[0] else {} for name in names},
            "links": {
                f"{one}-{other}": {"bandwidth": f"{rate}bit"}
                for (one, other), rate in zip(pairwise(names), bandwidths, strict=True)
            },
            "place": {"from": "bundle", "heartbeat_period": f"{period_s}s"},
            "privacy": {"transport": transport},
        }
    )


@given(
    counts=st.lists(st.integers(1, 100_000), min_size=2, max_size=4),
    kbits=st.integers(1, 10**6),
    answering_s=st.floats(0, 0.01),
    period_s=st.sampled_from([0.01, 0.1, 5.0]),
)
@examples(80)
def test_heartbeats_take_a_small_share_of_links_and_machines(
    counts: list[int], kbits: int, answering_s: float, period_s: float
) -> None:
    file = file_of([kbits * 1e3] * (len(counts) - 1), period_s)
    found_s = heartbeat_s(file, Path(), counts, [answering_s] * len(counts))
    # All that devices send to the tiers behind a link, over as many links as machines share.
    of_links = [
        (ALIVE_BYTES + TLS_BYTES)
        * 8
        * counts[0]
        * (len(counts) - 1 - link)
        / min(counts[: link + 1])
        / (kbits * 1e3)
        / found_s
        for link in range(len(counts) - 1)
    ]
    of_machines = [counts[0] / count * answering_s / found_s for count in counts[1:]]
    highest = max(of_links + of_machines)
    assert highest <= HEARTBEAT_SHARE * (1 + 1e-9)
    # No less often than that, or than the file states.
    assert found_s == pytest.approx(period_s) or highest == pytest.approx(HEARTBEAT_SHARE)


def test_a_link_is_shared_by_the_heartbeats_of_all_that_send_over_it() -> None:
    assert beats_per_link([1000, 10, 2]) == pytest.approx([2.0, 100.0])
    assert beats_per_link([4]).size == 0


@pytest.mark.parametrize(("transport", "more"), [("mtls", TLS_BYTES), ("plain", 0)])
def test_a_link_is_occupied_by_a_frame_and_what_protects_it(transport: str, more: int) -> None:
    occupied = occupied_s(HEADER_BYTES, file_of([1e6, 2e6], transport=transport), Path())
    assert occupied == pytest.approx((HEADER_BYTES + more) * 8 / np.array([1e6, 2e6]))
