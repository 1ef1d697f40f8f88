"""The form in a real kernel.

A run starts from a thread, nothing is printed, and cells go on meanwhile.
"""

from __future__ import annotations

import os
import queue
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.manager import KernelManager

from workbench.store.database import Store

SETUP = """
from pathlib import Path
import torch
import workbench as wb
from workbench.views.widgets import experiment_form
experiment_form._VIEW = Path({view!r})

class Net(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Flatten(),
            torch.nn.Linear(64, width),
            torch.nn.ReLU(),
            torch.nn.Linear(width, 10),
        )

    def forward(self, inputs):
        return self.layers(inputs)

def build(config):
    return Net(config["width"])

form = wb.app(model=build)
form
"""


class Kernel:
    """A kernel as a front end knows it."""

    def __init__(self, manager: KernelManager) -> None:
        self._client: BlockingKernelClient = manager.client()
        self._client.start_channels()
        self._client.wait_for_ready(timeout=120)
        self.outputs: list[dict[str, Any]] = []
        self.told: list[dict[str, Any]] = []
        self.model_id = ""

    def run(self, code: str) -> None:
        number = self._client.execute(code)
        self.hear(lambda message: is_end_of(message, number))

    def say(self, content: dict[str, Any]) -> None:
        message = {"comm_id": self.model_id, "data": {"method": "custom", "content": content}}
        self._client.shell_channel.send(self._client.session.msg("comm_msg", message))

    def part(self, name: str) -> dict[str, Any]:
        """Wait for the answer to a query, after which the form may say more."""

        def answer() -> dict[str, Any]:
            own = [message for message in self.told if message.get("topic") == name]
            return own[-1] if own and own[-1]["status"] != "working" else {}

        if not answer():
            self.hear(lambda _: bool(answer()))
        assert answer()["status"] == "done", answer()
        return answer()["result"]

    def hear(self, is_enough: Any, within_s: float = 240.0) -> None:
        deadline = time.monotonic() + within_s
        while True:
            assert time.monotonic() < deadline, self.told
            try:
                message = self._client.get_iopub_msg(timeout=1)
            except queue.Empty:
                continue
            kind, content = message["msg_type"], message["content"]
            if kind in ("stream", "error"):
                self.outputs.append(content)
            if kind in ("execute_result", "display_data"):
                widget = content["data"].get("application/vnd.jupyter.widget-view+json")
                if widget is not None:
                    self.model_id = widget["model_id"]
            if kind == "comm_msg" and content["data"].get("method") == "custom":
                self.told.append(content["data"]["content"])
            if is_enough(message):
                return


def is_end_of(message: dict[str, Any], number: str) -> bool:
    parent, state = (
        message["parent_header"].get("msg_id"),
        message["content"].get("execution_state"),
    )
    return parent == number and state == "idle"


@pytest.fixture
def kernel(ray_head: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Kernel]:
    monkeypatch.setenv("WORKBENCH_HOME", str(ray_head))
    monkeypatch.setenv("WORKBENCH_STORE", str(tmp_path / "store.sqlite"))
    manager = KernelManager()
    manager.start_kernel(env=dict(os.environ), cwd=str(tmp_path))
    try:
        yield Kernel(manager)
    finally:
        manager.shutdown_kernel(now=True)


@pytest.mark.slow
@pytest.mark.ray
def test_a_model_of_a_cell_is_run_by_one_button_and_the_kernel_stays_free(
    kernel: Kernel, tmp_path: Path
) -> None:
    (tmp_path / "form.js").write_text("export default { render() {} }")
    kernel.run(SETUP.format(view=str(tmp_path / "form.js")))
    assert kernel.outputs == []
    changes = [
        ["search", {"width": {"choices": [16, 32]}}],
        ["training.epochs", 1],
        ["budget.trials", 2],
    ]
    kernel.say({"type": "edit", "number": 1, "changes": changes, "removals": [], "label": "edit"})
    kernel.say({"type": "query", "number": 2, "topic": "start", "query": 5, "arguments": {}})
    kernel.run("assert 6 * 7 == 42")
    run_id = kernel.part("start")["run_id"]
    states = [message for message in kernel.told if message["type"] == "state"]
    assert states[-1]["problems"] == []

    kernel.run(
        f"assert form.run_id == {run_id!r}\nform.run.wait(200)\nassert form.run.best is not None"
    )
    assert kernel.outputs == []
    with Store.open(str(tmp_path / "store.sqlite")) as store:
        assert store.run(run_id).state == "complete"
        assert store.run(run_id).experiment_hash == states[-1]["hash"]

    kernel.run("def build(config):\n    return Net(2 * config['width'])")
    assert kernel.told[-1]["notes"]
    assert kernel.told[-1]["hash"] != states[-1]["hash"]
    assert kernel.outputs == []
