"""What the uses of an option in a source say about it: its choices, and whether it is searched."""

from __future__ import annotations

from pathlib import Path

import pytest

from workbench.experiment import Experiment
from workbench.runs.scripts.first_experiment import experiment_for

MODEL = """
class Net(torch.nn.Module):
    def __init__(self, width, residual=False):
        self.residual = residual
    def forward(self, x):
        return x
"""


def domains(folder: Path, source: str, *declared: str) -> dict[str, object]:
    """Return what is searched, as JSON, for a program with options of argparse."""
    lines = "".join(f"parser.add_argument({option})\n" for option in declared)
    return domains_of(
        folder,
        f"import argparse, torch\nparser = argparse.ArgumentParser()\n{lines}"
        f"args = parser.parse_args()\n{source}\nprint(f'val_loss {{loss:.3f}}')\n",
    )


def domains_of(folder: Path, program: str) -> dict[str, object]:
    """Return what is searched, as JSON, for a whole program."""
    script = folder / "train.py"
    script.write_text(program)
    experiment = Experiment.from_yaml(experiment_for(script).text)
    return {
        name: domain.model_dump(mode="json", exclude_none=True)
        for name, domain in experiment.search.root.items()
    }


@pytest.mark.parametrize(
    "use",
    [
        "if args.optimizer == 'sgd': pass\nelif args.optimizer == 'lion': pass",
        "name = args.optimizer.lower()\nif 'sgd' == name: pass\nelif name == 'lion': pass",
        "def make(kind, lr):\n    if kind in ('sgd', 'lion'): pass\nmake(args.optimizer, args.lr)",
        "def make(lr, kind='adam'):\n    if kind in ('sgd', 'lion'): pass\n"
        "make(args.lr, kind=args.optimizer)",
        "KNOWN = {'sgd': f, 'lion': g}\nKNOWN[args.optimizer]()",
        "match getattr(args, 'optimizer'):\n    case 'sgd': pass\n    case 'lion': pass",
        "config = vars(args)\nif config['optimizer'] in ['sgd', 'lion']: pass",
    ],
)
def test_texts_that_an_option_is_compared_with_are_its_choices(use: str, tmp_path: Path) -> None:
    found = domains(
        tmp_path,
        use,
        "'--lr', type=float, default=0.1",
        "'--optimizer', default='adam'",
    )
    assert found["optimizer"] == {"choices": ["adam", "sgd", "lion"]}


def test_texts_of_other_options_are_no_choices(tmp_path: Path) -> None:
    found = domains(
        tmp_path,
        "if args.dataset == 'mnist' or args.backbone == 'vgg' or kind == 'sgd': pass",
        "'--lr', type=float, default=0.1",
        "'--dataset', default='cifar'",
        "'--backbone', default='resnet'",
        "'--optimizer', default='adam'",
    )
    assert list(found) == ["lr"]


def test_alternatives_in_words_are_choices(tmp_path: Path) -> None:
    found = domains(
        tmp_path,
        "",
        "'--lr', type=float, default=0.1",
        "'--cell', default='gru', help='kind of cell: lstm, gru or rnn'",
        "'--opt', default='adam', help='sgd or adam'",
    )
    assert found["cell"] == {"choices": ["lstm", "gru", "rnn"]}
    assert found["opt"] == {"choices": ["sgd", "adam"]}


def test_alternatives_between_slashes_are_choices_but_paths_are_not(tmp_path: Path) -> None:
    found = domains(
        tmp_path,
        "",
        "'--lr', type=float, default=0.1",
        "'--method', default='maml', help='protonet/maml{_approx}'",
        "'--backbone', default='Conv4', help='Conv{4|6} / ResNet{10|18}'",
        "'--weights', default='data', help='such as data/first'",
    )
    assert found["method"] == {"choices": ["protonet", "maml", "maml_approx"]}
    assert found["backbone"] == {"choices": ["Conv4", "Conv6", "ResNet10", "ResNet18"]}
    assert "weights" not in found


