"""Run benchmarks: `python -m tests.benchmarks search serving`, or all of them without a name.

A benchmark measures the workbench and its rivals in one run and writes its result. A name is that
of a subject below, which first installs the rivals that it needs, or of a module in this folder.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import venv
from dataclasses import dataclass
from pathlib import Path

from tests.benchmarks.tables import PACKAGES

ROOT = Path(__file__).parents[2]
CONSTRAINTS = ROOT / "constraints.txt"


@dataclass(frozen=True)
class Subject:
    """What belongs to one name.

    Attributes:
        about: What is compared, and how long that takes.
        commands: Modules of this folder, with their options.
        extra: The extra of `pyproject.toml` that has the rivals.
        optional: Rivals that are left out where they cannot be installed.
        environment: A folder for rivals that need an environment of their own, and what it has.
        files: Distributions of that environment that only hold files, so nothing that they need is
            installed.
    """

    about: str
    commands: tuple[str, ...]
    extra: str = ""
    optional: tuple[str, ...] = ()
    environment: tuple[str, ...] = ()
    files: tuple[str, ...] = ()


SUBJECTS = {
    "advisor": Subject(
        "predict and choose from public measurements, beside rivals (two minutes)",
        ("advisor_step_time", "advisor_plans", "advisor_batch", "advisor_budget"),
    ),
    "automl": Subject(
        "models for public tables beside AutoGluon, FLAML and others (nine hours, in parts)",
        ("automl_tables",),
        environment=(
            ".tables",
            "autogluon.tabular[catboost,fastai,lightgbm,xgboost]",
            "flaml",
            "graphviz",
            "matplotlib",
            "plotly",
            "six",
            "torch",
        ),
        files=PACKAGES,
    ),
    "choice": Subject(
        "advise on small tasks, beside brute force, Ray Tune and Lightning (an hour)",
        ("advisor_choice", "advisor_on_off"),
        extra="rivals",
    ),
    "compression": Subject(
        "compress models beside ONNX Runtime and Olive (ten minutes)",
        ("compression",),
        environment=(".olive", "olive-ai", "onnxruntime", "requests"),
    ),
    "data": Subject(
        "load 50,000 JPEGs beside torch, WebDataset and Streaming (an hour)",
        ("image_loading",),
        optional=("webdataset", "mosaicml-streaming"),
    ),
    "decisions": Subject(
        "judge edits of public trainings, beside usual rules and tests (two minutes)",
        ("decisions",),
    ),
    "exchanges": Subject(
        "every exchange on slow links, beside torch's own (five minutes, as root)",
        ("exchanges",),
    ),
    "federated": Subject(
        "rounds to a target, published settings beside a sweep (an hour)",
        (
            "federated_rounds",
            "federated_rounds --data mnist --trials 12 --seeds 3",
            "federated_rounds --data mnist --trials 16 --targets 0.9",
        ),
    ),
    "flower": Subject(
        "the same federation here and in Flower's simulation (minutes)",
        ("federated_rounds --data mnist --seeds 2 --flower .flower/bin",),
        environment=(".flower", "flwr[simulation]>=1.42,<2", "torch"),
    ),
    "frameworks": Subject(
        "train beside plain torch, Lightning, Accelerate and Keras (half an hour)",
        ("frameworks",),
        extra="bridges",
    ),
    "importance": Subject(
        "the effect of parameters in known spaces, beside fANOVA and PED-ANOVA (five minutes)",
        ("importance",),
    ),
    "programs": Subject(
        "tune three public scripts beside Optuna and Ray Tune (fifteen minutes)",
        ("script_rivals",),
    ),
    "scripts": Subject(
        "start a script as a trial, beside a plain agent and Ray Tune", ("script_start",)
    ),
    "old-runs": Subject(
        "search with and without 200 imported trials of other public tasks (an hour)",
        ("old_runs",),
    ),
    "search": Subject(
        "search public trainings beside Optuna, Ray Tune, SMAC3 and DEHB (hours)",
        ("search", "pruning", "fronts", "fidelity"),
        extra="rivals",
    ),
    "serving": Subject(
        "answer requests beside FastAPI and Ray Serve (five minutes)",
        ("serving",),
        extra="rivals",
    ),
    "tiers": Subject(
        "tiers and cascades beside what was predicted of them (50 minutes)",
        ("tiers", "tiers_drawn"),
    ),
    "turns": Subject("train in turns beside one trial after another (three minutes)", ("turns",)),
}
# What runs without a name.
ALL = (
    "store_throughput",
    "store_scale",
    "training_loop",
    "noise_cost",
    "image_loading",
    "frameworks",
    "step_time",
    "scale_efficiency",
    "exchanges",
    "run_start",
    "gang_start",
    "sweep_overhead",
    "proposals",
    "importance",
    "decisions",
    "script_start",
    "script_rivals",
    "turns",
    "advisor",
    "advisor_choice",
    "advisor_on_off",
    "advisor_device",
    "serving",
    "live_view",
    "automl",
    "automl_small",
    "compression",
    "federated_rounds",
    "tiers",
)


def main() -> None:
    """Run what is named."""
    subjects = "\n".join(f"  {name:12} {subject.about}" for name, subject in SUBJECTS.items())
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks",
        description=f"{__doc__}\nsubjects:\n{subjects}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", default=ALL, metavar="NAME")
    for name in parser.parse_args().names:
        if not (name in SUBJECTS or (Path(__file__).parent / f"{name}.py").exists()):
            parser.error(
                f"there is no benchmark {name!r}; choose a subject or a module:\n{subjects}"
            )
        subject = SUBJECTS.get(name, Subject("", (name,)))
        install(subject)
        for command in subject.commands:
            print(f"\n=== {command}", flush=True)
            module, *options = command.split()
            subprocess.run(
                [sys.executable, "-m", f"tests.benchmarks.{module}", *options], check=True
            )


def install(subject: Subject) -> None:
    """Install the rivals of a subject; say so when optional ones cannot be installed."""
    if subject.extra:
        _pip(sys.executable, "--editable", f"{ROOT}[development,{subject.extra}]", check=True)
    if subject.optional and not _pip(sys.executable, *subject.optional):
        print(f"Compared without {' and '.join(subject.optional)}, which cannot be installed here")
    if subject.environment:
        folder, *packages = subject.environment
        if not (ROOT / folder).exists():
            venv.create(ROOT / folder, with_pip=True)
            if not _pip(ROOT / folder / "bin" / "python", *packages):
                print(f"{packages[0]} cannot be installed here, so it is left out")
            if subject.files:
                _pip(ROOT / folder / "bin" / "python", "--no-deps", *subject.files)


def _pip(python: str | Path, *packages: str, check: bool = False) -> bool:
    command = [python, "-m", "pip", "install", "--quiet", "--constraint", CONSTRAINTS, *packages]
    return subprocess.run(command, check=check).returncode == 0


if __name__ == "__main__":
    main()
