"""A first experiment for a script: its options, read from its source, become parameters to edit.

Options of argparse and click are found where they are declared with literal names; others are left to
`script_help`. Which of them are worth a search is guessed by name and type; the others become comments.
"""

from __future__ import annotations

import ast
import json
import math
import re
import shlex
from collections.abc import Container, Iterator
from dataclasses import dataclass
from pathlib import Path

from workbench.errors import DataError
from workbench.programs.printed_metrics import read_line
from workbench.programs.spaced_pairs import name_with_qualifiers
from workbench.runs.script_help import Style, options_elsewhere
from workbench.runs.script_option import ScriptOption, literal_of

_NOT_SEARCHED = re.compile(
    r"seed|epoch|step|iter|interval|log|save|print|worker|thread|rank|port|device|gpu|cuda|mps|accel|cpu|dry|"
    r"debug|verbose|resume|load|eval|test|world|path|dir|file|name|project|version|max|min|num[-_]class|freq|every|"
    r"vocab|image|img|input|crop|buffer|cache|pause|sleep|wait|timeout|quiet|silent|progress|shuffle|plot|show|"
    r"report|profil|wandb|tensorboard|mlflow|download|overwrite|(^|[-_.])eps|(^|[-_.])(no|not|out|mode|split|"
    r"data|dataset|task|phase|backend|format|level|colou?r|tags?|notes?|user|host|url|jobs?|proc|pin)($|[-_.])",
    re.IGNORECASE,
)
_SWITCH = re.compile(
    r"nesterov|amsgrad|bias|norm|resid|pretrain|augment|mixup|cutmix|fp16|bf16|warm[-_.]?up|cosine|anneal|decay|"
    r"balanc|weight|freez|smooth|attention|bidirect|dropout|(^|[-_.])(amp|aug|ema|swa|clip|half|skip|flip|gated?|"
    r"tied?|pool)($|[-_.])",
    re.IGNORECASE,
)
"""What a flag that influences training is named; most flags are about everything else."""
_RATE = re.compile(
    r"(^|[-_.])(lr|rate)($|[-_.])|learning[-_.]?rate|decay|lambda|alpha|temperature", re.IGNORECASE
)
_PART = re.compile(r"drop|mask|mixup|cutmix|smooth|ratio|prob|frac|momentum|gamma|beta", re.IGNORECASE)
"""What lies between 0 and 1."""
_SIZE = re.compile(
    r"batch|width|hidden|dim|size|layer|head|embd|embed|channel|unit|depth|filter|rank", re.IGNORECASE
)
_METRIC = re.compile(r"([^\W\d][\w./-]*)\s*[=:]\s*(?:\{|%)")
_VALUE = re.compile(r"\{[^{}]*\}|%[-+ #0]*[\d.*]*[dfeEgGs]")
"""Where a value is put into a text."""
_SECOND = re.compile(r"loss|acc|error|score|f1|auc|perplexity|ppl|mse|mae", re.IGNORECASE)
_NEAR_ONE = 0.8
"""From here on a part, such as a momentum, is searched by its distance from 1."""
_SMALL = 0.1
"""Below it a number is searched on a logarithmic scale, whatever its name."""
_UP = re.compile(r"acc|score|f1|auc|reward|bleu|precision|recall", re.IGNORECASE)


def options_of(source: str) -> list[ScriptOption]:
    """Return the options that a script declares with argparse or click, in their order.

    Args:
        source: The source of the script.

    Raises:
        DataError: If it is not Python.
    """
    try:
        tree = ast.parse(source)
    except SyntaxError as error:
        raise DataError(
            f"it is not valid Python, line {error.lineno}: {error.msg}",
            next_step="Name a training script; of a table, `workbench automl FILE` makes models.",
        ) from error
    except ValueError as error:
        raise DataError(f"it is not valid Python: {error}") from error
    found: dict[str, ScriptOption] = {}
    calls = sorted((node for node in ast.walk(tree) if isinstance(node, ast.Call)), key=_place_of)
    for call in calls:
        called = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
        if called in ("add_argument", "argument", "option") and (option := _option(call)) is not None:
            found.setdefault(option.name, option)
    return list(found.values())


