"""The latency that a compression searches is that of the machine where the model will run."""

from __future__ import annotations

import functools
import html
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import workbench as wb
from tests.runs.test_compressing import original  # noqa: F401 (a fixture)
from tests.services.served import write_array_bundle
from tests.services.ssh_server import SshServer, reached_by_ssh
from workbench.cli.entry import group
from workbench.deploy.device import kept_file, measure_there
from workbench.foundation.errors import ArgumentError, RunError
from workbench.runs import Run
from workbench.runs.compressing import create_compression
from workbench.store.history.compression import compressed
from workbench.tiers.placement.machine_profile import Profile, StageTiming

pytestmark = pytest.mark.ray

TIERS = """
tiers: {end: {machine: board.json, arrivals: 1/s}, cloud: {}}
links: {end-cloud: {bandwidth: 1Mbit}}
place: {from: bundle}
"""


@pytest.fixture
def board(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SshServer]:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    yield from reached_by_ssh(tmp_path / "ssh", monkeypatch)


def num_measured(board: SshServer) -> int:
    """Return how often something was measured there: each time by four connections."""
    return board.log.read_text().count("Accepted publickey") // 4


def compress_on_the_tier(run: Run, board: SshServer, folder: Path) -> Run:
    """Compress as the command does, for the device of a tier whose machine is the board."""
    timing = StageTiming(file="a.onnx", sha256="0", batch=1, mean_s=1.0, p50_s=1.0, p95_s=1.0)
    profile = Profile(machine="a", device=board.address, runtime="b", threads=1, timings=(timing,))
    profile.write(folder / "board.json")
    (folder / "tiers.yaml").write_text(TIERS)
    words = ["compress", run.run_id, "--device", f"{folder / 'tiers.yaml'}:end", "--trials", "2"]
    words += ["--python", sys.executable, "--constraint", "drop=100%"]
    words += ["--launcher", "inline", "--store", run.store.url, "--json"]
    done = CliRunner().invoke(group, words, standalone_mode=False)
    assert done.exception is None, done.output
    return wb.attach(json.loads(done.stdout)["run_id"], store=run.store)


@pytest.mark.slow
def test_the_latency_is_that_of_the_device_beside_that_of_here(
    original: Run,  # noqa: F811
    board: SshServer,
    tmp_path: Path,
) -> None:
    smaller = compress_on_the_tier(original, board, tmp_path)

    assert [trial.state for trial in smaller.history.trials.values()] == ["complete"] * 2
    assert num_measured(board) == 2, (
        "the first trial changes nothing, so what its base took is reused"
    )
    kept = json.loads(kept_file(board.address).read_text())
    measured = {one["compared"]["ratio"]: one for one in kept.values()}
    for trial in smaller.history.trials.values():
        values = trial.values
        there = measured[values["latency_ratio"]]
        assert values["latency_s"] == there["compared"]["candidate_s"]
        assert values["latency_p95_s"] == there["p95_s"]
        assert values["memory_bytes"] == there["memory_bytes"] > 1e7
        assert values["latency_ratio_here"] > 0
        assert values["latency_here_s"] != values["latency_s"]
        # The device is this machine, so its answers are worth the same.
        assert (
            values["val_accuracy"] == values["val_accuracy_here"] == there["values"]["val_accuracy"]
        )
    folder = smaller.export(tmp_path / "small", trial=1)
    stated = json.loads((folder / "files/compression.json").read_text())["device"]
    assert stated["address"] == board.address
    assert "onnxruntime" in stated["runtime"]
    assert not [path for path in board.temporary.iterdir() if path.is_dir()], (
        "nothing is left behind"
    )

    report = smaller.report(tmp_path / "report.html").read_text()
    verdict = compressed(smaller.history)
    if verdict.recommended is not None:
        assert f"on {board.address}" in verdict.words
    assert f"Latency ratio on {board.address}" in report
    assert (html.escape("On the trial's machine") in report) == bool(verdict.lost)


@pytest.mark.slow
def test_what_was_measured_on_a_device_is_reused_for_the_same_files(
    board: SshServer, tmp_path: Path
) -> None:
    base = write_array_bundle(tmp_path / "base") / "model.onnx"
    other = write_array_bundle(tmp_path / "other", scale=2.0) / "model.onnx"
    feeds = {"inputs": np.ones((1, 4), np.float32)}
    measure = functools.partial(
        measure_there,
        base=base,
        feeds=feeds,
        device=board.address,
        python=sys.executable,
        threads=1,
    )

    first = measure(other)
    assert measure(other) == first
    assert num_measured(board) == 1
    measure(base)
    measure(other, threads=2)
    assert num_measured(board) == 3, "another file and another number of threads are measured"
    assert first.compared.low <= first.compared.ratio <= first.compared.high

    kept = json.loads(kept_file(board.address).read_text())
    old = {
        key: {**trial, "measured_unix_s": trial["measured_unix_s"] - 25 * 3600}
        for key, trial in kept.items()
    }
    kept_file(board.address).write_text(json.dumps(old))
    assert measure(other).measured_unix_s > first.measured_unix_s, (
        "what is older than a day is not reused"
    )
    kept_file(board.address).write_text("torn")
    assert measure(other).measured_unix_s > first.measured_unix_s


@pytest.mark.slow
def test_a_device_that_cannot_be_used_is_refused_before_a_run_is_stored(
    original: Run,  # noqa: F811
    board: SshServer,
) -> None:
    number = len(original.store.runs())
    with pytest.raises(RunError, match=r"nowhere.invalid: ssh: Could not resolve hostname"):
        create_compression(original, device="ssh://nowhere.invalid")
    with pytest.raises(RunError, match="no-python"):
        create_compression(original, device=board.address, python="no-python")
    with pytest.raises(ArgumentError, match="device: 'board' is not a device"):
        create_compression(original, device="board")
    assert len(original.store.runs()) == number
