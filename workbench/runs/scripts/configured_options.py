"""Options of a Python program that come from a configuration, and how they are overridden.

These are hydra, OmegaConf, yacs, ml_collections, torchtune, the configurators of nanoGPT and
minGPT, configuration files, `wandb.config`, environment variables, and constants of the script.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from workbench.experiment.yaml_file import read_yaml_file
from workbench.foundation.errors import WorkbenchError
from workbench.runs.scripts.option_domains import (
    domain_of,
    is_learning_rate,
    kind_of_value,
    searched_domains,
)
from workbench.runs.scripts.program_source import (
    NOTEBOOK_CELLS,
    PROJECT_FILES,
    Module,
    ProgramSource,
    files_below,
    read_module,
    read_program,
)
from workbench.runs.scripts.script_options import (
    ScriptOption,
    Way,
    called_name,
    last_name,
    walk,
    words_of,
)
from workbench.runs.scripts.static_values import (
    StaticValues,
    literal_of,
)
from workbench.runs.scripts.typed_options import class_options
from workbench.training.programs.constants import Constant, constants_of, dotted_name

_MISSING = "???"
"""What hydra's configurations hold for a value that must be given."""
_SUFFIXES = (".yaml", ".yml", ".json", ".toml", ".ini", ".cfg", ".conf", ".config", ".gin")
_CONFIG_WORDS = frozenset({"config", "configs", "cfg", "conf", "yaml", "yml"})
_WRITING_WORDS = frozenset(
    (
        "save",
        "saves",
        "out",
        "output",
        "outputs",
        "write",
        "dump",
        "log",
        "logs",
        "logging",
        "result",
        "results",
        "report",
        "export",
        "metrics",
        "history",
        "summary",
        "stats",
    )
)
_CONFIG_OPTION = re.compile(
    r"^(c|cfg|conf|config|opt|hparams|hyp|hyperparameters|params?|yaml|settings)"
    r"([-_]?(file|path|name|yaml|fname|filename))?$",
    re.IGNORECASE,
)
_SAYS_FILE = re.compile(
    r"\b(?:config(?:uration)?|json|ya?ml|toml) file(?:name)?s?\b|\.ya?ml\b"
    r"|\bpaths? to (?:\w+ )?config(?:uration)?s?\b",
    re.IGNORECASE,
)
_GIN_FILES = re.compile(r"^gin_?(?:files?|configs?|config_files?|paths?)$")
_GIN_VALUES = re.compile(r"^gin_?(?:bindings?|params?|parameters?|overrides?|values?)$")
_OF_OTHERS = re.compile(
    r"^(?:.*_)?(RANK|WORLD_SIZE|LOCAL_\w+|MASTER_\w+|CUDA\w*|HOME|PATH|USER|SLURM\w*|NCCL\w*|TOKENIZERS\w*"
    r"|OMP\w*|DEBUG|SEED|HF_\w+|TMPDIR|PWD|PORT|HOST|\w*KEY|\w*TOKEN|WANDB\w*|MLFLOW\w*)$"
)
_OF_RESULT_FILES = frozenset(
    (
        *("stats", "metrics", "result", "results", "history", "summary", "report", "log", "logs"),
        *("scores", "predictions"),
    )
)
"""Words of the names of files that a program writes."""
_SETTINGS = frozenset(("config", "settings", "constants", "hparams", "params"))
"""Words of the names of modules that hold constants."""
_MAX_NESTED_PATHS = 20
"""How many joined paths are followed inside each other."""
_MAX_CONFIG_BYTES = 200_000
_MAX_FILES = 300
"""Maximum number of files that may be the configuration of a program."""
_MAX_ALL_FILES = 3000
_MAX_DEFAULTS = 8
_DEFAULTS = ("default", "defaults", "base", "common")
_NODES = ("CN", "CfgNode", "ConfigDict", "ConfigNode", "create_config_dict")
"""What makes an empty configuration, or one of a dict."""
_NODE = re.compile(r"\b(?:CN|CfgNode)\(")
_MAX_CALLS = 5


@dataclass(frozen=True)
class Configured:
    """What a program takes from a configuration.

    Attributes:
        options: Its options, in their order.
        words: Words that come before them in its command.
        pairs: The word before pairs of a name and a value, as for yacs. None if there are none.
        is_joined: Whether it only understands --name=value, not --name value.
        fixed: Whole arguments that each trial needs, such as hydra.run.dir={folder}.
        listed: The option that takes all of them, as in --hparams=lr=0.1,width=8. None without one.
        taken: The option that the words pass by its place. None if there is none.
        before: What precedes each pair of a name and a value, such as --gin_bindings=.
        introduced_by: The word before all pairs name=value, such as --cfg-options. "" without one.
    """

    options: list[ScriptOption]
    words: tuple[str, ...] = ()
    pairs: str | None = None
    is_joined: bool = False
    fixed: tuple[str, ...] = ()
    listed: str | None = None
    taken: str | None = None
    before: str = ""
    introduced_by: str = ""


def overridden_options(program: ProgramSource, declared: list[ScriptOption]) -> Configured | None:
    """Return the options of a configuration that the command of a program can override.

    Args:
        program: The program.
        declared: The options that it declares otherwise, which may name the configuration.
    """
    readers = (_of_hydra, _of_configurator, _of_merged_nodes, _of_config_flags)
    for reader in readers:
        if (configured := reader(program)) is not None and configured.options:
            return configured
    for with_declared in (
        _of_yacs,
        _of_omegaconf,
        _of_hyperpyyaml,
        _of_hparams,
        _of_sacred_file,
        _of_gin,
        _of_files_with_dicts,
    ):
        configured = with_declared(program, declared)
        if configured is not None and configured.options:
            return configured
    return None


def _calls(module: Module) -> list[ast.Call]:
    return [node for node in walk(module.tree) if isinstance(node, ast.Call)]


# Hydra.


def _of_hydra(program: ProgramSource) -> Configured | None:
    """Return the configuration of `hydra.main`, including its groups."""
    for module in program.modules:
        for call in _calls(module):
            if dotted_name(call.func) not in ("hydra.main", "hydra_main", "hydra_runner"):
                continue
            names = ("config_path", "config_name")
            given = dict(zip(names, map(literal_of, call.args), strict=False))
            given |= {word.arg: literal_of(word.value) for word in call.keywords if word.arg}
            folder = module.path.parent / str(given.get("config_path") or ".")
            name = str(given.get("config_name") or "config").removesuffix(".yaml")
            if not {"config_path", "config_name"} & given.keys():
                return _of_hydra_in_readme(program)
            is_old = folder.suffix == ".yaml"  # before 1.0, where all groups are global
            if is_old:
                folder, name = folder.parent, folder.stem
            fixed = ("hydra.run.dir={folder}",)
            if (folder / "logger" / "csv.yaml").is_file():
                fixed += ("logger=csv",)
            config = _HydraFolder(folder, program.given, is_old=is_old).read(name)
            if config is not None:
                if "logger=csv" in fixed:
                    config.pop("logger", None)
                return Configured(list(_of_mapping(config)), fixed=fixed)
            if (structured := _structured(program, name)) is not None:
                return Configured(structured, fixed=fixed)
    return None


def _of_hydra_in_readme(program: ProgramSource) -> Configured | None:
    """Return the configuration that a README passes to a program which has none of its own."""
    form = re.compile(r"--config-path[ =](\S+)\s+--config-name[ =](\S+)")
    given = [match.groups() for match in map(form.search, _commands_in_readme(program)) if match]
    own = program.path.absolute().parent
    for file in configurations_near(program.path)[:1]:
        if file.absolute().is_relative_to(own):
            place = file.absolute().relative_to(own)
            given.append((str(place.parent), place.name))
    for folder, name in given:
        config = _HydraFolder(own / folder).read(name.removesuffix(".yaml"))
        if config is not None:
            words = ("--config-path", folder, "--config-name", name)
            fixed = ("hydra.run.dir={folder}",)
            return Configured(list(_of_mapping(config)), words, fixed=fixed)
    return None


