from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml

import workbench as wb
from tests.builders.language_models import conversations, write_lines, write_model
from tests.builders.recorded_runs import record_run
from tests.services.killed import kill_at_rename
from workbench.foundation.errors import RunError
from workbench.foundation.files import copy_into
from workbench.runs.bundles import bundle_files

pytestmark = pytest.mark.ray

OWN_NET = """
import torch
from torch import nn


class OwnNet(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Flatten(), nn.Linear(64, width), nn.ReLU(), nn.Linear(width, 10)
        )

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.layers(images)
"""


@pytest.fixture(scope="module")
def exported(
    ray_head: Path, empty_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[wb.Run, Path]]:
    folder = tmp_path_factory.mktemp("loading")
    with wb.Store.open(str(folder / "store.sqlite")) as store:
        run = wb.sweep(
            {
                "model": {"name": "mlp", "num_layers": 1},
                "data": "digits",
                "objectives": [{"metric": "val_accuracy", "goal": "maximize"}],
                "search": {
                    "lr": {"low": 0.001, "high": 0.1, "log": True},
                    "hidden_width": {"choices": [24]},
                },
                "training": {"epochs": 2},
                "budget": {"trials": 2},
                "seed": 3,
            },
            store=store,
            launcher="inline",
            wait=True,
        )
        yield run, run.export(folder / "best")


@pytest.mark.slow
def test_a_bundle_gives_back_the_model_that_reached_what_was_reported(
    exported: tuple[wb.Run, Path],
) -> None:
    run, folder = exported
    bundle = wb.load_bundle(folder)

    assert run.best is not None
    assert (bundle.params, bundle.values) == (run.best.params, run.best.values)
    assert not bundle.model.training
    inputs, targets = bundle.data.validation.batch(np.arange(len(bundle.data.validation)))
    with torch.no_grad():
        right = bundle.model(torch.from_numpy(inputs)).argmax(1).numpy() == targets
    best = max(
        report.values["val_accuracy"]
        for report in run.events()
        if report.type == "trial_reported"
        and report.trial == run.best.number
        and "val_accuracy" in report.values
    )
    assert right.mean() == pytest.approx(best)


@pytest.mark.slow
def test_a_bundle_with_onnx_predicts_what_its_model_does(
    exported: tuple[wb.Run, Path], tmp_path: Path
) -> None:
    run, _ = exported
    bundle = wb.load_bundle(run.export(tmp_path / "best", format="onnx"))
    readme = (tmp_path / "best" / "README.md").read_text()
    assert "`model.onnx` is the model" in readme
    assert "\n    python predict.py ROWS\n" in readme
    assert "give it rows as they are in your table" in " ".join(readme.split())
    pixels = np.zeros((3, 1, 8, 8))
    pixels[1, 0, 2:6, 3] = 16.0

    answers = bundle.predict(pixels)

    train = bundle.data.train.batch(np.arange(len(bundle.data.train)))[0]
    scale = np.ptp(train) / 16.0
    inputs = torch.from_numpy((pixels * scale + train.min()).astype(np.float32))
    with torch.no_grad():
        expected = bundle.model(inputs).softmax(1).numpy()
    assert answers.probabilities == pytest.approx(expected, abs=1e-4)
    assert answers.classes is not None
    assert answers.classes.tolist() == [str(number) for number in expected.argmax(1)]


