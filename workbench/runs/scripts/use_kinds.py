"""For what a program uses a value, by the call, the loop or the expression in which it ends.

A call is known by its name: `optim.AdamW(...)` makes an optimizer whatever the option is called
that it is given. The kinds are evidence for and against a search; `option_scores` weighs them.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from workbench.runs.scripts.script_options import called_name, children_of, last_name

_CALLS = (
    (
        "scheduler",
        r"(?:^|\.|_)lr_sched|scheduler?\b|schedule$|[a-z]LR$|Annealing|Plateau|[wW]arm_?[uU]p|Decay$",
    ),
    ("clip", r"\bclip"),
    (
        "estimator",
        r"(?:Classifier|Regressor|Regression|SVC|SVR|Forest|Ridge|Lasso|ElasticNet|KMeans|NB"
        r"|Neighbors|GaussianProcess\w*|CatBoost|XGB\w*|LGBM\w*|TSNE|UMAP|PCA|Word2Vec|FastText)$",
    ),
    (
        "optimizer",
        r"\boptim(?:izers?)?\.\w+$|(?:Adam\w*|SGD\w*|RMS[Pp]rop|Adagrad|Adadelta|Lion|Lamb|LARS"
        r"|Adafactor|LBFGS|Muon|Shampoo|Optimizer|adamw?|sgd|rmsprop)$|_optim(?:izer)?s?$"
        r"|^(?:make|build|create|get)_optim\w*$",
    ),
    ("loss", r"(?:[lL]oss|[cC]riterion|[eE]ntropy|Divergence)(?:es)?\w{0,12}$"),
    ("batches", r"(?:[lL]oader|[sS]ampler|[iI]terator|[bB]atch(?:es|ify)?|[bB]uffer|Memory)$"),
    (
        "augmentation",
        r"\b(?:transforms?|albumentations|A|T|iaa|tio|v2|K)\.[A-Z]\w+$|^Random[A-Z]|[aA]ug(?:ment\w*)?$|[mM]ix[uU]p|[cC]ut(?:out|mix|Out|Mix)",
    ),
    (
        "trainer",
        r"(?:Trainer|TrainingArguments|Config|Args|Arguments|Agent|Policy|[a-z]Net(?:work)?|Model|Encoder|Decoder)$",
    ),
    (
        "layer",
        r"(?:Dropout\w*|Linear|Conv\w*|LSTM\w*|GRU\w*|RNN\w*|Dense|Embedding|\w*Norm\w*|\w*Attention|\w*Pool\w*|TransformerEncoderLayer|Sequential)$",
    ),
    (
        "path",
        r"(?:^|\.|_)(?:join|open|Path|load\w*|save\w*|makedirs|mkdir|exists|isfile|isdir|glob|listdir|restore|from_pretrained|read_\w+)$",
    ),
    (
        "log",
        r"(?:^|\.)(?:print|info|debug|warn\w*|error|format|add_scalar|SummaryWriter|init|basicConfig|write|update_config|ModelCheckpoint|EarlyStopping)$",
    ),
    (
        "device",
        r"(?:^|\.)(?:to|cuda|device|set_device|set_num_threads|DataParallel|init_process_group)$",
    ),
    (
        "data",
        r"(?:[dD]ata(?:set|module)?s?|split\w*|preprocess\w*|Tokenizer|[cC]orpus|[vV]ocab\w*|make|Env)$|(?:load|get|make|read|build|prepare)_?\w*(?:data|corpus|vocab|graph|dict)\w*$",
    ),
)
_KINDS = [(kind, re.compile(pattern)) for kind, pattern in _CALLS]
_KEYWORDS = {
    "lr": "optimizer",
    "learning_rate": "optimizer",
    "weight_decay": "optimizer",
    "betas": "optimizer",
    "momentum": "optimizer",
    "batch_size": "batches",
    "dropout": "layer",
    "p": "layer",
    "num_workers": "device",
    "epochs": "loop",
    "max_epochs": "loop",
    "label_smoothing": "loss",
}
"""What keywords of any call are for."""
_RATES = frozenset(("lr", "learning_rate", "weight_decay", "momentum"))


def kind_of_call(name: str) -> str:
    """Return for what a function uses what it is given, as its dotted name says, or ""."""
    return next((kind for kind, pattern in _KINDS if pattern.search(name)), "")


def values_used(node: ast.AST) -> Iterator[tuple[str, ast.expr, str]]:
    """Yield the kind of use, the value, and the keyword it is passed as, for a node alone.

    Values inside calls within the node belong to those calls.

    Args:
        node: A node of a program.
    """
    match node:
        case ast.Call():
            yield from _in_call(node)
        case ast.BinOp() | ast.Compare() | ast.Subscript() | ast.JoinedStr():
            yield from ((kind, value, "") for kind, value in _in_expression(node))
        case ast.For() | ast.While() | ast.If() | ast.IfExp():
            yield from ((kind, value, "") for kind, value in _in_control(node))
        case ast.Assign(targets=[ast.Subscript(slice=ast.Constant(value=str() as key))]) if (
            key in _RATES
        ):
            yield from (("optimizer", part, key) for part in _parts(node.value))


def _in_call(call: ast.Call) -> Iterator[tuple[str, ast.expr, str]]:
    if called_name(call) == "range":
        return
    kind = kind_of_call(_dotted(call.func))
    for value in call.args:
        yield from ((kind, part, "") for part in _parts(value))
    for word in call.keywords:
        name = word.arg or ""
        yield from ((_KEYWORDS.get(name, kind), part, name) for part in _parts(word.value))


def _in_expression(
    node: ast.BinOp | ast.Compare | ast.Subscript | ast.JoinedStr,
) -> Iterator[tuple[str, ast.expr]]:
    match node:
        case ast.BinOp(op=ast.Mod(), left=left, right=right) if not isinstance(left, ast.Constant):
            yield "interval", right
        case ast.BinOp(left=left, right=right):
            yield from (("sum", side) for side in (left, right))
        case ast.Compare(left=left, comparators=others):
            yield from (("compared", side) for side in (left, *others))
        case ast.Subscript(slice=place):
            yield from (("index", part) for part in _parts(place))
        case ast.JoinedStr():
            yield from (("log", part) for part in _parts(node))


def _in_control(node: ast.For | ast.While | ast.If | ast.IfExp) -> Iterator[tuple[str, ast.expr]]:
    match node:
        case ast.For(iter=ast.Call(args=values) as call):
            if called_name(call) in ("range", "trange"):
                yield from (("loop", part) for value in values for part in _parts(value))
        case ast.While(test=test):
            yield from (("loop", part) for part in _parts(test))
        case ast.If(test=test) | ast.IfExp(test=test):
            yield from (("switch", part) for part in _parts(test))


def _parts(value: ast.AST) -> Iterator[ast.expr]:
    """Yield an expression and those below it, except in other calls than conversions."""
    if isinstance(value, ast.expr):
        yield value
    is_call = isinstance(value, ast.Call) and called_name(value) not in _CONVERSIONS
    if is_call or isinstance(value, ast.Attribute | ast.Name | ast.Constant):
        return
    for child in children_of(value):
        yield from _parts(child)


_CONVERSIONS = frozenset(("int", "float", "max", "min", "tuple", "list"))


def _dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        before = _dotted(node.value)
        return f"{before}.{node.attr}" if before else node.attr
    if isinstance(node, ast.Subscript):
        return _dotted(node.value)
    return last_name(node)
