from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.deploy.trained import exported
from workbench.deploy.stages import read_evidence, read_stages
from workbench.foundation.errors import ExperimentError, RunNotFoundError
from workbench.tiers.placement.assembly import assemble, stages_of
from workbench.tiers.placement.machine_profile import Profile, StageTiming
from workbench.tiers.placement.policies import Cloud, End, EndCloud, NextTier
from workbench.tiers.placement.tiers_file import TiersFile
from workbench.tiers.processes.placing import placed
from workbench.tiers.processes.samples import bundle_samples
from workbench.tiers.processes.spreading import settings_of
from workbench.tiers.processes.stage_model import StageModels
from workbench.tiers.processes.tier_settings import StageSettings


def write_bundle(folder: Path, model: str, **values: Any) -> None:
    """Write a bundle with an untrained model of digits, whose answers are as good as they happen to
    be.
    """
    exported(folder, model, "digits", **values)
    (folder / "experiment.yaml").write_text(
        f"model: {model}\ndata: digits\nobjectives: [{{metric: val_loss, goal: minimize}}]\n"
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    models = tmp_path_factory.mktemp("models")
    write_bundle(models / "small", "mlp", hidden_width=4)
    write_bundle(models / "large", "mlp", hidden_width=32)
    return models


def file_of(**place: Any) -> TiersFile:
    return TiersFile.model_validate(
        {
            "tiers": {"end": {"arrivals": "1/s"}, "edge": {}, "cloud": {}},
            "links": {
                "end-edge": {"bandwidth": "1Mbit"},
                "edge-cloud": {"bandwidth": "1Mbit", "rtt": "20ms"},
            },
            "place": place,
        }
    )


def measured(bundle: Path, *, batches: tuple[int, ...]) -> Profile:
    timings = tuple(
        StageTiming(file=name, sha256=sha256, batch=1, mean_s=seconds, p50_s=seconds, p95_s=seconds)
        for (name, sha256), seconds in zip(
            read_stages(bundle).files.items(), (0.001, 0.004, 0.016), strict=False
        )
    )
    return Profile(machine="here", runtime="", threads=1, timings=timings)


def test_a_model_for_each_of_two_tiers_is_a_cascade_between_them(
    folder: Path, tmp_path: Path
) -> None:
    file = placed(file_of(models={"end": "small", "cloud": "large"}), folder, tmp_path)
    bundle = Path(file.place.source or "")
    stages, evidence = stages_of(file, bundle), read_evidence(bundle)
    assert [stage.input_shape for stage in stages.stages] == [(1, 8, 8)] * 2
    # Answers of the graphs are those that were calibrated, and the threshold loses half a percent
    # at most.
    models = StageModels(
        [
            StageSettings(number, str(bundle / exported_stage.file), 2.0)
            for number, exported_stage in enumerate(stages.stages)
        ],
        threads=1,
    )
    inputs, targets = bundle_samples(bundle)
    for number in (0, 1):
        predicted = models.predict([(number, values, None, 0, number) for values in inputs[:50]])
        answers = np.stack(
            [reply.probabilities for reply in predicted if reply.probabilities is not None]
        )
        assert answers.max(axis=1) == pytest.approx(evidence.confidence[:50, number], abs=1e-4)
        assert np.array_equal(
            answers.argmax(axis=1) == targets[:50], evidence.is_correct[:50, number]
        )
    assert stages.accuracy >= stages.stages[1].accuracy - 0.005

    system, _ = assemble(file, folder, measure=measured, with_frames=False)
    assert system.stage_s.tolist() == [[0.001, np.inf], [np.inf, np.inf], [0.0, 0.004]]
    assert End().expect(system).accuracy == pytest.approx(stages.stages[0].accuracy)
    assert Cloud().expect(system).accuracy == pytest.approx(stages.stages[1].accuracy)
    assert EndCloud().expect(system).accuracy == pytest.approx(stages.accuracy)
    assert Cloud().expect(system).quantile_s(0.5) == pytest.approx(
        0.004 + system.send_raw_s[-1] + system.back_s[-1]
    )

    end, edge, cloud = settings_of(
        file, stages, evidence, bundle, folder=folder, scheduler="end-cloud", identity=None
    )
    assert [
        [exported_stage.number for exported_stage in tier.stages] for tier in (end, edge, cloud)
    ] == [[0], [], [1]]


def test_every_tier_may_have_a_model_of_its_own(folder: Path, tmp_path: Path) -> None:
    models = {"end": "small", "edge": "small", "cloud": "large"}
    file = placed(file_of(models=models), folder, tmp_path)
    bundle = Path(file.place.source or "")
    stages, evidence = stages_of(file, bundle), read_evidence(bundle)
    assert len(stages.stages) == 3
    system, _ = assemble(file, folder, measure=measured, with_frames=False)
    held = [np.flatnonzero((times_s > 0) & np.isfinite(times_s)) for times_s in system.stage_s]
    assert [stages.tolist() for stages in held] == [[0], [1], [2]]
    assert system.parts == [(0,), (1,), (2,)]
    assert NextTier().expect(system).accuracy == pytest.approx(stages.accuracy)
    # What the first model is not sure of goes past the second one, to the last.
    first_sure = evidence.confidence[:, 0] >= stages.stages[0].threshold
    right = np.where(first_sure, evidence.is_correct[:, 0], evidence.is_correct[:, 2])
    assert EndCloud().expect(system).accuracy == pytest.approx(right.mean())
    settings = settings_of(
        file, stages, evidence, bundle, folder=folder, scheduler="next-tier", identity=None
    )
    assert [[stage.number for stage in tier.stages] for tier in settings] == [[0], [1], [2]]


def test_a_model_without_exits_is_placed_as_one_stage(folder: Path, tmp_path: Path) -> None:
    file = placed(file_of(**{"from": "large"}), folder, tmp_path)
    assert len(stages_of(file, Path(file.place.source or "")).stages) == 1


def test_trials_are_exported_as_they_are_named(folder: Path, tmp_path: Path) -> None:
    named = []

    def export(name: str, target: Path) -> None:
        named.append(name)
        target.symlink_to(folder / "large")

    placed(file_of(models={"end": "small", "cloud": "last/3"}), folder, tmp_path, export=export)
    assert named == ["last/3"]


@pytest.mark.parametrize(
    ("place", "field", "words"),
    [
        (
            {"models": {"end": "convnet-small", "cloud": "large"}},
            "place.models.end",
            "'convnet-small' is",
        ),
        ({"from": "last/best"}, "place.from", "'last/best' is not the folder of a bundle"),
    ],
)
def test_what_is_no_bundle_is_refused(
    folder: Path, tmp_path: Path, place: dict[str, Any], field: str, words: str
) -> None:
    with pytest.raises(ExperimentError, match=words) as caught:
        placed(file_of(**place), folder, tmp_path)
    assert caught.value.field == field


def test_a_folder_that_is_missing_is_not_reported_as_a_run_that_is_missing(
    folder: Path, tmp_path: Path
) -> None:
    def export(name: str, _folder: Path) -> None:
        raise RunNotFoundError(f"there is no run {name!r}")

    words = "'models/large' is neither the folder of a bundle nor the trial of a run"
    with pytest.raises(ExperimentError, match=words) as caught:
        placed(file_of(**{"from": "models/large"}), folder, tmp_path, export=export)
    assert caught.value.field == "place.from"


def test_a_model_of_a_table_is_refused_by_what_it_takes(folder: Path, tmp_path: Path) -> None:
    card = json.loads((folder / "small" / "card.json").read_text())
    card["inputs"] = [
        {"name": name, "kind": "number", "dtype": "float32"} for name in ("age", "size")
    ]
    card["statistics"] = {}
    (tmp_path / "table").mkdir()
    (tmp_path / "table" / "card.json").write_text(json.dumps(card))
    with pytest.raises(ExperimentError, match="takes columns of a table") as caught:
        placed(file_of(**{"from": str(tmp_path / "table")}), folder, tmp_path)
    assert caught.value.field == "place"


def test_a_model_of_several_arrays_is_told_how_it_could_be_placed(
    folder: Path, tmp_path: Path
) -> None:
    card = json.loads((folder / "small" / "card.json").read_text())
    (array,) = card["inputs"]
    card["inputs"] = [{**array, "name": "left"}, {**array, "name": "right"}]
    card["statistics"] = {}
    (tmp_path / "pair").mkdir()
    (tmp_path / "pair" / "card.json").write_text(json.dumps(card))
    models = {"end": "small", "cloud": str(tmp_path / "pair")}
    with pytest.raises(ExperimentError, match=r"takes 2 arrays \(left, right\)") as caught:
        placed(file_of(models=models), folder, tmp_path)
    assert "Join the arrays" in str(caught.value.next_step)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"shape": [3, 5]}, r"takes float32 of shape \(3, 5\)"),
        ({"dtype": "int64"}, "takes int64 of shape"),
        ({"categories": ["a", "b"]}, "do not divide texts into the same tokens"),
    ],
)
def test_models_with_other_inputs_are_refused_with_what_differs(
    change: dict[str, Any], words: str, folder: Path, tmp_path: Path
) -> None:
    card = json.loads((folder / "small" / "card.json").read_text())
    card["inputs"][0] |= change
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "card.json").write_text(json.dumps(card))
    models = {"end": str(tmp_path / "other"), "cloud": "large"}
    with pytest.raises(ExperimentError, match=words) as caught:
        placed(file_of(models=models), folder, tmp_path)
    assert caught.value.field == "place.models"
    assert caught.value.next_step == "Train both on the same data."


def test_models_that_name_other_classes_are_refused(folder: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    for name in ("model.onnx", "experiment.yaml"):
        (other / name).write_bytes((folder / "small" / name).read_bytes())
    card = (folder / "small" / "card.json").read_text()
    (other / "card.json").write_text(card.replace('"7"', '"seven"'))
    with pytest.raises(ExperimentError, match="do not have the same classes"):
        placed(file_of(models={"end": str(other), "cloud": "large"}), folder, tmp_path)
