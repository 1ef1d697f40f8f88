"""The metrics that a script prints, as its source shows. The script is read, never run.

They are names in a text after which a value is put in, keys of dicts that are printed, and what the
Trainer of Hugging Face prints. What may hold several values, such as the scores of all folds, is
not a metric: a run reads one number.
"""

from __future__ import annotations

import ast
import itertools
import math
import re
from collections import Counter
from collections.abc import Callable, Container, Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from workbench.runs.scripts.script_options import called_name, name_words, walk
from workbench.runs.scripts.static_values import (
    NotStatic,
    StaticValues,
    literal_of,
)
from workbench.training.programs.constants import dotted_name
from workbench.training.programs.metric_names import (
    data_rank,
    is_score,
    kind_of_metric,
    objectives_in,
    scoped,
    split_word,
)
from workbench.training.programs.printed_metrics import PrintedMetrics

_VALUE = re.compile(r"\{[^{}]*\}|%(?:\(\w+\))?[-+ #0]*[\d.*]*[dfeEgGs]")
"""The place of a value in a text."""
_FORMATTED = re.compile(r"\{[^{}]*:[^{}]*[eEfFgG%]\}|%(?:\(\w+\))?[-+ #0]*[\d.*]*[feEgG]")
"""The same as a number with a fraction, which counts and texts are not."""
_PLACE = re.compile(
    r"(?:\{[^{}:]*:|%(?:\(\w+\))?)(?:[^{}]?(?P<align>[<>^=]))?(?P<flags>[-+ #0]*)(?P<width>\d*)"
)
"""How wide the place of a value is, and where the value stands in it."""
_NUMBER, _ANYTHING, _SEVERAL = "{:f}", "{}", "[]"
"""How a value is marked: surely a number, anything, or never one number."""
_VALUE_OR_SEVERAL = re.compile(rf"{_VALUE.pattern}|\[\]")
_PLURAL = re.compile(r"(?:scores|losses|accuracies|accs|errors|aucs|f1s|mses|maes)$", re.IGNORECASE)
_OF_ALL_FOLDS = re.compile(r"(?:^|_)(?:mean|avg|average|cv)(?:_|$)", re.IGNORECASE)
_OF_ONE_FOLD = re.compile(r"\bfold\b", re.IGNORECASE)
_MAKE_NUMBERS = ("round", "float", "item", "mean", "average", "median")
_MAKE_SEVERAL = (
    "cross_val_score",
    "cross_validate",
    "confusion_matrix",
    "classification_report",
    "list",
    "tuple",
    "dict",
    "sorted",
    "tolist",
    "array",
    "asarray",
    "zeros",
    "ones",
    "empty",
)
_HOLD_SEVERAL = (ast.List, ast.Tuple, ast.Dict, ast.Set, ast.ListComp, ast.DictComp, ast.SetComp)
_FILL_DICTS = (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Call, ast.FunctionDef)
"""What may give a dict its keys."""
_COLORS = re.compile(r"(?i)^(?:colou?r\w*|red|green|blue|yellow|cyan|magenta|white|bold|styled?)$")
"""Functions that print a text in a color."""
_KEY = re.compile(r"'([^']+)': \{\}")
"""A key in the text of a dict."""
_CERTAIN = 0.5
_PRINT = ("print", "pprint", "info", "write", "echo")
_LOG = ("info", "debug", "warning", "critical", "log")
"""Methods of loggers that put values into a text: `logger.info("loss %.3f", loss)`."""
_TABLES = ("tabulate", "PrettyTable")
"""What makes a table of the names of its columns."""
_WITH_TRAINERS = ("transformers", "trl", "setfit", "sentence_transformers")
_WITH_AGENTS = ("stable_baselines3", "sb3_contrib", "sbx")
_MAX_LOOPED = 2
"""Maximum number of variables of one text that stand for words."""
_MAX_COMBINATIONS = 60
_NUM_PASSES = 3
"""Maximum number of steps between the dict and its printing, such as an update of it."""


def metrics_of(source: str) -> list[str]:
    """Return the losses and scores that a script seems to print, the best objective first.

    Metrics of validation data come first, then those of test data. Metrics of training data come
    last: they are no objective. Names that are surely printed as numbers come before others, and
    means before the values of one fold.

    Args:
        source: The source of the script, which is Python.

    Example:
        >>> from workbench.runs.scripts.script_metrics import metrics_of
        >>> metrics_of('print("Fold scores:", scores); print(f"Mean accuracy: {mean:.3f}")')
        ['Mean_accuracy']
    """
    tree = ast.parse(source)
    ranks = _ranks_of(tree, {}, {})
    for name in names_of_trainer(tree):
        ranks.setdefault(name, (True, False))
    good = [
        name
        for name, (is_uncertain, _) in ranks.items()
        if is_score(name) and not (is_uncertain and _PLURAL.search(name))
    ]
    order = {name: place for place, name in enumerate(objectives_in(good))}
    return sorted(
        good,
        key=lambda name: (
            data_rank(name),
            ranks[name][0],
            _OF_ALL_FOLDS.search(name) is None,
            ranks[name][1],
            order.get(name, len(order)),
        ),
    )


def printed_names(
    source: str | ast.Module,
    words: Mapping[str, list[str]] = MappingProxyType({}),
    dicts: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, bool]:
    """Return all names before values that a script seems to print, in their order.

    Each comes with whether its value surely is a number.

    Args:
        source: The script, which is Python.
        words: What variables stand for, such as a parameter that names the part of the data.
        dicts: How variables with dicts are printed, see `texts_of_dicts`.

    Example:
        >>> from workbench.runs.scripts.script_metrics import printed_names
        >>> printed_names('print(f"step={step} episodic_return={total:.1f}")')
        {'step': False, 'episodic_return': True}
    """
    tree = source if isinstance(source, ast.Module) else ast.parse(source)
    ranks = _ranks_of(tree, words, dicts)
    return {name: not is_uncertain for name, (is_uncertain, _) in ranks.items()}


def _ranks_of(
    tree: ast.Module, words: Mapping[str, list[str]], dicts: Mapping[str, str]
) -> dict[str, tuple[bool, bool]]:
    """Return the printed names: whether each may be no number, and is of one fold only."""
    several = set(_names_of_several(tree))
    ranks: dict[str, tuple[bool, bool]] = {}
    for text, name, is_number in _printed_names(_texts(tree, several, words, dicts)):
        rank = not is_number, _OF_ONE_FOLD.search(text) is not None
        ranks[name] = min(rank, ranks.get(name, rank))
    returned = _keys_of_functions(dicts)
    for name in names_in_dicts(tree, lambda node: _text(node, several) == _SEVERAL, returned):
        ranks.setdefault(name, (True, False))
    return ranks


def _texts(
    tree: ast.Module,
    several: Container[str],
    stands_for: Mapping[str, list[str]],
    dicts: Mapping[str, str],
) -> Iterator[str]:
    """Yield the texts of a source in their order, with a mark for each value that is put in."""
    yield from (text for text, _ in _texts_of_nodes(tree, several, stands_for, dicts))


