from __future__ import annotations

import _thread
import json
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from click.testing import CliRunner

from tests.deploy.trained import exported, write_table
from tests.services.ssh_server import SshServer, reached_by_ssh
from workbench.cli.entry import group
from workbench.deploy import device
from workbench.deploy.card import TextModel, read_card
from workbench.deploy.device import HERE, PROGRESS, RUNNER, measure, run_parcel
from workbench.deploy.device_runner import read_energy, used_energy
from workbench.foundation.errors import ArgumentError, RunError


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    write_table(tmp_path / "houses.csv", 60)
    table = {"name": "table", "path": str(tmp_path / "houses.csv"), "target": "price"}
    exported(tmp_path / "bundle", "boosted_trees", table, num_trees=5)
    return tmp_path / "bundle"


@pytest.fixture
def board(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SshServer]:
    yield from reached_by_ssh(tmp_path / "ssh", monkeypatch)


def folders_on(board: SshServer) -> list[Path]:
    return [path for path in board.temporary.iterdir() if path.is_dir()]


def test_a_measurement_tells_its_progress_and_ends_its_process_when_interrupted(
    tmp_path: Path,
) -> None:
    (tmp_path / RUNNER).write_text(
        "import os, sys, time\n"
        f"print('{PROGRESS}' + str(os.getpid()), file=sys.stderr, flush=True)\n"
        "time.sleep(600)\n"
    )
    steps: list[str] = []

    def interrupt(step: str) -> None:
        steps.append(step)
        _thread.interrupt_main()

    # Libraries of other tests leave handlers of their own.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            run_parcel(tmp_path, HERE, on_progress=interrupt)
    finally:
        signal.signal(signal.SIGINT, before)
    (pid,) = steps
    assert not psutil.pid_exists(int(pid))


def test_what_a_runner_prints_besides_its_progress_explains_its_failure(tmp_path: Path) -> None:
    (tmp_path / RUNNER).write_text(
        f"import sys\nprint('{PROGRESS}half', file=sys.stderr)\nraise ValueError('no such graph')\n"
    )
    steps: list[str] = []
    with pytest.raises(RunError, match="no such graph"):
        run_parcel(tmp_path, HERE, on_progress=steps.append)
    assert steps == ["half"]


@pytest.mark.slow
def test_a_model_is_timed_on_several_machines_and_the_card_keeps_each(
    bundle: Path, board: SshServer
) -> None:
    words = ["measure", str(bundle), "--device", "here", "--device", board.address]
    words += ["--python", sys.executable, "--json"]

    done = CliRunner().invoke(group, words, standalone_mode=False)

    timings = json.loads(done.output)["timings"]
    assert [timing["threads"] for timing in timings] == [1, 1]
    assert all(0 < one["p50_s"] <= one["p95_s"] and one["num_calls"] > 0 for one in timings)
    assert all(one["memory_bytes"] > 1_000_000 for one in timings)
    assert timings[1]["machine"].endswith(f"({board.address})")
    assert [timing.p50_s for timing in read_card(bundle).timings] == [
        timing["p50_s"] for timing in timings
    ]
    assert "Accepted publickey" in board.log.read_text()
    assert folders_on(board) == [], "nothing is left behind"

    measure(bundle, threads=1)
    assert len(read_card(bundle).timings) == 2, "a machine that is measured again is replaced"


