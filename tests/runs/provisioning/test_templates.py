"""Launcher files and manifests, held against the schemas of those who read them."""

from __future__ import annotations

import json
import re
import shlex
import sys
from pathlib import Path
from typing import Any

import click
import jsonschema
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from ruamel.yaml import YAML

from tests.runs.provisioning.test_offers import experiment
from workbench.cli.entry import group
from workbench.experiment import Experiment
from workbench.experiment.experiment import check_name
from workbench.foundation.errors import ArgumentError, ExperimentError
from workbench.runs.provisioning.catalogue import Machine, read_catalogue
from workbench.runs.provisioning.cluster_request import ClusterRequest, ray_image, versions
from workbench.runs.provisioning.kuberay import manifests
from workbench.runs.provisioning.ray_launcher import launcher_file

CATALOGUE = read_catalogue()
SCHEMAS = YAML(typ="safe", pure=True).load(Path(__file__).with_name("kuberay_schema.yaml"))
MACHINES = {"aws": "g5.xlarge", "gcp": "a2-highgpu-1g", "azure": "Standard_NC24ads_A100_v4"}
STORE, ARTIFACTS = "postgresql://me@db/runs", "s3://bucket/runs"


def rental(machine: str | Machine = "g5.xlarge", **changes: Any) -> ClusterRequest:
    rented = CATALOGUE.machine(machine) if isinstance(machine, str) else machine
    usual: dict[str, Any] = {
        "experiment": experiment(name="My Net"),
        "file": Path("mine.yaml"),
        "machine": rented,
        "nodes": 4,
        "min_nodes": 1,
        "spot": True,
        "artifacts": ARTIFACTS,
        "store": STORE,
    }
    return ClusterRequest(**(usual | changes))


def node_of_slurm(cpus: int = 8, gpus: int = 0) -> Machine:
    return Machine.model_validate(
        {
            "provider": "own",
            "type": "node",
            "region": "here",
            "vcpus": cpus,
            "memory_gib": 8,
            "gpus": gpus,
            "device": "any" if gpus else None,
            "source": {"origin": "a test", "date": "2026-11-22"},
        }
    )


def written(provider: str, package: str = "tuning-workbench==0.1.0", **changes: Any) -> str:
    return launcher_file(
        rental(MACHINES[provider], **changes),
        package,
        project="ours",
        machine_image="projects/p/global/images/family/with-driver",
        path=Path("rent it.yaml"),
    )


def typed_commands(text: str) -> list[list[str]]:
    """The commands that the first lines of a file tell a person to type."""
    told = [line.removeprefix("#   ") for line in text.splitlines() if line.startswith("#   ")]
    return [shlex.split(line) for line in told if line.startswith(("workbench ", "ray "))]


def check_command(program: click.Command, words: list[str]) -> None:
    """Let a program read a command without carrying it out."""
    while isinstance(program, click.Group):
        _, subcommand, words = program.resolve_command(click.Context(program), words)
        assert subcommand is not None
        program = subcommand
    program.make_context(program.name, words)


def read(text: str) -> list[dict[str, Any]]:
    return list(YAML(typ="safe", pure=True).load_all(text))


@pytest.mark.parametrize("provider", MACHINES)
@pytest.mark.parametrize("spot", [True, False])
def test_ray_accepts_the_launcher_files_as_its_own_schema_has_them(
    provider: str, spot: bool
) -> None:
    from ray.autoscaler import _private
    from ray.autoscaler._private.util import prepare_config, validate_config

    (document,) = read(written(provider, spot=spot))
    schema = Path(str(_private.__file__)).parents[1] / "ray-schema.json"
    jsonschema.validate(document, json.loads(schema.read_text()))
    prepared = prepare_config(document)
    validate_config(prepared)
    worker = prepared["available_node_types"]["worker"]
    assert (worker["min_workers"], worker["max_workers"]) == (1, 4)
    assert prepared["max_workers"] == 4
    assert ("spot" in str(worker["node_config"]).lower() or "preemptible" in str(worker)) is spot
    head = prepared["available_node_types"]["head"]
    assert "spot" not in str(head).lower()
    assert "preemptible" not in str(head)
    assert prepared["idle_timeout_minutes"] == 10.0


