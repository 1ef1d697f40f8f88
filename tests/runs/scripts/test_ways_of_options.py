"""Every way in which a program can declare its options, from its source to what a trial passes."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from tests.builders.examples import examples
from workbench.experiment import Experiment
from workbench.experiment.command import expand
from workbench.foundation.errors import DataError
from workbench.runs.scripts.first_experiment import experiment_for
from workbench.training.programs.constants import MODULE, with_constants


@dataclass(frozen=True)
class Case:
    """A program, values for what is searched in it, and what a trial passes then."""

    name: str
    source: str
    values: dict[str, Any]
    passed: list[str]
    files: dict[str, str] = field(default_factory=dict)
    script: str = "train.py"


CASES = [
    Case(
        "argparse in loops",
        "import argparse\nDEFAULTS = {'lr': 0.1, 'width': 8}\np = argparse.ArgumentParser()\n"
        "for name, value in DEFAULTS.items():\n"
        "    p.add_argument(f'--{name}', type=type(value), default=value)\n",
        {"lr": 0.5, "width": 16},
        ["--lr=0.5", "--width=16"],
    ),
    Case(
        "subcommands that are passed on",
        "import argparse\np = argparse.ArgumentParser()\ncommands = p.add_subparsers()\n"
        "def common(parser):\n"
        "    parser.add_argument('--lr', type=float, default=0.1)\n    return parser\n"
        "evaluate = commands.add_parser('evaluate')\ncommon(evaluate)\n"
        "common(commands.add_parser('train'))\n",
        {"lr": 0.5},
        ["train", "--lr=0.5"],
    ),
    Case(
        "the short add of configargparse in another module",
        "from opts import add_options\nimport configargparse\n"
        "add_options(configargparse.ArgumentParser())\n",
        {"learning_rate": 0.5, "batch_size": 16},
        ["--learning_rate=0.5", "--batch_size=16"],
        {
            "opts.py": "def add_options(parser):\n    group = parser.add_argument_group('Steps')\n"
            "    group.add('--learning_rate', '-lr', type=float, default=1.0)\n"
            "    group.add('--batch_size', type=int, default=8)\n    seen = set()\n"
            "    seen.add('lr')\n"
        },
    ),
    Case(
        "argparse in a function of another module, for each item of its dict",
        "from config import parser\nprint(parser.parse_args())\n",
        {"lr": 0.5, "num-layers": 4},
        ["--lr=0.5", "--num-layers=4"],
        {
            "config.py": "import argparse\nfrom tools import add\n"
            "known = {'a': {'lr': (0.1, 'rate')}, 'b': {'num-layers': (2, 'layers')}}\n"
            "parser = argparse.ArgumentParser()\n"
            "for _, values in known.items():\n    parser = add(parser, values)\n",
            "tools.py": "def add(parser, values):\n    for name in values:\n"
            "        default, text = values[name]\n"
            "        parser.add_argument(f'--{name}', type=type(default), default=default)\n"
            "    return parser\n",
        },
    ),
    Case(
        "gin with bindings, also of what the file does not name",
        "from absl import flags\nimport gin\n"
        "flags.DEFINE_multi_string('gin_files', [], '')\n"
        "flags.DEFINE_multi_string('gin_bindings', [], '')\n"
        "@gin.configurable\nclass Net:\n    def __init__(self, dropout=0.1, file=None): ...\n",
        {"Net.dropout": 0.3, "Agent.learning_rate": 0.5},
        [
            "--gin_files=base.gin",
            "--gin_bindings=Net.dropout=0.3",
            "--gin_bindings=Agent.learning_rate=0.5",
        ],
        {"base.gin": "import agents\n# comment\nAgent.learning_rate = 1e-3\nAgent.name = 'dqn'\n"},
    ),
    Case(
        "sacred with ingredients",
        "import sacred\nnet = sacred.Ingredient('net')\n@net.config\ndef config():\n"
        "    batch_size = 8\n    kwargs = dict(lr=0.1)\n"
        "ex = sacred.Experiment('e', ingredients=[net])\n@ex.config\ndef own():\n"
        "    dropout = 0.2\n@ex.automain\ndef main(): ...\n",
        {"net.batch_size": 16, "net.kwargs.lr": 0.5, "dropout": 0.1},
        ["with", "net.batch_size=16", "net.kwargs.lr=0.5", "dropout=0.1"],
    ),
    Case(
        "simple_parsing, whose nested fields have no prefix",
        "from dataclasses import dataclass\nfrom simple_parsing import parse\n"
        "@dataclass\nclass Net:\n    width: int = 8\n"
        "@dataclass\nclass Config:\n    net: Net\n    lr: float = 0.1\nparse(Config)\n",
        {"width": 16, "lr": 0.5},
        ["--width=16", "--lr=0.5"],
    ),
    Case(
        "hydra before 1.0, whose groups are global",
        "import hydra\n@hydra.main(config_path='conf/train.yaml', strict=True)\n"
        "def main(cfg): ...\n",
        {"agent.lr": 0.5, "batch_size": 16},
        ["hydra.run.dir=/trial", "agent.lr=0.5", "batch_size=16"],
        {
            "conf/train.yaml": "defaults:\n  - agent: sac\nbatch_size: 8\n",
            "conf/agent/sac.yaml": "agent:\n  lr: 1e-4\n",
        },
    ),
    Case(
        "hydra with groups of classes",
        "import hydra\nfrom dataclasses import dataclass, field\nfrom typing import Any\n"
        "from hydra.core.config_store import ConfigStore\n"
        "@dataclass\nclass Adam:\n    lr: float = 0.1\n"
        "@dataclass\nclass Sgd:\n    lr: float = 0.1\n    momentum: float = 0.9\n"
        "@dataclass\nclass Config:\n    optim: Any\n    batch_size: int = 8\n"
        "    defaults: list = field(default_factory=lambda: [{'optim': 'adam'}])\n"
        "cs = ConfigStore.instance()\ncs.store(name='config', node=Config)\n"
        "cs.store(group='optim', name='sgd', node=Sgd)\n"
        "cs.store(group='optim', name='adam', node=Adam)\n"
        "@hydra.main(config_path='.', config_name='config')\ndef main(cfg): ...\n",
        {"optim.lr": 0.5, "batch_size": 16},
        ["hydra.run.dir=/trial", "optim.lr=0.5", "batch_size=16"],
    ),
    Case(
        "argparse over the fields of a dataclass",
        "import argparse\nfrom dataclasses import dataclass, fields\n@dataclass\nclass Config:\n"
        "    lr: float = 0.1\n    width: int = 8\np = argparse.ArgumentParser()\n"
        "for f in fields(Config):\n"
        "    p.add_argument('--' + f.name, type=f.type, default=f.default)\n",
        {"lr": 0.5, "width": 16},
        ["--lr=0.5", "--width=16"],
    ),
    Case(
        "a dict that a function of another module turns into options",
        "import argparse\nfrom util import add_dict\ndef defaults():\n"
        "    values = dict(lr=0.1, batch_size=4)\n    values.update(more())\n    return values\n"
        "def more():\n    return {'dropout': 0.1}\n"
        "add_dict(argparse.ArgumentParser(), defaults())\n",
        {"lr": 0.5, "batch_size": 8, "dropout": 0.2},
        ["--lr=0.5", "--batch_size=8", "--dropout=0.2"],
        {
            "util.py": "def add_dict(parser, values):\n    for k, v in values.items():\n"
            "        kind = type(v)\n        if v is None:\n            kind = str\n"
            "        parser.add_argument(f'--{k}', default=v, type=kind)\n"
        },
    ),
    Case(
        "widths of transformers and other usual names",
        "import argparse\np = argparse.ArgumentParser()\n"
        "p.add_argument('--d_model', type=int, default=8)\n"
        "p.add_argument('--tau', type=float, default=0.005)\n"
        "p.add_argument('--batch_size_per_gpu', type=int, default=8)\n",
        {"d_model": 4, "tau": 0.01, "batch_size_per_gpu": 4},
        ["--d_model=4", "--tau=0.01", "--batch_size_per_gpu=4"],
    ),
    Case(
        "argparse with negative flags",
        "import argparse\np = argparse.ArgumentParser()\n"
        "p.add_argument('--anneal-lr', action=argparse.BooleanOptionalAction, default=True)\n"
        "p.add_argument('--no-nesterov', dest='nesterov', action='store_false')\n"
        "p.add_argument('--amsgrad', action='store_true')\n"
        "p.add_argument('--clip-loss', type=lambda x: bool(strtobool(x)), default=True)\n",
        {"anneal-lr": False, "nesterov": False, "amsgrad": False, "clip-loss": False},
        ["--no-anneal-lr", "--no-nesterov", "--clip-loss=false"],
    ),
    Case(
        "argparse in another module, with a subcommand",
        "from options import make\nmake().parse_args()\n",
        {"lr": 0.5},
        ["train", "--lr=0.5"],
        {
            "options.py": "import argparse\ndef make():\n    p = argparse.ArgumentParser()\n"
            "    sub = p.add_subparsers()\n    test = sub.add_parser('test')\n"
            "    test.add_argument('--dropout', type=float, default=0.1)\n"
            "    train = sub.add_parser('train')\n"
            "    train.add_argument('--lr', type=float, default=0.1)\n    return p\n"
        },
    ),
    Case(
        "absl",
        "from absl import flags\nflags.DEFINE_float('learning_rate', 0.1, '')\n"
        "flags.DEFINE_enum('optimizer', 'sgd', ['sgd', 'adam'], '')\n"
        "flags.DEFINE_bool('nesterov', True, '')\n",
        {"learning_rate": 0.5, "optimizer": "adam", "nesterov": False},
        ["--learning_rate=0.5", "--optimizer=adam", "--nesterov=false"],
    ),
    Case(
        "flags of absl for each keyword of a function",
        "from agent import Agent\nfrom tools import define_flags\n"
        "FLAGS = define_flags(seed=1, batch_size=256, agent=Agent.get_default_config())\n",
        {"batch_size": 8, "agent.policy_lr": 0.5, "agent.discount": 0.9},
        ["--batch_size=8", "--agent.policy_lr=0.5", "--agent.discount=0.9"],
        {
            "agent.py": "from ml_collections import ConfigDict\nclass Agent:\n"
            "    @staticmethod\n    def get_default_config(updates=None):\n"
            "        config = ConfigDict()\n        config.policy_lr = 0.1\n"
            "        config.discount = 0.99\n        return config\n",
            "tools.py": "from absl import flags\nfrom ml_collections import config_flags\n"
            "def define_flags(**kwargs):\n    for key, value in kwargs.items():\n"
            "        if isinstance(value, dict):\n"
            "            config_flags.DEFINE_config_dict(key, value)\n"
            "        else:\n            flags.DEFINE_float(key, value, '')\n    return kwargs\n",
        },
    ),
    Case(
        "ml_collections",
        "from ml_collections import config_flags\n"
        "config_flags.DEFINE_config_file('config', 'conf.py')\n",
        {"config.optim.lr": 0.5, "config.batch_size": 8},
        ["--config=conf.py", "--config.optim.lr=0.5", "--config.batch_size=8"],
        {
            "conf.py": "import ml_collections\ndef get_config():\n"
            "    config = ml_collections.ConfigDict()\n"
            "    config.optim = ml_collections.ConfigDict({'lr': 0.1})\n"
            "    config.batch_size = 16\n    return config\n"
        },
    ),
    Case(
        "ml_collections in folders, with values of a function in another file",
        "from ml_collections.config_flags import config_flags\n"
        "config_flags.DEFINE_config_file('config', None, 'The configuration.')\n",
        {"config.optim.lr": 0.5, "config.training.batch_size": 8, "config.dropout": 0.2},
        [
            "--config=configs/images/small.py",
            "--config.optim.lr=0.5",
            "--config.training.batch_size=8",
            "--config.dropout=0.2",
        ],
        {
            "configs/defaults.py": "import ml_collections\ndef defaults():\n"
            "    config = ml_collections.ConfigDict()\n    near, far = None\n"
            "    config.optim = optim = ml_collections.ConfigDict()\n    optim.lr = 0.1\n"
            "    return config\n",
            "configs/images/small.py": "from configs.defaults import defaults\ndef get_config():\n"
            "    config = defaults()\n    optim = config.optim\n    optim.lr = 0.01\n"
            "    config.training = {}\n    training = config.training\n"
            "    training.batch_size = 16\n    config.dropout = 0.1\n    return config\n",
        },
    ),
    Case(
        "tyro",
        "from dataclasses import dataclass, field\nimport tyro\n@dataclass\nclass Opt:\n"
        "    lr: float = 1e-3\n@dataclass\nclass Args:\n    opt: Opt = field(default_factory=Opt)\n"
        "    anneal_lr: bool = True\n    batch_size: int = 8\nargs = tyro.cli(Args)\n",
        {"opt.lr": 0.5, "anneal_lr": False, "batch_size": 4},
        ["--no-anneal_lr", "--opt.lr=0.5", "--batch_size=4"],
    ),
    Case(
        "a nested configuration that there is not by default",
        "from dataclasses import dataclass\nimport draccus\n@dataclass\nclass Optim:\n"
        "    clip: float\n    dropout: float = 0.1\n@dataclass\nclass Config:\n"
        "    lr: float = 0.1\n    optim: Optim | None = None\n@draccus.wrap()\n"
        "def main(cfg: Config): ...\n",
        {"lr": 0.5},
        ["--lr=0.5"],
    ),
    Case(
        "a parser that may be the subcommand of another program",
        "import argparse\ndef make(sub=None):\n    if sub is not None:\n"
        "        p = sub.add_parser('sft')\n    else:\n        p = argparse.ArgumentParser()\n"
        "    p.add_argument('--lr', type=float, default=0.1)\n    return p\nmake().parse_args()\n",
        {"lr": 0.5},
        ["--lr=0.5"],
    ),
    Case(
        "HfArgumentParser",
        "from dataclasses import dataclass, field\n"
        "from transformers import HfArgumentParser, TrainingArguments\n@dataclass\n"
        "class Model:\n    dropout: float = field(default=0.1, metadata={'help': 'x'})\n"
        "parser = HfArgumentParser((Model, TrainingArguments))\n",
        {"dropout": 0.2, "learning_rate": 1e-4, "weight_decay": 0.01, "warmup_ratio": 0.1},
        ["--output_dir", "/trial", "--dropout=0.2", "--learning_rate=0.0001"],
    ),
    Case(
        "an own TrainingArguments",
        "import transformers\nclass TrainingArguments(transformers.TrainingArguments):\n"
        "    label_smoothing: float = 0.1\n"
        "transformers.HfArgumentParser((TrainingArguments,))\n",
        {"label_smoothing": 0.2, "weight_decay": 0.01},
        ["--output_dir", "/trial", "--weight_decay=0.01"],
    ),
    Case(
        "draccus",
        "from dataclasses import dataclass\nimport draccus\n@dataclass\nclass Config:\n"
        "    lr: float = 0.1\n@draccus.wrap()\ndef main(cfg: Config): ...\n",
        {"lr": 0.5},
        ["--lr=0.5"],
    ),
    Case(
        "jsonargparse with commands",
        "from jsonargparse import CLI\ndef train(lr: float = 0.1, bias: bool = True): ...\n"
        "def test(rate: float = 0.1): ...\nCLI([test, train])\n",
        {"lr": 0.5, "bias": False},
        ["train", "--lr=0.5", "--bias=false"],
    ),
    Case(
        "LightningCLI",
        "from lightning.pytorch.cli import LightningCLI\nclass Net:\n"
        "    def __init__(self, learning_rate: float = 0.1): ...\nLightningCLI(Net)\n",
        {"model.learning_rate": 0.5},
        ["fit", "--trainer.logger=CSVLogger"],
    ),
    Case(
        "LightningCLI with a file that names the class of a part",
        "from lightning.pytorch.cli import LightningCLI\nclass Part:\n"
        "    def __init__(self, width: int = 8): ...\nclass Net:\n"
        "    def __init__(self, part: Part, rows: list, lr: float = 0.1): ...\n"
        "LightningCLI(Net, run=False)\n",
        {"model.lr": 0.5, "model.part.init_args.width": 32},
        ["--config", "conf.yaml", "--trainer.logger=CSVLogger"],
        files={
            "conf.yaml": "trainer: {max_epochs: 1}\nmodel:\n  lr: 0.01\n  rows: [1, 2]\n"
            "  part:\n    class_path: net.Part\n    init_args: {width: 16}\n"
        },
    ),
    Case(
        "typer",
        "from typing import Annotated\nimport typer\napp = typer.Typer()\n@app.command()\n"
        "def train(data: str, learning_rate: Annotated[float, typer.Option()] = 0.1,\n"
        "          cosine: bool = True): ...\n@app.command()\ndef predict(): ...\napp()\n",
        {"learning-rate": 0.5, "cosine": False},
        ["train", "DATA", "--no-cosine", "--learning-rate=0.5"],
    ),
    Case(
        "fire with a dict of functions",
        "import fire\ndef fit(lr=0.1, nesterov=False): ...\ndef show(): ...\n"
        "fire.Fire({'show': show, 'fit': fit})\n",
        {"lr": 0.5, "nesterov": True},
        ["fit", "--nesterov=True", "--lr=0.5"],
    ),
    Case(
        "OmegaConf",
        "from omegaconf import OmegaConf\n"
        "cfg = OmegaConf.merge(OmegaConf.load('base.yaml'), OmegaConf.from_cli())\n",
        {"optim.lr": 0.5},
        ["optim.lr=0.5"],
        {"base.yaml": "optim: {lr: 1e-3}\nepochs: 3\n"},
    ),
    Case(
        "yacs",
        "import argparse\nfrom yacs.config import CfgNode as CN\n_C = CN()\n_C.TRAIN = CN()\n"
        "_C.TRAIN.LR = 0.1\np = argparse.ArgumentParser()\n"
        "p.add_argument('--opts', nargs='+', default=None)\n"
        "_C.merge_from_list(p.parse_args().opts)\n",
        {"TRAIN.LR": 0.5},
        ["--opts", "TRAIN.LR", "0.5"],
    ),
    Case(
        "yacs in a function, with a file that replaces its defaults",
        "import argparse\nfrom yacs.config import CfgNode as CN\nfrom library import defaults\n"
        "def extend(cfg):\n    cfg.MODEL.NET = CN()\n    cfg.MODEL.NET.DROPOUT = 0.1\n"
        "p = argparse.ArgumentParser()\np.add_argument('--config-file', default='')\n"
        "p.add_argument('opts', nargs=argparse.REMAINDER)\nargs = p.parse_args()\n"
        "cfg = defaults()\nextend(cfg)\ncfg.merge_from_file(args.config_file)\n"
        "cfg.merge_from_list(args.opts)\n",
        {"MODEL.NET.DROPOUT": 0.2, "OPTIM.LR": 0.5},
        [
            *("--config-file", "configs/net.yaml"),
            *("MODEL.NET.DROPOUT", "0.2", "OPTIM.LR", "0.5"),
        ],
        {"configs/net.yaml": "OPTIM:\n  LR: 0.002\n  NAME: sgd\n"},
    ),
    Case(
        "subcommands that are classes",
        "from configargparse import ArgumentParser\nfrom train_command import Train\n"
        "from test_command import Test\np = ArgumentParser()\n"
        "commands = p.add_subparsers()\nfor command in (Test, Train):\n"
        "    command.add(commands)\n",
        {"lr": 0.5, "depth": 4, "width": 16},
        ["train", "--lr=0.5", "--depth=4", "--width=16"],
        {
            "command.py": "class Command:\n    WORD: str\n    @classmethod\n"
            "    def add(cls, commands):\n"
            "        cls.options(commands.add_parser(cls.WORD))\n",
            "train_command.py": "from command import Command\nclass Train(Command):\n"
            "    WORD = 'train'\n    @classmethod\n    def options(cls, parser):\n"
            "        add_training(parser)\n"
            "def add_training(parser):\n"
            "    parser.add_argument('--lr', type=float, default=0.1)\n"
            "    parser.add_argument('--depth', type=int, nargs='+', default=[3])\n"
            "    add_model(parser)\ndef add_model(parser):\n"
            "    parser.add_argument('--width', type=int, default=8)\n",
            "test_command.py": "from command import Command\nclass Test(Command):\n"
            "    WORD = 'test'\n    @classmethod\n    def options(cls, parser):\n"
            "        parser.add_argument('--dropout', type=float, default=0.1)\n",
        },
    ),
    Case(
        "functions that add options, in modules that are imported in another order",
        "import argparse\nimport models\nimport options\np = argparse.ArgumentParser()\n"
        "p.add_argument('--lr', type=float, default=0.1)\noptions.add_all(p)\n",
        {"lr": 0.5, "width": 16},
        ["--lr=0.5", "--width=16"],
        {
            "models.py": "def add_model(parser):\n"
            "    parser.add_argument('--width', type=int, default=8)\n",
            "options.py": "from models import add_model\ndef add_all(parser):\n"
            "    parser.add_argument('--name')\n    add_model(parser)\n",
        },
    ),
    Case(
        "a switch without which nothing is trained",
        "import argparse\np = argparse.ArgumentParser()\n"
        "p.add_argument('--do_train', action='store_true')\n"
        "p.add_argument('--train_eval', action='store_true')\n"
        "p.add_argument('--lr', type=float, default=0.1)\n",
        {"lr": 0.5},
        ["--do_train", "--lr=0.5"],
    ),
    Case(
        "getopt",
        "import getopt, sys\nlr = 0.1\nwidth = 8\n"
        "opts, _ = getopt.getopt(sys.argv[1:], 'l:w:h', ['help', 'lr=', 'width='])\n"
        "for o, a in opts:\n    if o in ('-l', '--lr'):\n        lr = float(a)\n"
        "    elif o in ('-w', '--width'):\n        width = int(a)\n",
        {"lr": 0.5, "width": 16},
        ["--lr=0.5", "--width=16"],
    ),
    Case(
        "the name of a file by its place, and values that replace its own",
        "import sys\nfrom omegaconf import OmegaConf\n"
        "yaml_path, changes = sys.argv[1], sys.argv[2:]\n"
        "cfg = OmegaConf.merge(OmegaConf.load(yaml_path), OmegaConf.from_cli(changes))\n",
        {"optimizer.lr": 0.5},
        ["yamls/small.yaml", "optimizer.lr=0.5"],
        {"yamls/small.yaml": "optimizer:\n  lr: 6.0e-4\n  name: adamw\n"},
    ),
    Case(
        "typer with options that are declared in another module",
        "import typer\nfrom options import Rate\napp = typer.Typer()\n@app.command()\n"
        "def train(rate: float = Rate, width: int = 8): ...\napp()\n",
        {"learning-rate": 0.5, "width": 16},
        ["--learning-rate=0.5", "--width=16"],
        {
            "options.py": "from typer import Option\n"
            "Rate = Option(0.1, '--learning-rate', help='The rate')\n"
        },
    ),
    Case(
        "hydra's groups in groups, and a choice that replaces another one",
        "import hydra\n@hydra.main(version_base=None, config_path='conf', config_name='config')\n"
        "def main(cfg): ...\n",
        {"optimizer.lr": 0.5, "model.layer.dropout": 0.2},
        ["hydra.run.dir=/trial", "optimizer.lr=0.5", "model.layer.dropout=0.2"],
        {
            "conf/config.yaml": "defaults: [{experiment: base}]\n",
            "conf/experiment/base.yaml": "# @package _global_\ndefaults:\n  - /task: small\n"
            "  - /model: net\n",
            "conf/task/small.yaml": "# @package _global_\ndefaults:\n  - large\n"
            "  - override /optimizer: sgd\n",
            "conf/task/large.yaml": "# @package _global_\ndefaults: [{/optimizer: adam}]\n",
            "conf/optimizer/adam.yaml": "epsilon: 0.1\n",
            "conf/optimizer/sgd.yaml": "lr: 0.1\n",
            "conf/model/net.yaml": "defaults: [{layer: s4}]\n",
            "conf/model/layer/s4.yaml": "dropout: 0.1\n",
        },
    ),
    Case(
        "nanoGPT's configurator",
        "out_dir = 'out'\nlearning_rate = 6e-4\nbias = False\n"
        "exec(open('configurator.py').read())\n",
        {"learning_rate": 0.5, "bias": True},
        ["--out_dir=/trial", "--bias=True", "--learning_rate=0.5"],
    ),
    Case(
        "sacred",
        "from sacred import Experiment\nex = Experiment()\n@ex.config\ndef config():\n"
        "    lr = 0.1\n@ex.automain\ndef main(lr): ...\n",
        {"lr": 0.5},
        ["with", "lr=0.5"],
    ),
    Case(
        "sacred with a file",
        "import os, yaml\nfrom sacred import Experiment\nex = Experiment()\n"
        "path = os.path.join(os.path.dirname(__file__), 'config', 'default.yaml')\n"
        "ex.add_config(yaml.safe_load(open(path)))\nex.run_commandline()\n",
        {"lr": 0.5, "gamma": 0.9},
        ["with", "lr=0.5", "gamma=0.9"],
        {"config/default.yaml": "lr: 0.01\ngamma: 0.99\nrunner: episode\n"},
    ),
    Case(
        "HyperPyYAML",
        "import sys\nfrom hyperpyyaml import load_hyperpyyaml\n"
        "load_hyperpyyaml(open(sys.argv[1]))\n",
        {"lr": 0.5, "batch_size": 16},
        ["hparams/small.yaml", "--data_folder=DATA_FOLDER", "--lr=0.5", "--batch_size=16"],
        {
            "hparams/small.yaml": "data_folder: !PLACEHOLDER\nlr: 0.1\nbatch_size: 8\n"
            "net: !new:torch.nn.Linear\n    in_features: 3\nschedule: !ref <lr>\n"
        },
    ),
    Case(
        "HParams in one option",
        "import argparse\nfrom hparams import create\np = argparse.ArgumentParser()\n"
        "p.add_argument('--hparams')\n",
        {"lr": 0.5, "batch_size": 16},
        ["--hparams=lr=0.5,batch_size=16"],
        {
            "hparams.py": "import tf\ndef create():\n    return tf.HParams(epochs=5, lr=0.1, "
            "batch_size=8, seed=1)\n"
        },
    ),
    Case(
        "Python files with dicts, as mmengine has them",
        "import argparse\nfrom mmengine.config import DictAction\np = argparse.ArgumentParser()\n"
        "p.add_argument('config', help='config file')\n"
        "p.add_argument('--cfg-options', nargs='+', action=DictAction)\n",
        {"optim.optimizer.lr": 0.5, "model.width": 32},
        ["conf/own.py", "--cfg-options", "optim.optimizer.lr=0.5", "model.width=32"],
        files={
            "README.md": "    python train.py conf/own.py\n",
            "conf/own.py": "_base_ = ['base.py']\n"
            "optim = dict(optimizer=dict(_delete_=True, type='SGD', lr=0.1))\n",
            "conf/base.py": "optim = dict(optimizer=dict(type='Adam', lr=1e-3, weight_decay=0.1))\n"
            "model = dict(width=16, stages=4, indices=[0, 1, 2, 3])\n",
        },
    ),
    Case(
        "docopt",
        '"""Train.\n\nOptions:\n  --lr=<x>  The rate [default: 0.1].\n"""\n'
        "from docopt import docopt\ndocopt(__doc__)\n",
        {"lr": 0.5},
        ["--lr=0.5"],
    ),
    Case(
        "sys.argv",
        "import sys\nalpha = float(sys.argv[1]) if len(sys.argv) > 1 else 0.5\n"
        "l1_ratio = float(sys.argv[2]) if len(sys.argv) > 2 else 0.5\n",
        {"alpha": 0.1, "l1_ratio": 0.2},
        ["0.1", "0.2"],
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_trial_passes_what_the_program_declares(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text in {case.script: case.source, **case.files}.items():
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(text)
    experiment = Experiment.from_yaml(experiment_for(Path(case.script)).text)
    assert case.values.keys() <= experiment.search.root.keys()
    values = {name: case.values.get(name) for name in experiment.search.root}
    arguments = expand(experiment.command or "", values, {"folder": "/trial"})
    assert arguments[:2] == ["python", case.script]
    assert arguments[2 : 2 + len(case.passed)] == case.passed


def test_environment_variables_are_set_for_the_program(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import os\nlr = float(os.environ.get('LR', '0.1'))\nbs = int(os.getenv('BATCH', 8))\n"
        "dropout = float(os.environ.get('DROPOUT') or 0.1)\n"
        "rank = int(os.environ['LOCAL_RANK'])\n"
    )
    experiment = Experiment.from_yaml(experiment_for(script).text)
    assert list(experiment.search.root) == ["LR", "BATCH", "DROPOUT"]
    values = {"LR": 0.5, "BATCH": 4, "DROPOUT": 0.2}
    assert expand(experiment.command or "", values, {})[:5] == [
        "env",
        "LR=0.5",
        "BATCH=4",
        "DROPOUT=0.2",
        "python",
    ]


def test_a_project_that_is_not_installed_is_found_by_its_script(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "graph_nets_here" / "graph_nets_here"
    folder.mkdir(parents=True)
    (folder.parent / "setup.py").write_text("from setuptools import setup\nsetup()\n")
    (folder / "__init__.py").write_text("")
    (folder / "rates.py").write_text("RATE = 0.1\n")
    (folder / "train.py").write_text(
        "import argparse\nfrom graph_nets_here.rates import RATE\np = argparse.ArgumentParser()\n"
        "p.add_argument('--lr', type=float, default=RATE)\nprint(p.parse_args().lr)\n"
    )
    monkeypatch.chdir(folder)
    experiment = Experiment.from_yaml(experiment_for(Path("train.py")).text)
    words = expand(experiment.command or "", {"lr": 0.5}, {})
    assert words[:2] == ["env", "PYTHONPATH=.."]
    done = subprocess.run(
        [word if word != "python" else sys.executable for word in words],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "0.5\n"


@pytest.mark.parametrize(
    ("name", "text", "printed"),
    [
        ("train.py", "LR = 0.1\nDROPOUT = 0.1\nSEED = 1\nprint(LR, DROPOUT)\n", "0.5 0.2"),
        ("run.sh", "LR=0.1\nDROPOUT=0.1\necho $LR $DROPOUT\n", "0.5 0.2"),
        ("run.sh", "LR=${1:-0.1}\nDROPOUT=$2\necho $LR $DROPOUT\n", "0.5 DROPOUT"),
        ("run.sh", "echo ${LR:-0.1} ${DROPOUT:-0.1}\n", "0.5 0.2"),
        (
            "run.sh",
            'LR=0.1\nDROPOUT=0.1\nwhile [ $# -gt 0 ]; do case "$1" in\n'
            '  --lr)\n    LR="$2"; shift 2;;\n'
            '  --dropout) DROPOUT="$2"; shift 2;;\nesac; done\necho $LR $DROPOUT\n',
            "0.5 0.2",
        ),
    ],
)
def test_the_command_that_is_written_reaches_the_program(
    name: str, text: str, printed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path(name).write_text(text)
    experiment = Experiment.from_yaml(experiment_for(Path(name)).text)
    given = {"LR": 0.5, "DROPOUT": 0.2}
    known = {key: given[key.upper()] for key in experiment.search.root}
    arguments = expand(experiment.command or "", known, {})
    arguments = [sys.executable if word == "python" else word for word in arguments]
    assert subprocess.check_output(arguments, text=True).strip() == printed


@pytest.mark.parametrize(
    ("source", "names"),
    [
        (
            "option_list <- list(make_option(c('-l', '--lr'), type = 'double', default = 0.01),\n"
            "  make_option('--hidden', type = 'integer', default = 64L),\n"
            "  make_option('--seed', type = 'integer', default = 1L))\n",
            ["lr", "hidden"],
        ),
        (
            "FLAGS <- flags(\n  flag_numeric('lr', 0.01, 'The rate'),\n"
            "  flag_integer('hidden', 64), flag_boolean('verbose', FALSE)\n)\n",
            ["lr", "hidden"],
        ),
        ("p <- add_argument(p, '--dropout', help = 'x', default = 0.1)\n", ["dropout"]),
        (
            "args <- commandArgs(trailingOnly = TRUE)\nlr <- as.numeric(args[1])\n"
            "eta <- as.numeric(args[[2]])\n",
            ["lr", "eta"],
        ),
        ("learning_rate <- 0.1\nseed <- 3\n", ["learning_rate"]),
        (
            "params <- list(\n  eta = 0.3, max_depth = 6,  # deep\n  nthread = 2\n)\n",
            ["params.eta", "params.max_depth"],
        ),
    ],
)
def test_programs_in_r(source: str, names: list[str], tmp_path: Path) -> None:
    script = tmp_path / "train.R"
    script.write_text(source + 'cat("val_loss:", loss, "\\n")\n')
    experiment = Experiment.from_yaml(experiment_for(script).text)
    assert list(experiment.search.root) == names
    assert (experiment.command or "").split()[0] in ("Rscript", "python")
    assert experiment.objectives[0].metric == "val_loss"


def test_a_shell_script_that_passes_its_options_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(
        "import argparse\np = argparse.ArgumentParser()\n"
        "p.add_argument('--lr', type=float, default=0.1)\nprint(p.parse_args().lr)\n"
    )
    Path("run.sh").write_text('python -u train.py "$@"\n')
    experiment = Experiment.from_yaml(experiment_for(Path("run.sh")).text)
    assert expand(experiment.command or "", {"lr": 0.5}, {}) == ["bash", "run.sh", "--lr=0.5"]
    Path("run.sh").write_text("python train.py --lr 0.3\n")
    assert (
        "The script starts train.py: give that file to init" in experiment_for(Path("run.sh")).text
    )


def test_the_fields_of_a_struct_in_julia(tmp_path: Path) -> None:
    script = tmp_path / "train.jl"
    script.write_text(
        "Base.@kwdef mutable struct Args\n    lr::Float64 = 3e-4  # rate\n"
        "    batchsize::Int = 128\n"
        '    seed::Int = 1\nend\nprintln("test_acc = $(acc)")\n'
    )
    experiment = Experiment.from_yaml(experiment_for(script).text)
    assert list(experiment.search.root) == ["lr", "batchsize"]
    assert experiment.objectives[0].metric == "test_acc"


def test_a_named_tuple_in_julia(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = "settings = (;\n    eta = 3e-4,  # rate\n    batchsize = 128,\n)\n"
    Path("train.jl").write_text(text)
    experiment = Experiment.from_yaml(experiment_for(Path("train.jl")).text)
    assert list(experiment.search.root) == ["settings.eta", "settings.batchsize"]
    changed = with_constants(text, ".jl", {"settings.eta": 0.5, "settings.batchsize": 64})
    assert changed == "settings = (;\n    eta = 0.5,  # rate\n    batchsize = 64,\n)\n"


def test_a_readme_says_which_configuration_a_program_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text in {
        "README.md": "Run `python bin/train.py output/mlp.toml`.\n",
        "bin/train.py": "import argparse\n"
        "p = argparse.ArgumentParser()\np.add_argument('config')\n",
        "output/mlp.toml": "[training]\nlr = 0.1\nweight_decay = 0.01\n",
    }.items():
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(text)
    experiment = Experiment.from_yaml(experiment_for(Path("bin/train.py")).text)
    assert list(experiment.search.root) == ["training.lr", "training.weight_decay"]
    assert (experiment.command or "").endswith("-- python bin/train.py output/mlp.toml")


def test_a_file_has_the_learning_rate_that_no_option_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("data.yaml").write_text("names: [a, b]\n")
    Path("hyp.yaml").write_text("lr0: 0.01\nmomentum: 0.937\n")
    Path("train.py").write_text(
        "import argparse\nfrom pathlib import Path\nROOT = Path(__file__).parent\n"
        "p = argparse.ArgumentParser()\np.add_argument('--data', default=ROOT / 'data.yaml')\n"
        "p.add_argument('--hyp', default=ROOT / 'hyp.yaml')\n"
        "p.add_argument('--batch-size', type=int, default=16)\n"
        "p.add_argument('--label-smoothing', type=float, default=0.0)\n"
    )
    experiment = Experiment.from_yaml(experiment_for(Path("train.py")).text)
    assert set(experiment.search.root) == {"batch-size", "label-smoothing", "lr0", "momentum"}


def test_the_parameters_of_a_notebook(tmp_path: Path) -> None:
    cells = [
        {"cell_type": "code", "metadata": {}, "source": ["!pip install torch\n", "depth = 3"]},
        {"cell_type": "code", "metadata": {"tags": ["parameters"]}, "source": ["lr = 0.1\n"]},
        {"cell_type": "code", "metadata": {}, "source": ["print(f'val_loss={lr:.3f}')"]},
    ]
    notebook = tmp_path / "train.ipynb"
    notebook.write_text(json.dumps({"cells": cells}))
    experiment = Experiment.from_yaml(experiment_for(notebook).text)
    assert expand(experiment.command or "", {"lr": 0.5}, {"folder": "/trial"}) == [
        *("papermill", "--log-output", str(notebook), "/trial/train.ipynb", "-p", "lr", "0.5")
    ]
    assert experiment.objectives[0].metric == "val_loss"


def test_a_compiled_program_is_asked_for_its_help(tmp_path: Path) -> None:
    program = tmp_path / "trainer"
    program.write_bytes(b"#!/bin/sh\n# \xff\necho '  --lr FLOAT  the rate (default: 0.1)'\n")
    program.chmod(0o755)
    assert list(Experiment.from_yaml(experiment_for(program).text).search.root) == ["lr"]


def test_another_language_is_refused_with_what_to_write(tmp_path: Path) -> None:
    program = tmp_path / "train.rs"
    program.write_text("fn main() { return 0; }\n")
    with pytest.raises(DataError, match="programs in this language are not read") as caught:
        experiment_for(program)
    assert "command: ./program" in str(caught.value)


@pytest.mark.parametrize(
    "option",
    [
        "'-c', '--config', default=None",
        "'--fname', dest='config', default='config.json'",
        "'--spec', dest='config', help='path of the configuration file'",
        "'--fname', dest='config', default='no.yaml', help='name of config file to load'",
    ],
)
def test_a_configuration_file_without_overrides_is_copied_for_each_trial(
    option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("config.json").write_text('{"optimizer": {"lr": 0.1, "weight_decay": 0}, "n_gpu": 1}')
    Path("train.py").write_text(
        "import argparse, json\np = argparse.ArgumentParser()\n"
        f"p.add_argument({option})\n"
        "print(json.load(open(p.parse_args().config))['optimizer'])\n"
    )
    experiment = Experiment.from_yaml(experiment_for(Path("train.py")).text)
    values = {"optimizer.lr": 0.5, "optimizer.weight_decay": 0.01}
    assert list(experiment.search.root) == list(values)
    arguments = expand(experiment.command or "", values, {})
    output = subprocess.check_output([sys.executable, *arguments[1:]], text=True)
    assert output == "{'lr': 0.5, 'weight_decay': 0.01}\n"


def test_the_configuration_that_a_readme_passes_is_copied_for_each_trial(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("README.md").write_text("Training: `python train.py --config demo.train.config`\n")
    Path("demo.train.config").write_text("### Training ###\nhidden_dim=20\nlearning_rate=0.1\n")
    Path("train.py").write_text(
        "import argparse\np = argparse.ArgumentParser()\n"
        "p.add_argument('--config', default='None')\n"
        "print(open(p.parse_args().config).read())\n"
    )
    experiment = Experiment.from_yaml(experiment_for(Path("train.py")).text)
    values = {"hidden_dim": 40, "learning_rate": 0.5}
    assert list(experiment.search.root) == list(values)
    arguments = expand(experiment.command or "", values, {})
    output = subprocess.check_output([sys.executable, *arguments[1:]], text=True)
    assert output == "### Training ###\nhidden_dim=40\nlearning_rate=0.5\n\n"


@pytest.mark.parametrize("name", ["save", "model-path", "report", "results", "dump"])
def test_a_file_that_a_program_writes_is_not_its_configuration(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("compose.yml").write_text("services: {web: {lr: 0.2, momentum: 0.9}}")
    Path("train.py").write_text(
        "import argparse\np = argparse.ArgumentParser()\n"
        "p.add_argument('--lr', type=float, default=0.1)\n"
        f"p.add_argument('--{name}', default='model.json')\n"
        "a = p.parse_args()\nprint('val_loss', a.lr)\n"
    )
    text = experiment_for(Path("train.py")).text
    assert "compose" not in text
    assert list(Experiment.from_yaml(text).search.root) == ["lr"]


@pytest.mark.parametrize(
    ("option", "domain"),
    [
        ("'--lr-base-size', type=int, default=256", None),
        ("'--l1_size', type=int, default=32", [16, 32, 64]),
        ("'--max-depth', type=int, default=6", [3, 6, 12]),
        ("'--criterion', choices=['gini', 'entropy']", ["gini", "entropy"]),
        ("'--num-classes', type=int, default=10", None),
        ("'--local-rank', type=int, default=2", None),
        ("'--smoothing', type=bool, default=True", None),
        ("'--lr', default=0.1", None),
        ("'--batch-size', type=int, default=1", [1, 2]),
        ("'--nlayers', type=int, default=3", [1, 3, 6]),
        ("'--nEpochs', type=int, default=2", None),
        ("'--hidden1', type=int, default=32", [16, 32, 64]),
        ("'--ppo-epoch', type=int, default=4", [2, 4, 8]),
        ("'--netwidth', type=int, default=64", [32, 64, 128]),
        ("'--imagesize', type=int, default=64", None),
        ("'--N_rand', type=int, default=64, help='batch size (rays)'", [32, 64, 128]),
        ("'--grad-accum-steps', type=int, default=4", [2, 4, 8]),
    ],
)
def test_types_and_whole_words_decide_what_is_searched(
    option: str, domain: list[Any] | None, tmp_path: Path
) -> None:
    script = tmp_path / "train.py"
    script.write_text(f"import argparse\np = argparse.ArgumentParser()\np.add_argument({option})\n")
    domains = list(Experiment.from_yaml(experiment_for(script).text).search.root.values())
    assert [searched.values() for searched in domains] == ([] if domain is None else [domain])


@pytest.mark.parametrize(
    ("option", "low", "high"),
    [
        ("'--cutmix', type=float, default=1.0", 0.1, 1.0),  # a share, which is all of it
        ("'--beta', type=float, default=4.0", 1.0, 16.0),  # a weight, which is no share
        ("'--warmup_epochs', type=float, default=10", 5.0, 20.0),
        ("'--lr_mult', type=float, default=0.1", 0.01, 1.0),
    ],
)
def test_ranges_are_around_the_default(
    option: str, low: float, high: float, tmp_path: Path
) -> None:
    script = tmp_path / "train.py"
    script.write_text(f"import argparse\np = argparse.ArgumentParser()\np.add_argument({option})\n")
    [domain] = Experiment.from_yaml(experiment_for(script).text).search.root.values()
    assert (domain.model_dump()["low"], domain.model_dump()["high"]) == (low, high)


def test_only_the_defaults_of_a_file_with_presets_are_searched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("configs.yaml").write_text(
        "defaults: {lr: 0.1, net: {width: 8}}\ndebug: {lr: 0.5}\nlarge: {net: {width: 512}}\n"
    )
    Path("train.py").write_text(
        "import sys, yaml\nconfigs = yaml.safe_load(open('configs.yaml'))\n"
        "config = configs['defaults'] | configs[sys.argv[1]]\n"
    )
    experiment = Experiment.from_yaml(experiment_for(Path("train.py")).text)
    assert list(experiment.search.root) == ["defaults.lr", "defaults.net.width"]


def test_dropouts_of_one_word_come_before_options_that_are_seldom_searched(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import argparse\np = argparse.ArgumentParser()\n"
        "for n in range(9):\n    p.add_argument(f'--noise{n}', type=float, default=0.2)\n"
        "for name in ('dropouth', 'wdrop'):\n"
        "    p.add_argument(f'--{name}', type=float, default=0.3)\n"
    )
    searched = Experiment.from_yaml(experiment_for(script).text).search.root
    assert {"dropouth", "wdrop"} <= searched.keys()


def test_a_flag_that_not_all_values_go_with_is_left_alone(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import argparse\np = argparse.ArgumentParser()\n"
        "p.add_argument('--nhid', type=int, default=8)\n"
        "p.add_argument('--emsize', type=int, default=8)\n"
        "p.add_argument('--tied', action='store_true')\n"
        "p.add_argument('--nesterov', action='store_true')\n"
        "if wrong: raise ValueError('with tied, nhid must be equal to emsize')\n"
    )
    experiment = Experiment.from_yaml(experiment_for(script).text)
    assert list(experiment.search.root) == ["nhid", "emsize", "nesterov"]


def test_a_trainer_of_hugging_face_is_told_to_evaluate(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "from transformers import HfArgumentParser, Trainer, TrainingArguments\n"
        "args = HfArgumentParser((TrainingArguments,)).parse_args_into_dataclasses()[0]\n"
        "trainer = Trainer(m, args, eval_dataset=data)\nif args.do_train:\n    trainer.train()\n"
    )
    experiment = Experiment.from_yaml(experiment_for(script).text)
    assert "--do_train --eval_strategy=epoch --output_dir {folder}" in (experiment.command or "")
    assert experiment.objectives[0].metric == "eval_loss"


def test_at_most_ten_are_searched_and_the_usual_ones_come_first(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    lines = [f"p.add_argument('--x{n}-layers', type=int, default=4)" for n in range(12)]
    lines += ["p.add_argument('--lr', type=float, default=0.1)"]
    script.write_text("import argparse\np = argparse.ArgumentParser()\n" + "\n".join(lines))
    text = experiment_for(script).text
    searched = list(Experiment.from_yaml(text).search.root)
    assert len(searched) == 10
    assert searched[-1] == "lr"
    assert "# x11-layers: 4" in text


def test_a_missing_library_is_named_if_the_help_is_needed(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("import surely_missing_parser\nsurely_missing_parser.parse_args()\n")
    first = experiment_for(script)
    assert "it needs the library surely_missing_parser" in first.notes[0]
    assert "No option was found in the script: add what it takes" in first.text


def test_a_function_that_only_shares_its_name_with_that_of_tyro_reads_no_options(
    tmp_path: Path,
) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import tyro\nfrom dataclasses import dataclass\nfrom launcher import cli\n"
        "@dataclass\nclass Config:\n    lr: float = 0.1\n    width: int = 64\n"
        "def main(rank: int, world_size: int, cfg: Config): ...\n"
        "configs = {'small': ('a small one', Config(width=32)), 'big': ('', Config())}\n"
        "cfg = tyro.extras.overridable_config_cli(configs)\ncli(main, cfg)\n"
    )
    experiment = Experiment.from_yaml(experiment_for(script).text)
    assert experiment.command == f"python {script} small {{args}}"
    width = experiment.search.root["width"]
    assert width.values() == [16, 32, 64]


def test_a_value_that_the_program_fills_in_is_not_asked_for(tmp_path: Path) -> None:
    (tmp_path / "cfgs").mkdir()
    (tmp_path / "cfgs" / "config.yaml").write_text(
        "lr: 0.1\nbatch_size: 64\nagent:\n  obs_shape: ???\n  tau: 0.01\nroot_of_data: ???\n"
    )
    script = tmp_path / "train.py"
    script.write_text(
        "import hydra\n@hydra.main(config_path='cfgs', config_name='config')\n"
        "def main(cfg):\n    cfg.agent.obs_shape = env.shape\n"
    )
    first = experiment_for(script)
    assert first.values_to_write == ("ROOT_OF_DATA",)
    assert "obs_shape" not in (Experiment.from_yaml(first.text).command or "")


def test_an_ini_file_is_copied_for_each_trial(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("net.cfg").write_text("[data]\nfolder=/data # here\n[optimization]\nlr = 0.1\nclip: yes\n")
    Path("train.py").write_text(
        "import configparser\nfrom optparse import OptionParser\np = OptionParser()\n"
        "p.add_option('--cfg')\nread = configparser.ConfigParser()\n"
        "read.read(p.parse_args()[0].cfg)\nprint(read.getfloat('optimization', 'lr'))\n"
    )
    experiment = Experiment.from_yaml(experiment_for(Path("train.py")).text)
    assert experiment.search.root.keys() == {"optimization.lr", "optimization.clip"}
    values = {"optimization.lr": 0.5, "optimization.clip": True}
    arguments = expand(experiment.command or "", values, {})
    output = subprocess.check_output([sys.executable, *arguments[1:]], text=True)
    assert float(output) == 0.5


def test_constants_of_the_function_that_a_script_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(
        "def train():\n    lr_actor = 0.1\n    steps = 3\n    steps = 4\n    print(lr_actor)\n"
        "def other():\n    lr_other = 0.1\nif __name__ == '__main__':\n    train()\n"
    )
    experiment = Experiment.from_yaml(experiment_for(Path("train.py")).text)
    assert list(experiment.search.root) == ["lr_actor"]
    arguments = expand(experiment.command or "", {"lr_actor": 0.5}, {})
    assert subprocess.check_output([sys.executable, *arguments[1:]], text=True) == "0.5\n"


@pytest.mark.parametrize(
    ("declared", "names"),
    [
        ("--lr=0.1 --eta=0.0", ["lr"]),
        ("--lr=0.1 --optimizer=adamw --momentum=0.9", ["lr"]),
        ("--lr=0.1 --optimizer=sgd --momentum=0.9", ["lr", "momentum"]),
        ("--lr=0.1 --in_channels=64 --channels=64", ["lr", "channels"]),
        ("--lr=0.1 --a.net.dim=8 --a.unet.dim=8 --a.vit.dim=8", ["lr"]),
        ("--lr=0.1 --sampling.batch_size=8 --train.batch_size=8", ["lr", "train.batch_size"]),
        ("--gamma=12.0 --sample_rate=16000", ["gamma"]),
        (
            "--lr=0.1 --delta=1e-5 --max-per-sample-grad_norm=1.0",
            ["lr", "max-per-sample-grad_norm"],
        ),
        ("--lr=0.1 --distill-type=none --distill-alpha=0.5", ["lr"]),
        ("--lr=0.1 --n_heads=4 --n_kv_heads=4", ["lr", "n_heads"]),
        ("--lr=0.1 --min-batch-size=64 --eval-batch-size=64", ["lr", "min-batch-size"]),
        ("--gamma=0.9 --clip_ratio=0.1 --epochs=3", ["gamma", "clip_ratio", "epochs"]),
        ("--gamma=0.9 --clip_ratio=0.1 --epochs=300", ["gamma", "clip_ratio"]),
        (
            "--lgbm__lr=0.1 --lgbm__num_leaves=8 --xgb__eta=0.1 --rf__max_depth=8",
            ["lgbm__lr", "lgbm__num_leaves"],
        ),
    ],
)
def test_what_has_no_effect_is_not_searched(
    declared: str, names: list[str], tmp_path: Path
) -> None:
    script = tmp_path / "train.py"
    lines = ["import argparse", "p = argparse.ArgumentParser()"]
    for word in declared.split():
        name, _, value = word.partition("=")
        default = value if value.isalpha() else json.loads(value)
        lines.append(
            f"p.add_argument({name!r}, type={type(default).__name__}, default={default!r})"
        )
    script.write_text("\n".join(lines))
    assert list(Experiment.from_yaml(experiment_for(script).text).search.root) == names


def test_values_in_calls_and_signatures_of_code_that_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(
        "class SGD:\n    def __init__(self, rate, momentum): self.all = rate, momentum\n"
        "def train(net, batch_size=8, dropout=0.1, width=4):\n"
        "    opt = SGD(0.1, momentum=0.9)\n    print(opt.all, batch_size, dropout, width)\n"
        "def unused(hidden=64): Adam(lr=0.1)\n"
        "test_loader = dict(batch_size=8)\ntrain(None, width=16)\n"
    )
    experiment = Experiment.from_yaml(experiment_for(Path("train.py")).text)
    values = {
        "opt.lr": 0.5,
        "opt.momentum": 0.8,
        "train.batch_size": 32,
        "train.dropout": 0.3,
        "train.width": 64,  # that of the call, which replaces the default
    }
    assert experiment.search.root.keys() == values.keys()
    arguments = expand(experiment.command or "", values, {})
    output = subprocess.check_output([sys.executable, *arguments[1:]], text=True)
    assert output == "(0.5, 0.8) 32 0.3 64\n"


def test_a_program_takes_some_options_and_has_its_rate_in_another_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("config.py").write_text("BATCH_SIZE = 8\nSEED = 1\n")
    Path("train.py").write_text(
        "import argparse, config\np = argparse.ArgumentParser()\nadd = p.add_argument\n"
        "add('--hidden', type=int, default=64)\na = p.parse_args()\n"
        "def Adam(net, lr): return lr\n"
        "opt = Adam(None, lr=0.001)\nprint(a.hidden, config.BATCH_SIZE, opt)\n"
    )
    experiment = Experiment.from_yaml(experiment_for(Path("train.py")).text)
    values = {"hidden": 32, "BATCH_SIZE": 4, "opt.lr": 0.5}
    assert experiment.search.root.keys() == values.keys()
    assert experiment.workdir is not None, "the file of the imported module is replaced there"
    arguments = expand(experiment.command or "", values, {})
    monkeypatch.setenv("WORKBENCH_FOLDER", str(tmp_path))
    assert subprocess.check_output([sys.executable, *arguments[1:]], text=True) == "32 4 0.5\n", (
        arguments
    )


@pytest.mark.parametrize(
    ("data", "workdir"), [("data/a.npy", "{link: [data]}"), ("nets/a.npy", "fresh")]
)
def test_data_is_linked_if_trials_have_folders_of_their_own(
    data: str, workdir: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for path, content in (
        (data, "0"),
        ("nets/__init__.py", ""),
        ("nets/small.json", '{"lr": 0.1, "batch_size": 8}'),
        (
            "train.py",
            "import json, nets, numpy\nc = json.load(open('nets/small.json'))\n"
            f"rows = numpy.load('{data}')\nfit(rows, c['lr'], c['batch_size'])\n"
            "print(f'val_loss {loss}')\n",
        ),
    ):
        Path(path).parent.mkdir(exist_ok=True)
        Path(path).write_text(content)
    text = experiment_for(Path("train.py")).text
    assert f"\nworkdir: {workdir}\n" in text
    assert Experiment.from_yaml(text).links is not None


@pytest.mark.parametrize(
    ("source", "file"),
    [
        ("importlib.import_module('config.conf_%s' % args.data).params", "config/conf_b.py"),
        ("name = f'config/{args.data}.yaml'\nopen(name)", "config/b.yaml"),
        ("open(os.path.join('config', args.data + '.json'))", "config/b.json"),
    ],
)
def test_the_name_of_a_file_that_a_program_makes_of_an_option(
    source: str, file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("config").mkdir()
    values = {"lr": 0.1, "batch_size": 8}
    written = f"params = {values}" if file.endswith(".py") else json.dumps(values)
    for name in (file, file.replace("b.", "a."), file.replace("b.", "c.")):
        Path(name).write_text(written)
    Path("README.md").write_text("    python train.py --data b --seed 3\n")
    Path("train.py").write_text(
        "import argparse, importlib, os\np = argparse.ArgumentParser()\n"
        f"p.add_argument('--data', required=True)\nargs = p.parse_args()\n{source}\n"
    )
    first = experiment_for(Path("train.py"))
    experiment = Experiment.from_yaml(first.text)
    assert [name.rpartition(".")[2] for name in experiment.search.root] == ["lr", "batch_size"]
    assert f"{file} " in (experiment.command or "")
    assert (experiment.command or "").endswith("python train.py --data b")
    assert first.values_to_write == ()

    command = "train.py --data=c"
    chosen = Experiment.from_yaml(experiment_for(Path(command)).text).command or ""
    assert f"{file.replace('b.', 'c.')} " in chosen
    assert chosen.endswith(f"python {command}"), "the user has chosen already"


@pytest.mark.parametrize(
    "source",
    [
        "os.path.join(here, 'config', 'net.json')",
        "os.path.join('config', 'net.json')",
        "Path(here) / 'config' / 'net.json'",
        "Path('config', 'net.json')",
        "Path('config') / 'net.json'",
        "Path(here).joinpath('config', 'net.json')",
        "folder / 'net.json'",
        "os.path.join(folder, 'net.json')",
    ],
)
def test_the_file_of_a_joined_path_is_not_another_one_of_the_same_name(
    source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("config").mkdir()
    Path("config/net.json").write_text('{"lr": 0.1, "batch_size": 8}')
    Path("net.json").write_text('{"lr": 0.7, "batch_size": 16}')
    Path("train.py").write_text(
        "import json, os\nfrom pathlib import Path\nhere = os.path.dirname(__file__)\n"
        f"folder = Path(here) / 'config'\nc = json.load(open({source}))\n"
    )
    experiment = Experiment.from_yaml(experiment_for(Path("train.py")).text)
    assert "constants config/net.json " in (experiment.command or "")


def test_a_readme_passes_a_file_by_an_option_of_a_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("conf").mkdir()
    Path("conf/net.yaml").write_text("lr: 0.1\nwarmup:\n  epoch: 5\n---\nbatch: 8\n")
    Path("README.md").write_text("$ python train.py -c conf/net.yaml --save net.pth\n")
    Path("train.py").write_text(
        "from theconf import ConfigArgumentParser\np = ConfigArgumentParser()\n"
        "p.add_argument('--save', default='')\np.parse_args()\n"
    )
    experiment = Experiment.from_yaml(experiment_for(Path("train.py")).text)
    assert list(experiment.search.root) == ["lr", "warmup.epoch", "batch"]
    assert (experiment.command or "").endswith("-- python train.py -c conf/net.yaml")


def test_a_few_options_are_joined_by_usual_values_of_the_source(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import argparse\np = argparse.ArgumentParser()\n"
        "p.add_argument('--learning-rate', type=float, default=0.1)\na = p.parse_args()\n"
        "def train(learning_rate=0.2, weight_decay=1e-8, momentum=0.9, scale=0.5):\n"
        "    net = Net(n_channels=3)\n    get(x, lr_flip=0.5)\n    plt.hist2d(x, bins=35)\n"
        "train(a.learning_rate)\n"
    )
    experiment = Experiment.from_yaml(experiment_for(script).text)
    names = ["learning-rate", "train.weight_decay", "train.momentum"]
    assert list(experiment.search.root) == names


def test_plain_constants_with_other_names_and_a_class_of_settings(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "learning_rate = 0.1\nT_horizon = 20\nSEED = 1\nPRINT_EVERY = 20\n"
        "class Config:\n    def __init__(self, batch_size=64):\n"
        "        self.batch_size = batch_size\nconf = Config()\n"
    )
    searched = Experiment.from_yaml(experiment_for(script).text).search.root
    assert searched.keys() == {"learning_rate", "T_horizon", "Config.batch_size"}


def test_several_constants_at_the_top_come_without_the_values_in_code(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "batch_size = 8\nhidden = 64\ndropout = 0.1\n"
        "def run():\n    Adam(net, lr=0.1)\n    Net(num_layers=4, embed_dim=8)\nrun()\n"
    )
    searched = Experiment.from_yaml(experiment_for(script).text).search.root
    assert searched.keys() == {"batch_size", "hidden", "dropout", "Adam.lr"}


def test_numbers_with_other_names_are_searched_if_few_are_usual(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import argparse\np = argparse.ArgumentParser()\n"
        "p.add_argument('--lr', type=float, default=0.1)\n"
        "p.add_argument('--hidden', type=int, default=8)\n"
        "p.add_argument('--n_critic', type=int, default=5)\n"
        "p.add_argument('--zeal', type=float, default=2.0)\n"
        "p.add_argument('--n_epochs', type=int, default=5)\n"
        "p.add_argument('--num_workers', type=int, default=5)\n"
        "p.add_argument('--resnet_depth', type=int, default=50)\n"
    )
    searched = Experiment.from_yaml(experiment_for(script).text).search.root
    assert list(searched) == ["lr", "hidden", "n_critic", "zeal"]
    assert searched["n_critic"].values() == [2, 5, 10]


def test_the_choice_that_trains_is_passed_by_its_place(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import argparse\np = argparse.ArgumentParser()\n"
        "p.add_argument('mode', choices=['predict', 'train'])\n"
        "p.add_argument('--lr', type=float, default=0.1)\n"
        "p.add_argument('--seed', type=int, default=0)\n"
    )
    first = experiment_for(script)
    assert first.values_to_write == ()
    command = Experiment.from_yaml(first.text).command
    assert command == f"python {script} train --seed {{seed}} {{args}}"


def test_a_program_that_evaluates_its_arguments_gets_a_path_in_quotes(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import ast, sys\nclass CfgNode:\n    def merge_from_args(self, args):\n"
        "        for arg in args:\n            name, _, value = arg[2:].partition('=')\n"
        "            setattr(self, name, ast.literal_eval(value))\n"
        "config = CfgNode()\nconfig.out_dir = './out'\nconfig.lr = 0.1\n"
        "config.merge_from_args(sys.argv[1:])\nprint(config.out_dir, config.lr)\n"
    )
    command = Experiment.from_yaml(experiment_for(script).text).command or ""
    arguments = expand(command, {"lr": 0.5}, {"folder": "/trials/0"})
    output = subprocess.check_output([sys.executable, *arguments[1:]], text=True)
    assert output == "/trials/0 0.5\n"


@pytest.mark.parametrize(
    "loop",
    [
        "for name in ('show', 'train'):",
        "for name, function in {'show': show, 'train': train}.items():",
        "for name, text in [('show', 'a'), ('train', 'b')]:",
    ],
)
def test_subcommands_of_a_loop(loop: str, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import argparse\np = argparse.ArgumentParser()\ncommands = p.add_subparsers()\n"
        f"{loop}\n    own = commands.add_parser(name)\n"
        "    own.add_argument('--lr', type=float, default=0.1)\n"
    )
    command = Experiment.from_yaml(experiment_for(script).text).command
    assert command == f"python {script} train {{args}}"


def test_an_argument_that_may_be_left_out_is_not_asked_for(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import json, sys\nconfig = {'lr': 0.1}\nif len(sys.argv) > 1:\n"
        "    config = json.load(open(sys.argv[1]))\n"
    )
    assert experiment_for(script).values_to_write == ()


def test_an_experiment_of_the_workbench_is_no_configuration_of_a_script(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(
        "import argparse\np = argparse.ArgumentParser()\np.add_argument('--config')\n"
    )
    Path("first.yaml").write_text(
        "command: python train.py {args}\nsearch: {lr: {low: 0.1, high: 1}}\n"
        "training: {momentum: 0.9, lr: 0.1}\nbudget: {trials: 20}\n"
    )
    assert "first.yaml" not in experiment_for(Path("train.py")).text


def test_a_flag_that_must_fit_the_model_is_left_alone(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import argparse\np = argparse.ArgumentParser()\n"
        "p.add_argument('--lr', type=float, default=0.1)\n"
        "p.add_argument('--double_weight', action='store_true')\n"
        "p.add_argument('--nesterov', action='store_true')\n"
        "if wrong: raise ValueError('RotatE should use --double_weight, and nesterov is fine')\n"
    )
    assert "double_weight" not in Experiment.from_yaml(experiment_for(script).text).search.root


PIECES = [
    "import argparse",
    "p = argparse.ArgumentParser()",
    "p.add_argument('--lr', default=x, type=y)",
    "p.add_argument(*names, **kwargs)",
    "for a, b in zip(c, d): p.add_argument(a, default=b)",
    "near, far = None",
    "a = b = c = f(d)[0](1)",
    "config = {**base, 'lr': 1e-3, None: 2}",
    "name = name % name",
    "print(f'{a:{b}} {c!r:>{10}}')",
    "def f(*, lr=0.1, **k): return f(**k)",
    "def g(a=1, /, b=2, *c, d='val'): p.add_argument('--x', default=b)",
    "class A(A):\n    lr: A = A()",
    "print('{:f} {0} {x.y[0]}'.format(*a))",
    "open('conf/%s.yaml' % name)",
    "result['%s_%s' % (a, b)] = c",
    "import yaml; yaml.safe_load(open('conf.yaml'))",
    "from . import other",
    "lr = 1 / 0",
    "x = 10 ** 10 ** 10",
    "wandb.init(config=config)\nwandb.config",
    "import sys; lr = float(sys.argv[1])",
    "@hydra.main(config_path='conf', config_name=name)\ndef main(cfg): pass",
    "fire.Fire()",
    "lambda: (yield)",
    "match a:\n    case {'x': 1, **rest}: pass",
]


@examples(60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(pieces=st.lists(st.sampled_from(PIECES), max_size=8))
def test_any_program_gives_an_experiment_or_a_sentence(tmp_path: Path, pieces: list[str]) -> None:
    script = tmp_path / "train.py"
    script.write_text("\n".join(pieces))
    with contextlib.suppress(DataError):  # a sentence, whatever the program is
        Experiment.from_yaml(experiment_for(script).text)


def test_what_an_imported_file_does_as_a_program_is_no_part_of_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text("from data import load\nlr = 0.1\nprint(f'loss {load(lr):.3f}')\n")
    Path("data.py").write_text(
        "import argparse\ndef load(rate): return rate\nif __name__ == '__main__':\n"
        "    p = argparse.ArgumentParser()\n    p.add_argument('stage', choices=['a', 'b'])\n"
        "    p.add_argument('--width', type=int, default=8)\n    print(f'val loss {1:.3f}')\n"
    )
    experiment = Experiment.from_yaml(experiment_for(Path("train.py")).text)
    assert list(experiment.search.root) == ["lr"]
    assert experiment.objectives[0].metric == "loss"


def test_the_mode_that_trains_is_chosen_with_its_values(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(
        "import sacred\nex = sacred.Experiment()\n@ex.config\ndef cfg():\n    mode = 'test'\n"
        "    if mode == 'train':\n        batch_size = 8\n        optim = {'lr': 0.1}\n"
        "    elif mode == 'test':\n        batch_size = 1\n        runs = 5\n"
        "@ex.automain\ndef main(batch_size, optim): print(f'loss {optim:.3f}')\n"
    )
    experiment = Experiment.from_yaml(experiment_for(Path("train.py")).text)
    words = experiment.command.split()
    assert "mode=train" in words
    assert set(experiment.search.root) == {"batch_size", "optim.lr"}


def test_values_of_a_configuration_that_no_code_reads_are_not_searched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(
        "import sys\nfrom yacs.config import CfgNode as CN\ncfg = CN()\ncfg.SOLVER = CN()\n"
        "cfg.SOLVER.LR = 0.1\ncfg.SOLVER.MARGIN = 0.3\ncfg.SOLVER.RANGE_ALPHA = 0.2\n"
        "cfg.merge_from_list(sys.argv[1:])\nfit(cfg.SOLVER.LR, cfg.SOLVER.MARGIN)\n"
    )
    experiment = Experiment.from_yaml(experiment_for(Path("train.py")).text)
    assert set(experiment.search.root) == {"SOLVER.LR", "SOLVER.MARGIN"}


def test_a_notebook_without_a_cell_for_parameters_is_copied_for_each_trial(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    cells = [
        "%matplotlib inline\nlr = 0.1",
        "def fit(net, dropout=0.1): return net\nfit(Net(), 0.2)",
    ]
    document = {
        "cells": [{"cell_type": "code", "metadata": {}, "source": text} for text in cells],
        "nbformat": 4,
        "nbformat_minor": 5,
        "metadata": {},
    }
    Path("train.ipynb").write_text(json.dumps(document))
    experiment = Experiment.from_yaml(experiment_for(Path("train.ipynb")).text)
    assert list(experiment.search.root) == ["lr"]
    words = experiment.command.split()
    assert words[:5] == ["python", "-m", MODULE, "train.ipynb", "lr={lr}"]
    assert "papermill" in words


def test_an_option_that_lists_configurations_gets_one_and_takes_no_override(
    tmp_path: Path,
) -> None:
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "small.yaml").write_text("model:\n  lr: 0.01\n  dropout: 0.1\n")
    (tmp_path / "train.py").write_text(
        "import argparse\n"
        "from omegaconf import OmegaConf\n"
        "parser = argparse.ArgumentParser()\n"
        "parser.add_argument('-b', '--base', nargs='*', default=list(),\n"
        "                    help='paths to base configs')\n"
        "opt, unknown = parser.parse_known_args()\n"
        "loaded = [OmegaConf.load(path) for path in opt.base]\n"
        "config = OmegaConf.merge(*loaded, OmegaConf.from_dotlist(unknown))\n"
        "print(f'val loss: {fit(config):.3f}')\n"
    )
    experiment = Experiment.from_yaml(experiment_for(tmp_path / "train.py").text)
    _, _, first, *others = experiment.command.split()
    assert first.startswith("--base=")
    assert first.endswith("configs/small.yaml")
    assert others == ["model.lr={model.lr}", "model.dropout={model.dropout}"]


def test_a_given_choice_of_hydra_decides_which_values_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    files = {
        "run": "#!/usr/bin/env python3\nimport hydra\n"
        "@hydra.main(config_path='conf', config_name='train')\ndef main(cfg): ...\nmain()\n",
        "conf/train.yaml": "defaults: [_self_, {model: null}, {experiment: null}]\nlr: 0.1\n",
        "conf/model/wide.yaml": "width: 64\n",
        "conf/experiment/first.yaml": "# @package _global_\ndefaults:\n"
        "  - override /model: wide\nlr: 0.01\n",
    }
    for name, text in files.items():
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(text)
    experiment = Experiment.from_yaml(experiment_for(Path("run experiment=first")).text)
    search = experiment.search.root
    assert search["model.width"].values() == [32, 64, 128]
    assert search["lr"].model_dump()["low"] == pytest.approx(0.001)
    assert (experiment.command or "").startswith("python run experiment=first hydra.run.dir=")


def test_files_that_a_command_names_without_their_folder_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    files = {
        "main.py": "from sacred import Experiment\nimport yaml\nex = Experiment('x')\n"
        "ex.add_config(yaml.safe_load(open('config/default.yaml')))\nex.run_commandline()\n",
        "config/default.yaml": "lr: 0.1\nout_dir: results\n",
        "config/algs/deep.yaml": "lr: 0.01\ndepth: 3\n",
        "config/algs/flat.yaml": "width: 3\n",
    }
    for name, text in files.items():
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(text)
    experiment = Experiment.from_yaml(experiment_for(Path("main.py --config=deep")).text)
    assert list(experiment.search.root) == ["lr", "depth"]
    words = expand(experiment.command or "", {"lr": 0.5, "depth": 2}, {"folder": "/trial"})
    assert words[2:] == ["--config=deep", "with", "out_dir=/trial", "lr=0.5", "depth=2"]


def test_modules_are_found_in_folders_that_a_program_adds_to_its_path(tmp_path: Path) -> None:
    (tmp_path / "core").mkdir()
    (tmp_path / "core" / "net.py").write_text("def build(args): return args.width\n")
    script = tmp_path / "train.py"
    script.write_text(
        "import argparse, sys\nsys.path.append('core')\nfrom net import build\n"
        "p = argparse.ArgumentParser()\np.add_argument('--lr', type=float, default=0.1)\n"
        "p.add_argument('--width', type=int, default=8)\n"
        "p.add_argument('--depth', type=int, default=8)\nargs = p.parse_args()\n"
        "build(args); print(args.lr)\n"
    )
    # No code reads `depth`.
    assert list(Experiment.from_yaml(experiment_for(script).text).search.root) == ["lr", "width"]


def test_an_enumeration_of_other_values_is_chosen_by_its_members(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import enum\nfrom dataclasses import dataclass\nimport torch.nn as nn, tyro\n"
        "class Cell(enum.Enum):\n    _ignore_ = 'x'\n    lstm = nn.LSTM\n    gru = nn.GRU\n"
        "class Pool(str, enum.Enum):\n    AVG = 'avg'\n    TOP = 'max'\n"
        "@dataclass\nclass Config:\n    lr: float = 0.1\n    cell: Cell = Cell.lstm\n"
        "    pool: Pool = Pool.AVG\n"
        "config = tyro.cli(Config)\n"
    )
    search = Experiment.from_yaml(experiment_for(script).text).search.root
    assert search["cell"].values() == ["lstm", "gru"]
    assert search["pool"].values() == ["avg", "max"]
