"""Published step times against `banyan plan calibrate`: errors of layouts that were not fitted.

    python3 bench/plan_tables.py DIRECTORY [--held DIRECTORY] [--banyan build/release/banyan]

DIRECTORY has step_vtrain_single.csv, step_vtrain_multi.csv, step_fsdp.csv, step_megatron_seqsel.csv,
step_mlperf.csv and models.csv (columns: docs/planning.md); --held has tables of the same names with other rows, which
are only judged. Without it whole layouts are left out in five parts, in turn. Prints the mean absolute error of each.
"""
import argparse
import csv
import json
import pathlib
import subprocess
import tempfile

CLUSTERS = {
    # Peaks of the makers; the other figures are where fits begin.
    "a100_one": ("a100", 312, 1500, [("host", 8, 5, 200)]),
    "a100": ("a100", 312, 1500, [("host", 8, 5, 200), ("rack", 64, 15, 100)]),
    "a100_fast": ("a100", 312, 1500, [("host", 8, 5, 200), ("rack", 64, 15, 200)]),
    "h100": ("h100", 1979, 3000, [("host", 8, 5, 350), ("rack", 1344, 15, 350)]),
    "gb200": ("gb200", 5000, 7000, [("rack", 72, 5, 700), ("spine", 64, 15, 3000)]),
}
FIELDS = ["kind", "layers", "width", "heads", "kv_heads", "mlp_width", "context", "vocabulary", "tied", "devices", "batch",
          "micro_batch", "tensor", "sequence", "pipeline", "shard", "zero", "virtual_stages", "recompute",
          "sequence_parallel", "sums", "step_s"]


