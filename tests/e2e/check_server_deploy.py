"""Checks what deploys a server in deploy/: fields against the schemas of Kubernetes' API (kubernetes-validate, where it is
installed), what schemas do not say, the metrics that alerts and panels ask for, and commands that banyan takes.

usage: check_server_deploy.py DEPLOY METRICS       DEPLOY: that folder; METRICS: what GET /metrics says
       check_server_deploy.py DEPLOY commands      prints the commands of banyan in it, one a line
"""
import copy
import glob
import json
import os
import re
import shlex
import sys

import yaml

folder, problems = sys.argv[1], []


def documents(pattern):
    for path in sorted(glob.glob(os.path.join(folder, pattern))):
        with open(path, encoding="utf-8") as file:
            for document in yaml.safe_load_all(file):
                yield os.path.relpath(path, folder), document


def need(condition, where, what):
    if not condition:
        problems.append(f"{where}: {what}")


objects = {}
for path, document in documents("kubernetes/*.yaml"):
    need(document["kind"] + "/" + document["metadata"]["name"] not in objects, path, "an object twice")
    objects[document["kind"] + "/" + document["metadata"]["name"]] = (path, document)
with open(os.path.join(folder, "compose/compose.yaml"), encoding="utf-8") as file:
    compose = yaml.safe_load(file)


def pods():
    for name, (path, document) in objects.items():
        if document["kind"] in ("Deployment", "StatefulSet"):
            yield path, name, document["spec"], document["spec"]["template"]["spec"]


if sys.argv[2] == "commands":
    commands = [c["command"] + c.get("args", []) for _, _, _, pod in pods() for c in pod["containers"]]
    commands += [s["command"] for s in compose["services"].values() if "command" in s]
    for unit in glob.glob(os.path.join(folder, "systemd/*.service")):
        for line in open(unit, encoding="utf-8"):
            if line.startswith("ExecStart="):
                commands.append(shlex.split(line[len("ExecStart=") :]))
    for command in commands:
        if os.path.basename(command[0]) == "banyan":
            print(shlex.join(command[1:]))
    sys.exit(0)

# ---- Kubernetes ----
try:
    import kubernetes_validate

    for name, (path, document) in objects.items():
        if not document["apiVersion"].startswith(("keda.sh/", "monitoring.coreos.com/")):
            try:
                kubernetes_validate.validate(document, kubernetes_validate.latest_version(), strict=True)
            except kubernetes_validate.ValidationError as error:
                problems.append(f"{path}: {name}: {error.message}")
except ImportError:
    print("kubernetes-validate is not installed: schemas are not looked at")
try:
    # Made from the CRDs of KEDA 2.16: what it reads is typed, and what it does not know is missing when it is written.
    # There is none of a newer one: fallback.behavior came with 2.17, and is compared below.
    from cloudcoil.models.keda import v1alpha1

    path, keda = objects["ScaledObject/banyan-worker"]
    keda = copy.deepcopy(keda)
    keda["spec"]["fallback"].pop("behavior", None)
    try:
        known = v1alpha1.ScaledObject.model_validate(keda).model_dump(mode="json", by_alias=True, exclude_unset=True)
        need(known == keda, path, "the schema of ScaledObject has no such field: " + json.dumps(keda))
    except ValueError as error:
        problems.append(f"{path}: {error}")
except ImportError:
    print("cloudcoil-models-keda is not installed: the schema of ScaledObject is not looked at")

for path, name, spec, pod in pods():
    labels = spec["template"]["metadata"]["labels"]
    need(spec["selector"]["matchLabels"].items() <= labels.items(), path, f"{name} does not select its own pods")
    need(pod["securityContext"]["runAsNonRoot"] and pod["automountServiceAccountToken"] is False, path, f"{name} may be root")
    volumes = {v["name"] for v in pod.get("volumes", [])} | {v["metadata"]["name"] for v in spec.get("volumeClaimTemplates", [])}
    for container in pod["containers"]:
        security = container["securityContext"]
        need(security["readOnlyRootFilesystem"] and security["capabilities"] == {"drop": ["ALL"]}, path, f"{name}: not hardened")
        need({m["name"] for m in container["volumeMounts"]} <= volumes, path, f"{name}: a mount without a volume")
        need("memory" in container["resources"]["limits"] and "readinessProbe" in container, path, f"{name}: no limit, or no probe")
    # Grace: what preStop waits and what the program drains, and some more.
    command = [a for c in pod["containers"] for a in c.get("command", []) + c.get("args", [])]
    stop = sum(int(a) for c in pod["containers"] for a in c.get("lifecycle", {}).get("preStop", {}).get("exec", {}).get("command", [])[1:])
    drain = int(command[command.index("--drain") + 1]) if "--drain" in command else 60 if "worker" in command else 0
    need(drain == 0 or pod["terminationGracePeriodSeconds"] > stop + drain, path, f"{name}: the grace period is too short")

for kind in ("PodDisruptionBudget", "NetworkPolicy", "HorizontalPodAutoscaler", "ScaledObject"):
    need(any(d["kind"] == kind for _, d in objects.values()), "kubernetes", f"no {kind}")
