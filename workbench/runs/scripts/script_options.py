"""One option of a script, wherever it is declared, and whether it is a place to write to.

Every trial writes into its own folder. A place that all trials share would keep only what the last
one wrote.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Literal

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
_COUNTS = frozenset(("num", "n", "number", "count", "use", "no", "fix", "with"))
"""Words before "seed" that make it no seed."""
_READ = frozenset(
    ("load", "resume", "input", "init", "restore", "from", "pretrained", "teacher", "data")
)
_SHARED = frozenset(
    (
        *_READ,
        *("cache", "dataset", "datasets", "download", "downloads", "hub", "hf", "tokenizer"),
        *("config", "image", "images"),
    )
)
"""Words of folders that all trials share, such as that of downloaded models."""
_OFTEN_READ = frozenset(
    ("checkpoint", "checkpoints", "ckpt", "ckpts", "snapshot", "run", "exp", "experiment")
)
"""Words of paths that a script is more likely to read, such as `--checkpoint-path`."""
_CHECKPOINTS = frozenset(("checkpoint", "checkpoints", "ckpt", "ckpts", "snapshot", "snapshots"))
_KEPT = frozenset((*_OFTEN_READ, "logs", "outputs", "output", "runs", "results", "snapshots"))
"""Names of folders that a program writes: `./ckpts`. A file that it reads has an ending."""
_NAMES = frozenset(("args", "opt", "opts", "FLAGS", "flags", "arguments", "parsed"))
"""What programs call their options."""
_WRITERS = frozenset(
    (
        *("makedirs", "mkdir", "SummaryWriter", "create_file_writer", "FileWriter", "FileHandler"),
        *("CheckpointManager", "Checkpointer", "PyTreeCheckpointer", "TensorBoardLogger"),
        *("CSVLogger", "RunConfig", "save_pretrained", "save_checkpoint", "save_weights"),
    )
)
"""Functions that write below the folder that they are given."""
_PATHS = frozenset(("join", "Path", "expanduser", "abspath", "realpath", "str"))
"""Functions whose result is a path of a path."""
_SAYS_FOLDER = re.compile(r"\b(?:folder|directory|dir)\b", re.IGNORECASE)
_SAYS_WRITTEN = re.compile(
    r"\b(?:(?:where|to) (?:save|store|write|log|keep)"
    r"|(?:save|write|store)s? (?:\w+ ){1,3}(?:to|in))\b",
    re.IGNORECASE,
)
"""What the help of a folder says if a program writes there: "folder where to save"."""
_SAYS_READ = re.compile(
    r"\b(?:resum\w+|restor\w+|load\w*)\b.*\b(?:from|training|checkpoint)|to resume"
)
"""What the help of a path says if a program reads it."""
_NAMES_FILE = frozenset((*_FILE, "name", "suffix"))
"""Words of a part of the name of a file, which is no folder."""
_OF_LIGHTNING = frozenset(("default", "root", "dir"))
_JOINED = re.compile(
    r"^(out|output|save|log|work|result|results|run|exp|checkpoint|ckpt|base)(dir|folder|path|file)$"
)


_KEPT_WALKS = (ast.Module, ast.FunctionDef, ast.ClassDef)


def walk(root: ast.AST) -> list[ast.AST]:
    """Return a node and all nodes below it, as `ast.walk` does, without contexts: `ast.Load`.

    Modules, classes and functions remember the answer, because they are asked for it many times.

    Args:
        root: A node of a tree that does not change any more.
    """
    known = root.__dict__.get("walked")
    if known is not None:
        return known
    nodes = [root]
    for node in nodes:  # it grows while it is read
        nodes += children_of(node)
    if isinstance(root, _KEPT_WALKS):
        root.__dict__["walked"] = nodes
    return nodes


def children_of(node: ast.AST) -> list[ast.AST]:
    """Return the nodes of which a node consists, in their order, without its context."""
    children: list[ast.AST] = []
    for name in _fields_of(type(node)):
        value = getattr(node, name, None)
        if isinstance(value, list):
            children += [item for item in value if isinstance(item, ast.AST)]
        elif isinstance(value, ast.AST):
            children.append(value)
    return children


@functools.cache
def _fields_of(kind: type[ast.AST]) -> tuple[str, ...]:
    """Return the fields of a kind of nodes that hold other nodes."""
    if issubclass(kind, ast.Constant | ast.expr_context | ast.operator | ast.cmpop):
        return ()
    return tuple(name for name in kind._fields if name not in _NO_NODES)


_NO_NODES = frozenset(("ctx", "id", "attr", "arg", "type_comment"))


Way = Literal[
    "option",
    "apart",
    "single",
    "positional",
    "switch",
    "off",
    "both",
    "python",
    "assigned",
    "variable",
    "constant",
    "parameter",
    "wandb",
    "listed",
    "fixed",
]
"""How a program takes a value:

