"""Inspects the user's modules by parsing their source, without running any of their code."""

from __future__ import annotations

import ast
import importlib.util
import inspect
import sys
from collections.abc import Iterator
from pathlib import Path

from workbench.experiment import Component


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
