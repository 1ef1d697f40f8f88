"""A first experiment for a script: its options, read from its source, become parameters to edit.

The readers find the options: declared by calls, derived from types, in a configuration, or in
another language. Only a program that seems to take options, but shows none of them in its source,
is started with `--help`. The domains say which options are worth a search.
"""

from __future__ import annotations

import ast
import itertools
import json
import re
import shlex
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from workbench.cluster.remote.code_origin import Origin
from workbench.cluster.remote.kept_code import find
from workbench.experiment import Experiment
from workbench.experiment.yaml_file import read_yaml_file
from workbench.foundation.garbage import no_garbage_search
from workbench.runs.scripts.configured_options import (
    Configured,
    configurations_near,
    constant_options,
    environment_options,
    file_options,
    given_file,
    notebook_options,
    options_in_file,
    overridden_options,
    wandb_options,
)
from workbench.runs.scripts.declared_options import declared_options
from workbench.runs.scripts.option_defaults import with_defaults_of_files
from workbench.runs.scripts.option_domains import (
    is_learning_rate,
    is_usual,
    searched_domains,
)
from workbench.runs.scripts.option_uses import MODES, with_uses
from workbench.runs.scripts.other_languages import options_of_language
from workbench.runs.scripts.other_python import is_python_2
from workbench.runs.scripts.program_source import (
    COMPILER,
    ProgramSource,
    option_in,
    quoted,
    read_program,
)
from workbench.runs.scripts.script_help import TAKES_OPTIONS, help_of
from workbench.runs.scripts.script_objective import Objective, objective_of
from workbench.runs.scripts.script_options import (
    ScriptOption,
    name_words,
    place_for_trial,
    places_in_source,
    walk,
    words_of,
)
from workbench.runs.scripts.typed_options import typed_options
from workbench.training.programs.constants import MODULE

_STARTED = re.compile(r"\bpython3?\s+(?:-u\s+|-W\s+\w+\s+)*([\w./-]+\.py)\b")
"""The Python program that a shell script starts."""
_PASSED_ON = ("option", "apart", "single", "switch", "off", "both", "python", "assigned")
"""Ways to take options that work through "$@"."""
_CONFIGURATIONS = frozenset(("cfg", "config", "conf", "args", "hparams"))
_EVALUATES = frozenset(("eval", "evaluate", "evaluation", "val", "valid", "validate", "validation"))
_DOES = frozenset(("do", "run", "with", "use", "enable"))
_SWITCHES = frozenset(("use", "log", "enable", "with", "to", "report", "track", "logger"))
_WAITING = frozenset(("viewer", "gui"))
"""Words of windows for which a program waits at its end."""
_WITHOUT = frozenset(("disable", "no", "without"))
_UNITS_OF_LENGTH = frozenset(
    ("epoch", "epochs", "step", "steps", "iter", "iters", "iteration", "iterations", "updates")
)
_OF_LENGTHS = frozenset(("max", "num", "n", "total", "train", "training", "number", "of"))
_FEW = 5
"""With fewer options to search, values in the source of a program are searched as well."""
_MAX_COMMENTS = 60
"""Maximum number of options that are not searched and still listed."""


