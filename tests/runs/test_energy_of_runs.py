"""What a run says of the energy that it used.

Sums of what was metered, and nothing where nobody did.
"""

from __future__ import annotations

import math
from pathlib import Path

import pytest

import workbench as wb
from tests.builders.recorded_runs import record_run
from workbench.cli.show import print_run
from workbench.runs import Run
from workbench.store.database import Store
from workbench.store.database.samples import EnergyRow, keep_samples


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return wb.attach(record_run(tmp_path), store=str(tmp_path / "store.sqlite"))


def meter(run: Run, *rows: EnergyRow) -> None:
    store: Store = run.store
    with store.writer(run.run_id, owner_pid=1, owner_host="here") as writer:
        keep_samples(writer, used=rows)


def test_what_was_metered_is_told_wherever_the_run_is(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    meter(run, EnergyRow(0, 7200.0, 1800.0), EnergyRow(1, 3600.0, None), EnergyRow(2, None, 900.0))
    assert run.energy.total_wh == pytest.approx(3.5)
    assert run.trials["energy_wh"].tolist()[:2] == [pytest.approx(2.5), pytest.approx(1.0)]
    assert run.trials["energy_wh"].isna().tolist() == [False, False, True, True, True]
    document = run.to_json()["energy"]
    assert (document["total_wh"], document["gpu_wh"]) == (pytest.approx(3.5), pytest.approx(3.0))
    assert document["trials_wh"] == {"0": pytest.approx(2.5), "1": pytest.approx(1.0), "2": None}
    print_run(run, 5)
    assert "energy: 3.5 Wh (GPUs and processors, as metered)" in capsys.readouterr().out
    page = run.report(tmp_path / "report.html").read_text()
    assert "<dt>Energy</dt><dd>3.5 Wh</dd>" in page


def test_what_nobody_metered_is_not_told_as_nothing(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (run.energy.total_wh, run.energy.describe(), run.energy.of_trial(0)) == (
        None,
        None,
        None,
    )
    assert run.trials["energy_wh"].isna().all()
    assert run.to_json()["energy"] == {
        "total_wh": None,
        "gpu_wh": None,
        "cpu_wh": None,
        "trials_wh": {},
    }
    print_run(run, 5)
    assert "energy" not in capsys.readouterr().out
    assert "<dt>Energy" not in run.report(tmp_path / "report.html").read_text()
    meter(run, EnergyRow(0, 0.0, 36.0))
    assert run.energy.total_wh == pytest.approx(0.01)
    assert run.energy.describe() == "energy: 0.01 Wh (processors, as metered)"
    assert not math.isnan(run.trials["energy_wh"][0])