def _texts_of_nodes(
    tree: ast.Module,
    several: Container[str],
    stands_for: Mapping[str, list[str]],
    dicts: Mapping[str, str],
) -> Iterator[tuple[str, ast.expr]]:
    """Yield the texts of a source, each with the expression that makes it."""
    marks = _marks_in(tree)
    looped = {
        name: words
        for name, words in {**stands_for, **looped_words(tree, dicts)}.items()
        if name not in marks
    }
    nodes = [node for node in walk(tree) if isinstance(node, ast.expr)]
    # A text that is a statement alone is a comment.
    inside: set[ast.AST] = {
        node.value
        for node in walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for value in _joined_elsewhere(tree, nodes, dicts):
        inside.update(walk(value))
    for node in sorted(nodes, key=lambda node: (node.lineno, node.col_offset, -_end_of(node))):
        if node in inside:
            continue
        parts = _parts_of_text(node)
        if not parts:
            continue
        inside.update(child for child in walk(node) if child is not node)
        names = {dotted_name(child) for child in walk(node)}
        used = [name for name in looped if name in names][:_MAX_LOOPED]
        combinations = itertools.product(*(looped[name] for name in used))
        for chosen in itertools.islice(combinations, _MAX_COMBINATIONS):
            words = {**marks, **dicts, **dict(zip(used, chosen, strict=True))}
            yield " ".join(_text(part, several, words) for part in parts), node


def _joined_elsewhere(
    tree: ast.Module, nodes: list[ast.expr], dicts: Mapping[str, str]
) -> Iterator[ast.expr]:
    """Yield the texts that are joined of known items and put into another text by a variable."""
    joined = {
        name: value
        for node in walk(tree)
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
        for name, value in [(node.targets[0].id, node.value)]
        if _place_of(value) in dicts
    }
    if not joined:
        return
    read = {
        name.id
        for node in nodes
        if _parts_of_text(node)
        for name in walk(node)
        if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Load)
    }
    yield from (value for name, value in joined.items() if name in read)


def texts_of_dicts(
    tree: ast.Module,
    whole: Mapping[str, str] = MappingProxyType({}),
    given: Mapping[str, str] = MappingProxyType({}),
    words: Mapping[str, list[str]] = MappingProxyType({}),
) -> dict[str, str]:
    """Return how the dicts of a source are printed, with a mark for each value.

    They are by the variables that hold them, and by the functions that return them: `stats()`.
    A text that is joined of the items of a dict has those items.

    Args:
        tree: The script, or a part of it.
        whole: The texts of the whole script, whose functions a part calls.
        given: The texts of the dicts that a part is called with, by parameter.
        words: What variables stand for, such as the keys of a dict that is not known.
    """
    several = set(_names_of_several(tree))
    dicts = _Dicts(
        tree,
        lambda node: _text(node, several) == _SEVERAL,
        _keys_of_functions(whole),
        {name: _KEY.findall(text) for name, text in given.items()},
    )
    texts = {**given} | {f"{name}()": _dict_text(keys) for name, keys in dicts.returned.items()}
    for node in walk(tree):
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                keys = list(dicts.keys_of(ast.Name(id=name)))
                if (joined := _joined_items(value, dicts, words)) is not None:
                    texts[name] = joined
                elif keys:
                    texts[name] = _dict_text(keys)
            case ast.Call(func=ast.Attribute(attr="join")):
                if (joined := _joined_items(node, dicts, words)) is not None:
                    texts[_place_of(node)] = joined
            case ast.arg(arg=name) if keys := list(dicts.keys_of(ast.Name(id=name))):
                texts[name] = _dict_text(keys)
    return texts


def static_texts(node: ast.expr, words: Mapping[str, list[str]]) -> list[str]:
    """Return all texts that an expression may be, or none if a part of it is not known.

    Args:
        node: The expression.
        words: What variables stand for.
    """
    names = {dotted_name(part) for part in walk(node)}
    used = [name for name in words if name in names][:_MAX_LOOPED]
    combinations = itertools.product(*(words[name] for name in used))
    texts = [
        _text(node, (), dict(zip(used, chosen, strict=True)))
        for chosen in itertools.islice(combinations, _MAX_COMBINATIONS)
    ]
    return [text for text in texts if text and text != _SEVERAL and not _VALUE.search(text)]


def dicts_given(
    tree: ast.Module, parameters: Mapping[str, list[str]], whole: Mapping[str, str]
) -> dict[str, dict[str, str]]:
    """Return the dicts that functions are called with: by function, then by parameter.

    Args:
        tree: The script.
        parameters: The parameters of the functions.
        whole: The texts of the dicts of the script, see `texts_of_dicts`.
    """
    dicts = _Dicts(tree, lambda _: False, _keys_of_functions(whole))
    keys: dict[tuple[str, str], list[str]] = {}
    for call in walk(tree):
        if not isinstance(call, ast.Call) or (name := called_name(call)) not in parameters:
            continue
        passed = [*zip(parameters[name], call.args, strict=False)]
        passed += [(word.arg, word.value) for word in call.keywords if word.arg]
        for parameter, value in passed:
            if new := list(dicts.keys_of(value)):
                keys.setdefault((name, parameter), []).extend(new)
    given: dict[str, dict[str, str]] = {}
    for (name, parameter), known in keys.items():
        given.setdefault(name, {})[parameter] = _dict_text(list(dict.fromkeys(known)))
    return given


