"""By which metrics a program keeps its best model, stops early or decays its learning rate.

They say what it is tuned for, and in which direction that is better.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping

from workbench.experiment.goals import Goal
from workbench.runs.scripts.configured_options import configurations_near
from workbench.runs.scripts.objective_ranking import (
    BEST_WORDS,
    VALIDATION_WORDS,
    Criterion,
    Reported,
    is_about,
    metric_words,
    normal_words,
)
from workbench.runs.scripts.program_source import Module, ProgramSource
from workbench.runs.scripts.script_options import ScriptOption, called_name, walk
from workbench.runs.scripts.static_values import StaticValues
from workbench.training.programs.metric_names import kind_of_metric

_MONITORS = ("EarlyStopping", "ModelCheckpoint", "ReduceLROnPlateau")
_GOALS_OF_MODES: dict[str, Goal] = {"max": "maximize", "min": "minimize"}
_MONITOR_IN_FILE = re.compile(
    r"^\s*monitor:\s*['\"]?(?P<metric>[\w./-]+)['\"]?[^\n]*(?:\n\s*(?:mode:\s*['\"]?(?P<mode>\w+)|))?",
    re.MULTILINE,
)
_MAX_CONFIGURATIONS = 5
_IS_BETTER = re.compile(r"_?(?P<way>higher|greater|larger|bigger|lower|smaller)_is_better$")
_OF_EVALUATORS = {
    "Accuracy": "val_accuracy/top1",
    "AccMetric": "val_acc/top1",
    "CocoMetric": "val_coco/bbox_mAP",
    "IoUMetric": "val_mIoU",
    "VOCMetric": "val_pascal_voc/mAP",
    "MultiLabelMetric": "val_multi-label/mAP",
}
"""The main measure of the evaluators of mmengine's libraries, as their lines are read: they begin
with `Epoch(val)`.
"""


def goals_in_options(options: Iterable[ScriptOption]) -> Iterator[tuple[frozenset[str], Goal]]:
    """Yield what options such as `eval_score_higher_is_better` say: of what, and in which way.

    Args:
        options: The options of a program.
    """
    for option in options:
        last = option.name.rpartition(".")[2].replace("-", "_")
        match = _IS_BETTER.search(last)
        if match is None or not isinstance(option.default, bool):
            continue
        is_rising = (match["way"] not in ("lower", "smaller")) == option.default
        yield (
            frozenset(metric_words(last[: match.start()])),
            "maximize" if is_rising else "minimize",
        )


def monitored_in_options(options: Iterable[ScriptOption]) -> Iterator[tuple[str, Goal | None]]:
    """Yield the metrics by which a configuration keeps the best model, and their goals.

    Args:
        options: The options of a program, those of its configuration included.
    """
    values = {option.name: option.default for option in options}
    goals = _GOALS_OF_MODES
    evaluator = str(values.get("val_evaluator.type"))
    if evaluator in _OF_EVALUATORS:
        yield _OF_EVALUATORS[evaluator], "maximize"
    for name, value in values.items():
        before, _, last = name.rpartition(".")
        if last not in ("monitor", "monitor_metric", "optimized_metric", "eval_metric"):
            continue
        if not isinstance(value, str) or not value:
            continue
        words = value.split()
        goal = goals.get(str(values.get(f"{before}.mode")))
        if len(words) > 1:
            goal = goals.get(words[0])
        yield words[-1], goal


def monitored_by_callbacks(
    program: ProgramSource,
    modules: Iterable[Module],
    reported: list[Reported],
    options: Iterable[ScriptOption] = (),
) -> Iterator[tuple[str, Goal | None]]:
    """Yield what callbacks monitor, in a source or in a configuration file.

    Callbacks of the program itself count if it seems to report nothing of what they monitor.

    Args:
        program: The program.
        modules: Its modules that train or evaluate.
        reported: What they report.
        options: The options of the program, those of its configuration included.
    """
    configured = {o.name: o.default for o in options if isinstance(o.default, str)}
    for module in modules:
        texts = _texts_of(module)
        for node in walk(module.tree):
            if not isinstance(node, ast.Call) or called_name(node) not in _MONITORS:
                continue
            given = {
                word.arg: _configured_text(word.value, configured) or texts.get(word.value)
                for word in node.keywords
                if word.arg
            }
            if not isinstance(metric := given.get("monitor"), str):
                continue
            criterion = Criterion(normal_words(metric_words(metric)), None)
            is_reported = any(is_about(other, criterion) for other in reported)
            if called_name(node) not in program.classes or not is_reported:
                yield metric, _GOALS_OF_MODES.get(str(given.get("mode")))
    if "LightningCLI" not in program.text:
        return
    for file in configurations_near(program.path)[:_MAX_CONFIGURATIONS]:
        for match in _MONITOR_IN_FILE.finditer(file.read_text(errors="replace")):
            yield match["metric"], _GOALS_OF_MODES.get(match["mode"] or "")


def _configured_text(value: ast.expr, configured: Mapping[str, str]) -> str | None:
    """Return the text of a configuration that is read in a source: `cfg["stop"]["metric"]`.

    The variable may hold a part of the configuration.
    """
    keys: list[str] = []
    while True:
        match value:
            case ast.Attribute(value=owner, attr=key):
                pass
            case ast.Subscript(value=owner, slice=ast.Constant(value=str() as key)):
                pass
            case _:
                break
        keys.insert(0, key)
        value = owner
    path = ".".join(keys)
    found = {text for name, text in configured.items() if f".{name}".endswith(f".{path}")}
    return found.pop() if path and len(found) == 1 else None


def _texts_of(module: Module) -> StaticValues:
    """Return what the variables of a module hold, those of its functions included."""
    values = StaticValues()
    values.learn(module.tree.body)
    for node in walk(module.tree):
        if isinstance(node, ast.FunctionDef | ast.If):
            values.learn(node.body)
    return values


def criteria_in(module: Module) -> Iterator[Criterion]:
    """Yield by what a module compares results, and what its callbacks and searches monitor.

    Args:
        module: The module.
    """
    texts = _texts_of(module)
    for node in walk(module.tree):
        match node:
            case ast.Compare(left=left, ops=[ast.Lt() | ast.LtE()], comparators=[right]):
                yield from _compared(left, right)
            case ast.Compare(left=left, ops=[ast.Gt() | ast.GtE()], comparators=[right]):
                yield from _compared(right, left)
            case ast.Call(func=ast.Name(id="max" | "min" as name), args=[first, second]):
                goal: Goal = "maximize" if name == "max" else "minimize"
                for best, other in ((first, second), (second, first)):
                    if "best" in _text_words(best):
                        yield Criterion(_criterion_words(best, other), goal)
            case ast.Call(keywords=keywords):
                yield from _monitored(called_name(node), keywords, texts)
            case ast.Constant(value=str() as text):
                match_text = re.fullmatch(r"(min|max) (\w+)", text)
                if match_text is not None:
                    goal = "maximize" if match_text[1] == "max" else "minimize"
                    yield Criterion(normal_words(metric_words(match_text[2])), goal)


def _compared(less: ast.expr, more: ast.expr) -> Iterator[Criterion]:
    if _is_best(more):
        yield Criterion(_criterion_words(less, more), "minimize")
    elif _is_best(less):
        yield Criterion(_criterion_words(more, less), "maximize")


def _is_best(node: ast.expr) -> bool:
    words = _text_words(node)
    return bool({"best", "lowest", "highest"} & words) or (
        bool(words & {"min", "max"})
        and isinstance(node, ast.Name | ast.Attribute)
        and (bool(words & VALIDATION_WORDS) or any(map(kind_of_metric, words)))
    )


def _text_words(node: ast.expr) -> set[str]:
    return set(metric_words(ast.unparse(node)))


def _criterion_words(first: ast.expr, second: ast.expr) -> frozenset[str]:
    return normal_words((*_text_words(first), *_text_words(second))) - {
        *BEST_WORDS,
        *("self", "current", "cur", "avg", "mean", "item", "is", "so", "far", "model", "float"),
    }


def _monitored(name: str, keywords: list[ast.keyword], texts: StaticValues) -> Iterator[Criterion]:
    given = {word.arg: texts.get(word.value) for word in keywords if word.arg}
    metric = given.get("metric_for_best_model")
    if isinstance(metric, str):
        is_greater = given.get("greater_is_better")
        goal: Goal | None = None
        if isinstance(is_greater, bool):
            goal = "maximize" if is_greater else "minimize"
        yield Criterion(normal_words(("eval", *metric_words(metric))), goal)
    metric = given.get("monitor")
    if isinstance(metric, str) and (name in _MONITORS or "mode" in given):
        goals: dict[str, Goal] = {"max": "maximize", "min": "minimize"}
        yield Criterion(normal_words(metric_words(metric)), goals.get(str(given.get("mode"))))
