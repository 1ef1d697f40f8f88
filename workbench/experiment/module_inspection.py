"""Inspects the user's modules by parsing their source, without running any of their code."""

from __future__ import annotations

import ast
import importlib.util
import inspect
import sys
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from workbench.experiment import Component

_Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
_WHOLE = frozenset(("args", "cfg", "config", "configuration", "hparams", "params"))
"""Names of a parameter that takes a whole configuration, wherever its values are read."""
_GIVEN = frozenset(("folder", "report", "seed", "worker"))
"""Parameters of a train function that are no part of its configuration."""
_READS = ("get", "pop", "setdefault")


def find_source(module_name: str) -> Path | None:
    """Return the path of a module's source, without importing the packages that contain it.

    Args:
        module_name: The dotted name of the module.

    Returns:
        The path, which is not a Python file for a built-in or compiled module. None if there is no
        such module.
    """
    # `find_spec` would import the parents of the module, so the folders are searched here first.
    places = [entry or "." for entry in sys.path]
    if "." not in places and "" not in sys.path:
        places.insert(0, ".")
    *parents, last = module_name.split(".")
    for parent in parents:
        places = [str(Path(place) / parent) for place in places if (Path(place) / parent).is_dir()]
    for place in places:
        for candidate in (Path(place) / f"{last}.py", Path(place) / last / "__init__.py"):
            if candidate.is_file():
                return candidate
    try:
        spec = importlib.util.find_spec(module_name)
    except (ImportError, ValueError, AttributeError):
        return None
    if spec is None:
        return None
    return Path(spec.origin or "built-in")


def bound_names(tree: ast.AST) -> Iterator[str]:
    """Yield the names that a module binds, without those inside its functions and classes."""
    for node in ast.iter_child_nodes(tree):
        match node:
            case (
                ast.FunctionDef(name=name)
                | ast.AsyncFunctionDef(name=name)
                | ast.ClassDef(name=name)
            ):
                yield name
            case (
                ast.Lambda() | ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp()
            ):
                pass
            case ast.Import(names=names) | ast.ImportFrom(names=names):
                yield from ((alias.asname or alias.name).split(".")[0] for alias in names)
            case ast.Name(id=name, ctx=ast.Store()):
                yield name
            case _:
                yield from bound_names(node)


def parameters_of(component: Component) -> list[str] | None:
    """Return the names of a function's parameters, or None if only running code would tell.

    Args:
        component: `module:function`, or a function defined in this process.
    """
    if component.payload_hash is not None:
        if component.payload is None:
            return None
        try:
            return list(inspect.signature(component.load()).parameters)
        except (TypeError, ValueError):
            return None
    return _parameters_in(_statements_of(component), component.name.partition(":")[2])


def method_parameters_of(component: Component, method: str) -> list[str] | None:
    """Return the names of a method's parameters, or None if only running code would tell.

    Args:
        component: `module:Class`, or a class defined in this process.
        method: Name of the method. In source, an inherited method cannot be seen.
    """
    if component.payload_hash is not None:
        if component.payload is None:
            return None
        try:
            return list(inspect.signature(getattr(component.load(), method)).parameters)
        except (AttributeError, TypeError, ValueError):
            return None
    name = component.name.partition(":")[2]
    classes = [
        node
        for node in _statements_of(component)
        if isinstance(node, ast.ClassDef) and node.name == name
    ]
    if not classes:
        return None
    return _parameters_in(classes[-1].body, method)


def definition_of(
    component: Component,
) -> ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | None:
    """Return the definition of a component's function or class, or None if it is not in the source.

    Args:
        component: `module:name`.
    """
    name = component.name.partition(":")[2]
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    # The last definition of a name counts, as in Python.
    for node in reversed(_statements_of(component)):
        if isinstance(node, kinds) and node.name == name:
            return node
    return None


def configuration_of(component: Component, defined: Any = None) -> dict[str, Any]:
    """Return the values that a class or a function reads from its configuration.

    `config["width"]`, `config.get("width", 64)` and parameters such as `width=64` are recognised in
    the source, in its order. A value that is read elsewhere is not seen.

    Args:
        component: `module:name`, or a class or a function defined in this process.
        defined: That class or function, if it is still there. Its pickle does not know the cell
            that it was defined in.

    Returns:
        The default of each value: a number, a text, true or false. None if it has none of these.
        Empty if there is no Python source.
    """
    functions, is_class = _functions_of(component, defined)
    entries = [function for function in functions if function.name == "__init__" or not is_class]
    if not entries:
        return {}
    entry = entries[-1]
    names = [item.arg for item in (*entry.args.posonlyargs, *entry.args.args)]
    own = names[:is_class]
    names = names[is_class:]
    reads = _reads_in(entry, functions, names[0]) if names else {}
    left = {*own, *_GIVEN, *(names[:1] if reads else _WHOLE)}
    parameters = _defaults_in(entry.args)
    return reads | {name: value for name, value in parameters.items() if name not in left}


