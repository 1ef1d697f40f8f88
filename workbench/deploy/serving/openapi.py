"""The description of a server's addresses as OpenAPI 3.1, with the columns of each model as
types.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from workbench.data.dates import ISO, in_words
from workbench.deploy.card import Card, Input, Output
from workbench.deploy.image_files import MEDIA_TYPES, takes_images
from workbench.deploy.serving.client_rows import takes_truth_values
from workbench.version import VERSION

_NULLABLE = {"number": "number", "category": "string", "text": "string", "date": "string"}


def describe_server(cards: Mapping[str, Card], *, has_token: bool) -> dict[str, Any]:
    """Return the OpenAPI document of a server.

    Args:
        cards: What is served, by name.
        has_token: Whether requests need a bearer token.
    """
    schemas: dict[str, Any] = {"Problem": _PROBLEM}
    paths: dict[str, Any] = {
        "/health": {"get": _get("Whether the process is alive", secured=False)},
        "/ready": {
            "get": _get(
                "Whether it accepts requests",
                secured=False,
                more={"503": "It does not accept requests yet, or no longer does."},
            )
        },
        "/metrics": {
            "get": _get("Counts and times in the text format of Prometheus", kind="text/plain")
        },
        "/v1": {"get": _get("The models that are served")},
    }
    for name, card in cards.items():
        schemas[f"{name}.Row"] = row_schema(card)
        schemas[f"{name}.Answer"] = answer_schema(card.outputs[0])
        paths[f"/v1/{name}"] = {"get": _get(f"The card of {name}")}
        paths[f"/v1/{name}/predict"] = {"post": _predict(name, card)}
        paths[f"/v1/{name}/drift"] = {
            "get": (
                _get(f"How far rows and answers of {name} are from its training data")
                | {
                    "responses": {
                        "200": {"description": "By column."},
                        "409": _problem("No samples are kept."),
                    }
                }
            )
        }
        paths[f"/v1/{name}/swap"] = {
            "post": {
                "summary": f"Open the bundle of {name} again, and answer with it if it is newer",
                "responses": {
                    "200": {"description": "The model that is served now."},
                    "409": _problem("The bundle cannot replace the one that is served."),
                },
            }
        }
    document: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {"title": "Models served by the workbench", "version": VERSION},
        "paths": paths,
        "components": {"schemas": schemas},
    }
    if has_token:
        document["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        document["security"] = [{"token": []}]
    return document


def row_schema(card: Card) -> dict[str, Any]:
    """Return the JSON schema of one row, which may have other columns as well."""
    return {
        "type": "object",
        "properties": {column.name: _value_schema(column) for column in card.inputs},
        "required": [column.name for column in card.inputs],
    }


def _nested(schema: dict[str, Any], shape: Sequence[int | str]) -> dict[str, Any]:
    """Return the schema of an array. A dimension with a name may have any size."""
    for size in reversed(shape):
        exact = {} if isinstance(size, str) else {"minItems": size, "maxItems": size}
        schema = {"type": "array", "items": schema, **exact}
    return schema


def _value_schema(column: Input) -> dict[str, Any]:
    schema: dict[str, Any]
    if column.kind == "array":
        schema = {"type": "integer" if column.dtype == "int64" else "number"}
        schema = _nested(schema, column.graph_shape)
        schema["description"] = f"Numbers of shape {list(column.shape)}, or a flat list of them."
        if column.lengths:
            sizes = ", ".join(map(str, column.graph_shape))
            schema["description"] = f"Numbers of shape [{sizes}]. A named size may be any."
        if column.is_image:
            schema = {
                "anyOf": [{"type": "string", "contentEncoding": "base64"}, schema],
                "description": (
                    "An image file in base64, or the numbers of its pixels, from 0 to 255."
                ),
            }
        elif column.tokens is not None:
            schema = {
                "anyOf": [{"type": "string"}, schema],
                "description": "A text, or the numbers of its tokens.",
            }
    else:
        further = ["string"] if column.kind == "number" else []
        further += ["boolean"] if column.kind == "number" and takes_truth_values(column) else []
        schema = {"type": [_NULLABLE[column.kind], *further, "null"]}
    schema["x-kind"] = column.kind
    if column.kind == "category":
        schema["description"] = (
            "Values that did not occur in training are accepted, with a note in the answer."
        )
        schema["x-known-values"] = list(column.categories)
    elif column.kind == "number":
        schema["description"] = "A number, or text as the training data wrote it."
    elif column.kind == "date":
        schema["description"] = f"A date as text: {in_words(column.date_format or ISO)}."
    if column.example is not None:
        schema["examples"] = [column.example]
    return schema


def answer_schema(output: Output) -> dict[str, Any]:
    """Return the JSON schema of the answer for one row."""
    number = {"type": ["number", "null"]}
    notes = {
        "type": "array",
        "items": {"type": "string"},
        "description": "Only if there are notes.",
    }
    if output.kind == "classes" and len(output.shape) > 1:
        classes: dict[str, Any] = {"type": "string", "enum": [*output.classes, ""]}
        classes = _nested(classes, output.graph_shape[:-1])
        return {
            "type": "object",
            "properties": {"classes": classes, "notes": notes},
            "required": ["classes"],
        }
    if output.kind == "classes":
        named = {
            "class": {"type": "string", "enum": list(output.classes)},
            "probabilities": _named_numbers(output.classes, number),
        }
        return {"type": "object", "properties": {**named, "notes": notes}, "required": list(named)}
    if output.kind == "boxes":
        numbers = _named_numbers(("score", "left", "top", "right", "bottom"), {"type": "number"})
        numbers["properties"]["class"] = {"type": "string", "enum": list(output.classes)}
        boxes = {
            "type": "array",
            "items": numbers,
            "description": "The boxes, the best first, as shares of the image.",
        }
        return {
            "type": "object",
            "properties": {"boxes": boxes, "notes": notes},
            "required": ["boxes"],
        }
    values = (
        _named_numbers(output.targets, number) if output.targets else {"description": "Numbers."}
    )
    if output.unit:
        values["description"] = f"In {output.unit}."
    ends = {}
    if output.errors:
        ends = dict.fromkeys(
            ("low", "high"), number | {"description": "Only if the request has an interval."}
        )
    return {
        "type": "object",
        "properties": {"values": values, **ends, "notes": notes},
        "required": ["values"],
    }


def _named_numbers(names: tuple[str, ...], number: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": dict.fromkeys(names, number), "required": list(names)}


def _predict(name: str, card: Card) -> dict[str, Any]:
    def many(of: str) -> dict[str, Any]:
        return {"type": "array", "items": {"$ref": f"#/components/schemas/{name}.{of}"}}

    example = {column.name: column.example for column in card.inputs}
    body: dict[str, Any] = {
        "schema": {
            "type": "object",
            "properties": {"rows": many("Row") | {"minItems": 1}},
            "required": ["rows"],
            "additionalProperties": False,
        }
    }
    if card.outputs[0].errors:
        body["schema"]["properties"]["interval"] = {
            "type": "number",
            "exclusiveMinimum": 0,
            "exclusiveMaximum": 1,
            "description": "The share of true numbers that lie between low and high.",
        }
    if None not in example.values():
        body["example"] = {"rows": [example]}
    images: dict[str, Any] = {kind: {} for kind in MEDIA_TYPES} if takes_images(card) else {}
    answers = {
        "type": "object",
        "properties": {
            "model": {"type": "string"},
            "version": {"type": "string", "description": "The start of the model's SHA-256."},
            "answers": many("Answer"),
        },
        "required": ["model", "version", "answers"],
    }
    return {
        "summary": f"Predict with {name}",
        "description": card.model,
        "requestBody": {"required": True, "content": {"application/json": body, **images}},
        "responses": {
            "200": {
                "description": "One answer for each row, in their order.",
                "content": {"application/json": {"schema": answers}},
            },
            "400": _problem("The body is not JSON of this form."),
            "413": _problem("The body or the number of rows is too large."),
            "415": _problem("The body is of another type."),
            "422": _problem("A value is wrong. The problem shows its row and column."),
            "429": _problem("The queue is full.") | {"headers": _RETRY_AFTER},
            "503": _problem("The server is stopping."),
        },
    }


def _get(
    summary: str,
    *,
    secured: bool = True,
    kind: str = "application/json",
    more: dict[str, str] | None = None,
) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "summary": summary,
        "responses": {
            "200": {"description": f"{summary}.", "content": {kind: {}}},
            **{code: {"description": text} for code, text in (more or {}).items()},
        },
    }
    return operation if secured else operation | {"security": []}


def _problem(description: str) -> dict[str, Any]:
    schema = {"$ref": "#/components/schemas/Problem"}
    return {"description": description, "content": {"application/json": {"schema": schema}}}


_RETRY_AFTER = {
    "Retry-After": {
        "description": "Seconds until there is room again.",
        "schema": {"type": "integer"},
    }
}
_TEXT = {"type": ["string", "null"]}
_PROBLEM = {
    "type": "object",
    "properties": {
        "problem": {"type": "string"},
        "field": _TEXT,
        "allowed": _TEXT,
        "next_step": _TEXT,
        "problems": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "row": {"type": "integer"},
                    "column": _TEXT,
                    "problem": {"type": "string"},
                    "allowed": _TEXT,
                },
            },
        },
    },
    "required": ["problem"],
}
