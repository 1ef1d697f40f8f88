from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from workbench.data import load
from workbench.data.masks import IGNORED
from workbench.foundation.errors import DataError, ExperimentError


def write(folder, masks):
    for part in ("images", "masks"):
        (folder / part).mkdir(parents=True)
    for number, mask in enumerate(masks):
        pixels = np.full((16, 16), 60 * number, dtype=np.uint8)
        Image.fromarray(pixels).save(folder / "images" / f"{number}.jpg")
        Image.fromarray(mask.astype(np.uint8)).save(folder / "masks" / f"{number}.png")


def test_each_pixel_has_the_class_of_its_mask_and_unknown_ones_are_left_out(tmp_path):
    mask = np.zeros((16, 16))
    mask[:8, :] = 2
    mask[8:, :8] = 255
    write(tmp_path / "set", [mask] * 4)
    data = load(
        "masks",
        {"path": str(tmp_path / "set"), "size": 8, "channels": 1, "validation_fraction": 0.5},
    )
    inputs, targets = data.train.batch(np.arange(2))
    assert inputs.shape == (2, 1, 8, 8)
    assert data.class_names == ("0", "1", "2")
    wanted = np.full((8, 8), 2)
    wanted[4:, :4], wanted[4:, 4:] = IGNORED, 0
    assert (targets == wanted).all()
    assert data.target_shape == (8, 8)


def test_a_class_that_has_no_name_is_refused_with_its_file(tmp_path):
    write(tmp_path / "set", [np.full((16, 16), 3)] * 3)
    data = load("masks", {"path": str(tmp_path / "set"), "classes": ["road", "car"]})
    with pytest.raises(DataError, match=r"masks/.*\.png holds the class 3"):
        data.train.batch(np.arange(1))


def test_an_image_without_its_mask_is_named(tmp_path):
    write(tmp_path / "set", [np.ones((16, 16))] * 3)
    (tmp_path / "set" / "masks" / "1.png").unlink()
    with pytest.raises(DataError, match="1 is not in both folders"):
        load("masks", {"path": str(tmp_path / "set")})


def test_scenes_hold_digits_and_take_no_options_of_folders():
    data = load("masks", {})
    _, targets = data.train.batch(np.arange(200))
    assert set(np.unique(targets)) == set(range(11))
    with pytest.raises(ExperimentError, match="needs a folder"):
        load("masks", {"size": 64})
