"""The source of a program: its file, and the files next to it that it imports.

Options are often declared in another file than the one that is started. This finds such files as
Python would, without running anything, and says how the program is started.
"""

from __future__ import annotations

import ast
import itertools
import json
import os
import re
import shlex
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib.machinery import PathFinder
from pathlib import Path

from workbench.foundation.errors import DataError
from workbench.runs.scripts.other_python import readable_source
from workbench.runs.scripts.script_options import walk
from workbench.training.programs.constants import source_of_cell

_INCLUDE = re.compile(r"^\s*#\s*include\s*\"([\w./-]+)\"", re.MULTILINE)
_MAX_MODULES = 80
"""Maximum number of imported files that are read."""
_MAX_BYTES = 500_000
_MAX_LENGTH = 1_500_000
"""Maximum length of all imported files. Large libraries take many seconds, and have no options."""
_FOREIGN = frozenset(("node_modules", "site-packages", "venv", "env", "__pycache__", "wandb"))
"""Folders whose files are not those of a program."""
COMPILED = (".c", ".cc", ".cpp", ".cxx", ".cu")
"""The ends of the names of programs that must be compiled."""
COMPILER = "c++"
"""Stands for the interpreter of a program that must be compiled."""
_INTERPRETERS = {
    ".py": "python",
    ".r": "Rscript",
    ".sh": "bash",
    ".bash": "bash",
    ".zsh": "zsh",
    ".jl": "julia",
    ".lua": "lua",
    ".pl": "perl",
    ".js": "node",
    ".rb": "ruby",
    ".ipynb": "papermill",
    **dict.fromkeys(COMPILED, COMPILER),
}
NOTEBOOK_CELLS = "# The other cells:"
"""What separates the parameters of a notebook from its other cells."""
_BY_HAND = (
    "Give the script, or write the file by hand:"
    " command: ./program --rate {rate}, with search: {rate: {low: 0.1, high: 1.0}}."
)
_SHEBANG = re.compile(r"#!.*\b(python|Rscript|bash|sh|zsh|julia)[\d.]*(?:\s|$)")
_SETS_PATH = re.compile(r"sys\.path\.(?:append|insert)|setup_root|rootutils|pyrootutils")
_ADDS_TO_PATH = re.compile(r"sys\.path\.(?:append|insert)\((.*)")
_TEXTS = re.compile(r"[\"']([\w./-]*)[\"']")
PROJECT_FILES = ("setup.py", "pyproject.toml")
"""Files at the top of a project."""
_STARTED_AS_MODULE = re.compile(r"(?:python3?|nproc[-_]per[-_]node[= ]\S+)\s+-m\s+([\w.]+)")


@dataclass(frozen=True)
class Module:
    """A Python file of a program.

    Attributes:
        path: Where it is.
        text: Its source.
        tree: The same, parsed.
    """

    path: Path
    text: str
    tree: ast.Module


