"""Finds image files that cannot be read, by their headers and ends.

What looks whole is not decoded.

A folder may hold millions of files on a slow disk: some of them are read, evenly spread, for a
short time.
"""

from __future__ import annotations

import time
from collections import Counter

import numpy as np

from workbench.data.pixels import traits_of, why_not_eight_bits
from workbench.foundation.errors import DataError

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
