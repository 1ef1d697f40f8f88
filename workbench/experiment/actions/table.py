"""The table of actions: their arguments, their texts, and when each of them is possible."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from workbench.experiment.actions import arguments as declared
from workbench.experiment.actions.action import Action, Standing, check_arguments, payload_of
from workbench.foundation.errors import ArgumentError
from workbench.foundation.events import RunState
from workbench.foundation.python_values import python_values

_INTERRUPTED: frozenset[RunState] = frozenset({"stopped", "failed", "lost"})
_DURATION_HINT = "such as 30m or 2h"
_ENERGY_HINT = "such as 500Wh or 2kWh"
_MONEY_HINT = "such as 20 EUR"
_PLACE_HINT = "below the server's folder"
_START = (
    declared.PATH,
    declared.SETTINGS,
    declared.TRIALS,
    declared.TIME,
    declared.GPU_TIME,
    declared.ENERGY,
    declared.MONEY,
    declared.PLATEAU,
    declared.CONCURRENCY,
    declared.MAX_RETRIES,
    declared.NAME,
    declared.RUN_ID,
    declared.WARM_START,
    declared.ADDRESS,
)
_REPORT_FILE = replace(
    declared.TO,
    label="File",
    hint=_PLACE_HINT,
    is_positional=True,
    default=lambda run_id, _given: f"{run_id}-report.html",
)


def _has_decisions(run: Standing) -> bool:
    return run.has_versions and not run.is_alive


def _folder_of_bundle(_run_id: str, given: Mapping[str, Any]) -> str:
    if given.get("trial") is None:
        return "best"
    return f"trial-{given['trial']}"


_DECLARED = (
    Action(
        "sweep",
        "Start",
        "Start a run of an experiment file and follow it.",
        "process",
        subject="file",
        arguments=_START,
        detaches=True,
        answer="the run is starting",
        examples=(
            "workbench sweep search_spaces/digits.yaml --trials 20 --time 10m",
            "workbench sweep digits.yaml --set training.epochs=5 --set search.lr=0.1",
            "workbench sweep digits.yaml --detach",
        ),
    ),
    Action(
        "submit",
        "Start",
        "Submit a run to a remote Ray cluster and follow it.",
        "process",
        subject="file",
        arguments=_START,
        detaches=True,
        answer="the run is starting",
        examples=(
            "workbench submit digits.yaml --address http://head:8265",
            "workbench submit digits.yaml --address http://head:8265 --token-file token --detach",
            "workbench stop RUN --address http://head:8265",
        ),
    ),
    Action(
        "stop",
        "Stop",
        "Stop a run or one of its trials. Results are kept, and the run can be resumed.",
        "driver",
        explanation=(
            "Running trials end now and keep their checkpoints. The run can be resumed later."
        ),
        for_run=lambda run: run.is_alive,
        is_dangerous=True,
        asks_first=True,
        examples=("workbench stop last", "workbench stop last --trial 7"),
    ),
    Action(
        "stop_trial",
        "Stop this trial",
        "Stop one trial.",
        "driver",
        command="stop",
        method="stop",
        explanation=(
            "The trial ends now and keeps its last checkpoint. The run continues with other trials."
        ),
        arguments=(replace(declared.TRIAL, is_required=True),),
        for_trial=lambda run: run.is_alive and run.is_trial_unfinished,
        is_dangerous=True,
        asks_first=True,
    ),
    Action(
        "set",
        "Change limits",
        "Change the limits of a run while it runs.",
        "driver",
        explanation=(
            "An empty field leaves its limit unchanged. The change takes effect within a second. "
            "If you allow fewer trials at once, running trials end first."
        ),
        arguments=(
            replace(declared.CONCURRENCY, label="Trials at once", example=2),
            replace(declared.TRIALS, label="Trials in total"),
            replace(declared.TIME, label="Time in total", hint=_DURATION_HINT),
            replace(declared.GPU_TIME, label="GPU time in total", hint=_DURATION_HINT),
            replace(declared.ENERGY, label="Energy in total", hint=_ENERGY_HINT),
            replace(declared.MONEY, label="Cost in total", hint=_MONEY_HINT),
            replace(declared.PLATEAU, label="Patience", hint="trials without a better one"),
            declared.SEARCH,
        ),
        for_run=lambda run: run.is_alive and run.is_sweep,
        asks_first=True,
        examples=(
            "workbench set last --concurrency 4",
            "workbench set last --trials 100 --time 1h --plateau 20",
            "workbench set last --search lr=0.01 --search 'width={low: 16, high: 64}'",
        ),
    ),
    Action(
        "enqueue",
        "Add a trial",
        "Try a given configuration next.",
        "driver",
        explanation="The run tries this configuration next.",
        arguments=(declared.PARAMS,),
        for_run=lambda run: run.is_alive and run.is_sweep,
        for_trial=lambda run: run.is_alive,
        label_for_trial="Copy to a new trial",
        asks_first=True,
        examples=("workbench enqueue last --param lr=0.1 --param width=32",),
    ),
    Action(
        "clone",
        "Clone",
        "Continue a trial in a copy with other values, while the original runs on.",
        "driver",
        explanation=(
            "A new trial continues from a copy of this one's last checkpoint, with the values "
            "below. This trial itself does not change."
        ),
        arguments=(
            replace(declared.TRIAL, is_required=True, is_positional=True),
            declared.CHANGED_PARAMS,
            declared.BEGINS_FROM,
        ),
        for_trial=lambda run: run.is_alive and run.is_sweep and not run.is_replay,
        asks_first=True,
        examples=(
            "workbench clone last --trial 3 --param lr=0.001",
            "workbench clone last --trial 3 --param width=64 --from start",
        ),
    ),
    Action(
        "resume",
        "Resume",
        "Continue a run that was stopped, failed or lost. Follows it until it ends.",
        "process",
        explanation=(
            "It continues with the experiment and the code with which it started. To run a "
            "corrected experiment, start a new run."
        ),
        arguments=(declared.CODE,),
        for_run=lambda run: (
            (run.state in _INTERRUPTED or run.is_silent)
            and run.is_sweep
            and not run.has_nothing_left
        ),
        asks_first=True,
        may_launch=True,
        detaches=True,
        answer="the run continues",
        examples=("workbench resume last", "workbench resume last --code current"),
    ),
    Action(
        "extend",
        "Extend",
        "Give a run a larger budget. A run that has ended continues, and the command follows it.",
        "process",
        explanation="The run continues until the new budget is used up.",
        arguments=(
            replace(declared.MORE_TRIALS, label="More trials", suggested=10),
            replace(declared.MORE_TIME, label="More time", hint=_DURATION_HINT),
            replace(declared.MORE_GPU_TIME, label="More GPU time", hint=_DURATION_HINT),
            replace(declared.MORE_ENERGY, label="More energy", hint=_ENERGY_HINT),
            replace(declared.MORE_MONEY, label="More money", hint=_MONEY_HINT),
            replace(
                declared.MORE_PLATEAU, label="More patience", hint="trials without a better one"
            ),
            declared.CONFIRM,
            declared.SEARCH,
            declared.CODE,
            replace(
                declared.PARAMS,
                name="enqueue",
                label="",
                example=None,
                is_required=False,
                is_positional=False,
                is_from_browser=False,
            ),
        ),
        for_run=lambda run: (
            run.is_sweep
            and not run.is_replay
            and (run.is_alive or run.state in ("complete", "failed"))
        ),
        asks_first=True,
        may_launch=True,
        detaches=True,
        examples=(
            "workbench extend last --more-trials 50",
            "workbench extend last --more-time 1h --detach",
            "workbench extend last --confirm 3",
        ),
    ),
    Action(
        "replay",
        "Replay",
        "Repeat a run's configurations in a new run, and compare.",
        "process",
        explanation="A new run tries the same configurations in the same order.",
        for_run=lambda run: run.is_sweep and not run.is_alive and run.num_trials > 0,
        asks_first=True,
        may_launch=True,
        detaches=True,
        answer="the replay is starting",
        examples=("workbench replay last",),
    ),
    Action(
        "report",
        "Report",
        "Write the report of a run: one HTML page that needs no network.",
        "page",
        arguments=(_REPORT_FILE,),
        for_run=lambda _run: True,
        examples=("workbench report last --to report.html",),
    ),
    Action(
        "save_report",
        "Save report",
        "Write the report of a run to a file.",
        "process",
        command="report",
        method="report",
        explanation=(
            "Writes the report as one page that needs no network. "
            "An existing file is never overwritten."
        ),
        arguments=(_REPORT_FILE,),
        for_run=lambda _run: True,
        asks_first=True,
        answer="wrote {to}",
    ),
    Action(
        "export",
        "Export the best",
        "Export a trial as a bundle, or the study to Optuna.",
        "process",
        explanation=(
            "Writes the configuration, the weights, the command and the environment of a trial."
        ),
        arguments=(
            replace(
                declared.TO,
                label="Folder",
                hint=_PLACE_HINT,
                is_positional=True,
                default=_folder_of_bundle,
                kind="folder",
            ),
            replace(declared.TRIAL, label="Trial", hint="empty: the chosen or best"),
            replace(
                declared.FORMAT,
                label="Format",
                hint="onnx: predict without torch, flower: a federation for devices",
            ),
            declared.FORCE,
            declared.WITHOUT_WEIGHTS,
        ),
        for_run=lambda run: run.has_best and not run.is_imported,
        for_trial=lambda run: run.trial_state == "complete" and not run.is_imported,
        label_for_trial="Export",
        asks_first=True,
        answer="wrote {to}",
        examples=(
            "workbench export last --to best",
            "workbench export last --to best --format onnx",
            "workbench export last --optuna sqlite:///study.db",
        ),
    ),
    Action(
        "export_study",
        "Export the study",
        "Write the study to an Optuna storage.",
        "process",
        command="export",
        arguments=(
            declared.OPTUNA,
            declared.STUDY_NAME,
        ),
    ),
    Action(
        "compress",
        "Compress",
        "Make a trained model smaller and faster, and measure it.",
        "process",
        explanation=(
            "A new run prunes, quantises and fine-tunes the model, and compares each result with"
            " the original model in ONNX Runtime."
        ),
        arguments=(
            replace(declared.TRIAL, label="Trial", hint="empty: the chosen or best"),
            replace(declared.METRIC, name="objective", option="--metric"),
            declared.CONSTRAINTS,
            replace(declared.TRIALS, label="Trials", hint="12 without a time limit", setting=None),
            replace(declared.TIME, label="Time", hint=_DURATION_HINT, setting=None),
            replace(declared.THREADS, label="Threads", hint="empty: 1"),
            declared.DEVICE,
            declared.PYTHON,
        ),
        for_run=lambda run: run.has_best and run.trains_model,
        for_trial=lambda run: run.trial_state == "complete" and run.trains_model,
        asks_first=True,
        may_launch=True,
        detaches=True,
        answer="the compression is starting",
        examples=(
            "workbench compress last",
            "workbench compress last --constraint latency=5ms --constraint drop=1% --time 5m",
            "workbench compress last --device ssh://pi@board.local",
        ),
    ),
    Action(
        "pin",
        "Pin",
        "Show a run first in lists.",
        "store",
        for_run=lambda run: not run.pinned,
        examples=("workbench pin last", "workbench pin last --undo"),
    ),
    Action(
        "unpin",
        "Unpin",
        "Show a run in its usual place in lists again.",
        "store",
        command="pin",
        method="pin",
        arguments=(declared.UNDO,),
        for_run=lambda run: run.pinned,
    ),
    Action(
        "choose",
        "Choose",
        "Choose a trial by hand. Commands then use it by default, instead of the best trial.",
        "store",
        arguments=(replace(declared.TRIAL, is_required=True, is_positional=True),),
        for_trial=lambda run: run.can_be_chosen and not run.has_choice,
        examples=("workbench choose last --trial 7", "workbench choose last --undo"),
    ),
    Action(
        "unchoose",
        "Undo the choice",
        "Use the best trial by default again.",
        "store",
        command="choose",
        method="choose",
        arguments=(declared.UNDO,),
        for_run=lambda run: run.has_choice,
        for_trial=lambda run: run.has_choice,
    ),
    Action(
        "accept",
        "Accept a version",
        "Accept a version of the code. The run keeps your name and the time.",
        "store",
        explanation="Your files stay as they are.",
        arguments=(declared.VERSION,),
        for_run=_has_decisions,
        asks_first=True,
        examples=("workbench accept last wider.diff",),
    ),
    Action(
        "revert",
        "Revert a version",
        "Revert a version of the code. The run keeps your name and the time.",
        "store",
        explanation="Your files stay as they are.",
        arguments=(declared.VERSION,),
        for_run=_has_decisions,
        asks_first=True,
        examples=("workbench revert last wider.diff",),
    ),
    Action(
        "rename",
        "Rename",
        "Give a run another name. Its experiment keeps its own.",
        "store",
        explanation=(
            "The experiment keeps its name. Leave the field empty to use the experiment's name."
        ),
        arguments=(replace(declared.NEW_NAME, label="Name", begins_with="name"),),
        for_run=lambda _run: True,
        asks_first=True,
        examples=("workbench rename last baseline",),
    ),
    Action(
        "tag",
        "Tags",
        "Add tags to a run, or remove some.",
        "store",
        explanation="You can filter lists of runs by tags.",
        arguments=(
            replace(declared.ADDED_TAGS, label="Add", hint="separated by commas", example=["TAG"]),
            replace(declared.REMOVE, label="Remove", hint="separated by commas"),
        ),
        for_run=lambda _run: True,
        asks_first=True,
        examples=(
            "workbench tag last baseline convnet",
            "workbench tag last --remove baseline",
        ),
    ),
    Action(
        "note",
        "Notes",
        "Replace the notes of a run.",
        "store",
        arguments=(replace(declared.TEXT, label="Notes", begins_with="notes", is_long=True),),
        for_run=lambda _run: True,
        asks_first=True,
        examples=("workbench note last 'The first one with warm-up.'",),
    ),
    Action(
        "archive",
        "Archive",
        "Hide a run from lists. Nothing is deleted.",
        "store",
        for_run=lambda run: not run.archived and not run.is_alive,
        examples=("workbench archive last", "workbench archive last --undo"),
    ),
    Action(
        "unarchive",
        "Unarchive",
        "Show an archived run in lists again.",
        "store",
        command="archive",
        method="archive",
        arguments=(declared.UNDO,),
        for_run=lambda run: run.archived,
    ),
    Action(
        "delete",
        "Delete",
        "Delete a run with its events, checkpoints and other files.",
        "store",
        explanation="This cannot be undone: its events, checkpoints and other files are deleted.",
        for_run=lambda run: not run.is_alive,
        is_dangerous=True,
        asks_first=True,
        frees_space=True,
        examples=("workbench delete last", "workbench delete last --yes"),
    ),
    Action(
        "attach",
        "Follow",
        "Follow a run until it ends.",
        "nobody",
        command="follow",
        method=None,
        for_run=lambda _run: True,
        asks_first=True,
        examples=("workbench follow last",),
    ),
    Action(
        "show",
        "Show",
        "Show a run: its state, its trials, and why trials failed.",
        "nobody",
        method=None,
        arguments=(
            replace(declared.TRIAL, is_from_browser=False),
            declared.TRACEBACK,
        ),
        examples=(
            "workbench show last",
            "workbench show last --trial 3",
            "workbench show last --traceback",
            "workbench show last --json",
        ),
    ),
)

ACTIONS: dict[str, Action] = {action.kind: action for action in _DECLARED}
"""All actions by kind, in the order in which they are offered."""


def action_of(kind: str, arguments: Mapping[str, Any] | None = None) -> Action:
    """Return an action of the table.

    Args:
        kind: Its kind. `start` means `submit` if the address takes jobs, and `sweep` otherwise.
        arguments: The given arguments, by name.

    Raises:
        ArgumentError: If there is no such action.
    """
    if kind == "start":
        kind = "sweep"
        if is_jobs_address((arguments or {}).get("address")):
            kind = "submit"
    if kind not in ACTIONS:
        raise ArgumentError(
            f"there is no action {kind!r}", field="kind", allowed=["start", *ACTIONS]
        )
    return ACTIONS[kind]


def stored_payload(kind: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Check the arguments of an action and return them as they are stored for the driver.

    Arguments that are None are not stored.

    Args:
        kind: The kind of the action.
        given: Values by name.

    Raises:
        ArgumentError: As in `check_arguments`.
    """
    arguments = action_of(kind).arguments
    return payload_of(arguments, check_arguments(arguments, python_values(given)))


def is_jobs_address(address: object) -> bool:
    """Return whether an address takes runs as jobs, instead of being driven from here."""
    return isinstance(address, str) and address.lower().startswith(("http://", "https://"))
