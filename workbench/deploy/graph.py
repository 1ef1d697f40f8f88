"""Builds an ONNX graph from nodes, constants and whole models.

`table_graph`, `onnx_export` and `exported_model` add the nodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from workbench.deploy.distributions import needs

with needs("onnx"):
    import onnx
    from onnx import compose, helper, inliner, numpy_helper

OPSET = 20
ML = "ai.onnx.ml"
_ML_OPSET = 3
_IR_VERSION = 10
BATCH = "batch"


class Graph:
    """A graph under construction. Values are known by their names.

    Computations that the models of an ensemble share, such as the encoding of their inputs, are
    only added once.

    Example:
        >>> graph = Graph()
        >>> rows = graph.input("rows", np.dtype("float32"), (3,))
        >>> model = graph.model(graph.add("Relu", rows), "answers", np.dtype("float32"), (3,))
        >>> model.graph.output[0].name
        'answers'
    """

    def __init__(self) -> None:
        """Start with an empty graph."""
        self._nodes: list[Any] = []
        self._constants: list[Any] = []
        self._inputs: list[Any] = []
        self._number = 0
        self._known: dict[tuple[object, ...], str] = {}
        self._domains: dict[str, int] = {"": OPSET, ML: _ML_OPSET}

    def input(self, name: str, dtype: np.dtype[Any], shape: tuple[int | str, ...]) -> str:
        """Add an input.

        Args:
            name: Its name.
            dtype: Its type. object means text.
            shape: The shape of one sample. A dimension with a name may have any size.
        """
        self._inputs.append(helper.make_tensor_value_info(name, _type_of(dtype), [BATCH, *shape]))
        return name

    def constant(self, values: Any) -> str:
        """Add a constant, unless it is there already, and return its name."""
        array = np.asarray(values)
        key = ("constant", array.dtype, array.shape, array.tobytes())
        if key not in self._known:
            self._known[key] = self._new("constant")
            self._constants.append(numpy_helper.from_array(array, self._known[key]))
        return self._known[key]

    def add(self, kind: str, *inputs: str, domain: str = "", **attributes: Any) -> str:
        """Add a node with one output unless it exists, and return the name of the output."""
        key = (kind, inputs, domain, repr(attributes))
        if key not in self._known:
            output = self._known[key] = self._new(kind)
            self._nodes.append(
                helper.make_node(
                    kind, list(inputs), [output], name=output, domain=domain, **attributes
                )
            )
        return self._known[key]

    def inline(self, model: onnx.ModelProto, given: tuple[str, ...]) -> str:
        """Add a whole model with one output, and return the name of the output.

        Args:
            model: The model, of the opset of this graph. Its nodes of other domains are kept.
            given: The values that replace its inputs.
        """
        prefix = self._new("model") + "/"
        whole = inliner.inline_local_functions(model) if model.functions else model
        inner = compose.add_prefix(whole, prefix).graph
        for item, name in zip(inner.input, given, strict=True):
            self._nodes.append(
                helper.make_node("Identity", [name], [item.name], name=f"{item.name}_given")
            )
        self._nodes.extend(inner.node)
        self._constants.extend(inner.initializer)
        self._domains = {
            **{item.domain: item.version for item in whole.opset_import},
            **self._domains,
        }
        return inner.output[0].name

    def model(
        self,
        output: str,
        name: str,
        dtype: np.dtype[Any],
        shape: tuple[int | str, ...],
        *,
        more: Sequence[tuple[str, str, tuple[int | str, ...]]] = (),
    ) -> onnx.ModelProto:
        """Return the graph as a checked model.

        Args:
            output: The value that is its output.
            name: What the output is called.
            dtype: Its type.
            shape: Its shape for one sample.
            more: Further outputs of the same type, each with its value, its name and its shape for
                one sample.
        """
        outputs = [(output, name, shape), *more]
        nodes = self._nodes + [
            helper.make_node(
                "Identity", [value], [called], name="answer" if called == name else called
            )
            for value, called, _ in outputs
        ]
        made = helper.make_model(
            helper.make_graph(
                nodes,
                "model",
                self._inputs,
                [
                    helper.make_tensor_value_info(called, _type_of(dtype), [BATCH, *size])
                    for _, called, size in outputs
                ],
                self._constants,
            ),
            opset_imports=[helper.make_opsetid(*domain) for domain in self._domains.items()],
            ir_version=_IR_VERSION,
            producer_name="workbench",
        )
        onnx.checker.check_model(made)
        return made

    def _new(self, kind: str) -> str:
        self._number += 1
        return f"{kind.lower()}_{self._number}"


def _type_of(dtype: np.dtype[Any]) -> int:
    return onnx.TensorProto.STRING if dtype.kind == "O" else helper.np_dtype_to_tensor_dtype(dtype)
