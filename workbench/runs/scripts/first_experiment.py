"""A first experiment for a script: its options, read from its source, become parameters to edit.

Options of argparse and click are found where they are declared with literal names. Others are left
to `script_help`. Which of them are worth a search is guessed by name and type. The others become
comments.
"""

from __future__ import annotations

import ast
import json
import math
import re
import shlex
from collections.abc import Container, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workbench.experiment.goals import Goal
from workbench.experiment.metric_declarations import goal_of
from workbench.foundation.errors import DataError
from workbench.runs.scripts.script_help import Style, options_elsewhere
from workbench.runs.scripts.script_metrics import metrics_of
from workbench.runs.scripts.script_options import (
    ScriptOption,
    called_name,
    literal_of,
    place_for_trial,
)

_NOT_SEARCHED_WORDS = (
    "seed|epoch|step|iter|interval|log|save|print|worker|thread|rank|port|device|gpu|cuda|mps|accel"
    "|cpu|dry|debug|verbose|resume|load|eval|test|world|path|dir|file|name|project|version|max|min"
    "|num[-_]class|freq|every|vocab|image|img|input|crop|buffer|cache|pause|sleep|wait|timeout"
    "|quiet|silent|progress|shuffle|plot|show|report|profil|wandb|tensorboard|mlflow|download"
    "|overwrite"
)
_NOT_SEARCHED = re.compile(
    # A word of the name starts or ends with one of these: `criterion` only contains "iter".
    rf"(^|[-_.])({_NOT_SEARCHED_WORDS}|eps)|({_NOT_SEARCHED_WORDS})s?($|[-_.])|(^|[-_.])(no|not|out"
    r"|mode|split|data|dataset|task|phase|backend|format|level|colou?r|tags?|notes?|user|host|url"
    r"|jobs?|proc|pin)($|[-_.])",
    re.IGNORECASE,
)
_SWITCH = re.compile(
    r"nesterov|amsgrad|bias|norm|resid|pretrain|augment|mixup|cutmix|fp16|bf16|warm[-_.]?up|cosine"
    r"|anneal|decay|balanc|weight|freez|smooth|attention|bidirect|dropout"
    r"|(^|[-_.])(amp|aug|ema|swa|clip|half|skip|flip|gated?|tied?|pool)($|[-_.])",
    re.IGNORECASE,
)
"""Names of flags that influence training. Most flags are about everything else."""
_RATE = re.compile(
    r"(^|[-_.])(lr|rate|c|reg|l1|l2)($|[-_.])|learning[-_.]?rate|decay|lambda|alpha|temperature"
    r"|cost|penalty|regulari[sz]ation",
    re.IGNORECASE,
)
"""What is searched by its order of magnitude."""
_PART = re.compile(
    r"drop|mask|mixup|cutmix|smooth|ratio|prob|frac|momentum|gamma|beta", re.IGNORECASE
)
"""What lies between 0 and 1."""
_SCALE = re.compile(r"(^|[-_.])gamma($|[-_.])", re.IGNORECASE)
"""Names of parameters that are shares if they are near 1, as the discount of rewards is. Otherwise
they are scales, such as the scale of a kernel.
"""
_SIZE = re.compile(
    r"batch|width|hidden|dim|size|layer|head|embd|embed|channel|unit|depth|filter|rank",
    re.IGNORECASE,
)
_NEAR_ONE = 0.8
"""From here on a part, such as a momentum, is searched by its distance from 1."""
_SMALL = 0.1
"""Below it a number is searched on a logarithmic scale, whatever its name."""
_UP = re.compile(
    r"acc|score|f1|auc|reward|bleu|precision|recall|iou|dice|psnr|ssim|(^|[-_.])r2|r.?squared",
    re.IGNORECASE,
)

_DOWN = re.compile(r"loss|err(or)?(?![a-z])", re.IGNORECASE)


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
            next_step="Give a training script. To make models of a table: workbench automl FILE",
        ) from error
    except ValueError as error:
        raise DataError(f"it is not valid Python: {error}") from error
    options: dict[str, ScriptOption] = {}
    calls = sorted((node for node in ast.walk(tree) if isinstance(node, ast.Call)), key=_place_of)
    for call in calls:
        if called_name(call) not in ("add_argument", "argument", "option"):
            continue
        if (option := _option(call)) is not None:
            options.setdefault(option.name, option)
    return list(options.values())


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
        options = options_of(source)
        style = "options"
        if not options:
            options, style = options_elsewhere(path, source)
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(
            f"cannot read {path}: {getattr(error, 'strerror', None) or 'not text'}"
        ) from error
    except DataError as error:
        raise DataError(f"{path}: {error.problem}") from error
    return _first_experiment(path, options, style, metrics_of(source))


