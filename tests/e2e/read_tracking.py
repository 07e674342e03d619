"""Reads what a run has recorded with the packages that it is recorded for, and compares it with events.jsonl.

usage: read_tracking.py tensorboard|wandb RUN
       read_tracking.py mlflow URL RUN=STATUS...    the server has each run, which ended so, once and whole
       read_tracking.py prometheus RUN FILE         a page that was fetched while the run went on
"""

import glob
import json
import math
import os
import struct
import sys


def events_of(run):
    with open(os.path.join(run, "events.jsonl")) as lines:
        return [json.loads(line) for line in lines]


def numbers_of(event):
    skip = ("event", "step", "time")
    words = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
    values = {k: words.get(v, v) for k, v in event.items() if k not in skip}
    return {k: v for k, v in values.items() if not isinstance(v, str)}


def expect(condition, what):
    if not condition:
        sys.exit("read_tracking: " + what)


def same(a, b):
    return a == b or (math.isnan(a) and math.isnan(b))


def tensorboard(run):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    everything = {"scalars": 0, "tensors": 0, "histograms": 0}
    read = EventAccumulator(os.path.join(run, "tensorboard"), size_guidance=everything)
    read.Reload()
    wanted = {}
    for event in events_of(run):
        for key, value in numbers_of(event).items():
            wanted.setdefault(event["event"] + "/" + key, []).append((event["step"], value))
    expect(set(read.Tags()["scalars"]) == set(wanted), "tags %s, not %s" % (read.Tags()["scalars"], sorted(wanted)))
    for tag, points in wanted.items():
        got = [(s.step, s.value) for s in read.Scalars(tag)]
        # The numbers are f32 there.
        points = [(step, struct.unpack("f", struct.pack("f", value))[0]) for step, value in points]
        expect(len(got) == len(points), "%s has %d points, not %d" % (tag, len(got), len(points)))
        for a, b in zip(got, points):
            expect(a[0] == b[0] and same(a[1], b[1]), "%s: %s is not %s" % (tag, a, b))
    text = read.Tensors("run/config")[-1].tensor_proto.string_val[0].decode()
    with open(os.path.join(run, "config.yaml")) as config:
        expect(text == config.read(), "run/config is not config.yaml")
    plugin = read.SummaryMetadata("run/config").plugin_data.plugin_name
    expect(plugin == "text", "run/config is shown by '%s'" % plugin)
    samples = [(e["step"], e["text"]) for e in events_of(run) if e["event"] == "sample"]
    shown = [(t.step, t.tensor_proto.string_val[0].decode()) for t in read.Tensors("sample/text")]
    expect(len(samples) > 1 and shown == samples, "sample/text is %s, not %s" % (shown, samples))
    plugin = read.SummaryMetadata("sample/text").plugin_data.plugin_name
    expect(plugin == "text", "sample/text is shown by '%s'" % plugin)
    sizes = sizes_of(run)
    tags = {what + "/" + name for what in ("weight", "gradient") for name in sizes}
    expect(set(read.Tags()["histograms"]) == tags, "histograms %s" % read.Tags()["histograms"])
    for tag in tags:
        for h in (e.histogram_value for e in read.Histograms(tag)):
            expect(h.num == sum(h.bucket) == sizes[tag.split("/", 1)[1]], "%s counts %g" % (tag, h.num))
            expect(h.min <= h.max <= h.bucket_limit[-1], "%s ends at %g" % (tag, h.max))
            expect(list(h.bucket_limit) == sorted(set(h.bucket_limit)), "%s: limits" % tag)
            near = abs(h.sum_squares - sum(n * b * b for n, b in zip(h.bucket, h.bucket_limit)))
            expect(near <= 0.8 * h.sum_squares, "%s: squares %g" % (tag, h.sum_squares))
    print("%d scalars, %d histograms" % (len(wanted), len(tags)))