def test_a_graph_of_transformers_is_timed_with_its_longest_texts(
    bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    onnx = pytest.importorskip("onnx")
    helper, kinds = onnx.helper, onnx.TensorProto
    of_texts = shutil.copytree(bundle, tmp_path / "of_texts")
    shape = ["batch", "length"]
    tokens = helper.make_tensor_value_info("input_ids", kinds.INT64, shape)
    mask = helper.make_tensor_value_info("attention_mask", kinds.BOOL, shape)
    answer = helper.make_tensor_value_info("answer", kinds.BOOL, shape)
    nodes = [
        helper.make_node("Cast", ["input_ids"], ["is_token"], to=kinds.BOOL),
        helper.make_node("And", ["is_token", "attention_mask"], ["answer"]),
    ]
    graph = helper.make_graph(nodes, "tokens", [tokens, mask], [answer])
    opset = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=9), of_texts / "model.onnx")
    described = TextModel(task="classification", context=24, columns=())
    read_card(of_texts).model_copy(update={"text_model": described}).write(of_texts)

    given: list[dict[str, np.ndarray]] = []
    timed = device.time_model

    def time_model(model: Path, feeds: dict[str, np.ndarray], *rest: Any, **named: Any) -> Any:
        given.append(feeds)
        return timed(model, feeds, *rest, **named)

    monkeypatch.setattr(device, "time_model", time_model)
    timing = measure(of_texts, num_calls=5, batch=3)
    assert {name: (str(values.dtype), values.shape) for name, values in given[0].items()} == {
        "input_ids": ("int64", (3, 24)),
        "attention_mask": ("bool", (3, 24)),
    }
    assert read_card(of_texts).timings == (timing,)

    (of_texts / "model.onnx").unlink()
    with pytest.raises(RunError, match="a model of transformers") as raised:
        measure(of_texts)
    assert "--format onnx" in str(raised.value)


@pytest.mark.slow
def test_the_memory_of_a_model_contains_nothing_of_the_process_that_measures_it(
    bundle: Path,
) -> None:
    held = np.ones(50_000_000)
    memory_bytes = measure(bundle, num_calls=1).memory_bytes
    assert memory_bytes is not None
    assert 10_000_000 < memory_bytes < held.nbytes


def test_a_machine_that_cannot_be_used_is_refused_in_words(bundle: Path, board: SshServer) -> None:
    with pytest.raises(
        RunError,
        match=(
            r"nowhere.invalid: ssh: Could not resolve hostname .*Check that `ssh .*"
            r" nowhere.invalid`"
        ),
    ):
        measure(bundle, "ssh://nowhere.invalid")
    with pytest.raises(
        ArgumentError, match=r"device: 'http://board' is not a device; allowed: here, ssh://"
    ):
        measure(bundle, "http://board")
    with pytest.raises(ArgumentError, match="is not a device"):
        measure(bundle, "ssh://-oProxyCommand=true")
    with pytest.raises(RunError, match=r"no-python.*name the Python that has them with --python"):
        measure(bundle, board.address, python="no-python")
    with pytest.raises(RunError, match="Permission denied"):
        measure(bundle, board.address.replace(board.user, "nobody"))
    assert read_card(bundle).timings == ()
    assert folders_on(board) == []


def write_counter(folder: Path, name: str, energy_uj: int) -> None:
    (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / name / "energy_uj").write_text(f"{energy_uj}\n")
    (folder / name / "max_energy_range_uj").write_text("999\n")


def test_energy_is_that_of_all_processors_also_where_a_counter_begins_again(tmp_path: Path) -> None:
    counters = {"intel-rapl:0": 100, "intel-rapl:1": 900, "intel-rapl:0:0": 5}
    for name, energy_uj in counters.items():
        write_counter(tmp_path, name, energy_uj)
    before = read_energy(str(tmp_path))
    write_counter(tmp_path, "intel-rapl:0", 400)
    write_counter(tmp_path, "intel-rapl:1", 50)
    write_counter(tmp_path, "intel-rapl:0:0", 500)  # a part of the first
    assert used_energy(before, read_energy(str(tmp_path))) == pytest.approx((300 + 150) / 1e6)


def test_without_a_counter_that_can_be_read_there_is_no_energy(tmp_path: Path) -> None:
    assert used_energy(read_energy(str(tmp_path / "absent")), {}) is None
    write_counter(tmp_path, "intel-rapl:0", 1)
    (tmp_path / "intel-rapl:0/energy_uj").write_text("")
    assert read_energy(str(tmp_path)) == {}
