"""Adds low-rank matrices to the linear layers of a model (LoRA), with peft.

The model itself stays frozen. peft is an optional package. It is only loaded if an experiment has
an adapter.
"""

from __future__ import annotations

import contextlib
import dataclasses
import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from torch import nn

from workbench.experiment.training_section import LowRankAdapter
from workbench.foundation.errors import ExperimentError, install_command

FIELD = "training.adapter"
_SHOWN = 6
_BELOW = ".base_layer."
"""Between the name of a layer that peft changes and those of its own parameters."""
_OTHERS = (nn.Embedding, nn.Conv1d, nn.Conv2d, nn.Conv3d)
"""Layers without which a model can have an adapter, but that peft can also change."""


def add_adapter(model: nn.Module, adapter: LowRankAdapter, *, field: str = FIELD) -> nn.Module:
    """Add trained low-rank matrices to layers of a model, and freeze everything else.

    Args:
        model: The model. It is changed, but keeps its class and is called as before.
        adapter: Rank, layers and the other settings of the addition.
        field: The dotted path of the adapter, for messages.

    Returns:
        The model.

    Raises:
        ExperimentError: If peft is not installed, or the model has no such layers.
    """
    try:
        from peft import (  # pyright: ignore[reportMissingImports]
            LoraConfig,
            inject_adapter_in_model,
        )
    except ImportError as error:
        raise ExperimentError(
            f"LoRA needs the package peft: {error}",
            field=field,
            next_step=f"Install it: {install_command('lora')}",
        ) from error
    trained = [name for name, _ in model.named_parameters() if _fits(name, adapter.unfrozen)]
    if adapter.unfrozen and not trained:
        raise ExperimentError(
            "a pattern matches no parameter of the model",
            field=f"{field}.unfrozen",
            allowed=_first([name for name, _ in model.named_parameters()]),
        )
    linear = [name for name, module in model.named_modules() if _is_linear(module)]
    targets: Any = list(adapter.targets)
    if isinstance(adapter.targets, str):
        head = _head_of(model)
        chosen = [name for name in linear if f"{name}.weight" not in trained and name != head]
        targets = "|".join(map(re.escape, chosen))
        if not chosen:
            raise ExperimentError(
                "the model has no linear layer to adapt",
                field=f"{field}.targets",
                allowed=_first(
                    [name for name, module in model.named_modules() if isinstance(module, _OTHERS)]
                )
                or None,
                next_step="Name other layers, or remove the adapter to train all weights.",
            )
    if "" in linear:
        raise ExperimentError("the model is a single layer, which cannot be adapted", field=field)
    # peft declares a whole number, but it only divides it by the rank.
    alpha: Any = adapter.alpha or 2 * adapter.rank
    config = LoraConfig(
        r=adapter.rank,
        lora_alpha=alpha,
        lora_dropout=adapter.dropout,
        target_modules=targets,
        use_dora=adapter.kind == "dora",
        use_rslora=adapter.kind == "rslora",
    )
    try:
        with warnings.catch_warnings():
            # It says that it understands how the layers of GPT-2 store their weights.
            warnings.filterwarnings("ignore", message=".*fan_in_fan_out")
            inject_adapter_in_model(config, model)
    except ValueError as error:
        raise ExperimentError(
            f"peft cannot change the layers {_first(adapter.targets)}: {error}",
            field=f"{field}.targets",
            allowed=_first(linear),
        ) from error
    by_name = dict(model.named_parameters())
    for name in trained:
        if name not in by_name:  # peft renames the parameters of a layer that it changes
            module, _, last = name.rpartition(".")
            name = f"{module}{_BELOW}{last}"
        by_name[name].requires_grad_(True)
    return model


@contextlib.contextmanager
def without_adapter(model: nn.Module) -> Iterator[None]:
    """Let a model compute what it did before `add_adapter`, without dropout.

    PEFT's own switch also freezes the adapter, which strategies have already taken over.

    Args:
        model: A model after `add_adapter`.
    """
    from peft.tuners.tuners_utils import BaseTunerLayer  # pyright: ignore[reportMissingImports]

    modules = list(model.modules())
    trained = [module for module in modules if module.training]
    adapted = [module for module in modules if isinstance(module, BaseTunerLayer)]
    for module in trained:
        module.training = False
    for module in adapted:
        module._disable_adapters = True
    try:
        yield
    finally:
        for module in adapted:
            module._disable_adapters = False
        for module in trained:
            module.training = True


