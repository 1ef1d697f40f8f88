"""How the weights of linear and convolutional layers begin, where an experiment chooses it.

Sources: He et al., Delving Deep into Rectifiers (2015); Glorot and Bengio, Understanding the
Difficulty of Training Deep Feedforward Neural Networks (2010); Saxe et al., Exact Solutions to the
Nonlinear Dynamics of Learning in Deep Linear Neural Networks (2014).
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable
from typing import Any

from torch import Tensor, nn
from torch.nn.utils import parametrize

_FILL: dict[str, Callable[[Tensor], Any]] = {
    "he": functools.partial(nn.init.kaiming_normal_, nonlinearity="relu"),
    "xavier": nn.init.xavier_normal_,
    "orthogonal": nn.init.orthogonal_,
}
_LAYERS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)


def initialise(model: nn.Module, way: str) -> None:
    """Draw the weights of all linear and convolutional layers anew, in place.

    Biases, normalisations, embeddings, and weights that a layer shares with another module stay.

    Args:
        model: Any model.
        way: `he`, `xavier` or `orthogonal`; `default` leaves the model as it is.
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
