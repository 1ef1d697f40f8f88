"""Rewrites the ways to print a value that are not a name and a number.

A share (`812/1000 = 81.2%`), a change (`improved from 0.5 to 0.4`), the values of two parts of the
data (`loss (train/val): 0.5/0.6`) and a name in words (`Key: loss, Value: 0.5`) become pairs of a
name and a number, which `printed_metrics` reads.
"""

from __future__ import annotations

import re

from workbench.training.programs.metric_names import COUNTED, SPLITS, is_count, is_metric
from workbench.training.programs.printed_numbers import NUMBER

_JULIA = re.compile(r"(?<![\w.])(\d+\.\d*|\.\d+)f([-+]?\d+)\b")
"""A number with 32 bits, as Julia prints it."""
_CHANGE = re.compile(
    rf"(?<![\w.,])(?:{NUMBER})%?\s*(?:[-=]+>|\u2192)\s*(?=(?:{NUMBER})(?![\w.]))", re.IGNORECASE
)
"""The old value of a change."""
_VERB = re.compile(
    r"(?<![\w./@-])(?P<name>[\w./@-]+)['\"]?:?\s+(?:has\s+|was\s+|is\s+)?"
    r"(?:improved|decreased|increased|reduced|dropped|fell|rose|went|changed|moved|updated)(?:\s+(?:up|down))?"
    rf"(?:\s+by\s+{NUMBER}%?)?\s*:?\s*(?:from|\(|\[)?\s*(?P<old>{NUMBER})?%?\s*(?:to\b|[-=]+>|\u2192)"
    rf"\s*(?P<new>{NUMBER})(?P<unit>%?)\s*[)\]]?(?![\w]|\.\d)",
    re.IGNORECASE,
)
_REACHED = re.compile(
    r"(?<![\w./@-])(?P<name>[\w./@-]+)['\"]?:? (?:has )?reached "
    rf"(?P<new>{NUMBER})(?P<unit>%?)(?!\w|\.\d)",
    re.IGNORECASE,
)
_OPTUNA_BEST = re.compile(r"\bBest is trial \d+ with value:")
_RESULT = re.compile(
    rf"(?<![\w./-])(?P<part>\d[\d,]*(?:\.\d+)?)\s?/\s?(?P<all>\d[\d,]*(?:\.\d+)?)\s*=\s*"
    rf"(?=(?:{NUMBER})(?!\w|\s*/))"
)
"""A share in front of its value, such as the `812/1000 =` of `812/1000 = 0.812`."""
_AFTER_COUNT = re.compile(rf"\b(?:{'|'.join(COUNTED)})s?\W*$", re.IGNORECASE)
_SHARE = re.compile(
    r"(?<![\w.@-])(?P<name>[^\W\d][\w.@-]*)(?P<sign>['\"]?\s*[=:]\s*|\s+)(?P<part>\d+)\s?/\s?(?P<all>\d+)"
    r"(?![\w./:-]|\s*/)(?P<percent>\s*\(\s*\d+(?:\.\d+)?\s?%\s*\))?"
)
_IS_SHARE = re.compile(
    r"acc|top.?\d|precision|recall|sensitivity|specificity|rate$|@\d|hits?$|\berr(?:or)?s?$", re.I
)
"""Metrics whose value is a share of all examples."""
_PART = rf"(?:{'|'.join(sorted(SPLITS, key=len, reverse=True))})"
_PARTS = rf"{_PART}(?:\s?[/,|&]\s?{_PART}){{1,2}}"
_VALUES = rf"(?:{NUMBER})%?(?:\s*[/,|]\s*(?:{NUMBER})%?){{1,2}}"
_NAME = r"(?:[^\W\d][\w@.-]* )?[^\W\d][\w@.-]*"
_OF_PARTS = re.compile(
    rf"(?<![\w/@.-])(?:(?P<before>{_NAME})\s*[(\[]?\s?(?P<parts>{_PARTS})\s?[)\]]?"
    rf"|(?P<first>{_PARTS})\s+(?P<after>{_NAME}))"
    rf"\s*[:=]?\s*[(\[]?(?P<values>{_VALUES})[)\]]?(?![\w/]|\.\d)",
    re.IGNORECASE,
)
_TUPLES = re.compile(
    r"\((?P<names>[^\W\d][\w./@-]*(?:, ?[^\W\d][\w./@-]*)+),?\)\s*[=:]\s*"
    rf"\((?P<values>{NUMBER}(?:,\s*{NUMBER})+),?\)",
    re.IGNORECASE,
)
_AT_STEP = re.compile(
    rf"(?<![\w./-])(?P<name>(?:[^\W\d][\w./-]* )?[^\W\d][\w./@-]*) (?:@|at|after|in) "
    rf"(?P<place>(?:{'|'.join(COUNTED)})s?\s*\d+)\s*[:=]\s*(?={NUMBER})",
    re.IGNORECASE,
)
"""A metric with the place where it was measured, such as `val loss @ step 500: 0.5`."""
_ARROW = re.compile(r"(?<=[^\W\d])\s*(?:[-=]+>|\u2192|\u00bb)\s*(?=[^\W\d])")
"""An arrow between words, which is no change."""
_BULLETS = re.compile(r"\s[\u00b7\u2022\u25aa\u25b8\u25b6\u25ba\u203a]\s+(?=[^\W\d])")
_IN_WORDS = re.compile(
    r"\b(?:key|name|metric|param|parameter|option|setting|argument|hyperparameter)\s*[:=]\s*['\"]?"
    r"(?P<name>[^\W\d][\w./@-]*)['\"]?\s*[,;|]?\s*value\s*[:=]\s*",
    re.IGNORECASE,
)


