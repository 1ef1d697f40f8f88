"""Machines as a front end is shown them.

Those of the run that it looks at, while somebody drives that.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.builders.machines import see_machines
from tests.builders.recorded_runs import record_run
from workbench.store.database import Store
from workbench.views.live_feed.feed import Feed


@pytest.fixture
def feed(tmp_path: Path) -> Iterator[Feed]:
    made = Feed(lambda: Store.open(str(tmp_path / "store.sqlite")), poll_s=0.02)
    yield made
    made.close()


def test_all_machines_of_the_run_are_shown_with_what_they_do_for_it(
    tmp_path: Path, feed: Feed
) -> None:
    run_id = record_run(tmp_path)
    see_machines(str(tmp_path / "store.sqlite"), run_id, age_s=1.0)
    picture = feed.resources(run_id)
    assert picture.of_run == run_id
    big, far = picture.nodes
    assert (big.host, big.state, big.trials, big.network_bytes_per_s) == ("big", "ok", (3, 4), 15.0)
    hot, lost = big.gpus
    assert (hot.state, hot.trials, hot.slowed_by, hot.xids, hot.ecc_uncorrected) == (
        "ok",
        (3,),
        ("heat",),
        (79,),
        1,
    )
    assert (hot.clock_mhz, hot.pcie_bytes_per_s, hot.nvlink_bytes_per_s) == (1755, 5.0, None)
    assert (lost.state, lost.trials, lost.utilisation) == ("lost", (), None)
    assert (far.host, far.state, far.memory_used_bytes, len(far.gpus)) == ("far", "silent", None, 1)


def test_a_run_that_nobody_drives_shows_this_machine(tmp_path: Path, feed: Feed) -> None:
    run_id = record_run(tmp_path)
    unseen = feed.resources(run_id)
    assert (unseen.of_run, len(unseen.nodes)) == (None, 1)
    see_machines(str(tmp_path / "store.sqlite"), run_id, age_s=3600.0)
    time.sleep(1.1)  # what was read a moment ago is still told
    assert feed.resources(run_id).of_run is None
    assert feed.resources("nobody").of_run is None
    assert feed.resources().nodes[0].memory_used_bytes
