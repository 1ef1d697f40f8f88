from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from tests.tiers.placement.systems import system
from tests.tiers.processes.test_measured_run import file_of
from workbench.deploy.stages import Evidence, Stage, Stages
from workbench.tiers.placement.mapping import Mapping
from workbench.tiers.placement.policies import Cloud, End, EndCloud, Threshold
from workbench.tiers.placement.system import System
from workbench.tiers.placement.tiers_file import Privacy
from workbench.tiers.processes.measured_run import measure_tiers
from workbench.tiers.processes.sent_evidence import with_sent_evidence

_FIRST = """
<ir_version: 10, opset_import: ["" : 20]>
stage (float[batch, 5] inputs) => (float[batch, 5] features, float[batch, 5] probabilities)
<float[5] factor = {1, 1, 1, 1, 200}> {
    features = Mul(inputs, factor)
    probabilities = Softmax<axis = -1>(inputs)
}
"""
_LAST = """
<ir_version: 10, opset_import: ["" : 20]>
stage (float[batch, 5] features) => (float[batch, 5] probabilities)
<float[5] factor = {4, 4, 4, 4, 0.02}> {
    logits = Mul(features, factor)
    probabilities = Softmax<axis = -1>(logits)
}
"""
_NUMBER = 800
_THRESHOLD = 0.6
INPUTS = np.random.default_rng(7).normal(size=(_NUMBER, 5)).astype(np.float32)
TARGETS = INPUTS.argmax(axis=1)


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    """A model that is always right, as long as small features are not lost beside a large one."""
    for number, text in enumerate((_FIRST, _LAST)):
        onnx.save(onnx.parser.parse_model(text), str(tmp_path / f"stage_{number}.onnx"))
    parts = tuple(
        Stage(
            file=f"stage_{number}.onnx",
            input_shape=(5,),
            temperature=1.0,
            accuracy=1.0,
            threshold=(_THRESHOLD, 0.0)[number],
            share=0.5,
        )
        for number in (0, 1)
    )
    Stages(stages=parts, accuracy=1.0, num_samples=_NUMBER).write(tmp_path)
    right = np.ones((_NUMBER, 2), dtype=bool)
    Evidence(np.ones((_NUMBER, 2)), right).write(tmp_path)
    return tmp_path


def planned(bundle: Path, **privacy: Any) -> System:
    given = system(devices=1, servers=1, threshold=_THRESHOLD)
    return with_sent_evidence(given, Privacy.model_validate(privacy), bundle, INPUTS, TARGETS)


def test_what_is_sent_as_it_is_changes_nothing(bundle: Path) -> None:
    given = system()
    assert with_sent_evidence(given, Privacy(), bundle, INPUTS, TARGETS) is given


def test_noise_harms_the_schedulers_that_send_what_it_is_added_to(bundle: Path) -> None:
    noisy = planned(bundle, noise=0.5)
    accuracy = {
        type(scheduler): scheduler.expect(noisy).accuracy
        for scheduler in (End(), Cloud(), EndCloud(), Threshold())
    }
    assert accuracy[End] == 1.0
    # All inputs are sent by one of them, and features of the unsure ones only by the others.
    assert accuracy[Cloud] < 0.95
    assert accuracy[EndCloud] == accuracy[Threshold] < 0.9
    assert noisy.exits.astype(bool).tolist() == noisy.sending().exits.astype(bool).tolist()


@pytest.mark.parametrize(
    ("scheduler", "privacy"),
    [
        ("end-cloud", {"features": "uint8"}),
        pytest.param("end-cloud", {"noise": 0.5}, marks=pytest.mark.slow),
        pytest.param("cloud", {"features": "uint8", "noise": 0.5}, marks=pytest.mark.slow),
    ],
)
def test_processes_are_as_accurate_as_planned(
    bundle: Path, scheduler: str, privacy: dict[str, Any]
) -> None:
    noisy = planned(bundle, **privacy)
    policy = Cloud() if scheduler == "cloud" else EndCloud()
    expected = policy.expect(noisy).accuracy
    tiers = measure_tiers(
        file_of("end", "cloud", **privacy),
        bundle,
        bundle,
        INPUTS,
        TARGETS,
        scheduler=scheduler,
        moments_s=np.linspace(0, 5, _NUMBER).tolist(),
    )
    assert tiers.num_unanswered == tiers.num_fallbacks == 0
    if "noise" not in privacy:
        assert tiers.accuracy == pytest.approx(expected)
    # Each of both draws noise of its own: four standard deviations of their difference.
    spread = 4 * (2 * expected * (1 - expected) / _NUMBER) ** 0.5
    assert abs(tiers.accuracy - expected) <= spread < 1.0 - expected


def test_mapping_is_as_accurate_as_the_shares_of_what_it_sends(bundle: Path) -> None:
    noisy = planned(bundle, noise=0.5)
    idle, busy = (Mapping().expect(noisy.with_load(load)).accuracy for load in (0.05, 1.0))
    # Where the last tier is busy more is kept, whose features get no noise.
    assert EndCloud().expect(noisy).accuracy <= idle < busy < 1.0