@dataclass(frozen=True)
class FirstExperiment:
    """A first experiment file.

    Attributes:
        script: The file of the script.
        text: What it consists of.
        values_to_write: The words in its command that must be replaced before the script starts.
        notes: What could not be found, and what to write instead.
    """

    script: Path
    text: str
    values_to_write: tuple[str, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Interface:
    """What is known about the options of a program."""

    options: list[ScriptOption]
    words: tuple[str, ...] = ()
    configured: Configured | None = None
    notes: tuple[str, ...] = field(default=())
    is_notebook: bool = False
    is_by_types: bool = False
    """Whether fields of classes or values of a configuration are its options."""


@no_garbage_search()
def experiment_for(path: Path) -> FirstExperiment:
    """Return a first experiment file for a script.

    Args:
        path: The script, or the command that starts it with what all trials have.

    Raises:
        DataError: If it cannot be read.
    """
    program = read_program(path)
    interface = _without_given(program, _options_of(program))
    interface = replace(interface, options=with_uses(program, interface.options))
    objective = objective_of(program, interface.options)
    evaluation = _evaluation_words(program, interface, objective)
    evaluation = tuple(word for word in evaluation if not program.is_given(option_in(word)))
    names = {word.lstrip("-").partition("=")[0] for word in evaluation}
    interface = replace(
        interface,
        options=[option for option in interface.options if option.name not in names],
        words=(*interface.words, *evaluation),
    )
    if path.suffix == ".py" and is_python_2(program.path.read_text(errors="replace")):
        note = f"{program.path} is written for Python 2: name that interpreter in `command`"
        interface = replace(interface, notes=(*interface.notes, note))
    return _first_experiment(program, interface, objective)


def _options_of(program: ProgramSource) -> _Interface:
    if not program.is_python:
        return _with_others(program, _of_language(program))
    if program.interpreter == "papermill":
        return _Interface(notebook_options(program), is_notebook=True)
    declared, words = declared_options(program)
    declared = with_defaults_of_files(program, declared)
    typed = typed_options(program)
    interface = _Interface(declared, tuple(words))
    if typed is not None:
        names = {option.name for option in typed.options}
        others = [option for option in declared if option.name not in names]
        interface = _Interface(
            [*typed.options, *others], typed.words or tuple(words), is_by_types=True
        )
        if "LightningCLI" in program.text and (file := _file_of_lightning(program)) is not None:
            return _with_others(program, _with_file(program, interface, file))
    configured = overridden_options(program, interface.options)
    if configured is not None:
        configured = replace(configured, options=_without_filled(program, configured.options))
    if configured is None and (given_file(program) or not _is_enough(interface.options)):
        configured = file_options(program, interface.options)
    if configured is not None and searched_domains(configured.options):
        # Hydra reads the whole command, so no other parser of the program gets any of it.
        declared = [] if "hydra.main" in program.main.text else interface.options
        own = [option for option in declared if option.name not in _named(configured)]
        interface = _Interface(
            [*own, *configured.options], interface.words, configured, is_by_types=True
        )
    return _with_others(program, interface)


def _without_replaced_groups(
    options: list[ScriptOption], configured: list[ScriptOption]
) -> list[ScriptOption]:
    """Return options without groups of which a configuration names the class.

    With `model.net.class_path: Net`, its values are `model.net.init_args.width` and the like.
    """
    groups = [
        option.name.removesuffix("class_path")
        for option in configured
        if option.name.endswith(".class_path")
    ]
    return [
        option for option in options if not any(option.name.startswith(group) for group in groups)
    ]


def _without_given(program: ProgramSource, interface: _Interface) -> _Interface:
    """Return what is left of the options and words if the user's command has some of them."""
    if not program.given:
        return interface
    configured = interface.configured
    by_place = [option for option in interface.options if option.is_positional]
    taken = {option.name for option in by_place[: program.num_given_by_place]}
    options = [
        option
        for option in interface.options
        if option.name not in taken and not program.is_given(option.name)
    ]
    if configured is not None and given_file(program) is not None:
        configured = replace(configured, words=())
    if configured is not None and configured.introduced_by in program.given:
        configured = replace(configured, introduced_by="")
    words = tuple(word for word in interface.words if word not in program.given)
    return replace(interface, options=options, words=words, configured=configured)


def _file_of_lightning(program: ProgramSource) -> Path | None:
    """Return the configuration of Lightning's command line, if there is one."""
    given = given_file(program)
    for file in configurations_near(program.path) if given is None else [given]:
        names = re.findall(r"^(\w+):", file.read_text(errors="replace"), re.MULTILINE)
        if {"model", "trainer"} <= set(names):
            return file
    return None


def _with_file(program: ProgramSource, interface: _Interface, file: Path) -> _Interface:
    """Return options with the values of a file that `--config` passes.

    What it holds need not be given, and what only it has can be overridden as well.
    """
    in_file = {o.name: replace(o, way="option", file=None) for o in options_in_file(file)}
    written = set(_dotted_names(read_yaml_file(file)))
    own = [
        replace(
            option,
            default=in_file[option.name].default if option.name in in_file else option.default,
            is_required=option.is_required and option.name not in written,
        )
        for option in _without_replaced_groups(interface.options, list(in_file.values()))
    ]
    names = {option.name for option in own}
    others = [option for option in in_file.values() if option.name not in names]
    words = () if file == given_file(program) else ("--config", str(file))
    # Options after the file replace its values, and both come after a command such as fit.
    command = tuple(itertools.takewhile(lambda word: word[:1] != "-", interface.words))
    words = (*command, *words, *interface.words[len(command) :])
    return replace(interface, options=[*own, *others], words=words)


def _dotted_names(values: Mapping[str, Any], before: str = "") -> Iterator[str]:
    """Yield the names of all values in nested mappings: `model.width`."""
    for name, value in values.items():
        yield f"{before}{name}"
        if isinstance(value, Mapping):
            yield from _dotted_names(value, f"{before}{name}.")


def _without_filled(program: ProgramSource, options: list[ScriptOption]) -> list[ScriptOption]:
    """Return options, of which none is required that the program itself gives a value.

    In a configuration it is `obs_shape: ???`, and in the program `cfg.obs_shape = env.shape`.
    """
    filled = {
        target.attr
        for module in program.modules
        for node in walk(module.tree)
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Attribute)
        and ast.unparse(target.value).partition(".")[0] in _CONFIGURATIONS
    }
    return [
        replace(option, is_required=False)
        if option.is_required and option.name.rpartition(".")[2] in filled
        else option
        for option in options
    ]


