"""YAML 1.2 in and out, the form in which people keep experiments.

What the keys mean is left to the experiment.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.constructor import SafeConstructor
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode
from ruamel.yaml.representer import SafeRepresenter

from workbench.foundation.errors import ExperimentError
from workbench.foundation.files import encoding_in_words

EXPERIMENT_KEYS = "an experiment: name, model, data, search, ..."
_LINE_BREAKS = frozenset("\x85\u2028\u2029")
# Values, keys and groups of both, each as often as it is referred to: more than anybody writes, and
# few enough to be checked at once.
MAX_PARTS = 100_000


class _Constructor(SafeConstructor):
    """Builds values from a text once it is known to be of a size that can be built."""

    def construct_document(self, node: Node) -> Any:
        _check(node)
        return super().construct_document(node)


def _check(document: Node) -> None:
    """Refuse a document that holds itself, a key twice, or, its references followed, too many
    parts.
    """
    nums: dict[int, int | None] = {}

    def num_parts(node: Node) -> int:
        if isinstance(node, ScalarNode):
            return 1
        if id(node) in nums:
            known = nums[id(node)]
            if known is None:
                raise ExperimentError(
                    f"the value that begins in line {_line_of(node)} contains itself",
                    next_step="Write out what the reference (*) stands for.",
                )
            return known
        nums[id(node)], parts = None, node.value
        if isinstance(node, MappingNode):
            _check_keys([key for key, _ in node.value])
            parts = [part for pair in node.value for part in pair]
        nums[id(node)] = num = 1 + sum(map(num_parts, parts))
        return num

    if (found := num_parts(document)) > MAX_PARTS:
        raise ExperimentError(
            f"it contains {found:.3g} values once its references (*) are expanded",
            allowed=f"at most {MAX_PARTS:,}",
            next_step="Use fewer references, and none to parts that contain references.",
        )


def _check_keys(keys: list[Node]) -> None:
    first: dict[tuple[str, str], Node] = {}
    for key in keys:
        if not isinstance(key, ScalarNode):
            continue
        earlier = first.setdefault((str(key.tag), key.value), key)
        if earlier is not key:
            raise ExperimentError(
                f"the key {key.value} is in line {_line_of(earlier)} and again in line"
                f" {_line_of(key)}",
                next_step="Keep one of them.",
            )


def _line_of(node: Node) -> int:
    return node.start_mark.line + 1


class _Representer(SafeRepresenter):
    """Quotes texts with line breaks other than the usual ones, which plain scalars would lose."""

    def represent_str(self, data: str) -> ScalarNode:
        style = '"' if _LINE_BREAKS & set(data) else None
        return self.represent_scalar("tag:yaml.org,2002:str", data, style=style)


_Representer.add_representer(str, _Representer.represent_str)


def read_yaml(
    text: str, *, source: str = "the text", holds: str = EXPERIMENT_KEYS
) -> dict[str, Any]:
    """Parse one YAML document that holds a mapping.

    Args:
        text: YAML 1.2; JSON is a part of it.
        source: Where the text came from, for messages.
        holds: What it should hold, for messages.

    Raises:
        ExperimentError: If it is not valid YAML, or not a mapping.
    """
    yaml = YAML(typ="safe", pure=True)
    yaml.Constructor = _Constructor
    try:
        document = yaml.load(text)
    except ExperimentError as error:
        raise ExperimentError(
            f"{source}: {error.problem}", allowed=error.allowed, next_step=error.next_step
        ) from None
    # ValueError: dates and numbers that there are not; RecursionError: brackets without an end.
    except (YAMLError, ValueError, RecursionError) as error:
        found = _describe(error)
        indent = "Indent with spaces: YAML allows no tabs there." if r"'\t'" in found else None
        raise ExperimentError(f"{source} is not valid YAML: {found}", next_step=indent) from error
    if not isinstance(document, dict) or not all(isinstance(key, str) for key in document):
        found = "is empty" if document is None else "is not a mapping"
        raise ExperimentError(f"{source} {found}", allowed=holds)
    return document


def _describe(error: Exception) -> str:
    """Return what is wrong and where, in one line.

    The parser shows the place by a picture of several.
    """
    if not isinstance(error, MarkedYAMLError):
        return " ".join(str(error).split())
    places = [(error.problem, error.problem_mark), (error.context, error.context_mark)]
    return ", ".join(
        words if mark is None else f"{words} (line {mark.line + 1}, column {mark.column + 1})"
        for words, mark in places
        if words
    )


def read_yaml_file(path: Path, *, holds: str = EXPERIMENT_KEYS) -> dict[str, Any]:
    """Read a file that holds one YAML mapping.

    Args:
        path: The file.
        holds: What it should hold, for messages.

    Raises:
        ExperimentError: If the file cannot be read, or is no YAML mapping.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ExperimentError(
            f"cannot read {path}: {error.strerror}", next_step="Check the path."
        ) from error
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise ExperimentError(
            f"cannot read {path}: line {line} is not UTF-8, {encoding_in_words(error)}",
            allowed=holds,
            next_step="Save it as UTF-8 in an editor.",
        ) from error
    return read_yaml(text, source=str(path), holds=holds)


def write_yaml(document: dict[str, Any]) -> str:
    """Write a mapping in block style, small parts in one line, keys in their order."""
    yaml = YAML(typ="safe", pure=True)
    yaml.Representer = _Representer
    yaml.default_flow_style = None
    yaml.sort_base_mapping_type_on_output = False  # pyright: ignore[reportAttributeAccessIssue]
    yaml.width = 110
    buffer = io.StringIO()
    yaml.dump(document, buffer)
    return buffer.getvalue()
