from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import onnx
import psutil
import pytest

from tests.services.waiting import wait_until
from tests.tiers.processes.running_tiers import SURE, UNSURE, RunningTiers, running_tiers
from workbench.tiers.processes.frames import HEADER_BYTES
from workbench.tiers.processes.requesting import Reply
from workbench.tiers.processes.tier_settings import Route, StageSettings

PATIENT_S = 1.0
"""The period of heartbeats where no tier is to be given up, however busy the machine is."""
HEAVY = (
    "torch ray optuna plotly pandas sklearn pydantic sqlalchemy click cryptography onnx scipy"
    " starlette"
)


def end_and_cloud(tiers: RunningTiers, **options: object) -> tuple[Route, Route]:
    first, last = tiers.stages
    cloud = tiers.start("cloud", 1, [StageSettings(1, last)], batch=16)
    end = tiers.start("end", 0, [StageSettings(0, first, 0.9)], routes=(cloud,), **options)
    return end, cloud


def is_softmax(reply: Reply, values: np.ndarray, atol: float = 1e-6) -> bool:
    shares = np.exp(values) / np.exp(values).sum()
    return reply.probabilities is not None and np.allclose(reply.probabilities, shares, atol=atol)


def test_a_tier_needs_numpy_and_onnx_runtime_only() -> None:
    program = (
        "import sys, workbench.tiers.processes.tier_process, workbench.tiers.processes.relay;"
        f"print(sorted(set('{HEAVY}'.split()) & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("features", ["float32", "uint8"])
def test_confident_answers_stay_and_the_others_go_further(tmp_path: Path, features: str) -> None:
    with running_tiers(tmp_path) as tiers:
        end, _ = end_and_cloud(tiers, features=features, heartbeat_s=PATIENT_S)
        *alone, _ = tiers.await_answer(end, UNSURE, 1)
        replies = tiers.ask(
            [end], np.stack([SURE, UNSURE]), [0.01 * number for number in range(20)]
        )
        assert [reply.tier for reply in replies] == [0, 1] * 10
        assert is_softmax(replies[1], 4 * UNSURE, atol=1e-6 if features == "float32" else 0.01)
        final = tiers.processes["end-0"].stop()
        assert final["sent_bytes"] == 11 * (HEADER_BYTES + 3 * (4 if features == "float32" else 1))
        assert (final["num_answered"], final["num_sent"], final["num_failed"]) == (
            10 + len(alone),
            11,
            0,
        )


def test_a_tier_that_sends_all_answers_itself_when_nobody_else_can(tmp_path: Path) -> None:
    with running_tiers(tmp_path) as tiers:
        first, last = tiers.stages
        cloud = tiers.start("cloud", 1, [StageSettings(0, first), StageSettings(1, last)])
        end = tiers.start(
            "end",
            0,
            [StageSettings(0, first)],
            routes=(cloud,),
            sends_all=True,
            timeout_s=5.0,
            heartbeat_s=PATIENT_S,
        )
        *alone, _ = tiers.await_answer(end, SURE, 1)
        replies = tiers.ask([end], np.stack([SURE, UNSURE]), [0.0, 0.05])
        assert [(reply.tier, reply.stage) for reply in replies] == [(1, 1), (1, 1)]
        tiers.processes["cloud-0"].kill()
        replies = tiers.ask([end], np.stack([SURE, UNSURE]), [0.0, 0.05])
        assert [(reply.tier, reply.stage) for reply in replies] == [(0, 0), (0, 0)]
        assert tiers.processes["end-0"].stop()["num_fallbacks"] == len(alone) + 2


def test_a_request_that_fits_no_stage_fails_alone(tmp_path: Path) -> None:
    with running_tiers(tmp_path, is_encrypted=False) as tiers:
        end, _ = end_and_cloud(tiers)
        wrong = tiers.ask([end], np.zeros((1, 5), dtype=np.float32), [0.0])
        assert wrong[0].probabilities is None
        assert tiers.ask([end], SURE[None], [0.0])[0].tier == 0


@pytest.mark.parametrize(
    ("victim", "monitoring", "number"),
    [
        ("cloud-0", "heartbeat", signal.SIGKILL),
        pytest.param("cloud-0", "none", signal.SIGSTOP, marks=pytest.mark.slow),
        pytest.param("edge-0", "none", signal.SIGKILL, marks=pytest.mark.slow),
    ],
)
def test_no_request_is_unanswered_when_a_tier_is_lost(
    tmp_path: Path, victim: str, monitoring: str, number: signal.Signals
) -> None:
    random = np.random.default_rng(0)
    with running_tiers(tmp_path) as tiers:
        first, last = tiers.stages
        options = {"monitoring": monitoring, "timeout_s": 0.3, "heartbeat_s": 0.2}
        cloud = tiers.start("cloud", 2, [StageSettings(1, last)], batch=16)
        edge = tiers.start("edge", 1, [], routes=(cloud,), **options)
        end = tiers.start("end", 0, [StageSettings(0, first, 0.9)], routes=(edge, cloud), **options)
        tiers.await_answer(end, UNSURE, 2)
        hit = threading.Timer(0.2 + random.random(), os.kill, (tiers.processes[victim].pid, number))
        hit.start()
        replies = tiers.ask([end], np.stack([SURE, UNSURE]), np.arange(0, 2.0, 0.01).tolist())
        hit.join()
        assert all(reply.probabilities is not None for reply in replies)
        assert {reply.tier for reply in replies[:20]} == {0, 2}
        # Without the edge the cloud is reached directly; without the cloud the device answers
        # itself.
        assert {reply.tier for reply in replies[-20:]} == ({0, 2} if victim == "edge-0" else {0})


@pytest.mark.parametrize("has_exit", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_what_the_next_tier_does_not_answer_is_finished_where_it_began(
    tmp_path: Path, has_exit: bool
) -> None:
    part = """
        <ir_version: 10, opset_import: ["" : 20]>
        part (float[batch, 3] inputs) => (float[batch, 3] features) { features = Neg(inputs) }
    """
    onnx.save(onnx.parser.parse_model(part), str(tmp_path / "part.onnx"))
    with running_tiers(tmp_path) as tiers:
        first, last = tiers.stages
        begin = (
            StageSettings(0, first, 0.9)
            if has_exit
            else StageSettings(0, str(tmp_path / "part.onnx"), 1.0)
        )
        last = StageSettings(1, last, 0.0)
        cloud = tiers.start("cloud", 1, [last])
        end = tiers.start(
            "end", 0, [begin, last], routes=(cloud,), keeps=0, monitoring="none", timeout_s=0.3
        )
        pid = tiers.processes["cloud-0"].pid
        stopped = threading.Timer(0.5, os.kill, (pid, signal.SIGSTOP))
        stopped.start()
        replies = tiers.ask([end], UNSURE[None], np.arange(0, 1.5, 0.05).tolist())
        stopped.join()
        # The device has the rest, too: an answer of an exit that is not sure is not the last word.
        assert all(reply.probabilities is not None and reply.stage == 1 for reply in replies)
        assert {reply.tier for reply in replies} == {0, 1}
        lost = sum(reply.tier == 0 for reply in replies)
        assert tiers.processes["end-0"].stop()["num_fallbacks"] == lost


def test_a_tier_that_comes_back_is_used_again(tmp_path: Path) -> None:
    with running_tiers(tmp_path) as tiers:
        end, _ = end_and_cloud(tiers, heartbeat_s=0.05)
        stopped = tiers.processes["cloud-0"].pid
        os.kill(stopped, signal.SIGSTOP)
        wait_until(lambda: tiers.ask([end], UNSURE[None], [0.0])[0].tier == 0)
        os.kill(stopped, signal.SIGCONT)
        wait_until(lambda: tiers.ask([end], UNSURE[None], [0.0])[0].tier == 1)


@pytest.mark.slow
def test_devices_that_see_the_same_scene_answer_without_one_that_is_lost(tmp_path: Path) -> None:
    with running_tiers(tmp_path) as tiers:
        first, last = tiers.stages
        cloud = tiers.start(
            "cloud",
            1,
            [StageSettings(1, last)],
            num_views=3,
            aggregate="mean",
            heartbeat_s=0.5,
        )
        ends = [
            tiers.start(
                "end", 0, [StageSettings(0, first)], device=device, routes=(cloud,), heartbeat_s=0.5
            )
            for device in range(3)
        ]
        views = np.stack([SURE, UNSURE, UNSURE]).astype(np.float32)

        def is_mean_of_devices_from(first: int) -> bool:
            [found] = tiers.ask_scenes(ends[first:], views[first:])
            return is_softmax(found, 4 * views[first:].mean(axis=0))

        wait_until(lambda: is_mean_of_devices_from(0))
        hit = threading.Timer(0.3, tiers.processes["end-0"].kill)
        hit.start()
        replies = tiers.ask_scenes(ends, views, np.arange(0, 1.0, 0.02).tolist())
        hit.join()
        assert all(reply.probabilities is not None for reply in replies)
        wait_until(lambda: is_mean_of_devices_from(1))
        assert tiers.processes["cloud-0"].stop()["num_masked"] > 0


def test_tiers_end_with_the_process_that_started_them(tmp_path: Path) -> None:
    program = (
        "import sys, os, signal; from pathlib import Path;"
        "from tests.tiers.processes.running_tiers import RunningTiers;"
        "from tests.tiers.processes.test_tiers_running import end_and_cloud;"
        f"tiers = RunningTiers(Path({str(tmp_path)!r})); end_and_cloud(tiers);"
        "print(*(one.pid for one in tiers.processes.values()), flush=True);"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[3],
    )
    pids = [int(word) for word in done.stdout.split()]
    assert len(pids) == 2
    wait_until(lambda: not any(map(psutil.pid_exists, pids)))


@pytest.mark.slow
def test_a_device_that_reaches_nobody_does_not_answer_scenes_before_those_that_do(
    tmp_path: Path,
) -> None:
    with running_tiers(tmp_path) as tiers:
        first, last = tiers.stages
        cloud = tiers.start(
            "cloud", 1, [StageSettings(1, last)], num_views=3, heartbeat_s=PATIENT_S
        )
        gone = tiers.start("edge", 1, [])
        tiers.processes["edge-0"].kill()
        ends = [
            tiers.start(
                "end",
                0,
                [StageSettings(0, first)],
                device=device,
                routes=(route,),
                heartbeat_s=PATIENT_S,
            )
            for device, route in enumerate((gone, cloud, cloud))
        ]
        views = np.stack([SURE, UNSURE, UNSURE]).astype(np.float32)
        joined = 4 * views[1:].mean(axis=0)
        wait_until(lambda: is_softmax(tiers.ask_scenes(ends, views)[0], joined))
        replies = tiers.ask_scenes(ends, views, np.arange(0, 0.5, 0.02).tolist())
        assert all(reply.tier == 1 and is_softmax(reply, joined) for reply in replies)
        tiers.processes["cloud-0"].kill()
        [reply] = tiers.ask_scenes(ends, views)
        assert reply.tier == 0
        assert reply.probabilities is not None
