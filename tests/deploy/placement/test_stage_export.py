from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.deploy.trained import exported
from workbench.deploy.placement.cascade import exits_at, shares_at
from workbench.deploy.placement.stages import read_evidence, read_stages
from workbench.deploy.predictor import open_session
from workbench.errors import RunError


@pytest.mark.slow
@pytest.mark.parametrize(("model", "options"), [("convnet", {"width": 4}), ("mlp", {"hidden_width": 8})])
def test_each_stage_is_a_graph_that_answers_as_its_exit_does(
    model: str, options: dict[str, int], tmp_path: Path
) -> None:
    exported(tmp_path, model, "digits", exits=1, **options)
    stages, evidence = read_stages(tmp_path), read_evidence(tmp_path)
    assert [stage.file for stage in stages.stages] == ["stage_0.onnx", "stage_1.onnx"]
    first = open_session(tmp_path / "stage_0.onnx")
    inputs = first.get_inputs()[0]
    probabilities, features = first.run(None, {inputs.name: np.zeros((3, *inputs.shape[1:]), np.float32)})
    assert probabilities.sum(axis=1) == pytest.approx(np.ones(3), abs=1e-5)
    assert features.nbytes == 3 * stages.stages[1].input_bytes
    answers = open_session(tmp_path / "stage_1.onnx").run(None, {"inputs": features})[0]
    assert answers.shape == probabilities.shape
    exits = exits_at(evidence, [stage.threshold for stage in stages.stages])
    assert shares_at(exits, 2) == pytest.approx([stage.share for stage in stages.stages])
    assert stages.num_samples == len(evidence.confidence)


def test_a_model_without_exits_has_no_stages(tmp_path: Path) -> None:
    exported(tmp_path, "mlp", "digits", hidden_width=4)
    with pytest.raises(RunError, match="no early exits"):
        read_stages(tmp_path)