def _structured(program: ProgramSource, name: str) -> list[ScriptOption] | None:
    """Return the fields of a class that is stored in hydra's ConfigStore under a name."""
    for module in program.modules:
        for call in _calls(module):
            given = dict(zip(("name", "node"), call.args, strict=False))
            given |= {word.arg: word.value for word in call.keywords if word.arg}
            if called_name(call) == "store" and literal_of(given.get("name")) == name:
                held = _held(given.get("node"))
                return _with_groups(program, class_options(program, held, "assigned"), held)
    return None


def _held(node: ast.expr | None) -> str:
    return called_name(node) if isinstance(node, ast.Call) else last_name(node)


def _with_groups(
    program: ProgramSource, options: list[ScriptOption], name: str
) -> list[ScriptOption]:
    """Return the fields of a class with those of the groups in its list of defaults.

    `{"optim": "adam"}` stands for what the ConfigStore has as `adam` in the group `optim`.
    """
    stored: dict[tuple[str, str], str] = {}
    chosen: dict[str, str] = {}
    for module in program.modules:
        for node in walk(module.tree):
            if isinstance(node, ast.Call) and called_name(node) == "store":
                given = {word.arg: word.value for word in node.keywords if word.arg}
                key = literal_of(given.get("group")), literal_of(given.get("name"))
                stored[key] = _held(given.get("node"))
            elif isinstance(node, ast.Dict) and len(node.keys) == 1:
                entry = literal_of(node)
                chosen |= entry if isinstance(entry, dict) else {}
    groups = {
        str(group): stored[group, choice]
        for group, choice in chosen.items()
        if (group, choice) in stored
    }
    inner = [
        replace(option, name=f"{group}.{option.name}")
        for group, held in groups.items()
        for option in class_options(program, held, "assigned")
    ]
    known = {option.name for option in inner}
    own = [o for o in options if o.name not in groups and o.name not in known]
    return [*inner, *own] if name in program.classes else inner


class _HydraFolder:
    """A folder of hydra's configurations."""

    def __init__(self, folder: Path, given: Iterable[str] = (), *, is_old: bool = False) -> None:
        self._folder, self._is_old = folder, is_old
        pairs = [word.lstrip("+").partition("=") for word in given]
        self._given = {
            group: name
            for group, _, name in pairs
            if name and (folder / group / f"{name}.yaml").is_file()
        }
        """The configurations that the command of the user chooses: `experiment=first`."""
        self._seen: set[str] = set()

    def read(self, name: str) -> dict[str, Any] | None:
        """Return a configuration with those that its list of defaults names."""
        if not (self._folder / f"{name}.yaml").is_file():
            return None
        merged: dict[str, Any] = {}
        self._add(merged, name, [], {**self._chosen_by_given(), **self._given}, 0)
        for group, own in self._given.items():  # such as +experiment=first, which no list has
            if group not in self._seen:
                self._add(merged, f"{group}/{own}", group.split("/"), self._given, 1)
        return merged

    def _chosen_by_given(self) -> dict[str, str]:
        """Return what the configurations that the user chooses choose for other groups."""
        chosen: dict[str, str] = {}
        for group, name in self._given.items():
            with contextlib.suppress(WorkbenchError, OSError):
                config = read_yaml_file(self._folder / group / f"{name}.yaml")
                entries = self._entries(config.get("defaults") or [], group)
                chosen |= {entry.group: entry.name for entry in entries if entry.replaces}
        return chosen

    def _add(
        self,
        merged: dict[str, Any],
        name: str,
        package: list[str],
        chosen: Mapping[str, str],
        depth: int,
    ) -> None:
        """Add a configuration to others.

        Args:
            merged: The others.
            name: Its file below the folder, without an ending. The names of its defaults are in
                the same group.
            package: The place of its values.
            chosen: The configurations that other lists of defaults choose for groups.
            depth: How many lists of defaults led to it.
        """
        group = name.rpartition("/")[0]
        path = self._folder / f"{name}.yaml"
        try:
            config = read_yaml_file(path)
            text = path.read_text(encoding="utf-8")
        except (WorkbenchError, OSError):
            return
        header = re.search(r"^#\s*@package:?\s+(\S+)", text, re.MULTILINE)
        if header is not None and header[1] != "_group_":
            package = [part for part in header[1].split(".") if part != "_global_"]
        entries = list(self._entries(config.pop("defaults", None) or [], group))
        chosen = {entry.group: entry.name for entry in entries if entry.replaces} | dict(chosen)
        is_added = False
        for entry in entries if depth < _MAX_DEFAULTS else []:
            if entry.name == "_self_":
                is_added = True
                _merge(merged, _at(package, config))
            elif not entry.replaces:
                place = entry.place(package, group) if not self._is_old else []
                own = chosen.get(entry.group, entry.name) if entry.is_choice else entry.name
                self._seen.add(entry.group)
                self._add(merged, f"{entry.group}/{own}".lstrip("/"), place, chosen, depth + 1)
        if not is_added:
            _merge(merged, _at(package, config))

    @staticmethod
    def _entries(listed: list[Any], group: str) -> Iterator[_Default]:
        """Yield the entries of a list of defaults."""
        for entry in listed:
            if isinstance(entry, str):
                is_absolute = entry.startswith("/")
                parent, _, name = entry.lstrip("/").rpartition("/")
                folder = parent if is_absolute else f"{group}/{parent}".strip("/")
                yield _Default(folder, name, "", is_choice=bool(parent) or is_absolute)
            for key, name in (entry if isinstance(entry, Mapping) else {}).items():
                *before, place = str(key).split()
                place, _, package = place.partition("@")
                is_absolute = place.startswith("/")
                folder = place[1:] if is_absolute else f"{group}/{place}".lstrip("/")
                # With null, a group is left to the command.
                names = name if isinstance(name, list) else [name or ""]
                if place.lstrip("/").startswith("hydra"):
                    continue
                for one_name in (n for n in names if isinstance(n, str)):
                    yield _Default(folder, one_name, package, replaces="override" in before)


@dataclass(frozen=True)
class _Default:
    """An entry of a list of defaults.

    Attributes:
        group: The folder of the group.
        name: Which configuration of the group is chosen.
        package: The place of its values, if the entry says it.
        is_choice: Whether it names a group. A single name is in the group of its list.
        replaces: Whether it chooses another configuration for an entry of another list.
    """

    group: str
    name: str
    package: str = ""
    is_choice: bool = True
    replaces: bool = False

    def place(self, package: list[str], group: str) -> list[str]:
        """Return the place of its values, of which those of its list are at `package`."""
        if self.package:
            parts = self.package.split(".")
            is_global = parts[0] == "_global_"
            return [part for part in parts if part != "_global_"] if is_global else package + parts
        if not self.is_choice:
            return package
        if self.group.startswith(f"{group}/") or not group:
            return [*package, *self.group.removeprefix(group).strip("/").split("/")]
        return self.group.split("/")


def _at(package: list[str], config: Mapping[str, Any]) -> Mapping[str, Any]:
    for part in reversed(package):
        config = {part: config}
    return config


def _merge(into: dict[str, Any], other: Mapping[str, Any]) -> None:
    for key, value in other.items():
        if isinstance(value, Mapping) and isinstance(into.get(key), dict):
            _merge(into[key], value)
        else:
            into[key] = dict(value) if isinstance(value, Mapping) else value


def _of_mapping(config: Mapping[str, Any], prefix: str = "") -> Iterator[ScriptOption]:
    for name, value in config.items():
        if isinstance(value, Mapping):
            if name != "hydra":
                yield from _of_mapping(value, f"{prefix}{name}.")
        elif re.fullmatch(r"\w+", str(name)) and not str(value).startswith("${"):
            is_missing = value == _MISSING
            known = _number_in(value)
            yield ScriptOption(
                f"{prefix}{name}",
                None if is_missing else known,
                kind=kind_of_value(f"{prefix}{name}", known),
                way="fixed" if isinstance(value, list) else "assigned",
                is_required=is_missing,
            )


def _number_in(value: Any) -> Any:
    """Return a number that YAML 1.1 reads as a text, such as 1e-4, as a number."""
    if isinstance(value, str) and re.fullmatch(r"[-+]?\d+(?:\.\d*)?[eE][-+]?\d+", value):
        return float(value)
    return value


# Programs that override their own constants.


