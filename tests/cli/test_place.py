from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.deploy.trained import experiment, exported
from tests.services.shell import Shell
from tests.tiers.placement.systems import two_exits
from workbench.cli import place_run
from workbench.deploy.stages import STAGES, Stage, Stages
from workbench.foundation.files import sha256_of
from workbench.tiers.placement import scheduler_plans
from workbench.tiers.placement.assembly import assemble
from workbench.tiers.placement.links import HEADER_BYTES
from workbench.tiers.placement.machine_profile import (
    FrameTiming,
    Profile,
    StageTiming,
    read_profile,
)
from workbench.tiers.placement.tiers_file import read_tiers
from workbench.tiers.processes.measured_run import Measured, Probes
from workbench.tiers.processes.prediction import Expected

FILE = """
tiers:
  end: {count: 500, machine: machine.json, arrivals: 0.1/s, power: 2W}
  cloud: {count: 2, machine: machine.json, batch: 4}
links: {end-cloud: {bandwidth: 8Mbit, rtt: 20ms, energy: 1uJ/B}}
place: {from: bundle, objective: {p95_latency: 1s, accuracy: max}}
privacy: {features: uint8}
"""


@pytest.fixture(autouse=True)
def _few_resamples(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in the tests of plans: intervals, which nothing here looks at, take most of the time."""
    monkeypatch.setattr(scheduler_plans, "_NUM_RESAMPLES", 4)


def write_bundle(folder: Path) -> Path:
    """Write a bundle with stages and what was measured of them, and a file of tiers that names
    both.
    """
    bundle = folder / "bundle"
    bundle.mkdir()
    stages, timings = [], []
    for number, (shape, mean_s) in enumerate([((1, 8, 8), 0.01), ((32, 4, 4), 0.2)]):
        name = f"stage_{number}.onnx"
        (bundle / name).write_bytes(bytes([number]) * 100)
        stages.append(
            Stage(
                file=name,
                input_shape=shape,
                temperature=1.0,
                accuracy=0.9,
                threshold=0.5,
                share=0.5,
            )
        )
        timings += [
            StageTiming(
                file=name,
                sha256=sha256_of(bundle / name),
                batch=batch,
                mean_s=mean_s * batch / speed,
                p50_s=mean_s * batch / speed,
                p95_s=mean_s * batch / speed * 1.1,
            )
            for batch, speed in ((1, 1), (4, 2))
        ]
    Stages(stages=tuple(stages), accuracy=0.95, num_samples=2000).write(bundle)
    two_exits().write(bundle)
    frames = [
        FrameTiming(
            what=what,
            features="uint8",
            transport="mtls",
            mean_s=10 * busy_s,
            p50_s=busy_s,
            p95_s=busy_s,
            sender_busy_s=2 * busy_s,
            receiver_busy_s=busy_s,
        )
        for what, busy_s in (("inputs", 0.001), ("features", 0.002))
    ]
    Profile(
        machine="board",
        runtime="onnxruntime",
        threads=1,
        timings=tuple(timings),
        frames=tuple(frames),
    ).write(folder / "machine.json")
    path = folder / "tiers.yaml"
    path.write_text(FILE)
    return path


@pytest.mark.slow
@pytest.mark.parametrize("command", ["plan", "simulate"])
def test_plans_are_printed_as_values_and_as_a_table(shell: Shell, command: str) -> None:
    path = write_bundle(shell.folder)
    more = ["--requests", "20000"] if command == "simulate" else []
    code, out, err = shell("place", command, str(path), *more, "--json")
    assert code == 0, err
    document = json.loads(out)
    assert set(document) == {"plans", "recommended", "cut", "heartbeats"}
    by_name = {plan["scheduler"]: plan for plan in document["plans"]}
    assert list(by_name) == ["end", "cloud", "end-cloud", "mapping", "threshold"]
    keys = {
        "scheduler",
        "accuracy",
        "p50_s",
        "p95_s",
        "bytes_per_sample",
        "load",
        "link_load",
        "low",
        "high",
    }
    assert all(set(plan) == keys for plan in document["plans"])
    # The features of 32 x 4 x 4 numbers in one byte each, and a header, for half of the requests.
    assert by_name["end-cloud"]["bytes_per_sample"] == pytest.approx(
        (512 + HEADER_BYTES) * 0.5, rel=0.05
    )
    assert by_name["end"]["load"]["end"] == pytest.approx(0.1 * 0.11, rel=0.05)
    # Of 8 Mbit/s, these with 22 bytes of TLS for every second request, and a heartbeat each 12.5 s.
    bits_per_s = 8 * (0.1 * 0.5 * (512 + HEADER_BYTES + 22) + (HEADER_BYTES + 22) / 12.5)
    assert by_name["end-cloud"]["link_load"]["end-cloud"] == pytest.approx(
        bits_per_s / 8e6, rel=0.05
    )
    code, out, err = shell("place", command, str(path), *more)
    assert code == 0, err
    assert "Whether a cut alone pays is not known: the nodes of the model were not measured." in out
    assert "Recommended: " in out
    assert (
        "The column bytes counts frames. Busiest link also counts 22 B of TLS per frame and"
        " heartbeats." in out
    )
    # 250 devices for each server, which answers in 1 ms: one of each every 12.5 s takes 2 % of its
    # time.
    assert document["heartbeats"]["period_s"] == pytest.approx(12.5)
    assert (
        "Each machine of end sends a heartbeat to cloud every 12.5 s: 4.48 B per second, and 11.5 B"
        in out
    )
    assert (
        "less often than place.heartbeat_period, because heartbeats every 100 ms would take more"
        " than 2% of a link" in out
    )
    path.write_text(FILE.replace("place: {", "place: {heartbeat_period: 20s, "))
    code, out, err = shell("place", command, str(path), *more)
    assert "sends a heartbeat to cloud every 20 s: " in out
    assert "would take more" not in out
    path.write_text(FILE.replace("place: {", "place: {monitoring: none, "))
    code, out, err = shell("place", command, str(path), *more, "--json")
    assert json.loads(out)["heartbeats"] is None


def test_making_protecting_and_reading_frames_is_part_of_a_plan(shell: Shell) -> None:
    path, folder = write_bundle(shell.folder), shell.folder
    profile = read_profile(folder / "machine.json", field="machine")
    path.write_text(FILE.replace("machine.json", "here"))
    file = read_tiers(path)
    without, without_noise = (
        assemble(file, folder, measure=lambda *_, **__: profile, with_frames=is_part)[0]
        for is_part in (False, True)
    )
    # The sender's part, and waking up on both sides, before the link; the receiver's part at the
    # server.
    assert without_noise.send_s - without.send_s == pytest.approx([0, 0.004 + 0.014])
    assert without_noise.send_raw_s - without.send_raw_s == pytest.approx([0, 0.002 + 0.007])
    assert list(without_noise.received_s) == [0, 0.002]
    assert list(without_noise.received_raw_s) == [0, 0.001]
    assert without_noise.send_j - without.send_j == pytest.approx([0, 2 * 0.004])
    assert not without.received_s.any()


def test_a_profile_without_frames_is_refused(shell: Shell) -> None:
    path = write_bundle(shell.folder)
    profile = shell.folder / "machine.json"
    profile.write_text(json.dumps({**json.loads(profile.read_text()), "frames": []}))
    code, _, err = shell("place", "plan", str(path))
    assert code != 0
    assert "tiers.end.machine: its profile has no times for frames" in err


def test_a_profile_of_another_bundle_is_refused(shell: Shell) -> None:
    path = write_bundle(shell.folder)
    bundle = shell.folder / "bundle"
    (bundle / "stage_1.onnx").write_bytes(b"trained again")
    Stages.model_validate_json((bundle / STAGES).read_text()).write(bundle)
    code, _, err = shell("place", "plan", str(path))
    assert code != 0
    assert "tiers.end.machine: its profile has no times for stage_1.onnx" in err


def test_a_tier_without_memory_for_the_first_stage_is_refused(shell: Shell) -> None:
    path = write_bundle(shell.folder)
    path.write_text(FILE.replace("power: 2W", "memory: 50B"))
    assert "tiers.end.memory" in shell("place", "plan", str(path))[2]


@pytest.mark.parametrize("place", ["option", "file"])
def test_an_unknown_scheduler_is_refused_before_anything_is_measured(
    shell: Shell, place: str
) -> None:
    path = shell.folder / "tiers.yaml"  # nothing else that it names exists
    words = ["place", "run", str(path)]
    if place == "file":
        path.write_text(FILE.replace("place: {", "place: {scheduler: nearest, "))
    else:
        path.write_text(FILE)
        words += ["--scheduler", "nearest"]
    code, _, err = shell(*words)
    assert code == 2
    assert (
        "unknown scheduler 'nearest'; allowed: end, cloud, cut, end-cloud, next-tier, mapping,"
        " threshold" in err
    )


@pytest.mark.slow
def test_tiers_run_for_real_and_are_measured_beside_what_is_expected(shell: Shell) -> None:
    bundle = shell.folder / "bundle"
    bundle.mkdir()
    exported(bundle, "convnet", "digits", exits=1, width=4)
    (bundle / "experiment.yaml").write_text(experiment("convnet", "digits").to_yaml())
    path = shell.folder / "tiers.yaml"
    path.write_text(FILE.replace("machine.json", "here").replace("batch: 4", "max_load: 1.0e-6"))
    words = ("place", "run", str(path), "--duration", "2s", "--rate", "30", "--scheduler", "cloud")
    code, out, err = shell(*words, "--json")
    assert code == 0, err
    document = json.loads(out)
    (plan,) = document["plans"]
    assert (document["recommended"], plan["over_limits"]) == (None, ["cloud"])
    assert plan["num_requests"] >= 30
    assert (plan["num_unanswered"], plan["refused"], plan["answered_by"]["cloud"]) == (0, 0, 1.0)
    # 64 pixels in one byte each; over a link of 20 ms nothing is answered sooner.
    assert plan["bytes_per_sample"] == 64 + HEADER_BYTES
    assert min(plan["p50_s"], plan["expected"]["p50_s"]) > 0.02
    assert 0 <= plan["probes"]["processor_wait_s"] < plan["mean_s"]
    code, out, err = shell(*words)
    assert code == 0, err
    assert "0 unanswered" in out
    assert "cloud: a machine of cloud computed" in out
    assert "--duration" in shell("place", "run", str(path), "--duration", "never")[2]


@pytest.mark.parametrize("is_busy", [True, False])
def test_a_measurement_that_other_work_disturbed_is_stated(
    is_busy: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    measured = Measured(
        "end",
        1.0,
        0.01,
        0.01,
        0.02,
        0.01,
        0.03,
        0.0,
        {"end": 0.1},
        20,
        0,
        0,
        {"end": 1.0},
        0,
        Probes((), ()),
    )
    expected = Expected(0.01, 0.01, 0.02, 1.0)
    steps = {
        "hop_s": 0.001,
        "beyond_stages_s": 0.001,
        "processor_wait_s": 0.004 if is_busy else 0.0004,
    }
    place_run._show([measured], [expected], [steps])
    warning = "end: Other work kept this machine busy. Processes waited 4 ms per request for a CPU"
    assert (warning in " ".join(capsys.readouterr().out.split())) is is_busy
