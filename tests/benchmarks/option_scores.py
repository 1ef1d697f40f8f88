"""Fits the weights of `option_scores` to folders of programs, and says how good they are.

    python -m tests.benchmarks.option_scores FOLDER FOLDER ... [--print]

Each folder is one as for `tests.benchmarks.programs`. For each one, weights are fitted to all
others, and the ten options of each of its programs with the highest scores are compared with what
a person would search. `--print` prints the weights that are fitted to all.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import numpy as np
from sklearn.linear_model import LogisticRegression

from tests.benchmarks.programs import is_never_searched
from workbench.experiment.yaml_file import read_yaml_file
from workbench.runs.scripts import first_experiment
from workbench.runs.scripts.option_domains import MAX_SEARCHED, may_be_searched, own_words
from workbench.runs.scripts.option_scores import evidence_of
from workbench.runs.scripts.script_options import ScriptOption

STRENGTH = 0.3
"""The inverse of the L1 penalty: a smaller one keeps fewer weights."""
LEAST = 4
"""In fewer options, a word says nothing about other programs."""


@dataclass(frozen=True)
class Example:
    """One option of a program."""

    folder: str
    program: str
    name: str
    is_true: bool
    evidence: dict[str, float]


def options_in(folder: Path) -> list[ScriptOption]:
    """Return all options of a program, with their uses, from which `init` chooses."""
    script = Path(read_yaml_file(folder / "TRUTH.yaml")["script"])
    seen: list[ScriptOption] = []
    choose = first_experiment.searched_domains

    def spy(options, refusals=()):
        seen[:] = options
        return choose(options, refusals)

    before = Path.cwd()
    os.chdir(folder / read_yaml_file(folder / "TRUTH.yaml").get("folder", "."))
    try:
        with mock.patch.object(first_experiment, "searched_domains", spy):
            first_experiment.experiment_for(script)
    finally:
        os.chdir(before)
    return seen


def examples_in(folder: Path) -> Iterator[Example]:
    """Yield the options of all programs in a folder that may be searched."""
    for path in sorted(folder.glob("*/TRUTH.yaml")):
        wanted = read_yaml_file(path).get("search") or {}
        for option in options_in(path.parent):
            if may_be_searched(option) and not is_never_searched(option.name):
                evidence = dict(evidence_of(option, own_words(option.name)))
                yield Example(
                    folder.name, path.parent.name, option.name, option.name in wanted, evidence
                )


def fitted(examples: Sequence[Example]) -> dict[str, float]:
    """Return the weights that fit examples best, to one digit, without those that are 0."""
    names = sorted({name for example in examples for name in example.evidence} - {"always"})
    counts = {name: sum(name in example.evidence for example in examples) for name in names}
    names = [name for name in names if counts[name] >= LEAST]
    values = np.array([[e.evidence.get(name, 0.0) for name in names] for e in examples])
    model = LogisticRegression(
        C=STRENGTH, l1_ratio=1, solver="liblinear", intercept_scaling=10, max_iter=1000
    )
    model.fit(values, [example.is_true for example in examples])
    weights = {
        "always": np.ravel(model.intercept_)[0],
        **dict(zip(names, model.coef_[0], strict=True)),
    }
    rounded = {name: round(float(weight), 1) for name, weight in weights.items()}
    return {name: weight for name, weight in rounded.items() if weight}


def num_found(examples: Sequence[Example], weights: dict[str, float]) -> int:
    """Return how many true parameters are among the ten with the highest scores."""
    programs: dict[tuple[str, str], list[tuple[float, bool]]] = {}
    for e in examples:
        score = sum(weights.get(name, 0.0) * value for name, value in e.evidence.items())
        programs.setdefault((e.folder, e.program), []).append((score, e.is_true))
    return sum(
        is_true
        for scored in programs.values()
        for _, is_true in sorted(scored, reverse=True)[:MAX_SEARCHED]
    )


def num_wanted(folder: Path) -> int:
    """Return how many parameters a person would search in the programs of a folder."""
    truths = map(read_yaml_file, sorted(folder.glob("*/TRUTH.yaml")))
    return sum(len(truth.get("search") or {}) for truth in truths)


def main(arguments: Sequence[str] | None = None) -> None:
    """Score each folder by weights fitted to the others."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", type=Path, nargs="+", help="folders of programs")
    parser.add_argument("--print", action="store_true", help="print the weights fitted to all")
    options = parser.parse_args(arguments)
    examples = [example for folder in options.folders for example in examples_in(folder)]
    found = 0
    for folder in options.folders:
        own = [e for e in examples if e.folder == folder.name]
        num = num_found(own, fitted([e for e in examples if e.folder != folder.name]))
        print(f"{folder.name}: {num} of {num_wanted(folder)} among the first ten")
        found += num
    print(f"all: {found} of {sum(map(num_wanted, options.folders))}")
    if options.print:
        for name, weight in sorted(fitted(examples).items(), key=lambda item: -item[1]):
            print(f'    "{name}": {weight},')


if __name__ == "__main__":
    main()
