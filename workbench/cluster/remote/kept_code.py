"""Keeps the code of a run when it starts, and finds everything else that its trials depend on.

Source files are kept: those of the experiment, those that they import, and those next to them.
Secrets are skipped. Data, programs and installed packages cannot be kept. A fingerprint of them
shows whether they have changed. If each trial has its own working folder, this also decides what is
copied into it. `programs.kept_imports` imports the copy, and the driver decides
which version of the code a trial runs.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import io
import json
import os
import re
import shutil
import sys
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from workbench.cluster.remote.code_archive import LEFT_OUT, unpacked
from workbench.cluster.remote.code_dependencies import (
    BUILD_FILES,
    WORD,
    ModuleFiles,
    find_named_files,
    modules_of,
    named_paths,
    parse_code,
)
from workbench.cluster.remote.code_origin import Origin, is_installed, user_modules
from workbench.experiment import Experiment
from workbench.experiment.code_versions import CODE
from workbench.experiment.command import arguments_of
from workbench.foundation.artifacts import is_url
from workbench.foundation.errors import ExperimentError
from workbench.foundation.files import sha256_of
from workbench.foundation.formatting import format_bytes, format_count
from workbench.foundation.known_secrets import is_secret
from workbench.training.programs import kept_imports

MAX_BYTES = 100 * 2**20
"""The largest size of the kept code."""
MAX_BESIDE_BYTES, MAX_BESIDE_FILES = 20 * 2**20, 2000
"""The largest size of kept files next to the code that may not be needed."""
MAX_OTHERS = 2000
"""Only the first files of larger folders of data are compared, which delays trials less."""
MAX_HASHED_BYTES = 8 * 2**30
"""Larger data is compared by size and time of change only."""
SOURCE_SUFFIXES = frozenset(
    {
        ".py",
        ".pyi",
        ".sh",
        ".bash",
        ".zsh",
        ".fish",
        ".r",
        ".jl",
        ".lua",
        ".pl",
        ".rb",
        ".js",
        ".mjs",
        ".ts",
        ".m",
        ".scala",
    }
)
CONFIGURATION_SUFFIXES = frozenset(
    {".yaml", ".yml", ".toml", ".json", ".ini", ".cfg", ".conf", ".config", ".txt", ".csv"}
)
COPIED_SUFFIXES = CONFIGURATION_SUFFIXES | frozenset(
    {
        ".c",
        ".cc",
        ".cmake",
        ".cpp",
        ".cu",
        ".cxx",
        ".go",
        ".h",
        ".hpp",
        ".in",
        ".ipynb",
        ".java",
        ".jsonl",
        ".lock",
        ".md",
        ".rs",
        ".tsv",
    }
)
PROJECT_FILES = frozenset(
    {
        *BUILD_FILES,
        "pyproject.toml",
        "setup.cfg",
        "uv.lock",
        "poetry.lock",
        "requirements.txt",
        ".python-version",
        "CMakeLists.txt",
        "Cargo.toml",
        "Cargo.lock",
        "package.json",
        "DESCRIPTION",
        "renv.lock",
        "Project.toml",
        "Manifest.toml",
    }
)
MAX_COPIED_BYTES = 2**20
"""Larger files that are not code are not copied into the working folders of trials."""
_CONFIGURATION_FOLDERS = ("conf", "config", "configs", "cfg")
_OUTPUT_FOLDERS = frozenset(
    {
        "wandb",
        "runs",
        "lightning_logs",
        "mlruns",
        "outputs",
        "multirun",
        "catboost_info",
        "checkpoints",
        "logs",
        "results",
    }
)
MAX_DEPTH, MAX_LOOKED_AT = 3, 20_000
"""How far below a folder of code files are looked for, and among how many names."""
_BUILDERS = frozenset({"make", "gmake", "just", "task"})
_MODULE_OPTION = re.compile(r"(?:^|\s)-m\s+([A-Za-z_][\w.]*)")
_OUTPUT_OPTION = re.compile(
    r"out|save|log|result|storage|\bdb|dest|export|checkpoint|ckpt", re.IGNORECASE
)
"""Options after which a path is written to, so that its changes mean nothing."""
_MAX_TEXT_CHARS = 2**20
_MAX_SHOWN = 8
_ANY_SIZE = 1 << 62
PACKAGES = "the installed packages"

Stamp = tuple[int, int]
"""Size in bytes and time of change in nanoseconds."""


@dataclass(frozen=True)
class KeptCode:
    """The source files of a run, packed."""

    content: bytes
    sha256: str
    hashes: dict[str, str]
    """The SHA-256 of each file, by its path."""
    texts: dict[str, bytes]
    """Their contents, by path."""
    beside: frozenset[str]
    """The paths of those that are only next to the code, and may not be needed."""

    @property
    def num_files(self) -> int:
        """How many files were kept."""
        return len(self.hashes)


@dataclass(frozen=True)
class Tree:
    """A folder with a version of the code, and the folder that it stands for.

    Attributes:
        root: The folder with the files.
        stands_for: The folder whose paths they get.
    """

    root: Path
    stands_for: Path

    def origin(self, origin: Origin) -> Origin:
        """Return an origin in which the version is read instead."""
        entries = [str(self._inside(Path(entry))) for entry in origin.search_path]
        return replace(
            origin,
            directory=str(self._inside(Path(origin.directory))),
            search_path=tuple(entries),
        )

    def shown(self, path: Path) -> Path:
        """Return the path that a file of the version gets."""
        if not path.is_relative_to(self.root):
            return path
        return self.stands_for / path.relative_to(self.root)

    def holds(self, path: Path) -> bool:
        """Return whether a file is of the version, or of neither it nor what it stands for."""
        return path.is_relative_to(self.root) or not path.is_relative_to(self.stands_for)

    def _inside(self, path: Path) -> Path:
        if not path.is_relative_to(self.stands_for):
            return path
        return self.root / path.relative_to(self.stands_for)


@dataclass
class RunFiles:
    """The files that a run depends on."""

    sources: set[Path] = field(default_factory=set)
    """What is kept."""
    others: set[Path] = field(default_factory=set)
    """What is only compared: data, configuration, the program."""
    bundled: dict[str, Path] = field(default_factory=dict)
    """Modules of the user that a bundle needs, by their name relative to the entry of the search
    path.
    """
    unserved: set[Path] = field(default_factory=set)
    """Sources other than Python that are not started by name. Their copies are never used."""
    beside: set[Path] = field(default_factory=set)
    """Sources that are only next to the code, and may not be needed."""
    workdir: dict[str, Path] = field(default_factory=dict)
    """What is copied into the working folder of each trial, by its name there."""
    absent: dict[str, int] = field(default_factory=dict)
    """Files and folders that code or command mention and that are not copied, with their sizes."""
    tops: dict[str, str] = field(default_factory=dict)
    """Paths of modules that only their own finder finds, such as editable packages."""
    modules: ModuleFiles = field(default_factory=ModuleFiles)
    """The modules that were looked at."""

    def add(self, path: Path) -> None:
        """Add a file that is kept if it is source, and compared if it is not."""
        (self.sources if _is_source(path) else self.others).add(path)

    def only_of(self, tree: Tree) -> None:
        """Leave out what the version does not have, and data that its trials cannot see."""
        self.sources = {path for path in self.sources if tree.holds(path.absolute())}
        self.beside &= self.sources
        self.bundled = {
            name: path for name, path in self.bundled.items() if tree.holds(path.absolute())
        }
        self.tops = {name: path for name, path in self.tops.items() if tree.holds(Path(path))}
        self.others = {
            path
            for path in self.others
            if tree.holds(path.absolute()) and not path.absolute().is_relative_to(tree.root)
        }
        self.unserved = {
            path for path in self.unserved if not path.absolute().is_relative_to(tree.root)
        }


def keep(
    experiment: Experiment,
    origin: Origin,
    *,
    before: Iterable[str] = (),
    tree: Tree | None = None,
    gone: Iterable[Path] = (),
) -> KeptCode | None:
    """Pack the source files that the trials of an experiment run.

    Args:
        experiment: The experiment.
        origin: Where the run was started, on this machine.
        before: Paths of files that an earlier version has kept.
        tree: A folder with another version of the code, or None for the code of `origin`.
        gone: Files that are on the disk. Those that the version does not have are not imported.

    Returns:
        The packed files, or None if the experiment has no code of the user's.
    """
    if tree is None:
        needed = find(experiment, origin)
    else:
        needed = find(experiment, tree.origin(origin))
        needed.only_of(tree)

    def shown(path: Path) -> str:
        return str(path if tree is None else tree.shown(path.absolute()))

    needed.sources |= {path for path in map(Path, before) if path.is_file()}
    contents = dict(_contents(needed.sources))
    if not contents:
        return None
    files = {
        shown(path): {
            "kept": f"files/{number}{path.suffix}",
            "sha256": hashlib.sha256(content).hexdigest(),
        }
        for number, (path, content) in enumerate(sorted(contents.items()))
    }
    workdir = {
        name: {"path": shown(path.absolute()), "executable": os.access(path, os.X_OK)}
        for name, path in sorted(needed.workdir.items())
        if path.absolute() in contents
    }
    bundled = {
        name: shown(path) for name, path in sorted(needed.bundled.items()) if path in contents
    }
    tops = {name: shown(Path(path)) for name, path in needed.tops.items()}
    manifest = {
        "files": files,
        "tops": tops,
        "bundled": bundled,
        "directory": origin.directory,
        "others": _others_among(needed),
        "beside": sorted(map(shown, needed.beside)),
        "workdir": workdir,
        "is_version": tree is not None,
        "gone": sorted({shown(path) for path in gone} - files.keys()),
    }
    packed = {
        kept_imports.MANIFEST: json.dumps(manifest, ensure_ascii=True, sort_keys=True).encode()
    }
    places = {path: entry["kept"] for path, entry in files.items()}
    packed[kept_imports.INDEX] = kept_imports.index_of(places, tops, manifest["gone"])
    packed[f"{kept_imports.STARTUP}/sitecustomize.py"] = Path(kept_imports.__file__).read_bytes()
    packed |= {files[shown(path)]["kept"]: content for path, content in contents.items()}
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in sorted(packed.items()):
            entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
            archive.writestr(entry, content)
    content = stream.getvalue()
    hashes = {path: entry["sha256"] for path, entry in files.items()}
    texts = {shown(path): text for path, text in contents.items()}
    beside = frozenset(map(shown, needed.beside))
    return KeptCode(content, hashlib.sha256(content).hexdigest(), hashes, texts, beside)


def unpack_here(experiment: Experiment) -> Path | None:
    """Keep the code of an experiment outside of a run, and return the folder with it.

    Returns:
        The folder, or None if the experiment has no code of the user's.
    """
    code = keep(experiment, Origin.here())
    if code is None:
        return None
    return unpacked(code.sha256, lambda: code.content)


def find(experiment: Experiment, origin: Origin) -> RunFiles:
    """Find the files that the trials of an experiment depend on.

    Args:
        experiment: The experiment.
        origin: Where the run was started, on this machine.
    """
    files = RunFiles()
    directory, search_path = Path(origin.directory), [origin.directory, *origin.search_path]
    arguments = arguments_of(experiment.command) if experiment.command else []
    modules = set(modules_of(experiment)) | _modules_started(" ".join(arguments))
    if arguments:
        if program := shutil.which(arguments[0]):
            files.others.add(Path(program).resolve())
        files.sources |= {
            path for path in map(Path, arguments) if path.is_absolute() and _is_source(path)
        }
    has_payloads = bool(experiment.payload_hashes())
    if has_payloads:  # what such functions import can only be seen where they were made
        modules |= {name.partition(".")[0] for name in user_modules()} - {"__main__"}
    code = files.modules.files_of(modules, search_path)
    _add_editable(modules, code, files)
    if code or not experiment.trains_model:
        _add_named(experiment, arguments, code, files, directory)
    _add_imported(files, code, directory, search_path)
    files.bundled = code
    for path in code.values():
        files.add(path)
    _add_unserved(files, {directory / argument for argument in arguments}, set(code.values()))
    if files.sources or has_payloads:
        folders = {directory, *(path.parent for path in files.sources)}
        files.beside = _beside(folders, files.sources)
        files.sources |= files.beside
    _add_workdir(experiment, arguments, files, directory)
    files.others |= set(_data_of(experiment, directory))
    files.others = {path for path in files.others - files.sources if not is_secret(path)}
    return files


def _add_imported(
    files: RunFiles, code: dict[str, Path], directory: Path, search_path: list[str]
) -> None:
    """Add the modules that scripts import to the code."""
    seen: set[Path] = set()
    # What modules in the code import is in the code already.
    for script in files.sources - set(code.values()):
        if script.suffix == ".py":
            first = [str(script.parent), *search_path]
            places = files.modules.places_of(parse_code(script).imports, first)
        else:
            started = _modules_started(script.read_text(errors="replace"))
            places = files.modules.places_of(started, search_path)
        for folder in places.keys() - seen:
            for name, path in places[folder].files.items():
                # A bundle has them where the script has them.
                is_below = path.is_relative_to(directory)
                code[path.relative_to(directory).as_posix() if is_below else name] = path
        seen |= places.keys()


def _add_workdir(
    experiment: Experiment, arguments: list[str], files: RunFiles, directory: Path
) -> None:
    """Choose what is copied into the working folders of trials: code, and small files of it."""
    if experiment.links is None:
        return
    links, needed = tuple(experiment.links), files.sources - files.beside
    searched = [
        value
        for name, domain in experiment.search.root.items()
        for value in domain.values() or ()
        if name != CODE
    ]
    named_texts = [*arguments, *searched]
    if arguments and Path(arguments[0]).name in _BUILDERS:
        named_texts += BUILD_FILES
    code = {os.path.relpath(path, directory): path for path in {*needed, *files.bundled.values()}}
    named = find_named_files(
        named_texts, code, directory, max_bytes=_ANY_SIZE, modules=files.modules
    )
    written = {*_Constants(code.values()).written, experiment.metric_source.path}
    program = directory / arguments[0] if arguments else directory
    mentioned = [path for name, path in named.files.items() if name not in written]
    mentioned += [directory / name for name in PROJECT_FILES]
    mentioned += _below(directory / name for name in _CONFIGURATION_FOLDERS)
    copied = files.sources | {path for path in mentioned if _is_copied(path)}
    if program.is_file():
        copied.add(program)

    def is_free(path: Path) -> bool:
        name = Path(os.path.relpath(path, directory))
        is_linked = any(name.is_relative_to(link) for link in links)
        return ".." not in name.parts and name.parts[0] not in _OUTPUT_FOLDERS and not is_linked

    files.workdir = {
        Path(os.path.relpath(path, directory)).as_posix(): path
        for path in copied
        if is_free(path) and not is_secret(path)
    }
    for path in set(mentioned) - copied:
        if path.is_file() and is_free(path) and not is_secret(path):
            name = Path(os.path.relpath(path, directory)).parts[0]
            files.absent[name] = files.absent.get(name, 0) + path.stat().st_size
    for name in named.too_large:
        if is_free(directory / name):
            files.absent[name] = 0
    files.sources |= set(files.workdir.values())
    files.unserved -= set(files.workdir.values())
    files.others |= set(_files_of_data(directory / path for path in experiment.links.values()))


def _is_copied(path: Path) -> bool:
    """Return whether a file that code or command mention is small and not data."""
    is_known = path.suffix.lower() in COPIED_SUFFIXES or path.name in PROJECT_FILES
    return is_known and path.is_file() and path.stat().st_size <= MAX_COPIED_BYTES


def describe_workdir(experiment: Experiment) -> list[str]:
    """Describe what the working folder of each trial contains, and what is not in it.

    Args:
        experiment: An experiment whose trials have working folders.
    """
    assert experiment.links is not None
    files = find(experiment, Origin.here())
    num_bytes = sum(path.stat().st_size for path in files.workdir.values())
    names = sorted(files.workdir, key=lambda name: (name.count("/"), name))
    shown = ", ".join(names[:_MAX_SHOWN])
    if len(names) > _MAX_SHOWN:
        shown += f" and {len(names) - _MAX_SHOWN} more"
    copied = f"a copy of {format_count(len(names), 'file')} ({format_bytes(num_bytes)}): {shown}"
    linked = [
        f"{name} ({format_bytes(_size_of(Path(path)))})" for name, path in experiment.links.items()
    ]
    note = f"workdir: each trial gets {copied if names else 'an empty folder'}"
    if linked:
        note += f", with links to {', '.join(linked)}"
    notes = [f"{note}."]
    if files.absent:
        absent = [
            f"{name} ({format_bytes(size)})" if size else name
            for name, size in sorted(files.absent.items())
        ]
        first = min(files.absent)
        notes.append(
            f"workdir: not in the folder, although code or command mention it: {', '.join(absent)}."
            f" If your program reads it, link it: workdir: {{link: [{first}]}}"
        )
    if num_bytes > MAX_BYTES:
        raise ExperimentError(
            f"the code to copy for each trial has {format_bytes(num_bytes)}",
            field="workdir",
            allowed=f"at most {format_bytes(MAX_BYTES)}",
            next_step="Link the large files: workdir: {link: [FOLDER]}",
        )
    return notes


def _size_of(path: Path) -> int:
    if not path.is_dir():
        return path.stat().st_size
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())


def _modules_started(command: str) -> set[str]:
    """Return the top-level names of the modules that `-m` starts in a command or a script."""
    return {name.partition(".")[0] for name in _MODULE_OPTION.findall(command)}


def _add_named(
    experiment: Experiment,
    arguments: list[str],
    code: Mapping[str, Path],
    files: RunFiles,
    directory: Path,
) -> None:
    """Add the files that a command, options, parameters and code name."""
    options = experiment.train.options.values() if experiment.train else ()
    searched = [
        value
        for name, domain in experiment.search.root.items()
        for value in domain.values() or ()
        if name != CODE
    ]
    named_texts = [*_inputs_among(arguments), *options, *searched]
    if arguments and Path(arguments[0]).name in _BUILDERS:
        named_texts += BUILD_FILES
    named = find_named_files(named_texts, {}, directory, max_bytes=_ANY_SIZE, modules=files.modules)
    files.others |= {
        parent
        for path in named.files.values()
        for parent in path.parents
        if parent.is_relative_to(directory)
        and parent.relative_to(directory).as_posix() in named_texts
    }
    in_code = find_named_files(
        [], {**code, **named.files}, directory, max_bytes=_ANY_SIZE, modules=files.modules
    )
    constants = _Constants([*code.values(), *named.files.values()])
    for path in named.files.values():
        files.add(path)
    for name, path in in_code.files.items():
        # Data counts only where code reads it.
        if _is_source(path) or {name, path.name} & constants.read:
            files.add(path)
    folders = {path.parent for path in {*code.values(), *named.files.values(), *files.sources}}
    files.others |= set(_configuration_beside({directory, *folders}, constants.read))
    written = {*constants.written, experiment.metric_source.path or ""}
    files.others -= {directory / name for name in written}


def _add_unserved(files: RunFiles, started: set[Path], modules: set[Path]) -> None:
    """Note which sources are read from the disk, because their copies cannot be served.

    Args:
        files: The files of the run.
        started: The files that a command starts by their own names.
        modules: The files that are imported.
    """
    files.unserved = {path for path in files.sources - started if path.suffix != ".py"}
    if any(parse_code(path).executes for path in files.sources):
        # Their text may be executed, which no finder of modules can serve.
        files.unserved |= files.sources - started - modules


def _inputs_among(arguments: Iterable[str]) -> Iterator[str]:
    """Yield the arguments of a command that do not name a place to write to."""
    before = ""
    for argument in arguments:
        option = argument.partition("=")[0] if argument.startswith("-") else before
        if not _OUTPUT_OPTION.search(option):
            yield argument
        before = argument if argument.startswith("-") and "=" not in argument else ""


class _Constants:
    """The texts in code that may name files: those that it reads, and those that it writes."""

    def __init__(self, paths: Iterable[Path]) -> None:
        self.read: set[str] = set()
        self.written: set[str] = set()
        for path in paths:
            if path.suffix != ".py":
                with contextlib.suppress(OSError):
                    self.read |= set(
                        WORD.findall(path.read_text(errors="replace")[:_MAX_TEXT_CHARS])
                    )
                continue
            parsed = parse_code(path)
            self.read |= {text.removeprefix("./") for text in parsed.texts}
            self.written |= {text.removeprefix("./") for text in parsed.written}


def _is_source(path: Path) -> bool:
    try:
        if not path.is_file() or is_installed(str(path)) or is_secret(path):
            return False
        if path.suffix.lower() in SOURCE_SUFFIXES:
            return True
        with path.open("rb") as file:
            return file.read(2) == b"#!" and path.stat().st_size < 2**20
    except OSError:
        return False


def _add_editable(modules: Iterable[str], code: dict[str, Path], files: RunFiles) -> None:
    """Add packages that are found neither on the search path nor among the installed ones."""
    module_names = {name.partition("/")[0].removesuffix(".py") for name in code}
    wanted = {name.partition(".")[0] for name in modules}
    for path in code.values():
        wanted |= parse_code(path).imports if path.suffix == ".py" else set()
    for name in sorted(
        wanted - module_names - set(sys.stdlib_module_names) - {"workbench", "__main__"}
    ):
        try:
            spec = importlib.util.find_spec(name)
        except (ImportError, ValueError, AttributeError):
            continue
        origin = spec.origin if spec else None
        if spec is None or not origin or not origin.endswith(".py") or is_installed(origin):
            continue
        files.tops[name] = os.path.abspath(origin)
        folders = list(spec.submodule_search_locations or ())
        paths = [path for folder in folders for path in Path(folder).rglob("*.py")] or [
            Path(origin)
        ]
        top = Path(folders[0]).parent if folders else Path(origin).parent
        code |= {path.relative_to(top).as_posix(): path.absolute() for path in paths}


def _configuration_beside(folders: Iterable[Path], texts: set[str]) -> Iterator[Path]:
    """Yield files of configuration in folders of code and below, whose names code has as text.

    Code puts their paths together, such as `Path(__file__).parent / "conf" / "model.yaml"`.
    """
    names = {
        os.path.basename(text)
        for text in texts
        if os.path.splitext(text)[1] in CONFIGURATION_SUFFIXES
    }
    if names:
        yield from (path for path in _below(folders) if path.name in names)


def _below(folders: Iterable[Path]) -> Iterator[Path]:
    """Yield the files in folders and below, without folders that hold no code of the user's."""
    starts = {str(folder) for folder in folders}
    depths: dict[str, int] = {}
    num_seen = 0
    for start in sorted(starts, key=Path):
        if start in depths:  # it lies below another
            continue
        for parent, inside, names in os.walk(start):
            depth = 0 if parent in starts else depths[os.path.dirname(parent)] + 1
            depths[parent] = depth
            num_seen += len(names) + len(inside)
            if num_seen > MAX_LOOKED_AT:
                return
            is_deep = depth >= MAX_DEPTH
            inside[:] = sorted(
                name for name in inside if not is_deep and _may_hold_code(parent, name)
            )
            shown = (name for name in sorted(names) if not name.startswith("."))
            yield from (Path(parent, name).absolute() for name in shown)


