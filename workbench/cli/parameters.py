"""The table of parameters: every option and operand of the command line, each declared once.

A name has one meaning. A command adds only the default of a parameter, and whether it is required
or repeatable.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any, get_args

import click

from workbench.cli.declarations import Declaration, Taken
from workbench.cli.parameter_types import (
    ActionValue,
    Batches,
    Count,
    FilePath,
    Number,
    OneOf,
    Quantity,
    Seconds,
    Size,
    read_settings,
)
from workbench.experiment.actions import ACTIONS, Argument, arguments
from workbench.foundation.events import RunState

_STORE = "workbench.store.database"
_KINDS = {
    "count": "N",
    "count_or_auto": "N|auto",
    "duration": "DURATION",
    "settings": "NAME=VALUE",
    "folder": "PATH",
    "new_file": "PATH",
}
_PATH = FilePath()
_TEXT = click.STRING
_COUNT = Count()
_MAX_SIMULATED = 100_000


def _option(
    option: str,
    help: str,
    type: click.ParamType | None = _TEXT,
    metavar: str | None = "N",
    **more: Any,
) -> Declaration:
    name = more.pop("name", option.removeprefix("--").replace("-", "_"))
    return Declaration(name, option, type, metavar, help, **more)


def _flag(option: str, help: str, **more: Any) -> Declaration:
    return _option(option, help, None, None, **more)


def _operand(name: str, metavar: str, type: click.ParamType = _TEXT) -> Declaration:
    return Declaration(name, "", type, metavar)


def of_argument(argument: Argument, type: click.ParamType | None = None) -> Declaration:
    """Return the parameter for an argument of an action.

    Args:
        argument: The argument.
        type: The type that reads its value. By default the action checks it.
    """
    metavar = argument.metavar or _KINDS.get(argument.kind, "TEXT")
    if argument.is_operand:
        if argument.kind == "texts":
            metavar += "..."
        return _operand(argument.name, metavar, ActionValue(argument))
    if argument.kind == "flag":
        values = {True: argument.flag_value}
        return Declaration(
            argument.name,
            argument.option_name,
            None,
            None,
            argument.help,
            callback=lambda _context, _parameter, is_given: values.get(is_given),
        )
    declared = Declaration(
        argument.name,
        argument.option_name,
        type or ActionValue(argument),
        metavar,
        argument.help,
    )
    if argument.kind == "settings":
        return dataclasses.replace(declared, callback=_read_settings)
    return declared


def _read_settings(
    _context: click.Context, parameter: click.Parameter, assignments: tuple[str, ...]
) -> dict[str, Any] | None:
    return read_settings(assignments, option=parameter.opts[0]) or None


def _keep_store(context: click.Context, _parameter: click.Parameter, url: str | None) -> None:
    if url is not None:
        context.find_root().meta[_STORE] = url


def given_store() -> str | None:
    """Return the value of `--store`, or None if it was not given."""
    context = click.get_current_context(silent=True)
    if context is None:
        return None
    return context.find_root().meta.get(_STORE)


def _refuse_detached(context: click.Context, _parameter: click.Parameter, launcher: str) -> str:
    if launcher == "inline" and context.params.get("detach"):
        raise click.UsageError(
            "you cannot combine --detach and --launcher inline: nothing would drive the run"
        )
    return launcher


def _optimizers() -> Iterable[str]:
    from workbench.advisor.rate_scaling import OPTIMIZERS

    return OPTIMIZERS


def _rules() -> Iterable[str]:
    from workbench.advisor.rate_scaling import RULES

    return RULES


# Operands.
RUN = _operand("run_id", "RUN")
RUNS = _operand("runs", "RUN...")
VERSION = of_argument(arguments.VERSION)
BASELINE_TRIAL = _operand("baseline_trial", "BASELINE")
CANDIDATE_TRIAL = _operand("candidate_trial", "CANDIDATE")
EXPERIMENT = _operand("file", "FILE")
TABLE = _operand("table", "TABLE")
SWEEP_FILE = _operand("sweep", "SWEEP", _PATH)
HISTORY_PLACE = _operand("place", "PLACE")
SCRIPT = _operand("script", "SCRIPT", _PATH)
TIERS_FILE = _operand("file", "TIERS", _PATH)
BUNDLE = _operand("bundle", "BUNDLE", _PATH)
BUNDLES = _operand("bundles", "BUNDLE...")
SERVED = _operand("served", "BUNDLE|URL")
ROWS = _operand("rows", "ROWS...", _PATH)
FOLDER = _operand("folder", "FOLDER", _PATH)
LAUNCHER_TARGETS = ("aws", "gcp", "azure", "kubernetes", "slurm", "skypilot")
LAUNCHER_TARGET = _operand("target", "|".join(LAUNCHER_TARGETS), OneOf(LAUNCHER_TARGETS))
NEW_NAME = of_argument(arguments.NEW_NAME)
ADDED_TAGS = of_argument(arguments.ADDED_TAGS)
NOTES = of_argument(arguments.TEXT)

# What most commands have.
STORE = _option(
    "--store",
    "Use this store of runs: the path of a SQLite file, or postgresql://USER@HOST/DATABASE.",
    _TEXT,
    "URL",
    callback=_keep_store,
    is_passed=False,
    variable="WORKBENCH_STORE",
)
JSON = _flag("--json", "Print one JSON document.", name="as_json")
ADDRESS = of_argument(arguments.ADDRESS)
TOKEN_FILE = _option(
    "--token-file", "Read the token of the cluster or server from this file.", _PATH, "FILE"
)
TO = of_argument(arguments.TO, _PATH)
FORCE = of_argument(arguments.FORCE)
DETACH = _flag("--detach", "Return at once. The run id is the last word on stdout.", is_eager=True)
LAUNCHER = _option(
    "--launcher",
    "Drive the run on ray, which survives this command, or inline, in this process.",
    _TEXT,
    "ray|inline",
    callback=_refuse_detached,
)
TRIAL = of_argument(arguments.TRIAL)
LIMIT = _option("--limit", "Show at most this many.", Count(0))
ALL = _flag("--all", "Show everything, not only the most important.", name="show_all")
YES = _flag("--yes", "Do not ask.")
INTERVAL = _option(
    "--interval",
    "With each predicted number, print the interval that holds this share of true numbers.",
    Number(0, 1, has_minimum=False, has_maximum=False),
    "SHARE",
)
SEED = _option("--seed", "Seed all random choices.", Count(0))

# An experiment, and the budget of a run.
SETTINGS = of_argument(arguments.SETTINGS)
TRIALS = of_argument(arguments.TRIALS)
TIME = of_argument(arguments.TIME)
GPU_TIME = of_argument(arguments.GPU_TIME)
ENERGY = of_argument(arguments.ENERGY)
MONEY = of_argument(arguments.MONEY)
PLATEAU = of_argument(arguments.PLATEAU)
CONCURRENCY = of_argument(arguments.CONCURRENCY)
MAX_RETRIES = of_argument(arguments.MAX_RETRIES)
NAME = of_argument(arguments.NAME)
RUN_ID = of_argument(arguments.RUN_ID)
WARM_START = of_argument(arguments.WARM_START)
PARAMS = of_argument(arguments.PARAMS)
BEGINS_FROM = of_argument(arguments.BEGINS_FROM)
SEARCH = of_argument(arguments.SEARCH)
MORE_TRIALS = of_argument(arguments.MORE_TRIALS)
MORE_TIME = of_argument(arguments.MORE_TIME)
MORE_GPU_TIME = of_argument(arguments.MORE_GPU_TIME)
MORE_ENERGY = of_argument(arguments.MORE_ENERGY)
MORE_MONEY = of_argument(arguments.MORE_MONEY)
MORE_PLATEAU = of_argument(arguments.MORE_PLATEAU)
CONFIRM = of_argument(arguments.CONFIRM)
CODE = of_argument(arguments.CODE)
SCHEMA = _flag("--schema", "Print the JSON schema of experiment files, for editors.")
ESTIMATE_MEMORY = _flag("--estimate-memory", "Estimate the memory of a trial without running one.")
NO_STEP = _flag("--no-step", "Do not try the first step of a trial.")

# Lists, labels and results of runs.
TAG = _option("--tag", "List only runs with this tag.", _TEXT, "TAG")
STATE = _option("--state", "List only runs in this state.", OneOf(get_args(RunState)), "STATE")
MATCH = _option(
    "--match",
    "List only runs with these words in their id, name, owner, tags or notes.",
    _TEXT,
    "TEXT",
)
PINNED = _flag("--pinned", "List only pinned runs.")
ARCHIVED = _flag("--archived", "List the archived runs instead.")
REMOVE = of_argument(arguments.REMOVE)
UNDO = of_argument(arguments.UNDO)
TRACEBACK = of_argument(arguments.TRACEBACK)
FORMAT = of_argument(arguments.FORMAT)
WITHOUT_WEIGHTS = of_argument(arguments.WITHOUT_WEIGHTS)
OPTUNA = of_argument(arguments.OPTUNA)
STUDY_NAME = of_argument(arguments.STUDY_NAME)
TRAIN = _option(
    "--train",
    "Call this function (config, report) in each trial instead of the program.",
    _TEXT,
    "MODULE:FUNCTION",
)

BASELINE = _option(
    "--baseline",
    "Read the runs of the baseline from this CSV file: run, step, value.",
    FilePath(must_exist=True),
    "FILE",
)
CANDIDATE = _option(
    "--candidate",
    "Read the runs of the candidate from this CSV file: run, step, value.",
    FilePath(must_exist=True),
    "FILE",
)
FLOOR = _option(
    "--floor",
    "Learn the noise from repeated runs in this CSV file: group, run, step, value.",
    FilePath(must_exist=True),
    "FILE",
)
GOAL = _option(
    "--goal",
    "Say whether small or large values are good.",
    OneOf(("minimize", "maximize")),
    "minimize|maximize",
)
ERROR = _option(
    "--error",
    "Allow a wrong claim with this probability.",
    Number(0, 0.5, has_minimum=False, has_maximum=False),
    "SHARE",
)
SESSION = _option(
    "--session", "Share the error with all other proposals of this session.", _TEXT, "NAME"
)
SESSION_NAME = _operand("name", "NAME")
OPEN_TEST_DATA = _flag("--open-test-data", "Print the paths of the test data. It works once.")
ALLOW = _option("--allow", "Let the agent do this besides reading.", _TEXT, "propose,control,code")
AGENT = _option("--agent", "Show what the agent does under this name.", _TEXT, "NAME")
PROTECT = _option("--protect", "Refuse proposals that change this file.", _PATH, "PATH")
TEST_DATA = _option("--test-data", "Keep this from the folders of proposals.", _PATH, "PATH")

# Models.
TARGET = _option(
    "--target", "Predict this column, or several with commas between them.", _TEXT, "COLUMN"
)
TASK = _option(
    "--task",
    "Predict this kind of target. By default it is detected.",
    OneOf(("classification", "regression", "ordinal")),
    "classification|regression|ordinal",
)
COLUMN = _option("--column", "Show this column.", _TEXT, "COLUMN")
DROP = _option("--drop", "Do not train on this column.", _TEXT, "COLUMN")
FAMILIES = _option(
    "--families",
    "Try only these model families, such as lightgbm,forest. --families=-forest skips one.",
    _TEXT,
    "NAMES",
)
FOUNDATION_WEIGHTS = _option(
    "--foundation-weights",
    "Also try a tabular foundation model, TabICL or TabPFN, with the weights in this folder.",
    _PATH,
    "FOLDER",
)
PRESET = _option(
    "--preset",
    "fast: one model that predicts quickly. good: the default. best: more folds and a larger"
    " ensemble, which predicts more slowly.",
    OneOf(("fast", "good", "best")),
    "fast|good|best",
)
GROUP_COLUMN = _option(
    "--group-column",
    "Keep rows with the same value in this column together, such as the rows of one patient. By"
    " default such a column is detected. With none, rows are independent.",
    _TEXT,
    "COLUMN|none",
)
TIME_COLUMN = _option(
    "--time-column",
    "Test on the last rows in the order of this column. By default such a column is detected. With"
    " none, rows are drawn at random.",
    _TEXT,
    "COLUMN|none",
)
TEST = _option(
    "--test", "Test on the rows of this table. By default a fifth is held out.", _PATH, "TABLE"
)
VALIDATION = _option(
    "--validation",
    "Choose by the rows of this table. By default some rows are held out.",
    _PATH,
    "TABLE",
)
QUERY = _option(
    "--query",
    "Select these rows from the database whose address is the TABLE.",
    _TEXT,
    "SELECT",
)
TEXT_COLUMN = _option("--text-column", "Learn from this column of texts alone.", _TEXT, "COLUMN")
DATES = _option(
    "--dates",
    "Say how dates such as 03/04/2024 are written. Only needed if the table does not show it.",
    OneOf(("day-first", "month-first", "year-first")),
    "day-first|month-first|year-first",
)
WEIGHT_COLUMN = _option(
    "--weight-column", "Weigh each row by this column, which is not an input.", _TEXT, "COLUMN"
)
CLASS_WEIGHTS = _option(
    "--class-weights",
    "Predict classes by what a mistake costs: balanced, or weights such as yes=5,no=1.",
    _TEXT,
    "balanced|CLASS=N,...",
)
CLASS_ORDER = _option(
    "--class-order",
    "Order the classes from the lowest to the highest, such as low,medium,high.",
    _TEXT,
    "CLASS,CLASS,...",
)
QUANTILES = _option(
    "--quantiles",
    "Predict these quantiles of each row, such as 0.1,0.5,0.9.",
    _TEXT,
    "N,N,...",
)
METRIC = of_argument(arguments.METRIC)
SIZE = _option("--size", "Combine at most this many trials.", _COUNT)
CONSTRAINTS = of_argument(arguments.CONSTRAINTS)
THREADS = of_argument(arguments.THREADS)
DEVICE = of_argument(arguments.DEVICE)
PYTHON = of_argument(arguments.PYTHON)
BATCH = _option("--batch", "Give each call this many samples.", _COUNT)

MAP = _option(
    "--map",
    "Give a parameter or a metric of the old runs this name, such as learning_rate=lr.",
    _TEXT,
    "OLD=NEW",
    name="renamed",
)

# Servers.
HOST = _option("--host", "Listen on this address.", _TEXT, "ADDRESS")
PORT = _option("--port", "Listen on this port, or with 0 on any free one.", Count(0, 65535))
MAX_BATCH = _option("--max-batch", "Compute at most this many rows at once.", Count(1, 65536))
LATENCY = _option(
    "--latency",
    "Limit batches to the rows that are computed within this time.",
    Seconds(),
    "DURATION",
)
QUEUE = _option(
    "--queue",
    "Let at most this many rows of a model wait. Further requests get 429.",
    Count(1, 10_000_000),
)
MAX_BODY = _option("--max-body", "Reject requests with a larger body.", Size(), "SIZE")
KEEP = _option(
    "--keep",
    "Keep this share of the rows and answers in the bundle, and watch them for drift.",
    Number(0, 1),
    "SHARE",
)
KEEP_LIMIT = _option(
    "--keep-limit",
    "Keep at most this much per model. The oldest rows are removed.",
    Size(),
    "SIZE",
)
TRUSTED_PROXY = _option(
    "--trusted-proxy",
    "Let this proxy use all connections. Any other address can use half of them.",
    _TEXT,
    "ADDRESS",
    name="trusted_proxies",
)
NO_TOKEN = _flag("--no-token", "Serve everybody on this machine. Needs a loopback address.")
ON = _option(
    "--on",
    "Serve in this process, or with Ray Serve on a cluster.",
    OneOf(("here", "ray")),
    "here|ray",
    name="place",
)
REPLICAS = _option(
    "--replicas", "With --on ray: run this many copies of the server.", Count(1, 1000)
)

# Tiers.
REQUESTS = _option("--requests", "Simulate this many requests.", Count(100))
SCHEDULER = _option(
    "--scheduler",
    "Measure this scheduler instead of place.scheduler.",
    _TEXT,
    "NAME",
    name="schedulers",
)
DURATION = _option("--duration", "Send requests for this long.", Seconds(), "DURATION")
RATE = _option(
    "--rate", "Send this many requests per second.", Number(0, has_minimum=False), "PER_SECOND"
)

# Advice and what-if questions.
OBJECTIVE = _option(
    "--objective",
    "Optimize the plan for this.",
    OneOf(("time", "money", "energy", "throughput")),
    "time|money|energy|throughput",
)
MAX_SLOWDOWN = _option(
    "--max-slowdown",
    "Also find the power limit of the GPUs that saves the most energy, with steps longer by at most"
    " this fraction, such as 0.1.",
    Number(0, 1, has_minimum=False),
    "PART",
)
FRAMEWORKS = _flag(
    "--frameworks",
    "Instead of a plan, compare the steps in plain torch, compiled torch, and Keras on JAX.",
)
KERAS = _option(
    "--keras",
    "Compare this function's Keras model instead of one of the zoo. Needs --frameworks.",
    _TEXT,
    "MODULE:FUNCTION",
    name="keras_builder",
)
MEASURED = _option(
    "--measured",
    "Read measurements from this CSV file. Its columns are listed above.",
    FilePath(must_exist=True),
    "FILE",
)
POINTS = _option(
    "--points",
    "Predict the plans in this CSV file. Its columns are listed above.",
    FilePath(must_exist=True),
    "FILE",
)
MEMORY = _option(
    "--memory",
    "Use a device with this memory, such as 16GB. By default this machine's.",
    Size(1_000_000),
    "SIZE",
    name="memories",
)
DEPTH = _option(
    "--depth",
    "Change the depth with this parameter of the model. By default num_layers.",
    _TEXT,
    "NAME",
)
WORKERS = _option("--workers", "Train a trial on this many workers.", _COUNT)
GLOBAL_BATCH = _option(
    "--global-batch",
    "Use this global batch: the samples per optimizer step, over all workers.",
    Count(1, 2**24),
    "SAMPLES",
)
MICRO_BATCH = _option(
    "--micro-batch", "Let one worker process this many samples at once.", _COUNT, "SAMPLES"
)
METHOD = _option(
    "--method",
    "Train all weights, an adapter, or an adapter on weights of 4 bits. By default, see all three.",
    OneOf(("full", "lora", "qlora")),
    "NAME",
)
RANK = _option("--rank", "Use adapters of this rank.", _COUNT)
NUM_PARAMETERS = _option(
    "--parameters",
    "Predict a model of this many parameters, such as 1B.",
    Quantity(),
    "N",
)
NUM_TOKENS = _option(
    "--tokens", "Predict a training on this many tokens, such as 20B.", Quantity(), "N"
)
ALPHA = _option(
    "--alpha",
    "Scale the adapter by this number / rank. By default twice the rank.",
    Number(0.01, 1e6),
    "ALPHA",
)
TARGETS = _option(
    "--targets",
    "Adapt these layers, such as q_proj+v_proj. By default all-linear.",
    _TEXT,
    "NAMES",
)
SEQUENCE = _option("--sequence", "Train on sequences of this many tokens.", _COUNT, "TOKENS")
GPU_MEMORY = _option(
    "--gpu-memory", "Say what fits a GPU with this memory.", Size(1_000_000), "SIZE"
)
RECOMPUTE = _flag("--recompute", "Compute activations again in the backward pass.")
PRECISION = _option(
    "--precision",
    "Compute in this precision.",
    OneOf(("fp32", "bf16", "fp16")),
    "fp32|bf16|fp16",
)
EFFICIENCY = _option(
    "--efficiency",
    "Require at least this efficiency of each worker.",
    Number(0.01, 0.99),
    "SHARE",
)
SERVERS = _flag("--servers", "Show how many parameter servers are enough to hide the traffic.")
UP_TO = _option("--up-to", "Extrapolate to this many workers, in powers of two.", Count(2, 1024))
NOISE = _option(
    "--noise",
    "Read gradient noise from this CSV file: global_batch, progress, grad_sqr, grad_var.",
    _PATH,
    "FILE",
    name="noise_file",
)
BATCHES = _option("--batches", "Compare these global batches.", Batches(), "B,B,...")
GPUS = _option("--gpus", "Use this many GPUs in total.", Count(1, _MAX_SIMULATED))
NODES = _option("--nodes", "Spread the GPUs over this many nodes.", _COUNT)
MAX_MICRO_BATCH = _option(
    "--max-micro-batch", "Fit at most this many samples on a GPU at once.", _COUNT, "SAMPLES"
)
REFERENCE_BATCH = _option(
    "--reference-batch",
    "Read progress and noise as given for this batch. By default the smallest.",
    _COUNT,
    "SAMPLES",
)
UNTIL = _option(
    "--until",
    "End the training at this progress. By default twice the last in the noise file.",
    Number(0, has_minimum=False),
    "PROGRESS",
)
EPOCHS = _option(
    "--epochs",
    "Read epoch times from this CSV file: global_batch, epoch_time_s.",
    _PATH,
    "FILE",
    name="epochs_file",
)
RUNS_FILE = _option(
    "--runs",
    "Read full runs from this CSV file: global_batch, epochs_to_target (empty if never).",
    _PATH,
    "FILE",
    name="runs_file",
)
MAX_RUNS = _option("--max-runs", "Allow at most this many full runs.", Count(0))
OPTIMIZER = _option("--optimizer", "Scale the rate of this optimizer.", OneOf(_optimizers), "NAME")
LR = _option(
    "--lr",
    "Scale this learning rate, which works well at --from-batch.",
    Number(0, has_minimum=False),
    "RATE",
)
FROM_BATCH = _option("--from-batch", "Scale from this global batch.", _COUNT, "SAMPLES")
TO_BATCH = _option("--to-batch", "Scale to this global batch.", _COUNT, "SAMPLES")
RULE = _option(
    "--rule",
    "Use this scaling rule, or let auto choose by optimizer and direction.",
    OneOf(_rules),
    "NAME",
)
NOISE_SCALE = _option(
    "--noise-scale",
    "Assume this gradient noise scale. adascale needs it, and other rules are checked with it.",
    Number(0, has_minimum=False),
    "SAMPLES",
)
WARMUP = _option(
    "--warmup",
    "Warm up for this share of the training at --from-batch.",
    Number(0, 1),
    "SHARE",
)
_DECAY = Number(0, 1, has_maximum=False)
BETA1 = _option("--beta1", "Set beta1 of Adam-type optimizers.", _DECAY, "BETA")
BETA2 = _option("--beta2", "Set beta2 of Adam-type optimizers.", _DECAY, "BETA")

# Machines to rent.
MAX_NODES = _option("--max-nodes", "Use at most this many machines.", Count(1, 1024))
MIN_NODES = _option("--min-nodes", "Keep this many machines while nothing runs.", Count(0))
START_UP = _option(
    "--start-up",
    "Assume that a requested machine starts training after this time.",
    Seconds(may_be_zero=True),
    "DURATION",
)
CATALOGUE = _option(
    "--catalogue",
    "Use this catalogue of machines instead of the built-in one.",
    _PATH,
    "FILE",
)
PROVIDER = _option("--provider", "Consider only this provider.", _TEXT, "NAME", name="providers")
ARTIFACTS = _option(
    "--artifacts",
    "Keep checkpoints at this URL, such as s3://bucket/runs, or at a shared path.",
    _TEXT,
    "URL",
    variable="WORKBENCH_ARTIFACTS",
    is_variable_read=True,
)
MACHINE = _option(
    "--machine",
    "Use this machine type of the catalogue (not for slurm).",
    _TEXT,
    "TYPE",
    name="type_name",
)
ON_DEMAND = _flag("--on-demand", "Use on-demand machines instead of spot machines.")
IDLE = _option(
    "--idle", "Release a machine after it has been idle for this long.", Seconds(), "DURATION"
)
PACKAGE = _option(
    "--package",
    "aws, gcp, azure, skypilot: install this wheel file or pip requirement.",
    _TEXT,
    "WHEEL",
)
PROJECT = _option("--project", "gcp: bill this project.", _TEXT, "NAME")
MACHINE_IMAGE = _option(
    "--machine-image",
    "gcp: boot machines with GPUs from this image, which has NVIDIA's driver.",
    _TEXT,
    "IMAGE",
)
IMAGE = _option(
    "--image",
    "kubernetes: use this image, which contains Ray, the workbench and your code.",
    _TEXT,
    "IMAGE",
)
KIND = _option(
    "--kind",
    "kubernetes: create a cluster for this run, or one that stays.",
    OneOf(("job", "cluster")),
    "job|cluster",
)
ENVIRONMENT = _option(
    "--environment",
    "slurm: use this virtual environment on a shared file system.",
    _PATH,
    "FOLDER",
)
CPUS_PER_NODE = _option("--cpus-per-node", "slurm: request this many CPUs per node.", _COUNT)
GPUS_PER_NODE = _option(
    "--gpus-per-node", "Use nodes with this many GPUs each.", Count(1, _MAX_SIMULATED)
)
MEMORY_PER_NODE = _option(
    "--memory-per-node", "slurm: request this much memory per node.", Size(2**20), "SIZE"
)
JOB_TIME = _option(
    "--job-time",
    "slurm: limit the job to this time, in Slurm's format: 90, 4:00:00, 1-12.",
    _TEXT,
    "TIME",
)
SBATCH_OPTION = _option(
    "--sbatch-option",
    "slurm: pass this option to sbatch, such as --partition=gpu.",
    _TEXT,
    "OPTION",
    name="options",
)
RESUME = _option("--resume", "Continue this run instead of starting one.", _TEXT, "RUN")
CHART = _option("--chart", "Also draw the comparison, as an HTML file.", _PATH, "FILE")
NUM_TRIALS = _option(
    "--num-trials", "Simulate this many trials in total.", Count(1, _MAX_SIMULATED)
)
NUM_RUNS = _option(
    "--num-runs",
    "Simulate this many runs. The first has priority.",
    Count(1, _MAX_SIMULATED),
)
POLICY = _option("--policy", "Also simulate this rule of yours.", _TEXT, "MODULE:FUNCTION")
FAILURE_RATE = _option(
    "--failure-rate", "Let each machine fail this many times per hour.", Number(0), "PER_HOUR"
)
CHECKPOINT = _option(
    "--checkpoint", "Save a checkpoint of each trial at this interval.", Seconds(), "DURATION"
)
OVERHEAD = _option(
    "--overhead",
    "Set the serial part of a step, relative to its time on one GPU.",
    Number(0),
    "SHARE",
)

# Housekeeping.
TRY = _option("--try", "Send a test message to this sink.", _TEXT, "SINK", name="sink")
LOST = _flag("--lost", "Send one alert for each lost run. Made for cron.")

PARAMETERS: dict[str, Declaration] = {
    declared.option or str(declared.metavar): declared
    for declared in list(globals().values())
    if isinstance(declared, Declaration)
}
"""The whole table, by option, or by placeholder for operands."""

# The only names with two meanings. People say "a limit of 1 ms" for a model, and "a limit of 20"
# for a list. The format of old runs is not that of an exported model.
HISTORY_FORMATS = ("csv", "mlflow", "tensorboard", "wandb", "optuna", "ray", "trackio", "neptune")
HISTORY_FORMAT = _option(
    "--format",
    "Read files of this tool. By default it is recognized by their content.",
    OneOf(HISTORY_FORMATS),
    "|".join(HISTORY_FORMATS),
    name="history_format",
)
LATENCY_LIMIT = _option(
    "--limit",
    "Predict one row within this time, such as latency=1ms.",
    _TEXT,
    "latency=TIME",
)

LAUNCH = (DETACH(), LAUNCHER(default="ray"), STORE(), JSON())
"""The parameters of commands that start a driver."""
STORED = (STORE(), JSON())
"""The parameters of commands that read a store."""


def options_of(*kinds: str) -> tuple[Taken, ...]:
    """Return the parameters that a command takes for its actions.

    With several actions, no parameter is required.

    Args:
        kinds: The kinds of the actions. The command itself takes their file and their cluster.
    """
    by_name = {argument.name: argument for kind in kinds for argument in ACTIONS[kind].arguments}
    return tuple(
        _taken(argument, is_required=argument.is_required and len(kinds) == 1)
        for argument in by_name.values()
        if argument.name not in ("path", "address")
    )


def experiment_options() -> tuple[Taken, ...]:
    """Return the options of `sweep` that change only the experiment."""
    return tuple(
        _taken(argument, is_required=False)
        for argument in ACTIONS["sweep"].arguments
        if argument.setting is not None or argument.name == "settings"
    )


def _taken(argument: Argument, *, is_required: bool) -> Taken:
    by_name = of_argument(argument)
    declared = PARAMETERS.get(by_name.option or str(by_name.metavar), by_name)
    is_repeatable = argument.kind in ("texts", "settings")
    return Taken(declared, None, is_required, is_repeatable, argument.name)