def _keys_of_functions(texts: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the keys of the dicts that functions return, of the texts of all dicts."""
    return {
        name.removesuffix("()"): _KEY.findall(text)
        for name, text in texts.items()
        if name.endswith("()")
    }


def _place_of(node: ast.expr) -> str:
    """Return a name for an expression that has none: its place in the source."""
    return f"{node.lineno}:{node.col_offset}"


def _dict_text(keys: list[str]) -> str:
    return "{" + ", ".join(f"'{key}': {_ANYTHING}" for key in keys) + "}"


def _joined_items(node: ast.expr, dicts: _Dicts, words: Mapping[str, list[str]]) -> str | None:
    """Return the text of `", ".join(f"{k}: {v}" for k, v in metrics.items())`, or None.

    The pairs may also be in a list of tuples, which `map(lambda pair: ..., pairs)` goes over.
    """
    match node:
        case ast.Call(
            func=ast.Attribute(attr="join", value=ast.Constant(value=str() as between)),
            args=[ast.Call(func=ast.Name(id="map"), args=[ast.Lambda() as written, pairs])],
        ):
            lines = [_text_of_pair(written, key) for key in dicts.keys_of(pairs)]
            return between.join(filter(None, lines)) or None
    match node:
        case ast.Call(
            func=ast.Attribute(attr="join", value=ast.Constant(value=str() as between)),
            args=[
                ast.ListComp(elt=element, generators=[items])
                | ast.GeneratorExp(elt=element, generators=[items])
            ],
        ):
            pass
        case _:
            return None
    match items:
        case ast.comprehension(
            target=ast.Tuple(elts=[ast.Name(id=key), _]),
            iter=(
                ast.Call(func=ast.Attribute(attr="items", value=ast.expr() as owner))
                | ast.Call(
                    func=ast.Name(id="sorted" | "list" | "reversed"),
                    args=[ast.Call(func=ast.Attribute(attr="items", value=ast.expr() as owner))],
                )
            ),
        ):
            names = list(dicts.keys_of(owner)) or words.get(key, [])
            lines = [_text(element, (), {key: name}) for name in names]
            return between.join(lines) or None
    return None


def _text_of_pair(written: ast.Lambda, key: str) -> str | None:
    """Return what `lambda pair: f"{pair[0]}: {pair[1]:.2f}"` makes of a name and any value."""
    match written:
        case ast.Lambda(
            args=ast.arguments(args=[ast.arg(arg=name)]),
            body=ast.JoinedStr(values=[ast.FormattedValue(value=first), *others]),
        ) if ast.unparse(first) == f"{name}[0]":
            return _text(ast.JoinedStr([ast.Constant(key), *others]), ())
    return None


def _end_of(node: ast.expr) -> int:
    return (node.end_lineno or 0) * 10_000 + (node.end_col_offset or 0)


def _parts_of_text(node: ast.expr) -> list[ast.expr]:
    """Return the expressions that make a text, or none if it has no value and is not printed."""
    match node:
        case ast.Call(func=ast.Name(id="print")):
            return node.args
        case ast.JoinedStr():
            return [node]
        case ast.Constant(value=str() as text) if _VALUE.search(text):
            return [node]
        case ast.BinOp(op=ast.Add()) if _is_text(node):
            return [node]
    return [] if _template(node) is None else [node]


def looped_words(
    tree: ast.Module, dicts: Mapping[str, str] = MappingProxyType({})
) -> dict[str, list[str]]:
    """Return the variables that stand for words, such as a loop over the parts of the data.

    Args:
        tree: The script.
        dicts: How variables with dicts are printed, whose keys a loop may go over.
    """
    lists = {
        name.id: node.value
        for node in walk(tree)
        if isinstance(node, ast.Assign)
        and isinstance(name := node.targets[0], ast.Name)
        and isinstance(node.value, ast.List | ast.Tuple | ast.Dict)
    }
    looped: dict[str, list[str]] = {}
    for node in walk(tree):
        match node:
            case ast.For(target=target, iter=items) | ast.comprehension(target=target, iter=items):
                pairs = [*_looped_pairs(target, items)]
            case ast.Assign(
                targets=[ast.Name() as target], value=ast.IfExp(body=first, orelse=second)
            ):
                pairs = [(target, ast.List([first, second]))]
            case _:
                continue
        for name, values in pairs:
            words = _words_of_items(values, lists, dicts)
            if words:
                looped[name.id] = words
    return looped


def _marks_in(tree: ast.Module) -> dict[str, str]:
    """Return the variables that only ever hold a mark, such as `*` behind the best value.

    Each comes with the shortest of its marks, which is often empty.
    """
    num_stores = Counter(
        node.id
        for node in walk(tree)
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)
    )
    parameters = {node.arg for node in walk(tree) if isinstance(node, ast.arg)}
    texts: dict[str, list[str]] = {}
    for node in walk(tree):
        if not isinstance(node, ast.Assign):
            continue
        for target, value in _assigned(node):
            if (mark := _shortest_text(value)) is not None and isinstance(target, ast.Name):
                texts.setdefault(target.id, []).append(mark)
    return {
        name: min(marks, key=len)
        for name, marks in texts.items()
        if len(marks) == num_stores[name] and name not in parameters and _are_marks(marks)
    }


def _assigned(node: ast.Assign) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Yield the targets of an assignment, each with its value: `best, mark = loss, "*"`."""
    for target in node.targets:
        if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
            yield from zip(target.elts, node.value.elts, strict=False)
        else:
            yield target, node.value


def _shortest_text(node: ast.expr) -> str | None:
    """Return a text, or the shorter one of two of which a condition chooses, or None."""
    match node:
        case ast.Constant(value=str() as text):
            return text
        case ast.IfExp(
            body=ast.Constant(value=str() as first), orelse=ast.Constant(value=str() as second)
        ) if _are_marks([first, second]):
            return min(first, second, key=len)
    return None


def _are_marks(texts: list[str]) -> bool:
    """Return whether texts are no words: one of them is empty, or none has a letter or a digit."""
    return "" in texts or not any(letter.isalnum() for text in texts for letter in text)


def _looped_pairs(target: ast.expr, items: ast.expr) -> Iterator[tuple[ast.Name, ast.expr]]:
    """Yield the variables of a loop, and over what each goes."""
    match target, items:
        case ast.Tuple(elts=[_, inner]), ast.Call(func=ast.Name(id="enumerate"), args=[values, *_]):
            yield from _looped_pairs(inner, values)
        case ast.Tuple(elts=targets), ast.Call(func=ast.Name(id="zip"), args=args):
            for inner, values in zip(targets, args, strict=False):
                yield from _looped_pairs(inner, values)
        case ast.Tuple(elts=[ast.Name() as first, *_]), _:
            yield first, items
        case ast.Name(), _:
            yield target, items


def _words_of_items(
    items: ast.expr,
    lists: Mapping[str, ast.List | ast.Tuple | ast.Dict],
    dicts: Mapping[str, str],
) -> list[str]:
    """Return the words that a loop goes over, or none if one of them is not known."""
    match items:
        case ast.Call(func=ast.Name(id="sorted" | "list"), args=[inner, *_]):
            return _words_of_items(inner, lists, dicts)
        case (
            ast.Name(id=name)
            | ast.Call(func=ast.Attribute(attr="items" | "keys", value=ast.Name(id=name)))
        ) if name in lists:
            known = lists[name]
            elements = known.keys if isinstance(known, ast.Dict) else known.elts
        case ast.List(elts=elements) | ast.Tuple(elts=elements):
            pass
        case ast.Call(func=ast.Attribute(attr="items" | "keys", value=ast.Dict(keys=keys))):
            elements = keys
        case ast.Call(func=ast.Attribute(attr="items" | "keys", value=owner)):
            called = f"{called_name(owner)}()" if isinstance(owner, ast.Call) else ""
            return _KEY.findall(dicts.get(called or dotted_name(owner), ""))
        case _:
            return []
    firsts = [
        item.elts[0] if isinstance(item, ast.Tuple) and item.elts else item for item in elements
    ]
    words = [item.value for item in firsts if isinstance(item, ast.Constant)]
    is_known = len(words) == len(firsts) and all(isinstance(w, str | int) for w in words)
    return [str(word) for word in words] if is_known else []


def names_of_lists(tree: ast.Module) -> list[str]:
    """Return the names of the lists that a script prints, such as the losses of all epochs.

    Args:
        tree: The script.

    Example:
        >>> import ast
        >>> from workbench.runs.scripts.script_metrics import names_of_lists
        >>> names_of_lists(ast.parse('losses.append(loss); print("val losses:", losses)'))
        ['val_losses']
    """
    several = set(_names_of_several(tree))
    texts = [text for text in _texts(tree, several, {}, {}) if _SEVERAL in text]
    lines = [text.replace(_SEVERAL, "0.5") for text in texts]
    return list(dict.fromkeys(name for _, name, _ in _printed_names(iter(lines))))


class PrintedValue(NamedTuple):
    """A value that a script prints.

    Attributes:
        expression: What it is.
        is_share: Whether a `%` follows.
    """

    expression: ast.expr
    is_share: bool = False


def origins_of(
    tree: ast.Module,
    words: Mapping[str, list[str]] = MappingProxyType({}),
    dicts: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, list[PrintedValue]]:
    """Return what a script prints, by the names that a run reads.

    `None` stands for what is not clear, as in a text that a variable holds.

    Args:
        tree: The script, or a part of it.
        words: What variables stand for, such as a parameter that names the part of the data.
        dicts: How variables with dicts are printed, see `texts_of_dicts`.

    Example:
        >>> import ast
        >>> from workbench.runs.scripts.script_metrics import origins_of
        >>> origins = origins_of(ast.parse('print(f"Result: loss {total / n:.2f}")'))
        >>> [ast.unparse(value.expression) for value in origins["Result_loss"]]
        ['total / n']
    """
    reader = PrintedMetrics()
    origins: dict[str, list[PrintedValue]] = {}
    for text, values in _texts_with_values(tree, set(_names_of_several(tree)), words, dicts):
        if not values:
            for _, name, _ in _printed_names(iter([text])):
                origins.setdefault(name, []).append(PrintedValue(ast.Constant(None)))
            continue
        places = iter(range(len(values)))
        numbered = _VALUE.sub(lambda _, places=places: f"0.5{next(places, 0):04}", text)
        for line in numbered.replace("%%", "%").splitlines():
            for name, number in reader.read(line.encode()).items():
                if not math.isfinite(number):  # a text may say nan itself
                    continue
                place = round((number - _CERTAIN) * 10**5)
                if 0 <= place < len(values) and abs(number - _CERTAIN - place / 10**5) < 10**-9:
                    is_share = re.search(rf"0\.5{place:04}\s?%", line) is not None
                    origins.setdefault(name, []).append(PrintedValue(values[place], is_share))
    return origins


def _texts_with_values(
    tree: ast.Module,
    several: Container[str],
    words: Mapping[str, list[str]],
    dicts: Mapping[str, str],
) -> Iterator[tuple[str, list[ast.expr]]]:
    """Yield the texts of a source with what is put into each, or nothing if that is not clear."""
    of_marks = _marks_in(tree)
    for text, node in _texts_of_nodes(tree, several, words, dicts):
        values = [
            value
            for part in _parts_of_text(node)
            for value in _values_in(part)
            if dotted_name(value) not in of_marks and _shortest_text(value) is None
        ]
        marks = _VALUE.findall(text)
        if len(values) != len(marks):  # some may have several values
            marks = _VALUE_OR_SEVERAL.findall(text)
        numbers = [v for v, mark in zip(values, marks, strict=False) if mark != _SEVERAL]
        yield text, numbers if len(values) == len(marks) else []


def _values_in(node: ast.expr) -> Iterator[ast.expr]:
    """Yield the expressions whose values a text has, in their order."""
    if (template := _template(node)) is not None:
        text, arguments, named = template
        by_name = {word.arg: word.value for word in named}
        given = _each_given(arguments)
        for place in _VALUE.findall(text):
            name = re.split(r"[:!.\[)]", place.strip("{}").removeprefix("%("))[0]
            value = by_name.get(name) or _by_index(name, arguments) or next(given, None)
            if value is not None:
                yield value
        return
    match node:
        case ast.JoinedStr():
            for part in node.values:
                yield from _values_in(part)
        case ast.FormattedValue(value=value):
            yield from _values_in(value)
        case ast.BinOp(left=left, op=ast.Add(), right=right) if _is_text(node):
            yield from _values_in(left)
            yield from _values_in(right)
        case ast.Call(func=ast.Name(id="str"), args=[value]):
            yield from _values_in(value)
        case ast.Constant(value=str()):
            return
        case _:
            yield node


def _each_given(arguments: list[ast.expr]) -> Iterator[ast.expr]:
    """Yield what stands in the places of a text: `*scores` is `scores[0]`, `scores[1]` and so on.

    It stands in all places that are left.
    """
    for argument in arguments:
        if isinstance(argument, ast.Starred):
            for number in itertools.count():
                item = ast.Subscript(argument.value, ast.Constant(number), ast.Load())
                yield ast.fix_missing_locations(ast.copy_location(item, argument))
        yield argument


def _by_index(name: str, arguments: list[ast.expr]) -> ast.expr | None:
    """Return the argument that `{1}` in a text stands for, None of any other name."""
    return arguments[int(name)] if name.isdecimal() and int(name) < len(arguments) else None


def _printed_names(texts: Iterator[str]) -> Iterator[tuple[str, str, bool]]:
    """Yield the texts, the names that a run reads in them, and whether each surely is a number.

    They are read in their order, because a title belongs to the lines below it.
    """
    all_fractions, some_fractions = PrintedMetrics(), PrintedMetrics()

    def fraction(place: re.Match[str]) -> str:
        return _placed(place[0], "0.5", is_number=True)

    def count(place: re.Match[str]) -> str:
        return _placed(place[0], "1", is_number=True)

    for text in texts:
        for line in _VALUE.sub(fraction, text).replace("%%", "%").splitlines():
            yield from ((text, name, False) for name in all_fractions.read(line.encode()))
        plain = _VALUE.sub(count, _FORMATTED.sub(fraction, text)).replace("%%", "%")
        for line in plain.splitlines():
            for name, value in some_fractions.read(line.encode()).items():
                yield text, name, value == _CERTAIN


def _placed(place: str, text: str, *, is_number: bool = False) -> str:
    """Return a text as wide as its place, which decides to which column of a table it belongs."""
    form = _PLACE.match(place)
    if form is None or not form["width"]:
        return text
    width = int(form["width"])
    if form["align"] == "^":
        return text.center(width)
    if place.startswith("%"):
        is_left = "-" in form["flags"]
    else:
        is_left = form["align"] == "<" or not (form["align"] or is_number)
    return text.ljust(width) if is_left else text.rjust(width)


def _text(
    node: ast.expr, several: Container[str], words: Mapping[str, str] = MappingProxyType({})
) -> str:
    """Return what an expression prints, with a mark for each value.

    Args:
        node: The expression.
        several: The variables that hold several values.
        words: The words that variables stand for.
    """
    if (template := _template(node)) is not None:
        text, arguments, named = template
        given = _each_given(arguments)
        by_name = {word.arg: word.value for word in named}

        def fill(match: re.Match[str]) -> str:
            name = re.split(r"[:!.\[)]", match[0].strip("{}").removeprefix("%("))[0]
            value = by_name.get(name) or _by_index(name, arguments) or next(given, None)
            return _filled(match[0], _ANYTHING if value is None else _text(value, several, words))

        return _VALUE.sub(fill, text)
    inner = node.value if isinstance(node, ast.FormattedValue) else node
    name = f"{called_name(inner)}()" if isinstance(inner, ast.Call) else dotted_name(inner)
    if name == "join()":
        name = _place_of(inner)
    if name in words:
        return words[name]
    match node:
        case ast.Constant(value=str() as text):
            return text
        case ast.JoinedStr():
            return "".join(_text(part, several, words) for part in node.values)
        case ast.FormattedValue(
            value=value, format_spec=ast.JoinedStr(values=[ast.Constant(value=str() as form)])
        ):
            given = _text(value, several, words)
            if not _VALUE.fullmatch(given) and given != _SEVERAL:
                return _placed(f"{{:{form}}}", given)
            return f"{{:{form}}}"
        case ast.FormattedValue():
            return _text(node.value, several, words)
    joined = _joined_text(node, several, words)
    return _mark_of(node, several) if joined is None else joined


def _joined_text(node: ast.expr, several: Container[str], words: Mapping[str, str]) -> str | None:
    """Return the text that is made of others: `"loss: " + str(x)`, `red("x")`, `"*" if x else ""`.

    None if an expression is none of these.
    """
    match node:
        case ast.BinOp(left=left, op=ast.Add(), right=right) if _is_text(node):
            return _text(left, several, words) + _text(right, several, words)
        case ast.Call(func=ast.Name(id="str"), args=[value]):
            return _text(value, several, words)
        case ast.Call(
            func=ast.Attribute(attr="upper" | "lower" | "title" | "capitalize" as way, value=value)
        ):
            text = _text(value, several, words)
            return None if _VALUE.search(text) or text == _SEVERAL else getattr(text, way)()
        case ast.Call(
            func=ast.Attribute(attr="ljust" | "rjust" | "center" as way, value=value),
            args=[ast.Constant(value=int() as width)],
        ):
            text = _text(value, several, words)
            return None if _VALUE.search(text) or text == _SEVERAL else getattr(text, way)(width)
        case ast.Call(func=ast.Name(id=called), args=[ast.Constant(value=str() as text), *_]):
            return text if _COLORS.search(called) else None
        case ast.IfExp():
            return _shortest_text(node)
    return None


def _is_text(node: ast.expr) -> bool:
    """Return whether an expression surely is a text."""
    match node:
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return _is_text(left) or _is_text(right)
        case ast.Constant(value=value):
            return isinstance(value, str)
        case ast.Call(func=ast.Name(id="str") | ast.Attribute(attr="join" | "format")):
            return True
    return isinstance(node, ast.JoinedStr) or _template(node) is not None


def _mark_of(node: ast.expr, several: Container[str]) -> str:
    """Return the mark for the value of an expression."""
    match node:
        case ast.Name():
            return _SEVERAL if node.id in several else _ANYTHING
        case ast.Call():
            called = called_name(node)
            if called in ("len", "size", "numel"):  # how many there are is no result
                return _SEVERAL
            if called in _MAKE_NUMBERS:
                return _NUMBER
            return _SEVERAL if called in _MAKE_SEVERAL else _ANYTHING
        case ast.Subscript(slice=ast.Slice()) | ast.Attribute(attr="shape"):
            return _SEVERAL
        case ast.Subscript(value=ast.Attribute(attr="shape")):
            return _SEVERAL
    return _SEVERAL if isinstance(node, _HOLD_SEVERAL) else _ANYTHING


def _template(node: ast.expr) -> tuple[str, list[ast.expr], list[ast.keyword]] | None:
    """Return a text with places, what stands there, and what stands there by its name.

    None if an expression is another one.
    """
    match node:
        case ast.BinOp(
            left=ast.Constant(value=str() as text), op=ast.Mod(), right=ast.Dict() as given
        ):
            pairs = zip(map(literal_of, given.keys), given.values, strict=True)
            return text, [], [ast.keyword(str(key), value) for key, value in pairs]
        case ast.BinOp(left=ast.Constant(value=str() as text), op=ast.Mod(), right=right):
            return text, right.elts if isinstance(right, ast.Tuple) else [right], []
        case ast.Call(
            func=ast.Attribute(attr=called), args=[ast.Constant(value=str() as text), *args]
        ) if called in _LOG and args and "%" in text:
            return text, args, []
        case ast.Call(
            func=ast.Attribute(attr="format", value=ast.Constant(value=str() as text)),
            args=args,
            keywords=keywords,
        ):
            return text, args, keywords
    return None


def _filled(place: str, given: str) -> str:
    """Return what stands in the place of a value: a word, or the place if it is another value."""
    return place if _VALUE.fullmatch(given) else _placed(place, given)


def _names_of_several(tree: ast.Module) -> Iterator[str]:
    """Yield the variables that hold several values: lists, what is looped over, scores of folds."""
    for node in walk(tree):
        match node:
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=value)
                | ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value)
            ):
                makes_several = isinstance(value, ast.Call) and called_name(value) in _MAKE_SEVERAL
                if makes_several or isinstance(value, _HOLD_SEVERAL):
                    yield name
            case ast.For(iter=ast.Name(id=name)) | ast.comprehension(iter=ast.Name(id=name)):
                yield name
            case ast.Call(
                func=ast.Attribute(value=ast.Name(id=name), attr="append" | "extend" | "std")
            ):
                yield name
            case ast.Call(func=ast.Name(id="len" | "sum"), args=[ast.Name(id=name)]):
                yield name


