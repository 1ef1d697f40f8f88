"""The colours that carry meaning, as people see them who lack a kind of cone."""

from __future__ import annotations

import re
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

STYLE = (Path(__file__).parents[2] / "extensions/src/style.css").read_text(encoding="utf-8")
# Full deuteranopia and protanopia: Machado, Oliveira and Fernandes (2009), table 1.
SIGHTS = {
    "usual": np.eye(3),
    "without green": np.array(
        [
            [0.367322, 0.860646, -0.227968],
            [0.280085, 0.672501, 0.047413],
            [-0.011820, 0.042940, 0.968881],
        ]
    ),
    "without red": np.array(
        [
            [0.152286, 1.052583, -0.204868],
            [0.114503, 0.786281, 0.099216],
            [-0.003882, -0.048116, 1.051998],
        ]
    ),
}
TO_XYZ = np.array(
    [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
) / np.array([[0.9505], [1.0], [1.089]])
LEAST_DISTANCE = 15.0
"""In CIELAB, where 2.3 is just noticed side by side. Lines of a chart are thin and apart."""


def linear(colour: str) -> np.ndarray:
    parts = np.array([int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)])
    return np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)


def lab(rgb: np.ndarray) -> np.ndarray:
    xyz = TO_XYZ @ np.clip(rgb, 0, 1)
    x, y, z = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def colours_of(theme: str) -> dict[str, str]:
    light, _, rest = STYLE.partition('.workbench[data-theme="dark"] {')
    block = light if theme == "light" else rest.partition("}")[0]
    written = dict(re.findall(r"--workbench-([\w-]+): (#[\da-f]{6});", block))
    named = {name: written[f"state-{name}"] for name in ("running", "complete", "failed")}
    return {"best": written["best"], **named}


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("sight", SIGHTS)
def test_the_best_trial_does_not_look_like_one_that_failed(theme: str, sight: str) -> None:
    seen = {name: lab(SIGHTS[sight] @ linear(colour)) for name, colour in colours_of(theme).items()}
    near = {
        (one, other): distance
        for one, other in combinations(seen, 2)
        if "best" in (one, other)
        and (distance := float(np.linalg.norm(seen[one] - seen[other]))) < LEAST_DISTANCE
    }
    assert near == {}
