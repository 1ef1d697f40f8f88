"""Whether a step leaves parameters without a gradient, seen in the graph of its loss.

What follows from that is left to the strategies.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from torch import Tensor


def leaves_unused(loss: Tensor, parameters: Iterable[Tensor]) -> bool:
    """Return whether the loss does not depend on some of the parameters.

    Args:
        loss: A scalar with its graph.
        parameters: The trained parameters.

    Returns:
        False where parts of the graph are made in the backward pass only, as by checkpoints that
        reenter it: what they use cannot be seen.
    """
    reached: set[int] = set()
    for node in _nodes(loss.grad_fn):
        if "CheckpointFunction" in type(node).__name__:
            return False
        variable = getattr(node, "variable", None)
        if variable is not None:
            reached.add(id(variable))
    return any(id(parameter) not in reached for parameter in parameters)


def _nodes(root: Any) -> Iterator[Any]:
    """Yield each node of a graph once."""
    seen, waiting = {root}, [root]
    while waiting:
        node = waiting.pop()
        if node is None:
            continue
        yield node
        for following, _ in node.next_functions:
            if following not in seen:
                seen.add(following)
                waiting.append(following)