def _evaluation_words(
    program: ProgramSource, interface: _Interface, objective: Objective
) -> tuple[str, ...]:
    """Return the words without which a program would not report its objective."""
    words = [word for option in interface.options for word in _needed(option, objective)]
    takes_library = "TrainingArguments" in program.text and "HfArgumentParser" in program.text
    has_arguments = any(
        option.name == "per_device_train_batch_size" and (not option.is_own or takes_library)
        for option in interface.options
    )
    if not has_arguments:
        return tuple(words)
    known = {word.lstrip("-") for word in words}
    words += [
        f"--{word}"
        for word in ("do_train", "do_eval")
        if f".{word}" in program.text and word not in known and not _is_given(interface, word)
    ]
    if objective.metric.startswith("eval_"):
        is_old = "evaluation_strategy" in program.text
        words.append(f"--{'evaluation_strategy' if is_old else 'eval_strategy'}=epoch")
    return tuple(words)


def _is_given(interface: _Interface, name: str) -> bool:
    """Return whether an option of the program itself is on by default."""
    return any(option.name == name and option.default is True for option in interface.options)


def _needed(option: ScriptOption, objective: Objective) -> list[str]:
    """Return the words that set an option so that the program trains, reports, and ends."""
    words = words_of(option.name.rpartition(".")[2])
    if option.is_flag:
        is_needed = words - _DOES in ({"train"}, {"training"}) or _reports(words, objective)
        is_needed = is_needed or (words <= _EVALUATES and "during training" in option.text)
        if option.default is not False or not is_needed or "only" in option.text.lower():
            return []
        return _turned_on(option)
    if option.is_positional or not words & MODES or len(words) > 2:
        return []
    wanted = _mode_that_trains(option)
    return [] if wanted is None else _written(option, wanted, is_joined=True)


def _reports(words: frozenset[str], objective: Objective) -> bool:
    """Return whether a switch with these words makes a program report, or end."""
    if (words & _WAITING and words & _WITHOUT) or words == {"headless"}:
        return True
    source = objective.source or ""
    if "wandb" in source or "tensorboard" in source:
        service = "wandb" if "wandb" in source else "tensorboard"
        return service in words and words <= _SWITCHES | {service}
    metric = set(re.split(r"[\W_]+", objective.metric.lower()))
    is_measured = bool(metric & {"eval", "val", "valid", "validation", "evaluation", "test"})
    return is_measured and bool(words & _EVALUATES) and bool(words & _DOES) and len(words) == 2


def _turned_on(option: ScriptOption) -> list[str]:
    """Return the words that turn a switch on."""
    match option.way:
        case "switch" | "both":
            return [f"--{option.name}"]
        case "python":
            return [f"--{option.name}=True"]
        case "option":
            return [f"--{option.name}=true"]
        case "assigned":
            return [f"{option.name}=true"]
    return []


def _mode_that_trains(option: ScriptOption) -> str | None:
    """Return the choice that trains and evaluates, or the one that trains if there is none."""
    choices = {choice: set(name_words(choice)) for choice in map(str, option.choices)}
    training = [choice for choice, words in choices.items() if words & {"train", "training"}]
    both = [choice for choice in training if choices[choice] & _EVALUATES]
    if both and option.default not in both:
        return both[0]
    return training[0] if training and option.default not in training else None