def names_of_trainer(tree: ast.Module, own: Container[str] = ()) -> list[str]:
    """Return the losses and scores that a Trainer of Hugging Face prints in a program.

    Args:
        tree: The script.
        own: Classes of the program that are no such trainer although their name may say so.
    """
    trainers = [
        node
        for node in walk(tree)
        if isinstance(node, ast.Call)
        and called_name(node).endswith("Trainer")
        and called_name(node) not in own
    ]
    return _names_of_trainer(tree, trainers) if trainers else []


def names_of_agents(tree: ast.Module, imported: Container[str]) -> list[str]:
    """Return the rewards that Stable-Baselines3 prints in a table while an agent learns.

    Args:
        tree: The script.
        imported: The packages that the program imports.
    """
    called = {called_name(node) for node in walk(tree) if isinstance(node, ast.Call)}
    if "learn" not in called or not any(name in imported for name in _WITH_AGENTS):
        return []
    evaluates = any("EvalCallback" in name for name in called)
    return [*(["eval/mean_reward"] if evaluates else []), "rollout/ep_rew_mean"]


def names_of_libraries(tree: ast.Module, imported: Container[str]) -> list[str]:
    """Return what libraries print while a model is fitted with data for validation.

    Args:
        tree: The script.
        imported: The packages that the program imports.

    Example:
        >>> import ast
        >>> from workbench.runs.scripts.script_metrics import names_of_libraries
        >>> tree = ast.parse("net = NeuralNetClassifier(Net); net.fit(x, y)")
        >>> names_of_libraries(tree, {"skorch"})
        ['valid_acc', 'valid_loss']
    """
    calls = [node for node in walk(tree) if isinstance(node, ast.Call)]
    called = {called_name(call) for call in calls}
    names: list[str] = []
    if "skorch" in imported and _validates_in_skorch(tree, called):
        names += ["valid_acc"] if any(name.endswith("Classifier") for name in called) else []
        names.append("valid_loss")
    if "fastai" in imported and called & {"fit", "fit_one_cycle", "fine_tune", "fit_flat_cos"}:
        names += [*_metrics_of_learner(calls), "valid_loss"]
    if imported_boosters := [name for name in _BOOSTERS if name in imported]:
        names += _of_boosters(tree, calls, imported_boosters[0])
    return list(dict.fromkeys(names))


