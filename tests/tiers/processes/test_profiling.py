from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.deploy.trained import exported
from workbench.foundation.files import sha256_of
from workbench.tiers.placement.machine_profile import read_profile
from workbench.tiers.processes import profile_runner
from workbench.tiers.processes.profiling import profile_stages


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("profiled") / "bundle"
    exported(folder, "convnet", "digits", exits=1, width=4)
    return folder


@pytest.mark.slow
def test_stages_and_frames_are_measured_and_kept(bundle: Path, tmp_path: Path) -> None:
    before = set(psutil.Process().children(recursive=True))
    steps: list[str] = []
    profile = profile_stages(bundle, batches=(1, 3), num_calls=20, on_progress=steps.append)
    assert steps == [
        "measuring stage 1 of 2",
        "measuring stage 2 of 2",
        "measuring the nodes of the model",
        "measuring frames, mtls",
        "measuring frames, plain",
    ]
    assert [(timing.file, timing.batch) for timing in profile.timings] == [
        ("stage_0.onnx", 1),
        ("stage_0.onnx", 3),
        ("stage_1.onnx", 1),
        ("stage_1.onnx", 3),
    ]
    assert profile.timing(sha256_of(bundle / "stage_1.onnx"), 3) == profile.timings[3]
    ways = {(one.what, one.features, one.transport) for one in profile.frames}
    assert len(ways) == len(profile.frames) == 8
    for frame in profile.frames:
        assert profile.frame(frame.what, frame.features, frame.transport) == frame
        assert 0 < frame.p50_s <= frame.p95_s
        assert min(frame.sender_busy_s, frame.receiver_busy_s) > 0
    # The model without exits, node by node: standardise, two convolutions, a mean, a linear output,
    # softmax.
    graphs = [profile.graph(sha256_of(bundle / "model.onnx"), batch) for batch in (1, 3)]
    assert [one.batch for one in graphs if one is not None] == [1, 3]
    # How long either takes depends on the machine: `test_node_times` looks at the numbers.
    assert all(
        frame is not None and min(frame.nodes_s.values()) >= 0 and frame.call_s > 0
        for frame in graphs
    )
    assert graphs[0] is not None
    assert sum("conv" in name.lower() for name in graphs[0].nodes_s) == 2
    profile.write(tmp_path / "profile.json")
    assert read_profile(tmp_path / "profile.json", field="machine") == profile
    assert set(psutil.Process().children(recursive=True)) <= before


def test_what_is_copied_to_a_device_needs_numpy_and_onnxruntime_only(tmp_path: Path) -> None:
    from workbench.tiers.processes import profiling

    (tmp_path / "blocked.py").write_text(
        "import sys\nfor name in ('torch', 'ray', 'pydantic', 'cryptography', 'onnx',"
        " 'typing_extensions', 'yaml'):\n    sys.modules[name] = None\n"
    )
    for name in (*profiling._PACKAGES, *profiling._MODULES):
        target = tmp_path / "workbench" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        own = Path(profiling.__file__).parents[2] / name
        target.write_bytes(b"" if name in profiling._PACKAGES else own.read_bytes())
    runner = Path(profiling.__file__).with_name("profile_runner.py")
    (tmp_path / "runner.py").write_bytes(runner.read_bytes())
    done = subprocess.run(
        [sys.executable, "-c", "import blocked, runner, workbench; print(workbench.__file__)"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.startswith(str(tmp_path))


def test_what_profiling_adds_is_taken_away_and_other_nodes_count_to_the_one_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    profiles = {
        "idle.onnx": {"nothing": [2, 2, 2, 2], "no more": [4, 4, 4, 4]},
        "whole.onnx": {
            "conv": [103, 103, 103, 9000],  # one call that something else interrupted
            "reorder": [13, 13, 13, 13],  # a layout, added by ONNX Runtime
            "out_nchwc": [53, 53, 53, 53],  # the second node, by the name of its output
            "relu": [1, 1, 1, 1],  # less than profiling adds
        },
    }
    monkeypatch.setattr(profile_runner, "_profile", lambda graph, *_: profiles[graph.name])
    times = profile_runner.node_times_s(
        Path("whole.onnx"),
        Path("idle.onnx"),
        {},
        [("conv", "a"), ("second", "out"), ("relu", "b")],
        threads=1,
        num_calls=4,
    )
    assert times == pytest.approx({"conv": 110e-6, "second": 50e-6, "relu": 0.0})