@pytest.mark.slow
def test_the_script_of_a_bundle_trains_to_an_equal_score_in_an_empty_folder(
    ray_head: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project, elsewhere = tmp_path / "project", tmp_path / "elsewhere"
    project.mkdir()
    elsewhere.mkdir()
    (project / "own_net.py").write_text(OWN_NET)
    monkeypatch.chdir(project)
    monkeypatch.syspath_prepend(str(project))
    with wb.Store.open(str(tmp_path / "store.sqlite")) as store:
        run = wb.sweep(
            {
                "model": {"name": "own_net:OwnNet"},
                "data": "digits",
                "objectives": [{"metric": "val_accuracy", "goal": "maximize"}],
                "search": {
                    "width": {"low": 8, "high": 32},
                    "lr": {"low": 0.001, "high": 0.1, "log": True},
                },
                "training": {"epochs": 2},
                "budget": {"trials": 2},
                "seed": 3,
            },
            store=store,
            launcher="inline",
            wait=True,
        )
        exported = run.export(tmp_path / "exported")
    # Only the bundle is left, in another place, as a colleague would receive it.
    bundle = elsewhere / "bundle"
    shutil.move(exported, bundle)
    shutil.rmtree(project)
    again = str(tmp_path / "again.sqlite")

    retrained = subprocess.run(
        ["sh", str(bundle / "retrain.sh"), "--launcher", "inline", "--store", again],
        cwd=elsewhere,
        env=os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert retrained.returncode == 0, retrained.stderr
    assert run.best is not None
    best = wb.attach("last", store=again).best
    assert best is not None
    assert best.params == run.best.params
    assert best.values["val_accuracy"] == run.best.values["val_accuracy"]


@pytest.mark.slow
def test_a_program_is_trained_again_in_a_shell_without_the_environment(
    ray_head: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = tmp_path / "project"
    (project / "data").mkdir(parents=True)
    (project / "data" / "rows.bin").write_text("3")
    (project / "run").write_text("#!/bin/sh\necho loss=$1$(cat data/rows.bin)\n")
    (project / "run").chmod(0o755)
    monkeypatch.chdir(project)
    run = wb.sweep(
        {
            "command": "./run {x}",
            "workdir": {"link": ["data"]},
            "search": {"x": {"choices": [1, 2]}},
            "objectives": [{"metric": "loss", "goal": "minimize"}],
        },
        store=f"sqlite:///{tmp_path}/store.sqlite",
        launcher="inline",
        wait=True,
    )
    bundle = run.export(tmp_path / "bundle")
    shutil.rmtree(project)
    again = f"sqlite:///{tmp_path}/again.sqlite"

    retrained = subprocess.run(
        ["sh", str(bundle / "retrain.sh"), "--launcher", "inline", "--store", again],
        cwd="/",
        env={"PATH": os.defpath, "HOME": str(tmp_path), "WORKBENCH_HOME": str(ray_head)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert retrained.returncode == 0, retrained.stderr
    best = wb.attach("last", store=again).best
    assert best is not None
    assert best.values == {"loss": 13.0}


def test_what_cannot_be_exported_leaves_no_folder(tmp_path: Path) -> None:
    recorded = wb.attach(record_run(tmp_path), store=str(tmp_path / "store.sqlite"))
    with pytest.raises(
        RunError, match="trial 1 has no checkpoint, so there are no weights to export"
    ):
        recorded.export(tmp_path / "best", format="onnx")
    with pytest.raises(
        wb.WorkbenchError,
        match="'tflite' is not a format; allowed: onnx, openvino, executorch, flower",
    ):
        recorded.export(tmp_path / "best", format="tflite")
    assert not (tmp_path / "best").exists()


def test_what_is_no_bundle_or_fits_no_model_is_refused(
    exported: tuple[wb.Run, Path], tmp_path: Path
) -> None:
    with pytest.raises(RunError, match="is not a bundle"):
        wb.load_bundle(tmp_path)
    recorded = wb.attach(record_run(tmp_path), store=str(tmp_path / "store.sqlite"))
    with pytest.raises(RunError, match="has no weights"):
        wb.load_bundle(recorded.export(tmp_path / "recorded"))
    other = shutil.copytree(exported[1], tmp_path / "other")
    configuration = other / "configuration.json"
    configuration.write_text(
        configuration.read_text().replace('"hidden_width": 24', '"hidden_width": 25')
    )
    with pytest.raises(RunError, match="cannot load the weights"):
        wb.load_bundle(other)


def test_weights_of_another_trial_and_values_without_their_hash_are_refused(
    exported: tuple[wb.Run, Path], tmp_path: Path
) -> None:
    run, folder = exported
    assert run.best is not None
    other = run.export(tmp_path / "other", trial=1 - run.best.number)
    shutil.copytree(folder, tmp_path / "mixed")
    shutil.copy(other / "weights.safetensors", tmp_path / "mixed")
    with pytest.raises(RunError, match="SHA-256 differs"):
        wb.load_bundle(tmp_path / "mixed")
    configuration = json.loads((other / "configuration.json").read_text())
    del configuration["files"]["weights.safetensors"]
    (other / "configuration.json").write_text(json.dumps(configuration))
    with pytest.raises(RunError, match=r"does not contain the SHA-256 of weights\.safetensors"):
        wb.load_bundle(other)


def test_an_export_over_a_bundle_that_is_killed_is_completed_by_the_next_command(
    exported: tuple[wb.Run, Path], tmp_path: Path
) -> None:
    run, best = exported
    assert run.best is not None
    other = wb.load_bundle(run.export(tmp_path / "other", trial=1 - run.best.number))
    expected = {True: (other.folder / "weights.safetensors").read_bytes()}
    expected[False] = (best / "weights.safetensors").read_bytes()
    # The first rename decides, and each of the others moves one file.
    for number in (0, 1, 4, 7):
        folder = tmp_path / str(number)
        shutil.copytree(best, folder)
        assert kill_at_rename(number, lambda folder=folder: copy_into(other.folder, folder))
        bundle = wb.load_bundle(folder)
        is_new = bundle.params == other.params
        assert is_new == (number > 0)
        assert (folder / "weights.safetensors").read_bytes() == expected[is_new]


@pytest.mark.slow
def test_a_bundle_has_all_files_of_its_data_and_its_model_or_their_absolute_paths(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is trained again in another folder, where other relative paths would lead nowhere."""
    project = tmp_path / "my project"
    (project / "tiny llama").mkdir(parents=True)
    monkeypatch.chdir(project)
    write_model(project / "tiny llama")
    write_lines(project / "train.jsonl", conversations(20))
    write_lines(project / "held out.jsonl", conversations(5))
    run = wb.sweep(
        {
            "model": {"name": "hf", "path": "tiny llama"},
            "data": {
                "name": "conversations",
                "path": "train.jsonl",
                "validation": "held out.jsonl",
                "sequence": 64,
            },
            "objectives": [{"metric": "val_loss", "goal": "minimize"}],
            "search": {"lr": {"choices": [1e-3]}},
            "training": {"epochs": 1},
            "resources": {"advice": "never"},
            "budget": {"trials": 1},
        },
        store=f"sqlite:///{tmp_path}/store.sqlite",
        launcher="inline",
        wait=True,
    )
    with pytest.raises(RunError, match="for transformers, not to ONNX"):
        run.export(tmp_path / "graph", format="onnx")
    files = {
        ("data", "path"): "train.jsonl",
        ("data", "validation"): "held out.jsonl",
        ("data", "tokenizer"): "tiny llama",
        ("model", "path"): "tiny llama",
    }

    def written(bundle: Path) -> dict[tuple[str, str], str]:
        document = yaml.safe_load((bundle / "experiment.yaml").read_text())
        return {(section, option): document[section][option] for section, option in files}

    small = run.export(tmp_path / "small")
    monkeypatch.setattr(bundle_files, "MAX_DATA_BYTES", 0)
    large = run.export(tmp_path / "large")
    shutil.rmtree(project / "tiny llama")
    assert written(small) == files
    in_it = json.loads((small / "configuration.json").read_text())["data"]
    assert [described.partition(" (")[0] for described in in_it] == [
        "held out.jsonl",
        "train.jsonl",
    ]
    assert written(large) == {place: str(project / name) for place, name in files.items()}
    assert not (large / "code").exists()
    monkeypatch.chdir(tmp_path)
    bundle = wb.load_bundle(small)
    assert bundle.experiment.data is not None
    assert bundle.experiment.data.options["validation"] == str(small / "code/held out.jsonl")
    assert len(bundle.data.validation) == 5
