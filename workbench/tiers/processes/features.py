"""Write the values that leave a tier, unchanged or as 8-bit numbers, with noise, and read them.

Neither makes what is sent private: how much can be recovered from it is measured elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from workbench.tiers.processes.frames import Frame, Kind, decode, encode

_LEVELS = 255


@dataclass
class Outgoing:
    """How values are sent.

    Attributes:
        dtype: `float32` (unchanged), or `uint8` (in 256 steps between the smallest and the largest
            value).
        noise: Standard deviation of added noise, relative to the standard deviation of the values.
        random: Where the noise comes from.
    """

    dtype: str = "float32"
    noise: float = 0.0
    random: np.random.Generator = field(default_factory=np.random.default_rng)

    def request(self, request: int, values: np.ndarray, *, sender: int, stage: int) -> Frame:
        """Return the frame of a request.

        Args:
            request: Its number.
            values: A sample or its features.
            sender: The number of the device.
            stage: The stage that computes with them.
        """
        scale, zero = 1.0, 0.0
        if values.dtype.kind == "f":
            if self.noise:
                spread = float(values.std()) * self.noise
                values = values + self.random.normal(0.0, spread, values.shape).astype(values.dtype)
            if self.dtype == "uint8":
                values, scale, zero = quantise(values)
        return Frame(
            kind=Kind.REQUEST,
            request=request,
            tensor=values,
            sender=sender,
            stage=stage,
            scale=scale,
            zero=zero,
        )


def quantise(values: np.ndarray) -> tuple[np.ndarray, float, float]:
    """Return values in 256 steps.

    Args:
        values: Finite numbers.

    Returns:
        The steps as uint8, the scale and the zero: `steps * scale + zero` is at most half a step
        away.

    Example:
        >>> import numpy as np
        >>> quantise(np.array([0.0, 127.5, 255.0], dtype=np.float32))
        (array([  0, 128, 255], dtype=uint8), 1.0, 0.0)
    """
    if not values.size:
        return values.astype(np.uint8), 1.0, 0.0
    low, high = float(values.min()), float(values.max())
    zero = float(np.float32(low))
    scale = float(np.float32((high - low) / _LEVELS)) or 1.0
    steps = np.rint((values.astype(np.float64) - zero) / scale)
    return np.clip(steps, 0, _LEVELS).astype(np.uint8), scale, zero


def smallest(values: np.ndarray, dtypes: Sequence[str]) -> np.ndarray:
    """Return whole numbers in the type in which they are sent. The next tier takes them in any.

    Args:
        values: What is sent.
        dtypes: The type, or none for the type of the values.

    Example:
        >>> import numpy as np
        >>> smallest(np.array([3, 7]), ["uint8"]), smallest(np.array([3, 700]), ["uint8"])
        (array([3, 7], dtype=uint8), array([  3, 700]))
    """
    if values.dtype.kind not in "iu" or not dtypes or not values.size:
        return values
    # A number outside of the vocabulary must fail in the model. A cast would turn it into another.
    limits = np.iinfo(dtypes[0])
    if values.min() < limits.min or values.max() > limits.max:
        return values
    return values.astype(dtypes[0])


def restore(frame: Frame) -> np.ndarray:
    """Return the values of a frame, in float32 where they were quantised."""
    if frame.tensor.dtype != np.uint8 or (frame.scale == 1.0 and frame.zero == 0.0):
        return frame.tensor
    return frame.tensor.astype(np.float32) * np.float32(frame.scale) + np.float32(frame.zero)


def received(values: np.ndarray, outgoing: Outgoing, *, stage: int) -> np.ndarray:
    """Return values as the next tier reads them from frames.

    Args:
        values: (samples, ...). Each sample is sent in its own frame.
        outgoing: How they are sent.
        stage: The stage that computes with them.
    """
    frames = (
        outgoing.request(number, sample, sender=0, stage=stage)
        for number, sample in enumerate(values)
    )
    return np.stack([restore(decode(encode(frame))) for frame in frames])
