"""Weights from a local file into a model: what fits is loaded, and what does not is named.

Files of safetensors and of torch.save are read; nothing in them is executed. Where the model comes
from, and which parameters are trained, is left to training.
"""

from __future__ import annotations

import json
import pickle
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from workbench.experiment.training_section import PretrainedWeights
from workbench.foundation.bundle_manifest import check_file, complete_export, files_of_bundle
from workbench.foundation.errors import ExperimentError, first_line_of

FIELD = "training.weights"
_FILES = (
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
    "weights.safetensors",
)
_NESTED = ("state_dict", "model_state_dict", "model", "module", "strategy")
"""Under which names programs store the weights beside other things."""
_WRAPPERS = ("module.", "model.", "_orig_mod.")
_COMPILED = "_orig_mod."
_SHOWN = 5
_UNREADABLE = (AttributeError, EOFError, LookupError, OSError, RuntimeError, TypeError, ValueError)


@dataclass(frozen=True)
class Loaded:
    """What became of the parameters and buffers of a model.

    Attributes:
        loaded: Names of those that were loaded.
        kept: Names of those that keep their new values.
        unused: Names in the file that the model does not have, or has in another shape.
    """

    loaded: tuple[str, ...]
    kept: tuple[str, ...]
    unused: tuple[str, ...]

    def describe(self, path: str) -> str:
        """Return a line for the log of a trial."""
        text = (
            f"weights: {len(self.loaded)} of {len(self.loaded) + len(self.kept)} tensors from"
            f" {path}"
        )
        text += f"; new: {_listed(self.kept)}" if self.kept else ""
        return text + (f"; not used: {_listed(self.unused)}" if self.unused else "")


def load_pretrained(model: nn.Module, weights: PretrainedWeights, *, field: str = FIELD) -> Loaded:
    """Load weights into a model, in place.

    Args:
        model: The model, on the CPU.
        weights: Which file, and what may differ.
        field: The dotted path in which the user wrote them.

    Returns:
        What was loaded.

    Raises:
        ExperimentError: If the file cannot be read, or its weights are not those of the model.
    """
    stored = _renamed(_read(Path(weights.path).expanduser(), field), weights, field)
    own = model.state_dict(keep_vars=True)
    wanted = {name: _plain(name) for name in own if not _is_skipped(_plain(name), weights)}
    fitting = {
        name: stored[plain]
        for name, plain in wanted.items()
        if plain in stored and stored[plain].shape == own[name].shape
    }
    tied = {own[name].data_ptr() for name in fitting}
    kept = [name for name in own if name not in fitting and own[name].data_ptr() not in tied]
    unused = stored.keys() - {wanted[name] for name in fitting}
    if weights.strict:
        counted = {name for name in unused if not _is_skipped(name, weights)}
        if differ := _differences(own, wanted, stored, kept=kept, unused=counted):
            raise ExperimentError(
                f"{weights.path} holds weights of another model; {'; '.join(differ)}",
                field=field,
                next_step=_hint(stored, wanted.values())
                or "List what should stay new in skip, such as [^head], or load what fits with"
                " strict: false.",
            )
    if not fitting:
        raise ExperimentError(
            f"none of the {len(stored)} tensors of {weights.path} fits the model: it has "
            f"{_listed(stored)}, the model {_listed(map(_plain, own))}",
            field=field,
            next_step=_hint(stored, wanted.values()) or "Set strip or prefix.",
        )
    with torch.no_grad():
        for name, value in fitting.items():
            own[name].copy_(value)
    return Loaded(tuple(fitting), tuple(map(_plain, kept)), tuple(sorted(unused)))


def _differences(
    own: Mapping[str, Tensor],
    wanted: Mapping[str, str],
    stored: Mapping[str, Tensor],
    *,
    kept: Collection[str],
    unused: Collection[str],
) -> list[str]:
    """Return in what stored weights differ from those of a model, in words."""
    reshaped = {wanted[name] for name in kept if wanted.get(name) in stored}
    missing = [wanted[name] for name in kept if name in wanted and wanted[name] not in reshaped]
    unexpected = [name for name in sorted(unused) if name not in reshaped]
    shapes = [
        f"{name} {tuple(stored[name].shape)} in place of {tuple(own[full].shape)}"
        for full, name in wanted.items()
        if name in reshaped
    ]
    differences = {"missing": missing, "unexpected": unexpected, "other shapes": shapes}
    return [f"{what}: {_listed(names)}" for what, names in differences.items() if names]


