from __future__ import annotations

import re
from pathlib import Path

import pytest

from workbench.advisor.measurement_tables import (
    Column,
    number_from_zero,
    positive_number,
    positive_whole_number,
    read_table,
)
from workbench.foundation.errors import DataError

COLUMNS = (
    Column("gpus", positive_whole_number),
    Column("step_time_s", positive_number),
    Column("sync_time_s", number_from_zero, required=False),
)


def write(folder: Path, text: str) -> Path:
    path = folder / "measured.csv"
    path.write_text(text, encoding="utf-8")
    return path


def test_rows_are_read_in_order_with_what_lacks_as_none(tmp_path: Path) -> None:
    with pytest.warns(
        UserWarning, match=r"measured\.csv has unknown columns, which are ignored: note"
    ):
        rows = read_table(
            write(tmp_path, "\ufeffstep_time_s, gpus,note\n0.5,1,first\n.25,2.0,\n"), *COLUMNS
        )
    assert rows == [
        {"gpus": 1, "step_time_s": 0.5, "sync_time_s": None},
        {"gpus": 2, "step_time_s": 0.25, "sync_time_s": None},
    ]
    assert read_table(write(tmp_path, "gpus,step_time_s\n"), *COLUMNS) == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "gpus,time\n1,2\n",
            r"has no column step_time_s; allowed: gpus, step_time_s, sync_time_s \(optional\)",
        ),
        ("", "is empty; allowed: a line with the columns gpus, step_time_s"),
        (
            "gpus,step_time_s\n1,0.5\n2,fast\n",
            "line 3, column step_time_s: 'fast' is not valid; allowed: a number",
        ),
        ("gpus,step_time_s\n1,-1\n", "line 2, column step_time_s: '-1' is not valid"),
        (
            "gpus,step_time_s\n1.5,1\n",
            "line 2, column gpus: '1.5' is not valid; allowed: a whole number",
        ),
        ("gpus,step_time_s\n1,nan\n", "line 2, column step_time_s: 'nan'"),
        ("gpus,step_time_s\n1,inf\n", "line 2, column step_time_s: 'inf'"),
        ("gpus,step_time_s\n1\n", "line 2, column step_time_s: the line ends before it"),
        ("gpus,step_time_s\n1,2,3\n", "line 2 has more cells than the 2 columns"),
        ("gpus,step_time_s,sync_time_s\n1,2,-3\n", "column sync_time_s: '-3'"),
        ("gpus,step_time_s,gpus\n1,2,3\n", "gpus: .*has the column gpus more than once"),
        (
            "gpus,step_time_s,sync_times\n1,2,1\n",
            "an unknown column sync_times. Did you mean sync_time_s",
        ),
    ],
)
def test_a_malformed_table_is_refused_by_column_and_line(
    text: str, said: str, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match=said):
        read_table(write(tmp_path, text), *COLUMNS)


def test_a_table_of_other_things_is_refused_though_every_column_is_optional(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"none of the expected columns; allowed: .*sync_time_s"):
        read_table(write(tmp_path, "replicas,stages\n2,2\n"), COLUMNS[-1])


@pytest.mark.parametrize(
    ("separator", "name"), [(";", "semicolons"), ("\t", "tabs"), ("|", "vertical bars")]
)
def test_another_separator_than_a_comma_is_named(separator: str, name: str, tmp_path: Path) -> None:
    table = "gpus,step_time_s\n1,2\n".replace(",", separator)
    with pytest.raises(DataError, match=f"are separated by {name}; allowed: commas"):
        read_table(write(tmp_path, table), *COLUMNS)


@pytest.mark.parametrize(
    ("heads", "said"),
    [
        ("GPUs,step_time_s", r"Did you mean 'GPUs'\? Rename it to gpus\.$"),
        ("gpus,Step time s", r"Did you mean 'Step time s'\? Rename it to step_time_s\.$"),
        (
            "gpus,step_time_ms",
            r"Did you mean 'step_time_ms'\? Rename it to step_time_s, if it has that meaning",
        ),
    ],
)
def test_a_column_in_other_case_or_with_spaces_or_another_unit_is_suggested(
    heads: str, said: str, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match="has no column") as raised:
        read_table(write(tmp_path, f"{heads}\n1,0.5\n"), *COLUMNS)
    assert re.search(said, str(raised.value.next_step))


def test_a_file_that_is_not_there_or_no_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot be read"):
        read_table(tmp_path / "nowhere.csv", *COLUMNS)
    (tmp_path / "measured.csv").write_bytes(b"\xff\xfe\x00gpus")
    with pytest.raises(DataError, match="is not UTF-8"):
        read_table(tmp_path / "measured.csv", *COLUMNS)
