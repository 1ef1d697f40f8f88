"""The metrics that a script prints, as its source shows.

Names in a text after which a value is put in.

Dicts are left to `script_dicts`. What may hold several values, such as the scores of all folds, is
not a metric: a run reads one number.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Container, Iterator

from workbench.runs.script_dicts import names_in_dicts
from workbench.runs.script_option import called_name
from workbench.training.programs.metric_names import name_with_qualifiers
from workbench.training.programs.printed_metrics import read_line

_METRIC = re.compile(r"([^\W\d][\w./-]*)\s*[=:]\s*(?=\{|%)")
_VALUE = re.compile(r"\{[^{}]*\}|%[-+ #0]*[\d.*]*[dfeEgGs]")
"""Where a value is put into a text."""
_FORMATTED = re.compile(r"\{[^{}]*:[^{}]*[eEfFgG%]\}|%[-+ #0]*[\d.*]*[feEgG]")
"""The same as a number with a fraction, which counts and texts are not."""
_NUMBER, _ANYTHING, _SEVERAL = "{:f}", "{}", "[]"
"""How a value is marked: surely a number, anything, or never one number."""
_SCORES = re.compile(
    r"loss|acc|error|score|f1|auc|perplexity|ppl|mse|mae|reward|bleu|precision|recall",
    re.IGNORECASE,
)
_PLURAL = re.compile(r"(?:scores|losses|accuracies|accs|errors|aucs|f1s|mses|maes)$", re.IGNORECASE)
_OF_OTHER_DATA = re.compile(r"val|test", re.IGNORECASE)
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
_CERTAIN = 0.5


def metrics_of(source: str) -> list[str]:
    """Return the names of losses and scores that a script seems to print, the best objective first.

    Those of validation and test data come first, then those that are printed as numbers, then
    means, and those of one fold come last.

    Args:
        source: The source of the script, which is Python.

    Example:
        >>> from workbench.runs.script_metrics import metrics_of
        >>> metrics_of('print("Fold scores:", scores); print(f"Mean accuracy: {mean:.3f}")')
        ['Mean_accuracy']
    """
    tree = ast.parse(source)
    several = set(_names_of_several(tree))
    ranks: dict[str, tuple[bool, bool]] = {}
    for text in _texts(tree, several):
        is_of_one_fold = _OF_ONE_FOLD.search(text) is not None
        for name, is_number in _names_in(text):
            rank = not is_number, is_of_one_fold
            ranks[name] = min(rank, ranks.get(name, rank))
    for name in names_in_dicts(tree, lambda node: _text(node, several) == _SEVERAL):
        ranks.setdefault(name, (True, False))
    good = [
        name
        for name, (is_uncertain, _) in ranks.items()
        if _SCORES.search(name) and not (is_uncertain and _PLURAL.search(name))
    ]
    return sorted(
        good,
        key=lambda name: (
            _OF_OTHER_DATA.search(name) is None,
            ranks[name][0],
            _OF_ALL_FOLDS.search(name) is None,
            ranks[name][1],
        ),
    )


def _texts(tree: ast.Module, several: Container[str]) -> Iterator[str]:
    """Yield the texts of a source, with a mark for each value that is put in."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "print":
            yield " ".join(_text(part, several) for part in node.args)
        elif isinstance(node, ast.JoinedStr) or (
            isinstance(node, ast.Constant) and isinstance(node.value, str)
        ):
            yield _text(node, several)


def _names_in(text: str) -> Iterator[tuple[str, bool]]:
    """Yield the names in a text after which a value is put in, and whether it is surely a
    number.
    """
    for match in _METRIC.finditer(text):
        yield (
            name_with_qualifiers(text, match.start(), match[1]),
            _FORMATTED.match(text, match.end()) is not None,
        )
    if _VALUE.search(text):
        # As a run reads what it prints: losses have a dot, epochs none.
        for line in (*_VALUE.sub("1", text).splitlines(), *_VALUE.sub("0.5", text).splitlines()):
            yield from ((name, False) for name in read_line(line.encode()))
        for line in _VALUE.sub("1", _FORMATTED.sub("0.5", text)).splitlines():
            yield from (
                (name, value == _CERTAIN) for name, value in read_line(line.encode()).items()
            )


def _text(node: ast.expr, several: Container[str]) -> str:
    """Return what an expression prints, with a mark for each value."""
    match node:
        case ast.Constant(value=str() as text):
            return text
        case ast.JoinedStr():
            return "".join(_text(part, several) for part in node.values)
        case ast.FormattedValue(
            format_spec=ast.JoinedStr(values=[ast.Constant(value=str() as form)])
        ):
            return _NUMBER if form[-1:] in "eEfFgG%" else _ANYTHING
        case ast.FormattedValue():
            return _text(node.value, several)
        case ast.Name():
            return _SEVERAL if node.id in several else _ANYTHING
        case ast.Call():
            called = called_name(node)
            return (
                _NUMBER
                if called in _MAKE_NUMBERS
                else _SEVERAL
                if called in _MAKE_SEVERAL
                else _ANYTHING
            )
        case ast.Subscript(slice=ast.Slice()):
            return _SEVERAL
    return _SEVERAL if isinstance(node, _HOLD_SEVERAL) else _ANYTHING


def _names_of_several(tree: ast.Module) -> Iterator[str]:
    """Yield the variables that hold several values: lists, what is looped over, scores of folds."""
    for node in ast.walk(tree):
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
