"""A system of devices and a cloud with two exits, for tests of what is computed from it."""

from __future__ import annotations

import numpy as np

from workbench.deploy.stages import Evidence
from workbench.tiers.placement.system import System


def two_exits(num_samples: int = 2000, leaves: float = 0.5, accuracy: float = 0.98) -> Evidence:
    random = np.random.default_rng(0)
    first = random.random(num_samples)
    is_correct = np.stack(
        [random.random(num_samples) < 0.5 + first / 2, random.random(num_samples) < accuracy], 1
    )
    return Evidence(np.stack([first, np.ones(num_samples)], axis=1), is_correct)


def system(
    *,
    devices: int = 1000,
    servers: int = 8,
    arrivals_per_s: float = 0.1,
    device_s: tuple[float, float] = (0.005, 0.2),
    server_s: tuple[float, float] = (0.001, 0.04),
    send_s: float = 0.03,
    received_s: float = 0.0,
    threshold: float = 0.5,
    sent_accuracy: float | None = None,
    link_s: float = 0.0,
) -> System:
    zero = np.zeros(2)
    return System(
        names=("end", "cloud"),
        counts=(devices, servers),
        arrivals_per_s=arrivals_per_s,
        stage_s=np.array([device_s, server_s]),
        send_s=np.array([0.0, send_s]),
        send_raw_s=np.array([0.0, 2 * send_s]),
        received_s=np.array([0.0, received_s]),
        received_raw_s=np.array([0.0, 2 * received_s]),
        back_s=np.array([0.0, 0.01]),
        sent_bytes=np.array([0.0, 100.0]),
        raw_bytes=np.array([0.0, 800.0]),
        send_j=zero,
        raw_j=zero,
        power=np.array([2.0, 0.0]),
        evidence=two_exits(),
        thresholds=(threshold, 0.0),
        sent_evidence=None if sent_accuracy is None else two_exits(accuracy=sent_accuracy),
        links_s=np.array([link_s]),
        links_raw_s=np.array([2 * link_s]),
    )
