"""What several devices see of the same scene, as one input, whichever of them are alive.

Source: Teerapittayanon, McDanel, Kung, Distributed Deep Neural Networks over the Cloud, the Edge
and End Devices, 2017, section III: max pooling, average pooling and concatenation. Masks make up
for absent devices.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, get_args

import numpy as np

How = Literal["mean", "max", "concatenation"]
WAYS: tuple[str, ...] = get_args(How)


def aggregate(
    views: Mapping[int, np.ndarray], devices: Sequence[int], how: How
) -> tuple[np.ndarray, np.ndarray]:
    """Return the views of a scene as one tensor.

    Args:
        views: What arrived, by the number of the device; all of one shape (channels, ...), at least
            one.
        devices: All devices that see the scene, in order.
        how: `mean` or `max` over those that arrived; `concatenation` along the first dimension,
            with zeros for those that did not.

    Returns:
        The tensor, and the mask: float32, 1 for each of `devices` that arrived and 0 for the
        others.

    Raises:
        ValueError: If none arrived, one is not of `devices`, or the shapes differ.

    Example:
        >>> import numpy as np
        >>> aggregate({0: np.array([1.0, 4.0]), 2: np.array([3.0, 2.0])}, [0, 1, 2], "mean")
        (array([2., 3.]), array([1., 0., 1.], dtype=float32))
    """
    present = [device for device in devices if device in views]
    if not present or len(present) != len(views):
        raise ValueError(f"views of {sorted(views)}, and the devices are {list(devices)}")
    if len({view.shape for view in views.values()}) != 1:
        raise ValueError("the views of a scene differ in shape")
    mask = np.array([device in views for device in devices], dtype=np.float32)
    if how == "concatenation":
        nothing = np.zeros_like(views[present[0]])
        return np.concatenate([views.get(device, nothing) for device in devices], axis=0), mask
    stacked = np.stack([views[device] for device in present])
    return (stacked.mean(axis=0) if how == "mean" else stacked.max(axis=0)).astype(
        stacked.dtype
    ), mask