def _of_language(program: ProgramSource) -> _Interface:
    """Return the options of a program in another language, or of what a shell script starts."""
    options = options_of_language(program.text, program.interpreter)
    if program.interpreter == COMPILER:
        note = f"Compile the program first. If it is not {program.command[0]}, edit the command."
        return _Interface(options, notes=(note,))
    started = _STARTED.search(program.text)
    if program.interpreter not in ("bash", "zsh") or started is None or searched_domains(options):
        return _Interface(options)
    for path in (Path(started[1]), program.path.parent / started[1]):
        if not path.is_file():
            continue
        if re.search(r"\$[@*]", program.text):
            inner = _options_of(read_program(path))
            passed = [option for option in inner.options if option.way in _PASSED_ON]
            return _Interface([*options, *passed])
        note = f"The script starts {path}: give that file to init, to search its options."
        return _Interface(options, notes=(note,))
    return _Interface(options)


def _is_enough(options: list[ScriptOption]) -> bool:
    """Return whether options are those of a training, rather than of its surroundings.

    A program that takes a batch size and no learning rate may have it in a file.
    """
    searched = searched_domains(options)
    return len(searched) > 1 and any(is_learning_rate(name) for name in searched)


def _named(configured: Configured) -> set[str]:
    """Return the options that a configuration's words pass already."""
    named = {word.lstrip("-").partition("=")[0] for word in configured.words}
    return named | ({configured.taken} if configured.taken else set())


def _with_others(program: ProgramSource, interface: _Interface) -> _Interface:
    """Return what is found, or what else can be: W&B, variables, constants, or the help."""
    if searched := searched_domains(interface.options):
        has_rate = any(is_learning_rate(name) for name in searched)
        is_complete = has_rate and (len(searched) >= _FEW or interface.is_by_types)
        if is_complete or not program.is_python:
            return interface
        return _with_values(program, interface)
    if options := wandb_options(program):
        return replace(interface, options=[*interface.options, *options])
    constants = constant_options(program)
    variables = environment_options(program) if program.is_python else []
    for options in (variables, constants):
        if any(is_learning_rate(name) for name in searched_domains(options)):
            return replace(interface, options=[*interface.options, *options])
    for options in (constants, variables):
        if searched_domains(options):
            return replace(interface, options=[*interface.options, *options])
    if interface.options or not (TAKES_OPTIONS.search(program.text) or not program.interpreter):
        return interface
    said = help_of(program.command)
    if said.problem is not None:
        note = f"No option was found in the source, and {said.problem}."
        return replace(interface, notes=(note,))
    return replace(interface, options=said.options)


def _with_values(program: ProgramSource, interface: _Interface) -> _Interface:
    """Return a few options with the usual parameters that the source of a program has as values.

    A program may take its sizes as options, and have `Adam(params, lr=1e-3)`.
    """
    taken = {name_words(option.name.rpartition(".")[2]) for option in interface.options}
    values = [
        option
        for option in constant_options(program)
        if is_usual(option.name) and name_words(option.name.rpartition(".")[2]) not in taken
    ]
    return replace(interface, options=[*interface.options, *values])


