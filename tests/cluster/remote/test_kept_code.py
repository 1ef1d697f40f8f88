from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from workbench.cluster.remote import code_dependencies
from workbench.cluster.remote.code_archive import unpack
from workbench.cluster.remote.code_origin import Origin, user_modules
from workbench.cluster.remote.kept_code import (
    MAX_DEPTH,
    PACKAGES,
    changed_files,
    changed_packages,
    find,
    hash_of,
    keep,
    others_of,
    package_requirements,
)
from workbench.experiment import Experiment

LOSS = [{"metric": "loss", "goal": "minimize"}]


def experiment_of(**fields: Any) -> Experiment:
    return Experiment(**{"objectives": LOSS, "search": {"x": {"low": 0, "high": 1}}, **fields})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "work"
    files = {
        "my_train.py": (
            "import my_lib\nDATA = 'table.csv'\ndef train(config, report): open('out.log', 'a')\n"
        ),
        "my_lib.py": "import my_pkg.part\n",
        "my_pkg/__init__.py": "",
        "my_pkg/part.py": "",
        "beside.py": "",
        "table.csv": "1,2",
        "out.log": "written",
        ".env": "TOKEN=1",
        "id_rsa": "#!key",
        "node_modules/__init__.py": "",
    }
    for name, content in files.items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(content)
    return place


def names(paths: set[Path], folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in paths if path.is_relative_to(folder)}


