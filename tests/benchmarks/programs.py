"""How much of a folder of programs `init` reads right.

    python -m tests.benchmarks.programs FOLDER

Each subfolder holds a program as its authors published it, and a file TRUTH.yaml of yours:

    script: train.py
    objective: {val_loss: minimize, val_acc: maximize}  # all that a person may pick
    search: {lr: float, width: int, nesterov: bool, optimizer: choice}
    never: [ngpu]                   # besides seeds, devices, classes and paths
    command: [python train.py]      # parts that the command must have

The programs are other people's, so they stay out of the repository. A parameter counts if it is
declared with a domain of this type.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workbench.experiment import Experiment
from workbench.experiment.yaml_file import read_yaml_file
from workbench.foundation.errors import WorkbenchError
from workbench.runs.scripts.first_experiment import experiment_for
from workbench.runs.scripts.script_options import words_of

NEVER = frozenset(
    ("seed", "device", "gpu", "gpus", "classes", "path", "dir", "folder", "workers", "port")
)


@dataclass(frozen=True)
class Score:
    """What `init` made of one program."""

    name: str
    is_objective_right: bool
    missing: tuple[str, ...]
    num_true: int
    wrong: tuple[str, ...]
    problems: tuple[str, ...]

    def line(self) -> str:
        """Return it as one line of a table."""
        num_right = self.num_true - len(self.missing)
        told = [
            f"missing {', '.join(self.missing)}" if self.missing else "",
            f"wrong {', '.join(self.wrong)}" if self.wrong else "",
            *self.problems,
        ]
        objective = "right" if self.is_objective_right else "WRONG"
        return (
            f"{self.name:18} objective {objective}  parameters {num_right}/{self.num_true}"
            f"  {'; '.join(part for part in told if part)}"
        )


def score_of(folder: Path) -> Score:
    """Return what `init` makes of the program in a folder.

    Args:
        folder: A folder with TRUTH.yaml.
    """
    truth = read_yaml_file(folder / "TRUTH.yaml")
    wanted: dict[str, str] = truth.get("search") or {}
    before = Path.cwd()
    os.chdir(folder / truth.get("folder", "."))
    try:
        text = experiment_for(Path(truth["script"])).text
        experiment = Experiment.from_yaml(text)
    except WorkbenchError as error:
        return Score(folder.name, False, tuple(wanted), len(wanted), (), (str(error),))
    finally:
        os.chdir(before)
    objective = experiment.objectives[0]
    problems = [
        f"the command has no {part!r}: {experiment.command}"
        for part in truth.get("command", [])
        if part not in (experiment.command or "")
    ]
    is_right = truth["objective"].get(objective.metric) == objective.goal
    if not is_right:
        problems.append(f"it says {objective.goal} {objective.metric}")
    never = set(truth.get("never", []))
    declared = experiment.search.root
    return Score(
        folder.name,
        is_right,
        tuple(name for name, kind in wanted.items() if not _has_kind(declared.get(name), kind)),
        len(wanted),
        tuple(name for name in declared if name in never or is_never_searched(name)),
        tuple(problems),
    )


def is_never_searched(name: str) -> bool:
    """Return whether a name is that of a seed, a device, a number of classes or a path."""
    words = words_of(name)
    return bool(words & NEVER) and not {"batch", "drop"} & words


def _has_kind(domain: Any, kind: str) -> bool:
    """Return whether a domain has only values of a type."""
    if domain is None:
        return False
    values = domain.values()
    given = domain.model_dump(mode="json")
    if values is None:
        values = [given["low"], given["high"]]
        if kind == "float":
            return True
    types: dict[str, Any] = {"int": int, "float": int | float, "bool": bool, "choice": object}
    return all(
        isinstance(value, types[kind]) and isinstance(value, bool) == (kind == "bool")
        for value in values
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Score all programs in a folder, and print a line for each one and for all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="the folder with the programs")
    folder = parser.parse_args(arguments).folder
    scores = [score_of(path.parent) for path in sorted(folder.glob("*/TRUTH.yaml"))]
    for score in scores:
        print(score.line())
    num_true = sum(score.num_true for score in scores)
    num_right = num_true - sum(len(score.missing) for score in scores)
    num_objectives = sum(score.is_objective_right for score in scores)
    num_wrong = sum(len(score.wrong) for score in scores)
    print(
        f"objectives {num_objectives}/{len(scores)}  parameters {num_right}/{num_true}"
        f"  wrong {num_wrong}"
    )


if __name__ == "__main__":
    main()
