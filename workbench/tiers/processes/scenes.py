"""Views of one scene by several devices, gathered until all that are alive have sent theirs.

How views become one input is left to `aggregation`, who is alive is stated by the caller.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, field

import numpy as np

from workbench.tiers.processes.aggregation import How, aggregate
from workbench.tiers.processes.frames import Frame

_NUM_KEPT = 1024
"""Scenes whose answer is kept for views that arrive late."""


@dataclass
class _Scene:
    answered: asyncio.Future[Frame]
    views: dict[int, np.ndarray] = field(default_factory=dict)
    is_complete: asyncio.Event = field(default_factory=asyncio.Event)


class Scenes:
    """Answers each scene once, for all devices that see it."""

    def __init__(
        self,
        devices: Sequence[int],
        how: How,
        *,
        patience_s: float,
        alive: Callable[[], Collection[int]],
        answer: Callable[[Frame, np.ndarray, np.ndarray], Awaitable[Frame]],
    ) -> None:
        """Gather the views of devices.

        Args:
            devices: The numbers of all devices.
            how: How their views become one.
            patience_s: How long views are waited for.
            alive: Returns the devices that are waited for.
            answer: Answers an aggregate with its mask; the frame is one of those that arrived.
        """
        self._devices, self._patience_s = tuple(devices), patience_s
        self._how: How = how
        self._alive, self._answer = alive, answer
        self._scenes: OrderedDict[tuple[int, int], _Scene] = OrderedDict()
        self._tasks: set[asyncio.Task[None]] = set()
        self.num_masked = 0
        """Scenes that were answered without some of the devices."""

    async def add(self, frame: Frame, values: np.ndarray) -> Frame:
        """Add the view of a device and return the answer of its scene.

        Args:
            frame: The request; its number is that of the scene, its sender the device.
            values: What it holds.

        Raises:
            ValueError: If the device is not one of these, or the views do not fit together.
        """
        if frame.sender not in self._devices:
            raise ValueError(f"device {frame.sender} does not see this scene")
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
            scene.views[frame.sender] = values
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
            values, mask = aggregate(scene.views, self._devices, self._how)
            self.num_masked += not mask.all()
            scene.answered.set_result(await self._answer(frame, values, mask))
        except Exception as error:  # every view of the scene gets it
            scene.answered.set_exception(error)
