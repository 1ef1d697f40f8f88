"""Ranges around the numbers that configuration files have for options without a default."""

from __future__ import annotations

from pathlib import Path

import pytest

from workbench.experiment import Experiment
from workbench.runs.scripts.first_experiment import experiment_for

DECLARED = (
    "import argparse\np = argparse.ArgumentParser()\nadd = p.add_argument\n"
    "add('--config', default='net.yaml')\n"
    "add('--lr', type=float)\nadd('--batch-size', type=int)\nadd('--gamma', type=float)\n"
    "args = p.parse_args()\nconfig = yaml.safe_load(open(args.config))\n"
)
USED = "fit(config, args.lr, args.batch_size, args.gamma)\nprint(f'val_loss {loss:.3f}')\n"
FILE = "ppo: {rate: 0.002, batch_size: 48, gamma: 0.9}\nother: {rate: 0.5, gamma: 0.5}\n"


def searched(folder: Path, source: str) -> dict[str, dict[str, object]]:
    """Return what is searched for a program next to `net.yaml`, as JSON."""
    script = folder / "train.py"
    script.write_text(source)
    experiment = Experiment.from_yaml(experiment_for(script).text)
    return {
        name: domain.model_dump(mode="json", exclude_none=True)
        for name, domain in experiment.search.root.items()
    }


@pytest.mark.parametrize(
    "replacing",
    [
        "config['ppo']['rate'] = args.lr\nconfig['ppo']['gamma'] = args.gamma\n",
        "TABLE = {'lr': ('ppo', 'rate'), 'gamma': ('ppo', 'gamma')}\n",
        "TABLE = {'lr': 'ppo.rate', 'gamma': 'ppo.gamma'}\n",
    ],
)
def test_options_that_replace_values_of_a_file_have_its_defaults(
    replacing: str, tmp_path: Path
) -> None:
    (tmp_path / "net.yaml").write_text(FILE)
    found = searched(tmp_path, DECLARED + replacing + USED)
    assert found["lr"] == {"low": 0.0002, "high": 0.02, "log": True}
    assert found["batch-size"] == {"choices": [24, 48, 96]}
    assert float(str(found["gamma"]["low"])) < 0.9 < float(str(found["gamma"]["high"]))


def test_a_number_that_two_sections_have_is_no_default(tmp_path: Path) -> None:
    (tmp_path / "net.yaml").write_text(FILE)
    found = searched(tmp_path, DECLARED + USED)
    assert "gamma" not in found
    named = searched(tmp_path, DECLARED + "own = config['other']\n" + USED)
    assert float(str(named["gamma"]["low"])) < 0.5 < float(str(named["gamma"]["high"]))


def test_a_default_may_be_read_from_a_section_of_an_indented_file(tmp_path: Path) -> None:
    (tmp_path / "net.ini").write_text(
        "[Custom]\n    # usual\n    lr = 0.02\n    width=48\n[Small]\n    lr = 0.5\n    width = 4\n"
    )
    found = searched(
        tmp_path,
        "import argparse\ndefaults = section('net.ini', 'Custom')\np = argparse.ArgumentParser()\n"
        "p.add_argument('--lr', type=float, default=defaults['lr'])\n"
        "p.add_argument('--width', type=int, default=defaults['width'])\n"
        "args = p.parse_args()\nfit(args.lr, args.width)\nprint(f'val_loss {loss:.3f}')\n",
    )
    assert found["lr"] == {"low": 0.002, "high": 0.2, "log": True}
    assert found["width"] == {"choices": [24, 48, 96]}