def _functions_of(component: Component, defined: Any) -> tuple[list[_Function], bool]:
    """Return a function, or all methods that a class defines itself, and whether it is a class."""
    if component.payload_hash is None:
        definition = definition_of(component)
        is_class = isinstance(definition, ast.ClassDef)
        members = definition.body if isinstance(definition, ast.ClassDef) else [definition]
        return [member for member in members if isinstance(member, _Function)], is_class
    if defined is None:
        if component.payload is None:
            return [], False
        defined = component.load()
    is_class = inspect.isclass(defined)
    members = list(vars(defined).values()) if is_class else [defined]
    functions: list[_Function] = []
    for member in filter(inspect.isfunction, members):
        try:
            parsed = ast.parse(textwrap.dedent(inspect.getsource(member))).body
        except (OSError, TypeError, SyntaxError):  # its cell was run in another process
            continue
        functions += [node for node in parsed[:1] if isinstance(node, _Function)]
    return functions, is_class


def _reads_in(entry: _Function, functions: Sequence[_Function], first: str) -> dict[str, Any]:
    """Return the values that are read from the first parameter, and from what it is kept as.

    Args:
        entry: The function that receives the configuration.
        functions: The functions that may read it, if it is kept as `self.config`.
        first: The parameter that receives it.
    """
    names, attributes = _kept_as(entry, first)
    reads: dict[str, Any] = {}
    for function in [entry, *(other for other in functions if other is not entry)]:
        for source, key, default in _keys_in(function):
            is_kept = isinstance(source, ast.Attribute) and source.attr in attributes
            is_named = function is entry and isinstance(source, ast.Name) and source.id in names
            if is_kept or is_named:
                reads[key] = default if reads.get(key) is None else reads[key]
    return reads


def _kept_as(entry: _Function, first: str) -> tuple[set[str], set[str]]:
    """Return the names and the attributes that a parameter is assigned to, itself included."""
    names, attributes = {first}, set[str]()
    for node in ast.walk(entry):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Name):
            if node.value.id not in names:
                continue
            for target in node.targets:
                if isinstance(target, ast.Name):
                    names.add(target.id)
                elif isinstance(target, ast.Attribute):
                    attributes.add(target.attr)
    return names, attributes


def _keys_in(function: _Function) -> Iterator[tuple[ast.expr, str, Any]]:
    """Yield what is read by a constant key, in the order of the source: from what, key, default."""
    nodes = [node for node in ast.walk(function) if isinstance(node, ast.Subscript | ast.Call)]
    for node in sorted(nodes, key=lambda node: (node.lineno, node.col_offset)):
        match node:
            case ast.Subscript(value=source, slice=ast.Constant(value=str(key)), ctx=ast.Load()):
                yield source, key, None
            case ast.Call(
                func=ast.Attribute(value=source, attr=method),
                args=[ast.Constant(value=str(key)), *rest],
            ) if method in _READS:
                yield source, key, _constant(rest[0]) if rest else None


def _defaults_in(arguments: ast.arguments) -> dict[str, Any]:
    """Return all parameters of a function with their defaults, or None if these are not known."""
    positional = [*arguments.posonlyargs, *arguments.args]
    first = len(positional) - len(arguments.defaults)
    defaults = {item.arg: None for item in positional[:first]}
    for item, node in zip(positional[first:], arguments.defaults, strict=True):
        defaults[item.arg] = _constant(node)
    for item, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        defaults[item.arg] = None if default is None else _constant(default)
    return defaults


def _constant(node: ast.expr) -> Any:
    """Return a number, a text, true or false that is written in source, or else None."""
    try:
        value = ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None
    return value if isinstance(value, bool | int | float | str) else None


def _statements_of(component: Component) -> list[ast.stmt]:
    """Return the statements of a component's module. Empty if there is no Python source."""
    source = find_source(component.name.partition(":")[0])
    if source is None or source.suffix != ".py":
        return []
    return ast.parse(source.read_text(encoding="utf-8")).body


def _parameters_in(statements: list[ast.stmt], name: str) -> list[str] | None:
    """Return the names of the parameters of the function of this name."""
    functions = [
        node for node in statements if isinstance(node, ast.FunctionDef) and node.name == name
    ]
    if not functions or functions[-1].decorator_list:
        return None
    arguments = functions[-1].args
    parameters = (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
    return [parameter.arg for parameter in parameters]
