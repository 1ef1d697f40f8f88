"""Commands about this machine: doctor, shutdown."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.metadata
import os
import platform
import re
import shlex
import shutil
import socket
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click
import psutil
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from workbench.cli.declarations import takes
from workbench.cli.options import (
    command_line,
    example,
    open_existing_store,
    write_for_shell,
)
from workbench.cli.output import print_json, wrapped
from workbench.cli.parameters import JSON, STORED, YES, given_store
from workbench.experiment.actions import suggest
from workbench.foundation.artifacts import Artifacts
from workbench.foundation.errors import WorkbenchError, install_command
from workbench.foundation.events import FINISHED_RUN_STATES
from workbench.foundation.formatting import (
    counted_noun,
    format_bytes,
    format_count,
    format_duration,
    printable,
)
from workbench.store.history.failure_text import headline
from workbench.training.programs.last_error import last_error
from workbench.version import DISTRIBUTION

if TYPE_CHECKING:
    from workbench.cluster.head.exposure import Listener
    from workbench.hardware.resources import Inventory
    from workbench.store.database import RunRow, Store

OTHER_DISTRIBUTION = "workbench"
"""Another project on the package index that has the same import name."""
_LITTLE_DISK_BYTES = 2**30
OPTIONAL_PACKAGES = {
    "onnxruntime": ("exported models and `workbench serve`", "deploy"),
    "lightgbm": ("LightGBM's trees in AutoML", "tables"),
    "catboost": ("CatBoost's trees in AutoML", "tables"),
    "xgboost": ("XGBoost's trees in AutoML", "tables"),
    "transformers": ("language models", "hf"),
    "peft": ("adapters of language models", "hf"),
    "psycopg": ("a store on PostgreSQL", "postgresql"),
    "optuna-dashboard": ("Optuna's own dashboard", None),
}
"""What each package is for, and the extra that installs it with what belongs to it."""
_QUIET_S = 30.0
_OLD_BACKUP_S = 30 * 86400.0
_MAX_RUNS = 1000
_MARKS = {
    "fine": ("ok", "green"),
    "notable": ("..", "yellow"),
    "missing": ("--", "bright_black"),
    "broken": ("!!", "red"),
}
_SHOWN = (
    "torch",
    "ray",
    "optuna",
    "jupyterlab",
    "plotly",
    "sqlalchemy",
    "pydantic",
    "numpy",
    "pandas",
)
_PARTS = {
    "train": ("torch", "train here"),
    "lab": ("jupyterlab", "show runs in JupyterLab and notebooks"),
}
"""For each optional part: the package that shows that it is installed, and what the part is for."""


@dataclasses.dataclass(frozen=True)
class Finding:
    """One thing that was checked, its condition, and how to fix it if it is broken."""

    subject: str
    state: Literal["fine", "notable", "missing", "broken"]
    text: str
    fix: str | None = None


def _to_json(finding: Finding) -> dict[str, str | None]:
    document = dataclasses.asdict(finding)
    return {"message": document.pop("text"), **document}


@click.command()
@takes(STORED)
@example("workbench doctor")
def doctor(as_json: bool) -> int:
    """Check everything that runs depend on, problems first.

    Exits with 1 if something is broken.
    """
    checks: list[Callable[[], list[Finding]]] = [
        find_packages,
        _check_hardware,
        _check_torch,
        _check_store,
        _check_runs,
        _check_ray,
        _check_exposure,
        _check_settings,
        _check_cache,
        find_optional_packages,
    ]
    findings = [finding for check in checks for finding in check()]
    order = {"broken": 0, "notable": 1, "fine": 2, "missing": 3}
    findings.sort(key=lambda finding: order[finding.state])
    broken = any(finding.state == "broken" for finding in findings)
    if as_json:
        print_json({"ok": not broken, "findings": [_to_json(finding) for finding in findings]})
        return int(broken)
    width = max(len(finding.subject) for finding in findings)
    for finding in findings:
        mark, colour = _MARKS[finding.state]
        text = wrapped(printable(finding.text), width + 6)
        click.echo(click.style(mark, fg=colour) + f"  {finding.subject:<{width}}  {text}")
        if finding.fix:
            click.echo(f"{'':<{width + 6}}{wrapped(printable(f'fix: {finding.fix}'), width + 6)}")
    return int(broken)


@click.command()
@takes(YES, JSON)
@example("workbench shutdown")
def shutdown(yes: bool, as_json: bool) -> None:
    """Stop the local Ray head. Runs that are under way can be resumed later.

    In a terminal, you are asked first if a run is under way or starting.
    """
    from workbench.cluster.head import local_head

    head, address = local_head.status(), None
    runs: list[str] = []
    if head is not None:
        address, runs = head.address, find_runs_on(head.pid)
        users = [*runs, *(f"{run_id}, which is starting" for run_id in find_starting_runs())]
        is_asked = not (yes or as_json) and sys.stdin.isatty()
        if users and is_asked and not _may_stop(users):
            return
    ended = local_head.shutdown()
    mark_lost(runs)
    if not ended:
        address = None
    if as_json:
        print_json({"ended": ended, "address": address, "run_ids": runs})
        return
    if not ended:
        click.echo("no Ray head is running on this machine")
        return
    if address is None:
        click.echo("stopped the Ray head")
    else:
        click.echo(f"stopped the Ray head at {address}")
    for run_id in runs:
        step = suggest("resume", run_id, lead="To continue it")
        click.echo(f"the driver of {run_id} ended with it. {write_for_shell(step)}")


def _may_stop(users: Sequence[str]) -> bool:
    question = f"Stop the Ray head? It is used by {' and '.join(users)}."
    is_allowed = click.confirm(question, err=True)
    if not is_allowed:
        click.echo("Nothing was stopped.", err=True)
    return is_allowed


def find_starting_runs() -> list[str]:
    """Return the runs that were just created and have no driver yet.

    Only the default store is read.
    """
    with contextlib.suppress(WorkbenchError):
        return [
            row.run_id
            for row in open_existing_store().runs(_MAX_RUNS)
            if row.state == "waiting" and row.owner is None
        ]
    return []


def find_runs_on(keeper_pid: int) -> list[str]:
    """Return the unfinished runs whose drivers are processes of the local head.

    Only the default store is read.
    """
    with contextlib.suppress(WorkbenchError, psutil.Error):
        pids = {process.pid for process in psutil.Process(keeper_pid).children(recursive=True)}
        return [
            row.run_id
            for row in open_existing_store().runs(_MAX_RUNS)
            if row.state not in FINISHED_RUN_STATES
            and row.owner is not None
            and row.owner.pid in pids
        ]
    return []


def mark_lost(run_ids: list[str]) -> None:
    """Mark runs as lost whose drivers have ended, without waiting for the end of their leases."""
    for run_id in run_ids:
        # An error means that the run still has a driver, or has a new one.
        with contextlib.suppress(WorkbenchError):
            writer = open_existing_store().writer(
                run_id, owner_pid=os.getpid(), owner_host=socket.gethostname()
            )
            writer.close(gives_up=True)


def find_packages() -> list[Finding]:
    """Return findings about Python, the workbench and the packages that it needs.

    The allowed versions come from the installed distribution. An optional part that is not
    installed, such as the packages for training, is one line.
    """
    try:
        metadata = importlib.metadata.metadata(DISTRIBUTION)
    except importlib.metadata.PackageNotFoundError:
        folder = Path(__file__).parents[2]
        text = f"imported from {folder} but not installed, so its requirements are unknown"
        return [
            Finding(DISTRIBUTION, "broken", text, f"pip install --editable {folder}"),
            *_check_import_name(),
        ]
    needed = [Requirement(text) for text in importlib.metadata.requires(DISTRIBUTION) or ()]
    findings = [
        _check_python(metadata["Requires-Python"]),
        Finding(DISTRIBUTION, "fine", metadata["Version"]),
        *_check_import_name(),
    ]
    findings += _check_all_of([item for item in needed if item.marker is None], part=None)
    for part in _PARTS:
        findings += _check_all_of([item for item in needed if _extra_of(item) == part], part=part)
    return findings


def _check_import_name() -> Iterator[Finding]:
    """Yield the other project that is also imported as `workbench`, if it is installed."""
    version = _version(OTHER_DISTRIBUTION)
    if version is not None:
        yield Finding(
            OTHER_DISTRIBUTION,
            "broken",
            f"{version} is installed. It is another project with the same import name as"
            f" {DISTRIBUTION}. The two overwrite each other's files, so install only one of them"
            " in an environment",
            f"pip uninstall --yes {OTHER_DISTRIBUTION} && {install_command('all')}"
            " --force-reinstall --no-deps",
        )


def _check_python(allowed: str) -> Finding:
    version, shown = platform.python_version(), f"{platform.python_version()}, {sys.executable}"
    if not SpecifierSet(allowed).contains(version, prereleases=True):
        return Finding("python", "broken", f"{shown} (required: {allowed})", "Use another Python.")
    return Finding("python", "fine", shown)


def _extra_of(requirement: Requirement) -> str | None:
    match = re.fullmatch(r'extra == "([a-z]+)"', str(requirement.marker))
    return match and match[1]


def _check_all_of(requirements: Sequence[Requirement], part: str | None) -> Iterator[Finding]:
    """Yield problems with some packages, and the versions that people ask for."""
    versions = {item.name: _version(item.name) for item in requirements}
    if part is not None and requirements and not versions.get(_PARTS[part][0]):
        text = f"not installed: this installation cannot {_PARTS[part][1]}"
        yield Finding(f"{DISTRIBUTION}[{part}]", "missing", text, install_command(part))
        return
    for item in requirements:
        version, fix = versions[item.name], f"pip install '{item.name}{item.specifier}'"
        if version is None:
            text = f"not installed (required: {item.specifier})"
            yield Finding(item.name, "broken", text, fix)
        elif not item.specifier.contains(version, prereleases=True):
            text = f"{version} is installed (required: {item.specifier})"
            yield Finding(item.name, "broken", text, fix)
        elif item.name in _SHOWN:
            yield Finding(item.name, "fine", version)


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _check_hardware() -> list[Finding]:
    from workbench.hardware.resources import inventory

    machine = inventory()
    memory = f"{format_bytes(machine.memory_bytes)} of memory"
    gpus = f"no GPU ({(machine.no_gpus_because or '').partition(':')[0]})"
    if machine.gpus:
        gpus = format_count(len(machine.gpus), "GPU")
    text = f"{machine.host}: {machine.num_cpus} CPUs, {memory}, {gpus}"
    return [Finding("hardware", "fine", text), *_check_gpus(machine)]


def _check_gpus(inventory: Inventory) -> list[Finding]:
    """Check each GPU, even if the NVIDIA driver cannot describe it."""
    from workbench.hardware.resources import GpuMeter

    meter = GpuMeter(inventory.gpus)
    findings = []
    for gpu, usage in zip(inventory.gpus, meter.read(), strict=True):
        errors = usage.ecc_uncorrected or 0
        facts = [f"{gpu.name}, {format_bytes(gpu.memory_bytes)}"]
        facts += [
            f"{way} to {other}" for other, way in enumerate(gpu.links) if way not in ("", "X")
        ]
        if usage.slowed_by:
            facts.append(f"slowed by {' and '.join(usage.slowed_by)}")
        if errors:
            facts.append(f"{errors} uncorrected memory errors")
        if usage.state != "ok":
            facts.append(usage.state)
        if errors or usage.state != "ok":
            fix = "Reset the GPU, or restart the machine. To see details: nvidia-smi -q"
            findings.append(Finding(f"GPU {gpu.index}", "broken", ", ".join(facts), fix))
        else:
            findings.append(Finding(f"GPU {gpu.index}", "fine", ", ".join(facts)))
    meter.close()
    if inventory.gpus_state in ("wrong driver", "failed") or (
        inventory.gpus and inventory.no_gpus_because
    ):
        fix = "Load the driver again, or restart the machine. To see details: nvidia-smi"
        findings.append(Finding("GPU driver", "broken", str(inventory.no_gpus_because), fix))
    return findings


def _check_torch() -> list[Finding]:
    """Check torch in a separate process: importing a broken installation may end the process."""
    import importlib.util
    import subprocess

    if importlib.util.find_spec("torch") is None:
        return []  # reported with the packages

    program = (
        "import torch; n = torch.cuda.device_count(); print(', '.join(['cpu', *(f'cuda:{i}"
        " {torch.cuda.get_device_name(i)}' for i in range(n))]))"
    )
    try:
        answer = subprocess.run(
            [sys.executable, "-c", program],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return [Finding("torch devices", "broken", "importing torch takes longer than 120 s")]
    if answer.returncode != 0:
        error = headline(last_error(answer.stderr)) or f"exit code {answer.returncode}"
        return [
            Finding(
                "torch devices",
                "broken",
                error,
                "Reinstall torch: pip install --force-reinstall torch",
            )
        ]
    return [Finding("torch devices", "fine", answer.stdout.strip())]


def _check_store() -> list[Finding]:
    from workbench.store.database.urls import check_exists, resolve_url

    given = given_store()
    try:
        check_exists(given)
    except WorkbenchError as error:
        step = error.to_json(write_for_shell)["next_step"]
        # A first sweep may be about to create it.
        path = Path(str(resolve_url(given).database))
        folder = next(parent for parent in path.parents if parent.exists())
        if not path.exists() and folder.is_dir() and os.access(folder, os.W_OK):
            return [Finding("store", "notable", error.problem, step)]
        return [Finding("store", "broken", error.problem, step)]
    try:
        with open_existing_store() as store:
            num_runs = len(store.runs())
            place, artifacts = store.place, store.artifacts
    except WorkbenchError as error:
        step = error.to_json(write_for_shell)["next_step"]
        return [
            Finding("store", "broken", error.problem, step or "Choose another store with --store.")
        ]
    text = f"{place}, {format_count(num_runs, 'run')}"
    findings = [Finding("store", "fine", text), _check_artifacts(artifacts)]
    if num_runs:
        findings.append(_check_backup(place, num_runs))
    return findings


def _check_backup(place: str, num_runs: int) -> Finding:
    """Return when this user last backed the store up on this machine."""
    from workbench.store.database.backup import MANIFEST, last_backup

    step = f"{command_line('backup', to='FOLDER')}"
    last = last_backup(place)
    if last is None:
        return Finding("backup", "missing", "this machine has made no backup of this store", step)
    age_s = time.time() - last.created_unix_s
    text = (
        f"{format_duration(age_s)} ago to {last.folder}, {format_count(len(last.last_seqs), 'run')}"
    )
    if not (last.folder / MANIFEST).is_file():
        return Finding("backup", "notable", f"{text}, which is not there now", step)
    if age_s > _OLD_BACKUP_S and num_runs > len(last.last_seqs):
        return Finding("backup", "notable", text, step)
    return Finding("backup", "fine", text)


def _check_runs() -> list[Finding]:
    """Find runs that wait for workers, or that need to be resumed."""
    try:
        with open_existing_store() as store:
            rows = [row for row in store.runs() if row.state in ("running", "lost")]
            return [finding for row in rows if (finding := _check_run(store, row)) is not None]
    except WorkbenchError:
        return []  # reported by the check of the store


def _check_run(store: Store, row: RunRow) -> Finding | None:
    from workbench.foundation.events import Noted
    from workbench.store.history import History

    if row.state == "lost":
        text = f"{row.run_id} is lost: its driver has ended"
        return Finding("run", "notable", text, command_line("resume", row.run_id))
    if row.silent_s is not None:
        text = (
            f"no heartbeat from the driver of {row.run_id} for {format_duration(int(row.silent_s))}"
        )
        fix = f"Wait, or give the run another driver: {command_line('resume', row.run_id)}"
        return Finding("run", "notable", text, fix)
    events = [stored.event for stored in store.events(row.run_id)]
    history = History.of(store.experiment(row.run_id), events)
    quiet_s = 0.0
    if events:
        quiet_s = time.time() - events[-1].time_unix_s
    if quiet_s < _QUIET_S or history.in_state("running") or not history.in_state("waiting"):
        return None
    notes = [event.message for event in events if isinstance(event, Noted) and event.trial is None]
    text = f"{row.run_id} has not trained for {format_duration(quiet_s)}"
    fix = f"Wait, or stop it: {command_line('stop', row.run_id)}"
    return Finding("run", "notable", ": ".join([text, *notes[-1:]]), fix)


def _check_artifacts(artifacts: Artifacts) -> Finding:
    try:
        artifacts.claim()
        artifacts.prepare()
        artifacts.probe()
    except WorkbenchError as error:
        return Finding(
            "artifacts", "broken", error.problem, "Set WORKBENCH_ARTIFACTS to another folder."
        )
    if not artifacts.is_local:
        return Finding("artifacts", "fine", str(artifacts))
    free_bytes = shutil.disk_usage(artifacts.working_folder).free
    free = format_bytes(free_bytes)
    if free_bytes < _LITTLE_DISK_BYTES:
        return Finding("artifacts", "broken", f"{free} free", f"Free some space at {artifacts}.")
    return Finding("artifacts", "fine", f"{artifacts}, {free} free")


def _check_ray() -> list[Finding]:
    from workbench.cluster.head import local_head

    try:
        head = local_head.status()
    except WorkbenchError as error:
        return [Finding("ray head", "broken", str(error))]
    if head is None:
        return [Finding("ray head", "missing", "not running. A sweep starts it")]
    if local_head.is_cleaned(head.temp_dir):
        text = f"something deleted its folder, {head.temp_dir}, so no process can attach to it"
        if (tenant := local_head.find_tenant(head)) is not None:
            fix = f"{tenant.ways_out}: {command_line('shutdown')}"
            return [Finding("ray head", "broken", f"{text}. {tenant.sentence}", fix)]
        return [Finding("ray head", "notable", text, "The next run starts a new head.")]
    idle = "in use"
    if head.idle_s >= 60:
        idle = f"idle for {format_duration(head.idle_s)}"
    return [
        Finding(
            "ray head",
            "fine",
            f"{head.address}, process {head.pid}, {head.num_cpus:g} CPUs, "
            f"{head.num_gpus:g} {counted_noun(head.num_gpus, 'GPU')}, {idle}, log: {head.log}",
        )
    ]


def find_exposures() -> list[Finding]:
    """Return what other users could reach or read: the head, tokens, and the files of runs."""
    return [*_exposed_sockets(), *_exposed_tokens(), *_exposed_files()]


def _check_exposure() -> list[Finding]:
    try:
        exposures = find_exposures()
    except WorkbenchError:
        return []  # reported by the check of the head
    if exposures:
        return exposures
    closed = (
        "the head is reachable only from this machine, and no other user can read the files of runs"
    )
    return [Finding("exposure", "fine", closed)]


def _exposed_sockets() -> list[Finding]:
    from workbench.cluster.head import local_head
    from workbench.cluster.head.exposure import listeners

    head = local_head.status()
    if head is None:
        return []
    beyond = [item for item in listeners(head.pid) if not item.is_local]
    workers = [item for item in beyond if item.process.startswith("ray::")]
    own = [item for item in beyond if item not in workers]
    exposures: list[Finding] = []
    if own:
        text = "other machines can reach the Ray head"
        fix = "Stop it with workbench shutdown, and start it without Ray's address settings."
        exposures.append(Finding("exposure", "broken", f"{text}: {_describe(own)}", fix))
    if workers:
        text = "other machines can reach the workers of a distributed training, as torch sets it up"
        fix = "Use a firewall to block others. To end the workers: workbench shutdown"
        exposures.append(Finding("exposure", "broken", f"{text}: {_describe(workers)}", fix))
    return exposures


def _describe(exposed: list[Listener]) -> str:
    return ", ".join(f"{item.process} on {item.host}:{item.port}" for item in exposed)


def _exposed_tokens() -> list[Finding]:
    """Find a cluster that requires no token, and tokens that others can read."""
    from workbench.cluster.head import local_head
    from workbench.cluster.head.exposure import readable_by_others

    exposures: list[Finding] = []
    tokens = [Path(os.environ.get("RAY_AUTH_TOKEN_PATH") or Path.home() / ".ray" / "auth_token")]
    address = os.environ.get("WORKBENCH_RAY_ADDRESS") or os.environ.get("RAY_ADDRESS")
    if address and os.environ.get("RAY_AUTH_MODE") != "token":
        text = (
            f"the cluster at {address} is used without a token: anyone who can reach it can run"
            " code there"
        )
        exposures.append(
            Finding(
                "exposure",
                "notable",
                text,
                "Start the cluster with RAY_AUTH_MODE=token, and set the same here.",
            )
        )
    readable = readable_by_others([*tokens, local_head.token_path()])
    text = "others on this machine can read the token in"
    return [
        *exposures,
        *(Finding("exposure", "broken", f"{text} {path}", _close(path)) for path in readable),
    ]


def _exposed_files() -> list[Finding]:
    from workbench.cluster.head.exposure import readable_by_others
    from workbench.data.cache import cache_folder
    from workbench.store.alerts import settings_path

    paths = [cache_folder(), settings_path()]
    try:
        with open_existing_store() as store:
            if store.url.startswith("sqlite"):
                paths.append(Path(store.place))
            if store.artifacts.is_local:
                paths.append(store.artifacts.working_folder)
    except WorkbenchError:
        pass  # reported by the check of the store
    return [
        Finding("exposure", "notable", f"others on this machine can read {path}", _close(path))
        for path in readable_by_others(paths)
    ]


def _close(path: Path) -> str:
    return f"If they should not: chmod go-rwx {shlex.quote(str(path))}"


def _check_settings() -> list[Finding]:
    """Check the alert settings of runs driven on this machine, and whether sinks can be reached."""
    from workbench.store.alerts import read_settings, settings_path

    path = settings_path()
    try:
        settings = read_settings()
    except WorkbenchError as error:
        return [
            Finding(
                "settings",
                "broken",
                str(error),
                "Correct the file. Until then no sink receives alerts.",
            )
        ]
    if not settings.sinks and not settings.alerts:
        return [Finding("settings", "missing", f"{path} has no sinks and no alert rules")]
    num_sinks = format_count(len(settings.sinks), "sink")
    num_rules = format_count(len(settings.alerts), "rule")
    broken = [
        Finding(
            "sink", "broken", f"{name} cannot be used: {problem}", f"workbench alerts --try {name}"
        )
        for name, problem in settings.problems().items()
    ]
    text = (
        f"{path}, {num_sinks}, {num_rules}, for runs that are driven on this machine. Submitted"
        " runs use the settings of their cluster"
    )
    return [Finding("settings", "fine", text), *broken]


def _check_cache() -> list[Finding]:
    from workbench.data.cache import cache_folder

    folder = cache_folder()
    if not folder.exists():
        return [Finding("data cache", "missing", f"{folder} is created when it is needed")]
    if not os.access(folder, os.W_OK):
        return [
            Finding("data cache", "broken", f"{folder} cannot be written", "Check its permissions.")
        ]
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    return [Finding("data cache", "fine", f"{folder}, {format_bytes(size)}")]


def find_optional_packages() -> list[Finding]:
    """Return which optional packages are installed, and how to get the others."""
    findings: list[Finding] = []
    for name, (purpose, extra) in OPTIONAL_PACKAGES.items():
        try:
            findings.append(Finding(name, "fine", importlib.metadata.version(name)))
        except importlib.metadata.PackageNotFoundError:
            command = f"pip install {name}" if extra is None else install_command(extra)
            text = f"not installed. Needed for {purpose}: {command}"
            findings.append(Finding(name, "missing", text))
    return findings
