"""The user files that an experiment depends on.

They are its data, its modules with everything that they import, and files whose names occur as text
in the code: scripts that it starts, and data that they read. Files are parsed once and never
executed. A path that the code builds at run time is not found. Installed packages belong to the
environment of each machine.
"""

from __future__ import annotations

import ast
import functools
import itertools
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

from workbench.cluster.remote.code_origin import is_installed
from workbench.experiment import Component, Experiment
from workbench.experiment.trainings import weights_of
from workbench.foundation.artifacts import is_url
from workbench.foundation.registry import Registry
from workbench.models import MODELS

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

_WRITES = re.compile(
    r"(to|write|save|dump)(_|$)|savefig|savetxt|savez|connect$|FileHandler$|mkdir|touch|copy"
)
_WRITE_MODE = re.compile(r"[rwaxbt+]*[wax+][rwaxbt+]*")
_MAX_REMEMBERED = 4096
NOT_CODE = frozenset({"__pycache__", ".git", ".venv", ".ipynb_checkpoints", "node_modules"})
WORD = re.compile(r"[^\s\"'=,;:(){}\[\]<>|&$`]+")
_READ_AS_TEXT = frozenset({".sh", ".bash", ".mk", ".yaml", ".yml", ".toml", ".json"})
BUILD_FILES = ("GNUmakefile", "makefile", "Makefile", "justfile", "Justfile", "Taskfile.yml")
"""Files that programs such as make read although their command does not contain the name."""
_MAX_TEXT_BYTES = 2**20
_MAX_NAME_CHARS = 255
_MAX_FILES = 10_000


@dataclass(frozen=True)
class ParsedCode:
    """What is read from a Python file, or nothing if it cannot be parsed."""

    imports: frozenset[str] = frozenset()
    """The top-level names that it imports, at any place."""
    texts: tuple[str, ...] = ()
    """Its texts, without the docstrings."""
    words: frozenset[str] = frozenset()
    """These texts and the words in them, which may be paths."""
    written: frozenset[str] = frozenset()
    """The texts in calls that write to a file, as far as their names and modes show."""
    executes: bool = False
    """Whether it calls `exec` or `compile`, to which it may give the text of a file."""


def parse_code(path: Path) -> ParsedCode:
    """Parse a Python file, unless it was parsed with the same size and time of change.

    Args:
        path: The file.
    """
    try:
        stat = path.stat()
    except OSError:
        return ParsedCode()
    return _parse(path, stat.st_size, stat.st_mtime_ns)


@functools.lru_cache(maxsize=_MAX_REMEMBERED)
def _parse(path: Path, size_bytes: int, modified_ns: int) -> ParsedCode:
    try:
        tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return ParsedCode()
    imports: set[str] = set()
    texts: dict[int, str] = {}
    docstrings: set[int] = set()
    written: set[str] = set()
    executes = False
    for node in ast.walk(tree):
        match node:
            case ast.Constant(value=str(text)):
                texts[id(node)] = text
            case ast.Expr():
                docstrings.add(id(node.value))
            case ast.Import():
                imports |= {alias.name.partition(".")[0] for alias in node.names}
            case ast.ImportFrom(module=str(module), level=0):
                imports.add(module.partition(".")[0])
            case ast.Call():
                written |= set(_texts_in(node)) if _writes_to_file(node) else set()
                executes |= getattr(node.func, "id", "") in ("exec", "compile")
    without_docstrings = tuple(text for key, text in texts.items() if key not in docstrings)
    return ParsedCode(
        imports=frozenset(imports),
        texts=without_docstrings,
        words=_words_in(without_docstrings),
        written=frozenset(written),
        executes=executes,
    )


def _texts_in(node: ast.AST) -> Iterator[str]:
    for below in ast.walk(node):
        if isinstance(below, ast.Constant) and isinstance(below.value, str):
            yield below.value


def _writes_to_file(call: ast.Call) -> bool:
    name = getattr(call.func, "attr", None) or getattr(call.func, "id", "")
    if name == "open":
        return any(_WRITE_MODE.fullmatch(text) for text in _texts_in(call))
    return bool(_WRITES.match(name))


