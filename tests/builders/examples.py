"""How many examples a property has whose examples cost more, or less, than most."""

from __future__ import annotations

from typing import Any

from hypothesis import settings

NUM_EXAMPLES = 50
"""The examples of a property that says nothing else, in the suite."""


def examples(num: int, **others: Any) -> settings:
    """Return settings with a number of examples, and as many more where a profile has more.

    Args:
        num: The number in the suite. The profile `thorough` of the slow tests doubles it.
        others: Other settings.
    """
    return settings(max_examples=round(num * settings().max_examples / NUM_EXAMPLES), **others)
