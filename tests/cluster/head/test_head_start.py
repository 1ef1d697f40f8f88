"""A head runs and imports only what is used of Ray, unless its dashboard is requested."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from workbench.cluster.head import local_head


@pytest.mark.ray
def test_a_head_runs_nothing_for_a_dashboard_and_no_proxy_for_ray_client(ray_head: Path) -> None:
    head = local_head.status()
    assert head is not None
    commands = []
    for process in psutil.Process(head.pid).children(recursive=True):
        with contextlib.suppress(psutil.Error):  # one that ends meanwhile has no command
            commands.append(" ".join(process.cmdline()))
    assert any("gcs_server" in command for command in commands)
    assert [
        command for command in commands if "client.server" in command or "dashboard.py" in command
    ] == []
    raylet = next(command for command in commands if "raylet_socket_name" in command)
    assert "--minimal" in raylet, "the agent loads what only a dashboard shows"


@pytest.mark.parametrize(("given", "niceness"), [(None, "0"), ("5", "5")])
def test_drivers_and_workers_are_as_nice_as_the_user_says_or_not_at_all(
    given: str | None, niceness: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RAY_worker_niceness", raising=False)
    if given is not None:
        monkeypatch.setenv("RAY_worker_niceness", given)
    assert local_head._environment()["RAY_worker_niceness"] == niceness


def leave_out_unused(services: SimpleNamespace, utils: SimpleNamespace) -> None:
    from workbench.cluster import ray_internals

    ray_internals.leave_out_unused(SimpleNamespace(), services, utils)


def make_utils() -> SimpleNamespace:
    return SimpleNamespace(get_dashboard_dependency_error=lambda: None)


@pytest.mark.parametrize("requested", [True, None])
def test_a_dashboard_that_is_requested_is_started(requested: bool | None) -> None:
    services = SimpleNamespace(
        start_api_server=lambda include_dashboard, *_, **__: ("address", "process")
    )
    utils = make_utils()
    leave_out_unused(services, utils)
    assert services.start_api_server(requested, False, "127.0.0.1", port=1) == (
        "address",
        "process",
    )
    assert utils.get_dashboard_dependency_error() is None


def test_without_a_dashboard_the_agent_needs_no_packages_of_it() -> None:
    services, utils = SimpleNamespace(start_api_server=pytest.fail), make_utils()
    leave_out_unused(services, utils)
    assert services.start_api_server(False, False, "127.0.0.1") == (None, None)
    assert isinstance(utils.get_dashboard_dependency_error(), ImportError)


def test_ray_starts_as_usual_where_it_names_things_otherwise() -> None:
    services, utils = SimpleNamespace(), SimpleNamespace()
    leave_out_unused(services, utils)
    assert (vars(services), vars(utils)) == ({}, {})


def test_a_node_is_waited_for_as_long_as_its_process_lives(tmp_path: Path) -> None:
    from workbench.cluster import ray_internals

    num_calls = 0

    def get_node(address: str) -> str:
        nonlocal num_calls
        num_calls += 1
        if num_calls == 3:
            node.kill()
        raise RuntimeError(f"no node at {address}")

    services = SimpleNamespace(get_node=get_node)
    ray_internals.wait_for_node(services)
    shutil.copy("/bin/sleep", tmp_path / "raylet")
    node = subprocess.Popen([tmp_path / "raylet", "600"])
    with node, pytest.raises(RuntimeError, match="no node at here"):
        services.get_node("here")
    assert num_calls >= 3


@pytest.mark.parametrize(("is_needed", "imported"), [(False, False), (True, True)])
def test_commands_for_other_purposes_are_imported_only_where_ray_does_not_start_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_needed: bool, imported: bool
) -> None:
    from workbench.cluster.head import head_start

    (tmp_path / "serving_of_test.py").touch()
    guard = "raise" if is_needed else "pass"
    code = f"try:\n    import serving_of_test\nexcept ImportError:\n    {guard}\n"
    (tmp_path / "commands_of_test.py").write_text(code)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(head_start, "COMMANDS", "commands_of_test")
    monkeypatch.setattr(head_start, "UNUSED_COMMANDS", ("serving_of_test",))
    head_start.import_commands()
    assert sys.modules.pop("commands_of_test")
    assert (sys.modules.pop("serving_of_test", None) is not None) == imported