def _may_hold_code(parent: str, name: str) -> bool:
    """Return whether a folder may contain code: not hidden, ignored, or a virtual environment."""
    if name.startswith(".") or name in LEFT_OUT:
        return False
    return not os.path.exists(os.path.join(parent, name, "pyvenv.cfg"))


def _beside(folders: Iterable[Path], known: set[Path]) -> set[Path]:
    """Return further sources in folders of code, and modules below, as far as the limits allow.

    A folder below needs no `__init__.py`: code imports `plugins.first` by a name that it puts
    together.
    """
    beside: set[Path] = set()
    num_bytes = 0
    for path in dict.fromkeys(_walk(sorted(folders))):
        if path.absolute() in known or not _is_source(path):
            continue
        num_bytes += path.stat().st_size
        if num_bytes > MAX_BESIDE_BYTES or len(beside) >= MAX_BESIDE_FILES:
            break
        beside.add(path.absolute())
    return beside


def _walk(folders: Sequence[Path]) -> Iterator[Path]:
    """Yield the source files in folders, then the modules of packages, then those of folders below.

    Args:
        folders: The folders, each after those that it lies in.
    """
    packages: dict[Path, None] = {}
    for folder in folders:
        try:
            items = sorted(item for item in folder.iterdir() if not item.name.startswith("."))
        except OSError:
            continue
        yield from (item for item in items if item.suffix.lower() in SOURCE_SUFFIXES)
        packages |= {
            item: None
            for item in items
            if packages.keys().isdisjoint(item.parents)
            and item.name not in LEFT_OUT
            and (item / "__init__.py").is_file()
        }
    for package in packages:
        yield from sorted(package.rglob("*.py"))
    yield from (path for path in _below(folders) if path.suffix == ".py")


