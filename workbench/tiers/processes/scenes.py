"""Views of one scene by several devices, gathered until all that are alive have sent theirs.

They become one input, with masks for absent devices. The caller knows which devices are alive.

Source: Teerapittayanon, McDanel, Kung, Distributed Deep Neural Networks over the Cloud, the Edge
and End Devices, 2017, section III: max pooling, average pooling and concatenation.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import get_args

import numpy as np

from workbench.tiers.processes.frames import Frame
from workbench.tiers.processes.tier_settings import How

WAYS: tuple[str, ...] = get_args(How)
_NUM_KEPT = 1024
"""Scenes whose answer is kept for views that arrive late."""


class Scenes:
    """Answers each scene once, for all devices that see it."""

    def __init__(
        self,
        num_views: int,
        how: How,
        *,
        patience_s: float,
        alive: Callable[[], Collection[int]],
        answer: Callable[[Frame, np.ndarray, np.ndarray], Awaitable[Frame]],
    ) -> None:
        """Gather the views of devices.

        Args:
            num_views: How many devices see a scene. The view of a device is its number modulo this.
            how: How their views become one.
            patience_s: How long views are waited for.
            alive: Returns the views that are waited for.
            answer: Answers an aggregate with its mask. The frame is one of those that arrived.
        """
        self._num_views, self._patience_s = num_views, patience_s
        self._how: How = how
        self._alive, self._answer = alive, answer
        self._scenes: OrderedDict[tuple[int, int], _Scene] = OrderedDict()
        self._tasks: set[asyncio.Task[None]] = set()
        self.num_masked = 0
        """Scenes that were answered without some of the devices."""

    async def add(self, frame: Frame, values: np.ndarray) -> Frame:
        """Add the view of a device and return the answer of its scene.

        Args:
            frame: The request. Its number is the number of the scene, and its sender is the device.
            values: What it holds.

        Raises:
            ValueError: If the views do not fit together.
        """
        key = (frame.request, frame.stage)
        scene = self._scenes.get(key)
        if scene is None:
            scene = self._scenes[key] = _Scene(asyncio.get_running_loop().create_future())
            scene.answered.add_done_callback(lambda done: done.cancelled() or done.exception())
            task = asyncio.ensure_future(self._gather(frame, scene))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            while len(self._scenes) > _NUM_KEPT:
                self._scenes.popitem(last=False)
        if not scene.answered.done():
            scene.views[frame.sender % self._num_views] = values
            self._recount(scene, set(self._alive()))
        return await asyncio.shield(scene.answered)

    def recount(self) -> None:
        """Look again which scenes are complete: devices may have come or gone."""
        expected = set(self._alive())
        for scene in self._scenes.values():
            self._recount(scene, expected)

    def _recount(self, scene: _Scene, expected: set[int]) -> None:
        if not scene.answered.done() and expected <= scene.views.keys():
            scene.is_complete.set()

    async def _gather(self, frame: Frame, scene: _Scene) -> None:
        with contextlib.suppress(asyncio.TimeoutError):  # then without those that are missing
            await asyncio.wait_for(scene.is_complete.wait(), self._patience_s)
        try:
            values, mask = aggregate(scene.views, range(self._num_views), self._how)
            self.num_masked += not mask.all()
            scene.answered.set_result(await self._answer(frame, values, mask))
        except Exception as error:  # every view of the scene gets it
            scene.answered.set_exception(error)


@dataclass
class _Scene:
    answered: asyncio.Future[Frame]
    views: dict[int, np.ndarray] = field(default_factory=dict)
    is_complete: asyncio.Event = field(default_factory=asyncio.Event)


def aggregate(
    views: Mapping[int, np.ndarray], devices: Sequence[int], how: How
) -> tuple[np.ndarray, np.ndarray]:
    """Return the views of a scene as one tensor.

    Args:
        views: What arrived, by the number of the device. All of one shape (channels, ...), at least
            one.
        devices: All devices that see the scene, in order.
        how: `mean` or `max` over the views that arrived, or `concatenation` along the first
            dimension, with zeros for missing views.

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
        raise ValueError(f"the views are of {sorted(views)}, but the devices are {list(devices)}")
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
