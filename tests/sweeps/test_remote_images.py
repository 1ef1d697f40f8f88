"""Trials on two machines read images of a bucket.

Each object is read there once, whoever needs it first.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.services.clusters import Cluster
from tests.services.counted_requests import CountedRequests
from tests.services.s3 import S3Server
from tests.services.sweeps import Sweep, start_on
from workbench.experiment import Experiment
from workbench.foundation.artifacts import open_artifacts
from workbench.foundation.events import TrialStarted

pytestmark = [pytest.mark.ray, pytest.mark.slow]
NUM_IMAGES = 60


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Two machines with one CPU each, and a disk each for caches."""
    cluster = Cluster(tmp_path / "cluster")
    for number in range(2):
        cluster.add(environment={"WORKBENCH_CACHE": str(tmp_path / f"cache{number}")})
    yield cluster
    cluster.close()


@pytest.fixture
def counted(s3_server: S3Server) -> Iterator[CountedRequests]:
    counted = CountedRequests(s3_server.port)
    yield counted
    counted.close()


def test_each_image_is_read_from_the_bucket_once_per_cluster(
    cluster: Cluster, s3_server: S3Server, counted: CountedRequests, store, tmp_path: Path
) -> None:
    from PIL import Image

    rng = np.random.default_rng(0)
    bucket = open_artifacts(s3_server.url("pictures"))
    for number in range(NUM_IMAGES):
        content = io.BytesIO()
        Image.fromarray(rng.integers(0, 256, (16, 16, 3)).astype(np.uint8)).save(content, "jpeg")
        bucket.write(f"{'cat' if number % 2 else 'dog'}/{number}.jpg", content.getvalue())
    experiment = Experiment(
        model={"name": "mlp", "hidden_width": 8},
        data={"name": "images", "path": s3_server.url("pictures", port=counted.port), "size": 8},
        objectives=[{"metric": "val_loss", "goal": "minimize"}],
        search={"lr": {"low": 0.001, "high": 0.1}},
        sampler="random",
        training={"epochs": 2, "global_batch": 16},
        plan={"loaders": 1},
        budget={"trials": 4},
        resources={"concurrency": 2},
    )
    sweep: Sweep = start_on(cluster, store, experiment, tmp_path)
    sweep.wait("complete", timeout_s=120)
    assert len({node for event in sweep.of(TrialStarted) for node in event.nodes}) == 2
    read = {path: count for path, count in counted.reads.items() if path.endswith(".jpg")}
    assert len(read) == NUM_IMAGES
    assert set(read.values()) == {1}
    shards = [list((tmp_path / f"cache{number}").glob("*.shard")) for number in range(2)]
    assert [len(shard) for shard in shards] == [1, 1], "both machines have all of it"