@pytest.mark.parametrize(
    "changes", [{}, {"resume": "digits-1"}, {"settings": ("training.epochs=5", "name=a b")}]
)
def test_what_a_person_is_told_to_type_is_understood(changes: dict[str, Any]) -> None:
    from ray.scripts.scripts import cli as ray_cli

    commands = typed_commands(written("aws", file=Path("my net.yaml"), **changes))
    assert [words[:2] for words in commands] == [
        ["ray", "up"],
        ["ray", "exec"],
        ["ray", "dashboard"],
        ["workbench", "resume" if "resume" in changes else "submit"],
        ["ray", "exec"],
        ["workbench", "follow"],
        ["ray", "down"],
    ]
    for program, *words in commands:
        check_command(group if program == "workbench" else ray_cli, words)
    assert all(words[2] == "rent it.yaml" for words in commands if words[0] == "ray")


def test_the_code_goes_along_when_the_run_is_submitted_and_so_do_settings() -> None:
    text = written("aws", file=Path("my net.yaml"), settings=("training.epochs=5",))
    (submitted,) = (words for words in typed_commands(text) if words[1] == "submit")
    assert submitted[2:] == [
        "my net.yaml",
        "--set",
        "training.epochs=5",
        "--address",
        "http://127.0.0.1:8265",
        "--token-file",
        "~/.workbench/workbench-my-net.token",
        "--detach",
    ]
    assert "--token-file ~/.workbench" in text  # where a shell finds the home folder
    with pytest.raises(ArgumentError, match="--set: a run that is resumed keeps its settings"):
        rental(settings=("training.epochs=5",), resume="digits-1")


def test_a_run_that_asks_for_machines_itself_is_not_asked_for() -> None:
    asks = experiment(name="My Net", resources={"autoscaling": True, "concurrency": 4})
    text = written("aws", experiment=asks)
    assert "await_nodes" not in text
    assert [words[1] for words in typed_commands(text)] == [
        "up",
        "dashboard",
        "submit",
        "follow",
        "down",
    ]
    (_, what) = read(manifests(rental(experiment=asks), "registry/mine:1"))
    assert "await_nodes" not in what["spec"]["entrypoint"]
    assert "workbench sweep" in what["spec"]["entrypoint"]


@pytest.mark.parametrize(
    ("package", "said"),
    [
        ("dist/absent.whl", "--package: the file dist/absent.whl does not exist"),
        ("./dist", "--package: './dist' is neither a wheel nor a requirement that pip understands"),
        ("", "--package: '' is neither"),
        ("two words", "--package: 'two words' is neither"),
    ],
)
def test_a_package_that_cannot_be_installed_is_refused(package: str, said: str) -> None:
    with pytest.raises(ArgumentError, match=re.escape(said)):
        written("aws", package)


@pytest.mark.parametrize(
    ("package", "installed"),
    [
        ("tuning-workbench", "tuning-workbench[train]"),
        ("tuning-workbench>=0.1", "tuning-workbench[train]>=0.1"),
        ("tuning-workbench[cluster]>=0.1,<2", "tuning-workbench[cluster]>=0.1,<2"),
        (
            "https://here/w-1-py3-none-any.whl",
            "tuning-workbench[train] @ https://here/w-1-py3-none-any.whl",
        ),
    ],
)
def test_what_pip_finds_by_itself_is_not_copied(package: str, installed: str) -> None:
    (document,) = read(written("aws", package))
    assert shlex.quote(installed) in document["setup_commands"][1]
    assert set(document["file_mounts"]) == {"~/.workbench-token", "~/.pgpass"}


def test_a_wheel_is_copied_from_where_it_lies_whatever_folder_the_launcher_runs_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel = tmp_path / "tuning_workbench-0.1.0-py3-none-any.whl"
    wheel.touch()
    monkeypatch.chdir(tmp_path)
    (document,) = read(written("aws", wheel.name))
    assert document["file_mounts"][f"~/{wheel.name}"] == str(wheel)
    assert f" ~/{shlex.quote(wheel.name + '[train]')} " in document["setup_commands"][1]


