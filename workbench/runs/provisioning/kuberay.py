"""Write manifests for the KubeRay operator: a RayJob for one run, or a RayCluster for many."""

from __future__ import annotations

import shlex
from typing import Any, Literal

from workbench.experiment.yaml_file import write_yaml
from workbench.foundation.errors import ExperimentError
from workbench.runs.provisioning.cluster_request import AWAIT, ClusterRequest, as_comment, versions

Kind = Literal["job", "cluster"]
_FOLDER, _FILE = "/experiment", "experiment.yaml"  # whatever the name of the file on this machine
_SPOT_LABELS = {
    "aws": ("eks.amazonaws.com/capacityType", "SPOT"),
    "gcp": ("cloud.google.com/gke-spot", "true"),
    "azure": ("kubernetes.azure.com/scalesetpriority", "spot"),
}
_KEPT_S = 600
# The fraction of a node that Kubernetes leaves to pods.
_ALLOCATABLE_FRACTION = 0.9


def manifests(rental: ClusterRequest, image: str, kind: Kind = "job") -> str:
    """Write the manifests.

    Args:
        rental: What is to be rented.
        image: An image with Ray, the workbench, and the code that the experiment names.
        kind: "job" is a cluster that ends with this run, "cluster" one that stays.

    Raises:
        ArgumentError: If the store or the artifacts are on a single machine.
        ExperimentError: If the experiment holds objects of a notebook.
    """
    rental.check_shared_storage()
    if rental.experiment.payload_hashes():
        raise ExperimentError(
            "the experiment contains an object from a notebook cell, which is not part of an image",
            field="FILE",
            next_step="Move it into a module of the image: package.module:function.",
        )
    files = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": rental.name},
        "data": {_FILE: rental.experiment.to_yaml()},
    }
    cluster = _cluster(rental, image)
    resource: dict[str, Any] = {"apiVersion": "ray.io/v1", "kind": "RayCluster", "spec": cluster}
    if kind == "job":
        spec = {
            "entrypoint": f"bash -c {shlex.quote(_session(rental))}",
            "submissionMode": "K8sJobMode",
            # The driver of a run restarts by itself. On a new cluster, --resume RUN continues the
            # run.
            "backoffLimit": 0,
            "shutdownAfterJobFinishes": True,
            "ttlSecondsAfterFinished": _KEPT_S,
            "suspend": False,
            "rayClusterSpec": cluster,
        }
        resource = {"apiVersion": "ray.io/v1", "kind": "RayJob", "spec": spec}
    resource = {
        "apiVersion": resource["apiVersion"],
        "kind": resource["kind"],
        "metadata": {"name": rental.name},
        **resource,
    }
    known = versions()
    notes = as_comment(f"""
{rental.title}. KubeRay 1.5.1 or newer.
It creates a token for the cluster and keeps it in a Secret. Everybody who can read the Secret can \
run code on the cluster. The services can be reached inside Kubernetes only: do not open an \
ingress to them.

The image must contain Python {known["python"]}, ray=={known["ray"]}, torch=={known["torch"]}, \
this workbench
and the code of the experiment. The pods need a role that may read and write \
{rental.artifacts}.
The password of the store is also a Secret:
  kubectl create secret generic {rental.name}-store --from-file=password=FILE

  kubectl apply -f FILE
  workbench follow last --store {rental.store}
""")
    return f"{notes}{write_yaml(files)}---\n{write_yaml(resource)}"


def _session(rental: ClusterRequest) -> str:
    """Return the shell command of the run, which requests the nodes and releases them."""
    command = f"sweep {_FOLDER}/{_FILE}"
    if rental.resume is not None:
        command = f"resume {shlex.quote(rental.resume)}"
    if rental.experiment.resources.autoscaling:  # the run does both itself
        return f"exec workbench {command}"
    return f"{rental.await_command} && workbench {command}; code=$?; {AWAIT} --release; exit $code"


def _cluster(rental: ClusterRequest, image: str) -> dict[str, Any]:
    machine = rental.machine
    cpus = max(1, int(machine.vcpus * _ALLOCATABLE_FRACTION))
    of_worker: dict[str, Any] = {
        "cpu": str(cpus),
        "memory": f"{int(machine.memory_gib * _ALLOCATABLE_FRACTION)}Gi",
    }
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


def _pod(
    name: str, image: str, rental: ClusterRequest, resources: dict[str, Any]
) -> dict[str, Any]:
    # The operator sets RAY_AUTH_MODE and the token itself.
    settings = {key: value for key, value in rental.environment.items() if key != "RAY_AUTH_MODE"}
    settings["WORKBENCH_RAY_ADDRESS"] = "auto"
    environment: list[dict[str, Any]] = [
        {"name": key, "value": value} for key, value in settings.items()
    ]
    secret = {"secretKeyRef": {"name": f"{rental.name}-store", "key": "password"}}
    environment.append({"name": "PGPASSWORD", "valueFrom": secret})
    container = {
        "name": name,
        "image": image,
        "env": environment,
        "resources": {"limits": resources, "requests": dict(resources)},
        "volumeMounts": [{"name": "experiment", "mountPath": _FOLDER, "readOnly": True}],
        "securityContext": {"allowPrivilegeEscalation": False},
    }
    volume = {"name": "experiment", "configMap": {"name": rental.name}}
    return {"spec": {"containers": [container], "volumes": [volume]}}
