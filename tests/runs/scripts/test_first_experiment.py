"""A first experiment for a script, from its source, its configuration or its help."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from workbench.experiment import Experiment
from workbench.experiment.command import expand
from workbench.foundation.errors import DataError
from workbench.runs.scripts import script_help
from workbench.runs.scripts.declared_options import declared_options
from workbench.runs.scripts.first_experiment import experiment_for
from workbench.runs.scripts.option_domains import domain_of, kind_of_value, searched_domains
from workbench.runs.scripts.program_source import read_program
from workbench.runs.scripts.script_help import options_in_help
from workbench.runs.scripts.script_metrics import metrics_of
from workbench.runs.scripts.script_options import ScriptOption

ARGPARSE = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=64)
parser.add_argument("-e", "--epochs", type=int, default=3)
parser.add_argument("--lr", type=float, default=1e-3, help="learning rate (default: %(default)s)")
parser.add_argument("--dropout", type=float, default=0.1)
parser.add_argument("--optimizer", choices=["sgd", "adamw"], default="sgd")
parser.add_argument("--nesterov", action="store_true")
parser.add_argument("--no-cuda", action="store_true")
parser.add_argument("--data", default=default_folder())
parser.add_argument("positional")
raise SystemExit("this script must not be run")
print(f"epoch={epoch} train_loss={loss:.4f}")
print("Test set: val_acc: {:.2f}".format(accuracy))
"""
CLICK = """
import click
@click.command()
@click.option("--rate", default=0.1)
@click.option("--kind", type=click.Choice(["a", "b"]))
@click.option("--shuffle/--no-shuffle", default=True)
def main(rate, kind, shuffle): ...
"""


def test_the_options_of_argparse_become_ranges_to_edit(tmp_path: Path) -> None:
    script = tmp_path / "train it.py"
    script.write_text(ARGPARSE)
    first = experiment_for(script)
    text = first.text
    experiment = Experiment.from_yaml(text)
    assert list(experiment.search.root) == ["batch-size", "lr", "dropout", "optimizer", "nesterov"]
    assert first.values_to_write == ("POSITIONAL",)
    assert experiment.objectives[0].metric == "val_acc"
    assert experiment.objectives[0].goal == "maximize"
    assert "# epochs: 3" in text
    assert "# no-cuda:" in text
    params = {"batch-size": 32, "lr": 1e-4, "dropout": 0.0, "optimizer": "sgd", "nesterov": True}
    assert expand(experiment.command or "", params, {}) == [
        "python",
        str(script),
        "POSITIONAL",
        "--nesterov",
        "--batch-size=32",
        "--lr=0.0001",
        "--dropout=0.0",
        "--optimizer=sgd",
    ]


