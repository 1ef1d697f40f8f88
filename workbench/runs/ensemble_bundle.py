"""The bundle of several models that answer as one: what lies beside their common ONNX graph.

How the models were chosen, and how they become a graph, is left to the caller.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from workbench.runs.bundle_files import new_bundle
from workbench.runs.figures import write_report
from workbench.runs.stored_run import StoredRun


def write_ensemble_bundle(
    run: StoredRun,
    folder: Path,
    *,
    used: Sequence[Mapping[str, Any]],
    values: Mapping[str, float],
    force: bool,
    title: str,
    of: str,
    holds: str,
    write_model: Callable[[Path], object],
) -> None:
    """Write several models as one bundle; where they cannot be exported, no folder is left behind.

    Args:
        run: The run that trained them.
        folder: A folder that is empty or does not exist.
        used: The models with their weights, as they are listed for programs.
        values: Scores by name, such as test_accuracy.
        force: Write into a folder that is not empty.
        title: The title of its README.
        of: What the bundle is of, as a sentence.
        holds: What the graph contains beside the weights of the models.
        write_model: Writes the graph, its card and its script into a folder.

    Raises:
        RunError: If the folder is not empty or cannot be written, or the models cannot be exported.
    """
    configuration = {"run_id": run.run_id, "params": {}, "values": dict(values), "used": list(used)}
    with new_bundle(folder, force=force) as beside:
        write_model(beside)
        text = json.dumps(configuration, indent=2, allow_nan=False)
        (beside / "configuration.json").write_text(text + "\n", encoding="utf-8")
        write_report(run, beside / "report.html")
        (beside / "README.md").write_text(
            f"# {title}\n\n{of}\n\n`model.onnx` holds {holds} and their weights. Predict with numpy"
            " and onnxruntime only:\n\n    python predict.py rows.csv\n\n`card.json` describes its"
            " inputs and its scores, `configuration.json` lists the models, `report.html` is the"
            " report of the whole run.\n",
            encoding="utf-8",
        )