def _validates_in_skorch(tree: ast.Module, called: set[str]) -> bool:
    """Return whether a net of skorch has data for validation: not with `train_split=False`."""
    given = [(word.arg, word.value) for word in walk(tree) if isinstance(word, ast.keyword)]
    for node in walk(tree):
        if isinstance(node, ast.Dict):
            keys = [literal_of(key) for key in node.keys]
            given += [(key, v) for key, v in zip(keys, node.values, strict=True) if key]
    splits = [value for name, value in given if str(name).endswith("train_split")]
    is_off = any(isinstance(v, ast.Constant) and v.value in (None, False) for v in splits)
    return not is_off and any("Neural" in name for name in called)


def measure_of_catboost(tree: ast.Module, imported: Container[str]) -> str | None:
    """Return what CatBoost prints as `test` in a script, or None if the script has no CatBoost."""
    return _measures(tree, "catboost")[0] if "catboost" in imported else None


_BOOSTERS = ("xgboost", "lightgbm", "catboost")
_DEFAULT_MEASURES = {
    "xgboost": (("multi:", "mlogloss"), ("binary:", "logloss"), ("rank:", "ndcg"), ("", "rmse")),
    "lightgbm": (("multi", "multi_logloss"), ("binary", "binary_logloss"), ("", "l2")),
    "catboost": (("", "logloss"),),
}
"""What boosters measure for objectives that start with a word."""
_MEASURE_KEYS = ("eval_metric", "metric", "metrics")
_QUIET = (0, -1, False)