def components_of(experiment: Experiment) -> list[Component]:
    """Return all components that an experiment names."""
    components = [
        experiment.model,
        experiment.data,
        experiment.train,
        experiment.loss,
        *experiment.own_metrics,
    ]
    for setting in ("optimizer", "schedule", "gradient_hook"):
        searched = experiment.search.root.get(setting)
        named = [
            getattr(experiment.training, setting),
            *((searched.values() or []) if searched else []),
        ]
        components += [Component(name=str(name)) for name in named if ":" in str(name)]
    return [component for component in components if component is not None]


def modules_of(experiment: Experiment) -> list[str]:
    """Return the modules of an experiment's components, except for modules of the workbench."""
    names = [
        item.name.partition(":")[0]
        for item in components_of(experiment)
        if item.is_reference and item.payload_hash is None
    ]
    return sorted({name for name in names if name.partition(".")[0] != "workbench"})


class NamedPath(NamedTuple):
    """A file or folder that an experiment names.

    Attributes:
        field: The dotted field in which it stands, such as `data.path`.
        path: The path or URL as the user wrote it.
    """

    field: str
    path: str

    @property
    def is_relative(self) -> bool:
        """Whether it is relative to the folder of the run."""
        return not (self.path.startswith("~") or is_url(self.path) or Path(self.path).is_absolute())

    @property
    def is_required(self) -> bool:
        """Whether it is surely a path. An option of your own model may only be called like one."""
        return self.field in ("data.path", "training.weights")

    def file_from(self, folder: Path) -> Path:
        """Return the file or folder that is meant. The name of a sheet in it does not belong to it.

        Args:
            folder: The folder from which a relative path leads.
        """
        from workbench.data.table_formats import split_part

        return split_part(folder / Path(self.path).expanduser())[0]


def named_paths(experiment: Experiment) -> list[NamedPath]:
    """Return the paths of the data, of the model, and of weights that training starts with.

    An option is a path if it is declared as one, or if its name is `path` or ends in `_path`. That
    is so for your own classes and functions as well.
    """
    from workbench.data import DATASETS  # which imports numpy, and `import workbench` does not

    paths: list[NamedPath] = []
    for section, registry in (("data", DATASETS), ("model", MODELS)):
        component = getattr(experiment, section)
        if component is None:
            continue
        paths += [
            NamedPath(f"{section}.{option}", str(component.options[option]))
            for option in _path_options(component, registry)
            if isinstance(component.options[option], str | Path) and component.options[option]
        ]
    return paths + [NamedPath("training.weights", path) for path in weights_of(experiment)]


def _path_options(component: Component, registry: Registry) -> list[str]:
    """Return the names of the options that an experiment sets and that are paths."""
    declared: Mapping[str, FieldInfo] = {}
    if not component.is_reference:
        declared = getattr(registry.load(component.name), "model_fields", {})
    return [
        name
        for name in component.options
        if name == "path"
        or name.endswith("_path")
        or (name in declared and _accepts_path(declared[name].annotation))
    ]


def _accepts_path(annotation: Any) -> bool:
    return annotation is Path or any(_accepts_path(part) for part in get_args(annotation))


def with_paths(experiment: Experiment, paths: Mapping[str, Path]) -> Experiment:
    """Return the experiment with other paths.

    Args:
        experiment: The experiment.
        paths: The new path by dotted field. The fields are those of its data and its model.
    """
    for section in ("data", "model"):
        changed = {
            field.partition(".")[2]: str(path)
            for field, path in paths.items()
            if field.partition(".")[0] == section
        }
        if changed:
            component = getattr(experiment, section)
            experiment = experiment.replace(
                **{section: {"name": component.name, **component.options, **changed}}
            )
    return experiment


def with_paths_in(experiment: Experiment, folder: Path) -> Experiment:
    """Return the experiment with its data and its model where relative paths lead from a folder.

    If there is nothing at a path, it stays as it is. It may not be a path at all.
    """
    return with_paths(
        experiment,
        {
            named.field: folder / named.path
            for named in named_paths(experiment)
            if named.is_relative and named.file_from(folder).exists()
        },
    )


