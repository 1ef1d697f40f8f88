"""The weights of counted terms as nodes of a graph, which computes what `TextEncoder` does with
counts.

Counting is left to `workbench.data.tokens`, and in a bundle to its script.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from workbench.data.encoders import TextEncoder
from workbench.deploy.graph import Graph

_DOUBLE, _FLOAT = 11, 1
_SMALLEST = np.float64(1e-300)
"""Divides the features of a text without any known term, which are all 0."""


def encode(graph: Graph, encoder: TextEncoder, terms: Sequence[str], counts: str) -> str:
    """Add the weights of terms; return the value that a model takes, (batch, features) as float32.

    Args:
        graph: The graph.
        encoder: What was learnt.
        terms: The terms that are counted, among them all of the encoder.
        counts: The value of the counts, (batch, terms) as float32.

    Source: the formula of scikit-learn's `TfidfVectorizer` with `sublinear_tf`.
    """
    places = {term: place for place, term in enumerate(terms)}
    one = graph.constant(np.float64(1.0))
    parts = []
    for known, weights in encoder.weights():
        chosen = graph.constant(np.array([places[term] for term in known], dtype=np.int64))
        found = graph.add("Cast", graph.add("Gather", counts, chosen, axis=1), to=_DOUBLE)
        frequency = graph.add("Add", graph.add("Log", graph.add("Max", found, one)), one)
        frequency = graph.add(
            "Mul", graph.add("Min", found, one), frequency
        )  # 0 for what does not occur
        weighted = graph.add(
            "Mul", frequency, graph.constant(np.asarray(weights, dtype=np.float64))
        )
        length = graph.add(
            "ReduceL2", weighted, graph.constant(np.array([1], dtype=np.int64)), keepdims=1
        )
        parts.append(
            graph.add("Div", weighted, graph.add("Max", length, graph.constant(_SMALLEST)))
        )
    joined = graph.add("Cast", graph.add("Concat", *parts, axis=1), to=_FLOAT)
    return graph.add("Mul", joined, graph.constant(encoder.factor))