@pytest.mark.parametrize(
    "use",
    [
        f"{MODEL}\nnet = Net(8, args.residual)",
        f"{MODEL}\nnet = Net(8, residual=args.residual)",
        f"{MODEL}\nis_residual = args.residual\nnet = Net(8, is_residual)",
        "class Net(torch.nn.Module):\n    def __init__(self, args):\n        self.args = args\n"
        "    def forward(self, x):\n        return x if self.args.residual else 2 * x",
    ],
)
def test_a_switch_that_a_model_is_made_with_is_searched(use: str, tmp_path: Path) -> None:
    found = domains(
        tmp_path,
        use,
        "'--lr', type=float, default=0.1",
        "'--residual', action='store_true'",
        "'--report', action='store_true'",
    )
    assert found["residual"] == {"choices": [True, False]}
    assert "report" not in found


@pytest.mark.parametrize("name", ["cuda", "fp16", "verbose", "checkpointing", "pretrained"])
def test_a_switch_about_how_a_model_runs_is_not_searched(name: str, tmp_path: Path) -> None:
    found = domains(
        tmp_path,
        f"{MODEL}\nnet = Net(8, args.{name})",
        "'--lr', type=float, default=0.1",
        f"'--{name}', action='store_true'",
    )
    assert list(found) == ["lr"]


def test_a_default_that_is_a_text_is_converted_as_what_is_given(tmp_path: Path) -> None:
    found = domains(
        tmp_path,
        "",
        "'--lr', type=float, default='1e-3'",
        "'--width', type=int, default='64'",
        "'--lora_dim', type=int, default=0",
    )
    assert found["lr"] == {"low": 1e-4, "high": 1e-2, "log": True}
    assert found["width"] == {"choices": [32, 64, 128]}
    assert found["lora_dim"] == {"choices": [4, 8, 16]}


@pytest.mark.parametrize(
    ("use", "chosen"),
    [
        ("PRESETS['large']", "large"),
        ("PRESETS[sys.argv[1] if len(sys.argv) > 1 else 'large']", "large"),
        ("PRESETS.get('small')", "small"),
        ("PRESETS[unknown()]", "small"),
    ],
)
def test_only_the_preset_that_a_program_asks_for_is_searched(
    use: str, chosen: str, tmp_path: Path
) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import sys\nPRESETS = {'small': dict(lr=1e-3, width=64),"
        " 'large': dict(lr=3e-4, width=512)}\n"
        f"config = {use}\nprint(f'val_loss {{loss:.3f}}')\n"
    )
    found = Experiment.from_yaml(experiment_for(script).text).search.root
    assert list(found) == [f"PRESETS.{chosen}.lr", f"PRESETS.{chosen}.width"]


def test_settings_of_pydantic_that_hold_others_are_the_options(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "from pydantic_settings import BaseSettings, SettingsConfigDict\n"
        "class Optim(BaseSettings):\n    lr: float = 1e-3\n"
        "class Settings(BaseSettings):\n"
        "    model_config = SettingsConfigDict(cli_parse_args=True)\n"
        "    width: int = 64\n    optim: Optim = Optim()\n"
        "print(f'val_loss {loss:.3f}')\n"
    )
    found = Experiment.from_yaml(experiment_for(script).text).search.root
    assert list(found) == ["width", "optim.lr"]


@pytest.mark.parametrize(
    "use",
    [
        "assert (args.depth - 4) % 6 == 0",
        "def make(depth):\n    assert (depth - 4) % 6 == 0, 'depth is 6n+4'\nmake(args.depth)",
    ],
)
def test_a_number_keeps_the_remainder_that_a_program_asserts(use: str, tmp_path: Path) -> None:
    found = domains(
        tmp_path, use, "'--lr', type=float, default=0.1", "'--depth', type=int, default=16"
    )
    assert found["depth"] == {"choices": [10, 16, 34]}  # 6n + 4, nearest to 8 and 32


