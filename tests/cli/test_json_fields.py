"""A field of the JSON documents of commands has one meaning, and an exit code is in the table."""

from __future__ import annotations

import ast
import json
from pathlib import Path

from tests.builders.recorded_runs import record_run
from tests.services.shell import Shell
from workbench.cli import errors
from workbench.cli.json_fields import FIELDS

MODULES = sorted(Path(errors.__file__).parent.glob("*.py"))
_NOT_PRINTED = {"_try", "doctor", "carried_out"}
"""Functions whose other dicts are no documents."""


def _fields(function: ast.FunctionDef) -> set[str]:
    calls = [node for node in ast.walk(function) if isinstance(node, ast.Call)]
    prints = any(isinstance(call.func, ast.Name) and call.func.id == "print_json" for call in calls)
    if function.name in _NOT_PRINTED or not (prints or function.name == "_to_json"):
        return set()
    keys = [key for node in ast.walk(function) if isinstance(node, ast.Dict) for key in node.keys]
    names = {key.value for key in keys if isinstance(key, ast.Constant)}
    return {name for name in names if isinstance(name, str) and not name.startswith("--")}


def test_every_field_is_in_the_table_with_its_meaning() -> None:
    printed: set[str] = set()
    for module in MODULES:
        for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef):
                printed |= _fields(node)
    assert printed - {*FIELDS, "try", "machines"} == set()  # these two are not printed
    assert {"run_id", "message", "path", "ok"} <= printed


def test_exit_codes_are_those_of_the_table() -> None:
    codes = {code for name, code in vars(errors).items() if name.isupper() and type(code) is int}
    assert codes == set(errors.EXIT_CODES)
    for module in MODULES:
        for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Return) and isinstance(node.value, ast.Constant):
                code = node.value.value
                if isinstance(code, int) and not isinstance(code, bool):
                    assert code == errors.DONE, f"{module.name}, line {node.lineno}"


def test_errors_are_documents_too(shell: Shell) -> None:
    record_run(shell.folder)
    for words, field in (
        (("show", "nothing"), None),
        (("show", "last", "--limit", "many"), "--limit"),
        (("rename", "last"), "NAME"),
        (("list", "--sttae", "running"), "--sttae"),
        (("fly",), None),
    ):
        code, out, err = shell(*words, "--json")
        document = json.loads(out)
        assert (code, document["ok"]) == (2, False)
        error = document["error"]
        assert set(error) == {"type", "field", "message", "next_command", "exit_code"}
        assert (error["exit_code"], error["field"]) == (2, field)
        assert err.startswith(f"error: {error['message']}")
        assert set(error) <= set(FIELDS)