for name, (path, document) in objects.items():
    if document["kind"] in ("PodDisruptionBudget", "NetworkPolicy", "Service"):
        spec = document["spec"]
        selector = spec.get("podSelector") or spec["selector"]
        selector = selector.get("matchLabels", selector)
        need(any(selector.items() <= s["template"]["metadata"]["labels"].items() for _, _, s, _ in pods()), path, f"{name} selects nothing")
    if document["kind"] in ("HorizontalPodAutoscaler", "ScaledObject"):
        target = "Deployment/" + document["spec"]["scaleTargetRef"]["name"]
        need(target in objects and "replicas" not in objects[target][1]["spec"], path, f"{name}: {target} is not there, or has replicas")

# A gateway with keys answers Prometheus' alone, which no annotation can hold.
_, gateway = objects["Deployment/banyan-gateway"]
template = gateway["spec"]["template"]
path, monitor = objects["PodMonitor/banyan-gateway"]
ports = {p["name"] for c in template["spec"]["containers"] for p in c["ports"]}
need(monitor["spec"]["selector"]["matchLabels"].items() <= template["metadata"]["labels"].items(), path, "it selects nothing")
for endpoint in monitor["spec"]["podMetricsEndpoints"]:
    need(endpoint["port"] in ports and endpoint["authorization"]["credentials"]["key"], path, "no port, or no key")
need("annotations" not in template["metadata"], "kubernetes/gateway.yaml", "an annotation scrapes without a key")
# The job of alerts.
job = template["metadata"]["labels"].get(monitor["spec"]["jobLabel"])
need(job == "banyan", path, f"the job is {job}")
# What a gateway's configuration lets it reach: receivers of webhooks, a collector, a feature server and its store.
ways = {
    port["port"]
    for _, d in objects.values()
    if d["kind"] == "NetworkPolicy" and d["spec"]["podSelector"]["matchLabels"] == {"app": "banyan-gateway"}
    for rule in d["spec"].get("egress", [])
    for port in rule["ports"]
}
need(ways == {53, 443, 4318, 6379, 6566}, "kubernetes", f"gateways reach the ports {sorted(ways)}")

path, keda = objects["ScaledObject/banyan-worker"]
triggers = {t["name"]: t for t in keda["spec"]["triggers"]}
need(set(triggers) == {"p95", "refused", "lag"}, path, "p95, refusals and lag are wanted")
need(triggers["p95"]["metadata"]["threshold"] == "0.2", path, "the target is 0.2 s")
for name in ("p95", "refused"):
    need(triggers[name]["metricType"] == "Value", path, f"{name} must not be divided by replicas")
    need(triggers[name]["metadata"]["ignoreNullValues"] == "false" and "fallback" in keda["spec"], path, "a lost Prometheus looks like no latency")
need(keda["spec"]["fallback"].get("behavior") == "currentReplicasIfHigher", path, "a lost Prometheus scales a large pool in")
need(triggers["lag"].get("metricType") == "AverageValue", path, "lagCount is what one replica takes")
need({"consumerGroup", "lagCount", "activationLagCount"} <= set(triggers["lag"]["metadata"]), path, "without lagCount it counts what workers have")
need(keda["spec"]["minReplicaCount"] >= 1, path, "one request that waits does not start the first worker")
need(all(isinstance(v, str) for t in keda["spec"]["triggers"] for v in t["metadata"].values()), path, "metadata of triggers is text")

# ---- compose ----
for name, service in compose["services"].items():
    for key in ("networks", "secrets"):
        need(set(service.get(key, [])) <= set(compose[key]), "compose.yaml", f"{name}: {key}")
    for volume in service.get("volumes", []):
        source = volume.split(":")[0]
        there = source in compose["volumes"] or source in ("./models", "./key") or os.path.exists(os.path.join(folder, "compose", source))
        need(there, "compose.yaml", f"{name}: there is no {source}")

# ---- what alerts, panels and triggers ask for ----
exported = set(re.findall(r"^(?:# TYPE )?([a-z_:]+)", open(sys.argv[2], encoding="utf-8").read(), re.M)) | {"up"}
expressions = [("kubernetes/autoscale-keda.yaml", triggers[name]["metadata"]["query"]) for name in ("p95", "refused")]
with open(os.path.join(folder, "prometheus/alerts.yml"), encoding="utf-8") as file:
    rules = [rule for group in yaml.safe_load(file)["groups"] for rule in group["rules"]]
exported |= {rule["record"] for rule in rules if "record" in rule}
expressions += [("alerts.yml", rule["expr"]) for rule in rules]
with open(os.path.join(folder, "compose/grafana/dashboards/banyan.json"), encoding="utf-8") as file:
    dashboard = json.load(file)
expressions += [("banyan.json: " + panel["title"], target["expr"]) for panel in dashboard["panels"] for target in panel["targets"]]
for where, expression in expressions:
    for name in re.findall(r"\b(?:banyan|process)[a-z_:0-9]*|\bup\b", re.sub(r'"[^"]*"', '""', expression)):
        need(re.sub(r"_(bucket|sum|count)$", "", name) in exported or name in exported, where, f"no metric {name}")
need(dashboard["uid"] and "__inputs" not in dashboard and len({p["id"] for p in dashboard["panels"]}) == len(dashboard["panels"]), "banyan.json", "not for files")

print("\n".join(problems) or "right")
sys.exit(bool(problems))
