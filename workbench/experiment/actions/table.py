"""The table of actions.

Which there are, what each takes, how it is worded and when it is possible.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from workbench.experiment.actions.action import Action, Argument, check_arguments, payload_of
from workbench.foundation.errors import ArgumentError
from workbench.foundation.events import RunState
from workbench.foundation.python_values import python_values

_INTERRUPTED: frozenset[RunState] = frozenset({"stopped", "failed", "lost"})
_DURATION_HINT = "such as 30m or 2h"
_ENERGY_HINT = "such as 500Wh or 2kWh"
_MONEY_HINT = "such as 20 EUR"
_PLACE_HINT = "below the server's folder"
_PATH = Argument("path", "text", "Read this experiment file.", is_required=True, is_positional=True)
_SETTINGS = Argument(
    "settings",
    "settings",
    "Change a setting by its dotted path; the value is YAML.",
    option="--set",
)
_TRIALS = Argument(
    "trials",
    "count",
    "Try at most this many configurations: budget.trials.",
    setting="budget.trials",
)
_TIME = Argument(
    "time",
    "duration",
    "Run for at most this long, such as 10m: budget.time.",
    setting="budget.time",
)
_MAX_RETRIES = Argument(
    "max_retries",
    "count",
    "Retry a trial this many times after a worker was lost: resources.max_retries.",
    minimum=0,
    setting="resources.max_retries",
    is_from_browser=False,
)
_NAME = Argument("name", "text", "Give the run this name.", setting="name")
_WARM_START = Argument(
    "warm_start",
    "texts",
    "Learn from this earlier run, or with `auto` from similar ones; repeat the option for several.",
    metavar="RUN",
    is_from_browser=False,
)
_ADDRESS = Argument(
    "address", "text", "Use this Ray cluster instead of the local one.", metavar="HOST:PORT"
)
_JOBS_ADDRESS = Argument(
    "address",
    "text",
    "Submit to this cluster: where Ray serves its dashboard, such as http://HOST:8265.",
    metavar="URL",
)
_PARAMS = Argument(
    "params",
    "settings",
    "Give the value of a searched parameter; repeat the option for each that has several values.",
    label="Configuration",
    option="--set",
    example={"NAME": "VALUE"},
    is_required=True,
    is_positional=True,
)
_SEARCH = Argument(
    "search",
    "settings",
    "Freeze a parameter at a value, or give it another range or other choices as YAML; "
    "repeat the option for several.",
    option="--search",
    setting="search",
    is_from_browser=False,
    example={"NAME": "VALUE"},
)
_CODE = Argument(
    "code",
    "text",
    "Run the code that the run kept, or the code as it is now, in trials that begin now "
    "or later. The default is kept, and current where no trial has a result yet.",
    label="Code",
    hint="kept: as the run began; current: as it is on the disk now",
    metavar="kept|current",
    choices=("kept", "current"),
)
_TRIAL = Argument("trial", "count", "Stop only this trial.", minimum=0, is_required=True)
_REPORT_FILE = Argument(
    "to",
    "new_file",
    "Write to this file; by default in the run's folder, or, with --address, RUN-report.html here.",
    label="File",
    hint=_PLACE_HINT,
    is_positional=True,
    default=lambda run_id, _given: f"{run_id}-report.html",
)
_UNDO = Argument("undo", "flag", "Take it back.", is_required=True, suggested=True)


def _folder_of_bundle(_run_id: str, given: Mapping[str, Any]) -> str:
    return "best" if given.get("trial") is None else f"trial-{given['trial']}"


_DECLARED = (
    Action(
        "sweep",
        "Start",
        "Start a run of an experiment file and follow it.",
        "process",
        subject="file",
        arguments=(
            _PATH,
            _SETTINGS,
            _TRIALS,
            _TIME,
            _MAX_RETRIES,
            _NAME,
            Argument(
                "run_id",
                "text",
                "Use this run id. If the store already has the run, it is continued, so "
                "repeating the command never starts a second one.",
                is_from_browser=False,
            ),
            _WARM_START,
            _ADDRESS,
        ),
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
        arguments=(
            _PATH,
            _SETTINGS,
            _TRIALS,
            _TIME,
            _NAME,
            Argument(
                "run_id",
                "text",
                "Use this run id; by default it is made of the experiment and the code.",
                is_from_browser=False,
            ),
            _WARM_START,
            _JOBS_ADDRESS,
        ),
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
        arguments=(_TRIAL,),
        for_trial=lambda run: run.is_alive and run.is_trial_unfinished,
        is_dangerous=True,
        asks_first=True,
    ),
    Action(
        "set",
        "Change limits",
        "Change the limits of a run while it is under way.",
        "driver",
        explanation=(
            "An empty field leaves its limit unchanged. The change takes effect within a second; "
            "with fewer trials at once, those under way end first."
        ),
        arguments=(
            Argument(
                "concurrency",
                "count_or_auto",
                "Run at most this many trials at once, if the hardware "
                "has room; those under way are not stopped. auto fills the hardware.",
                label="Trials at once",
                example=2,
                setting="resources.concurrency",
            ),
            Argument(
                "trials",
                "count",
                "Try at most this many configurations in total.",
                label="Trials in total",
                setting="budget.trials",
            ),
            Argument(
                "time",
                "duration",
                "Run for at most this long in total, such as 1h.",
                label="Time in total",
                hint=_DURATION_HINT,
                setting="budget.time",
            ),
            Argument(
                "gpu_time",
                "duration",
                "Let trials hold GPUs for at most this long in total.",
                label="GPU time in total",
                hint=_DURATION_HINT,
                setting="budget.gpu_time",
            ),
            Argument(
                "energy",
                "text",
                "Let trials use at most this much energy in total, such as 2kWh.",
                label="Energy in total",
                hint=_ENERGY_HINT,
                setting="budget.energy",
            ),
            Argument(
                "money",
                "text",
                "Let the run cost at most this much in total, such as 20EUR.",
                label="Cost in total",
                hint=_MONEY_HINT,
                setting="budget.money",
            ),
            Argument(
                "plateau",
                "count",
                "End after this many configurations without a better one.",
                label="Patience",
                hint="trials without a better one",
                setting="budget.plateau",
            ),
            _SEARCH,
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
        arguments=(_PARAMS,),
        for_run=lambda run: run.is_alive and run.is_sweep,
        for_trial=lambda run: run.is_alive,
        label_for_trial="Copy to a new trial",
        asks_first=True,
        examples=("workbench enqueue last --set lr=0.1 --set width=32",),
    ),
    Action(
        "resume",
        "Resume",
        "Continue a run that was stopped, failed or lost. Follows it until it ends.",
        "process",
        explanation=(
            "It continues with the experiment and the code with which it began. For a corrected "
            "experiment, start a new run."
        ),
        arguments=(_CODE,),
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
        "Give a run a larger budget. A run that has ended continues with a new driver, and is"
        " followed.",
        "process",
        explanation="The run continues until the new budget is used up.",
        arguments=(
            Argument(
                "trials",
                "count",
                "Try this many more configurations.",
                label="More trials",
                suggested=10,
                setting="budget.trials",
            ),
            Argument(
                "time",
                "duration",
                "Run for this much longer, such as 1h.",
                label="More time",
                hint=_DURATION_HINT,
                setting="budget.time",
            ),
            Argument(
                "gpu_time",
                "duration",
                "Let trials hold GPUs for this much longer.",
                label="More GPU time",
                hint=_DURATION_HINT,
                setting="budget.gpu_time",
            ),
            Argument(
                "energy",
                "text",
                "Let trials use this much more energy, such as 2kWh.",
                label="More energy",
                hint=_ENERGY_HINT,
                setting="budget.energy",
            ),
            Argument(
                "money",
                "text",
                "Let the run cost this much more, such as 20EUR.",
                label="More money",
                hint=_MONEY_HINT,
                setting="budget.money",
            ),
            Argument(
                "plateau",
                "count",
                "Allow this many more configurations without a better one.",
                label="More patience",
                hint="trials without a better one",
                setting="budget.plateau",
            ),
            _SEARCH,
            _CODE,
            Argument(
                "enqueue",
                "settings",
                "Try this configuration next, as enqueue does; without a limit the run gets one"
                " more trial.",
                option="--set",
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
        examples=("workbench extend last --trials 50", "workbench extend last --time 1h --detach"),
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
            Argument(
                "to",
                "folder",
                "Write the bundle to this folder.",
                label="Folder",
                hint=_PLACE_HINT,
                is_positional=True,
                default=_folder_of_bundle,
            ),
            Argument(
                "trial",
                "count",
                "Export this trial instead of the chosen or best.",
                label="Trial",
                hint="empty: the chosen or best",
                minimum=0,
            ),
            Argument(
                "format",
                "text",
                "Add the model with a script that predicts, onnx; also for OpenVINO, "
                "openvino; or a federation as an application for Flower, flower.",
                label="Format",
                hint="onnx: predict without torch; flower: a federation for devices",
                metavar="FORMAT",
            ),
            Argument(
                "force", "flag", "Write into a folder that is not empty.", is_from_browser=False
            ),
            Argument(
                "weights",
                "flag",
                "Leave the weights out of the bundle.",
                option="--without-weights",
                flag_value=False,
                is_from_browser=False,
            ),
        ),
        for_run=lambda run: run.has_best,
        for_trial=lambda run: run.trial_state == "complete",
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
            Argument(
                "url",
                "text",
                "Write the study to this Optuna storage.",
                option="--optuna",
                metavar="URL",
                is_required=True,
                is_positional=True,
            ),
            Argument(
                "name", "text", "Use this study name; by default the run id.", option="--study-name"
            ),
        ),
    ),
    Action(
        "compress",
        "Compress",
        "Make a trained model smaller and faster, and measure it.",
        "process",
        explanation=(
            "A new run prunes, quantises and fine-tunes the model, and measures each result in ONNX"
            " Runtime beside the model as it is."
        ),
        arguments=(
            Argument(
                "trial",
                "count",
                "Compress this trial instead of the chosen or best.",
                label="Trial",
                hint="empty: the chosen or best",
                minimum=0,
            ),
            Argument(
                "objective",
                "text",
                "Preserve this metric; by default accuracy, if it is measured.",
                metavar="METRIC",
                is_from_browser=False,
            ),
            Argument(
                "limits",
                "settings",
                "Allow at most this: drop=0.5%, latency=5ms, size=500KB or "
                "memory=100MB; repeat the option for several.",
                option="--limit",
                is_from_browser=False,
            ),
            Argument(
                "trials",
                "count",
                "Try at most this many compressions.",
                label="Trials",
                hint="12 without a time limit",
            ),
            Argument(
                "time",
                "duration",
                "Run for at most this long, such as 10m.",
                label="Time",
                hint=_DURATION_HINT,
            ),
            Argument(
                "threads",
                "count",
                "Time calls with this many threads.",
                label="Threads",
                hint="empty: 1",
            ),
            Argument(
                "device",
                "text",
                "Measure latencies here, on ssh://[USER@]HOST[:PORT], or on the "
                "machine of a tier, such as tiers.yaml:end.",
                metavar="DEVICE",
                is_from_browser=False,
            ),
            Argument(
                "python",
                "text",
                "Use this Python of the other machine; it needs numpy and onnxruntime.",
                metavar="PROGRAM",
                is_from_browser=False,
            ),
        ),
        for_run=lambda run: run.has_best and run.trains_model,
        for_trial=lambda run: run.trial_state == "complete" and run.trains_model,
        asks_first=True,
        may_launch=True,
        detaches=True,
        answer="the compression is starting",
        examples=(
            "workbench compress last",
            "workbench compress last --limit latency=5ms --limit drop=1% --time 5m",
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
        "Show a run in its place in lists again.",
        "store",
        command="pin",
        method="pin",
        arguments=(_UNDO,),
        for_run=lambda run: run.pinned,
    ),
    Action(
        "choose",
        "Choose",
        "Choose a trial by hand. It is taken, instead of the best, where none is named.",
        "store",
        arguments=(
            Argument(
                "trial",
                "count",
                "Choose this trial; it must be complete and keep all constraints.",
                minimum=0,
                is_required=True,
                is_positional=True,
            ),
        ),
        for_trial=lambda run: run.can_be_chosen and not run.has_choice,
        examples=("workbench choose last --trial 7", "workbench choose last --undo"),
    ),
    Action(
        "unchoose",
        "Undo the choice",
        "Take the best trial again where none is named.",
        "store",
        command="choose",
        method="choose",
        arguments=(_UNDO,),
        for_run=lambda run: run.has_choice,
        for_trial=lambda run: run.has_choice,
    ),
    Action(
        "rename",
        "Rename",
        "Give a run another name. Its experiment keeps its own.",
        "store",
        explanation="The experiment keeps its name. An empty name is that of the experiment.",
        arguments=(
            Argument(
                "name",
                "text",
                "Give this name; empty for that of the experiment.",
                label="Name",
                is_required=True,
                is_positional=True,
                begins_with="name",
                may_be_empty=True,
            ),
        ),
        for_run=lambda _run: True,
        asks_first=True,
        examples=("workbench rename last --name baseline",),
    ),
    Action(
        "tag",
        "Tags",
        "Add tags to a run, or remove some.",
        "store",
        explanation="Lists of runs can be filtered by tags.",
        arguments=(
            Argument(
                "add",
                "texts",
                "Add this tag; repeat the option for several.",
                label="Add",
                hint="separated by commas",
                metavar="TAG",
                is_positional=True,
                example=["TAG"],
            ),
            Argument(
                "remove",
                "texts",
                "Remove this tag; repeat the option for several.",
                label="Remove",
                hint="separated by commas",
                metavar="TAG",
            ),
        ),
        for_run=lambda _run: True,
        asks_first=True,
        examples=(
            "workbench tag last --add baseline --add convnet",
            "workbench tag last --remove baseline",
        ),
    ),
    Action(
        "note",
        "Notes",
        "Replace the notes of a run.",
        "store",
        arguments=(
            Argument(
                "text",
                "text",
                "Write this text; empty removes the notes.",
                label="Notes",
                is_required=True,
                is_positional=True,
                begins_with="notes",
                may_be_empty=True,
                is_long=True,
            ),
        ),
        for_run=lambda _run: True,
        asks_first=True,
        examples=("workbench note last --text 'The first one with warm-up.'",),
    ),
    Action(
        "archive",
        "Archive",
        "Hide a run from lists. Nothing of it is deleted.",
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
        arguments=(_UNDO,),
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
            Argument(
                "trial",
                "count",
                "Show only this trial, with its traceback if it failed.",
                minimum=0,
                is_from_browser=False,
            ),
            Argument(
                "traceback",
                "flag",
                "Print only the traceback: of --trial, or of the first failure.",
                is_from_browser=False,
            ),
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
        kind: Its kind; `start` stands for `sweep`, or `submit` where the address takes jobs.
        arguments: What is given with it.

    Raises:
        ArgumentError: If there is no such action.
    """
    if kind == "start":
        kind = "submit" if is_jobs_address((arguments or {}).get("address")) else "sweep"
    if kind not in ACTIONS:
        raise ArgumentError(
            f"there is no action {kind!r}", field="kind", allowed=["start", *ACTIONS]
        )
    return ACTIONS[kind]


def stored_payload(kind: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of an action as they are stored for the driver, checked.

    None is left out.

    Args:
        kind: The kind of the action.
        given: Values by name.

    Raises:
        ArgumentError: As in `check_arguments`.
    """
    arguments = action_of(kind).arguments
    return payload_of(arguments, check_arguments(arguments, python_values(given)))


def is_jobs_address(address: object) -> bool:
    """Return whether runs are submitted to an address as jobs, rather than driven from here."""
    return isinstance(address, str) and address.lower().startswith(("http://", "https://"))
