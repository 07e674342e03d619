"""Queries of deploy/, asked of a Prometheus.

usage: prometheus_queries.py URL scraped QUERY    waits until it has a value
       prometheus_queries.py URL all DEPLOY       every alert, trigger and panel of a folder
"""
import json
import math
import os
import re
import sys
import time
import urllib.error
import urllib.parse
import urllib.request

import yaml

SECONDS = 300
CLASSES = "banyan_feedback_wrong_total"  # a model of text, which is what is served, predicts none


def ask(query):
    """The values of a query now; an exception where Prometheus does not understand it."""
    url = sys.argv[1] + "/api/v1/query?" + urllib.parse.urlencode({"query": query})
    try:
        with urllib.request.urlopen(url, timeout=300) as answer:
            data = json.loads(answer.read())["data"]
    except urllib.error.HTTPError as error:
        if error.code == 503:  # it is still starting
            return []
        raise SystemExit(f"{query}: {error.read().decode()}") from error
    rows = [data] if data["resultType"] == "scalar" else data["result"]
    return [float(row["value"][1]) for row in rows]


def wait_for(query):
    """The values once there are some and all are numbers: rates need two scrapes, rules one evaluation more."""
    end = time.time() + SECONDS
    values = []
    while not values or any(math.isnan(v) for v in values):
        if time.time() > end:
            raise SystemExit(f"{query}: {values or 'nothing'} after {SECONDS} s")
        time.sleep(0.1)
        try:
            values = ask(query)
        except urllib.error.URLError:  # it is still starting
            values = []
    return values


def left_side(condition):
    """What a condition compares; parentheses may hold comparisons of their own."""
    depth = 0
    for at, sign in enumerate(condition):
        depth += (sign in "({[") - (sign in ")}]")
        if depth == 0 and re.match(r"\s(==|>|<)\s", condition[at:]):
            return condition[:at]
    return condition


def measured(expression):
    """What an alert compares with its bounds: `a > 1 and b == 0` is about a and about b."""
    return [left_side(part.strip()) for part in re.split(r"\band\b(?! on)", expression)]


def read(*path):
    with open(os.path.join(sys.argv[3], *path), encoding="utf-8") as file:
        return file.read()


if sys.argv[2] == "scraped":
    wait_for(sys.argv[3])
    sys.exit(0)
rules = [rule for group in yaml.safe_load(read("prometheus", "alerts.yml"))["groups"] for rule in group["rules"]]
alerts = [rule["expr"] for rule in rules if "alert" in rule]
recorded = {rule["record"]: rule["expr"] for rule in rules if "record" in rule}
keda = yaml.safe_load(read("kubernetes", "autoscale-keda.yaml"))
triggers = [t["metadata"]["query"] for t in keda["spec"]["triggers"] if t["type"] == "prometheus"]
panels = json.loads(read("compose", "grafana", "dashboards", "banyan.json"))["panels"]
shown = [target["expr"] for panel in panels for target in panel["targets"]]
assert alerts and recorded and triggers and shown
for expression in [*recorded, *recorded.values(), *shown, *(part for alert in alerts for part in measured(alert))]:
    (ask if CLASSES in expression else wait_for)(expression)
for expression in alerts:
    ask(expression)
# Behind load the latency is no longer the zero that stands for none; nothing was refused.
for expression in triggers:
    end = time.time() + SECONDS
    while (value := wait_for(expression)) == [0.0] and "rejected" not in expression:
        assert time.time() < end, expression
    assert len(value) == 1 and 0.0 <= value[0] < 60.0, (expression, value)
print(f"{len(alerts)} alerts, {len(recorded)} rules, {len(triggers)} triggers, {len(shown)} panels")