def files_of(modules: Iterable[str], search_path: Sequence[str]) -> dict[str, Path]:
    """Find the files of modules and of all user modules that they import.

    Args:
        modules: Names of modules. All files of a package are included.
        search_path: The folders to search first, as in `sys.path`.

    Returns:
        The path of each file, by its name relative to the entry of the search path.
    """
    return ModuleFiles().files_of(modules, search_path)


@dataclass(frozen=True)
class ModulePlace:
    """Where a module of the user lies: a package's folder, or a file."""

    files: Mapping[str, Path]
    """The path of each file, by its name relative to the entry of the search path."""
    imports: frozenset[str]
    """The top-level names that its files import."""


class ModuleFiles:
    """Finds the files of modules, and looks at a module and at a folder only once."""

    def __init__(self) -> None:
        self._search_path = tuple(entry or "." for entry in sys.path)
        self._modules: dict[tuple[str, tuple[str, ...]], _Module | None] = {}
        self._places: dict[Path, ModulePlace] = {}

    def files_of(self, modules: Iterable[str], search_path: Sequence[str]) -> dict[str, Path]:
        """Find the files of modules, as `files_of` does.

        Args:
            modules: Names of modules.
            search_path: The folders to search first.
        """
        places = self.places_of(modules, search_path)
        return {name: path for place in places.values() for name, path in place.files.items()}

    def places_of(
        self, modules: Iterable[str], search_path: Sequence[str]
    ) -> dict[Path, ModulePlace]:
        """Find where modules lie, and all user modules that they import.

        Args:
            modules: Names of modules.
            search_path: The folders to search first.

        Returns:
            The places, by the paths of their folders or files.
        """
        places: dict[Path, ModulePlace] = {}
        waiting, seen = {name.partition(".")[0] for name in modules}, {"workbench"}
        while waiting := waiting - seen:
            top = waiting.pop()
            seen.add(top)
            for folder in self._folders_of(top, search_path):
                if folder not in self._places:
                    self._places[folder] = _place_at(folder)
                places[folder] = self._places[folder]
                waiting |= places[folder].imports
        return places

    def _folders_of(self, top: str, search_path: Sequence[str]) -> tuple[Path, ...]:
        first = tuple(entry or "." for entry in search_path)
        for entries in (*((entry,) for entry in first), self._search_path):
            module = self._look(top, entries)
            if module is not None and module.is_namespace:
                # It may go on in other entries, and a module there has precedence.
                module = self._look(top, (*first, *self._search_path))
            if module is not None:
                return module.folders
        return ()

    def _look(self, top: str, entries: tuple[str, ...]) -> _Module | None:
        if (top, entries) not in self._modules:
            spec = PathFinder.find_spec(top, entries)
            self._modules[top, entries] = None if spec is None else _module_of(spec)
        return self._modules[top, entries]


class _Module(NamedTuple):
    """Where Python finds a module, without the folders of installed packages."""

    folders: tuple[Path, ...]
    is_namespace: bool
    """Whether it is made of folders without `__init__.py`."""


def _module_of(spec: ModuleSpec) -> _Module:
    places = list(spec.submodule_search_locations or [spec.origin or ""])
    folders = (Path(place).absolute() for place in places if place and not is_installed(place))
    return _Module(tuple(folders), is_namespace=spec.loader is None)


def _place_at(folder: Path) -> ModulePlace:
    files: dict[str, Path] = {}
    imports: set[str] = set()
    for path in sorted(folder.rglob("*")) if folder.is_dir() else [folder]:
        name = path.relative_to(folder.parent)
        if NOT_CODE.isdisjoint(name.parts) and path.is_file():
            files[name.as_posix()] = path
            imports |= parse_code(path).imports if path.suffix == ".py" else set()
    return ModulePlace(files, frozenset(imports))


@dataclass
class NamedFiles:
    """What texts name below a folder."""

    files: dict[str, Path] = field(default_factory=dict)
    """The path of each file to copy, by its name relative to the folder."""
    too_large: list[str] = field(default_factory=list)
    """What was named but does not fit within the limit."""