@dataclass(frozen=True)
class ProgramSource:
    """A program and what it consists of.

    Attributes:
        path: Its file, as the user wrote it.
        text: Its source.
        interpreter: The program that starts it, such as python. "" if the file starts by itself.
        modules: The Python files that it consists of, itself first.
        is_module: Whether it must be started with `python -m`.
        imports_from: The folder of its modules that Python does not find by itself. None without.
        started_by: The words up to its file, if the user gave a command: `torchrun train.py`.
        given: The words after its file in that command, which all trials have.
    """

    path: Path
    text: str
    interpreter: str
    modules: tuple[Module, ...] = ()
    is_module: bool = False
    imports_from: Path | None = None
    classes: dict[str, tuple[Module, ast.ClassDef]] = field(default_factory=dict)
    functions: dict[str, tuple[Module, ast.FunctionDef]] = field(default_factory=dict)
    started_by: tuple[str, ...] = ()
    given: tuple[str, ...] = ()

    @property
    def is_python(self) -> bool:
        """Whether it is a Python program, or a notebook."""
        return self.interpreter in ("python", "papermill")

    def is_given(self, name: str) -> bool:
        """Return whether the command of the user has an option already, by any of its names."""
        return name in self._names_given

    def value_given(self, name: str) -> str | None:
        """Return the value that the command of the user gives an option, or None."""
        for place, word in enumerate(self.given):
            option, sign, value = word.partition("=")
            if option.startswith("-") and option_in(option) == name:
                return value if sign else next(iter(self.given[place + 1 :]), None)
        return None

    @cached_property
    def _names_given(self) -> frozenset[str]:
        """The names of the options in the command of the user, with the other names of each."""
        words = {word.partition("=")[0] for word in self.given if word.startswith("-")}
        for module in self.modules if words else ():
            for call in walk(module.tree):
                if isinstance(call, ast.Call):
                    names = {part.value for part in call.args if isinstance(part, ast.Constant)}
                    words |= {str(name) for name in names} if words & names else set()
        return frozenset(map(option_in, words))

    @property
    def num_given_by_place(self) -> int:
        """How many arguments without a name the command of the user has at most."""
        before = [("-", *self.given)[place] for place in range(len(self.given))]
        return sum(
            not word.startswith("-") and "=" not in word and not _takes_next(previous)
            for previous, word in zip(before, self.given, strict=True)
        )

    @property
    def main(self) -> Module:
        """The Python file that is started."""
        return self.modules[0]

    @cached_property
    def imported_names(self) -> frozenset[str]:
        """The top-level names of all modules that the program imports."""
        return frozenset(
            name.partition(".")[0]
            for module in self.modules
            for name, _ in _imports_of(module.tree)
            if name
        )

    @cached_property
    def refusals(self) -> tuple[str, ...]:
        """The texts of the errors that the program raises."""
        return tuple(
            part.value
            for module in self.modules
            for node in walk(module.tree)
            if isinstance(node, ast.Raise | ast.Assert)
            for part in walk(node)
            if isinstance(part, ast.Constant) and isinstance(part.value, str)
        )

    @property
    def command(self) -> list[str]:
        """The words that start it, with those that the user gave."""
        return [*self._start, *map(quoted, self.given)]

    @property
    def _start(self) -> list[str]:
        if len(self.started_by) > 1:
            set_variables = ["env"] if "=" in self.started_by[0] else []
            return [*set_variables, *map(quoted, self.started_by)]
        if self.interpreter == COMPILER:
            return [shlex.quote(f"./{self.path.stem}")]
        if self.interpreter == "papermill":
            output = f"{{folder}}/{self.path.name}"
            return ["papermill", "--log-output", shlex.quote(str(self.path)), shlex.quote(output)]
        if self.is_module:
            parts = self.path.with_suffix("").parts
            if parts[-1] == "__main__":
                parts = parts[:-1]
            return [self.interpreter, "-m", ".".join(parts)]
        if not self.interpreter:
            return [
                shlex.quote(self.path.as_posix() if "/" in str(self.path) else f"./{self.path}")
            ]
        words = [self.interpreter, shlex.quote(str(self.path))]
        if self.imports_from is not None:
            folder = os.path.relpath(self.imports_from)
            words = ["env", shlex.quote(f"PYTHONPATH={folder}"), *words]
        return words


def option_in(word: str) -> str:
    """Return the name of the option in `--name=value`."""
    return word.lstrip("-").partition("=")[0]


def _takes_next(word: str) -> bool:
    """Return whether the word after an option is its value."""
    return len(word) > 1 and word.startswith("-") and "=" not in word


def quoted(word: str) -> str:
    """Return a word for a shell, with the braces of placeholders as they are."""
    return word if re.fullmatch(r"[\w./=:,@%+{}-]+", word) else shlex.quote(word)


@dataclass(frozen=True)
class GivenCommand:
    """A command that starts a program, as a user writes it.

    Attributes:
        path: The file of the program.
        started_by: The words up to it, itself included.
        given: The words after it.
    """

    path: Path
    started_by: tuple[str, ...]
    given: tuple[str, ...]


def command_of(text: str) -> GivenCommand | None:
    """Return what a command starts, or None if it names no program that is here.

    Args:
        text: The command, such as `torchrun --nproc-per-node 2 train.py conf.yaml`.
    """
    try:
        words = shlex.split(text)
    except ValueError:
        return None
    paths = [Path(word) for word in words]
    for place, word in enumerate(words[1:], 1):
        if words[place - 1] == "-m":
            module = Path(*word.split("."))
            paths[place] = module.with_suffix(".py")
            if not paths[place].is_file():
                paths[place] = module / "__main__.py"
    files = [place for place, path in enumerate(paths) if path.is_file()]
    scripts = [place for place in files if paths[place].suffix.lower() in _INTERPRETERS]
    if not scripts:
        scripts = [n for n in files if not paths[n].suffix and _is_started(paths[n])]
    if not scripts and files[:1] == [0] and os.access(paths[0], os.X_OK):
        scripts = [0]
    if not scripts:
        return None
    end = scripts[0] + 1
    return GivenCommand(paths[end - 1], tuple(words[:end]), tuple(words[end:]))


