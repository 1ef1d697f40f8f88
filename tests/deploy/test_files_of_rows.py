"""A file of rows is read as training read its own: by a bundle in Python and by its script."""

from __future__ import annotations

import bz2
import csv
import gzip
import lzma
import math
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tests.deploy.trained import exported
from workbench.data.table_sources import read_source
from workbench.data.total_rows import without_total
from workbench.deploy.image_files import answers_for
from workbench.deploy.predictor import Answers, Predictor
from workbench.deploy.rows import columns_from
from workbench.deploy.serving.client_rows import RowReader
from workbench.foundation.errors import DataError


def flats(num_rows: int, seed: int) -> pd.DataFrame:
    random = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "größe": random.uniform(20, 90, num_rows).round(1),
            "town": random.choice(["Zürich", "Bern", "Genf"], num_rows),
            "day": pd.date_range("2024-01-25", periods=num_rows).strftime("%d/%m/%Y"),
            "weight": random.uniform(1, 9, num_rows).round(3),
        }
    )
    return frame.assign(price=3 * frame["größe"] + 20 * (frame["town"] == "Bern"))


NEW = flats(6, 1)


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("flats")
    text = flats(80, 0).to_csv(index=False, sep=";", decimal=",")
    (folder / "flats.csv").write_text(f"Flats of 2024\n\n{text}", encoding="utf-8")
    data = {"name": "table", "path": str(folder / "flats.csv"), "target": "price"}
    exported(folder / "bundle", "boosted_trees", data, num_trees=8)
    return folder / "bundle"


def lines_of(frame: pd.DataFrame = NEW, sep: str = ";") -> list[str]:
    return frame.to_csv(index=False, sep=sep, decimal=",").splitlines()


def values_of(answers: Answers) -> np.ndarray:
    assert answers.values is not None
    return answers.values


def joined(*lines: str) -> bytes:
    return "\n".join(lines).encode()


TOTAL = f"Total;;;{NEW['weight'].sum():.3f};".replace(".", ",")
FILES: dict[str, Callable[[], bytes]] = {
    "plain": lambda: joined(*lines_of()),
    "a title": lambda: joined("Offers, of March", *lines_of()),
    "a title and an account": lambda: joined("Offers", "", "Account;12 345", "", *lines_of()),
    "comments": lambda: joined("# made by a program", "# on 1/2/2024", *lines_of()),
    "a separator that is said": lambda: joined("sep=;", *lines_of()),
    "tabs": lambda: joined("Offers", *lines_of(sep="\t")),
    "vertical bars": lambda: joined(*lines_of(sep="|")),
    "units": lambda: joined(lines_of()[0], "qm;;;kg;CHF", *lines_of()[1:]),
    "units, and identifiers": lambda: joined(
        lines_of()[0],
        "How large?;Which town?;When, in 2024?;How heavy, in kg?;Price?",
        ";".join(f'"{{""Id"": ""Q{number}""}}"' for number in range(5)),
        *lines_of()[1:],
    ),
    "a total": lambda: joined(*lines_of(), TOTAL),
    "units and a total": lambda: joined(lines_of()[0], "qm;;;kg;CHF", *lines_of()[1:], TOTAL),
    "other columns": lambda: joined(
        *lines_of(pd.DataFrame(NEW.assign(more="x")[["more", *NEW.columns[::-1]]]))
    ),
    "a repeated name that is not needed": lambda: joined(
        *(f"{line};{more}" for line, more in zip(lines_of(), ["a;a", *["1;2"] * 6], strict=True))
    ),
    "no target": lambda: joined(*lines_of(NEW.drop(columns="price"))),
    "trailing separators": lambda: joined(lines_of()[0], *(f"{row};" for row in lines_of()[1:])),
    "decomposed letters": lambda: joined(*lines_of()).replace("ö".encode(), "ö".encode()),
    "Windows-1252": lambda: joined(*lines_of()).decode().encode("cp1252"),
    "UTF-16": lambda: joined("Title", *lines_of()).decode().encode("utf-16"),
    "a mark of UTF-8": lambda: joined(*lines_of()).decode().encode("utf-8-sig"),
    "lines of Windows": lambda: joined("Title", *lines_of()).replace(b"\n", b"\r\n"),
    "blank lines": lambda: joined(*lines_of()).replace(b"\n", b"\n\n"),
    "decimal points": lambda: NEW.to_csv(index=False).encode(),
}


