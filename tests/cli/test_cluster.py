from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.builders.recorded_runs import append
from tests.runs.provisioning.test_offers import experiment, measured
from tests.services.shell import Shell, run_without
from workbench.foundation.events import RunStateChanged
from workbench.runs.provisioning.catalogue import read_catalogue
from workbench.store.database import Store


@pytest.fixture
def file(shell: Shell) -> str:
    path = shell.folder / "mine.yaml"
    path.write_text(experiment().to_yaml())
    return str(path)


@pytest.fixture
def advised(shell: Shell, file: str) -> str:
    with Store.open(None) as store:
        append(
            store, store.create_run(experiment()), [*measured(), RunStateChanged(state="complete")]
        )
    return file


def test_machines_are_compared_as_a_table_as_values_and_as_a_picture(
    shell: Shell, advised: str
) -> None:
    picture = shell.folder / "offers.html"
    code, out, err = shell(
        "cluster", "plan", advised, "--time", "6h", "--money", "40", "--chart", str(picture)
    )
    assert code == 0, err
    assert "take " in out
    assert "g4dn.xlarge" in out
    assert "extrapolated" in out
    assert "[1] " in err
    assert "Estimated time and cost of the run" in picture.read_text()
    told = shell.json("cluster", "plan", advised, "--provider", "gcp")
    assert {offer["provider"] for offer in told["offers"]} == {"gcp"}
    assert told["measured_runs"][0]["device"] == "Tesla T4"


def test_without_a_measurement_the_next_step_is_named(shell: Shell, file: str) -> None:
    Store.open(str(shell.folder / "store.sqlite")).close()
    code, _, err = shell("cluster", "plan", file)
    assert code == 2
    assert "no measurement" in err
    assert f"workbench advise {file}" in err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--time", "soon"), "--time: 'soon' is not valid; allowed: a duration"),
        (("--time", "nan"), "--time: 'nan' is not valid; allowed: a duration"),
        (("--time", "-5"), "--time: '-5' is not valid; allowed: a duration"),
        (
            ("--time", "0"),
            "--time: '0' is not valid; allowed: a duration greater than 0, such as 90s",
        ),
        (("--start-up", "inf"), "--start-up: 'inf' is not valid; allowed: a duration"),
        (("--money", "nan"), "--money: 'nan' is not an amount of money"),
        (("--money", "20 EUR"), "--money: '20 EUR' is not in the currency of the price"),
        (("--money", "0"), "--money: a run is never free; allowed: more than 0 USD"),
        (
            ("--provider", "nobody"),
            "--provider: the catalogue has no machine of nobody; allowed: aws, gcp",
        ),
        (("--catalogue", "absent.yaml"), "cannot read absent.yaml"),
    ],
)
def test_what_is_wrong_is_said(
    shell: Shell, advised: str, words: tuple[str, ...], said: str
) -> None:
    code, _, err = shell("cluster", "plan", advised, *words)
    assert code == 2
    assert said in err


def test_a_machine_that_trains_at_once_is_assumed_where_asked(shell: Shell, advised: str) -> None:
    for start_up in ("0", "0s"):
        told = shell.json("cluster", "plan", advised, "--start-up", start_up)
        assert "0 s of start-up" in told["message"]