def with_pairs(text: str) -> str:
    """Return a line in which other forms of a value are pairs of a name and a number.

    Args:
        text: A line.

    Example:
        >>> with_pairs("Accuracy: 812/1000 = 81.2%"), with_pairs("Validation loss: 0.5 --> 0.4")
        ('Accuracy: 81.2%', 'Validation loss: 0.4')
        >>> with_pairs("val_loss improved from 0.5 to 0.4")
        'val_loss: 0.4'
        >>> with_pairs("loss (train/val): 0.5/0.6")
        ' | train_loss: 0.5 ; val_loss: 0.6 ; '
    """
    text = _AT_STEP.sub(_at_step, _with_plain_signs(text))
    if "f" in text:
        text = _JULIA.sub(r"\1e\2", text)
    text = _with_present_values(text)
    if "/" in text or "," in text or "|" in text:
        text = _OF_PARTS.sub(_of_parts, text)
    if "/" in text:
        text = _RESULT.sub(_result, text)
        text = _SHARE.sub(_share, text)
    if "(" in text:
        text = _TUPLES.sub(_of_tuples, text)
    if "alue" in text:
        text = _IN_WORDS.sub(r"\g<name>: ", text)
    return text


def _with_present_values(text: str) -> str:
    """Return a line in which each change is replaced by its new value."""
    if ">" in text or "\u2192" in text or " to " in text:
        text = _CHANGE.sub("", _VERB.sub(_present, text))
    if " reached " in text:
        text = _REACHED.sub(_present, text)
    if "Best is" in text:
        text = _OPTUNA_BEST.sub("best_value:", text)
    return text


def _with_plain_signs(text: str) -> str:
    """Return a line with bars instead of bullets, and colons instead of arrows between words."""
    is_ascii = text.isascii()
    if not is_ascii:
        text = _BULLETS.sub(" | ", text)
    if ">" in text or not is_ascii:
        text = _ARROW.sub(": ", text)
    return text


def _present(match: re.Match[str]) -> str:
    """Return the new value of a metric that changed."""
    if not is_metric(match["name"]):
        return match[0]
    return f"{match['name']}: {match['new']}{match['unit']}"


def _at_step(match: re.Match[str]) -> str:
    """Return the place before the metric that was measured there."""
    if not is_metric(match["name"].split(" ")[-1]):
        return match[0]
    return f"{match['place']} | {match['name']}: "


def _result(match: re.Match[str]) -> str:
    if _AFTER_COUNT.search(match.string[: match.start()]):
        return match[0]
    return ""


def _share(match: re.Match[str]) -> str:
    """Return a share of all examples as a number. With a percentage it is one, too."""
    name, part, total = match["name"], int(match["part"]), int(match["all"])
    sign = match["sign"]
    is_share = is_metric(name) and _IS_SHARE.search(name) is not None
    is_named = bool(match["percent"]) and bool(sign.strip()) and not is_count(name)
    if not ((is_share or is_named) and 0 < total >= part):
        return match[0]
    if match["percent"]:
        return f"{name}{sign}{100 * part / total}%"
    return f"{name}{sign}{part / total}"


def _of_parts(match: re.Match[str]) -> str:
    """Return the values of several parts of the data under names of their own."""
    words = (match["before"] or match["after"]).split(" ")
    parts = re.split(r"\s?[/,|&]\s?", match["parts"] or match["first"])
    values = re.split(r"\s*[/,|]\s*", match["values"])
    if not is_metric(words[-1]) or len(parts) != len(values):
        return match[0]
    before = ""
    if len(words) > 1 and not is_metric("_".join(words)):
        before = f"{words[0]} "
    name = words[-1]
    pairs = (f"{part}_{name}: {value} ; " for part, value in zip(parts, values, strict=True))
    return f"{before} | {''.join(pairs)}"


def _of_tuples(match: re.Match[str]) -> str:
    """Return pairs for the names and the values of two tuples, such as `(a, b) = (1.0, 2.0)`."""
    names = re.split(r",\s*", match["names"])
    values = re.split(r",\s*", match["values"])
    if len(names) != len(values):
        return match[0]
    return "; ".join(f"{name} = {value}" for name, value in zip(names, values, strict=True))
