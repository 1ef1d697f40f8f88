"""A card says which samples its model takes."""

from __future__ import annotations

import pytest

from workbench.deploy.card import Input


@pytest.mark.parametrize(
    ("shape", "taken"),
    [
        ((1, 8, 4), True), ((8, 4), True), ((8, 4, 1), True), ((32,), True),
        ((4, 8), False), ((2, 16), False), ((31,), False), ((), False), ((2, 8, 4), False),
    ],
)  # fmt: skip
def test_a_sample_may_be_flat_or_lack_dimensions_of_one(shape: tuple[int, ...], taken: bool) -> None:
    assert Input(name="image", kind="array", shape=(1, 8, 4), dtype="float32").takes(shape) is taken