def sizes_of(run):
    """Elements of each tensor of the newest checkpoint."""
    path = sorted(glob.glob(os.path.join(run, "checkpoints", "step-*", "model.safetensors")))[-1]
    with open(path, "rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        head = json.loads(file.read(length))
    head.pop("__metadata__", None)
    return {name: math.prod(tensor["shape"]) for name, tensor in head.items()}


def records_of(path):
    from wandb.proto import wandb_internal_pb2
    from wandb.sdk.internal import datastore

    store = datastore.DataStore()
    store.open_for_scan(path)
    while True:
        data = store.scan_data()
        if data is None:
            return
        record = wandb_internal_pb2.Record()
        record.ParseFromString(data)
        yield record


def wandb(run):
    rows = {}
    ids = set()
    last = []
    for path in sorted(glob.glob(os.path.join(run, "wandb", "offline-run-*", "run-*.wandb"))):
        records = list(records_of(path))
        kinds = [r.WhichOneof("record_type") for r in records]
        expect([r.num for r in records] == list(range(1, len(records) + 1)), "records are not numbered in turn")
        expect(kinds[:2] == ["header", "run"], "a file begins with %s" % kinds[:2])
        about = records[1].run
        ids.add(about.run_id)
        config = {item.key: json.loads(item.value_json) for item in about.config.update}
        expect(config["train.batch"] == 8 and config["model.kind"] == "gpt2", "config %s" % config)
        expect(about.display_name == os.path.basename(run), "name %s" % about.display_name)
        first = about.starting_step if about.resumed else 0
        rows = {step: row for step, row in rows.items() if step < first}
        for record in records:
            if record.WhichOneof("record_type") == "history":
                row = {item.key: json.loads(item.value_json) for item in record.history.item}
                expect(row["_step"] == record.history.step.num, "_step")
                expect(row["_step"] not in rows, "two rows of step %d" % row["_step"])
                rows[row["_step"]] = row
        last = kinds[-3:]
    expect(len(ids) == 1, "ids %s" % ids)
    expect(last == ["final", "exit", "footer"], "the last file ends with %s" % last)
    sizes = sizes_of(run)
    for row in rows.values():
        for key, value in row.items():
            if key.startswith("weight/") or key.startswith("gradient/"):
                expect(value["_type"] == "histogram" and len(value["bins"]) == len(value["values"]) + 1, key)
                expect(sum(value["values"]) == sizes[key.split("/", 1)[1]], key)
    points = 0
    for event in events_of(run):
        for key, value in numbers_of(event).items():
            got = rows[event["step"]].get(event["event"] + "/" + key)
            expect(got is not None and same(got, value), "step %d: %s is %s, not %s" % (event["step"], key, got, value))
            points += 1
    print("%d rows, %d values" % (len(rows), points))


def mlflow(url, *runs):
    from mlflow.tracking import MlflowClient

    client = MlflowClient(url)
    for wanted in runs:
        mlflow_run(client, *wanted.rsplit("=", 1))


def mlflow_run(client, run, status):
    experiment = client.get_experiment_by_name("banyan")
    name = os.path.basename(run)
    runs = [r for r in client.search_runs([experiment.experiment_id]) if r.info.run_name == name]
    expect(len(runs) == 1, "%d runs are named %s" % (len(runs), name))
    got = runs[0]
    expect(got.info.status == status, "status %s, not %s" % (got.info.status, status))
    params = got.data.params
    expect(params["train.batch"] == "8" and params["model.kind"] == "gpt2", "parameters %s" % params)
    with open(os.path.join(run, "environment.json")) as text:
        cpu = json.load(text)["cpu"]
    expect(got.data.tags["banyan.cpu"] == cpu, "tags %s" % got.data.tags)
    wanted = {}
    for event in events_of(run):
        for key, value in numbers_of(event).items():
            point = (event["step"], round(event["time"] * 1000), value)
            wanted.setdefault(event["event"] + "/" + key, []).append(point)
    expect(set(got.data.metrics) == set(wanted), "metrics %s, not %s" % (sorted(got.data.metrics), sorted(wanted)))
    for key, points in wanted.items():
        history = sorted((m.step, m.timestamp, m.value) for m in client.get_metric_history(got.info.run_id, key))
        expect(history == sorted(points), "%s has %d points, not %d" % (key, len(history), len(points)))
    print("%d metrics, %d points" % (len(wanted), sum(len(p) for p in wanted.values())))


def prometheus(run, page):
    from prometheus_client.parser import text_string_to_metric_families

    with open(page) as text:
        families = {f.name: f for f in text_string_to_metric_families(text.read())}
    steps = {}
    for event in events_of(run):
        steps.setdefault(event["step"], {}).update(
            ("banyan_%s_%s" % (event["event"], k), v) for k, v in numbers_of(event).items()
        )
    expect(all(f.type == "gauge" for f in families.values()), "types %s" % families)
    for name in ("banyan_train_loss", "banyan_train_lr"):
        sample = families[name].samples[0]
        expect(sample.labels == {"run": os.path.basename(run)}, "labels %s" % sample.labels)
        expect(any(values.get(name) == sample.value for values in steps.values()), "%s %s" % (name, sample.value))
    print("%d families" % len(families))


if __name__ == "__main__":
    readers = {"tensorboard": tensorboard, "wandb": wandb, "mlflow": mlflow, "prometheus": prometheus}
    readers[sys.argv[1]](*sys.argv[2:])