def _data_of(experiment: Experiment, directory: Path) -> Iterator[Path]:
    """Yield the files of the data and the weights that an experiment names."""
    local = [named for named in named_paths(experiment) if not is_url(named.path)]
    yield from _files_of_data(named.file_from(directory) for named in local)


def _files_of_data(paths: Iterable[Path]) -> Iterator[Path]:
    num_files = 0
    for path in paths:
        if path.is_file():
            yield path
        elif path.is_dir():
            for parent, folders, files in os.walk(path):
                folders.sort()
                yield Path(parent)  # files that come or go
                for name in sorted(files):
                    yield Path(parent, name)
                    num_files += 1
                    if num_files >= MAX_OTHERS:
                        return


def _contents(paths: Iterable[Path]) -> Iterator[tuple[Path, bytes]]:
    num_bytes = 0
    for path in sorted(paths):
        try:
            content = path.read_bytes()
        except OSError:  # it has just been removed
            continue
        num_bytes += len(content)
        if num_bytes > MAX_BYTES:
            return
        yield path.absolute(), content


def changed_files(manifest: Mapping[str, Mapping[str, Mapping[str, str]]]) -> list[str]:
    """Return the kept files that are others on the disk now, or are gone.

    Args:
        manifest: The manifest of the kept code.
    """
    changed: list[str] = []
    if manifest.get("is_version"):  # the disk has one of several versions, or none
        return []
    for path, entry in manifest["files"].items():
        try:
            content = Path(path).read_bytes()
        except OSError:
            changed.append(path)
            continue
        if hashlib.sha256(content).hexdigest() != entry["sha256"]:
            changed.append(path)
    return changed


