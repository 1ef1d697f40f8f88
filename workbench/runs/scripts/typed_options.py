"""Options that a Python program derives from types: fields of dataclasses, and signatures.

These are the options of tyro, HfArgumentParser and its relatives, simple_parsing, draccus,
pyrallis, jsonargparse, LightningCLI, typer, cyclopts, fire, chz, Tap, sacred and pydantic's
settings. Which words a library makes of a field is written here once.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeGuard

from workbench.runs.scripts.declared_options import (
    alternatives_in,
    called_or_named,
    chosen_command,
)
from workbench.runs.scripts.program_source import Module, ProgramSource
from workbench.runs.scripts.script_options import (
    ScriptOption,
    Way,
    called_name,
    last_name,
    plain_name,
    walk,
)
from workbench.runs.scripts.static_values import (
    StaticValues,
    literal_of,
)
from workbench.training.programs.constants import dotted_name

_MAX_DEPTH = 6
"""Maximum depth of configurations in configurations."""
_WRAPPERS = ("Optional", "Annotated", "Suppress", "Positional", "Final", "ClassVar", "Arg")
_KINDS = {
    "float": "float",
    "int": "int",
    "str": "str",
    "bool": "bool",
    "Path": "path",
    "PositiveInt": "int",
    "NonNegativeInt": "int",
    "PositiveFloat": "float",
    "NonNegativeFloat": "float",
    "OpenUnitInterval": "float",
    "ClosedUnitInterval": "float",
}
_PARSERS = ("HfArgumentParser", "TrlParser", "H4ArgumentParser", "DataClassArgumentParser")
_SCHEDULES = ("linear", "cosine", "constant_with_warmup")
_TRAINING: dict[str, Any] = {
    "output_dir": None,
    "learning_rate": 5e-5,
    "per_device_train_batch_size": 8,
    "gradient_accumulation_steps": 1,
    "weight_decay": 0.0,
    "warmup_ratio": 0.0,
    "lr_scheduler_type": "linear",
    "max_grad_norm": 1.0,
    "adam_beta1": 0.9,
    "adam_beta2": 0.999,
    "num_train_epochs": 3.0,
    "seed": 42,
}
"""The usual fields of TrainingArguments of transformers, which may not be installed here."""
_OF_LIBRARIES: dict[str, dict[str, Any]] = {
    "TrainingArguments": _TRAINING,
    "Seq2SeqTrainingArguments": _TRAINING,
    "SFTConfig": _TRAINING | {"learning_rate": 2e-5},
    "DPOConfig": _TRAINING | {"learning_rate": 1e-6, "beta": 0.1},
    "ORPOConfig": _TRAINING | {"learning_rate": 1e-6, "beta": 0.1},
    "KTOConfig": _TRAINING | {"learning_rate": 1e-6, "beta": 0.1},
    "RewardConfig": _TRAINING | {"learning_rate": 1e-4},
    "GRPOConfig": _TRAINING | {"learning_rate": 1e-6, "beta": 0.0},
    "RLOOConfig": _TRAINING | {"learning_rate": 1e-6, "beta": 0.05},
    "ModelConfig": {
        "model_name_or_path": None,
        "use_peft": False,
        "lora_r": 16,
        "lora_alpha": 32,
        "lora_dropout": 0.05,
    },
}
_TARGETS: tuple[tuple[tuple[str, ...], tuple[str, ...], Way, str], ...] = (
    (("cli",), ("tyro",), "both", ""),
    (("parse", "parse_known_args"), ("simple_parsing", "sp"), "option", "flat"),
    (("add_arguments",), ("simple_parsing",), "option", "flat"),
    (("parse",), ("draccus", "pyrallis", "argparsing"), "option", "."),
    (("entrypoint", "nested_entrypoint"), ("chz",), "assigned", "."),
    (("run",), ("typer",), "both", "-"),
)
"""Functions that take a class or a function, their libraries, how options are passed, and "-" for
commands whose names have dashes. If it is "flat", nested fields have only their own names.
"""
_SUBCOMMANDS = ("overridable_config_cli", "subcommand_cli_from_dict")
"""Functions of tyro that take configurations by name."""
_UNKNOWN = object()


@dataclass(frozen=True)
class Typed:
    """What a program takes by types.

    Attributes:
        options: Its options, in their order.
        words: Words that come before them, such as a subcommand.
    """

    options: list[ScriptOption]
    words: tuple[str, ...] = ()


def typed_options(program: ProgramSource) -> Typed | None:
    """Return the options that a program derives from types, or None if it does not.

    Args:
        program: The program.
    """
    reader = _Types(program)
    for module in program.modules:
        if module is not program.main and _starts_itself(module):
            continue
        for node in walk(module.tree):
            typed = None
            if isinstance(node, ast.Call):
                typed = reader.of_call(node)
            elif isinstance(node, ast.FunctionDef):
                typed = reader.of_function(node)
            if typed is not None and typed.options:
                return typed
        if (typed := reader.of_commands(module)) is not None and typed.options:
            return typed
    return reader.of_settings()


def class_options(program: ProgramSource, name: str, way: Way) -> list[ScriptOption]:
    """Return the fields of a class of a program as options.

    Args:
        program: The program.
        name: The class.
        way: How the options are passed.
    """
    return _Types(program).of_class(name, way, "") if name in program.classes else []


def _starts_itself(module: Module) -> bool:
    return 'if __name__ == "__main__"' in module.text.replace("'", '"')


@dataclass(frozen=True)
class _Place:
    """Where a field is.

    Attributes:
        module: The module that declares it.
        way: How it is passed.
        prefix: What precedes its name.
        depth: How deep it is in other classes.
        join: What joins the names of nested fields. "" if only their own names are used.
    """

    module: Module
    way: Way
    prefix: str = ""
    depth: int = 0
    join: str = "."


class _Types:
    """Reads classes and signatures as options."""

    def __init__(self, program: ProgramSource) -> None:
        self._program = program
        self._values: dict[str, StaticValues] = {}

    # Where a library is called.

    def of_call(self, call: ast.Call) -> Typed | None:
        """Return the options of a call that reads them by types, or None for any other call."""
        name = called_name(call)
        library = dotted_name(call.func).rpartition(".")[0]
        if name in _SUBCOMMANDS and "tyro" in self._program.imported_names:
            return self._of_subcommands(call)
        for names, libraries, way, join in _TARGETS:
            if name in names and self._is_of(library, libraries) and self._is_no_other(call):
                return self._of_targets(call, way, join)
        if name in _PARSERS:
            return self._of_hf(call)
        if name in ("CLI", "auto_cli", "auto_parser") and self._is_of("", ("jsonargparse",)):
            return self._of_jsonargparse(call)
        if name.endswith("CLI") and self._is_lightning_cli(name):
            return self._of_lightning(call)
        if name == "Fire":
            return self._of_fire(call)
        if name == "parse_args" and isinstance(call.func, ast.Attribute):
            return self._of_tap(call.func.value)
        return None

    def _is_of(self, library: str, libraries: tuple[str, ...]) -> bool:
        """Return whether a function may be that of a library: by its prefix, or by an import."""
        if library in libraries:
            return True
        imported = self._program.imported_names
        return bool(imported & set(libraries)) and library in ("", "parser")

    def _is_no_other(self, call: ast.Call) -> bool:
        """Return whether a function without a prefix is not one that comes from elsewhere.

        `from gsplat.distributed import cli` starts processes, and reads no options.
        """
        if not isinstance(call.func, ast.Name):
            return True
        name = call.func.id
        sources = {
            (node.module or "").partition(".")[0]
            for node in walk(self._program.main.tree)
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
            if (alias.asname or alias.name) == name
        }
        libraries = {library for _, known, _, _ in _TARGETS for library in known}
        return not sources or bool(sources & libraries)

    def _of_subcommands(self, call: ast.Call) -> Typed | None:
        """Return the options of the first of several configurations that tyro offers by name."""
        node = call.args[0] if call.args else None
        if isinstance(node, ast.Name):
            node = next(
                (
                    assigned.value
                    for assigned in walk(self._program.main.tree)
                    if _assigns(assigned, node.id)
                ),
                None,
            )
        if not isinstance(node, ast.Dict) or not node.keys:
            return None
        chosen, value = literal_of(node.keys[0]), node.values[0]
        if isinstance(value, ast.Tuple):
            value = value.elts[-1]
        name = called_name(value) if isinstance(value, ast.Call) else last_name(value)
        if not isinstance(chosen, str) or name not in self._program.classes:
            return None
        options = self.of_class(name, "both", "")
        return Typed(self._with_given(options, value, self._program.main, ""), (chosen,))

    def of_function(self, function: ast.FunctionDef) -> Typed | None:
        """Return the options of a function whose decorator parses them, or None."""
        for decorator in function.decorator_list:
            name = called_or_named(decorator)
            full = dotted_name(decorator.func if isinstance(decorator, ast.Call) else decorator)
            if name == "wrap" and full.partition(".")[0] in ("draccus", "pyrallis", "parser"):
                annotated = function.args.args[:1]
                if annotated:
                    return Typed(self._of_annotation(annotated[0].annotation, "option"))
            if name == "config" and "sacred" in self._program.imported_names:
                return Typed(self._of_sacred(), ("with",))
        return None

    def _of_sacred(self) -> list[ScriptOption]:
        """Return what all configurations of sacred assign. Those of an ingredient have its name."""
        options: dict[str, ScriptOption] = {}
        for module in self._program.modules:
            ingredients = {
                last_name(node.targets[0]): literal_of(node.value.args[0])
                for node in walk(module.tree)
                if isinstance(node, ast.Assign)
                and isinstance(node.value, ast.Call)
                and called_name(node.value) == "Ingredient"
                and node.value.args
            }
            for function in walk(module.tree):
                if not isinstance(function, ast.FunctionDef):
                    continue
                for decorator in function.decorator_list:
                    if last_name(decorator) != "config":
                        continue
                    owner = dotted_name(decorator).rpartition(".")[0].rpartition(".")[2]
                    prefix = f"{ingredients[owner]}." if owner in ingredients else ""
                    for option in self._of_body(function, "assigned"):
                        name = f"{prefix}{option.name}"
                        options.setdefault(name, replace(option, name=name))
        return list(options.values())

    def of_commands(self, module: Module) -> Typed | None:
        """Return the options of the command that trains, of typer or cyclopts."""
        imported = self._program.imported_names
        if not {"typer", "cyclopts"} & imported:
            return None
        commands: dict[str, ast.FunctionDef] = {}
        has_callback = False
        for node in walk(module.tree):
            if not isinstance(node, ast.FunctionDef):
                continue
            for decorator in node.decorator_list:
                full = dotted_name(decorator.func if isinstance(decorator, ast.Call) else decorator)
                has_callback = has_callback or full.endswith(".callback")
                if full.endswith(".default"):
                    return Typed(self._of_signature(node, "both", "-"))
                if full.endswith(".command") and not full.startswith("click."):
                    commands[_name_of_command(decorator, node.name)] = node
        if not commands:
            return None
        chosen = chosen_command(list(commands))
        options = self._of_signature(commands[chosen], "both", "-")
        is_alone = len(commands) == 1 and not has_callback and "typer" in imported
        return Typed(options, () if is_alone else (chosen,))

    def of_settings(self) -> Typed | None:
        """Return the options of a class of pydantic's settings, or None."""
        classes = {
            name: node
            for name, (_, node) in self._program.classes.items()
            if "BaseSettings" in map(last_name, node.bases)
        }
        held = {
            last_name(_without_wrappers(field.annotation))
            for node in classes.values()
            for field in node.body
            if isinstance(field, ast.AnnAssign)
        }
        for name, node in classes.items():
            if name in held:
                continue
            text = ast.unparse(node)
            if "cli_parse_args=True" in text:
                return Typed(self.of_class(name, "option", ""))
            prefix = next(
                (
                    str(literal_of(word.value) or "")
                    for word in walk(node)
                    if isinstance(word, ast.keyword) and word.arg == "env_prefix"
                ),
                "",
            )
            return Typed(
                [
                    replace(option, name=f"{prefix}{option.name}".upper(), way="variable")
                    for option in self.of_class(name, "option", "")
                    if not option.is_flag
                ]
            )
        return None

    # What is passed to it.

    def _of_targets(self, call: ast.Call, way: Way, join: str) -> Typed | None:
        """Return the options of the class or function that is passed to a library."""
        given = [*call.args[:1]]
        given += [word.value for word in call.keywords if word.arg in ("config_class", "f")]
        for node in given:
            name = called_name(node) if isinstance(node, ast.Call) else last_name(node)
            if name in self._program.classes:
                return Typed(self.of_class(name, way, "", join="" if join == "flat" else "."))
            if (function := self._function(name)) is not None:
                return Typed(self._of_signature(function, way, join))
        return None

    def _of_hf(self, call: ast.Call) -> Typed:
        nodes = [*call.args[:1], *(w.value for w in call.keywords if w.arg == "dataclass_types")]
        names = [name for node in nodes for name in self._names_in(node)]
        options: dict[str, ScriptOption] = {}
        for name in names:
            for option in self.of_class(name, "option", "", join=""):
                options.setdefault(option.name, option)
        return Typed(list(options.values()))

    def _names_in(self, node: ast.expr) -> list[str]:
        if isinstance(node, ast.Tuple | ast.List):
            return [name for element in node.elts for name in self._names_in(element)]
        name = last_name(node)
        if name in self._program.classes or name in _OF_LIBRARIES:
            return [name]
        for module in self._program.modules[:10]:
            for assigned in walk(module.tree):
                if _assigns(assigned, name) and isinstance(assigned.value, ast.Tuple | ast.List):
                    return self._names_in(assigned.value)
        return []

    def _of_jsonargparse(self, call: ast.Call) -> Typed | None:
        target: ast.expr | None = call.args[0] if call.args else None
        if target is None:
            own = [
                node
                for node in self._program.main.tree.body
                if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")
            ]
            targets = {node.name: node.name for node in own}
        else:
            targets = self._commands_in(target)
        if not targets:
            return None
        chosen = chosen_command(list(targets))
        name = targets[chosen]
        words = (chosen,) if len(targets) > 1 else ()
        if name in self._program.classes:
            return Typed(self.of_class(name, "option", ""), words)
        function = self._function(name)
        if function is None:
            return None
        return Typed(self._of_signature(function, "option", ""), words)

    def _function(self, name: str) -> ast.FunctionDef | None:
        """Return a function by the name that the script has for it."""
        for node in walk(self._program.main.tree):
            if not isinstance(node, ast.ImportFrom) or not node.module:
                continue
            for alias in node.names:
                if (alias.asname or alias.name) == name:
                    return self._function_in(node.module, alias.name)
        known = self._program.functions.get(name)
        return None if known is None else known[1]

    def _function_in(self, module: str, name: str) -> ast.FunctionDef | None:
        place = module.split(".")
        for other in self._program.modules:
            parts = list(other.path.with_suffix("").parts)
            if parts[-1:] == ["__init__"]:
                parts.pop()
            if parts[-len(place) :] != place:
                continue
            for node in other.tree.body:
                if isinstance(node, ast.FunctionDef) and node.name == name:
                    return node
        return None

    def _commands_in(self, node: ast.expr) -> dict[str, str]:
        """Return the functions and classes in a dict, a list or a name, by their command."""
        if isinstance(node, ast.Dict):
            return {
                str(literal_of(key)): last_name(value)
                for key, value in zip(node.keys, node.values, strict=True)
                if isinstance(literal_of(key), str) and last_name(value)
            }
        if isinstance(node, ast.List | ast.Tuple):
            return {last_name(element): last_name(element) for element in node.elts}
        name = last_name(node)
        if name in self._program.classes or self._function(name) is not None:
            return {name: name}
        for module in self._program.modules[:5]:
            for assigned in walk(module.tree):
                if _assigns(assigned, name) and isinstance(assigned.value, ast.Dict | ast.List):
                    return self._commands_in(assigned.value)
        return {}

    def _is_lightning_cli(self, name: str) -> bool:
        if name == "LightningCLI":
            return True
        if name not in self._program.classes:
            return False
        return "LightningCLI" in map(last_name, self._program.classes[name][1].bases)

    def _of_lightning(self, call: ast.Call) -> Typed:
        given = dict(zip(("model_class", "datamodule_class"), call.args, strict=False))
        given |= {word.arg: word.value for word in call.keywords if word.arg}
        options: list[ScriptOption] = []
        for word, prefix in (("model_class", "model"), ("datamodule_class", "data")):
            name = last_name(given.get(word))
            if name in self._program.classes:
                options += self.of_class(name, "option", f"{prefix}.")
        options += [
            ScriptOption("trainer.max_epochs", None, kind="int", is_own=False),
            ScriptOption("trainer.gradient_clip_val", None, kind="float", is_own=False),
        ]
        words = ("--trainer.logger=CSVLogger", "--trainer.logger.save_dir={folder}")
        runs = literal_of(given.get("run")) is not False
        return Typed(options, ("fit", *words) if runs else words)

    def _of_fire(self, call: ast.Call) -> Typed | None:
        if not call.args:
            own = {
                node.name: node.name
                for node in self._program.main.tree.body
                if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")
            }
            if not own:
                return None
            targets, is_alone = own, False
        else:
            targets = self._commands_in(call.args[0])
            is_alone = isinstance(call.args[0], ast.Name) and len(targets) == 1
        if not targets:
            return None
        chosen = chosen_command(list(targets))
        name = targets[chosen]
        if (function := self._function(name)) is not None:
            options = self._of_signature(function, "python", "")
            if function.args.kwarg is not None:
                options += self._of_updated(function, {option.name for option in options})
            return Typed(options, () if is_alone else (chosen,))
        if name in self._program.classes:
            return self._of_fired_class(name, () if is_alone else (chosen,))
        return None

    def _of_fired_class(self, name: str, words: tuple[str, ...]) -> Typed:
        """Return the options of a class and of its method that trains."""
        node = self._program.classes[name][1]
        methods = {
            method.name: method
            for method in node.body
            if isinstance(method, ast.FunctionDef) and not method.name.startswith("_")
        }
        options = self.of_class(name, "python", "")
        if not methods:
            return Typed(options, words)
        chosen = chosen_command(list(methods))
        known = {option.name for option in options}
        of_method = self._of_signature(methods[chosen], "python", "")
        options += [option for option in of_method if option.name not in known]
        return Typed(options, (*words, chosen))

    def _of_updated(self, function: ast.FunctionDef, known: set[str]) -> list[ScriptOption]:
        """Return the fields of the dataclasses that a function fills from its **kwargs."""
        used = {last_name(node) for node in walk(function) if isinstance(node, ast.Name)}
        aliases = {
            alias.asname or alias.name: alias.name
            for module in self._program.modules
            for node in walk(module.tree)
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
        }
        options: list[ScriptOption] = []
        for name in sorted(used, key=lambda name: "train" not in name.lower()):
            name = aliases.get(name, name)
            if name not in self._program.classes or not _is_dataclass(
                self._program.classes[name][1]
            ):
                continue
            for option in self.of_class(name, "python", ""):
                if option.name not in known:
                    known.add(option.name)
                    options.append(replace(option, is_required=False))
        return options

    def _of_tap(self, node: ast.expr) -> Typed | None:
        if not isinstance(node, ast.Call):
            return None
        name = called_name(node)
        if name not in self._program.classes:
            return None
        bases = map(last_name, self._program.classes[name][1].bases)
        if not {"Tap", "TypedArgs"} & set(bases):
            return None
        options = self.of_class(name, "option", "")
        ways: dict[Any, Way] = {True: "fixed", False: "switch"}
        return Typed(
            [
                replace(option, way=ways[option.default is True]) if option.is_flag else option
                for option in options
            ]
        )

    # Fields.

    def _of_annotation(self, node: ast.expr | None, way: Way) -> list[ScriptOption]:
        name = last_name(_without_wrappers(node))
        return self.of_class(name, way, "") if name else []

    def of_class(
        self, name: str, way: Way, prefix: str, *, depth: int = 0, join: str = "."
    ) -> list[ScriptOption]:
        """Return the fields of a class, or the parameters of its constructor, as options.

        Args:
            name: The class.
            way: How its fields are passed.
            prefix: What precedes their names.
            depth: How deep it is in other classes.
            join: What joins the names of nested fields. "" if only their own names are used.
        """
        if name not in self._program.classes:
            return _options_of_library(name, prefix)
        if depth > _MAX_DEPTH:
            return []
        module, node = self._program.classes[name]
        options: dict[str, ScriptOption] = {}
        for base in node.bases:
            base_name = last_name(base)
            if base_name == name:  # that of a library, such as transformers.TrainingArguments
                inherited = _options_of_library(name, prefix)
            else:
                inherited = self.of_class(base_name, way, prefix, depth=depth + 1, join=join)
            options |= {option.name: option for option in inherited}
        constructor = next(
            (
                method
                for method in node.body
                if isinstance(method, ast.FunctionDef) and method.name == "__init__"
            ),
            None,
        )
        if constructor is not None:
            place = _Place(module, way, prefix, depth)
            own = self._of_parameters(constructor, place)
        else:
            fields = [
                (field.target.id, field.annotation, field.value)
                for field in node.body
                if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
            ]
            own = [
                option
                for field in fields
                for option in self._of_field(*field, _Place(module, way, prefix, depth, join))
            ]
        # A field of a class replaces that of its base, at the same place.
        for option in own:
            options[option.name] = option
        return list(options.values())

    def _of_body(self, function: ast.FunctionDef, way: Way) -> list[ScriptOption]:
        """Return what a function assigns, as options.

        Of several modes, what it assigns for training.
        """
        values = StaticValues()
        values.learn([inner for statement in function.body for inner in _for_training(statement)])
        return [
            ScriptOption(name, value, kind=_kind_of_value(value), way=way)
            for name, value in _flattened(values.names)
            if isinstance(value, bool | int | float | str)
        ]

    def _of_signature(self, function: ast.FunctionDef, way: Way, join: str) -> list[ScriptOption]:
        """Return the parameters of a function as options. "-" joins the words of a command."""
        module = self._program.functions.get(function.name, (self._program.main, None))[0]
        if join != "-":
            return self._of_parameters(function, _Place(module, way))
        return [
            option
            for argument, default in _parameters(function)
            for option in self._of_parameter(argument, default, module)
        ]

    def _of_parameters(self, function: ast.FunctionDef, place: _Place) -> list[ScriptOption]:
        return [
            option
            for argument, default in _parameters(function)
            for option in self._of_field(argument.arg, argument.annotation, default, place)
        ]

    def _of_parameter(
        self, argument: ast.arg, default: ast.expr | None, module: Module
    ) -> list[ScriptOption]:
        """Return a parameter of a command of typer or cyclopts."""
        annotation = argument.annotation
        default = self._named_mark(default)
        marks = [node for node in _annotations(annotation) if isinstance(node, ast.Call)]
        if isinstance(default, ast.Call) and called_name(default) in ("Option", "Argument"):
            marks.append(default)
            default = default.args[0] if default.args else None
            if isinstance(default, ast.Constant) and default.value is ...:
                default = None
        mark = marks[-1] if marks else None
        names = [
            name
            for node in (mark.args if mark is not None else [])
            if isinstance(name := literal_of(node), str) and name.startswith("--")
        ]
        name = argument.arg.replace("_", "-")
        place = _Place(module, "option", depth=_MAX_DEPTH)
        fields = self._of_field(argument.arg, annotation, default, place)
        is_positional = (mark is None and default is None) or (
            mark is not None and called_name(mark) == "Argument"
        )
        options = []
        for option in fields:
            way: Way = "positional" if is_positional else "option"
            if option.kind == "bool":
                way = "both"
                first, _, second = (names[0] if names else "").partition("/")
                if first and second != f"--no-{first[2:]}":
                    way = "switch" if option.default is not True and not second else "fixed"
            elif option.way == "fixed":
                way = "fixed"
            if names:
                name = names[0].partition("/")[0][2:]
            option = replace(option, name=name, way=way)
            dest = "" if plain_name(option) == argument.arg else argument.arg
            options.append(replace(option, dest=dest))
        return options

    def _named_mark(self, default: ast.expr | None) -> ast.expr | None:
        """Return what a program assigns to the name that is a default: `Rate = Option(0.1)`."""
        if not isinstance(default, ast.Name):
            return default
        for module in self._program.modules:
            for node in module.tree.body:
                match node:
                    case (
                        ast.Assign(targets=[ast.Name(id=name)], value=ast.Call() as call)
                        | ast.AnnAssign(target=ast.Name(id=name), value=ast.Call() as call)
                    ) if name == default.id and called_name(call) in ("Option", "Argument"):
                        return call
        return default

    def _of_field(
        self, name: str, annotation: ast.expr | None, given: ast.expr | None, place: _Place
    ) -> list[ScriptOption]:
        """Return a field as an option, or the fields of the class that it holds."""
        full = f"{place.prefix}{name}"
        if isinstance(annotation, ast.Subscript) and last_name(annotation.value) == "ClassVar":
            return []
        inner = _without_wrappers(annotation)
        default_node, text = _default_and_help(given)
        held = self._held_class(inner, default_node)
        if held is not None and place.depth < _MAX_DEPTH:
            nested = self.of_class(
                held,
                place.way,
                f"{full}{place.join}" if place.join else place.prefix,
                depth=place.depth + 1,
                join=place.join,
            )
            if isinstance(default_node, ast.Constant):  # there is none unless it is asked for
                return [replace(option, way="fixed", is_required=False) for option in nested]
            return self._with_given(nested, default_node, place.module, f"{full}{place.join}")
        values = self._values_of(place.module)
        default = values.get(default_node)
        if isinstance(default_node, ast.Attribute) and self._is_enum(last_name(default_node.value)):
            default = self._enum_values(last_name(default_node.value)).get(default_node.attr)
        kind, choices = self._kind(inner, default)
        option = ScriptOption(
            name=full,
            default=default
            if isinstance(default, bool | int | float | str | list | tuple)
            else None,
            choices=choices or alternatives_in(text, default),
            kind=kind,
            way=_way_of(place.way, kind, default, is_nested="." in place.prefix),
            is_required=given is None,
            text=text,
        )
        if kind == "several":
            option = replace(option, kind=None, way="fixed")
        return [option]

    def _held_class(self, annotation: ast.expr | None, default: ast.expr | None) -> str | None:
        """Return the class of the program that a field holds, or None."""
        name = last_name(annotation)
        if isinstance(default, ast.Call) and called_name(default) in self._program.classes:
            name = called_name(default)
        if name not in self._program.classes or self._is_enum(name):
            return None
        return name

    def _with_given(
        self, options: list[ScriptOption], node: ast.expr | None, module: Module, prefix: str
    ) -> list[ScriptOption]:
        """Return options with the values that an instance was made with: `Optimizer(lr=0.1)`."""
        if not isinstance(node, ast.Call):
            return options
        values = self._values_of(module)
        given = {f"{prefix}{w.arg}": values.get(w.value, _UNKNOWN) for w in node.keywords if w.arg}
        return [
            replace(option, default=given[option.name], is_required=False)
            if given.get(option.name, _UNKNOWN) is not _UNKNOWN
            else option
            for option in options
        ]

    def _values_of(self, module: Module) -> StaticValues:
        key = str(module.path)
        if key not in self._values:
            values = StaticValues()
            values.learn(module.tree.body)
            self._values[key] = values
        return self._values[key]

    def _kind(self, node: ast.expr | None, default: Any) -> tuple[str | None, tuple[Any, ...]]:
        """Return the type of a field, "several" if it holds several values, and its choices."""
        name = last_name(node)
        if isinstance(node, ast.Subscript):
            name = last_name(node.value)
            if name == "Literal":
                choices = literal_of(node.slice)
                choices = choices if isinstance(choices, tuple) else (choices,)
                return _kind_of_value(choices[0]), tuple(c for c in choices if c is not None)
            return "several", ()
        if self._is_enum(name):
            return "str", tuple(self._enum_values(name).values())
        if name in _KINDS:
            return _KINDS[name], ()
        if node is None or isinstance(node, ast.BinOp):
            kinds = [_KINDS.get(last_name(part)) for part in _alternatives(node)]
            known = [kind for kind in kinds if kind is not None]
            return (_kind_of_value(default) or (known[0] if known else None)), ()
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            return _KINDS.get(node.value.partition(" ")[0]), ()
        return _kind_of_value(default) or ("several" if default is None else None), ()

    def _is_enum(self, name: str) -> bool:
        if name not in self._program.classes:
            return False
        bases = {last_name(base) for base in self._program.classes[name][1].bases}
        return bool(bases & {"Enum", "StrEnum", "ExplicitEnum"})

    def _enum_values(self, name: str) -> dict[str, str]:
        """Return the texts of an enumeration, by its members, which stand for other values."""
        node = self._program.classes[name][1]
        members = {
            last_name(part.targets[0]): literal_of(part.value)
            for part in node.body
            if isinstance(part, ast.Assign) and not last_name(part.targets[0]).startswith("_")
        }
        return {m: value if isinstance(value, str) else m for m, value in members.items()}