def test_options_of_click_and_what_is_printed(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(CLICK)
    options, words = declared_options(read_program(script))
    assert [option.name for option in options] == ["rate", "kind", "shuffle"]
    assert (options[1].choices, options[2].way, words) == (("a", "b"), "both", [])
    assert metrics_of(ARGPARSE) == ["val_acc", "train_loss"]
    assert metrics_of('print(f"epoch {e}: train loss 1.{e}, val loss {x:.5f}")') == [
        "val_loss",
        "train_loss",
    ]
    assert metrics_of('print(f"train loss: {a:.3f} - val loss: {b:.3f}")') == [
        "val_loss",
        "train_loss",
    ]


@pytest.mark.parametrize(
    "line",
    [
        "print('epoch', epoch, 'train loss', loss, 'val_acc', acc)",
        "print(f'epoch {epoch} train loss {loss:.3f} val_acc {acc}')",
        "print('epoch %d train loss %.3f val_acc %.1f' % (epoch, loss, acc))",
        "logger.info('epoch {} train loss {:.3f} val_acc {}'.format(epoch, loss, acc))",
    ],
)
def test_metrics_that_are_printed_without_signs_are_found(line: str) -> None:
    assert metrics_of(line) == ["val_acc", "train_loss"]


def test_what_a_script_requires_stands_in_the_command_to_be_replaced(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "from argparse import ArgumentParser\n"
        "parser = ArgumentParser()\n"
        "parser.add_argument('data-dir')\n"
        "parser.add_argument('arch', choices=['small', 'large'])\n"
        "parser.add_argument('files', nargs='*')\n"
        "parser.add_argument('--out', required=True)\n"
        "parser.add_argument('--optimizer', choices=['sgd', 'adam'], required=True)\n"
        "parser.add_argument('--lr', type=float, default=0.1)\n"
        "print('loss: %f' % 1)\n"
    )
    first = experiment_for(script)
    text = first.text
    experiment = Experiment.from_yaml(text)
    assert list(experiment.search.root) == ["arch", "optimizer", "lr"]
    assert first.values_to_write == ("DATA_DIR",)
    assert "# out" not in text
    params = {"arch": "small", "optimizer": "sgd", "lr": 0.1}
    assert expand(experiment.command or "", params, {"folder": "/trials/3"})[2:] == [
        "DATA_DIR",
        "small",
        "--out",
        "/trials/3/out",
        "--optimizer=sgd",
        "--lr=0.1",
    ]


@pytest.mark.parametrize(
    ("name", "default", "domain"),
    [
        ("momentum", 0.9, {"low": 0.5, "high": 0.98}),
        ("beta2", 0.999, {"low": 0.995, "high": 0.9998}),
        ("ema-decay", 0.99, {"low": 0.95, "high": 0.998}),
        ("dropout-rate", 0.5, {"low": 0.0, "high": 0.9}),
        ("dropout", 0.05, {"low": 0.0, "high": 0.5}),
        ("weight-decay", 0.0, {"choices": [0.0, 0.0001, 0.01]}),
        ("weight-decay", 0.05, {"low": 0.005, "high": 0.5, "log": True}),
        ("lr", 1.0, {"low": 0.1, "high": 10.0, "log": True}),
        ("lr", 20.0, {"low": 2.0, "high": 40.0, "log": True}),
        ("clip", 0.25, {"low": 0.025, "high": 2.5, "log": True}),
        ("clip-coef", 0.2, {"low": 0.02, "high": 1.0, "log": True}),
        ("mixup", 0.8, {"low": 0.4, "high": 1.0}),
        ("layer-decay", 0.75, {"low": 0.375, "high": 1.0}),
        ("init-scale", 0.02, {"low": 0.002, "high": 0.2, "log": True}),
        ("gae-lambda", 1.0, {"low": 0.5, "high": 1.0}),
        ("lambda-cls", 1.0, {"low": 0.1, "high": 10.0, "log": True}),
        ("uniform-init", 0.1, {"low": 0.01, "high": 1.0, "log": True}),
        ("cost", 1.0, {"low": 0.1, "high": 10.0, "log": True}),
        ("gamma", 0.01, {"low": 0.001, "high": 0.1, "log": True}),
        ("gamma", 0.7, {"low": 0.07, "high": 1.0, "log": True}),
        ("gamma", 0.99, {"low": 0.95, "high": 0.998}),
    ],
)
def test_a_range_fits_what_its_option_means(
    tmp_path: Path, name: str, default: float, domain: dict[str, object]
) -> None:
    script = tmp_path / "train.py"
    script.write_text(f"parser.add_argument('--{name}', type=float, default={default})\n")
    found = Experiment.from_yaml(experiment_for(script).text).search.root[name]
    written = found.model_dump(mode="json")
    assert {key: written[key] for key in domain} == domain


@pytest.mark.parametrize(
    ("name", "default", "choices"),
    [
        ("grad-norm-clip", 10, [5, 10, 20]),
        ("warmdown-iters", 1200, [600, 1200, 2400]),
        ("block-size", 128, [32, 64, 128]),
        ("max-seq-length", 512, [128, 256, 512]),
        ("window", 168, [42, 84, 168]),
        ("block-size", 8, None),
        ("pred-window", 96, None),
        ("eval-seq-len", 128, None),
        ("early-stop-window", 100, None),
    ],
)
def test_lengths_are_searched_up_to_their_default_and_other_integers_around_it(
    tmp_path: Path, name: str, default: int, choices: list[int] | None
) -> None:
    script = tmp_path / "train.py"
    others = "".join(
        f"parser.add_argument('--{other}', type=float, default=0.1)\n"
        for other in ("lr", "dropout")
    )
    script.write_text(f"{others}parser.add_argument('--{name}', type=int, default={default})\n")
    search = Experiment.from_yaml(experiment_for(script).text).search.root
    found = search.get(name)
    assert (None if found is None else found.model_dump(mode="json")["choices"]) == choices


def test_a_file_says_10_for_a_clip_that_is_a_real_number() -> None:
    assert kind_of_value("optim.grad_norm_clip", 10) == "float"
    assert kind_of_value("optim.num_clips", 10) == "int"


@pytest.mark.parametrize(
    "option",
    [
        "'--adam-eps', default=1e-8",
        "'--learning-starts', default=10000",
        "'--image-size', default=224",
        "'--batch-max-length', type=int, default=25",
        "'--vocab-size', default=1000",
        "'--pause', type=float, default=0.01",
        "'--timeout', type=float, default=0.05",
        "'--no-shuffle', action='store_true'",
        "'--no-weight-decay', action='store_true'",
        "'--quiet', action='store_true'",
        "'--anything', action='store_true'",
        "'--dataset', choices=['mnist', 'cifar']",
        "'--mode', choices=['train', 'test']",
        "'--seed', type=int, default=1",
        "'--log-interval', type=int, default=10",
        "'--num-workers', type=int, default=4",
        "'--load-weights', action='store_true'",
    ],
)
def test_what_is_hardly_ever_searched_is_left_as_a_comment(tmp_path: Path, option: str) -> None:
    script = tmp_path / "train.py"
    script.write_text(f"parser.add_argument({option})\n")
    assert Experiment.from_yaml(experiment_for(script).text).search.root == {}


@pytest.mark.parametrize(
    ("option", "use"),
    [
        ("--random-state", "split(x, y, random_state=args.random_state)"),
        ("--manualSeed", "pass"),
        ("--torch_seed", "pass"),
        ("--randomseed", "pass"),
        ("--rs", "RandomForest(random_state=args.rs)"),
        ("--luck", "torch.manual_seed(args.luck)"),
        ("--luck", "luck = args.luck\nrng = np.random.default_rng(luck)"),
        ("--luck", "def start(number):\n    seed_everything(number)\nstart(args.luck)"),
    ],
)
def test_whatever_seeds_a_generator_gets_the_seed_of_the_trial(
    tmp_path: Path, option: str, use: str
) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "parser.add_argument('--lr', type=float, default=0.1)\n"
        f"parser.add_argument({option!r}, type=int, default=7)\n"
        f"args = parser.parse_args()\nprint(args.lr)\n{use}\n"
    )
    experiment = Experiment.from_yaml(experiment_for(script).text)
    assert list(experiment.search.root) == ["lr"]
    assert option in (experiment.command or "").split("{seed}")[0]


