"""The objective of a program, as its source shows: what it measures on validation data.

A metric of validation data is better than one of test data, and both are better than one of
training data. What a program prints can be read while it runs, so it comes before what it logs to
a file. If the program keeps its best model, or stops early, by a metric, that metric is meant.
Which names a printed line has is left to `script_metrics`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from workbench.experiment.goals import Goal
from workbench.runs.scripts.best_model_criteria import (
    criteria_in,
    goals_in_options,
    monitored_by_callbacks,
    monitored_in_options,
)
from workbench.runs.scripts.given_words import calls_in
from workbench.runs.scripts.objective_ranking import (
    ADVERSARIES,
    GENERATORS,
    Criterion,
    Reported,
    Way,
    goal_of_metric,
    guessed_goal,
    have_rivals,
    is_kept_number,
    is_metric,
    metric_words,
    normal_words,
    printed_numbers_of,
    ranking_of,
)
from workbench.runs.scripts.program_source import (
    PROJECT_FILES,
    Module,
    ProgramSource,
    files_below,
    read_module,
)
from workbench.runs.scripts.reported_metrics import (
    LAST_PLACE,
    metrics_in_module,
    metrics_in_other_language,
    metrics_in_written_lines,
    metrics_of_keras,
    result_names,
    switched_off,
)
from workbench.runs.scripts.script_metrics import (
    measure_of_catboost,
    names_of_agents,
    names_of_libraries,
    names_of_lists,
)
from workbench.runs.scripts.script_options import (
    ScriptOption,
    called_name,
    last_name,
    place_for_trial,
    places_in_source,
    walk,
)

_TRAINS = re.compile(r"^\s*def \w*(?:train|eval|valid|fit|test)\w*\(", re.MULTILINE)
_LIGHTNING = frozenset(("lightning", "pytorch_lightning"))
_MAX_MODULES = 25
_MAX_FILES = 1000


@dataclass(frozen=True)
class Objective:
    """What a program is tuned for at first.

    Attributes:
        metric: Its name, as a run reads it.
        goal: In which direction it is better.
        others: All metrics that the program seems to report, the best objective first.
        reason: What the goal is guessed from.
        source: The value of `metrics` in YAML. None if the metric is printed.
        needs_folder: Whether each trial needs its own working folder for it.
        notes: What the user should know.
    """

    metric: str
    goal: Goal
    others: tuple[str, ...] = ()
    reason: str = ""
    source: str | None = None
    needs_folder: bool = False
    notes: tuple[str, ...] = ()


def objective_of(program: ProgramSource, options: Iterable[ScriptOption] = ()) -> Objective:
    """Return the objective that a program seems to have.

    Args:
        program: The program.
        options: Its options, of which one may name the metric that it keeps the best model by.
    """
    options = list(options)
    if not program.is_python:
        return _of_names(metrics_in_other_language(program), [], program)
    modules = [*_telling_modules(program), *_trained_modules(program)]
    calls = calls_in(modules, switched_off(options))
    results = result_names(modules)
    has_trainer = _calls_trainer(program.main.tree)
    own = _own_classes(program)
    reported = [
        replace(
            metric,
            is_of_main=module is program.main,
            module=str(module.path),
            origin=metric.origin if metric.is_number or module is program.main else "",
        )
        for module in modules
        for metric in metrics_in_module(
            module, calls, results, None if has_trainer and module is not program.main else own
        )
    ]
    reported += metrics_in_written_lines(modules)
    reported += [
        replace(Reported(name, "", "print", LAST_PLACE), is_of_main=module is program.main)
        for module in modules
        for name in (
            *names_of_agents(module.tree, program.imported_names),
            *names_of_libraries(module.tree, program.imported_names),
        )
    ]
    reported += [
        Reported(name, "", "print", 0)
        for name in metrics_of_keras([module.tree for module in modules])
    ]
    criteria = [criterion for module in modules for criterion in criteria_in(module)]
    if (measure := measure_of_catboost(program.main.tree, program.imported_names)) is not None:
        criteria.append(Criterion(frozenset(("test",)), guessed_goal(measure)))
    monitored = [
        *monitored_in_options(options),
        *monitored_by_callbacks(program, modules, reported, options),
    ]
    for metric, goal in dict(monitored).items():
        reported.append(
            Reported(
                metric,
                "",
                _way_of_monitored(metric, reported, program),
                LAST_PLACE,
                is_of_main=False,
                is_monitored=True,
            )
        )
        criteria.append(Criterion(normal_words(metric_words(metric)), goal))
    objective = _of_names(reported, criteria, program)
    for name, goal in goals_in_options(options):
        if not name or name & set(metric_words(objective.metric)):
            return replace(objective, goal=goal, reason="an option of the script")
    return objective


def _telling_modules(program: ProgramSource) -> list[Module]:
    """Return the program and those of its modules that train or evaluate, before the others."""
    main, *others = program.modules
    others.sort(key=lambda module: _TRAINS.search(module.text) is None)
    return [main, *others[: _MAX_MODULES - 1]]


def _trained_modules(program: ProgramSource) -> list[Module]:
    """Return the modules of a project that log as Lightning does, if a configuration names them."""
    if not _LIGHTNING & program.imported_names:
        return []
    root = next(
        (
            parent
            for parent in [program.path.absolute().parent, *program.path.absolute().parents][:4]
            if any((parent / name).exists() for name in (".git", *PROJECT_FILES, "configs", "conf"))
        ),
        program.path.absolute().parent,
    )
    known = {module.path.absolute() for module in program.modules}
    modules: list[Module] = []
    for path in files_below(root, (".py",), _MAX_FILES):
        module = None if path in known else read_module(path)
        if module is not None and "def validation_step" in module.text:
            modules.append(module)
    return modules[:5]


def _way_of_monitored(metric: str, reported: list[Reported], program: ProgramSource) -> Way:
    ways: list[Way] = [other.way for other in reported if other.name == metric]
    if not ways and _LIGHTNING & program.imported_names:
        return "lightning"
    return ways[0] if ways else "print"


def _calls_trainer(tree: ast.Module) -> bool:
    return any(
        isinstance(node, ast.Call)
        and called_name(node).endswith("Trainer")
        and any(word.arg in ("train_dataset", "args") for word in node.keywords)
        for node in walk(tree)
    )


def _own_classes(program: ProgramSource) -> frozenset[str]:
    """Return the classes of a program that do not inherit from a Trainer."""
    return frozenset(
        name
        for name, (_, node) in program.classes.items()
        if not any(last_name(base).endswith("Trainer") for base in node.bases)
    )


def _of_names(
    reported: list[Reported], criteria: list[Criterion], program: ProgramSource
) -> Objective:
    validates = not _has_no_evaluation(program)
    known = [
        metric
        for metric in reported
        if (metric.is_monitored or is_kept_number(metric) or is_metric(metric, reported))
        and (validates or not metric.name.startswith("eval_"))
    ]
    if all(metric.split == "train" for metric in known):
        names_known = {metric.name for metric in known}
        listed = [
            Reported(name, "", "print", 0)
            for name in _names_listed(program)
            if name not in names_known
        ]
        known += [metric for metric in listed if is_metric(metric, listed)]
    order = ranking_of(known, criteria)
    ranked = sorted(known, key=order) or printed_numbers_of(reported)
    names = tuple(dict.fromkeys(metric.name for metric in ranked))
    if not ranked:
        return Objective("loss", "minimize", reason="the name loss")
    best = ranked[0]
    goal, reason = goal_of_metric(best, criteria)
    source, needs_folder = _source_of(best, program)
    notes = []
    if best.split == "train" or (best.split == "" and set(best.words) <= {"loss"}):
        notes.append("This may be measured on training data. A validation metric is better.")
    elif best.split == "test":
        notes.append(
            "This is measured on test data, which tests nothing any more once it has chosen the "
            "parameters. A validation metric is better."
        )
    if have_rivals(known) and set(best.words) & (ADVERSARIES | GENERATORS):
        notes.append(
            "Two networks train against each other here, so none of their losses says how good "
            "the model is. Print a measure of its samples, such as the FID, and tune that."
        )
    if best.way in ("csv", "json", "mlflow"):
        notes.append(
            f"{best.name} is in a file and in no line: it counts when a trial has ended, so trials "
            "are not stopped early by it."
        )
    return Objective(
        metric=best.name,
        goal=goal,
        others=names,
        reason=reason,
        source=source,
        needs_folder=needs_folder,
        notes=tuple(notes),
    )


def _names_listed(program: ProgramSource) -> list[str]:
    """Return what a Python program prints as lists of numbers, of which a run reads the last."""
    return names_of_lists(program.main.tree) if program.is_python else []


def _has_no_evaluation(program: ProgramSource) -> bool:
    """Return whether a program gives its Trainer no data for an evaluation."""
    given = re.findall(r"eval_dataset['\"]?\s*[=:]\s*(\w+)", program.text)
    return bool(given) and set(given) == {"None"}


def _source_of(metric: Reported, program: ProgramSource) -> tuple[str | None, bool]:
    """Return the value of `metrics` in YAML, and whether each trial needs its own folder."""
    match metric.way:
        case "jsonl":
            return f"{{jsonl: '{{folder}}/{metric.file}'}}", False
        case "wandb":
            return "{from: wandb}", False
        case (
            "csv" | "json" | "mlflow"
        ):  # read at the end, wherever it is in the folder of the trial
            return None, not _writes_below_option(program)
        case "tensorboard":
            return "{tensorboard: '{folder}'}", not _writes_below_option(program)
        case "lightning":
            return "{csv: '{folder}/lightning_logs/version_0/metrics.csv'}", True
    return None, False


def _writes_below_option(program: ProgramSource) -> bool:
    """Return whether the writer of TensorBoard gets its folder from an option for outputs."""
    from workbench.runs.scripts.declared_options import declared_options

    options = declared_options(program)[0]
    if places_in_source([module.tree for module in program.modules], options):
        return True
    places = {
        option.name.replace("-", "_") for option in options if place_for_trial(option) is not None
    }
    for module in program.modules[:_MAX_MODULES]:
        for node in walk(module.tree):
            if isinstance(node, ast.Call) and called_name(node) == "SummaryWriter":
                given = [*node.args, *(word.value for word in node.keywords)]
                if any(last_name(part) in places for value in given for part in walk(value)):
                    return True
    return False
