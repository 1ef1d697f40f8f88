"""The objective of a program, as its source shows: what it measures on validation data.

A metric of validation data is better than one of test data, and both are better than one of
training data. What a program prints can be read while it runs, so it comes before what it logs to
a file. If the program keeps its best model, or stops early, by a metric, that metric is meant.
Which names a printed line has is left to `script_metrics`.
"""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from workbench.experiment.goals import Goal
from workbench.runs.scripts.compiled_programs import lines_of_compiled
from workbench.runs.scripts.configured_options import configurations_near
from workbench.runs.scripts.objective_ranking import (
    ADVERSARIES,
    BEST_WORDS,
    GENERATORS,
    SPLIT_WORDS,
    TEST_WORDS,
    VALIDATION_WORDS,
    Criterion,
    Reported,
    Way,
    goal_of_metric,
    guessed_goal,
    have_rivals,
    is_about,
    is_kept_number,
    is_measure_word,
    is_metric,
    metric_words,
    normal_words,
    printed_numbers_of,
    ranking_of,
)
from workbench.runs.scripts.program_source import (
    COMPILER,
    PROJECT_FILES,
    Module,
    ProgramSource,
    files_below,
    read_module,
)
from workbench.runs.scripts.script_metrics import (
    dicts_given,
    looped_words,
    measure_of_catboost,
    names_in_headers,
    names_of_agents,
    names_of_bars,
    names_of_libraries,
    names_of_lists,
    names_of_trainer,
    origins_of,
    printed_names,
    static_texts,
    texts_of_dicts,
)
from workbench.runs.scripts.script_options import (
    ScriptOption,
    called_name,
    last_name,
    name_words,
    place_for_trial,
    places_in_source,
    walk,
)
from workbench.runs.scripts.static_values import (
    KeptValue,
    KeptValues,
    Origins,
    StaticValues,
    literal_of,
)
from workbench.training.programs.constants import dotted_name
from workbench.training.programs.metric_names import (
    TRAINS,
    kind_of_metric,
    split_word,
)

_TRAIN = frozenset((*TRAINS, "tr", "running", "batch", "step", "iter"))
_OF_EVALUATION_LOADERS = frozenset(("testloader", "testset", "testdata"))
_TABULAR = (
    *("log", "logkv", "logkv_mean", "record", "record_mean", "log_tabular", "record_tabular"),
    *("log_scalar", "write_scalar", "report_scalar", "report", "add_metric"),
    *("log_stat", "log_value", "add_stat", "record_stat"),
)
"""Methods that take the name of a metric and its value, and usually print a table."""
_REPORTED = ("log", "log_dict", "log_metrics", "log_metric", "add_scalar", "add_scalars", "scalar")
_LOGGERS = re.compile(r"^(?:\w+_)?(?:logger|tracker|reporter)$")
_ERRORS = ("warning", "warn", "error", "exception", "debug", "critical", "exit")
_TRAINS = re.compile(r"^\s*def \w*(?:train|eval|valid|fit|test)\w*\(", re.MULTILINE)
_IMPROVED = re.compile(
    r"\b(?:improved|decreased|increased|reduced|dropped)\b.*?(?:-+>|=>|\u2192|\bto\b)", re.DOTALL
)
_MONITORS = ("EarlyStopping", "ModelCheckpoint", "ReduceLROnPlateau")
_LIGHTNING = frozenset(("lightning", "pytorch_lightning"))
_GOALS_OF_MODES: dict[str, Goal] = {"max": "maximize", "min": "minimize"}
_MONITOR_IN_FILE = re.compile(
    r"^\s*monitor:\s*['\"]?(?P<metric>[\w./-]+)['\"]?[^\n]*(?:\n\s*(?:mode:\s*['\"]?(?P<mode>\w+)|))?",
    re.MULTILINE,
)
_OF_RESULTS = frozenset(
    ("metric", "metrics", "result", "results", "score", "scores", "stat", "stats", "log", "logs")
)
"""Words of dicts that hold what a program measures."""
_MAX_RESULTS = 12
_MAX_CONFIGURATIONS = 5
_MAX_MODULES = 25
_HOLD_OPTIONS = frozenset(
    ("args", "opt", "opts", "options", "flags", "FLAGS", "cfg", "config", "conf", "hparams", "hps")
)
_MAX_FILES = 1000
_LAST = 10_000
"""The place of what only a configuration names."""


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
        return _of_names(_of_other_language(program), [], program)
    modules = [*_telling_modules(program), *_trained_modules(program)]
    calls = _Calls(
        _words_given(modules),
        _dicts_given(modules),
        _curves_of_functions(modules),
        KeptValues([module.tree for module in modules]),
        _switched_off(options),
    )
    results = _result_names(modules)
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
        for metric in _in_module(
            module, calls, results, None if has_trainer and module is not program.main else own
        )
    ]
    reported += _in_written_lines(modules)
    reported += [
        replace(Reported(name, "", "print", _LAST), is_of_main=module is program.main)
        for module in modules
        for name in (
            *names_of_agents(module.tree, program.imported_names),
            *names_of_libraries(module.tree, program.imported_names),
        )
    ]
    reported += [
        Reported(name, "", "print", 0) for name in _of_keras([module.tree for module in modules])
    ]
    criteria = [criterion for module in modules for criterion in _criteria(module)]
    if (measure := measure_of_catboost(program.main.tree, program.imported_names)) is not None:
        criteria.append(Criterion(frozenset(("test",)), guessed_goal(measure)))
    monitored = [*_monitored_in(options), *_monitored_by_callbacks(program, modules, reported)]
    for metric, goal in dict(monitored).items():
        reported.append(
            Reported(
                metric,
                "",
                _way_of_monitored(metric, reported, program),
                _LAST,
                is_of_main=False,
                is_monitored=True,
            )
        )
        criteria.append(Criterion(normal_words(metric_words(metric)), goal))
    objective = _of_names(reported, criteria, program)
    for name, goal in _directions_in(options):
        if not name or name & set(metric_words(objective.metric)):
            return replace(objective, goal=goal, reason="an option of the script")
    return objective


