from __future__ import annotations

import ast
import re
import subprocess
import sys
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "workbench"
SOURCES = sorted(PACKAGE.rglob("*.py"))
TESTED_PROGRAMS = ROOT / "tests" / "training" / "programs" / "public"
CODE = [
    path
    for folder in ("workbench", "tests", "docs", "extensions")
    for path in sorted((ROOT / folder).rglob("*.py"))
    if not path.is_relative_to(TESTED_PROGRAMS) and "node_modules" not in path.parts
]

# Which rooms may import a library, and which of them must not do so before they are used.
OWNERS = {
    "ray": {"cluster", "sweeps", "hardware.resources"},
    "optuna": {"search"},
    "plotly": {"runs.plots"},
    "sqlalchemy": {"store", "data"},
    "alembic": {"store"},
    "psycopg": {"store"},
    "torch": {
        "tiers",
        "models",
        "training.exchanges",
        "training.strategies",
        "hardware.performance",
        "training",
        "training.probes",
        "deploy",
    },
    "pynvml": {"hardware.resources"},
    "sklearn": {"data", "models"},
    "mlflow": {"store.loggers"},
    "wandb": {"store.loggers"},
    "xgboost": {"bridges", "models"},
    "lightgbm": {"bridges", "models"},
    "catboost": {"models"},
    "lightning": {"bridges"},
    "transformers": {"bridges", "data", "models"},
    "lm_eval": {"training"},
    "peft": {"models"},
    "keras": {"bridges"},
    "jax": {"bridges"},
    "pandas": {"data", "runs", "runs.automl"},
    "cryptography": {"deploy", "tiers"},
    "onnx": {"deploy", "tiers"},
    "onnxscript": {"deploy"},
    "onnxruntime": {"deploy", "tiers"},
    "prometheus_client": {"deploy"},
    "starlette": {"deploy"},
    "uvicorn": {"deploy", "views.agents"},
    "mcp": {"views.agents"},
    "uvloop": {"deploy"},
    "pyarrow": {"foundation.artifacts", "data", "runs.importing", "store.history"},
    "click": {"cli"},
    "rich": {"cli"},
    "anywidget": {"views.widgets"},
    "IPython": {"runs", "views.widgets"},
    "ipywidgets": {"views.widgets"},
    "jupyter_server": {"views.server"},
    "tornado": {"views.server"},
}
WAITS = {
    "communicate",
    "get",
    "join",
    "lease",
    "next",
    "run",
    "urlopen",
    "wait",
    "wait_for",
    "wait_until",
}
GIVEN_LIMIT = re.compile(r"timeout(?:_s)?=\d|\b(?:wait|join)\(\d")
CONDITIONAL_ELSE = re.compile(r"\belse\b(?!\s*:)")
DOCSTRING = re.compile(r'(#.*\n|\n)*r?"""')
BANNED_NAMES = {"utils", "util", "helpers", "common", "misc", "base", "core", "manager", "handler"}


@cache
def imported_libraries() -> grimp.ImportGraph:
    """Who imports what, in functions, too, but for imports that only serve types."""
    return grimp.build_graph(
        "workbench",
        include_external_packages=True,
        exclude_type_checking_imports=True,
        cache_dir=None,
    )


