from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.cli.conftest import Shell
from tests.renting.test_offers import experiment, measured
from tests.run.recorded import append
from workbench.events import RunStateChanged
from workbench.store import Store


@pytest.fixture
def file(shell: Shell) -> str:
    path = shell.folder / "mine.yaml"
    path.write_text(experiment().to_yaml())
    return str(path)


@pytest.fixture
def advised(shell: Shell, file: str) -> str:
    with Store.open(None) as store:
        append(store, store.create_run(experiment()), [*measured(), RunStateChanged(state="complete")])
    return file


def test_machines_are_compared_as_a_table_as_values_and_as_a_picture(shell: Shell, advised: str) -> None:
    picture = shell.folder / "offers.html"
    code, out, err = shell(
        "cluster", "plan", advised, "--deadline", "6h", "--budget", "40", "--to", str(picture)
    )
    assert code == 0, err
    assert "take " in out
    assert "g4dn.xlarge (aws, us-east-1)" in out
    assert "EXTRAPOLATED" in out
    assert "price unknown" in err
    assert "What the run would take" in picture.read_text()
    told = shell.json("cluster", "plan", advised, "--provider", "gcp")
    assert {each["provider"] for each in told["offers"]} == {"gcp"}
    assert told["measured"][0]["device"] == "Tesla T4"


def test_without_a_measurement_the_next_step_is_named(shell: Shell, file: str) -> None:
    code, _, err = shell("cluster", "plan", file)
    assert code == 2
    assert "no measurement" in err
    assert "workbench advise FILE" in err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--deadline", "soon"), "--deadline: 'soon' is no duration"),
        (("--provider", "nobody"), "--provider: no machine of nobody; allowed: aws, gcp, azure"),
        (("--catalogue", "absent.yaml"), "cannot read absent.yaml"),
    ],
)
def test_what_is_wrong_is_said(shell: Shell, advised: str, words: tuple[str, ...], said: str) -> None:
    code, _, err = shell("cluster", "plan", advised, *words)
    assert code == 2
    assert said in err


def test_a_cluster_is_simulated_by_each_rule(shell: Shell) -> None:
    asked = ("cluster", "simulate", "--gpus", "32", "--trials", "60", "--failure-rate", "0.1", "--seed", "2")
    told = shell.json(*asked)
    assert list(told["policies"]) == ["workbench", "fifo", "one-gpu"]
    assert all(0 < each["useful"] <= each["busy"] <= 1 for each in told["policies"].values())
    code, out, _ = shell(*asked)
    assert code == 0
    assert "one GPU a trial" in out


def test_comparing_loads_no_heavy_library(shell: Shell, advised: str) -> None:
    program = (
        "import sys; from workbench.cli.entry import run_command; "
        f"code = run_command(['cluster', 'plan', {advised!r}, '--json']); "
        "print(code, sorted({'torch', 'ray', 'optuna', 'plotly', 'pandas'} & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert done.stderr.strip().endswith("0 []")
    assert json.loads(done.stdout)["offers"]


def test_a_catalogue_of_ones_own_replaces_the_shipped_one(shell: Shell, advised: str) -> None:
    own = shell.folder / "own.yaml"
    own.write_text(
        "machines:\n"
        "  - {provider: own, type: shelf, region: cellar, vcpus: 8, memory_gib: 32,\n"
        "     on_demand: {usd_per_hour: 0.1, origin: the electricity bill, date: 2026-11-01},\n"
        "     source: {origin: the shelf, date: 2026-11-01}}\n"
    )
    told = shell.json("cluster", "plan", advised, "--catalogue", str(own))
    assert {each["machine"] for each in told["offers"]} == {"shelf"}
