"""Launcher files and manifests, held against the schemas of those who read them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from ruamel.yaml import YAML

from tests.renting.test_offers import experiment
from workbench.errors import ExperimentError
from workbench.experiment import Experiment
from workbench.renting.catalogue import Machine, read_catalogue
from workbench.renting.kuberay import manifests
from workbench.renting.launcher_file import launcher_file
from workbench.renting.rental import Rental, ray_image, versions
from workbench.renting.slurm import batch_script

SCHEMA = Path(__file__).with_name("kuberay_schema.yaml")
MACHINES = {"aws": "g5.xlarge", "gcp": "a2-highgpu-1g", "azure": "Standard_NC24ads_A100_v4"}
STORE, ARTIFACTS = "postgresql://me@db/runs", "s3://bucket/runs"


def rental(machine: str | Machine = "g5.xlarge", **changes: Any) -> Rental:
    found = read_catalogue().machine(machine) if isinstance(machine, str) else machine
    usual: dict[str, Any] = {
        "experiment": experiment(name="My Net"), "file": Path("mine.yaml"),
        "machine": found, "nodes": 4, "min_nodes": 1, "spot": True,
        "artifacts": ARTIFACTS, "store": STORE,
    }  # fmt: skip
    return Rental(**(usual | changes))


def node_of_slurm(cpus: int = 8, gpus: int = 0) -> Machine:
    return Machine.model_validate({
        "provider": "own", "type": "node", "region": "here", "vcpus": cpus, "memory_gib": 8, "gpus": gpus,
        "device": "any" if gpus else None, "source": {"origin": "a test", "date": "2026-11-22"},
    })  # fmt: skip


def written(provider: str, **changes: Any) -> str:
    return launcher_file(
        rental(MACHINES[provider], **changes), "dist/workbench-0.1.0-py3-none-any.whl",
        project="ours", machine_image="projects/p/global/images/family/with-driver",
    )  # fmt: skip


def read(text: str) -> list[dict[str, Any]]:
    return list(YAML(typ="safe", pure=True).load_all(text))


@pytest.mark.parametrize("provider", MACHINES)
@pytest.mark.parametrize("spot", [True, False])
def test_ray_accepts_the_launcher_files_as_its_own_schema_has_them(provider: str, spot: bool) -> None:
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


def test_the_shell_of_a_rented_machine_finds_the_experiment_in_its_home_folder() -> None:
    command = rental(MACHINES["aws"]).session("~/my net.yaml")
    assert "workbench sweep ~/'my net.yaml';" in command
    assert "workbench sweep '/a b/net.yaml';" in rental(MACHINES["aws"]).session("/a b/net.yaml")


def test_ray_refuses_a_launcher_file_with_a_typing_error() -> None:
    from ray.autoscaler._private.util import prepare_config, validate_config

    (document,) = read(written("aws"))
    with pytest.raises(jsonschema.ValidationError, match="idle_timeout_minute"):
        validate_config(prepare_config({**document, "idle_timeout_minute": 1}))


@pytest.mark.parametrize("provider", MACHINES)
def test_every_start_of_ray_asks_for_the_token_from_a_file_and_no_dashboard_is_public(provider: str) -> None:
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
    assert document["docker"]["worker_image"] == ray_image(1) == f"rayproject/ray:2.60.0-{python}-gpu"
    assert f"torch=={versions()['torch']}" in document["setup_commands"][1]
    assert "~/workbench-0.1.0-py3-none-any.whl" in document["setup_commands"][1]
    assert "+" not in versions()["torch"]


def test_the_run_asks_for_its_machines_and_lets_them_go() -> None:
    text = written("aws")
    assert "await_nodes --nodes 4 --cpus 4 --gpus 1 && workbench sweep" in text
    assert "await_nodes --release" in text
    assert "workbench resume abc" in written("aws", resume="abc")


@pytest.mark.parametrize("kind", ["job", "cluster"])
@pytest.mark.parametrize("machine", [*MACHINES.values(), "c5.2xlarge"])
def test_kuberay_accepts_the_manifests(kind: Any, machine: str) -> None:
    files, what = read(manifests(rental(machine), "registry/mine:1", kind))
    assert files["kind"] == "ConfigMap"
    (schemas,) = read(SCHEMA.read_text())
    name = {"job": "RayJob", "cluster": "RayCluster"}[kind]
    jsonschema.Draft202012Validator({**schemas[name], "$defs": schemas["$defs"]}).validate(what)
    cluster = what["spec"]["rayClusterSpec"] if kind == "job" else what["spec"]
    assert cluster["authOptions"] == {"mode": "token"}
    assert cluster["rayVersion"] == "2.60.0"
    assert cluster["headGroupSpec"]["serviceType"] == "ClusterIP"
    assert cluster["headGroupSpec"]["enableIngress"] is False
    (workers,) = cluster["workerGroupSpecs"]
    assert (workers["minReplicas"], workers["maxReplicas"]) == (1, 4)
    assert len(workers["template"]["spec"]["nodeSelector"]) == 2


def test_the_schema_refuses_what_kubectl_would() -> None:
    _, what = read(manifests(rental(), "registry/mine:1"))
    (schemas,) = read(SCHEMA.read_text())
    schema = {**schemas["RayJob"], "$defs": schemas["$defs"]}
    what["spec"]["rayClusterSpec"]["headGroupSpec"]["dashboard"] = "public"
    with pytest.raises(jsonschema.ValidationError, match="dashboard"):
        jsonschema.Draft202012Validator(schema).validate(what)


def test_the_experiment_travels_with_the_manifests() -> None:
    files, what = read(manifests(rental(), "registry/mine:1"))
    text = files["data"]["mine.yaml"]
    assert Experiment.from_yaml(text).hash() == rental().experiment.hash()
    assert "/experiment/mine.yaml" in what["spec"]["entrypoint"]


def test_a_batch_script_is_one() -> None:
    text = batch_script(
        rental(machine=node_of_slurm(16, 4), nodes=3), Path("/shared/venv"), "02:00:00",
        options=("--partition=gpu",),
    )  # fmt: skip
    done = subprocess.run(["bash", "-n"], input=text, text=True, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    options = [line.removeprefix("#SBATCH ") for line in text.splitlines() if line.startswith("#SBATCH")]
    assert {
        "--nodes=3", "--cpus-per-task=16", "--gpus-per-node=4", "--time=02:00:00", "--requeue",
        "--partition=gpu", "--signal=B:USR1@120",
    } <= set(options)  # fmt: skip
    assert "--dashboard-host=127.0.0.1" in text
    assert text.index("umask 077") < text.index("$state/token")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"store": "postgresql://me:secret@db/runs"}, "--store: a password would be written into the file"),
        ({"min_nodes": 5}, "--min-nodes: 5 are more than 4"),
    ],
)
def test_what_gives_a_secret_away_or_cannot_be_is_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ExperimentError, match=said):
        rental(**changes)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"store": "/home/me/runs.sqlite"}, "--store: /home/me/runs.sqlite lies on a machine that ends"),
        ({"artifacts": "/home/me/runs"}, "--artifacts: /home/me/runs lies on a machine that ends"),
    ],
)
def test_places_that_one_machine_has_for_itself_are_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ExperimentError, match=said):
        launcher_file(rental(**changes), "workbench.whl")
    with pytest.raises(ExperimentError, match=said):
        manifests(rental(**changes), "registry/mine:1")
    shared = rental(machine=node_of_slurm(), **changes)
    assert "#SBATCH" in batch_script(shared, Path("/shared/venv"), "1:0")
    name = next(iter(changes))
    with pytest.raises(ExperimentError, match=f"--{name}: runs is another place on each node"):
        batch_script(rental(machine=node_of_slurm(), **{name: "runs"}), Path("/shared/venv"), "1:0")


def test_what_google_cloud_needs_is_asked_for() -> None:
    with pytest.raises(ExperimentError, match=r"--project: .*Name the project"):
        launcher_file(rental("a2-highgpu-1g"), "w.whl")
    with pytest.raises(ExperimentError, match=r"--machine-image: .*gcloud compute images list"):
        launcher_file(rental("a2-highgpu-1g"), "w.whl", project="ours")