def _first_experiment(
    path: Path, options: list[ScriptOption], style: Style, metrics: list[str]
) -> FirstExperiment:
    searched: dict[str, str] = {}
    places: dict[str, str] = {}
    for option in options:
        if (domain := _domain(option)) is not None:
            searched[option.name] = domain
        if (place := place_for_trial(option)) is not None:
            places[option.name] = place
    required = [option for option in options if option.is_required]
    passed = {option.name for option in required} | places.keys()
    others = [option for option in options if option.name not in {*searched, *passed}]
    values = tuple(
        option.stands_for for option in required if option.name not in {*searched, *places}
    )
    arguments = _passed(options, searched, places, style)
    command = " ".join(["python", shlex.quote(str(path)), *arguments])
    metric = metrics[0] if metrics else "loss"
    lines = [
        f"# Written from the options of {path.name}: edit the ranges, the objective and the budget."
    ]
    if values:
        lines.append(
            "# The script does not start without them, so write their values into the command:"
            f" {', '.join(values)}."
        )
    if places:
        lines.append(
            "# {folder} is a folder of each trial alone, so that no trial overwrites "
            "what another one wrote."
        )
    lines.append(f"command: {_yaml(command)}")
    if metrics:
        lines.append(f"# The script seems to print: {', '.join(metrics[:8])}.")
    else:
        lines.append("# No printed metric was found in the script: name one that it writes.")
    lines += [
        f"# Check the goal: it is guessed from the name {metric}.",
        f"objectives: [{{metric: {_yaml(metric)}, goal: {_guessed_goal(metric)}}}]",
    ]
    if not options:
        lines.append(
            "# No option was found in the script: add what it takes, such as "
            "search: {lr: {low: 0.001, high: 0.1, log: true}}."
        )
    lines += [
        "search:" if searched else "search: {}",
        *(f"  {_yaml(name)}: {domain}" for name, domain in searched.items()),
        *(f"  # {option.name}: {_described(option)}" for option in others),
        "budget: {trials: 20}",
    ]
    return FirstExperiment("\n".join(lines) + "\n", values)


def _guessed_goal(metric: str) -> Goal:
    """Return in which direction a metric is probably better."""
    if (declared := goal_of(metric)) is not None:
        return declared
    is_loss = _DOWN.search(metric) is not None  # such as f1_loss
    if _UP.search(metric) and not is_loss:
        return "maximize"
    return "minimize"


def _passed(
    options: list[ScriptOption], searched: Container[str], places: Mapping[str, str], style: Style
) -> list[str]:
    """Return the arguments that pass what is searched, places, and what is required."""
    given = {
        option.name: places.get(option.name, option.stands_for)
        for option in options
        if option.name not in searched and (option.is_required or option.name in places)
    }
    arguments = [
        given.get(option.name, f"{{{option.name}}}")
        for option in options
        if option.is_positional and (option.name in searched or option.name in given)
    ]
    joint = " "
    if style == "hydra":
        joint = "="
    named = [option for option in options if not option.is_positional]
    arguments += [
        f"{_dashed(option, style)}{joint}{given[option.name]}"
        for option in named
        if option.name in given
    ]
    named = [option for option in named if option.name in searched]
    flags = [option.name for option in named if option.is_flag]
    match style:
        case "hydra":
            return [*arguments, *(f"{option.name}={{{option.name}}}" for option in named)]
        case "fire":
            return [*arguments, *(f"--{name}={{{name}:python}}" for name in flags), "{args}"]
    short = [f"-{option.name} {{{option.name}}}" for option in named if option.is_short]
    return [*arguments, *short, *(f"{{{name}:flag}}" for name in flags), "{args}"]


def _dashed(option: ScriptOption, style: Style) -> str:
    """Return the name of an option as it is passed."""
    if style == "hydra":
        return option.name
    if option.is_short:
        return f"-{option.name}"
    return f"--{option.name}"


def _place_of(node: ast.Call) -> tuple[int, int]:
    return node.lineno, node.col_offset


