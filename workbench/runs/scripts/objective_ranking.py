"""Which of the metrics that a program reports is its objective.

Validation data come before test data, and both before training data. What a program keeps its best
model by is meant. A value of each epoch comes before its best one, and a sum before its terms.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from workbench.experiment.goals import Goal
from workbench.experiment.metric_declarations import goal_of
from workbench.runs.scripts.script_options import (
    name_words,
)
from workbench.training.programs.metric_names import (
    HELD_OUT,
    TESTS,
    VALIDATES,
    is_count,
    is_option,
    kind_of_metric,
)

Way = Literal["print", "jsonl", "json", "csv", "lightning", "wandb", "tensorboard", "mlflow"]
VALIDATION_WORDS = frozenset(VALIDATES)
"""Words of validation data."""
TEST_WORDS = frozenset((*TESTS, "te"))
"""Words of test data."""
SPLIT_WORDS = VALIDATION_WORDS | TEST_WORDS | frozenset(("train", "training"))
"""Words of any part of the data."""
BEST_WORDS = frozenset(
    ("best", "min", "max", "lowest", "highest", "minimum", "maximum", "prev", "old", "final")
)
"""Words of values that are only reported when they improve, or once at the end."""
_NO_METRIC = frozenset(
    (
        *("time", "lr", "num", "size", "mixed", "scale", "sec", "seconds", "memory", "mem"),
        *("dt", "mfu", "params", "norm", "grad", "rate", "count", "samples", "images", "tokens"),
        *(
            "name",
            "best_epoch",
            "duration",
            "runtime",
            "eta",
            "speed",
            "fps",
            "throughput",
            "length",
            "len",
            "std",
            "seed",
            "file",
            "path",
            "folder",
        ),
        *("initial", "baseline", "chance", "dummy", "random", "teacher"),
    )
)
"""Words of numbers that say nothing about the model."""
_COUNTED = ("epoch", "step", "steps", "iter", "batch")
"""Words of what is counted."""
_SAME = {
    "accuracy": "acc",
    "accuracies": "acc",
    "losses": "loss",
    "validation": "val",
    "valid": "val",
    "vali": "val",
    "eval": "val",
    "evaluation": "val",
    "dev": "val",
    "average": "avg",
    "perplexity": "ppl",
    "training": "train",
    "returns": "return",
    "rewards": "reward",
}
"""Words of one meaning."""
_OF_EPISODES = frozenset(("reward", "rewards", "rew", "return", "returns", "ret"))
"""Words of what an agent collects in an episode."""
_OF_ROWS = frozenset(
    ("data", "dataset", "set", "loader", "target", "targets", "label", "labels", "split", "df")
)
"""Words of data, of which a statistic is no metric."""
_AVERAGES = frozenset(("mean", "avg", "average"))
"""Words of a mean over data."""
_OVER_CLASSES = frozenset(("macro", "micro", "mac", "mic"))
"""Words of a mean over classes, which is preferred to the score of a single one."""
_UNKNOWN_DATA = 3
"""The rank of what no word says the data of."""
_NUM_FIRST = 7
"""The number of ranks that matter more than how many modules report a metric."""
_NEARNESS = {"validation": 0, "test": 1, "": 2, "train": 2}
"""How near each part of the data is to validation data."""
ADVERSARIES = frozenset(("d", "dis", "disc", "discriminator"))
"""Words of the networks that a generator trains against."""
GENERATORS = frozenset(("g", "gen", "generator"))
"""Words of the networks that make samples."""
_WHOLE = frozenset(("total", "overall", "sum"))
"""Words of the sum of several terms, which is preferred to each of them."""
_HALVES = frozenset(("precision", "recall", "sensitivity", "specificity", "tpr", "fpr", "p", "r"))
"""Scores that a model reaches by answering always, or hardly ever: they come after all others."""


@dataclass(frozen=True)
class Reported:
    """A metric that a program reports."""

    name: str
    context: str
    way: Way
    place: int
    is_of_main: bool = True
    is_number: bool = True
    file: str = ""
    module: str = ""
    is_monitored: bool = False
    is_of_best: bool = False
    """Whether it is only printed when it has improved, so that its last value is its best one."""
    origin: str = ""
    """The data that its value comes from, as the source shows."""
    measured: frozenset[str] = frozenset()
    """The words of what its value is."""
    is_kept: bool = False
    """Whether the program keeps its best model by this very value."""
    goal: Goal | None = None
    """In which direction it is kept, if that is known."""
    is_off: bool = False
    """Whether it is only printed if a switch is on that is off by default."""

    @property
    def words(self) -> tuple[str, ...]:
        """The words of its name, without what says how often it is reported."""
        name = re.sub(r"_(?:epoch|step)$", "", self.name)
        return tuple(re.sub(r"@\d+$|(?<=acc)\d$", "", word) for word in metric_words(name))

    @property
    def split(self) -> Literal["validation", "test", "train", ""]:
        """The data that it is measured on, "" if nothing says so."""
        for ordered in (self.words, metric_words(self.origin), metric_words(self.context)):
            words = set(ordered)
            if _is_train(ordered) and not words & (VALIDATION_WORDS | TEST_WORDS):
                # A function that trains often measures as well.
                is_measure = any(is_measure_word(word) for word in self.words)
                is_said = not words.isdisjoint((*self.words, self.origin))
                return "" if is_measure and not is_said else "train"
            if words & VALIDATION_WORDS or _has_letter("v", ordered):
                return "validation"
            if words & TEST_WORDS:
                return "test"
        return ""


def _is_train(words: tuple[str, ...]) -> bool:
    return not {"train", "training", "tr"}.isdisjoint(words) or _has_letter("t", words)


def _has_letter(letter: str, words: tuple[str, ...]) -> bool:
    """Return whether a letter in front of a metric names the data: `vloss`, `t acc`.

    After a metric, as in `LossV`, it names something else.
    """
    joined = [word for word in words if word[:1] == letter and kind_of_metric(word[1:])]
    return bool(joined) or (words[:1] == (letter,) and any(map(kind_of_metric, words[1:])))


@dataclass(frozen=True)
class Criterion:
    """A metric by which a program keeps its best model."""

    words: frozenset[str]
    goal: Goal | None


def guessed_goal(metric: str) -> Goal:
    """Return in which direction a metric is probably better.

    Args:
        metric: Its name.

    Example:
        >>> from workbench.runs.scripts.objective_ranking import guessed_goal
        >>> guessed_goal("val_acc"), guessed_goal("f1_loss")
        ('maximize', 'minimize')
    """
    if (declared := goal_of(metric)) is not None:
        return declared
    words = metric_words(metric)
    is_loss = any(kind_of_metric(word) == "loss" or word in ("err", "error") for word in words)
    is_negative = bool({"neg", "negative"} & set(words))
    if words[-2:] in (("ep", "r"), ("episode", "r"), ("ep", "reward"), ("episode", "reward")):
        return "maximize"
    if not is_loss and not is_negative and any(kind_of_metric(word) == "score" for word in words):
        return "maximize"
    return "minimize"


def likely_objectives(names: Iterable[str]) -> list[str]:
    """Return the names of metrics that a run may be tuned for, the most likely one first.

    Args:
        names: All names that a run reports.

    Example:
        >>> from workbench.runs.scripts.objective_ranking import likely_objectives
        >>> likely_objectives(["lr", "train_loss", "val_loss", "val_acc"])
        ['val_acc', 'val_loss', 'train_loss']
    """
    reported = [Reported(name, "", "print", place) for place, name in enumerate(names)]
    known = [metric for metric in reported if is_metric(metric, reported)]
    return [metric.name for metric in sorted(known, key=lambda item: (_rank(item, []), item.place))]


def metric_words(name: str) -> tuple[str, ...]:
    """Return the words of the name of a metric, of which R2 and mAP are one each."""
    plain = HELD_OUT.sub("heldout", name.replace("R2", "r2").replace("mAP", "map"))
    return name_words(re.sub(r"[^\w.-]+", "_", plain))


def is_measure_word(word: str) -> bool:
    """Return whether a word names a score or an error, rather than a loss."""
    return kind_of_metric(word) in ("score", "error")


def ranking_of(
    known: list[Reported], criteria: list[Criterion]
) -> Callable[[Reported], tuple[int, ...]]:
    """Return how good each of several metrics is as an objective: the lowest first."""
    in_modules = {
        metric.name: {other.module for other in known if other.name == metric.name}
        for metric in known
    }
    measures = any(m.is_of_main and m.split in ("validation", "test") for m in known)
    are_rivals = have_rivals(known)
    nearest = min((_NEARNESS[metric.split] for metric in known), default=0)

    def order(metric: Reported) -> tuple[int, ...]:
        has_two_meanings = _has_two_meanings(metric, known)
        rank = _rank(metric, criteria, has_two_meanings=has_two_meanings)
        if measures and not metric.is_of_main and metric.split == "":
            rank = (max(rank[0], _UNKNOWN_DATA), *rank[1:])
        # What the best model is kept by is meant, unless other data are nearer to validation.
        is_near = metric.split == "" or _NEARNESS[metric.split] <= nearest
        is_meant = metric.is_kept and is_near and not has_two_meanings
        is_adversary = are_rivals and not ADVERSARIES.isdisjoint(metric.words)
        num_modules = len(in_modules[metric.name])
        split, *before = rank[:_NUM_FIRST]
        after = (-num_modules, *rank[_NUM_FIRST:], metric.place)
        return (
            int(metric.is_off),
            int(not is_meant),
            split,
            int(is_adversary),
            *before,
            *after,
        )

    return order


def have_rivals(known: list[Reported]) -> bool:
    """Return whether a program reports a generator and a discriminator, as a GAN does."""
    words = {word for metric in known for word in metric.words}
    return not (words.isdisjoint(ADVERSARIES) or words.isdisjoint(GENERATORS))


def goal_of_metric(metric: Reported, criteria: list[Criterion]) -> tuple[Goal, str]:
    """Return in which direction a metric is better, and what that is guessed from."""
    known = [other for other in criteria if other.goal is not None and is_about(metric, other)]
    goal = known[0].goal if known and metric.goal is None else metric.goal
    if goal is not None:
        return goal, "how the script compares it with its best value"
    is_named = any(map(kind_of_metric, metric.words))
    if not is_named and any(kind_of_metric(word) == "score" for word in metric.measured):
        return "maximize", f"the value that is printed as {metric.name}"
    return guessed_goal(metric.name), f"the name {metric.name}"


def printed_numbers_of(reported: list[Reported]) -> list[Reported]:
    """Return what the main program surely prints as a number, if no name is that of a metric."""
    return [
        metric
        for metric in reported
        if metric.is_of_main
        and metric.is_number
        and metric.way == "print"
        and metric.words
        and not set(metric.words) & _NO_METRIC
        and not is_count(metric.name)
        and not is_option(metric.name)
        and metric.words[-1] not in (*_COUNTED, "none", "true", "false")
    ]


def is_kept_number(metric: Reported) -> bool:
    """Return whether the best model is kept by a printed number, whatever its name is."""
    return (
        metric.is_kept
        and metric.is_number
        and bool(metric.words)
        and not set(metric.words) & _NO_METRIC
        and not is_count(metric.name)
        and not is_option(metric.name)
    )


def is_metric(metric: Reported, reported: list[Reported]) -> bool:
    """Return whether what a program reports is a measure of its model."""
    words = metric.words
    if re.search(r"[a-z]Error$|^ERROR$|^Error$|^\d", metric.name):
        return False
    if not words or words[-1] in _COUNTED:
        return False
    if any(word in _NO_METRIC for word in words if word != "rate"):
        return False
    if any(kind_of_metric(word) for word in words) or _is_of_episodes(words):
        return True
    if not set(words) <= VALIDATION_WORDS | TEST_WORDS:
        # What is measured on validation data is a result, whatever its name is: `valid rse 0.41`.
        is_result = metric.is_number and metric.way == "print" and set(words) & VALIDATION_WORDS
        return bool(is_result) and not is_count(metric.name) and not is_option(metric.name)
    measures = any(map(kind_of_metric, metric.measured)) or metric.measured & _OF_EPISODES
    if metric.measured & _OF_ROWS and not measures:
        return False
    if metric.is_number and measures:
        return True
    # `Train: 0.9, Valid: 0.8`: the names of the data stand for the metric.
    others = {
        word
        for other in reported
        if (other.module, other.context) == (metric.module, metric.context)
        for word in other.words
        if len(other.words) == 1
    }
    return bool(others & ({"train", "tr", "test", "te", "loss"} - set(words)))


def _has_two_meanings(metric: Reported, reported: list[Reported]) -> bool:
    """Return whether a name is that of training and of other data, such as a plain `Acc@1`.

    `check` refuses it as an objective.
    """
    splits = {other.split for other in reported if other.name == metric.name}
    is_mixed = bool(splits & {"", "train"}) and bool(splits & {"validation", "test"})
    return is_mixed and not set(metric.words) & SPLIT_WORDS


def _rank(
    metric: Reported, criteria: list[Criterion], *, has_two_meanings: bool = False
) -> tuple[int, ...]:
    """Return how good a metric is as an objective: the lowest first.

    Args:
        metric: The metric.
        criteria: By what the program keeps its best model.
        has_two_meanings: Whether training and other data share its name.
    """
    words = metric.words
    is_measure = any(is_measure_word(word) for word in words)
    is_plain_loss = not is_measure and any(kind_of_metric(word) == "loss" for word in words)
    split = {"validation": 0, "test": 2, "": 3 if is_measure else 4, "train": 5}[metric.split]
    agrees = any(is_about(metric, criterion) for criterion in criteria)
    of_best = metric.is_of_best or bool(set(words) & BEST_WORDS)
    is_criterion = any(
        is_about(metric, criterion) and not criterion.words & SPLIT_WORDS for criterion in criteria
    )
    if metric.split == "" and is_criterion and not of_best:
        split = 2
    if set(words) & VALIDATION_WORDS and set(words) & TEST_WORDS:
        split = 2  # `Validation/Test`: the same rows are called both
    if has_two_meanings:
        split = 3
    if _is_of_episodes(words):
        # Episodes that only test the agent are its evaluation.
        split = {"": 1, "test": 0}.get(metric.split, split)
    neutral = SPLIT_WORDS | _WHOLE | _OVER_CLASSES
    in_parts = len([w for w in words if w not in neutral and not _is_named(w)])
    is_known = bool(set(words) <= SPLIT_WORDS) or any(map(kind_of_metric, words))
    is_known = is_known or _is_of_episodes(words)
    return (
        split,
        int(not is_known),
        int(of_best),
        int(not agrees),
        int(not metric.is_monitored),
        int(not metric.is_of_main),
        int(metric.way != "print"),
        int(bool(metric.split) and not set(words) & SPLIT_WORDS),
        int(is_plain_loss),
        int(bool(set(words) & _HALVES) and not set(words) & _AVERAGES),
        int(not metric.is_number),
        in_parts,
        # The loss of an epoch comes before that of a batch.
        int(not set(words) & (_AVERAGES | _OVER_CLASSES)),
    )


def _is_of_episodes(words: tuple[str, ...]) -> bool:
    """Return whether a name is what an agent collects in an episode, such as `ep_r`."""
    return not _OF_EPISODES.isdisjoint(words) or words[-2:] in (("ep", "r"), ("episode", "r"))


def _is_named(word: str) -> bool:
    return bool(kind_of_metric(word)) or word in _AVERAGES


def is_about(metric: Reported, criterion: Criterion) -> bool:
    """Return whether a metric is the one of a criterion."""
    own = frozenset(_SAME.get(word, word) for word in metric.words) - {"mean", "avg", "total"}
    wanted = criterion.words
    splits = {_SAME.get(word, word) for word in SPLIT_WORDS}
    measures = wanted - splits
    if own <= splits:
        return bool(own & wanted)
    if not measures & own and not (not measures and wanted & own):
        return False
    own_split = own & splits or {_SAME.get(word, word) for word in (metric.split,) if word}
    wanted_split = wanted & splits
    return not wanted_split or not own_split or bool(wanted_split & own_split)


def normal_words(words: tuple[str, ...]) -> frozenset[str]:
    """Return words of which one is used for one thing: `validation` is `val`."""
    bare = {word: re.sub(r"\d+$", "", word) for word in words}
    # `bleu4` is a kind of `bleu`, but `f1` is none of `f`.
    stems = [
        word if kind_of_metric(word) and not kind_of_metric(stem) else stem
        for word, stem in bare.items()
    ]
    return frozenset(_SAME.get(stem, stem) for stem in stems)
