"""Commands about exported models: predict, measure, drift. `serve` has a file of its own."""

from __future__ import annotations

import csv
import io
import json
import shlex
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from workbench.cli.declarations import takes
from workbench.cli.options import example
from workbench.cli.output import echo, make_console, make_table, print_json, print_note
from workbench.cli.parameters import (
    BATCH,
    BUNDLE,
    DEVICE,
    INTERVAL,
    JSON,
    PYTHON,
    ROWS,
    SERVED,
    THREADS,
    TO,
    TOKEN_FILE,
)
from workbench.foundation.errors import ArgumentError, RunError
from workbench.foundation.formatting import (
    format_bytes,
    format_count,
    format_number,
    format_percent,
)

if TYPE_CHECKING:
    from workbench.deploy.card import Timing

_TIMEOUT_S = 30


@click.command()
@takes(SERVED, TOKEN_FILE, JSON)
@example("workbench drift best", "workbench drift http://127.0.0.1:8000")
def drift(served: str, token_file: Path | None, as_json: bool) -> int:
    """Compare what a model receives with its training data.

    BUNDLE is a bundle that was served with --keep. URL is a server that was started with --keep.
    The shift of a column is its population stability index. Above 0.2 it counts as drift, unless
    chance explains it.

    Exits with 1 if something has drifted.
    """
    if served.startswith(("http://", "https://")):
        models = _of_server(served, token_file)
    else:
        models = _of_bundle(served)
    drifted = any(model["drifted"] for model in models.values())
    if as_json:
        print_json({"drifted": drifted, "models": models})
        return int(drifted)
    for name, model in models.items():
        _print(name, model)
    return int(drifted)


def _print(name: str, model: dict[str, Any]) -> None:
    echo(f"{name}: {format_count(model['num_rows'], 'row')}", bold=True)
    if not model["num_rows"]:
        return
    table = make_table("", "shift", "drift above", "missing", "")
    columns = list(model["columns"])
    if model["answers"]:
        columns.append(model["answers"])
    for column in columns:
        table.add_row(
            column["name"],
            format_number(column["index"]),
            format_number(column["limit"]),
            format_percent(column["missing"]),
            "drift" if column["drifted"] else "",
        )
    make_console().print(table)
    if model.get("latency_ratio") is not None:
        echo(f"latency: {format_number(model['latency_ratio'])}x as long as at the start")
    for step in model["next_steps"]:
        echo(step)


def _of_bundle(folder: str) -> dict[str, Any]:
    from workbench.deploy.serving.drift import drift_of_kept

    path = Path(folder)
    return {path.absolute().name: drift_of_kept(path)}


def _of_server(url: str, token_file: Path | None) -> dict[str, Any]:
    from workbench.deploy.serving.access_token import read_token, token_path

    token = None
    if token_file is not None or token_path().exists():
        token = read_token(token_file or token_path()).secret
    models = [model["name"] for model in _get(url, "v1", token)["models"]]
    return {name: _get(url, f"v1/{urllib.parse.quote(name)}/drift", token) for name in models}


def _get(url: str, path: str, token: str | None) -> dict[str, Any]:
    headers = {}
    if token is not None:
        headers["Authorization"] = f"Bearer {token}"
    request = urllib.request.Request(f"{url.rstrip('/')}/{path}", headers=headers)
    opener = urllib.request.build_opener(_NoRedirect)
    try:
        with opener.open(request, timeout=_TIMEOUT_S) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            text = error.read().decode("utf-8", "replace")
        try:
            problem = json.loads(text)
        except ValueError:
            problem = {"problem": f"{error.code} {error.reason}"}
        if error.code == 401:
            raise ArgumentError(problem["problem"], field="--token-file") from error
        raise RunError(
            f"{url}: {problem['problem']}", next_step=problem.get("next_step")
        ) from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        raise RunError(
            f"{url} cannot be reached: {reason}", next_step="Check the address."
        ) from error


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Follows no redirect: the token is only for the server that the user gave."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


