"""Manifests for the KubeRay operator: a RayJob that does one run, or a RayCluster for many."""

from __future__ import annotations

import shlex
from typing import Any, Literal

from workbench.errors import ExperimentError
from workbench.experiment.yaml_file import write_yaml
from workbench.renting.rental import AWAIT, Rental, remark, versions

Kind = Literal["job", "cluster"]
_FOLDER, _FILE = "/experiment", "experiment.yaml"  # whatever the file is called here
_SPOT_LABELS = {
    "aws": ("eks.amazonaws.com/capacityType", "SPOT"),
    "gcp": ("cloud.google.com/gke-spot", "true"),
    "azure": ("kubernetes.azure.com/scalesetpriority", "spot"),
}
_KEPT_S = 600
# What a node of Kubernetes keeps for itself.
_LEFT_OF_NODE = 0.9


def manifests(rental: Rental, image: str, kind: Kind = "job") -> str:
    """Write the manifests.

    Args:
        rental: What is to be rented.
        image: Holds Ray, the workbench, and the code that the experiment names.
        kind: job: a cluster for this run, which ends with it; cluster: one that stays.

    Raises:
        ExperimentError: If something lies where only one machine reaches it.
    """
    rental.refuse_local_files()
    if rental.experiment.payload_hashes():
        raise ExperimentError(
            "the experiment holds what was made in a notebook cell, which an image cannot", field="FILE",
            next_step="Put that into a module of the image and name it: package.module:function.",
        )  # fmt: skip
    files = {
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": rental.name},
        "data": {_FILE: rental.experiment.to_yaml()},
    }  # fmt: skip
    cluster = _cluster(rental, image)
    what: dict[str, Any] = {"apiVersion": "ray.io/v1", "kind": "RayCluster", "spec": cluster}
    if kind == "job":
        spec = {
            "entrypoint": f"bash -c {shlex.quote(_session(rental))}",
            "submissionMode": "K8sJobMode",
            # The driver of a run comes back by itself; a new cluster goes on with --resume RUN.
            "backoffLimit": 0,
            "shutdownAfterJobFinishes": True,
            "ttlSecondsAfterFinished": _KEPT_S,
            "suspend": False,
            "rayClusterSpec": cluster,
        }
        what = {"apiVersion": "ray.io/v1", "kind": "RayJob", "spec": spec}
    what = {"apiVersion": what["apiVersion"], "kind": what["kind"], "metadata": {"name": rental.name}, **what}
    known = versions()
    told = remark(f"""
{rental.title}. KubeRay 1.5.1 or newer.
It makes a token for the cluster and keeps it in a Secret; whoever can read that can run code on the cluster.
The services are reachable inside Kubernetes only: open no ingress to them.

The image must hold Python {known['python']}, ray=={known['ray']}, torch=={known['torch']}, this workbench
and the code that the experiment names. The pods need a role that may read and write {rental.artifacts}.
The password of the store is a Secret, too:
  kubectl create secret generic {rental.name}-store --from-file=password=FILE

  kubectl apply -f FILE
  workbench follow last --store {rental.store}
""")  # fmt: skip
    return f"{told}{write_yaml(files)}---\n{write_yaml(what)}"


def _session(rental: Rental) -> str:
    """Return the shell command that does the run, machines asked for first and let go at its end."""
    do = f"sweep {_FOLDER}/{_FILE}" if rental.resume is None else f"resume {shlex.quote(rental.resume)}"
    if rental.experiment.resources.autoscaling:  # the run does both itself
        return f"exec workbench {do}"
    return f"{rental.ask} && workbench {do}; code=$?; {AWAIT} --release; exit $code"


def _cluster(rental: Rental, image: str) -> dict[str, Any]:
    machine = rental.machine
    cpus = max(1, int(machine.vcpus * _LEFT_OF_NODE))
    of_worker: dict[str, Any] = {"cpu": str(cpus), "memory": f"{int(machine.memory_gib * _LEFT_OF_NODE)}Gi"}
    if machine.gpus:
        of_worker["nvidia.com/gpu"] = str(machine.gpus)
    of_head = {"cpu": "2", "memory": "8Gi"}
    worker = _pod("ray-worker", image, rental, of_worker)
    if machine.provider in _SPOT_LABELS:
        worker["spec"]["nodeSelector"] = {"node.kubernetes.io/instance-type": machine.type}
        if rental.spot:
            label, value = _SPOT_LABELS[machine.provider]
            worker["spec"]["nodeSelector"][label] = value
            worker["spec"]["tolerations"] = [
                {"key": label, "operator": "Equal", "value": value, "effect": "NoSchedule"}
            ]
    return {
        "rayVersion": versions()["ray"],
        "authOptions": {"mode": "token"},
        "enableInTreeAutoscaling": True,
        "autoscalerOptions": {"idleTimeoutSeconds": int(rental.idle_s), "upscalingMode": "Default"},
        "headGroupSpec": {
            "serviceType": "ClusterIP",
            "enableIngress": False,
            "rayStartParams": {"num-cpus": "0", "disable-usage-stats": "true"},
            "template": _pod("ray-head", image, rental, of_head),
        },
        "workerGroupSpecs": [
            {
                "groupName": "workers",
                "replicas": rental.min_nodes,
                "minReplicas": rental.min_nodes,
                "maxReplicas": rental.nodes,
                "rayStartParams": {"num-cpus": str(machine.vcpus)},
                "template": worker,
            }
        ],
    }


def _pod(name: str, image: str, rental: Rental, resources: dict[str, Any]) -> dict[str, Any]:
    # The operator sets RAY_AUTH_MODE and the token itself.
    settings = {key: value for key, value in rental.environment.items() if key != "RAY_AUTH_MODE"}
    settings["WORKBENCH_RAY_ADDRESS"] = "auto"
    environment: list[dict[str, Any]] = [{"name": key, "value": value} for key, value in settings.items()]
    secret = {"secretKeyRef": {"name": f"{rental.name}-store", "key": "password"}}
    environment.append({"name": "PGPASSWORD", "valueFrom": secret})
    container = {
        "name": name, "image": image, "env": environment,
        "resources": {"limits": resources, "requests": dict(resources)},
        "volumeMounts": [{"name": "experiment", "mountPath": _FOLDER, "readOnly": True}],
        "securityContext": {"allowPrivilegeEscalation": False},
    }  # fmt: skip
    volume = {"name": "experiment", "configMap": {"name": rental.name}}
    return {"spec": {"containers": [container], "volumes": [volume]}}