def test_an_option_that_no_code_reads_is_not_searched(tmp_path: Path) -> None:
    declared = (
        "'--lr', type=float, default=0.1",
        "'--dropout', type=float, default=0.1",
        "'--momentum', type=float, default=0.5",
        "'--amp', action='store_true'",
    )
    use = "Net(args.dropout), SGD(args.lr, args.momentum)"
    assert list(domains(tmp_path, use, *declared)) == ["lr", "dropout", "momentum"]
    for other in ("if args.amp: pass", "scaler = make(**vars(args))", "x = vars(args)['amp']"):
        assert "amp" in domains(tmp_path, f"{use}\n{other}", *declared)


ARGPARSE = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("-lr", "--learning-rate", dest="lr", type=float, default=0.01)
parser.add_argument("--wd", dest="weight_decay", type=float, default=1e-4)
parser.add_argument("--width", type=int, default=64)
parser.add_argument("--depth", type=int, default=3)
parser.add_argument("--momentum", type=float, default=0.9)
args = parser.parse_args()
SGD(Net(args.width, args.depth), args.lr, args.weight_decay)
print(f"val_loss {loss:.3f}")
"""
CLICK = """
import click
@click.command()
@click.option("-l", "--learning-rate", "lr", type=float, default=0.01)
@click.option("--wd", "weight_decay", type=float, default=1e-4)
@click.option("--width", type=int, default=64)
@click.option("--depth", type=int, default=3)
@click.option("--momentum", type=float, default=0.9)
def main(lr, weight_decay, width, depth, **others):
    SGD(Net(width, depth), lr, weight_decay)
    print(f"val_loss {loss:.3f}")
main()
"""
TYPER = """
import typer
from typer import Option
app = typer.Typer()
@app.command()
def main(
    lr: float = Option(0.01, "--learning-rate"), weight_decay: float = Option(1e-4, "--wd"),
    width: int = 64, depth: int = 3, momentum: float = 0.9,
):
    SGD(Net(width, depth), lr, weight_decay)
    print(f"val_loss {loss:.3f}")
app()
"""


@pytest.mark.parametrize("source", [ARGPARSE, CLICK, TYPER], ids=["argparse", "click", "typer"])
def test_an_option_is_read_by_the_name_that_the_code_gives_it(source: str, tmp_path: Path) -> None:
    assert {*domains_of(tmp_path, source)} >= {"learning-rate", "wd", "width", "depth"}


def test_the_default_that_is_set_for_the_name_in_the_code_counts(tmp_path: Path) -> None:
    found = domains(
        tmp_path,
        "parser.set_defaults(lr=0.02)\nargs = parser.parse_args()\nSGD(args.lr)",
        "'--learning-rate', dest='lr', type=float",
    )
    assert found["learning-rate"] == {"low": 0.002, "high": 0.2, "log": True}


def test_options_that_are_passed_on_as_a_whole_are_read(tmp_path: Path) -> None:
    found = domains(
        tmp_path, "fit(args)", "'--lr', type=float, default=0.1", "'--width', type=int, default=8"
    )
    assert list(found) == ["lr", "width"]


def test_an_attribute_of_a_class_holds_the_option_that_it_is_made_with(tmp_path: Path) -> None:
    use = """
class Optimizer:
    def __init__(self, method, lr):
        self.method = method
    def make(self):
        if self.method == 'SGD': pass
        elif self.method == 'adagrad': pass
