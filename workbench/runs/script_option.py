"""One option of a script, wherever it is declared."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class ScriptOption:
    """An option of a script.

    Attributes:
        name: Its name without dashes.
        default: Its default, if it is a literal; None otherwise.
        choices: Its choices, if they are literals.
        is_flag: Whether it takes no value and means true.
        kind: The name of its type, such as float.
    """

    name: str
    default: Any = None
    choices: tuple[Any, ...] = ()
    is_flag: bool = False
    kind: str | None = None


def literal_of(node: ast.AST | None) -> Any:
    """Return the value of a literal in a source; None of anything else."""
    try:
        return None if node is None else ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError):
        return None
