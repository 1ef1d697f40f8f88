"""Pixels of image files as 8-bit grey or colour, whatever mode and depth they are stored in.

The modes of Pillow are used as they are meant, or refused by name: nothing is clipped or left out
silently. What was changed is noted by `traits_of`. Finding and resizing images is left to `images`.

Files that cannot be read are found by their headers and ends; what looks whole is not decoded. A
folder may hold millions of files on a slow disk: some of them are read, evenly spread, for a short
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
"""Photos of which the other frames are smaller copies or depths."""
MAX_FILES = 2000
LONGEST_S = 3.0
"""How long files are read at most."""
_NUM_PASSES = 8
"""Each reads every eighth file, so that those that were read are evenly spread when the time is
over.
"""
_ENDS = {"PNG": b"IEND", "JPEG": b"\xff\xd9", "GIF": b";", "WEBP": b""}
"""What stands at the end of a whole file; nothing where opening it shows that.

Other formats are decoded.
"""
_END_BYTES = 64


def eight_bits(image, channels):
    """Return an image in 8 bits: L for one channel, RGB for three.

    On white where it is transparent.
    """
    # Exported scripts hold this function as it is: it imports what it needs, and has no
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
    """Return why the pixels of an opened image cannot be used; None if they can.

    Decodes nothing.
    """
    from PIL.Image import new

    sample = new(image.mode, (1, 1))
    sample.format = image.format
    try:
        eight_bits(sample, 3)
    except ValueError as error:
        return str(error)
    return None


def traits_of(image: Image, *, turns: bool) -> list[str]:
    """Return what of an opened image is not used as it is stored, in words; decodes nothing.

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
    if image.getexif().get(_ORIENTATION, 1) not in (0, 1):
        traits.append(
            "are turned as their camera noted"
            if turns
            else (
                "are not turned as their camera noted, as what describes them is of the stored"
                " pixels"
            )
        )
    return traits


def check_headers(files: list[str], *, turns: bool = True) -> tuple[str, ...]:
    """Refuse images of which some cannot be read.

    Args:
        files: Paths in their order; of more than `MAX_FILES`, as many are read, evenly spread.
        turns: Whether pictures are turned as their cameras noted.

    Returns:
        Notes on files that are not used as they are stored.

    Raises:
        DataError: If one cannot be read; it names the first.
    """
    spread = np.linspace(0, len(files) - 1, min(len(files), MAX_FILES))
    chosen: list[int] = spread.astype(int).tolist()
    broken: dict[int, str] = {}
    traits: Counter[str] = Counter()
    num_read, until = 0, time.monotonic() + LONGEST_S
    for index in (index for first in range(_NUM_PASSES) for index in chosen[first::_NUM_PASSES]):
        if time.monotonic() > until:
            break
        num_read += 1
        if (reason := _fault_of(files[index], traits, turns)) is not None:
            broken[index] = reason
    if not broken:
        of_all = "" if num_read == len(files) else f" of the {num_read:,} that were read"
        return tuple(f"{count:,} images{of_all} {trait}" for trait, count in sorted(traits.items()))
    first, others = min(broken), len(broken) - 1
    more = f"; nor can {others:,} more of the {num_read:,} files that were read" if others else ""
    raise DataError(
        f"{files[first]} cannot be read as an image: {broken[first]}{more}",
        field="data.path",
        next_step="Repair the file or move it out of the folder.",
    )


def _fault_of(path: str, traits: Counter[str], turns: bool) -> str | None:
    """Return why a file cannot be read as an image; None if it looks whole.

    Its traits are counted.
    """
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(path) as opened:
            if not _has_its_end(path, opened.format):
                # other content may follow the end, so only decoding shows what is missing
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
