"""One option of a script, wherever it is declared, and whether it is a place to write to.

Every trial writes into its own folder. A place that all trials share would keep only what the last
one wrote.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

_OUT = frozenset(("out", "output", "outputs"))
_WRITTEN = frozenset(
    (
        *_OUT,
        "save",
        "log",
        "logs",
        "logging",
        "checkpoint",
        "checkpoints",
        "ckpt",
        "ckpts",
        "result",
        "results",
        "run",
        "runs",
        "work",
        "exp",
        "experiment",
        "export",
        "dump",
        "tensorboard",
        "tb",
        "artifact",
        "artifacts",
        "snapshot",
        "snapshots",
        "metrics",
        "predictions",
    )
)
_FOLDER = frozenset(("dir", "directory", "folder"))
_FILE = frozenset(("file", "filename", "prefix"))
_PLACE = frozenset((*_FOLDER, *_FILE, "path", "to", "root"))
_BESIDE = frozenset((*_WRITTEN, *_PLACE, "model", "best", "final", "trained", "weights"))
"""What else the name of a place may consist of: `output_size` is no place."""
_READ = frozenset(
    ("load", "resume", "input", "init", "restore", "from", "pretrained", "teacher", "data")
)
_OFTEN_READ = frozenset(
    ("checkpoint", "checkpoints", "ckpt", "ckpts", "snapshot", "run", "exp", "experiment")
)
"""Words of paths that a script is more likely to read, such as `--checkpoint-path`."""
_OF_LIGHTNING = frozenset(("default", "root", "dir"))
_JOINED = re.compile(
    r"^(out|output|save|log|work|result|results|run|exp|checkpoint|ckpt)(dir|folder|path|file)$"
)


@dataclass(frozen=True)
class ScriptOption:
    """An option of a script.

    Attributes:
        name: Its name without dashes.
        default: Its default, if it is a literal, else None.
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
        """The placeholder in a command until a value is written there, such as DATA_DIR."""
        return re.sub(r"\W", "_", self.name).upper()


def literal_of(node: ast.AST | None) -> Any:
    """Return the value of a literal in a source, or None for anything else."""
    try:
        return node and ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError):
        return None


def called_name(call: ast.Call) -> str:
    """Return the last name of a called function."""
    if isinstance(call.func, ast.Attribute):
        return call.func.attr
    return getattr(call.func, "id", "")


def place_for_trial(option: ScriptOption) -> str | None:
    """Return what to pass as an option so that each trial writes into its own folder.

    None of another option.

    Example:
        >>> from workbench.runs.scripts.script_options import ScriptOption
        >>> place_for_trial(ScriptOption("out-dir", default="runs/first"))
        '{folder}'
        >>> place_for_trial(ScriptOption("save", default="runs/model.pt"))
        '{folder}/model.pt'
    """
    if option.is_flag or option.choices or option.kind in ("int", "float", "bool"):
        return None
    if not isinstance(option.default, str | None):
        return None
    words = _words(option.name)
    if not _is_written(words):
        return None
    if words & _FOLDER:
        return "{folder}"
    if not option.default:
        # As a file or as a folder that the script makes: its name does not show which.
        name = re.sub(r"[^a-zA-Z0-9]", "_", option.name)
        return f"{{folder}}/{name}" if option.is_required else None
    last = PurePosixPath(option.default)
    if last.suffix or words & _FILE:
        return f"{{folder}}/{re.sub(r'[^a-zA-Z0-9_.-]', '_', last.name)}"
    return "{folder}"


def _words(name: str) -> frozenset[str]:
    """Return the words of a name: `outDir`, `out_dir` and `outdir` have the same."""
    parts = re.split(r"[-_.]", re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower())
    words: list[str] = []
    for part in parts:
        joined = _JOINED.match(part)
        words += [part] if joined is None else joined.groups()
    return frozenset(words)


def _is_written(words: frozenset[str]) -> bool:
    """Return whether the words of a name mean a place that is written."""
    if words & _READ:
        return False
    if words >= _OF_LIGHTNING:
        return True
    if not words <= _BESIDE:
        # Groups and contents may precede it: `paths.output_dir`, `trainer.log_dir`.
        return bool(words & _OUT or "save" in words or "log" in words) and bool(words & _FOLDER)
    if words & _OUT or words == {"save"}:
        return True
    if not words & _WRITTEN or not words & _PLACE:
        return False
    return bool(words & _FOLDER or "save" in words) or not words & _OFTEN_READ
