from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from workbench.data import load
from workbench.foundation.errors import DataError, ExperimentError


def save(path: Path, colour: tuple[int, int, int], size: tuple[int, int] = (20, 12)) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, colour).save(path)


def fill(folder: Path, num_images: int = 10) -> Path:
    for number in range(num_images):
        save(folder / "red" / f"{number}.png", (255, 0, 0))
        save(folder / "white" / "deeper" / f"{number}.bmp", (255, 255, 255), size=(9, 30))
    return folder


def test_a_folder_for_each_class_is_split_and_decoded(tmp_path):
    images = load("images", {"path": str(fill(tmp_path)), "size": 16})
    assert (images.task, images.input_shape, images.num_outputs) == (
        "classification",
        (3, 16, 16),
        2,
    )
    assert images.class_names == ("red", "white")
    assert (len(images.train), len(images.validation)) == (16, 4)
    inputs, targets = images.train.batch(np.array([0, 15]))
    assert (inputs.dtype, inputs.shape) == (np.float32, (2, 3, 16, 16))
    assert targets.tolist() == [0, 1]
    assert inputs[0].mean(axis=(1, 2)).tolist() == [1, -1, -1]
    assert (inputs[1] == 1).all()
    assert images.validation.batch(np.arange(4))[1].tolist() == [0, 0, 1, 1]


def test_files_that_tools_hide_beside_images_are_not_among_them(tmp_path):
    """Copies in .ipynb_checkpoints would be learnt from and tested on, and ._red.png of macOS is no
    image.
    """
    fill(tmp_path)
    for hidden in (
        "red/.ipynb_checkpoints/0-checkpoint.png",
        "white/.trash/deep/1.bmp",
        ".cache/a/1.png",
    ):
        save(tmp_path / hidden, (0, 0, 0))
    (tmp_path / "red" / "._0.png").write_bytes(b"Mac OS X resource fork")
    images = load("images", {"path": str(tmp_path)})
    assert (len(images.train), len(images.validation)) == (16, 4)
    below_hidden = load("images", {"path": str(fill(tmp_path / ".mine" / "pictures"))})
    assert len(below_hidden.train) == 16


def test_grey_images_have_one_channel(tmp_path):
    images = load("images", {"path": str(fill(tmp_path)), "size": 8, "channels": 1})
    assert images.train.batch(np.array([0]))[0].shape == (1, 1, 8, 8)


def test_train_and_validation_folders_are_kept(tmp_path):
    fill(tmp_path / "train", 3)
    fill(tmp_path / "val", 2)
    images = load("images", {"path": str(tmp_path)})
    assert (len(images.train), len(images.validation)) == (6, 4)


def test_an_image_that_cannot_be_read_is_named(tmp_path):
    fill(tmp_path)
    whole = (tmp_path / "red" / "0.png").read_bytes()
    (tmp_path / "red" / "0.png").write_bytes(whole[: len(whole) // 2])
    images = load("images", {"path": str(tmp_path), "validation_fraction": 0.01})
    with pytest.raises(DataError, match=r"0\.png cannot be read as an image") as caught:
        images.train.batch(np.arange(len(images.train)))
    assert caught.value.field == "data.path"
    (tmp_path / "red" / "0.png").write_bytes(b"no picture")
    images = load("images", {"path": str(tmp_path), "validation_fraction": 0.01})
    with pytest.raises(
        DataError, match=r"0\.png cannot be read as an image: its content has the format of no"
    ):
        images.train.batch(np.arange(len(images.train)))


def test_folders_that_hold_no_classes_are_refused(tmp_path):
    with pytest.raises(DataError, match="does not exist"):
        load("images", {"path": str(tmp_path / "missing")})
    save(tmp_path / "one" / "0.png", (0, 0, 0))
    with pytest.raises(DataError, match=r"holds 1 class folder"):
        load("images", {"path": str(tmp_path)})
    (tmp_path / "two").mkdir()
    with pytest.raises(DataError, match="the class two has no image"):
        load("images", {"path": str(tmp_path)})
    with pytest.raises(DataError, match="is not a folder"):
        load("images", {"path": str(tmp_path / "one" / "0.png")})
    with pytest.raises(ExperimentError, match=r"data\.channels"):
        load("images", {"path": str(tmp_path), "channels": 2})


def test_images_of_train_are_held_out_where_there_is_only_a_test_folder(tmp_path):
    fill(tmp_path / "train", 10)
    fill(tmp_path / "test", 2)
    images = load("images", {"path": str(tmp_path)})
    assert images.test is not None
    assert (len(images.train), len(images.validation), len(images.test)) == (16, 4, 4)


def test_parts_that_contradict_each_other_or_the_options_are_refused(tmp_path):
    fill(tmp_path / "validation", 2)
    with pytest.raises(DataError, match="holds validation but no train"):
        load("images", {"path": str(tmp_path)})
    fill(tmp_path / "train", 2)
    with pytest.raises(ExperimentError, match=r"data\.validation_fraction"):
        load("images", {"path": str(tmp_path), "validation_fraction": 0.3})
    save(tmp_path / "validation" / "blue" / "0.png", (0, 0, 255))
    with pytest.raises(DataError, match="different classes: blue"):
        load("images", {"path": str(tmp_path)})


def test_folders_of_clients_hold_folders_of_classes_and_need_not_have_them_all(tmp_path):
    fill(tmp_path / "ada", 10)
    for number in range(5):
        save(tmp_path / "bob" / "blue" / f"{number}.png", (0, 0, 255))
    images = load("images", {"path": str(tmp_path), "size": 8, "client_folders": True})
    assert images.class_names == ("blue", "red", "white")
    assert (len(images.train), len(images.validation)) == (20, 5)
    assert images.owners is not None
    for split, owners in zip((images.train, images.validation), images.owners, strict=True):
        classes = split.batch(np.arange(len(split)))[1]
        assert np.array_equal(owners == 1, classes == 0), "only bob has blue images, and no others"
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="empty has no image") as caught:
        load("images", {"path": str(tmp_path), "client_folders": True})
    assert caught.value.field == "data.client_folders"
