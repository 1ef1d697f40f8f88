"""How likely a person would search an option, from how a program uses it.

Evidence adds up: the uses, the keywords that a value is passed as, its type and default, and at
last its name. The weights are those of a logistic regression over public programs whose searched
parameters a person wrote down, so 1 more is 2.7 times the odds. `tests/benchmarks/option_scores.py`
fits them, and says how well they do for programs that they were not fitted to.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping

from workbench.runs.scripts.script_options import ScriptOption

WEIGHTS: Mapping[str, float] = {
    "name learning": 2.3,
    "name batch": 2.2,
    "name layers": 2.2,
    "name hidden": 1.9,
    "name dropout": 1.2,
    "float": 1.1,
    "float below 1": 1.1,
    "name decay": 1.0,
    "name grad": 1.0,
    "use clip": 1.0,
    "name clip": 0.9,
    "power of 2": 0.9,
    "use optimizer": 0.9,
    "choice": 0.7,
    "name hid": 0.7,
    "name lr": 0.7,
    "int near 1e2": 0.6,
    "name dim": 0.6,
    "name optimizer": 0.5,
    "name rnn": 0.5,
    "int near 1e1": 0.4,
    "name warmup": 0.4,
    "passed as size": 0.4,
    "use layer": 0.4,
    "use model": 0.4,
    "float near 1e1": 0.3,
    "int near 1e3": 0.3,
    "name lora": 0.3,
    "use sum": 0.3,
    "name d": 0.2,
    "name n": 0.2,
    "name weight": 0.2,
    "passed as batch": 0.2,
    "float near 1e-3": 0.1,
    "use batches": 0.1,
    "name factor": -0.1,
    "no default": -0.1,
    "use compared": -0.2,
    "use interval": -0.2,
    "name min": -0.3,
    "use data": -0.3,
    "use switch": -0.3,
    "name eval": -0.4,
    "length of name": -0.5,
    "name beta": -0.7,
    "flag": -0.8,
    "name length": -0.8,
    "name val": -0.9,
    "float near 1e-5": -1.0,
    "name test": -1.0,
    "int not positive": -1.1,
    "always": -1.3,
    "passed as eps": -1.3,
    "name epochs": -1.4,
    "in code": -1.5,
}
"""How much each piece of evidence speaks for a search. What is not listed says nothing."""


def score_of(option: ScriptOption, words: Iterable[str]) -> float:
    """Return the logarithm of the odds that a person would search an option.

    Args:
        option: The option, with its uses.
        words: The words of its own name.
    """
    return sum(WEIGHTS.get(name, 0.0) * value for name, value in evidence_of(option, words))


def evidence_of(option: ScriptOption, words: Iterable[str]) -> Iterator[tuple[str, float]]:
    """Yield the names of what speaks for or against a search, with how much of it there is.

    Args:
        option: The option, with its uses.
        words: The words of its own name.
    """
    own = list(words)
    yield "always", 1.0
    for use in option.uses or ("none",):
        yield f"use {use}", 1.0
    if option.is_of_model:
        yield "use model", 1.0
    if option.needs is not None:
        yield "conditional", 1.0
    for word in option.called:
        yield f"passed as {word}", 1.0
    yield from _of_default(option)
    for word in {word.rstrip("0123456789") or word for word in own}:
        yield f"name {word}", 1.0
    yield "length of name", min(len(own), 5)
    if option.file is not None and option.file.suffix == ".py" and "." in option.name:
        yield "in code", 1.0


def _of_default(option: ScriptOption) -> Iterator[tuple[str, float]]:
    """Yield what the type and the default say."""
    default = option.default
    if option.is_flag:
        yield "flag", 1.0
    elif option.choices:
        yield "choice", 1.0
    elif default is None or not isinstance(default, int | float) or not math.isfinite(default):
        yield "no default", 1.0
    else:
        kind = "float" if isinstance(default, float) or option.kind == "float" else "int"
        yield kind, 1.0
        if default <= 0:
            yield f"{kind} not positive", 1.0
            return
        yield f"{kind} near 1e{max(-5, min(5, round(math.log10(default))))}", 1.0
        if kind == "float" and default < 1:
            yield "float below 1", 1.0
        if kind == "int" and default >= 2 and not int(default) & (int(default) - 1):
            yield "power of 2", 1.0