def _is_started(path: Path) -> bool:
    """Return whether a file without an ending names its interpreter in its first line."""
    with path.open("rb") as file:
        return _SHEBANG.match(file.readline(200).decode(errors="replace")) is not None


def read_program(path: Path) -> ProgramSource:
    """Read a program and the files that it imports.

    Args:
        path: The file that is started, or the command that starts it.

    Raises:
        DataError: If it cannot be read, or if it is not valid Python although its name ends in .py.
    """
    if not path.exists() and (command := command_of(str(path))) is not None:
        read = read_program(command.path)
        return replace(read, started_by=command.started_by, given=command.given)
    try:
        text = path.read_text(encoding="utf-8")
        if path.suffix == ".py":
            text = readable_source(text)
    except UnicodeDecodeError as error:
        if os.access(path, os.X_OK):  # a compiled program
            return ProgramSource(path, "", "")
        raise DataError(f"cannot read {path}: not text", next_step=_BY_HAND) from error
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}", next_step=_BY_HAND) from error
    interpreter = _interpreter_of(path, text)
    if interpreter == "papermill":
        text = _code_of_notebook(path, text)
        module = Module(path, text, parse_python(path, text))
        return ProgramSource(path, text, interpreter, (module,))
    if interpreter == COMPILER:
        text = source_with_includes(path, text)
    if interpreter != "python":
        return ProgramSource(path, text, interpreter)
    if path.suffix not in ("", ".py", ".pyw") and not _is_python(text):
        raise DataError(
            f"{path}: programs in this language are not read",
            allowed="Python, R, C++, shell, Julia, notebooks, and programs that know --help",
            next_step=_BY_HAND,
        )
    return _with_imports(path, text)


def source_with_includes(path: Path, text: str) -> str:
    """Return the source of a program with those that it includes from its own folders.

    Args:
        path: Its file.
        text: What that file contains.
    """
    seen, waiting, texts = {path.resolve()}, [(path, text)], [text]
    while waiting and sum(map(len, texts)) < _MAX_LENGTH:
        file, own = waiting.pop(0)
        for name in _INCLUDE.findall(own):
            for place in (file.parent / name, path.parent / name):
                # What a header declares is in the file of the same name.
                for part in (place, *(place.with_suffix(suffix) for suffix in COMPILED)):
                    if part.is_file() and part.resolve() not in seen:
                        seen.add(part.resolve())
                        read = part.read_text(encoding="utf-8", errors="replace")
                        texts.append(read)
                        waiting.append((part, read))
    return "\n".join(texts)


def _with_imports(path: Path, text: str) -> ProgramSource:
    """Return a Python program with the files that it imports."""
    main = Module(path, text, parse_python(path, text))
    imports = _Imports(path, text)
    modules = (main, *imports.of(main))
    classes: dict[str, tuple[Module, ast.ClassDef]] = {}
    functions: dict[str, tuple[Module, ast.FunctionDef]] = {}
    for module in modules:
        for node in walk(module.tree):
            if isinstance(node, ast.ClassDef):
                classes.setdefault(node.name, (module, node))
            elif isinstance(node, ast.FunctionDef):
                functions.setdefault(node.name, (module, node))
    is_module = _is_module(path, text, imports)
    return ProgramSource(
        path=path,
        text=text,
        interpreter="python",
        modules=modules,
        is_module=is_module,
        imports_from=None if is_module else _not_installed(path, text, imports),
        classes=classes,
        functions=functions,
    )


def _not_installed(path: Path, text: str, imports: _Imports) -> Path | None:
    """Return the folder of a project that a program imports, unless it is installed."""
    is_near = not path.is_absolute() and ".." not in path.parts
    if imports.outside is None or not is_near or _SETS_PATH.search(text):
        return None
    return None if _is_installed(imports.outside_name) else imports.outside


def _is_installed(name: str) -> bool:
    """Return whether a package can be imported, wherever a program is started."""
    folders = [folder for folder in sys.path if folder and Path(folder) != Path.cwd()]
    return any(
        finder.find_spec(name, folders if finder is PathFinder else None) is not None
        for finder in sys.meta_path
    )