def test_ray_refuses_a_launcher_file_with_a_typing_error() -> None:
    from ray.autoscaler._private.util import prepare_config, validate_config

    (document,) = read(written("aws"))
    with pytest.raises(jsonschema.ValidationError, match="idle_timeout_minute"):
        validate_config(prepare_config({**document, "idle_timeout_minute": 1}))


@pytest.mark.parametrize("provider", MACHINES)
def test_every_start_of_ray_asks_for_the_token_from_a_file_and_no_dashboard_is_public(
    provider: str,
) -> None:
    text = written(provider)
    (document,) = read(text)
    starts = [
        command
        for name in ("head_start_ray_commands", "worker_start_ray_commands")
        for command in document[name]
        if "ray start" in command
    ]
    assert len(starts) == 2
    for command in starts:
        assert "RAY_AUTH_MODE=token" in command
        assert "RAY_AUTH_TOKEN_PATH=$HOME/.workbench-token" in command
    assert "--dashboard-host=127.0.0.1" in starts[0]
    assert "0.0.0.0" not in text
    assert "chmod 600 ~/.workbench-token" in document["setup_commands"][0]
    assert document["file_mounts"]["~/.workbench-token"] == "~/.workbench/workbench-my-net.token"


def test_versions_are_those_that_are_installed_here() -> None:
    (document,) = read(written("aws"))
    python = f"py{sys.version_info.major}{sys.version_info.minor}"
    assert (
        document["docker"]["worker_image"] == ray_image(1) == f"rayproject/ray:2.60.0-{python}-gpu"
    )
    assert f"torch=={versions()['torch']}" in document["setup_commands"][1]
    assert "+" not in versions()["torch"]


def test_the_run_asks_for_its_machines_and_lets_them_go() -> None:
    text = written("aws")
    assert "await_nodes --nodes 4 --cpus 4 --gpus 1" in text
    assert "workbench follow RUN; python -m workbench.cluster.workers.await_nodes --release" in text
    (_, what) = read(manifests(rental(), "registry/mine:1"))
    assert (
        "await_nodes --nodes 4 --cpus 4 --gpus 1 && workbench sweep" in what["spec"]["entrypoint"]
    )
    assert "await_nodes --release" in what["spec"]["entrypoint"]
    (_, what) = read(manifests(rental(resume="abc"), "registry/mine:1"))
    assert "workbench resume abc;" in what["spec"]["entrypoint"]


@pytest.mark.parametrize("kind", ["job", "cluster"])
@pytest.mark.parametrize("machine", [*MACHINES.values(), "c5.2xlarge"])
def test_kuberay_accepts_the_manifests(kind: Any, machine: str) -> None:
    files, what = read(manifests(rental(machine), "registry/mine:1", kind))
    assert files["kind"] == "ConfigMap"
    name = {"job": "RayJob", "cluster": "RayCluster"}[kind]
    jsonschema.Draft202012Validator({**SCHEMAS[name], "$defs": SCHEMAS["$defs"]}).validate(what)
    cluster = what["spec"]["rayClusterSpec"] if kind == "job" else what["spec"]
    assert cluster["authOptions"] == {"mode": "token"}
    assert cluster["rayVersion"] == "2.60.0"
    assert cluster["headGroupSpec"]["serviceType"] == "ClusterIP"
    assert cluster["headGroupSpec"]["enableIngress"] is False
    (workers,) = cluster["workerGroupSpecs"]
    assert (workers["minReplicas"], workers["maxReplicas"]) == (1, 4)
    assert len(workers["template"]["spec"]["nodeSelector"]) == 2


@pytest.mark.parametrize(
    ("place", "name", "value"),
    [
        (("headGroupSpec",), "dashboard", "public"),
        (("authOptions",), "mode", "off"),
        (("autoscalerOptions",), "idleTimeoutSeconds", "600"),
        (("workerGroupSpecs", 0), "maxReplicas", "4"),
        (("workerGroupSpecs", 0, "template", "spec"), "containres", []),
        (("workerGroupSpecs", 0, "template", "spec", "containers", 0), "privileged", True),
        (
            ("workerGroupSpecs", 0, "template", "spec", "containers", 0, "resources", "limits"),
            "cpu",
            4,
        ),
        (("workerGroupSpecs", 0, "template", "spec", "tolerations", 0), "effect", "Never"),
    ],
)
def test_the_schema_refuses_what_kubectl_would(
    place: tuple[Any, ...], name: str, value: Any
) -> None:
    _, what = read(manifests(rental(), "registry/mine:1"))
    schema = {**SCHEMAS["RayJob"], "$defs": SCHEMAS["$defs"]}
    part = what["spec"]["rayClusterSpec"]
    for step in place:
        part = part[step]
    part[name] = value
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft202012Validator(schema).validate(what)


