"""Settings and services that tests of several rooms share."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections import Counter
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.builders.examples import NUM_EXAMPLES
from tests.services.clusters import Cluster
from tests.services.disk import Disk, mounted_disk
from tests.services.fake_nvml import FakeNvml
from tests.services.memory_shortage import describe_shortage
from tests.services.postgresql import PASSWORD, Server, find_programs
from tests.services.s3 import S3Server
from workbench.cluster.head import local_head
from workbench.cluster.head.ray_startup.sitecustomize import defer_grammar

# Else each of the hundreds of processes that tests start compiles the sources of this project for
# itself, which takes one that trains two to four seconds.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

defer_grammar()  # which jsonschema would compile, in every process of the suite

# Machines that run tests are shared: how long an example takes says nothing about the code.
# And whoever changes something wants to see the same examples before and after.
settings.register_profile(
    "shared",
    deadline=None,
    derandomize=True,
    max_examples=NUM_EXAMPLES,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("thorough", settings.get_profile("shared"), max_examples=2 * NUM_EXAMPLES)
settings.load_profile("shared")


def pytest_configure(config: pytest.Config) -> None:
    """Let this process, and all that tests start, depend on nothing but themselves.

    Ctrl-C is what it is at a terminal: where the suite is started in the background, every child
    would ignore it. And Ray does not end workers because something else on the machine uses its
    memory; tests of running out of memory start a head of their own that does. Nor does it start
    processes for runs to come. Where the suite runs on several processes, each computes on one
    thread: more would wait for each other. What sets a number of threads itself waits asleep.
    """
    if config.getoption("numprocesses", None):
        os.environ.setdefault("OMP_NUM_THREADS", "1")
        os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    os.environ["RAY_memory_monitor_refresh_ms"] = "0"  # noqa: SIM112 (the name that Ray reads)
    # Ray runs its workers at niceness 15. Beside tests that compute they would get a fiftieth of
    # a processor.
    os.environ["RAY_worker_niceness"] = "0"  # noqa: SIM112
    os.environ[local_head.SPARE_PROCESSES] = "0"
    os.environ.pop("WORKBENCH_ARTIFACTS", None)  # a store of a test has its artifacts next to it
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Spare the search for garbage in what thousands of tests are made of, which all stays until
    the end.

    It takes a fifth of the time in which they are collected, and goes on while they run.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(10_000)
        gc.enable()


_MAX_ID_LENGTH = 200


def pytest_make_parametrize_id(val: object) -> str | None:
    """Shorten the name of a long text, such as a document of a megabyte that must be refused.

    pytest-xdist sends all names from each of its processes. They have to be equal, but compressed
    bytes may contain the time.
    """
    if isinstance(val, bytes) and not val.isascii():
        return f"{len(val)} bytes"
    if isinstance(val, str | bytes) and len(val) > _MAX_ID_LENGTH:
        return ascii(val[:_MAX_ID_LENGTH])[1:-1]
    return None


_MAX_SLOW_S = 1200
"""Ends a slow test that hangs.

