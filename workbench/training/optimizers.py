"""Optimizers, frozen parameters and gradient hooks, from the section `training`.

Optimizers have their torch names, are those of bitsandbytes, or are classes of other packages. Muon
only updates matrices, so AdamW updates the rest of a model. They receive the parameters in
groups, without the frozen ones. A gradient hook is your function that changes the gradients of each
step. Calling it is left to the strategies.

In torch, the first optimizer of a process imports the compiler, only to exclude itself from
compilation. That takes as long as importing torch, and 80 MB. Here, optimizers skip the import
until something else has imported the compiler. From then on, they behave as usual. If a version of
torch is built differently, it is left unchanged.
"""

from __future__ import annotations

import functools
import inspect
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch._guards import detect_fake_mode
from torch.optim import Optimizer

from workbench.experiment import Experiment, Training
from workbench.experiment.training_section import (
    BITSANDBYTES,
    UNUSABLE_OPTIMIZERS,
    ParameterGroup,
)
from workbench.foundation.errors import (
    ExperimentError,
    MissingDependencyError,
    UnknownNameError,
    first_line_of,
)
from workbench.foundation.registry import load_object
from workbench.models.configurations import configure
from workbench.training.planning.settings import TrialSettings
from workbench.training.strategies.tensor_shards import is_cut

_HYPERPARAMETERS = (
    "weight_decay",
    "momentum",
    "betas",
    "fused",
)  # torch cannot fuse every optimizer on shards
_FUSED_ON_SHARDS = (torch.optim.Adam, torch.optim.AdamW)
_COMPILER = "torch._dynamo"
_EXCLUDED = "__dynamo_disable"  # where torch keeps the version of a function that is never compiled
_NUM_NAMES_SHOWN = 6
_HOOK_FIELD = "training.gradient_hook"
_MATRIX = 2
_MUON = "muon"


_IS_HIDDEN = "is_hidden"
"""Marks a group of parameters that Muon updates."""


class MuonWithAdamW(Optimizer):
    """Muon for the hidden matrices of a model, and AdamW for all other parameters.

    With the default of `adjust_lr_fn`, both move parameters equally far, so one learning rate and
    one weight decay fit both.

    Source: Liu et al., Muon is Scalable for LLM Training (2025).
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        weight_decay: float = 0.0,
        *,
        momentum: float = 0.95,
        nesterov: bool = True,
        ns_steps: int = 5,
        adjust_lr_fn: str | None = "match_rms_adamw",
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
    ) -> None:
        """Make both optimizers.

        Args:
            params: Parameters, or groups of them. A group may say with `is_hidden` whether Muon
                updates it. Otherwise, Muon updates the matrices.
            lr: Learning rate of both.
            weight_decay: Decoupled weight decay of both.
            momentum: Decay of the mean gradient, of Muon.
            nesterov: Whether Muon looks ahead.
            ns_steps: Steps of the iteration that makes an update of Muon orthogonal.
            adjust_lr_fn: How the shape of a matrix changes its rate. See torch.optim.Muon.
            betas: Decays of both moments, of AdamW.
            eps: What AdamW adds to the root of the second moment.
        """
        given = list(params)
        groups = given if given and isinstance(given[0], dict) else [{"params": given}]
        divided = [part for group in groups for part in _with_kind(group)]
        options: dict[str, Any] = {"lr": lr, "weight_decay": weight_decay}
        makers: dict[bool, Callable[[Any], Optimizer]] = {
            True: functools.partial(
                torch.optim.Muon,
                momentum=momentum,
                nesterov=nesterov,
                ns_steps=ns_steps,
                adjust_lr_fn=adjust_lr_fn,
                **options,
            ),
            False: functools.partial(
                torch.optim.AdamW, betas=betas, eps=eps, fused=True, **options
            ),
        }
        self._parts: dict[bool, Optimizer] = {}
        for is_hidden, make in makers.items():
            # Each gives the groups its own options. They are the groups of this optimizer, too.
            if some := [group for group in divided if group[_IS_HIDDEN] == is_hidden]:
                self._parts[is_hidden] = make(some)
        super().__init__(divided, options)

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:  # type: ignore[override]
        """Update all parameters."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for is_hidden, part in self._parts.items():
            # Loading a state replaces both.
            part.param_groups = [
                group for group in self.param_groups if group[_IS_HIDDEN] == is_hidden
            ]
            part.state = self.state
            part.step()
        return loss


