"""`automl`: a table in, a tested model out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Literal

import click

from workbench.cli.declarations import takes
from workbench.cli.options import command_line, example, open_store, write_for_shell
from workbench.cli.output import echo, print_json, print_note
from workbench.cli.parameters import (
    ADDRESS,
    CLASS_ORDER,
    CLASS_WEIGHTS,
    DATES,
    DETACH,
    DROP,
    FAMILIES,
    FOUNDATION_WEIGHTS,
    GROUP_COLUMN,
    JSON,
    LATENCY_LIMIT,
    LAUNCHER,
    METRIC,
    NAME,
    PRESET,
    QUANTILES,
    QUERY,
    SEED,
    STORE,
    TABLE,
    TARGET,
    TASK,
    TEST,
    TEXT_COLUMN,
    TIME,
    TIME_COLUMN,
    VALIDATION,
    WEIGHT_COLUMN,
)
from workbench.foundation.errors import ArgumentError, WorkbenchError

if TYPE_CHECKING:
    from workbench.data.dates import DateOrder
    from workbench.foundation.events import RunState
    from workbench.runs.automl import AutoML
    from workbench.runs.automl.presets import PresetName
    from workbench.runs.automl.targets import Task
    from workbench.store.history import History


@click.command()
@takes(
    TABLE,
    TARGET,
    TIME(default="10m"),
    TASK,
    METRIC,
    DROP(is_repeatable=True),
    GROUP_COLUMN,
    TIME_COLUMN,
    TEST,
    VALIDATION,
    QUERY,
    DATES,
    TEXT_COLUMN,
    WEIGHT_COLUMN,
    CLASS_WEIGHTS,
    CLASS_ORDER,
    QUANTILES,
    FAMILIES,
    FOUNDATION_WEIGHTS,
    PRESET(default="good"),
    LATENCY_LIMIT,
    SEED(default=0),
    NAME,
    DETACH,
    LAUNCHER(default="ray"),
    ADDRESS,
    STORE,
    JSON,
)
@example(
    "workbench automl houses.csv --target price --time 5m",
    "workbench automl photos/ --time 5m",
    "workbench automl tickets.csv --target team --text-column message",
)
def automl(
    *,
    table: str,
    target: str | None,
    time: str,
    task: Task | Literal["ordinal"] | None,
    metric: str | None,
    drop: tuple[str, ...],
    group_column: str | None,
    time_column: str | None,
    test: Path | None,
    validation: Path | None,
    query: str | None,
    dates: DateOrder | None,
    text_column: str | None,
    weight_column: str | None,
    class_weights: str | None,
    class_order: str | None,
    quantiles: str | None,
    families: str | None,
    foundation_weights: Path | None,
    preset: PresetName,
    limit: str | None,
    seed: int,
    name: str | None,
    detach: bool,
    launcher: str,
    address: str | None,
    as_json: bool,
) -> int:
    """Find a good model for a table, and test it on held-out rows.

    TABLE is a file (.csv, .tsv, .parquet, .xlsx, .jsonl, .json, .feather, .sqlite, or a .zip with
    one of them), a folder of such files, the address of a database, or the name of a bundled data
    set. Write book.xlsx#SHEET or shop.sqlite#TABLE if the file has several. For images or texts
    (.txt), it is a folder with a folder for each class, and there is no --target.

    METRIC is log_loss (the default), accuracy, balanced_accuracy, macro_f1, f1, mcc, roc_auc or
    average_precision for classes, also quadratic_kappa or class_distance for ordered ones, and rmse
    (the default), mae, r2, mape, median_absolute_error or pinball for numbers.
    """
    from workbench.hardware.resources import processor_times

    began_s, before = monotonic(), processor_times()
    from workbench.cli.automl_result import CandidatesView
    from workbench.cli.following import (
        detached,
        follow_to_end,
        follow_while,
        interrupted,
        waiting_for_the_driver,
    )
    from workbench.runs.automl import launch
    from workbench.runs.automl.request import Request
    from workbench.runs.waiting import ended_like_interrupted

    with _as_options():
        request = Request(
            data=table,
            target=target,
            time=time,
            task=task,
            metric=metric,
            drop=drop,
            group_column=group_column,
            time_column=time_column,
            test=test,
            validation=validation,
            query=query,
            dates=dates,
            text_column=text_column,
            weight_column=weight_column,
            class_weights=_read_weights(class_weights),
            class_order=[name.strip() for name in (class_order or "").split(",") if name.strip()],
            quantiles=_read_quantiles(quantiles),
            families=families or (),
            foundation_weights=foundation_weights,
            preset=preset,
            limit=limit,
            seed=seed,
            name=name,
        )
        created = launch.create(request, store=open_store(), launcher=launcher, address=address)
    for note in created.notes:
        print_note(note)
    last_seq = created.run.row.last_seq

    where: Any = {"began_s": began_s, "launcher": launcher, "address": address}
    share = before.share_until(processor_times())
    here = launch.reason_for_no_driver(created, share, **where)
    if here is not None:
        print_note(here)

    def drive() -> None:
        launch.start(created, **where, here=here, wait=not detach)

    try:
        if (launcher == "inline" or here is not None) and not detach:
            with ended_like_interrupted():
                followed = follow_while(
                    drive, created.run, as_json=as_json, make_view=CandidatesView
                )
                return _print_result(created, *followed, began_s, as_json=as_json)
        with waiting_for_the_driver(created.run):
            drive()
        if detach:
            _say_how_to_use(created)
            return detached(created.run, as_json=as_json)
        with ended_like_interrupted():
            driver_after = last_seq if created.has_new_driver else None
            followed = follow_to_end(
                created.run, as_json=as_json, driver_after=driver_after, make_view=CandidatesView
            )
            return _print_result(created, *followed, began_s, as_json=as_json)
    except KeyboardInterrupt:
        code = interrupted(created.run, launcher)
        _say_how_to_use(created)
        return code


@contextmanager
def _as_options() -> Iterator[None]:
    """Call fields of errors as the command line does: --group-column for group_column."""
    try:
        yield
    except WorkbenchError as error:
        if error.field == "data":
            raise error.about("TABLE") from error
        name = None if error.field is None else f"--{error.field.replace('_', '-')}"
        context = click.get_current_context()
        if any(name in parameter.opts for parameter in context.command.params):
            raise error.about(name) from error
        raise


def _read_weights(text: str | None) -> str | dict[str, float] | None:
    """Return the weights of classes: `balanced`, or a number for each."""
    if text is None or "=" not in text:
        return text
    weights = {}
    for item in text.split(","):
        name, _, number = item.rpartition("=")
        try:
            weights[name.strip()] = float(number)
        except ValueError:
            raise ArgumentError(
                f"{item.strip()!r} is no weight of a class",
                field="--class-weights",
                allowed="balanced, or weights such as yes=5,no=1",
            ) from None
    return weights


def _read_quantiles(text: str | None) -> tuple[float, ...]:
    try:
        return tuple(float(item) for item in (text or "").split(",") if item.strip())
    except ValueError:
        raise ArgumentError(
            f"{text!r} is not a list of quantiles",
            field="--quantiles",
            allowed="numbers between 0 and 1, such as 0.1,0.5,0.9",
        ) from None


def _say_how_to_use(automl: AutoML) -> None:
    # To follow its run is to see trials, of which none is the answer.
    shown = command_line("show", automl.run.run_id)
    click.echo(f"Its result, once it has ended: {shown}", err=True)


def _rows_for(automl: AutoML) -> str:
    """Return what to write for the new samples of a model."""
    return "photos/" if automl.takes_image_files else "rows.csv"


def _print_result(
    automl: AutoML, history: History, state: RunState, began_s: float, *, as_json: bool
) -> int:
    """Print the result of a run that has ended, and return the exit code."""
    from workbench.cli.automl_result import lines_without_result, time_lines
    from workbench.cli.errors import NOTHING_COMPLETE, exit_code_of_run

    if not automl.has_result:
        for line in lines_without_result(automl.run, history, state):
            echo(line, err=True)
        return exit_code_of_run(history, state)
    document = automl.to_json()
    if as_json:
        print_json(document)
    else:
        click.echo()
        for line in automl.summary(
            write_for_shell, has_notes=False
        ):  # they were printed at the start
            echo(line)
        for line in time_lines(history, monotonic() - began_s):
            click.echo(line)
        click.echo(f"run     {automl.run.run_id}")
        if document["used"]:
            click.echo(f"export  {command_line('export', automl.run.run_id, to='best')}")
            click.echo(f"predict workbench predict best {_rows_for(automl)}")
    code = exit_code_of_run(history, state)
    return 0 if code == NOTHING_COMPLETE and document["used"] else code
