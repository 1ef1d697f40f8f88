"""The command automl: its options are the request, and its errors name them."""

from __future__ import annotations

import contextlib
from pathlib import Path
from unittest import mock

import pytest

from workbench.cli.entry import main
from workbench.runs.automl import launch
from workbench.runs.automl.request import Request


class _CreatedError(Exception):
    """Ends the command as soon as it has asked for a run."""


def test_every_option_reaches_the_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    create = mock.create_autospec(launch.create, side_effect=_CreatedError)
    monkeypatch.setattr(launch, "create", create)
    test, validation = tmp_path / "test.csv", tmp_path / "validation.csv"
    test.write_text("stays\nyes\n")
    validation.write_text("stays\nyes\n")

    words = ["automl", "customers.csv", "--target", "stays", "--time", "30s"]
    words += ["--task", "classification", "--metric", "f1", "--drop", "id", "--drop", "note"]
    words += ["--group-column", "person", "--time-column", "day", "--test", str(test)]
    words += ["--validation", str(validation), "--query", "select 1", "--dates", "day-first"]
    words += ["--text-column", "message", "--weight-column", "w", "--class-weights", "yes=5,no=1"]
    words += ["--class-order", "no, yes", "--quantiles", "0.1,0.9", "--families", "linear"]
    words += ["--preset", "best", "--limit", "1ms", "--seed", "3", "--name", "mine"]
    with pytest.raises(_CreatedError):
        main([*words, "--launcher", "inline"])

    create.assert_called_once()
    request = create.call_args.args[0]
    assert request == Request(
        data="customers.csv",
        target="stays",
        time="30s",
        task="classification",
        metric="f1",
        drop=("id", "note"),
        group_column="person",
        time_column="day",
        test=test,
        validation=validation,
        query="select 1",
        dates="day-first",
        text_column="message",
        weight_column="w",
        class_weights={"yes": 5.0, "no": 1.0},
        class_order=["no", "yes"],
        quantiles=(0.1, 0.9),
        families="linear",
        preset="best",
        limit="1ms",
        seed=3,
        name="mine",
    )
    assert create.call_args.kwargs["launcher"] == "inline"


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("--target", "absent"), "--target"),
        (("--target", "stays", "--metric", "absent"), "--metric"),
        (("--target", "stays", "--time", "1s"), "--time"),
        (("--target", "stays", "--group-column", "absent"), "--group-column"),
    ],
)
def test_errors_name_the_option(
    words: tuple[str, ...], named: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = tmp_path / "customers.csv"
    rows = "".join(f"{age},{'yes' if age % 3 else 'no'}\n" for age in range(200))
    table.write_text("age,stays\n" + rows)
    with contextlib.suppress(SystemExit):
        main(["automl", str(table), "--launcher", "inline", *words])
    assert f"{named}:" in capsys.readouterr().err
