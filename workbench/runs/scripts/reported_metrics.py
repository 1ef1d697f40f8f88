"""The metrics that a program reports: in printed lines, to loggers, in tables and in files.

Which names a printed line has is left to `script_metrics`, and what functions are called with to
`given_words`.
"""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from workbench.runs.scripts.compiled_programs import lines_of_compiled
from workbench.runs.scripts.given_words import REPORTING_METHODS, Calls, Given
from workbench.runs.scripts.objective_ranking import (
    SPLIT_WORDS,
    TEST_WORDS,
    VALIDATION_WORDS,
    Reported,
    Way,
    is_measure_word,
    metric_words,
)
from workbench.runs.scripts.program_source import (
    COMPILER,
    Module,
    ProgramSource,
    parse_python,
)
from workbench.runs.scripts.script_metrics import (
    looped_words,
    names_in_headers,
    names_of_bars,
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
from workbench.training.programs.metric_names import TRAINS, kind_of_metric, split_word

_TRAIN = frozenset((*TRAINS, "tr", "running", "batch", "step", "iter"))
_OF_EVALUATION_LOADERS = frozenset(("testloader", "testset", "testdata"))
_TABULAR = (
    *("log", "logkv", "logkv_mean", "record", "record_mean", "log_tabular", "record_tabular"),
    *("log_scalar", "write_scalar", "report_scalar", "report", "add_metric"),
    *("log_stat", "log_value", "add_stat", "record_stat"),
)
"""Methods that take the name of a metric and its value, and usually print a table."""
_LOGGERS = re.compile(r"^(?:\w+_)?(?:logger|tracker|reporter)$")
_ERRORS = ("warning", "warn", "error", "exception", "debug", "critical", "exit")
_IMPROVED = re.compile(
    r"\b(?:improved|decreased|increased|reduced|dropped)\b.*?(?:-+>|=>|\u2192|\bto\b)", re.DOTALL
)
_OF_RESULTS = frozenset(
    ("metric", "metrics", "result", "results", "score", "scores", "stat", "stats", "log", "logs")
)
"""Words of dicts that hold what a program measures."""
_MAX_RESULTS = 12
_HOLD_OPTIONS = frozenset(
    ("args", "opt", "opts", "options", "flags", "FLAGS", "cfg", "config", "conf", "hparams", "hps")
)
LAST_PLACE = 10_000
"""The place of what only a configuration names."""
_OF_SERVICES = frozenset(("wandb", "tensorboard", "tb", "log", "use", "verbose", "print"))


def switched_off(options: Iterable[ScriptOption]) -> frozenset[str]:
    """Return the switches that are off by default, without those of evaluations and logs.

    Args:
        options: The options of a program.
    """
    return frozenset(
        option.name.rpartition(".")[2].replace("-", "_")
        for option in options
        if option.is_flag
        and option.default is False
        and option.way in ("switch", "both", "python")
        and not set(name_words(option.name)) & (SPLIT_WORDS | _OF_SERVICES)
    )


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
    tree = _AsByDefault(off).visit(_WithoutErrors().visit(parse_python(module.path, module.text)))
    return [part for _, part in _parts(tree)]


def result_names(modules: Iterable[Module]) -> list[str]:
    """Return the names of results that functions of a program put into dicts.

    Args:
        modules: The modules of the program.
    """
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


def metrics_in_module(
    module: Module, calls: Calls, results: list[str], own_classes: frozenset[str] | None
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
    tree = _WithoutErrors().visit(parse_python(module.path, module.text))
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


def _words_of_attributes(tree: ast.Module, given: Given) -> dict[str, list[str]]:
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


def metrics_in_written_lines(modules: list[Module]) -> Iterator[Reported]:
    """Yield what the main program writes as lines of JSON: `{**{f"test_{k}": v ...}}`.

    Args:
        modules: The modules of the program, itself first.
    """
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
            yield Reported(f"{prefix}{name}", "", "jsonl", LAST_PLACE, file=file)


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
        elif name in REPORTING_METHODS and node.args:
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


def metrics_of_keras(trees: list[ast.Module]) -> Iterator[str]:
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


def metrics_in_other_language(program: ProgramSource) -> list[Reported]:
    """Return the names before values that a program in another language prints.

    Args:
        program: The program.
    """
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
    reported += [Reported(name, "", "print", LAST_PLACE) for name in _of_libraries_in_r(text)]
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