_IS_BETTER = re.compile(r"_?(?P<way>higher|greater|larger|bigger|lower|smaller)_is_better$")


def _directions_in(options: Iterable[ScriptOption]) -> Iterator[tuple[frozenset[str], Goal]]:
    """Yield what options such as `eval_score_higher_is_better` say: of what, and in which way."""
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


def _switched_off(options: Iterable[ScriptOption]) -> frozenset[str]:
    """Return the switches that are off by default, without those of evaluations and logs."""
    return frozenset(
        option.name.rpartition(".")[2].replace("-", "_")
        for option in options
        if option.is_flag
        and option.default is False
        and option.way in ("switch", "both", "python")
        and not set(name_words(option.name)) & (SPLIT_WORDS | _OF_SERVICES)
    )


_OF_SERVICES = frozenset(("wandb", "tensorboard", "tb", "log", "use", "verbose", "print"))


class _AsByDefault(ast.NodeTransformer):
    """Leaves out what a program does if a switch is on that is off by default."""

    def __init__(self, off: frozenset[str]) -> None:
        self._off = off

    def visit_If(self, node: ast.If) -> Any:
        self.generic_visit(node)
        match node.test:
            case ast.Attribute(value=ast.Name(), attr=flag) if flag in self._off:
                return node.orelse or ast.copy_location(ast.Pass(), node)
            case ast.UnaryOp(op=ast.Not(), operand=ast.Attribute(value=ast.Name(), attr=flag)) if (
                flag in self._off
            ):
                return node.body
        return node


def _parts_by_default(module: Module, off: frozenset[str]) -> list[ast.Module]:
    """Return the parts of a module without what switches turn on, or none if it has no such one."""
    if not any(f".{flag}" in module.text for flag in off):
        return []
    tree = _AsByDefault(off).visit(_WithoutErrors().visit(ast.parse(module.text)))
    return [part for _, part in _parts(tree)]


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


def _monitored_in(options: Iterable[ScriptOption]) -> Iterator[tuple[str, Goal | None]]:
    """Yield the metrics by which a configuration keeps the best model, and their goals."""
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


def _monitored_by_callbacks(
    program: ProgramSource, modules: Iterable[Module], reported: list[Reported]
) -> Iterator[tuple[str, Goal | None]]:
    """Yield what callbacks monitor, in a source or in a configuration file.

    Callbacks of the program itself count if it seems to report nothing of what they monitor.
    """
    for module in modules:
        texts = _texts_of(module)
        for node in walk(module.tree):
            if not isinstance(node, ast.Call) or called_name(node) not in _MONITORS:
                continue
            given = {word.arg: texts.get(word.value) for word in node.keywords if word.arg}
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


def _texts_of(module: Module) -> StaticValues:
    """Return what the variables of a module hold, those of its functions included."""
    values = StaticValues()
    values.learn(module.tree.body)
    for node in walk(module.tree):
        if isinstance(node, ast.FunctionDef | ast.If):
            values.learn(node.body)
    return values


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


def _result_names(modules: Iterable[Module]) -> list[str]:
    """Return the names of results that functions of a program put into dicts."""
    names: list[str] = []
    for node in (node for module in modules for node in walk(module.tree)):
        match node:
            case (
                ast.Return(value=ast.Dict(keys=keys))
                | ast.Call(func=ast.Attribute(attr="append"), args=[ast.Dict(keys=keys)])
            ):
                known = [literal_of(key) for key in keys]
            case ast.Assign(targets=[target], value=ast.Dict(keys=keys)) if (
                set(name_words(last_name(target))) & _OF_RESULTS
            ):
                known = [literal_of(key) for key in keys]
            case _:
                continue
        if known and all(isinstance(name, str) for name in known):
            names += [name for name in known if any(map(kind_of_metric, metric_words(name)))]
    return list(dict.fromkeys(names))[:_MAX_RESULTS]


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


# What a program reports.


def _in_module(
    module: Module, calls: _Calls, results: list[str], own_classes: frozenset[str] | None
) -> Iterator[Reported]:
    """Yield what a module reports.

    Args:
        module: The module.
        calls: What its functions are called with.
        results: What the program measures.
        own_classes: The classes of the program that are no Trainer of Hugging Face. None if what
            such a Trainer prints in this module is of no interest.
    """
    place = 0
    tree = _WithoutErrors().visit(ast.parse(module.text))
    dicts = texts_of_dicts(tree)
    given = calls.words
    of_objects = _constants_of(tree) | _words_of_attributes(tree, given)
    of_splits = {
        name: words
        for name, words in looped_words(tree).items()
        if any(map(split_word, (part for word in words for part in name_words(word))))
    }
    by_default = _parts_by_default(module, calls.off)
    for place_of_part, (name, part) in enumerate(_parts(tree)):
        body = part.body
        words = _words_of_loops(part, of_splits, results)
        words |= {**of_objects, **given.get(name, {})}
        for node in walk(part):
            if isinstance(node, ast.FunctionDef):
                words |= given.get(node.name, {})
        own = {
            **dicts,
            **texts_of_dicts(part, dicts, calls.dicts.get(name, {}), words),
        }  # other functions may use the same names
        printed = printed_names(part, words, own)
        printed |= dict.fromkeys(_meters(part), True)
        shown = set(printed)
        for own_part in by_default[place_of_part : place_of_part + 1]:
            shown = {*printed_names(own_part, words, own), *_meters(own_part)}
        inner = _inner_functions(body, words, own)
        values = _Values(part, words, own)
        of_best = _only_improved(body)
        for metric, is_number in printed.items():
            if values.is_option(metric):
                continue
            shown_in = inner.get(metric, name)
            kept = values.kept_as(metric, {name, shown_in}, calls.kept)
            known = Reported(
                metric,
                shown_in,
                "print",
                place,
                is_number=is_number,
                is_of_best=metric in of_best,
                measured=values.words_of(metric),
                is_kept=kept is not None,
                goal=None if kept is None else kept.goal,
                is_off=metric not in shown,
            )
            for data in values.data_of(metric):
                place += 1
                yield replace(known, place=place, origin=data)
        prefixes = {**words, **looped_words(part)}
        logged = itertools.chain(
            _each(names_of_bars(part, prefixes), "print"),
            _each(_drawn(part, prefixes, own, calls.curves), "tensorboard"),
            _logged(part, words, own),
            _each(
                _returned_by_step(part, words) if ".log_dict(" in module.text else (), "lightning"
            ),
        )
        for metric, way in logged:
            place += 1
            yield Reported(metric, name, way, place)
    for metric in _of_whole_module(tree, own_classes):
        place += 1
        yield replace(metric, place=place)