def _metrics_of_learner(calls: list[ast.Call]) -> list[str]:
    """Return the names of `metrics=[accuracy, error_rate]`, as fastai prints them."""
    given = [word.value for call in calls for word in call.keywords if word.arg == "metrics"]
    listed = [
        item
        for value in given
        for item in (value.elts if isinstance(value, ast.List | ast.Tuple) else [value])
    ]
    names = [called_name(n) if isinstance(n, ast.Call) else dotted_name(n) for n in listed]
    return ["_".join(name_words(name)) for name in names if name]


def _of_boosters(tree: ast.Module, calls: list[ast.Call], library: str) -> list[str]:
    """Return what a booster prints of its data for validation."""
    fits = [
        {word.arg: word.value for word in call.keywords if word.arg}
        for call in calls
        if called_name(call) in ("fit", "train", "cv")
    ]
    fit = next((g for g in fits if {"eval_set", "evals", "valid_sets"} & g.keys()), None)
    if fit is None or literal_of(fit.get("verbose_eval", fit.get("verbose"))) in _QUIET[1:]:
        return []
    if library == "catboost":
        return ["test"]
    set_name = _name_of_validation(fit, library)
    if set_name is None:
        return []
    measures = _measures(tree, library)
    between = "-" if library == "xgboost" else "_"
    return [f"{set_name}{between}{measure}" for measure in measures]


def _measures(tree: ast.Module, library: str) -> list[str]:
    """Return what the parameters of a booster name as its measures, or what is its default."""
    given: dict[str, Any] = {}
    for node in walk(tree):
        match node:
            case ast.Dict(keys=keys, values=values):
                pairs = [(literal_of(k), literal_of(v)) for k, v in zip(keys, values, strict=True)]
            case ast.keyword(arg=str() as name, value=value):
                pairs = [(name, literal_of(value))]
            case _:
                continue
        given |= {key: value for key, value in pairs if isinstance(key, str) and value is not None}
    for key in _MEASURE_KEYS:
        measures = given.get(key)
        measures = [measures] if isinstance(measures, str) else measures
        if isinstance(measures, list | tuple | set) and measures:
            names = [str(measure) for measure in measures]
            return names[::-1] if library == "xgboost" else names  # it stops by its last one
    objective = str(given.get("objective") or "")
    if not objective and any(
        isinstance(node, ast.Call) and called_name(node).endswith("Classifier")
        for node in walk(tree)
    ):
        objective = "binary:"
    return [next(m for start, m in _DEFAULT_MEASURES[library] if objective.startswith(start))]


def _name_of_validation(fit: Mapping[str, ast.expr], library: str) -> str | None:
    """Return the name of the last data that a booster evaluates, which is no training data."""
    sets = fit.get("evals", fit.get("eval_set", fit.get("valid_sets")))
    items = sets.elts if isinstance(sets, ast.List | ast.Tuple) else []
    if library == "xgboost" and "evals" in fit:
        named = [
            literal_of(i.elts[1]) for i in items if isinstance(i, ast.Tuple) and len(i.elts) > 1
        ]
    elif library == "xgboost":
        named = [f"validation_{place}" for place in range(len(items))]
    else:
        named = literal_of(fit.get("valid_names", fit.get("eval_names"))) or [
            f"valid_{place}" for place in range(max(1, len(items)))
        ]
    names = [
        name for name in ([named] if isinstance(named, str) else named) if isinstance(name, str)
    ]
    others = [name for name in names if "train" not in name.lower()]
    return others[-1] if others else None


