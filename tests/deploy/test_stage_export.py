from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from tests.deploy.trained import experiment, exported, write_texts
from tests.models.test_exits import WITHOUT
from workbench.deploy.predictor import open_session
from workbench.deploy.stages import exits_at, read_evidence, read_stages, shares_at
from workbench.foundation.errors import RunError
from workbench.models import MODELS
from workbench.tiers.processes.samples import samples_of

ZOO: dict[str, dict[str, Any]] = {
    "mlp": {"hidden_width": 8, "exits": 1},
    "convnet": {"width": 4, "exits": 1},
    "resnet": {"depth": 8, "width": 4, "exits": 1},
    "lstm": {"hidden_width": 8, "num_layers": 2, "exits": 1},
    "transformer": {"width": 8, "num_layers": 2, "exits": 1},
    "text_encoder": {"width": 8, "num_layers": 2, "exits": 1},
    "boosted_trees": {"num_trees": 4, "max_leaves": 4, "exits": 1},
    "forest": {"num_trees": 6, "exits": 1},
    "extra_trees": {"num_trees": 6, "exits": 1},
    "lightgbm": {"num_trees": 4, "max_leaves": 4, "exits": 1},
    "xgboost": {"num_trees": 4, "max_depth": 2, "exits": 1},
    "catboost": {"num_trees": 4, "depth": 2, "exits": 1},
    "one_of": {"family": "mlp", "mlp_hidden_width": 8, "mlp_exits": 1},
}
LIBRARIES = {"lightgbm", "xgboost", "catboost"}
READ_TEXTS = {"lstm", "transformer", "text_encoder"}


def test_the_stages_of_every_model_of_the_zoo_with_exits_are_tested() -> None:
    assert ZOO.keys() | WITHOUT.keys() == set(MODELS.names())


@pytest.mark.slow
@pytest.mark.parametrize("model", ZOO)
def test_each_stage_is_a_graph_that_answers_as_its_exit_does(model: str, tmp_path: Path) -> None:
    if model in LIBRARIES:
        pytest.importorskip(model)
    data: Any = "digits"
    if model in READ_TEXTS:
        write_texts(tmp_path / "texts.csv")
        data = {"name": "labelled_text", "path": str(tmp_path / "texts.csv"), "context": 6}
    bundle = tmp_path / "bundle"
    _, loaded, _ = exported(bundle, model, data, **ZOO[model])
    stages, evidence = read_stages(bundle), read_evidence(bundle)
    assert [stage.file for stage in stages.stages] == ["stage_0.onnx", "stage_1.onnx"]
    given, targets = samples_of(loaded, experiment(model, data))
    probabilities, features = _run(bundle, 0, given)
    assert probabilities.sum(axis=1) == pytest.approx(np.ones(len(given)), abs=1e-4)
    assert features.shape[1:] == stages.stages[1].input_shape
    assert stages.stages[0].wire_dtype == ("uint8" if model in READ_TEXTS else "float32")
    (answers,) = _run(bundle, 1, features)

    # What was kept of the validation split is what the graphs answer there.
    for number, outputs in enumerate((probabilities, answers)):
        assert outputs.max(axis=1) == pytest.approx(evidence.confidence[:, number], abs=1e-4)
        assert (outputs.argmax(axis=1) == targets).mean() == pytest.approx(
            stages.stages[number].accuracy
        )
    exits = exits_at(evidence, [stage.threshold for stage in stages.stages])
    assert shares_at(exits, 2) == pytest.approx([stage.share for stage in stages.stages])
    assert stages.num_samples == len(evidence.confidence) == len(given)


@pytest.mark.slow
def test_the_stages_of_an_own_model_compute_no_more_than_the_model(tmp_path: Path) -> None:
    made, _, _ = exported(tmp_path, "tests.deploy.trained:build_own_with_exit", "digits")
    sizes = [
        sum(
            int(np.prod(one.dims))
            for one in onnx.load(str(tmp_path / stage.file)).graph.initializer
        )
        for stage in read_stages(tmp_path).stages
    ]
    # Each stage holds its own blocks and its own output, and nothing of the others.
    num_parameters = sum(each.numel() for each in made.parameters())
    assert sum(sizes) == pytest.approx(num_parameters, rel=0.02)
    assert max(sizes) < 0.7 * num_parameters


def _run(bundle: Path, number: int, values: np.ndarray) -> list[np.ndarray]:
    session = open_session(bundle / f"stage_{number}.onnx")
    (given,) = session.get_inputs()
    outputs: list[Any] = list(session.run(None, {given.name: values}))
    return outputs


def test_a_model_without_exits_has_no_stages(tmp_path: Path) -> None:
    exported(tmp_path, "mlp", "digits", hidden_width=4)
    with pytest.raises(RunError, match="no early exits"):
        read_stages(tmp_path)


def test_a_model_of_a_table_is_exported_without_stages(tmp_path: Path) -> None:
    bundle = tmp_path / "bundle"
    exported(bundle, "mlp", "breast_cancer", hidden_width=8, exits=1)
    assert (bundle / "model.onnx").exists()
    with pytest.raises(RunError, match="takes columns of a table"):
        read_stages(bundle)
