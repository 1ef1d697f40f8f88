"""The arguments of actions, each declared once.

An action adds the label of its dialog, and whether it requires the argument.
"""

from __future__ import annotations

from workbench.experiment.actions.action import Argument

PATH = Argument("path", "text", "Read this experiment file.", is_required=True, is_positional=True)
SETTINGS = Argument(
    "settings",
    "settings",
    "Change a setting of the experiment by its dotted path. The value is YAML.",
    option="--set",
)
TRIALS = Argument("trials", "count", "Run at most this many trials.", setting="budget.trials")
TIME = Argument("time", "duration", "Take at most this long, such as 10m.", setting="budget.time")
GPU_TIME = Argument(
    "gpu_time",
    "duration",
    "Let trials hold GPUs for at most this long in total, such as 2h.",
    setting="budget.gpu_time",
)
ENERGY = Argument(
    "energy",
    "text",
    "Let trials use at most this much energy, such as 2kWh.",
    metavar="ENERGY",
    setting="budget.energy",
)
MONEY = Argument(
    "money",
    "text",
    "Spend at most this much, such as 20EUR.",
    metavar="MONEY",
    setting="budget.money",
)
PLATEAU = Argument(
    "plateau",
    "count",
    "Stop after this many trials without a better one.",
    setting="budget.plateau",
)
CONCURRENCY = Argument(
    "concurrency",
    "count_or_auto",
    "Run at most this many trials at once (auto fills the hardware).",
    setting="resources.concurrency",
)
MAX_RETRIES = Argument(
    "max_retries",
    "count",
    "Retry a trial this many times after a worker was lost.",
    minimum=0,
    setting="resources.max_retries",
    is_from_browser=False,
)
NAME = Argument("name", "text", "Give the run this name.", metavar="NAME", setting="name")
RUN_ID = Argument(
    "run_id",
    "text",
    "Use this run id, and continue the run if it exists.",
    metavar="ID",
    is_from_browser=False,
)
WARM_START = Argument(
    "warm_start",
    "texts",
    "Learn from this earlier run, or with auto from similar ones.",
    metavar="RUN",
    is_from_browser=False,
)
ADDRESS = Argument(
    "address",
    "text",
    "Use this Ray cluster: http://HOST:8265 to run the command there, HOST:PORT to attach to it.",
    metavar="ADDRESS",
)
PARAMS = Argument(
    "params",
    "settings",
    "Give a searched parameter this value.",
    label="Configuration",
    option="--param",
    example={"NAME": "VALUE"},
    is_required=True,
    is_positional=True,
)
CHANGED_PARAMS = Argument(
    "set",
    "settings",
    "Give a searched parameter this value.",
    label="Configuration",
    hint="all others are copied",
    option="--param",
    example={"NAME": "VALUE"},
)
BEGINS_FROM = Argument(
    "from_",
    "text",
    "Continue with the weights of the trial, or train from the start.",
    label="Begins from",
    hint="weights: its last checkpoint, start: the beginning",
    option="--from",
    metavar="weights|start",
    choices=("weights", "start"),
    suggested="weights",
)
SEARCH = Argument(
    "search",
    "settings",
    "Freeze a parameter at a value, or give it a new range or new choices, as YAML.",
    option="--search",
    setting="search",
    is_from_browser=False,
    example={"NAME": "VALUE"},
)
MORE_TRIALS = Argument(
    "trials",
    "count",
    "Run this many more trials.",
    option="--more-trials",
    setting="budget.trials",
)
MORE_TIME = Argument(
    "time",
    "duration",
    "Run for this much longer, such as 1h.",
    option="--more-time",
    setting="budget.time",
)
MORE_GPU_TIME = Argument(
    "gpu_time",
    "duration",
    "Let trials hold GPUs for this much longer, such as 2h.",
    option="--more-gpu-time",
    setting="budget.gpu_time",
)
MORE_ENERGY = Argument(
    "energy",
    "text",
    "Let trials use this much more energy, such as 2kWh.",
    option="--more-energy",
    metavar="ENERGY",
    setting="budget.energy",
)
MORE_MONEY = Argument(
    "money",
    "text",
    "Spend this much more, such as 20EUR.",
    option="--more-money",
    metavar="MONEY",
    setting="budget.money",
)
MORE_PLATEAU = Argument(
    "plateau",
    "count",
    "Allow this many more trials without a better one.",
    option="--more-plateau",
    setting="budget.plateau",
)
CONFIRM = Argument(
    "confirm",
    "count",
    "Train this many of the best configurations again with new seeds, to see if they were lucky.",
    label="Confirm the best",
    hint="configurations to train again with new seeds",
    option="--confirm",
    setting="confirm.best",
)
CODE = Argument(
    "code",
    "text",
    "Use the code from the start of the run, or your current code, in trials that start now.",
    label="Code",
    hint="kept: from the start of the run, current: as it is now",
    metavar="kept|current",
    choices=("kept", "current"),
)
TRIAL = Argument("trial", "count", "Select the trial with this number.", minimum=0)
TRACEBACK = Argument(
    "traceback",
    "flag",
    "Print only the traceback of --trial, or of the first failure.",
    is_from_browser=False,
)
TO = Argument("to", "new_file", "Write the result to this path.")
FORMAT = Argument(
    "format",
    "text",
    "Add the model as onnx (with a script that predicts), openvino, or a flower application.",
    metavar="onnx|openvino|flower",
)
FORCE = Argument("force", "flag", "Replace what is already there.", is_from_browser=False)
WITHOUT_WEIGHTS = Argument(
    "weights",
    "flag",
    "Do not include the weights.",
    option="--without-weights",
    flag_value=False,
    is_from_browser=False,
)
OPTUNA = Argument(
    "url",
    "text",
    "Write the study to this Optuna storage, such as sqlite:///study.db.",
    option="--optuna",
    metavar="URL",
    is_required=True,
    is_positional=True,
)
STUDY_NAME = Argument(
    "name",
    "text",
    "Give the Optuna study this name (by default the run id).",
    option="--study-name",
    metavar="NAME",
)
METRIC = Argument(
    "metric",
    "text",
    "Compare models by this metric.",
    metavar="METRIC",
    is_from_browser=False,
)
CONSTRAINTS = Argument(
    "limits",
    "settings",
    "Allow at most this, such as drop=0.5%, latency=5ms, size=500KB or memory=100MB.",
    option="--constraint",
    is_from_browser=False,
)
THREADS = Argument("threads", "count", "Compute with this many threads.", maximum=1024)
DEVICE = Argument(
    "device",
    "text",
    "Measure here, on ssh://[USER@]HOST[:PORT], or on the machine of a tier, such as"
    " tiers.yaml:end.",
    metavar="DEVICE",
    is_from_browser=False,
)
PYTHON = Argument(
    "python",
    "text",
    "Use this Python on the other machine. It needs numpy and onnxruntime.",
    metavar="PROGRAM",
    is_from_browser=False,
)
UNDO = Argument("undo", "flag", "Undo this.", is_required=True, suggested=True)
NEW_NAME = Argument(
    "name",
    "text",
    "Give the run this name. Leave it empty to use the experiment's name.",
    metavar="NAME",
    is_required=True,
    is_positional=True,
    is_operand=True,
    may_be_empty=True,
)
ADDED_TAGS = Argument(
    "add", "texts", "Add this tag.", metavar="TAG", is_positional=True, is_operand=True
)
REMOVE = Argument("remove", "texts", "Remove this tag.", metavar="TAG")
VERSION = Argument(
    "version",
    "text",
    "Decide about this version of the code.",
    label="Version",
    metavar="VERSION",
    is_required=True,
    is_positional=True,
    is_operand=True,
)
TEXT = Argument(
    "text",
    "text",
    "Write this text. Leave it empty to remove the notes.",
    metavar="TEXT",
    is_required=True,
    is_positional=True,
    is_operand=True,
    may_be_empty=True,
)
