"""Devices that see one scene: exported, planned, and run, as numpy computes the same."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import onnx
import pytest

from tests.deploy.trained import experiment
from tests.tiers.placement.systems import system
from tests.tiers.processes.test_measured_run import file_of
from workbench.deploy.exported_bundle import Exported, add_trial
from workbench.deploy.predictor import open_session
from workbench.deploy.stages import (
    Evidence,
    Scene,
    Stage,
    Stages,
    read_evidence,
    read_stages,
    softmax,
)
from workbench.foundation.errors import ExperimentError
from workbench.models import Aggregate
from workbench.models.adapters import build_model
from workbench.tiers.placement.assembly import assemble, stages_of
from workbench.tiers.placement.policies import EndCloud
from workbench.tiers.placement.schedulers import policies_for
from workbench.tiers.placement.system import System
from workbench.tiers.placement.tiers_file import TiersFile
from workbench.tiers.processes.features import Outgoing, received
from workbench.tiers.processes.frames import HEADER_BYTES
from workbench.tiers.processes.measured_run import Measured, measure_tiers
from workbench.tiers.processes.profiling import profile_stages
from workbench.tiers.processes.scenes import aggregate
from workbench.tiers.processes.sent_evidence import with_sent_evidence
from workbench.tiers.processes.tier_settings import How
from workbench.training.loading import load_trial_data

VIEWS, CLASSES, NUMBER = 3, 5, 60
_FIRST = """
<ir_version: 10, opset_import: ["" : 20]>
stage (float[batch, 5] inputs) => (float[batch, 5] features, float[batch, 5] probabilities)
<float factor = {4.0}> {
    features = Mul(inputs, factor)
    probabilities = Softmax<axis = -1>(inputs)
}
"""
_JOINED = """
<ir_version: 10, opset_import: ["" : 20]>
stage (float[batch, 5] inputs) => (float[batch, 5] probabilities)
{ probabilities = Softmax<axis = -1>(inputs) }
"""
_CONCATENATED = """
<ir_version: 10, opset_import: ["" : 20]>
stage (float[batch, 15] inputs, float[batch, 3] mask) => (float[batch, 5] probabilities)
<int64[3] parts = {-1, 3, 5}, int64[1] views = {1}> {
    each = Reshape(inputs, parts)
    total = ReduceSum<keepdims = 0>(each, views)
    number = ReduceSum<keepdims = 1>(mask, views)
    mean = Div(total, number)
    probabilities = Softmax<axis = -1>(mean)
}
"""
RANDOM = np.random.default_rng(1)
TARGETS = RANDOM.integers(CLASSES, size=NUMBER)
SAMPLES = RANDOM.normal(size=(NUMBER, VIEWS, CLASSES)).astype(np.float32)
SAMPLES[np.arange(NUMBER), :, TARGETS] += 0.9


def load_views(options: Any) -> Any:
    random = np.random.default_rng(0)
    numbers = random.integers(10, size=160)
    views = random.normal(size=(160, VIEWS, 1, 8, 8)).astype(np.float32)
    views[np.arange(160), :, 0, numbers % 8] += 2.0
    return (views[:100], numbers[:100]), (views[100:], numbers[100:])


def bundle_of_views(folder: Path, how: How) -> Path:
    folder.mkdir(exist_ok=True)
    last = _CONCATENATED if how == "concatenation" else _JOINED
    for number, text in enumerate((_FIRST, last)):
        onnx.save(onnx.parser.parse_model(text), str(folder / f"stage_{number}.onnx"))
    joined = VIEWS * CLASSES if how == "concatenation" else CLASSES
    parts = tuple(
        Stage(
            file=f"stage_{number}.onnx",
            input_shape=(size,),
            temperature=1.0,
            accuracy=0.5,
            threshold=(0.5, 0.0)[number],
            share=0.5,
            sent_shape=(CLASSES,),
        )
        for number, size in enumerate((CLASSES, joined))
    )
    scene = Scene(num_views=VIEWS, aggregate=how, accuracy_without=(0.5, 0.6, 0.7))
    Stages(stages=parts, accuracy=0.5, num_samples=NUMBER, scene=scene).write(folder)
    evidence = Evidence(np.ones((NUMBER, 2)), np.ones((NUMBER, 2), dtype=bool))
    evidence.write(folder)
    return folder


def file_of_scenes(count: int = 6, **scene: Any) -> TiersFile:
    place = {"from": "bundle", "scheduler": "end-cloud", "scene": scene}
    document = {
        "tiers": {"end": {"count": count, "arrivals": "1/s"}, "cloud": {}},
        "links": {"end-cloud": {"rtt": "10ms", "bandwidth": "100Mbit"}},
        "place": place | {"timeout": "10s", "heartbeat_period": "1s"},
        "privacy": {"features": "uint8"},
    }
    return TiersFile.model_validate(document)


def answers(how: How, there: list[int]) -> np.ndarray:
    """Return the classes that numpy computes from views that were sent as 8-bit numbers."""
    seen = (4 * SAMPLES[:, there]).reshape(-1, CLASSES)
    sent = received(seen, Outgoing("uint8"), stage=1).reshape(NUMBER, len(there), CLASSES)
    joined = sent.max(axis=1) if how == "max" else sent.mean(axis=1)
    return joined.argmax(axis=1)


def planned(bundle: Path, file: TiersFile) -> System:
    scene = read_stages(bundle).scene
    assert scene is not None
    missing = file.place.missing_views
    given = replace(system(devices=6, servers=1), evidence=read_evidence(bundle))
    given = given.of_scenes(scene, missing=len(missing))
    return with_sent_evidence(given, file.privacy, bundle, SAMPLES, TARGETS, missing=missing)


def run(bundle: Path, file: TiersFile, planned: System, scheduler: str = "end-cloud") -> Measured:
    return measure_tiers(
        file,
        bundle,
        bundle,
        SAMPLES,
        TARGETS,
        scheduler=scheduler,
        moments_s=np.linspace(0, 2, NUMBER).tolist(),
        system=planned,
    )


def test_tiers_join_views_in_each_way_that_models_are_trained_in() -> None:
    assert get_args(How) == get_args(Aggregate)


@pytest.mark.parametrize(
    ("how", "missing"),
    [
        ("mean", ()),
        ("concatenation", (1,)),
        pytest.param("max", (0, 2), marks=pytest.mark.slow),
        pytest.param("concatenation", (), marks=pytest.mark.slow),
    ],
)
def test_scenes_are_answered_by_the_joined_views(
    how: How, missing: tuple[int, ...], tmp_path: Path
) -> None:
    bundle, file = bundle_of_views(tmp_path, how), file_of_scenes(missing=list(missing))
    there = [view for view in range(VIEWS) if view not in missing]
    expected = float((answers(how, there) == TARGETS).mean())
    given = planned(bundle, file)
    plan = EndCloud().expect(given)
    assert plan.accuracy == pytest.approx(expected)
    done = run(bundle, file, given)
    assert (done.num_unanswered, done.num_fallbacks, done.refused) == (0, 0, 0)
    assert done.accuracy == pytest.approx(expected)
    assert done.answered_by["cloud"] == 1.0
    assert done.bytes_per_sample == len(there) * (HEADER_BYTES + CLASSES)
    # All devices compute at the same time, as one would.
    assert plan.load["end"] == pytest.approx(given.arrivals_per_s * given.stage_s[0, 0])


@pytest.mark.slow
def test_without_a_further_tier_the_most_confident_device_answers(tmp_path: Path) -> None:
    bundle, file = bundle_of_views(tmp_path, "mean"), file_of_scenes()
    shares = softmax(SAMPLES.reshape(-1, CLASSES)).reshape(SAMPLES.shape)
    surest = shares.reshape(NUMBER, -1).argmax(axis=1) % CLASSES
    expected = float((surest == TARGETS).mean())
    given = planned(bundle, file)
    assert policies_for(given).keys() == {"end", "end-cloud"}
    assert policies_for(given)["end"].expect(given).accuracy == pytest.approx(expected)
    done = run(bundle, file, given, "end")
    assert (done.num_unanswered, done.answered_by["end"]) == (0, 1.0)
    assert done.accuracy == pytest.approx(expected)
    assert done.bytes_per_sample == 0.0


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"count": 4}, "tiers.end.count"),
        ({"missing": [3]}, "place.scene.missing"),
        ({"missing": [0, 1, 2]}, "place.scene.missing"),
    ],
)
def test_a_scene_must_fit_the_devices(change: dict[str, Any], field: str, tmp_path: Path) -> None:
    with pytest.raises(ExperimentError) as caught:
        stages_of(file_of_scenes(**change), bundle_of_views(tmp_path, "mean"))
    assert caught.value.field == field


def test_the_file_says_whether_devices_see_one_scene(tmp_path: Path) -> None:
    bundle = bundle_of_views(tmp_path, "mean")
    with pytest.raises(ExperimentError, match="3 devices that see one scene") as caught:
        stages_of(file_of("end", "cloud"), bundle)
    assert caught.value.next_step == "Add scene: {} to place."
    read_stages(bundle).model_copy(update={"scene": None}).write(bundle)
    with pytest.raises(ExperimentError, match="does not join the views"):
        stages_of(file_of_scenes(), bundle)


@pytest.mark.parametrize(
    ("how", "num_exits"),
    [("concatenation", 1), *[pytest.param(how, 2, marks=pytest.mark.slow) for how in ("mean",)]],
)
def test_exported_stages_answer_as_the_trained_model(
    how: How, num_exits: int, tmp_path: Path
) -> None:
    data = {
        "name": "tests.tiers.processes.test_scenes_of_devices:load_views",
        "task": "classification",
        "num_outputs": 10,
    }
    wanted = experiment("convnet", data)
    datasets = load_trial_data("test", wanted)
    model = build_model(
        "convnet",
        {"width": 4, "num_blocks": 1 + num_exits, "exits": num_exits, "views": how},
        input_shape=datasets.input_shape,
        num_outputs=10,
    ).eval()
    origin = Exported("mine", "mine-1", 0, "convnet", "views", "classification", {}, 100)
    add_trial(tmp_path, model, datasets, wanted, origin)
    stages, evidence = read_stages(tmp_path), read_evidence(tmp_path)
    assert stages.scene is not None
    views, targets = datasets.validation.batch(np.arange(60))
    views = np.asarray(views)
    first = open_session(tmp_path / "stage_0.onnx")
    _, features = first.run(None, {"inputs": views.reshape(-1, 1, 8, 8)})
    features = features.reshape(60, VIEWS, *features.shape[1:])

    def is_right(there: list[int]) -> np.ndarray:
        joined = [
            aggregate({view: scene[view] for view in there}, range(VIEWS), how)
            for scene in features
        ]
        values, masks = (np.stack(parts) for parts in zip(*joined, strict=True))
        answered = np.zeros(0)
        for number in range(1, len(stages.stages)):
            session = open_session(tmp_path / f"stage_{number}.onnx")
            feeds = {"inputs": values}
            if "mask" in [given.name for given in session.get_inputs()]:
                feeds["mask"] = masks
            answered, *further = session.run(None, feeds)
            values = further[0] if further else values
        return answered.argmax(axis=1) == np.asarray(targets)

    assert is_right([0, 1, 2]).tolist() == evidence.is_correct[:, -1].tolist()
    without = [float(is_right(there).mean()) for there in ([1, 2], [0, 2], [0, 1])]
    assert stages.scene.accuracy_without == pytest.approx(without)
    file = file_of_scenes()
    place = file.place.model_copy(update={"source": str(tmp_path)})
    file = file.model_copy(update={"place": place})
    assembled, _ = assemble(file, tmp_path, measure=profile_stages)
    assert assembled.counts == (2, 1)
    num_values = int(np.prod(features.shape[2:]))
    assert assembled.sent_bytes[1] == VIEWS * (HEADER_BYTES + num_values)
    assert np.isinf(assembled.stage_s[0, 1:]).all()
