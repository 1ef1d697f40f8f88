"""Constants of files, and programs that run with other values of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from configparser import ConfigParser
from pathlib import Path

import pytest

from workbench.experiment.yaml_file import read_yaml
from workbench.foundation.errors import ArgumentError
from workbench.training.programs.constants import MODULE, constants_of, with_constants

SCRIPT = """
import sys
LR, BATCH = 3e-4, 64  # Adam
SIZE = 2**10
names = dict(kind="mlp", inner={"width": 8})
class Config:
    drop: float = 0.1
done = False
done = True
if __name__ == "__main__":
    steps = int(5)
    print(LR, BATCH, SIZE, names, Config.drop, done, steps, sys.argv[1:], __file__)
"""


def test_constants_of_a_script_are_those_that_have_one_value() -> None:
    assert {constant.name: constant.value for constant in constants_of(SCRIPT, ".py")} == {
        "LR": 3e-4,
        "BATCH": 64,
        "SIZE": 1024,
        "names.kind": "mlp",
        "names.inner.width": 8,
        "Config.drop": 0.1,
        "steps": 5,
    }


def test_a_script_with_other_values_says_what_python_says_of_them() -> None:
    values = {"LR": 1, "SIZE": 7, "names.inner.width": 16, "names.kind": "a'b", "Config.drop": 0.5}
    scope: dict[str, object] = {"__name__": "other"}
    exec(with_constants(SCRIPT, ".py", values), scope)
    assert (scope["LR"], scope["SIZE"], scope["BATCH"]) == (1.0, 7, 64)
    assert scope["names"] == {"kind": "a'b", "inner": {"width": 16}}
    assert type(scope["LR"]) is float, "a float stays a float"


def test_fields_of_classes_are_constants_by_the_name_of_their_class() -> None:
    source = (
        "import dataclasses\nfrom dataclasses import field\n@dataclasses.dataclass\nclass Config:\n"
        "    lr: float = field(default=0.001)\n"
        "    width: int = dataclasses.field(default=64, metadata={'help': 'units'})\n"
        "    names: list = field(default_factory=list)\n"
    )
    values = {constant.name: constant.value for constant in constants_of(source, ".py")}
    assert values == {"Config.lr": 0.001, "Config.width": 64}
    scope: dict[str, object] = {"__name__": __name__}
    exec(with_constants(source, ".py", {"Config.lr": 0.5, "Config.width": 8}), scope)
    config = scope["Config"]()
    assert (config.lr, config.width, config.names) == (0.5, 8, [])


@pytest.mark.parametrize(
    ("suffix", "text", "read"),
    [
        (".yaml", "a: {lr: 1e-4, on: true}\nname: 'x'\nlist: [1, 2]\n", read_yaml),
        (".json", '{"a": {"lr": 0.0001, "on": true}, "name": "x", "list": [1, 2]}', json.loads),
        (".yaml", "a: {lr: !!float 1e-4, on: true}\nname: 'x'\nlist: [1, 2]\n", read_yaml),
        (".toml", "name = 'x'\nlist = [1, 2]\n[a]\nlr = 1e-4 # rate\non = true\n", tomllib.loads),
    ],
)
def test_values_of_a_document_are_replaced_and_the_rest_stays(suffix, text, read) -> None:
    written = with_constants(text, suffix, {"a.lr": 1e-5, "a.on": False, "name": "y z"})
    document = read(written)
    assert document["a"] == {"lr": 1e-5, "on": False}
    assert (document["name"], list(document["list"])) == ("y z", [1, 2])


def test_comments_in_json_stay_and_have_no_values() -> None:
    text = '{  // "lr": 1\n "lr": 0.1, /* "size":\n 2 */ "url": "http://a.b", "size": 8 // 16\n}'
    written = with_constants(text, ".json", {"lr": 0.5, "size": 16, "url": "ftp://c//d"})
    assert written == (
        '{  // "lr": 1\n "lr": 0.5, /* "size":\n 2 */ "url": "ftp://c//d", "size": 16 // 16\n}'
    )


def test_constants_of_ini_and_gin() -> None:
    text = "[a]\nlr = 1e-4 ; rate\non=True\n[b]\nlr: 2\nsizes=1,2\n"
    read = ConfigParser(inline_comment_prefixes=";")
    read.read_string(with_constants(text, ".ini", {"a.lr": 1e-5, "a.on": False, "b.lr": 3}))
    assert (read.getfloat("a", "lr"), read["a"]["on"]) == (1e-5, "False")
    assert (read.getint("b", "lr"), read["b"]["sizes"]) == (3, "1,2")
    text = "import agents\nrun.agents = [\n 1]\nscope/Agent.lr = 1e-4  # rate\nAgent.on = True\n"
    written = with_constants(text, ".gin", {"scope/Agent.lr": 0.5, "Agent.on": False})
    assert written.splitlines()[-2:] == ["scope/Agent.lr = 0.5  # rate", "Agent.on = False"]


def test_constants_of_shell_and_r() -> None:
    assert with_constants("lr=0.1 # rate\nbs=8\n", ".sh", {"lr": 0.2}) == "lr=0.2 # rate\nbs=8\n"
    assert with_constants("lr <- 0.1\nuse <- TRUE\n", ".R".lower(), {"use": False, "lr": 3}) == (
        "lr <- 3.0\nuse <- FALSE\n"
    )


def test_a_name_without_one_value_is_refused_with_those_that_have_one() -> None:
    with pytest.raises(ArgumentError, match="no constant done with one value") as caught:
        with_constants(SCRIPT, ".py", {"done": False})
    assert "LR" in str(caught.value)


def started(folder: Path, *words: str, trial: Path | None = None) -> subprocess.CompletedProcess:
    environment = dict(os.environ)
    environment.pop("WORKBENCH_FOLDER", None)
    if trial is not None:
        environment["WORKBENCH_FOLDER"] = str(trial)
    return subprocess.run(
        [sys.executable, "-m", MODULE, *words],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_script_runs_from_its_own_place_with_other_values(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    done = started(tmp_path, "train.py", "LR=0.5", "--", "python", "train.py", "--more")
    assert done.stdout.startswith("0.5 64 1024"), done.stderr
    assert done.stdout.endswith("['--more'] train.py\n")
    assert (tmp_path / "train.py").read_text() == SCRIPT, "the file itself is never changed"


def test_a_command_receives_the_copy_of_its_configuration(tmp_path: Path) -> None:
    trial = tmp_path / "trial"
    trial.mkdir()
    (tmp_path / "conf.json").write_text('{"lr": 0.1}')
    (tmp_path / "train.py").write_text("import sys\nprint(open(sys.argv[1]).read())\n")
    words = ("conf.json", "lr=0.5", "--", "python", "train.py", "conf.json")
    assert started(tmp_path, *words, trial=trial).stdout == '{"lr": 0.5}\n'
    assert [path.name for path in trial.iterdir()] == ["with-values-conf.json"]


def test_a_file_that_the_command_does_not_name_needs_a_working_folder(tmp_path: Path) -> None:
    (tmp_path / "conf.json").write_text('{"lr": 0.1}')
    (tmp_path / "train.py").write_text("print(open('conf.json').read())\n")
    words = ("conf.json", "lr=0.5", "--", "python", "train.py")
    refused = started(tmp_path, *words)
    assert refused.returncode == 1
    assert "workdir: fresh" in refused.stderr
    assert (tmp_path / "conf.json").read_text() == '{"lr": 0.1}'
    assert started(tmp_path, *words, trial=tmp_path).stdout == '{"lr": 0.5}\n'


def test_values_in_code_are_those_that_stay() -> None:
    text = (
        "def train(lr=0.1, data=None):\n    best = 0.5\n    sum = 0.25\n    for x in data:\n"
        "        sum = sum + x\n        best += 1\n    width = 8\n"
        "    return Adam(1e-3, betas=(0.9, 0.99)), x.sum(dim=1)\n"
    )
    assert {constant.name: constant.value for constant in constants_of(text, ".py")} == {
        "train.lr": 0.1,
        "train.width": 8,
        "Adam.lr": 1e-3,
    }
    changed = with_constants(text, ".py", {"train.lr": 1, "Adam.lr": 0.5})
    assert "lr=1.0" in changed
    assert "Adam(0.5, betas" in changed


def test_of_equal_names_the_one_that_is_meant_is_replaced() -> None:
    text = (
        "def fit(lr=0.1, depth=3):\n    return lr, depth\n"
        "fit(depth=2)\n"
        "groups = [{'params': a, 'decay': 0.001}, {'params': b, 'decay': 0.0}]\n"
        "net = Sequential(Dropout(0.25), Dropout(0.5))\n"
        "first, second = Linear(8, bias=True), Linear(8, bias=False)\n"
    )
    assert {constant.name: constant.value for constant in constants_of(text, ".py")} == {
        "fit.lr": 0.1,
        "fit.depth": 2,
        "groups.decay": 0.001,
        "Dropout_1.dropout": 0.25,
        "Dropout_2.dropout": 0.5,
    }
    changed = with_constants(
        text, ".py", {"groups.decay": 0.5, "Dropout_2.dropout": 0.125, "fit.depth": 7}
    )
    assert "'decay': 0.5}, {'params': b, 'decay': 0.0}" in changed
    assert "Dropout(0.25), Dropout(0.125)" in changed
    assert "depth=3):" in changed
    assert "fit(depth=7)" in changed


def test_the_width_of_recurrent_layers_of_keras() -> None:
    layer = "x = LSTM(15, return_sequences=True)(x)\n"
    with_keras = constants_of(f"from keras.layers import LSTM\n{layer}", ".py")
    assert [(c.name, c.value) for c in with_keras if c.name.endswith("units")] == [
        ("LSTM.units", 15)
    ]
    # The first number of a layer of torch is the width of its input.
    assert not [c for c in constants_of(layer, ".py") if c.name.endswith("units")]


def test_the_same_value_of_several_stages_is_one_constant() -> None:
    text = (
        "def main():\n    batch_size = 32\n    fit(Adam(lr=0.001), batch_size)\n"
        "    batch_size = 32\n    fit(Adam(lr=0.0001), batch_size)\n"
        "    width = 4\n    width = 8\nmain()\n"
    )
    constants = {c.name: c.value for c in constants_of(text, ".py")}
    assert constants == {"batch_size": 32, "Adam_1.lr": 0.001, "Adam_2.lr": 0.0001}
    changed = with_constants(text, ".py", {"batch_size": 16, "Adam_2.lr": 0.5})
    assert changed == text.replace("32", "16").replace("0.0001", "0.5")


def test_values_in_the_cells_of_a_notebook_are_replaced_and_the_rest_stays() -> None:
    cells = [
        {"cell_type": "markdown", "metadata": {}, "source": ["lr = 7"]},
        {"cell_type": "code", "metadata": {}, "source": ["%%bash\n", "cd data && ls\n", "lr=3"]},
        {"cell_type": "code", "metadata": {}, "source": "!pip install timm\nlr = 0.1\n\n"},
        {"cell_type": "code", "metadata": {}, "source": ["net = Net(width=8)\n", "%time fit(net)"]},
    ]
    text = json.dumps({"cells": cells, "nbformat": 4, "nbformat_minor": 5, "metadata": {}})
    assert {c.name: c.value for c in constants_of(text, ".ipynb")} == {"lr": 0.1, "net.width": 8}
    changed = json.loads(with_constants(text, ".ipynb", {"lr": 0.5, "net.width": 16}))
    sources = ["".join(cell["source"]) for cell in changed["cells"]]
    assert sources == [
        "lr = 7",
        "%%bash\ncd data && ls\nlr=3",
        "!pip install timm\nlr = 0.5\n\n",
        "net = Net(width=16)\n%time fit(net)",
    ]
