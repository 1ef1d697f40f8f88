"""A head runs only the processes of Ray that are used, unless its dashboard is requested."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from workbench.head import local_head


@pytest.mark.ray
def test_a_head_has_neither_a_dashboard_process_nor_a_proxy_for_ray_client(ray_head: Path) -> None:
    head = local_head.status()
    assert head is not None
    processes = psutil.Process(head.pid).children(recursive=True)
    commands = [" ".join(process.cmdline()) for process in processes]
    assert any("gcs_server" in command for command in commands)
    assert [command for command in commands if "client.server" in command or "dashboard.py" in command] == []


def leave_out_unused(scripts: SimpleNamespace, services: SimpleNamespace) -> None:
    from workbench.head import (
        head_start,
    )  # not where tests are collected: loading Ray's commands takes a second

    head_start.leave_out_unused(scripts, services)


def test_a_dashboard_that_is_requested_is_started() -> None:
    services = SimpleNamespace(start_api_server=lambda include_dashboard, *_, **__: ("address", "process"))
    leave_out_unused(SimpleNamespace(), services)
    assert services.start_api_server(True, False, "127.0.0.1") == ("address", "process")
    assert services.start_api_server(None, False, port=1) == ("address", "process")
    assert services.start_api_server(False, False, "127.0.0.1") == (None, None)


def test_ray_starts_as_usual_where_it_names_things_otherwise() -> None:
    scripts, services = SimpleNamespace(), SimpleNamespace()
    leave_out_unused(scripts, services)
    assert (vars(scripts), vars(services)) == ({}, {})
