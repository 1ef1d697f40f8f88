"""Options that only have an effect with some values of other options."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.runs.scripts.test_option_uses import domains
from workbench.experiment import Experiment
from workbench.experiment.command import expand
from workbench.runs.scripts.first_experiment import experiment_for

LR = "'--lr', type=float, default=0.1"
WIDTH = "'--width', type=int, default=8"
KIND = "'--optimizer', default='adam', choices=['adam', 'lars']"
REG = "'--reg-coef', type=float, default=0.5"
USED = "fit(args.lr, args.width)\n"


@pytest.mark.parametrize(
    "use",
    [
        "if args.optimizer == 'lars':\n    step = Lars(args.reg_coef)",
        "if args.optimizer != 'lars':\n    step = Adam()\nelse:\n    step = Lars(args.reg_coef)",
        "step = Lars(args.reg_coef) if args.optimizer == 'lars' else Adam()",
        "match args.optimizer:\n    case 'lars':\n        step = Lars(args.reg_coef)",
        "use = args.optimizer in ('lars', 'lamb') and Lars(args.reg_coef)",
        "def make(kind, coef):\n    if kind == 'adam':\n        return Adam()\n"
        "    return Lars(coef)\nmake(args.optimizer, args.reg_coef)",
        "def lars():\n    return Lars(args.reg_coef)\n"
        "if args.optimizer.lower() == 'lars':\n    step = lars()",
        "print(args.reg_coef)\nname = f'run-{args.reg_coef}'\n"
        "if args.optimizer == 'lars':\n    step = Lars(args.reg_coef)",
    ],
)
def test_an_option_of_another_choice_has_a_condition(use: str, tmp_path: Path) -> None:
    found = domains(
        tmp_path, USED + use + "\nif args.optimizer == 'adam': pass", LR, WIDTH, KIND, REG
    )
    regularized = found["reg-coef"]
    assert isinstance(regularized, dict)
    assert regularized["when"] == {"optimizer": "lars"}
    assert "when" not in str(found["lr"])


@pytest.mark.parametrize(
    "use",
    [
        "step = Lars(args.reg_coef)",
        "if kind == 'lars':\n    step = Lars(args.reg_coef)",
        "args.optimizer = 'lars'\nif args.optimizer == 'lars':\n    step = Lars(args.reg_coef)",
        "def lars():\n    return Lars(args.reg_coef)\nlars()",
    ],
)
def test_an_option_that_has_an_effect_as_it_is_has_no_condition(use: str, tmp_path: Path) -> None:
    found = domains(tmp_path, USED + use, LR, WIDTH, KIND, REG)
    assert "when" not in str(found["reg-coef"])


def test_an_option_of_the_default_choice_has_a_condition_if_the_choice_is_searched(
    tmp_path: Path,
) -> None:
    use = f"{USED}if args.optimizer == 'adam':\n    step = Adam(args.reg_coef)"
    regularized = domains(tmp_path, use, LR, WIDTH, KIND, REG)["reg-coef"]
    assert isinstance(regularized, dict)
    assert regularized["when"] == {"optimizer": "adam"}
    fixed = "'--optimizer', choices=['adam'], default='adam'"
    assert "when" not in str(domains(tmp_path, use, LR, WIDTH, fixed, REG)["reg-coef"])


def test_what_a_number_turns_off_is_not_searched(tmp_path: Path) -> None:
    declared = (LR, WIDTH, "'--n-fine', type=int, default=0", "'--fine-width', type=int, default=8")
    use = f"{USED}if args.n_fine > 0:\n    Net(args.fine_width)"
    assert list(domains(tmp_path, use, *declared)) == ["lr", "width"]


def test_an_option_of_a_loss_that_is_not_chosen_is_not_searched(tmp_path: Path) -> None:
    declared = ("'--loss', default='mse'", "'--huber-delta', type=float, default=1.0")
    use = f"{USED}if args.loss == 'huber':\n    loss = Huber(args.huber_delta)"
    assert list(domains(tmp_path, use, LR, WIDTH, *declared)) == ["lr", "width"]


def test_a_mode_that_the_command_of_a_trial_sets_turns_nothing_off(tmp_path: Path) -> None:
    use = "if args.do_train:\n    fit(args.lr, args.width)"
    found = domains(tmp_path, use, LR, WIDTH, "'--do-train', action='store_true'")
    assert list(found) == ["lr", "width"]


def test_a_condition_leaves_its_option_out_of_the_command(tmp_path: Path) -> None:
    domains(
        tmp_path,
        f"{USED}if args.optimizer == 'lars':\n    step = Lars(args.reg_coef)",
        LR,
        WIDTH,
        KIND,
        REG,
    )
    experiment = Experiment.from_yaml(experiment_for(tmp_path / "train.py").text)
    without = expand(experiment.command or "", {"lr": 0.1, "width": 8, "optimizer": "adam"}, {})
    assert without[-3:] == ["--lr=0.1", "--width=8", "--optimizer=adam"]
