"""Checkpoints of a trial: the last one and the best one. Each is either complete or absent.

A checkpoint is written under a temporary name and moved into place. Reading verifies every byte and
only unpickles tensors and plain values. So a torn file, or any other file, is never taken for a
checkpoint.

If workers divide a large model, each worker writes its part of the state to its own file. These
files are in place before the checkpoint that lists them. torch.distributed.checkpoint is not used,
because reading its index could unpickle anything.
"""

from __future__ import annotations

import contextlib
import copy
import io
import os
import pickle
import random
import shutil
import struct
import uuid
import zipfile
import zlib
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from workbench.foundation.artifacts import Artifacts, disk_fault, open_artifacts
from workbench.foundation.errors import ArtifactsError, RunError
from workbench.training.strategies.tensor_shards import StateParts, state_of
from workbench.training.strategies.worker_group import Group
from workbench.training.worker_task import BEST, LAST

FORMAT = 1
REMEMBERED_BYTES = 64 * 2**20
"""How much memory the copies of a process's small checkpoints may take."""
IN_PARTS_FROM_BYTES = 1 << 30
"""Models of at least this size are written in parts, if no worker holds the whole model."""
VALIDATION_OUTPUTS = "validation_outputs"
"""The key of the outputs for the validation samples, in checkpoints that have them."""
_PART = ".part.pt"

UNREADABLE = (
    ArithmeticError,
    AttributeError,
    EOFError,
    LookupError,
    OSError,
    RuntimeError,
    TypeError,
    ValueError,
    pickle.UnpicklingError,
    struct.error,
    zipfile.BadZipFile,
    zlib.error,
)
"""The errors of reading a damaged file. Zipfile decodes names and numbers before any checksum.
"""


def save(
    folder: Artifacts | Path,
    content: dict[str, Any],
    *,
    last: bool,
    best: bool,
    is_read_soon: bool = False,
) -> str:
    """Write a checkpoint as the last one of its trial, the best one, or both.

    Args:
        folder: The trial's folder of checkpoints. It is created if it is missing.
        content: Tensors and plain values.
        last: Whether a resumed training should continue from it.
        best: Whether it is the best so far.
        is_read_soon: Whether this process will probably read it soon. If it is small, a copy stays
            in memory for `read_latest`.

    Returns:
        Its path, for messages.

    Raises:
        ArtifactsError: If it cannot be written. An earlier checkpoint stays.
    """
    place = open_artifacts(folder) if isinstance(folder, Path) else folder
    name = BEST if best else LAST
    _write(place, content, [LAST, BEST] if last and best else [name])
    if is_read_soon and last:
        _remembered.add(place, content)
    return f"{place}/{name}"


