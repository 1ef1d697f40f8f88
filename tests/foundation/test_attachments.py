from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from workbench.foundation.attachments import (
    MAX_IMAGE_BYTES,
    MAX_ROWS,
    MAX_SIDE,
    attachment_of,
    read_table,
)
from workbench.foundation.errors import ArgumentError


def pixels_of(value: Any) -> np.ndarray:
    image = pytest.importorskip("PIL.Image")
    attachment = attachment_of("image", value)
    assert attachment is not None
    assert (attachment.kind, attachment.suffix) == ("image", "png")
    return np.asarray(image.open(io.BytesIO(attachment.content)))


@pytest.mark.parametrize("shape", [(5, 7), (5, 7, 3), (5, 7, 4)])
def test_an_array_of_bytes_keeps_every_pixel(shape: tuple[int, ...]) -> None:
    array = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    assert (pixels_of(array) == array).all()


def test_channels_may_come_first_as_in_torch() -> None:
    array = np.random.default_rng(0).integers(0, 256, (3, 8, 9), dtype=np.uint8)
    assert (pixels_of(array) == np.moveaxis(array, 0, 2)).all()


def test_a_tensor_that_needs_gradients_is_a_picture() -> None:
    torch = pytest.importorskip("torch")
    assert pixels_of(torch.ones(1, 4, 5, requires_grad=True)).tolist() == [[255] * 5] * 4


@pytest.mark.parametrize(
    ("values", "shown"),
    [
        ([[0.0, 0.5], [1.0, 0.2]], [[0, 128], [255, 51]]),
        ([[-1.0, 0.0], [1.0, float("nan")]], [[0, 128], [255, 128]]),
        ([[0, 100], [200, 255]], [[0, 100], [200, 255]]),
        ([[0, 1000], [500, 250]], [[0, 255], [128, 64]]),
        ([[True, False], [False, True]], [[255, 0], [0, 255]]),
    ],
)
def test_brightness_follows_the_range_of_the_values(values: Any, shown: list[list[int]]) -> None:
    assert pixels_of(np.array(values)).tolist() == shown


def test_a_large_array_is_shown_with_fewer_pixels() -> None:
    height, width = pixels_of(np.zeros((3 * MAX_SIDE, 10))).shape[:2]
    assert (height, width) == (MAX_SIDE, 10)


def test_images_of_pillow_and_figures_of_matplotlib_are_pictures() -> None:
    image = pytest.importorskip("PIL.Image")
    assert pixels_of(image.new("RGB", (4, 3), "red"))[0, 0].tolist() == [255, 0, 0]


def test_figures_of_matplotlib_are_pictures() -> None:
    figures = pytest.importorskip("matplotlib.figure")
    figure = figures.Figure(figsize=(2, 1), dpi=50)
    axes = figure.subplots()
    axes.plot([1, 2])
    assert pixels_of(figure).shape[:2] == (50, 100)
    assert pixels_of(axes).shape[:2] == (50, 100)


def test_a_file_is_what_it_holds_not_what_it_is_named(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_bytes(b"\xff\xd8\xff rest")
    attachment = attachment_of("picture", path)
    assert attachment is not None
    assert attachment.suffix == "jpg"
    path.write_text("<html><script>alert(1)</script></html>")
    with pytest.raises(ArgumentError, match="not a picture"):
        attachment_of("image", str(path))
    with pytest.raises(ArgumentError, match="cannot be read"):
        attachment_of("image", tmp_path / "absent.png")


def test_a_picture_that_is_too_large_is_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "large.png"
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(MAX_IMAGE_BYTES))
    with pytest.raises(ArgumentError, match="too large"):
        attachment_of("image", path)


@pytest.mark.parametrize("value", [[1, 2], np.arange(4), object(), {"a": 1}, None, [], {}])
def test_other_values_are_no_attachments(value: Any) -> None:
    assert attachment_of("x", value) is None


@pytest.mark.parametrize(
    "value", [np.zeros((2, 2), complex), np.zeros((5, 5, 7)), np.zeros((0, 4))]
)
def test_an_array_that_is_no_picture_is_refused_with_its_shape(value: Any) -> None:
    with pytest.raises(ArgumentError, match=r"with the shape \("):
        attachment_of("x", value)


def table_of(value: Any) -> tuple[list[str], list[list[Any]], int]:
    attachment = attachment_of("table", value)
    assert attachment is not None
    assert attachment.kind == "table"
    table = read_table(attachment.content)
    return table.columns, table.rows, table.num_rows


def test_rows_and_columns_make_the_same_table() -> None:
    expected = (["word", "share"], [["a", 0.5], ["b", None]], 2)
    assert table_of([{"word": "a", "share": 0.5}, {"word": "b"}]) == expected
    assert table_of({"word": ["a", "b"], "share": [0.5, None]}) == expected
    assert table_of({"word": ["a", "b"], "share": np.array([1, 2])})[1] == [["a", 1], ["b", 2]]


def test_a_data_frame_is_a_table() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"n": [1, 2], "x": [0.5, float("nan")], 3: ["<b>", None]})
    assert table_of(frame)[:2] == (
        ["n", "x", "3"],
        [[1, 0.5, "<b>"], [2, "nan", table_of(frame)[1][1][2]]],
    )


def test_of_a_long_table_the_first_rows_are_kept_and_the_number_is_known() -> None:
    _, rows, num_rows = table_of([{"n": number, "text": "x" * 10_000} for number in range(3000)])
    assert num_rows == 3000
    assert len(rows) <= MAX_ROWS
    assert rows[0][0] == 0
    assert len(rows[0][1]) < 1000


def test_a_text_is_kept_as_it_is_with_what_cannot_be_written_replaced() -> None:
    attachment = attachment_of("sample", "Grüße <script>\ud800")
    assert attachment is not None
    assert (attachment.kind, attachment.content.decode()) == ("text", "Grüße <script>?")


def test_numbers_that_json_lacks_are_written_as_text() -> None:
    attachment = attachment_of("table", [{"x": float("inf"), "n": 2**70}])
    assert attachment is not None
    assert json.loads(attachment.content)["rows"] == [["inf", str(2**70)]]
