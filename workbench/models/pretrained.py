"""Loads weights from a local file into a model, and reports which of them fit.

It reads files from safetensors and torch.save, and never executes code in them.
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
"""Keys under which programs store the weights, together with other values."""
_WRAPPERS = ("module.", "model.", "_orig_mod.")
_COMPILED = "_orig_mod."
_SHOWN = 5
_UNREADABLE = (AttributeError, EOFError, LookupError, OSError, RuntimeError, TypeError, ValueError)


@dataclass(frozen=True)
class Loaded:
    """The result of loading weights into a model.

    Attributes:
        loaded: Names of parameters and buffers that were loaded.
        kept: Names of parameters and buffers that keep their initial values.
        unused: Names in the file that the model does not have, or has in another shape.
    """

    loaded: tuple[str, ...]
    kept: tuple[str, ...]
    unused: tuple[str, ...]

    def describe(self, path: str) -> str:
        """Return a line for the log of a trial."""
        num_tensors = len(self.loaded) + len(self.kept)
        text = f"weights: {len(self.loaded)} of {num_tensors} tensors from {path}"
        if self.kept:
            text += f"; new: {_listed(self.kept)}"
        if self.unused:
            text += f"; not used: {_listed(self.unused)}"
        return text


def load_pretrained(model: nn.Module, weights: PretrainedWeights, *, field: str = FIELD) -> Loaded:
    """Load weights into a model, in place.

    Args:
        model: The model, on the CPU.
        weights: The file, and what may differ.
        field: The dotted path in which the user wrote them.

    Returns:
        Which weights were loaded.

    Raises:
        ExperimentError: If the file cannot be read, or its weights belong to another model.
    """
    stored = _renamed(_read(Path(weights.path).expanduser(), field), weights, field)
    own = model.state_dict(keep_vars=True)
    wanted = {name: _plain(name) for name in own if not _is_skipped(_plain(name), weights)}
    fitting = {
        name: stored[plain]
        for name, plain in wanted.items()
        if plain in stored and stored[plain].shape == own[name].shape
    }
    # A parameter that shares its memory with a loaded one is loaded as well.
    tied = {own[name].data_ptr() for name in fitting}
    kept = [name for name in own if name not in fitting and own[name].data_ptr() not in tied]
    unused = stored.keys() - {wanted[name] for name in fitting}
    if weights.strict:
        counted = {name for name in unused if not _is_skipped(name, weights)}
        if differ := _differences(own, wanted, stored, kept=kept, unused=counted):
            raise ExperimentError(
                f"{weights.path} has the weights of another model: {'; '.join(differ)}",
                field=field,
                next_step=_hint(stored, wanted.values())
                or "List the parameters that should not be loaded in skip, such as [^head]. Or load"
                " everything that fits: strict: false.",
            )
    if not fitting:
        raise ExperimentError(
            f"none of the {len(stored)} tensors of {weights.path} fits the model. The file has"
            f" {_listed(stored)}, but the model has {_listed(map(_plain, own))}",
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
    """Describe how stored weights differ from the weights of a model."""
    reshaped = {wanted[name] for name in kept if wanted.get(name) in stored}
    missing = [wanted[name] for name in kept if name in wanted and wanted[name] not in reshaped]
    unexpected = [name for name in sorted(unused) if name not in reshaped]
    shapes = [
        f"{name} {tuple(stored[name].shape)} instead of {tuple(own[full].shape)}"
        for full, name in wanted.items()
        if name in reshaped
    ]
    differences = {"missing": missing, "unexpected": unexpected, "other shapes": shapes}
    return [f"{what}: {_listed(names)}" for what, names in differences.items() if names]


def _hint(stored: Collection[str], wanted: Collection[str]) -> str | None:
    """Return the prefix that explains the difference between two sets of names."""
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
    strip = weights.strip or ""
    prefix = weights.prefix or ""
    renamed = {
        prefix + _plain(name).removeprefix(strip): value
        for name, value in tensors.items()
        if _plain(name).startswith(strip)
    }
    if not renamed:
        raise ExperimentError(
            f"no name in {weights.path} starts with {strip!r}",
            field=f"{field}.strip",
            allowed=f"a prefix of {_listed(tensors)}",
        )
    return renamed


def _is_skipped(name: str, weights: PretrainedWeights) -> bool:
    return any(re.search(pattern, name) for pattern in weights.skip)


def _plain(name: str) -> str:
    return name.replace(_COMPILED, "")


def _listed(names: Any) -> str:
    names = list(names)
    shown = ", ".join(names[:_SHOWN])
    if len(names) > _SHOWN:
        shown += f" and {len(names) - _SHOWN} more"
    return shown


def _read(path: Path, field: str) -> dict[str, Tensor]:
    """Return the tensors of a file, or of the files of a folder."""
    if not path.exists():
        raise ExperimentError(
            f"the path {path} does not exist",
            field=field,
            next_step=(
                f"Relative paths start in {Path.cwd()}. For other folders, write an absolute path."
            ),
        )
    files = [path]
    if path.is_dir():
        files = _files_in(path, field)
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
    """Return the files with the weights of a folder. They may be split into several files."""
    complete_export(folder)
    usual = next((folder / name for name in _FILES if (folder / name).exists()), None)
    if usual is None:
        others = sorted(folder.glob("*.safetensors"))
        if len(others) == 1:
            return others
        raise ExperimentError(
            f"{folder} has {'several files' if others else 'no file'} with weights",
            field=field,
            allowed=f"one *.safetensors, or {', '.join(_FILES)}",
            next_step="Write the path of the file.",
        )
    if usual.name in files_of_bundle(folder):
        check_file(folder, usual.name)
    if usual.suffix != ".json":
        return [usual]
    index = json.loads(usual.read_text(encoding="utf-8"))
    return [folder / name for name in sorted(set(index["weight_map"].values()))]


def _read_file(file: Path) -> dict[str, Tensor]:
    if file.suffix == ".safetensors":
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        try:
            return load_file(file)
        except SafetensorError as error:
            raise ValueError(str(error)) from error
    content = torch.load(file, map_location="cpu", weights_only=True, mmap=False)
    for _ in range(2):  # in a checkpoint of the workbench, the model is inside the strategy
        if _are_weights(content) or not isinstance(content, Mapping):
            break
        nested = next((content[key] for key in _NESTED if key in content), None)
        if not isinstance(nested, Mapping):
            break
        content = nested
    if _are_weights(content):
        return dict(content)
    kinds = f"a {type(content).__name__}"
    if isinstance(content, Mapping):
        kinds = _listed(map(str, content)) or "nothing"
    raise ValueError(f"it contains {kinds} instead of a mapping from names to tensors")


def _are_weights(content: Any) -> bool:
    if not isinstance(content, Mapping) or not content:
        return False
    return all(isinstance(item, Tensor) for item in content.values())
