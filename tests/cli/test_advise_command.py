from __future__ import annotations

import time

import pytest

from workbench.cli.advise import MeasurementPrinter
from workbench.events import Noted


def test_a_time_limit_that_is_over_is_noted_once(capsys: pytest.CaptureFixture[str]) -> None:
    printer, patient = MeasurementPrinter("1ms"), MeasurementPrinter("1h")
    time.sleep(0.005)
    for _ in range(2):
        patient(Noted(level="info", message="a plan"))
    assert "--time" not in capsys.readouterr().err
    for _ in range(2):
        printer(Noted(level="info", message="a plan"))
    assert capsys.readouterr().err.count("the 1ms of --time are over") == 1
