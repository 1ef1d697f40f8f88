"""Write the parts of a model that is cut without exits, as the stages of a bundle for tiers.

`cut_choice` decides where it is cut.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np

from workbench.deploy.card import MODEL
from workbench.deploy.graph import onnx
from workbench.deploy.onnx_export import TOLERANCE
from workbench.deploy.predictor import open_session
from workbench.deploy.stages import Evidence, Stage, Stages
from workbench.foundation.errors import RunError
from workbench.tiers.placement.graph_cut import cuttable, dtype_of

_NUM_COMPARED = 7


def write_cut(bundle: Path, is_there: np.ndarray, evidence: Evidence, folder: Path) -> Stages:
    """Write both parts of a model, after checking that together they answer like the entire model.

    Args:
        bundle: The bundle of the whole model.
        is_there: (nodes,): whether each node is computed in the second part. If all or none are,
            there is one part only.
        evidence: How the exits of the bundle did on the validation split.
        folder: Where to write the parts.

    Raises:
        RunError: If the model cannot be cut, or the parts answer differently from the entire model.
    """
    graph = cuttable(bundle / MODEL)
    if graph is None or len(graph.nodes) != len(is_there):
        raise RunError(f"{bundle / MODEL} cannot be cut there", next_step="Export the model again.")
    num_parts = 2 if is_there.any() and not is_there.all() else 1
    names = [f"part_{number}.onnx" for number in range(num_parts)]
    if num_parts == 1:
        shutil.copyfile(bundle / MODEL, folder / names[0])
    else:
        for name, part in zip(names, graph.parts(is_there), strict=True):
            onnx.save(part, str(folder / name))
    values = _compare(bundle / MODEL, [folder / name for name in names])
    parts_evidence = evidence.last(num_parts)
    parts_evidence.write(folder)
    accuracy = float(parts_evidence.is_correct[:, -1].mean())
    stages = Stages(
        stages=tuple(
            Stage(
                file=name,
                input_shape=inputs.shape[1:],
                input_dtype=inputs.dtype.name,
                temperature=1.0,
                accuracy=accuracy if is_last else 0.0,
                threshold=0.0 if is_last else 1.0,
                share=float(is_last),
            )
            for name, inputs, is_last in zip(names, values, [False, True][-num_parts:], strict=True)
        ),
        accuracy=accuracy,
        num_samples=len(parts_evidence.is_correct),
    )
    return stages.write(folder)


def _compare(whole: Path, parts: list[Path]) -> list[Any]:
    """Compare the answers of the parts and the entire model, and return the inputs of each part."""
    session = open_session(whole, threads=1)
    (given,) = session.get_inputs()
    drawn = np.random.default_rng(0).random((_NUM_COMPARED, *given.shape[1:]))
    dtype = dtype_of(given.type).name
    values = drawn.astype(dtype) if dtype.startswith("float") else (255 * drawn).astype(dtype)
    (known,) = session.run(None, {given.name: values})
    taken = []
    for part in parts:
        taken.append(values)
        session = open_session(part, threads=1)
        (values,) = session.run(None, {session.get_inputs()[0].name: values})
    difference = float(np.abs(values - known).max())
    if not difference <= TOLERANCE:
        raise RunError(
            f"the parts differ from the whole model by {difference:.2g}",
            next_step="Export the model again.",
        )
    return taken