def stamp_of(path: str) -> Stamp | None:
    """Return the stamp of a file, or None if there is none."""
    if path == PACKAGES:
        folders = [
            entry for entry in sys.path if Path(entry).name in ("site-packages", "dist-packages")
        ]
        stamps = [stamp for folder in folders if (stamp := stamp_of(folder)) is not None]
        return sum(size for size, _ in stamps), max((time for _, time in stamps), default=0)
    try:
        stat = os.stat(path)
    except OSError:
        return None
    return stat.st_size, stat.st_mtime_ns


def hash_of(path: str) -> str:
    """Return the SHA-256 of a file, or of the names and versions of the installed packages."""
    if path == PACKAGES:
        return hashlib.sha256(_installed_packages()).hexdigest()
    try:
        if os.path.isdir(path):  # which files there are, not what they contain
            return hashlib.sha256(
                "\n".join(sorted(os.listdir(path))).encode(errors="replace")
            ).hexdigest()
        return sha256_of(Path(path))
    except OSError:
        return ""


def content_of(path: str) -> bytes | None:
    """Return what `hash_of` hashes, or None if it cannot be read."""
    if path == PACKAGES:
        return _installed_packages()
    try:
        return Path(path).read_bytes()
    except OSError:
        return None


def _installed_packages() -> bytes:
    """Return the installed packages with versions, one a line, such as `numpy-2.4.0.dist-info`."""
    folders = [
        entry for entry in sys.path if Path(entry).name in ("site-packages", "dist-packages")
    ]
    names = {name for folder in folders if os.path.isdir(folder) for name in os.listdir(folder)}
    versions = sorted(name for name in names if name.endswith((".dist-info", ".egg-info")))
    return "\n".join(versions).encode()


