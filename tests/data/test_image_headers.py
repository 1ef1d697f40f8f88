"""Image files that cannot be read are found by their headers and ends."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from PIL import Image

from workbench.data import check_options, pixels
from workbench.data.pixels import check_headers
from workbench.foundation.errors import DataError


def fill(folder: Path, num_images: int = 6) -> list[str]:
    for name, colour in (("red", (255, 0, 0)), ("white", (255, 255, 255))):
        (folder / name).mkdir(parents=True)
        for number in range(num_images):
            ending = ("png", "jpg", "bmp")[number % 3]
            Image.new("RGB", (20, 12), colour).save(folder / name / f"{number}.{ending}")
    return sorted(str(file) for file in folder.rglob("*.*"))


def test_the_first_broken_file_of_a_folder_is_named_before_anything_is_trained(
    tmp_path: Path,
) -> None:
    fill(tmp_path)
    options = check_options("images", {"path": str(tmp_path)})
    options.check_source()
    (tmp_path / "white" / "9.png").write_bytes(b"no picture")
    (tmp_path / "red" / "8.jpg").write_bytes(b"")
    with pytest.raises(
        DataError,
        match=(
            r"8\.jpg cannot be read as an image: .*\. Nor can 1 more of the 14 files that were read"
        ),
    ) as caught:
        options.check_source()
    assert caught.value.field == "data.path"
    assert "move it out of the folder" in str(caught.value)


@pytest.mark.parametrize("ending", ["png", "jpg", "bmp"])
def test_a_file_that_was_copied_in_part_is_found(tmp_path: Path, ending: str) -> None:
    fill(tmp_path)
    file = next(tmp_path.rglob(f"*.{ending}"))
    whole = file.read_bytes()
    check_headers([str(file)])
    file.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match=re.escape(file.name)):
        check_headers([str(file)])


def test_what_follows_the_end_of_a_file_does_no_harm(tmp_path: Path) -> None:
    fill(tmp_path)
    file = next(tmp_path.rglob("*.jpg"))
    file.write_bytes(file.read_bytes() + bytes(1000))
    check_headers([str(file)])


def test_of_many_files_some_are_read_evenly_spread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = fill(tmp_path)
    opened: list[str] = []
    monkeypatch.setattr(pixels, "MAX_FILES", 4)
    monkeypatch.setattr(pixels, "_fault_of", lambda path, *_: opened.append(path))
    check_headers(files)
    assert sorted(opened) == [files[index] for index in (0, 3, 7, 11)]


@pytest.mark.parametrize("client_folders", [False, True])
def test_a_file_in_the_place_of_the_folder_is_refused(tmp_path: Path, client_folders: bool) -> None:
    (tmp_path / "file").write_bytes(b"")
    options = check_options(
        "images", {"path": str(tmp_path / "file"), "client_folders": client_folders}
    )
    with pytest.raises(DataError, match="file is not a folder"):
        options.check_source()