@click.command()
@takes(
    BUNDLE,
    DEVICE(default=("here",), is_repeatable=True),
    THREADS(default=1),
    BATCH(default=(1,), is_repeatable=True),
    PYTHON(default="python3"),
    JSON,
)
@example(
    "workbench measure best",
    "workbench measure best --device here --device ssh://pi@board.local",
    "workbench measure best --device tiers.yaml:end",
)
def measure(
    *,
    bundle: Path,
    device: tuple[str, ...],
    threads: int,
    batch: tuple[int, ...],
    python: str,
    as_json: bool,
) -> None:
    """Measure how fast an exported model is where it will run.

    BUNDLE is a folder that you exported with --format onnx. The results are stored in its
    card.json.
    """
    from workbench.cli.output import make_console, make_table
    from workbench.deploy import device as devices
    from workbench.deploy.card import read_card
    from workbench.tiers.placement.machine_profile import find_device

    for measured_device in [find_device(name) for name in device]:
        for size in sorted(set(batch)):
            devices.measure(bundle, measured_device, threads=threads, batch=size, python=python)
    timings = read_card(bundle).timings
    if as_json:
        print_json({"bundle": str(bundle), "timings": [timing.model_dump() for timing in timings]})
        return
    headings = [
        "machine",
        "threads",
        "batch",
        "p50 ms",
        "p95 ms",
        "calls",
        "peak memory",
        "runtime",
    ]
    if any(timing.energy_j is not None for timing in timings):
        headings.append("mJ per call")
    table = make_table(*headings)
    for timing in timings:
        table.add_row(*_cells_of(timing)[: len(headings)])
    make_console().print(table)
    click.echo(f"To serve it: {shlex.join(['workbench', 'serve', str(bundle)])}", err=True)


def _cells_of(timing: Timing) -> list[str]:
    memory = energy = ""
    if timing.memory_bytes is not None:
        memory = format_bytes(timing.memory_bytes)
    if timing.energy_j is not None:
        energy = f"{timing.energy_j * 1e3:.3f}"
    return [
        timing.machine,
        str(timing.threads),
        str(timing.batch),
        f"{timing.p50_s * 1e3:.3f}",
        f"{timing.p95_s * 1e3:.3f}",
        str(timing.num_calls),
        memory,
        timing.runtime,
        energy,
    ]


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
    """Predict the rows of a file, texts or images with an exported model.

    BUNDLE is a folder that `workbench export RUN --to BUNDLE` wrote. Runs need `--format onnx`,
    except those of AutoML and of language models from a folder. ROWS is a table with the columns of
    the training data (.csv, .tsv, .parquet, .xlsx, .jsonl, .json, .feather or .sqlite). A model of
    texts also reads a .txt file with a text on each line, and one that answers reads several files.
    Models that take arrays read .npy files. If one takes several, give it a .npz file, or a folder
    with a .npy file for each. A model that was trained on images reads image files, and folders of
    them.

    You get the prediction of each row, and the probability of each class.
    """
    from workbench.deploy.image_files import answers_for
    from workbench.deploy.predictor import Predictor
    from workbench.deploy.rows import table_of

    samples = rows[0] if len(rows) == 1 else rows
    _check_before_loading(bundle, samples, to)
    predictor = Predictor.open(bundle)
    if interval is not None:
        predictor.check_interval(interval)
    answers = answers_for(predictor, samples)
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


def _check_before_loading(bundle: Path, samples: Path | tuple[Path, ...], to: Path | None) -> None:
    """Raise an error if prompts or the folder of the answers are wrong: loading takes long."""
    from workbench.deploy.card import read_card
    from workbench.deploy.rows import read_samples

    if to is not None and not to.absolute().parent.is_dir():
        raise ArgumentError(
            f"there is no folder {to.absolute().parent}", field="--to", next_step="Make it first."
        )
    card = read_card(bundle)
    if card.outputs[0].kind == "texts":
        read_samples(card, samples)


def _as_csv(header: list[str], table: list[list[object]]) -> str:
    lines = []
    for cells in (header, *table):
        line = io.StringIO()
        csv.writer(line).writerow(cells)  # its ending decides which cells are quoted: both signs
        lines.append(line.getvalue().removesuffix("\r\n"))
    return "".join(f"{line}\n" for line in lines)