def _of_configurator(program: ProgramSource) -> Configured | None:
    """Return the constants of a script that runs nanoGPT's configurator on them."""
    if not program.is_python:
        return None
    match = re.search(r"^exec\(open\(.*config.*\)\.read\(\)\)", program.text, re.MULTILINE)
    if match is None:
        return None
    options = [
        ScriptOption(
            constant.name,
            constant.value,
            kind=type(constant.value).__name__,
            way="python" if isinstance(constant.value, bool) else "option",
        )
        for constant in constants_of(program.text[: match.start()], ".py")
        if constant.name.isidentifier()
    ]
    return Configured(options, is_joined=True)


def _of_merged_nodes(program: ProgramSource) -> Configured | None:
    """Return what a script gives to `merge_from_args`, as minGPT does."""
    for module in program.modules:
        for call in _calls(module):
            if called_name(call) == "merge_from_args" and isinstance(call.func, ast.Attribute):
                name, body = last_name(call.func.value), _statements_around(module, call)
                values = _FilledConfigurations(program).of_variable(body, name)
                options = [  # it evaluates what it is given, so a path needs quotes
                    replace(
                        option,
                        way="python"
                        if option.is_flag or isinstance(option.default, str | None)
                        else "option",
                    )
                    for option in _of_mapping(values)
                ]
                return Configured(options, is_joined=True)
    return None


class _FilledConfigurations:
    """Follows functions that fill a configuration by attributes, as yacs and ml_collections do.

    A configuration is a dict here. `optim = config.optim` is the same dict under another name.
    """

    def __init__(self, program: ProgramSource) -> None:
        self._program = program

    def of_variable(self, body: list[ast.stmt], name: str) -> dict[str, Any]:
        """Return the values of the configuration that a variable holds after some statements."""
        return self._filled(body, StaticValues(), 0)[0].get(name, {})

    def of_expression(self, node: ast.expr) -> dict[str, Any] | None:
        """Return the values of a configuration that is made at once, None of anything else."""
        return self._configuration(node, {}, 0)

    def of_function(self, function: ast.FunctionDef, depth: int = 0) -> dict[str, Any]:
        """Return the values of the configuration that a function returns, or that it is given."""
        known = {argument.arg: {} for argument in function.args.args}
        held, returned = self._filled(function.body, StaticValues(), depth, known)
        return returned if returned is not None else next((v for v in held.values() if v), {})

    def _filled(
        self,
        body: list[ast.stmt],
        static: StaticValues,
        depth: int,
        known: Mapping[str, dict[str, Any]] = MappingProxyType({}),
    ) -> tuple[dict[str, dict[str, Any]], dict[str, Any] | None]:
        """Return the configurations of all variables, and the one that is returned."""
        held = dict(known)
        for statement in body:
            match statement:
                case ast.Assign(targets=targets, value=value):
                    self._assign(targets, value, held, static, depth)
                case ast.With(body=inner):  # as in `with config.unlocked():`
                    held, returned = self._filled(inner, static, depth, held)
                    if returned is not None:
                        return held, returned
                case ast.Return(value=ast.expr() as value):
                    return held, self._configuration(value, held, depth)
        return held, None

    def _assign(
        self,
        targets: list[ast.expr],
        value: ast.expr,
        held: dict[str, dict[str, Any]],
        static: StaticValues,
        depth: int,
    ) -> None:
        config = self._configuration(value, held, depth)
        known = static.get(value) if config is None else config
        for target in targets:
            if isinstance(target, ast.Name):
                if config is not None:
                    held[target.id] = config
                else:
                    static.names[target.id] = known
            elif isinstance(target, ast.Attribute):
                owner = self._configuration(target.value, held, depth)
                if owner is not None:
                    owner[target.attr] = known

    def _configuration(
        self, node: ast.expr, held: Mapping[str, dict[str, Any]], depth: int
    ) -> dict[str, Any] | None:
        """Return the configuration that an expression is, or None if it is none."""
        match node:
            case ast.Name(id=name):
                return held.get(name)
            case ast.Attribute(value=owner, attr=name):
                config = self._configuration(owner, held, depth)
                inner = None if config is None else config.setdefault(name, {})
                return inner if isinstance(inner, dict) else None
            case ast.Call(func=ast.Attribute(value=owner, attr="clone" | "copy"), args=[]):
                return self._configuration(owner, held, depth)
            case ast.Call() if called_name(node) in _NODES:
                given = StaticValues().get(node.args[0]) if node.args else {}
                named = {w.arg: StaticValues().get(w.value) for w in node.keywords if w.arg}
                return {**given, **named} if isinstance(given, dict) else {}
            case ast.Call() if depth < _MAX_CALLS:
                function = self._called(node)
                return None if function is None else self.of_function(function, depth + 1)
        return None

    def _called(self, call: ast.Call) -> ast.FunctionDef | None:
        """Return the function of the program, or the method of a class of it, that is called."""
        if isinstance(call.func, ast.Attribute):
            owner = last_name(call.func.value)
            if owner in self._program.classes:
                body = self._program.classes[owner][1].body
                methods = [node for node in body if isinstance(node, ast.FunctionDef)]
                return next((node for node in methods if node.name == call.func.attr), None)
        known = self._program.functions.get(called_name(call))
        return None if known is None else known[1]


def _statements_around(module: Module, call: ast.Call) -> list[ast.stmt]:
    """Return the statements of the function, block or module in which a call is."""
    blocks = [node for node in walk(module.tree) if isinstance(node, ast.FunctionDef | ast.If)]
    return next((node.body for node in reversed(blocks) if call in walk(node)), module.tree.body)


def _of_config_flags(program: ProgramSource) -> Configured | None:
    """Return the configuration of ml_collections' flags."""
    if options := list(_of_flags_by_keyword(program)):
        return Configured(options)
    for call in _calls(program.main):
        kind = called_name(call)
        if kind not in ("DEFINE_config_file", "DEFINE_config_dict"):
            continue
        name = literal_of(call.args[0]) if call.args else None
        if not isinstance(name, str):
            continue
        given = dict(zip(("name", "default"), call.args, strict=False))
        default = {**given, **{word.arg: word.value for word in call.keywords}}.get("default")
        words = ()
        if kind == "DEFINE_config_dict":
            node = default if isinstance(default, ast.Name) else None
            values = _FilledConfigurations(program).of_variable(
                program.main.tree.body, last_name(node)
            )
        else:
            file = _python_config(program, literal_of(default))
            if file is None:
                return None
            values, words = _of_get_config(file), (f"--{name}={file}",)
        options = [
            replace(option, name=f"{name}.{option.name}", way="option")
            for option in _of_mapping(values)
            if option.way != "fixed"
        ]
        return Configured(options, words)
    return None


def _of_flags_by_keyword(program: ProgramSource) -> Iterator[ScriptOption]:
    """Yield the flags of absl that a function declares for each of its keywords.

    `define_flags(lr=0.1, agent=Agent.get_default_config())` has `--lr` and `--agent.gamma`.
    """
    configurations = _FilledConfigurations(program)
    for call in _calls(program.main):
        known = program.functions.get(called_name(call))
        if known is None or not _declares_keywords(known[1]):
            continue
        for word in call.keywords:
            if word.arg is None:
                continue
            values = configurations.of_expression(word.value)
            if values is None:
                given = {word.arg: StaticValues().get(word.value)}
                yield from (replace(option, way="option") for option in _of_mapping(given))
            else:
                yield from (
                    replace(option, name=f"{word.arg}.{option.name}", way="option")
                    for option in _of_mapping(values)
                    if option.way != "fixed"
                )


def _declares_keywords(function: ast.FunctionDef) -> bool:
    """Return whether a function declares a flag for each keyword that it is called with."""
    keywords = function.args.kwarg
    return keywords is not None and any(
        isinstance(loop, ast.For)
        and any(last_name(part) == keywords.arg for part in walk(loop.iter))
        and any(
            isinstance(part, ast.Call)
            and called_name(part).startswith("DEFINE_")
            and isinstance(part.args[0] if part.args else None, ast.Name)
            for part in walk(loop)
        )
        for loop in walk(function)
    )


