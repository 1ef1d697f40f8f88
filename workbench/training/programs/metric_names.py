"""Decides what the numbers of a printed line are called, and which of them can be an objective.

The words before a number belong to it, so that two different numbers never share a name: the
lowest validation loss is not the validation loss. Words at the start of a line, such as `train:`,
belong to all of its numbers. Finding names and numbers in a line is left to `printed_metrics`.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable
from typing import Literal, NamedTuple


def _words(text: str) -> tuple[str, ...]:
    """Return the words of a text. Long tables of words are easier to read as text."""
    return tuple(text.split())


TRAINS = ("train", "training", "trn", "learn")
VALIDATES = _words(
    "val valid validation validate validating vali eval evaluation evaluate evaluating dev devel "
    "holdout heldout oof cv"
)
TESTS = ("test", "testing", "tst")
SPLITS = (*TRAINS[:3], *VALIDATES[:-2], *TESTS)
"""Words that name a part of the data."""
_LOSSES = _words("loss losses logloss mlogloss")
_RISING = _words(
    "acc accs accuracy score f1 fscore auc auroc auprc aupr ap map map50 iou miou dice jaccard "
    "psnr ssim bleu chrf meteor rouge rougel cider likelihood loglik rsquared r2 precision recall "
    "sensitivity specificity reward rewards return returns ndcg mrr hitrate kappa mcc correlation "
    "spearman pearson silhouette fitness elbo"
)
"""Scores, which are better if they are higher."""
_FALLING = _words(
    "err error errors lpips fid kid wer cer eer ppl perplexity bpb bpc bpd nll nelbo mse rmse "
    "rmsle mae mape smape mase residual residuals deviance brier ece epe inertia gini regret merror"
)
_AT_END = _words("per der top squared corr objective metric")
"""Words that are a metric only as the last word of a name."""
_METRICS = (*_LOSSES, *_RISING, *_FALLING, *_AT_END)
_FORMS = {
    "loss": re.compile(r"\w*loss\w*|cost|objective|energy"),
    "score": re.compile(
        r"acc\w*|top\d+|r2|f_?score|roc|map\d*|bleu\w*|rouge\w*|\w*ret|ndcg\w*|hits\w*|em|correct"
        r"|success|prec\d?"
    ),
    "error": re.compile(r"fid\w*|bits|metric"),
}
"""Forms of metrics in sources, which have more of them than logs."""
_NAMES = frozenset((*_METRICS, *(f"{split}{metric}" for split in SPLITS for metric in _METRICS)))
COUNTED = ("epoch", "step", "iter", "iteration", "batch", "round", "episode")
_COUNTS = frozenset((*COUNTED, "timesteps", "updates", "it", "ep"))
_LIMITS = ("max", "min", "num", "total", "n", "best", "last", "warmup")
"""Words before a count that make it something else than the place where a program is."""
_RATE_OF = re.compile(r"(?:success|win|hit|pass|solve|error|miss)[ _]?rate$", re.IGNORECASE)
_AT_RANK = re.compile(r"[^\W\d]@\d+(?![\w@])")
"""The end of a metric of the first so many results, such as `P@1`."""
_AT_STEP = re.compile(r"(\w+)@\d[\d.]*")
_CAPITAL = re.compile(r"(?<=[a-z0-9])(?=[A-Z][a-z])")
_WORDS = re.compile(r"[a-z]*(?:f1|r2|map50)(?![a-z])|[a-z]+")
HELD_OUT = re.compile(r"(?<![a-zA-Z])h[eo]ld[-_ ]?out(?![a-z])", re.IGNORECASE)
"""Two words for validation data, as in `held-out loss`, which count as one."""
_TOKENS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")
_SHARED = re.compile(r"(?:^|[_./ -])(?:lr|learning[_ ]?rate|eta|lr[_-]\w+|num_\w+|mfu)$", re.I)
"""Names of what is the same for all parts of the data."""
_OF_ANOTHER = _words(
    "baseline chance dummy highest initial lowest worst max maximum min minimum old prev previous "
    "random target"
)
"""Words before a value that is not the current value of a metric."""
_QUALIFIERS = frozenset(
    (
        *SPLITS,
        *_OF_ANOTHER,
        *_words("mean avg average best final total running learning step nll"),
    )
)
_ENDINGS = frozenset(
    (
        *SPLITS,
        *_OF_ANOTHER,
        *_words("mean avg average best final total value macro micro weighted binary"),
    )
)
_AFTER_SPLIT = (
    r"set|data|dataset|phase|results?|metrics?|stats|statistics|summary|scores?|split|loop|step|"
    r"errors?|losses|performance"
)
_BEFORE_MARK = (
    r"^|(?<=[|\u2502(\[{,;:>*#\t])|(?<=\s-)|(?<=\d)|(?<=[/\])}\d]\s)|(?<=\d%\s)|(?<=\ds\s)"
    r"|(?<=\s\s)|(?<=epoch)|(?<=Epoch)"
)
_MARK = re.compile(
    rf"(?:{_BEFORE_MARK})\s*(?P<split>(?:{'|'.join(SPLITS)})(?:[_-]\w+)?)"
    rf"(?:\s+(?:{_AFTER_SPLIT}|{'|'.join(COUNTED)}))*"
    rf"\s*(?:[\]):;|\u2502\t]|-(?=\s)|,(?=\s)|$|(?=\s\s))(?!\s*[-+]?\d*\.?\d+(?![\d.]|\s*[\[/]))"
    rf"|(?:^|\|)\s*(?P<phrase>{'|'.join(SPLITS)})\s(?![^|]*(?:[=:]\s*\S|\d\.\d))[^|]*(?=\|)"
    rf"|[\[(]\s*(?P<tag>{'|'.join(SPLITS)})(?=[\s,@])(?![^\])]*\d\.\d)[^\])=:]{{0,30}}[\])]"
    rf"|^(?P<first>{'|'.join(SPLITS)})\s+(?=[\w./]+=\S)"
    rf"|(?:{_BEFORE_MARK})\s*(?P<counted>{'|'.join(SPLITS)})\s+(?:{'|'.join(COUNTED)})s?"
    rf"\s*[:=#]?\s*\d+(?:/\d+)?(?![\w.%/]|\s*\[)",
    re.IGNORECASE,
)
_MAY_BE_SPLIT = re.compile(r"train|trn|val|eval|dev|hold|test|tst", re.IGNORECASE)
_DELIMITER = re.compile(
    r"[|\u2502\u2503;,!?{}\"<>=\[\]()]|\t|\s{2,}|:(?=\s|$)|(?<!\bavg)(?<!\bstd)(?<!\badj)(?<!\bmax)(?<!\bmin)(?<!\bval)(?<!\bacc)(?<!\bno)\.(?=\s|$)"
    r"|(?:^|(?<=\s))[-\u2013\u2014*>#~+@\u2192\u2714\u2713]+(?=\s|$)|[-=]>|\b(?:INFO|DEBUG|WARNING|ERROR)\b",
    re.IGNORECASE,
)
"""What ends the words that belong to a number, to their left."""
_NUMBER_WORD = re.compile(r"[-+]?[\d.,:/]*\d[\d.,:/]*%?")
_IS_WORD = re.compile(r"['\"]?(?:[^\W\d]|\d+-[a-z])", re.IGNORECASE)
_NUMBERED = frozenset(
    _words(
        "class fold top layer head model rank gpu task client agent worker label target output "
        "group domain level class-"
    )
)
"""Words whose number says which one it is, as in `class 3 acc`. Epochs only say when."""
_UNITS = frozenset(
    _words(
        "s sec secs seconds ms us ns min minutes h hours % epochs steps iterations batches gb mb"
    )
)
_PROSE = frozenset(
    _words(
        "a an after and are as at before by for from had has have in into is on or out over "
        "since than the till to took under until up via was were with within"
    )
)
_NEUTRAL = frozenset(
    _words(
        "the a an set dataset data images samples examples network model our its their is was so "
        "far split of folds runs seeds trials repeats"
    )
)
"""Words in a phrase that do not tell one number from another."""
_MAX_BEFORE = 80
"""Maximum length of the words before a name."""
_MAX_WORDS = 6
_MAX_GROUPS = 50
_NOT_LABELS = frozenset(
    _words(
        "info debug warning warn error critical fatal notice trace wandb root main logger "
        "trainer log logs logging stdout stderr absl pid time eta note todo tip hint usage step "
        "steps epochs best device optimizer python torch tensorboard mlflow ray train_loop lr"
    )
)
"""Words in front of a colon or in brackets that are no label of the numbers after them."""
_OF_RESULTS = frozenset(
    _words(
        "result results metric metrics performance score scores stat stats statistics summary "
        "report progress status output outputs losses done finished complete completed now "
        "current dict log logs values evaluated avg average mean overall all total "
        "final finally end"
    )
)
"""Words of labels that do not tell one number from another."""
_VARIANTS = frozenset(
    _words(
        "ema swa teacher student raw int8 int4 fp8 fp16 fp32 bf16 quantized quant pruned distilled "
        "finetuned pretrained online clean robust adversarial adv source"
    )
)
"""Words for a variant of a model, whose metrics are all different ones."""
_OF_PROCESS = re.compile(
    r"(?:rank|default|host|node|worker|proc|process|gpu|cpu|cuda|local|device|thread|server|pid)s?"
    r"[_ -]?\d*$|.*(?:__|\.\w{1,4}$)"
)
"""The beginning of a label that says which process or source file prints a line."""
_BEFORE_LABEL = r"^\W*|[|\u2502;,)\]}]\s*|\d[%\w]{0,3}\s+|\s{2,}|\s-\s+|\d:\s"
_LABEL_WORD = r"[^\W\d][\w./+-]*"
_LABEL_WORDS = rf"{_LABEL_WORD}(?: (?:{_LABEL_WORD}|\d+)){{0,2}}"
_LABEL = re.compile(
    rf"(?:{_BEFORE_LABEL})(?:[\[(<](?P<tag>{_LABEL_WORDS})(?=[\])>]\s*:?\s*[^\W\d][^\[\]|]*\d)"
    rf"|(?P<colon>{_LABEL_WORDS}(?:\s?[\[(][^()\[\]=:|]*[\])])?)\s?:\s+)"
)
_MAY_BE_LABEL = re.compile(r"\w[\])>]|[\w\])]\s?:\s")
_NAMED = re.compile(
    r"[\[({'\"\s]*(?P<name>(?:[^\W\d][\w./@^-]*\s){0,2}?[^\W\d][\w./@^-]*)['\"]?\s*[=:]?\s*['\"]?"
    r"(?:[-+]?\.?\d|nan|inf)",
    re.IGNORECASE,
)
_GROUP = re.compile(
    r"(?<![\w./'\"-])['\"]?(?P<word>[a-z][\w-]*|[A-Z][a-z]+)['\"]?\s?[:=]?\s?[({\[]"
    r"(?=\s*['\"]?[\w./@ -]+['\"]?\s*[=:])"
)
"""A group of numbers in brackets with a word in front, such as `val(loss=0.5)`."""
_MAY_BE_GROUP = re.compile(r"\w['\"]?\s?[:=]?\s?[({\[]")
_OPTION = re.compile(
    r"(?:^|_)(?:lr|learning_rate|momentum|dropout|seed|beta[12s]?|alpha|gamma|lambda|eps|epsilon|tau|"
    r"warmup|decay|weight_decay|batch|port|pid|rank|world|device|gpus?|cpus?|workers?|threads?|"
    r"version|epochs|iters|iterations|seq_len|context_len|max_len|layers?|heads?|depth|width|hidden|embed|dims?|sizes?|params?|parameters?|"
    r"tensors|vocab|vocabulary|words|labels|classes|features|samples|examples|images|rows|files|"
    r"tokens|trees|bins|length|patience|tol|tolerance|accum\w*|clip\w*|weights?|temperature|"
    r"positive|negative|devices|params_m|codes|steps|interval|freq|frequency|buffer|capacity|"
    r"memory|allocated|reserved|total|nodes?|edges|channels?|filters?|kernel|stride|padding|"
    r"threshold|factor|ratio|scale|std|sigma|mu|margin|split|fold|folds|shards?|id)(?:_[a-z]{1,2})?$"
    r"|(?:^|_)(?:learn|dropout|drop|decay|sampling|sample|masking|mask|mutation|frame)_rate$|^rate$"
    r"|^(?:num|n|max|min|no|number|use|is|initial|total|count|block|context|vocab|batch|hidden)_"
    r"|^(?:in|out)_",
)
"""Names of settings and sizes. Alone on a line they are an echo of the options."""
_IN_BRACKETS = re.compile(r"[_ ]?\([^()]*\)$")
"""A short name or a unit after a name, such as the `(LR)` of `learning rate (LR)`."""
_ECHO = re.compile(
    r"\b(?:namespace|config\w*|configuration|arg\w*|params?|parameters?|hparams|hyper\W?param\w*|"
    r"options?|settings?|flags|cfg|kwargs|hp|hps|hyp)\b",
    re.IGNORECASE,
)


def has_metric_name(text: str) -> bool:
    """Return whether a text has the name of a usual metric. If not, nothing in it is read."""
    return (
        not _NAMES.isdisjoint(_WORDS.findall(text.lower()))
        or "mAP" in text
        or _AT_RANK.search(text) is not None
    )


def is_metric(name: str) -> bool:
    """Return whether a name, such as `val_loss` or `acc.train`, is a usual metric.

    Example:
        >>> is_metric("val_loss"), is_metric("loss_weights")
        (True, False)
    """
    words = _WORDS.findall(_CAPITAL.sub("_", name).lower())
    if "per" in words[1:-1]:  # as in `return per episode`
        words = words[: words.index("per", 1)]
    while len(words) > 1 and words[-1] in _ENDINGS:
        words.pop()
    return (
        name.endswith("mAP")
        or (bool(words) and words[-1] in _NAMES)
        or words[-2:] in (["cross", "entropy"], ["ep", "r"], ["episode", "r"])
        or _AT_RANK.search(name) is not None
        or _RATE_OF.search(name) is not None
    )


def kind_of_metric(word: str) -> Literal["loss", "score", "error", ""]:
    """Return what a word of a name measures.

    Args:
        word: The word, in lower case. Some programs write `vloss` and `tacc` for the parts of the
            data.

    Returns:
        "score" is better if it is higher, the others if they are lower. "" is no metric.

    Example:
        >>> [kind_of_metric(word) for word in ("auc", "rmse", "loss", "veer", "time")]
        ['score', 'error', 'loss', 'error', '']
    """
    tables: tuple[tuple[Literal["loss", "score", "error"], tuple[str, ...]], ...] = (
        ("loss", _LOSSES),
        ("score", _RISING),
        ("error", _FALLING),
    )
    for kind, words in tables:
        if word in words or _FORMS[kind].fullmatch(word):
            return kind
    if word[:1] in ("t", "v") and len(word) > _SHORTEST and word[1:] in _METRICS:
        return kind_of_metric(word[1:])
    return ""


_SHORTEST = 3


def is_count(name: str) -> bool:
    """Return whether a name is a count, such as `epoch` or `global_step`."""
    words = re.split(r"[_/]", name.lower())
    if "per" in words[1:] and is_metric(name):
        return False
    return words[-1] in _COUNTS and (len(words) == 1 or words[0] not in _LIMITS)


def is_option(name: str) -> bool:
    """Return whether a name is probably that of a setting or a size, rather than of a result.

    Example:
        >>> is_option("batch_size"), is_option("num_layers"), is_option("val_loss")
        (True, True, False)
    """
    plain = _IN_BRACKETS.sub("", name.lower().replace("-", "_"))
    return not is_metric(name) and _OPTION.search(plain) is not None


def echoes_options(title: str) -> bool:
    """Return whether a title, such as `Config` or `Namespace`, announces options."""
    return _ECHO.search(title) is not None


def split_of(name: str) -> str:
    """Return the part of the data that a name speaks about.

    Args:
        name: The name of a metric.

    Returns:
        "validation", "test" or "train". "" if the name does not say it.

    Example:
        >>> split_of("eval/loss"), split_of("testAccuracy"), split_of("loss")
        ('validation', 'test', '')
    """
    tokens = [token.lower() for token in _TOKENS.findall(HELD_OUT.sub("heldout", name))]
    for split, words in (("validation", VALIDATES), ("test", TESTS), ("train", TRAINS)):
        if any(token in words for token in tokens):
            return split
    return ""


def split_word(word: str) -> str:
    """Return a word in lower case if it names a part of the data, or else ""."""
    return word.lower() if word.lower() in SPLITS else ""


class Scope(NamedTuple):
    """Words that belong to all numbers of a part of a line.

    Attributes:
        begin: Where the words begin.
        start: Where the part begins.
        end: Where it ends.
        word: The words, joined by underscores.
        is_split: Whether they name a part of the data. Otherwise they are a label, such as `EMA`.
    """

    begin: int
    start: int
    end: int
    word: str
    is_split: bool


def scopes_in(text: str) -> list[Scope]:
    """Return the words that belong to all numbers after them, in the order of their places.

    Example:
        >>> [scope.word for scope in scopes_in("[train] loss 0.5")]
        ['train']
        >>> [scope.word for scope in scopes_in("[EMA] Test set: loss 0.5")]
        ['EMA', 'Test']
        >>> scopes_in("loss 0.5")
        []
    """
    scopes: list[Scope] = []
    if _MAY_BE_SPLIT.search(text) is not None:  # a quick check, because most lines have none
        for match in _MARK.finditer(text):
            word = next(filter(None, match.groups()))
            scopes.append(Scope(match.start(), match.end(), len(text), word, is_split=True))
    if _MAY_BE_GROUP.search(text) is not None:
        for match in itertools.islice(_GROUP.finditer(text), _MAX_GROUPS):
            words = _label_of(match["word"])
            end = _end_of_group(text, match.end())
            scopes += _scopes_of(words, match, end)
    if _MAY_BE_LABEL.search(text) is not None:
        for match in _LABEL.finditer(text):
            if match["colon"] is None or is_named(text, match):
                words = _label_of(
                    match["tag"] or match["colon"], is_before_name=match["colon"] is not None
                )
                scopes += _scopes_of(words, match, len(text))
    return sorted(set(scopes))


def _scopes_of(words: list[str], match: re.Match[str], end: int) -> list[Scope]:
    """Return the scopes that some words give: a part of the data, a label, or both."""
    splits = [word for word in words if word.lower() in SPLITS]
    labels = [word for word in words if word.lower() not in SPLITS]
    scopes = []
    if labels:
        word = "_".join(labels)
        scopes.append(Scope(match.start(), match.end(), end, word, is_split=False))
    if splits:
        scopes.append(Scope(match.start(), match.end(), end, splits[0], is_split=True))
    return scopes


def is_named(text: str, match: re.Match[str]) -> bool:
    """Return whether a label is directly in front of the name of a metric and its number."""
    after = _NAMED.match(text, match.end())
    return after is not None and has_metric_name(after["name"])


def _label_of(text: str, *, is_before_name: bool = False) -> list[str]:
    """Return the words of a label. Other texts, such as a log level, have none.

    Args:
        text: The text.
        is_before_name: Whether the name of a metric follows. Then a metric may be a label, such as
            the `PER` of `PER: f1 0.9`, where it means persons.
    """
    words = [word.strip(".") for word in re.split(r"[\s/()\[\]]+", text) if word]
    lowered = [word.lower() for word in words]
    is_other = (
        any(word in _PROSE or word in _NOT_LABELS for word in lowered)
        or _OF_PROCESS.match(lowered[0]) is not None
        or any(is_count(word) or (is_metric(word) and not is_before_name) for word in words)
        or echoes_options(text)
    )
    if is_other:
        return []
    kept = [word for word in words if word.lower() not in _NEUTRAL | _OF_RESULTS]
    if all(not _IS_WORD.match(word) for word in kept):
        return []
    if any(not _IS_WORD.match(word) for word in kept) and kept[0].lower() not in _NUMBERED:
        return []
    return kept


def _end_of_group(text: str, place: int) -> int:
    """Return where the bracket that opens before a place closes, or the end of the line."""
    depth = 1
    for index in range(place, len(text)):
        depth += (text[index] in "({[") - (text[index] in ")}]")
        if depth == 0:
            return index
    return len(text)


def labelled(name: str, label: str) -> str:
    """Return a name with a label before it, unless the name has it or is the same for all labels.

    Args:
        name: The name.
        label: The label, such as `EMA`. "" if there is none.
    """
    is_known = name.lower().startswith(f"{label.lower()}_")
    if not label or is_known or is_count(name) or _SHARED.search(name):
        return name
    return f"{label}_{name}"


def carried_label(words: str, name: str) -> str:
    """Return the words in front of a name that the next numbers of the line also belong to.

    In `ema val_loss: 0.5 val_acc: 0.7` that is `ema`: no loss is called "ema val_loss". In
    `kl loss: 0.5 acc: 0.7` there is none.

    Args:
        words: The words in front of the name, with spaces.
        name: The name without them.
    """
    labels = [word for word in re.split("[ _]", words) if word and word.lower() not in SPLITS]
    if all(word.lower() in _QUALIFIERS for word in labels) or any(
        word.lower() in _OF_ANOTHER or is_metric(word) for word in labels
    ):
        return ""
    is_variant = any(word.lower() in _VARIANTS for word in labels)
    if is_variant or (split_of(name) and is_metric(name)):
        return "_".join(labels)
    return ""


def name_of(text: str, start: int, name: str, *, begin: int = 0) -> str:
    """Return the name of a number: the words before it, joined by underscores.

    A count is the same in all parts of the data: `Train Epoch` is `Epoch`.

    Args:
        text: A line.
        start: The start of the last word of the name in it.
        name: That word.
        begin: The end of the number before.

    Returns:
        The name. "" if the words are prose.

    Example:
        >>> line = "Lowest val loss: 0.1"
        >>> name_of(line, 11, "loss")
        'Lowest_val_loss'
    """
    begin = max(begin, start - _MAX_BEFORE)
    before = text[begin:start].rstrip("'\"")
    if not before[-1:].isspace() or before[-2:].isspace() or before[-1:] == "\t":
        return name
    cuts = [match.end() for match in _DELIMITER.finditer(before.rstrip() + " ")]
    inner = [cut for cut in cuts if cut < len(before.rstrip())]
    words = before[inner[-1] if inner else 0 :].split()
    if len(cuts) > len(inner):  # a sign or a wide gap stands directly before the name
        words = []
    return _joined(_after_number(words), name)


def _after_number(words: list[str]) -> list[str]:
    """Return the words after the last number, unless the number says which one it is."""
    numbers = [place for place, word in enumerate(words) if not _IS_WORD.match(word)]
    if not numbers:
        return words
    last = numbers[-1]
    if last and words[last].isdecimal() and words[last - 1].lower() in _NUMBERED:
        return words[last - 1 :]
    after = words[last + 1 :]
    while after and after[0].lower() in _UNITS:
        after = after[1:]
    if (
        words[:last]
        and any(word.lower() in _PROSE for word in words)
        and has_metric_name(" ".join(words[:last]))
    ):
        return words[:last] + after
    return after


def _joined(words: list[str], name: str) -> str:
    """Return a name with the words before it."""
    if name.lower() in _COUNTS and all(word.lower() in SPLITS for word in words):
        return name
    prose = [place for place, word in enumerate(words) if word.lower() in _PROSE]
    if prose:
        head = words[: prose[0]]
        if not has_metric_name(" ".join(head)):  # such as "saved a model with loss"
            words = words[prose[-1] + 1 :]
        else:
            return _of_phrase(words, name)
    cleaned = [cleaned for word in words if (cleaned := _cleaned(word))]
    if len(cleaned) >= _MAX_WORDS:
        cleaned = cleaned[-1:]
    return "_".join((*cleaned, name))


def _cleaned(word: str) -> str:
    """Return a word of a name without what is no part of it, or "" if nothing remains."""
    word = word.strip("'\".:`").removesuffix("'s").removesuffix("\u2019s")
    if (at_step := _AT_STEP.fullmatch(word)) is not None and split_word(at_step[1]):
        return at_step[1]  # another step is no other metric
    if word.lower() in _NEUTRAL - {"of", "model", "network"} or _OF_TASK.fullmatch(word):
        return ""
    return word


_OF_TASK = re.compile(r"\d[\d.]*-(?:way|shot|fold|class)", re.IGNORECASE)
"""A property of the task, which is the same in all lines: `5-way 1-shot acc`."""


def _of_phrase(words: list[str], name: str) -> str:
    """Return the name that a phrase gives a number, such as "Accuracy on the 500 test images"."""
    kept = [
        cleaned
        for word in (*words, name)
        if word.lower() not in _PROSE | _NEUTRAL
        and not _NUMBER_WORD.fullmatch(word)
        and (cleaned := _cleaned(word))
    ]
    splits = [word for word in kept if word.lower() in SPLITS]
    return "_".join([*splits, *(word for word in kept if word not in splits)])


def scoped(name: str, scope: str) -> str:
    """Return a name with the part of the data before it, unless it is known or does not matter.

    Args:
        name: The name.
        scope: The part, such as `train`. "" if there is none.
    """
    if not scope or is_count(name) or _SHARED.search(name) or split_of(name):
        return name
    return f"{scope}_{name}"


def written_scope(name: str) -> str:
    """Return the part of the data that the following numbers of a line also belong to.

    After `train_loss` that is `train`, and after `val loss`, written as two words, `val`. After
    `val_loss` there is none: such a program writes the whole name of each number.

    Args:
        name: A name, with spaces where the line has them.

    Example:
        >>> written_scope("train_loss"), written_scope("val Loss"), written_scope("val_loss")
        ('train', 'val', '')
    """
    first = re.split(r"[_ ]", name, maxsplit=1)[0]
    if first == name or first.lower() not in SPLITS or not is_metric(name):
        return ""
    if first.lower() in TRAINS or name[len(first)] == " ":
        return first
    return ""


def can_be_name(words: list[str], *, is_apart: bool = False) -> bool:
    """Return whether some words before a number can be a name, rather than prose.

    Args:
        words: The words.
        is_apart: Whether there is more than a space between them and the number.
    """
    if any(word.lower() in _PROSE for word in words):
        return False
    if is_apart and has_metric_name(" ".join(words)):
        return True
    return (
        len(words) == 1
        or has_metric_name(words[-1])
        or words[0].lower() in _QUALIFIERS
        or (len(words) > 1 and has_metric_name(words[0]) and len(words[-1]) <= _MAX_TAG)
    )


_MAX_TAG = 3
"""Maximum length of a word after the name of a metric, such as the `p50` of `error p50`."""
_NOT_OBJECTIVES = re.compile(
    r"time|runtime|second|duration|elapsed|eta\b|throughput|fps|sps|speed|memory|worst|grad|norm\b|gnorm|"
    r"init|samples|tokens|ups\b|wps\b|chance|dummy|old\b|best|lowest|highest|minimum|maximum|\bmin\b|\bmax\b|previous|prev\b"
    r"|baseline|initial|random|target|kl\b|(?<!cross)(?<!cross )entropy|std\b|support|len\b|length"
    r"|p.value|statistic",
    re.IGNORECASE,
)
_OBJECTIVES = re.compile(
    r"loss|acc|error|score|f1|auc|perplexity|ppl|mse|mae|reward|rew|return|bleu|precision|recall|"
    r"map|iou|dice|wer|cer|bpb|bpc|nll|r2|squared|rmse",
    re.IGNORECASE,
)
_RANKS = {"validation": 0, "test": 1, "": 2, "train": 3}


def data_rank(name: str) -> int:
    """Return how well the data of a metric suits an objective: 0 is best, for validation data."""
    return _RANKS[split_of(name)]


def objectives_in(names: Iterable[str]) -> list[str]:
    """Return the names that can be an objective, the best first.

    Metrics of validation data come first, then those of test data, then those that do not say
    their data. Metrics of training data are left out: they do not say which model is better.

    Args:
        names: Names of metrics, in the order in which a program writes them.

    Example:
        >>> objectives_in(["epoch", "loss", "train_acc", "test_acc", "val_acc", "val_time"])
        ['val_acc', 'test_acc', 'loss']
    """
    return sorted(
        (name for name in names if is_score(name) and split_of(name) != "train"),
        key=lambda name: (
            data_rank(name),
            _OF_ANOTHER_VALUE.search(name) is not None,
            not split_of(name) and "loss" in name.lower(),  # probably that of training
            not _is_whole(name),
        ),
    )


def _is_whole(name: str) -> bool:
    """Return whether a metric is of all data, rather than of a part such as one class."""
    tokens = [token.lower() for token in re.split(r"[^\w@]+|_", name)]
    others = {*SPLITS, *_OF_WHOLE}
    return name[:1].isalpha() and all(
        token in others or token.isdecimal() or is_metric(token) for token in tokens
    )


_OF_WHOLE = _words(
    "mean avg average macro micro weighted final overall total score cross validation"
)


_OF_ANOTHER_VALUE = re.compile(
    rf"(?:^|[_./ -])(?:best|{'|'.join(_OF_ANOTHER)})(?:[_./ -]|[A-Z]|$)", re.IGNORECASE
)

_OF_BEST_VALUE = re.compile(
    r"(?:^|[_./ -])(?:best|lowest|highest|minimum|maximum)(?:[_./ -]|[A-Z]|$)", re.IGNORECASE
)


def is_score(name: str) -> bool:
    """Return whether a name is that of a loss or a score, on whatever data.

    Example:
        >>> is_score("train_loss"), is_score("time"), is_score("grad_norm")
        (True, False, False)
    """
    if is_count(name) or is_option(name) or _SHARED.search(name):
        return False
    names_only_split = bool(split_of(name)) and len(_TOKENS.findall(name)) == 1
    if not (is_metric(name) or _OBJECTIVES.search(name) or names_only_split):
        return False
    spelled = name.replace("_", " ")
    if _OF_BEST_VALUE.search(name) is not None:
        return True
    return _NOT_OBJECTIVES.search(spelled) is None