def test_a_package_that_could_not_be_imported_is_no_module_of_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python keeps the folders without `__init__.py` that it has imported from it."""
    (tmp_path / "half_there/folder").mkdir(parents=True)
    (tmp_path / "half_there/folder/part.py").touch()
    (tmp_path / "half_there/__init__.py").write_text("import half_there.folder.part, not_there")
    (tmp_path / "whole.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ModuleNotFoundError, match="not_there"):
        importlib.import_module("half_there")
    importlib.import_module("whole")
    with pytest.raises(KeyError):
        list(sys.modules["half_there.folder"].__path__)

    modules = user_modules()

    assert "whole" in modules
    assert "half_there.folder" not in modules


def test_what_is_named_imported_and_beside_it_is_kept_and_secrets_are_not(folder: Path) -> None:
    found = find(experiment_of(train="my_train:train"), Origin(str(folder)))
    kept = {"my_train.py", "my_lib.py", "my_pkg/__init__.py", "my_pkg/part.py", "beside.py"}
    assert names(found.sources, folder) == kept
    assert names(found.others, folder) == {
        "table.csv"
    }  # what it writes says nothing by its changes


@pytest.mark.parametrize(
    ("command", "script"),
    [
        ("python my_train.py {x}", "my_train.py"),
        ("python -u -m my_pkg.part {x}", "my_pkg/part.py"),
        ("torchrun --nproc-per-node 2 my_train.py {x} --out out.log", "my_train.py"),
    ],
)
def test_the_script_of_a_command_is_kept(folder: Path, command: str, script: str) -> None:
    kept = find(experiment_of(command=command), Origin(str(folder)))
    assert script in names(kept.sources, folder)
    assert "out.log" not in names(kept.others, folder)


def test_the_same_files_make_the_same_archive_and_an_edit_another(
    folder: Path, tmp_path: Path
) -> None:
    experiment, origin = experiment_of(train="my_train:train"), Origin(str(folder))
    first, again = keep(experiment, origin), keep(experiment, origin)
    assert first is not None
    assert again is not None
    assert first == again
    unpack(first.content, tmp_path / "kept")
    manifest = json.loads((tmp_path / "kept" / "manifest.json").read_text())
    assert changed_files(manifest) == []
    (folder / "my_pkg" / "part.py").write_text("1")
    (folder / "beside.py").unlink()
    assert changed_files(manifest) == [
        str(folder / "beside.py"),
        str(folder / "my_pkg" / "part.py"),
    ]
    edited = keep(experiment, origin, before=first.hashes)
    assert edited is not None
    assert edited.sha256 != first.sha256


def test_a_zoo_model_has_no_code_to_keep(folder: Path) -> None:
    experiment = Experiment(
        model="mlp", data="digits", objectives=[{"metric": "val_loss", "goal": "minimize"}]
    )
    assert keep(experiment, Origin(str(folder))) is None
    assert others_of(experiment, Origin(str(folder)), None) == [PACKAGES]


def test_data_and_the_program_are_compared(folder: Path) -> None:
    data = experiment_of(command="python my_train.py {x}")
    others = others_of(data, Origin(str(folder)), None)
    assert str(folder / "table.csv") in others
    assert any(Path(path).name.startswith("python") for path in others)
    assert PACKAGES in others


def test_what_cannot_be_kept_is_named_by_the_kept_code_so_that_drivers_need_not_look(
    folder: Path, tmp_path: Path
) -> None:
    experiment, origin = experiment_of(train="my_train:train"), Origin(str(folder))
    kept = keep(experiment, origin)
    assert kept is not None
    unpack(kept.content, tmp_path / "kept")
    manifest = json.loads((tmp_path / "kept" / "manifest.json").read_text())
    looked = others_of(experiment, origin, None)
    assert others_of(experiment, Origin(str(tmp_path)), manifest) == looked


def test_every_file_of_a_large_project_is_parsed_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    num_files = 40
    for number in range(num_files):
        (folder / f"scripts{number}").mkdir()
        script = (
            f"import my_lib\nimport step{number}\nNEXT ="
            f" 'scripts{(number + 1) % num_files}/run.py'\n"
        )
        (folder / f"scripts{number}" / "run.py").write_text(script)
        (folder / f"scripts{number}" / f"step{number}.py").write_text("import my_pkg.part")
    (folder / "my_train.py").write_text("import my_lib\nFIRST = 'scripts0/run.py'\n")
    parsed: list[str] = []
    parse = code_dependencies.ast.parse
    monkeypatch.setattr(
        code_dependencies.ast, "parse", lambda code: parsed.append(code) or parse(code)
    )
    kept = find(experiment_of(train="my_train:train"), Origin(str(folder)))
    assert len(names(kept.sources, folder)) == 2 * num_files + 5
    assert len(parsed) <= 2 * num_files + 5


def test_a_file_that_has_changed_is_parsed_again(folder: Path) -> None:
    lib = folder / "my_lib.py"
    assert code_dependencies.parse_code(lib).imports == {"my_pkg"}
    lib.write_text("import json, my_other\nfrom . import near\n'''A text alone'''\nx = 'a text'\n")
    assert code_dependencies.parse_code(lib).imports == {"json", "my_other"}
    assert code_dependencies.parse_code(lib).texts == ("a text",)


def test_packages_that_changed_are_named() -> None:
    before = b"PyYAML-6.0-py3.12.egg-info\nnumpy-2.3.1.dist-info\nold_one-1.dist-info"
    now = b"PyYAML-6.0-py3.12.egg-info\nnew_one-2.dist-info\nnumpy-2.4.0.dist-info"
    assert changed_packages(before, now) == [
        "added new_one 2",
        "numpy 2.3.1 -> 2.4.0",
        "removed old_one 1",
    ]
    assert package_requirements(now) == ["PyYAML==6.0", "new_one==2", "numpy==2.4.0"]


def test_code_and_configuration_that_are_reached_in_other_ways_are_found(tmp_path: Path) -> None:
    files = {
        "my_train.py": (
            "import importlib\nCONF = ('conf', 'net.yaml')\n"
            "def train(config, report):\n    importlib.import_module('plugins.first')\n"
            "    exec(open('part.py').read())\n"
        ),
        "plugins/first.py": "",
        "part.py": "",
        "sub/conf/net.yaml": "",
        "sub/conf/other.yaml": "",
        ".hidden/first.py": "",
        "environment/pyvenv.cfg": "",
        "environment/first.py": "",
        "fit.py": "",
        "Makefile": "fit:\n\tpython fit.py $(X)\n",
    }
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content)
    kept = find(experiment_of(train="my_train:train"), Origin(str(tmp_path)))
    assert names(kept.sources, tmp_path) == {
        "my_train.py",
        "plugins/first.py",
        "part.py",
        "fit.py",
    }
    assert names(kept.others, tmp_path) == {"sub/conf/net.yaml"}
    assert names(kept.unserved, tmp_path) == {"part.py"}  # its text is executed, so it is compared

    made = find(experiment_of(command="make -s fit X={x}"), Origin(str(tmp_path)))
    assert "fit.py" in names(made.sources - made.beside, tmp_path)
    assert "Makefile" in names(made.others, tmp_path)


def test_below_each_folder_of_code_modules_are_found_to_the_same_depth(tmp_path: Path) -> None:
    (tmp_path / "my_train.py").write_text("SCRIPT = 'a/b/run.py'\n")
    for levels in ("abcdefgh", "zyxwvuts"):
        for num_levels in range(1, len(levels) + 1):
            inside = tmp_path.joinpath(*levels[:num_levels])
            inside.mkdir()
            (inside / "module.py").touch()
    (tmp_path / "a/b/run.py").touch()
    kept = find(experiment_of(command="python my_train.py {x}"), Origin(str(tmp_path)))
    depths = {"a": 2 + MAX_DEPTH, "z": MAX_DEPTH}
    for first, depth in depths.items():
        modules = names(kept.beside, tmp_path)
        lengths = [name.count("/") for name in modules if name.startswith(first)]
        assert sorted(lengths) == list(range(1, depth + 1))


def test_a_folder_of_data_changes_with_the_files_in_it(tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "a.png").write_bytes(b"a")
    (tmp_path / "my_train.py").write_text("")
    experiment = experiment_of(command="python my_train.py --data images {x}")
    others = others_of(experiment, Origin(str(tmp_path)), None)
    folder = str(tmp_path / "images")
    assert {folder, f"{folder}/a.png"} <= set(others)
    before = hash_of(folder)
    (tmp_path / "images" / "b.png").write_bytes(b"b")
    assert hash_of(folder) != before