def _option(call: ast.Call) -> ScriptOption | None:
    names = [
        arg.value
        for arg in call.args
        if isinstance(arg, ast.Constant) and isinstance(arg.value, str)
    ]
    long = [name.partition("/")[0] for name in names if name.startswith("--")]
    short = [name for name in names if re.fullmatch("-[A-Za-z]", name)]
    is_positional = bool(names) and not names[0].startswith("-")
    if not (long or short or is_positional) or long[:1] in (["--help"], ["--version"]):
        return None
    given = {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg}
    action = literal_of(given.get("action"))
    kind = given.get("type")
    choices = literal_of(given.get("choices"))
    if isinstance(kind, ast.Call) and kind.args:  # click.Choice([...])
        choices = literal_of(kind.args[0])
    is_flag = action in ("store_true", "store_false") or literal_of(given.get("is_flag")) is True
    is_short = not long and not is_positional
    if is_short and (is_flag or action not in (None, "store")):  # there is no placeholder for it
        return None
    num_values = literal_of(given.get("nargs", ast.Constant(1)))
    is_needed = is_positional and "default" not in given and num_values not in ("?", "*", None)
    required = literal_of(given["required"]) if "required" in given else is_needed
    return ScriptOption(
        names[0] if is_positional else (long or short)[0].lstrip("-"),
        _default(given.get("default")),
        tuple(choices) if isinstance(choices, list | tuple) else (),
        is_flag,
        kind.id if isinstance(kind, ast.Name) else None,
        is_positional,
        required is True,
        is_short,
    )


def _default(node: ast.expr | None) -> Any:
    """Return a default if it is a literal or a path made of literals, else None."""
    if (
        isinstance(node, ast.Call)
        and len(node.args) == 1
        and called_name(node) in ("Path", "PurePath")
    ):
        node = node.args[0]
    return literal_of(node)


def _domain(option: ScriptOption) -> str | None:
    """Return the first domain of an option, or None if it is not worth a search."""
    default = option.default
    name = option.name
    plain = [choice for choice in option.choices if isinstance(choice, str | int | float)]
    in_words = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name)
    if _NOT_SEARCHED.search(in_words) and (option.is_flag or not _RATE.search(name)):
        return None
    if option.is_flag and not _SWITCH.search(name):
        return None
    if len(plain) > 1:
        return f"{{choices: {json.dumps(plain)}}}"
    if option.is_flag:
        return "{choices: [true, false]}"
    if (
        isinstance(default, bool)
        or not isinstance(default, int | float)
        or not math.isfinite(default)
    ):
        return None
    if isinstance(default, int) and option.kind != "float" and not _RATE.search(name):
        if default < 1 or not _SIZE.search(name):
            return None
        return f"{{choices: {json.dumps(sorted({max(1, default // 2), default, default * 2}))}}}"
    return _range(name, float(default))


def _range(name: str, default: float) -> str | None:
    """Return a range of real numbers around a default.

    None if its name and value do not suggest any.
    """
    is_rate, is_part = _RATE.search(name) is not None, 0 <= default < 1
    if is_part and default >= _NEAR_ONE:
        return f"{{low: {_number(1 - 5 * (1 - default))}, high: {_number(1 - (1 - default) / 5)}}}"
    if 0 < default < 1 and _SCALE.search(name):
        return (
            f"{{low: {_number(default / 10)}, high: {_number(min(1.0, default * 10))}, log: true}}"
        )
    if is_part and (_PART.search(name) or (not is_rate and not 0 < default < _SMALL)):
        high = 0.5 if default <= 0.25 else 0.9
        return f"{{low: 0.0, high: {high}}}"
    if is_rate and default == 0:
        return "{choices: [0.0, 0.0001, 0.01]}"
    if default > 0 and (is_rate or default < _SMALL):
        return f"{{low: {_number(default / 10)}, high: {_number(default * 10)}, log: true}}"
    return None


def _number(value: float) -> str:
    """Return a number as YAML reads it: with a dot also where it has an exponent."""
    text = f"{value:.6g}"
    mantissa, sign, exponent = text.partition("e")
    if not sign or "." in mantissa:
        return text
    return f"{mantissa}.0e{exponent}"


def _described(option: ScriptOption) -> str:
    """Return an option that is not searched as a fixed value, to be uncommented."""
    if option.is_flag:
        return "{choices: [true, false]}"
    if option.default is None:
        return "VALUE"
    return json.dumps(option.default)


def _yaml(text: str) -> str:
    """Return a text as YAML, quoted where it must be."""
    is_plain = re.fullmatch(r"[\w./-]+(?:[ \w./{}:=-]*[\w./}])?", text) is not None
    if is_plain and ": " not in text:
        return text
    return json.dumps(text)
