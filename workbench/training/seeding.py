"""Seed the global random generators of a trial, also those of libraries that it imports while it
runs.

A warm worker has a library loaded, and a new one has not: without the second half, what a function
draws would depend on which of them it was given.
"""

from __future__ import annotations

import contextlib
import random
import sys
from collections.abc import Callable, Iterator
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

_SEEDS: dict[str, Callable[[Any, int], object]] = {
    "numpy": lambda numpy, seed: numpy.random.seed(seed),
    "torch": lambda torch, seed: torch.manual_seed(seed),
}
"""How the generators of a library are seeded, given its module."""


@contextlib.contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed the generators of Python, numpy and torch, the latter two as soon as they are loaded.

    Args:
        seed: The seed of the trial.
    """
    random.seed(seed)
    for name, seed_library in _SEEDS.items():
        if (library := sys.modules.get(name)) is not None:
            seed_library(library, seed)
    finder = _Finder(seed)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        with contextlib.suppress(ValueError):  # the trial has replaced the list
            sys.meta_path.remove(finder)


class _Finder(MetaPathFinder):
    """Finds the libraries where Python does, and has them seeded once they are loaded."""

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def find_spec(
        self, fullname: str, path: Any, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in _SEEDS:
            return None
        for finder in sys.meta_path:
            spec = None if finder is self else finder.find_spec(fullname, path, target)
            if spec is not None:
                if spec.loader is not None:
                    spec.loader = _SeedingLoader(spec.loader, self._seed)
                return spec
        return None


class _SeedingLoader(Loader):
    """Loads a library as its own loader does, and seeds it."""

    def __init__(self, loader: Loader, seed: int) -> None:
        self._loader = loader
        self._seed = seed

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        # From here on the module has its own loader: resources of the package are found through it.
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        _SEEDS[module.__name__](module, self._seed)