def test_a_number_of_seeds_is_no_seed(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("parser.add_argument('--num-seeds', type=int, default=3)\n")
    assert "{seed}" not in experiment_for(script).text


def test_a_script_without_options_and_a_file_that_is_not_python(tmp_path: Path) -> None:
    script = tmp_path / "plain.py"
    script.write_text("print('loss: %f' % 1)")
    assert Experiment.from_yaml(experiment_for(script).text).objectives[0].metric == "loss"
    script.write_text("def")
    with pytest.raises(DataError, match="not valid Python"):
        experiment_for(script)
    with pytest.raises(DataError, match="cannot read"):
        experiment_for(tmp_path / "missing.py")


def test_the_parameters_of_a_function_for_fire(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import fire\ndef train(data, lr=0.01, amp: bool = False, *, hidden=64, epochs=3):\n   "
        " print(f'loss={lr}')\nfire.Fire(train)\n"
    )
    experiment = Experiment.from_yaml(experiment_for(script).text)
    assert list(experiment.search.root) == ["lr", "amp", "hidden"]
    assert expand(experiment.command or "", {"lr": 0.1, "amp": True, "hidden": 32}, {})[2:] == [
        "--data",
        "DATA",
        "--amp=True",
        "--lr=0.1",
        "--hidden=32",
    ]


def test_the_configuration_of_hydra_and_its_groups(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import hydra\n"
        "@hydra.main(version_base=None, config_path='conf', config_name='config')\n"
        "def main(cfg): print(f'val_loss: {cfg.optimizer.lr}')\n"
    )
    folder = tmp_path / "conf" / "optimizer"
    folder.mkdir(parents=True)
    (folder.parent / "config.yaml").write_text(
        "defaults:\n  - _self_\n  - optimizer: adam\n  - override hydra/launcher: basic\nmodel:"
        " {hidden_dim: 64, tied: true}\nepochs: 3\nname: ${model.hidden_dim}\nhydra: {job: {lr:"
        " 1.0}}\n"
    )
    (folder / "adam.yaml").write_text("lr: 0.001\nbetas: [0.9, 0.999]\n")
    first = experiment_for(script)
    text = first.text
    experiment = Experiment.from_yaml(text)
    assert list(experiment.search.root) == ["model.hidden_dim", "model.tied", "optimizer.lr"]
    params = {"optimizer.lr": 0.01, "model.hidden_dim": 32, "model.tied": False}
    assert expand(experiment.command or "", params, {})[2:] == [
        "model.hidden_dim=32",
        "model.tied=false",
        "optimizer.lr=0.01",
    ]
    assert "# epochs: 3" in text


def test_a_name_that_only_holds_a_word_is_searched_like_any_other(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import argparse\nparser = argparse.ArgumentParser()\n"
        "parser.add_argument('--criterion', choices=['gini', 'entropy'])\n"
        "parser.add_argument('--maxIter', choices=[10, 20])\n"
        "parser.add_argument('--outdir', choices=['a', 'b'])\n"
    )
    search = Experiment.from_yaml(experiment_for(script).text).search.root
    assert list(search) == ["criterion"], "criterion holds iter, and is no number of iterations"


def test_options_that_another_file_declares_are_read_from_the_help(tmp_path: Path) -> None:
    (tmp_path / "settings.py").write_text(
        "import argparse\nparser ="
        " argparse.ArgumentParser("
        "formatter_class=argparse.ArgumentDefaultsHelpFormatter)\nparser.add_argument('-b',"
        " '--batch-size', type=int, default=64, help='samples')\nparser.add_argument('--lr',"
        " type=float, default=0.001, help='the rate, which scales each"
        " step')\nparser.add_argument('--optimizer', choices=['sgd', 'adam'], default='sgd',"
        " help='x')\nparser.add_argument('--nesterov',"
        " action='store_true')\nparser.add_argument('--epochs', type=int, default=2, help='x')\n"
    )
    script = tmp_path / "train.py"
    script.write_text(
        "from settings import parser\nargs = parser.parse_args()\nprint(f'loss={args.lr}')\n"
    )
    first = experiment_for(script)
    text = first.text
    experiment = Experiment.from_yaml(text)
    assert list(experiment.search.root) == ["batch-size", "lr", "optimizer", "nesterov"]
    assert experiment.search.root["optimizer"].values() == ["sgd", "adam"]
    assert "{nesterov:flag} {args}" in (experiment.command or "")
    assert "# epochs: 2" in text


def test_a_script_that_trains_whatever_its_options_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(script_help, "HELP_S", 0.5)
    script = tmp_path / "endless.py"
    script.write_text("import sys, time\nprint(sys.argv, 'loss=1')\ntime.sleep(600)\n")
    assert Experiment.from_yaml(experiment_for(script).text).search.root == {}


def test_a_script_that_takes_no_options_is_not_started(tmp_path: Path) -> None:
    script = tmp_path / "plain.py"
    script.write_text(f"open({str(tmp_path / 'started')!r}, 'w')\nprint('loss=1')\n")
    assert Experiment.from_yaml(experiment_for(script).text).search.root == {}
    assert not (tmp_path / "started").exists()


def test_help_texts_of_other_libraries() -> None:
    click = (
        "Options:\n  --rate FLOAT  [default: 0.1]\n  --kind [a|b]\n  --shuffle / --no-shuffle\n "
        " --help  x"
    )
    options = {option.name: option for option in options_in_help(click)}
    assert (options["rate"].default, options["kind"].choices) == (0.1, ("a", "b"))
    assert options["shuffle"].is_flag
    typer = (
        "╭─ Options ───────────────────────────────────╮\n"
        "│ --lr                  <float>  [default: 0.01]   │\n"
        "│ --amp     --no-amp    <bool>   [default: no-amp] │\n"
        "│ --hidden              <int>    [default: 64]     │\n"
        "│ --help                <bool>   Show this.        │\n"
    )
    lr, amp, hidden = options_in_help(typer)
    assert (lr.default, lr.is_flag, amp.is_flag, hidden.default) == (0.01, False, True, 64)
    tyro = (
        "options\n  --optimizer.lr FLOAT  (default: 0.0003)\n  --width INT           (default:"
        " 64)\n"
    )
    assert not any(option.is_flag for option in options_in_help(tyro))
    assert {option.name: option.default for option in options_in_help(tyro)} == {
        "optimizer.lr": 0.0003,
        "width": 64,
    }


def test_a_help_without_options_has_none() -> None:
    assert options_in_help("usage: train.py FILE\n\nTrains on FILE.\n") == options_in_help("") == []


def test_options_of_absl_are_read_where_a_colon_separates_them_from_their_help() -> None:
    absl = """
train.py:
  --[no]bias: whether layers have a bias
    (default: 'true')
  --batch: samples in a batch
    (default: '32')
    (an integer)
"""
    bias, batch = options_in_help(absl)
    assert (bias.name, bias.is_flag) == ("bias", True)
    assert (batch.name, batch.default, batch.is_flag) == ("batch", 32, False)


def test_a_script_writes_into_the_folder_of_each_trial(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "parser.add_argument('--out-dir', default='runs')\n"
        "parser.add_argument('--save', default='models/best model.pt')\n"
        "parser.add_argument('--log_file', type=Path, default=Path('train.log'))\n"
        "parser.add_argument('--output', default='results')\n"
        "parser.add_argument('--checkpoint-path', default=None)\n"
        "parser.add_argument('--output-size', type=int, default=10)\n"
        "parser.add_argument('--resume-dir', default='before')\n"
        "parser.add_argument('--save-model', action='store_true')\n"
        "parser.add_argument('--lr', type=float, default=0.1)\n"
    )
    text = experiment_for(script).text
    experiment = Experiment.from_yaml(text)
    assert expand(experiment.command or "", {"lr": 0.1}, {"folder": "/trials/3"})[2:] == [
        "--out-dir",
        "/trials/3",
        "--save",
        "/trials/3/best_model.pt",
        "--log_file",
        "/trials/3/train.log",
        "--output",
        "/trials/3",
        "--lr=0.1",
    ]
    assert "so that no trial overwrites" in text
    assert "# out-dir" not in text
    assert "# resume-dir" in text


def test_a_script_of_hydra_writes_into_the_folder_of_each_trial(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import hydra\n@hydra.main(config_path='.', config_name='config')\ndef main(cfg):"
        " print('loss=1')\n"
    )
    (tmp_path / "config.yaml").write_text("lr: 0.1\npaths: {output_dir: outputs}\n")
    command = Experiment.from_yaml(experiment_for(script).text).command or ""
    assert command.endswith("train.py paths.output_dir={folder} hydra.run.dir={folder} lr={lr}")


@pytest.mark.parametrize(
    ("declared", "may_not_end"),
    [
        (["'--max-steps', type=int, default=-1"], True),
        (["'--num_iterations', type=int, default=-1"], True),
        (["'--max-steps', type=int, default=1000"], False),
        (["'--max-steps', type=int, default=-1", "'--epochs', type=int, default=3"], False),
        (["'--max-steps', type=int"], False),
        (["'--eval-every-steps', type=int, default=-1"], False),
        (["'--momentum', type=float, default=0.9"], False),
    ],
)
def test_a_program_whose_length_has_no_limit_by_default_is_told(
    declared: list[str], may_not_end: bool, tmp_path: Path
) -> None:
    script = tmp_path / "train.py"
    declared = ["'--lr', type=float, default=0.1", *declared]
    lines = "".join(f"parser.add_argument({option})\n" for option in declared)
    script.write_text(
        f"import argparse\nparser = argparse.ArgumentParser()\n{lines}"
        "args = parser.parse_args()\nprint(f'val_loss {loss:.3f}')\n"
    )
    notes = experiment_for(script).notes
    assert any(note.startswith("Trials may never end") for note in notes) == may_not_end


def test_an_option_with_a_short_name_alone_is_searched_and_passed_by_it(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "parser.add_argument('-C', type=float, default=1.0)\n"
        "parser.add_argument('-v', action='store_true')\n"
        "parser.add_argument('-g', '--gamma', type=float, default=0.1)\n"
    )
    experiment = Experiment.from_yaml(experiment_for(script).text)
    assert list(experiment.search.root) == ["C", "gamma"]
    assert expand(experiment.command or "", {"C": 3.0, "gamma": 0.2}, {})[2:] == [
        "-C",
        "3.0",
        "--gamma=0.2",
    ]


@pytest.mark.parametrize(
    ("metric", "goal"),
    [
        ("val_accuracy", "maximize"),
        ("f1", "maximize"),
        ("f1_loss", "minimize"),
        ("score_loss", "minimize"),
        ("val_loss", "minimize"),
        ("accuracy_error", "minimize"),
        ("macro_f1", "maximize"),
        ("rmse", "minimize"),
        ("mean_absolute_error", "minimize"),
        ("roc_auc", "maximize"),
    ],
)
def test_the_goal_of_a_loss_is_not_that_of_the_score_in_its_name(
    metric: str, goal: str, tmp_path: Path
) -> None:
    script = tmp_path / "train.py"
    script.write_text(f"import sys\nprint('{metric}: %f' % 0.5)\n")
    text = experiment_for(script).text
    assert f"objectives: [{{metric: {metric}, goal: {goal}}}]" in text
    assert "No option was found" in text


def _searched(folder: Path, *declared: str, rest: str = "") -> dict[str, str]:
    """Return the domains of options of argparse in YAML, and the command as `command`."""
    script = folder / "train.py"
    lines = [f"parser.add_argument({arguments})" for arguments in declared]
    source = "\n".join(["import argparse", "parser = argparse.ArgumentParser()", *lines, rest])
    script.write_text(source)
    text = experiment_for(script).text
    experiment = Experiment.from_yaml(text)
    domains = {
        line.strip().partition(": ")[0]: line.partition(": ")[2]
        for line in text.split("search:")[1].splitlines()
        if line.startswith("  ") and not line.startswith("  #")
    }
    return {**domains, "command": experiment.command or ""}


@pytest.mark.parametrize(
    ("declared", "rest"),
    [
        ("'--checkpoint_path', default='./ckpts'", ""),
        ("'--model_dir'", "os.makedirs(args.model_dir, exist_ok=True)"),
        ("'--store_folder'", "place = Path(args.store_folder) / 'tb'\nSummaryWriter(place)"),
        ("'--train_dir', default='./runs2', help='Folder where to save training data.'", ""),
        ("'--model', required=True", "d = os.path.join('logs', args.model)\nos.makedirs(d)"),
    ],
)
def test_places_that_trials_would_share_become_the_folder_of_a_trial(
    tmp_path: Path, declared: str, rest: str
) -> None:
    experiment = _searched(tmp_path, declared, "'--lr', type=float, default=0.1", rest=rest)
    assert "{folder}" in experiment["command"]


@pytest.mark.parametrize(
    ("declared", "rest"),
    [
        ("'--data_dir', default='data'", "os.makedirs(args.data_dir)"),
        ("'--cache_dir', help='Where do you want to store the downloaded models'", ""),
        ("'--checkpoint', default='bert-base'", "load(args.checkpoint)"),
        ("'--checkpoint_dir', required=True", "os.makedirs(args.checkpoint_dir)"),
        ("'--experiment', default='exp'", ""),
        ("'--ckpt'", "torch.load(args.ckpt)"),
        (
            "'--model', default='resnet'",
            "os.makedirs(os.path.join('x', args.model)); net(args.model)",
        ),
    ],
)
def test_what_a_program_reads_is_no_folder_of_a_trial(
    tmp_path: Path, declared: str, rest: str
) -> None:
    experiment = _searched(tmp_path, declared, "'--lr', type=float, default=0.1", rest=rest)
    assert "{folder}" not in experiment["command"]


def test_what_a_switch_turns_on_is_not_searched_while_it_is_off(tmp_path: Path) -> None:
    experiment = _searched(
        tmp_path,
        "'--pose_opt', action='store_true'",
        "'--pose_opt_lr', type=float, default=1e-5",
        "'--use-lora', action='store_true'",
        "'--lora-rank', type=int, default=8",
        "'--e2e_ttt', action='store_true'",
        "'--ttt_lr', type=float, default=1e-3",
        "'--do_train', action='store_true'",
        "'--train_batch_size', type=int, default=8",
    )
    assert list(experiment) == ["train_batch_size", "command"]


def test_shares_stay_valid_and_clipping_is_never_zero(tmp_path: Path) -> None:
    experiment = _searched(
        tmp_path,
        "'--scale', type=float, default=0.5",
        "'--ssim_lambda', type=float, default=0.2",
        "'--momentum', type=float, default=0.6",
        "'--max_grad_norm', type=float, default=0.5",
        "'--grad_clip', type=float, default=0.0",
        "'--resnet_depth', type=int, default=50",
        "'-b', type=int, default=128, help='batch size for dataloader'",
    )
    assert experiment["scale"] == "{low: 0.05, high: 1, log: true}"
    assert experiment["ssim_lambda"] == "{low: 0.02, high: 1, log: true}"
    assert experiment["momentum"] == "{low: 0.3, high: 0.92}"
    assert experiment["max_grad_norm"] == "{low: 0.05, high: 5, log: true}"
    assert experiment["grad_clip"] == "{low: 0.1, high: 10, log: true}"
    assert experiment["b"] == "{choices: [64, 128, 256]}"
    assert "-b {b}" in experiment["command"]
    assert "resnet_depth" not in experiment


@pytest.mark.parametrize(
    ("declared", "rest", "part"),
    [
        ("'--do_eval', action='store_true'", "print(f'eval_loss: {x:.3f}')", "--do_eval"),
        ("'--use_wandb', action='store_true'", "wandb.log({'val/loss': x})", "--use_wandb"),
        (
            "'--mode', choices=['train', 'eval', 'train_then_eval'], default='train'",
            "print(f'val_loss: {x:.3f}')",
            "--mode=train_then_eval",
        ),
        ("'--mode', choices=['test', 'train'], required=True", "", "--mode=train"),
        ("'--disable_viewer', action='store_true'", "", "--disable_viewer"),
    ],
)
def test_what_the_objective_needs_is_set_in_the_command(
    tmp_path: Path, declared: str, rest: str, part: str
) -> None:
    experiment = _searched(tmp_path, declared, "'--lr', type=float, default=0.1", rest=rest)
    assert part in experiment["command"].split()


@pytest.mark.parametrize(
    "declared",
    [
        "'--evaluate', action='store_true'",
        "'--run_eval', action='store_true', help='only evaluate a checkpoint'",
        "'--use_wandb', action='store_true'",
        "'--mode', choices=['train', 'eval'], default='train'",
    ],
)
def test_other_switches_stay_off(tmp_path: Path, declared: str) -> None:
    rest = "print(f'val_loss: {x:.3f}')"
    experiment = _searched(tmp_path, declared, "'--lr', type=float, default=0.1", rest=rest)
    assert experiment["command"] == f"python {tmp_path}/train.py {{args}}"


def test_the_temperature_of_sampling_is_not_searched(tmp_path: Path) -> None:
    temperature = "'--temperature', type=float, default=1.0"
    assert "temperature" in _searched(tmp_path, temperature)
    assert "temperature" not in _searched(tmp_path, temperature, "'--top-k', type=int, default=5")


def test_a_commented_switch_says_what_the_command_needs_if_it_is_searched(tmp_path: Path) -> None:
    script = tmp_path / "switches.py"
    script.write_text(
        "import argparse\np = argparse.ArgumentParser()\n"
        "p.add_argument('data', choices=['easy', 'hard'])\n"
        "p.add_argument('--lr', type=float, default=0.1)\n"
        "p.add_argument('--warm', action=argparse.BooleanOptionalAction, default=True)\n"
        "p.add_argument('--no-shuffle', dest='shuffle', action='store_false')\n"
        "p.parse_args()\nprint('val_loss=', 1)\n"
    )
    text = experiment_for(script).text
    assert "write their values into the command: DATA (easy or hard)." in text
    added = "{warm:flag} {warm:no-flag} {shuffle:no-flag}"
    uncommented = text.replace("  # warm", "  warm").replace("  # shuffle", "  shuffle")
    searched = Experiment.from_yaml(uncommented.replace("{args}", "{args} " + added))
    for placeholder in added.split():
        assert placeholder in text.split("search:")[1]
    params = {"lr": 0.1, "warm": False, "shuffle": False}
    words = expand(searched.command or "", params, {})
    assert words[-2:] == ["--no-warm", "--no-shuffle"]


@pytest.mark.parametrize(
    "name",
    [
        "momentum",
        "decay",
        "decay.rate",
        "lr_decay",
        "gamma",
        "discount",
        "beta1",
        "ema_decay",
        "polyak",
        "m",
        "rate",
        "lr",
        "dropout",
        "keep_prob",
        "probability",
        "mask_ratio",
        "fraction",
        "alpha",
        "warmup_ratio",
        "subsample",
        "max_features",
        "label_smoothing",
        "unheard_of",
    ],
)
@pytest.mark.parametrize("default", [0.01, 0.2, 0.5, 0.8, 0.9, 0.95, 0.99, 0.999])
def test_a_share_stays_a_share(name: str, default: float) -> None:
    domain = domain_of(ScriptOption(name, default, kind="float"))
    bounds = YAML(typ="safe").load(domain) if domain else {"low": 0, "high": 1}
    assert 0 <= bounds["low"] < bounds["high"] <= 1
    assert bounds["low"] <= default <= bounds["high"]


@pytest.mark.parametrize("name", ["momentum", "decay", "decay.rate", "gamma", "discount", "polyak"])
@pytest.mark.parametrize("distance", [0.05, 0.01, 0.001])
def test_a_share_near_one_is_searched_by_its_distance_from_one(name: str, distance: float) -> None:
    domain = domain_of(ScriptOption(name, 1 - distance, kind="float"))
    assert domain is not None
    bounds = YAML(typ="safe").load(domain)
    assert 1 - bounds["low"] == pytest.approx(5 * distance)
    assert 1 - bounds["high"] == pytest.approx(distance / 5)


@pytest.mark.parametrize(
    ("name", "default", "is_searched"),
    [
        ("data.noise", 0.3, False),
        ("data.rows", 500, False),
        ("Data.num_of_vertices", 307, False),
        ("dataset.noise_std", 0.1, False),
        ("make_classification.n_features", 20, False),
        ("make_moons.noise", 0.2, False),
        ("load.flip_y", 0.05, False),
        ("KFold.shuffle_size", 5, False),
        ("cv", 5, False),
        ("loaders.random_scale", 20, False),
        ("transform.size", 512, False),
        ("loaders.batch_size", 8, True),
        ("loss_scale", 0.0, False),
        ("policy_freq", 2, True),
        ("policy_delay", 2, True),
        ("n_step", 3, True),
        ("multi-step", 3, True),
        ("step", 3, False),
        ("noisy-std", 0.1, True),
        ("image_std", 0.1, False),
        ("max_gradient_norm", 5.0, True),
        ("n_way", 5, False),
        ("data.batch_size", 32, True),
        ("data.mixup", 0.2, True),
        ("DataLoader.batch_size", 32, True),
        ("make_model.hidden", 32, True),
        ("load_model.dropout", 0.1, True),
        ("min_samples_split", 2, True),
        ("holdout", 0.3, False),
        ("hold_out_fraction", 0.3, False),
        ("data.train_frac", 0.8, False),
        ("train_fraction", 0.8, False),
        ("train_size", 0.8, False),
        ("train_batch_size", 32, True),
        ("training.dropout", 0.1, True),
    ],
)
def test_how_data_are_made_is_not_searched(name: str, default: float, is_searched: bool) -> None:
    kind = "int" if isinstance(default, int) else "float"
    assert (domain_of(ScriptOption(name, default, kind=kind)) is not None) is is_searched


@pytest.mark.parametrize(
    ("text", "is_searched"),
    [
        ("share kept for validation", False),
        ("Fraction of rows in the test set", False),
        ("proportion of the data that is held out", False),
        ("share of units that are dropped", True),
        ("rate of the optimizer, tuned on validation", True),
    ],
)
def test_a_value_whose_help_says_that_it_divides_the_data_is_not_searched(
    text: str, is_searched: bool
) -> None:
    option = ScriptOption("portion_rate", 0.3, kind="float", text=text)
    assert (domain_of(option) is not None) is is_searched


def test_a_method_of_an_object_gives_no_values_to_a_function_of_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("boost.py").write_text(
        "class Model:\n    def fit(self, x, y): pass\n"
        "def fit(learning_rate=0.1, n_estimators=40, max_depth=3):\n"
        "    Model().fit([1], [2])\n    print(learning_rate, n_estimators, max_depth)\n"
        "fit(max_depth=2)\n"
    )
    experiment = Experiment.from_yaml(experiment_for(Path("boost.py")).text)
    values = {"fit.learning_rate": 0.5, "fit.n_estimators": 80, "fit.max_depth": 4}
    assert experiment.search.root.keys() == values.keys()
    words = expand(experiment.command or "", values, {})
    output = subprocess.check_output([sys.executable, *words[1:]], text=True)
    assert output == "0.5 80 4\n"


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (
            "def load(name='hyper'):\n    path = os.path.join('conf', name + '.json')\n"
            "    return json.load(open(path))\nconf = load()\n",
            "python train.py",
        ),
        (
            "p = argparse.ArgumentParser()\np.add_argument('--model_dir', default='conf')\n"
            "a = p.parse_args()\n"
            "conf = json.load(open(os.path.join(a.model_dir, 'hyper.json')))\n",
            "python train.py --model_dir conf",
        ),
        (
            "p = argparse.ArgumentParser()\np.add_argument('--preset', default='hyper')\n"
            "a = p.parse_args()\nconf = json.load(open('conf/' + f'{a.preset}.json'))\n",
            "python train.py --preset hyper",
        ),
    ],
)
def test_a_file_whose_name_has_a_default_is_the_configuration(
    source: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("conf").mkdir()
    Path("conf/hyper.json").write_text('{"lr": 0.1, "batch_size": 8}')
    Path("train.py").write_text(
        f"import argparse, json, os\n{source}print(conf['lr'], conf['batch_size'])\n"
    )
    experiment = Experiment.from_yaml(experiment_for(Path("train.py")).text)
    command = experiment.command or ""
    assert set(experiment.search.root) == {"lr", "batch_size"}
    assert command.partition(" -- ")[2] == words
    arguments = expand(command, {"lr": 0.5, "batch_size": 16}, {})
    environment = os.environ | {"WORKBENCH_FOLDER": str(tmp_path)}
    output = subprocess.check_output([sys.executable, *arguments[1:]], text=True, env=environment)
    assert output == "0.5 16\n"


@pytest.mark.parametrize(
    ("others", "num_steps", "is_searched"),
    [
        ({}, 10_000, False),
        ({}, 8, True),
        ({"gamma": 0.99, "num_envs": 4}, 2048, True),
        ({"gamma": 0.8}, 100_000, False),  # the weight of a loss, or a schedule
    ],
)
def test_the_length_of_a_training_is_not_searched(
    others: dict[str, float], num_steps: int, is_searched: bool
) -> None:
    values = {"lr": 0.1, "batch_size": 8, "num_steps": num_steps, **others}
    options = [
        ScriptOption(name, value, kind=type(value).__name__) for name, value in values.items()
    ]
    assert ("num_steps" in searched_domains(options)) is is_searched


def test_a_configuration_far_away_has_the_name_of_the_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in ("nets", "resources/boundary"):
        Path(folder).mkdir(parents=True)
    Path("pyproject.toml").write_text("")
    Path("resources/boundary/test_config.yml").write_text("lr: 0.5\nbatch_size: 4\n")
    Path("resources/boundary/train_config.yml").write_text("lr: 0.1\nbatch_size: 8\n")
    Path("nets/train.py").write_text(
        "import argparse\np = argparse.ArgumentParser()\n"
        "p.add_argument('--config', required=True, help='YAML file')\n"
    )
    experiment = experiment_for(Path("nets/train.py"))
    assert Experiment.from_yaml(experiment.text).search.root.keys() == {"lr", "batch_size"}
    assert "--config resources/boundary/train_config.yml" in experiment.text


@pytest.mark.parametrize(
    "source",
    [
        "NOISE = 0.2\nLR = 0.1\nx, y = make_moons(100, noise=NOISE)\nprint(LR)\n",
        "class C:\n    NOISE = 0.2\n    LR = 0.1\nx, y = make_moons(noise=C.NOISE)\nprint(C.LR)\n",
        "p = argparse.ArgumentParser()\np.add_argument('--LR', type=float, default=0.1)\n"
        "p.add_argument('--NOISE', type=float, default=0.2)\na = p.parse_args()\n"
        "x, y = datasets.make_moons(noise=a.NOISE)\nprint(a.LR)\n",
    ],
)
def test_what_data_are_made_with_is_not_searched(source: str, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(source)
    text = experiment_for(script).text
    names = Experiment.from_yaml(text).search.root.keys()
    assert [name.rpartition(".")[2] for name in names] == ["LR"]
    assert "NOISE: 0.2\n" in text  # as a comment


def test_settings_of_a_module_that_an_option_chooses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("models").mkdir()
    Path("models/cnn.py").write_text(
        "class Config:\n    def __init__(self, data):\n        self.lr = 0.1\n"
        "        self.batch_size = 8\n"
        "class Net:\n    def __init__(self):\n        self.dropout = 0.5\n"
    )
    Path("train.py").write_text(
        "import argparse\nfrom importlib import import_module\np = argparse.ArgumentParser()\n"
        "p.add_argument('--model', required=True)\nname = p.parse_args().model\n"
        "config = import_module('models.' + name).Config('a')\n"
        "print(config.lr, config.batch_size)\n"
    )
    experiment = Experiment.from_yaml(experiment_for(Path("train.py")).text)
    values = {"Config.lr": 0.5, "Config.batch_size": 16}
    assert experiment.search.root.keys() == values.keys()
    words = expand(experiment.command or "", values, {})
    environment = os.environ | {"WORKBENCH_FOLDER": str(tmp_path)}
    output = subprocess.check_output([sys.executable, *words[1:]], text=True, env=environment)
    assert output == "0.5 16\n"


@pytest.mark.parametrize(
    ("name", "text", "is_searched"),
    [
        ("c_dim", "dimension of domain labels (1st dataset)", False),
        ("dim", "Number of classes of the data", False),
        ("dim", "dimension of the hidden state", True),
        ("B", "Number of channels in bottleneck blocks", True),
        ("B", "Number of speakers", False),
        ("batch_size", "Batch size, number of speakers per batch", True),
        ("growth_rate", "", True),
        ("num_epoches", "", False),
    ],
)
def test_the_help_of_an_option_says_what_it_is(name: str, text: str, is_searched: bool) -> None:
    options = [ScriptOption("lr", 0.1, kind="float"), ScriptOption(name, 12, kind="int", text=text)]
    assert (name in searched_domains(options)) is is_searched


def test_a_folder_is_one_of_the_pairs_that_yacs_takes(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import argparse\nfrom yacs.config import CfgNode as CN\n_C = CN()\n_C.OUT_DIR = 'out'\n"
        "_C.SEED = 1\n_C.LR = 0.1\np = argparse.ArgumentParser()\n"
        "p.add_argument('opts', nargs=argparse.REMAINDER)\nargs = p.parse_args()\n"
        "cfg = _C.clone()\ncfg.merge_from_list(args.opts)\nprint(f'val_loss {loss:.3f}')\n"
    )
    command = Experiment.from_yaml(experiment_for(script).text).command
    words = command.split()
    assert words[words.index("OUT_DIR") + 1] == "{folder}"
    assert words[words.index("LR") + 1] == "{LR}"
    assert "=" not in command.replace("PYTHONPATH=", "")


def test_a_checkpoint_that_need_not_be_given_is_no_folder_of_a_trial(tmp_path: Path) -> None:
    rest = (
        "checkpoint_path = os.path.join(out, 'model')\nsave_checkpoint(model, checkpoint_path)\n"
        "print(f'val_loss: {x:.3f}')"
    )
    declared = "'--checkpoint_path', type=str, default=None"
    found = _searched(tmp_path, declared, "'--lr', type=float, default=0.1", rest=rest)
    assert "{folder}" not in found["command"]


def test_options_of_torch7(tmp_path: Path) -> None:
    script = tmp_path / "train.lua"
    script.write_text(
        "require 'torch'\ncmd = torch.CmdLine()\n"
        "cmd:option('-rnn_size', 128, 'size of the state')\n"
        "cmd:option('-learning_rate',2e-3,'learning rate')\n"
        "cmd:option('-dropout',0,'no dropout (0), or how much')\n"
        "cmd:option('-savefile','lstm','name of a file')\n"
        "-- cmd:option('-old', 5)\n"
        "print(string.format('%d, train_loss = %6.8f', i, loss))\nprint('loss is NaN, aborting')\n"
    )
    experiment = Experiment.from_yaml(experiment_for(script).text)
    assert list(experiment.search.root) == ["rnn_size", "learning_rate", "dropout"]
    assert experiment.command.startswith("th ")
    assert "-learning_rate {learning_rate}" in experiment.command
    assert experiment.objectives[0].metric == "train_loss"


def test_what_a_program_writes_is_no_configuration(tmp_path: Path) -> None:
    (tmp_path / "stats.json").write_text('{"lr": 0.1, "dropout": 0.2, "score": 0.9}')
    (tmp_path / "tuned.json").write_text('{"lr": 0.1, "dropout": 0.2}')
    script = tmp_path / "train.py"
    script.write_text(
        "import json, sys\nconfig = json.load(open(sys.argv[1]))\nprint(f'val_loss {loss:.3f}')\n"
    )
    text = experiment_for(script).text
    assert "tuned.json" in text
    assert "stats.json" not in text


def test_constants_for_a_folder_and_a_seed_are_those_of_the_trial(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "LR = 0.1\nWIDTH = 64\nSEED = 42\nOUT_DIR = 'runs/first'\nDATA_DIR = 'data'\n"
        "print(f'val_loss {loss:.3f}')\n"
    )
    command = Experiment.from_yaml(experiment_for(script).text).command or ""
    assert "OUT_DIR={folder} SEED={seed} -- python " in command
    assert "DATA_DIR" not in command


def test_numbers_of_tokens_and_of_digits_are_not_searched(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "LR = 0.1\nWIDTH = 64\nEOS_IDX = 2\nUNK_IDX = 3\nNUM_DIGITS = 4\n"
        "print(f'val_loss {loss:.3f}')\n"
    )
    search = Experiment.from_yaml(experiment_for(script).text).search.root
    assert sorted(search) == ["LR", "WIDTH"]


def test_a_configuration_file_has_the_folder_and_the_seed_of_the_trial(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text(
        "experiment: {output_dir: outputs/run1, seed: 1234}\noptim: {lr: 0.003}\n"
        "model: {dropout: 0.1}\n"
    )
    script = tmp_path / "train.py"
    script.write_text(
        "import argparse, yaml\nparser = argparse.ArgumentParser()\n"
        f"parser.add_argument('--config', default={str(tmp_path / 'base.yaml')!r})\n"
        "config = yaml.safe_load(open(parser.parse_args().config))\n"
        "rate, drop = config['optim']['lr'], config['model']['dropout']\n"
        "print(f'val_loss {loss:.3f}')\n"
    )
    command = Experiment.from_yaml(experiment_for(script).text).command or ""
    assert "experiment.output_dir={folder} experiment.seed={seed} -- python " in command


BY_PLACE = """
import sys
import yaml

def load(path):
    with open(path) as file:
        return yaml.safe_load(file)

config = load(sys.argv[1])
print(f"val_loss {config['optim']['lr']:.4f}")
"""
IN_FILE = "optim: {lr: 0.1}\nmodel: {dropout: 0.1}\n"


@pytest.mark.parametrize("use", ["load(sys.argv[1])", "yaml.safe_load(open(sys.argv[1]))"])
def test_a_configuration_file_by_its_place_has_what_is_searched(
    use: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("run.py").write_text(BY_PLACE.replace("load(sys.argv[1])", use))
    Path("small.yaml").write_text(IN_FILE)
    experiment = Experiment.from_yaml(experiment_for(Path("run.py")).text)
    assert list(experiment.search.root) == ["optim.lr", "model.dropout"]
    assert (experiment.command or "").endswith(" -- python run.py small.yaml")


def test_a_command_says_which_configuration_file_is_meant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("run.py").write_text(BY_PLACE)
    Path("a.yaml").write_text(IN_FILE)
    Path("conf").mkdir()
    Path("conf/z.yaml").write_text("optim: {lr: 0.2}\nmodel: {width: 8}\n")
    first = experiment_for(Path("python -u run.py conf/z.yaml"))
    experiment = Experiment.from_yaml(first.text)
    assert first.script == Path("run.py")
    assert list(experiment.search.root) == ["optim.lr", "model.width"]
    assert (experiment.command or "").endswith(" -- python -u run.py conf/z.yaml")


@pytest.mark.parametrize(
    ("command", "expected", "searched"),
    [
        (
            "python train.py rows.csv --lr 0.3",
            "python train.py rows.csv --lr 0.3 --out-dir {folder} {args}",
            ["batch-size", "dropout"],
        ),
        (
            "A=1 B=2 torchrun --nproc-per-node 2 train.py 'my rows.csv' -b 16 --out-dir=o",
            "env A=1 B=2 torchrun --nproc-per-node 2 train.py 'my rows.csv' -b 16 --out-dir=o"
            " {args}",
            ["lr", "dropout"],
        ),
        (
            "./train.py rows.csv",
            "python train.py rows.csv --out-dir {folder} {args}",
            ["lr", "batch-size", "dropout"],
        ),
    ],
)
def test_what_a_command_has_already_is_the_same_in_all_trials(
    command: str,
    expected: str,
    searched: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(
        "import argparse\np = argparse.ArgumentParser()\np.add_argument('data')\n"
        "p.add_argument('--lr', type=float, default=0.1)\n"
        "p.add_argument('--batch-size', '-b', type=int, default=32)\n"
        "p.add_argument('--dropout', type=float, default=0.1)\n"
        "p.add_argument('--out-dir', default='out')\nprint(f'val_acc: {acc}')\n"
    )
    first = experiment_for(Path(command))
    experiment = Experiment.from_yaml(first.text)
    assert (experiment.command, list(experiment.search.root)) == (expected, searched)
    assert first.values_to_write == ()


def test_a_module_in_a_command_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("pkg").mkdir()
    Path("pkg/train.py").write_text(CLICK)
    experiment = Experiment.from_yaml(experiment_for(Path("python -m pkg.train --kind b")).text)
    assert experiment.command == "python -m pkg.train --kind b {args}"
    assert list(experiment.search.root) == ["rate"]


def test_a_command_of_a_missing_script_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match=r"cannot read python gone\.py"):
        experiment_for(Path("python gone.py --lr 1"))


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("deep net/train.py", "deep-net-train"),
        ("wide/main.py", "wide-main"),
        ("wide/train_gan.py", "train_gan"),
    ],
)
def test_runs_of_two_programs_have_different_names(file: str, name: str, tmp_path: Path) -> None:
    script = tmp_path / file
    script.parent.mkdir()
    script.write_text("lr = 0.1\n")
    assert Experiment.from_yaml(experiment_for(script).text).name == name


def test_a_mode_of_the_model_is_searched_and_that_of_the_program_is_not() -> None:
    of_model = ScriptOption("mode", "rand", ("rand", "static"), is_of_model=True)
    assert domain_of(of_model) == '{choices: ["rand", "static"]}'
    assert domain_of(replace(of_model, is_of_model=False)) is None
    assert domain_of(replace(of_model, choices=("train", "test"))) is None


@pytest.mark.parametrize("name", ["cls_num", "num_cls", "n_cls"])
def test_a_number_of_classes_is_not_searched(name: str) -> None:
    of_model = ScriptOption(name, 360, kind="int", way="constant", is_of_model=True)
    assert searched_domains([of_model]) == {}
    assert searched_domains([replace(of_model, name="num_cells")]) != {}
