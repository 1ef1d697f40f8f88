"""Metrics in lines with only space between name and value, and how far the training is.

`epoch 3 loss 0.1`.

Prose has words and numbers, too. So a part of a line counts only where it consists of such pairs
alone, and one of them has the name of a usual metric. What is written with signs is left to
`printed_metrics`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from workbench.training.programs.written_numbers import COUNT, NUMBER

_SPLITS = ("train", "training", "val", "valid", "validation", "test", "eval", "dev")
_METRICS = (
    "loss",
    "losses",
    "acc",
    "accuracy",
    "err",
    "error",
    "score",
    "f1",
    "auc",
    "auroc",
    "auprc",
    "iou",
    "miou",
    "dice",
    "psnr",
    "ssim",
    "fid",
    "bleu",
    "wer",
    "cer",
    "ppl",
    "perplexity",
    "bpb",
    "bpc",
    "nll",
    "elbo",
    "mse",
    "rmse",
    "mae",
    "mape",
    "r2",
    "precision",
    "recall",
    "reward",
)
_NAMES = frozenset(f"{split}{metric}" for split in ("", *_SPLITS) for metric in _METRICS)
_COUNTED = ("epoch", "step", "iter", "iteration", "batch", "round", "episode")
_WORDS = re.compile(r"[a-z]*(?:f1|r2)(?![a-z])|[a-z]+")
_TRAINS = ("train", "training")
_OF_ANOTHER = (
    "baseline",
    "chance",
    "dummy",
    "highest",
    "initial",
    "lowest",
    "max",
    "maximum",
    "min",
    "minimum",
    "old",
    "prev",
    "previous",
    "random",
    "target",
)
"""What the number of a metric is preceded by that is not the one of this moment."""
_QUALIFIERS = frozenset(
    (
        *_SPLITS,
        "mean",
        "avg",
        "average",
        "best",
        "final",
        "total",
        "running",
        "learning",
        *_OF_ANOTHER,
    )
)
_BEFORE = re.compile(rf"(?<![\w./-])(?:(?:{'|'.join(_QUALIFIERS)}) ){{1,3}}$", re.IGNORECASE)
_ENDINGS = tuple(f"{word} " for word in _QUALIFIERS)
_SCOPE = re.compile(
    rf"[\[(]?({'|'.join(_TRAINS)})(?:"
    r" (?:set|data|phase|results?|metrics))?\s{0,3}(?:[:\])|]|-(?=\s))",
    re.IGNORECASE,
)
_LABEL = re.compile(r"(?<![\w./-])([^\W\d_](?:[\w'/-]*\w)?) $")
_MAX_BEFORE = 40
"""How many characters the qualifiers before a name may have."""
_PROSE = frozenset(
    (
        "a",
        "an",
        "after",
        "and",
        "are",
        "as",
        "at",
        "before",
        "by",
        "for",
        "from",
        "had",
        "has",
        "have",
        "in",
        "into",
        "is",
        "of",
        "on",
        "or",
        "out",
        "over",
        "per",
        "since",
        "than",
        "the",
        "till",
        "to",
        "took",
        "under",
        "until",
        "up",
        "via",
        "was",
        "were",
        "with",
        "within",
    )
)
_PROGRESS = re.compile(
    rf"(?<![\w./-])(?<!best )({'|'.join(_COUNTED)})\s{{0,3}}[:#]?\s{{0,3}}[\[(]?"
    rf"\s{{0,3}}({COUNT})(?![\w.]|[:,]\d)(?:\s{{0,3}}(?:/|of\b)\s{{0,3}}{COUNT})?(?:\s?[\])])?",
    re.IGNORECASE,
)
_SEPARATOR = re.compile(
    r"[|;\t]|,(?!\d)|:(?=\s|$)|(?:^|(?<=\s))[-*=>#]+(?=\s|$)|\b(?:INFO|DEBUG|WARNING)\b"
    r"|\b\d{4}-\d\d-\d\d\b|\b\d\d:\d\d(?::\d\d)?(?:[.,]\d+)?\b"
)
_IN_BRACKETS = re.compile(r"\s*[\[(][\s\d/.,:%eE+-]*(?:ms|s)?[\])]")
"""A position, a time, or the mean of the values so far."""
_WORD = r"[^\W\d](?:[\w./@-]*\w)?"
_PAIR = re.compile(
    rf"\s*({_WORD}(?: {_WORD})?)\s+({NUMBER})( ?%|ms|s|x)?(?![\w:/@]|,\d|\.\d|-\d)", re.IGNORECASE
)


class _Pair(NamedTuple):
    name: str
    value: float
    is_whole: bool
    """Whether it is written as a whole number, as counts are."""


def may_have_pairs(text: str) -> bool:
    """Return whether a text has the name of a usual metric, without which nothing is read here."""
    return not _NAMES.isdisjoint(_WORDS.findall(text.lower())) or "mAP" in text


def is_metric(name: str) -> bool:
    """Return whether a name, such as `val_loss` or `acc.train`, is that of a usual metric.

    Example:
        >>> is_metric("val_loss"), is_metric("loss_weights")
        (True, False)
    """
    words = _WORDS.findall(name.lower())
    while len(words) > 1 and words[-1] in _QUALIFIERS:
        words.pop()
    return name.endswith("mAP") or (bool(words) and words[-1] in _NAMES)


def is_count(name: str) -> bool:
    """Return whether a name, such as `epoch` or `global_step`, is of something that is counted."""
    return name.lower().rpartition("_")[2] in _COUNTED


def name_with_qualifiers(text: str, place: int, name: str) -> str:
    """Return a name with the qualifiers that stand before it, joined by underscores.

    What is counted is the same in all parts of the data: `Train Epoch` is `Epoch`.

    Args:
        text: A line.
        place: Where the name begins in it.
        name: The name.

    Example:
        >>> from workbench.training.programs.spaced_pairs import name_with_qualifiers
        >>> name_with_qualifiers("best val loss: 0.1", 9, "loss")
        'best_val_loss'
    """
    if (
        not text[max(0, place - _MAX_BEFORE) : place].lower().endswith(_ENDINGS)
    ):  # most names, quickly
        return name
    match = _BEFORE.search(text, max(0, place - _MAX_BEFORE), place)
    words = [] if match is None else match[0].split()
    if name.lower() in _COUNTED and all(word.lower() in _SPLITS for word in words):
        return name
    return "_".join((*words, name))


def label_before(text: str, place: int) -> str:
    """Return the word before a name, which says whose number it is where a line has several of the
    name.

    Args:
        text: A line.
        place: Where the name begins in it.

    Returns:
        The word; nothing where there is none, or where it is one of prose.

    Example:
        >>> from workbench.training.programs.spaced_pairs import label_before
        >>> label_before("box loss: 0.1", 4), label_before("box, loss: 0.1", 5)
        ('box', '')
    """
    match = _LABEL.search(text, max(0, place - _MAX_BEFORE), place)
    if match is None or match[1].lower() in (*_PROSE, "nan", "inf"):
        return ""
    return match[1].removesuffix("'s")


def training_scope(text: str) -> str:
    """Return how a line says at its beginning that all of it is about the training part.

    Nothing otherwise.

    Example:
        >>> from workbench.training.programs.spaced_pairs import training_scope
        >>> [training_scope(line) for line in ("[train] loss 0.5", "Train: loss 0.5", "val: loss 0.5")]
        ['train', 'Train', '']
    """
    match = _SCOPE.match(text)
    return (
        "" if match is None or "%|" in text else match[1]
    )  # what a progress bar does has a name, too


def with_training_named(names: Sequence[str], training: str = "") -> list[str]:
    """Return the names of a line, where metrics that follow one of the training part are of that
    part, too.

    In `train loss: 0.5 acc: 0.8` the accuracy is not the one that another line states of validation
    data.

    Args:
        names: In their order, with their qualifiers.
        training: What `training_scope` returns of the line.

    Example:
        >>> from workbench.training.programs.spaced_pairs import with_training_named
        >>> with_training_named(["epoch", "train_loss", "acc", "lr", "val_loss", "f1"])
        ['epoch', 'train_loss', 'train_acc', 'lr', 'val_loss', 'f1']
    """
    named = []
    for name in names:
        first, _, rest = name.partition("_")
        if rest and first.lower() in _SPLITS and is_metric(name):
            training = first if first.lower() in _TRAINS else ""
        named.append(f"{training}_{name}" if training and name.lower() in _METRICS else name)
    return named


def read_spaced(text: str, *, has_others: bool, training: str = "") -> dict[str, float]:
    """Return the pairs with only space in between, and the progress.

    Args:
        text: A line, without its pairs that have signs.
        has_others: Whether it has such pairs, to which the progress belongs.
        training: What `training_scope` returns of the line.

    Example:
        >>> from workbench.training.programs.spaced_pairs import read_spaced
        >>> read_spaced("Epoch [3/10] loss 0.25 acc 98", has_others=False)
        {'Epoch': 3.0, 'loss': 0.25, 'acc': 98.0}
        >>> read_spaced("step 3 of 10, loaded 500 images in 3 s", has_others=False)
        {}
    """
    has_name = may_have_pairs(text)
    if not (has_name or has_others):
        return {}
    progress = {match[1]: float(match[2].replace(",", "")) for match in _PROGRESS.finditer(text)}
    kept: list[_Pair] = []
    if has_name:
        for part in _SEPARATOR.split(_PROGRESS.sub("|", text)):
            pairs = _pairs_of(part)
            if any(may_have_pairs(pair.name) and (progress or not pair.is_whole) for pair in pairs):
                kept += pairs
    names = with_training_named([pair.name for pair in kept], training)
    found = {name: pair.value for name, pair in zip(names, kept, strict=True)}
    return progress | found if found or has_others else {}


def _pairs_of(part: str) -> list[_Pair]:
    """Return the pairs of a part that consists of nothing else; none of any other."""
    found: list[_Pair] = []
    part = part.rstrip()
    place = _after_brackets(part, 0)
    while place < len(part):
        match = _PAIR.match(part, place)
        if (
            match is None
            or not _can_be_name(words := match[1].split(" "))
            or match[2].endswith("_")
        ):
            return []
        is_whole = match[2].lstrip("+-").isdecimal() and "%" not in (match[3] or "")
        found.append(_Pair("_".join(words), float(match[2]), is_whole))
        place = _after_brackets(part, match.end())
    return found


def _after_brackets(part: str, place: int) -> int:
    while match := _IN_BRACKETS.match(part, place):
        place = match.end()
    return place


def _can_be_name(words: list[str]) -> bool:
    if any(word.lower() in _PROSE for word in words):
        return False
    return len(words) == 1 or may_have_pairs(words[-1]) or words[0].lower() in _QUALIFIERS