def _hint(stored: Collection[str], wanted: Collection[str]) -> str | None:
    """Return which prefix explains the difference between two sets of names."""
    names = set(wanted)
    for prefix in _WRAPPERS:
        if any(name.startswith(prefix) and name.removeprefix(prefix) in names for name in stored):
            return f'Set strip: "{prefix}"'
        if any(prefix + name in names for name in stored):
            return f'Set prefix: "{prefix}"'
    return None


def _renamed(
    tensors: Mapping[str, Tensor], weights: PretrainedWeights, field: str
) -> dict[str, Tensor]:
    strip, prefix = weights.strip or "", weights.prefix or ""
    found = {
        prefix + _plain(name).removeprefix(strip): value
        for name, value in tensors.items()
        if _plain(name).startswith(strip)
    }
    if not found:
        raise ExperimentError(
            f"no name in {weights.path} begins with {strip!r}",
            field=f"{field}.strip",
            allowed=f"a prefix of {_listed(tensors)}",
        )
    return found


def _is_skipped(name: str, weights: PretrainedWeights) -> bool:
    return any(re.search(pattern, name) for pattern in weights.skip)


def _plain(name: str) -> str:
    return name.replace(_COMPILED, "")


def _listed(names: Any) -> str:
    shown = list(names)
    more = f" and {len(shown) - _SHOWN} more" if len(shown) > _SHOWN else ""
    return ", ".join(shown[:_SHOWN]) + more


def _read(path: Path, field: str) -> dict[str, Tensor]:
    """Return the tensors of a file, or of the files of a folder."""
    if not path.exists():
        raise ExperimentError(
            f"the path {path} does not exist",
            field=field,
            next_step=(
                f"Relative paths start in {Path.cwd()}; write an absolute one if it lies elsewhere."
            ),
        )
    files = _files_in(path, field) if path.is_dir() else [path]
    tensors: dict[str, Tensor] = {}
    for file in files:
        try:
            tensors |= _read_file(file)
        except (pickle.UnpicklingError, *_UNREADABLE) as error:
            raise ExperimentError(
                f"cannot read the weights of {file}: {first_line_of(error)}",
                field=field,
                next_step="Store the state_dict of the model, with safetensors or torch.save.",
            ) from error
    return tensors


def _files_in(folder: Path, field: str) -> list[Path]:
    """Return the files of a folder that hold its weights, which may be cut into several."""
    complete_export(folder)
    named = next((folder / name for name in _FILES if (folder / name).exists()), None)
    if named is not None and named.name in files_of_bundle(folder):
        check_file(folder, named.name)
    if named is None:
        found = sorted(folder.glob("*.safetensors"))
        if len(found) == 1:
            return found
        raise ExperimentError(
            f"{folder} holds {'several files' if found else 'no file'} of weights",
            field=field,
            allowed=f"one *.safetensors, or {', '.join(_FILES)}",
            next_step="Name the file itself.",
        )
    if named.suffix != ".json":
        return [named]
    index = json.loads(named.read_text(encoding="utf-8"))
    return [folder / name for name in sorted(set(index["weight_map"].values()))]


def _read_file(file: Path) -> dict[str, Tensor]:
    if file.suffix == ".safetensors":
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        try:
            return load_file(file)
        except SafetensorError as error:
            raise ValueError(str(error)) from error
    found = torch.load(file, map_location="cpu", weights_only=True, mmap=False)
    for _ in range(2):  # a checkpoint of the workbench holds the model of a strategy
        if (
            isinstance(found, Mapping)
            and found
            and all(isinstance(item, Tensor) for item in found.values())
        ):
            return dict(found)
        nested = (
            next((found[key] for key in _NESTED if key in found), None)
            if isinstance(found, Mapping)
            else None
        )
        if not isinstance(nested, Mapping):
            break
        found = nested
    if (
        isinstance(found, Mapping)
        and found
        and all(isinstance(item, Tensor) for item in found.values())
    ):
        return dict(found)
    kinds = _listed(map(str, found)) if isinstance(found, Mapping) else f"a {type(found).__name__}"
    raise ValueError(f"it holds {kinds or 'nothing'}, and no mapping from names to tensors")