@pytest.mark.parametrize("columns", [80, 100, 120])
def test_the_table_fits_a_terminal_of_any_usual_width(
    shell: Shell, advised: str, columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workbench.cli.output._WIDE", columns)
    code, out, _ = shell("cluster", "plan", advised, "--time", "6h", "--money", "40", "--all")
    assert code == 0
    lines = out.partition("\n\n")[0].splitlines()
    assert max(map(len, lines)) <= columns
    names = {machine.type for machine in read_catalogue().machines}
    assert names <= {
        word for line in lines for word in line.split()
    }  # none is broken over two lines


def test_the_best_lines_are_shown_and_how_many_more_there_are(shell: Shell, advised: str) -> None:
    _, out, _ = shell("cluster", "plan", advised)
    _, everything, _ = shell("cluster", "plan", advised, "--all")
    assert "more lines are hidden. To see them: --all" in out
    assert "--all shows them" not in everything
    assert len(everything.splitlines()) > 2 * len(out.splitlines())


def test_a_cluster_is_simulated_by_each_rule(shell: Shell) -> None:
    asked = (
        "cluster",
        "simulate",
        "--gpus",
        "32",
        "--num-trials",
        "60",
        "--failure-rate",
        "0.1",
        "--seed",
        "2",
    )
    told = shell.json(*asked)
    assert list(told["policies"]) == ["workbench", "elastic", "fifo", "one-gpu"]
    assert all(each["makespan_s"] >= told["least_makespan_s"] for each in told["policies"].values())
    assert all(0 < each["useful"] <= each["busy"] <= 1 for each in told["policies"].values())
    code, out, _ = shell(*asked)
    assert code == 0
    assert "one GPU per trial" in out


def test_what_is_simulated_explains_itself_in_80_columns(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workbench.cli.output._WIDE", 80)
    _, out, _ = shell(
        "cluster", "simulate", "--gpus", "16", "--num-trials", "40", "--num-runs", "2"
    )
    (head, *rows) = out.partition("\n\n")[2].partition("\n\n")[0].splitlines()
    assert max(map(len, [head, *rows])) <= 80
    explained = out.partition("one GPU per trial")[2]
    for column in re.split(r"  +", head.strip())[1:]:
        assert f"\n{column} " in explained or column == "failures", column
    for rule in ("workbench", "workbench, elastic", "FIFO, first fit", "one GPU per trial"):
        assert len(re.findall(rf"^{rule}  ", out, re.MULTILINE)) == 2  # its numbers, and what it is
    assert re.search("The soonest here: (workbench|FIFO|one GPU)", out)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--failure-rate", "nan"), "--failure-rate: 'nan' is not valid; allowed: a number from 0"),
        (("--failure-rate", "-1"), "'-1' is not valid; allowed: a number from 0"),
        (("--checkpoint", "inf"), "'inf' is not valid; allowed: a duration greater than 0"),
        (("--checkpoint", "0"), "'0' is not valid; allowed: a duration greater than 0"),
        (("--overhead", "nan"), "'nan' is not valid; allowed: a number from 0"),
        (("--gpus", "0"), "allowed: a whole number from 1 to 100000"),
        (("--gpus", "nan"), "'nan' is not valid; allowed: a whole number from 1 to 100000"),
        (("--num-trials", "1000000000"), "allowed: a whole number from 1 to"),
        (("--num-runs", "9", "--num-trials", "3"), "--num-runs: 9 runs cannot share 3 trials"),
    ],
)
def test_what_cannot_be_simulated_is_refused(
    shell: Shell, words: tuple[str, ...], said: str
) -> None:
    code, out, err = shell("cluster", "simulate", *words)
    assert (code, out) == (2, "")
    assert said in err


def test_comparing_loads_no_heavy_library(shell: Shell, advised: str) -> None:
    out = run_without("torch ray optuna plotly pandas", ["cluster", "plan", advised, "--json"])
    assert json.loads(out)["offers"]


def test_a_catalogue_of_ones_own_replaces_the_shipped_one(shell: Shell, advised: str) -> None:
    own = shell.folder / "own.yaml"
    own.write_text(
        "machines:\n"
        "  - {provider: own, type: shelf, region: cellar, vcpus: 8, memory_gib: 32,\n"
        "     on_demand: {usd_per_hour: 0.1, origin: the electricity bill, date: 2026-11-01},\n"
        "     source: {origin: the shelf, date: 2026-11-01}}\n"
    )
    told = shell.json("cluster", "plan", advised, "--catalogue", str(own))
    assert {offer["machine"] for offer in told["offers"]} == {"shelf"}


def template(shell: Shell, target: str, file: str, *words: str) -> tuple[int, str, str]:
    kept = ("--artifacts", "s3://bucket/runs", "--store", "postgresql://me@db/runs")
    return shell("cluster", "template", target, file, *kept, *words)


