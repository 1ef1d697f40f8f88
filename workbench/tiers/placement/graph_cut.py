"""Cut an exported graph into two graphs, and find the values that its nodes exchange.

The graph is cut after ONNX Runtime has fused its nodes, because a fused node is computed and timed
as one node. `cut_choice` decides where it is cut.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from workbench.deploy.distributions import needs
from workbench.deploy.graph import BATCH, onnx
from workbench.deploy.stages import FEATURES, PROBABILITIES
from workbench.foundation.errors import RunError

with needs("onnxruntime"):
    import onnxruntime

_BATCHES = (2, 3)
"""Batch sizes of two runs. Values whose first dimension follows them have one row per sample."""
_FLOAT = np.dtype("float32")


@dataclass(frozen=True)
class Passed:
    """A value of a graph.

    Attributes:
        name: Its name.
        producer: The number of the node that computes it, or None for the input of the graph.
        consumers: The numbers of the nodes that use it.
        shape: Its shape for one sample, or None if it does not have one row per sample.
        dtype: Its type.
    """

    name: str
    producer: int | None
    consumers: tuple[int, ...]
    shape: tuple[int, ...] | None
    dtype: np.dtype[Any]

    @property
    def can_be_sent(self) -> bool:
        """Whether a tier can send it together with others."""
        return self.shape is not None and self.dtype == _FLOAT

    @property
    def num_values(self) -> int:
        """Number of its values for one sample."""
        return int(np.prod(self.shape or (), dtype=np.int64))


@dataclass(frozen=True)
class CuttableGraph:
    """A graph with one input and one output.

    Attributes:
        model: The graph, as ONNX Runtime fuses it.
        passed: The values that nodes use, the input first.
    """

    model: onnx.ModelProto
    passed: tuple[Passed, ...]

    @property
    def nodes(self) -> list[tuple[str, str]]:
        """The nodes in order, each with its name and the name of its output."""
        return [(node.name, node.output[0]) for node in self.model.graph.node]

    def sent(self, is_there: np.ndarray) -> list[Passed]:
        """Return the values that are sent, by which nodes are computed on the last tier."""
        return [
            value
            for value in self.passed
            if (value.producer is None or not is_there[value.producer])
            and is_there[list(value.consumers)].any()
        ]

    def weight_bytes(self, is_used: np.ndarray) -> int:
        """Return the bytes of the constants that some nodes use. `is_used` selects the nodes."""
        nodes = [node for node, used in zip(self.model.graph.node, is_used, strict=True) if used]
        taken = {name for node in nodes for name in node.input}
        return sum(
            constant.ByteSize()
            for constant in self.model.graph.initializer
            if constant.name in taken
        )

    def parts(self, is_there: np.ndarray) -> tuple[onnx.ModelProto, onnx.ModelProto]:
        """Return both parts. The first sends the values that the second takes, in one row.

        Args:
            is_there: (nodes,): whether each node is computed on the last tier. There must be both
                kinds.
        """
        sent, nodes, graph = self.sent(is_there), list(self.model.graph.node), self.model.graph
        width = sum(value.num_values for value in sent)
        helper = onnx.helper
        rows = [f"{value.name}/row" for value in sent]
        row = helper.make_tensor_value_info(FEATURES, onnx.TensorProto.FLOAT, [BATCH, width])
        first = [
            *(node for node, there in zip(nodes, is_there, strict=True) if not there),
            *(
                helper.make_node("Flatten", [value.name], [flat], axis=1)
                for value, flat in zip(sent, rows, strict=True)
            ),
            helper.make_node("Concat", rows, [FEATURES], axis=1),
        ]
        numpy_helper = onnx.numpy_helper
        constants = [
            numpy_helper.from_array(np.array([value.num_values for value in sent]), "sent/widths"),
            *(
                numpy_helper.from_array(np.array([-1, *(value.shape or ())]), f"{value.name}/shape")
                for value in sent
            ),
        ]
        second = [
            helper.make_node("Split", [FEATURES, "sent/widths"], rows, axis=1),
            *(
                helper.make_node("Reshape", [flat, f"{value.name}/shape"], [value.name])
                for value, flat in zip(sent, rows, strict=True)
            ),
            *(node for node, there in zip(nodes, is_there, strict=True) if there),
        ]
        return (
            self._part(first, list(graph.input), [row], []),
            self._part(second, [row], list(graph.output), constants),
        )

    def _part(
        self,
        nodes: Sequence[Any],
        inputs: Sequence[Any],
        outputs: Sequence[Any],
        constants: Sequence[Any],
    ) -> onnx.ModelProto:
        taken = {name for node in nodes for name in node.input}
        kept = [constant for constant in self.model.graph.initializer if constant.name in taken]
        graph = onnx.helper.make_graph(nodes, "part", inputs, outputs, [*kept, *constants])
        return onnx.helper.make_model(
            graph,
            opset_imports=self.model.opset_import,
            ir_version=self.model.ir_version,
            producer_name="workbench",
        )


def cuttable(path: Path) -> CuttableGraph | None:
    """Return a graph that can be cut, or None.

    A graph cannot be cut if it has several inputs or does not answer with probabilities.

    Args:
        path: The graph.

    Raises:
        RunError: If ONNX Runtime cannot run it.
    """
    with tempfile.TemporaryDirectory() as folder:
        fused = Path(folder) / "fused.onnx"
        options = _options()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
        options.optimized_model_filepath = str(fused)
        try:
            session = onnxruntime.InferenceSession(
                str(path), options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:  # ONNX Runtime has no common base class for its errors
            raise RunError(
                f"{path} cannot be loaded: {error}", next_step="Export the model again."
            ) from error
        model = onnx.load(str(fused))
    for node in model.graph.node:
        node.name = node.name or node.output[0]  # the name by which its time is stored
    inputs = session.get_inputs()
    is_one = len(inputs) == 1 and "string" not in inputs[0].type
    if not is_one or [output.name for output in session.get_outputs()] != [PROBABILITIES]:
        return None
    return CuttableGraph(model, tuple(_passed(model, inputs[0])))


def _passed(model: onnx.ModelProto, graph_input: Any) -> Iterable[Passed]:
    """Yield the values that nodes use, with shapes and types from runs with two batches."""
    nodes = list(model.graph.node)
    producers = {name: number for number, node in enumerate(nodes) for name in node.output if name}
    consumers: dict[str, list[int]] = {graph_input.name: []}
    for number, node in enumerate(nodes):
        for name in dict.fromkeys(node.input):
            if name in producers or name == graph_input.name:
                consumers.setdefault(name, []).append(number)
    runs = [_run(model, graph_input, list(consumers), batch) for batch in _BATCHES]
    for name, takers in consumers.items():
        small, large = (run[name] for run in runs)
        is_by_sample = small.ndim > 0 and [values.shape[:1] for values in (small, large)] == [
            (batch,) for batch in _BATCHES
        ]
        is_by_sample &= small.shape[1:] == large.shape[1:]
        yield Passed(
            name,
            producers.get(name),
            tuple(takers),
            small.shape[1:] if is_by_sample else None,
            small.dtype,
        )


def _run(
    model: onnx.ModelProto, graph_input: Any, names: Sequence[str], batch: int
) -> dict[str, np.ndarray]:
    watched = onnx.ModelProto.FromString(model.SerializeToString())
    known = {output.name for output in watched.graph.output}
    watched.graph.output.extend(
        onnx.helper.make_empty_tensor_value_info(name)
        for name in names
        if name not in known and name != graph_input.name
    )
    options = _options()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(
        watched.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    values = np.ones((batch, *graph_input.shape[1:]), dtype=dtype_of(graph_input.type))
    wanted = [name for name in names if name != graph_input.name]
    outputs = session.run(wanted, {graph_input.name: values})
    return {graph_input.name: values, **dict(zip(wanted, map(np.asarray, outputs), strict=True))}


def _options() -> Any:
    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 3, 1
    return options


def dtype_of(type_name: str) -> np.dtype[Any]:
    """Return the type of numbers that ONNX Runtime calls `tensor(...)`."""
    name = type_name.removeprefix("tensor(").removesuffix(")")
    return np.dtype({"float": "float32", "double": "float64"}.get(name, name))
