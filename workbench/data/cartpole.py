"""A cart that is pushed left or right to balance a pole.

An environment that needs nothing but numpy.

Source: Barto, Sutton and Anderson, Neuronlike Adaptive Elements That Can Solve Difficult Learning
Control Problems (1983). Masses, lengths, limits and rewards are those of Gymnasium's CartPole-v1.
"""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np

_GRAVITY, _CART_KG, _POLE_KG, _HALF_POLE_M = 9.8, 1.0, 0.1, 0.5
_FORCE_N, _STEP_S = 10.0, 0.02
_MAX_POSITION_M, _MAX_ANGLE = 2.4, math.radians(12.0)
_MAX_STEPS = 500


class Pole:
    """The cart, its pole, and a reward of 1 for each of at most 500 steps that it stays upright."""

    action_space = SimpleNamespace(n=2)

    def __init__(self) -> None:
        """Prepare. An episode starts with `reset`."""
        self._random = np.random.default_rng()
        self._state = np.zeros(4)
        self._num_steps = 0

    def reset(self, *, seed: int | None = None) -> tuple[np.ndarray, dict[str, Any]]:
        """Start an episode close to the upright position.

        Args:
            seed: Seed of this and the following episodes, or None to continue with the last.

        Returns:
            Position, velocity, angle and angular velocity, in metres, radians and seconds, and an
            empty mapping, as in Gymnasium.
        """
        if seed is not None:
            self._random = np.random.default_rng(seed)
        self._state = self._random.uniform(-0.05, 0.05, 4)
        self._num_steps = 0
        return self._state.astype(np.float32), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Push the cart for 20 ms.

        Args:
            action: 0 to the left, 1 to the right.

        Returns:
            The state as in `reset`, the reward, whether the pole has fallen or the cart has left
            the track, whether the episode has lasted 500 steps, and an empty mapping.
        """
        position, velocity, angle, turning = self._state.tolist()
        # The equations of motion of a pole on a cart without friction, in Euler steps.
        mass = _CART_KG + _POLE_KG
        force = _FORCE_N if action == 1 else -_FORCE_N
        push = (force + _POLE_KG * _HALF_POLE_M * turning**2 * math.sin(angle)) / mass
        turned = (_GRAVITY * math.sin(angle) - math.cos(angle) * push) / (
            _HALF_POLE_M * (4 / 3 - _POLE_KG * math.cos(angle) ** 2 / mass)
        )
        pushed = push - _POLE_KG * _HALF_POLE_M * turned * math.cos(angle) / mass
        position, velocity = position + _STEP_S * velocity, velocity + _STEP_S * pushed
        angle, turning = angle + _STEP_S * turning, turning + _STEP_S * turned
        self._state = np.array([position, velocity, angle, turning])
        self._num_steps += 1
        has_ended = abs(position) > _MAX_POSITION_M or abs(angle) > _MAX_ANGLE
        return self._state.astype(np.float32), 1.0, has_ended, self._num_steps >= _MAX_STEPS, {}
