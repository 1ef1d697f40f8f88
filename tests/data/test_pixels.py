"""Images of every mode and depth are read as they are meant, converted with a note, or refused by
name.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from workbench.data.images import decode_image
from workbench.data.pixels import check_headers, eight_bits, why_not_eight_bits
from workbench.deploy.card import Input, Output
from workbench.deploy.predict_script import script
from workbench.foundation.errors import DataError

RAMP = np.linspace(0, 65535, 64).astype(np.uint16).reshape(8, 8)
GREY = (RAMP / 257).round().astype(np.uint8)
COLOUR = np.stack([GREY, GREY.T, 255 - GREY], axis=-1)
HALF = np.full((8, 8), 128, dtype=np.uint8)


def on_white(colour: np.ndarray, alpha: np.ndarray) -> np.ndarray:
    share = alpha[..., None] / 255.0
    return colour * share + 255.0 * (1.0 - share)


def luma(colour: np.ndarray) -> np.ndarray:
    return colour @ np.array([0.299, 0.587, 0.114])


def grey_and(alpha: np.ndarray) -> np.ndarray:
    return on_white(np.stack([GREY] * 3, axis=-1), alpha)


def palette() -> Image.Image:
    image = Image.fromarray((np.arange(64).reshape(8, 8) % 4).astype(np.uint8), mode="P")
    image.putpalette([255, 0, 0, 0, 255, 0, 0, 0, 255, 10, 20, 30])
    return image


PALETTE = np.array([[255, 0, 0], [0, 255, 0], [0, 0, 255], [10, 20, 30]])[
    np.arange(64).reshape(8, 8) % 4
]

CASES: dict[str, tuple[Any, str, dict[str, Any], np.ndarray]] = {
    "1": (Image.fromarray(GREY > 127), "png", {}, np.where(GREY > 127, 255, 0)),
    "L": (Image.fromarray(GREY), "png", {}, GREY),
    "L with a transparent grey": (
        Image.fromarray(GREY),
        "png",
        {"transparency": 0},
        grey_and(np.where(GREY == 0, 0, 255)),
    ),
    "LA": (
        Image.merge("LA", [Image.fromarray(GREY), Image.fromarray(HALF)]),
        "png",
        {},
        grey_and(HALF),
    ),
    "16 bits, PNG": (Image.fromarray(RAMP), "png", {}, GREY),
    "16 bits with a transparent grey": (
        Image.fromarray(RAMP),
        "png",
        {"transparency": int(RAMP[3, 3])},
        grey_and(np.where(RAMP[3, 3] == RAMP, 0, 255)),
    ),
    "16 bits, TIFF": (Image.fromarray(RAMP), "tiff", {}, GREY),
    "16 bits, big-endian TIFF": (Image.fromarray(RAMP.astype(">u2")), "tiff", {}, GREY),
    "16 bits, PGM": (Image.fromarray(RAMP), "ppm", {}, GREY),
    "RGB": (Image.fromarray(COLOUR), "png", {}, COLOUR),
    "RGBA": (Image.fromarray(np.dstack([COLOUR, GREY])), "png", {}, on_white(COLOUR, GREY)),
    "RGBA, WebP": (
        Image.fromarray(np.dstack([COLOUR, HALF])),
        "webp",
        {"lossless": True},
        on_white(COLOUR, HALF),
    ),
    "P": (palette(), "png", {}, PALETTE),
    "P with a transparent colour": (
        palette(),
        "png",
        {"transparency": 1},
        on_white(PALETTE, np.where(PALETTE[..., 1] == 255, 0, 255)),
    ),
    "P, GIF": (palette(), "gif", {}, PALETTE),
    "BMP": (Image.fromarray(COLOUR), "bmp", {}, COLOUR),
    "CMYK": (
        Image.new("CMYK", (8, 8), (255, 0, 0, 0)),
        "tiff",
        {},
        np.broadcast_to([0.0, 255.0, 255.0], (8, 8, 3)),
    ),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("channels", [1, 3])
def test_every_mode_and_depth_is_read_as_it_is_meant(
    name: str, channels: Any, tmp_path: Path
) -> None:
    image, ending, options, expected = CASES[name]
    path = tmp_path / f"a.{ending}"
    image.save(path, **options)
    colour = np.stack([expected] * 3, axis=-1) if expected.ndim == 2 else expected
    wanted = colour if channels == 3 else luma(colour)[..., None]
    pixels = decode_image(str(path), 8, channels).transpose(1, 2, 0)
    assert np.abs(pixels - wanted).max() <= 1.5, "but for rounding"


def test_samples_of_12_bits_reach_white(tmp_path: Path) -> None:
    # Pillow reads such files and writes none: the values of a 16-bit image are said to have 12
    # bits.
    image = Image.fromarray((RAMP >> 4).astype(np.uint16))
    image.tag_v2 = {258: (12,)}  # type: ignore[attr-defined]
    assert np.abs(np.asarray(eight_bits(image, 1)).astype(int) - GREY).max() <= 1


@pytest.mark.parametrize("mode", ["F", "I", "LAB"])
def test_pixels_without_a_fixed_white_are_refused_by_name(mode: str, tmp_path: Path) -> None:
    path = tmp_path / "a.tiff"
    Image.new(mode, (8, 8)).save(path)
    with pytest.raises(
        DataError, match=rf"a\.tiff cannot be read .* pixels of mode {mode} have no"
    ):
        decode_image(str(path), 8, 3)
    with pytest.raises(DataError, match=f"mode {mode}"):
        check_headers([str(path)])


def test_no_mode_of_pillow_raises_anything_else() -> None:
    for mode in (
        "1",
        "L",
        "P",
        "RGB",
        "RGBA",
        "CMYK",
        "YCbCr",
        "LAB",
        "HSV",
        "I",
        "F",
        "LA",
        "PA",
        "RGBX",
        "RGBa",
        "La",
        "I;16",
        "I;16L",
        "I;16B",
        "I;16N",
    ):
        image = Image.new(mode, (2, 2))
        reason = why_not_eight_bits(image)
        assert (reason is None) == (mode not in ("I", "F", "LAB")), mode
        if reason is None:
            assert [eight_bits(image, channels).mode for channels in (1, 3)] == ["L", "RGB"]


def turned(path: Path) -> np.ndarray:
    """Write a picture that its camera noted to be turned, and return it upright."""
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned clockwise by 90 degrees
    Image.fromarray(COLOUR).save(path, exif=exif)
    return np.rot90(COLOUR, -1)


def test_a_picture_is_turned_as_its_camera_noted(tmp_path: Path) -> None:
    upright = turned(tmp_path / "a.png")
    assert np.array_equal(decode_image(str(tmp_path / "a.png"), 8, 3).transpose(1, 2, 0), upright)
    stored = decode_image(str(tmp_path / "a.png"), 8, 3, is_stored_way_up=True)
    assert np.array_equal(stored.transpose(1, 2, 0), COLOUR)


def test_what_is_not_used_as_it_is_stored_is_noted(tmp_path: Path) -> None:
    turned(tmp_path / "turned.png")
    Image.fromarray(RAMP).save(tmp_path / "deep.png")
    Image.fromarray(np.dstack([COLOUR, HALF])).save(tmp_path / "clear.png")
    Image.new("CMYK", (8, 8)).save(tmp_path / "print.jpg")
    frames = [Image.new("L", (8, 8), grey) for grey in (0, 100, 200)]
    frames[0].save(tmp_path / "moving.gif", save_all=True, append_images=frames[1:])
    frames[0].save(tmp_path / "pages.tiff", save_all=True, append_images=frames[1:])
    Image.fromarray(COLOUR).save(tmp_path / "plain.png")
    assert check_headers(sorted(map(str, tmp_path.iterdir()))) == (
        "1 images are turned as their camera noted",
        "1 images have 16 bits a channel, and are scaled to 8",
        "2 images have several frames or pages, of which the first is used",
        "1 images have the colours of print (CMYK), and are converted without their profile",
        "1 images have transparency, and are shown on white",
    )
    assert check_headers([str(tmp_path / "plain.png")]) == ()


@pytest.mark.parametrize("name", ["16 bits, PNG", "RGBA", "P with a transparent colour"])
def test_the_script_of_a_bundle_reads_images_as_training_does(name: str, tmp_path: Path) -> None:
    image, ending, options, _ = CASES[name]
    image.save(tmp_path / f"a.{ending}", **options)
    taken = Input(name="inputs", kind="array", shape=(3, 8, 8), dtype="float32", is_image=True)
    text = script(taken, Output(name="outputs", kind="outputs"))
    (tmp_path / "card.json").write_text("{}")
    (tmp_path / "predict.py").write_text(text.replace("import onnxruntime", ""))
    program = (
        f"import predict, numpy; numpy.save('found.npy', predict.pixels('a.{ending}', 3, 8, 8))"
    )
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=True)
    assert np.array_equal(
        np.load(tmp_path / "found.npy")[0], decode_image(f"{tmp_path}/a.{ending}", 8, 3)
    )
