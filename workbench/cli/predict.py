"""`predict`: the predictions of an exported model for the rows of a file, or for images."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import click

from workbench.cli.declarations import takes
from workbench.cli.options import example
from workbench.cli.output import print_json, print_note
from workbench.cli.parameters import BUNDLE, INTERVAL, JSON, ROWS, TO
from workbench.foundation.errors import ArgumentError


@click.command()
@takes(BUNDLE, ROWS(is_required=True, is_repeatable=True), INTERVAL, TO, JSON)
@example(
    "workbench predict best rows.csv",
    "workbench predict best rows.csv --to answers.csv",
    "workbench predict best houses.csv --interval 0.9",
    "workbench predict best cat.png more-pictures/",
)
def predict(
    bundle: Path,
    rows: tuple[Path, ...],
    interval: float | None,
    to: Path | None,
    as_json: bool,
) -> None:
    """Predict the rows of a file, or images, with an exported model.

    BUNDLE is a folder that `workbench export RUN --to BUNDLE` wrote. A run that is not an AutoML
    run needs `--format onnx`. ROWS is a table with the columns of the training data (.csv, .tsv,
    .parquet, .xlsx, .jsonl, .json, .feather or .sqlite). A model that takes arrays reads .npy
    files. If it takes several, give it a .npz file, or a folder with a .npy file for each. A model
    that was trained on images reads image files, and folders of them.

    You get the prediction of each row, and the probability of each class.
    """
    from workbench.deploy.image_files import answers_for
    from workbench.deploy.predictor import Predictor
    from workbench.deploy.rows import table_of

    predictor = Predictor.open(bundle)
    if interval is not None:
        predictor.check_interval(interval)
    answers = answers_for(predictor, rows[0] if len(rows) == 1 else rows)
    if interval is not None:
        answers = predictor.with_interval(answers, interval)
    for note in answers.notes:
        print_note(note)
    header, table = table_of(predictor.card, answers)
    if not table:
        print_note(f"{rows[0]} has no rows, so there is nothing to predict")
    path = None
    if to is not None:
        path = str(to.absolute())
        try:
            to.write_text(_as_csv(header, table), encoding="utf-8")
        except OSError as error:
            raise ArgumentError(f"cannot write {to}: {error.strerror}", field="--to") from error
    if as_json:
        listed = [dict(zip(header, row, strict=True)) for row in table]
        print_json(
            {
                "bundle": str(bundle),
                "predictions": listed,
                "messages": list(answers.notes),
                "path": path,
            }
        )
    elif path is not None:
        click.echo(path)
    else:
        click.echo(_as_csv(header, table), nl=False)


def _as_csv(header: list[str], table: list[list[object]]) -> str:
    written = io.StringIO()
    writer = csv.writer(written, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(table)
    return written.getvalue()
