"""Settings and services that tests of several rooms share."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.cluster_with_jobs import ClusterWithJobs
from tests.fake_nvml import FakeNvml
from tests.postgresql_server import Server, find_programs
from tests.s3_server import S3Server

# Machines that run tests are shared: how long an example takes says nothing about the code.
# And whoever changes something wants to see the same examples before and after.
settings.register_profile(
    "shared", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("shared")


_FACES = ("automatic", "forms", "notebooks", "widgets")


@pytest.hookimpl(tryfirst=True)  # before groups are read
def pytest_collection_modifyitems(items: list[pytest.Function]) -> None:
    """Keep tests with processes of their own one after another, and let them try once more.

    A busy machine may start a process late. Where the suite runs on several processes, those with Ray share
    one, and so do those with a browser; those of the faces have a Ray head of their own, beside either.
    """
    for item in items:
        group = next((name for name in ("browser", "ray") if item.get_closest_marker(name)), None)
        if group is not None:
            if group == "ray" and item.path.parent.name in _FACES:
                group = "ray of the faces"
            elif group == "ray" and (item.path.parent.name == "faults" or "cluster" in item.fixturenames):
                group = "clusters"
            item.add_marker(pytest.mark.flaky(reruns=1))
            item.add_marker(pytest.mark.xdist_group(group))


@pytest.fixture(scope="session")
def ray_head(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Attach this process to a Ray head of the test session's own, with two CPUs; yield its home."""
    from workbench.workers import head

    home = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        for variable in ("RAY_ADDRESS", "WORKBENCH_RAY_ADDRESS"):
            patch.delenv(variable, raising=False)
        patch.setenv("WORKBENCH_HOME", str(home))
        patch.setenv("WORKBENCH_HEAD_IDLE_S", "900")
        try:
            head.connect(num_cpus=2)
            yield home
        finally:
            if "ray" in sys.modules:
                sys.modules["ray"].shutdown()
            head.shutdown()


@pytest.fixture(scope="session")
def fake_nvml_library(tmp_path_factory: pytest.TempPathFactory) -> FakeNvml:
    """A library that plays GPUs to processes that are started with its environment."""
    return FakeNvml(tmp_path_factory.mktemp("nvml"))


@pytest.fixture(scope="session")
def cluster() -> Iterator[ClusterWithJobs]:
    """A Ray cluster of the test session's own that takes jobs; this process is no part of it."""
    cluster = ClusterWithJobs()
    try:
        yield cluster
    finally:
        cluster.close()


@pytest.fixture(scope="session")
def postgresql() -> Iterator[Server]:
    """A PostgreSQL server of the test session's own; each test makes a database of its own there."""
    programs = find_programs()
    if programs is None:
        pytest.skip("needs PostgreSQL (apt-get install postgresql)")
    pytest.importorskip("psycopg", reason="needs psycopg (pip install 'workbench[postgresql]')")
    server = Server(programs)
    try:
        yield server
    finally:
        server.close()


@pytest.fixture
def postgresql_url(postgresql: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The URL of an empty database on a PostgreSQL server; files of runs go to the test's own folder."""
    monkeypatch.setenv("WORKBENCH_ARTIFACTS", str(tmp_path / "artifacts"))
    database = postgresql.make_database()
    yield postgresql.url(database)
    postgresql.drop_database(database)


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    """A server that speaks S3."""
    server = S3Server()
    yield server
    server.close()