def _each(names: Iterable[str], way: Way) -> Iterator[tuple[str, Way]]:
    """Yield names, each with the way in which it is reported."""
    for name in names:
        yield name, way


def _constants_of(tree: ast.Module) -> dict[str, list[str]]:
    """Return the texts that a module assigns once at its top: `METRIC = "auroc"`."""
    texts: dict[str, list[str]] = {}
    for node in tree.body:
        match node:
            case ast.Assign(
                targets=[ast.Name(id=name)], value=ast.Constant(value=str() as text)
            ) if re.fullmatch(r"[\w/.@-]+", text):
                texts.setdefault(name, []).append(text)
    return {name: known for name, known in texts.items() if len(known) == 1}


def _inner_functions(
    body: list[ast.stmt], words: Mapping[str, list[str]], dicts: Mapping[str, str]
) -> dict[str, str]:
    """Return the functions in a function that print metrics, by the metrics.

    A function such as `do_train` may have one for each event, such as `log_validation_results`.
    """
    inner = [
        node
        for statement in body
        for node in walk(statement)[1:]
        if isinstance(node, ast.FunctionDef)
    ]
    return {
        metric: function.name
        for function in inner
        for metric in printed_names(ast.Module([_without_docstring(function)], []), words, dicts)
    }


class _Values:
    """What the printed values of a part of a program are computed from."""

    def __init__(
        self, part: ast.Module, words: Mapping[str, list[str]], dicts: Mapping[str, str]
    ) -> None:
        self._printed = origins_of(part, words, dicts)
        self._origins = Origins(part.body)

    def is_option(self, metric: str) -> bool:
        """Return whether only an option is printed as a metric: `print(f"loss: {args.loss}")`."""
        values = [value.expression for value in self._printed.get(metric, [])]
        return bool(values) and all(
            isinstance(value, ast.Attribute)
            and last_name(value.value) in _HOLD_OPTIONS
            and not any(map(kind_of_metric, name_words(value.attr)))
            for value in values
        )

    def words_of(self, metric: str) -> frozenset[str]:
        """Return the words of what is printed as a metric, with `acc` for a share in percent."""
        values = self._printed.get(metric, [])
        return frozenset(
            word
            for value in values
            for words in itertools.islice(self._origins.words_of(value.expression), 1)
            for word in (*words, *(["acc"] if value.is_share else []))
        )

    def kept_as(self, metric: str, functions: Iterable[str], kept: KeptValues) -> KeptValue | None:
        """Return how the best model is kept by what is printed as a metric, None if it is not."""
        matches = [
            match
            for value in self._printed.get(metric, [])
            for function in functions
            if (match := kept.find(function, value.expression)) is not None
        ]
        return matches[0] if matches else None

    def data_of(self, metric: str) -> list[str]:
        """Return the parts of the data that a metric comes from, "" where that is not clear."""
        values = self._printed.get(metric, [])
        return sorted({_data_of(self._origins.words_of(value.expression)) for value in values}) or [
            ""
        ]


def _data_of(steps: Iterable[frozenset[str]]) -> str:
    """Return the part of the data that the nearest step to a value names, "" if that is unclear."""
    for words in steps:
        named = words - {"eval"} if words & (TEST_WORDS | {"train", "training"}) else words
        parts = [
            part
            for part, known in (
                ("train", {"train", "training", "trainloader", "trainset"}),
                ("test", TEST_WORDS | _OF_EVALUATION_LOADERS),
                ("validation", VALIDATION_WORDS | {"valloader", "validloader", "valset"}),
            )
            if named & known
        ]
        if parts:
            return parts[0] if len(parts) == 1 else ""
    return ""


def _words_of_loops(
    part: ast.Module, of_splits: Mapping[str, list[str]], results: list[str]
) -> dict[str, list[str]]:
    """Return what the variables of loops over unknown dicts stand for.

    They are the parts of the data that a loop elsewhere in the module gives to the same variable,
    or else what the program measures: `for name, value in metrics.items()`.
    """
    words: dict[str, list[str]] = {}
    for node in walk(part):
        if not isinstance(node, ast.For | ast.comprehension):
            continue
        target = node.target.elts[0] if isinstance(node.target, ast.Tuple) else node.target
        owner = node.iter
        match owner:
            case ast.Call(func=ast.Attribute(attr="items" | "keys" | "sorted", value=inner)):
                owner = inner
            case ast.Call(func=ast.Name(id="items" | "keys" | "sorted"), args=[inner, *_]):
                owner = inner
        name = last_name(target)
        if name in of_splits:
            words[name] = of_splits[name]
        elif name and results and set(name_words(last_name(owner))) & _OF_RESULTS:
            words[name] = results
    return words