def read(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def write_cluster(path, name):
    device, tflops, memory, levels = CLUSTERS[name]
    lines = [f"name: {name}", f"device: {{name: {device}, bf16_tflops: {tflops}, memory_gb_s: {memory}, launch_us: 6,",
             "         product_share: 0.6, attention_share: 0.3, step_us: 1000}", "levels:"]
    lines += [f"  - {{name: {n}, width: {w}, latency_us: {l}, gb_s: {g}}}" for n, w, l, g in levels]
    path.write_text("\n".join(lines) + "\n")


def shape(row, models):
    """The columns of a model of models.csv."""
    m = models[row["model"]]
    return {"kind": "llama" if m["gated"] == "1" else "gpt2", "layers": m["layers"], "width": m["width"],
            "heads": m["heads"], "kv_heads": m["kv_heads"], "mlp_width": m["mlp"], "vocabulary": m["vocabulary"],
            "tied": m["tied_embedding"]}


def vtrain(row, _):
    return {**{k: row[k] for k in ("layers", "width", "heads", "context", "devices", "batch", "micro_batch", "tensor",
                                   "pipeline")},
            "kind": "gpt2", "vocabulary": 51200, "tied": 1, "recompute": "full",
            "step_s": float(row["step_ms"]) / 1e3}


def fsdp(row, models):
    # micro_batch is a device's; a row without shape is of a model that the table of models lacks.
    devices = int(row["devices"])
    tokens = int(row["batch"]) * int(row["context"])
    return {**shape(row, models), "context": row["context"], "devices": devices, "batch": row["batch"],
            "micro_batch": row["micro_batch"], "shard": devices, "zero": 3 if row["sharding"] == "FULL_SHARD" else 2,
            "recompute": "full" if row["recompute"] == "True" else "none", "step_s": tokens / float(row["tokens_per_s"])}


def megatron(row, models):
    return {**shape(row, models), "context": row["context"], "devices": row["devices"], "batch": row["batch"],
            "micro_batch": row["micro_batch"], "tensor": row["tensor"], "pipeline": row["pipeline"],
            "virtual_stages": row["virtual_stages"], "recompute": row["recompute"],
            "sequence_parallel": row["sequence_parallel"], "step_s": row["step_s"]}


def mlperf(row, models):
    names = {"gpt3": "gpt3", "llama31_405b": "llama3.1-405b"}
    shard = int(row["data"])
    return {**shape({"model": names[row["model"]]}, models), "context": row["context"], "devices": row["devices"],
            "batch": row["batch"], "micro_batch": row["micro_batch"], "tensor": row["tensor"], "shard": shard, "zero": 1,
            "sequence": row["sequence"], "pipeline": row["pipeline"], "virtual_stages": row["virtual_stages"],
            "sequence_parallel": 1, "step_s": row["step_s_median"]}


def layout_of(row):
    """What one layout of a table has in common, so that its rows are held together."""
    keys = ("devices", "tensor", "pipeline", "data", "model", "device", "context", "sharding")
    return tuple(row.get(k, "") for k in keys)


class Tables:
    def __init__(self, args, scratch):
        self.banyan, self.scratch = args.banyan, pathlib.Path(scratch)
        self.models = {m["model"]: m for m in read(args.directory / "models.csv")}

    def write(self, name, rows, convert):
        path = self.scratch / name
        with open(path, "w", newline="") as file:
            out = csv.DictWriter(file, FIELDS, restval="")
            out.writeheader()
            for row in rows:
                cells = convert(row, self.models)
                defaults = {"kv_heads": cells["heads"], "mlp_width": 4 * int(cells["width"]), "tensor": 1, "sequence": 1,
                            "pipeline": 1, "shard": 1, "zero": 1, "virtual_stages": 1, "recompute": "none",
                            "sequence_parallel": 0, "sums": 0}
                cells["tied"] = 0  # others exchange a tied table once a step, and add gradients in place
                out.writerow({**defaults, **cells})
        return path

    def run(self, table, cluster, *flags):
        done = subprocess.run([self.banyan, "plan", "calibrate", str(table), "--cluster", str(cluster), "--json", *flags],
                              capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise SystemExit(done.stderr)
        return json.loads(done.stdout)

    def fit(self, name, rows, convert):
        start, fitted = self.scratch / "start.yaml", self.scratch / "fitted.yaml"
        write_cluster(start, name)
        return self.run(self.write("open.csv", rows, convert), start, "--out", str(fitted)), fitted

    def judge(self, title, cluster, rows, convert, held):
        result, fitted = self.fit(cluster, rows, convert)
        line = f"{title}: {len(rows)} rows, {result['fitted']} figures, fitted to all {100 * result['mean_error']:.2f} %"
        if held:
            other = self.run(self.write("held.csv", held, convert), fitted, "--keep")
            line += f", held rows {100 * other['mean_error']:.2f} % (90 % within {100 * other['p90_error']:.1f} %)"
        elif len(rows) >= 20:
            total = count = 0
            layouts = sorted({layout_of(r) for r in rows})
            for part in range(5):
                out = set(layouts[part::5])
                inside = [r for r in rows if layout_of(r) not in out]
                outside = [r for r in rows if layout_of(r) in out]
                _, fitted = self.fit(cluster, inside, convert)
                other = self.run(self.write("held.csv", outside, convert), fitted, "--keep")
                total += other["mean_error"] * len(outside)
                count += len(outside)
            line += f", layouts left out {100 * total / count:.2f} %"
        else:
            line += f", worst {100 * result['worst_error']:.2f} %"
        print(line, flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("directory", type=pathlib.Path)
    parser.add_argument("--held", type=pathlib.Path)
    parser.add_argument("--banyan", default="build/release/banyan")
    parser.add_argument("--only", default="", help="part of a table's name")
    args = parser.parse_args()
    cases = [("vtrain_single", "a100_one", vtrain, None), ("vtrain_multi", "a100", vtrain, None),
             ("fsdp", "a100_fast", fsdp, lambda r: r["device"].startswith("a100")),
             ("megatron_seqsel", "a100_fast", megatron, None),
             ("mlperf", "h100", mlperf, lambda r: r["machine"].startswith("h100")),
             ("mlperf", "gb200", mlperf, lambda r: r["machine"].startswith("gb200"))]
    with tempfile.TemporaryDirectory() as scratch:
        tables = Tables(args, scratch)
        for name, cluster, convert, keep in cases:
            if args.only not in name:
                continue
            file = f"step_{name}.csv"
            rows = [r for r in read(args.directory / file) if keep is None or keep(r)]
            held = []
            if args.held and (args.held / file).exists():
                held = [r for r in read(args.held / file) if keep is None or keep(r)]
            tables.judge(f"{name} ({cluster})", cluster, rows, convert, held)


if __name__ == "__main__":
    main()
