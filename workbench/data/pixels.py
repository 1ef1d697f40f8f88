"""Pixels of image files as 8-bit grey or colour, whatever mode and depth they are stored in.

The modes of Pillow are used as they are meant, or refused by name: nothing is clipped or left out
silently. What was changed is noted by `traits_of`. Finding and resizing images is left to `images`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from PIL.Image import Image

_ORIENTATION = 0x0112
_EMBEDDED_PREVIEW = "MPO"
"""Photos of which the other frames are smaller copies or depths."""


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