def _of_whole_module(tree: ast.Module, own_classes: frozenset[str] | None) -> Iterator[Reported]:
    """Yield what no single statement prints: what libraries do, and columns of files."""
    for metric in names_in_headers(tree):
        yield Reported(metric, "", "print", 0)
    for metric in _in_evaluations(tree):
        yield Reported(metric, "", "print", 0, is_number=False)
    yield from _in_columns(tree)
    for metric in [] if own_classes is None else names_of_trainer(tree, own_classes):
        context = "evaluate" if metric.startswith("eval_") else ""
        yield Reported(metric, context, "print", 0)


@dataclass(frozen=True)
class _Calls:
    """What the functions of a program are called with.

    Attributes:
        words: The parts of the data that calls name: by function, then by parameter.
        dicts: The texts of dicts: by function, then by parameter.
        curves: The functions that draw curves, with the places of the name and of the dict.
        kept: By which values it keeps its best model.
        off: Its switches that are off.
    """

    words: _Given
    dicts: Mapping[str, Mapping[str, str]]
    curves: Mapping[str, tuple[int, int]]
    kept: KeptValues
    off: frozenset[str] = frozenset()


_Given = dict[str, dict[str, list[str]]]
"""The parts of the data that calls name: by function, then by parameter."""


def _words_given(modules: list[Module]) -> _Given:
    """Return which parts of the data functions are called with, as in `show("Validation", loss)`.

    Classes are functions as well: `Logger(name="val")`.
    """
    parameters = _all_parameters(modules)
    tags = {(name, tag) for module in modules for name, tag in _tags_of_functions(module.tree)}
    given: _Given = _words_by_default(modules)
    for module in modules:
        lists = {
            last_name(node.targets[0]): node.value.elts
            for node in walk(module.tree)
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.List | ast.Tuple)
        }
        looped = looped_words(module.tree)
        for call in walk(module.tree):
            if not isinstance(call, ast.Call) or (name := called_name(call)) not in parameters:
                continue
            passed = [*zip(parameters[name], call.args, strict=False)]
            passed += [(word.arg, word.value) for word in call.keywords if word.arg]
            for parameter, value in passed:
                words = given.get(name, {}).get(parameter, [])
                new = [*words, *_split_words(value, lists, looped)]
                if (name, parameter) in tags:
                    new += static_texts(value, looped)
                if new:
                    given.setdefault(name, {})[parameter] = list(dict.fromkeys(new))
    return given


def _all_parameters(modules: Iterable[Module]) -> dict[str, list[str]]:
    return {
        name: names
        for module in modules
        for node in walk(module.tree)
        for name, names in _parameters_of(node)
    }


def _dicts_given(modules: list[Module]) -> dict[str, dict[str, str]]:
    """Return the texts of the dicts that functions are called with."""
    parameters = _all_parameters(modules)
    whole = {name: text for m in modules for name, text in texts_of_dicts(m.tree).items()}
    given: dict[str, dict[str, str]] = {}
    for module in modules:
        for name, dicts in dicts_given(module.tree, parameters, whole).items():
            known = given.setdefault(name, {})
            known |= {
                parameter: text for parameter, text in dicts.items() if parameter not in known
            }
    return given


def _curves_of_functions(modules: list[Module]) -> dict[str, tuple[int, int]]:
    """Return the functions that give a name and a dict to `add_scalars`, and their places."""
    curves = {"add_scalars": (0, 1)}
    for function in (node for module in modules for node in walk(module.tree)):
        for name, parameters in _parameters_of(function):
            for call in walk(function):
                match call:
                    case ast.Call(
                        func=ast.Attribute(attr="add_scalars"),
                        args=[ast.Name(id=tag), ast.Name(id=values), *_],
                    ) if tag in parameters and values in parameters:
                        curves[name] = parameters.index(tag), parameters.index(values)
    return curves


