"""Real processes of tiers with small graphs whose answers are known, and requests to them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import onnx

from tests.services.waiting import wait_until
from workbench.tiers.processes.certificates import Authority
from workbench.tiers.processes.relay import Link
from workbench.tiers.processes.requesting import SOURCE, Reply, send_requests
from workbench.tiers.processes.starting import StartedProcess, start_link, start_tier
from workbench.tiers.processes.tier_settings import Route, StageSettings, TierSettings
from workbench.tiers.processes.transport import Identity

SURE, UNSURE = np.array([4, 0, 0], dtype=np.float32), np.array([1, 0, 0.5], dtype=np.float32)
"""Samples of which the first stage has a confidence of .96 and .51; the second is sure of both."""
_FIRST = """
<ir_version: 10, opset_import: ["" : 20]>
stage (float[batch, 3] inputs) => (float[batch, 3] features, float[batch, 3] probabilities)
<float factor = {{4.0}}> {{
    features = Mul(inputs, factor)
    probabilities = Softmax<axis = -1>(inputs)
}}
"""
_LAST = """
<ir_version: 10, opset_import: ["" : 20]>
stage (float[batch, {size}] features) => (float[batch, {size}] probabilities)
{{
    probabilities = Softmax<axis = -1>(features)
}}
"""


def stages(folder: Path, size: int = 3) -> tuple[str, str]:
    """Write the first and the last stage; return their files."""
    paths = folder / "first.onnx", folder / "last.onnx"
    for path, text in zip(paths, (_FIRST, _LAST), strict=True):
        model = onnx.parser.parse_model(text.format(size=size))
        onnx.save(model, str(path))
    return str(paths[0]), str(paths[1])


class RunningTiers:
    """Processes that were started, by name."""

    def __init__(self, folder: Path, *, is_encrypted: bool = True) -> None:
        self.folder = folder
        self.stages = stages(folder)
        self._authority = Authority.create() if is_encrypted else None
        self.processes: dict[str, StartedProcess] = {}
        self.identity = self._issue(SOURCE)
        self._num_scenes = 0

    def _issue(self, name: str) -> Identity | None:
        if self._authority is None:
            return None
        self._authority.issue(name, self.folder)
        return Identity.in_folder(self.folder, name)

    def start(
        self, name: str, number: int, stages: Sequence[StageSettings], **options: object
    ) -> Route:
        """Start a tier; return how it is reached."""
        known = self._issue(name)
        names = (SOURCE, "end", "edge", "cloud")
        settings = TierSettings(
            name,
            number,
            stages=tuple(stages),
            identity=None if known is None else str(self.folder),
            accepts=names,
            **options,  # type: ignore[arg-type]
        )
        process = start_tier(settings, self.folder)
        self.processes[f"{name}-{settings.device}"] = process
        process.wait()
        return Route(name, "127.0.0.1", process.port)

    def link(self, route: Route, bits_per_s: float, rtt_s: float) -> Route:
        """Return the same tier behind a slow link."""
        process = start_link(route.name, Link(route.host, route.port, bits_per_s, rtt_s))
        self.processes[f"link-{route.name}"] = process
        process.wait()
        return Route(route.name, "127.0.0.1", process.port)

    def ask(
        self,
        devices: Sequence[Route],
        samples: np.ndarray,
        moments_s: Sequence[float],
        *,
        is_scene: bool = False,
        timeout_s: float = 20.0,
    ) -> list[Reply]:
        return asyncio.run(
            send_requests(
                devices,
                samples,
                moments_s,
                identity=self.identity,
                timeout_s=timeout_s,
                is_scene=is_scene,
            )
        )

    def ask_scenes(
        self, devices: Sequence[Route], views: np.ndarray, moments_s: Sequence[float] = (0.0,)
    ) -> list[Reply]:
        """Ask for new scenes of one sample, behind all before: tiers keep the answers of these."""
        before = [0.0] * self._num_scenes
        self._num_scenes += len(moments_s)
        return self.ask(devices, views[None], [*before, *moments_s], is_scene=True)[len(before) :]

    def await_answer(self, device: Route, sample: np.ndarray, tier: int) -> list[Reply]:
        """Ask until a tier answers, which is reached a moment after it has started.

        Return all answers.
        """
        replies: list[Reply] = []

        def is_answered() -> bool:
            replies.extend(self.ask([device], sample[None], [0.0]))
            return replies[-1].tier == tier

        wait_until(is_answered)
        return replies

    def close(self) -> None:
        for process in self.processes.values():
            process.kill()


@contextlib.contextmanager
def running_tiers(folder: Path, **options: bool) -> Iterator[RunningTiers]:
    """Processes that end with the `with` block."""
    tiers = RunningTiers(folder, **options)
    try:
        yield tiers
    finally:
        tiers.close()