def _first_experiment(
    program: ProgramSource, interface: _Interface, objective: Objective
) -> FirstExperiment:
    path, options = program.path, interface.options
    searched = searched_domains(options, program.refusals)
    places: dict[str, str] = {}
    edited = _edited_files(options, searched)
    for option in options:
        # A file of constants is only copied if one of them is searched.
        is_passed = option.way != "constant" or option.file in edited
        if is_passed and (place := place_for_trial(option)) is not None:
            places[option.name] = place
    trees = [module.tree for module in program.modules]
    for name in places_in_source(trees, options):
        places.setdefault(name, "{folder}")
    required = [option for option in options if _must_be_given(option)]
    passed = {option.name for option in options if _must_be_given(option) or _is_seed(option)}
    passed |= places.keys() | {option.name for option in _seeds_in(edited, options)}
    others = [option for option in options if option.name not in {*searched, *passed}]
    needed = [
        option
        for option in required
        if option.name not in {*searched, *places} and _value_of(option) is None
    ]
    values = tuple(option.stands_for for option in needed)
    command = _command(program, interface, searched, places)
    lines = [
        f"# Written from the options of {path.name}: edit the ranges, the objective and the budget."
    ]
    if values:
        lines.append(
            "# The script does not start without them, so write their values into the command:"
            f" {', '.join(map(_with_choices, needed))}."
        )
    if places or "{folder}" in command:
        lines.append(
            "# {folder} is a folder of each trial alone, so that no trial overwrites "
            "what another one wrote."
        )
    lines += [f"name: {_yaml(_name_of(path))}", f"command: {_yaml(command)}"]
    edits_in_place = any(not _is_named(program, interface, file) for file in edited)
    lines += _settings(interface, objective, command, edits_in_place=edits_in_place)
    lines += _objective_lines(objective)
    notes = [*interface.notes, *objective.notes]
    if not searched:
        notes.append(
            "No option to search was found in the script: add what it takes, such as "
            "search: {lr: {low: 0.001, high: 0.1, log: true}}."
        )
        if not options:
            notes[-1] = notes[-1].replace("No option to search", "No option")
    if (endless := _without_end(options)) is not None:
        notes.append(
            f"Trials may never end, because {endless.name} is {endless.default} by default. Give it"
            " a value in the command."
        )
    lines += [f"# {note}" for note in notes if not note.startswith("No printed metric")]
    shown = others[:_MAX_COMMENTS]
    lines += [
        "search:" if searched else "search: {}",
        *(f"  {_yaml(name)}: {domain}" for name, domain in searched.items()),
        *(f"  # {option.name}: {_described(option)}{_way_of(option)}" for option in shown),
        "budget: {trials: 20}",
    ]
    text = "\n".join(lines) + "\n"
    if links := _data_to_link(path, text):
        text = text.replace(
            f"{_ABOUT_LINKS}\nworkdir: fresh\n",
            f"{_ABOUT_LINKED}\nworkdir: {{link: [{', '.join(map(_yaml, links))}]}}\n",
        )
    return FirstExperiment(path, text, values, tuple(notes))


_ABOUT_LINKS = (
    "# Each trial starts in a folder with a copy of the code. Data that it needs:"
    " workdir: {link: [data]}."
)
_ABOUT_LINKED = "# Each trial starts in a folder with a copy of the code, and with links to data."


def _data_to_link(path: Path, text: str) -> list[str]:
    """Return the data that a program reads, if trials work in folders of their own.

    A folder with code is not linked, because trials replace values in their copies of it.
    """
    if "\nworkdir: fresh\n" not in text or path.is_absolute():
        return []
    files = find(Experiment.from_yaml(text), Origin.here())
    copied = {name.partition("/")[0] for name in files.workdir}
    return [name for name in sorted(files.absent) if name not in copied]


def _name_of(path: Path) -> str:
    """Return a name for the runs of a program, with that of its folder if its own is a usual one.

    Runs of one name are versions of one experiment, so `train.py` of two projects must differ.
    """
    parts = [path.stem]
    if set(name_words(path.stem)) <= _USUAL_NAMES:
        parts.insert(0, path.absolute().parent.name)
    return re.sub(r"[^\w.-]+", "-", "-".join(filter(None, parts))).strip("-.") or "program"


_USUAL_NAMES = frozenset(
    ("train", "training", "main", "run", "runner", "script", "trainer", "finetune", "fit", "app")
)


def _with_choices(option: ScriptOption) -> str:
    if not option.choices:
        return option.stands_for
    return f"{option.stands_for} ({' or '.join(map(str, option.choices))})"


def _way_of(option: ScriptOption) -> str:
    """Return what the command also needs if an option is searched, because {args} lacks it."""
    placeholders = _placeholder(option)
    if not placeholders:
        return ""
    return f"  # and add this to the command: {' '.join(placeholders)}"


def _value_of(option: ScriptOption) -> str | None:
    """Return the value of an option that is the same in all experiments, or None.

    That is the seed of a trial, and the mode that trains.
    """
    if _is_seed(option):
        return "{seed}"
    return _mode_that_trains(option) if words_of(option.name) & MODES else None


def _is_seed(option: ScriptOption) -> bool:
    """Return whether an option takes the seed of a training."""
    is_passed = option.way in ("option", "apart", "single", "assigned", "listed")
    return is_passed and option.takes_seed


