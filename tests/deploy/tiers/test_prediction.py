from __future__ import annotations

import contextlib
import ssl
from pathlib import Path

import pytest

from tests.deploy.placement.systems import system
from workbench.deploy.placement import links
from workbench.deploy.tiers import frames
from workbench.deploy.tiers.certificates import Authority
from workbench.deploy.tiers.prediction import expected_of
from workbench.deploy.tiers.transport import Identity


def test_each_step_between_processes_is_part_of_what_is_expected() -> None:
    quiet = system(devices=1, servers=1, arrivals_per_s=1e-6)
    without, found = expected_of(quiet, 0.0), expected_of(quiet, 0.001)
    assert found["end"].p50_s == pytest.approx(without["end"].p50_s + 0.001)
    # To the first tier, to the link, and from the link to the cloud.
    assert found["cloud"].p95_s == pytest.approx(without["cloud"].p95_s + 0.003)
    share = quiet.exits.mean()
    assert found["end-cloud"].mean_s - without["end-cloud"].mean_s == pytest.approx(0.001 + share * 0.002)


def test_a_frame_takes_as_many_bytes_as_are_planned_for_it(tmp_path: Path) -> None:
    assert links.HEADER_BYTES == frames.HEADER_BYTES
    authority = Authority.create()
    for name in ("end", "cloud"):
        authority.issue(name, tmp_path)
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    contexts = [
        Identity.in_folder(tmp_path, name).context(is_server=name == "cloud") for name in ("end", "cloud")
    ]
    end = contexts[0].wrap_bio(down, up, server_hostname="cloud")
    cloud = contexts[1].wrap_bio(up, down, server_side=True)
    for side in (end, cloud, end, cloud):
        with contextlib.suppress(ssl.SSLWantReadError):
            side.do_handshake()
    up.read()
    end.write(bytes(500))
    assert len(up.read()) == 500 + links.TLS_BYTES
