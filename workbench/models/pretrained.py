"""The weights that a training begins with: initialised, or loaded from a local file.

Lazy modules, such as `torch.nn.LazyLinear`, get their shapes from the first input that they
receive. If an experiment sets an initialisation, weights are drawn again, before they are counted,
shared or trained.

Files come from safetensors and torch.save. Code in them is never executed. What did not fit is
reported.

Sources: He et al., Delving Deep into Rectifiers (2015). Glorot and Bengio, Understanding the
Difficulty of Training Deep Feedforward Neural Networks (2010). Saxe et al., Exact Solutions to the
Nonlinear Dynamics of Learning in Deep Linear Neural Networks (2014).
"""

from __future__ import annotations

import functools
import itertools
import json
import pickle
import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.parameter import is_lazy
from torch.nn.utils import parametrize

from workbench.experiment.training_section import PretrainedWeights
from workbench.foundation.bundle_manifest import check_file, complete_export, files_of_bundle
from workbench.foundation.errors import ExperimentError, first_line_of
from workbench.models.layers import needs_values, refuse_inputs
from workbench.models.model_calls import Inputs, call_model

FIELD = "training.weights"
_FILES_OF_TRANSFORMERS = (
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
)
_FILES = (
    *_FILES_OF_TRANSFORMERS,
    "model/model.safetensors",
    "model/model.safetensors.index.json",
    "weights.safetensors",
)
_NESTED = ("state_dict", "model_state_dict", "model", "module", "strategy")
"""Keys under which programs store the weights, together with other values."""
_WRAPPERS = ("module.", "model.", "_orig_mod.")
_COMPILED = "_orig_mod."
_SHOWN = 5
_UNREADABLE = (AttributeError, EOFError, LookupError, OSError, RuntimeError, TypeError, ValueError)
_FILL: dict[str, Callable[[Tensor], Any]] = {
    "he": functools.partial(nn.init.kaiming_normal_, nonlinearity="relu"),
    "xavier": nn.init.xavier_normal_,
    "orthogonal": nn.init.orthogonal_,
}
_LAYERS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)


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


def load_pretrained(
    model: nn.Module, weights: PretrainedWeights, *, field: str = FIELD, own_prefix: str = ""
) -> Loaded:
    """Load weights into a model, in place.

    Args:
        model: The model, on the CPU.
        weights: The file, and what may differ.
        field: The dotted path in which the user wrote them.
        own_prefix: What names begin with in files that the workbench has written, but not in the
            model.

    Returns:
        Which weights were loaded.

    Raises:
        ExperimentError: If the file cannot be read, or its weights belong to another model.
    """
    stored = {
        name.removeprefix(own_prefix): value
        for name, value in _renamed(
            _read(Path(weights.path).expanduser(), field), weights, field
        ).items()
    }
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


def are_weights_of(weights: PretrainedWeights, folder: Path) -> bool:
    """Return whether weights are those that transformers reads in a folder: the same files.

    Args:
        weights: The weights. What they skip does not count, as it keeps the values of the folder.
        folder: The folder of a model of transformers.
    """
    path = Path(weights.path).expanduser()
    given = _resolved_in(path) if path.is_dir() else {path.resolve()}
    is_renamed = weights.strip is not None or weights.prefix is not None
    return not is_renamed and bool(given) and given == _resolved_in(folder.expanduser())


def _resolved_in(folder: Path) -> set[Path]:
    """Return the files that transformers reads in a folder, or nothing if it has none."""
    usual = next(
        (path for name in _FILES_OF_TRANSFORMERS if (path := folder / name).exists()), None
    )
    return set() if usual is None else {part.resolve() for part in _parts_of(usual)}


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
    name = next((name for name in _FILES if (folder / name).exists()), None)
    if name is None:
        others = sorted(folder.glob("*.safetensors"))
        if len(others) == 1:
            return others
        raise ExperimentError(
            f"{folder} has {'several files' if others else 'no file'} with weights",
            field=field,
            allowed=f"one *.safetensors, or {', '.join(_FILES)}",
            next_step="Write the path of the file.",
        )
    usual = folder / name
    if name in files_of_bundle(folder):
        check_file(folder, name)
    return _parts_of(usual)


def _parts_of(usual: Path) -> list[Path]:
    """Return the files that an index names, or the file itself if it is none."""
    if usual.suffix != ".json":
        return [usual]
    index = json.loads(usual.read_text(encoding="utf-8"))
    return [usual.with_name(part) for part in sorted(set(index["weight_map"].values()))]


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


def has_lazy(model: nn.Module) -> bool:
    """Return whether a model has parameters or buffers without a shape."""
    return any(map(is_lazy, itertools.chain(model.parameters(), model.buffers())))


def set_up_lazy(
    model: nn.Module, inputs: Inputs, call: Callable[[nn.Module, Inputs], Any] = call_model
) -> None:
    """Send a batch through a model, so that its lazy modules get their shapes and initial values.

    The batch changes nothing else: statistics and modes stay the same.

    Args:
        model: The model.
        inputs: A batch for the model, samples first.
        call: How the model is called with the batch.

    Raises:
        ExperimentError: If the model cannot take the batch, or does not use all of its modules.
    """
    modes = {module: module.training for module in model.modules()}
    try:
        for is_training in (False, True):  # some modules are only used in training
            model.train(is_training)
            with torch.no_grad():
                call(model, inputs)
            if not has_lazy(model):
                return
    except (ExperimentError, *needs_values()):
        raise
    except Exception as error:  # user code
        raise refuse_inputs(error, inputs, "") from error
    finally:
        for module, was_training in modes.items():
            module.training = was_training
    names = [
        name
        for name, item in itertools.chain(model.named_parameters(), model.named_buffers())
        if is_lazy(item)
    ]
    raise ExperimentError(
        f"the lazy modules of {', '.join(names)} have no shape after a forward pass",
        field="model",
        next_step="Use them in forward, or remove them.",
    )


def make_fake(model: nn.Module, mode: FakeTensorMode) -> dict[Tensor, Tensor]:
    """Replace the parameters and buffers of a model with fake tensors of the same shape.

    Returns:
        The fake tensors, by the tensors that they replace. A shared tensor has a single one.
    """
    known: dict[Tensor, Tensor] = {}
    for module in model.modules():
        for held in (module._parameters, module._buffers):
            for name, tensor in held.items():
                if tensor is not None:
                    if tensor not in known:
                        known[tensor] = mode.from_tensor(tensor)
                    held[name] = known[tensor]  # type: ignore[assignment]
    return known


def initialise(model: nn.Module, way: str) -> None:
    """Draw the weights of all linear and convolutional layers again, in place.

    Biases, normalisations and embeddings do not change, and neither do weights that a layer shares
    with another module.

    Args:
        model: Any model.
        way: `he`, `xavier` or `orthogonal`. `default` changes nothing.
    """
    if way == "default":
        return
    owners = Counter(
        id(parameter)
        for module in model.modules()
        for parameter in module.parameters(recurse=False)
    )
    for module in model.modules():
        if not isinstance(module, _LAYERS) or parametrize.is_parametrized(module):
            continue
        if owners[id(module.weight)] == 1:
            _FILL[way](module.weight)