def _is_python(text: str) -> bool:
    try:
        ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return False
    return True


def _code_of_notebook(path: Path, text: str) -> str:
    """Return the cells of a notebook as one source, the one with its parameters first.

    Raises:
        DataError: If it is not a notebook.
    """
    try:
        cells = [cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
        sources = ["".join(cell["source"]) for cell in cells]
        tags = [cell.get("metadata", {}).get("tags", []) for cell in cells]
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path}: it is not a notebook", next_step=_BY_HAND) from error
    sources = [source_of_cell(source) for source in sources]
    first = next((n for n, names in enumerate(tags) if "parameters" in names), None)
    if first is None:
        return "\n".join(["", NOTEBOOK_CELLS, *sources])
    return "\n".join([sources.pop(first), NOTEBOOK_CELLS, *sources])


def parse_python(path: Path, text: str) -> ast.Module:
    """Return the parsed source of a Python file.

    Raises:
        DataError: If it is not Python.
    """
    try:
        return _without_aliases(ast.parse(text))
    except SyntaxError as error:
        raise DataError(
            f"{path}: it is not valid Python, line {error.lineno}: {error.msg}",
            next_step="Give a training script. To make models of a table: workbench automl FILE",
        ) from error
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}: it is not valid Python: {error}") from error


def _without_aliases(tree: ast.Module) -> ast.Module:
    """Return a source in which methods are called by their own names.

    `add = parser.add_argument` makes `add("--lr")` the same as `parser.add_argument("--lr")`, and
    `line = "loss {}"` makes `line.format(x)` the same as `"loss {}".format(x)`.
    """
    aliases: dict[str, ast.Attribute | None] = {}
    calls: list[ast.Call] = []
    templates: dict[str, list[ast.Constant]] = {}
    filled: list[ast.Attribute] = []
    for node in ast.walk(tree):
        match node:
            case ast.Assign(
                targets=[ast.Name(id=name)], value=ast.Constant(value=str() as text) as value
            ) if "{" in text:
                templates.setdefault(name, []).append(value)
            case ast.Attribute(value=ast.Name(), attr="format"):
                filled.append(node)
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                is_alias = isinstance(value, ast.Attribute) and name not in aliases
                aliases[name] = value if is_alias and isinstance(value, ast.Attribute) else None
            case ast.Call(func=ast.Name()):
                calls.append(node)
    for call in calls:
        method = aliases.get(call.func.id) if isinstance(call.func, ast.Name) else None
        if method is not None:
            call.func = method
    for method in filled:
        _put_template(method, templates)
    return tree


def _put_template(method: ast.Attribute, templates: dict[str, list[ast.Constant]]) -> None:
    """Replace a variable in `line.format` by the text that it was set to last before."""
    known = templates.get(method.value.id, []) if isinstance(method.value, ast.Name) else []
    before = [text for text in known if text.lineno < method.lineno]
    if before:
        last = max(before, key=lambda text: text.lineno)
        method.value = ast.copy_location(ast.Constant(last.value), method.value)


def _interpreter_of(path: Path, text: str) -> str:
    if (known := _INTERPRETERS.get(path.suffix.lower())) is not None:
        is_torch7 = known == "lua" and re.search(r"require\s*\(?\s*['\"]torch['\"]", text)
        return "th" if is_torch7 else known
    if (shebang := _SHEBANG.match(text)) is not None:
        return {"sh": "bash"}.get(shebang[1], shebang[1])
    return "" if os.access(path, os.X_OK) else "python"