def _of_get_config(file: Path) -> dict[str, Any]:
    """Return the values of the configuration that `get_config` of a file returns."""
    try:
        program = read_program(file)
    except WorkbenchError:
        return {}
    body = program.main.tree.body
    functions = [node for node in body if isinstance(node, ast.FunctionDef)]
    function = next((node for node in functions if node.name == "get_config"), None)
    return {} if function is None else _FilledConfigurations(program).of_function(function)


def _python_config(program: ProgramSource, default: Any) -> Path | None:
    """Return the file with `get_config` that a program is most likely started with."""
    folder = program.path.parent
    if isinstance(default, str) and (folder / default.partition(":")[0]).is_file():
        return folder / default.partition(":")[0]
    for arguments in _commands_in_readme(program):
        for word in re.findall(r"--config[ =]([\w./-]+\.py)\b", arguments):
            if (folder / word).is_file():
                return folder / word
    paths = sorted(folder.glob("configs/*.py")) + sorted(folder.glob("config*.py"))
    paths += sorted(folder.glob("config*/**/*.py"))
    with_config = [path for path in paths if "def get_config" in path.read_text(errors="replace")]
    usual = [path for path in with_config if path.stem in ("default", "base", "config", "common")]
    for path in dict.fromkeys([*usual, *with_config[:_MAX_FILES]]):
        if _of_get_config(path):
            return path
    return None


# Files.


def _of_yacs(program: ProgramSource, declared: list[ScriptOption]) -> Configured | None:
    """Return the nodes of a yacs configuration that `merge_from_list` overrides."""
    texts = "\n".join(module.text for module in program.modules)
    if "merge_from_list(" not in texts or "yacs" not in program.imported_names:
        return None
    values: dict[str, Any] = {}
    reader = _FilledConfigurations(program)
    for module in program.modules:
        if not _NODE.search(module.text):
            continue
        body = module.tree.body
        names = [last_name(node.targets[0]) for node in body if isinstance(node, ast.Assign)]
        for name in dict.fromkeys(filter(None, names)):
            _merge(values, reader.of_variable(body, name))
        for function in walk(module.tree):
            if isinstance(function, ast.FunctionDef) and _NODE.search(ast.unparse(function)):
                _merge(values, reader.of_function(function))
    options = {option.name: replace(option, is_required=False) for option in _of_mapping(values)}
    words: tuple[str, ...] = ()
    named = next((o for o in declared if _names_file(o) and o.default in (None, "")), None)
    file = None if named is None else _file_of_option(program, named)
    if named is not None and file is not None:
        words = (f"--{named.name}", str(file))
        options |= {option.name: option for option in options_in_file(file, "assigned")}
    option = next((o for o in declared if o.name.lower() in ("opts", "set", "options")), None)
    word = "" if option is None or option.is_positional else f"--{option.name}"
    return Configured(list(options.values()), words, pairs=word)


def _names_file(option: ScriptOption) -> bool:
    """Return whether an option names a configuration file, by its name, its default or its help."""
    if option.is_flag or option.kind in ("int", "float"):
        return False
    if _is_called_config(option):
        return True
    # The program would overwrite the file that it is given.
    if words_of(option.name) & _WRITING_WORDS:
        return False
    if isinstance(option.default, str) and option.default.endswith(_SUFFIXES):
        return True
    return _SAYS_FILE.search(option.text) is not None and option.default in (None, "", [])


def _is_called_config(option: ScriptOption) -> bool:
    is_usual = _CONFIG_OPTION.match(option.name) is not None
    return is_usual or bool(words_of(option.name) & _CONFIG_WORDS)


def _of_omegaconf(program: ProgramSource, declared: list[ScriptOption]) -> Configured | None:
    """Return the configuration that `OmegaConf.from_cli` or the like overrides."""
    in_modules = [_calls(module) for module in program.modules]
    merging = [
        calls
        for calls in in_modules
        if {"from_cli", "from_dotlist"} & {called_name(call) for call in calls}
    ]
    is_torchtune = re.search(r"^@config\.parse$", program.text, re.MULTILINE) is not None
    if not (merging or is_torchtune):
        return None
    if made := _made_by_omegaconf(program, [call for calls in merging for call in calls]):
        return Configured(made)
    option = next((o for o in declared if _names_file(o)), None)
    by_place = option is not None and option.is_positional
    if not is_torchtune and not by_place and (named_in := _named_file(program, [])) is not None:
        return Configured(options_in_file(named_in[0], "assigned"))
    files = _files_near(program)
    if not files:
        return None
    options, name = options_in_file(files[0], "assigned"), str(files[0])
    if option is not None and by_place:
        return Configured(options, (name,), taken=option.name)
    if is_torchtune or option is not None:
        named = option.name if option is not None else "config"
        if option is not None and option.default == []:  # it takes all words that follow
            return Configured(options, (f"--{named}={name}",))
        return Configured(options, (f"--{named}", name))
    match = re.search(r"\b\w*(?:cli|args|conf|cfg)\w*\.(\w*(?:config|cfg)\w*)", program.text)
    return Configured(options, (f"{match[1]}={name}",) if match is not None else ())


def _made_by_omegaconf(program: ProgramSource, calls: list[ast.Call]) -> list[ScriptOption]:
    """Return the fields of the class, or the values of the dict, that a configuration is made of.

    Args:
        program: The program.
        calls: The calls of the modules that merge a configuration with the command line.
    """
    for call in calls:
        made: list[ScriptOption] = []
        if called_name(call) == "structured" and call.args:
            made = class_options(program, _held(call.args[0]), "assigned")
        elif called_name(call) == "create" and call.args:
            known = literal_of(call.args[0])
            made = list(_of_mapping(known)) if isinstance(known, dict) else []
        if made:
            return made
    return []


def _of_hyperpyyaml(program: ProgramSource, declared: list[ScriptOption]) -> Configured | None:
    """Return the values of a file of HyperPyYAML, which `--name=value` overrides."""
    if not program.is_python or "load_hyperpyyaml" not in program.text:
        return None
    option = next((o for o in declared if _names_file(o)), None)
    file = _file_of_option(program, option) if option is not None else None
    file = file or next(iter(_files_near(program)), None)
    if file is None:
        return None
    options = [replace(o, way="option") for o in options_in_file(file, "option")]
    missing = re.findall(r"^(\w+):\s*!PLACEHOLDER", file.read_text(errors="replace"), re.MULTILINE)
    options += [ScriptOption(name, is_required=True) for name in missing]
    # Parameters of objects are set by the names that stand at the top of the file.
    options = [o for o in options if "." not in o.name]
    taken = option.name if option is not None else None
    return Configured(options, (str(file),), is_joined=True, taken=taken)


def _of_hparams(program: ProgramSource, declared: list[ScriptOption]) -> Configured | None:
    """Return the values of `HParams(...)`, which one option overrides: --hparams=lr=0.1,width=8."""
    option = next((o for o in declared if o.name in ("hparams", "hyperparams", "hps")), None)
    if option is None:
        return None
    for module in program.modules:
        for call in _calls(module):
            if called_name(call) != "HParams" or len(call.keywords) < 2:
                continue
            known = {word.arg: StaticValues().get(word.value) for word in call.keywords if word.arg}
            options = [
                ScriptOption(name, value, kind=type(value).__name__, way="listed")
                for name, value in known.items()
                if isinstance(value, bool | int | float | str)
            ]
            return Configured(options, listed=option.name)
    return None


def _of_sacred_file(program: ProgramSource, declared: list[ScriptOption]) -> Configured | None:
    """Return the values of a file that a program gives to an experiment of sacred."""
    if "sacred" not in program.imported_names or ".add_config(" not in program.text:
        return None
    named_in = _named_file(program, [])
    if named_in is None:
        return None
    options = {option.name: option for option in options_in_file(named_in[0], "assigned")}
    for file in _files_given_by_stem(program):
        options |= {option.name: option for option in options_in_file(file, "assigned")}
    return Configured(list(options.values()), introduced_by="with")


def _files_given_by_stem(program: ProgramSource) -> Iterator[Path]:
    """Yield the files that the user's command names without a folder: `--config=qmix`."""
    stems = {word.partition("=")[2] for word in program.given if word.startswith("-")} - {""}
    if stems:
        for file in files_below(program.path.parent, (".yaml", ".yml"), _MAX_FILES):
            if file.stem in stems:
                yield file


# Python files with dicts, as mmengine has them.