@pytest.mark.parametrize("file", ["mine.yaml", "my net (2).yaml", "実験.yaml", "a/b c.yml"])
def test_the_experiment_travels_with_the_manifests_whatever_its_file_is_called(file: str) -> None:
    files, what = read(manifests(rental(file=Path(file)), "registry/mine:1"))
    ((name, text),) = files["data"].items()
    assert re.fullmatch(r"[-._a-zA-Z0-9]{1,253}", name)  # what Kubernetes takes as a key
    assert Experiment.from_yaml(text).hash() == rental().experiment.hash()
    assert f"/experiment/{name};" in what["spec"]["entrypoint"]


def test_what_was_made_in_a_cell_is_refused_where_an_image_holds_the_code() -> None:
    made = experiment(model=lambda config: None)
    with pytest.raises(
        ExperimentError, match=r"object from a notebook cell.*package.module:function"
    ):
        manifests(rental(experiment=made), "registry/mine:1")


def is_name(text: str) -> bool:
    try:
        check_name(text)
    except ExperimentError:
        return False
    return True


NAMES = st.text(min_size=1, max_size=80).filter(is_name) | st.from_regex(
    r"[0-9A-Za-z ._-]{1,80}", fullmatch=True
).filter(is_name)


@given(NAMES)
@example("実験")
@example("7 dwarfs")
@example("_-_")
@example("x" * 80)
@example("-" * 60)
def test_names_are_labels_of_kubernetes_short_enough_for_kuberay(name: str) -> None:
    label = rental(experiment=experiment(name=name)).name
    assert re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", label)  # RFC 1035, which services need
    assert len(label) <= 47


@given(NAMES, NAMES)
@example("実験一", "実験二")
@example("x" * 60 + "a", "x" * 60 + "b")
def test_experiments_of_different_names_share_a_cluster_only_where_the_names_read_alike(
    one: str, other: str
) -> None:
    first, second = (rental(experiment=experiment(name=name)).name for name in (one, other))
    if first == second:
        plain = [re.sub("[^a-z0-9]+", "-", name.lower()).strip("-") for name in (one, other)]
        assert plain[0] == plain[1]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"store": "postgresql://me:secret@db/runs"},
            "--store: its password would be written into the file",
        ),
        ({"min_nodes": 5}, "--min-nodes: --min-nodes 5 is more than --max-nodes 4"),
        (
            {"machine": "gpu_1x_a10"},
            "--on-demand: lambda does not offer gpu_1x_a10 as a spot machine",
        ),
    ],
)
def test_what_gives_a_secret_away_or_cannot_be_is_refused(
    changes: dict[str, Any], said: str
) -> None:
    with pytest.raises(ArgumentError, match=said):
        rental(**changes)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"store": "/home/me/runs.sqlite"},
            "--store: /home/me/runs.sqlite would be on a machine that ends",
        ),
        (
            {"artifacts": "/home/me/runs"},
            "--artifacts: /home/me/runs would be on a machine that ends",
        ),
    ],
)
def test_places_that_one_machine_has_for_itself_are_refused(
    changes: dict[str, Any], said: str
) -> None:
    with pytest.raises(ArgumentError, match=said):
        launcher_file(rental(**changes), "workbench")
    with pytest.raises(ArgumentError, match=said):
        manifests(rental(**changes), "registry/mine:1")


def test_what_google_cloud_needs_is_asked_for() -> None:
    with pytest.raises(ArgumentError, match=r"--project: .*Name the project"):
        launcher_file(rental("a2-highgpu-1g"), "workbench")
    with pytest.raises(ArgumentError, match=r"--machine-image: .*gcloud compute images list"):
        launcher_file(rental("a2-highgpu-1g"), "workbench", project="ours")