def changed_packages(before: bytes, now: bytes) -> list[str]:
    """Return which packages differ, such as `numpy 2.3.1 -> 2.4.0`, `added scipy 1.16.0`.

    Args:
        before: The content of `PACKAGES` before.
        now: The content now.
    """
    first, second = (
        dict(map(_split_package, content.decode().splitlines())) for content in (before, now)
    )
    changes: list[str] = []
    for name in sorted({*first, *second}):
        if name not in first:
            changes.append(f"added {name} {second[name]}")
        elif name not in second:
            changes.append(f"removed {name} {first[name]}")
        elif first[name] != second[name]:
            changes.append(f"{name} {first[name]} -> {second[name]}")
    return changes


def package_requirements(content: bytes) -> list[str]:
    """Return packages in the format that pip reads.

    Args:
        content: The content of `PACKAGES`.
    """
    packages = map(_split_package, content.decode().splitlines())
    return [f"{name}=={version}" for name, version in packages if version]


def _split_package(entry: str) -> tuple[str, str]:
    # `numpy-2.4.0.dist-info`, `PyYAML-6.0-py3.12.egg-info`, `six.egg-info`
    name, _, version = entry.removesuffix(".dist-info").removesuffix(".egg-info").partition("-")
    return name, version.partition("-py")[0]


def others_of(
    experiment: Experiment, origin: Origin, manifest: Mapping[str, Any] | None
) -> list[str]:
    """Return what the trials of an experiment depend on and cannot be kept, files and packages.

    Args:
        experiment: The experiment.
        origin: Where the run was started, on this machine.
        manifest: The manifest of the kept code, which lists them, or None if no code was kept.
    """
    others = _others_among(find(experiment, origin)) if manifest is None else manifest["others"]
    return [*others, PACKAGES]


def _others_among(files: RunFiles) -> list[str]:
    return sorted(map(str, files.others | files.unserved))[:MAX_OTHERS]