class _Remembered:
    """Copies of the last checkpoints that this process has written, each for a single reading.

    A trial that trains in turns continues from its own checkpoint in a moment. Small trials would
    otherwise spend most of the time between two turns on reading it.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._contents: dict[str, tuple[tuple[int, ...], int, dict[str, Any]]] = {}

    def add(self, place: Artifacts, content: dict[str, Any]) -> None:
        """Remember a checkpoint that is in place, if it is small and on this machine."""
        self._contents.pop(place.url, None)
        stamp = _stamp(place)
        num_bytes = sum(tensor.nbytes for tensor in _tensors_in(content))
        if stamp is None or num_bytes > self._limit_bytes // 4:
            return
        self._contents[place.url] = stamp, num_bytes, _copied({"format": FORMAT, **content})
        while sum(size for _, size, _ in self._contents.values()) > self._limit_bytes:
            del self._contents[next(iter(self._contents))]

    def take(self, place: Artifacts) -> dict[str, Any] | None:
        """Return the last checkpoint and forget it, or None if the file is another one now."""
        stamp, _, content = self._contents.pop(place.url, (None, 0, None))
        return content if stamp is not None and stamp == _stamp(place) else None


_remembered = _Remembered(REMEMBERED_BYTES)


def _stamp(place: Artifacts) -> tuple[int, ...] | None:
    """Return what changes if a checkpoint is replaced, or None if it is not on this machine."""
    if not place.is_local:
        return None
    try:
        status = (place.working_folder / LAST).stat()
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns


def _tensors_in(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _tensors_in(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _tensors_in(item)


def _copied(value: Any) -> Any:
    """Copy what a checkpoint may hold. Tensors are on the CPU then, as after reading."""
    if isinstance(value, torch.Tensor):
        return value.detach().to("cpu", copy=True)
    if type(value) in (dict, OrderedDict):
        copied = type(value)((key, _copied(item)) for key, item in value.items())
        if isinstance(value, OrderedDict):
            # torch keeps the versions of a model's modules in an attribute of its state.
            vars(copied).update(vars(value))
        return copied
    if type(value) in (list, tuple):
        return type(value)(_copied(item) for item in value)
    return copy.deepcopy(value)


def _write(place: Artifacts, content: dict[str, Any], names: Sequence[str]) -> None:
    """Write the same content under one or two names."""
    temporary = place.working_folder / f".{names[-1]}.{os.getpid()}.tmp"
    twin = temporary.with_suffix(".twin.tmp")
    try:
        temporary.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("wb") as file:
            torch.save({"format": FORMAT, **content}, file)
        # A checkpoint that is both last and best is written once and linked for the second name.
        for name in names[:-1]:
            _link_or_copy(temporary, twin)
            place.put(twin, name)
        place.put(temporary, names[-1])
    except (OSError, RuntimeError, ArtifactsError) as error:
        for path in (temporary, twin):
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)
        fault = disk_fault(error, place)
        if fault is None:
            raise
        raise fault from error


def save_in_parts(
    folder: Artifacts | Path,
    content: dict[str, Any],
    parts: StateParts,
    group: Group,
    *,
    last: bool,
    best: bool,
) -> str:
    """Write a checkpoint in parts, one from each worker. Every worker must call it.

    Args:
        folder: The trial's folder of checkpoints. All workers must have access to it.
        content: The rest of the checkpoint. Only rank 0's is written.
        parts: This worker's part of the state.
        group: The workers.
        last: Whether a resumed training should continue from it.
        best: Whether it is the best so far.

    Returns:
        Its path on rank 0, and "" on the other ranks.

    Raises:
        ArtifactsError: If it cannot be written. An earlier checkpoint stays.
    """
    place = open_artifacts(folder) if isinstance(folder, Path) else folder
    # Parts have new names each time. The files of the previous checkpoint stay complete until the
    # new one is in place, and are deleted after that.
    name = f"{group.broadcast(uuid.uuid4().hex)}-{group.rank}{_PART}"
    _write(place, vars(parts), [name])
    names = group.gather(name)  # all parts are written now
    if group.rank != 0:
        return ""
    saved = save(place, content | {"parts": names}, last=last, best=best)
    needed = {
        part
        for saved_name in (LAST, BEST)
        if place.exists(saved_name)
        for part in _parts_of(place, saved_name)
    }
    for file in place.sizes():
        if file.endswith(_PART) and file not in needed:
            place.delete(file)
    return saved


@contextlib.contextmanager
def fetched(place: Artifacts, name: str) -> Iterator[Path]:
    """Give a checkpoint and its parts a path on this machine, as long as the context is open."""
    with contextlib.ExitStack() as stack:
        path = stack.enter_context(place.as_file(name))
        if not place.is_local:
            for part in _named_parts(path):
                os.replace(stack.enter_context(place.as_file(part)), path.parent / part)
        yield path


def read(path: str | Path) -> dict[str, Any]:
    """Read a checkpoint onto the CPU.

    Args:
        path: A file that `save` wrote.

    Returns:
        Its content.

    Raises:
        RunError: If it is missing, torn, or not one of ours.
    """
    try:
        # torch.load does not verify checksums, so a flipped bit would go unnoticed.
        with zipfile.ZipFile(path) as archive:
            damaged = archive.testzip()
        if damaged is not None:
            raise zipfile.BadZipFile(f"{damaged} does not match its checksum")
        content = torch.load(path, map_location="cpu", weights_only=True)
        if content["format"] > FORMAT:
            raise KeyError(f"format {content['format']} is newer than {FORMAT}")
        if "parts" in content:
            content["strategy"] = _read_parts(
                [Path(path).parent / name for name in content["parts"]]
            )
    except UNREADABLE as error:
        raise RunError(
            f"{path} is not a complete checkpoint: {error}",
            next_step="Use another checkpoint of the trial, or train it again.",
        ) from error
    return content


def packed(state: Mapping[str, torch.Tensor]) -> bytes:
    """Return the weights of a model as bytes."""
    buffer = io.BytesIO()
    torch.save(dict(state), buffer)
    return buffer.getvalue()


def unpacked(payload: bytes) -> dict[str, torch.Tensor]:
    """Return the weights that `packed` wrote, on the CPU. Nothing but tensors is unpickled."""
    return torch.load(io.BytesIO(payload), map_location="cpu", weights_only=True)


def read_latest(folder: Artifacts | Path) -> dict[str, Any] | None:
    """Return the checkpoint to continue from: the last or the best one, whichever got further.

    Args:
        folder: The trial's folder of checkpoints. Incomplete files of a killed attempt are removed.

    Returns:
        Its content, or None if there is no complete checkpoint.

    Raises:
        ArtifactsError: If the folder cannot be reached.
    """
    place = open_artifacts(folder) if isinstance(folder, Path) else folder
    for path in place.working_folder.glob(".*.tmp"):
        path.unlink(missing_ok=True)
    if (remembered := _remembered.take(place)) is not None:
        return remembered
    whole: list[dict[str, Any]] = []
    for name in (LAST, BEST):
        if not place.exists(name) or (whole and _is_linked(place)):
            continue
        try:
            with fetched(place, name) as path:
                whole.append(read(path))
        except RunError as error:
            fault = disk_fault(error, place)
            # It may be complete. If the trial started again while a disk is away, it would be lost.
            if fault is not None:
                raise fault from error
    return max(whole, key=lambda content: content["step"], default=None)


def _is_linked(place: Artifacts) -> bool:
    """Return whether the last and the best checkpoint are the same file."""
    folder = place.working_folder
    return place.is_local and os.path.samefile(folder / LAST, folder / BEST)


def random_states() -> dict[str, Any]:
    """Return the state of each global random generator that a model may draw from."""
    state: Any = np.random.get_state(legacy=True)
    kind, keys, position, has_gauss, cached = state
    version, internal, gauss = random.getstate()
    return {
        # As a tensor, because torch's pickler is slow with the hundreds of numbers of a generator.
        "python": (version, torch.from_numpy(np.array(internal, dtype=np.int64)), gauss),
        "numpy": (kind, torch.from_numpy(keys.astype(np.int64)), position, has_gauss, cached),
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else [],
    }


def set_random_states(states: dict[str, Any]) -> None:
    """Set the states that `random_states` returned, maybe in another process."""
    version, internal, gauss = states["python"]
    random.setstate((version, tuple(internal.tolist()), gauss))
    kind, keys, position, has_gauss, cached = states["numpy"]
    np.random.set_state((kind, keys.numpy().astype(np.uint32), position, has_gauss, cached))
    torch.set_rng_state(states["torch"])
    if states["cuda"] and torch.cuda.is_available():
        torch.cuda.set_rng_state_all(states["cuda"][: torch.cuda.device_count()])


def _read_parts(paths: Sequence[Path]) -> dict[str, Any]:
    """Return a state whose tensors stay in files until they are looked up."""
    parts = []
    for path in paths:
        with zipfile.ZipFile(path) as archive:
            if (damaged := archive.testzip()) is not None:
                raise zipfile.BadZipFile(f"{damaged} of {path.name} does not match its checksum")
        part = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
        parts.append(StateParts(part["tensors"], part["values"], part["rest"]))
    return state_of(parts)


def _named_parts(path: Path) -> list[str]:
    """Return the files that a checkpoint lists."""
    try:
        return list(
            torch.load(path, map_location="cpu", weights_only=True, mmap=True).get("parts", ())
        )
    except UNREADABLE:
        return []  # the reader of the checkpoint reports what is wrong


def _parts_of(place: Artifacts, name: str) -> list[str]:
    with place.as_file(name) as path:
        return _named_parts(path)


def _link_or_copy(source: Path, target: Path) -> None:
    try:
        target.unlink(missing_ok=True)
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)