@pytest.mark.parametrize("case", FILES)
def test_a_file_is_read_as_in_training(bundle: Path, tmp_path: Path, case: str) -> None:
    predictor = Predictor.open(bundle, threads=1)
    expected = values_of(predictor.predict(columns_from(predictor.card, NEW)))
    path = tmp_path / "rows.csv"
    path.write_bytes(FILES[case]())

    answers = answers_for(predictor, path)
    assert values_of(answers).tolist() == expected.tolist()
    assert any("sums up the others" in note for note in answers.notes) == ("total" in case)
    assert any("units or words" in note for note in answers.notes) == ("units" in case)
    if case != "a repeated name that is not needed":
        table, _ = without_total(read_source(path).table)
        assert len(table) == len(NEW), "training uses the same rows"


RUN_EACH = """
import runpy, sys
script, *paths = sys.argv[1:]
for path in paths:
    sys.argv = [script, path]
    runpy.run_path(script, run_name="__main__")
"""


def test_the_script_reads_every_file_as_the_bundle_does(bundle: Path, tmp_path: Path) -> None:
    """In one process, which loads ONNX Runtime once."""
    predictor = Predictor.open(bundle, threads=1)
    expected = values_of(predictor.predict(columns_from(predictor.card, NEW))).tolist()
    paths = []
    for number, written in enumerate(FILES.values()):
        paths.append(tmp_path / f"{number}.csv")
        paths[-1].write_bytes(written())
    command = [sys.executable, "-c", RUN_EACH, str(bundle / "predict.py"), *map(str, paths)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    lines = iter(done.stdout.splitlines())
    printed = {case: [float(next(lines)) for _ in NEW.index] for case in FILES if next(lines)}
    assert printed == {case: pytest.approx(expected, rel=1e-6) for case in FILES}


@pytest.fixture(scope="module")
def with_points(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("with_points")
    table = flats(80, 0)[["größe", "weight", "price"]]
    table = table.assign(rent=[f"{30 * price:,.2f}" for price in table["price"]])
    table.to_csv(folder / "flats.csv", index=False)
    data = {"name": "table", "path": str(folder / "flats.csv"), "target": "price"}
    exported(folder / "bundle", "boosted_trees", data, num_trees=8)
    return folder / "bundle"


@pytest.mark.parametrize(
    ("separator", "rent"),
    [(";", "1.234,50"), ("\t", "1234,5"), (",", "1.234,50"), (";", "1.234,50 CHF")],
)
def test_a_file_may_have_decimal_commas_if_training_had_points(
    with_points: Path, tmp_path: Path, separator: str, rent: str
) -> None:
    predictor = Predictor.open(with_points, threads=1)
    given = {"größe": [40.5, 81.0], "weight": [1.234, 7.5], "rent": [1234.5, math.nan]}
    expected = values_of(predictor.predict(given)).tolist()
    path = tmp_path / "rows.csv"
    rows = [["größe", "weight", "rent"], ["40,5", "1,234", rent], ["81", "7,5", "n/a"]]
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, delimiter=separator).writerows(rows)

    answers = answers_for(predictor, path)
    assert values_of(answers).tolist() == expected
    note = "numbers are read with decimal commas, such as 40,5"
    assert note in answers.notes
    command = [sys.executable, str(with_points / "predict.py"), str(path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert f"predict.py: {note}" in done.stderr
    printed = [float(line) for line in done.stdout.splitlines()[1:]]
    assert printed == pytest.approx(expected, rel=1e-6)


def test_thousands_stay_thousands_and_mixed_decimals_are_refused(
    with_points: Path, tmp_path: Path
) -> None:
    predictor = Predictor.open(with_points, threads=1)
    path = tmp_path / "rows.csv"
    path.write_text("größe;weight;rent\n40;1;1,234\n", encoding="utf-8")
    expected = predictor.predict({"größe": [40.0], "weight": [1.0], "rent": [1234.0]})
    assert values_of(answers_for(predictor, path)).tolist() == values_of(expected).tolist()
    path.write_text("größe;weight;rent\n40;1;1,234\n40;1;5,678\n40;1;12,34\n", encoding="utf-8")
    given = {"größe": [40.0] * 3, "weight": [1.0] * 3, "rent": [1234.0, 5678.0, math.nan]}
    answers = answers_for(predictor, path)
    assert values_of(answers).tolist() == values_of(predictor.predict(given)).tolist()
    assert any("12,34" in note for note in answers.notes)
    path.write_text("größe;weight;rent\n40,5;1.5;1000\n", encoding="utf-8")
    with pytest.raises(DataError, match="contains '40,5'"):
        answers_for(predictor, path)


@pytest.fixture(scope="module")
def shares(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shares")
    numbers = np.random.default_rng(0).uniform(10, 90, 80).round(1)
    texts = [f"{number} %".replace(".", ",") for number in numbers]
    table = pd.DataFrame({"share": texts, "price": 3 * numbers})
    table.to_csv(folder / "shares.csv", index=False, sep=";", decimal=",")
    data = {"name": "table", "path": str(folder / "shares.csv"), "target": "price"}
    exported(folder / "bundle", "boosted_trees", data, num_trees=8)
    return folder / "bundle"


def test_only_rows_without_the_sign_are_noted_whatever_the_decimal_sign(
    shares: Path, tmp_path: Path
) -> None:
    with_points, with_commas = tmp_path / "points.csv", tmp_path / "commas.csv"
    rows = ["80 %", "0.8", "12.5%", "50.25 %", "44.1"]
    text = "".join(f"{row};x\n" for row in ["share", *rows])
    with_points.write_text(text.replace(";", ","))
    with_commas.write_text(text.replace(".", ","))
    predictor = Predictor.open(shares, threads=1)
    points, commas = (answers_for(predictor, path) for path in (with_points, with_commas))
    assert values_of(points).tolist() == values_of(commas).tolist()
    for answers in (points, commas):
        assert [note for note in answers.notes if "has no % in rows 1, 4 (from 0)" in note]
    done = subprocess.run(
        [sys.executable, str(shares / "predict.py"), str(with_points)],
        capture_output=True,
        text=True,
    )
    assert "has no % in rows 1, 4" in done.stderr
    printed = [float(line) for line in done.stdout.splitlines()[1:]]
    np.testing.assert_allclose(printed, values_of(points), rtol=1e-6)


@pytest.mark.parametrize(("ending", "module"), [("gz", gzip), ("bz2", bz2), ("xz", lzma)])
def test_a_compressed_file_is_read_by_the_script_too(
    bundle: Path, tmp_path: Path, ending: str, module: Any
) -> None:
    predictor = Predictor.open(bundle, threads=1)
    path = tmp_path / f"rows.csv.{ending}"
    path.write_bytes(module.compress(FILES["UTF-16"]()))
    expected = values_of(answers_for(predictor, path))
    command = [sys.executable, str(bundle / "predict.py"), str(path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    printed = [float(line) for line in done.stdout.splitlines()[1:]]
    np.testing.assert_allclose(printed, expected, rtol=1e-6)
    path.write_bytes(path.read_bytes()[:-30])
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2
    assert "it is damaged" in done.stderr


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("town;price\nBern;1\n", "there are no columns 'größe', 'day' and 'weight'"),
        ("größe;town;day;weight\n1;2;Bern;01/02/2024;3;4\n", "line 2 has 6 cells"),
        ("größe;größe;town;day;weight\n1;2;Bern;01/02/2024;3\n", "more than one column"),
    ],
)
def test_what_is_missing_or_too_much_is_said_by_name(
    bundle: Path, tmp_path: Path, content: str, problem: str
) -> None:
    path = tmp_path / "rows.csv"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(DataError, match=problem):
        columns_from(Predictor.open(bundle, threads=1).card, path)
    done = subprocess.run(
        [sys.executable, str(bundle / "predict.py"), str(path)], capture_output=True, text=True
    )
    assert done.returncode == 2
    [line] = done.stderr.splitlines()
    assert problem.replace(" and ", ", ") in line


def test_a_sheet_or_a_file_of_an_archive_can_be_named(bundle: Path, tmp_path: Path) -> None:
    pytest.importorskip("openpyxl")
    import zipfile

    predictor = Predictor.open(bundle, threads=1)
    expected = values_of(predictor.predict(columns_from(predictor.card, NEW)))
    with pd.ExcelWriter(tmp_path / "book.xlsx") as writer:
        NEW.to_excel(writer, sheet_name="2024", index=False)
        NEW[:2].to_excel(writer, sheet_name="2023", index=False)
    with zipfile.ZipFile(tmp_path / "rows.zip", "w") as archive:
        archive.writestr("a.csv", FILES["a title"]().decode())
        archive.writestr("b.csv", "x,y\n1,2\n")
    for name in ("book.xlsx#2024", "rows.zip#a.csv"):
        answers = answers_for(predictor, tmp_path / name)
        assert values_of(answers).tolist() == expected.tolist()
    with pytest.raises(DataError, match=r"book\.xlsx has 2 sheets|sheets"):
        columns_from(predictor.card, tmp_path / "book.xlsx")


def test_odd_cells_are_read_and_said_equally(bundle: Path, tmp_path: Path) -> None:
    names = lines_of()[0].split(";")
    columns: dict[str, list[str]] = dict(
        zip(
            names,
            map(list, zip(*(line.split(";") for line in lines_of()[1:]), strict=True)),
            strict=True,
        )
    )
    meant: dict[str, list[str]] = {name: list(cells) for name, cells in columns.items()}
    for name, row, odd, as_meant in (
        ("town", 0, "ZÜRICH ", "Zürich"),
        ("town", 1, "", ""),
        ("town", 2, "Oslo", "Oslo"),
        ("weight", 3, "heavy", ""),
        ("day", 4, "31/31/2024", ""),
    ):
        columns[name][row], meant[name][row] = odd, as_meant

    def written(cells: dict[str, list[str]]) -> list[str]:
        return [";".join(cells), *map(";".join, zip(*cells.values(), strict=True))]

    predictor = Predictor.open(bundle, threads=1)
    path = tmp_path / "rows.csv"
    path.write_text("\n".join(written(meant)), encoding="utf-8")
    expected = values_of(answers_for(predictor, path))
    lines = written({name: columns[name] for name in ("größe", "town", "day", "weight")})
    lines[-1] = lines[-1].rpartition(";")[0]
    path.write_text("\n".join(lines), encoding="utf-8")
    answers = answers_for(predictor, path)
    np.testing.assert_array_equal(values_of(answers)[:5], expected[:5])
    done = subprocess.run(
        [sys.executable, str(bundle / "predict.py"), str(path)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    printed = [float(line) for line in done.stdout.splitlines()[1:]]
    np.testing.assert_allclose(printed, values_of(answers), rtol=1e-6)
    said = [line.removeprefix("predict.py: ") for line in done.stderr.splitlines()]
    assert sorted(said) == sorted(answers.notes)
    assert [line.partition(":")[0] for line in said] == [
        "row 5 (from 0) has fewer cells than the header",
        "column 'town' is missing in row 1 (from 0), and was never missing in training",
        "column 'town' contains values that did not occur in training in row 2 (from 0), such as"
        " 'Oslo'",
        "column 'day' has '31/31/2024' in row 4 (from 0), which is not a date",
        "column 'day' is missing in row 4 (from 0), and was never missing in training",
        "column 'weight' has 'heavy' in row 3 (from 0), which is not a number",
        "column 'weight' is missing in rows 3, 5 (from 0), and was never missing in training",
    ]


def notated(num_rows: int, seed: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return numbers, and the same as people write them."""
    random = np.random.default_rng(seed)
    pay, times = random.integers(1, 40, num_rows), 10.0 ** random.choice([3, 6, 9], num_rows)
    minutes, north = random.integers(1, 1440, num_rows), random.uniform(-80, 80, num_rows).round(3)
    size, factor = random.integers(1, 600, num_rows), random.choice([1e6, 1e9], num_rows)
    numbers = {"pay": pay * times, "took": minutes * 60.0, "opens": minutes * 60.0}
    numbers |= {"lap": minutes * 60.0, "north": north, "disk": size * factor}
    words = {1e3: "k", 1e6: "M", 1e9: " bn"}
    clock = [divmod(int(minute), 60) for minute in minutes]
    texts = {
        "pay": [f"${number}{words[by]}" for number, by in zip(pay, times, strict=True)],
        "took": [f"{hours}h {rest}m" if hours else f"{rest} min" for hours, rest in clock],
        "opens": [
            f"{hours % 12 or 12}:{rest:02} {'PM' if hours >= 12 else 'AM'}" for hours, rest in clock
        ],
        "lap": [f"{hours}:{rest:02}" for hours, rest in clock],
        "north": [f"{abs(angle)}\u00b0 {'S' if angle < 0 else 'N'}" for angle in north],
        "disk": [
            f"{number} {'MB' if by == 1e6 else 'GB'}"
            for number, by in zip(size, factor, strict=True)
        ],
    }
    target = np.log(numbers["pay"]) + minutes / 100 + north / 10 + np.log(numbers["disk"])
    return pd.DataFrame(numbers).assign(y=target), pd.DataFrame(texts).assign(y=target)


def test_multipliers_durations_and_angles_are_numbers_at_every_door(tmp_path: Path) -> None:
    _, learned = notated(120, 0)
    learned.to_csv(tmp_path / "learned.csv", index=False)
    data = {"name": "table", "path": str(tmp_path / "learned.csv"), "target": "y"}
    exported(tmp_path / "bundle", "boosted_trees", data, num_trees=8)
    predictor = Predictor.open(tmp_path / "bundle", threads=1)
    assert {column.kind for column in predictor.card.inputs} == {"number"}
    numbers, texts = notated(9, 1)
    expected = values_of(predictor.predict(columns_from(predictor.card, numbers)))
    assert len(set(expected.ravel())) > 3
    texts.to_csv(tmp_path / "new.csv", index=False)
    assert values_of(answers_for(predictor, tmp_path / "new.csv")) == pytest.approx(expected)
    assert values_of(predictor.predict(columns_from(predictor.card, texts))) == pytest.approx(
        expected
    )
    served = RowReader(predictor.card).read(texts.to_dict("records"))
    names = [column.name for column in predictor.card.inputs]
    np.testing.assert_allclose(np.array(served), numbers[names].to_numpy())
    script = [sys.executable, str(tmp_path / "bundle" / "predict.py"), str(tmp_path / "new.csv")]
    done = subprocess.run(script, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    _, *lines = done.stdout.split()
    assert [float(line) for line in lines] == pytest.approx(expected.ravel().tolist())
    refused = subprocess.run([*script, "--to", "a.csv"], capture_output=True, text=True)
    assert refused.returncode == 2
    assert "python predict.py ROWS > ANSWERS" in refused.stderr
