"""Write the file for Ray's cluster launcher (`ray up`) on AWS, Google Cloud and Azure."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

from workbench.experiment.yaml_file import write_yaml
from workbench.foundation.errors import ArgumentError
from workbench.runs.provisioning.cluster_request import (
    AWAIT,
    ClusterRequest,
    as_comment,
    ray_image,
    versions,
)
from workbench.version import DISTRIBUTION

PROVIDERS = ("aws", "gcp", "azure")
_HEADS = {"aws": "m5.xlarge", "gcp": "n2-standard-4", "azure": "Standard_D4s_v3"}
_TOKEN = "$HOME/.workbench-token"
_PORT = 6379
_DASHBOARD = "http://127.0.0.1:8265"
# As pip reads it: a name, extras, and which versions or where from.
_REQUIREMENT = re.compile(
    r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?\s*(\[[^\]]*\])?\s*([<>=!~]=?.+|@.+)?"
)
_CPU_IMAGE = "projects/deeplearning-platform-release/global/images/family/common-cpu"


def launcher_file(
    rental: ClusterRequest,
    package: str,
    *,
    project: str | None = None,
    machine_image: str | None = None,
    path: Path | None = None,
) -> str:
    """Write the file. Its first lines explain how to use it.

    Args:
        rental: What is to be rented.
        package: What pip installs on the machines: the path of a wheel, or a requirement.
        project: The Google Cloud project.
        machine_image: The Google Cloud image of machines with GPUs, with NVIDIA's driver.
        path: The path of the file, or None for a name made from the experiment's.

    Raises:
        ArgumentError: If an argument is missing, or the store or the artifacts are on a single
            machine.
    """
    _check(rental, project, machine_image)
    wheel = wheel_of(package)
    token_file = f"~/.workbench/{rental.name}.token"
    installed = package
    mounts = {"~/.workbench-token": token_file, "~/.pgpass": "~/.pgpass"}
    if wheel is not None:
        installed = f"~/{wheel.name}"
        mounts[installed] = str(wheel)
    start = (
        f"{_exports(rental)}; ulimit -n 65536; ray start --disable-usage-stats"
        " --object-manager-port=8076"
    )
    document: dict[str, Any] = {
        "cluster_name": rental.name,
        "max_workers": rental.nodes,
        "upscaling_speed": 1.0,
        "idle_timeout_minutes": rental.idle_s / 60.0,
        "provider": _provider(rental, project),
        "auth": {"ssh_user": "ubuntu"},
        "docker": {
            "head_image": ray_image(0),
            "worker_image": ray_image(rental.machine.gpus),
            "container_name": "workbench",
            "pull_before_run": True,
        },
        "head_node_type": "head",
        "available_node_types": _node_types(rental, machine_image),
        "file_mounts": mounts,
        "cluster_synced_files": [],
        "setup_commands": _setup_commands(rental, installed),
        "head_setup_commands": [],
        "worker_setup_commands": [],
        "initialization_commands": [],
        "head_start_ray_commands": [
            "ray stop",
            (
                f"{start} --head --port={_PORT} --num-cpus=0 --dashboard-host=127.0.0.1 "
                "--autoscaling-config=~/ray_bootstrap_config.yaml"
            ),
        ],
        "worker_start_ray_commands": ["ray stop", f"{start} --address=$RAY_HEAD_IP:{_PORT}"],
    }
    return _instructions(rental, path or Path(f"{rental.name}.yaml"), token_file) + write_yaml(
        document
    )


def _check(rental: ClusterRequest, project: str | None, machine_image: str | None) -> None:
    """Raise an error if the launcher could not rent these machines, or a run could not use them."""
    rental.check_shared_storage()
    provider = rental.machine.provider
    if provider not in PROVIDERS:
        raise ArgumentError(
            f"Ray's cluster launcher does not support {provider}",
            field="--machine",
            allowed=PROVIDERS,
        )
    if provider == "gcp" and project is None:
        raise ArgumentError(
            "Google Cloud needs the project to bill",
            field="--project",
            next_step="Name the project.",
        )
    if provider == "gcp" and rental.machine.gpus and machine_image is None:
        raise ArgumentError(
            "machines with GPUs need an image that contains NVIDIA's driver",
            field="--machine-image",
            next_step=(
                "Choose one of: gcloud compute images list --project deeplearning-platform-release"
            ),
        )


def _node_types(rental: ClusterRequest, machine_image: str | None) -> dict[str, Any]:
    """Return the head, on which nothing trains and which is never a spot machine, and workers."""
    provider = rental.machine.provider
    gpus = rental.machine.gpus
    worker_resources: dict[str, Any] = {"CPU": rental.cpus}
    if gpus:
        worker_resources["GPU"] = gpus
    return {
        "head": {
            "resources": {"CPU": 0},
            "min_workers": 0,
            "max_workers": 0,
            "node_config": _node_config(
                provider, _HEADS[provider], spot=False, image=_CPU_IMAGE, gpus=0
            ),
        },
        "worker": {
            "resources": worker_resources,
            "min_workers": rental.min_nodes,
            "max_workers": rental.nodes,
            "node_config": _node_config(
                provider,
                rental.machine.type,
                spot=rental.spot,
                image=machine_image or _CPU_IMAGE,
                gpus=gpus,
            ),
        },
    }


def _setup_commands(rental: ClusterRequest, installed: str) -> list[str]:
    """Return what each machine runs once, before Ray starts on it."""
    packages = f"torch=={versions()['torch']} {quote_home(with_training(installed))}"
    exports = shlex.quote(_exports(rental, "auto"))
    return [
        "chmod 600 ~/.workbench-token ~/.pgpass",
        f"pip install {packages} 'psycopg[binary]>=3.2'",
        f"grep -q WORKBENCH_STORE ~/.bashrc || echo {exports} >> ~/.bashrc",
    ]


def wheel_of(package: str) -> Path | None:
    """Return the wheel to copy to the machines, or None if pip finds the package itself."""
    if package.endswith(".whl") and "://" not in package:
        path = Path(package).expanduser().absolute()
        if not path.is_file():
            raise ArgumentError(
                f"the file {package} does not exist",
                field="--package",
                next_step="Build a wheel (pip wheel --no-deps .) and pass its path.",
            )
        return path
    if "://" not in package and not _REQUIREMENT.fullmatch(package):
        raise ArgumentError(
            f"{package!r} is neither a wheel nor a requirement that pip understands",
            field="--package",
            allowed="the path of a wheel (.whl), a URL, or a requirement such as"
            f" {DISTRIBUTION}==0.1.0",
        )
    return None


def with_training(package: str) -> str:
    """Return what pip installs so that a machine can train.

    Extras that were written are left as they are.
    """
    if "://" in package:
        if "@" in package:
            return package
        return f"{DISTRIBUTION}[train] @ {package}"
    if package.endswith(".whl"):
        return f"{package}[train]"
    if "[" in package:
        return package
    return re.sub(r"^[A-Za-z0-9._-]+", r"\g<0>[train]", package)


def _instructions(rental: ClusterRequest, path: Path, token_file: str) -> str:
    """Return the instructions: code, data and settings are sent along when the run is submitted."""
    file = shlex.quote(str(path))
    local_token = quote_home(token_file)
    there = ["--address", _DASHBOARD]
    run = ["submit", str(rental.file), *rental.set_arguments]
    if rental.resume:
        run = ["resume", rental.resume]
    start = f"{shlex.join(['workbench', *run, *there])} --token-file {local_token} --detach"
    run_id = shlex.quote(rental.resume or "RUN")
    finish = f"workbench follow {run_id}; {AWAIT} --release"
    if rental.experiment.resources.autoscaling:
        beginning = "Start the head, and keep a tunnel to it open"
        request = ""
        end = ""
    else:
        beginning = (
            "Start the head, request the machines and wait for them. Then keep a tunnel to the head"
            " open"
        )
        request = f"\n  ray exec {file} {shlex.quote(rental.await_command)}"
        end = f"""