def _of_files_with_dicts(program: ProgramSource, declared: list[ScriptOption]) -> Configured | None:
    """Return the dicts of a Python file that an option overrides: `--cfg-options model.depth=18`.

    The file is the one in the user's command, or in a README.
    """
    names = _names_of_pairs(program)
    option = next((o for o in declared if o.name in names), None)
    if option is None:
        return None
    in_readme = [word for line in _commands_in_readme(program) for word in line.split()]
    written = [Path(word) for word in (*program.given, *in_readme) if word.endswith(".py")]
    places = [place for path in written for place in (path, _root_of(program.path) / path)]
    file = next((place for place in places if place.is_file()), None)
    if file is None:
        return None
    words = () if str(file) in program.given else (str(file),)
    taken = next((o.name for o in declared if o.is_positional and _names_file(o)), None)
    options = list(_of_mapping(_dicts_of(file)))
    return Configured(options, words, taken=taken, introduced_by=f"--{option.name}")


def _names_of_pairs(program: ProgramSource) -> set[str]:
    """Return the options that take any number of pairs name=value into a dict."""
    return {
        str(literal_of(name)).removeprefix("--")
        for module in program.modules
        if "DictAction" in module.text
        for call in _calls(module)
        if any(w.arg == "action" and last_name(w.value) == "DictAction" for w in call.keywords)
        for name in call.args
    }


def _dicts_of(file: Path, depth: int = 0) -> dict[str, Any]:
    """Return the values at the top of a Python file, with those of the files in its `_base_`."""
    module = read_module(file) if depth < _MAX_DEFAULTS else None
    own: dict[str, Any] = {}
    for statement in module.tree.body if module is not None else []:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                own[name] = _value_with_dicts(value, own)
            case _:
                pass
    bases = own.pop("_base_", None) or []
    merged: dict[str, Any] = {}
    for base in [bases] if isinstance(bases, str) else bases:
        _merge_dicts(merged, _dicts_of(file.parent / str(base), depth + 1))
    _merge_dicts(merged, own)
    return merged


def _value_with_dicts(node: ast.expr, known: Mapping[str, Any]) -> Any:
    """Return the value of an expression of dicts and literals, None for what is not known."""
    match node:
        case ast.Call(func=ast.Name(id="dict"), args=[], keywords=words):
            return {w.arg: _value_with_dicts(w.value, known) for w in words if w.arg is not None}
        case ast.Dict(keys=keys, values=values):
            pairs = zip(map(literal_of, keys), values, strict=True)
            return {key: _value_with_dicts(value, known) for key, value in pairs if key is not None}
        case ast.List(elts=parts) | ast.Tuple(elts=parts):
            return [_value_with_dicts(part, known) for part in parts]
    return StaticValues(known).get(node)


def _merge_dicts(into: dict[str, Any], other: Mapping[str, Any]) -> None:
    """Merge dicts into others. One with `_delete_` replaces what was there."""
    for key, value in other.items():
        if isinstance(value, Mapping):
            is_new = value.get("_delete_") or not isinstance(into.get(key), dict)
            into[key] = {} if is_new else into[key]
            _merge_dicts(into[key], {k: v for k, v in value.items() if k != "_delete_"})
        else:
            into[key] = value


def _of_gin(program: ProgramSource, declared: list[ScriptOption]) -> Configured | None:
    """Return the values of a gin file, if an option overrides them: --gin_bindings=A.lr=0.1."""
    if "gin" not in program.imported_names:
        return None
    bindings = next((o for o in declared if _GIN_VALUES.search(o.name)), None)
    named = next((o for o in declared if _GIN_FILES.search(o.name)), None)
    if bindings is None or named is None:
        return None
    file = _file_of_option(program, named, (".gin",)) or _gin_below_root(program.path)
    if file is None:
        return None
    options = {option.name: option for option in _configurable_by_gin(program)}
    options |= {option.name: option for option in options_in_file(file, "assigned")}
    words = (f"--{named.name}={file}",)
    return Configured(list(options.values()), words, before=f"--{bindings.name}=")


def _configurable_by_gin(program: ProgramSource) -> Iterator[ScriptOption]:
    """Yield the defaults of the classes that gin configures: `Config.lr`."""
    for name, (_, node) in program.classes.items():
        if any("gin.configurable" in ast.unparse(decorator) for decorator in node.decorator_list):
            for option in class_options(program, name, "assigned"):
                yield replace(option, name=f"{name}.{option.name}", is_required=False)


def _gin_below_root(path: Path) -> Path | None:
    """Return a gin file of a project with parameters that are worth a search."""
    for file in files_below(_root_of(path), (".gin",), _MAX_ALL_FILES):
        if len(searched_domains(options_in_file(file, "assigned"))) > 1:
            return _relative(file)
    return None


def _root_of(path: Path) -> Path:
    """Return the folder of a project with its README, or with the file that installs it."""
    for parent in path.absolute().parents[:5]:
        if any(parent.glob("README*")) or any((parent / name).is_file() for name in PROJECT_FILES):
            return parent
    return path.parent


def file_options(program: ProgramSource, declared: list[ScriptOption]) -> Configured | None:
    """Return the values of a configuration file that the program reads and cannot override."""
    if given := _given_files(program):
        return Configured(_searched_in_files(given))
    named = [(o, _file_of_option(program, o)) for o in declared if _names_file(o)]
    held = {file: _searched_in_file(file) for _, file in named if file is not None}
    # A program may read several files. The one with most parameters is not that of its data.
    named.sort(key=lambda pair: -len(searched_domains(held.get(pair[1], []))) if pair[1] else 1)
    for option, file in named:
        if file is not None:
            words = (str(file),)
            if not option.is_positional:
                dashes = "-" if option.way == "single" else "--"
                words = (f"{dashes}{option.name}", str(file))
            taken = option.name if option.is_positional else None
            return Configured(held[file], words, taken=taken)
    for configured in (_passed_in_readme(program, declared), _of_assembled_name(program, declared)):
        if configured is not None:
            return configured
    if (named_in := _named_file(program, declared)) is not None:
        file, words = named_in
        return Configured(_searched_in_file(file), words)
    return None


def _passed_in_readme(program: ProgramSource, declared: list[ScriptOption]) -> Configured | None:
    """Return the file that a README passes to a program by an option that a library declares."""
    names = {option.name for option in declared}
    for arguments in _commands_in_readme(program):
        for match in _FILE_AFTER_OPTION.finditer(arguments):
            if match["option"].lstrip("-") in names:
                continue
            for path in (Path(match["file"]), program.path.parent / match["file"]):
                options = _searched_in_file(path) if path.is_file() else []
                if len(searched_domains(options)) > 1:
                    return Configured(options, (match["option"], str(path)))
    return None


_FILE_AFTER_OPTION = re.compile(
    r"(?<!\S)(?P<option>--?[a-zA-Z][\w-]*)[ =]"
    r"(?P<file>[\w./-]+\.(?:ya?ml|json|toml|ini|cfg|conf|config))\b"
)


def _of_assembled_name(program: ProgramSource, declared: list[ScriptOption]) -> Configured | None:
    """Return the values of a file whose name a program makes of an option.

    `import_module(f"configs.{args.data}")` and `open("conf/%s.yaml" % args.data)` are such names.
    """
    assigned = {
        last_name(node.targets[0]): node.value
        for node in walk(program.main.tree)
        if isinstance(node, ast.Assign)
    }
    given = {option.name.replace("-", "_"): option for option in declared}
    for call in _calls(program.main):
        node = call.args[0] if call.args else None
        pattern, hole = _pattern_of(node, assigned) if node is not None else ("*", "")
        if called_name(call) in ("import_module", "__import__"):
            pattern = f"{pattern.replace('.', '/')}.py"
        option = given.get(hole)
        if pattern.count("*") != 1 or not pattern.endswith((*_SUFFIXES, ".py")) or option is None:
            continue
        form = re.compile(re.escape(pattern).replace(r"\*", "([^/]+)"))
        files = sorted(program.path.parent.glob(pattern))
        said = " ".join(_commands_in_readme(program))
        is_given = re.compile(rf"--{re.escape(option.name)}[ =](\S+)")
        usual = (str(option.default), *is_given.findall(said))
        files.sort(key=lambda file: not any(name in file.stem for name in usual))
        chosen = program.value_given(option.name)
        for file in files:
            match = form.search(file.as_posix())
            if match is None or chosen not in (None, match[1]):
                continue
            options = _values_in_file(file)
            if len(searched_domains(options)) > 1:
                if chosen is not None:
                    return Configured(options)
                words = (match[1],) if option.is_positional else (f"--{option.name}", match[1])
                taken = option.name if option.is_positional else None
                return Configured(options, words, taken=taken)
    return None


