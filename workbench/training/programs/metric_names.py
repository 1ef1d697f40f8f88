"""Decides which words of a printed line are the name of a metric.

Prose has words and numbers as well. So values without a sign such as `=` only count if one of the
names is a usual metric. Words before the name, such as `best` or `train`, belong to it. Finding
names and numbers in a line is left to `printed_metrics`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence


def _words(text: str) -> tuple[str, ...]:
    """Return the words of a text. Long tables of words are easier to read as text."""
    return tuple(text.split())


_SPLITS = ("train", "training", "val", "valid", "validation", "test", "eval", "dev")
_METRICS = _words(
    "loss losses acc accuracy err error score f1 auc auroc auprc iou miou dice psnr ssim fid "
    "bleu wer cer ppl perplexity bpb bpc nll elbo mse rmse mae mape r2 precision recall reward"
)
_NAMES = frozenset(f"{split}{metric}" for split in ("", *_SPLITS) for metric in _METRICS)
COUNTED = ("epoch", "step", "iter", "iteration", "batch", "round", "episode")
_WORDS = re.compile(r"[a-z]*(?:f1|r2)(?![a-z])|[a-z]+")
_TRAINS = ("train", "training")
_OF_ANOTHER = _words(
    "baseline chance dummy highest initial lowest max maximum min minimum old prev previous "
    "random target"
)
"""Words before a value that is not the current value of a metric."""
_QUALIFIERS = frozenset(
    (
        *_SPLITS,
        *_OF_ANOTHER,
        *_words("mean avg average best final total running learning"),
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
"""Maximum length of the qualifiers before a name."""
_PROSE = frozenset(
    _words(
        "a an after and are as at before by for from had has have in into is of on or out over per "
        "since than the till to took under until up via was were with within"
    )
)


def has_metric_name(text: str) -> bool:
    """Return whether a text has the name of a usual metric. If not, nothing in it is read."""
    return not _NAMES.isdisjoint(_WORDS.findall(text.lower())) or "mAP" in text


def is_metric(name: str) -> bool:
    """Return whether a name, such as `val_loss` or `acc.train`, is a usual metric.

    Example:
        >>> is_metric("val_loss"), is_metric("loss_weights")
        (True, False)
    """
    words = _WORDS.findall(name.lower())
    while len(words) > 1 and words[-1] in _QUALIFIERS:
        words.pop()
    return name.endswith("mAP") or (bool(words) and words[-1] in _NAMES)


def is_count(name: str) -> bool:
    """Return whether a name is a count, such as `epoch` or `global_step`."""
    return name.lower().rpartition("_")[2] in COUNTED


def name_with_qualifiers(text: str, place: int, name: str) -> str:
    """Return a name with the qualifiers before it, joined by underscores.

    A count is the same in all parts of the data: `Train Epoch` is `Epoch`.

    Args:
        text: A line.
        place: The start of the name in it.
        name: The name.

    Example:
        >>> from workbench.training.programs.metric_names import name_with_qualifiers
        >>> name_with_qualifiers("best val loss: 0.1", 9, "loss")
        'best_val_loss'
    """
    # A quick check, because most names have no qualifiers.
    if not text[max(0, place - _MAX_BEFORE) : place].lower().endswith(_ENDINGS):
        return name
    match = _BEFORE.search(text, max(0, place - _MAX_BEFORE), place)
    words = match[0].split() if match is not None else []
    if name.lower() in COUNTED and all(word.lower() in _SPLITS for word in words):
        return name
    return "_".join((*words, name))


def label_before(text: str, place: int) -> str:
    """Return the word before a name, which says what the number belongs to.

    It is needed if a line has several values of the same name.

    Args:
        text: A line.
        place: The start of the name in it.

    Returns:
        The word. "" if there is none, or if it is prose.

    Example:
        >>> from workbench.training.programs.metric_names import label_before
        >>> label_before("box loss: 0.1", 4), label_before("box, loss: 0.1", 5)
        ('box', '')
    """
    match = _LABEL.search(text, max(0, place - _MAX_BEFORE), place)
    if match is None or match[1].lower() in (*_PROSE, "nan", "inf"):
        return ""
    return match[1].removesuffix("'s")


def training_scope(text: str) -> str:
    """Return the word at the start of a line about training, or "" for any other line.

    Example:
        >>> from workbench.training.programs.metric_names import training_scope
        >>> training_scope("[train] loss 0.5"), training_scope("val: loss 0.5")
        ('train', '')
    """
    match = _SCOPE.match(text)
    if match is None or "%|" in text:  # the word is the title of a progress bar
        return ""
    return match[1]


def with_training_named(names: Sequence[str], training: str = "") -> list[str]:
    """Return the names of a line, with a prefix for metrics of the training part.

    Metrics after a training metric also belong to training. In `train loss: 0.5 acc: 0.8`, the
    accuracy does not belong to the validation data. Another line may show that.

    Args:
        names: The names in their order, with their qualifiers.
        training: The result of `training_scope` for the line.

    Example:
        >>> from workbench.training.programs.metric_names import with_training_named
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


def can_be_name(words: list[str]) -> bool:
    """Return whether one or two words before a number can be a name, rather than prose."""
    if any(word.lower() in _PROSE for word in words):
        return False
    return len(words) == 1 or has_metric_name(words[-1]) or words[0].lower() in _QUALIFIERS