Optimizer(args.optim, args.lr)
"""
    found = domains(tmp_path, use, "'--lr', type=float, default=0.1", "'--optim', default='sgd'")
    assert found["optim"] == {"choices": ["sgd", "adagrad"]}


def test_what_a_program_asserts_is_kept_and_given(tmp_path: Path) -> None:
    declared = (
        "'--lr', type=float, default=0.1",
        "'--n-views', type=int, default=2",
        "'--width', type=int, default=8",
        "'--base-model', default=''",
    )
    use = "assert args.n_views == 2, 'only two'\nassert args.base_model\nfit(args.lr, args.width)"
    assert list(domains(tmp_path, use, *declared)) == ["lr", "width"]
    assert "--base-model BASE_MODEL" in experiment_for(tmp_path / "train.py").text
    # Below a test it says nothing about the program as a whole.
    use = "if args.lr > 1:\n    assert args.width == 8\nfit(args.lr, args.width)"
    assert "width" in domains(tmp_path, use, *declared)


def test_the_ends_of_a_schedule_of_noise_are_no_betas_of_adam(tmp_path: Path) -> None:
    found = domains(
        tmp_path,
        "fit(args.lr, args.beta_1, args.beta_T, args.beta1)",
        "'--lr', type=float, default=0.1",
        "'--beta_1', type=float, default=1e-4",
        "'--beta_T', type=float, default=0.02",
        "'--beta1', type=float, default=0.9",
    )
    assert list(found) == ["lr", "beta1"]


def test_an_option_that_replaces_what_another_one_decides_is_not_searched(tmp_path: Path) -> None:
    declared = (
        "'--lr', type=float, default=None",
        "'--blr', type=float, default=1e-3",
        "'--weight-decay', type=float, default=0.05",
    )
    use = "if args.lr is None:\n    args.lr = args.blr * 64 / 256\nfit(args.lr, args.weight_decay)"
    assert list(domains(tmp_path, use, *declared)) == ["blr", "weight-decay"]
    use = "if args.lr is None:\n    args.lr = 0.1\nfit(args.lr, args.blr, args.weight_decay)"
    assert "lr" in domains(tmp_path, use, *declared)


def test_the_size_of_batches_of_validation_data_is_not_searched(tmp_path: Path) -> None:
    found = domains(
        tmp_path,
        "fit(args.batch_size, args.validate_batch_size)",
        "'--batch_size', type=int, default=64",
        "'--validate_batch_size', type=int, default=64",
    )
    assert list(found) == ["batch_size"]


def test_a_size_that_a_model_is_made_with_is_searched_whatever_its_name(tmp_path: Path) -> None:
    found = domains(
        tmp_path,
        f"{MODEL}\nnet = Net(args.atom_fea_len, args.max_diffusion_step, int(args.max_len))\n"
        "fit(args.lr, args.batch_size)",
        "'--lr', type=float, default=0.1",
        "'--batch-size', type=int, default=16",
        "'--atom-fea-len', type=int, default=64",
        "'--max-diffusion-step', type=int, default=2",
        "'--max-len', type=int, default=64",
    )
    assert found["atom-fea-len"] == {"choices": [32, 64, 128]}
    assert found["max-diffusion-step"] == {"choices": [1, 2, 4]}
    assert "max-len" not in found  # the data decide it


def test_the_weight_of_a_term_of_a_loss_is_a_real_number(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("lr: 0.1\nc_mel: 45\nc_mels: 45\n")
    found = domains_of(
        tmp_path,
        "import yaml\nconfig = yaml.safe_load(open('config.yaml'))\n"
        "loss = mel * config['c_mel'] + config['c_mels'].size\nopt = Adam(lr=config['lr'])\n"
        "print(f'val_loss {loss:.3f}')\n",
    )
    assert found["c_mel"] == {"low": 4.5, "high": 450.0, "log": True}


def test_a_group_that_is_passed_to_a_model_is_of_the_model(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(
        "lr: 0.1\nbatch_size: 16\nnet:\n  gated_sum: true\n  max_order: 3\n"
    )
    found = domains_of(
        tmp_path,
        f"import torch, yaml\n{MODEL}\nconfig = yaml.safe_load(open('config.yaml'))\n"
        "net = Net(**config['net'])\nopt = Adam(lr=config['lr'])\nprint(f'val_loss {loss:.3f}')\n",
    )
    assert found["net.gated_sum"] == {"choices": [True, False]}
    assert "net.max_order" in found


def test_a_choice_that_the_help_mentions_twice_is_tried_once(tmp_path: Path) -> None:
    found = domains(
        tmp_path,
        "train(args.optimizer)",
        "'--lr', type=float, default=0.1",
        "'--optimizer', default='adam', choices=['adam', 'sgd', 'adam']",
    )
    assert found["optimizer"] == {"choices": ["adam", "sgd"]}


def test_all_files_that_a_command_names_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.yaml").write_text("dropout: 0.2\nhidden: 64\nname: a\n")
    (tmp_path / "train.yaml").write_text("lr: 0.1\nbatch_size: 16\nname: b\n")
    (tmp_path / "train.py").write_text(
        "import argparse, yaml\nparser = argparse.ArgumentParser()\n"
        "parser.add_argument('-m', required=True)\nparser.add_argument('-t', required=True)\n"
        "args = parser.parse_args()\nmodel = yaml.safe_load(open(args.m))\n"
        "print(f'val_loss {loss:.3f}')\n"
    )
    text = experiment_for(Path("train.py -m model.yaml -t train.yaml")).text
    assert set(Experiment.from_yaml(text).search.root) == {
        "dropout",
        "hidden",
        "lr",
        "batch_size",
    }
    assert "-m" in text
    assert "-t" in text


def test_functions_with_one_name_and_other_parameters_are_not_mixed_up(tmp_path: Path) -> None:
    (tmp_path / "first.py").write_text(
        "import random\ndef make_env(name, rank, seed):\n    random.seed(seed)\n"
    )
    (tmp_path / "second.py").write_text("def make_env(name, num_envs, num_eval_envs):\n    pass\n")
    script = tmp_path / "train.py"
    script.write_text(
        "import argparse, first\nfrom second import make_env\nparser = argparse.ArgumentParser()\n"
        "parser.add_argument('--lr', type=float, default=0.1)\n"
        "parser.add_argument('--envs', type=int, default=8)\n"
        "parser.add_argument('--eval-envs', type=int, default=8)\nargs = parser.parse_args()\n"
        "make_env('a', args.envs, args.eval_envs)\nprint(f'val_loss {args.lr:.3f}')\n"
    )
    assert "{seed}" not in experiment_for(script).text


def test_among_more_than_ten_parameters_uses_decide(tmp_path: Path) -> None:
    declared = [f"'--knob{letter}', type=float, default=0.3" for letter in "abcdefghij"]
    found = domains(
        tmp_path,
        "def build(strength):\n    return torch.optim.SGD(net, strength)\nbuild(args.zeta)",
        "'--lr', type=float, default=0.1",
        "'--batch-size', type=int, default=32",
        *declared,
        "'--zeta', type=float, default=0.3",
    )
    assert "zeta" in found
    assert len(found) == 10


def test_two_words_for_dropout_are_one(tmp_path: Path) -> None:
    found = domains(
        tmp_path,
        "fit(args.lr, args.drop_out_prob, args.use_batch_norm, args.use_cache)",
        "'--lr', type=float, default=0.1",
        "'--batch-size', type=int, default=16",
        "'--drop_out_prob', type=float, default=0.5",
        "'--use_batch_norm', action='store_true'",
        "'--use_cache', action='store_true'",
    )
    assert found["drop_out_prob"] == {"low": 0.0, "high": 0.9}
    assert found["use_batch_norm"] == {"choices": [True, False]}
    assert "use_cache" not in found


def test_the_form_of_rows_is_not_searched(tmp_path: Path) -> None:
    found = domains(
        tmp_path,
        "net = nn.LSTM(args.width, args.hidden, args.lr)\nfor images, labels in loader:\n"
        "    images = images.reshape(args.batch_size, args.length, args.width)\n"
        "    state = net(images).view(-1, args.hidden, 1)\n",
        *(f"'--{name}', type=int, default=28" for name in ("length", "width", "hidden")),
        "'--batch_size', type=int, default=64",
        "'--lr', type=float, default=0.1",
    )
    assert found.keys() == {"hidden", "batch_size", "lr"}


@pytest.mark.parametrize(("method", "is_searched"), [("test_step", False), ("loss", True)])
def test_a_switch_that_only_an_evaluation_reads_is_none_of_the_model(
    method: str, is_searched: bool, tmp_path: Path
) -> None:
    found = domains(
        tmp_path,
        "class Net(nn.Module):\n    def forward(self, rows): return rows\n"
        f"    @staticmethod\n    def {method}(rows, args):\n"
        "        if args.regions: return 0\n        return args.lr\n",
        "'--regions', action='store_true'",
        "'--lr', type=float, default=0.1",
    )
    assert ("regions" in found) == is_searched