def _values_in_file(file: Path) -> list[ScriptOption]:
    if file.suffix != ".py":
        return _searched_in_file(file)
    module = read_module(file)
    if module is None:
        return []
    return _constants(file, module.text, ".py", lambda c: not c.scope or _is_of_settings(c.scope))


def _is_of_settings(scope: str) -> bool:
    """Return whether values are in a class of settings: `self.dropout = 0.5` in `Config`."""
    return "." not in scope and bool(words_of(scope) & (_SETTINGS | _CONFIG_WORDS))


def _pattern_of(
    node: ast.expr, assigned: Mapping[str, ast.expr], depth: int = 0
) -> tuple[str, str]:
    """Return a text with * for its unknown part, and the name of the attribute that it is."""
    match node:
        case ast.Constant(value=str() as text):
            return text, ""
        case ast.JoinedStr(values=parts):
            patterns = [_pattern_of(part, assigned, depth) for part in parts]
        case ast.FormattedValue(value=value):
            return _pattern_of(value, assigned, depth)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            patterns = [_pattern_of(part, assigned, depth) for part in (left, right)]
        case ast.BinOp(left=ast.Constant(value=str() as text), op=ast.Mod(), right=value):
            return re.sub(r"%\w", "*", text), _pattern_of(value, assigned, depth)[1]
        case ast.Call(func=ast.Attribute(value=ast.Constant(value=str() as text), attr="format")):
            hole = _pattern_of(node.args[0], assigned, depth)[1] if node.args else ""
            return re.sub(r"\{[^{}]*\}", "*", text), hole
        case ast.Call(func=ast.Attribute(attr="join"), args=parts):
            inner = [_pattern_of(part, assigned, depth) for part in parts]
            return "/".join(text for text, _ in inner), next((h for _, h in inner if h), "")
        case ast.Name(id=name) if name in assigned and depth < _MAX_CALLS:
            return _pattern_of(assigned[name], assigned, depth + 1)
        case _:
            return "*", last_name(node)
    return "".join(text for text, _ in patterns), next((hole for _, hole in patterns if hole), "")


def _searched_in_file(file: Path) -> list[ScriptOption]:
    """Return the values in a file, without those that replace its defaults only if asked for.

    They are in sections next to one with the defaults, and have the same names.
    """
    options = [replace(option, file=file) for option in options_in_file(file, "constant")]
    sections: dict[str, set[str]] = {}
    for option in options:
        section, _, name = option.name.partition(".")
        sections.setdefault(section, set()).add(name)
    default = next((name for name in sections if name in _DEFAULTS), None)
    if default is None:
        return options
    presets = {name for name, own in sections.items() if own & sections[default]} - {default}
    return [option for option in options if option.name.partition(".")[0] not in presets]


def _file_of_option(
    program: ProgramSource, option: ScriptOption, suffixes: tuple[str, ...] = _SUFFIXES
) -> Path | None:
    if (given := given_file(program)) is not None and given.suffix in suffixes:
        return given
    if isinstance(option.default, str) and Path(option.default).suffix in suffixes:
        for path in (Path(option.default), program.path.parent / option.default):
            if path.is_file():
                return path
        # Any file with such an ending may be missing there, also one that the program writes.
        is_config = _is_called_config(option) or _SAYS_FILE.search(option.text) is not None
        if suffixes == _SUFFIXES and not is_config:
            return None
    in_readme = _file_in_readme(program)
    if in_readme is not None and in_readme.suffix in suffixes:
        return in_readme
    return next(
        (file for file in configurations_near(program.path) if file.suffix in suffixes), None
    )


def given_file(program: ProgramSource) -> Path | None:
    """Return the configuration file in the command that a user gives, or None without one.

    Args:
        program: The program that the command starts.
    """
    return next(iter(_given_files(program)), None)


def _given_files(program: ProgramSource) -> list[Path]:
    """Return all configuration files in the command, such as those of a model and a training."""
    paths = [Path(word.rpartition("=")[2]) for word in program.given]
    return [path for path in paths if path.suffix in _SUFFIXES and path.is_file()]


def _searched_in_files(files: list[Path]) -> list[ScriptOption]:
    """Return the values in several files, without names that two of them have."""
    options = [option for file in files for option in _searched_in_file(file)]
    names = Counter(option.name for option in options)
    return [option for option in options if names[option.name] == 1]


def _files_near(program: ProgramSource) -> list[Path]:
    """Return the configuration files that may be meant, the most likely one first."""
    given = given_file(program)
    return configurations_near(program.path) if given is None else [given]


def _file_in_readme(program: ProgramSource) -> Path | None:
    """Return the configuration file that a README passes to a program, if it is there."""
    for arguments in _commands_in_readme(program):
        for word in re.findall(
            r"[\w./-]+\.(?:ya?ml|json|toml|ini|cfg|conf|config|gin)\b", arguments
        ):
            for path in (Path(word), program.path.parent / word, _root_of(program.path) / word):
                if path.is_file() and options_in_file(path, "constant"):
                    return path
    return None


def _commands_in_readme(program: ProgramSource) -> Iterator[str]:
    """Yield what follows the name of a program in the lines of the READMEs around it."""
    for folder in [program.path.parent, *program.path.absolute().parent.parents][:4]:
        for readme in sorted(folder.glob("README*"))[:3]:
            text = readme.read_text(encoding="utf-8", errors="replace")
            # A command may go on below comments.
            for line in re.sub(r"\\[ \t]*\n(?:[ \t]*#.*\n)*", " ", text).splitlines():
                _, name, arguments = line.partition(program.path.name)
                if name:
                    yield arguments


def _named_file(
    program: ProgramSource, declared: list[ScriptOption]
) -> tuple[Path, tuple[str, ...]] | None:
    """Return the configuration file that a program names in its source, if there is one.

    The folder of the file, or its name, may be the default of an option. Then that option is
    returned as well, as words of the command: the program must not get another value.

    Args:
        program: The program.
        declared: The options that it declares.
    """
    given = {
        option.name.replace("-", "_"): option
        for option in declared
        if isinstance(option.default, str) and option.way in ("option", "apart")
    }
    for module in program.modules[:20]:
        for name, used in _paths_in(module.tree, given):
            if not name.endswith(_SUFFIXES) or "\n" in name:
                continue
            for path in (Path(name), program.path.parent / name):
                if not path.is_file() or path.stat().st_size > _MAX_CONFIG_BYTES:
                    continue
                if any(_is_number(option) for option in options_in_file(path, "constant")):
                    words = [(f"--{given[n].name}", given[n].default) for n in used]
                    return path, tuple(word for pair in words for word in pair)
    return None