def _flattened(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield values by name, with dots in the names of those in dicts."""
    for name, value in values.items():
        if isinstance(value, dict):
            yield from _flattened(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _assigns(node: ast.AST, name: str) -> TypeGuard[ast.Assign]:
    return isinstance(node, ast.Assign) and last_name(node.targets[0]) == name


def _parameters(function: ast.FunctionDef) -> list[tuple[ast.arg, ast.expr | None]]:
    """Return the parameters of a function with their defaults."""
    signature = function.args
    positional = [*signature.posonlyargs, *signature.args]
    missing: list[ast.expr | None] = [None] * (len(positional) - len(signature.defaults))
    given = [
        *zip(positional, [*missing, *signature.defaults], strict=True),
        *zip(signature.kwonlyargs, signature.kw_defaults, strict=True),
    ]
    return [pair for pair in given if pair[0].arg not in ("self", "cls", "ctx")]


def _way_of(way: Way, kind: str | None, default: Any, *, is_nested: bool) -> Way:
    """Return how a field is passed: libraries differ in how they pass true and false."""
    is_bool = kind == "bool"
    if way == "both":
        if not is_bool:
            return "option"
        if is_nested:  # tyro's negative form has its "no-" after the last dot
            return "switch" if default is False else "fixed"
        return "both"
    if way == "python":
        return "python" if is_bool else "option"
    return way


def _options_of_library(name: str, prefix: str) -> list[ScriptOption]:
    return [
        _option_of_library(f"{prefix}{field}", default)
        for field, default in _OF_LIBRARIES.get(name, {}).items()
    ]


def _option_of_library(name: str, default: Any) -> ScriptOption:
    kind = "path" if name.endswith("output_dir") else _kind_of_value(default)
    choices = _SCHEDULES if name.endswith("lr_scheduler_type") else ()
    is_required = name.endswith(("output_dir", "model_name_or_path"))
    return ScriptOption(name, default, choices, kind, is_required=is_required, is_own=False)


def _kind_of_value(value: Any) -> str | None:
    if isinstance(value, bool | int | float | str):
        return type(value).__name__
    return None


def _is_dataclass(node: ast.ClassDef) -> bool:
    return any("dataclass" in called_or_named(decorator) for decorator in node.decorator_list)


def _alternatives(node: ast.expr | None) -> Iterator[ast.expr]:
    """Yield the types of `A | B | None`."""
    if isinstance(node, ast.BinOp):
        yield from _alternatives(node.left)
        yield from _alternatives(node.right)
    elif node is not None and not (isinstance(node, ast.Constant) and node.value is None):
        yield node


def _annotations(node: ast.expr | None) -> list[ast.expr]:
    """Return what Annotated adds to a type."""
    if (
        isinstance(node, ast.Subscript)
        and last_name(node.value) == "Annotated"
        and isinstance(node.slice, ast.Tuple)
    ):
        return node.slice.elts[1:]
    return []


def _without_wrappers(node: ast.expr | None) -> ast.expr | None:
    """Return the type in Optional[...], Annotated[...] or `... | None`."""
    while True:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            try:
                node = ast.parse(node.value, mode="eval").body
            except SyntaxError:
                return node
        if isinstance(node, ast.BinOp):
            parts = list(_alternatives(node))
            if len(parts) != 1:
                return node
            node = parts[0]
        elif isinstance(node, ast.Subscript) and last_name(node.value) in _WRAPPERS:
            node = node.slice.elts[0] if isinstance(node.slice, ast.Tuple) else node.slice
        elif isinstance(node, ast.Subscript) and last_name(node.value) == "Union":
            parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
            parts = [p for p in parts if not (isinstance(p, ast.Constant) and p.value is None)]
            if len(parts) != 1:
                return parts[0] if parts else None
            node = parts[0]
        else:
            return node


def _default_and_help(node: ast.expr | None) -> tuple[ast.expr | None, str]:
    """Return the default in `field(default=...)` and the like, and the help next to it."""
    if not isinstance(node, ast.Call):
        return node, ""
    name = called_name(node)
    given = {word.arg: word.value for word in node.keywords if word.arg}
    if name not in ("field", "Field", "ib", "attrib", "arg", "Arg", "mutable_field", "choice"):
        return node, ""
    text = literal_of(given.get("help")) or literal_of(given.get("description")) or ""
    metadata = literal_of(given.get("metadata"))
    if isinstance(metadata, dict):
        text = metadata.get("help", text)
    factory = given.get("default_factory") or given.get("factory")
    if isinstance(factory, ast.Lambda):
        return factory.body, str(text)
    if factory is not None:
        return ast.Call(func=factory, args=[], keywords=[]), str(text)
    if "default" in given:
        return given["default"], str(text)
    return (node.args[0] if node.args and name != "choice" else None), str(text)


def _name_of_command(decorator: ast.expr, function: str) -> str:
    if isinstance(decorator, ast.Call):
        given = {word.arg: literal_of(word.value) for word in decorator.keywords}
        first = literal_of(decorator.args[0]) if decorator.args else None
        if isinstance(name := first or given.get("name"), str):
            return name
    return function.replace("_", "-")


def _for_training(statement: ast.stmt) -> Iterator[ast.stmt]:
    """Yield a statement, or those below `if mode == "train"`, which run when a program trains."""
    if not isinstance(statement, ast.If):
        yield statement
        return
    modes = {part.value for part in walk(statement.test) if isinstance(part, ast.Constant)}
    if modes & {"train", "training"}:
        yield from (inner for part in statement.body for inner in _for_training(part))
    else:
        yield from (inner for part in statement.orelse for inner in _for_training(part))