def _with_kind(group: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a group as up to two, of which the first one is for Muon."""
    if _IS_HIDDEN in group:
        return [group]
    parts = []
    for is_hidden in (True, False):
        some = [item for item in group["params"] if (item.ndim == _MATRIX) == is_hidden]
        if some:
            parts.append({**group, "params": some, _IS_HIDDEN: is_hidden})
    return parts


def uses_muon(training: Training) -> bool:
    """Return whether Muon updates the hidden matrices of a model."""
    return training.optimizer.lower() == _MUON


def hidden_matrices(model: nn.Module) -> frozenset[str]:
    """Return the names of the matrices that Muon updates.

    Source: Jordan et al., Muon: An optimizer for hidden layers in neural networks (2024), which
    leaves embeddings and the layer with the scores to AdamW.

    Args:
        model: The whole model.
    """
    adapted = "lora_"
    linear = [
        module
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear) and adapted not in name
    ]
    inner = getattr(model, "inner", model)
    head = getattr(inner, "get_output_embeddings", lambda: None)() or (linear or [None])[-1]
    embeddings = [module for module in model.modules() if isinstance(module, nn.Embedding)]
    others = {id(module.weight) for module in [head, *embeddings] if module is not None}
    return frozenset(
        name
        for name, parameter in model.named_parameters()
        if parameter.ndim == _MATRIX and id(parameter) not in others
    )


def optimizer_names() -> list[str]:
    """Return the names of torch's optimizers that the training loop can use."""
    return sorted(
        name
        for name, kind in vars(torch.optim).items()
        if inspect.isclass(kind)
        and issubclass(kind, Optimizer)
        and kind is not Optimizer
        and name.lower() not in UNUSABLE_OPTIMIZERS
    )


def optimizer_factory(
    training: Training, lr: float, *, field: str = "training.optimizer"
) -> Callable[[Iterable[Any]], Optimizer]:
    """Return a function that makes the optimizer of a trial from prepared parameters.

    Torch's fused kernel is used if the class has one and no option disables it. For small models,
    the update takes a third of a step, and only a tenth if it is fused.

    Args:
        training: The training section, with searched values in place.
        lr: Peak learning rate.
        field: The dotted path under which the optimizer was written.

    Raises:
        UnknownNameError: If torch has no such optimizer.
        ExperimentError: If the optimizer has no such option, does not accept a value, or is not an
            optimizer.
    """
    defer_compiler()
    kind = _class_of(training.optimizer, field)
    parameters = list(inspect.signature(kind).parameters.values())[1:]
    takes_more = any(item.kind is item.VAR_KEYWORD for item in parameters)
    known = [item.name for item in parameters if item.kind is not item.VAR_KEYWORD]
    arguments: dict[str, Any] = {"lr": lr}
    if kind is torch.optim.SGD:
        arguments["momentum"] = training.momentum
    if "weight_decay" in known or (takes_more and training.weight_decay):
        arguments["weight_decay"] = training.weight_decay
    elif training.weight_decay:
        raise ExperimentError(
            f"{kind.__name__} has no weight decay",
            field="training.weight_decay",
            next_step="Remove it.",
        )
    arguments |= _checked_options(training, kind, arguments, None if takes_more else known)
    # These options choose an implementation, or exclude the fused one.
    may_fuse = "fused" in known and not {"foreach", "differentiable", "fused"} & arguments.keys()

    def make(parameters: Iterable[Any]) -> Optimizer:
        parameters = list(parameters)
        groups = [item["params"] if isinstance(item, dict) else [item] for item in parameters]
        given = [item for group in groups for item in group]
        if is_of_bitsandbytes(training):
            if detect_fake_mode() is not None:
                return _StateOfBitsandbytes(parameters, training.optimizer.lower())
            _check_bitsandbytes(training.optimizer, given)
        if may_fuse and (kind in _FUSED_ON_SHARDS or not any(is_cut(item) for item in given)):
            arguments["fused"] = True
        try:
            return kind(parameters, **arguments)
        except (ValueError, TypeError) as error:
            raise ExperimentError(
                f"{kind.__name__} does not accept its arguments: {error}",
                field="training.optimizer_options",
            ) from error

    return make


def _checked_options(
    training: Training, kind: Any, arguments: Mapping[str, Any], known: list[str] | None
) -> dict[str, Any]:
    """Return the options of an optimizer.

    Raises:
        ExperimentError: If it has no such option, or the option has its own setting.
    """
    options: dict[str, Any] = {}
    for name, value in training.optimizer_options.items():
        if name in arguments:
            raise ExperimentError(
                "this option has its own setting, which may be searched",
                field=f"training.optimizer_options.{name}",
                next_step=f"Set training.{name} instead.",
            )
        if known is not None and name not in known:
            raise ExperimentError(
                f"{kind.__name__} has no such argument",
                field=f"training.optimizer_options.{name}",
                allowed=known,
            )
        options[name] = tuple(value) if isinstance(value, list) else value
    return options


def take_hyperparameters(stored: Any, own: Any, training: Training) -> None:
    """Replace the hyperparameters in a stored state of optimizers by this trial's.

    Moments stay. The learning rate is set at each step anyway.

    Args:
        stored: The state of another trial. It is changed in place.
        own: The state of this trial's optimizers before their first step.
        training: The training section, with the options of the optimizer.
    """
    if not isinstance(stored, dict) or not isinstance(own, dict):
        return
    if "param_groups" not in stored:  # several optimizers, by name
        for name in stored:
            take_hyperparameters(stored[name], own.get(name), training)
        return
    for group, fresh in zip(stored["param_groups"], own.get("param_groups", ()), strict=False):
        names = {*_HYPERPARAMETERS, *training.optimizer_options} & group.keys() & fresh.keys()
        group.update({name: fresh[name] for name in names})


def freeze(model: nn.Module, groups: Mapping[str, ParameterGroup]) -> None:
    """Freeze parameters, so that the optimizer does not change them.

    Args:
        model: The model.
        groups: The groups, by the pattern for the names of their parameters.

    Raises:
        ExperimentError: If a pattern matches no parameter, or all parameters are frozen.
    """
    names = [name for name, _ in model.named_parameters()]
    used = {_pattern_of(name, groups) for name in names}
    for pattern in groups:
        if pattern not in used:
            raise ExperimentError(
                "the pattern matches no parameter that an earlier pattern has left",
                field=f"training.parameter_groups.{pattern}",
                allowed=[*names[:_NUM_NAMES_SHOWN], *["..."] * (len(names) > _NUM_NAMES_SHOWN)],
            )
    for name, parameter in model.named_parameters():
        pattern = _pattern_of(name, groups)
        if pattern is not None and groups[pattern].frozen:
            parameter.requires_grad_(False)
    if names and not any(parameter.requires_grad for parameter in model.parameters()):
        raise ExperimentError(
            "all parameters are frozen, so there is nothing to train",
            field="training.parameter_groups",
        )


def groups_of(experiment: Experiment, settings: TrialSettings) -> dict[str, ParameterGroup]:
    """Return the groups of an experiment, and those of a model that scales rates with its width.

    Args:
        experiment: The experiment.
        settings: The settings of the trial.

    Raises:
        ExperimentError: If the training does not allow a model to scale its rates.
    """
    training, groups = settings.training, dict(settings.training.parameter_groups)
    name = None if experiment.model is None else experiment.model.name
    if name is None or not settings.model.get("base_width") or ":" in name:
        return groups
    factors = configure(name, settings.model).rate_factors()
    problem = None
    if "adam" not in training.optimizer.lower():
        problem = f"a model that scales with its width needs Adam, not {training.optimizer}"
    elif groups:
        problem = "a model that scales with its width has its own parameter groups"
    elif training.initialisation != "default":
        problem = "a model that scales with its width has its own initial weights"
    elif training.adapter is not None:
        problem = "an adapter does not scale with the width of its model"
    if problem is not None:
        raise ExperimentError(
            problem,
            field="model.base_width",
            next_step="Remove base_width, or what it cannot be combined with.",
        )
    # AdamW decays by the rate times the decay, which must not fall with the rate.
    is_decoupled = "adamw" in training.optimizer.lower()
    decay = training.optimizer_options.get("weight_decay", 0.01 if is_decoupled else 0.0)
    assert isinstance(decay, int | float)
    return {
        pattern: ParameterGroup(
            lr_factor=factor, weight_decay=decay / factor if is_decoupled else None
        )
        for pattern, factor in factors.items()
    }


def grouped(
    named: Iterable[tuple[str, nn.Parameter]],
    groups: Mapping[str, ParameterGroup],
    steps_per_epoch: int,
    prefix: str = "",
    hidden: frozenset[str] | None = None,
) -> list[dict[str, Any]]:
    """Return trained parameters as the groups of an optimizer, each with its settings.

    Args:
        named: The trained parameters with their names.
        groups: The groups, by the pattern for the names of their parameters.
        steps_per_epoch: Optimizer steps of an epoch.
        prefix: What the names begin with, although patterns do not know it.
        hidden: The names of the matrices that Muon updates, or None for other optimizers.
    """
    by_kind: dict[tuple[str | None, bool], list[nn.Parameter]] = {}
    for name, parameter in named:
        pattern = _pattern_of(name.removeprefix(prefix), groups)
        is_hidden = hidden is not None and name in hidden
        by_kind.setdefault((pattern, is_hidden), []).append(parameter)
    divided: list[dict[str, Any]] = []
    for (pattern, is_hidden), parameters in by_kind.items():
        settings = {} if pattern is None else _settings_of(groups[pattern], steps_per_epoch)
        if hidden is not None:
            settings[_IS_HIDDEN] = is_hidden
        divided.append({"params": parameters, **settings})
    return divided


def gradient_hook_of(training: Training) -> Callable[[dict[str, Tensor]], None] | None:
    """Return the function in `training.gradient_hook`, with its options bound.

    Args:
        training: The training section, with searched values in place.

    Returns:
        A function that receives the gradients of a step, by the names of their parameters, and
        changes them in place. None if there is no hook.

    Raises:
        ExperimentError: If the hook cannot be called with gradients and its options. The returned
            function raises it if the hook returns something, because that would be lost.
    """
    if training.gradient_hook is None:
        return None
    options = training.gradient_hook_options
    hook = load_object(training.gradient_hook, field=_HOOK_FIELD)
    if not callable(hook) or inspect.isclass(hook):
        raise ExperimentError(
            f"{training.gradient_hook} is not a function",
            field=_HOOK_FIELD,
            allowed="a function (gradients, **options) that changes them in place",
        )
    _check_options_of_hook(hook, options)

    def change(gradients: dict[str, Tensor]) -> None:
        if hook(gradients, **options) is not None:
            raise ExperimentError(
                f"{training.gradient_hook} returns a value, but a gradient hook must not",
                field=_HOOK_FIELD,
                next_step="Let it change the gradients in place, as in gradients[name].mul_(0.5).",
            )

    return change


def _class_of(name: str, field: str) -> Any:
    """Return the class of an optimizer, by its name in torch or by a reference.

    Raises:
        UnknownNameError: If torch has no such optimizer.
        ExperimentError: If a reference is not an optimizer.
    """
    if name.lower() in BITSANDBYTES:
        return _class_of_bitsandbytes(name.lower(), field)
    if ":" not in name:
        by_name = {known.lower(): known for known in optimizer_names()}
        if name.lower() not in by_name:
            raise UnknownNameError(f"unknown optimizer {name!r}", field=field, allowed=by_name)
        if name.lower() == _MUON:
            return MuonWithAdamW
        return getattr(torch.optim, by_name[name.lower()])
    kind = load_object(name, field=field)
    if not (inspect.isclass(kind) and issubclass(kind, Optimizer)):
        raise ExperimentError(
            f"{name} is not an optimizer",
            field=field,
            allowed="a subclass of torch.optim.Optimizer",
        )
    return kind


def is_of_bitsandbytes(training: Training) -> bool:
    """Return whether the optimizer is one of bitsandbytes."""
    return training.optimizer.lower() in BITSANDBYTES


class _StateOfBitsandbytes(Optimizer):
    """Has the state of an optimizer of bitsandbytes, to estimate memory with fake tensors.

    Its kernels read values, which fake tensors do not have.
    """

    _LEAST_IN_8_BITS = 4096
    """Smaller parameters have moments in single precision."""

    def __init__(self, params: Iterable[Any], name: str) -> None:
        super().__init__(params, {"lr": 0.0})
        moments = {"lion": 1, "ademamix": 3}
        self._num = next((num for kind, num in moments.items() if kind in name), 2)
        self._is_short = "8bit" in name

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Make the moments of each parameter that has a gradient."""
        for item in (item for group in self.param_groups for item in group["params"]):
            if item.grad is not None and not self.state[item]:
                is_short = self._is_short and item.numel() >= self._LEAST_IN_8_BITS
                dtype = torch.uint8 if is_short else torch.float32
                self.state[item] = {
                    f"state{number}": torch.zeros_like(item, dtype=dtype)
                    for number in range(self._num)
                }


def _class_of_bitsandbytes(name: str, field: str) -> Any:
    try:
        from bitsandbytes import optim  # pyright: ignore[reportMissingImports]
    except Exception as error:  # it also fails on machines that it does not support
        raise MissingDependencyError(
            f"{name} needs bitsandbytes: {first_line_of(error)}",
            field=field,
            next_step="Install it: pip install bitsandbytes. Or use adamw.",
        ) from error
    return getattr(optim, BITSANDBYTES[name])


def _check_bitsandbytes(name: str, parameters: list[nn.Parameter]) -> None:
    """Check that an optimizer of bitsandbytes can update parameters where they are.

    Raises:
        ExperimentError: If it cannot.
    """
    import bitsandbytes  # pyright: ignore[reportMissingImports]

    devices = {item.device.type for item in parameters}
    other = f"Use {name.removeprefix('paged_')}, or an NVIDIA GPU."
    problem, next_step = None, "Use adamw."
    if "paged" in name.lower() and devices - {"cuda"}:
        problem, next_step = "paged optimizers keep their state in the memory of NVIDIA GPUs", other
    elif unsupported := devices - set(bitsandbytes.supported_torch_devices):
        problem = f"bitsandbytes does not support {', '.join(sorted(unsupported))}"
    elif any(is_cut(item) for item in parameters):
        problem = "bitsandbytes cannot update parameters that are cut into shards"
        next_step = "Use the strategy ddp, or adamw."
    if problem is not None:
        raise ExperimentError(
            f"{name} cannot be used here: {problem}",
            field="training.optimizer",
            next_step=next_step,
        )


def _settings_of(group: ParameterGroup, steps_per_epoch: int) -> dict[str, Any]:
    settings: dict[str, Any] = {"lr_factor": group.lr_factor}
    if group.weight_decay is not None:
        settings["weight_decay"] = group.weight_decay
    if group.frozen_epochs:
        settings["frozen_steps"] = round(group.frozen_epochs * steps_per_epoch)
    return settings


def _pattern_of(name: str, groups: Mapping[str, ParameterGroup]) -> str | None:
    return next((pattern for pattern in groups if re.search(pattern, name)), None)


def _check_options_of_hook(hook: Callable[..., Any], options: dict[str, Any]) -> None:
    try:
        inspect.signature(hook).bind({}, **options)
    except TypeError as error:
        raise ExperimentError(
            f"the options cannot be passed to the gradient hook: {error}",
            field="training.gradient_hook_options",
            next_step="Name the arguments of the function after its first, the gradients.",
        ) from error
    except ValueError:  # a builtin without a signature
        return


def defer_compiler() -> None:
    """Let torch's optimizers work without its compiler, unless it is imported already."""
    if _COMPILER in sys.modules:
        return
    for kind in {Optimizer, *filter(inspect.isclass, vars(torch.optim).values())}:
        for name, function in list(vars(kind).items()):
            match _origin(function):
                case ("inner", "_compile.py"):
                    _defer_exclusion(function)
                case ("_use_grad", "optimizer.py"):
                    setattr(kind, name, _without_graph_breaks(function))


def _origin(function: Any) -> tuple[str, str]:
    """Return the name of a wrapper function in its source, and the name of the source file."""
    code = getattr(function, "__code__", None)
    if code is None or not hasattr(function, "__wrapped__"):
        return "", ""
    return code.co_name, code.co_filename.rpartition("/")[2]


def _defer_exclusion(function: Any) -> None:
    """Let a function that torch excludes from compilation run without importing the compiler."""
    wrapped = function.__wrapped__
    if hasattr(wrapped, _EXCLUDED):
        return

    def run(*arguments: Any, **named: Any) -> Any:
        if _COMPILER not in sys.modules:
            return wrapped(*arguments, **named)
        delattr(wrapped, _EXCLUDED)
        return function(*arguments, **named)

    setattr(wrapped, _EXCLUDED, run)


def _without_graph_breaks(function: Any) -> Callable[..., Any]:
    """Return a step without the calls that only tell the compiler where a graph must end."""
    wrapped = function.__wrapped__

    @functools.wraps(wrapped)
    def step(self: Optimizer, *arguments: Any, **named: Any) -> Any:
        if _COMPILER in sys.modules:
            return function(self, *arguments, **named)
        with torch.set_grad_enabled(self.defaults["differentiable"]):
            return wrapped(self, *arguments, **named)

    return step