def _tags_of_functions(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Yield the functions that pass on a name to a logger, and the parameters that it is from."""
    for function in walk(tree):
        if not isinstance(function, ast.FunctionDef):
            continue
        for call in walk(function):
            if isinstance(call, ast.Call) and called_name(call) in _REPORTED and call.args:
                for part in walk(call.args[0]):
                    if isinstance(part, ast.Name):
                        yield function.name, part.id


def _words_by_default(modules: list[Module]) -> _Given:
    """Return the parts of the data that are defaults: `def evaluate(data, kind="Valid")`."""
    given: _Given = {}
    for module in modules:
        for node in walk(module.tree):
            if not isinstance(node, ast.FunctionDef):
                continue
            arguments = [*node.args.posonlyargs, *node.args.args]
            defaults = node.args.defaults
            with_default = arguments[len(arguments) - len(defaults) :]
            for argument, default in zip(with_default, defaults, strict=True):
                if words := _split_words(default, {}, {}):
                    given.setdefault(node.name, {})[argument.arg] = words
    return given


def _split_words(
    value: ast.expr, lists: Mapping[str, list[ast.expr]], looped: Mapping[str, list[str]]
) -> list[str]:
    """Return the words that an argument may be, if one of them names a part of the data."""
    match value:
        case ast.Name(id=name) if name in looped:
            words = looped[name]
        case ast.Subscript(value=owner):
            words = [literal_of(item) for item in lists.get(last_name(owner), [])]
        case _:
            words = [literal_of(value)]
    known = [word for word in words if isinstance(word, str)]
    return known if any(split_word(word.strip(" :_-[]/")) for word in known) else []


def _parameters_of(node: ast.AST) -> Iterator[tuple[str, list[str]]]:
    """Yield the parameters of a function, or those that objects of a class are made with."""
    match node:
        case ast.FunctionDef(name=name, args=arguments):
            names = [argument.arg for argument in arguments.args]
            yield name, names[1:] if names[:1] == ["self"] else names
        case ast.ClassDef(name=name, body=body):
            for method in body:
                if isinstance(method, ast.FunctionDef) and method.name == "__init__":
                    yield name, [argument.arg for argument in method.args.args[1:]]


def _words_of_attributes(tree: ast.Module, given: _Given) -> dict[str, list[str]]:
    """Return the parts of the data that objects keep: `self.name`, if `name` names one."""
    return {
        dotted_name(node.targets[0]): words
        for owner in tree.body
        if isinstance(owner, ast.ClassDef) and owner.name in given
        for node in walk(owner)
        if isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Name)
        and (words := given[owner.name].get(node.value.id))
    }


def _only_improved(body: list[ast.stmt]) -> set[str]:
    """Return the names that are only printed as a change: `loss decreased (0.5 --> 0.4)`."""
    changes: dict[bool, set[str]] = {True: set(), False: set()}
    if not any(_IMPROVED.search(ast.unparse(statement)) for statement in body):
        return set()
    for node in (inner for statement in body for inner in walk(statement)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            text = ast.unparse(node)
            changes[_IMPROVED.search(text) is not None].update(printed_names(text))
    return changes[True] - changes[False]


def _in_written_lines(modules: list[Module]) -> Iterator[Reported]:
    """Yield what the main program writes as lines of JSON: `{**{f"test_{k}": v ...}}`."""
    file = next((name for name in map(_file_of_lines, walk(modules[0].tree)) if name), None)
    if file is None:
        return
    prefixes = [
        str(key.values[0].value)
        for node in walk(modules[0].tree)
        if isinstance(node, ast.DictComp)
        and isinstance(key := node.key, ast.JoinedStr)
        and isinstance(key.values[0], ast.Constant)
    ]
    for prefix in dict.fromkeys(prefixes):
        splits = _TRAIN if "train" in prefix else VALIDATION_WORDS | TEST_WORDS
        names = [name for module in modules for name in _averaged(module.tree, splits)]
        for name in dict.fromkeys(names):
            yield Reported(f"{prefix}{name}", "", "jsonl", _LAST, file=file)


def _in_evaluations(tree: ast.Module) -> Iterator[str]:
    """Yield the keys of dicts that functions return, if they are about an evaluation: `eval_loss`.

    A library prints them, or the program in a loop over what the library returned.
    """
    for node in walk(tree):
        if not isinstance(node, ast.Return) or not isinstance(node.value, ast.Dict):
            continue
        for key in map(literal_of, node.value.keys):
            if isinstance(key, str) and re.match(r"(?:eval|val|valid|dev)_\w+$", key):
                yield key


def _in_columns(tree: ast.Module) -> Iterator[Reported]:
    """Yield the columns of the CSV files that a module writes."""
    if not any(
        isinstance(node, ast.Constant) and str(node.value).endswith(".csv") for node in walk(tree)
    ):
        return
    lists = {
        last_name(node.targets[0]): node.value
        for node in walk(tree)
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.List | ast.Tuple)
    }
    tables = _names_of_tables(tree)
    for node in walk(tree):
        columns = [name.strip() for name in _columns_in(node, lists, tables)]
        scores = [c for c in columns if any(is_measure_word(word) for word in metric_words(c))]
        losses = [
            c for c in columns if any(kind_of_metric(word) == "loss" for word in metric_words(c))
        ]
        # Scores in a table with losses of validation data are those of validation data as well,
        # and such losses are parts of one: val/box_loss.
        validates = any(set(metric_words(loss)) & VALIDATION_WORDS for loss in losses)
        for column in scores if scores and validates else [*scores, *losses]:
            context = "validate" if validates and column in scores else ""
            yield Reported(column, context, "csv", 0)


def _names_of_tables(tree: ast.Module) -> frozenset[str]:
    """Return the lists that a module makes a table of, to write it as a file."""
    if not any(isinstance(node, ast.Attribute) and node.attr == "to_csv" for node in walk(tree)):
        return frozenset()
    return frozenset(
        last_name(node.args[0])
        for node in walk(tree)
        if isinstance(node, ast.Call) and called_name(node) == "DataFrame" and node.args
    )


def _columns_in(
    node: ast.AST, lists: Mapping[str, ast.List | ast.Tuple], tables: frozenset[str]
) -> list[str]:
    """Return the column names that a node writes or lists: a header, or strings in a list.

    Args:
        node: The node.
        lists: The lists of its module, by name.
        tables: Those of which tables are made.
    """
    match node:
        case ast.Call(func=ast.Attribute(attr="writerow" | "append"), args=[given]) if _is_row(
            node, given, tables
        ):
            columns = _keys_of_row(given)
        case ast.Call(func=ast.Attribute(attr="writerow"), args=[row]):
            columns = _names_listed_in(row, lists)
        case ast.keyword(arg="fieldnames" | "columns", value=row):
            columns = _names_listed_in(row, lists)
        case ast.Call(func=ast.Attribute(attr="DictWriter"), args=[_, row, *_]):
            columns = _names_listed_in(row, lists)
        case ast.Assign(targets=[target], value=ast.List() | ast.Tuple() as row):
            is_header = re.search(r"keys|header|columns|fields|fieldnames", last_name(target), re.I)
            columns = [literal_of(item) for item in row.elts] if is_header else []
        case ast.Call(func=ast.Attribute(attr="write"), args=[ast.Constant(value=str() as text)]):
            is_header = re.fullmatch(r"\s*[A-Za-z][\w./ -]*(?:\s*,\s*[A-Za-z][\w./ -]*)+\s*", text)
            columns = text.split(",") if is_header else []
        case _:
            return []
    return columns if all(isinstance(column, str) for column in columns) else []


def _is_row(call: ast.Call, given: ast.expr, tables: frozenset[str]) -> bool:
    """Return whether a call writes a dict as a row, or adds it to what becomes a table."""
    is_dict = isinstance(given, ast.Dict) or (
        isinstance(given, ast.Call) and dotted_name(given.func) == "dict"
    )
    owner = call.func.value if isinstance(call.func, ast.Attribute) else None
    return is_dict and (called_name(call) == "writerow" or last_name(owner) in tables)


def _keys_of_row(row: ast.expr) -> list[str]:
    if isinstance(row, ast.Call):
        return [word.arg for word in row.keywords if word.arg]
    return [literal_of(key) for key in row.keys] if isinstance(row, ast.Dict) else []


def _names_listed_in(row: ast.expr, lists: Mapping[str, ast.List | ast.Tuple]) -> list[str]:
    name = last_name(row)
    row = lists.get(name, row) if name else row
    return [literal_of(item) for item in getattr(row, "elts", [])]


def _file_of_lines(node: ast.AST) -> str | None:
    """Return the name of a file to which a statement adds a line of JSON."""
    if not isinstance(node, ast.With) or "json.dumps" not in ast.unparse(node):
        return None
    texts = [
        part.value
        for item in node.items
        for part in walk(item.context_expr)
        if isinstance(part, ast.Constant) and isinstance(part.value, str)
    ]
    return next((text for text in texts if re.search(r"\.(?:txt|jsonl?|log)$", text)), None)


def _averaged(tree: ast.Module, splits: frozenset[str]) -> Iterator[str]:
    """Yield what functions for some data give to an object that averages metrics."""
    for name, part in _parts(tree):
        if not set(name_words(name)) & splits:
            continue
        for node in walk(part):
            if not isinstance(node, ast.Call) or called_name(node) != "update":
                continue
            owner = node.func.value if isinstance(node.func, ast.Attribute) else None
            if isinstance(owner, ast.Subscript) and last_name(owner.value) == "meters":
                meter = literal_of(owner.slice)
                if isinstance(meter, str):
                    yield meter
            elif re.search(r"metric|logger|meter", last_name(owner)):
                yield from (word.arg for word in node.keywords if word.arg)


class _WithoutErrors(ast.NodeTransformer):
    """Leaves out the texts of errors and warnings, which have no metrics."""

    def visit_Raise(self, node: ast.Raise) -> ast.stmt:
        return ast.copy_location(ast.Pass(), node)

    def visit_Expr(self, node: ast.Expr) -> ast.stmt:
        is_error = isinstance(node.value, ast.Call) and (
            called_name(node.value) in _ERRORS
            or re.search(r"stopping|not finite", ast.unparse(node.value)) is not None
        )
        return ast.copy_location(ast.Pass(), node) if is_error else node


def _parts(tree: ast.Module) -> Iterator[tuple[str, ast.Module]]:
    """Yield the functions of a module, and what is outside of them, with their names."""
    outside: list[ast.stmt] = []
    for statement in tree.body:
        match statement:
            case ast.FunctionDef(name=name):
                yield name, ast.Module([_without_docstring(statement)], [])
            case ast.ClassDef(body=inner):
                for method in inner:
                    if isinstance(method, ast.FunctionDef):
                        yield method.name, ast.Module([_without_docstring(method)], [])
            case _:
                outside.append(statement)
    yield "", ast.Module(outside, [])


def _without_docstring(function: ast.FunctionDef) -> ast.FunctionDef:
    has_docstring = ast.get_docstring(function, clean=False) is not None
    body = function.body[1:] if has_docstring else function.body
    return ast.FunctionDef(
        name=function.name,
        args=function.args,
        body=body or [ast.Pass()],
        decorator_list=[],
        lineno=function.lineno,
    )


def _meters(part: ast.Module) -> Iterator[str]:
    """Yield the names that are given to objects which print them, as AverageMeter does."""
    for node in walk(part):
        if not isinstance(node, ast.Call) or not node.args:
            continue
        name = literal_of(node.args[0])
        if ".metrics." in dotted_name(node.func) and "/" in str(name):
            yield str(name)  # an object of Keras, whose name says what it is about
        elif called_name(node).endswith("Meter") and isinstance(name, str):
            yield name.replace(" ", "_")


def _logged(
    part: ast.Module, words: Mapping[str, list[str]], dicts: Mapping[str, str]
) -> Iterator[tuple[str, Way]]:
    """Yield what is logged to a file, a service, or a table."""
    printed: Way = "print"
    prefixes = {**words, **looped_words(part)}
    for node in walk(part):
        if not isinstance(node, ast.Call):
            continue
        for named in _in_table(node, prefixes):
            yield named, printed
        for named in (*_in_keywords(node, dicts), *_in_loggers(node)):
            yield named, printed
        name = called_name(node)
        if name == "log" and not node.args and len(node.keywords) > 1:
            for word in node.keywords:
                yield str(word.arg), printed
        elif name in _REPORTED and node.args:
            way = _way_of(dotted_name(node.func).rpartition(".")[0], name)
            if way is None:
                continue
            for named in _tags(node, prefixes, dicts):
                yield _name_in_file(named, node, part.body, way), way
    yield from _in_scalars(part)
    yield from _in_documents(part, dicts)


def _tags(call: ast.Call, words: Mapping[str, list[str]], dicts: Mapping[str, str]) -> list[str]:
    """Return the names under which a call logs values."""
    first = call.args[0]
    if called_name(call) == "add_scalars":
        return []
    if isinstance(first, ast.Dict):  # with other dicts in it: `{"lr": lr, **logs}`
        inner = [value for key, value in zip(first.keys, first.values, strict=True) if key is None]
        return [
            *_names_in(first),
            *(name for value in inner for name in _keys_in_text(value, dicts)),
        ]
    return _names_in(first) or _keys_in_text(first, dicts) or static_texts(first, words)


def _returned_by_step(part: ast.Module, words: Mapping[str, list[str]]) -> Iterator[str]:
    """Yield the keys of a dict that a step returns, which begin with a part of the data.

    Lightning's `log_dict` gets it from `self._step(batch, "val")`.
    """
    function = part.body[0] if part.body else None
    if not isinstance(function, ast.FunctionDef) or "step" not in name_words(function.name):
        return
    for node in walk(part):
        if isinstance(node, ast.Return) and isinstance(node.value, ast.Dict):
            for key in node.value.keys:
                if isinstance(key, ast.JoinedStr):
                    yield from static_texts(key, words)


def _drawn(
    part: ast.Module,
    words: Mapping[str, list[str]],
    dicts: Mapping[str, str],
    curves: Mapping[str, tuple[int, int]],
) -> Iterator[str]:
    """Yield what is logged as curves of one picture: `add_scalars("loss", {"val": loss})`."""
    for call in walk(part):
        if not isinstance(call, ast.Call) or (called := called_name(call)) not in curves:
            continue
        if len(call.args) <= max(curves[called]):
            continue
        first, second = (call.args[place] for place in curves[called])
        keys = second.keys if isinstance(second, ast.Dict) else []
        drawn = [text for key in keys if key is not None for text in static_texts(key, words)]
        for name in [] if isinstance(first, ast.Name) else static_texts(first, words):
            yield from (f"{name}/{curve}" for curve in drawn or _keys_in_text(second, dicts))


def _in_documents(part: ast.Module, dicts: Mapping[str, str]) -> Iterator[tuple[str, Way]]:
    """Yield the keys of dicts that are written to files of JSON."""
    way: Way = "json"
    for node in walk(part):
        match node:
            case ast.Call(func=ast.Attribute(attr="dump"), args=[document, *_]):
                is_written = dotted_name(node.func) in ("json.dump", "ujson.dump")
            case ast.Call(
                func=ast.Attribute(attr="write" | "write_text"),
                args=[ast.Call(func=ast.Attribute(attr="dumps"), args=[document, *_])],
            ):
                is_written = "stdout" not in ast.unparse(node.func)
            case _:
                continue
        for named in _keys_in_document(document, dicts) if is_written else []:
            yield named, way


def _keys_in_document(document: ast.expr, dicts: Mapping[str, str]) -> list[str]:
    if isinstance(document, ast.Dict):
        return [name for name in map(literal_of, document.keys) if isinstance(name, str)]
    return _keys_in_text(document, dicts)


def _in_loggers(call: ast.Call) -> Iterator[str]:
    """Yield the keys of a dict that is given to a logger: `logger.add({...}, prefix="episode")`."""
    owner = dotted_name(call.func).rpartition(".")[0].rpartition(".")[2].lower()
    if not call.args or not isinstance(call.args[0], ast.Dict) or not _LOGGERS.search(owner):
        return
    given = {word.arg: literal_of(word.value) for word in call.keywords if word.arg}
    prefix = given.get("prefix")
    before = f"{prefix}/" if isinstance(prefix, str) and prefix else ""
    yield from (f"{before}{name}" for name in _names_in(call.args[0]))


def _in_scalars(part: ast.Module) -> Iterator[tuple[str, Way]]:
    """Yield the keys of dicts of scalars, which a function of the program writes in a loop."""
    way: Way = "tensorboard"
    for node in walk(part):
        if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Dict):
            continue
        if any("scalar" in last_name(target) for target in node.targets):
            for named in _names_in(node.value):
                yield named, way


def _names_in(first: ast.expr) -> list[str]:
    """Return the names in the first argument of a call that logs: a name, or the keys of a dict."""
    if isinstance(first, ast.Dict):
        names = [literal_of(key) for key in first.keys]
    else:
        names = [StaticValues().get(first)]
    return [name for name in names if isinstance(name, str)]


def _in_table(call: ast.Call, prefixes: Mapping[str, list[str]]) -> list[str]:
    """Return the names of a metric that is given to a logger of tables."""
    if called_name(call) not in _TABULAR or not call.args:
        return []
    owner = dotted_name(call.func).rpartition(".")[0].rpartition(".")[2]
    if owner in ("self", "math", "np", "torch", "mlflow", "wandb", "run"):
        return []
    words = {word.arg for word in call.keywords}
    if len(call.args) + len(words) < 2:
        return []
    match call.args[0]:
        case ast.BinOp(left=ast.Name(id=prefix), op=ast.Add(), right=ast.Constant(value=end)):
            names = [f"{word}{end}" for word in prefixes.get(prefix, [])]
        case first:
            names = [literal_of(first)]
    named = [name for name in names if isinstance(name, str) and " " not in name]
    is_average = any(str(word).startswith(("with_min", "average_only")) for word in words)
    return [f"Average{name}" if is_average else name for name in named]


def _in_keywords(call: ast.Call, dicts: Mapping[str, str]) -> Iterator[str]:
    """Yield what is logged with a word for the part of the data: `log_stats(valid_stats=stats)`."""
    if not called_name(call).startswith("log"):
        return
    for word in call.keywords:
        split = next((part for part in name_words(word.arg or "") if split_word(part)), None)
        if split is not None:
            yield from (f"{split}_{key}" for key in _keys_in_text(word.value, dicts))


def _keys_in_text(node: ast.expr, dicts: Mapping[str, str]) -> list[str]:
    """Return the keys of the dict that a variable holds."""
    return re.findall(r"'([^']+)': \{\}", dicts.get(dotted_name(node), ""))


def _way_of(owner: str, called: str) -> Way | None:
    last = owner.rpartition(".")[2].lower()
    if called in ("add_scalar", "add_scalars") or (called == "scalar" and last):
        return "tensorboard"
    if called in ("log_metric", "log_metrics"):
        return "mlflow" if last == "mlflow" else None
    if last in ("self", "pl_module") and called in ("log", "log_dict"):
        return "lightning"
    if "wandb" in last or last == "run":
        return "wandb"
    if last == "accelerator" and called == "log":
        return "print"  # the same values are usually printed, too
    return None


def _name_in_file(name: str, call: ast.Call, body: list[ast.stmt], way: Way) -> str:
    """Return the name as the file has it: Lightning adds an ending to what has two values."""
    if way != "lightning":
        return name
    given = {word.arg: literal_of(word.value) for word in call.keywords if word.arg}
    function = body[0].name if isinstance(body[0], ast.FunctionDef) else ""
    in_training = function == "training_step"
    on_step = given.get("on_step", in_training)
    on_epoch = given.get("on_epoch", not in_training)
    return f"{name}_epoch" if on_step and on_epoch else name


def _of_keras(trees: list[ast.Module]) -> Iterator[str]:
    """Yield what `fit` and `evaluate` of Keras print, wherever a program compiles its model.

    Args:
        trees: The parsed files of the program, itself first.
    """
    calls = [node for node in walk(trees[0]) if isinstance(node, ast.Call)]
    if not any(called_name(call) in ("fit", "fit_generator", "evaluate") for call in calls):
        calls = [node for tree in trees for node in walk(tree) if isinstance(node, ast.Call)]
    compiled = [
        {word.arg: word.value for word in node.keywords if word.arg}
        for tree in trees
        for node in walk(tree)
        if isinstance(node, ast.Call) and called_name(node) == "compile"
    ]
    given = next((c for c in compiled if {"loss", "metrics", "optimizer"} & c.keys()), None)
    if given is None:
        return
    names = ["loss"]
    listed = given.get("metrics")
    if isinstance(listed, ast.List | ast.Tuple):
        names += [_keras_name(node) for node in listed.elts]
    validates = any(
        called_name(call) in ("fit", "fit_generator")
        and {word.arg for word in call.keywords} & {"validation_data", "validation_split"}
        for call in calls
    )
    prefix = "val_" if validates else ""
    yield from (f"{prefix}{name}" for name in (*names[1:], names[0]) if name)


def _keras_name(node: ast.expr) -> str:
    if isinstance(node, ast.Constant):
        name = str(node.value)
        return {"acc": "acc", "mse": "mse", "mae": "mae"}.get(name, name)
    if isinstance(node, ast.Call):
        for word in node.keywords:
            if word.arg == "name" and isinstance(named := literal_of(word.value), str):
                return named
        return "_".join(name_words(called_name(node)))
    return ""


def _of_other_language(program: ProgramSource) -> list[Reported]:
    """Return the names before values that a program in another language prints."""
    text = program.text
    reported: list[Reported] = []
    if program.interpreter == COMPILER:
        return [
            Reported(name, "", "print", place)
            for place, line in lines_of_compiled(text)
            for name in printed_names(f"print({line!r})")
        ]
    printing = re.compile(
        r"\b(?:cat|print|println|printf|echo|message|paste0?|sprintf|@printf|@info|cout\s*<<)"
        r"(?!\w)(.*)"
    )
    for place, match in enumerate(printing.finditer(text)):
        quoted = re.findall(r"\"((?:[^\"\\]|\\.)*)\"|'((?:[^'\\]|\\.)*)'", match[1])
        for literal in (double or single for double, single in quoted):
            line = re.sub(r"%[-+ #0]*[\d.*]*[dfeEgGs]|\$\{?\w+\}?|\$\([^)]*\)", "{:f}", literal)
            if not re.search(r"\{:f\}", line) and re.search(r"[=:\t ]\s*$", line):
                line = f"{line}{{:f}}"
            if "{:f}" in line:
                source = f"print({line!r})"
                reported += [Reported(name, "", "print", place) for name in printed_names(source)]
    reported += [Reported(name, "", "print", _LAST) for name in _of_libraries_in_r(text)]
    for match in re.finditer(r"@(?:info|show)[ \t]+(?:\"[^\"\n]*\"[ \t]+)?([^\"\n;#]+)", text):
        # Julia prints the names of variables with their values.
        names = re.findall(r"(?<![\w.(])([^\W\d]\w*)(?![\w.(])(?=\s|$|,)", match[1])
        reported += [Reported(name, "", "print", match.start()) for name in names]
    return reported


def _of_libraries_in_r(text: str) -> Iterator[str]:
    """Yield what `fit` of Keras and `xgb.train` print in R."""
    if re.search(r"\bfit\s*\(", text) and re.search(r"\bcompile\s*\(", text):
        validates = re.search(r"validation_(?:split|data)\s*=", text)
        listed = re.search(r"\bmetrics\s*=\s*(?:c|list)?\(?([^)\n]*)", text)
        named = re.findall(r"['\"]([\w ]+)['\"]", listed[1]) if listed is not None else []
        yield from (f"val_{name}" if validates else name for name in (*named, "loss"))
    watched = re.search(r"\b(?:watchlist|evals|valids)\s*(?:=|<-)\s*list\(([^)]*)", text)
    measure = re.search(r"\beval_metric\s*=\s*['\"]([\w@]+)", text)
    if watched is not None and measure is not None:
        names = re.findall(r"(\w+)\s*=", watched[1])
        yield from (f"{name}-{measure[1]}" for name in names)


# By what a program keeps its best model.


def _criteria(module: Module) -> Iterator[Criterion]:
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


# Where a metric is read.


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