- option: `--name=value`
- apart: `--name value`
- single: `-name value`
- positional: by its place
- switch: `--name` means true
- off: `--no-name` means false
- both: `--name` or `--no-name`
- python: `--name=value`, with values of Python such as True
- assigned: `name=value`
- variable: an environment variable
- constant: a constant of a file, which is replaced
- parameter: `-p name value`, for papermill
- wandb: `wandb.config`
- listed: in the value of one option, as in `--hparams=lr=0.1,width=8`
- fixed: it cannot be passed as the value of a parameter
"""
_FLAG_WAYS = ("switch", "off", "both")


@dataclass(frozen=True)
class ScriptOption:
    """An option of a script.

    Attributes:
        name: Its name without dashes.
        default: Its default, if it is known, else None.
        choices: Its choices, if they are known.
        kind: Its type: int, float, bool, str or path. None if it is not known.
        way: How the script takes its value.
        is_required: Whether the script does not start without it.
        text: What its help says.
        is_own: Whether the script itself declares it, rather than a library.
        file: The file in which a constant is replaced. None of all other options.
        is_of_model: Whether the model of the program is made with it.
        needs: The option, and its values, without which it has no effect. None if it always has.
            The default of that option may be among the values.
        dest: The name by which the code reads it. Empty if that is its own name.
        has_effect: Whether another value changes what is trained, as far as the source shows.
        is_seed: Whether the source uses it as the seed of a generator.
        uses: For what the source uses it: kinds of `use_kinds`.
        called: The words of the keywords and parameters that it is passed as.
    """

    name: str
    default: Any = None
    choices: tuple[Any, ...] = ()
    kind: str | None = None
    way: Way = "option"
    is_required: bool = False
    text: str = ""
    is_own: bool = True
    file: Path | None = None
    is_of_model: bool = False
    needs: tuple[str, tuple[Any, ...]] | None = None
    dest: str = ""
    has_effect: bool = True
    is_seed: bool = False
    uses: frozenset[str] = frozenset()
    called: frozenset[str] = frozenset()

    @property
    def is_flag(self) -> bool:
        """Whether it is true or false."""
        return self.way in _FLAG_WAYS or self.kind == "bool" or isinstance(self.default, bool)

    @property
    def takes_seed(self) -> bool:
        """Whether it takes the seed of a generator of random numbers, which is never searched."""
        is_number = self.kind == "int" or (self.kind is None and type(self.default) is int)
        return is_number and (self.is_seed or is_seed_name(self.name.rpartition(".")[2]))

    @property
    def is_positional(self) -> bool:
        """Whether it is passed by its place, without its name."""
        return self.way == "positional"

    @property
    def stands_for(self) -> str:
        """The placeholder in a command until a value is written there, such as DATA_DIR."""
        return re.sub(r"\W", "_", self.name).upper()


def plain_name(option: ScriptOption) -> str:
    """Return the name by which a program knows an option."""
    return option.dest or option.name.rpartition(".")[2].replace("-", "_")


def is_seed_name(name: str) -> bool:
    """Return whether a name is usual for the seed of a generator of random numbers.

    Example:
        >>> from workbench.runs.scripts.script_options import is_seed_name
        >>> [is_seed_name(name) for name in ("manualSeed", "random-state", "num_seeds")]
        [True, True, False]
    """
    *before, last = name_words(name)
    if last in ("state", "value", "everything"):
        return bool(before) and before[-1] == ("random" if last == "state" else "seed")
    return last.endswith("seed") and not _COUNTS & set(before)


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
    words = words_of(option.name.rpartition(".")[2])
    if option.name.endswith("default_root_dir"):
        words = _OF_LIGHTNING
    is_said = words & _FOLDER and not words & _SHARED and _SAYS_WRITTEN.search(option.text)
    is_written = _is_written(words) or _keeps_checkpoints(words, option.default)
    # A folder of checkpoints that must be given has what a training starts from.
    is_start = option.is_required and words & _CHECKPOINTS and words <= _CHECKPOINTS | _PLACE
    if is_start or (not is_written and not is_said):
        return None
    if words & _FOLDER:
        return "{folder}"
    if not option.default and _SAYS_FOLDER.search(option.text):
        return "{folder}"
    if not option.default:
        # As a file or as a folder that the script makes: its name does not show which.
        name = re.sub(r"[^a-zA-Z0-9]", "_", option.name)
        return f"{{folder}}/{name}" if option.is_required else None
    last = PurePosixPath(option.default)
    if option.way == "assigned" and "prefix" in words and len(last.parts) < 2:
        return None  # the beginning of a name in another folder
    if last.suffix or words & _FILE:
        return f"{{folder}}/{re.sub(r'[^a-zA-Z0-9_.-]', '_', last.name)}"
    return "{folder}"


def last_name(node: ast.AST | None) -> str:
    """Return the last part of a dotted name, or "" for anything else."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def name_words(name: str) -> tuple[str, ...]:
    """Return the words of a name in lower case, in their order.

    Args:
        name: The name, with words in any style.

    Example:
        >>> from workbench.runs.scripts.script_options import name_words
        >>> name_words("optimizer.learningRate")
        ('optimizer', 'learning', 'rate')
    """
    parted = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()
    return tuple(word for word in re.split(r"[-_.]+", parted) if word)


