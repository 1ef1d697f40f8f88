"""The user files that an experiment depends on.

Data, the modules it names, and all that those import.

Imports are parsed, not executed. Installed packages are left to the environment of each machine.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from importlib.machinery import PathFinder
from pathlib import Path

from workbench.cluster.remote.code_origin import is_installed
from workbench.cluster.remote.parsed_code import parse_code
from workbench.experiment import Component, Experiment
from workbench.experiment.pretrained import weights_of
from workbench.foundation.artifacts import is_url

NOT_CODE = frozenset({"__pycache__", ".git", ".venv", ".ipynb_checkpoints", "node_modules"})


def components_of(experiment: Experiment) -> list[Component]:
    """Return all components that an experiment names."""
    found = [
        experiment.model,
        experiment.data,
        experiment.train,
        experiment.loss,
        *experiment.own_metrics,
    ]
    for setting in ("optimizer", "schedule", "gradient_hook"):
        searched = experiment.search.root.get(setting)
        named = [
            getattr(experiment.training, setting),
            *((searched.values() or []) if searched else []),
        ]
        found += [Component(name=str(name)) for name in named if ":" in str(name)]
    return [item for item in found if item is not None]


def modules_of(experiment: Experiment) -> list[str]:
    """Return the modules that an experiment names, except those of the workbench."""
    names = [
        item.name.partition(":")[0]
        for item in components_of(experiment)
        if item.is_reference and item.payload_hash is None
    ]
    return sorted({name for name in names if name.partition(".")[0] != "workbench"})


def relative_data(experiment: Experiment) -> str | None:
    """Return the path of the data if it is relative to the folder of the run; None otherwise."""
    path = experiment.data.options.get("path") if experiment.data else None
    if (
        not isinstance(path, str)
        or path.startswith("~")
        or is_url(path)
        or Path(path).is_absolute()
    ):
        return None
    return path


def relative_weights(experiment: Experiment) -> list[str]:
    """Return the paths of pretrained weights that are relative to the folder of the run."""
    return [
        path
        for path in weights_of(experiment)
        if not path.startswith("~") and not Path(path).is_absolute()
    ]


def with_data_at(experiment: Experiment, path: Path) -> Experiment:
    """Return the experiment with its data at another path."""
    assert experiment.data is not None
    options = {**experiment.data.options, "path": str(path)}
    return experiment.replace(data={"name": experiment.data.name, **options})


def with_data_in(experiment: Experiment, folder: str) -> Experiment:
    """Return the experiment with its data where its relative path leads to from a folder."""
    path = relative_data(experiment)
    return experiment if path is None else with_data_at(experiment, Path(folder, path))


def files_of(modules: Iterable[str], search_path: Sequence[str]) -> dict[str, Path]:
    """Find the files of modules and of all user modules that they import.

    Args:
        modules: Names of modules; all files of a package are included.
        search_path: The folders to search first, as in `sys.path`.

    Returns:
        The path of each file, by its name relative to the entry of the search path.
    """
    return ModuleFiles().files_of(modules, search_path)


class ModuleFiles:
    """Finds the files of modules, and looks for a module only once."""

    def __init__(self) -> None:
        self._files: dict[tuple[str, tuple[str, ...]], list[tuple[Path, str]]] = {}

    def files_of(self, modules: Iterable[str], search_path: Sequence[str]) -> dict[str, Path]:
        """Find the files of modules, as `files_of` does.

        Args:
            modules: Names of modules.
            search_path: The folders to search first.
        """
        found: dict[str, Path] = {}
        entries = tuple(search_path)
        waiting, seen = {name.partition(".")[0] for name in modules}, {"workbench"}
        while waiting := waiting - seen:
            top = waiting.pop()
            seen.add(top)
            if (top, entries) not in self._files:
                self._files[top, entries] = list(_files_of(top, [*entries, *sys.path]))
            for path, name in self._files[top, entries]:
                found[name] = path
                if path.suffix == ".py":
                    waiting |= parse_code(path).imports
        return found


def _files_of(top: str, search_path: Sequence[str]) -> Iterator[tuple[Path, str]]:
    spec = PathFinder.find_spec(top, [entry or "." for entry in search_path])
    places = [] if spec is None else list(spec.submodule_search_locations or [spec.origin or ""])
    for place in [Path(place).absolute() for place in places if place and not is_installed(place)]:
        for path in sorted(place.rglob("*")) if place.is_dir() else [place]:
            name = path.relative_to(place.parent)
            if path.is_file() and NOT_CODE.isdisjoint(name.parts):
                yield path, name.as_posix()
