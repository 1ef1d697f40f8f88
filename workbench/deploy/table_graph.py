"""The encoding of columns of a table, and of texts, as nodes of a graph.

They compute the same as `workbench.data.column_encoding`, and as `TextEncoder` and `TableTexts`
with counts of terms.
`workbench.data.tokens` counts the terms, or in a bundle its script.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from workbench.data.category_pairs import CategoryPair, PairSide
from workbench.data.column_encoding import Column
from workbench.data.dates import DAYS, NS_PER_DAY, THURSDAY
from workbench.data.encoders import TextEncoder
from workbench.data.number_texts import MISSING_TEXTS
from workbench.data.table_texts import TableTexts
from workbench.deploy.card import Input
from workbench.deploy.feeds import missing_text_of
from workbench.deploy.graph import ML, Graph

_NUMBERS = ("number", "time")
_NS_PER_S = 1e9
_DOUBLE, _FLOAT, _INT = 11, 1, 7
_SMALLEST = np.float64(1e-300)
"""Divides the features of a text without any known term, which are all 0."""


def input_of(column: Column, example: Any) -> Input:
    """Return the input that a column is read from.

    Args:
        column: The learnt column.
        example: A value of it.
    """
    if column.kind == "number":
        form = column.number_text
        return Input(
            name=column.name,
            kind="number",
            dtype="float64",
            has_missing=column.marks_missing,
            has_thousands=form.has_thousands,
            has_decimal_comma=form.has_decimal_comma,
            unit=form.unit,
            notation=form.notation,
            missing_texts=form.missing,
            example=form.parse(example) if isinstance(example, str) else example,
        )
    if column.kind == "time":
        return Input(
            name=column.name,
            kind="date",
            dtype="float64",
            date_format=column.date_format,
            has_missing=column.marks_missing,
            example=example,
        )
    return Input(
        name=column.name,
        kind="category",
        dtype="string",
        has_missing=None in column.ranks,
        categories=tuple(text for text in column.ranks if text is not None),
        example=example,
    )


def add_inputs(graph: Graph, columns: Sequence[Column]) -> dict[str, str]:
    """Add an input for each column, and return their values by column."""
    kinds = {
        column.name: np.dtype("float64" if column.kind in _NUMBERS else object)
        for column in columns
    }
    return {name: graph.input(name, dtype, (1,)) for name, dtype in kinds.items()}


def encode(
    graph: Graph,
    columns: Sequence[Column],
    given: dict[str, str],
    *,
    pairs: Sequence[CategoryPair] = (),
    texts: TableTexts | None = None,
    terms: Sequence[str] = (),
    counts: str = "",
) -> str:
    """Add the encoding of columns.

    Return the value that a model takes, (batch, features) as float32.

    Args:
        graph: The graph.
        columns: The columns, in the order of the features.
        given: The values of the inputs, by column.
        pairs: Columns that are also encoded together, after all others.
        texts: How the columns of sentences are encoded, after the pairs, or None.
        terms: The terms that are counted, among them all of the texts.
        counts: The value of the counts, (batch, terms) as float32.
    """
    joined = [_encode_columns(graph, columns, given)] if columns else []
    joined += [_encode_pair(graph, pair, given) for pair in pairs]
    if texts is not None:
        joined.append(_encode_table_texts(graph, texts, terms, counts))
    value = joined[0] if len(joined) == 1 else graph.add("Concat", *joined, axis=1)
    return graph.add("Cast", value, to=_FLOAT)


def _encode_columns(graph: Graph, columns: Sequence[Column], given: dict[str, str]) -> str:
    """Add the encoding of columns, each alone, as float64."""
    parts: list[_Part] = []
    numbers = [column for column in columns if column.kind in _NUMBERS]
    if numbers:
        parts += _encode_numbers(graph, numbers, given)
    parts += [
        _encode_category(graph, column, given[column.name])
        for column in columns
        if column.kind not in _NUMBERS
    ]
    joined = graph.add("Concat", *(part.value for part in parts), axis=1)
    # All numbers are encoded at once, so the features are put back into the order of the columns.
    features = [feature for part in parts for feature in part.features]
    order = [(column.name, place) for column in columns for place in range(column.width)]
    places = np.array([features.index(feature) for feature in order], dtype=np.int64)
    if not np.array_equal(places, np.arange(len(places))):
        joined = graph.add("Gather", joined, graph.constant(places), axis=1)
    return joined


def _encode_table_texts(graph: Graph, texts: TableTexts, terms: Sequence[str], counts: str) -> str:
    """Add the numbers of the columns of sentences, as float64."""
    known = [(block.terms, block.weights) for block in texts.blocks]
    weighted = _weighted_terms(graph, known, terms, counts)
    numbers = graph.add("MatMul", weighted, graph.constant(texts.projection))
    return graph.add("Add", numbers, graph.constant(texts.offset))


def encode_texts(graph: Graph, encoder: TextEncoder, terms: Sequence[str], counts: str) -> str:
    """Add the weights of terms, and return the input of the model, (batch, features) as float32.

    Args:
        graph: The graph.
        encoder: What was learnt.
        terms: The terms that are counted, among them all of the encoder.
        counts: The value of the counts, (batch, terms) as float32.
    """
    weighted = _weighted_terms(graph, list(encoder.weights()), terms, counts)
    joined = graph.add("Cast", weighted, to=_FLOAT)
    return graph.add("Mul", joined, graph.constant(encoder.factor))


def _weighted_terms(
    graph: Graph,
    blocks: Sequence[tuple[Sequence[str], np.ndarray]],
    terms: Sequence[str],
    counts: str,
) -> str:
    """Add the weights of the terms of each block, a row of which has length 1, as float64.

    Source: the formula of scikit-learn's `TfidfVectorizer` with `sublinear_tf`.
    """
    places = {term: place for place, term in enumerate(terms)}
    unit = graph.constant(np.float64(1.0))
    parts = []
    for known, weights in blocks:
        chosen = graph.constant(np.array([places[term] for term in known], dtype=np.int64))
        occurrences = graph.add("Cast", graph.add("Gather", counts, chosen, axis=1), to=_DOUBLE)
        frequency = graph.add("Add", graph.add("Log", graph.add("Max", occurrences, unit)), unit)
        frequency = graph.add(
            "Mul", graph.add("Min", occurrences, unit), frequency
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
    return graph.add("Concat", *parts, axis=1)


@dataclass(frozen=True)
class _Part:
    """Some encoded features: their value, and the column and place in it of each."""

    value: str
    features: list[tuple[str, int]]


def _encode_numbers(graph: Graph, columns: list[Column], given: dict[str, str]) -> list[_Part]:
    raw = graph.add("Concat", *(given[column.name] for column in columns), axis=1)
    if any(
        column.kind == "time" for column in columns
    ):  # given in seconds, and learnt in nanoseconds
        units = np.array([_NS_PER_S if column.kind == "time" else 1.0 for column in columns])
        raw = graph.add("Mul", raw, graph.constant(units))
    missing = graph.add("IsNaN", raw)
    zero = graph.constant(np.float64(0.0))

    def known(value: str, mask: str) -> str:
        return graph.add("Where", mask, zero, value)

    centred = graph.add("Sub", raw, graph.constant(np.array([column.mean for column in columns])))
    scaled = graph.add(
        "Div", centred, graph.constant(np.array([column.deviation for column in columns]))
    )
    parts = [_Part(known(scaled, missing), [(column.name, 0) for column in columns])]
    marked = [place for place, column in enumerate(columns) if column.marks_missing]
    if marked:
        chosen = graph.add(
            "Gather", missing, graph.constant(np.array(marked, dtype=np.int64)), axis=1
        )
        parts.append(
            _Part(graph.add("Cast", chosen, to=11), [(columns[place].name, 1) for place in marked])
        )
    for place, column in enumerate(columns):
        if not column.cycles:
            continue
        only = graph.constant(np.array([place], dtype=np.int64))
        mask = graph.add("Gather", missing, only, axis=1)
        days = graph.add("Div", graph.add("Gather", raw, only, axis=1), graph.constant(NS_PER_DAY))
        first = 1 + column.marks_missing
        for number, cycle in enumerate(column.cycles):
            at = days
            if cycle == "week":
                at = graph.add(
                    "Add", graph.add("Floor", days), graph.constant(np.float64(THURSDAY))
                )
            angle = graph.add("Mul", graph.constant(np.float64(2.0 * np.pi)), at)
            angle = graph.add("Div", angle, graph.constant(np.float64(DAYS[cycle])))
            parts += [
                _Part(
                    known(graph.add(function, angle), mask),
                    [(column.name, first + 2 * number + offset)],
                )
                for offset, function in enumerate(("Sin", "Cos"))
            ]
    return parts


def _encode_pair(graph: Graph, pair: CategoryPair, given: dict[str, str]) -> str:
    """Add the encoding of two columns together: the place of both values, then its numbers."""
    first, second = (_place_of_side(graph, side, given[side.column.name]) for side in pair.sides)
    size = graph.constant(np.int64(pair.sides[1].num_values))
    key = graph.add("Add", graph.add("Mul", first, size), second)
    place = graph.add(
        "LabelEncoder",
        key,
        domain=ML,
        keys_int64s=pair.keys.tolist(),
        values_int64s=list(range(len(pair.keys))),
        default_int64=len(pair.keys),
    )
    flat = graph.add("Reshape", place, graph.constant(np.array([-1], dtype=np.int64)))
    return graph.add("Gather", graph.constant(pair.table), flat, axis=0)


def _place_of_side(graph: Graph, side: PairSide, given: str) -> str:
    """Add the place of a value among those of a column, (batch, 1) as int64."""
    unknown = np.int64(side.num_values - 1)
    if not side.numbers:
        return _rank_of(graph, side.column, given, default=int(unknown))
    is_it = graph.add(
        "Cast", graph.add("Equal", given, graph.constant(np.array(side.numbers))), to=_INT
    )
    # At most one is equal, so the sum is how far its place is from that of an unknown value. The
    # place of a missing one is just before.
    distances = graph.constant(np.arange(len(side.numbers), dtype=np.int64) - unknown)
    axis = graph.constant(np.array([1], dtype=np.int64))
    distance = graph.add("ReduceSum", graph.add("Mul", is_it, distances), axis, keepdims=1)
    is_missing = graph.add("Cast", graph.add("IsNaN", given), to=_INT)
    place = graph.add("Add", distance, graph.constant(unknown))
    return graph.add("Sub", place, is_missing)


def _rank_of(graph: Graph, column: Column, given: str, *, default: int) -> str:
    """Add the number of a category, counted by how often each occurs."""
    ranks = {text: rank for text, rank in column.ranks.items() if text is not None}
    if None in column.ranks:
        texts = (*sorted(MISSING_TEXTS), missing_text_of(input_of(column, None)))
        ranks = dict.fromkeys(texts, column.ranks[None]) | ranks
    return graph.add(
        "LabelEncoder",
        given,
        domain=ML,
        keys_strings=list(ranks),
        values_int64s=list(ranks.values()),
        default_int64=default,
    )


def _encode_category(graph: Graph, column: Column, given: str) -> _Part:
    default = -1 if column.table is None else len(column.ranks)
    rank = _rank_of(graph, column, given, default=default)
    if column.table is not None:
        flat = graph.add("Reshape", rank, graph.constant(np.array([-1], dtype=np.int64)))
        value = graph.add("Gather", graph.constant(column.table), flat, axis=0)
        return _Part(value, [(column.name, place) for place in range(column.width)])
    if column.kind == "category":
        numbers = graph.constant(np.arange(len(column.ranks), dtype=np.int64))
        columns = [(column.name, place) for place in range(len(column.ranks))]
        return _Part(graph.add("Cast", graph.add("Equal", rank, numbers), to=11), columns)
    number = graph.add("Cast", rank, to=11)  # float64
    scaled = graph.add("Sub", number, graph.constant(np.float64(column.mean)))
    scaled = graph.add("Div", scaled, graph.constant(np.float64(column.deviation)))
    unknown = graph.add("Less", rank, graph.constant(np.int64(0)))
    value = graph.add("Where", unknown, graph.constant(np.float64(0.0)), scaled)
    return _Part(value, [(column.name, 0)])