def names_of_bars(part: ast.Module, words: Mapping[str, list[str]]) -> list[str]:
    """Return the names of the values behind the progress bars of tqdm.

    Args:
        part: A part of the script.
        words: What variables stand for, such as a parameter that names the part of the data.
    """
    described: dict[str, list[str]] = {}
    postfixes: list[tuple[str, list[str]]] = []
    for node in walk(part):
        match node:
            case (
                ast.Assign(targets=[ast.Name(id=bar)], value=ast.Call() as call)
                | ast.With(items=[ast.withitem(ast.Call() as call, ast.Name(id=bar)), *_])
            ) if called_name(call) in ("tqdm", "trange"):
                titles = [word.value for word in call.keywords if word.arg == "desc"]
            case ast.Call(
                func=ast.Attribute(attr="set_description", value=owner), args=[title, *_]
            ):
                bar, titles = dotted_name(owner), [title]
            case ast.Call(func=ast.Attribute(attr="set_postfix", value=owner)):
                postfixes.append((dotted_name(owner), _names_of_postfix(node)))
                continue
            case _:
                continue
        texts = [
            text
            for title in titles
            for text in _texts(ast.Module([ast.Expr(title)], []), (), words, {})
        ]
        texts += [str(title.value) for title in titles if isinstance(title, ast.Constant)]
        described.setdefault(bar, []).extend(texts)
    lines = [
        f"{title}: 50%|###   | 1/2 [00:00<00:00, 1.00it/s, {', '.join(f'{n}=0.5' for n in names)}]"
        for bar, names in postfixes
        if names
        for title in described.get(bar) or ["0"]
    ]
    return [name for _, name, _ in _printed_names(iter(lines))]


def _names_of_postfix(call: ast.Call) -> list[str]:
    """Return the names in `set_postfix(loss=x)` or `set_postfix({"loss": x})`."""
    names = [
        word.arg for word in call.keywords if word.arg not in (None, "refresh", "ordered_dict")
    ]
    given = [*call.args, *(word.value for word in call.keywords if word.arg == "ordered_dict")]
    keys = [
        key
        for part in given
        for inner in walk(part)
        if isinstance(inner, ast.Dict)
        for key in inner.keys
    ]
    names += [word.arg for part in given if isinstance(part, ast.Call) for word in part.keywords]
    names += [key.value for key in keys if isinstance(key, ast.Constant)]
    return [name for name in names if isinstance(name, str)]


def names_in_headers(tree: ast.Module) -> list[str]:
    """Return the columns of the tables that a script prints: `print(form % tuple(columns))`.

    Args:
        tree: The script.
    """
    columns = {
        name.id: [literal_of(element) for element in node.value.elts]
        for node in walk(tree)
        if isinstance(node, ast.Assign)
        and isinstance(name := node.targets[0], ast.Name)
        and isinstance(node.value, ast.List | ast.Tuple)
    }
    names: list[str] = []
    for call in walk(tree):
        if not isinstance(call, ast.Call) or called_name(call) not in (*_PRINT, *_TABLES):
            continue
        given = [*call.args, *(word.value for word in call.keywords if word.arg == "headers")]
        used = [name.id for part in given for name in walk(part) if isinstance(name, ast.Name)]
        lists = [columns.get(name, []) for name in used]
        lists += [
            [literal_of(element) for element in part.elts]
            for part in (given if called_name(call) in _TABLES else [])
            if isinstance(part, ast.List | ast.Tuple)
        ]
        for header in lists:
            if len(header) > 1 and all(isinstance(name, str) and name for name in header):
                names += [str(name).replace(" ", "_") for name in header]
    return list(dict.fromkeys(names))


def names_in_dicts(
    tree: ast.Module,
    holds_several: Callable[[ast.expr], bool],
    returned: Mapping[str, list[str]] = MappingProxyType({}),
) -> list[str]:
    """Return the keys of the dicts that a script prints, each once.

    Args:
        tree: The script.
        holds_several: Returns whether an expression never is one number.
        returned: The keys of the dicts that functions outside of this part return.
    """
    dicts = _Dicts(tree, holds_several, returned)
    printed = [
        node
        for call in walk(tree)
        if isinstance(call, ast.Call) and called_name(call) in _PRINT and not _is_writer(call)
        for argument in call.args
        for node in _outer_expressions(argument)
    ]
    names = [name for node in printed for name in dicts.keys_of(node)]
    return list(dict.fromkeys(names))


def _holds_data(node: ast.Dict) -> bool:
    """Return whether a dict has the parts of the data, as `{"train": train, "test": test}`."""
    keys = [key.value for key in node.keys if isinstance(key, ast.Constant)]
    if not keys or not all(isinstance(key, str) and split_word(key) for key in keys):
        return False
    return all(
        isinstance(value, ast.Name | ast.Attribute)
        and not any(map(kind_of_metric, name_words(dotted_name(value))))
        for value in node.values
    )


def _is_writer(call: ast.Call) -> bool:
    """Return whether a call writes to an object for files, such as a writer of TensorBoard.

    A document is written to a file as well, except to the output of the program.
    """
    owner = dotted_name(call.func).rpartition(".")[0].rpartition(".")[2]
    if called_name(call) != "write":
        return False
    is_document = any(
        isinstance(item, ast.Call) and called_name(item) == "dumps" for item in call.args
    )
    return "writer" in owner or (is_document and owner != "stdout")


def _outer_expressions(root: ast.expr) -> Iterator[ast.expr]:
    """Yield an expression and those in it that are printed as they are.

    That is not what is in a dict, whose keys have a prefix, and no dict of which one value is
    taken: `losses["val"]`.
    """
    yield root
    if isinstance(root, ast.Subscript):
        return
    for node in [] if isinstance(root, ast.Dict) else ast.iter_child_nodes(root):
        if isinstance(node, ast.expr):
            yield from _outer_expressions(node)


class _Loops:
    """The values that loops give to their variables, as far as the source has them."""

    def __init__(self, tree: ast.Module) -> None:
        self._known = StaticValues()
        self._known.learn(tree.body)
        self._bindings: dict[frozenset[str], list[dict[str, Any]]] = {}
        for node in walk(tree):
            if isinstance(node, ast.For | ast.comprehension):
                self._learn(node)

    def _learn(self, loop: ast.For | ast.comprehension) -> None:
        try:
            items = list(self._known.items(loop.iter))
        except NotStatic:
            return
        bound = StaticValues()
        for item in items[:_MAX_COMBINATIONS]:
            bound.bind(loop.target, item)
            self._bindings.setdefault(frozenset(bound.names), []).append(dict(bound.names))

    def texts_of(self, node: ast.expr) -> list[str]:
        """Return all texts that an expression is in loops: `f"{split}/loss"`."""
        names = {part.id for part in walk(node) if isinstance(part, ast.Name)}
        used = [bindings for own, bindings in self._bindings.items() if own & names]
        texts: list[str] = []
        for chosen in itertools.islice(itertools.product(*used), _MAX_COMBINATIONS):
            given = {name: value for binding in chosen for name, value in binding.items()}
            text = StaticValues({**self._known.names, **given}).get(node)
            if isinstance(text, str):
                texts.append(text)
        return list(dict.fromkeys(texts))