def find_named_files(
    values: Iterable[object],
    code: Mapping[str, Path],
    directory: Path,
    *,
    max_bytes: int,
    modules: ModuleFiles | None = None,
) -> NamedFiles:
    """Find the files that options and code name, and what scripts among them name and import.

    Args:
        values: Values of options and parameters.
        code: The files of the code, by their name.
        directory: The folder to which names are relative.
        max_bytes: The limit on all files together.
        modules: The modules that were looked at already.
    """
    modules = ModuleFiles() if modules is None else modules
    named = NamedFiles()
    num_bytes = 0
    resolved: dict[Path, Path] = {}

    def is_new(path: Path) -> bool:
        if path not in resolved:
            resolved[path] = path.resolve()
        return resolved[path] not in seen

    seen = {path.resolve() for path in code.values()}
    names = _Names(directory)
    # Values come first, so that their files are those for which there is room.
    waiting = [_words_in(_texts_in_value(list(values))), *map(_words_of, code.values())]
    for words in waiting:  # which grows
        for name in names.untried_among(words):
            for paths in _groups(directory / name, directory, modules):
                new = [path for path in paths if is_new(path)]
                size = sum(path.stat().st_size for path in new)
                if num_bytes + size > max_bytes or len(paths) > _MAX_FILES:
                    named.too_large.append(name)
                    continue
                num_bytes += size
                for path in new:
                    seen.add(resolved[path])
                    named.files[path.relative_to(directory).as_posix()] = path
                    waiting.append(_words_of(path))
    return named


class _Names:
    """The words in texts that may be paths below a folder, and that have not been tried before."""

    def __init__(self, directory: Path) -> None:
        try:
            # In any case of letters, as some file systems find them.
            self._top_names = {name.casefold() for name in os.listdir(directory)}
        except OSError:
            self._top_names = set()
        self._words: set[str] = set()
        self._tried: set[str | None] = set()

    def untried_among(self, words: frozenset[str]) -> list[str]:
        """Return the relative paths that words may be, in alphabetical order."""
        names = {self._path_of(word) for word in words - self._words}
        self._words |= words
        untried = sorted(name for name in names - self._tried if name is not None)
        self._tried |= set(untried)
        return untried

    def _path_of(self, word: str) -> str | None:
        if not 0 < len(word) <= _MAX_NAME_CHARS or "\0" in word:
            return None
        path = Path(word)
        if (
            not path.parts
            or path.is_absolute()
            or ".." in path.parts
            or path.parts[0].startswith(("~", "."))
        ):
            return None
        is_there = path.parts[0].casefold() in self._top_names
        return path.as_posix() if is_there and NOT_CODE.isdisjoint(path.parts) else None


def _groups(path: Path, directory: Path, modules: ModuleFiles) -> list[list[Path]]:
    """Return what belongs to a name: a folder, or a file and the modules that a script imports."""
    try:
        if path.is_file() and path.suffix != ".py":
            return [[path]]
        if path.is_file():
            places = modules.places_of(parse_code(path).imports, [str(path.parent)])
            imported = [
                file
                for folder, place in places.items()
                if folder.is_relative_to(directory) or directory.is_relative_to(folder)
                for file in place.files.values()
                if file.is_relative_to(directory)
            ]
            return [[path, *imported]]
        below = sorted(itertools.islice(path.rglob("*"), _MAX_FILES + 1)) if path.is_dir() else []
    except OSError:
        return []
    if len(below) > _MAX_FILES:
        return [below]
    return [[file for file in below if file.is_file() and NOT_CODE.isdisjoint(file.parts)]]


def _words_of(path: Path) -> frozenset[str]:
    """Return what may be a path in a file of code or configuration, without the docstrings."""
    try:
        is_text = path.suffix in {".py", *_READ_AS_TEXT} or path.name in BUILD_FILES
        if not is_text or path.stat().st_size > _MAX_TEXT_BYTES:
            return frozenset()
        if path.suffix == ".py":
            return parse_code(path).words
        return _words_in([path.read_text(encoding="utf-8")])
    except (OSError, ValueError):
        return frozenset()


def _words_in(texts: Iterable[str]) -> frozenset[str]:
    """Return texts as they are, and the words in them."""
    return frozenset(word for text in texts for word in (text.strip(), *WORD.findall(text)))


def _texts_in_value(value: object) -> list[str]:
    """Return the texts in a value, at any depth."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, Mapping):
        return _texts_in_value(list(value.values()))
    if not isinstance(value, list | tuple):
        return []
    return [text for item in value for text in _texts_in_value(item)]