def test_a_template_is_written_for_each_target(
    shell: Shell, file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel, path = shell.folder / "workbench.whl", shell.folder / "out.yaml"
    wheel.touch()
    code, out, err = template(
        shell, "aws", file, "--machine", "g5.xlarge", "--package", str(wheel), "--to", str(path)
    )
    assert (code, err) == (0, "")
    assert "wrote" in out
    assert "InstanceType: g5.xlarge" in path.read_text()
    code, out, _ = template(
        shell, "kubernetes", file, "--machine", "g5.xlarge", "--image", "mine:1"
    )
    assert code == 0
    assert "kind: RayJob" in out
    code, out, _ = template(shell, "slurm", file, "--environment", "venv", "--gpus-per-node", "2")
    assert code == 0
    assert f"source {Path('venv').absolute()}/bin/activate" in out
    monkeypatch.chdir(shell.folder)
    rented = ("--machine", "g2-standard-4", "--package", str(wheel), "--money", "5USD")
    code, out, _ = template(shell, "skypilot", file, *rented)
    assert code == 0
    assert "instance_type: g2-standard-4" in out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ("aws", "--machine", "g5.xlarge"),
            "--package: this option is required here. Build a wheel",
        ),
        (
            ("aws", "--package", "w.whl"),
            "--machine: this option is required here. To compare machines",
        ),
        (
            ("gcp", "--machine", "g5.xlarge", "--package", "w.whl"),
            "the catalogue has no machines of type 'g5.xlarge'",
        ),
        (("kubernetes", "--machine", "g5.xlarge"), "--image: this option is required here"),
        (("slurm",), "--environment: this option is required here"),
        (("skypilot", "--machine", "g5.xlarge"), "--money: this option is required here"),
        (
            ("skypilot", "--machine", "g2-standard-4", "--money", "1USD", "--max-nodes", "2"),
            "--max-nodes: this option has no effect for skypilot",
        ),
        (("aws", "--money", "1USD"), "--money: this option has no effect for aws"),
        (
            ("aws", "--machine", "g5.xlarge", "--idle", "long"),
            "--idle: 'long' is not valid; allowed: a duration",
        ),
        (
            ("aws", "--machine", "g5.xlarge", "--idle", "0"),
            "--idle: '0' is not valid; allowed: a duration greater than 0",
        ),
        (
            ("aws", "--machine", "g5.xlarge", "--package", "w.whl"),
            "--package: the file w.whl does not exist",
        ),
        (
            ("slurm", "--environment", "v", "--job-time", "banana"),
            "--job-time: 'banana' is not a time limit",
        ),
        (
            ("slurm", "--environment", "v", "--memory-per-node", "nan"),
            "'nan' is not valid; allowed",
        ),
        (
            ("slurm", "--idle", "5m"),
            "--idle: this option has no effect for slurm; allowed: with aws, gcp",
        ),
        (
            ("aws", "--gpus-per-node", "4"),
            "--gpus-per-node: this option has no effect for aws; allowed: with slurm",
        ),
    ],
)
def test_what_a_template_lacks_is_named(
    shell: Shell, file: str, words: tuple[str, ...], said: str
) -> None:
    code, _, err = template(shell, words[0], file, *words[1:])
    assert code == 2
    assert said in err


def test_settings_go_along_whatever_the_target(shell: Shell, file: str) -> None:
    wheel, kept = shell.folder / "workbench.whl", ("--set", "training.epochs=7")
    wheel.touch()
    _, aws, _ = template(
        shell, "aws", file, "--machine", "g5.xlarge", "--package", str(wheel), *kept
    )
    assert f"workbench submit {file} --set training.epochs=7 --address" in aws
    _, slurm, _ = template(shell, "slurm", file, "--environment", "venv", *kept)
    assert f"workbench sweep {file} --set training.epochs=7 --detach" in slurm
    _, pods, _ = template(
        shell, "kubernetes", file, "--machine", "g5.xlarge", "--image", "mine:1", *kept
    )
    assert "epochs: 7" in pods
    code, _, err = template(
        shell, "slurm", file, "--environment", "venv", "--set", "training.epochs=no"
    )
    assert code == 2
    assert "training.epochs" in err


def test_without_a_place_for_runs_and_checkpoints_nothing_is_written(
    shell: Shell, file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("WORKBENCH_STORE")
    monkeypatch.delenv("WORKBENCH_ARTIFACTS", raising=False)
    code, out, err = shell("cluster", "template", "slurm", file, "--environment", "venv")
    assert (code, out) == (2, "")
    assert "--artifacts" in err
