"""Pixels of image files as 8-bit grey or colour, whatever mode and depth they are stored in.

Each mode of Pillow is converted as it is meant, or rejected by its name, so nothing is clipped or
dropped silently. `traits_of` notes every change. `images` finds and resizes the files.

Broken files are found by their headers and ends. Files that look whole are not decoded. A folder
may hold millions of files on a slow disk, so only some of them are read, evenly spread, for a short
time.
"""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from workbench.foundation.errors import DataError

if TYPE_CHECKING:
    from PIL.Image import Image

_ORIENTATION = 0x0112
_EMBEDDED_PREVIEW = "MPO"
"""Photos whose other frames are smaller copies or depths."""
MAX_FILES = 2000
LONGEST_S = 3.0
"""The longest time for reading files."""
_NUM_PASSES = 8
"""Each pass reads every eighth file, so files are evenly spread whenever the time is over."""
_ENDS = {"PNG": b"IEND", "JPEG": b"\xff\xd9", "GIF": b";", "WEBP": b""}
"""The bytes at the end of a whole file, or none if opening it shows whether it is whole.

Files of other formats are decoded.
"""
_END_BYTES = 64


def eight_bits(image, channels):
    """Return an image in 8 bits: L for one channel, RGB for three.

    On white where it is transparent.
    """
    # Exported scripts contain this function as it is, so it imports what it needs and has no
    # annotations.
    import numpy as np
    from PIL import Image

    if image.mode in ("I", "F", "LAB") and (
        image.mode != "I" or image.format not in ("PNG", "PPM")
    ):
        raise ValueError(
            f"pixels of mode {image.mode} have no fixed white: save it with 8 or 16 bits"
        )
    if image.mode.startswith("I"):
        depth = getattr(image, "tag_v2", {}).get(258, (16,))[0]  # TIFF files may have 12 bits
        values = np.asarray(image)
        shown = (values.astype(float) * 255 / (2**depth - 1)).round().astype(np.uint8)
        shown[values == image.info.get("transparency", -1)] = 255
        image = Image.fromarray(shown)
    if image.mode in ("RGBa", "La"):
        image = image.convert(image.mode.upper())
    if image.has_transparency_data:
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    return image.convert("L" if channels == 1 else "RGB")


def why_not_eight_bits(image: Image) -> str | None:
    """Return why the pixels of an opened image cannot be used, or None. Nothing is decoded."""
    from PIL.Image import new

    sample = new(image.mode, (1, 1))
    sample.format = image.format
    try:
        eight_bits(sample, 3)
    except ValueError as error:
        return str(error)
    return None


def traits_of(image: Image, *, turns: bool) -> list[str]:
    """Return how an opened image is not used as it is stored, in words. Nothing is decoded.

    Args:
        image: An image as Pillow opened it.
        turns: Whether a picture is turned as its camera noted.
    """
    traits = []
    if image.has_transparency_data or image.mode in ("RGBa", "La", "PA"):
        traits.append("have transparency, and are shown on white")
    if image.mode.startswith("I;16") or (image.mode == "I" and image.format in ("PNG", "PPM")):
        traits.append("have 16 bits a channel, and are scaled to 8")
    if image.mode == "CMYK":
        traits.append("have the colours of print (CMYK), and are converted without their profile")
    if image.format != _EMBEDDED_PREVIEW and getattr(image, "n_frames", 1) > 1:
        traits.append("have several frames or pages, of which the first is used")
    is_turned = image.getexif().get(_ORIENTATION, 1) not in (0, 1)
    if is_turned and turns:
        traits.append("are turned as their camera noted")
    elif is_turned:
        traits.append(
            "are not turned as their camera noted, because masks or boxes describe the stored"
            " pixels"
        )
    return traits


def check_headers(files: list[str], *, turns: bool = True) -> tuple[str, ...]:
    """Reject images of which some cannot be read.

    Args:
        files: Paths in their order. If there are more than `MAX_FILES`, as many are read.
        turns: Whether pictures are turned as their cameras noted.

    Returns:
        Notes on files that are not used as they are stored.

    Raises:
        DataError: If one cannot be read. The message shows the first.
    """
    spread = np.linspace(0, len(files) - 1, min(len(files), MAX_FILES))
    chosen: list[int] = spread.astype(int).tolist()
    broken: dict[int, str] = {}
    traits: Counter[str] = Counter()
    until = time.monotonic() + LONGEST_S
    num_read = 0
    # Several passes with large strides: if the time is up early, the files are still evenly spread.
    for index in (index for first in range(_NUM_PASSES) for index in chosen[first::_NUM_PASSES]):
        if time.monotonic() > until:
            break
        num_read += 1
        if (reason := _fault_of(files[index], traits, turns)) is not None:
            broken[index] = reason
    if not broken:
        of_all = "" if num_read == len(files) else f" of the {num_read:,} that were read"
        return tuple(f"{count:,} images{of_all} {trait}" for trait, count in sorted(traits.items()))
    first = min(broken)
    problem = f"{files[first]} cannot be read as an image: {broken[first]}"
    if len(broken) > 1:
        problem += f". Nor can {len(broken) - 1:,} more of the {num_read:,} files that were read"
    raise DataError(
        problem,
        field="data.path",
        next_step="Repair the file or move it out of the folder.",
    )


def _fault_of(path: str, traits: Counter[str], turns: bool) -> str | None:
    """Return why a file cannot be read as an image, or None if it looks whole. Count its traits."""
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(path) as opened:
            if not _has_its_end(path, opened.format):
                # Other content may follow the end, so only decoding shows what is missing.
                opened.load()
            if (reason := why_not_eight_bits(opened)) is not None:
                return reason
            traits.update(traits_of(opened, turns=turns))
    except UnidentifiedImageError:
        return "its content has the format of no image"
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        return str(error)
    return None


def _has_its_end(path: str, form: str | None) -> bool:
    if form not in _ENDS:
        return False
    with open(path, "rb") as file:
        size_bytes = file.seek(0, 2)
        file.seek(max(0, size_bytes - _END_BYTES))
        return _ENDS[form] in file.read()
