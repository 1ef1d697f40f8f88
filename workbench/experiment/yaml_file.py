"""YAML 1.2 in and out, the form in which people keep experiments.

What the keys mean is left to the experiment.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError
from ruamel.yaml.nodes import ScalarNode
from ruamel.yaml.representer import SafeRepresenter

from workbench.errors import ExperimentError

_LINE_BREAKS = frozenset("\x85\u2028\u2029")


class _Representer(SafeRepresenter):
    """Quotes texts with line breaks other than the usual ones, which plain scalars would lose."""

    def represent_str(self, data: str) -> ScalarNode:
        style = '"' if _LINE_BREAKS & set(data) else None
        return self.represent_scalar("tag:yaml.org,2002:str", data, style=style)


_Representer.add_representer(str, _Representer.represent_str)


def read_yaml(text: str, *, source: str = "the text") -> dict[str, Any]:
    """Parse one YAML document that holds a mapping.

    Args:
        text: YAML 1.2; JSON is a part of it.
        source: Where the text came from, for messages.

    Raises:
        ExperimentError: If it is no YAML or no mapping.
    """
    try:
        document = YAML(typ="safe", pure=True).load(text)
    # ValueError: dates and numbers that there are not; RecursionError: brackets without an end.
    except (YAMLError, ValueError, RecursionError) as error:
        raise ExperimentError(f"{source} is no YAML: {' '.join(str(error).split())}") from error
    if not isinstance(document, dict) or not all(isinstance(key, str) for key in document):
        raise ExperimentError(
            f"{source} holds no mapping", allowed="an experiment: name, model, data, search, ..."
        )
    return document


def read_yaml_file(path: Path) -> dict[str, Any]:
    """Read a file that holds one YAML mapping.

    Raises:
        ExperimentError: If the file cannot be read, or is no YAML mapping.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8 text"
        raise ExperimentError(f"cannot read {path}: {reason}", next_step="Check the path.") from error
    return read_yaml(text, source=str(path))


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