def room(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


_FEW_MODULES = 16
"""So many are seen at a glance."""


@pytest.mark.parametrize("library", OWNERS)
def test_each_foreign_library_is_imported_by_its_owners_only(library: str) -> None:
    graph = imported_libraries()
    users = graph.find_modules_that_directly_import(library) if library in graph.modules else set()
    owners = tuple(f"workbench.{owner}." for owner in OWNERS[library])
    assert {user for user in users if not f"{user}.".startswith(owners)} == set()


def test_no_file_has_a_name_that_explains_nothing() -> None:
    assert [path for path in SOURCES if path.stem in BANNED_NAMES] == []


def test_every_module_says_what_it_does() -> None:
    assert [path for path in SOURCES if not DOCSTRING.match(path.read_text())] == []


def test_large_rooms_list_their_modules_by_subject() -> None:
    """The files of `cli` need no list: they are named after the commands."""
    for room in sorted({path.parent for path in SOURCES}):
        modules = {path.stem for path in room.glob("*.py")} - {"__init__"}
        if len(modules) <= _FEW_MODULES or room == PACKAGE / "cli":
            continue
        text = ast.get_docstring(ast.parse((room / "__init__.py").read_text(encoding="utf-8")))
        guide = re.findall(r"^- .*(?:\n  .*)*", text or "", re.MULTILINE)
        listed = re.findall(r"`(\w+)`", "".join(line.partition(": ")[2] for line in guide))
        assert sorted(listed) == sorted(modules), room.relative_to(PACKAGE)


def test_no_modules_import_each_other_in_a_circle() -> None:
    """Imports inside functions count, and so do those that only serve types."""
    graph = grimp.build_graph("workbench", cache_dir=None)
    imported = {name: graph.find_modules_directly_imported_by(name) for name in graph.modules}
    try:
        TopologicalSorter(imported).prepare()
    except CycleError as error:
        pytest.fail(" <- ".join(error.args[1]))


def may_nest(source: str) -> bool:
    """Whether a statement has two conditional expressions: to parse all files takes seconds.

    A statement begins at a line that is indented no further than the last one, or after a colon.
    """
    statement, num_else = 0, 0
    for line in source.splitlines():
        text = line.lstrip()
        if not text:
            continue
        indent = len(line) - len(text)
        if indent <= statement and text[0] not in ")]}":
            statement, num_else = indent, 0
        if "else" in text:
            num_else += len(CONDITIONAL_ELSE.findall(text))
            if num_else > 1:
                return True
        if text.endswith(":"):
            statement, num_else = sys.maxsize, 0
    return False


def nested_conditions(source: str) -> list[int]:
    """The lines of conditional expressions in which there is another one."""
    if not may_nest(source):
        return []
    return [
        outer.lineno
        for outer in ast.walk(ast.parse(source))
        if isinstance(outer, ast.IfExp)
        and any(isinstance(inner, ast.IfExp) for inner in ast.walk(outer) if inner is not outer)
    ]


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ("x = 1 if a else 2 if b else 3\n", [1]),
        (
            "def f():\n    return (\n        1\n        if a\n        else [2 if b else 3]\n    )",
            [3],
        ),
        ("def f():\n    x = 1 if a else 2\n    y = 1 if b else 2\n", []),
        ("x = [1 if a else 2, 1 if b else 2]\n", []),
        ("for a in b:\n    pass\nelse:\n    x = 1 if a else 2\n", []),
        ("if a:\n    f(\n        1 if (a if b else c) else 2,\n    )\n", [3]),
    ],
)
def test_conditional_expressions_inside_others_are_found(source: str, lines: list[int]) -> None:
    assert nested_conditions(source) == lines


def test_no_conditional_expression_is_inside_another() -> None:
    nested = [
        f"{path.relative_to(ROOT)}:{line}"
        for path in CODE
        for line in nested_conditions(path.read_text())
    ]
    assert nested == []


def _last_name(called: ast.expr) -> str:
    return ast.unparse(called).rpartition(".")[2]


def limits_of_waiting(path: Path) -> list[tuple[int, float]]:
    """The lines and seconds of calls that wait for something."""
    text = path.read_text()
    if not GIVEN_LIMIT.search(text):
        return []
    limits: list[tuple[int, float]] = []
    for call in ast.walk(ast.parse(text)):
        if isinstance(call, ast.Call) and (name := _last_name(call.func)) in WAITS:
            given = [word.value for word in call.keywords if word.arg in ("timeout", "timeout_s")]
            if name in ("join", "wait", "wait_until"):
                given += call.args
            limits += [
                (call.lineno, value.value)
                for value in given
                if isinstance(value, ast.Constant) and isinstance(value.value, int | float)
            ]
    return limits


def test_tests_wait_long_enough_for_a_busy_machine() -> None:
    """With a limit of a few seconds a test waits for what must not come. Any other only ends what
    hangs.
    """
    short = [
        f"{path.relative_to(ROOT)}:{line}: {limit_s:g} s"
        for path in CODE
        if path.is_relative_to(ROOT / "tests")
        and not {"benchmarks", "faults"} & set(path.relative_to(ROOT).parts)
        for line, limit_s in limits_of_waiting(path)
        if 3 < limit_s < 120
    ]
    assert short == []


