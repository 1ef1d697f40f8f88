"""Which variables a process of a run has: its caller's, and those of its own machine."""

from __future__ import annotations

import os
import socket

import pytest

from workbench.cluster.head.ray_environment import use_head_token
from workbench.cluster.workers import caller_environment
from workbench.cluster.workers.caller_environment import CallerEnvironment, this_environment

OTHER_HOST = f"not-{socket.gethostname()}"


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process of a node that somebody else started, with a variable of its own."""
    for name in list(os.environ):
        if name.startswith(("WORKBENCH_HEAD", "WORKBENCH_GIVEN", "RAY_")):
            monkeypatch.delenv(name)
    monkeypatch.setattr(caller_environment, "_entered", None)
    monkeypatch.setenv("ONLY_NODE", "node")
    monkeypatch.setenv("BOTH", "node")
    monkeypatch.setenv("ONLY_CALLER", "")  # so that it is removed at the end
    monkeypatch.delenv("ONLY_CALLER")


def entered(host: str) -> dict[str, str | None]:
    CallerEnvironment(host, {"BOTH": "caller", "ONLY_CALLER": "caller"}).enter()
    return {name: os.environ.get(name) for name in ("ONLY_NODE", "BOTH", "ONLY_CALLER")}


@pytest.mark.usefixtures("node")
def test_on_the_machine_of_the_caller_its_values_win_and_nothing_is_removed() -> None:
    assert entered(socket.gethostname()) == {
        "ONLY_NODE": "node",
        "BOTH": "caller",
        "ONLY_CALLER": "caller",
    }


@pytest.mark.usefixtures("node")
def test_on_another_machine_the_values_of_its_node_win() -> None:
    assert entered(OTHER_HOST) == {"ONLY_NODE": "node", "BOTH": "node", "ONLY_CALLER": "caller"}


def test_a_process_of_the_local_head_has_exactly_the_variables_of_the_caller(
    node: None, monkeypatch: pytest.MonkeyPatch, tmp_path
) -> None:
    # `use_head_token` and `enter` change what monkeypatch must restore.
    with monkeypatch.context() as patch:
        patch.setattr(os, "environ", os.environ.copy())
        use_head_token(tmp_path / "token")
        assert entered(socket.gethostname()) == {
            "ONLY_NODE": None,
            "BOTH": "caller",
            "ONLY_CALLER": "caller",
        }


@pytest.mark.usefixtures("node")
def test_a_process_passes_on_what_its_caller_gave_and_not_what_its_node_has() -> None:
    assert this_environment().variables["BOTH"] == "node"
    entered(OTHER_HOST)
    passed_on = this_environment()
    assert passed_on == CallerEnvironment(OTHER_HOST, {"BOTH": "caller", "ONLY_CALLER": "caller"})
    assert passed_on.digest() == this_environment().digest()