def _must_be_given(option: ScriptOption) -> bool:
    """Return whether a script does not start without an option. A launcher gives the rank."""
    return option.is_required and option.way != "constant" and "rank" not in words_of(option.name)


def _without_end(options: list[ScriptOption]) -> ScriptOption | None:
    """Return the option that limits a training, if its default is no limit, or None.

    The length of a training may also be given otherwise, such as by a number of epochs.
    """
    lengths = [option for option in options if _is_length(option)]
    numbers = [option.default for option in lengths]
    if not all(isinstance(number, int | float) and number < 0 for number in numbers):
        return None
    return next(iter(lengths), None)


def _is_length(option: ScriptOption) -> bool:
    """Return whether an option says how long the training takes, such as `--max-steps`."""
    words = set(name_words(option.name.rpartition(".")[2]))
    return bool(words & _UNITS_OF_LENGTH) and words <= _UNITS_OF_LENGTH | _OF_LENGTHS


def _settings(
    interface: _Interface, objective: Objective, command: str, *, edits_in_place: bool
) -> list[str]:
    """Return the lines about where metrics are, and where trials work."""
    lines: list[str] = []
    metrics = objective.source
    needs_folder = objective.needs_folder
    if metrics is not None and "lightning_logs" in metrics:
        needs_folder = "save_dir={folder}" not in command
        if "logger=csv" in command:
            metrics = "{csv: '{folder}/csv/version_0/metrics.csv'}"
            needs_folder = False
    if any(option.way == "wandb" for option in interface.options):
        metrics = "{from: wandb}"
    if metrics is not None:
        lines.append(f"metrics: {metrics}")
    if edits_in_place or needs_folder:
        lines += [_ABOUT_LINKS, "workdir: fresh"]
    return lines


def _objective_lines(objective: Objective) -> list[str]:
    metric = objective.metric
    if objective.others:
        lines = [f"# The script seems to report: {', '.join(objective.others[:8])}."]
    else:
        lines = ["# No printed metric was found in the script: name one that it writes."]
    return [
        *lines,
        f"# Check the goal: it is guessed from {objective.reason}.",
        f"objectives: [{{metric: {_yaml(metric)}, goal: {objective.goal}}}]",
    ]


def _command(
    program: ProgramSource,
    interface: _Interface,
    searched: Container[str],
    places: Mapping[str, str],
) -> str:
    """Return the command of a trial, with a placeholder for each parameter."""
    named = [option for option in interface.options if option.name in searched]
    variables = [f"{o.name}={{{o.name}}}" for o in named if o.way == "variable"]
    words = [*program.command, *map(quoted, interface.words)]
    if interface.configured is not None:
        words += map(quoted, interface.configured.words)
    words += _passed(interface, named, searched, places)
    if words[0] == "env":  # it must also hold for what replaces values
        num_set = len(list(itertools.takewhile(lambda word: "=" in word, words[1:])))
        variables, words = [*words[1 : num_set + 1], *variables], words[num_set + 1 :]
    edited = _edited_files(interface.options, searched)
    seeds = _seeds_in(edited, interface.options)
    for file, constants in edited.items():
        values = [f"{option.name}={{{option.name}}}" for option in constants]
        values += [
            f"{option.name}={places[option.name]}"
            for option in interface.options
            if option.way == "constant" and option.file == file and option.name in places
        ]
        values += [f"{option.name}={{seed}}" for option in seeds if option.file == file]
        words = ["python", "-m", MODULE, shlex.quote(str(file)), *values, "--", *words]
    if variables:
        words = ["env", *variables, *words]
    return " ".join(words)


def _edited_files(
    options: list[ScriptOption], searched: Container[str]
) -> dict[Path, list[ScriptOption]]:
    """Return the files whose values are replaced for a trial, the one that is started first."""
    files: dict[Path, list[ScriptOption]] = {}
    for option in options:
        if option.name in searched and option.way == "constant" and option.file is not None:
            files.setdefault(option.file, []).append(option)
    return files


def _seeds_in(files: Container[Path | None], options: list[ScriptOption]) -> list[ScriptOption]:
    """Return the seeds among the constants of some files."""
    return [
        option
        for option in options
        if option.way == "constant" and option.file in files and option.takes_seed
    ]


def _is_named(program: ProgramSource, interface: _Interface, file: Path) -> bool:
    """Return whether the command names a file, so that it can be given a copy of it."""
    words = [*program.command, *(interface.configured or Configured([])).words]
    return shlex.quote(str(file)) in words or str(file) in words