On a machine with other work, one may take ten times as long as on its own.
"""

_MANY = 20
"""So many tests of a file run one after another in one process."""

_FACES = ("automl_pipeline", "forms", "notebooks", "widgets")
_OF_WORKERS = ("exchanges", "probes", "strategies", "training")
"""Their tests use processes that have loaded torch, and stay, see `process_group` and
`warm_process`.
"""


@pytest.hookimpl(wrapper=True)  # groups are read in between
def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Function]
) -> Generator[None, object, object]:
    """Keep tests with processes of their own one after another, and let them try once more.

    A busy machine may start a process late. Where the suite runs on several processes, those with
    Ray share one, and so do those with a browser, and those with processes of workers; slow ones of
    the faces, which are many, have a Ray head of their own, beside either. What the tests of a
    module share is made once where they run in one process. Nor is a file of many tests divided: to
    hand out thousands of tests one by one takes as much time as to run most of them.
    """
    num_tests = Counter(item.path for item in items)
    for item in items:
        if item.get_closest_marker("slow") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(_MAX_SLOW_S))
        group = next((name for name in ("browser", "ray") if item.get_closest_marker(name)), None)
        if group is not None:
            if (
                group == "ray"
                and item.path.parent.name in _FACES
                and item.get_closest_marker("slow")
            ):
                group = "ray of the faces"
            elif group == "ray" and (
                item.path.parent.name == "faults" or "cluster" in item.fixturenames
            ):
                group = "clusters"
            item.add_marker(pytest.mark.flaky(reruns=1))
            item.add_marker(pytest.mark.xdist_group(group))
        elif item.path.parent.name in _OF_WORKERS:
            item.add_marker(pytest.mark.xdist_group("workers"))
        elif num_tests[item.path] >= _MANY or any(
            made[-1].scope == "module" for made in item._fixtureinfo.name2fixturedefs.values()
        ):
            item.add_marker(pytest.mark.xdist_group(item.path.as_posix()))
    result = yield
    if config.getoption("loadgroup", False):
        _refuse_ignored_groups(items)
    return result


def _refuse_ignored_groups(items: list[pytest.Function]) -> None:
    """Stop where pytest-xdist hands out tests as if no groups were marked.

    Each process would start a Ray head, a browser and a database of its own, without a word.
    """
    for item in items:
        if item.get_closest_marker("xdist_group") and "@" not in item.nodeid.rpartition("]")[2]:
            raise pytest.UsageError(
                f"pytest-xdist ignores the group of {item.nodeid} with pytest {pytest.__version__}."
                " Install the versions of constraints.txt (make env)."
            )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add to the report of a failure who has the memory, where little is left.

    Ray then ends workers.
    """
    report = yield
    if report.failed and (shortage := describe_shortage()):
        report.sections.append(("Little memory is left", shortage))
    return report


@pytest.fixture(scope="session")
def ray_head(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Attach this process to a Ray head of the test session's own, with two CPUs.

    Yield its home.
    """
    from workbench.cluster.head import attachment, local_head

    home = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        for variable in ("RAY_ADDRESS", "WORKBENCH_RAY_ADDRESS"):
            patch.delenv(variable, raising=False)
        patch.setenv("WORKBENCH_HOME", str(home))
        # Ray ends a process that outlives its head, and with it all tests of this worker. On a slow
        # machine, the tests after the last one with Ray take longer than the default of 15 minutes.
        patch.setenv("WORKBENCH_HEAD_IDLE_S", "14400")
        patch.setenv(
            "WORKBENCH_WORKER_IDLE_S", "200"
        )  # a worker that idles longer takes more than a new one
        try:
            attachment.connect(num_cpus=2)
            yield home
        finally:
            if "ray" in sys.modules:
                sys.modules["ray"].shutdown()
            local_head.shutdown()


@pytest.fixture(scope="module")
def empty_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Let the tests of a module work in an empty folder.

    A run that is started in the folder of this repository keeps its 1,500 files, which takes longer
    than most trials of tests.
    """
    folder = tmp_path_factory.mktemp("work")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        yield folder


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    """A small disk of the test alone."""
    (tmp_path / "disk").mkdir()
    with mounted_disk(tmp_path / "disk") as mounted:
        yield mounted


@pytest.fixture(scope="session")
def fake_nvml_library(tmp_path_factory: pytest.TempPathFactory) -> FakeNvml:
    """A library that plays GPUs to processes that are started with its environment."""
    return FakeNvml(tmp_path_factory.mktemp("nvml"))


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A Ray cluster of one node and two CPUs that takes jobs, with a store.

    This process is no part of it.
    """
    folder = tmp_path_factory.mktemp("cluster")
    environment = {
        "WORKBENCH_STORE": str(folder / "store.sqlite"),
        "PGPASSWORD": PASSWORD,
        "XDG_CACHE_HOME": str(folder / "cache"),
    }
    cluster = Cluster(folder, head_cpus=2, takes_jobs=True, environment=environment)
    try:
        yield cluster
    finally:
        cluster.close()


@pytest.fixture(scope="session")
def postgresql() -> Iterator[Server]:
    """A PostgreSQL server of the test session's own.

    Each test makes a database of its own there.
    """
    programs = find_programs()
    if programs is None:
        pytest.skip("needs PostgreSQL (apt-get install postgresql)")
    pytest.importorskip(
        "psycopg", reason="needs psycopg (pip install 'tuning-workbench[postgresql]')"
    )
    server = Server(programs)
    try:
        yield server
    finally:
        server.close()


@pytest.fixture
def postgresql_url(
    postgresql: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[str]:
    """The URL of an empty database on a PostgreSQL server.

    Files of runs go to the test's own folder.
    """
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
