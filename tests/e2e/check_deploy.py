"""Checks deploy/mpijob.yaml against the fields of MPIJob v2beta1 and of the parts of a pod that it uses.

usage: check_deploy.py FILE
"""
import sys

import yaml

ANY = object()
QUANTITY = {"cpu": str, "memory": str}
CONTAINER = {
    "name": str,
    "image": str,
    "command": [str],
    "args": [str],
    "env": [{"name": str, "value": str}],
    "resources": {"limits": QUANTITY, "requests": QUANTITY},
    "securityContext": {"capabilities": {"add": [str], "drop": [str]}, "runAsUser": int},
    "volumeMounts": [{"name": str, "mountPath": str, "readOnly": bool}],
}
POD = {
    "terminationGracePeriodSeconds": int,
    "containers": [CONTAINER],
    "nodeSelector": ANY,
    "tolerations": ANY,
    "volumes": [
        {
            "name": str,
            "persistentVolumeClaim": {"claimName": str, "readOnly": bool},
            "emptyDir": {"medium": str, "sizeLimit": str},
        }
    ],
}
REPLICA = {
    "replicas": int,
    "restartPolicy": {"Never", "OnFailure", "Always", "ExitCode"},
    "template": {"metadata": ANY, "spec": POD},
}
MPIJOB = {
    "apiVersion": {"kubeflow.org/v2beta1"},
    "kind": {"MPIJob"},
    "metadata": {"name": str, "namespace": str, "labels": ANY, "annotations": ANY},
    "spec": {
        "slotsPerWorker": int,
        "runLauncherAsWorker": bool,
        "sshAuthMountPath": str,
        "launcherCreationPolicy": {"AtStartup", "WaitForWorkersReady"},
        "mpiImplementation": {"OpenMPI", "Intel", "MPICH"},
        "runPolicy": {
            "cleanPodPolicy": {"None", "Running", "All"},
            "ttlSecondsAfterFinished": int,
            "activeDeadlineSeconds": int,
            "backoffLimit": int,
            "suspend": bool,
            "schedulingPolicy": ANY,
        },
        "mpiReplicaSpecs": {"Launcher": REPLICA, "Worker": REPLICA},
    },
}
REQUIRED = [
    "apiVersion",
    "kind",
    "metadata.name",
    "spec.mpiReplicaSpecs.Launcher.template.spec.containers",
    "spec.mpiReplicaSpecs.Worker.template.spec.containers",
    "spec.mpiReplicaSpecs.Worker.replicas",
]


def check(value, shape, where):
    """The problems of a value, as lines."""
    if shape is ANY:
        return []
    if isinstance(shape, set):
        return [] if value in shape else [f"{where}: {value!r} is none of {sorted(shape)}"]
    if isinstance(shape, list):
        if not isinstance(value, list):
            return [f"{where}: not a list"]
        return [p for i, v in enumerate(value) for p in check(v, shape[0], f"{where}[{i}]")]
    if isinstance(shape, dict):
        if not isinstance(value, dict):
            return [f"{where}: not a mapping"]
        unknown = [f"{where}.{k}: there is no such field" for k in value if k not in shape]
        return unknown + [
            p for k, v in value.items() if k in shape for p in check(v, shape[k], f"{where}.{k}")
        ]
    good = isinstance(value, shape) and not (shape is int and isinstance(value, bool))
    return [] if good else [f"{where}: {value!r} is not {shape.__name__}"]


def find(value, path):
    for key in path.split("."):
        value = value.get(key) if isinstance(value, dict) else None
    return value


def check_pod(replica, where):
    """Every mount has its volume, and saving after an eviction has its time."""
    spec = replica["template"]["spec"]
    volumes = {v["name"] for v in spec.get("volumes", [])}
    mounts = {m["name"] for c in spec["containers"] for m in c.get("volumeMounts", [])}
    problems = [f"{where}: there is no volume {m}" for m in sorted(mounts - volumes)]
    if spec.get("terminationGracePeriodSeconds", 30) < 100:
        problems.append(f"{where}: terminationGracePeriodSeconds is shorter than --grace")
    return problems


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        job = yaml.safe_load(file)
    problems = check(job, MPIJOB, "job")
    problems += [f"{path} is missing" for path in REQUIRED if find(job, path) is None]
    if not problems:
        for name, replica in job["spec"]["mpiReplicaSpecs"].items():
            problems += check_pod(replica, name)
        if job["spec"]["mpiReplicaSpecs"]["Launcher"].get("replicas", 1) != 1:
            problems.append("Launcher: one replica")
    print("\n".join(problems) or f"{sys.argv[1]} is an MPIJob")
    return 1 if problems else 0


sys.exit(main())