def _passed(
    interface: _Interface,
    named: list[ScriptOption],
    searched: Container[str],
    places: Mapping[str, str],
) -> list[str]:
    """Return the arguments that pass what is searched, places, and what is required."""
    given = {
        option.name: places.get(option.name) or _value_of(option) or option.stands_for
        for option in interface.options
        if option.name not in searched
        and (_must_be_given(option) or option.name in places or _is_seed(option))
    }
    arguments = list(_by_place(interface.options, searched, given))
    configured = interface.configured or Configured([])
    paired: list[str] = []
    for option in interface.options:
        if option.name not in given or option.is_positional:
            continue
        if option.way == "assigned" and configured.pairs is not None:
            paired += [option.name, given[option.name]]
        elif option.way == "assigned":
            pair = f"{configured.before}{option.name}={given[option.name]}"
            (paired if configured.introduced_by else arguments).append(pair)
        else:
            arguments += _written(option, given[option.name], is_joined=configured.is_joined)
    arguments += configured.fixed
    for option in named:
        arguments += _placeholder(option)
    takes_options = not named and not interface.is_notebook
    if takes_options or any(option.way == "option" for option in named):
        arguments.append("{args}")
    listed = [f"{option.name}={{{option.name}}}" for option in named if option.way == "listed"]
    if listed:
        arguments.append(f"--{configured.listed}={','.join(listed)}")
    assigned = [option.name for option in named if option.way == "assigned"]
    if configured.pairs is None:
        paired += [f"{configured.before}{name}={{{name}}}" for name in assigned]
        introduced = [configured.introduced_by] if configured.introduced_by and paired else []
        return [*arguments, *introduced, *paired]
    pairs = [*paired, *(word for name in assigned for word in (name, f"{{{name}}}"))]
    return [*arguments, *([configured.pairs] * bool(configured.pairs and pairs)), *pairs]


def _by_place(
    options: list[ScriptOption], searched: Container[str], given: Mapping[str, str]
) -> Iterator[str]:
    """Yield what is passed by its place, up to the last that is searched or must be given."""
    by_place = [option for option in options if option.is_positional]
    while by_place and by_place[-1].name not in searched and by_place[-1].name not in given:
        by_place.pop()
    for option in by_place:
        if option.name in searched:
            yield f"{{{option.name}}}"
        elif option.name in given:
            yield given[option.name]
        elif option.default is not None:
            yield shlex.quote(str(option.default))


def _placeholder(option: ScriptOption) -> list[str]:
    """Return the arguments that pass a searched option, if {args} does not."""
    match option.way:
        case "apart" | "single":
            return _written(option, f"{{{option.name}}}")
        case "parameter":
            return ["-p", option.name, f"{{{option.name}}}"]
        case "switch":
            return [f"{{{option.name}:flag}}"]
        case "off":
            return [f"{{{option.name}:no-flag}}"]
        case "both":
            return [f"{{{option.name}:flag}}", f"{{{option.name}:no-flag}}"]
        case "python":
            return [f"--{option.name}={{{option.name}:python}}"]
    return []


def _written(option: ScriptOption, value: str, *, is_joined: bool = False) -> list[str]:
    """Return an option with a value as it is passed."""
    match option.way:
        case "assigned":
            return [f"{option.name}={value}"]
        case "variable" | "constant" | "wandb" | "listed":
            return []
        case "single":
            return [f"-{option.name}", value]
        case "python" if not option.is_flag:
            return [f"\"--{option.name}='{value}'\""]
    return [f"--{option.name}={value}"] if is_joined else [f"--{option.name}", value]


def _described(option: ScriptOption) -> str:
    """Return an option that is not searched as a fixed value, to be uncommented."""
    if option.is_flag:
        return "{choices: [true, false]}"
    if option.default is None:
        return "VALUE"
    return _on_one_line(option.default)


def _on_one_line(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) < 80 else f"{text[:76]}..."


def _yaml(text: str) -> str:
    """Return a text as YAML, quoted where it must be."""
    is_plain = re.fullmatch(r"[\w./-]+(?:[ \w./{}:=-]*[\w./}])?", text) is not None
    if is_plain and ": " not in text:
        return text
    return json.dumps(text, ensure_ascii=False)
