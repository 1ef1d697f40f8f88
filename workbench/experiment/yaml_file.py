"""Reads and writes YAML 1.2. The experiment checks the content."""

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
# The most values, keys and groups in a document, with references expanded. A short text with
# references to references can expand to billions of values and use up the memory.
MAX_PARTS = 100_000
_PLAIN_WORDS = {
    "but got": "but there is",
    "but found": "but there is",
    "'<stream end>'": "the end of the file",
    "'<scalar>'": "a value",
    "'?'": "a key",
    "'<block mapping start>'": "a line that is indented further",
    "'<block end>'": "the end of what is indented",
    "'<document start>'": "a new document",
    "<block end>": "the end of what is indented",
    "found unexpected end of stream": "the closing quote is missing",
    "mapping values are not allowed here": "':' is not allowed here",
    "sequence entries are not allowed here": "'-' is not allowed here",
    "while parsing a flow sequence": "in the list that begins with '['",
    "while parsing a flow mapping": "in the mapping that begins with '{'",
    "while parsing a block mapping": "in the mapping that begins there",
    "while parsing a block collection": "in the list that begins there",
    "while scanning a quoted scalar": "in the quoted text",
    "while scanning a double-quoted scalar": "in the quoted text",
    "while scanning a simple key": "in the line",
    ", while scanning for the next token": "",
    "but there is another document": "a second document begins",
    "expected a single document in the stream": "after the first",
    "could not determine a constructor for the tag": "nothing is known by the tag",
    "that cannot start any token": "that cannot begin a value",
    "found undefined alias": "nothing is named by the anchor",
}
"""What the parser says, and what it means to someone who does not know YAML's grammar."""
_NEXT_STEPS = {
    r"'\t'": "Indent with spaces. YAML does not allow tabs there.",
    "that cannot begin a value": "Put the value in quotes.",
    "':' is not allowed here": "Put a value that contains ': ' in quotes, and begin each key in a"
    " line of its own.",
    "'-' is not allowed here": "Begin the list in a new line, or write it as [a, b].",
    "the closing quote is missing": "Close the quote.",
    "expected ',' or ']'": "Close the list with ], or separate its values with commas.",
    "expected ',' or '}'": "Close the mapping with }, or separate its keys with commas.",
    "could not find expected ':'": "Write a colon and a space after the key.",
    "but there is '}'": "This } closes nothing.",
    "but there is ']'": "This ] closes nothing.",
    "expected the end of what is indented": "Indent what belongs together equally.",
    "found unknown escape character": "Use single quotes, which leave a backslash as it is.",
    "a second document begins": "Write the experiments to a file each.",
    "nothing is known by the tag": "Put a value that begins with ! in quotes.",
    "nothing is named by the anchor": "Put a value that begins with * in quotes.",
}
"""What to do about a problem that contains these words. The first that fits counts."""


class _Constructor(SafeConstructor):
    """Builds the values of a document after a check of its size."""

    def construct_document(self, node: Node) -> Any:
        _check(node)
        return super().construct_document(node)


def _check(document: Node) -> None:
    """Raise an error for a document that contains itself, a key twice, or too many parts."""
    # The number of parts below a node, by its id. None while the node is being counted: a node
    # that is met again then contains itself.
    nums: dict[int, int | None] = {}

    def num_parts(node: Node) -> int:
        if isinstance(node, ScalarNode):
            return 1
        if id(node) in nums:
            known = nums[id(node)]
            if known is None:
                raise ExperimentError(
                    f"the value that starts in line {_line_of(node)} contains itself",
                    next_step="Replace the reference (*) by its value.",
                )
            return known
        nums[id(node)], parts = None, node.value
        if isinstance(node, MappingNode):
            _check_keys([key for key, _ in node.value])
            parts = [part for pair in node.value for part in pair]
        nums[id(node)] = num = 1 + sum(map(num_parts, parts))
        return num

    if (num := num_parts(document)) > MAX_PARTS:
        raise ExperimentError(
            f"it contains {num:.3g} values once its references (*) are expanded",
            allowed=f"at most {MAX_PARTS:,}",
            next_step="Use fewer references, and no references to references.",
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
    """Quotes text with unusual line breaks, which would be lost without quotes."""

    def represent_str(self, data: str) -> ScalarNode:
        style = None
        if _LINE_BREAKS & set(data):
            style = '"'
        return self.represent_scalar("tag:yaml.org,2002:str", data, style=style)


_Representer.add_representer(str, _Representer.represent_str)


def read_yaml(
    text: str, *, source: str = "the text", holds: str = EXPERIMENT_KEYS
) -> dict[str, Any]:
    """Parse one YAML document that holds a mapping.

    Args:
        text: YAML 1.2, which includes JSON.
        source: The origin of the text, for messages.
        holds: The expected content, for messages.

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
    # ValueError: a date that does not exist, such as 2024-02-30. RecursionError: thousands of
    # nested brackets.
    except (YAMLError, ValueError, RecursionError) as error:
        problem = _describe(error)
        steps = (step for cause, step in _NEXT_STEPS.items() if cause in problem)
        raise ExperimentError(
            f"{source} is not valid YAML: {problem}", next_step=next(steps, None)
        ) from error
    if document is None:
        raise ExperimentError(f"{source} is empty", allowed=holds)
    if not isinstance(document, dict) or not all(isinstance(key, str) for key in document):
        raise ExperimentError(f"{source} is not a mapping", allowed=holds)
    return document


def _describe(error: Exception) -> str:
    """Return the problem and its place in one line. The parser would draw several lines."""
    if not isinstance(error, MarkedYAMLError):
        return " ".join(str(error).split())
    places = [(error.problem, error.problem_mark), (error.context, error.context_mark)]
    problems: list[str] = []
    for words, mark in places:
        if words and mark is not None:
            words += f" (line {mark.line + 1}, column {mark.column + 1})"
        if words:
            problems.append(words)
    described = ", ".join(problems)
    for theirs, ours in _PLAIN_WORDS.items():
        described = described.replace(theirs, ours)
    return described


def read_yaml_file(path: Path, *, holds: str = EXPERIMENT_KEYS) -> dict[str, Any]:
    """Read a file that holds one YAML mapping.

    Args:
        path: The file.
        holds: The expected content, for messages.

    Raises:
        ExperimentError: If the file cannot be read, or is not a YAML mapping.
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
    """Write a mapping in block style, with small parts in one line and keys in their order."""
    yaml = YAML(typ="safe", pure=True)
    yaml.Representer = _Representer
    yaml.default_flow_style = None
    yaml.sort_base_mapping_type_on_output = False  # pyright: ignore[reportAttributeAccessIssue]
    yaml.width = 110
    buffer = io.StringIO()
    yaml.dump(document, buffer)
    return buffer.getvalue()