def _paths_in(
    tree: ast.AST, given: Mapping[str, ScriptOption]
) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the literals of a module, those at the end of a joined path as one.

    `join(folder, "conf", "a.json")`, `folder / "conf" / "a.json"` and `Path("conf", "a.json")` are
    "conf/a.json". A name is followed to the joined path that is assigned to it, to the default of
    the parameter, or to that of the option, of which the name comes with the path.

    Args:
        tree: The module.
        given: Options with a text as their default, by name.
    """
    assigned = {
        node.targets[0].id: node.value
        for node in walk(tree)
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    }
    defaults = _texts_by_default(tree)
    joined: set[int] = set()
    for node in walk(tree):  # a joined path comes before its parts
        if id(node) in joined:
            continue
        if isinstance(node, ast.Constant):
            if isinstance(node.value, str):
                yield node.value, ()
            continue
        names: list[str] = []
        used: list[str] = []
        for part in reversed(_path_parts(node, assigned)):
            text = _text_of_part(part, defaults, given)
            if text is None:
                break
            names.append(text[0])
            used += text[1]
        if names:
            joined.update(id(inner) for inner in walk(node))
            yield "/".join(reversed(names)), tuple(used)


def _texts_by_default(tree: ast.AST) -> dict[str, str]:
    """Return the parameters of functions that are texts unless a call gives others."""
    texts: dict[str, str] = {}
    for node in walk(tree):
        if isinstance(node, ast.FunctionDef):
            arguments = [*node.args.posonlyargs, *node.args.args]
            defaults = node.args.defaults
            for argument, default in zip(
                arguments[len(arguments) - len(defaults) :], defaults, strict=True
            ):
                if isinstance(text := literal_of(default), str):
                    texts[argument.arg] = text
    return texts


def _text_of_part(
    node: ast.expr, defaults: Mapping[str, str], given: Mapping[str, ScriptOption]
) -> tuple[str, tuple[str, ...]] | None:
    """Return the text of a part of a path and the options in it, or None if it is not known."""
    match node:
        case ast.Constant(value=str() as text):
            return text, ()
        case ast.Name(id=name) if name in defaults:
            return defaults[name], ()
        case ast.Attribute(attr=name) | ast.Subscript(slice=ast.Constant(value=str() as name)) if (
            name in given
        ):
            return str(given[name].default), (name,)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            parts = [_text_of_part(part, defaults, given) for part in (left, right)]
        case ast.JoinedStr(values=values):
            inner = [v.value if isinstance(v, ast.FormattedValue) else v for v in values]
            parts = [_text_of_part(part, defaults, given) for part in inner]
        case _:
            return None
    known = [part for part in parts if part is not None]
    if len(known) < len(parts):
        return None
    return "".join(text for text, _ in known), tuple(name for _, used in known for name in used)


def _path_parts(node: ast.AST, assigned: Mapping[str, ast.expr], depth: int = 0) -> list[ast.expr]:
    """Return the parts that an expression joins to a path, or nothing if it joins none.

    Args:
        node: The expression.
        assigned: The values of names.
        depth: How many expressions this one is inside.
    """
    match node:
        case ast.Name(id=name) if name in assigned:
            inner: list[ast.expr] = [assigned[name]]
            own: list[ast.expr] = []
        case ast.BinOp(op=ast.Div(), left=left, right=right):
            inner, own = [left], [right]
        case ast.Call(func=ast.Attribute(attr="joinpath", value=value), args=args):
            inner, own = [value], args
        case ast.Call(func=ast.Attribute(attr="join"), args=[first, *args]) if args:
            inner, own = [first], args
        case ast.Call(func=ast.Name(id="Path") | ast.Attribute(attr="Path"), args=args) if args:
            inner, own = [], args
        case _:
            return []
    before: list[ast.expr] = []
    for expression in inner:
        parts = _path_parts(expression, assigned, depth + 1) if depth < _MAX_NESTED_PATHS else []
        before += parts or [expression]
    return [*before, *own]


def _is_number(option: ScriptOption) -> bool:
    return isinstance(option.default, int | float) and not isinstance(option.default, bool)


def configurations_near(path: Path) -> list[Path]:
    """Return configuration files near a script, the most likely one for it first.

    Args:
        path: The script.
    """
    folder = path.parent
    places = [folder.iterdir()]
    for pattern in ("config*", "conf", "cfgs", "yaml*", "hparams", "examples", "../config*"):
        places += [
            iter(files_below(place, _SUFFIXES, _MAX_FILES))
            for place in sorted(folder.glob(pattern))
        ]
    files = [file for place in places for file in _configurations(place)]
    if not files:
        files = list(_configurations(files_below(_root_of(path), _SUFFIXES, _MAX_ALL_FILES)))
        files = [_relative(file) for file in files if _is_about(file, path)]
    words = words_of(path.stem) | words_of(path.absolute().parent.name)

    def likeness(file: Path) -> tuple[int, int, int]:
        named = words_of(file.stem) | {part.lower() for part in file.parts[-4:-1]}
        usual = file.stem in ("config", "default", "base", "train", "params", "hparams")
        num_searched = len(searched_domains(options_in_file(file, "constant")))
        return -int(num_searched > 1), -len(words & named), -int(usual)

    return sorted(dict.fromkeys(files[:_MAX_FILES]), key=likeness)[:20]


def _is_about(file: Path, program: Path) -> bool:
    """Return whether a configuration file bears the name of a program, or that of its folder.

    `train_config.yml` is that of `train.py`.
    """
    in_folder, own = words_of(program.absolute().parent.name), words_of(file.stem)
    is_named = len(in_folder) > 1 and in_folder <= own
    is_named = is_named or bool(own & _CONFIG_WORDS and own & words_of(program.stem))
    return is_named or bool(words_of(program.stem) & set(file.parts))


def _configurations(files: Iterable[Path]) -> Iterator[Path]:
    """Yield the files that may be a configuration, in the order of their names."""
    for file in sorted(files):
        if file.name.startswith((".", "package", "pyproject", "tsconfig")):
            continue
        if words_of(file.stem) <= _OF_RESULT_FILES:
            continue  # a program wrote it: `stats.json`
        is_small = file.is_file() and file.stat().st_size < _MAX_CONFIG_BYTES
        if file.suffix in _SUFFIXES and is_small and not _is_experiment(file):
            yield file


def _is_experiment(file: Path) -> bool:
    """Return whether a file is an experiment of the workbench, such as an earlier one of `init`."""
    if file.suffix not in (".yaml", ".yml"):
        return False
    text = file.read_text(encoding="utf-8", errors="replace")
    return len(set(_OF_EXPERIMENT.findall(text))) > 1


_OF_EXPERIMENT = re.compile(r"^(objectives|search|budget):", re.MULTILINE)


def options_in_file(file: Path, way: Way = "constant") -> list[ScriptOption]:
    """Return the numbers, texts and switches in a configuration file, with dotted names.

    Args:
        file: The file.
        way: How the program takes them.
    """
    try:
        modified_ns = file.stat().st_mtime_ns
    except OSError:
        return []
    return list(_read_options(file.absolute(), modified_ns, way))


@functools.lru_cache(maxsize=_MAX_ALL_FILES)
def _read_options(file: Path, modified_ns: int, way: Way) -> tuple[ScriptOption, ...]:
    """Return the values in a file. Reading YAML takes long, and a file is asked for often."""
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ()
    return tuple(
        ScriptOption(
            constant.name,
            _number_in(constant.value),
            kind=kind_of_value(constant.name, _number_in(constant.value)),
            way=way,
        )
        for constant in constants_of(text, file.suffix)
        if not (isinstance(constant.value, str) and constant.value.startswith("$"))
        and re.fullmatch(r"[\w./-]+", constant.name)
    )


# W&B, the environment, constants.


def wandb_options(program: ProgramSource) -> list[ScriptOption]:
    """Return the defaults of `wandb.init(config=...)`, if the program reads `wandb.config`."""
    if not program.is_python or not re.search(r"\bwandb\.config\b|\brun\.config\b", program.text):
        return []
    values = StaticValues()
    values.learn(program.main.tree.body)
    for node in walk(program.main.tree):
        if isinstance(node, ast.FunctionDef):
            values.learn(node.body)
    for call in _calls(program.main):
        if dotted_name(call.func) != "wandb.init":
            continue
        for word in call.keywords:
            known = values.get(word.value) if word.arg == "config" else None
            if isinstance(known, dict):
                return [replace(o, way="wandb") for o in _of_mapping(known) if o.way != "fixed"]
    return []


def environment_options(program: ProgramSource) -> list[ScriptOption]:
    """Return the environment variables that a program reads, with their defaults."""
    options: dict[str, ScriptOption] = {}
    for module in program.modules[:10]:
        around = {child: node for node in walk(module.tree) for child in ast.iter_child_nodes(node)}
        for node in walk(module.tree):
            variable = _variable_in(node)
            if variable is None or variable in options or _OF_OTHERS.match(variable):
                continue
            default = None
            if isinstance(node, ast.Call) and len(node.args) > 1:
                default = StaticValues().get(node.args[1])
            outer = around.get(node)
            if isinstance(outer, ast.BoolOp):  # as in `os.environ.get("LR") or 0.1`
                default = StaticValues().get(outer.values[-1], default)
                outer = around.get(outer)
            kind = _conversion(outer)
            default = _converted(default, kind)
            if kind is None and isinstance(default, bool | int | float):
                kind = type(default).__name__
            options[variable] = ScriptOption(variable, default, kind=kind, way="variable")
    return list(options.values())


def _variable_in(node: ast.AST) -> str | None:
    """Return the environment variable that an expression reads, or None."""
    if isinstance(node, ast.Call):
        full = dotted_name(node.func)
        if full in ("os.environ.get", "os.getenv", "environ.get", "getenv") and node.args:
            name = literal_of(node.args[0])
            return name if isinstance(name, str) else None
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
        if dotted_name(node.value) not in ("os.environ", "environ"):
            return None
        name = literal_of(node.slice)
        return name if isinstance(name, str) else None
    return None


def _conversion(node: ast.AST | None) -> str | None:
    """Return the type to which a call converts a variable, "fixed" if no value means false."""
    name = called_name(node) if isinstance(node, ast.Call) else ""
    return {"int": "int", "float": "float", "bool": "fixed"}.get(name)


def _converted(default: Any, kind: str | None) -> Any:
    try:
        return {"int": int, "float": float}[kind](default) if kind in ("int", "float") else default
    except (TypeError, ValueError):
        return None


def notebook_options(program: ProgramSource) -> list[ScriptOption]:
    """Return the constants in the cell of a notebook that is tagged as its parameters.

    Without such a cell, a trial has a copy of the notebook with other values in all cells.
    """
    parameters, _, _ = program.text.partition(NOTEBOOK_CELLS)
    if not parameters.strip():
        text = program.path.read_text(encoding="utf-8")
        values = _constants(program.path, text, ".ipynb", _RunningCode(program).has_effect)
        return [option for option in values if domain_of(option) is not None]
    return [
        replace(option, way="parameter" if option.name.isidentifier() else "fixed")
        for option in _constants(program.path, parameters, ".py")
    ]


def constant_options(program: ProgramSource) -> list[ScriptOption]:
    """Return the values in the source of a program, each with the file in which it is replaced.

    They are constants at the top, and values in the calls and signatures of code that runs. Of the
    modules that a program imports, those of settings count, and those with a learning rate if
    the others have none.

    Args:
        program: The program.
    """
    if not program.is_python:
        own = _constants(program.path, program.text, program.path.suffix or ".py")
        return [option for option in own if domain_of(option) is not None]
    running = _RunningCode(program)
    options = {option.name: option for option in running.values_in(program.main)}
    others = [module for module in program.modules[1:] if _is_near(module, program)]
    others.sort(key=lambda module: not words_of(module.path.stem) & _SETTINGS)
    num_files = 1
    for module in others:
        is_of_settings = bool(words_of(module.path.stem) & _SETTINGS)
        has_rate = any(is_learning_rate(name) for name in searched_domains(options.values()))
        may_have_rate = not has_rate and _MAY_HAVE_RATE.search(module.text) is not None
        if num_files == _MAX_EDITED or not (is_of_settings or may_have_rate):
            continue
        own = [option for option in running.values_in(module) if option.name not in options]
        searched = searched_domains(own)
        if searched and (is_of_settings or any(map(is_learning_rate, searched))):
            num_files += 1
            options |= {option.name: option for option in own}
    return list(options.values())


_MAY_HAVE_RATE = re.compile(r"lr\b|learning_rate|optim", re.IGNORECASE)
_SEVERAL = 3
_MAX_EDITED = 3
"""Maximum number of files whose values are replaced for a trial."""


def _is_near(module: Module, program: ProgramSource) -> bool:
    """Return whether a module is next to a program or below it, where a trial has a copy of it."""
    return module.path.absolute().is_relative_to(program.path.absolute().parent)


class _RunningCode:
    """Tells which values in the source of a program have an effect when it is started."""

    def __init__(self, program: ProgramSource) -> None:
        self._program = program
        self._running = _names_running(program)
        self._calls: dict[str, list[ast.Call]] = {}
        for module in program.modules:
            for call in _calls(module):
                self._calls.setdefault(called_name(call), []).append(call)
        self._imported = {
            alias.asname or alias.name
            for module in program.modules
            for node in walk(module.tree)
            if isinstance(node, ast.Import | ast.ImportFrom)
            for alias in node.names
        }

    def values_in(self, module: Module) -> list[ScriptOption]:
        """Return the values in a module that are worth a search, and its plain constants.

        A module with several constants at its top has there what its author varies. Of the values
        in its code, only learning rates are returned then, if it has no other.
        """
        is_main = module is self._program.main
        path = self._program.path if is_main else _relative(module.path)
        values = _constants(path, module.text, ".py", self.has_effect)
        in_code = {constant.name for constant in constants_of(module.text, ".py") if constant.scope}
        searched = searched_domains(option for option in values if option.name not in in_code)
        has_rate = any(map(is_learning_rate, searched))

        def is_wanted(option: ScriptOption) -> bool:
            if domain_of(option) is None:
                return "." not in option.name
            if option.name not in in_code or len(searched) < _SEVERAL:
                return True
            return not has_rate and is_learning_rate(option.name)

        return [replace(option, file=path) for option in values if is_wanted(option)]

    def has_effect(self, constant: Constant) -> bool:
        """Return whether a value is in code that runs, and no call replaces it."""
        first, _, method = constant.scope.partition(".")
        if constant.scope and first not in self._running:
            return False
        if not constant.is_default:
            return True
        function = method.rpartition(".")[2] or first
        calls = self._calls.get(function, [])
        if not method and function in self._program.functions:
            calls = [call for call in calls if self._is_of_module(call)]
        parameter = constant.name.rpartition(".")[2]
        return not any(self._gives(call, function, parameter) for call in calls)

    def _is_of_module(self, call: ast.Call) -> bool:
        """Return whether a call is one of a function, rather than `model.fit()` of an object."""
        if isinstance(call.func, ast.Attribute):
            return dotted_name(call.func.value) in self._imported
        return True

    def _gives(self, call: ast.Call, function: str, parameter: str) -> bool:
        """Return whether a call gives a value to a parameter."""
        if any(word.arg in (parameter, None) for word in call.keywords):
            return True
        names = self._parameters(function)
        given = names[: len(call.args)]
        return parameter in given or any(isinstance(node, ast.Starred) for node in call.args)

    def _parameters(self, function: str) -> list[str]:
        if function in self._program.classes:
            body = self._program.classes[function][1].body
            methods = [node for node in body if isinstance(node, ast.FunctionDef)]
            node = next((node for node in methods if node.name == "__init__"), None)
        else:
            node = self._program.functions.get(function, (None, None))[1]
        names = [] if node is None else [argument.arg for argument in node.args.args]
        return names[1:] if names[:1] == ["self"] else names


def _names_running(program: ProgramSource) -> frozenset[str]:
    """Return the functions and classes that run, as far as names show it."""
    running: set[str] = set()
    waiting: list[ast.AST] = []
    for module in program.modules:
        is_main = module is program.main
        for statement in module.tree.body:
            is_definition = isinstance(statement, ast.FunctionDef | ast.ClassDef)
            is_started = isinstance(statement, ast.If) and "__main__" in ast.unparse(statement.test)
            if is_definition and is_main and (statement.decorator_list or statement.name == "main"):
                running.add(statement.name)  # a library calls it
                waiting.append(statement)
            elif not is_definition and (is_main or not is_started):
                waiting.append(statement)
    while waiting:
        for node in walk(waiting.pop()):
            name = last_name(node)
            if not name or name in running:
                continue
            for table in (program.functions, program.classes):
                if name in table:
                    running.add(name)
                    waiting.append(table[name][1])
    return frozenset(running)


def _relative(path: Path) -> Path:
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def _constants(
    path: Path,
    text: str,
    suffix: str,
    is_wanted: Callable[[Constant], bool] = lambda _: True,
) -> list[ScriptOption]:
    return [
        ScriptOption(
            constant.name,
            constant.value,
            kind=kind_of_value(constant.name, constant.value),
            way="constant",
            file=path,
        )
        for constant in constants_of(text, suffix)
        if re.fullmatch(r"[A-Za-z_][\w.]*", constant.name) and is_wanted(constant)
    ]