def _imports_of(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Yield the names of what is imported, and how many folders up each name starts."""
    for node in walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, 0) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or "", node.level
            before = f"{node.module}." if node.module else ""
            yield from ((f"{before}{alias.name}", node.level) for alias in node.names)


class _Imports:
    """Finds the files of imported modules below the folders of a program."""

    def __init__(self, path: Path, text: str) -> None:
        self._own = path.absolute().parent
        self._roots = [self._own, self._own / "src"]
        for parent in list(self._own.parents)[:4]:
            if parent == Path(parent.anchor) or parent == Path.home():
                break
            self._roots += [parent, parent / "src"]
            if (parent / ".git").exists() or any(
                (parent / name).exists() for name in PROJECT_FILES
            ):
                break
        self._roots[1:1] = _folders_of_path(text, self._own)
        self.outside: Path | None = None
        """The folder above the script in which modules were found."""
        self.outside_name = ""
        self.is_relative = False

    def of(self, main: Module) -> list[Module]:
        """Return the modules that a module imports, and those that they import."""
        seen = {main.path.absolute()}
        waiting, modules = [main], list[Module]()
        length = 0
        while waiting and len(modules) < _MAX_MODULES and length < _MAX_LENGTH:
            module = waiting.pop(0)
            for path in self._files_of(module, is_main=module is main):
                if path in seen or len(modules) >= _MAX_MODULES or length > _MAX_LENGTH:
                    continue
                seen.add(path)
                if (read := read_module(path)) is not None:
                    length += len(read.text)
                    modules.append(read)
                    waiting.append(read)
        return modules

    def _files_of(self, module: Module, *, is_main: bool) -> Iterator[Path]:
        for name, level in _imports_of(module.tree):
            parts = name.split(".") if name else []
            if level:
                self.is_relative = self.is_relative or is_main
                folder = module.path.absolute().parent
                for _ in range(level - 1):
                    folder = folder.parent
                roots = [folder]
            else:
                roots = self._roots
            for root in roots:
                path = _file_of(root, parts)
                if path is not None:
                    if is_main and not level and root != self._own and self.outside is None:
                        self.outside, self.outside_name = root, parts[0]
                    yield path
                    break


def _folders_of_path(text: str, own: Path) -> list[Path]:
    """Return the folders below a program that it adds to Python's path: `path.append("core")`."""
    written = itertools.chain.from_iterable(map(_TEXTS.findall, _ADDS_TO_PATH.findall(text)))
    return [own / name for name in dict.fromkeys(written) if name and (own / name).is_dir()]


def _file_of(root: Path, parts: list[str]) -> Path | None:
    if not parts:
        return None
    place = root.joinpath(*parts)
    for path in (place.with_name(f"{place.name}.py"), place / "__init__.py"):
        if path.is_file():
            return path
    return None


def files_below(folder: Path, suffixes: tuple[str, ...], max_files: int) -> list[Path]:
    """Return files of some kinds below a folder, in their order, without those of environments.

    Args:
        folder: The folder.
        suffixes: The ends of their names.
        max_files: How many files are looked at.
    """
    files: list[Path] = []
    num_seen = 0
    for parent, folders, names in os.walk(folder):
        folders[:] = sorted(
            name for name in folders if name not in _FOREIGN and not name.startswith(".")
        )
        num_seen += len(names)
        files += [Path(parent, name) for name in sorted(names) if name.endswith(suffixes)]
        if num_seen > max_files:
            break
    return files


def read_module(path: Path) -> Module | None:
    """Return a Python file that is imported, or None if it cannot be read or is large.

    What it does as a program of its own, below `if __name__ == "__main__"`, is left out.

    Args:
        path: Where it is.
    """
    try:
        if path.stat().st_size > _MAX_BYTES:
            return None
        text = _without_own_program(readable_source(path.read_text(encoding="utf-8")))
        return Module(path, text, _without_aliases(ast.parse(text)))
    except (OSError, ValueError, SyntaxError, RecursionError):
        return None


def _without_own_program(text: str) -> str:
    """Return a source with `pass` instead of what only runs if its file is started."""
    if "__main__" not in text:
        return text
    lines = text.split("\n")
    for node in ast.parse(text).body:
        if (
            isinstance(node, ast.If)
            and not node.orelse
            and _IS_STARTED.search(ast.unparse(node.test))
        ):
            last = node.end_lineno or node.lineno
            lines[node.lineno - 1 : last] = [_OWN_PROGRAM, *[""] * (last - node.lineno)]
    return "\n".join(lines)


_OWN_PROGRAM = 'if __name__ == "__main__": pass'
_IS_STARTED = re.compile(r"^__name__ == '__main__'|'__main__' == __name__$")


def _is_module(path: Path, text: str, imports: _Imports) -> bool:
    """Return whether a program only finds its modules if it is started with `python -m`."""
    if (
        path.is_absolute()
        or ".." in path.parts
        or not all(part.isidentifier() for part in path.with_suffix("").parts)
    ):
        return False
    if imports.is_relative and len(path.parts) > 1:
        return True
    if imports.outside is None or imports.outside != Path.cwd() or _SETS_PATH.search(text):
        return False
    name = ".".join(path.with_suffix("").parts)
    if name in _STARTED_AS_MODULE.findall(text):
        return True
    return not any((imports.outside / project).exists() for project in PROJECT_FILES)
