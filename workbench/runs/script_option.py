"""One option of a script, wherever it is declared."""

from __future__ import annotations

import ast
import re
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
        is_positional: Whether it is passed by its place, without its name.
        is_required: Whether the script does not start without it.
        is_short: Whether it has only a name of one letter, such as -C.
    """

    name: str
    default: Any = None
    choices: tuple[Any, ...] = ()
    is_flag: bool = False
    kind: str | None = None
    is_positional: bool = False
    is_required: bool = False
    is_short: bool = False

    @property
    def stands_for(self) -> str:
        """The word that stands in a command until its value is written there, such as DATA_DIR."""
        return re.sub(r"\W", "_", self.name).upper()


def literal_of(node: ast.AST | None) -> Any:
    """Return the value of a literal in a source; None of anything else."""
    try:
        return None if node is None else ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError):
        return None


def called_name(call: ast.Call) -> str:
    """Return the last name of what is called."""
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
