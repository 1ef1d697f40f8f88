"""SkyPilot's task: what it asks for, and how its script keeps to the budget."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from tests.runs.provisioning.test_templates import rental
from workbench.foundation.errors import ArgumentError
from workbench.runs.provisioning.catalogue import Machine
from workbench.runs.provisioning.skypilot import task_file

PRICE_USD = 2.0


def machine(**changes: Any) -> Machine:
    return Machine.model_validate(
        {
            "provider": "gcp",
            "type": "big-4",
            "region": "here-1",
            "vcpus": 8,
            "memory_gib": 32,
            "spot": {"usd_per_hour": PRICE_USD, "origin": "a test", "date": "2026-11-22"},
            "source": {"origin": "a test", "date": "2026-11-22"},
            **changes,
        }
    )


def written(budget_usd: float = 10.0, package: str = "workbench==1", **changes: Any) -> str:
    return task_file(rental(machine(), nodes=1, min_nodes=0, **changes), package, budget_usd)


def task(**changes: Any) -> dict[str, Any]:
    return YAML(typ="safe", pure=True).load(written(**changes))


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run_with_fakes(folder: Path, script: str, *, age_s: int, follow_s: float = 0.0) -> str:
    """Run a task's script with a fake workbench, on a machine of an age. Return what was called."""
    programs, calls = folder / "bin", folder / "calls"
    programs.mkdir()
    answer = f'[ "$1" = follow ] && exec sleep {follow_s}; echo x R-1'
    for name, lines in {
        "ps": f"echo {age_s}",
        "workbench": f'echo "$@" >> {calls}; {answer}',
    }.items():
        (programs / name).write_text(f"#!/bin/sh\n{lines}\n")
        (programs / name).chmod(0o755)
    environment = {**os.environ, "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-c", script], cwd=folder, env=environment, capture_output=True, check=False
    )
    called = calls.read_text() if calls.exists() else ""
    return f"{called}{done.stdout.decode()}exit {done.returncode}"


def test_a_spot_machine_is_requested_that_ends_when_it_is_idle() -> None:
    assert task(idle_s=90.0)["resources"] == {
        "infra": "gcp/here-1",
        "instance_type": "big-4",
        "use_spot": True,
        "autostop": {"idle_minutes": 2, "down": True},
    }


def test_running_idling_and_stopping_cost_at_most_the_budget() -> None:
    # 10 USD buy 18,000 s, of which the last 600 s are for idling and 300 s for stopping.
    assert "left=$((17100 - " in task(idle_s=600.0)["run"]
    assert "left=$((16500 - " in task(idle_s=1170.0)["run"]


def test_a_run_that_ends_in_time_is_not_stopped(here: Path) -> None:
    told = run_with_fakes(here, task(settings=("training.epochs=5",))["run"], age_s=100)
    assert told == "sweep mine.yaml --set training.epochs=5 --detach\nfollow R-1\nexit 0"


def test_a_run_that_is_over_budget_is_stopped(here: Path) -> None:
    told = run_with_fakes(here, task()["run"], age_s=17_099, follow_s=1.2)
    assert told.splitlines() == [
        "sweep mine.yaml --detach",
        "follow R-1",
        "stop R-1",
        "follow R-1",
        "The budget is used up, so the run is stopped.",
        "x R-1",
        "exit 124",
    ]


def test_on_a_machine_that_has_used_up_the_budget_nothing_starts(here: Path) -> None:
    told = run_with_fakes(here, task(resume="R-1")["run"], age_s=17_100)
    assert told == "The budget is used up.\nexit 1"


def test_a_run_is_resumed(here: Path) -> None:
    told = run_with_fakes(here, task(resume="R-1")["run"], age_s=0)
    assert told == "resume R-1 --detach\nfollow R-1\nexit 0"


def test_a_wheel_is_copied_to_the_machine(here: Path) -> None:
    wheel = here / "my workbench.whl"
    wheel.touch()
    asked = task(package=str(wheel))
    assert asked["file_mounts"]["~/my workbench.whl"] == str(wheel)
    assert "~/'my workbench.whl[train]'" in asked["setup"]


@pytest.mark.parametrize(
    ("changes", "field", "said"),
    [
        # 0.5 USD are 900 s, and 900 of the 1,800 s at least are for idling and stopping.
        ({"budget_usd": 0.99}, "--money", r"at least \$1"),
        ({"spot": False}, "--catalogue", "no price of big-4 (on demand)"),
        ({"store": "sqlite:///runs"}, "--store", "a machine that ends"),
        ({"artifacts": "/runs"}, "--artifacts", "a machine that ends"),
        ({"file": Path("../mine.yaml")}, "file", "not in the current folder"),
    ],
)
def test_what_could_not_work_is_refused(changes: dict[str, Any], field: str, said: str) -> None:
    with pytest.raises(ArgumentError) as raised:
        written(**changes)
    assert raised.value.field == field
    assert said.replace("\\", "") in str(raised.value)
