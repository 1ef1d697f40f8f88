"""Finds the blocks that a model computes one after another, and verifies them by running it.

The forward pass itself stays unchanged. A stage starts by overwriting the input of one block, and
ends by reading the input of another one. So the model may do anything between its blocks, as long
as that only depends on the input of the last block.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from workbench.foundation.errors import ExperimentError

_TOLERANCE = 1e-4
_CONTAINERS = (nn.ModuleList, nn.Sequential)


@dataclass(frozen=True)
class BlockSequence:
    """The blocks of one model. Each block computes on its first argument.

    Attributes:
        names: The path of each block in the model, such as `encoder.layers.0`.
        input_shape: Shape of one sample.
        vocabulary_size: Number of token ids, or None if the inputs are numbers.
    """

    names: tuple[str, ...]
    input_shape: tuple[int, ...]
    vocabulary_size: int | None

    @classmethod
    def of(
        cls, model: nn.Module, input_shape: tuple[int, ...], vocabulary_size: int | None
    ) -> BlockSequence:
        """Find the blocks of a model.

        These are the members of the list or sequence with the most parameters.

        Args:
            model: The model, in evaluation mode.
            input_shape: Shape of one sample.
            vocabulary_size: Number of token ids, if the inputs are token ids.

        Raises:
            ExperimentError: If no list or sequence of the model is computed in its order.
        """
        containers = {
            name: [f"{name}.{member}" if name else member for member, _ in module.named_children()]
            for name, module in model.named_modules()
            if isinstance(module, _CONTAINERS) and len(module) > 1
        }
        example = cls((), input_shape, vocabulary_size)
        names = [name for blocks in containers.values() for name in blocks]
        called: list[str] = []
        if names:
            called = [name for name, _ in _calls(model, names, example.zeros(2))]
        called_in_order = [
            blocks
            for blocks in containers.values()
            if [member for member in called if member in blocks] == blocks
        ]
        if not called_in_order:
            raise _refusal(
                model, "it does not compute the members of any module list in their order"
            )

        def size(blocks: list[str]) -> int:
            modules = [model.get_submodule(name) for name in blocks]
            return sum(item.numel() for module in modules for item in module.parameters())

        return cls(tuple(max(called_in_order, key=size)), input_shape, vocabulary_size)

    def zeros(self, number: Any) -> Tensor:
        """Return `number` samples of zeros."""
        dtype = torch.int64
        if self.vocabulary_size is None:
            dtype = torch.float32
        return torch.zeros(number, *self.input_shape, dtype=dtype)

    def places(self, model: nn.Module) -> list[int]:
        """Return the numbers of the blocks before which the model can be cut.

        Such a block has weights, and its input alone determines the model's output. This is tested
        with two random samples. The block receives the input that it had for them, while the model
        receives zeros. The output must stay the same.

        Args:
            model: The model, in evaluation mode.

        Raises:
            ExperimentError: If there are no such blocks.
        """
        from torch._subclasses.fake_tensor import FakeTensor

        drawn = self._random()
        with torch.no_grad():
            seen = dict(_calls(model, self.names, drawn))
            answered = model(drawn)
        if not isinstance(answered, Tensor):
            raise _refusal(model, f"it returns {type(answered).__name__}, not a tensor")
        # Blocks without weight matrices, such as activations, are not worth a stage.
        weighted = [
            number
            for number, name in enumerate(self.names)
            if any(parameter.ndim > 1 for parameter in model.get_submodule(name).parameters())
        ]
        possible = [
            number for number in weighted[1:] if isinstance(seen[self.names[number]], Tensor)
        ]
        if possible and self._is_output(model, drawn, answered, possible[-1]):
            possible.pop()  # an exit before the last block would compute the model's own output
        if isinstance(answered, FakeTensor):  # no values, so nothing can be compared
            return possible
        places = [
            number
            for number in possible
            if self._follows(model, number, seen[self.names[number]], answered)
        ]
        if not places:
            raise _refusal(
                model,
                "its blocks depend on more than their first argument, such as a mask or an earlier"
                " value",
            )
        return places

    def compute(self, model: nn.Module, first: int, end: int, values: Tensor) -> Tensor:
        """Compute the blocks of one stage.

        Args:
            model: The model.
            first: The first block. 0 starts with the input of the model.
            end: The stage ends before this block. The number of blocks means the model's end.
            values: The input of the first block, or of the model.
        """
        seen: dict[str, Any] = {}
        watched = list(self.names[end : end + 1])
        if first == 0:
            with _hooked(model, watched, seen, {}):
                answered = model(values)
        else:
            # The blocks before the first one compute on zeros. Their results are overwritten.
            unused = self.zeros(values.shape[0]).to(values.device)
            with _hooked(model, watched, seen, {self.names[first]: values}):
                answered = model(unused)
        if watched:
            return seen[watched[0]]
        return answered

    def pass_through(
        self, model: nn.Module, places: Sequence[int], inputs: Any
    ) -> tuple[list[Any], Any]:
        """Return the inputs of some blocks, and the output of the model.

        Args:
            model: The model.
            places: The blocks, by number.
            inputs: The input of the model.
        """
        seen: dict[str, Any] = {}
        names = [self.names[number] for number in places]
        with _hooked(model, names, seen, {}):
            answered = model(inputs)
        return [seen[name] for name in names], answered

    def _random(self) -> Tensor:
        generator = torch.Generator().manual_seed(0)
        if self.vocabulary_size is None:
            return torch.randn(2, *self.input_shape, generator=generator)
        return torch.randint(self.vocabulary_size, (2, *self.input_shape), generator=generator)

    def _follows(self, model: nn.Module, number: int, values: Tensor, answered: Tensor) -> bool:
        # Samples must come first, or exits could not let single samples leave.
        if values.shape[:1] != answered.shape[:1]:
            return False
        try:
            with torch.no_grad():
                answer = self.compute(model, number, len(self.names), values)
        except RuntimeError:  # the block's input is a view that cannot be written
            return False
        return answer.shape == answered.shape and torch.allclose(
            answer, answered, _TOLERANCE, _TOLERANCE
        )

    def _is_output(self, model: nn.Module, drawn: Tensor, answered: Tensor, number: int) -> bool:
        """Return whether the output of the model is the output of a block."""
        returned: list[Any] = []
        handle = model.get_submodule(self.names[number]).register_forward_hook(
            lambda _module, _inputs, output: returned.append(output)
        )
        with torch.no_grad():
            again = model(drawn)
        handle.remove()
        # The very same tensor: nothing is computed after the block.
        return returned[0] is again and again.shape == answered.shape


def _calls(model: nn.Module, names: Sequence[str], inputs: Tensor) -> list[tuple[str, Any]]:
    """Return the calls of modules in one forward pass, each with its first argument."""
    calls: list[tuple[str, Any]] = []

    def record(name: str) -> Any:
        def enter(_module: nn.Module, given: tuple[Any, ...]) -> None:
            first: Any = None
            if given:
                first = given[0]
            # Copy it, because the model may change the tensor later.
            if isinstance(first, Tensor):
                first = first.clone()
            calls.append((name, first))

        return enter

    handles = [model.get_submodule(name).register_forward_pre_hook(record(name)) for name in names]
    try:
        with torch.no_grad():
            model(inputs)
    finally:
        for handle in handles:
            handle.remove()
    return calls


@contextlib.contextmanager
def _hooked(
    model: nn.Module, watched: Sequence[str], seen: dict[str, Any], replaced: Mapping[str, Tensor]
) -> Iterator[None]:
    """Record the first arguments of some modules, and overwrite others, in one forward pass."""

    def hook(name: str) -> Any:
        def enter(_module: nn.Module, given: tuple[Any, ...]) -> None:
            if name in replaced:
                # In place, because the model may add the same tensor to the block's result later.
                given[0].copy_(replaced[name])
            else:
                seen[name] = given[0].clone()  # the block may change its input

        return enter

    handles = [
        model.get_submodule(name).register_forward_pre_hook(hook(name))
        for name in (*watched, *replaced)
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _refusal(model: nn.Module, why: str) -> ExperimentError:
    return ExperimentError(
        f"{type(model).__name__} has no places for early exits: {why}",
        field="exits",
        allowed=(
            "a torch.nn.Sequential, a model with a method `pieces`, or one that computes the"
            " members of a ModuleList or Sequential in their order"
        ),
        next_step=(
            "Add a method `pieces` that returns the parts of the model in order. A part is a"
            " module, or a function followed by the modules that it uses. Each part receives the"
            " output of the previous part."
        ),
    )
