"""The tools whose files can be read, and which of them has written a file or a folder."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from workbench.foundation.errors import ArgumentError
from workbench.runs.importing import (
    mlflow_store,
    neptune_export,
    optuna_storage,
    run_folders,
    tables,
    tensorboard_folder,
    trackio_store,
    wandb_runs,
)
from workbench.runs.importing.old_runs import OldRuns
from workbench.runs.importing.sqlite_file import is_sqlite, tables_of

Reader = Callable[[Path], list[OldRuns]]
FORMATS = ("csv", "mlflow", "tensorboard", "wandb", "optuna", "ray", "trackio", "neptune")
_ALLOWED = (
    "a table, a store of MLflow, Optuna or Trackio, or a folder of TensorBoard, wandb, Ray Tune"
    " or neptune-exporter"
)


def read_old_runs(
    place: Path, tool: str | None, mapping: Mapping[str, str], metric: str | None
) -> list[OldRuns]:
    """Read the runs at a place.

    Args:
        place: A file or a folder.
        tool: One of `FORMATS`, or None to recognize it.
        mapping: New names by old ones. Tables need it to understand their columns.
        metric: The objective, if it was given.

    Raises:
        ArgumentError: If there is nothing, or it is not a file of a known tool.
        DataError: If a file cannot be read.
    """
    if not place.exists():
        raise ArgumentError(f"{place} does not exist", field="place", allowed=_ALLOWED)
    if tool is not None and tool not in FORMATS:
        raise ArgumentError(f"{tool!r} is not a format", field="format", allowed=FORMATS)
    tools = recognize(place)
    if tool is None:
        if not tools:
            raise ArgumentError(
                f"{place} is not recognized",
                field="place",
                allowed=_ALLOWED,
                next_step=f"If you know what it is, add --format: {', '.join(FORMATS)}.",
            )
        tool = tools[0]
    elif tool not in tools:
        raise ArgumentError(
            f"{place} has no runs of {tool}",
            field="format",
            allowed=tools or FORMATS,
        )
    if tool == "csv":
        return tables.read_tables(place, mapping, metric)
    return _READERS[tool](place)


def recognize(place: Path) -> list[str]:
    """Return which tools have written a file or a folder, the surest one first.

    Args:
        place: A file or a folder.
    """
    if place.is_file():
        return _tools_of_file(place)
    tools = [tool for path in _databases(place) for tool in _tools_of_file(path)]
    tools += [tool for tool, has_runs in _IN_FOLDERS.items() if has_runs(place)]
    return list(dict.fromkeys(tools))


def _tools_of_file(path: Path) -> list[str]:
    if is_sqlite(path):
        names = tables_of(path)
        if trackio_store.is_trackio_database(path):
            return ["trackio"]
        if names >= mlflow_store.TABLES:
            return ["mlflow"]
        return ["optuna"] if names >= optuna_storage.TABLES else []
    if path.suffix == ".wandb":
        return ["wandb"]
    if "tfevents" in path.name:
        return ["tensorboard"]
    if path.suffix == ".parquet" and neptune_export.is_neptune_export(path):
        return ["neptune"]
    if optuna_storage.is_journal(path):
        return ["optuna"]
    return ["csv"] if tables.find_tables(path) else []


def _databases(folder: Path) -> list[Path]:
    return [path for path in sorted(folder.iterdir()) if path.is_file() and is_sqlite(path)]


def _databases_of(place: Path, tool: str) -> list[Path]:
    """Return the databases of a tool at a place: itself, or those in it."""
    if place.is_file():
        return [place]
    return [path for path in _databases(place) if tool in _tools_of_file(path)]


_IN_FOLDERS: dict[str, Callable[[Path], object]] = {
    "ray": run_folders.find_ray_folders,
    "wandb": wandb_runs.find_wandb_logs,
    "mlflow": mlflow_store.is_mlflow_folder,
    "neptune": neptune_export.is_neptune_export,
    "tensorboard": tensorboard_folder.find_event_files,
    "csv": tables.find_tables,
}


def _read_mlflow(place: Path) -> list[OldRuns]:
    databases = _databases_of(place, "mlflow")
    groups = [group for path in databases for group in mlflow_store.read_mlflow_database(path)]
    if place.is_dir() and mlflow_store.is_mlflow_folder(place):
        groups += mlflow_store.read_mlflow_folder(place)
    return groups


def _read_optuna(place: Path) -> list[OldRuns]:
    if place.is_file() and not is_sqlite(place):
        return optuna_storage.read_optuna_journal(place)
    databases = _databases_of(place, "optuna")
    return [group for path in databases for group in optuna_storage.read_optuna_database(path)]


def _read_trackio(place: Path) -> list[OldRuns]:
    databases = _databases_of(place, "trackio")
    return [group for path in databases for group in trackio_store.read_trackio_database(path)]


def _folder_of(place: Path) -> Path:
    return place.parent if place.is_file() else place


_READERS: dict[str, Reader] = {
    "mlflow": _read_mlflow,
    "optuna": _read_optuna,
    "trackio": _read_trackio,
    "tensorboard": lambda place: tensorboard_folder.read_tensorboard_folder(_folder_of(place)),
    "wandb": lambda place: wandb_runs.read_wandb_folder(_folder_of(place)),
    "ray": run_folders.read_ray_folder,
    "neptune": neptune_export.read_neptune_export,
}