def metrics_of(source: str) -> list[str]:
    """Return the names that a script seems to print with a value, those of losses and scores first."""
    names: dict[str, None] = {}
    for node in ast.walk(ast.parse(source)):
        names |= dict.fromkeys(_printed_names(node))
    good = [name for name in names if _SECOND.search(name)]
    return sorted(good, key=lambda name: not re.search(r"val|test", name, re.IGNORECASE))


@dataclass(frozen=True)
class FirstExperiment:
    """A first experiment file.

    Attributes:
        text: What it consists of.
        values_to_write: The words in its command that must be replaced before the script starts.
    """

    text: str
    values_to_write: tuple[str, ...]


def experiment_for(path: Path) -> FirstExperiment:
    """Return a first experiment file for a script.

    Args:
        path: The script.

    Raises:
        DataError: If it cannot be read.
    """
    try:
        source = path.read_text(encoding="utf-8")
        options, style = options_of(source), "options"
        if not options:
            options, style = options_elsewhere(path, source)
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"cannot read {path}: {getattr(error, 'strerror', None) or 'not text'}") from error
    except DataError as error:
        raise DataError(f"{path}: {error.problem}") from error
    searched = {option.name: domain for option in options if (domain := _domain(option)) is not None}
    written = [option for option in options if option.is_required and option.name not in searched]
    others = [option for option in options if option.name not in searched and option not in written]
    values = tuple(option.stands_for for option in written)
    command = " ".join(["python", shlex.quote(str(path)), *_passed(options, searched, style)])
    metrics = metrics_of(source)
    metric = metrics[0] if metrics else "loss"
    goal = "maximize" if _UP.search(metric) else "minimize"
    lines = [
        f"# Written from the options of {path.name}: edit the ranges, the objective and the budget.",
        *([f"# The script does not start without them, so write their values into the command: "
           f"{', '.join(values)}."] if values else []),
        f"command: {_yaml(command)}",
        f"# The script seems to print: {', '.join(metrics[:8])}." if metrics
        else "# No printed metric was found in the script: name one that it writes.",
        f"objectives: [{{metric: {_yaml(metric)}, goal: {goal}}}]",
        *(["search:"] if searched else ["search: {}"]),
        *(f"  {_yaml(name)}: {domain}" for name, domain in searched.items()),
        *(f"  # {option.name}: {_described(option)}" for option in others),
        "budget: {trials: 20}",
    ]  # fmt: skip
    return FirstExperiment("\n".join(lines) + "\n", values)


def _passed(options: list[ScriptOption], searched: Container[str], style: Style) -> list[str]:
    """Return the arguments that pass to the script what is searched and what it requires."""
    fixed = [option for option in options if option.is_required and option.name not in searched]
    found = [
        f"{{{option.name}}}" if option.name in searched else option.stands_for
        for option in options if option.is_positional and (option.name in searched or option.is_required)
    ]  # fmt: skip
    joint = "=" if style == "hydra" else " "
    dashes = "" if style == "hydra" else "--"
    found += [f"{dashes}{each.name}{joint}{each.stands_for}" for each in fixed if not each.is_positional]
    named = [option for option in options if option.name in searched and not option.is_positional]
    flags = [option.name for option in named if option.is_flag]
    match style:
        case "hydra":
            return [*found, *(f"{option.name}={{{option.name}}}" for option in named)]
        case "fire":
            return [*found, *(f"--{name}={{{name}:python}}" for name in flags), "{args}"]
    return [*found, *(f"{{{name}:flag}}" for name in flags), "{args}"]


def _place_of(node: ast.Call) -> tuple[int, int]:
    return node.lineno, node.col_offset