def test_the_tree_in_the_docs_is_the_tree_on_the_disk() -> None:
    block = re.search(
        r"```text\n(workbench/\n.*?)```",
        (ROOT / "docs" / "how-it-is-built.md").read_text(),
        re.DOTALL,
    )
    assert block is not None
    lines = block[1].splitlines()
    drawn_rooms = {line.split()[0].rstrip("/") for line in lines if line.startswith("  ")}
    drawn_folders = {line.split()[0].rstrip("/") for line in lines if not line.startswith(" ")}
    kept = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout
    tracked = [Path(line) for line in kept.splitlines()]
    rooms = {path.parts[1] for path in tracked if path.parts[0] == "workbench"}
    folders = {
        path.parts[0]
        for path in tracked
        if len(path.parts) > 1 and not path.parts[0].startswith(".")
    }
    assert drawn_rooms == rooms - {"__init__.py", "__main__.py", "py.typed"}
    assert drawn_folders == folders


def test_the_top_level_holds_nothing_else() -> None:
    kept = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout
    top = {Path(line).parts[0] for line in kept.splitlines()}
    allowed = {
        "workbench",
        "docs",
        "notebooks",
        "extensions",
        "search_spaces",
        "tests",
        ".ci",
        ".github",
        ".gitignore",
        ".pre-commit-config.yaml",
        ".devcontainer",
        ".dockerignore",
        "CITATION.cff",
        "containers",
        "requirements.lock",
    }
    allowed |= {"pyproject.toml", "README.md", "Makefile", "constraints.txt", "LICENSE"}
    allowed |= {"CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md"}
    assert top <= allowed


@pytest.mark.parametrize(
    "rooms",
    [
        {
            "workbench": "torch ray optuna plotly pandas sklearn pyarrow numpy",
            "workbench.views.forms": "torch ray optuna plotly pandas sklearn pyarrow numpy",
            "workbench.runs.automl": "torch ray optuna plotly pandas sklearn",
            "workbench.deploy.serving.server_process": (
                "torch ray optuna plotly pandas sklearn pyarrow"
            ),
            "workbench.deploy.serving.app": "torch ray optuna plotly pandas sklearn pyarrow",
            "workbench.runs": "torch ray optuna plotly pandas",
            "workbench.cli": "torch ray optuna plotly pandas",
            "workbench.views.widgets": "torch ray optuna plotly pandas",
            "workbench.views.server.extension": "torch ray optuna plotly pandas",
            "workbench.training": "torch ray",
        },
        {
            "workbench.sweeps.coordinator": "torch optuna sqlalchemy ray.tune pandas pyarrow",
            "workbench.sweeps.driver": "torch ray.data",
        },
    ],
    ids=lambda rooms: next(iter(rooms)),
)
def test_importing_a_room_loads_no_heavy_library(rooms: dict[str, str]) -> None:
    """Import some in one process, those of which most is demanded first."""
    program = f"""
import importlib, sys
sys.modules["rfc3987_syntax"] = None  # jsonschema would compile its grammar, for seconds
for module, forbidden in {rooms!r}.items():
    importlib.import_module(module)
    print(sorted(set(forbidden.split()) & set(sys.modules)))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    assert done.stdout.splitlines() == ["[]"] * len(rooms)


def test_every_dependency_names_the_room_that_needs_it() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    listed = re.findall(
        r"^(?:dependencies|train|lab) = \[\n(.*?)^\]", text, re.DOTALL | re.MULTILINE
    )
    assert len(listed) == 3
    rooms = {room(path) for path in SOURCES}
    for line in "".join(listed).splitlines():
        assert "#" in line, line
        named = set(re.findall(r"[a-z]+", line.split("#")[1]))
        assert named & rooms, line


def test_every_dependency_is_pinned() -> None:
    pinned = {
        re.split(r"[=<>\[]", line)[0].lower().replace("_", "-")
        for line in (ROOT / "constraints.txt").read_text().splitlines()
        if line and not line.startswith("#")
    }
    text = (ROOT / "pyproject.toml").read_text()
    needed = re.findall(
        r'^    "([A-Za-z0-9_.-]+)', text.split("[project.scripts]")[0], re.MULTILINE
    )
    assert {name.lower().replace("_", "-") for name in needed} - {"tuning-workbench"} <= pinned


def test_no_two_test_files_have_the_same_name() -> None:
    names = [path.name for path in (ROOT / "tests").rglob("test_*.py")]
    assert {name for name in names if names.count(name) > 1} == set()
