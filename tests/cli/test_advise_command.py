from __future__ import annotations

import pytest

from workbench.cli.advise import MeasurementPrinter
from workbench.foundation.events import CandidateTried, Noted


def test_what_advice_waits_for_is_printed_and_slower_candidates_are_not(
    capsys: pytest.CaptureFixture[str],
) -> None:
    printer = MeasurementPrinter()
    printer(
        Noted(level="info", message="waits for workers: run other has 2 workers, this run is next")
    )
    for elapsed_s in (20.0, 30.0, 10.0):
        printer(
            CandidateTried(
                plan={"workers": 1, "micro_batch": 8, "accumulation": 1},
                lr=0.1,
                step=5,
                epoch=1.0,
                values={"loss": 0.5},
                elapsed_s=elapsed_s,
                reached_target=True,
            )
        )
    printed = capsys.readouterr().err
    assert "waits for workers: run other has 2 workers, this run is next" in printed
    assert [time in printed for time in ("20 s", "30 s", "10 s")] == [True, False, True]