def words_of(name: str) -> frozenset[str]:
    """Return the words of a name, with those that are joined: `outdir` is `out` and `dir`."""
    words: list[str] = []
    for part in name_words(name):
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


def _keeps_checkpoints(words: frozenset[str], default: str | None) -> bool:
    """Return whether a place of checkpoints is a folder to write: `--checkpoint-path ./ckpts`."""
    if not default or words & _READ or not words & _CHECKPOINTS:
        return False
    last = PurePosixPath(default)
    own = frozenset(name_words(last.name))
    return words <= _OFTEN_READ | _PLACE and not last.suffix and bool(own) and own <= _KEPT


def places_in_source(trees: Iterable[ast.Module], options: Iterable[ScriptOption]) -> set[str]:
    """Return the options that name a folder in which a program writes, as its source shows.

    Trials that share such a folder overwrite the checkpoints of each other, or start from them.

    Args:
        trees: The parsed files of the program.
        options: Its options.
    """
    nodes = [node for tree in trees for node in walk(tree)]
    calls = [node for node in nodes if isinstance(node, ast.Call)]
    assigned = [node for node in nodes if isinstance(node, ast.Assign)]
    places: set[str] = set()
    for option in options:
        name = option.name.replace("-", "_")
        if not _may_be_folder(option) or "." in name:
            continue
        is_folder = bool(words_of(name) & {*_FOLDER, "path"})
        uses = [node for node in nodes if _is_use(node, name)]
        joined = {
            id(part)
            for call in calls
            if called_name(call) in _PATHS
            for argument in call.args
            for part in walk(argument)
        }
        if not is_folder and not (uses and all(id(use) in joined for use in uses)):
            continue
        known = {name} if is_folder else _assigned_to(assigned, {id(use) for use in uses})
        for _ in range(2):
            known |= _derived_from(assigned, known)
        if any(_writes_below(call, known) for call in calls):
            places.add(option.name)
    return places


def _may_be_folder(option: ScriptOption) -> bool:
    """Return whether the value of an option may be the name of a folder to write."""
    if option.is_flag or option.choices or option.kind in ("int", "float", "bool"):
        return False
    if not isinstance(option.default, str | None) or option.way in ("constant", "wandb", "fixed"):
        return False
    words = words_of(option.name)
    if words & _CHECKPOINTS and (option.is_required or not option.default):
        return False  # a training starts from it
    if words & _NAMES_FILE or _SAYS_READ.search(option.text):
        return False
    return not words & _SHARED and not PurePosixPath(option.default or "").suffix


def _is_use(node: ast.AST, name: str) -> bool:
    if not isinstance(node, ast.Attribute) or node.attr != name:
        return False
    return isinstance(node.value, ast.Name) and node.value.id in _NAMES


def _assigned_to(assigned: list[ast.Assign], uses: set[int]) -> set[str]:
    """Return the names of the paths that are made of an option."""
    return {
        last_name(target)
        for node in assigned
        if _is_path(node.value) and any(id(part) in uses for part in walk(node.value))
        for target in node.targets
    } - {""}


def _derived_from(assigned: list[ast.Assign], known: set[str]) -> set[str]:
    return {
        last_name(target)
        for node in assigned
        if _is_path(node.value) and _names_of(node.value) & known
        for target in node.targets
    } - {""}


def _is_path(node: ast.expr) -> bool:
    """Return whether an expression only makes a path."""
    return all(called_name(part) in _PATHS for part in walk(node) if isinstance(part, ast.Call))


def _writes_below(call: ast.Call, known: set[str]) -> bool:
    if called_name(call) not in _WRITERS:
        return False
    given = [*call.args, *(word.value for word in call.keywords)]
    if called_name(call) == "mkdir" and isinstance(call.func, ast.Attribute):
        given.append(call.func.value)
    return any(_names_of(argument) & known for argument in given)


def _names_of(node: ast.expr) -> set[str]:
    return {last_name(part) for part in walk(node)} - {""}
