"""Image files as samples of a model that was trained on image files.

`workbench.data.images` decodes them. `rows` handles all other samples.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np

from workbench.data.image_folders import ENDINGS
from workbench.deploy.card import Card, Input
from workbench.deploy.distributions import needs
from workbench.deploy.predictor import Answers, Predictor
from workbench.deploy.rows import read_samples
from workbench.foundation.errors import DataError
from workbench.foundation.files import visible_below

MEDIA_TYPES = ("image/bmp", "image/gif", "image/jpeg", "image/png", "image/tiff", "image/webp")
"""The content types that a client may send as the body of a request."""
MAX_SENT_PIXELS = 50_000_000
"""The largest number of pixels of an image that a client sends.

A small file can decode to an image that fills the memory.
"""
_SENT_FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
"""The formats that are decoded. Pillow would start programs for others, such as PostScript."""
_BATCH = 64
"""How many images are processed at a time. All images of a folder may not fit into memory."""


def answers_for(predictor: Predictor, samples: Any) -> Answers:
    """Return the answers of a model for samples as users have them.

    Args:
        predictor: The model.
        samples: The path of an image file or of a folder of images, or several of them, for a model
            that was trained on image files. Otherwise samples as in `read_samples`.

    Raises:
        DataError: If the samples cannot be read, or are not of the kind that the model takes.
    """
    files = image_files_of(predictor.card, samples)
    if files is None:
        columns, notes = read_samples(predictor.card, samples)
        answers = predictor.predict(columns)
        return replace(answers, notes=(*notes, *answers.notes))
    taken = predictor.card.inputs[0]
    answered = [
        predictor.predict(
            {
                taken.name: np.stack(
                    [_pixels(taken, str(file)) for file in files[first : first + _BATCH]]
                )
            }
        )
        for first in range(0, len(files), _BATCH)
    ]
    boxes = None
    if answered[0].boxes is not None:
        boxes = [of_image for part in answered for of_image in part.boxes or []]
    return Answers(
        classes=_joined([part.classes for part in answered]),
        probabilities=_joined([part.probabilities for part in answered]),
        values=_joined([part.values for part in answered]),
        error_sizes=_joined([part.error_sizes for part in answered]),
        boxes=boxes,
        files=tuple(map(str, files)),
    )


def image_files_of(card: Card, samples: Any) -> list[Path] | None:
    """Return the image files of samples. The files of a folder are sorted by name.

    Args:
        card: The card of the model.
        samples: See `answers_for`.

    Returns:
        The files, or None if the samples are something else, such as a table.

    Raises:
        DataError: If there are none in a folder, a file does not exist, or the model takes no image
            files.
    """
    if _is_folder_of_arrays(card, samples) or card.outputs[0].kind == "texts":
        return None
    several = not isinstance(samples, str | Path)
    paths = _paths_in(card, samples) if several else [Path(samples)]
    if not paths or not (several or paths[0].is_dir() or paths[0].suffix.lower() in ENDINGS):
        return None
    if not takes_images(card):
        given = "a file"
        if several:
            given = "one of several files"
        elif paths[0].is_dir():
            given = "a folder"
        takes = "an array" if card.inputs[0].kind == "array" else "the columns of a table"
        if card.text_model is not None:
            takes = "texts"
        raise DataError(
            f"the model takes {takes}, but {paths[0]} is {given}",
            allowed="one file of rows. Images need a model that was trained on image files",
            next_step="If it was trained on image files, export the model again.",
        )
    return [file for path in paths for file in _files_at(path)]


def _is_folder_of_arrays(card: Card, samples: Any) -> bool:
    """Return whether samples are a folder with a file for each of several arrays."""
    num_arrays = sum(taken.kind == "array" for taken in card.inputs)
    return num_arrays > 1 and isinstance(samples, str | Path) and Path(samples).is_dir()


def _paths_in(card: Card, samples: Any) -> list[Path]:
    """Return paths as a list. Texts are only paths if the model takes images."""
    if not isinstance(samples, Sequence):
        return []
    kinds = (str, Path) if takes_images(card) else (Path,)
    if not all(isinstance(sample, kinds) for sample in samples):
        return []
    return [Path(sample) for sample in samples]


def takes_images(card: Card) -> bool:
    """Return whether the samples of a model are image files."""
    return len(card.inputs) == 1 and card.inputs[0].is_image


def _files_at(path: Path) -> list[Path]:
    if not path.is_dir():
        if not path.exists():
            raise DataError(
                f"the file {path} does not exist",
                next_step=f"Relative paths start in {Path.cwd()}.",
            )
        return [path]
    files = [file for file in visible_below(path) if file.suffix.lower() in ENDINGS]
    if not files:
        raise DataError(f"the folder {path} contains no images", allowed=sorted(ENDINGS))
    return files


def sent_pixels(taken: Input, content: bytes) -> np.ndarray:
    """Return the pixels of an image that a client sent, of the shape that the model takes.

    Args:
        taken: The input, which takes images.
        content: What the image file holds.

    Raises:
        DataError: If it is not an image that can be decoded, or has more than `MAX_SENT_PIXELS`
            pixels.
    """
    return _pixels(
        taken, "the image", content=content, formats=_SENT_FORMATS, max_pixels=MAX_SENT_PIXELS
    )


def _pixels(taken: Input, name: str, **options: Any) -> np.ndarray:
    with needs("pillow"):
        from workbench.data.images import decode_image

    channels, size, _ = taken.shape
    return decode_image(name, size, cast("Literal[1, 3]", channels), **options)


def _joined(parts: Sequence[np.ndarray | None]) -> np.ndarray | None:
    known = [part for part in parts if part is not None]
    return np.concatenate(known) if known else None
