"""A graph with two branches cut in all ways that there are, and where it is cut for a file of
tiers.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest

from tests.tiers.placement.systems import system
from workbench.deploy.card import MODEL
from workbench.deploy.predictor import open_session
from workbench.deploy.stages import Evidence, Stage, Stages
from workbench.foundation.errors import RunError
from workbench.foundation.files import sha256_of
from workbench.tiers.placement.cut_bundle import write_cut
from workbench.tiers.placement.cut_choice import best_cut
from workbench.tiers.placement.graph_cut import cuttable
from workbench.tiers.placement.machine_profile import GraphTiming, Profile
from workbench.tiers.placement.policies import WithoutExits
from workbench.tiers.placement.scheduler_plans import expected_plans, verdict
from workbench.tiers.placement.sending_costs import ANSWER_BYTES, Sending
from workbench.tiers.placement.simulated_queues import draw_requests
from workbench.tiers.placement.tiers_file import TiersFile
from workbench.tiers.processes.stage_model import StageModels
from workbench.tiers.processes.tier_settings import StageSettings

_GRAPH = """
<ir_version: 10, opset_import: ["" : 20]>
model (float[batch, 6] inputs) => (float[batch, 3] probabilities)
<float[6, 3] weights = {1, 2, 0.5, -1, 0.1, 0.4, 0.7, -0.3, 2, 0.2, 0.9, 1,
    -0.6, 0.3, 0.8, 1, -2, 0.6}>
{
    hidden = MatMul(inputs, weights)
    left = Sin(hidden)
    right = Cos(hidden)
    total = Add(left, right)
    probabilities = Softmax<axis = -1>(total)
}
"""


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    onnx.save(onnx.parser.parse_model(_GRAPH), str(tmp_path / MODEL))
    return tmp_path


def test_every_cut_answers_as_the_whole(bundle: Path) -> None:
    graph = cuttable(bundle / MODEL)
    assert graph is not None
    values = np.random.default_rng(0).normal(size=(4, 6)).astype(np.float32)
    (known,) = open_session(bundle / MODEL).run(None, {"inputs": values})
    sent = set()
    for places in itertools.product([False, True], repeat=len(graph.nodes)):
        is_there = np.array(places)
        comes_back = any(
            one.producer is not None
            and is_there[one.producer]
            and not is_there[list(one.consumers)].all()
            for one in graph.passed
        )
        if comes_back or is_there.all() or not is_there.any():
            continue
        paths = [bundle / "0.onnx", bundle / "1.onnx"]
        for path, part in zip(paths, graph.parts(is_there), strict=True):
            onnx.save(part, str(path))
        (features,) = open_session(paths[0]).run(None, {"inputs": values})
        (outputs,) = open_session(paths[1]).run(None, {"features": features})
        assert outputs == pytest.approx(known, abs=1e-5)
        sent.add(tuple(one.name for one in graph.sent(is_there)))
    assert {
        ("hidden",),
        ("hidden", "left"),
        ("hidden", "right"),
        ("left", "right"),
        ("total",),
    } == sent


def sending_of(
    bundle: Path, *, end_s: list[float], cloud_s: list[float], bandwidth: str
) -> Sending:
    file = TiersFile.model_validate(
        {
            "tiers": {"end": {"arrivals": "1/s"}, "cloud": {}},
            "links": {"end-cloud": {"bandwidth": bandwidth, "rtt": "2ms"}},
            # Heartbeats would fill the slowest link.
            "place": {"from": "bundle", "monitoring": "none"},
            "privacy": {"transport": "plain"},
        }
    )
    graph = cuttable(bundle / MODEL)
    assert graph is not None
    profiles = {}
    for name, times_s in (("end", end_s), ("cloud", cloud_s)):
        nodes_s = {node: time_s for (node, _), time_s in zip(graph.nodes, times_s, strict=True)}
        timing = GraphTiming(
            sha256=sha256_of(bundle / MODEL), batch=1, call_s=sum(times_s) + 0.001, nodes_s=nodes_s
        )
        profiles[name] = Profile(machine=name, runtime="", threads=1, timings=(), graphs=(timing,))
    stage = Stage(file=MODEL, input_shape=(6,), temperature=1, accuracy=1, threshold=0, share=1)
    stages = Stages(stages=(stage,), accuracy=1, num_samples=1)
    return Sending(file, bundle, profiles, stages, with_frames=False)


@pytest.mark.parametrize(
    ("end_s", "bandwidth", "scheduler", "sent"),
    [
        ([0.1] * 5, "1Mbit", "end", ()),
        ([0.5] * 5, "1Mbit", "cloud", ("inputs",)),
        ([0.1, 0.9, 0.9, 0.9, 0.9], "1kbit", "end-cloud", ("hidden",)),
    ],
)
def test_a_model_is_cut_where_one_request_is_answered_first(
    bundle: Path, end_s: list[float], bandwidth: str, scheduler: str, sent: tuple[str, ...]
) -> None:
    sending = sending_of(bundle, end_s=end_s, cloud_s=[0.1] * 5, bandwidth=bandwidth)
    cut = best_cut(bundle, sending)
    assert cut is not None
    assert (cut.scheduler, cut.sent) == (scheduler, sent)
    assert cut.alone_s["cut"] == min(cut.alone_s.values())
    # Without queues, every request takes the time of one alone.
    raw = sending.frame(sending.input_bytes(sending.stages.stages[0]))
    given = replace(
        system(arrivals_per_s=1e-6),
        cut=cut,
        back_s=sending.ways(ANSWER_BYTES),
        send_raw_s=raw.send_s,
    )
    assert WithoutExits().expect(given).quantile_s(0.5) == pytest.approx(cut.alone_s["cut"])
    requests = draw_requests(2000, 1000, 1e-6, len(given.exits))
    assert WithoutExits().play(given, requests).quantile_s(0.5) == pytest.approx(cut.alone_s["cut"])
    pays = "pays" if scheduler == "end-cloud" else "does not pay"
    assert (
        f"A cut alone, without exits, {pays}" in verdict(given, expected_plans(given, 0.0), None)[1]
    )


def test_parts_run_as_stages_of_which_the_first_has_no_exit(bundle: Path) -> None:
    is_there = np.array([False, False, True, True, True])
    evidence = Evidence(np.full((4, 2), 0.9), np.array([[False, True]] * 4))
    (bundle / "parts").mkdir()
    cut = write_cut(bundle, is_there, evidence, bundle / "parts")
    assert [stage.input_shape for stage in cut.stages] == [
        (6,),
        (6,),
    ]  # two values of three numbers
    assert cut.accuracy == 1.0
    models = StageModels(
        [
            StageSettings(number, str(bundle / "parts" / stage.file), stage.threshold)
            for number, stage in enumerate(cut.stages)
        ],
        threads=1,
    )
    values = np.linspace(-1, 1, 6, dtype=np.float32)
    (known,) = open_session(bundle / MODEL).run(None, {"inputs": values[None]})
    (result,) = models.predict([(0, values, None, 0, None)])
    assert (result.stage, result.is_final) == (1, True)
    assert result.probabilities == pytest.approx(known[0], abs=1e-5)


def test_a_model_is_not_cut_where_it_was_not_measured(bundle: Path) -> None:
    with pytest.raises(RunError, match="cannot be cut there"):
        write_cut(
            bundle,
            np.array([False, True]),
            Evidence(np.ones((1, 1)), np.ones((1, 1), bool)),
            bundle,
        )


def test_nodes_that_were_not_measured_are_not_cut(bundle: Path) -> None:
    sending = sending_of(bundle, end_s=[0.1] * 5, cloud_s=[0.1] * 5, bandwidth="1Mbit")
    onnx.save(onnx.parser.parse_model(_GRAPH.replace("Sin", "Tanh")), str(bundle / MODEL))
    assert best_cut(bundle, sending) is None