def merge_adapter(model: nn.Module) -> None:
    """Add the trained matrices to the weights of their layers, and remove the adapter.

    Args:
        model: A model after `add_adapter`, on the CPU. It is changed.
    """
    from peft.tuners.tuners_utils import BaseTunerLayer  # pyright: ignore[reportMissingImports]

    adapted = [
        (name, module)
        for name, module in model.named_modules()
        if isinstance(module, BaseTunerLayer)
    ]
    for name, module in adapted:
        module.merge()
        parent, _, last = name.rpartition(".")
        setattr(model.get_submodule(parent), last, module.get_base_layer())
    model.__dict__.pop("peft_config", None)


def can_write_adapter(model: nn.Module) -> bool:
    """Return whether the adapter and the whole modules that PEFT stores are all that was trained.

    Args:
        model: A model of transformers after `add_adapter`.
    """
    return _whole_modules(model) is not None


def _whole_modules(model: nn.Module) -> dict[str, nn.Module] | None:
    """Return the modules that were trained as a whole, or None if PEFT cannot store them.

    It stores copies of modules, so none of them may contain an adapted layer, or be one.
    """
    part = f".{next(iter(model.peft_config))}"  # type: ignore[arg-type]
    trained = {
        id(item)
        for name, item in model.named_parameters()
        if item.requires_grad and part not in name
    }
    # A weight that two modules share belongs to both, as PEFT stores each of them.
    owners = {
        name: module
        for name, module in model.named_modules(remove_duplicate=False)
        if any(id(item) in trained for item in module._parameters.values())
    }
    for name, module in owners.items():
        if f"{name}.".endswith(_BELOW) or not name or any(module.children()):
            return None
    return owners


def write_adapter(model: nn.Module, folder: Path, base: Path, task: str) -> None:
    """Write the adapter of a model as PEFT does, without the weights that it is added to.

    Modules that were trained as a whole are written beside it.

    Args:
        model: A model of transformers after `add_adapter`.
        folder: The folder to write.
        base: The folder of the pretrained model.
        task: What PEFT calls the task of the model, such as CAUSAL_LM.
    """
    from safetensors.torch import save_file

    [(name, config)] = model.peft_config.items()  # type: ignore[union-attr,operator]
    part = f".{name}"
    tensors = {
        # PEFT stores the size vector of DoRA as a parameter of its layer.
        f"base_model.model.{key.replace(part, '')}": value.detach().clone().contiguous()
        for key, value in model.state_dict().items()
        if part in key
    }
    whole = _whole_modules(model)
    assert whole is not None
    for module_name, module in whole.items():
        for key, value in module.state_dict().items():
            tensors[f"base_model.model.{module_name}.{key}"] = value.detach().clone().contiguous()
    written = dataclasses.replace(
        config,
        base_model_name_or_path=str(base),
        task_type=task,
        inference_mode=True,
        modules_to_save=list(whole) or None,
    )
    written.save_pretrained(str(folder))
    save_file(tensors, folder / "adapter_model.safetensors", {"format": "pt"})


def _head_of(model: nn.Module) -> str | None:
    """Return the name of the layer with the scores of a model of transformers."""
    head = getattr(model, "get_output_embeddings", lambda: None)()
    if head is None:
        return None
    return next((name for name, module in model.named_modules() if module is head), None)


def _is_linear(module: nn.Module) -> bool:
    """Return whether a layer is linear. GPT-2 has its own class, which is no convolution."""
    if isinstance(module, nn.Linear):
        return True
    kind = type(module)
    return (kind.__module__, kind.__name__) == ("transformers.pytorch_utils", "Conv1D")


def _fits(name: str, patterns: tuple[str, ...]) -> bool:
    return any(re.search(pattern, name) for pattern in patterns)


def _first(names: Any) -> str:
    if isinstance(names, str):
        names = [names]
    shown = list(names)[:_SHOWN]
    if len(names) > _SHOWN:
        shown.append("...")
    return ", ".join(shown)
