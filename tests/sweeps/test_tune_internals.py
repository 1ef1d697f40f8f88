"""Ray Tune has the names that are not documented, and calls coordinators as these can be called.

`make compat` runs this with the lowest and the newest Ray that is allowed: a failure names what a
version lacks, or asks for, before a user meets it.
"""

from __future__ import annotations

import ast
import copy
import inspect
import pickle
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from tests.cluster.test_ray_internals import missing

NOT_CALLED = {"_actor_task_events"}
"""What Tune uses only where a scheduler waits for a checkpoint, which none of ours does."""


@pytest.fixture(scope="module")
def internals() -> Any:
    """The module, which is not imported where tests are collected: loading Tune takes seconds."""
    from workbench.sweeps import tune_internals

    return tune_internals


def test_the_installed_tune_has_every_name_that_is_not_documented(internals: Any) -> None:
    assert missing(internals.PRIVATE_NAMES) == {}


def test_tune_finds_what_its_controller_reads_and_calls(internals: Any) -> None:
    manager, thread = internals.CoordinatorManager, internals.CoordinatorThread
    read = set(attributes_of("_actor_manager")) - NOT_CALLED
    assert {"add_actor", "next", "num_live_actors"} <= read, "the controller was rewritten"
    assert {name for name in read if not hasattr(manager, name)} == set()
    assert {name for name in attributes_of("tracked_actor") if not hasattr(thread, name)} == set()


def test_every_call_of_the_controller_fits(internals: Any) -> None:
    calls = list(calls_of("_actor_manager"))
    assert calls
    for name, call in calls:
        method = getattr(internals.CoordinatorManager, name)
        keywords = {word.arg: None for word in call.keywords if word.arg is not None}
        inspect.signature(method).bind(None, *call.args, **keywords)


def test_copies_of_an_assignment_are_the_assignment_itself(internals: Any) -> None:
    order = SimpleNamespace(task=SimpleNamespace(trial=3))
    assignment = internals.Assignment(order)
    assert copy.deepcopy({"assignment": assignment})["assignment"] is assignment
    assignment.thread = object()
    assert pickle.loads(pickle.dumps(assignment)).order == order


def controller() -> ast.AST:
    from ray.tune.execution import tune_controller

    return ast.parse(inspect.getsource(tune_controller.TuneController))


def attributes_of(holder: str) -> Iterator[str]:
    """Yield the attributes of an object that the controller uses."""
    for node in ast.walk(controller()):
        if isinstance(node, ast.Attribute) and name_of(node.value) == holder:
            yield node.attr


def calls_of(holder: str) -> Iterator[tuple[str, ast.Call]]:
    """Yield the calls of an object's methods that the controller makes."""
    for node in ast.walk(controller()):
        match node:
            case ast.Call(func=ast.Attribute(value=value, attr=name)) if name_of(value) == holder:
                yield name, node


def name_of(node: ast.AST) -> str:
    """Return the last part of a name, such as `self._actor_manager`."""
    return getattr(node, "attr", "") or getattr(node, "id", "")
