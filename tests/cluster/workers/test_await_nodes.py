from __future__ import annotations

from pathlib import Path

import pytest

from workbench.cluster.workers.await_nodes import await_nodes, main, release
from workbench.foundation.errors import ResourcesError

pytestmark = pytest.mark.ray


@pytest.fixture(autouse=True)
def _nothing_wanted_afterwards(ray_head: Path):
    yield
    release()


def wanted() -> list[dict[str, float]]:
    """Return what an autoscaler of the cluster would be asked for."""
    import json

    from ray.autoscaler._private.constants import AUTOSCALER_RESOURCE_REQUEST_CHANNEL
    from ray.experimental.internal_kv import _internal_kv_get

    requested = _internal_kv_get(AUTOSCALER_RESOURCE_REQUEST_CHANNEL)
    return json.loads(requested) if requested else []


def test_machines_that_are_there_need_no_wait_and_are_kept_until_they_are_let_go(
    ray_head: Path,
) -> None:
    await_nodes(1, cpus=2, gpus=0, timeout_s=0.0)
    assert wanted() == [{"CPU": 2}]
    release()
    assert wanted() == []


def test_machines_that_do_not_come_are_told(ray_head: Path) -> None:
    with pytest.raises(
        ResourcesError,
        match=r"only 0 of 2 nodes with 1 CPUs and 4 GPUs have joined the cluster after 0 s",
    ):
        await_nodes(2, cpus=1, gpus=4, timeout_s=0.0)
    assert wanted() == [{"CPU": 1, "GPU": 4}] * 2


def test_the_command_says_how_it_ended(ray_head: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["--nodes", "1", "--cpus", "2"])
    assert wanted() == [{"CPU": 2.0}]
    with pytest.raises(SystemExit, match="error: --timeout: only 1 of 3 nodes"):
        main(["--nodes", "3", "--cpus", "2", "--timeout", "0"])
    main(["--release"])
    assert wanted() == []
    with pytest.raises(SystemExit, match="2"):
        main([])
    assert "--nodes" in capsys.readouterr().err