class _Dicts:
    """The keys of the dicts of a script, by variables and by functions that return them."""

    def __init__(
        self,
        tree: ast.Module,
        holds_several: Callable[[ast.expr], bool],
        returned: Mapping[str, list[str]] = MappingProxyType({}),
        given: Mapping[str, list[str]] = MappingProxyType({}),
    ) -> None:
        self._holds_several = holds_several
        self._of_variables: dict[str, list[str]] = dict(given)
        self._of_functions: dict[str, list[str]] = dict(returned)
        self._assigned: dict[str, dict[ast.AST, frozenset[str]]] = {}
        self._functions: dict[ast.AST, ast.FunctionDef] = {
            node: function
            for function in walk(tree)
            if isinstance(function, ast.FunctionDef)
            for node in walk(function)
            if isinstance(node, ast.Assign)
        }
        self._loaded = [
            name.value
            for node in walk(tree)
            if isinstance(node, ast.Call)
            and called_name(node) in ("load", "load_metric")
            and len(node.args) == 1
            and isinstance(name := node.args[0], ast.Constant)
            and isinstance(name.value, str)
        ]
        self._loops = _Loops(tree)
        self._words = looped_words(tree)
        nodes = [node for node in walk(tree) if isinstance(node, _FILL_DICTS)]
        for _ in range(_NUM_PASSES):
            before = self._num_known()
            for node in nodes:
                self._learn(node)
            if self._num_known() == before:
                break

    def _num_known(self) -> int:
        return sum(map(len, (*self._of_variables.values(), *self._of_functions.values())))

    def keys_of(self, node: ast.expr | None) -> Iterator[str]:
        """Yield the keys of the dict that an expression is.

        Nothing where it is none, or not known.
        """
        match node:
            case ast.Dict():
                yield from self._keys_in(node)
            case ast.DictComp(
                key=key,
                generators=[
                    ast.comprehension(
                        target=ast.Tuple(elts=[ast.Name(id=name), _]),
                        iter=ast.Call(func=ast.Attribute(attr="items", value=owner)),
                    )
                ],
            ):
                yield from (_text(key, (), {name: inner}) for inner in self.keys_of(owner))
            case ast.DictComp(key=key):
                yield from self._loops.texts_of(key)
            case ast.List(elts=[ast.Tuple(elts=[ast.Constant(value=str()), _]), *_]):
                firsts = [
                    item.elts[0] for item in node.elts if isinstance(item, ast.Tuple) and item.elts
                ]
                yield from (str(first.value) for first in firsts if isinstance(first, ast.Constant))
            case ast.Call(func=ast.Name(id="dict"), args=args, keywords=keywords):
                yield from (
                    keyword.arg
                    for keyword in keywords
                    if keyword.arg and not self._holds_several(keyword.value)
                )
                yield from (key for keyword in args for key in self.keys_of(keyword))
            case ast.Call(func=ast.Attribute(attr="compute")):  # a metric of the library evaluate
                yield from self._loaded
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)):
                yield from self._of_functions.get(name, ())
            case ast.Name(id=name):
                uncertain = self._of_alternatives(name)
                yield from (k for k in self._of_variables.get(name, ()) if k not in uncertain)
            case ast.BinOp(left=left, op=ast.BitOr(), right=right):
                yield from (key for operand in (left, right) for key in self.keys_of(operand))

    def _of_alternatives(self, name: str) -> frozenset[str]:
        """Return the keys that a variable has after some of its assignments only."""
        certain, uncertain = frozenset[str](), frozenset[str]()
        by_function: dict[ast.AST | None, list[frozenset[str]]] = {}
        for node, keys in self._assigned.get(name, {}).items():
            by_function.setdefault(self._functions.get(node), []).append(keys)
        for alternatives in by_function.values():
            certain |= frozenset.intersection(*alternatives)
            uncertain |= frozenset.union(*alternatives) - frozenset.intersection(*alternatives)
        return uncertain - certain

    @property
    def returned(self) -> Mapping[str, list[str]]:
        """The keys of the dicts that functions return, by the names of the functions."""
        return self._of_functions

    def of_function(self, name: str) -> list[str]:
        """Return the keys of the dicts that a function returns."""
        return self._of_functions.get(name, [])

    def _keys_in(self, node: ast.Dict) -> Iterator[str]:
        if _holds_data(node):
            return
        splits = self._splits_in(node)
        for key, value in zip(node.keys, node.values, strict=True):
            if key is None:
                yield from self.keys_of(value)
            elif not isinstance(key, ast.Constant):
                yield from self._loops.texts_of(key)
            elif isinstance(value, ast.Dict):
                yield from (f"{key.value}.{inner}" for inner in self._keys_in(value))
            elif not self._holds_several(value):
                yield from (scoped(str(key.value), split) for split in splits)

    def _splits_in(self, node: ast.Dict) -> list[str]:
        """Return the parts of the data that a value of a dict names, or one empty text."""
        for value in node.values:
            words = self._words.get(value.id, []) if isinstance(value, ast.Name) else []
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                words = [value.value]
            if words and all(map(split_word, words)):
                return words
        return [""]

    def _learn(self, node: ast.AST) -> None:
        match node:
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=value)
                | ast.AnnAssign(target=ast.Name(id=name), value=value)
                | ast.AugAssign(target=ast.Name(id=name), op=ast.BitOr(), value=value)
                | ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="update"), args=[value])
            ):
                keys = list(self.keys_of(value))
                self._add(self._of_variables, name, iter(keys))
                if keys and isinstance(node, ast.Assign):
                    self._assigned.setdefault(name, {})[node] = frozenset(keys)
            case ast.Assign(
                targets=[
                    ast.Subscript(value=ast.Name(id=name), slice=ast.Constant(value=str() as key))
                ],
                value=value,
            ):
                if not self._holds_several(value):
                    self._add(self._of_variables, name, iter([key]))
            case ast.Assign(
                targets=[ast.Subscript(value=ast.Name(id=name), slice=ast.expr() as key)],
                value=value,
            ) if not self._holds_several(value):
                self._add(self._of_variables, name, iter(self._loops.texts_of(key)))
            case ast.FunctionDef(name=name):
                for statement in walk(node):
                    if isinstance(statement, ast.Return):
                        self._add(self._of_functions, name, self.keys_of(statement.value))

    @staticmethod
    def _add(known: dict[str, list[str]], name: str, keys: Iterator[str]) -> None:
        new = list(keys)
        if new:
            known[name] = list(dict.fromkeys([*known.get(name, ()), *new]))


def _names_of_trainer(tree: ast.Module, calls: list[ast.Call]) -> list[str]:
    """Return the losses and scores that a Trainer prints. Those of evaluations have a prefix."""
    modules = {
        (node.module or "") if isinstance(node, ast.ImportFrom) else alias.name
        for node in walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
    if not any(module.partition(".")[0] in _WITH_TRAINERS for module in modules):
        return []
    trainers = [{keyword.arg: keyword.value for keyword in call.keywords} for call in calls]
    dicts = _Dicts(tree, lambda _: False)
    scores = [
        key
        for given in trainers
        if isinstance(function := given.get("compute_metrics"), ast.Name)
        for key in dicts.of_function(function.id)
    ]
    evaluates = scores or any({"eval_dataset", None} & given.keys() for given in trainers)
    evaluated = [*scores, "loss"] if evaluates else []
    return [*(f"eval_{name.removeprefix('eval_')}" for name in evaluated), "loss"]
