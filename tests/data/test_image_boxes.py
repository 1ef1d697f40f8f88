from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from workbench.data import load
from workbench.foundation.errors import DataError, ExperimentError


def write(folder: Path, labels: list[str]) -> str:
    for part in ("images", "labels"):
        (folder / part).mkdir(parents=True)
    for number, text in enumerate(labels):
        Image.fromarray(np.full((12, 24), 40 * number, dtype=np.uint8)).save(
            folder / f"images/{number}.png"
        )
        (folder / f"labels/{number}.txt").write_text(text)
    return str(folder)


def test_labels_become_edges_and_images_without_boxes_have_none(tmp_path):
    folder = write(
        tmp_path / "set", ["1 0.5 0.5 0.2 0.4\n0 0.1 0.2 0.4 0.2\n", "", "1 0.5 0.5 1 1"]
    )
    data = load(
        "boxes", {"path": folder, "size": 8, "classes": ["cat", "dog"], "validation_fraction": 0.4}
    )
    splits = [data.train, data.validation]
    batches = [split.batch(np.arange(len(split))) for split in splits]
    targets = np.concatenate([batch[1] for batch in batches])
    images = np.concatenate([batch[0] for batch in batches])
    assert images.shape == (3, 3, 8, 8)
    assert data.target_shape == (2, 5)
    assert data.class_names == ("cat", "dog")
    greys = [round(float((image.mean() + 1) * 127.5)) for image in images]
    by_grey = dict(zip(greys, targets, strict=True))
    np.testing.assert_allclose(
        by_grey[0], [[1, 0.4, 0.3, 0.6, 0.7], [0, 0, 0.1, 0.3, 0.3]], atol=1e-6
    )
    assert by_grey[40][:, 0].tolist() == [-1, -1]
    np.testing.assert_allclose(by_grey[80], [[1, 0, 0, 1, 1], [-1, 0, 0, 0, 0]])


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("0 0.5 0.5 0.1", "cannot be read as boxes"),
        ("cat 0.5 0.5 0.1 0.1", "cannot be read as boxes"),
        ("0.5 0.5 0.5 0.1 0.1", "a class is not a whole number"),
        ("0 50 50 10 10", "lies outside the image"),
        ("0 0.5 0.5 0 0.1", "lies outside the image"),
        ("2 0.5 0.5 0.1 0.1", "holds the class 2"),
    ],
)
def test_a_wrong_label_is_refused_with_its_file(tmp_path, text, problem):
    folder = write(tmp_path / "set", ["0 0.5 0.5 0.1 0.1", text])
    with pytest.raises(DataError, match=rf"labels/1\.txt .*{problem}|1\.txt {problem}"):
        load("boxes", {"path": folder, "classes": ["cat", "dog"]})


def test_labels_without_a_box_and_images_without_labels_are_refused(tmp_path):
    with pytest.raises(DataError, match="no label file holds a box"):
        load("boxes", {"path": write(tmp_path / "empty", ["", ""])})
    folder = write(tmp_path / "set", ["0 0.5 0.5 0.1 0.1"] * 3)
    Path(folder, "labels/1.txt").unlink()
    with pytest.raises(DataError, match="1 is not in both folders"):
        load("boxes", {"path": folder})


def test_boxes_of_scenes_lie_around_the_pixels_of_their_masks():
    boxes, masks = load("boxes", {}, seed=3), load("masks", {}, seed=3)
    (images, found_boxes), (same, pixels) = (
        data.train.batch(np.arange(100)) for data in (boxes, masks)
    )
    np.testing.assert_array_equal(images, same)
    for rows, mask in zip(found_boxes, pixels, strict=True):
        number, *edges = rows[-1]  # the last one lies above the others
        left, top, right, bottom = (round(float(edge) * 32) for edge in edges)
        inside = mask[top:bottom, left:right] == number + 1
        assert inside[0].any()
        assert inside[-1].any()
        assert inside[:, 0].any()
        assert inside[:, -1].any()
    with pytest.raises(ExperimentError, match="needs a folder"):
        load("boxes", {"size": 64})
