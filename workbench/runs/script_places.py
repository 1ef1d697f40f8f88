"""Where a script writes its results.

Which of its options names the place, and what to pass for a trial.

Every trial has a folder of its own; a place that all trials share would keep only what the last one
wrote.
"""

from __future__ import annotations

import re
from pathlib import PurePosixPath

from workbench.runs.script_option import ScriptOption

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
"""What a script rather reads where its path or file is named, such as `--checkpoint-path`."""
_OF_LIGHTNING = frozenset(("default", "root", "dir"))
_JOINED = re.compile(
    r"^(out|output|save|log|work|result|results|run|exp|checkpoint|ckpt)(dir|folder|path|file)$"
)


def place_for_trial(option: ScriptOption) -> str | None:
    """Return what to pass as an option so that each trial writes into its own folder.

    None of another option.

    Example:
        >>> from workbench.runs.script_option import ScriptOption
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
        return (
            f"{{folder}}/{re.sub(r'[^a-zA-Z0-9]', '_', option.name)}"
            if option.is_required
            else None
        )
    last = PurePosixPath(option.default)
    if last.suffix or words & _FILE:
        return f"{{folder}}/{re.sub(r'[^a-zA-Z0-9_.-]', '_', last.name)}"
    return "{folder}"


def _words(name: str) -> frozenset[str]:
    """Return the words of a name: `outDir`, `out_dir` and `outdir` have the same."""
    parts = re.split(r"[-_.]", re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower())
    found: list[str] = []
    for part in parts:
        joined = _JOINED.match(part)
        found += [part] if joined is None else joined.groups()
    return frozenset(found)


def _is_written(words: frozenset[str]) -> bool:
    """Return whether the words of a name are those of a place that is written."""
    if words & _READ:
        return False
    if words >= _OF_LIGHTNING:
        return True
    if not words <= _BESIDE:
        # Groups and what is kept there may stand before it: `paths.output_dir`, `trainer.log_dir`.
        return bool(words & _OUT or "save" in words or "log" in words) and bool(words & _FOLDER)
    if words & _OUT or words == {"save"}:
        return True
    if not words & _WRITTEN or not words & _PLACE:
        return False
    return bool(words & _FOLDER or "save" in words) or not words & _OFTEN_READ