def _option(call: ast.Call) -> ScriptOption | None:
    names = [arg.value for arg in call.args if isinstance(arg, ast.Constant) and isinstance(arg.value, str)]
    long = [name.partition("/")[0] for name in names if name.startswith("--")]
    is_positional = bool(names) and not names[0].startswith("-")
    if not (long or is_positional) or long[:1] in (["--help"], ["--version"]):
        return None
    given = {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg}
    action, kind = literal_of(given.get("action")), given.get("type")
    choices = literal_of(given.get("choices"))
    if isinstance(kind, ast.Call) and kind.args:  # click.Choice([...])
        choices = literal_of(kind.args[0])
    is_flag = action in ("store_true", "store_false") or literal_of(given.get("is_flag")) is True
    num_values = literal_of(given.get("nargs", ast.Constant(1)))
    is_needed = is_positional and "default" not in given and num_values not in ("?", "*", None)
    required = literal_of(given["required"]) if "required" in given else is_needed
    return ScriptOption(
        names[0] if is_positional else long[0].removeprefix("--"), literal_of(given.get("default")),
        tuple(choices) if isinstance(choices, list | tuple) else (), is_flag,
        kind.id if isinstance(kind, ast.Name) else None, is_positional, required is True,
    )  # fmt: skip


def _printed_names(node: ast.AST) -> Iterator[str]:
    """Yield the names in the text of a node after which a value is put in."""
    if isinstance(node, ast.JoinedStr):
        text = "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        text = node.value
    elif isinstance(node, ast.Call) and getattr(node.func, "id", "") == "print":
        text = " ".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.args)
    else:
        return
    yield from (name_with_qualifiers(text, match.start(), match[1]) for match in _METRIC.finditer(text))
    if _VALUE.search(text):
        for value in ("1", "0.5"):  # as a run reads what it prints: losses have a dot, epochs none
            for line in _VALUE.sub(value, text).splitlines():
                yield from read_line(line.encode())


def _domain(option: ScriptOption) -> str | None:
    """Return the first domain of an option that is worth a search; None of another."""
    default, name = option.default, option.name
    plain = [choice for choice in option.choices if isinstance(choice, str | int | float)]
    if _NOT_SEARCHED.search(name) and (option.is_flag or not _RATE.search(name)):
        return None
    if option.is_flag and not _SWITCH.search(name):
        return None
    if len(plain) > 1:
        return f"{{choices: {json.dumps(plain)}}}"
    if option.is_flag:
        return "{choices: [true, false]}"
    if isinstance(default, bool) or not isinstance(default, int | float) or not math.isfinite(default):
        return None
    if isinstance(default, int) and option.kind != "float" and not _RATE.search(name):
        if default < 1 or not _SIZE.search(name):
            return None
        return f"{{choices: {json.dumps(sorted({max(1, default // 2), default, default * 2}))}}}"
    return _range(name, float(default))


def _range(name: str, default: float) -> str | None:
    """Return a range of real numbers around a default; None where its name and value suggest none."""
    is_rate, is_part = _RATE.search(name) is not None, 0 <= default < 1
    if is_part and default >= _NEAR_ONE:
        return f"{{low: {_number(1 - 5 * (1 - default))}, high: {_number(1 - (1 - default) / 5)}}}"
    if is_part and (_PART.search(name) or (not is_rate and not 0 < default < _SMALL)):
        return f"{{low: 0.0, high: {0.5 if default <= 0.25 else 0.9}}}"
    if is_rate and default == 0:
        return "{choices: [0.0, 0.0001, 0.01]}"
    if default > 0 and (is_rate or default < _SMALL):
        return f"{{low: {_number(default / 10)}, high: {_number(default * 10)}, log: true}}"
    return None


def _number(value: float) -> str:
    """Return a number as YAML reads it: with a dot also where it has an exponent."""
    text = f"{value:.6g}"
    mantissa, sign, exponent = text.partition("e")
    return text if not sign or "." in mantissa else f"{mantissa}.0e{exponent}"


def _described(option: ScriptOption) -> str:
    """Return an option that is not searched as a fixed value, to be uncommented."""
    if option.is_flag:
        return "{choices: [true, false]}"
    return json.dumps(option.default) if option.default is not None else "VALUE"


def _yaml(text: str) -> str:
    """Return a text as YAML, quoted where it must be."""
    return (
        text
        if re.fullmatch(r"[\w./-]+(?:[ \w./{}:=-]*[\w./}])?", text) and ": " not in text
        else json.dumps(text)
    )