Then, to release the machines when the run has ended, even while you are away:
  ray exec {file} --tmux {shlex.quote(finish)}"""
    return as_comment(f"""
{rental.title}.
Checkpoints are stored at {rental.artifacts}, as machines may disappear at any time.

Before the first use, create a token that only you can read. Everybody who has it can run code on \
the cluster:
  (umask 077; mkdir -p ~/.workbench; openssl rand -hex 32 | tr -d '\\n' > {token_file})
~/.pgpass contains the password of {rental.store} (mode 0600). Both are copied to the machines. This
file contains no secret. The machines need a role that may read and write {rental.artifacts}.

{beginning}:
  ray up {file}{request}
  ray dashboard {file}

In another terminal, start the run in the folder of your code. The code is sent along with the \
data of the
experiment. The last word of the output is the run's id, RUN below:
  {start}{end}

Follow it from anywhere, and finally end all machines, including the head:
  workbench follow {run_id} --store {shlex.quote(rental.store)}
  ray down {file}

The dashboard listens on the head's loopback address only. Keep Ray's ports closed to the outside, \
as the
launcher's own firewall rules do.
""")


def quote_home(word: str) -> str:
    """Quote a path for a shell, which expands the tilde only if it is not quoted."""
    if word.startswith("~/"):
        return f"~/{shlex.quote(word[2:])}"
    return shlex.quote(word)


def _exports(rental: ClusterRequest, address: str | None = None) -> str:
    settings = dict(rental.environment)
    if address:
        settings["WORKBENCH_RAY_ADDRESS"] = address
    words = " ".join(f"{name}={shlex.quote(value)}" for name, value in settings.items())
    return f"export {words} RAY_AUTH_TOKEN_PATH={_TOKEN}"


def _provider(rental: ClusterRequest, project: str | None) -> dict[str, Any]:
    machine = rental.machine
    if machine.provider == "aws":
        return {"type": "aws", "region": machine.region, "cache_stopped_nodes": False}
    if machine.provider == "gcp":
        return {
            "type": "gcp",
            "region": machine.region,
            "availability_zone": f"{machine.region}-a",
            "project_id": project,
            "cache_stopped_nodes": False,
        }
    return {
        "type": "azure",
        "location": machine.region,
        "resource_group": rental.name,
        "cache_stopped_nodes": False,
    }


def _node_config(provider: str, type: str, *, spot: bool, image: str, gpus: int) -> dict[str, Any]:
    if provider == "aws":
        disk = {"DeviceName": "/dev/sda1", "Ebs": {"VolumeSize": 200, "VolumeType": "gp3"}}
        config = {"InstanceType": type, "BlockDeviceMappings": [disk]}
        if spot:
            config["InstanceMarketOptions"] = {"MarketType": "spot"}
        return config
    if provider == "gcp":
        disk = {
            "boot": True,
            "autoDelete": True,
            "type": "PERSISTENT",
            "initializeParams": {"diskSizeGb": 200, "sourceImage": image},
        }
        scheduling: list[dict[str, Any]] = []
        if spot:
            scheduling.append({"preemptible": True})
        if gpus:  # machines with GPUs cannot be migrated
            scheduling.append({"onHostMaintenance": "TERMINATE"})
        config = {"machineType": type, "disks": [disk]}
        if scheduling:
            config["scheduling"] = scheduling
        return config
    parameters = {
        "vmSize": type,
        "imagePublisher": "microsoft-dsvm",
        "imageOffer": "ubuntu-2204",
        "imageSku": "2204-gen2",
        "imageVersion": "latest",
    }
    if spot:
        parameters["priority"] = "Spot"
    return {"azure_arm_parameters": parameters}
