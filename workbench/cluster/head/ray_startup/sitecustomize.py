"""Let the processes of Ray start faster.

Ray imports jsonschema and requests in every process, but rarely uses them. This is a third of the
time that importing Ray takes. `import_ray` replaces them by placeholders that import the real
packages when they are used. If `rfc3987_syntax` is installed, as it is with Jupyter, jsonschema
also imports it. It compiles a grammar of URLs for 0.8 s, so it also gets a placeholder.

Before a node accepts work, Ray waits for its two agents, which also import Ray. The dashboard agent
imports all its parts, even if Ray starts it without a dashboard. This is prevented.

A process that waits for its first work imports the packages that drivers need in the meantime,
unless no processes should be kept for later runs. It does not import this project, because it would
then run old code. Drivers need Ray Tune, which imports Ray Data only for Ray Train. So drivers and
waiting processes import Tune without it.

Python runs a module with this name at its start. This module then runs the module with the same
name that it hides, if there is one, and removes its folder from the path of processes that a worker
starts. It only imports the standard library.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import sys
import threading
from collections.abc import Iterator
from importlib.machinery import PathFinder
from types import ModuleType
from typing import Any

FOLDER = os.path.dirname(os.path.abspath(__file__))
_GRAMMAR = "rfc3987_syntax"
_DATA = "ray.data"
_RARELY_USED = ("requests", "jsonschema")
"""What Ray uses where it checks a runtime environment, or reads the metadata of a cloud."""
_IMPORTED_LATER = "ray._common.usage.usage_lib"
"""What a process imports when it attaches, and that in turn imports requests."""
_WORKER = "/default_worker.py"
_DASHBOARD_AGENT = "/ray/dashboard/agent.py"
_AGENTS = (_DASHBOARD_AGENT, "/ray/_private/runtime_env/agent/main.py")
_PARTS = "ray.dashboard.utils"
"""The module that finds the parts of an agent."""
_NUM_SPARE = "WORKBENCH_SPARE_PROCESSES"
_LOCK = threading.RLock()
_PRELOADED = ("ray.tune", "sqlalchemy", "pydantic", "optuna", "prometheus_client", "ruamel.yaml")
_IDLE = "ray::IDLE"
_IDLE_S = 0.5
"""A process that somebody waits for has its work sooner after it has loaded."""


class _Deferred(ModuleType):
    """Takes the place of a package until something of it is used."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self._real(), name)

    def _real(self) -> ModuleType:
        with _LOCK:
            if sys.modules.get(self.__name__) is self:
                del sys.modules[self.__name__]
            return importlib.import_module(self.__name__)


class _StandIn(_Deferred):
    """Has the function that jsonschema imports.

    What else the package has comes from the real module.

    Pickling looks for a name in every module: only one that the package defines is a reason to
    import it.
    """

    def is_valid_syntax(self, *arguments: Any, **options: Any) -> bool:
        return self._real().is_valid_syntax(*arguments, **options)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or not self._defines(name):
            raise AttributeError(name)
        return super().__getattr__(name)

    def _defines(self, name: str) -> bool:
        import re  # most processes have no use for it here

        files = (entry for folder in self.__path__ for entry in os.scandir(folder))
        for file in files:
            if file.name.endswith(".py"):
                with open(file.path, encoding="utf-8") as source:
                    if re.search(
                        rf"^(?:def |class )?{re.escape(name)}\b", source.read(), re.MULTILINE
                    ):
                        return True
        return False


def defer_grammar() -> None:
    """Let the next import of `rfc3987_syntax` return a placeholder at once."""
    _defer(_StandIn(_GRAMMAR))


def import_ray(*modules: str) -> None:
    """Import Ray without what it rarely uses, which others import as usual.

    Args:
        modules: Further modules of Ray to import.
    """
    with _deferred(*map(_Deferred, _RARELY_USED)):
        importlib.import_module("ray")
        with contextlib.suppress(ImportError):  # other versions of Ray have no module of this name
            importlib.import_module(_IMPORTED_LATER)
        for name in modules:
            importlib.import_module(name)


@contextlib.contextmanager
def without_ray_data() -> Iterator[None]:
    """Let Ray Tune be imported without Ray Data, which is imported as usual where it is used."""
    module: Any = _Deferred(_DATA)
    module.Dataset = object  # Tune annotates an argument with it
    with _deferred(module):
        yield


@contextlib.contextmanager
def _deferred(*modules: ModuleType) -> Iterator[None]:
    for module in modules:
        _defer(module)
    try:
        yield
    finally:
        for module in modules:
            if sys.modules.get(module.__name__) is module:
                del sys.modules[module.__name__]


def _defer(module: ModuleType) -> None:
    """Let an installed package be imported when something of it is used, unless it is."""
    name = module.__name__
    if name in sys.modules or (spec := importlib.util.find_spec(name)) is None:
        return
    module.__spec__ = spec
    module.__path__ = list(spec.submodule_search_locations or ())
    sys.modules[name] = module


def _run_hidden() -> None:
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or ".") != FOLDER]
    spec = PathFinder.find_spec("sitecustomize", sys.path)
    if spec is None or spec.loader is None:
        return
    sys.modules["sitecustomize"] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)


def _program() -> str:
    """Return the path of the script that this process runs, or empty for a module."""
    return next((word for word in sys.orig_argv[1:] if word.endswith(".py")), "").replace(
        os.sep, "/"
    )


def _import_for(program: str) -> None:
    """Import Ray as a process of it does next anyway."""
    if program.endswith(_DASHBOARD_AGENT) and "--minimal" in sys.orig_argv:
        import_ray(_PARTS)
        parts: Any = sys.modules[_PARTS]
        parts.get_all_modules = (
            lambda kind: []
        )  # it would import all of them to find that none is for it
    elif program.endswith((_WORKER, *_AGENTS)):
        import_ray()


def _spare_children_of_workers() -> None:
    """Clean PYTHONPATH in a worker, because processes that a trial starts do not belong to Ray."""
    entries = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    os.environ["PYTHONPATH"] = os.pathsep.join(entry for entry in entries if entry != FOLDER)


def _title() -> str:
    """Return what Ray calls this process, or nothing while it loads."""
    get_title = getattr(sys.modules.get("ray._raylet"), "getproctitle", None)
    return "" if get_title is None else get_title()


def _preload_while_idle() -> None:
    """Import packages in a process that waits for its first work.

    One that has work imports what it needs.
    """
    import time

    num_idle = 0
    while num_idle < 2:  # the first time it may have loaded just now
        time.sleep(_IDLE_S)
        title = _title()
        num_idle += title == _IDLE
        if title.startswith("ray::") and title != _IDLE:
            return
    for name in _PRELOADED:
        if _title() != _IDLE:  # its work may need less
            return
        with (
            contextlib.suppress(ImportError),
            without_ray_data() if name == "ray.tune" else _deferred(),
        ):
            importlib.import_module(name)


if __name__ == "sitecustomize":
    defer_grammar()
    with contextlib.suppress(ImportError):  # which the process reports
        _import_for(_program())
    if _program().endswith(_WORKER):
        _spare_children_of_workers()
        if os.environ.get(_NUM_SPARE) != "0":
            threading.Thread(target=_preload_while_idle, daemon=True).start()
    _run_hidden()
